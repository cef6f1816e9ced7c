"""Vector comparisons: v_cmp writes a lane mask, v_cmpx EXEC."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_utils.virtual.amdgcn import state as st
from gpu_utils.virtual.amdgcn.operands import Decoder
from gpu_utils.virtual.amdgcn.sources import source_getters

Run = Callable[[Any], Any]


def _unordered(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.isnan(a) | np.isnan(b)


COMPARE: dict[str, Callable[..., Any]] = {
    "lt": np.less,
    "eq": np.equal,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "ne": np.not_equal,
    "lg": lambda a, b: (a < b) | (a > b),
    "neq": np.not_equal,
    "nlt": lambda a, b: ~(a < b),
    "nle": lambda a, b: ~(a <= b),
    "ngt": lambda a, b: ~(a > b),
    "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)),
    "o": lambda a, b: ~_unordered(a, b),
    "u": _unordered,
    "f": lambda a, b: np.zeros(np.broadcast_shapes(a.shape, b.shape), bool),
    "t": lambda a, b: np.ones(np.broadcast_shapes(a.shape, b.shape), bool),
    "tru": lambda a, b: np.ones(np.broadcast_shapes(a.shape, b.shape), bool),
}


def float_class(a: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """v_cmp_class: the bits of `wanted` are sNaN, qNaN, -inf, -normal, -denormal, -0, +0, +denormal, +normal, +inf."""
    word = np.dtype(f"u{a.dtype.itemsize}").type
    info = np.finfo(a.dtype)
    bits = np.ascontiguousarray(a).view(word)
    negative = np.signbit(a)
    quiet = (bits >> word(info.nmant - 1)) & word(1) != 0
    size = np.abs(a)
    index = np.where(size == 0, 6, np.where(size < info.tiny, 7, np.where(np.isinf(a), 9, 8)))
    index = np.where(negative, 11 - index, index)
    index = np.where(np.isnan(a), quiet.astype(int), index)
    return (wanted >> index.astype(np.uint32)) & np.uint32(1) != 0


def decode_compare(decoder: Decoder, name: str, ops: list[str], mods: dict[str, Any], writes_exec: bool = False) -> Run:
    match = re.match(r"v_cmpx?_(\w+?)_(f16|f32|f64|[iu]16|[iu]32|[iu]64)$", name)
    if not match:
        raise decoder.unsupported()
    operation, kind = match[1], match[2]
    if len(ops) == 3:
        target, texts = decoder.mask_result(ops[0]), ops[1:]
    else:
        target, texts = st.EXEC, ops
    if writes_exec:
        decoder.masked()
        decoder.writes_row(st.EXEC, decoder.mask_words)
    if operation == "class":
        sources = source_getters(decoder, (kind, "u32"), texts, mods)
        function: Callable[..., Any] = float_class
    else:
        if operation not in COMPARE:
            raise decoder.unsupported()
        sources = source_getters(decoder, (kind, kind), texts, mods)
        function = COMPARE[operation]
    first, second = sources
    shape_lanes = decoder.lanes

    def bits(s: Any) -> np.ndarray:
        value = function(first(s), second(s))
        if value.shape != (s.waves, shape_lanes):
            value = np.broadcast_to(value, (s.waves, shape_lanes))
        return value

    if not writes_exec:
        return lambda s: s.put_mask(target, bits(s))
    gfx9 = decoder.gfx9

    def run(s: Any) -> None:
        value = bits(s)
        if gfx9 and target != st.EXEC:
            s.put_mask(target, value)
        s.put_mask(st.EXEC, value)
        s.exec_changed()

    return run
