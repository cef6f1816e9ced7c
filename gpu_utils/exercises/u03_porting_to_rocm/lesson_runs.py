"""What lesson 03 runs, kept with how it ended: launches on several virtual GPUs, processes."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gpu_utils.backends.launching import counted
from gpu_utils.chips import TARGETS
from gpu_utils.compiler.clang import compile_cpp
from gpu_utils.errors import W2WError
from gpu_utils.virtual import VirtualGpu, virtual_gpu


@dataclass(frozen=True)
class Ended:
    """How one launch ended on one target.

    left     the arguments as the kernel left them, copies of what it was given
    problem  the error of the compiler or the launch, or None
    gpu      the virtual GPU, for its counters
    """

    left: tuple[Any, ...]
    problem: W2WError | None
    gpu: VirtualGpu

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments after the launch. Raises its error, if there was one."""
        if self.problem:
            raise self.problem
        return self.left

    @property
    def out(self) -> Any:
        """The last tensor among the arguments after the launch; a number for a tensor without dimensions."""
        last = [each for each in self.args if isinstance(each, torch.Tensor)][-1]
        return last if last.ndim else last.item()

    @property
    def said(self) -> Any:
        """`out`, or the name of the error."""
        return type(self.problem).__name__ if self.problem else self.out

    def counted(self, name: str) -> float:
        """A counter of the launch, by a name of `counts`."""
        return counted({"it": self.gpu}, name)["it"]


def launched(
    targets: Sequence[str],
    source: str,
    kernel: str,
    grid: Any,
    block: Any,
    args: Sequence[Any],
    step_limit: int | None = None,
) -> dict[str, Ended]:
    """Compile CUDA-style C++ for each target and launch a kernel on its own copies of the tensors: target -> its end.

    source, kernel, grid, block, args: as for `launch_cpp`; step_limit: as for `virtual_gpu`.
    An error of a target is kept, and raised where its result is read.
    """
    ends = {}
    for target in targets:
        copies = tuple(each.clone() if isinstance(each, torch.Tensor) else each for each in args)
        with virtual_gpu(target, step_limit=step_limit) as gpu, kept_error(W2WError) as kept:
            gpu.load(compile_cpp(source, target)).launch(kernel, grid, block, list(copies))
        ends[target] = Ended(copies, kept.error, gpu)
    return ends


def endings(
    ends: Mapping[str, Ended], right: torch.Tensor | Mapping[str, torch.Tensor], words: Mapping[str, str]
) -> dict[str, str]:
    """Target -> "right" or "wrong", or the word for its error.

    right  what the last tensor should hold, for all targets or for each
    words  name of an error -> a word for it; an error without one is raised
    """
    found = {}
    for target, end in ends.items():
        name = type(end.problem).__name__
        if name in words:
            found[target] = words[name]
        else:
            expected = right if isinstance(right, torch.Tensor) else right[target]
            found[target] = "right" if torch.equal(end.out, expected) else "wrong"
    return found


def first_of_wave(x: torch.Tensor, threads: int, targets: Sequence[str]) -> dict[str, torch.Tensor]:
    """Target -> for each of the first `threads` elements of x (n,) the first one of its wave, 0 for the others."""
    at = torch.arange(len(x))
    return {t: torch.where(at < threads, x[at // TARGETS[t].lanes * TARGETS[t].lanes], 0) for t in targets}


class Kept:
    """error: what ended the block of `kept_error`; None while nothing has."""

    error: Any = None


@contextlib.contextmanager
def kept_error(kind: type[Exception]) -> Iterator[Kept]:
    """A block that an error of this kind ends; it is kept as `.error`. Others are raised."""
    kept = Kept()
    try:
        yield kept
    except kind as problem:
        kept.error = problem


def python_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run this Python in a process of its own: its status, and what it wrote on stdout and stderr, as text."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
