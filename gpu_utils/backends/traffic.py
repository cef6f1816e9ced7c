"""What kernels and torch's operators touch of memory, counted alike: launches, and bytes of each launch.

A launch is charged for each sector of 32 bytes that it reads, once, and for each that it writes, once. Of a kernel on a
virtual GPU this is exact. Of an operator of torch it is the least that one kernel can do: it reads what the result
depends on and writes the result. So both are what a perfect cache of the launch would let through, and what is saved
by doing more in one launch shows. Bytes that lanes ask for would not be alike: where a row is shorter than a program
has lanes, Triton lets several lanes load the same element. Not seen here: a kernel that reads its input twice, and on
AMD what scalar loads read (an element that a whole wave shares).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from gpu_utils.backends.recording import replaced
from gpu_utils.errors import BadArgument
from gpu_utils.virtual.isa import Launch

SECTOR = 32
"""Bytes: the unit in which a virtual GPU records its accesses for the model of the L2."""


@dataclass(frozen=True)
class Traffic:
    """Launches of kernels, and the bytes that they touch."""

    launches: int = 0
    bytes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.launches + other.launches, self.bytes + other.bytes)

    def times(self, count: int) -> Traffic:
        return Traffic(count * self.launches, count * self.bytes)


def traffic_of_kernels(launches: Sequence[Launch]) -> Traffic:
    """What launches touched on a virtual GPU that was entered with l2=True; an atomic reads and writes.

    Raises BadArgument for a virtual GPU that kept no record of its accesses.
    """
    total = 0
    for launch in launches:
        if launch.counters.record is None:
            raise BadArgument(
                "this virtual GPU kept no record of its accesses; enter it by virtual_gpu(target, l2=True)"
            )
        for way in (3, 4):  # of an access: whether it reads, whether it writes
            touched = [each[2] for each in launch.counters.record if each[way]]
            total += SECTOR * len(np.unique(np.concatenate(touched))) if touched else 0
    return Traffic(len(launches), total)


def _size(*tensors: Any) -> int:
    """Bytes of the sectors of tensors: a view counts what it shows, an expanded one what lies behind it."""
    sizes = (
        t.element_size() * math.prod(n for n, stride in zip(t.shape, t.stride(), strict=True) if stride)
        for t in tensors
        if isinstance(t, Tensor) and t.numel()
    )
    return sum(-(-size // SECTOR) * SECTOR for size in sizes)


def _layer_norm_backward(
    dy: Tensor, x: Tensor, _: Any, mean: Tensor, rstd: Tensor, weight: Tensor, *__: Any, **___: Any
) -> int:
    return _size(dy, x, mean, rstd, weight)  # not the bias


def _nll_loss_forward(_: Tensor, targets: Tensor, *__: Any) -> int:
    return _size(targets) + targets.numel() * SECTOR  # of each row one logarithm, in a sector of its own


def _nll_loss_backward(dloss: Tensor, _: Tensor, targets: Tensor, *rest: Any) -> int:
    return _size(dloss, targets, *rest)  # of the logarithms only the shape


def _copy(_: Tensor, source: Tensor, *__: Any) -> int:
    return _size(source)


def _nothing(*_: Any, **__: Any) -> int:
    return 0


READS: dict[str, Callable[..., int]] = {
    "native_layer_norm_backward": _layer_norm_backward,
    "nll_loss_forward": _nll_loss_forward,
    "nll_loss_backward": _nll_loss_backward,
    "copy_": _copy,
    **dict.fromkeys(("fill_", "zero_", "zeros_like", "ones_like", "full_like", "bernoulli_"), _nothing),
    **dict.fromkeys(("new_zeros", "new_ones", "new_full"), _nothing),
}
"""Operator of torch -> the bytes that it must read, from its arguments; every other one reads its tensors once."""

_MAKES_NO_KERNEL = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "set_"}


class TorchTraffic(TorchDispatchMode):
    """Inside `traffic_of_torch()`: `found` grows with each operator. Views and empty tensors are no launch."""

    def __init__(self) -> None:
        super().__init__()
        self.found, self.away = Traffic(), False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Do not import torch's compiler, which takes seconds; see gpu_utils.grading.watch."""
        return False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if not self.away and name not in _MAKES_NO_KERNEL and not _is_view(function):
            given = _pytree.tree_leaves((args, kwargs or {}))
            reads = READS[name](*args, **(kwargs or {})) if name in READS else _size(*given)
            self.found += Traffic(1, reads + _size(*_pytree.tree_leaves(result)))
        return result


def _is_view(function: Any) -> bool:
    aliases = [each.alias_info for each in function._schema.returns]
    return bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases)


@contextlib.contextmanager
def traffic_of_torch() -> Iterator[TorchTraffic]:
    """A block in which torch's operators are counted, those of a backward pass as well; `found` of what it yields.

    What happens inside a launch of a kernel does not count.
    """
    from triton.runtime.jit import JITFunction

    mode, run = TorchTraffic(), JITFunction.run

    def launched(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        before, mode.away = mode.away, True
        try:
            return run(kernel, *args, **kwargs)
        finally:
            mode.away = before

    with replaced(JITFunction, "run", launched), mode:
        yield mode
