"""14.fused_epilogue: a product's sums go from the matrix unit to the vector units, and never to memory."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.u14_tilelang import fused_epilogue_slips as slips
from gpu_utils.exercises.u14_tilelang.tiles import TARGETS, most_moved, products
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception
from gpu_utils.grading.tiles import Tiled

SIZES = ("M", "N", "K", "BM", "BN", "BK", "scale")
MEAN = 0.5
"""Of a and of b: sums are large, and bias takes most of them away again, so that a sum rounded too early shows."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    m, n, k = case["M"], case["N"], case["K"]
    a = (torch.randn(m, k, generator=generator) + MEAN).half()
    b = (torch.randn(n, k, generator=generator) + MEAN).half()
    bias = torch.randn(n, generator=generator) - case["scale"] * k * MEAN**2
    return {"target": case["target"], **{name: case[name] for name in SIZES}, "a": a, "b": b, "bias": bias}


def fused_epilogue_reference(a: Tensor, b: Tensor, bias: Tensor, scale: float, **sizes: object) -> Tensor:
    """silu(scale * (a @ b.T) + bias) in float64."""
    return torch.nn.functional.silu(scale * (a.double() @ b.double().T) + bias.double())


def _tensors(inputs: Inputs) -> Sequence[Tensor]:
    out = torch.empty(inputs["M"], inputs["N"], dtype=torch.float16)
    return inputs["a"], inputs["b"], inputs["bias"], out


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # one rounding of the result; the sum's own error, scaled as the sum is
    return tolerance(torch.float16, k=case["K"], magnitude=case["scale"] * (1 + MEAN**2), roundings=1)


def _fresh(rng: random.Random) -> Case:
    tile = {"BM": rng.choice((32, 64)), "BN": rng.choice((32, 64)), "BK": rng.choice((32, 64))}
    rows, columns, steps = rng.randrange(1, 4), rng.randrange(1, 4), rng.randrange(2, 4)
    sizes = {"M": rows * tile["BM"], "N": columns * tile["BN"], "K": steps * tile["BK"]}
    scale = rng.choice((0.0625, 0.125, 0.25))
    return Case("sizes, tiles and a chip nobody chose", target=rng.choice(TARGETS), **sizes, **tile, scale=scale)


def _most_moved(case: Case) -> float:
    """With half of what a round trip of the sums would add."""
    return most_moved(case, out_bytes=2, more=8 * case["BN"]) + 2 * case["M"] * case["N"]


def _element(name: str, hint: str) -> Misconception:
    return Misconception(name, slips.variant(slips.ELEMENTS[name]), hint)


EXERCISE = Exercise(
    id="14.fused_epilogue",
    title="An epilogue that never goes to memory",
    parameters=("T", "vendor", *SIZES),
    kind="tile",
    targets=TARGETS,
    inputs=_inputs,
    reference=fused_epilogue_reference,
    tolerance=_tolerance,
    dtype=lambda inputs: torch.float16,
    call=Tiled(SIZES, _tensors),
    cases=(
        Case(
            "an AI core: two rows of three tiles",
            **{"target": "ascend950", "M": 64, "N": 96, "K": 96, "BM": 32, "BN": 32, "BK": 32, "scale": 0.125},
        ),
        Case(
            "an SM: three rows of two tiles that are not square",
            **{"target": "sm_80", "M": 96, "N": 128, "K": 64, "BM": 32, "BN": 64, "BK": 32, "scale": 0.25},
        ),
        Case(
            "a CU: tiles that are higher than wide",
            **{"target": "gfx942", "M": 128, "N": 96, "K": 128, "BM": 64, "BN": 32, "BK": 32, "scale": 0.0625},
        ),
    ),
    fresh=_fresh,
    trivial={
        "zeros": slips.storing(lambda T, total: total * 0.0),
        "ones": slips.storing(lambda T, total: total * 0.0 + 1.0),
        "nan": slips.storing(lambda T, total: T.sqrt(-1.0 - total * total)),
        "the input": slips.storing(lambda T, total: total),
    },
    limits=(
        Limit(
            "matrix_flops",
            "The product is to be made by tensor cores, matrix cores and the cube core: T.gemm on tiles, K // BK times "
            "for each tile. More multiply by zeros beyond K.",
            at_least=products,
            at_most=products,
        ),
        Limit(
            "global_moved_bytes",
            "The sums went to memory and came back, or a tile was loaded twice. They are on the chip when the loop "
            "ends: from L0C to the unified buffer of the vector cores, or in the fragment.",
            at_most=_most_moved,
        ),
    ),
    misconceptions=(
        Misconception(
            "through_memory",
            slips.variant(through_memory=True),
            "The sums are rounded to 16 bits before bias takes most of them away: by a cast, or because they "
            "were stored "
            "as out and read from there, which moves them twice as well. On an AI core T.dual_copy takes them from L0C "
            "to both vector cores in float32; on a GPU the fragment is in registers already.",
        ),
        Misconception(
            "halves_in_one_place",
            slips.variant(halves="copy"),
            "Both vector cores store to the same rows. There are two cores: each takes BM // 2 rows, and "
            "T.dual_copy knows "
            "which half a core has, also on the way to memory.",
        ),
        Misconception(
            "bias_of_the_row",
            slips.variant(of_row=True),
            "bias has an element for each column of the result, as the weights of a neuron have: bias[n + j].",
        ),
        _element("no_bias", "bias is missing."),
        _element("no_scale", "scale is missing: it multiplies the sum of products."),
        _element("no_activation", "The result is scale * sum + bias: SiLU is missing."),
        _element("bias_after", "bias is added behind SiLU. It belongs to what SiLU gets."),
        _element("scaled_with_bias", "scale multiplies bias, too. It is for the product alone."),
        _element("scaled_last", "scale multiplies the result. It is for the product, before bias and SiLU."),
        _element("relu", "That is ReLU. SiLU is v / (1 + exp(-v)), which is smooth and goes below 0."),
        _element("gelu", "That is GELU with tanh. SiLU is v / (1 + exp(-v))."),
        _element("only_the_sigmoid", "That is 1 / (1 + exp(-v)), the sigmoid. SiLU is v times it."),
        _element("wrong_sign", "Large values come out near 0 and small ones do not: look at the sign in the exponent."),
    ),
    hints=(
        "Where are the sums when the loop ends, and which unit can add and take exponentials? On a GPU both are the "
        "same registers. On an AI core there is a path from L0C to the unified buffer that does not touch memory.",
        "On an AI core: buffers of BM // 2 rows in the unified buffer (T.alloc_shared), T.dual_copy(acc, half), then "
        "with T.SimtVF(threads=128): a T.Parallel loop over BM // 2 rows and BN columns; bias comes by T.copy.",
        "v = scale * half[i, j] + shift[j]; done[i, j] = v / (1.0 + T.exp(-v)); and behind it T.dual_copy(done, "
        "out[m : m + BM, n : n + BN]). On GPUs the same loop over (BM, BN) on acc, then T.copy(acc, out[m, n]).",
    ),
    explanation=(
        "The epilogue costs no bytes but bias: 4 BN for a tile, against 4 BM BN for a round trip of its sums. On a GPU "
        "the lanes that issued the matrix instructions hold the sums and go on. On an AI core other cores do: the cube "
        "core hands a tile over by its fixpipe, half to each vector core, and a flag between the cores says that it is "
        "there; with a second buffer it would multiply the next tile meanwhile."
    ),
    seconds=60.0,
    failures=2,
)
