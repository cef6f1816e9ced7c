"""The kernel set of the virtual GPUs: kernels of many kinds with exact or float64 references.

The tests run every case on every target that it names; `w2w bench virtual` measures the same cases.

>>> len(CASES) >= 40
True
"""

from gpu_utils.kernelset import (
    atomics,
    attention,
    elementwise,
    flow,
    matmuls,
    microscaling,
    numbers,
    rows,
    scans,
    shapes,
    vendor,
)
from gpu_utils.kernelset.case import AMD, CASES, NVIDIA, TARGETS, KernelCase, Result, Run

__all__ = [
    "AMD",
    "CASES",
    "NVIDIA",
    "TARGETS",
    "KernelCase",
    "Result",
    "Run",
    "atomics",
    "attention",
    "elementwise",
    "flow",
    "matmuls",
    "microscaling",
    "numbers",
    "rows",
    "scans",
    "shapes",
    "vendor",
]
