"""An accelerator that does not exist: its tensors, its answers to torch.cuda, its sync rules."""
