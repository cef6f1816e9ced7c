"""What a tensor says of its device, and how it moves: attributes of `torch.Tensor` while the door is open."""

from __future__ import annotations

from typing import Any

import torch

from gpu_utils.errors import BackendUnavailable
from gpu_utils.virtual.cuda.marks import CUDA, mark_of, native, put, side_of, wanted

_Base = torch._C.TensorBase
_to, _numpy, _type = _Base.to, _Base.numpy, _Base.type
_deepcopy, _dlpack, _dlpack_device = torch.Tensor.__deepcopy__, torch.Tensor.__dlpack__, torch.Tensor.__dlpack_device__
_HERE = ("cpu", "cuda")
NO_NUMPY = "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."


class _Move(torch.autograd.Function):
    """A copy on the other side, whose gradient comes back."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, side: str) -> torch.Tensor:
        ctx.back = side_of(x)
        return _copied(x, side)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return _copied(grad, ctx.back), None


def _copied(x: torch.Tensor, side: str) -> torch.Tensor:
    out = _to(x, native(x), copy=True)
    put(out, side)
    return out


def moved(x: torch.Tensor, side: str) -> torch.Tensor:
    """x itself where it is on that side, else a copy there."""
    if side_of(x) == side:
        return x
    if x.requires_grad and torch.is_grad_enabled():
        return _Move.apply(x, side)
    return _copied(x, side)


def to(self: Any, *args: Any, **kwargs: Any) -> Any:
    """`Tensor.to` with all of torch's signatures."""
    copy_asked = kwargs.pop("copy", False)
    other = kwargs.pop("other", None)
    if args and isinstance(args[0], torch.Tensor):
        other, args = args[0], args[1:]
    if other is not None:
        copy_asked = copy_asked or (len(args) > 1 and args[1])
        device, dtype, layout = torch.device(side_of(other)), other.dtype, kwargs.get("memory_format")
    else:
        position = 2 if args and isinstance(args[0], torch.dtype) else 3
        copy_asked = copy_asked or (len(args) > position and args[position])
        device, dtype, _, layout = torch._C._nn._parse_to(*args[:position], **kwargs)
    there = wanted(device)
    more = {} if layout is None else {"memory_format": layout}
    if there is not None and (there not in _HERE or side_of(self) not in _HERE):
        out = _to(self, "cpu" if there == "cuda" else device, dtype or self.dtype, copy=copy_asked, **more)
        if there == "cuda":
            put(out, "cuda")
        return out
    out = self if there is None else moved(self, there)
    return _to(out, dtype or out.dtype, copy=bool(copy_asked) and out is self, **more)


def cuda(self: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
    wanted(device)
    out = moved(self, "cuda")
    return out if memory_format is None else _to(out, out.dtype, memory_format=memory_format)


def cpu(self: Any, memory_format: Any = None) -> Any:
    out = moved(self, "cpu")
    return out if memory_format is None else _to(out, out.dtype, memory_format=memory_format)


def device(self: Any) -> torch.device:
    mark = mark_of(self)
    return CUDA if mark is not None and mark.side == "cuda" else native(self)


def get_device(self: Any) -> int:
    where = device(self)
    return -1 if where.type == "cpu" else where.index or 0


def numpy(self: Any, *, force: bool = False) -> Any:
    if side_of(self) == "cuda" and not force:
        raise TypeError(NO_NUMPY)
    return _numpy(self, force=force)


def type_name(self: Any, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    """`Tensor.type`: "torch.cuda.FloatTensor" without a dtype."""
    if dtype is None:
        name = _type(self)
        return name.replace("torch.", "torch.cuda.", 1) if side_of(self) == "cuda" else name
    if isinstance(dtype, str) and dtype.startswith("torch.cuda."):
        return _type(cuda(self), "torch." + dtype.removeprefix("torch.cuda."))
    return _type(self, dtype, non_blocking, **kwargs)


def type_as(self: Any, other: Any) -> Any:
    return to(self, other)


def deepcopy(self: Any, memo: Any) -> Any:
    known = id(self) in memo
    out = _deepcopy(self, memo)
    if not known and side_of(self) == "cuda":
        put(out, "cuda")
        if self.grad is not None and out.grad is not None:
            put(out.grad, side_of(self.grad))
    return out


def pin_memory(self: Any, device: Any = None) -> Any:
    if side_of(self) != "cpu":
        raise RuntimeError("cannot pin a tensor on cuda:0: only dense CPU tensors can be pinned")
    out = self if is_pinned(self) else self.clone()
    put(out, "cpu", pinned=True)
    return out


def is_pinned(self: Any, device: Any = None) -> bool:
    mark = mark_of(self)
    return mark is not None and mark.pinned


def dlpack(self: Any, *args: Any, **kwargs: Any) -> Any:
    if side_of(self) != "cuda":
        return _dlpack(self, *args, **kwargs)
    raise BackendUnavailable(
        "DLPack would hand out a tensor of the virtual GPU as device memory, and no other library can read it as that; "
        "hand over tensor.cpu()"
    )


def dlpack_device(self: Any) -> Any:
    if side_of(self) != "cuda":
        return _dlpack_device(self)
    return (10 if torch.version.hip else 2), 0  # kDLROCM, kDLCUDA of dlpack.h


def _made_by(name: str) -> Any:
    """`Tensor.new_zeros` and its kin: on the tensor's own side, or on the one that is asked for."""
    method = getattr(_Base, name)

    def make(self: Any, *args: Any, **kwargs: Any) -> Any:
        side = wanted(kwargs.pop("device", None)) or side_of(self)
        pinned = bool(kwargs.pop("pin_memory", False))
        if side not in _HERE:
            return method(self, *args, device=side, **kwargs)
        out = method(self, *args, **kwargs)
        put(out, side, pinned)
        return out

    return make


_MAKERS = ("new_tensor", "new_empty", "new_empty_strided", "new_zeros", "new_ones", "new_full")

METHODS: dict[str, Any] = {
    "device": property(device),
    "is_cuda": property(lambda self: device(self).type == "cuda"),
    "is_cpu": property(lambda self: device(self).type == "cpu"),
    "get_device": get_device,
    "to": to,
    "cuda": cuda,
    "cpu": cpu,
    "numpy": numpy,
    "type": type_name,
    "type_as": type_as,
    "__deepcopy__": deepcopy,
    "__dlpack__": dlpack,
    "__dlpack_device__": dlpack_device,
    "pin_memory": pin_memory,
    "is_pinned": is_pinned,
    "record_stream": lambda self, stream: None,
    **{name: _made_by(name) for name in _MAKERS},
}
"""Name -> what stands in `torch.Tensor` while the door is open."""
