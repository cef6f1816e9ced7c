"""05.epilogue: gelu(x @ weight.T + bias) in one launch, and the product never goes to memory."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import torch
from torch import Tensor

from gpu_utils.analytic.tiles import tile_traffic
from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.drawing import signed
from gpu_utils.exercises.u05_triton_matmul import epilogue_slips as slips
from gpu_utils.exercises.u05_triton_matmul.tile_slips import TILE
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception


def _size(case: Case) -> float:
    """Of a weight: what GELU gets is near 2, or `large`, whatever K is."""
    return float(case.get("large", 2.0) / math.sqrt(case["K"]))


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    dtype, m, n, k = getattr(torch, case["dtype"]), case["M"], case["N"], case["K"]
    x = signed((m, k), generator).to(dtype)
    weight = (_size(case) * signed((n, k), generator)).to(dtype)
    bias = (signed((n,), generator) * case.get("large", 1.0)).to(dtype)
    if case.get("views"):
        x, weight = x.T.contiguous().T, weight.T.contiguous().T
        spread = torch.full((2 * n,), math.nan, dtype=dtype)
        spread[::2] = bias
        bias = spread[::2]
    return {"x": x, "weight": weight, "bias": bias}


def epilogue_reference(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """GELU by tanh of x @ weight.T + bias, in float64."""
    v = x.double() @ weight.double().T + bias.double()
    return torch.nn.functional.gelu(v, approximate="tanh")


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # GELU is never steeper than 1.13; 0.5 v (1 + tanh u) has an error of one rounding of v too. One rounding at the end
    bias = float(inputs["bias"].abs().max())
    magnitude = 1.13 * 1.1 * _size(case) + 2 * bias / case["K"]
    return tolerance(inputs["x"].dtype, k=case["K"], magnitude=magnitude, roundings=1)


def _itemsize(case: Case) -> int:
    return int(getattr(torch, case["dtype"]).itemsize)


def _most_loaded(case: Case) -> float:
    """Tiles of 64 x 64, where every tile is full; and an element of bias for each of the result, as lanes share it."""
    m, n, k = case["M"], case["N"], case["K"]
    if m % TILE or n % TILE or k % TILE:
        return math.inf
    loaded = tile_traffic(m, n, k, TILE, TILE, dtype_bytes=_itemsize(case))
    return 1.05 * (loaded.read_a + loaded.read_b) + m * n * _itemsize(case)


def _filled(value: float) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda x, weight, bias: torch.full((len(x), len(weight)), value, dtype=x.dtype, device=x.device)


def _fresh(rng: random.Random) -> Case:
    # odd, so that the compiler has met the like before
    m, n, k = (2 * rng.randrange(*ends) + 1 for ends in ((10, 48), (20, 48), (20, 40)))
    return Case("sizes nobody chose", M=m, N=n, K=k, dtype="bfloat16")


EXERCISE = Exercise(
    id="05.epilogue",
    title="gelu(x @ weight.T + bias) in one launch",
    parameters=("x", "weight", "bias"),
    kind="kernel",
    inputs=_inputs,
    reference=epilogue_reference,
    tolerance=_tolerance,
    cases=(
        Case("whole tiles: here everything is counted", M=128, N=128, K=64, dtype="float16"),
        Case("no size is a multiple of a tile", M=65, N=101, K=67, dtype="bfloat16"),
        Case(
            "x and weight are transposes, every second element of bias", M=41, N=65, K=35, dtype="float32", views=True
        ),
        Case("large values: e to the power of either sign is inf", M=7, N=69, K=51, dtype="bfloat16", large=60.0),
    ),
    fresh=_fresh,
    trivial={"zeros": _filled(0.0), "ones": _filled(1.0), "nan": _filled(math.nan), "x": lambda x, weight, bias: x},
    limits=(
        Limit("launches", "Launch your own kernel: epilogue_kernel[grid](...).", at_least=lambda case: 1),
        Limit(
            "launches",
            "One launch can do all of it: behind the loop over K a program has its tile of the product in registers.",
            at_most=lambda case: 1,
        ),
        Limit(
            "matrix_flops",
            "The product is not made by matrix instructions. Triton issues them for tl.dot of two tiles in 16 bits.",
            at_least=lambda case: 0 if case["dtype"] == "float32" else 2 * case["M"] * case["N"] * case["K"],
        ),
        Limit(
            "scratch_bytes",
            "A lane has more values than registers, and some of them go to memory and back (spills): a smaller tile, "
            "or more warps to a program.",
            at_most=lambda case: 0,
        ),
        Limit(
            "global_load_bytes",
            "x and weight are to be loaded as often as tiles of 64 x 64 load them, and bias once, behind the loop or "
            "in front of it.",
            at_most=_most_loaded,
        ),
        Limit(
            "global_store_bytes",
            "Each element of the result is to be stored once, and nothing before it.",
            at_most=lambda case: 1.05 * case["M"] * case["N"] * _itemsize(case) + 256,
        ),
    ),
    torch_may=(),
    seconds=30.0,  # a busy machine compiles such a kernel for ten
    failures=2,
    misconceptions=(
        Misconception(
            "gelu_before_bias",
            slips.gelu_before_bias,
            "bias is added to the result of GELU. It is a part of what GELU gets.",
        ),
        Misconception("no_bias", slips.no_bias, "The result has no bias in it."),
        Misconception(
            "bias_in_each_block",
            slips.bias_in_each_block,
            "bias is added once for each block of K. It belongs behind the loop, or in acc before it.",
        ),
        Misconception(
            "bias_of_the_rows",
            slips.bias_of_the_rows,
            "bias goes down the rows: row i of the result gets bias[i]. It has an element for each column, so it "
            "needs the offsets of the columns, and [None, :].",
        ),
        Misconception(
            "bias_of_the_first_tile",
            slips.bias_of_the_first_tile,
            "Every tile gets the first 64 elements of bias: their place does not depend on the program.",
        ),
        Misconception(
            "bias_unmasked",
            slips.bias_unmasked,
            "bias is read past its end: in the last tile some columns do not exist. Its load needs a mask too.",
        ),
        Misconception(
            "bias_as_if_contiguous",
            slips.bias_as_if_contiguous,
            "bias is read as if its elements were neighbours. It may be a view, with a stride of its own.",
        ),
        Misconception(
            "weight_not_transposed",
            slips.weight_not_transposed,
            "weight is read as (in, out). Row j of it holds the factors of column j of the result: in the tile that "
            "tl.dot gets, K goes down and the columns go across.",
        ),
        Misconception("no_gelu", slips.no_gelu, "The result is x @ weight.T + bias: GELU is missing."),
        Misconception("relu", slips.relu, "That is ReLU. GPT-2 has GELU, which is smooth at 0."),
        Misconception("silu", slips.silu, "That is v * sigmoid(v), SiLU. GELU has another argument in it."),
        Misconception(
            "by_a_sigmoid",
            slips.by_a_sigmoid,
            "v * sigmoid(1.702 v) is near GELU, and not near enough. Here GELU has tanh with the cube.",
        ),
        Misconception(
            "erf",
            slips.erf,
            "That is GELU with erf. GPT-2 was trained with the one that has tanh; they differ by up to 0.0005.",
        ),
        Misconception("no_cube", slips.no_cube, "The term with v to the third, 0.044715 v^3, is missing."),
        Misconception("square", slips.square, "The small term is 0.044715 v^3, the third power; yours is the second."),
        Misconception(
            "factor_two_lost",
            slips.factor_two_lost,
            "You took sigmoid(u). 1 + tanh(u) is 2 sigmoid(2u), with a factor 2 inside, too.",
        ),
        Misconception("no_root", slips.no_root, "The factor inside tanh is the square root of 2 / pi."),
        Misconception("no_half", slips.no_half, "The result is twice as large: GELU begins with one half."),
        Misconception(
            "tanh_by_exp",
            slips.tanh_by_exp,
            "It fails where values are large: exp(2u) is inf, and inf / inf is NaN. Which form of tanh or of the "
            "sigmoid has an exponential only where inf does no harm?",
        ),
        Misconception(
            "product_rounded",
            slips.product_rounded,
            "The product is rounded to 16 bits before bias is added. acc is float32: stay there until the store.",
        ),
        Misconception(
            "sum_rounded",
            slips.sum_rounded,
            "What GELU gets is rounded to 16 bits first. For values below -1 GELU is small and changes fast, in "
            "proportion: the rounding of its argument is several roundings of its result. Stay in float32.",
        ),
        Misconception(
            "in_float32",
            slips.in_float32,
            "The result is float32 whatever x is: torch.empty makes that where no dtype is given. Ask for x.dtype.",
        ),
        Misconception(
            "in_two_launches",
            slips.in_two_launches,
            "The numbers are right, and the product has been to memory and back: 8 bytes for each element, written by "
            "one kernel and read by the next. Do it where the product is made.",
        ),
        Misconception(
            "torch_does_gelu",
            slips.torch_does_gelu,
            "GELU is torch's. Here it is your kernel's work, on the tile that it has in registers.",
        ),
    ),
    hints=(
        "Behind the loop a program holds 64 x 64 sums in float32. What else does it need for its part of the result, "
        "and how many numbers is that?",
        "bias is a vector with an element for each column: load it with the offsets and the mask of the columns, and "
        "add it as [None, :]. tanh(u) = 2 sigmoid(2u) - 1, so GELU is v * sigmoid(2u), and tl.sigmoid does not "
        "overflow into NaN.",
        "v = acc + tl.load(bias_ptr + cols * stride_bias, mask=cols < N, other=0.0).to(tl.float32), with cols of shape "
        "(1, BLOCK_N); u = 0.7978845608028654 * (v + 0.044715 * v * v * v); store v * tl.sigmoid(2 * u). weight's tile "
        "is at w_ptr + ks[:, None] * stride_wk + cols * stride_wn.",
    ),
    explanation=(
        "The tile of sums is in registers when the loop ends, in float32. Bias costs 64 loads for 4,096 sums, GELU a "
        "dozen instructions for each, and both need nothing from other programs. In a kernel of their own they would "
        "cost a round trip of the whole product, and a rounding in between. weight.T is no copy: the tile of (K, N) is "
        "read with the two strides of weight exchanged."
    ),
)
