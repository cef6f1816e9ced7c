"""Getters of the sources of a vector instruction, with its SDWA, op_sel and DPP modifiers."""

from __future__ import annotations

from typing import Any

from gpu_utils.virtual.amdgcn import lanes
from gpu_utils.virtual.amdgcn.operands import BITS, Decoder


def source_getters(
    decoder: Decoder, kinds: tuple[str, ...], texts: list[str], mods: dict[str, Any], accumulate: bool = False
) -> list[Any]:
    """Getters with the SDWA, op_sel and DPP modifiers of the instruction."""
    op_sel = mods.get("op_sel", [])
    move = lanes.Dpp(decoder, mods).move if lanes.dpp_source(mods, decoder.lanes) is not None else None
    result = []
    for i, (kind, text) in enumerate(zip(kinds, texts, strict=True)):
        last = accumulate and i == len(texts) - 1
        select = "" if last else str(mods.get(f"src{i}_sel", ""))
        high = bool(i < len(op_sel) and op_sel[i]) and BITS[kind] == 16 and not last
        result.append(decoder.getter(text, kind, high, select, move=move if i == 0 else None))
    return result
