"""Addresses of buffer instructions: four scalar registers describe a buffer, and nothing outside of it is touched.

    inner   = vector offset + immediate, in 32 bits: it wraps, so that -1024 and offset:1280 are byte 256
    address = base + scalar offset + index * stride + inner, in 64 bits

The range check, for each word of a lane (a whole atomic):
  raw          inner + scalar offset + bytes up to the word's end <= records; the scalar offset does not wrap
  structured   with `idxen`: gfx9 index < records (with a stride of 0 it is raw); gfx11 and gfx12 as OOB_SELECT in bits
               29:28 of the last word says: 0 index < records and inner within the stride, 1 index < records,
               2 records != 0, 3 raw. They do so without `idxen` too, the index being 0.

Sources: AMD's own emulator, which states that hardware adds `inner` in 32 bits and follows gfx950, gfx11 and gfx12
(github.com/ROCm/rocm-systems, emulation/rocjitsu, isa/arch/amdgpu/shared/addr_calc_buffer.h); "Buffer Addressing" and
"Range Checking" in AMD's ISA manuals of CDNA3, RDNA3 and RDNA4. LLVM counts on it: it moves a constant from the vector
offset into the immediate whatever the sign of the rest (SITargetLowering::splitBufferOffsets).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_utils.errors import VirtualGpuError
from gpu_utils.virtual.amdgcn.operands import Decoder
from gpu_utils.virtual.amdgcn.parse import Instruction

BASE = np.uint64((1 << 48) - 1)  # of the first two words
ADD_THREAD = np.uint32(1 << 23)  # of the last word: the lane is added to the index
RAW = np.uint32(3)  # OOB_SELECT

Words = tuple[np.ndarray, "np.ndarray | None", "list[np.ndarray] | None"]


def buffer_address(decoder: Decoder, ins: Instruction, width: int, count: int) -> Callable[[Any], Words]:
    """A function of the state for an access of `count` words of `width` bytes.

    It gives int64 addresses (waves, lanes), the mask of the lanes that touch anything, and, when a lane has only some
    of its words within the buffer, a mask for each word, else None.
    """
    ops, mods = ins.operands, ins.modifiers
    rest = [text for text in (ops if mods.get("lds") else ops[1:]) if text != "off"]
    indexed, offset = bool(mods.get("idxen")), np.uint32(int(mods.get("offset", 0)))
    if mods.get("addr64"):
        raise decoder.unsupported("64-bit buffer offsets")
    taken = indexed + bool(mods.get("offen"))
    first = decoder.source(rest.pop(0), taken) if taken else 0
    row = first + indexed if mods.get("offen") else None
    resource = decoder.source(rest[0], 4)
    soffset = decoder.getter(rest[1], "u32")
    size, gfx9 = width * count, decoder.gfx9
    place = f" ({ins.line[0].rsplit('/', 1)[-1]}:{ins.line[1]})" if ins.line else ""
    refused = VirtualGpuError(
        f"kernel {decoder.kernel}{place}: the descriptor of `{ins.text.strip()}` is swizzled or adds the lane to the "
        "index; a virtual GPU executes raw and structured buffers: clear those bits of its second and last word"
    )

    def address(s: Any) -> Words:
        if row is None:
            inner = np.full((s.waves, s.lanes), offset, np.int64)
        else:
            inner = (s.U[row] + offset if offset else s.U[row]).astype(np.int64)
        last, extra = s.U[resource + 3], soffset(s).astype(np.int64)
        adds = last & ADD_THREAD
        if np.count_nonzero(adds) and (s.act is None or adds[s.act].any()):  # the others' registers may hold anything
            if s.scratch_base is None or not (adds if s.act is None else adds[s.act]).all():
                raise refused
            # before gfx940 scratch is a buffer that adds the lane: its scalar offset counts a whole wave's bytes
            return s.scratch_base + inner + extra // s.lanes, s.mask, None
        start = (s.pair(resource) & BASE).view(np.int64) + extra
        records = s.U[resource + 2].astype(np.int64)
        raw = not indexed and (gfx9 or bool((last >> np.uint32(28) & RAW == RAW).all()))
        if raw and int(inner.max()) <= int((records - extra).min()) - size:
            inner += start
            return inner, s.mask, None
        where = inner + start
        if not raw:
            high = s.U[resource + 1].astype(np.int64)
            stride, index = high >> 16 & 0x3FFF, s.U[first].astype(np.int64) if indexed else np.int64(0)
            where += index * stride
            if indexed and not gfx9 and ((high if s.act is None else high[s.act]) >> 30).any():
                raise refused

        def inside(end: int) -> np.ndarray:
            """Where the word that ends `end` bytes after the address lies within the buffer."""
            within = inner <= records - extra - end
            if raw:
                return within
            known = np.broadcast_to(index < records, within.shape)
            if gfx9:
                return np.where(stride != 0, known, within)
            select = np.broadcast_to(last >> np.uint32(28) & RAW, within.shape)
            return np.choose(select, [known & (inner + end <= stride), known, records != 0, within])

        whole = inside(size)
        if np.count_nonzero(whole) == whole.size:
            return where, s.mask, None
        some = inside(width) if count > 1 else whole
        if s.mask is not None:
            whole, some = whole & s.mask, some & s.mask
        if np.count_nonzero(some) == np.count_nonzero(whole):
            return where, whole, None
        return where, some, [some, *(inside(width * i) & some for i in range(2, count + 1))]

    return address
