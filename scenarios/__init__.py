"""One file is one workload family; `published.py` holds the published claims as data."""
