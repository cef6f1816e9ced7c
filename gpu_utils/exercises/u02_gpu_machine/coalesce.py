"""02.coalesce: a right but wasteful kernel (rotary embedding on pairs) that must move each byte once."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Limit, Misconception

WHOLE = 64
"""Pairs: from this many on, and in multiples, every tensor ends where a transaction ends, on every target."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    tokens, d = case["tokens"], case["d"]
    angle = 6.3 * torch.rand(tokens, d // 2, generator=generator)
    return {"x": torch.randn(tokens, d, generator=generator), "cos": angle.cos(), "sin": angle.sin()}


def rotate_reference(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Each pair (a, b) = x[t, 2i], x[t, 2i + 1] becomes (a cos - b sin, a sin + b cos), in float64."""
    a, b = x.double()[:, 0::2], x.double()[:, 1::2]
    c, s = cos.double(), sin.double()
    return torch.stack((a * c - b * s, a * s + b * c), dim=2).reshape(x.shape)


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # two products and their sum, which may be small where the products are not
    return tolerance(torch.float32, k=2, magnitude=float(inputs["x"].abs().max()))


def _pairs(case: Case) -> int:
    return 1 if isinstance(case, Example) else int(case["tokens"] * case["d"] // 2)


def _most_programs(case: Case) -> float:
    """One for each token, or for each 32 pairs."""
    return max(1 if isinstance(case, Example) else case["tokens"], math.ceil(_pairs(case) / 32))


@triton.jit
def _as_given_kernel(x_ptr, cos_ptr, sin_ptr, out_ptr, pairs, SWAPPED: tl.constexpr, BLOCK: tl.constexpr):
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = pair < pairs
    a = tl.load(x_ptr + 2 * pair, mask=mask)
    b = tl.load(x_ptr + 2 * pair + 1, mask=mask)
    c, s = tl.load(cos_ptr + pair, mask=mask), tl.load(sin_ptr + pair, mask=mask)
    if SWAPPED:
        s = -s
    tl.store(out_ptr + 2 * pair, a * c - b * s, mask=mask)
    tl.store(out_ptr + 2 * pair + 1, a * s + b * c, mask=mask)


@triton.jit
def _joined_kernel(
    x_ptr, cos_ptr, sin_ptr, out_ptr, pairs, SIGN: tl.constexpr, BEHIND: tl.constexpr, BLOCK: tl.constexpr
):
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = pair < pairs
    both = 2 * pair[:, None] + tl.arange(0, 2)[None, :]
    a, b = tl.split(tl.load(x_ptr + both, mask=mask[:, None]))
    c, s = tl.load(cos_ptr + pair, mask=mask), tl.load(sin_ptr + pair, mask=mask)
    first, second = a * c - SIGN * b * s, SIGN * a * s + b * c
    if BEHIND:
        tl.store(out_ptr + pair, first, mask=mask)
        tl.store(out_ptr + pairs + pair, second, mask=mask)
    else:
        tl.store(out_ptr + both, tl.join(first, second), mask=mask[:, None])


@triton.jit
def _stores_apart_kernel(x_ptr, cos_ptr, sin_ptr, out_ptr, pairs, BLOCK: tl.constexpr):
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = pair < pairs
    a, b = tl.split(tl.load(x_ptr + 2 * pair[:, None] + tl.arange(0, 2)[None, :], mask=mask[:, None]))
    c, s = tl.load(cos_ptr + pair, mask=mask), tl.load(sin_ptr + pair, mask=mask)
    tl.store(out_ptr + 2 * pair, a * c - b * s, mask=mask)
    tl.store(out_ptr + 2 * pair + 1, a * s + b * c, mask=mask)


@triton.jit
def _unmasked_kernel(x_ptr, cos_ptr, sin_ptr, out_ptr, BLOCK: tl.constexpr):
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    both = 2 * pair[:, None] + tl.arange(0, 2)[None, :]
    a, b = tl.split(tl.load(x_ptr + both))
    c, s = tl.load(cos_ptr + pair), tl.load(sin_ptr + pair)
    tl.store(out_ptr + both, tl.join(a * c - b * s, a * s + b * c))


@triton.jit
def _partner_kernel(x_ptr, cos_ptr, sin_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    own, other = tl.load(x_ptr + i, mask=mask), tl.load(x_ptr + (i ^ 1), mask=mask)
    c, s = tl.load(cos_ptr + i // 2, mask=mask), tl.load(sin_ptr + i // 2, mask=mask)
    tl.store(out_ptr + i, own * c + tl.where(i % 2 == 0, -other, other) * s, mask=mask)


@triton.jit
def _halves_kernel(x_ptr, cos_ptr, sin_ptr, out_ptr, pairs, half, BLOCK: tl.constexpr):
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = pair < pairs
    at = pair // half * 2 * half + pair % half
    a, b = tl.load(x_ptr + at, mask=mask), tl.load(x_ptr + at + half, mask=mask)
    c, s = tl.load(cos_ptr + pair, mask=mask), tl.load(sin_ptr + pair, mask=mask)
    tl.store(out_ptr + at, a * c - b * s, mask=mask)
    tl.store(out_ptr + at + half, a * s + b * c, mask=mask)


@triton.jit
def _apart_kernel(a_ptr, b_ptr, cos_ptr, sin_ptr, first_ptr, second_ptr, pairs, BLOCK: tl.constexpr):
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = pair < pairs
    a, b = tl.load(a_ptr + pair, mask=mask), tl.load(b_ptr + pair, mask=mask)
    c, s = tl.load(cos_ptr + pair, mask=mask), tl.load(sin_ptr + pair, mask=mask)
    tl.store(first_ptr + pair, a * c - b * s, mask=mask)
    tl.store(second_ptr + pair, a * s + b * c, mask=mask)


BLOCK = 256


def _launch(kernel: Any, x: Tensor, cos: Tensor, sin: Tensor, block: int = BLOCK, **options: Any) -> Tensor:
    out = torch.empty_like(x)
    pairs = x.numel() // 2
    kernel[(triton.cdiv(pairs, block),)](x, cos, sin, out, pairs, BLOCK=block, **options)
    return out


def _as_given(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return _launch(_as_given_kernel, x, cos, sin, SWAPPED=False)


def _stores_apart(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return _launch(_stores_apart_kernel, x, cos, sin)


def _small_blocks(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return _launch(_joined_kernel, x, cos, sin, block=128, SIGN=1, BEHIND=False)


def _other_way_round(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return _launch(_joined_kernel, x, cos, sin, SIGN=-1, BEHIND=False)


def _halves_behind_each_other(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return _launch(_joined_kernel, x, cos, sin, SIGN=1, BEHIND=True)


def _no_mask(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    out = torch.empty_like(x)
    _unmasked_kernel[(triton.cdiv(x.numel() // 2, BLOCK),)](x, cos, sin, out, BLOCK=BLOCK)
    return out


def _each_element_with_its_partner(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    out = torch.empty_like(x)
    _partner_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, cos, sin, out, x.numel(), BLOCK=BLOCK)
    return out


def _pairs_of_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return _launch(_halves_kernel, x, cos, sin, half=x.shape[1] // 2)


def _first_block_only(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    out = torch.empty_like(x)
    grid = (x.numel() // 2 // BLOCK,)
    _joined_kernel[grid](x, cos, sin, out, x.numel() // 2, SIGN=1, BEHIND=False, BLOCK=BLOCK)
    return out


def _first_row_only(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    out = torch.empty_like(x)
    pairs = x.shape[1] // 2
    _joined_kernel[(triton.cdiv(pairs, BLOCK),)](x, cos, sin, out, pairs, SIGN=1, BEHIND=False, BLOCK=BLOCK)
    return out


def _elements_for_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), BLOCK),)
    _joined_kernel[grid](x, cos, sin, out, x.numel(), SIGN=1, BEHIND=False, BLOCK=BLOCK)
    return out


def _torch_takes_pairs_apart(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x[:, 0::2].contiguous(), x[:, 1::2].contiguous()
    first, second, pairs = torch.empty_like(a), torch.empty_like(a), a.numel()
    _apart_kernel[(triton.cdiv(pairs, BLOCK),)](a, b, cos, sin, first, second, pairs, BLOCK=BLOCK)
    return torch.stack((first, second), dim=2).reshape(x.shape)


def _filled(value: float) -> Callable[..., Tensor]:
    return lambda x, cos, sin: torch.full_like(x, value)


def _fresh(rng: random.Random) -> Case:
    return Case("sizes nobody chose", tokens=rng.randrange(3, 9), d=2 * rng.randrange(20, 300))


EXERCISE = Exercise(
    id="02.coalesce",
    title="Rotary embedding, each byte moved once",
    parameters=("x", "cos", "sin"),
    kind="kernel",
    inputs=_inputs,
    reference=rotate_reference,
    tolerance=_tolerance,
    cases=(
        Example(
            "the example of the statement",
            x=lambda: torch.tensor([[3.0, 4.0]]),
            cos=lambda: torch.zeros(1, 1),
            sin=lambda: torch.ones(1, 1),
        ),
        Case("GPT-2's head size, whole blocks: here every byte is counted", tokens=32, d=64),
        Case("more pairs to a row than one program should have", tokens=2, d=6144),
        Case("a tail: the last block is not full", tokens=5, d=90),
        Case("fewer pairs than a warp has lanes", tokens=1, d=6),
        Case("one pair more than a block of 256", tokens=1, d=514),
    ),
    fresh=_fresh,
    trivial={"zeros": _filled(0.0), "ones": _filled(1.0), "nan": _filled(math.nan), "x": lambda x, cos, sin: x},
    limits=(
        Limit("launches", "Launch your own kernel.", at_least=lambda case: 1),
        Limit(
            "blocks",
            "These are more programs than there is work for: a program of one warp can have 32 pairs. Divide the pairs "
            "by BLOCK, rounded up.",
            at_most=_most_programs,
        ),
        Limit(
            "global_load_bytes",
            "The kernel asks for some values more than once. Either two lanes need the same pair and each loads it, or "
            "BLOCK is smaller than the lanes of a program, and Triton gives the same element to several of them: four "
            "waves, Triton's default, are 128 lanes on sm_80 and 256 on gfx942.",
            at_most=lambda case: 16 * _pairs(case),
        ),
        Limit(
            "global_moved_bytes",
            "24 bytes a pair are enough: 8 of x, 4 of cos, 4 of sin, 8 of the result. More means that a load or a "
            "store touches transactions of which it uses only a part, and another one comes for the rest.",
            at_most=lambda case: 24 * _pairs(case) if _pairs(case) % WHOLE == 0 else math.inf,
        ),
    ),
    torch_may=(),
    misconceptions=(
        Misconception(
            "as_given",
            _as_given,
            "The numbers are right and the kernel still loads the even elements with one instruction and the odd ones "
            "with another: each touches every transaction of x and uses half of it. One tensor of offsets of shape "
            "(BLOCK, 2) loads whole pairs; tl.split takes them apart.",
        ),
        Misconception(
            "stores_apart",
            _stores_apart,
            "The loads are repaired, and the stores are not: even and odd elements of the result go out with one "
            "instruction each, and each touches every transaction. tl.join(first, second) has shape (BLOCK, 2): store "
            "it at the offsets of the load.",
        ),
        Misconception(
            "each_element_with_its_partner",
            _each_element_with_its_partner,
            "On both vendors values are loaded more than once. Either there is one lane for each element, which also "
            "loads its partner: let one lane have both elements of a pair. Or BLOCK is smaller than the lanes of a "
            "block, 128 on sm_80 and 256 on gfx942 with four waves, and Triton gives one pair to several of them.",
        ),
        Misconception(
            "smaller_than_a_block",
            _small_blocks,
            "It fails on gfx942 only: its four wavefronts have 256 lanes, and with a BLOCK of 128 pairs Triton gives "
            "each cos and sin to two of them, which both load it. Make BLOCK at least as large as the lanes.",
        ),
        Misconception(
            "torch_takes_pairs_apart",
            _torch_takes_pairs_apart,
            "The kernel gets copies that torch has made: all first elements, all second ones. Making them, and putting "
            "the result together, moves x and the result once more, with the gaps that were to go. Give it x.",
        ),
        Misconception(
            "other_way_round",
            _other_way_round,
            "The pairs are turned the other way: the first becomes a cos - b sin, the second a sin + b cos.",
        ),
        Misconception(
            "halves_behind_each_other",
            _halves_behind_each_other,
            "All first elements are stored before all second ones. In the result a pair lies side by side, as in x: "
            "tl.join(first, second) has shape (BLOCK, 2) and is stored at the offsets of the load.",
        ),
        Misconception(
            "pairs_of_halves",
            _pairs_of_halves,
            "Here a pair is element i and element i + d/2. Other models do it so; here it is 2i and 2i + 1.",
        ),
        Misconception(
            "no_mask",
            _no_mask,
            "It fails where the pairs are no multiple of BLOCK: the last block reaches past the end. Mask the loads "
            "and the store; for offsets of shape (BLOCK, 2) the mask is mask[:, None].",
        ),
        Misconception(
            "first_row_only",
            _first_row_only,
            "Only the pairs of the first row are turned. Pairs are counted over all rows: x.numel() // 2 of them.",
        ),
        Misconception(
            "elements_for_pairs",
            _elements_for_pairs,
            "The mask lets twice as many pairs through as there are: x has x.numel() elements, and half as many pairs.",
        ),
        Misconception(
            "last_block_missing",
            _first_block_only,
            "The last block, which is not full, has no program: round the number of programs up, triton.cdiv.",
        ),
    ),
    hints=(
        "Work out what one warp's load of x[2 * pair] touches: 32 lanes, 8 bytes apart. How many sectors, and how much "
        "of each is used? What does the load of x[2 * pair + 1] touch?",
        "Load pairs: offsets = 2 * pair[:, None] + tl.arange(0, 2)[None, :] has shape (BLOCK, 2), and its elements lie "
        "side by side in memory. a, b = tl.split(...) takes the last dimension apart.",
        "a, b = tl.split(tl.load(x_ptr + offsets, mask=mask[:, None])); cos and sin at `pair`, as before; then "
        "tl.store(out_ptr + offsets, tl.join(a * c - b * s, a * s + b * c), mask=mask[:, None]).",
    ),
    explanation=(
        "A transaction is paid for as a whole, for each instruction. Two loads with stride 2 touch all of x twice, and "
        "so do two stores: up to 7 units of traffic for 3. With both elements of a pair in one lane a wave's load "
        "covers a stretch of memory without gaps, in 8 or 16 bytes a lane, and each byte crosses once. The arithmetic "
        "is the same; only who holds what has changed."
    ),
)
