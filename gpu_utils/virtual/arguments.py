"""The arguments of a launch: how they lie in the parameter buffer, and the memory that they make accessible."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_utils.errors import ResourceLimit, UnknownName
from gpu_utils.virtual.global_memory import Memory
from gpu_utils.virtual.machine import Program
from gpu_utils.virtual.tensors import add_tensor

_CODES = {
    "i1": "<B",
    "u1": "<B",
    "i8": "<b",
    "u8": "<B",
    "i16": "<h",
    "u16": "<H",
    "i32": "<i",
    "u32": "<I",
    "i64": "<q",
    "u64": "<Q",
    "fp16": "<e",
    "fp32": "<f",
    "f32": "<f",
    "fp64": "<d",
}


@dataclass(frozen=True)
class TensorMap:
    """A tensor map (TMA) as an argument: its 128 bytes, and the tensor that it makes accessible."""

    raw: np.ndarray
    tensor: Any

    @classmethod
    def of(
        cls, tensor: Any, sizes: list[int], strides: list[int], box: list[int], element: int, swizzle: int
    ) -> TensorMap:
        """Lists go from the fastest dimension; strides are in bytes, without dimension 0's.

        element  code of PTX's tensormap.replace.elemtype; swizzle: 0 none, 1, 2, 3 of 32, 64, 128 bytes
        """
        from gpu_utils.virtual.ptx.tensor import encode

        return cls(encode(tensor.data_ptr(), sizes, strides, box, element, swizzle), tensor)


def _bytes(kind: str, value: Any) -> bytes:
    """One argument as it lies in the parameter buffer."""
    if hasattr(value, "data_ptr"):
        return int(value.data_ptr()).to_bytes(8, "little")
    if kind == "bytes":
        return value
    if kind == "tensor map":
        return value[0].tobytes()
    if kind.startswith("*") or value is None:
        return int(value or 0).to_bytes(8, "little")
    if kind == "bf16":
        return struct.pack("<f", float(value))[2:]
    code = _CODES.get(kind)
    if code is None:
        raise UnknownName("argument type", kind, list(_CODES))
    if code[1] in "efd":
        return struct.pack(code, float(value))
    bits = 8 * struct.calcsize(code)
    return (int(value) & ((1 << bits) - 1)).to_bytes(bits // 8, "little")


def pack(program: Program, values: list[tuple[str, str, Any]], memory: Memory) -> np.ndarray:
    """The parameter buffer; parameters that the caller does not know (scratch pointers) are zero."""
    params = program.info.parameters
    buffer = bytearray(-(-max(program.info.parameter_bytes, 8) // 16) * 16 + 256)
    if len(values) > len(params):
        raise ResourceLimit(f"kernel {program.name} takes {len(params)} arguments, {len(values)} were given")
    pointers = [(name, value[1] if kind == "tensor map" else value) for name, kind, value in values]
    pointers = [(name, value) for name, value in pointers if hasattr(value, "data_ptr")]
    # wrappers last: they may point into a tensor that is an argument of its own
    for name, value in sorted(pointers, key=lambda pointer: not hasattr(pointer[1], "untyped_storage")):
        add_tensor(memory, name, value)
    for (offset, size), (_, kind, value) in zip(params, values, strict=False):
        raw = _bytes(kind, value)[:size]
        buffer[offset : offset + len(raw)] = raw
    return np.frombuffer(buffer, np.uint8)


def refuse_host_memory(values: list[tuple[str, str, Any]]) -> None:
    """Raise ValueError, as Triton does, for a tensor on the CPU among the arguments of code that says "cuda"."""
    for name, kind, value in values:
        device = getattr(value[1] if kind == "tensor map" else value, "device", None)
        if getattr(device, "type", None) == "cpu":
            raise ValueError(
                f"Pointer argument cannot be accessed from Triton (cpu tensor?): {name} is a tensor on the CPU; move "
                'it with .to("cuda")'
            )


def add_scratch(
    program: Program, given: int, metadata: Any, grid: tuple[int, ...], args: np.ndarray, memory: Memory
) -> None:
    """The workspace that Triton's compiler asks for: its pointer is the parameter after those of the source."""
    size = int(getattr(metadata, "global_scratch_size", 0) or 0) * math.prod(grid)
    if size:
        align = int(getattr(metadata, "global_scratch_align", 1))
        raw = np.zeros(size + align, np.uint8)
        region = memory.add_array("the compiler's scratch memory", raw[-raw.ctypes.data % align :][:size], "scratch")
        offset = program.info.parameters[given][0]
        args[offset : offset + 8] = np.frombuffer(region.start.to_bytes(8, "little"), np.uint8)


def _tensor_map(value: Any, meta: dict[str, Any]) -> np.ndarray:
    """A host-side tensor descriptor as the 128 bytes that the virtual GPU reads; Triton lists the slowest first."""
    from gpu_utils.virtual.ptx.tensor import TF32, encode

    strides = [int(s) * meta["elem_size"] for s in value.strides[:-1]]
    element = TF32 if getattr(value, "round_f32_to_tf32", False) else meta["elem_type"]
    return encode(
        value.base.data_ptr(),
        list(value.shape)[::-1],
        strides[::-1],
        list(meta["block_size"])[::-1],
        element,
        meta["swizzle"],
        fill=int(value.padding == "nan"),
    )


def flatten(signature: Any, value: Any, name: str, out: list[tuple[str, str, Any]], maps: list[dict[str, Any]]) -> None:
    """Arguments as the compiled kernel takes them: tuples opened, constexpr dropped, descriptors taken apart.

    maps: Triton's notes on the descriptors that become tensor maps, in order; used up.
    """
    if isinstance(signature, (tuple, list)):
        for i, (part, item) in enumerate(zip(signature, value, strict=True)):
            flatten(part, item, f"{name}[{i}]", out, maps)
    elif signature == "constexpr":
        return
    elif isinstance(signature, str) and signature.startswith("tensordesc") and maps:
        out.append((name, "tensor map", (_tensor_map(value, maps.pop(0)), value.base)))
        out += [(name, "i32", v) for v in value.shape] + [(name, "i64", v) for v in value.strides]
    elif isinstance(signature, str) and signature.startswith("tensordesc"):
        kind = "*" + signature[signature.index("<") + 1 : signature.index("[")]
        out.append((name, kind, value.base))
        out += [(name, "i64", v) for v in (*value.shape, *value.strides)]
        out += [(name, "i1", value.padding == "nan")]
        if hasattr(value, "round_f32_to_tf32"):
            out += [(name, "i1", value.round_f32_to_tf32)]
        out += [(name, "i32", v) for v in value.shape] + [(name, "i64", v) for v in value.strides]
    else:
        out.append((name, signature, value))
