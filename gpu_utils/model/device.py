"""The device that training runs on: which one, in which precision, its peak and its memory."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch

from gpu_utils.chips import probe

_CPU_PEAK_SIZES = (512, 1024)
"""The smaller product ends within one time slice, where other processes run too; the larger one feeds many cores."""

_CPU_PEAK_SECONDS = 0.6
"""Of all sizes together."""


@dataclass(frozen=True)
class Peak:
    """FLOP/s that matrix products can reach, or None, and where the figure comes from."""

    flops_per_second: float | None
    source: str


def default_device() -> torch.device:
    """The GPU that torch sees, NVIDIA or AMD (both are called "cuda"), else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside the block torch computes on the calling thread alone.

    For models so small that threads wait for each other longer than they work: on a machine with other work to do, a
    run of seconds otherwise takes minutes.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def training_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 on a GPU whose hardware has it, else float32."""
    if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.bfloat16
    return torch.float32


def device_peak(device: torch.device, dtype: torch.dtype) -> Peak:
    """The peak of dense matrix products: the registry's for a GPU, measured once in a process for a CPU (0.6 s)."""
    if device.type == "cpu":
        return _measured_cpu_peak(dtype)
    found = probe()
    if found.chip is None:
        return Peak(None, f"{found.name} is not in the registry of chips")
    figure = found.chip.peak_figure(dtype)
    if figure.value is None:
        return Peak(None, f"the registry has no {dtype} peak for {found.chip.name}: {figure.note}")
    return Peak(figure.value * 1e12, f"{found.chip.name}: {figure}")


@cache
def _measured_cpu_peak(dtype: torch.dtype) -> Peak:
    best, size = 0.0, 0
    for n in _CPU_PEAK_SIZES:
        a, b = (torch.ones(n, n, dtype=dtype) for _ in range(2))
        stop = time.perf_counter() + _CPU_PEAK_SECONDS / len(_CPU_PEAK_SIZES)
        while time.perf_counter() < stop:
            start = time.perf_counter()
            a @ b
            best, size = max((best, size), (2 * n**3 / (time.perf_counter() - start), n))
    name, threads = str(dtype).removeprefix("torch."), torch.get_num_threads()
    return Peak(best, f"measured: fastest {size} x {size} x {size} {name} product on {threads} threads")


def reset_peak_memory(device: torch.device) -> None:
    """Start a new peak where the device allows it (GPUs); the peak of a process on the CPU cannot be reset."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory(device: torch.device) -> tuple[int, str]:
    """(bytes, what they are): tensors on a GPU since the reset, or the resident set of the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device), "peak bytes of tensors on the GPU"
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage counts bytes on macOS, KiB on Linux
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return most, "peak resident bytes of the process, since it started"


class Stopwatch:
    """Seconds of work on a device: every reading waits until the device has finished what was asked of it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._elapsed = 0.0
        self._since: float | None = None

    def seconds(self) -> float:
        """Seconds that it ran, so far."""
        running = self._now() - self._since if self._since is not None else 0.0
        return self._elapsed + running

    def start(self) -> None:
        self._since = self._now()

    def stop(self) -> None:
        self._elapsed, self._since = self.seconds(), None

    def reset(self) -> None:
        """Back to zero, still running."""
        self._elapsed, self._since = 0.0, self._now()

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()


def describe(device: torch.device, dtype: torch.dtype) -> dict[str, str | int]:
    """Name, vendor, target and precision, for a run record."""
    found = probe()
    return {
        "name": found.name,
        "vendor": found.vendor,
        "target": found.target,
        "type": device.type,
        "dtype": str(dtype).removeprefix("torch."),
        "cpu_threads": torch.get_num_threads(),
        "cpu_cores": os.cpu_count() or 1,
    }
