"""A GPU of an architecture that gapless has shares for."""

from __future__ import annotations

from harness.clock.gpus import GpuSpec

MI325X = GpuSpec(
    key="MI325X",
    name="AMD Instinct MI325X",
    vendor="amd",
    architecture="cdna3",
    capability=(9, 4),
    memory_bytes=274_877_906_944,
    num_multiprocessors=304,
    memory_gb_per_s=6000,
    vector_tflops=163.4,
    tflops={"bfloat16": 1307.4, "float16": 1307.4, "float8": 2614.9},
    link="PCIe 5.0 x16",
    link_gb_per_s=55.7,
    source="AMD Instinct MI325X data sheet",
)
