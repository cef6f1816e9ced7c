"""Triton's benchmarks on a virtual GPU: the time of a call is the predicted cycles of its launches, not milliseconds.

`triton.testing.do_bench` and `do_bench_cudagraph`, `@triton.autotune` with and without `warmup=`, `rep=`, `do_bench=`
and `use_cuda_graph=` all come here. A call that launches nothing has no prediction: its time is that of the host in
milliseconds, and cannot be compared with cycles.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from gpu_utils.virtual.isa import Launch
from gpu_utils.virtual.predict import predicted_cycles


class Launches(Protocol):
    """What a benchmark needs of a VirtualGpu."""

    launches: list[Launch]


class Event:
    """A `torch.cuda.Event` of a virtual GPU: it notes which launches came before, and the host's clock."""

    def __init__(self, gpu: Launches) -> None:
        self.gpu = gpu

    def record(self, stream: Any = None) -> None:
        self.launches, self.clock = len(self.gpu.launches), time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        """Predicted cycles of the launches between two events; milliseconds of the host when there are none."""
        between = self.gpu.launches[self.launches : end.launches]
        return sum(predicted_cycles(launch) for launch in between) if between else 1e3 * (end.clock - self.clock)

    def synchronize(self) -> None:
        """A launch has ended when it returns."""

    wait = synchronize


class DeviceInterface:
    """In place of `torch.cuda` for Triton: events and synchronisation; the rest is `torch.cpu`'s."""

    def __init__(self, gpu: Launches) -> None:
        self.gpu = gpu

    def Event(self, enable_timing: bool = False, **_: Any) -> Event:  # noqa: N802  (torch's name)
        return Event(self.gpu)

    def synchronize(self, device: Any = None) -> None:
        """A launch has ended when it returns."""

    def __getattr__(self, name: str) -> Any:
        import torch

        return getattr(torch.cpu, name)


def time_of(gpu: Launches, call: Callable[[], Any]) -> float:
    """What `call` costs; it runs once, since a prediction does not vary."""
    begin, end = Event(gpu), Event(gpu)
    begin.record()
    call()
    end.record()
    return begin.elapsed_time(end)


@contextmanager
def predicted_benchmarks(gpu: Launches) -> Iterator[None]:
    """Inside the block the benchmarks that would touch `torch.cuda` by themselves take the prediction."""
    import triton.testing
    from triton.runtime.autotuner import Autotuner

    def cudagraph(
        fn: Callable[[], Any], rep: int = 20, grad_to_none: Any = None, quantiles: Any = None, return_mode: str = "mean"
    ) -> Any:
        return triton.testing._summarize_statistics([time_of(gpu, fn)], quantiles, return_mode)

    def benchmark(call: Callable[[], Any], quantiles: Any = None, **_: Any) -> Any:
        return cudagraph(call, quantiles=quantiles)

    def of_autotuner(tuner: Any) -> Any:
        return benchmark if tuner._do_bench is None or tuner.use_cuda_graph else tuner._do_bench

    before = triton.testing.do_bench_cudagraph, Autotuner.__dict__["do_bench"]
    triton.testing.do_bench_cudagraph, Autotuner.do_bench = cudagraph, property(of_autotuner)
    try:
        yield
    finally:
        triton.testing.do_bench_cudagraph, Autotuner.do_bench = before
