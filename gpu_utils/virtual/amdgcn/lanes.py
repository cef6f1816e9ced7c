"""Instructions and modifiers that move data between lanes: DPP, readlane, permlane, ds_bpermute's index arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_utils.virtual.amdgcn.operands import Decoder
from gpu_utils.virtual.amdgcn.state import spread_mask

_DPP_WORDS = (
    "quad_perm",
    "row_shl",
    "row_shr",
    "row_ror",
    "wave_shl",
    "wave_shr",
    "wave_rol",
    "wave_ror",
    "row_mirror",
    "row_half_mirror",
    "row_bcast",
    "row_share",
    "row_xmask",
    "row_newbcast",
    "dpp8",
)


def dpp_source(modifiers: dict[str, Any], lanes: int) -> np.ndarray | None:
    """Which lane each lane reads, -1 where there is none; None when the instruction has no DPP control."""
    lane = np.arange(lanes)
    row, column = lane & ~15, lane & 15
    word = next((word for word in _DPP_WORDS if word in modifiers), None)
    if word is None:
        return None
    n = modifiers[word]
    if word == "quad_perm":
        return (lane & ~3) + np.array(n)[lane & 3]
    if word == "dpp8":
        return (lane & ~7) + np.array(n)[lane & 7]
    if word == "row_shl":
        return np.where(column + n < 16, lane + n, -1)
    if word == "row_shr":
        return np.where(column - n >= 0, lane - n, -1)
    if word == "row_ror":
        return row + (column - n) % 16
    if word == "wave_shl":
        return np.where(lane + 1 < lanes, lane + 1, -1)
    if word == "wave_shr":
        return lane - 1
    if word == "wave_rol":
        return (lane + 1) % lanes
    if word == "wave_ror":
        return (lane - 1) % lanes
    if word == "row_mirror":
        return row + 15 - column
    if word == "row_half_mirror":
        return (lane & ~7) + 7 - (lane & 7)
    if word == "row_bcast":
        return (lane & ~15) - 1 if n == 15 else np.where(lane >= 32, 31, -1)
    if word in ("row_share", "row_newbcast"):
        return row + n
    return row + (column ^ n)  # row_xmask


class Dpp:
    """The DPP modifiers of one instruction.

    move(state, register) gives the moved register; narrowed(state,
    put) runs put with the lanes masked that DPP leaves alone.
    """

    def __init__(self, decoder: Decoder, modifiers: dict[str, Any]) -> None:
        lanes = decoder.lanes
        source = dpp_source(modifiers, lanes)
        assert source is not None
        self.valid = source >= 0
        self.index = np.where(self.valid, source, 0)
        self.all_valid = bool(self.valid.all())
        self.valid_bits = spread_mask(self.valid)
        self.zero = bool(modifiers.get("bound_ctrl", 0)) or "bound_ctrl" in modifiers
        self.fetch_inactive = bool(modifiers.get("fi", 0)) or "dpp8" in modifiers
        row = np.arange(lanes) >> 4
        bank = (np.arange(lanes) >> 2) & 3
        wanted = (modifiers.get("row_mask", 15) >> (row & 3) & 1) & (modifiers.get("bank_mask", 15) >> bank & 1)
        self.wanted = None if wanted.all() else wanted.astype(bool)

    def _sources(self, s: Any) -> np.ndarray | None:
        """Which lanes have a source that may be read; None when all have."""
        if s.exec_mask is None or self.fetch_inactive:
            return None if self.all_valid else self.valid
        return s.exec_mask.take(self.index, axis=1) & self.valid

    def move(self, s: Any, register: np.ndarray) -> np.ndarray:
        moved = register.take(self.index, axis=1)
        if self.zero:
            good = self._sources(s)
            if good is self.valid:
                moved &= self.valid_bits
            elif good is not None:
                moved = np.where(good, moved, np.uint32(0))
        return moved

    def narrowed(self, s: Any, put: Any) -> None:
        good = None if self.zero else self._sources(s)
        keep = good if self.wanted is None else self.wanted if good is None else good & self.wanted
        if keep is None:
            put()
            return
        before = s.mask
        s.mask = np.atleast_2d(keep) if before is None else before & keep
        try:
            put()
        finally:
            s.mask = before


def first_active(s: Any) -> np.ndarray:
    """The first lane that EXEC allows, per wave; lane 0 when there is none."""
    if s.exec_mask is None:
        return np.zeros(s.waves, np.int64)
    return s.exec_mask.argmax(axis=1)


def decode_readlane(decoder: Decoder, operands: list[str]) -> Any:
    out, source = decoder.result(operands[0]), decoder.source(operands[1])
    lanes = decoder.lanes
    where = decoder.getter(operands[2], "u32")

    def run(s: Any) -> None:
        lane = where(s) & np.uint32(lanes - 1)
        row = s.U[source]
        if lane.size == 1:
            s.put_scalar(out, row[:, int(lane[0, 0])][:, None])
        else:
            s.put_scalar(out, row.take(lane + np.arange(0, row.size, lanes)[:, None]))

    return run


def decode_readfirstlane(decoder: Decoder, operands: list[str]) -> Any:
    out, source = decoder.result(operands[0]), decoder.getter(operands[1], "u32")
    decoder.masked()

    def run(s: Any) -> None:
        value = source(s)
        if value.shape[1] != 1:
            if s.exec_mask is None:
                value = value[:, :1]
            else:
                value = value.take((first_active(s) + np.arange(0, value.size, s.lanes))[:, None])
        s.put_scalar(out, value)

    return run


def decode_writelane(decoder: Decoder, operands: list[str]) -> Any:
    out = decoder.result(operands[0], masked=False)
    value, where = decoder.getter(operands[1], "u32"), decoder.getter(operands[2], "u32")
    lanes = decoder.lanes

    def run(s: Any) -> None:  # EXEC does not matter here
        lane = np.broadcast_to(where(s) & np.uint32(lanes - 1), (s.waves, 1))
        hit = s.lane == lane
        if s.act is not None:
            hit = hit & s.act_column
        np.copyto(s.U[out], value(s), where=hit)

    return run


def decode_mbcnt(decoder: Decoder, operands: list[str], high: bool) -> Any:
    out, bits, base = (
        decoder.result(operands[0]),
        decoder.getter(operands[1], "u32"),
        decoder.getter(operands[2], "u32"),
    )
    lane = np.arange(decoder.lanes)
    below = np.where(lane >= 32, 0xFFFFFFFF, (1 << np.minimum(lane, 31)) - 1)
    if high:
        below = np.where(lane >= 32, (1 << np.maximum(lane - 32, 0)) - 1, 0)
    mask = below.astype(np.uint32)[None, :]
    return lambda s: s.put(out, np.bitwise_count(bits(s) & mask).astype(np.uint32) + base(s))


def decode_permlane16(decoder: Decoder, operands: list[str], other_row: bool, modifiers: dict[str, Any]) -> Any:
    """v_permlane16_b32 and v_permlanex16_b32: pick a lane of this or the other row of 16 by a 4-bit selector each."""
    out, source = decoder.result(operands[0]), decoder.source(operands[1])
    low, high = decoder.getter(operands[2], "u32"), decoder.getter(operands[3], "u32")
    lane = np.arange(decoder.lanes)
    shift = ((lane & 7) * 4).astype(np.uint32)[None, :]
    flip = 16 if other_row else 0
    flags = modifiers.get("op_sel", [0, 0])
    inactive, zero = bool(flags[0]), bool(flags[1])

    def run(s: Any) -> None:
        select = np.where((lane & 8) != 0, high(s), low(s)) >> shift & np.uint32(15)
        index = ((lane & ~15) ^ flip) + select.astype(np.int64)
        index = np.broadcast_to(index, (s.waves, s.lanes))
        value = np.take_along_axis(s.U[source], index, axis=1)
        before = s.mask
        if s.exec_mask is not None and not inactive:
            good = np.take_along_axis(s.exec_mask, index, axis=1)
            if zero:
                value = np.where(good, value, np.uint32(0))
            else:
                s.mask = good if before is None else before & good
        s.put(out, value)
        s.mask = before

    return run


def decode_permlane64(decoder: Decoder, operands: list[str]) -> Any:
    out, source = decoder.result(operands[0]), decoder.source(operands[1])
    index = np.arange(decoder.lanes) ^ (32 if decoder.lanes == 64 else 0)
    return lambda s: s.put(out, s.U[source].take(index, axis=1))


def decode_permlane_swap(decoder: Decoder, operands: list[str], width: int) -> Any:
    """v_permlane{16,32}_swap_b32 (gfx950): odd groups of the first against even groups of the second."""
    first, second = (decoder.result(text, keeps=True) for text in operands[:2])
    lane = np.arange(decoder.lanes)
    odd = (lane & width) != 0

    def run(s: Any) -> None:
        a, b = s.U[first].copy(), s.U[second].copy()
        s.put(first, np.where(odd, b[:, lane ^ width], a))
        s.put(second, np.where(odd, b, a[:, lane ^ width]))

    return run


def decode_swap(decoder: Decoder, operands: list[str]) -> Any:
    a, b = (decoder.result(text, keeps=True) for text in operands[:2])

    def run(s: Any) -> None:
        keep = s.U[a].copy()
        s.put(a, s.U[b])
        s.put(b, keep)

    return run


def swizzle_source(pattern: Any, lanes: int) -> np.ndarray:
    """Which lane each lane reads under ds_swizzle_b32 `offset:...`, -1 for none."""
    lane = np.arange(lanes)
    if isinstance(pattern, str):
        words = [w.strip() for w in pattern[pattern.index("(") + 1 : pattern.rindex(")")].split(",")]
        mode = words[0].strip('"')
        numbers = [int(w, 0) for w in words[1:] if w.lstrip("-").isdigit()]
        if mode == "QUAD_PERM":
            return (lane & ~3) + np.array(numbers)[lane & 3]
        if mode == "BROADCAST":
            return (lane & ~(numbers[0] - 1)) + numbers[1]
        if mode == "SWAP":
            return lane ^ numbers[0]
        if mode == "REVERSE":
            return lane ^ (numbers[0] - 1)
        code = words[1].strip('"')  # BITMASK_PERM: most significant bit first; 0, 1, p(reserve), i(nvert)
        keep = flip = fixed = 0
        for char in code:
            keep, flip, fixed = keep << 1, flip << 1, fixed << 1
            keep |= char in "pi"
            flip |= char == "i"
            fixed |= char == "1"
        return (lane & ~31) | (((lane & keep) | fixed) ^ flip)
    if pattern & 0x8000:
        if pattern & 0x4000:  # rotate
            mask, count = pattern & 31, (pattern >> 5) & 31
            turn = -count if pattern & 0x400 else count
            return (lane & ~31) | (lane & mask & 31) | (((lane & 31) + turn) & ~mask & 31)
        return (lane & ~3) + np.array([pattern >> (2 * i) & 3 for i in range(4)])[lane & 3]
    keep, fixed, flip = pattern & 31, pattern >> 5 & 31, pattern >> 10 & 31
    return (lane & ~31) | (((lane & keep) | fixed) ^ flip)
