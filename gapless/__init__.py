"""Find, fix and prove coordination overhead in PyTorch training."""

__version__ = "0.1.0"
