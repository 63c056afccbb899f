"""Modelled time: the work of an op, its cost on a GPU of the catalogue, and queues of kernels."""
