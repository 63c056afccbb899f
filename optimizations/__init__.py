"""One file is one fix, with its variants, what it needs and its trade-off."""
