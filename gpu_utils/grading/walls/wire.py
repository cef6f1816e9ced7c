"""Messages between a grader and what runs inside of walls: plain data with tensors, one after the other on a pipe.

What comes from inside is somebody else's. It is read as numbers, strings, bytes, lists, dicts and tensors, each of them
checked, and nothing in it runs. A message that is none raises BadMessage, also one that is too long.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import struct
from typing import Any

import msgpack
import torch

from gpu_utils.grading.plain import NotPlain
from gpu_utils.grading.walls.frames import MOST_BYTES, BadMessage, Gone, TooLate, receive_bytes, send_bytes

__all__ = [
    "MOST_BYTES",
    "BadMessage",
    "Gone",
    "TooLate",
    "pack",
    "receive",
    "receive_bytes",
    "send",
    "send_bytes",
    "unpack",
]

MOST_PARTS = 500_000
"""Lists, dicts and tensors of one message: a few bytes each on the way, and a hundred or a thousand in memory."""

MOST_DESCRIPTION = 2000
"""Bytes that say what a tensor is."""

_LENGTH = struct.Struct("<Q")
_TENSOR, _DTYPE, _NOT_PLAIN, _INT = 1, 2, 3, 4
_DTYPES = {str(value).removeprefix("torch."): value for value in vars(torch).values() if isinstance(value, torch.dtype)}
_UNREADABLE = ("quint8", "qint8", "qint32", "quint4x2", "quint2x4", "bits")


def pack(value: Any) -> bytes:
    """Plain data as bytes. Tensors keep their strides, and what shares memory here shares it there."""
    storages: dict[int, int] = {}
    memory: list[bytes] = []

    def packed(item: Any) -> Any:
        if isinstance(item, torch.Tensor) and (kind := _unusual(item)):
            return msgpack.ExtType(_NOT_PLAIN, f"a tensor of another kind ({kind})".encode())
        if isinstance(item, torch.Tensor):
            return msgpack.ExtType(_TENSOR, msgpack.packb(_described(item.detach().cpu(), storages, memory)))
        if isinstance(item, torch.dtype):
            return msgpack.ExtType(_DTYPE, _name(item).encode())
        if isinstance(item, NotPlain):
            return msgpack.ExtType(_NOT_PLAIN, item.found.encode("utf-8", "replace"))
        if isinstance(item, int) and not isinstance(item, bool):  # more than 64 bits
            return msgpack.ExtType(_INT, str(item).encode())
        if isinstance(item, (tuple, torch.Size)):
            return list(item)
        raise TypeError(f"a {type(item).__name__} is no plain data")

    tree = msgpack.packb(value, default=packed, use_bin_type=True, strict_types=True)
    return b"".join(part for piece in (tree, *memory) for part in (_LENGTH.pack(len(piece)), piece))


def unpack(data: bytes, most: int = MOST_BYTES) -> Any:
    """What `pack` made bytes of; tuples have become lists. Raises BadMessage for anything else.

    most  bytes that it may have beside the memory of tensors
    """
    parts = itertools.count(1)

    def counted(part: Any) -> Any:
        if next(parts) > MOST_PARTS:
            raise BadMessage("too many lists")
        return part

    try:
        tree, *memory = _pieces(data)
        if len(tree) > most:
            raise BadMessage(f"{len(tree):,} bytes beside its tensors")
        storages = [torch.frombuffer(bytearray(raw), dtype=torch.uint8) if raw else None for raw in memory]

        def read(code: int, inside: bytes) -> Any:
            return counted(_unpacked(code, inside, storages))

        return msgpack.unpackb(tree, ext_hook=read, list_hook=counted, object_hook=counted, strict_map_key=False)
    except BadMessage:
        raise
    except Exception as problem:  # msgpack's own are of many kinds
        raise BadMessage(f"unreadable ({type(problem).__name__})") from None


def _pieces(data: bytes) -> list[memoryview]:
    """What is plain, then the memory of each storage; before each piece its length."""
    whole, at = memoryview(data), 0
    found: list[memoryview] = []
    while at < len(whole):
        (length,) = _LENGTH.unpack_from(whole, at)
        at += _LENGTH.size + length
        if at > len(whole) or len(found) > MOST_PARTS:
            raise BadMessage("pieces that cannot be")
        found.append(whole[at - length : at])
    return found


def _unusual(tensor: torch.Tensor) -> str:
    """Why a tensor is none of numbers in memory; "" for all others."""
    if tensor.is_nested:
        return "nested"
    return "quantized" if tensor.is_quantized else "" if tensor.layout == torch.strided else str(tensor.layout)


def _described(tensor: torch.Tensor, storages: dict[int, int], memory: list[bytes]) -> list[Any]:
    """dtype, shape, strides, offset, number of its storage."""
    tensor = tensor.resolve_conj().resolve_neg()
    storage = tensor.untyped_storage()
    start = storage.data_ptr()
    if start not in storages or not start:
        storages[start] = len(memory)
        memory.append(ctypes.string_at(start, storage.nbytes()) if start else b"")
    return [_name(tensor.dtype), list(tensor.shape), list(tensor.stride()), tensor.storage_offset(), storages[start]]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _unpacked(code: int, data: bytes, storages: list[torch.Tensor | None]) -> Any:
    if code == _TENSOR and len(data) <= MOST_DESCRIPTION:
        return _tensor(msgpack.unpackb(data), storages)
    if code == _DTYPE:
        return _dtype(data.decode())
    if code == _NOT_PLAIN:
        return NotPlain(data.decode("utf-8", "replace")[:200])
    if code == _INT and len(data) <= 1000:
        return int(data)
    raise BadMessage("an extension of another kind")


def _dtype(name: Any) -> torch.dtype:
    if name not in _DTYPES or str(name).startswith(_UNREADABLE):
        raise BadMessage("a dtype that torch does not have")
    return _DTYPES[name]


def _tensor(described: Any, storages: list[torch.Tensor | None]) -> torch.Tensor:
    name, shape, strides, offset, number = described
    return view_of(storages[sizes([number])[0]], _dtype(name), shape, strides, offset)


def sizes(found: Any) -> list[int]:
    """A list of sizes. Raises BadMessage for anything else."""
    if not isinstance(found, list) or len(found) > 64 or any(type(n) is not int or not 0 <= n < 2**40 for n in found):
        raise BadMessage("no list of sizes")
    return found


def view_of(raw: torch.Tensor | None, dtype: torch.dtype, shape: Any, strides: Any, offset: Any) -> torch.Tensor:
    """A tensor on bytes; None for no bytes. Raises BadMessage where it reaches beyond, or is larger than a message."""
    shape, strides, (offset,) = sizes(shape), sizes(strides), sizes([offset])
    if len(shape) != len(strides) or math.prod(shape) * dtype.itemsize > MOST_BYTES:
        raise BadMessage("a tensor that cannot be")
    if not math.prod(shape):
        return torch.empty(shape, dtype=dtype)
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if raw is None or (last + 1) * dtype.itemsize > raw.numel():
        raise BadMessage("a tensor that reaches beyond its memory")
    return torch.empty(0, dtype=dtype).set_(raw.untyped_storage(), offset, shape, strides)


def send(pipe: int, value: Any) -> None:
    """Write one message to a file descriptor."""
    data = pack(value)
    send_bytes(pipe, data)


def receive(pipe: int, deadline: float | None = None) -> Any:
    """The next message of a file descriptor. Raises Gone, BadMessage, and TooLate at `deadline` (time.monotonic)."""
    return unpack(receive_bytes(pipe, deadline))
