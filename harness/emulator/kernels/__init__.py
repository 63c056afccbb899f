"""How results are computed, on real values or on shapes alone."""
