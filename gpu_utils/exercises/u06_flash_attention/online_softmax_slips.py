"""Wrong answers to 06.online_softmax, as learners write them: one kernel whose slips are numbers, compiled once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

Result = tuple[Tensor, Tensor]

FAR = 2**30
"""No limit at all, for a mask."""


@triton.jit(
    do_not_specialize=[
        *("parts", "rows", "stored", "first", "raw", "guarded", "old_o", "old_l", "new_o", "new_l"),
        *("each", "divisor", "safe", "from_base", "without_m"),
    ]
)
def kernel(
    o_ptr,
    m_ptr,
    l_ptr,
    out_ptr,
    lse_ptr,
    d,
    parts,
    rows,
    cols,
    stored,
    first,
    raw,
    guarded,
    old_o,
    old_l,
    new_o,
    new_l,
    each,
    divisor,
    safe,
    from_base,
    without_m,
    log2_e,
    of_log,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Right with the numbers of `launch`.

    cols, stored  limits of columns and of stored rows; first: the first part; raw: no maximum is subtracted
    guarded       0 is subtracted where the maximum is -inf; old_o to new_l: what is rescaled
    each          each part is divided by its l; divisor: of the result, where it is not l (0)
    safe          nothing is divided by 0; from_base: lse with what was subtracted, and safe; without_m: without it
    """
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, BLOCK_D)[None, :]
    m = tl.full([BLOCK], float("-inf"), tl.float32)
    base = tl.zeros([BLOCK], tl.float32)
    l = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, BLOCK_D], tl.float32)
    for part in range(first, parts):
        row = part * rows + r
        m_part = tl.load(m_ptr + row, mask=r < rows, other=0.0)
        l_part = tl.load(l_ptr + row, mask=r < rows, other=0.0)
        o_part = tl.load(o_ptr + row[:, None] * d + c, mask=(r[:, None] < rows) & (c < cols), other=0.0)
        o_part = o_part / tl.where((each != 0) & (l_part != 0), l_part, 1.0)[:, None]
        new = tl.maximum(m, m_part)
        base = tl.where((raw != 0) | ((guarded != 0) & (new == float("-inf"))), 0.0, new)
        old = tl.where(raw != 0, 1.0, tl.exp2((m - base) * log2_e))
        added = tl.exp2((m_part - base) * log2_e)
        l = l * tl.where(old_l != 0, old, 1.0) + l_part * tl.where(new_l != 0, added, 1.0)
        acc = acc * tl.where(old_o != 0, old, 1.0)[:, None] + o_part * tl.where(new_o != 0, added, 1.0)[:, None]
        m = new
    positive = tl.where(l == 0, 1.0, l)
    lse = tl.where(from_base != 0, base + tl.log(positive), tl.where(raw != 0, 0.0, m) + tl.log(l) * of_log)
    lse = tl.where(without_m != 0, tl.log(l), lse)
    tl.store(lse_ptr + r, lse, mask=r < stored)
    out = acc / tl.where(divisor != 0, divisor + 0.0, tl.where(safe != 0, positive, l))[:, None]
    tl.store(out_ptr + r[:, None] * d + c, out, mask=(r[:, None] < stored) & (c < cols))


def launch(
    o: Tensor, m: Tensor, l: Tensor, programs: Callable[[int, int], int] = triton.cdiv, **changed: Any
) -> Result:
    parts, rows, d = o.shape
    out, lse = torch.empty((rows, d), device=o.device), torch.empty(rows, device=o.device)
    numbers = {
        **{"d": d, "parts": parts, "rows": rows, "cols": d, "stored": rows, "first": 0, "raw": 0, "guarded": 1},
        **{"old_o": 1, "old_l": 1, "new_o": 1, "new_l": 1, "each": 0, "divisor": 0, "safe": 1, "from_base": 0},
        **{"without_m": 0, "log2_e": 1 / math.log(2), "of_log": 1.0},
    }
    block = {"BLOCK": 16, "BLOCK_D": triton.next_power_of_2(d)}
    kernel[(programs(rows, 16),)](o, m, l, out, lse, **numbers | changed, **block)
    return out, lse


def answer(**changed: Any) -> Callable[..., Result]:
    """The right launch with other numbers."""
    return lambda o, m, l: launch(o, m, l, **changed)


rounded_down = answer(programs=lambda rows, block: rows // block)


def mean_of_the_parts(o: Tensor, m: Tensor, l: Tensor) -> Result:
    return launch(o, m, l, each=1, old_o=0, new_o=0, divisor=len(o))


def a_launch_for_each_part(o: Tensor, m: Tensor, l: Tensor) -> Result:
    return [launch(o[: n + 1], m[: n + 1], l[: n + 1]) for n in range(len(o))][-1]


def of_torch(o: Tensor, m: Tensor, l: Tensor) -> Result:
    top = m.max(0).values
    weights = torch.exp(m - top.where(top > -math.inf, 0.0))
    total = (weights * l).sum(0)
    return (weights[:, :, None] * o).sum(0) / total.where(total > 0, 1.0)[:, None], top + total.log()
