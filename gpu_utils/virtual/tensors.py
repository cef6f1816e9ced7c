"""The tensor behind an argument that stands for a pointer, and the bytes that a kernel may reach through it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from gpu_utils.errors import BadArgument
from gpu_utils.virtual.global_memory import Memory
from gpu_utils.virtual.regions import Region

# Attributes that others' tensor classes compute: Triton's TensorWrapper, triton_kernels.Tensor.
_NAMES = ("base", "data", "storage", "tensor")
_DEPTH = 3  # of wrappers in wrappers


def tensor_behind(name: str, value: Any) -> Any:
    """The torch tensor whose memory `value.data_ptr()` lies in; None when it holds none.

    Raises BadArgument for a tensor that is not on the CPU: its memory cannot be read here.
    """
    if hasattr(value, "untyped_storage"):
        _on_cpu(name, value)
        return value
    pointer = int(value.data_ptr())
    for tensor in _tensors(value, _DEPTH, set()):
        _on_cpu(name, tensor)
        storage = tensor.untyped_storage()
        if storage.data_ptr() <= pointer < storage.data_ptr() + max(storage.nbytes(), 1):
            return tensor
    return None


def add_tensor(memory: Memory, name: str, value: Any) -> None:
    """Make the memory behind an argument accessible. Raises BadArgument when its bounds cannot be known."""
    tensor = tensor_behind(name, value)
    if tensor is None:
        pointer = int(value.data_ptr())
        if pointer and not memory.holds(pointer, 1):
            raise BadArgument(
                f"{name} is a {type(value).__name__} whose memory has unknown bounds: it holds no torch tensor on the "
                "CPU with this address; register the tensor behind it: gpu.register('its name', tensor)"
            )
        return
    storage = tensor.untyped_storage()
    if storage.nbytes():
        region = Region(name, storage.data_ptr(), storage.nbytes(), "tensor", tensor)
        memory.add(region, view_of(tensor) if memory.strict else None)


def view_of(tensor: Any) -> tuple[int, int]:
    """(first address, address after the last byte) of a view's elements."""
    start = int(tensor.data_ptr())
    if not tensor.numel():
        return start, start
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.element_size()


def _on_cpu(name: str, tensor: Any) -> None:
    # the storage says where the memory is: with virtual_gpu(target, cuda=True) the tensor says "cuda"
    if tensor.untyped_storage().device.type != "cpu":
        raise BadArgument(
            f"{name} is a tensor on {tensor.device.type!r}; a virtual GPU reads and writes tensors on the CPU: make it "
            "with device='cpu'"
        )


def _tensors(value: Any, depth: int, seen: set[int]) -> Iterator[Any]:
    """Torch tensors among the attributes and items of an object."""
    if id(value) in seen or isinstance(value, (type, str, bytes, int, float)):
        return
    seen.add(id(value))
    if hasattr(value, "untyped_storage"):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item, depth, seen)
    elif depth:
        for item in getattr(value, "__dict__", {}).values():
            yield from _tensors(item, depth - 1, seen)
        for name in (*_NAMES, *getattr(type(value), "__slots__", ())):
            with suppress(Exception):  # a property of another's class
                yield from _tensors(getattr(value, name), depth - 1, seen)
