"""Functions that make tensors: they take device="cuda", and say of what they make on which side it is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from gpu_utils.virtual.cuda.marks import put, side_of, wanted
from gpu_utils.virtual.cuda.randoms import of_gpu

PLAIN = (
    "arange", "bartlett_window", "blackman_window", "empty", "empty_permuted", "empty_strided", "eye", "full",
    "hamming_window", "hann_window", "kaiser_window", "linspace", "logspace", "ones", "rand", "randint",
    "randn", "randperm", "range", "scalar_tensor", "sparse_coo_tensor", "sparse_csr_tensor", "tril_indices",
    "triu_indices", "zeros",
)  # fmt: skip
"""Of `torch`: without `device` they take torch's default device."""

OF_DATA = ("as_tensor", "asarray", "tensor")
"""Of `torch`: without `device` they stay where their data is."""

LIKE = ("empty_like", "full_like", "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like")
"""Of `torch`: without `device` they follow their first argument."""

ON_CPU = ("from_numpy", "frombuffer", "from_file")
"""Of `torch`: always in the memory of the process."""

RANDOM = frozenset({"rand", "randint", "randn", "randperm"})


def default_side() -> str:
    """The side of `torch.set_default_device` and `with torch.device(...)`."""
    if torch._C._len_torch_function_stack():
        for mode in reversed(_get_current_function_mode_stack()):
            if isinstance(mode, DeviceContext):
                return wanted(mode.device) or "cpu"
    return "cpu"


def _follows(name: str, args: Any, kwargs: Any) -> str:
    """The side of a factory that was called without `device`."""
    if name in PLAIN:
        return default_side()
    data = args[0] if args else kwargs.get("data", kwargs.get("obj", kwargs.get("input")))
    return side_of(data) if isinstance(data, torch.Tensor) else default_side()


def _factory(name: str, make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def factory(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("out") is not None:
            kwargs.pop("device", None)
            return make(*args, **kwargs)
        side = wanted(kwargs.pop("device", None)) or _follows(name, args, kwargs)
        if side not in ("cpu", "cuda"):
            return make(*args, device=side, **kwargs)
        pinned = bool(kwargs.pop("pin_memory", False))
        if name in OF_DATA and args and isinstance(args[0], torch.Tensor):
            return _of_tensor(make, side, args[0], *args[1:], **kwargs)
        if side == "cuda" and name in RANDOM:
            with of_gpu():
                out = make(*args, device="cpu", **kwargs)
        else:
            out = make(*args, device="cpu", **kwargs)
        put(out, side, pinned)
        return out

    return factory


def _of_tensor(make: Callable[..., Any], side: str, data: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """torch.tensor copies, torch.as_tensor and torch.asarray share what need not be copied."""
    if side_of(data) != side:
        data = data.detach().to(side) if make is torch.tensor else data.to(side)
    out = make(data, *args, **kwargs)
    if out is not data and out.data_ptr() != data.data_ptr():
        put(out, side)
    return out


def _on_cpu(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def factory(*args: Any, **kwargs: Any) -> Any:
        out = make(*args, **kwargs)
        put(out, "cpu")
        return out

    return factory


def factories() -> dict[str, Callable[..., Any]]:
    """Name in `torch` -> the function that stands there while the door is open."""
    made = {name: _factory(name, getattr(torch, name)) for name in (*PLAIN, *OF_DATA)}
    made |= {name: _like(getattr(torch, name)) for name in LIKE}
    return made | {name: _on_cpu(getattr(torch, name)) for name in ON_CPU}


def _like(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def factory(*args: Any, **kwargs: Any) -> Any:
        data = args[0] if args else kwargs["input"]
        here = side_of(data)
        side = wanted(kwargs.pop("device", None)) or here
        if side not in ("cpu", "cuda") or here not in ("cpu", "cuda"):
            return make(*args, device="cpu" if side == "cuda" else side, **kwargs)
        pinned = bool(kwargs.pop("pin_memory", False))
        out = make(*args, **kwargs)
        put(out, side, pinned)
        return out

    return factory
