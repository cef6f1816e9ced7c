"""05.accumulate: alpha * (a @ b) + beta * c with a long K, rounded once."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import torch
from torch import Tensor

from gpu_utils.analytic.tiles import tile_traffic
from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.drawing import signed
from gpu_utils.exercises.u05_triton_matmul import accumulate_slips as slips
from gpu_utils.exercises.u05_triton_matmul.tile_slips import TILE
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

ONE_SIGN = 16.0, 16.0
"""Factors of one sign: 301 products of about 256 are more than float16 can hold, and an eighth of it is not."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    dtype, m, n, k = getattr(torch, case["dtype"]), case["M"], case["N"], case["K"]
    if case.get("one_sign"):
        a, b = (
            s * (torch.rand(shape, generator=generator) + 0.5)
            for s, shape in zip(ONE_SIGN, ((m, k), (k, n)), strict=True)
        )
    else:
        a, b = signed((m, k), generator), signed((k, n), generator)
    # as large as alpha (a @ b) is: the sum of both is often near 0, where a rounding of either would show
    c = signed((m, n), generator) * case["alpha"] * math.sqrt(k)
    a, b = a.to(dtype), b.to(dtype)
    c = c.to(getattr(torch, case["c"]))
    if case["beta"] == 0:
        c.fill_(math.nan)
    if case.get("transposed"):
        a, b, c = (x.T.contiguous().T for x in (a, b, c))
    return {"a": a, "b": b, "c": c, "alpha": case["alpha"], "beta": case["beta"]}


def accumulate_reference(a: Tensor, b: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    """alpha (a @ b) + beta c in float64; where beta is 0, c is not read."""
    product = alpha * (a.double() @ b.double())
    return product + beta * c.double() if beta else product


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # one rounding to the type of c, and the roundings of K additions in float32. Products of one sign have partial sums
    # that grow with K; beta c is one more summand, counted with the K
    k = case["K"]
    size = ONE_SIGN[0] * ONE_SIGN[1] * math.sqrt(k) if case.get("one_sign") else 1.1
    of_c = abs(case["beta"]) * float(inputs["c"].abs().max()) / k if case["beta"] else 0.0
    magnitude = abs(case["alpha"]) * size + of_c
    return tolerance(inputs["c"].dtype, k=k, magnitude=magnitude, roundings=1)


def _size(case: Case, name: str) -> int:
    return int(getattr(torch, case[name]).itemsize)


def _most_loaded(case: Case) -> float:
    """Tiles of 64 x 64, and c once, where every tile is full."""
    m, n, k = case["M"], case["N"], case["K"]
    if m % TILE or n % TILE or k % TILE:
        return math.inf
    loaded = tile_traffic(m, n, k, TILE, TILE, dtype_bytes=_size(case, "dtype"))
    return 1.05 * (loaded.read_a + loaded.read_b + m * n * _size(case, "c"))


def _filled(value: float) -> Callable[..., Tensor]:
    return lambda a, b, c, alpha, beta: torch.full(c.shape, value, dtype=c.dtype, device=c.device)


def _fresh(rng: random.Random) -> Case:
    # odd, so that the compiler has met the like before
    m, n, k = (2 * rng.randrange(*ends) + 1 for ends in ((20, 48), (10, 32), (65, 130)))
    chosen = {"alpha": rng.choice([0.3, 0.7, -1.1]), "beta": rng.choice([1.0, 0.9, -0.6])}
    return Case("sizes and factors nobody chose", M=m, N=n, K=k, dtype="bfloat16", c="float32", **chosen)


EXERCISE = Exercise(
    id="05.accumulate",
    title="alpha * (a @ b) + beta * c, rounded once",
    parameters=("a", "b", "c", "alpha", "beta"),
    kind="kernel",
    inputs=_inputs,
    reference=accumulate_reference,
    tolerance=_tolerance,
    dtype=lambda inputs: inputs["c"].dtype,
    cases=(
        Case(
            "a gradient is added to float32: a long K, and here everything is counted",
            M=64,
            N=64,
            K=2048,
            dtype="bfloat16",
            c="float32",
            alpha=1.0,
            beta=1.0,
        ),
        Case(
            "all in float16, factors that 16 bits do not hold",
            M=37,
            N=35,
            K=515,
            dtype="float16",
            c="float16",
            alpha=0.3,
            beta=-1.25,
        ),
        Case(
            "a @ b is too large for float16, an eighth of it is not",
            M=33,
            N=35,
            K=301,
            dtype="float16",
            c="float16",
            alpha=0.125,
            beta=-0.5,
            one_sign=True,
        ),
        Case(
            "beta is 0, and c is new memory that holds NaN",
            M=65,
            N=31,
            K=67,
            dtype="bfloat16",
            c="bfloat16",
            alpha=-0.7,
            beta=0.0,
        ),
        Case(
            "a and c are transposes, as in the gradient of a weight",
            M=41,
            N=65,
            K=133,
            dtype="bfloat16",
            c="float32",
            alpha=0.7,
            beta=0.9,
            transposed=True,
        ),
    ),
    fresh=_fresh,
    trivial={
        "zeros": _filled(0.0),
        "ones": _filled(1.0),
        "nan": _filled(math.nan),
        "c": lambda a, b, c, alpha, beta: c,
    },
    limits=(
        Limit("launches", "Launch your own kernel: accumulate_kernel[grid](...).", at_least=lambda case: 1),
        Limit(
            "launches",
            "One launch can do all of it: a program has its tile of a @ b in registers when it reads its tile of c.",
            at_most=lambda case: 1,
        ),
        Limit(
            "matrix_flops",
            "The product is not made by matrix instructions. Triton issues them for tl.dot of two tiles in 16 bits.",
            at_least=lambda case: 2 * case["M"] * case["N"] * case["K"],
        ),
        Limit(
            "scratch_bytes",
            "A lane has more values than registers, and some of them go to memory and back (spills): a smaller tile, "
            "or more warps to a program.",
            at_most=lambda case: 0,
        ),
        Limit(
            "global_load_bytes",
            "a and b are to be loaded as often as tiles of 64 x 64 load them, and c once, behind the loop.",
            at_most=_most_loaded,
        ),
        Limit(
            "global_store_bytes",
            "Each element of the result is to be stored once.",
            at_most=lambda case: 1.05 * case["M"] * case["N"] * _size(case, "c") + 256,
        ),
    ),
    torch_may=(),
    seconds=30.0,  # a busy machine compiles such a kernel for ten
    failures=2,
    misconceptions=(
        Misconception(
            "sum_in_float16",
            slips.sum_in_float16,
            "The sum itself is kept in float16, with 11 bits: it ends at 65,504, and a product much smaller than the "
            "sum is lost in it. Keep acc in float32; matrix instructions add in it at the same speed.",
        ),
        Misconception(
            "sum_rounded_each_block",
            slips.sum_rounded_each_block,
            "The sum is rounded to the type of a after each block of K: a long K has many. acc stays in float32 for "
            "the whole loop.",
        ),
        Misconception(
            "product_rounded",
            slips.product_rounded,
            "a @ b is rounded to 16 bits, and alpha and c come after it. Where both parts nearly cancel, the rounding "
            "of the large one is the whole result; and a product above 65,504 is inf. Round the last value only.",
        ),
        Misconception(
            "scaled_product_rounded",
            slips.scaled_product_rounded,
            "alpha * (a @ b) is rounded to 16 bits before beta * c is added. Where both nearly cancel, its rounding is "
            "larger than what is left. Add in float32, and round the sum.",
        ),
        Misconception(
            "each_product_rounded",
            slips.each_product_rounded,
            "What each block of K adds is rounded to the type of a before it is added: a long K has many blocks. Leave "
            "the result of tl.dot in float32, or give acc to tl.dot.",
        ),
        Misconception(
            "product_rounded_as_c",
            slips.product_rounded_as_c,
            "a @ b is rounded to the dtype of c before alpha and c come to it. Where c has 16 bits that costs digits "
            "that the rest of the sum needs, and a product above 65,504 is inf. Let tl.store convert the last value.",
        ),
        Misconception(
            "scaled_c_rounded",
            slips.scaled_c_rounded,
            "beta * c is rounded to 16 bits before it is added. beta has more digits than c, and so has their product: "
            "c as float32 first, then beta.",
        ),
        Misconception(
            "c_rounded",
            slips.c_rounded,
            "c is rounded to the type of a. Where c is float32 and a is not, 16 of its bits are lost at each call: "
            "what many small gradients have added up to.",
        ),
        Misconception(
            "result_rounded",
            slips.result_rounded,
            "The last value is rounded to the type of a before it is stored in a float32 result. Let tl.store convert.",
        ),
        Misconception(
            "alpha_on_a",
            slips.alpha_on_a,
            "alpha is multiplied to the tile of a: alpha * a has to be rounded to 16 bits again, for the matrix unit. "
            "Multiply the sum, which is in float32.",
        ),
        Misconception(
            "alpha_in_each_block",
            slips.alpha_in_each_block,
            "The sum is multiplied by alpha inside the loop: the first blocks get it many times. Once, behind it.",
        ),
        Misconception(
            "alpha_on_c_too",
            slips.alpha_on_c_too,
            "alpha multiplies beta * c too. Was acc begun with beta * c? alpha belongs to a @ b alone.",
        ),
        Misconception("no_alpha", slips.no_alpha, "alpha is not used: the product comes in as it is."),
        Misconception("no_beta", slips.no_beta, "beta is not used: c comes in as it is."),
        Misconception("no_c", slips.no_c, "The result is alpha * (a @ b), without c."),
        Misconception("exchanged", slips.exchanged, "alpha and beta are exchanged: alpha goes with a @ b."),
        Misconception("minus_c", slips.minus_c, "beta * c is taken away; it is to be added."),
        Misconception(
            "c_in_each_block",
            slips.c_in_each_block,
            "beta * c is added once for each block of K. It belongs behind the loop, or in front of it.",
        ),
        Misconception(
            "reads_c_for_nothing",
            slips.reads_c_for_nothing,
            "It fails where beta is 0 and c holds NaN: 0 times NaN is NaN. With beta = 0 nobody promised that c holds "
            "numbers, so it may not be read: `if beta != 0:` in the kernel, or a mask.",
        ),
        Misconception(
            "c_as_if_contiguous",
            slips.c_as_if_contiguous,
            "c is read as if it were contiguous. It has strides of its own, and they are not those of the result.",
        ),
        Misconception(
            "in_type_of_a",
            slips.in_type_of_a,
            "The result has the dtype of a. It is to have that of c: a float32 sum of gradients stays one.",
        ),
        Misconception(
            "into_c", slips.into_c, "The result is written over c. The caller still needs c: make a new one."
        ),
        Misconception(
            "in_two_launches",
            slips.in_two_launches,
            "The numbers are right, and the product has been to memory and back: written by one kernel in float32, "
            "read by the next. One kernel can read its tile of c while it has its tile of sums.",
        ),
        Misconception(
            "torch_adds",
            slips.torch_adds,
            "torch adds beta * c. Here it is your kernel's work, in float32, before anything is rounded.",
        ),
    ),
    hints=(
        "Write down every place where your kernel makes a number shorter than float32. There should be one, and it "
        "should be the last thing that happens.",
        "The loop is that of 05.tiled, with acc in float32. Behind it: acc times alpha, the tile of c as float32 times "
        "beta, the sum of both, and the store. What must not happen to c when beta is 0?",
        "total = alpha * acc; if beta != 0: total += beta * tl.load(c_at, mask=there).to(tl.float32); "
        "tl.store(out_at, total, mask=there). The result is torch.empty(c.shape, dtype=c.dtype, device=c.device).",
    ),
    explanation=(
        "One rounding to a type with p bits costs 2^-p of the value that is rounded. Of the result that is as good as "
        "it gets; of a large intermediate value it is a large error, and it stays when the rest of the sum makes the "
        "result small. K roundings of a running sum add up to about sqrt(K) of them, and an addend below 2^-p of the "
        "sum is lost. In float32, with 24 bits, K = 2048 additions cost less than one rounding to bfloat16. So "
        "everything up to the store is float32: acc, alpha, beta, c."
    ),
)
