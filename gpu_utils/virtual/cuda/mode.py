"""What every operation of torch hands on: results of tensors on the GPU are on the GPU.

A dispatch mode sees each operation below autograd, also those of the backward pass and of optimizers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpu_utils.virtual.cuda.marks import CPU, local, mark_of, native, put, wanted
from gpu_utils.virtual.cuda.randoms import of_gpu

MAY_MIX = frozenset(
    {
        "copy_", "_to_copy", "_copy_from", "set_", "index_put", "index_put_", "_index_put_impl_", "index",
        "_unsafe_index", "_pack_padded_sequence", "tensor_split", "is_same_size", "_foreach_copy_", "_foreach_copy",
        "lift_fresh", "detach", "record_stream",
    }
)  # fmt: skip
"""Operations of aten that take tensors of both sides on a real GPU too; `index` takes indices on the CPU."""

_SUBCLASSES = ("FakeTensor", "FunctionalTensor")  # tensors of torch's tracers: nothing is computed, nothing marked


class CudaMode(TorchDispatchMode):
    """Runs operations on the CPU and marks what they make."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch would import its compiler at the first operation, to keep it out of this."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if types and any(kind.__name__ in _SUBCLASSES for kind in types):
            return func(*args, **(kwargs or {}))
        side = None
        if kwargs:
            device = kwargs.get("device")
            if device is not None and wanted(device) == "cuda":
                side, kwargs = "cuda", {**kwargs, "device": CPU}
            if kwargs.get("pin_memory"):
                kwargs = {**kwargs, "pin_memory": False}
        else:
            kwargs = {}
        gpu = host = False
        for tensor in _tensors(args, kwargs):
            mark = mark_of(tensor)
            if mark is None:
                continue
            if mark.side == "cuda":
                gpu = True
            elif tensor.dim():
                host = True
        if gpu and host:
            _refuse_mixed(func, args)
        if side is None:
            side = "cuda" if gpu or getattr(local, "backward", False) else "cpu" if host else None
        if side == "cuda" and _draws(func):
            with of_gpu():
                out = func(*args, **kwargs)
        else:
            out = func(*args, **kwargs)
        if side is not None:
            _hand_on(out, side)
        return out


def _tensors(args: Iterable[Any], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            for item in value:
                if isinstance(item, torch.Tensor):
                    yield item


def _hand_on(out: Any, side: str) -> None:
    """Mark results whose storage has no mark yet."""
    if isinstance(out, torch.Tensor):
        if mark_of(out) is None:
            put(out, side)
    elif isinstance(out, (list, tuple)):
        for item in out:
            _hand_on(item, side)


def _refuse_mixed(func: Any, args: Any) -> None:
    """Raise what torch raises, except for operations that may take both."""
    name = func.overloadpacket.__name__
    if name in MAY_MIX and not (name in ("index", "_unsafe_index") and _host(args[0])):
        return
    raise RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
        f"(in {func}; move one of them with .to(device))"
    )


def _host(tensor: Any) -> bool:
    mark = mark_of(tensor)
    return native(tensor).type == "cpu" and (mark is None or mark.side == "cpu")


@cache
def _draws(func: Any) -> bool:
    """Whether an operation takes random numbers of the default generator."""
    return torch.Tag.nondeterministic_seeded in func.tags


def in_backward(engine: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.autograd._engine_run_backward`, during which what torch makes by itself counts as being on the GPU."""

    def run(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        before = getattr(local, "backward", False)
        roots = [t for t in outputs if isinstance(t, torch.Tensor)]
        local.backward = before or any((mark := mark_of(t)) is not None and mark.side == "cuda" for t in roots)
        try:
            return engine(outputs, *args, **kwargs)
        finally:
            local.backward = before

    return run
