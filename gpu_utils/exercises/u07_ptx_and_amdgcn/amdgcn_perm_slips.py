"""07.amdgcn_perm with one mistake each: one kernel, whose text, constraints and selectors are given at launch."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 256
"""Given to the learner."""

TEXT = """
v_perm_b32 $0, $6, $5, $9
v_perm_b32 $2, $6, $5, $10
v_perm_b32 $4, $8, $7, $9
v_perm_b32 $1, $4, $0, $12
v_perm_b32 $0, $4, $0, $11
v_perm_b32 $4, $8, $7, $10
v_perm_b32 $3, $4, $2, $12
v_perm_b32 $2, $4, $2, $11
"""
"""Rows $5 to $8, selectors $9 to $12, columns $0 to $3, and $4 for what is in between."""

SELECTORS = (0x05010400, 0x07030602, 0x05040100, 0x07060302)
"""Of two rows their bytes 0 and 1, paired, and their bytes 2 and 3; then lower halves, and upper ones."""

_OUT = "=&v,=&v,=&v,=&v,=&v"
CONSTRAINTS = f"{_OUT},v,v,v,v,s,s,s,s"


@triton.jit
def _permuted(high, low, SELECTOR: tl.constexpr):
    return tl.inline_asm_elementwise(
        "v_perm_b32 $0, $1, $2, $3", "=v,v,v,s", [high, low, SELECTOR], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def _kernel(
    rows_ptr,
    columns_ptr,
    n,
    LOW_PAIRS: tl.constexpr,
    HIGH_PAIRS: tl.constexpr,
    LOWER: tl.constexpr,
    UPPER: tl.constexpr,
    TEXT: tl.constexpr,
    CONSTRAINTS: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Without a text: by shifts. "alone": each instruction in a text of its own."""
    tiles = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = tiles < n
    r0 = tl.load(rows_ptr + tiles, mask=mask)
    r1 = tl.load(rows_ptr + n + tiles, mask=mask)
    r2 = tl.load(rows_ptr + 2 * n + tiles, mask=mask)
    r3 = tl.load(rows_ptr + 3 * n + tiles, mask=mask)
    if TEXT == "":
        c0 = (r0 & 255) | ((r1 & 255) << 8) | ((r2 & 255) << 16) | (r3 << 24)
        c1 = ((r0 >> 8) & 255) | (r1 & 0xFF00) | (((r2 >> 8) & 255) << 16) | (((r3 >> 8) & 255) << 24)
        c2 = ((r0 >> 16) & 255) | (((r1 >> 16) & 255) << 8) | (r2 & 0xFF0000) | (((r3 >> 16) & 255) << 24)
        c3 = ((r0 >> 24) & 255) | (((r1 >> 24) & 255) << 8) | (((r2 >> 24) & 255) << 16) | ((r3 >> 24) << 24)
    elif TEXT == "alone":
        p0, p1 = _permuted(r1, r0, LOW_PAIRS), _permuted(r3, r2, LOW_PAIRS)
        q0, q1 = _permuted(r1, r0, HIGH_PAIRS), _permuted(r3, r2, HIGH_PAIRS)
        c0, c1 = _permuted(p1, p0, LOWER), _permuted(p1, p0, UPPER)
        c2, c3 = _permuted(q1, q0, LOWER), _permuted(q1, q0, UPPER)
    else:
        c0, c1, c2, c3, _ = tl.inline_asm_elementwise(
            TEXT,
            CONSTRAINTS,
            [r0, r1, r2, r3, LOW_PAIRS, HIGH_PAIRS, LOWER, UPPER],
            dtype=(tl.int32, tl.int32, tl.int32, tl.int32, tl.int32),
            is_pure=True,
            pack=1,
        )
    keep = mask if MASKED else None
    tl.store(columns_ptr + tiles, c0, mask=keep)
    tl.store(columns_ptr + n + tiles, c1, mask=keep)
    tl.store(columns_ptr + 2 * n + tiles, c2, mask=keep)
    tl.store(columns_ptr + 3 * n + tiles, c3, mask=keep)


def transposing(
    text: str = TEXT,
    constraints: str = CONSTRAINTS,
    selectors: tuple[int, int, int, int] = SELECTORS,
    masked: bool = True,
    order: tuple[int, ...] = (0, 1, 2, 3),
) -> Callable[[Tensor], Tensor]:
    """An answer; the right one unless something is changed. order: of the words that come back."""

    def amdgcn_perm(rows: Tensor) -> Tensor:
        columns = torch.empty_like(rows)
        n = rows.shape[1]
        _kernel[(triton.cdiv(n, BLOCK),)](rows, columns, n, *selectors, text, constraints, masked, BLOCK=BLOCK)
        return columns if order == (0, 1, 2, 3) else columns[list(order)]

    return amdgcn_perm


def _with(selectors: tuple[int, int, int, int]) -> str:
    """The selectors as literals in the text."""
    text = TEXT
    for register, selector in zip((9, 10, 11, 12), selectors, strict=True):
        text = text.replace(f"${register}\n", f"{selector:#010x}\n")
    return text


def with_torch(rows: Tensor) -> Tensor:
    return rows.view(torch.uint8).view(4, -1, 4).permute(2, 1, 0).contiguous().view(torch.int32).view(4, -1)


_BYTE_BY_BYTE = "\n".join(
    f"v_perm_b32 ${column}, $6, $5, ${9 if column < 2 else 10}\n"
    f"v_perm_b32 $4, $8, $7, ${9 if column < 2 else 10}\n"
    f"v_perm_b32 ${column}, $4, ${column}, ${11 + column % 2}"
    for column in range(4)
)
_ROUND_ONE = """
v_perm_b32 $0, $6, $5, $9
v_perm_b32 $1, $6, $5, $10
v_perm_b32 $2, $8, $7, $9
v_perm_b32 $3, $8, $7, $10
v_perm_b32 $4, $8, $7, $10
"""
_TURNED = {"$6, $5": "$5, $6", "$8, $7": "$7, $8", "$4, $0": "$0, $4", "$4, $2": "$2, $4"}


def _turned(text: str) -> str:
    for before, after in _TURNED.items():
        text = text.replace(before, after)
    return text


def _backwards(*selectors: int) -> tuple[int, int, int, int]:
    first, second, third, fourth = (int.from_bytes(one.to_bytes(4, "big"), "little") for one in selectors)
    return first, second, third, fourth


right = transposing()
selectors_of_prmt = transposing(selectors=(0x5140, 0x7362, 0x5410, 0x7632))
sources_of_prmt = transposing(_turned(TEXT))
selectors_backwards = transposing(selectors=_backwards(*SELECTORS))
pairs_side_by_side = transposing(selectors=(0x05040100, 0x07060302, 0x05040100, 0x07060302))
halves_only = transposing(_ROUND_ONE)
columns_backwards = transposing(order=(3, 2, 1, 0))
middle_columns_turned = transposing(order=(0, 2, 1, 3))
no_early_clobber = transposing(constraints=CONSTRAINTS.replace("&", ""))
literal_selectors = transposing(_with(SELECTORS))
four_constraints = transposing(constraints=CONSTRAINTS.removeprefix("=&v,"))
constraints_of_ptx = transposing(constraints="=&r,=&r,=&r,=&r,=&r,r,r,r,r,r,r,r,r")
twelve = transposing(_BYTE_BY_BYTE)
no_mask = transposing(masked=False)
without_assembly = transposing("")
a_text_each = transposing("alone")
