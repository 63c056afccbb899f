"""The accelerator that does not exist: tensors, what torch.cuda answers, sync rules, a clock."""
