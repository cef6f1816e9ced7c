"""08.quantize_block: weights in FP8, with one scale for each block of 128 x 128."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from torch import Tensor

from gpu_utils.exercises.u08_fp8 import quantize_block_slips as slips
from gpu_utils.exercises.u08_fp8.shared import (
    CODES,
    SCALES,
    TILE,
    activations,
    dtype_of,
    quantization_problem,
    quantized,
)
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    N, K = case["N"], case["K"]
    w = activations(N, K, generator)
    if case.get("zeros"):
        w[:TILE, -(K % TILE) :] = 0.0
        w[TILE:, TILE:] *= 2.0**-24
        w[-1, 0] = -4.0 * w.abs().max()
    w = w.to(getattr(torch, case["dtype"]))
    return {"w": w.T.contiguous().T if case.get("transposed") else w, "fp8": dtype_of(case)}


def quantize_block_reference(w: Tensor, fp8: torch.dtype) -> tuple[Tensor, Tensor]:
    return quantized(w, TILE, TILE, fp8)


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    return quantization_problem(inputs["w"], TILE, TILE, inputs["fp8"], value)


def _blocks(case: Case) -> int:
    return math.ceil(case["N"] / TILE) * math.ceil(case["K"] / TILE)


def _most_loaded(case: Case) -> float:
    full = case["N"] % TILE == case["K"] % TILE == 0
    return 1.05 * case["N"] * case["K"] * getattr(torch, case["dtype"]).itemsize if full else math.inf


def _filled(value: float) -> Any:
    def answer(w: Tensor, fp8: torch.dtype) -> tuple[Tensor, Tensor]:
        down, across = (math.ceil(size / TILE) for size in w.shape)
        return torch.full(w.shape, value, device=w.device).to(fp8), torch.full((down, across), value, device=w.device)

    return answer


def _cast(w: Tensor, fp8: torch.dtype) -> tuple[Tensor, Tensor]:
    return w.float().to(fp8), torch.ones([math.ceil(size / TILE) for size in w.shape], device=w.device)


def _fresh(rng: random.Random) -> Case:
    # odd, so that the compiler has met the like before
    N, K = (2 * rng.randrange(30, 90) + 1 for _ in range(2))
    return Case("sizes nobody chose", N=N, K=K, dtype="float32")


EXERCISE = Exercise(
    id="08.quantize_block",
    title="Weights in FP8, a scale for each 128 x 128",
    parameters=("w", "fp8"),
    kind="kernel",
    fp8=True,
    targets=("sm_89", "gfx942"),
    inputs=_inputs,
    reference=quantize_block_reference,
    judge=_judge,
    tolerance=lambda case, inputs: {0: CODES, 1: SCALES},
    dtype=lambda inputs: {0: inputs["fp8"], 1: torch.float32},
    parts=("codes", "scales"),
    cases=(
        Case("whole blocks: here bytes are counted", N=256, K=128, dtype="float32"),
        Case("blocks at both edges are short", N=129, K=147, dtype="float32"),
        Case(
            "a block of zeros, one column wide, a tiny one, and one whose largest is negative",
            N=131,
            K=129,
            dtype="float32",
            zeros=True,
        ),
        Case("a transpose, in bfloat16", N=129, K=67, dtype="bfloat16", transposed=True),
    ),
    fresh=_fresh,
    trivial={"zeros": _filled(0.0), "ones": _filled(1.0), "nan": _filled(math.nan), "w": _cast},
    limits=(
        Limit("launches", "Launch your own kernel: quantize_block_kernel[grid](...).", at_least=lambda case: 1),
        Limit(
            "launches",
            "One launch can do all of it: a program has its block in registers when it knows the largest size.",
            at_most=lambda case: 1,
        ),
        Limit(
            "global_load_bytes",
            "Each element of w is to be loaded once: the largest size is found, and the division done, with the same "
            "registers.",
            at_most=_most_loaded,
        ),
        Limit(
            "global_store_bytes",
            "Each code is to be stored once, and one scale for each block.",
            at_most=lambda case: 1.05 * case["N"] * case["K"] + 256 * _blocks(case),
        ),
        Limit(
            "scratch_bytes",
            "A lane has more of the block than registers, and some of it goes to memory and back (spills): 128 x 128 "
            "elements want 8 warps.",
            at_most=lambda case: 0,
        ),
    ),
    torch_may=(),
    seconds=30.0,
    failures=2,
    misconceptions=(
        Misconception(
            "largest_of_another_format",
            slips.answer(largest=448.0),
            "Right on NVIDIA, wrong on gfx942: 448 is the largest number of e4m3fn. That of e4m3fnuz is 240, and what "
            "lies above it is lost. torch.finfo(fp8).max knows.",
        ),
        Misconception(
            "largest_of_e4m3fnuz",
            slips.answer(largest=240.0),
            "Right on gfx942 alone: 240 is the largest number of e4m3fnuz, and e4m3fn reaches 448. "
            "torch.finfo(fp8).max knows.",
        ),
        Misconception(
            "largest_not_largest_size",
            slips.answer("largest, not largest size"),
            "The scale comes from the largest element; a negative one can be larger in size. Take tl.abs first.",
        ),
        Misconception(
            "inverse_of_the_scale",
            slips.answer("inverse"),
            "The scales returned are largest / amax, what w was multiplied by. Asked for is the factor that leads "
            "back: code times scale is w.",
        ),
        Misconception(
            "scale_is_amax",
            slips.answer("amax"),
            "The scale is the largest size itself, so codes reach from -1 to 1 and half of the exponents are not used. "
            "Let amax become the format's largest number.",
        ),
        Misconception(
            "scale_in_bfloat16",
            slips.answer("in bfloat16"),
            "The scale was computed in bfloat16 and has 8 bits. It multiplies 16,384 elements: make w float32 first.",
        ),
        Misconception(
            "divided_in_bfloat16",
            slips.answer("reciprocal in bfloat16"),
            "The scales are right, and w was multiplied by an inverse of only 8 bits: the codes belong to another "
            "scale than the one you store. Divide in float32.",
        ),
        Misconception(
            "codes_of_rows",
            slips.answer("of each row"),
            "Each row of the block was divided by a scale of its own, and one scale is stored. All 128 x 128 elements "
            "share one: reduce along both axes.",
        ),
        Misconception(
            "codes_of_columns",
            slips.answer("of each column"),
            "Each column of the block was divided by a scale of its own, and one scale is stored. All 128 x 128 "
            "elements share one: reduce along both axes.",
        ),
        Misconception(
            "tiles_of_a_row",
            slips.tiles_of_a_row,
            "There is a scale for each 1 x 128, as for activations. A weight has one for each 128 x 128, so that its "
            "transpose in the backward pass has the same scales.",
        ),
        Misconception(
            "zero_divided_by_zero",
            slips.answer("no zero"),
            "NaN in a block whose elements are all 0 (a clamp may have made the largest number of it): its amax is 0, "
            "and 0 / 0 is NaN. Give such a block a scale of 1.",
        ),
        Misconception(
            "a_smallest_amax",
            slips.answer("a smallest amax"),
            "An amax below 1e-4 was made 1e-4, or something was added to it. Blocks of a weight can be as small: "
            "their codes then use none but the lowest steps of the format. Only an amax of 0 needs a scale of its own.",
        ),
        Misconception(
            "what_lies_behind_the_edge_counts",
            slips.answer("behind the edge"),
            "In blocks at an edge, places behind it take part in the largest size. Let them load 0.",
        ),
        Misconception(
            "as_if_contiguous",
            slips.answer(contiguous=True),
            "w is read as if it were contiguous. It has strides of its own: w.stride(0) and w.stride(1).",
        ),
        Misconception(
            "strides_of_w",
            slips.answer(like=True),
            "The codes have the strides of w: torch.empty_like keeps those of a transpose. A product reads codes along "
            "K; torch.empty(w.shape, dtype=fp8, device=w.device) is contiguous.",
        ),
        Misconception(
            "scales_transposed",
            slips.answer(flat=True),
            "The scales are to have a row for each 128 rows of w: shape (blocks down, blocks across).",
        ),
        Misconception(
            "codes_transposed",
            slips.transposed_codes,
            "The codes have the shape of w transposed. They keep the shape (N, K): a product reads them along K.",
        ),
        Misconception(
            "scales_in_bfloat16",
            slips.answer(dtype=torch.bfloat16),
            "The scales are to be float32. In bfloat16 each is off by up to 0.2%, for 16,384 elements.",
        ),
        Misconception(
            "only_codes",
            slips.only_codes,
            "Only the codes are returned. Without the scales nobody can read them: return codes, scales.",
        ),
        Misconception(
            "torch_finds_the_sizes",
            slips.torch_finds_the_sizes,
            "torch finds the sizes and divides, in several passes over memory. Your kernel can do all of it while it "
            "has a block in registers.",
        ),
    ),
    hints=(
        "It is 08.quantize_tile with a program for each square: what changes in the load, in the largest size, in "
        "where the scale goes?",
        "Rows and columns both have an end, so the mask has two comparisons. A largest size of a whole block is the "
        "largest of its rows' largest: tl.max twice, or without an axis. 128 x 128 elements are 64 for each of 256 "
        "lanes: num_warps=8.",
        "w = tl.load(w_ptr + n[:, None] * stride_n + k[None, :] * stride_k, mask=there, other=0.0).to(tl.float32); "
        "amax = tl.max(tl.max(tl.abs(w), 1), 0); scale = tl.where(amax > 0, amax / LARGEST, 1.0); codes = tl.clamp(w "
        "/ scale, -LARGEST, LARGEST); one scale to scales_ptr + tl.program_id(0) * tl.num_programs(1) + "
        "tl.program_id(1).",
    ),
    explanation=(
        "A square has the same scale whichever way it is read. The forward pass multiplies rows of the weight, the "
        "backward pass its columns, and both find one scale for 128 elements along the sum: one stored copy serves "
        "both. Activations change their shape of sharing between the two, and are quantised twice. Weights also have "
        "few outliers, so a block of 16,384 that shares a scale loses little. The scales take 4 bytes for 16 KB of "
        "codes."
    ),
)
