"""The audit of a step on this machine's GPU, by torch's profiler and callbacks."""
