"""Addresses of buffer instructions: four scalar registers describe a buffer, and nothing outside of it is touched.

    inner   = vector offset + immediate, in 32 bits: it wraps, so that -1024 and offset:1280 are byte 256
    address = base + scalar offset + index * stride + inner, in 64 bits

The range check, for each word of a lane (a whole atomic):
  raw          inner + scalar offset + bytes up to the word's end <= records; the scalar offset does not wrap
  structured   with `idxen`: gfx9 index < records (with a stride of 0 it is raw); gfx11 and gfx12 as OOB_SELECT in bits
               29:28 of the last word says: 0 index < records and inner within the stride, 1 index < records,
               2 records != 0, 3 raw. They do so without `idxen` too, the index being 0.

gfx1250 keeps the records in 45 bits above 57 bits of the base; of its buffers raw ones are executed.

Sources: AMD's own emulator, which states that hardware adds `inner` in 32 bits and follows gfx950, gfx11 and gfx12
(github.com/ROCm/rocm-systems, emulation/rocjitsu, isa/arch/amdgpu/shared/addr_calc_buffer.h); "Buffer Addressing" and
"Range Checking" in AMD's ISA manuals of CDNA3, RDNA3 and RDNA4. LLVM counts on it: it moves a constant from the vector
offset into the immediate whatever the sign of the rest (SITargetLowering::splitBufferOffsets).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from gpu_utils.errors import VirtualGpuError
from gpu_utils.virtual.amdgcn.operands import Decoder
from gpu_utils.virtual.amdgcn.parse import Instruction
from gpu_utils.virtual.global_patterns import Found, find
from gpu_utils.virtual.words import narrow

BASE = np.uint64((1 << 48) - 1)  # of the first two words
ADD_THREAD = np.uint32(1 << 23)  # of the last word: the lane is added to the index
RAW = np.uint32(3)  # OOB_SELECT

Words = tuple["np.ndarray | Found", "np.ndarray | None", "list[np.ndarray] | None"]
# Bytes of the offsets that are kept, and how often an access may be another one than before until it is not kept.
_MOST_BYTES = 1 << 26
_PATIENCE = 8


class Known:
    """What came of a raw access, for the next time that its offsets are the same, or all of them further on by as much.

    offsets: with the immediate, uint32 (waves, lanes). given: the mask that lanes had; allowed: of those that lie
    within the buffer, None when they all do. resource: bytes of the last two words of the descriptor and of the scalar
    offset. start: where the buffer begins, int64 (waves, 1). limit: the greatest offset that is within the buffer in
    every wave; reach: that whose first word is, None when waves differ. found: the addresses. low, high, lane: the
    least and the greatest offset that take part, and the first lane that does.
    """

    def __init__(
        self,
        offsets: np.ndarray,
        given: np.ndarray | None,
        resource: bytes,
        start: np.ndarray,
        limit: int,
        reach: int | None,
        found: Found,
        allowed: np.ndarray | None,
    ) -> None:
        self.offsets, self.given = offsets.copy(), None if given is None else given.copy()
        self.resource, self.start, self.limit, self.reach = resource, start, limit, reach
        self.found, self.allowed = found, allowed
        taking_part = offsets if allowed is None else offsets[allowed]
        self.low, self.high = int(taking_part.min()), int(taking_part.max())
        self.lane = 0 if allowed is None else int(allowed.argmax())

    def again(self, offsets: np.ndarray, mask: np.ndarray | None, start: np.ndarray) -> Found | None:
        """What the access comes to this time; None when it is another one."""
        if (mask is None) != (self.given is None) or (mask is not None and np.count_nonzero(mask != self.given)):
            return None
        further = start - self.start
        moved = further.item(0)
        if np.count_nonzero(further != moved):
            return None
        step = offsets.item(self.lane) - self.offsets.item(self.lane)
        if self.low + step < 0 or self.high + step > self.limit:
            return None
        # of numbers of 32 bits: none that takes part wraps, as the least and the greatest do not
        differs = offsets - self.offsets != np.uint32(step & 0xFFFFFFFF)
        different = np.count_nonzero(differs)
        if self.allowed is None:
            if different:
                return None
        elif different or step:
            if self.reach is None or np.count_nonzero(differs & self.allowed):
                return None
            within = offsets <= np.uint32(self.reach)
            if np.count_nonzero((within if mask is None else within & mask) != self.allowed):
                return None
        return Found(self.found.pattern, self.found.base + moved + step)


# By access, then by waves; and the bytes in it.
_known: WeakKeyDictionary[Callable[[Any], Words], dict[int, Known]] = WeakKeyDictionary()
_kept = 0


def _keep(address: Callable[[Any], Words], waves: int, known: Known) -> None:
    global _kept
    if _kept > _MOST_BYTES:
        _known.clear()
        _kept = 0
    _kept += known.offsets.nbytes
    _known.setdefault(address, {})[waves] = known


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
    size, gfx9, wide = width * count, decoder.gfx9, decoder.gfx125
    if wide and indexed:
        raise decoder.unsupported("structured buffers")

    missed = 0

    def records_of(s: Any) -> np.ndarray:
        words = s.U[resource + 2].astype(np.int64)
        if wide:
            upper = s.U[resource + 3].astype(np.int64) & 0x3F
            words = s.U[resource + 1].astype(np.int64) >> 25 | words << 7 | upper << 39
        return words

    def moved(s: Any) -> np.ndarray:
        return s.U[row] + offset if offset else s.U[row]

    def address(s: Any) -> Words:
        nonlocal missed
        further = soffset(s)
        if row is None or indexed or missed > _PATIENCE:
            return anew(s, further, None)
        offsets, resource_bytes = moved(s), s.Q[resource + 2].tobytes() + further.tobytes()
        if wide:
            resource_bytes += records_of(s).tobytes()
        known = _known.get(address, {}).get(s.waves)
        if known is not None and known.resource == resource_bytes:
            found = known.again(offsets, s.mask, (s.Q[resource] & BASE).view(np.int64) + further)
            if found is not None:
                missed = 0
                return found, s.mask if known.allowed is None else known.allowed, None
            missed += 1
        return anew(s, further, resource_bytes)

    def keep(
        s: Any, resource_bytes: bytes | None, limits: np.ndarray, start: np.ndarray, where: Any, allowed: Any
    ) -> Any:
        """The addresses as they were found, kept for the next time."""
        mask, some = narrow(s.mask if allowed is None else allowed)
        if resource_bytes is None or not some or int(limits.max()) >> 32:
            return where
        found, least, most = find(where, mask), int(limits.min()), int(limits.max())
        reach = min(least + size - width, 0xFFFFFFFF) if least == most else None
        _keep(address, s.waves, Known(moved(s), s.mask, resource_bytes, start, least, reach, found, allowed))
        return found

    def anew(s: Any, further: np.ndarray, resource_bytes: bytes | None) -> Words:
        extra = further.astype(np.int64)
        inner = np.full((s.waves, s.lanes), offset, np.int64) if row is None else moved(s).astype(np.int64)
        last = s.U[resource + 3]
        adds = last & (np.uint32(0) if wide else ADD_THREAD)
        if np.count_nonzero(adds):
            if s.act is None or adds[s.act].any():  # the others' registers may hold anything
                if s.scratch_base is None or not (adds if s.act is None else adds[s.act]).all():
                    raise _refused(s, ins)
                # before gfx940 scratch is a buffer that adds the lane: its scalar offset counts a whole wave's bytes
                return s.scratch_base + inner + extra // s.lanes, s.mask, None
            resource_bytes = None
        start = (s.pair(resource) & BASE).view(np.int64) + extra
        records = records_of(s)
        raw = not indexed and (gfx9 or wide or bool((last >> np.uint32(28) & RAW == RAW).all()))
        limits = records - extra - size
        if raw and int(inner.max()) <= int(limits.min()):
            return keep(s, resource_bytes, limits, start, inner + start, None), s.mask, None
        where = inner + start
        if not raw:
            high = s.U[resource + 1].astype(np.int64)
            stride, index = high >> 16 & 0x3FFF, s.U[first].astype(np.int64) if indexed else np.int64(0)
            where += index * stride
            if indexed and not gfx9 and ((high if s.act is None else high[s.act]) >> 30).any():
                raise _refused(s, ins)

        def inside(end: int) -> np.ndarray:
            """Where the word that ends `end` bytes after the address lies within the buffer."""
            within = inner <= records - extra - end
            if raw:
                return within
            listed = np.broadcast_to(index < records, within.shape)
            if gfx9:
                return np.where(stride != 0, listed, within)
            select = np.broadcast_to(last >> np.uint32(28) & RAW, within.shape)
            return np.choose(select, [listed & (inner + end <= stride), listed, records != 0, within])

        whole = inside(size)
        if np.count_nonzero(whole) == whole.size:
            return where, s.mask, None
        some = inside(width) if count > 1 else whole
        if s.mask is not None:
            whole, some = whole & s.mask, some & s.mask
        if np.count_nonzero(some) == np.count_nonzero(whole):
            return keep(s, resource_bytes if raw else None, limits, start, where, whole), whole, None
        return where, some, [some, *(inside(width * i) & some for i in range(2, count + 1))]

    return address


def _refused(s: Any, ins: Instruction) -> VirtualGpuError:
    place = f" ({ins.line[0].rsplit('/', 1)[-1]}:{ins.line[1]})" if ins.line else ""
    return VirtualGpuError(
        f"kernel {s.program.name}{place}: the descriptor of `{ins.text.strip()}` is swizzled or adds the lane to the "
        "index; a virtual GPU executes raw and structured buffers: clear those bits of its second and last word"
    )
