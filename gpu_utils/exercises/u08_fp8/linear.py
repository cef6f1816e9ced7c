"""08.linear: a linear layer whose three products have their operands in FP8."""

from __future__ import annotations

import math
import random

import numpy as np
import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.gradient import forward_and_backward
from gpu_utils.exercises.u08_fp8 import linear_slips as slips
from gpu_utils.exercises.u08_fp8.shared import TILE, activations, amax_of_tiles, quantized, spread
from gpu_utils.formats import FORMATS
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

FP8 = torch.float8_e4m3fn
Shapes = tuple[tuple[int, int], ...]

FORWARD, AGAIN, BLOCK = (1, TILE), (TILE, 1), (TILE, TILE)
NEAR = 1e-5
"""Values as near to the middle of two codes, for their size, are moved: there x / scale and x * (1 / scale) differ."""


def _near_ties(x: Tensor, rows: int, cols: int) -> Tensor:
    """bool of the shape of x (float64): whether x over its scale lies in the middle of two codes, or beside it."""
    sizes = FORMATS["e4m3fn"].sizes
    middles = (sizes[1:] + sizes[:-1]) / 2
    amax = amax_of_tiles(x, rows, cols)
    scale = torch.where(amax > 0, amax / torch.finfo(FP8).max, 1.0)
    parts = (x.double().abs() / spread(scale, rows, cols, x.shape)).numpy()
    at = np.clip(np.searchsorted(middles, parts), 1, len(middles) - 1)
    off = np.minimum(np.abs(parts - middles[at - 1]), np.abs(parts - middles[at]))
    return torch.from_numpy(off < NEAR * parts)


def clear_of_ties(x: Tensor, *steps: Shapes) -> Tensor:
    """x with those elements made smaller that lie between two codes, wherever a scale is shared.

    steps: what x is quantised by, one after the other: the second time it is what the first has left.
    """
    while True:
        near = torch.zeros(x.shape, dtype=torch.bool)
        for shapes in steps:
            left = x
            for shape in shapes:
                near |= _near_ties(left, *shape)
                left = rounded(left, shape)
        if not near.any():
            return x
        x = torch.where(near, x * 0.7, x)


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    T, K, N = case["tokens"], case["K"], case["N"]
    x, dy = activations(T, K, generator), activations(T, N, generator)
    w = activations(N, K, generator)
    if case.get("zeros"):
        x[:TILE, : TILE + 1] = 0.0
        dy[1, :] = 0.0
        dy *= 2.0**-20
        w[-1, 0] = -40 * w.abs().max()
    return {
        "x": clear_of_ties(x, (FORWARD, AGAIN), (AGAIN,)),
        "w": clear_of_ties(w, (BLOCK,)),
        "dy": clear_of_ties(dy, (FORWARD,), (AGAIN,)),
    }


def rounded(x: Tensor, shape: tuple[int, int]) -> Tensor:
    """What the codes of x and their scales stand for, in float64."""
    codes, scales = quantized(x, *shape, FP8)
    return codes.double() * spread(scales, *shape, x.shape)


def linear_reference(x: Tensor, w: Tensor, dy: Tensor) -> dict[str, Tensor]:
    weight, stored = rounded(w, BLOCK), rounded(x, FORWARD)
    return {
        "y": stored @ weight.T,
        "dx": rounded(dy, FORWARD) @ weight,
        "dw": rounded(dy, AGAIN).T @ rounded(stored, AGAIN),
    }


def _tolerance(case: Case, inputs: Inputs) -> dict[str, Tolerance]:
    # a scale is rounded to float32 and multiplied, which is as good as two more roundings of each product
    x, w, dy = (float(inputs[name].abs().max()) for name in ("x", "w", "dy"))
    products = {"y": (x * w, case["K"]), "dx": (dy * w, case["N"]), "dw": (dy * x, case["tokens"])}
    return {name: tolerance(torch.float32, k=k + 2, magnitude=size) for name, (size, k) in products.items()}


def _fresh(rng: random.Random) -> Case:
    T, K, N = (rng.randrange(100, 280) for _ in range(3))
    return Case("sizes nobody chose", tokens=T, K=K, N=N)


EXERCISE = Exercise(
    id="08.linear",
    title="A linear layer in FP8, forward and backward",
    parameters=("x", "w"),
    kind="torch",
    inputs=_inputs,
    reference=linear_reference,
    tolerance=_tolerance,
    call=forward_and_backward("x", "w"),
    parts=("y", "dx", "dw"),
    cases=(
        Case("tiles and blocks are whole", tokens=256, K=256, N=384),
        Case("tokens, inputs and outputs that 128 does not divide", tokens=150, K=200, N=130),
        Case("tiles of zeros, one large weight, small gradients", tokens=140, K=258, N=129, zeros=True),
    ),
    fresh=_fresh,
    trivial={
        "zeros": lambda x, w: 0.0 * (x @ w.T),
        "ones": lambda x, w: 0.0 * (x @ w.T) + 1.0,
        "nan": lambda x, w: math.nan * (x @ w.T),
        "not in FP8": lambda x, w: x @ w.T,
    },
    misconceptions=(
        Misconception(
            "through_the_casts",
            slips.through_the_casts,
            "y is right, and autograd found its own way back: through the casts to FP8, which round the gradient as it "
            "comes, without a scale. Write the backward pass: torch.autograd.Function.",
        ),
        Misconception(
            "dy_stays_as_it_is",
            slips.straight_through,
            "The backward pass multiplies the rounded x and w, as it should not for dw, and dy was not rounded at all. "
            "Each of the three products has both operands in FP8, with scales along its own sum.",
        ),
        Misconception(
            "backward_in_float32",
            slips.answer(dy=slips.exact, w_again=slips.exact, dy_again=slips.exact, x_again=slips.exact),
            "y is right, and the backward pass is in float32. Two thirds of the work are there: dx and dw are products "
            "in FP8 too.",
        ),
        Misconception(
            "forward_in_float32",
            slips.answer(x=slips.exact, w=slips.exact),
            "The gradients are right, and y is the product in float32. Its operands are to be in FP8 as well.",
        ),
        Misconception(
            "dw_with_tiles_of_the_forward_pass",
            slips.answer(dy_again=slips.TILES, x_again=slips.TILES),
            "y and dx are right. dw sums over tokens, and a matrix unit cannot change the scale inside such a sum of "
            "128: for dw the tiles of x and dy lie along the tokens, 128 x 1.",
        ),
        Misconception(
            "dw_with_the_stored_tiles_of_x",
            slips.answer(x_again=slips.TILES),
            "For dw the codes of x are used as the forward pass left them, in tiles along K. dw sums over tokens: what "
            "the codes stand for is quantised again, in tiles along the tokens.",
        ),
        Misconception(
            "x_kept_in_float32",
            slips.answer(x_again=slips.ALONG_TOKENS),
            "For dw, x was kept in float32 until the backward pass, and quantised from there. That is four times the "
            "memory: keep its codes and scales, a byte for each element, and begin from what they stand for.",
        ),
        Misconception(
            "dw_rounds_dy_twice",
            slips.answer(dy_again=slips.stored),
            "For dw, what was left of dy in its tiles along N was quantised again along the tokens. dy is there as it "
            "came, in float32: quantise it from there, once for each direction.",
        ),
        Misconception(
            "dw_of_exact_x",
            slips.answer(x_again=slips.exact),
            "dw multiplies x as it came. Its operands are x and dy in FP8, both in tiles along the tokens.",
        ),
        Misconception(
            "dw_of_exact_dy",
            slips.answer(dy_again=slips.exact),
            "dw multiplies dy as it came. Its operands are x and dy in FP8, both in tiles along the tokens.",
        ),
        Misconception(
            "dx_of_exact_dy",
            slips.answer(dy=slips.exact),
            "dx multiplies dy as it came. It is to be in FP8, with a scale for each 1 x 128 along its row.",
        ),
        Misconception(
            "dx_of_exact_w",
            slips.answer(w_again=slips.exact),
            "dx multiplies the weight in float32. It is the same weight in FP8 as in the forward pass.",
        ),
        Misconception(
            "w_in_tiles",
            slips.answer(w=slips.TILES, w_again=slips.TILES),
            "The weight has a scale for each 1 x 128. It has one for each 128 x 128, so that both passes can use the "
            "same codes.",
        ),
        Misconception(
            "w_in_tiles_of_its_columns",
            slips.answer(w_again=slips.ALONG_TOKENS),
            "y is right. For dx the weight was quantised again, along its columns. A block of 128 x 128 has the same "
            "scale both ways: use the codes of the forward pass.",
        ),
        Misconception(
            "x_in_blocks",
            slips.answer(x=slips.BLOCKS),
            "x has a scale for each 128 x 128. An outlier of one token then costs 127 others: 1 x 128.",
        ),
        Misconception(
            "all_in_blocks",
            slips.answer(x=slips.BLOCKS, dy=slips.BLOCKS, x_again=slips.BLOCKS, dy_again=slips.BLOCKS),
            "Everything has scales for 128 x 128. That is for weights; x and dy have 1 x 128 along the sum.",
        ),
        Misconception(
            "a_scale_for_a_token",
            slips.answer(x=slips.rounded(1, slips.WHOLE), dy=slips.rounded(1, slips.WHOLE)),
            "x and dy have one scale for a whole row. Each 128 elements of it have their own.",
        ),
        Misconception(
            "a_scale_for_a_tensor",
            slips.answer(
                x=slips.ALL, w=slips.ALL, dy=slips.ALL, w_again=slips.ALL, dy_again=slips.ALL, x_again=slips.ALL
            ),
            "Each matrix has one scale. Tiles of 1 x 128 and blocks of 128 x 128 have scales of their own.",
        ),
        Misconception(
            "gradients_in_e5m2",
            slips.answer(
                dy=slips.rounded(1, TILE, torch.float8_e5m2), dy_again=slips.rounded(TILE, 1, torch.float8_e5m2)
            ),
            "dy is in E5M2, as recipes with one scale for a tensor want it. With a scale for each 128 elements E4M3 "
            "has range enough, and a bit more of precision: all operands are E4M3 here.",
        ),
        Misconception(
            "codes_without_scales",
            slips.answer(x=slips.rounded(1, TILE, scaled=False), w=slips.rounded(TILE, TILE, scaled=False)),
            "The codes were multiplied, and their scales forgotten: a code times its scale is the number.",
        ),
        Misconception(
            "zero_divided_by_zero",
            slips.answer(
                x=slips.rounded(1, TILE, guarded=False),
                dy=slips.rounded(1, TILE, guarded=False),
                x_again=slips.rounded(TILE, 1, guarded=False),
                dy_again=slips.rounded(TILE, 1, guarded=False),
            ),
            "NaN where a tile is all zeros: its amax is 0, and 0 / 0 is NaN. Give such a tile a scale of 1.",
        ),
        Misconception(
            "a_smallest_amax",
            slips.answer(dy=slips.rounded(1, TILE, least=1e-4), dy_again=slips.rounded(TILE, 1, least=1e-4)),
            "An amax below 1e-4 was made 1e-4, or something was added to it. Gradients are as small as that: their "
            "codes then use none but the lowest steps of the format. Only an amax of 0 needs a scale of its own.",
        ),
        Misconception(
            "dw_transposed",
            slips.answer(transposed=True),
            "dw has the numbers of (K, N) in the shape (N, K): dy.T @ x has the shape of w, x.T @ dy has not.",
        ),
        Misconception(
            "y_in_bfloat16",
            slips.answer(dtype=torch.bfloat16),
            "y is bfloat16. Sums are float32, and so are y, dx and dw here.",
        ),
        Misconception(
            "no_gradient_of_w",
            slips.no_gradient_of_w,
            "No gradient reaches w: it was detached, or backward returns None for it. backward returns one gradient "
            "for each argument of forward, in their order.",
        ),
    ),
    hints=(
        "Write the three products on paper, and below each the letter that it sums over. Tiles of 128 lie along that "
        "letter. Why can the weight keep its codes, and x and dy not?",
        "Write a function first that gives what is left of a matrix in FP8, for tiles of rows x cols: pad to whole "
        "tiles, view as (parts down, rows, parts across, cols), amax over the tile, divide, cast to "
        "torch.float8_e4m3fn and back, multiply. Then a torch.autograd.Function with forward and backward.",
        "forward: stored = rounded(x, 1, 128), weight = rounded(w, 128, 128), ctx.save_for_backward(stored, weight), "
        "return stored @ weight.T. backward: dx = rounded(dy, 1, 128) @ weight; dw = rounded(dy, 128, 1).T @ "
        "rounded(stored, 128, 1); return dx, dw. linear(x, w) is Fp8Linear.apply(x, w).",
    ),
    explanation=(
        "A scale can leave a sum only where it is the same for all of its terms, so tiles lie along the letter that "
        "is summed over: K for y, N for dx, the tokens for dw. x and dy are therefore quantised twice, in two "
        "directions; x the second time from what was kept of it, one byte for each element. The weight is not: in a "
        "block of 128 x 128 the scale is the same along both letters. The rounding itself has no useful slope (it is "
        "0 nearly everywhere), so the backward pass treats it as if it were not there, and rounds its own operands. "
        "The weight that the optimiser changes stays in float32: an update is smaller than a step of FP8 nearly "
        "always."
    ),
)
