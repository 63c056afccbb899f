"""What user code finds where it looks for CUDA: torch.cuda, streams, autocast, libraries."""
