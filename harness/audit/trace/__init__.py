"""Audits of Kineto traces: CUDA and ROCm, 2021 to today."""
