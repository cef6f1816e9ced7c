"""08.quantize_tile: activations in FP8, with one scale for each 128 elements of a row."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from torch import Tensor

from gpu_utils.exercises.u08_fp8 import quantize_tile_slips as slips
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
    M, K = case["M"], case["K"]
    x = activations(M, K, generator)
    if case.get("outlier"):
        x[0, K // 2] = -3000.0
        x[M // 2, :TILE] = 0.0
        x[-1] *= 2.0**-24  # as small as gradients
    x = x.to(getattr(torch, case["dtype"]))
    if case.get("transposed"):
        x = x.T.contiguous().T
    if case.get("view"):
        wide = torch.full((M, K + 8), math.nan, dtype=x.dtype)
        wide[:, 3:-5] = x
        x = wide[:, 3:-5]
    return {"x": x, "fp8": dtype_of(case)}


def quantize_tile_reference(x: Tensor, fp8: torch.dtype) -> tuple[Tensor, Tensor]:
    return quantized(x, 1, TILE, fp8)


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    return quantization_problem(inputs["x"], 1, TILE, inputs["fp8"], value)


def _bytes_of_x(case: Case) -> float:
    return float(case["M"] * case["K"] * getattr(torch, case["dtype"]).itemsize)


def _most_stored(case: Case) -> float:
    # codes, and a scale of 4 bytes for each tile, which up to 8 lanes may store
    return 1.05 * case["M"] * case["K"] + 32 * case["M"] * math.ceil(case["K"] / TILE)


def _filled(value: float) -> Any:
    def answer(x: Tensor, fp8: torch.dtype) -> tuple[Tensor, Tensor]:
        scales = torch.full((len(x), math.ceil(x.shape[1] / TILE)), value, device=x.device)
        return torch.full(x.shape, value, device=x.device).to(fp8), scales

    return answer


def _cast(x: Tensor, fp8: torch.dtype) -> tuple[Tensor, Tensor]:
    """x itself in FP8, with scales of 1."""
    return x.float().to(fp8), torch.ones((len(x), math.ceil(x.shape[1] / TILE)), device=x.device)


def _fresh(rng: random.Random) -> Case:
    # odd, so that the compiler has met the like before
    return Case(
        "sizes nobody chose", M=2 * rng.randrange(2, 20) + 1, K=2 * rng.randrange(40, 250) + 1, dtype="bfloat16"
    )


EXERCISE = Exercise(
    id="08.quantize_tile",
    title="Activations in FP8, a scale for each 1 x 128",
    parameters=("x", "fp8"),
    kind="kernel",
    fp8=True,
    targets=("sm_89", "gfx942"),
    inputs=_inputs,
    reference=quantize_tile_reference,
    judge=_judge,
    tolerance=lambda case, inputs: {0: CODES, 1: SCALES},
    dtype=lambda inputs: {0: inputs["fp8"], 1: torch.float32},
    parts=("codes", "scales"),
    cases=(
        Case("whole tiles: here bytes are counted", M=32, K=512, dtype="bfloat16"),
        Case("the last tile of each row is short", M=13, K=301, dtype="bfloat16"),
        Case(
            "a tile of zeros, one with an element of -3000, and tiny ones", M=5, K=255, dtype="bfloat16", outlier=True
        ),
        Case("a part of a wider matrix, with NaN beside", M=9, K=131, dtype="float32", view=True),
        Case("a transpose", M=37, K=129, dtype="bfloat16", transposed=True),
    ),
    fresh=_fresh,
    trivial={"zeros": _filled(0.0), "ones": _filled(1.0), "nan": _filled(math.nan), "x": _cast},
    limits=(
        Limit("launches", "Launch your own kernel: quantize_tile_kernel[grid](...).", at_least=lambda case: 1),
        Limit(
            "launches",
            "One launch can do all of it: a program has its tile in registers when it knows the largest size.",
            at_most=lambda case: 1,
        ),
        Limit(
            "global_load_bytes",
            "Each element of x is to be loaded once: the largest size is found, and the division done, with the same "
            "registers. And a program with more lanes than elements loads some of them twice: 4 warps are 256 lanes on "
            "gfx942, a tile 128 elements. Give it more rows, or fewer warps.",
            at_most=lambda case: 1.05 * _bytes_of_x(case) if case["K"] % TILE == 0 else math.inf,
        ),
        Limit(
            "global_store_bytes",
            "Each code, and each scale, is to be stored once.",
            at_most=_most_stored,
        ),
        Limit("scratch_bytes", "Registers spill to memory: fewer rows to a program.", at_most=lambda case: 0),
    ),
    torch_may=(),
    seconds=30.0,
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
            "The scales returned are largest / amax, what x was multiplied by. Asked for is the factor that leads "
            "back: code times scale is x.",
        ),
        Misconception(
            "scale_is_amax",
            slips.answer("amax"),
            "The scale is the largest size itself, so codes reach from -1 to 1 and half of the exponents are not used: "
            "small elements of a tile fall below the smallest number. Let amax become the format's largest number.",
        ),
        Misconception(
            "scale_a_power_of_two",
            slips.answer("power of two"),
            "The scales are powers of two, as in MX blocks. Here a scale is a float32, amax / largest as it is: a "
            "power of two leaves up to half of the range unused.",
        ),
        Misconception(
            "scale_in_bfloat16",
            slips.answer("bfloat16"),
            "The scale was computed in bfloat16 and has 8 bits. It multiplies 128 elements: make x float32 first.",
        ),
        Misconception(
            "scale_in_float16",
            slips.answer("float16"),
            "The scale was computed in float16: it has 11 bits, and small ones lose more. Make x float32 first.",
        ),
        Misconception(
            "zero_divided_by_zero",
            slips.answer("no zero"),
            "NaN in a tile whose elements are all 0 (a clamp may have made the largest number of it): its amax is 0, "
            "and 0 / 0 is NaN. Give such a tile a scale of 1.",
        ),
        Misconception(
            "a_smallest_amax",
            slips.answer("a smallest amax"),
            "An amax below 1e-4 was made 1e-4, or something was added to it. Gradients are as small as that: their "
            "codes then use none but the lowest steps of the format. Only an amax of 0 needs a scale of its own.",
        ),
        Misconception(
            "what_lies_behind_k_counts",
            slips.answer("behind K"),
            "In the last tile of a row, places behind K take part in the largest size. Let them load 0.",
        ),
        Misconception(
            "not_divided",
            slips.answer("not divided"),
            "The scales are right, and x was stored without being divided: most of it is far from the format's range.",
        ),
        Misconception(
            "rounded_to_whole_numbers",
            slips.answer("rounded to whole"),
            "x / scale was rounded to a whole number before it became FP8, as for INT8. FP8 has fractions: the cast "
            "rounds by itself.",
        ),
        Misconception(
            "a_margin",
            slips.answer("cut"),
            "The codes are smaller than the scales say. Either x was divided by another number than the scale that you "
            "store, or digits were cut off before the cast: it rounds to the nearest by itself.",
        ),
        Misconception(
            "one_scale_for_rows_of_a_program",
            slips.answer("all rows"),
            "All rows of a program share a scale. Each row has its own: reduce along axis 1 only.",
        ),
        Misconception(
            "one_scale_for_all",
            slips.answer(one=lambda x: x.abs().amax()),
            "One scale for the whole matrix: what is small everywhere but in one place is lost. Each 128 elements of a "
            "row have a largest size of their own, which a program can find by itself.",
        ),
        Misconception(
            "as_if_contiguous",
            slips.answer(contiguous=True),
            "x is read as if it were contiguous. It has strides of its own: x.stride(0) and x.stride(1).",
        ),
        Misconception(
            "strides_of_x",
            slips.answer(like=True),
            "The codes have the strides of x: torch.empty_like keeps those of a transpose. A product reads codes along "
            "K; torch.empty(x.shape, dtype=fp8, device=x.device) is contiguous.",
        ),
        Misconception(
            "scales_transposed",
            slips.answer(flat=True),
            "The scales are to have a row for each row of x: shape (M, tiles).",
        ),
        Misconception(
            "scales_in_bfloat16",
            slips.answer(dtype=torch.bfloat16),
            "The scales are to be float32. In bfloat16 each of them is off by up to 0.2%, for all of its elements.",
        ),
        Misconception(
            "codes_as_bytes",
            slips.codes_as_bytes,
            "The codes are returned as bytes. Let them have the dtype fp8: torch.empty(..., dtype=fp8).",
        ),
        Misconception(
            "values_again",
            slips.values_again,
            "What comes back are numbers in the dtype of x. Codes in FP8 take one byte each: torch.empty(..., "
            "dtype=fp8).",
        ),
        Misconception(
            "only_codes",
            slips.only_codes,
            "Only the codes are returned. Without the scales nobody can read them: return codes, scales.",
        ),
        Misconception(
            "torch_quantizes",
            slips.torch_quantizes,
            "torch finds the sizes and divides, in five passes over memory. Your kernel can do all of it while it has "
            "a tile in registers.",
        ),
    ),
    hints=(
        "A program needs all 128 elements of a tile before it can write the first code. What are a tile's places "
        "behind K to load, so that they change no largest size?",
        "Load a block of rows x 128, as float32. tl.max(tl.abs(x), 1) gives a size for each row; divided by the "
        "format's largest number it is the scale. Where it is 0, take 1. x / scale[:, None] goes to FP8 by a cast to "
        "the type of the pointer.",
        "x = tl.load(..., mask=there, other=0.0).to(tl.float32); amax = tl.max(tl.abs(x), 1); scale = tl.where(amax > "
        "0, amax / LARGEST, 1.0); codes = tl.clamp(x / scale[:, None], -LARGEST, LARGEST); tl.store(codes_ptr + ..., "
        "codes.to(codes_ptr.dtype.element_ty), mask=there). LARGEST is torch.finfo(fp8).max, given by the launcher.",
    ),
    explanation=(
        "A scale stretches a tile so that its largest element meets the format's largest number. An outlier then "
        "costs the 127 elements beside it, and no others. The kernel is memory-bound: it reads two bytes for each "
        "element and writes one, and a scale for each 128. The clamp does nothing but for the last bit: x / scale may "
        "come out a rounding above the largest number, and what a cast then does depends on the format and the chip."
    ),
)
