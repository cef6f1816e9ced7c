# %% [markdown] top
# # Lab 09: the same answer on two chips
#
# **Seven exercises.**
#
# - **First**: lesson 09. It has the ideas; each statement says what else it needs.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it.
#   `hint("09.ulp")` gives three hints of growing strength. `solution("09.ulp")` asks first.

# %% imports tags=["setup"]
import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils import check, hint, lesson, progress, solution

# %% [markdown] part 1
# ## Part 1: how far apart

# %% [markdown] statement of ulp
# ## 09.ulp: how many numbers lie between
#
# Write `ulp(a, b)`: the distance of two results in *units in the last place*, element by element. It is the number of
# steps from one to the other, where a step goes to the next number that the type can hold.
#
# | | |
# |---|---|
# | `a`, `b` | tensors of one shape, any, and of one type: float16, bfloat16 or float32 |
# | result | int64, shape and device of `a` |
# | +0 and -0 | are the same number: 0 steps |
# | subnormal numbers | are numbers of the type, as many as there are |
# | infinity | one step above the largest number, as if it were the next |
# | NaN and NaN | 0, whatever their signs and payloads |
# | NaN and a number | 2^63 - 1, the largest int64: no tolerance may accept it |
#
# **A small example.** In float16 the numbers from 1 to 2 are 2^-10 apart, and those just below 1 are 2^-11 apart. So
# from 1 to 1 + 2^-10 it is one step, and from 1 to 1 - 2^-11 it is one step as well. From -0 to 0 it is none, and from
# the smallest positive number, 2^-24, to its negative two.
#
# **Two puzzles.** How many steps is it from 0 to 1 in float16, and how many from 1 to the largest number, 65,504? Guess
# before you ask your function. And a tolerance of 4 ulp: is that a relative or an absolute error?


# %% 09.ulp tags=["answer", "09.ulp"]
def ulp(a: Tensor, b: Tensor) -> Tensor:
    """Steps between neighbouring numbers of the type from a to b, int64.

    >>> a = torch.tensor([1.0, 1.0, -0.0], dtype=torch.float16)
    >>> b = torch.tensor([1 + 2**-10, 1 - 2**-11, 0.0], dtype=torch.float16)
    >>> ulp(a, b).tolist()
    [1, 1, 0]
    """
    # BEGIN SOLUTION
    whole, sign = torch.int16, 2**15
    if a.dtype == torch.float32:
        whole, sign = torch.int32, 2**31
    places = []
    for x in (a, b):
        bits = x.view(whole).long()
        places.append(torch.where(bits < 0, -(bits + sign), bits))
    apart = (places[0] - places[1]).abs()
    apart = torch.where(a.isnan() & b.isnan(), 0, apart)
    return torch.where(a.isnan() != b.isnan(), torch.iinfo(torch.int64).max, apart)
    # END SOLUTION


# %% 09.ulp check tags=["check", "09.ulp"]
check("09.ulp")

# %% [markdown] why ulp
# **Why it matters.** A relative error needs a number to divide by, and is undefined at zero. Steps of the type are
# everywhere. They say at once whether two chips differ by one rounding or by an approximation, and a histogram of them
# reads the same for logits and for gradients.
#
# <details><summary>The puzzles</summary>
#
# 15,360 and 16,383: about as many numbers below 1 as above it, because half of the exponents lie on either side. And
# 4 ulp is nearly a relative error: between eps * 2 and eps * 4 of the number, by where it lies between two powers of
# two. Among subnormal numbers it is an absolute one.
#
# </details>

# %% [markdown] statement of reduction_order
# ## 09.reduction_order: which order is good enough?
#
# Write `reduction_order(x, lanes, costs, allowed)`: the sum of each row of `x` in four orders, the bound on what each
# is off, and the cheapest order whose bound is within `allowed`.
#
# | | |
# |---|---|
# | `x` | (rows, K), float16, bfloat16 or float32; K >= 2. No row has the sum 0 |
# | `lanes` | a power of two |
# | `costs` | name of each order -> its price, no two alike |
# | `allowed` | the largest relative error that any row may have |
# | result | `{"sums": ..., "bounds": ..., "choose": ...}` |
#
# **Sums**: name -> (rows,), type of `x`. *Every* addition is rounded to the type of `x`, so the check compares bits.
#
# - `"sequential"`: x0 + x1, then + x2, and so on.
# - `"lanes"`: what a wave does. Lane j starts with term j and adds j + lanes, j + 2 lanes, ...; where there is no term
#   it adds 0. Then the first half of the lanes add what the second half has: lane i adds that of lane i + n / 2, and n
#   is halved, until lane 0 has all.
# - `"pairwise"`: neighbours 0 and 1, 2 and 3, ... are added, which leaves half as many; again, until one is left. Where
#   the number is odd, the last one waits for the next round.
# - `"kahan"`: as sequential, and what each addition has rounded off is found from what it did, and taken from the next
#   term. Start with the first term and a loss of 0. For each further term: *mended* is the term less the loss; the new
#   sum is the old one plus mended; the loss is how much the sum has grown, less mended.
#
# **Bounds**: name -> (rows,), float64, on the error over the size of the *exact* sum of the row:
#
# - of the first three, gamma(h) x condition. h is the largest number of additions that one term goes through (adding
#   the 0 of a lane without a term counts), gamma(h) = h u / (1 - h u), and infinite where h u >= 1. u is the unit
#   roundoff of the type, and the condition is the sum of the sizes of the row's terms over the size of their sum. Take
#   the exact sums as float64 gives them.
# - of Kahan's sum, (3 u + 8 K u^2) x condition, and infinite where K u is above 0.1.
#
# **`choose`**: the name of the cheapest order whose bound is at most `allowed` for every row, else `"none"`.
#
# **A small example.** One row of float16, 2048, 1, 1, 1, 1, with two lanes. Next to 2048 lies 2050, and 2049, a tie,
# goes to 2048. So sequential stays at 2048. Lane 0 has 2048 + 1 + 1 = 2048, lane 1 has 2, together 2050. Pairs are 2048
# and 2 and a 1 that waits, then 2050 and the 1, then 2051, a tie that goes to 2052. Kahan finds 2052 too. The bound of
# sequential is 0.00196: above an `allowed` of 0.0015.
#
# **Two puzzles.** Which of the four can a GPU compute with the latency of few additions? And a row is sorted so that
# its large terms come first, or last: which is the better order for a sequential sum of positive terms?


# %% 09.reduction_order tags=["answer", "09.reduction_order"]
def reduction_order(x: Tensor, lanes: int, costs: dict, allowed: float) -> dict:
    """Sums in four orders, their bounds, and the cheapest order within `allowed`.

    >>> x = torch.tensor([[2048.0, 1, 1, 1, 1]], dtype=torch.float16)
    >>> costs = {"sequential": 3.0, "lanes": 1.0, "pairwise": 2.0, "kahan": 9.0}
    >>> found = reduction_order(x, 2, costs, 0.0015)
    >>> found["sums"]["lanes"].item(), found["choose"]
    (2050.0, 'lanes')
    """

    # BEGIN SOLUTION
    def from_left(terms):
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    rows, K = x.shape
    steps, rounds, sums = -(-K // lanes), 0, {}
    sums["sequential"] = from_left(x.unbind(1))
    padded = torch.nn.functional.pad(x, (0, steps * lanes - K))
    wave = from_left(padded.view(rows, steps, lanes).unbind(1))
    while wave.shape[1] > 1:
        half = wave.shape[1] // 2
        wave = wave[:, :half] + wave[:, half:]
    sums["lanes"] = wave[:, 0]
    tree = x
    while tree.shape[1] > 1:
        waiting = tree[:, tree.shape[1] // 2 * 2 :]
        tree = torch.cat((tree[:, :-1:2] + tree[:, 1::2], waiting), dim=1)
        rounds += 1
    sums["pairwise"] = tree[:, 0]
    total, lost = x[:, 0], torch.zeros_like(x[:, 0])
    for term in x.unbind(1)[1:]:
        mended = term - lost
        larger = total + mended
        total, lost = larger, (larger - total) - mended
    sums["kahan"] = total

    u = torch.finfo(x.dtype).eps / 2
    heights = {
        "sequential": K - 1,
        "lanes": steps - 1 + lanes.bit_length() - 1,
        "pairwise": rounds,
    }
    worst = {
        name: h * u / (1 - h * u) if h * u < 1 else torch.inf
        for name, h in heights.items()
    }
    worst["kahan"] = 3 * u + 8 * K * u**2 if K * u <= 0.1 else torch.inf
    condition = x.double().abs().sum(1) / x.double().sum(1).abs()
    bounds = {name: worst[name] * condition for name in sums}
    good = [name for name in sums if (bounds[name] <= allowed).all()]
    choose = min(good, key=lambda name: costs[name], default="none")
    return {"sums": sums, "bounds": bounds, "choose": choose}
    # END SOLUTION


# %% 09.reduction_order check tags=["check", "09.reduction_order"]
check("09.reduction_order")

# %% [markdown] own orders
# **Your four orders on long rows.** 16 rows of numbers from 0 to 1 in float32, all of one sign, so the condition is 1.
# Each line has the largest error that was measured, and the bound. `allowed` is one part in a million.

# %% own orders in numbers
generator = torch.Generator().manual_seed(0)
prices = {"sequential": 4.0, "lanes": 1.0, "pairwise": 2.0, "kahan": 6.0}
rows = {}
with lesson.when_written():
    for K in (100, 1_000, 10_000):
        terms = torch.rand(16, K, generator=generator)
        mine = reduction_order(terms, 64, prices, 1e-6)
        rows[f"K = {K:,}"] = {
            name: f"{lesson.forward_error(total, terms).max():.1e} of "
            f"{mine['bounds'][name].max():.1e}"
            for name, total in mine["sums"].items()
        } | {"cheapest": mine["choose"]}
lesson.table(rows, first="error of bound")

# %% [markdown] why reduction_order
# **What it shows.** The bound of a loop grows with K, and what is measured grows much more slowly: roundings go their
# own ways. A wave of 64 lanes is a loop 64 times as short. That is why a kernel with lanes is not only faster than the
# loop on a CPU but more exact, and why the two never agree in the last bits.
#
# <details><summary>The puzzles</summary>
#
# Pairwise has about log2 K additions one after the other, and the lanes K / lanes and a few; the other two have K.
# Small terms first: each rounding is off by at most u times the running sum, and then the running sum stays small
# longest. A term that comes after the large ones may be rounded off whole.
#
# </details>

# %% [markdown] statement of tolerance
# ## 09.tolerance: an allowance that hides nothing
#
# You test a kernel of somebody else's. Each of its outputs is a sum of `k` products, and you have the exact sums. Write
# `tolerance(...)`, which gives `(rtol, atol)`: an output is accepted where
#
#     |output - exact| <= atol + rtol * |exact|
#
# **The check is an examiner.** For each kernel it records 256 sums anew, of honest kernels that add from the left, in
# eight parts, and in pairs: you must accept all of them. And it records kernels with a fault: you must refuse each, by
# one output at least. Faults are running sums in fp16 in place of fp32, factors or results in a narrower format than
# stated, a promotion that is forgotten, a product that is left out. Only such faults are planted as can be told: they
# are off at least three times as much as a good allowance gives. So there is room on both sides, and no more.
#
# | | |
# |---|---|
# | `k` | number of products of a sum, 100 or more |
# | `magnitude` | root mean square of a product; their sizes differ by less than ten times |
# | `one_sign` | True: all products are positive. False: each has a sign at random |
# | `factors` | format to which both factors are rounded first. They come in fp32, and so the exact sums have them |
# | `accumulator` | format of products and running sums: `"fp32"` or `"fp16"` |
# | `every` | after so many products the running sum is added to a total in fp32 and starts at 0 again; None: never |
# | `result` | format to which the sum is rounded at the end |
# | result | two numbers from 0 on: `(rtol, atol)` |
#
# Formats are `"fp32"`, `"tf32"`, `"fp16"` and `"bf16"`, with 23, 10, 10 and 7 bits behind the point. All roundings go
# to the nearest. No number is subnormal or too large.
#
# **A small example.** `tolerance(500, 1.0, False, "fp32", "fp32", None, "fp32")`: nothing is lost of the factors. The
# exact sums are of the size of sqrt(500) = 22, the honest kernels are off by up to 5e-5 or so, and one with factors in
# tf32 by 0.03: anything between the two will do for atol.
#
# **Two puzzles.** For which of these kernels does it matter whether products have one sign? And what would you do where
# a fault is smaller than the honest error, such as results in bf16 of a kernel whose running sums are fp16?


# %% 09.tolerance tags=["answer", "09.tolerance"]
def tolerance(
    k: int,
    magnitude: float,
    one_sign: bool,
    factors: str,
    accumulator: str,
    every: int | None,
    result: str,
) -> tuple[float, float]:
    """(rtol, atol) that accept every honest kernel of this kind and no broken one."""
    # BEGIN SOLUTION
    bits = {"fp32": 23, "tf32": 10, "fp16": 10, "bf16": 7}
    u = {name: 2.0 ** -(behind + 1) for name, behind in bits.items()}
    piece = min(every or k, k)
    grown = piece * k**0.5 if one_sign else (piece * k) ** 0.5
    lost = 0.0 if factors == "fp32" else u[factors]
    atol = magnitude * (2.5 * u[accumulator] * grown + 3 * lost * k**0.5)
    return 2 * u[result], atol
    # END SOLUTION


# %% 09.tolerance check tags=["check", "09.tolerance"]
check("09.tolerance")

# %% [markdown] own tolerance
# **Your allowance on five targets.** The same matrix product in Triton, K = 256 and fp32 in and out, compiled for five
# targets and executed on the virtual GPUs. Your `tolerance` is asked as if the product were in fp32, and as if it were
# in tf32; your `ulp` says how far the results are from float64 rounded to fp32.


# %% own tolerance on targets
@triton.jit
def product_kernel(a_ptr, b_ptr, out_ptr, K: tl.constexpr, N: tl.constexpr):
    rows, columns = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    along = tl.arange(0, K)
    a = tl.load(a_ptr + rows * K + along[None, :])
    b = tl.load(b_ptr + along[:, None] * N + columns)
    tl.store(out_ptr + rows * N + columns, tl.dot(a, b))


generator = torch.Generator().manual_seed(1)
a, b = (torch.randn(shape, generator=generator) for shape in ((32, 256), (256, 32)))
exact = a.double() @ b.double()
rows = {}
with lesson.when_written():
    allowed = {
        name: tolerance(256, 1.0, False, name, "fp32", None, "fp32")
        for name in ("fp32", "tf32")
    }
    for target in ("sm_80", "sm_90", "gfx942", "gfx950", "gfx1100"):
        out = torch.zeros(32, 32)
        lesson.launch_on((target,), product_kernel, (1,), a, b, out, K=256, N=32)
        rows[target] = {"largest error": f"{(out - exact).abs().max():.1e}"} | {
            f"within {name}": torch.allclose(out.double(), exact, *allowed[name])
            for name in allowed
        }
        rows[target]["half of all within, ulp"] = ulp(out, exact.float()).median()
lesson.table(rows, first="target")

# %% [markdown] why tolerance
# **What it shows.** Nobody asked for tf32. Where the compiler takes it by default, fp32 products are off by some
# thousand times as much, and an allowance that was made for fp32 says so; a round number such as 1e-2 would have let it
# pass. Which of the two is right is a decision about the model, and the test should make it visible.
#
# <details><summary>The puzzles</summary>
#
# Where running sums decide: in narrow accumulators, and in fp32 with exact factors. What rounded factors lose is of
# either sign anyway. And where the fault is smaller than the honest error no allowance on single outputs can find it.
# Make the honest error smaller for the test (a short K, numbers that are exact in the narrow type), or look at many
# outputs together: the mean of their errors, or how many of them are numbers of bf16.
#
# </details>

# %% [markdown] part 2
# ## Part 2: the same bits on purpose

# %% [markdown] statement of fixed_tree
# ## 09.fixed_tree: PLACEHOLDER

# %% [markdown] statement of batch_invariant
# ## 09.batch_invariant: PLACEHOLDER

# %% [markdown] part 3
# ## Part 3: noise or a bug

# %% [markdown] statement of layer_diff
# ## 09.layer_diff: PLACEHOLDER

# %% [markdown] statement of convergence
# ## 09.convergence: PLACEHOLDER

# %% [markdown] end of the lab
# ## Done
#
# PLACEHOLDER

# %% progress
progress()
