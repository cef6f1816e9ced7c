"""Recording kernel launches, whatever runs them."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Launch:
    """One launch of a Triton kernel.

    kernel  the jitted function, without autotuner or heuristics around it
    grid    up to three integers
    args    positional arguments
    kwargs  keyword arguments, with what an autotuner or heuristics chose (BLOCK, num_warps, ...)
    """

    kernel: Any
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.kernel.__name__


def resolve_grid(kernel: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
    """The grid as integers; a callable grid is given the arguments by name, with the defaults of the kernel."""
    if callable(grid):
        parameters = inspect.signature(kernel.fn).parameters
        named = {name: p.default for name, p in parameters.items() if p.default is not p.empty}
        grid = grid({**named, **dict(zip(parameters, args, strict=False)), **kwargs})
    return tuple(int(size) for size in grid)


@contextlib.contextmanager
def trials_inside(trial: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Inside the block, each time that an autotuner tries a configuration it does so within `trial()`."""
    from triton.runtime.autotuner import Autotuner

    bench = Autotuner._bench

    def bench_inside(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        with trial():
            return bench(tuner, *args, **kwargs)

    with replaced(Autotuner, "_bench", bench_inside):
        yield


@contextlib.contextmanager
def chosen_launches(gpu: Any) -> Iterator[Callable[[], list[Any]]]:
    """Inside the block of a virtual GPU: a function that gives its launches so far, without an autotuner's trials."""
    trials: set[int] = set()  # places in gpu.launches

    @contextlib.contextmanager
    def left_out() -> Iterator[None]:
        before = len(gpu.launches)
        try:
            yield
        finally:
            trials.update(range(before, len(gpu.launches)))

    with trials_inside(left_out):
        yield lambda: [launch for place, launch in enumerate(gpu.launches) if place not in trials]


@contextlib.contextmanager
def record_launches(idle: bool = False) -> Iterator[list[Launch]]:
    """A list that grows by one Launch for each kernel launched inside the block, on any backend.

    The runs by which an autotuner compares configurations are not counted; the launch that follows them is.
    Works with real devices and inside `interpreter()`; it changes neither results nor errors. idle: what is counted is
    neither compiled nor run, and returns None.
    """
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    launches: list[Launch] = []
    tuning = 0

    def recorded(run: Any) -> Any:
        def run_and_record(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            if not warmup and not tuning:
                launches.append(Launch(kernel, resolve_grid(kernel, grid, args, kwargs), args, dict(kwargs)))
                if idle:
                    return None
            return run(kernel, *args, grid=grid, warmup=warmup, **kwargs)

        return run_and_record

    @contextlib.contextmanager
    def uncounted() -> Iterator[None]:
        nonlocal tuning
        tuning += 1
        try:
            yield
        finally:
            tuning -= 1

    with contextlib.ExitStack() as stack:
        for kernels in (JITFunction, InterpretedFunction):
            stack.enter_context(replaced(kernels, "run", recorded(kernels.run)))
        stack.enter_context(trials_inside(uncounted))
        yield launches


@contextlib.contextmanager
def idle_kernels() -> Iterator[None]:
    """Inside the block a launch does nothing, on any backend: what still comes out was not made by a kernel."""
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    from gpu_utils.npu.session import AiCores
    from gpu_utils.virtual.asm import LoadedModule

    def do_nothing(*args: Any, **kwargs: Any) -> None:
        return None

    with contextlib.ExitStack() as stack:
        kernels = ((JITFunction, "run"), (InterpretedFunction, "run"), (LoadedModule, "launch"), (AiCores, "launch"))
        for owner, launch in kernels:
            stack.enter_context(replaced(owner, launch, do_nothing))
        yield


_ABSENT = object()


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute of a class or module that has another value inside the block."""
    before = vars(owner).get(name, _ABSENT)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
