# %% [markdown] top
# # Lab 09: the same answer on two chips
#
# **Seven exercises.** You measure how far apart two results are, and say how far apart they may be; write a sum and a
# product that keep their bits, on both vendors; find the operator at which a port goes wrong; and tell noise from a bug
# in a training.
#
# - **First**: lesson 09. It has the ideas; each statement says what else it needs.
# - **Time**: three parts, as a guess 90, 90 and 60 minutes, not from a stopwatch.
# - **Kernels** are executed on virtual GPUs of both vendors, or on this machine's GPU if it has one. Nothing here has
#   run on AMD silicon.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it.
#   `hint("09.ulp")` gives three hints of growing strength. `solution("09.ulp")` asks first.

# %% imports tags=["setup"]
import torch
import triton
import triton.language as tl
from torch import Tensor, nn

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
    # where one alone is NaN, the last line counts
    apart = torch.where(a.isnan(), 0, apart)
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
    piece = every or k
    grown = piece * k**0.5 if one_sign else (piece * k) ** 0.5
    lost = u[factors] * k**0.5  # of fp32 next to nothing
    atol = magnitude * (2.5 * u[accumulator] * grown + 3 * lost)
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
# **What it shows.** Nobody asked for tf32 or xf32. Where the compiler takes them by default, fp32 products are off by
# some thousand times as much, and an allowance that was made for fp32 says so. Whether that is a fault is a decision
# about the model, and the test should make it visible.
#
# The last surprise is in the rows of sm_80 and sm_90: they are off more than twice as much as gfx942, and a tight
# allowance for tf32 refuses them (a looser one, which the check takes as well, may not). Your allowance is for factors
# that are *rounded* to 10 bits, off by at most u. The kernels for sm_80 and sm_90 give fp32 numbers to the instruction
# as they are, and the virtual GPU cuts what lies behind those bits: off by up to 2 u, and always toward zero. One
# format, two ways into it.
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
# ## 09.fixed_tree: the same bits whatever the block, the warps, the chip
#
# `tl.sum` adds as the layout has it, so `num_warps`, the block and the width of a wave decide the bits. Write
# `fixed_tree(x, block, warps)`: the sums of the rows of `x`, by a tree that the index alone decides.
#
# | | |
# |---|---|
# | `x` | float32, `(rows, K)`, `K` of 1 or more; its rows may lie further apart than `K` |
# | `block` | elements that a program loads at once: a power of two, 64 to 1024 |
# | `warps` | 1, 2, 4 or 8: `num_warps` of the launch |
# | result | float32, `(rows,)` |
#
# **The tree.** Zeros are put behind the row up to a power of two. Then neighbours meet: elements 0 and 1, 2 and 3, and
# so on; then of these sums the first and the second, the third and the fourth; until one is left. Each addition is
# rounded to float32. The check compares bits, on both vendors, for several blocks and warps. (A sum of 0 may have
# either sign.)
#
# One launch, a program for each row, no atomics.
#
# **Pieces of Triton that you need.** `tl.reshape(x, (n // 2, 2))` keeps the order of the elements: a row for each pair
# of neighbours. A `tl.sum` over two elements has one order only. A loop over `tl.static_range(...)` is unrolled, so
# that a tensor may get another shape in each turn, and an `if` with constants is decided when the kernel is compiled.
# `tl.sum` of one element is that element. A tensor has no `t[i] = y`; `tl.where(tl.arange(0, P) == i, y, t)` has the
# new element.
#
# **A small example.** The row is 1 and four times $2^{-24}$. The tree has $1 + 2^{-24}$, which is rounded to 1, then
# $2^{-23}$, and $2^{-24}$ with zeros; in the end $1 + 2^{-22}$. From left to right it would be 1.
#
# **A puzzle.** With blocks of 64 and a row of 1,000, which nodes of the tree are sums of one block? And with 256?


# %% 09.fixed_tree tags=["answer", "09.fixed_tree"]
@triton.jit
def tree(x, N: tl.constexpr):
    """(N,) -> its one sum: neighbours are added, until one is left."""
    # BEGIN SOLUTION
    for level in tl.static_range(16):
        if (N >> level) > 1:
            x = tl.sum(tl.reshape(x, ((N >> level) // 2, 2)), 1)
    return tl.sum(x)
    # END SOLUTION


@triton.jit
def fixed_tree_kernel(x_ptr, out_ptr, K, stride, BLOCK: tl.constexpr, P: tl.constexpr):
    """One row; P is a power of two, and not less than the number of blocks."""
    # BEGIN SOLUTION
    row = tl.program_id(0)
    sums = tl.zeros((P,), tl.float32)
    for block in range(tl.cdiv(K, BLOCK)):
        k = block * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + k, mask=k < K, other=0.0)
        sums = tl.where(tl.arange(0, P) == block, tree(x, BLOCK), sums)
    tl.store(out_ptr + row, tree(sums, P))
    # END SOLUTION


def fixed_tree(x: Tensor, block: int, warps: int) -> Tensor:
    """The sum of each row, neighbours first, with the same bits for every block and warps.

    x: float32 (rows, K), rows x.stride(0) apart -> float32 (rows,).
    """
    # BEGIN SOLUTION
    rows, K = x.shape
    out = torch.empty(rows, dtype=torch.float32, device=x.device)
    parts = triton.next_power_of_2(triton.cdiv(K, block))
    fixed_tree_kernel[(rows,)](
        x, out, K, x.stride(0), BLOCK=block, P=parts, num_warps=warps
    )
    return out
    # END SOLUTION


# %% 09.fixed_tree check tags=["check", "09.fixed_tree"]
check("09.fixed_tree")

# %% [markdown] own tree
# **Why it matters.** Your sums become the norms of the served model, whose library chooses block and warps by the
# batch; product and attention are batch-invariant here. And with `tl.sum` in the place of your tree? (The library's
# norm.)
#
# <details><summary>The puzzle</summary>
#
# Both: a block is a subtree. The sixteen sums of blocks of 64 are nodes of one level, the four sums of blocks of 256
# are nodes two levels up.
#
# </details>

# %% your sums served
rows = {}
others = {"product": "batch-invariant", "attention": "batch-invariant", "tokens": 4}
with lesson.when_written():
    for target in ("sm_80", "gfx942"):
        for name, norm in (
            ("the library's sums", "as libraries do"),
            ("your tree", fixed_tree),
        ):
            answer = lesson.served(norm=norm, target=target, **others)
            rows[f"{name}, {target}"] = {
                "other bits from token": answer.first_bits or "none",
                "texts part at token": answer.parts_at or "none",
                **answer.counts["with 7 others"],
            }
lesson.table(rows, first="4 tokens with 7 others")

# %% [markdown] statement of batch_invariant
# ## 09.batch_invariant: a product whose row does not depend on the batch
#
# A server multiplies the rows of all its requests with one matrix of weights. Libraries choose the tile and the cut of
# K by the number of rows, so an answer changes with the load. Write `batch_invariant(x, w)`, a Triton kernel and its
# launcher: `x @ w`, where a row of the result has the same bits whatever else is in the batch.
#
# | | |
# |---|---|
# | `x` | float16 or bfloat16, `(M, K)`; `M` and `K` are 1 or more. Its rows may lie further apart than `K` |
# | `w` | of the type of `x`, `(K, N)`, contiguous |
# | result | float32, `(M, N)` |
#
# - **Right**: the error of sums of K products in float32.
# - **Invariant**: the check calls your function with a batch, with its first rows as smaller batches, down to one row,
#   and with the batch upside down. Each row must have the same bits every time, on each target. Two targets may differ
#   from each other.
# - **Not slow**: at most two launches for a product, no atomics, products by `tl.dot`, and `w` is loaded once for each
#   16 rows at most. These are counted on the virtual GPUs.
#
# You may choose anything by `K` and `N`, and nothing by `M` but the size of the grid.
#
# **A small example.** `x` is `[[1, 2], [3, 4]]`, `w` is `[[1], [10]]`: the result is `[[21], [43]]`. `[[1, 2]]` alone
# gives `[[21]]`, and so does it as the second row behind `[[3, 4]]`. Numbers so small have these bits in every order.
#
# A matrix instruction has 16 rows here. One row alone is then a tile that is mostly empty: that costs nothing that
# anybody else would have used.


# %% 09.batch_invariant tags=["answer", "09.batch_invariant"]
@triton.jit
def batch_invariant_kernel(
    x_ptr, w_ptr, out_ptr, M, N, K, stride,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """One tile of x @ w; rows of x are `stride` elements apart."""
    # BEGIN SOLUTION
    rows = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    columns = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k_of_x = start + tl.arange(0, BK)[None, :]
        k_of_w = start + tl.arange(0, BK)[:, None]
        x_mask = (rows < M) & (k_of_x < K)
        w_mask = (k_of_w < K) & (columns < N)
        x = tl.load(x_ptr + rows * stride + k_of_x, mask=x_mask, other=0.0)
        w = tl.load(w_ptr + k_of_w * N + columns, mask=w_mask, other=0.0)
        acc = tl.dot(x, w, acc)
    mask = (rows < M) & (columns < N)
    tl.store(out_ptr + rows * N + columns, acc, mask=mask)
    # END SOLUTION


def batch_invariant(x: Tensor, w: Tensor) -> Tensor:
    """x @ w: (M, K) and (K, N), 16 bits -> (M, N) float32, each row by itself."""
    # BEGIN SOLUTION
    (M, K), N = x.shape, w.shape[1]
    out = torch.empty((M, N), dtype=torch.float32, device=x.device)
    tile = {"BM": 16, "BN": 32, "BK": 32}  # whatever M is
    grid = (triton.cdiv(M, tile["BM"]), triton.cdiv(N, tile["BN"]))
    batch_invariant_kernel[grid](x, w, out, M, N, K, x.stride(0), **tile)
    return out
    # END SOLUTION


# %% 09.batch_invariant check tags=["check", "09.batch_invariant"]
check("09.batch_invariant")

# %% [markdown] own product served
# **Why it matters.** Your product goes into the served model of the lesson, beside a norm and an attention that are
# batch-invariant already. One request, alone and with seven others, on the virtual GPUs of both vendors. Before you run
# it: with the library's product the first token's logits had other bits. With yours?

# %% your served token
rows = {}
others = {"norm": "batch-invariant", "attention": "batch-invariant", "tokens": 4}
with lesson.when_written():
    for target in ("sm_80", "gfx942"):
        for name, product in (
            ("the library's product", "as libraries do"),
            ("yours", batch_invariant),
        ):
            answer = lesson.served(product=product, target=target, **others)
            rows[f"{name}, {target}"] = {
                "other bits from token": answer.first_bits or "none",
                "texts part at token": answer.parts_at or "none",
                **answer.counts["with 7 others"],
            }
lesson.table(rows, first="4 tokens with 7 others")

# %% [markdown] part 3
# ## Part 3: noise or a bug

# %% [markdown] statement of layer_diff
# ## 09.layer_diff: the first operator of a broken port
#
# `port` is `original` written anew, with the same weights. Write `layer_diff(original, port, tokens, tolerance)`: the
# name of the first module, in order of execution, that gives something else *from the same input*.
#
# | | |
# |---|---|
# | `original`, `port` | two `torch.nn.Module`s whose modules have the same names; `original(tokens)` gives logits |
# | `tokens` | int64 (batch, T), no longer than 16 |
# | `tolerance` | the relative error that roundings within *one* module may cause |
# | result | the name of a module that has no inner modules, such as `"layers.1.attn.q"`; `None` where none differs |
#
# - **Something else**: for a tensor $a$ that a module of the original gives and the tensor $b$ that the port's module
#   of that name gives, $\lVert b - a \rVert / \lVert a \rVert$ is not within the tolerance. A module may give a
#   tuple of tensors. What is no number is not within it.
# - **The same input**: what the original's module got when `original(tokens)` ran. The port may be in bfloat16 (all of
#   its parameters are then): its modules take such inputs. Over many layers the roundings of an honest port may grow
#   beyond `tolerance`; that is no fault.
# - There may be no fault, one or several. The two models stay as they were, without hooks.
#
# The modules without inner ones, in order of execution: `embed`; in each layer `norm_1`, `attn.q`, `attn.k`, `attn.v`,
# `attn.rope` (takes q and k, gives both), `attn.core` (takes q, k, v), `attn.o`, `norm_2`, `mlp.up`, `mlp.act`,
# `mlp.down`; at the end `norm` and `head`. They stand in the model in another order. All arguments are positional
# tensors, and each is called once.
#
# **A small example.** Two layers; the port turns k by one position too far in layer 1. Relative errors of some modules
# of the port, with the tolerance 5e-6:
#
# | module | when both models run | from the same input |
# |---|---|---|
# | `layers.1.attn.k` | 0 | 0 |
# | `layers.1.attn.rope` | 0 for q, 0.5 for k | 0 for q, 0.5 for k |
# | `layers.1.attn.core` | 0.3 | 0 |
# | `head` | 0.2 | 0 |
#
# Which of the four is the answer, and what are the last two?


# %% 09.layer_diff tags=["answer", "09.layer_diff"]
def layer_diff(
    original: nn.Module, port: nn.Module, tokens: Tensor, tolerance: float
) -> str | None:
    """The first module of port that gives something else from the same input, or None."""
    # BEGIN SOLUTION
    calls, handles = [], []
    for name, module in original.named_modules():
        if not list(module.children()):

            def keep(module, args, output, name=name):
                calls.append((name, args, output))

            handles.append(module.register_forward_hook(keep))
    with torch.no_grad():
        original(tokens)
        for handle in handles:
            handle.remove()
        dtype = next(port.parameters()).dtype
        for name, args, output in calls:
            given = [x.to(dtype) if x.is_floating_point() else x for x in args]
            found = port.get_submodule(name)(*given)
            if isinstance(output, Tensor):
                output, found = [output], [found]
            for a, b in zip(output, found, strict=True):
                if not (b - a).norm() <= tolerance * a.norm():
                    return name
    return None
    # END SOLUTION


# %% 09.layer_diff check tags=["check", "09.layer_diff"]
check("09.layer_diff")

# %% [markdown] own layer_diff
# **On a model that is not ours.** Below is a small Llama of `transformers`, and the same with a fault that a seed
# plants. Its modules take keyword arguments and give tuples of other things, so your function would need some more
# lines; `./w2w diff` has them. It also follows the operators within the module. Which of the six faults is it?
#
# <details><summary>The small example</summary>
#
# `layers.1.attn.rope`: the first that gives something else from the same input. `attn.core` and `head` are victims:
# their inputs differ, and they do with them what they should.
#
# </details>

# %% a fault that a seed plants
from transformers import LlamaConfig, LlamaForCausalLM

shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3}
heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
config = LlamaConfig(vocab_size=97, hidden_act="gelu", **shape, **heads)
tokens = torch.randint(97, (2, 12), generator=torch.Generator().manual_seed(1))


def llama():
    torch.manual_seed(9)
    return LlamaForCausalLM(config).eval()


theirs, broken = llama(), llama()
lesson.plant_fault(broken, ["eps", "gelu", "mask", "scale"][2], seed=4)
found = lesson.port_diff(lesson.recording_of(theirs, tokens), broken, tokens)
lesson.table(
    {
        fault.module: {
            "operator": fault.operator,
            "what differs": fault.because,
            "line": fault.line,
        }
        for fault in found.faults
    }
)

# %% [markdown] statement of convergence
# ## 09.convergence: noise or a bug?
#
# A port was trained beside the original, with six seeds. Rounding alone sets two right runs apart. Write
# `convergence(reference, port, tail)`: is what you see noise, or a bug?
#
# | | |
# |---|---|
# | `reference`, `port` | float64 (6, steps): the loss in nats. Row i of both has the same seed and the same batches |
# | `tail` | a bug here moves the last `tail` steps, up or down; the steps before say nothing about it |
# | result | `"noise"` or `"bug"` |
#
# Your test is judged by how often it is wrong, over hundreds of drawn pairs of sets:
#
# - of **honest** ports at most 5% may be called a bug (a check allows for chance in its count);
# - of bugs that move the mean by **five standard errors**, in either direction, at least 75% must be found. The
#   standard error is that of the mean over the six pairs of runs;
# - a run that became NaN is a bug.
#
# What is known of the noise: a seed moves a whole curve, in both runs of a pair alike. What separates the two runs of a
# pair may stay for many steps, is larger while the curve falls, and is independent from seed to seed, and normal. Its
# size differs from case to case, from 0.0003 to 0.1 nats. Any test that keeps these rates is right.
#
# Of Student's t for 5 degrees of freedom, 95% lie between -2.571 and 2.571.
#
# **A small example**, of one step: the six losses are 3.10, 2.90, 3.05, 3.20, 2.95, 3.00 in the reference, and 3.11,
# 2.91, 3.07, 3.21, 2.96, 3.02 in the port. The means of the two sets lie 0.013 apart, and seeds 0.1. Noise?


# %% 09.convergence tags=["answer", "09.convergence"]
def convergence(reference: Tensor, port: Tensor, tail: int) -> str:
    """ "noise" or "bug" for the losses (6, steps) of pairs of runs."""
    # BEGIN SOLUTION
    apart = (port - reference)[:, -tail:].mean(dim=1)
    error = apart.std() / len(apart) ** 0.5
    return "noise" if apart.mean().abs() <= 2.571 * error else "bug"
    # END SOLUTION


# %% 09.convergence check tags=["check", "09.convergence"]
check("09.convergence")

# %% [markdown] own convergence
# The parity report of unit 03 takes its bounds from the same distribution: `lesson.parity` compares a mean with what
# other seeds do to the reference, at 5%, and shows the interval of the pairs' differences. It does not judge by the
# latter: with pairs even another rounding shows, if it does the same to every seed. Whether a shift of 0.0001 nats
# matters is no question of statistics.
#
# <details><summary>The small example</summary>
#
# The differences are 0.01, 0.01, 0.02, 0.01, 0.01, 0.02: a mean of 0.0133 with a standard error of 0.0021, which is 6.3
# of them. A bug, although seeds do ten times as much: they do it to both runs.
#
# </details>

# %% [markdown] end of the lab
# ## Done
#
# A difference is no longer a feeling: you can say how large it is, how large it may be, which operator made it, and
# what it costs to have none. Unit 15 holds a transformed GPT-2 to these bounds.

# %% progress
progress()
