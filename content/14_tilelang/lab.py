# %% [markdown] top
# # Lab 14: one source, three vendors
#
# **Eight exercises.** You write one product for three vendors, and one with an epilogue that never leaves the chip; a
# layout that both vendors' banks like; two provers that speak for all sizes; the flags of a machine that has no other
# order; a planner of on-chip memory; and the choice of a tile that survives a move.
#
# - **First**: lesson 14. It has the ideas; each statement says what else it needs.
# - **Time**: three parts. As a guess, not from a stopwatch: 70, 110 and 120 minutes.
# - **What runs where**: answers in TileLang are lowered, compiled and executed on virtual GPUs of both vendors and on a
#   virtual Ascend core; nothing here has run on an Ascend chip. What needs a compiler that is not installed is not
#   graded, and says so: `W2W_EXTRAS=hip,nvrtc,tilelang ./w2w study` installs them.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it.
#   `hint("14.gemm")` gives three hints of growing strength. `solution("14.gemm")` asks first.

# %% imports tags=["setup"]
import math

from gpu_utils import check, explore, hint, lesson, progress, solution

# %% [markdown] part 1
# ## Part 1: one source

# %% [markdown] statement of gemm
# ## 14.gemm: a persistent product for three vendors
#
# The lesson's product has a block for each tile. On an AI core that is not how one works: a chip has 28 cores, they are
# started once, and each makes tile after tile. GPUs know this style as a **persistent** kernel. Write one tile program
# for `c = a @ b.T` in that style, for all three vendors.
#
# `a` is `(M, K)`, `b` is `(N, K)`, both of `dtype` (`"float16"` or `"bfloat16"`); `c` is `(M, N)` in float32, and sums
# are float32. `M`, `N` and `K` are multiples of the tile's `BM`, `BN` and `BK`, which are 32 or 64.
#
# `gemm(T, vendor, M, N, K, BM, BN, BK, dtype, cores)` returns what stands under `@T.prim_func`, with the tensors `a`,
# `b`, `c` in this order. Exactly `cores` blocks (AI cores) are launched, and there are never more of them than tiles.
# Tiles are counted row by row and dealt in turn: tile t goes to core t % cores. With `M = 64`, `N = 96` and tiles of 32
# there are 2 rows of 3 tiles, tile 5 is rows 32 to 63 of columns 64 to 95; with 4 cores, core 1 makes tiles 1 and 5,
# core 2 makes tile 2 alone.
#
# What you need beside the lesson's words: `for i in T.serial(n):` is an ordinary loop, and `n` may be computed from the
# number of the core. Buffers are allocated once, before it.
#
# The check lowers your program, compiles it and **executes it on the virtual `sm_80` and `gfx942` and on a virtual
# Ascend core**, with sizes, tiles, types and cores of its own. The result must be right to float32, the multiplications
# must be done by the matrix units, and each tile may load its rows of `a` and `b` once.
#
# **A puzzle.** The sums lie in one buffer, tile after tile. Who makes sure that the next tile does not add to the last
# one, and that it is not overwritten before it was stored?


# %% 14.gemm tags=["answer", "14.gemm"]
def gemm(T, vendor, M, N, K, BM, BN, BK, dtype, cores):
    """A tile program: c = a @ b.T by `cores` blocks, on an SM, a CU and an AI core."""
    # BEGIN SOLUTION
    npu = vendor == "ascend"
    tiles, columns = (M // BM) * (N // BN), N // BN
    threads = {} if npu else {"threads": 128}
    stage = T.alloc_l1 if npu else T.alloc_shared
    accumulator = T.alloc_l0c if npu else T.alloc_fragment

    @T.prim_func
    def main(
        a: T.Tensor((M, K), dtype),
        b: T.Tensor((N, K), dtype),
        c: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(cores, **threads) as core:
            a_tile = stage((BM, BK), dtype)
            b_tile = stage((BN, BK), dtype)
            sums = accumulator((BM, BN), "float32")
            for i in T.serial((tiles - core + cores - 1) // cores):
                m = (core + i * cores) // columns * BM
                n = (core + i * cores) % columns * BN
                for k in T.Pipelined(K // BK, num_stages=2):
                    T.copy(a[m, k * BK], a_tile)
                    T.copy(b[n, k * BK], b_tile)
                    T.gemm(a_tile, b_tile, sums, transpose_B=True, clear_accum=(k == 0))
                T.copy(sums, c[m, n])

    return main
    # END SOLUTION


# %% 14.gemm check tags=["check", "14.gemm"]
check("14.gemm")

# %% [markdown] why gemm
# **Why it matters.** This is what "one source" means, and what it does not: loops, tiles and copies are one text, and
# where a tile lives is a branch. The bytes from memory are those of the tile on every chip. Which tile is a good one is
# not the same everywhere: `14.portability` counts that.
#
# <details><summary>The puzzle</summary>
#
# That sums begin anew is yours, `clear_accum`. That they are stored before the next tile's first product overwrites
# them is TileLang's: look for the flag from FIX to M in the lowered source. On a GPU each lane stores its own
# registers, and a lane does one thing after the other.
#
# </details>


# %% [markdown] statement of fused_epilogue
# ## 14.fused_epilogue: from the matrix unit to the vector units
#
# The same product with an epilogue: `out = silu(scale * (a @ b.T) + bias)`, where `silu(v) = v / (1 + exp(-v))`. `a` is
# `(M, K)` and `b` is `(N, K)`, both float16; `bias` is `(N,)` in float32, an element for each *column*; `out` is `(M,
# N)` in float16. Sums, scale, bias and `silu` are float32, and the result is rounded once. With a sum of 16, a scale of
# 0.125 and a bias of -2, `v` is 0, and so is the result.
#
# `fused_epilogue(T, vendor, M, N, K, BM, BN, BK, scale)` returns the tile program; its tensors are `a`, `b`, `bias`,
# `out`. `scale` is a number of Python. Sums must not go to memory on their way: the check counts bytes.
#
# On a GPU the lanes that have called the tensor cores hold the sums in registers: a loop `for i, j in T.Parallel(rows,
# columns):` over a fragment, or over shared memory, is work for all threads. `T.exp` is the exponential. On an AI core
# the sums lie in L0C, which only the cube core has. Its fixpipe hands them to *both* vector cores of the AI core:
#
# - `T.dual_copy(sums, part)`: from L0C to a buffer of `BM // 2` rows, `T.alloc_shared`, in the unified buffer of each
#   vector core; core 0 gets the upper half, core 1 the lower one;
# - `with T.SimtVF(threads=128):` around a `T.Parallel` loop runs it on a vector core;
# - `T.copy(bias[...], buffer)` brings the same elements to both cores;
# - `T.dual_copy(part, out[m : m + BM, n : n + BN])`: each core stores its half.
#
# You write no flag: TileLang sees which core needs what, and places them, also between the cores.


# %% 14.fused_epilogue tags=["answer", "14.fused_epilogue"]
def fused_epilogue(T, vendor, M, N, K, BM, BN, BK, scale):
    """A tile program: out = silu(scale * (a @ b.T) + bias); no sum goes to memory."""
    # BEGIN SOLUTION
    npu = vendor == "ascend"
    blocks = (M // BM) * (N // BN)
    threads = {} if npu else {"threads": 128}
    tile = T.alloc_l1 if npu else T.alloc_shared
    accumulator = T.alloc_l0c if npu else T.alloc_fragment

    @T.prim_func
    def main(
        a: T.Tensor((M, K), "float16"),
        b: T.Tensor((N, K), "float16"),
        bias: T.Tensor((N,), "float32"),
        out: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(blocks, **threads) as t:
            a_tile = tile((BM, BK), "float16")
            b_tile = tile((BN, BK), "float16")
            sums = accumulator((BM, BN), "float32")
            shift = T.alloc_shared((BN,), "float32")
            m = t // (N // BN) * BM
            n = t % (N // BN) * BN
            for k in T.Pipelined(K // BK, num_stages=2):
                T.copy(a[m, k * BK], a_tile)
                T.copy(b[n, k * BK], b_tile)
                T.gemm(a_tile, b_tile, sums, transpose_B=True, clear_accum=(k == 0))
            T.copy(bias[n], shift)
            if npu:
                part = T.alloc_shared((BM // 2, BN), "float32")
                done = T.alloc_shared((BM // 2, BN), "float16")
                T.dual_copy(sums, part)
                with T.SimtVF(threads=128):
                    for i, j in T.Parallel(BM // 2, BN):
                        v = scale * part[i, j] + shift[j]
                        done[i, j] = v / (1.0 + T.exp(-v))
                T.dual_copy(done, out[m : m + BM, n : n + BN])
            else:
                for i, j in T.Parallel(BM, BN):
                    v = scale * sums[i, j] + shift[j]
                    sums[i, j] = v / (1.0 + T.exp(-v))
                T.copy(sums, out[m, n])

    return main
    # END SOLUTION


# %% 14.fused_epilogue check tags=["check", "14.fused_epilogue"]
check("14.fused_epilogue")

# %% [markdown] why fused_epilogue
# **Why it matters.** Every linear layer ends so. On a GPU fusing saves a kernel and a round trip; on an AI core it is
# also what lets cube and vector cores work at the same time. Which of the two units waits for the other is a question
# of FLOPs for each element: a short `K` leaves the cube core waiting for `exp`.


# %% [markdown] part 2
# ## Part 2: layouts and proofs

# %% [markdown] statement of swizzle
# ## 14.swizzle: a tile without bank conflicts
#
# A tile of `rows` x `cols` elements, `size` bytes each, goes through shared memory (LDS). It comes in along its rows;
# a matrix instruction reads it 16 rows at a time. Both move **pieces** of 16 bytes of one row. Write
# `swizzle(row, col, cols, size)`: the place of one element, so that no access waits for a bank.
#
# | | |
# |---|---|
# | `row`, `col` | the element, from 0; there is a multiple of 16 rows |
# | `cols` | elements of a row; a row has 4, 8, 12, 16, 20 or 24 pieces |
# | `size` | bytes of an element: 1, 2 or 4 |
# | result | its place in shared memory, a whole number, counted in elements from 0 |
#
# What the check looks at, for every element of several tiles:
#
# - **No padding**: rows x cols places, each taken once.
# - **Pieces stay whole**: the 16 bytes from a multiple of 16 bytes on in a row lie together, in order, and begin at a
#   multiple of 16 bytes.
# - **Writes**: lane $l$ of the $i$-th access of $L$ lanes takes piece $iL + l$ of the tile, counted along the rows.
# - **Reads**: lane $l$ takes row $l \bmod 16$ and piece $\lfloor l / 16 \rfloor$ of a block of 16 rows: 2 pieces
#   wide for 32 lanes, as `ldmatrix` reads them, 4 pieces wide for 64.
# - **Conflicts**: none, counted on the virtual sm_80 (sm_90 has the same banks) and gfx942. Any layout that does it is
#   right.
#
# Remember the phases of unit 02: accesses of 16 bytes are served 8 lanes at a time. On NVIDIA these are neighbours.
# On gfx942 a phase of reads holds lanes 0 to 3 and 20 to 23: pieces of two columns.
#
# **A small example.** Elements of 2 bytes, `cols = 32`: a row is 64 bytes, 4 pieces of 8 elements. With
# `row * cols + col`, element (2, 0) is at place 64, which is byte 128. That is bank 0 again, where element (0, 0) is
# and one phase reads both. So the place of (2, 0) must be another: 72, 80 and 88 are still in its row.


# %% 14.swizzle tags=["answer", "14.swizzle"]
def swizzle(row: int, col: int, cols: int, size: int) -> int:
    """Place of an element in shared memory, counted in elements.

    Many layouts are right. The first row may stay as it is:

    >>> swizzle(0, 5, 32, 2)
    5
    """
    # BEGIN SOLUTION
    each = 16 // size  # elements of a piece
    pieces = cols // each
    # the largest power of two in pieces, at most 8
    lowest = min(pieces & -pieces, 8)
    piece = col // each ^ row // (8 // lowest) % lowest
    return row * cols + piece * each + col % each
    # END SOLUTION


# %% 14.swizzle check tags=["check", "14.swizzle"]
check("14.swizzle")

# %% [markdown] after swizzle
# **Why it matters.** This is what compilers put between you and shared memory: TileLang, Triton and CUTLASS choose
# such a map for every tile that feeds a matrix instruction. The explorer shows banks and passes for any formula in
# `row` and `col`. Change `row % 8` to `row % 4` in it, and watch the reads.

# %% explore layout
explore("layout", "row * cols + (col ^ row % 8 * 8)")


# %% [markdown] statement of prove_bounds
# ## 14.prove_bounds: in bounds at every size
#
# A kernel that passed its tests has been in bounds at the sizes that were tried. Write
# `prove_bounds(names, given, index, length, bits, rlimit)`, which says whether it is for **all** sizes, with Z3: a
# program that is given conditions on unknowns and finds numbers that meet them, or shows that there are none.
#
# | | |
# |---|---|
# | `names` | name of an unknown -> `(smallest, largest)`, both possible |
# | `given` | list of conditions that hold, as text: the size of the grid, a mask |
# | `index`, `length` | formulas as text: the index of one access, the number of elements |
# | `bits` | of the signed whole numbers in which the kernel computes the index |
# | `rlimit` | units of work that Z3 may do, see below |
# | result | `("proved", None)`, `("refuted", numbers)` with a number for each name, or `("unknown", None)` |
#
# An access is **at fault** for numbers in the ranges that meet all of `given` if
#
# - the index is below 0, or not below `length`; or
# - a step on the way to the index does not fit into `bits` bits: below $-2^{bits - 1}$ or above $2^{bits - 1} - 1$.
#
# `lesson.formula("pid * 128 + lane", {"pid": ..., "lane": ...})` is the value of a formula: a number for numbers, a
# term of Z3 for unknowns of Z3. `lesson.steps("(low + high) // 2")` lists the steps of one, here `low + high` and the
# whole. In formulas // and % round down, and divisors are above 0.
#
# What you need of Z3: `z3.Int(name)` is an unknown whole number, without a largest one. (`lesson.formula`
# reads bit vectors as numbers from 0 up, so they would miss what is below 0 here.) `solver = z3.Solver()`;
# `solver.set("rlimit", rlimit)`; `solver.add(condition, ...)`; `solver.check()` is `z3.sat` (there are numbers),
# `z3.unsat` (there are none) or `z3.unknown` (it gave up). After `z3.sat`,
# `solver.model().eval(unknown, model_completion=True).as_long()` is a number. `z3.And`, `z3.Or`, `z3.Not` combine.
# Write `import z3` into your function. It comes with the extra `tilelang`.
#
# **A small example.** Reading the next element, with `given` no more than that `i` is an element. Some numbers are at
# fault, `i = 0` and `n = 1` for example; yours may be others.
#
# **A puzzle.** `(low + high) // 2` is never above `high`. What is wrong with it?


# %% 14.prove_bounds tags=["answer", "14.prove_bounds"]
def prove_bounds(
    names: dict, given: list, index: str, length: str, bits: int, rlimit: int
) -> tuple:
    """("proved", None), ("refuted", {name: number}) or ("unknown", None).

    >>> names = {"i": (0, 9), "n": (1, 10)}
    >>> prove_bounds(names, ["i < n"], "i + 1", "n", 32, 10_000_000)[0]
    'refuted'
    """
    # BEGIN SOLUTION
    import z3

    unknowns = {name: z3.Int(name) for name in names}
    at = lesson.formula(index, unknowns)
    faults = [at < 0, at >= lesson.formula(length, unknowns)]
    for step in lesson.steps(index):
        value = lesson.formula(step, unknowns)
        faults += [value < -(2 ** (bits - 1)), value > 2 ** (bits - 1) - 1]
    solver = z3.Solver()
    solver.set("rlimit", rlimit)
    for name, (smallest, largest) in names.items():
        solver.add(smallest <= unknowns[name], unknowns[name] <= largest)
    solver.add(*(lesson.formula(condition, unknowns) for condition in given))
    solver.add(z3.Or(faults))
    found = solver.check()
    if found == z3.sat:
        model = solver.model()
        numbers = {
            name: model.eval(one, model_completion=True).as_long()
            for name, one in unknowns.items()
        }
        return "refuted", numbers
    return ("proved" if found == z3.unsat else "unknown"), None
    # END SOLUTION


# %% 14.prove_bounds check tags=["check", "14.prove_bounds"]
check("14.prove_bounds")

# %% [markdown] after prove_bounds
# **What you have.** A proof for every size in the ranges, from one question. "unknown" is an answer as well: one of
# the cases asks for the factors of a large number, and no solver owes you those.
#
# <details><summary>The puzzle</summary>
#
# The result is in bounds; the sum on the way is not: `low + high` needs 33 bits once both are above $2^{30}$.
# `low + (high - low) // 2` has the same value, and every step fits.
#
# </details>


# %% [markdown] statement of prove_bijective
# ## 14.prove_bijective: every place once
#
# A swizzle, an order of tiles, a list of experts dealt to ranks: each maps indices to places, and is right only if
# every place is hit once. Write `prove_bijective(sizes, given, indices, place, places, rlimit)`, which decides it for
# all sizes at once.
#
# | | |
# |---|---|
# | `sizes` | name of a size -> `(smallest, largest)` |
# | `given` | list of conditions on the sizes, as text |
# | `indices` | name of an index -> its bound, a formula in the sizes: it is 0 or more, and below the bound |
# | `place` | formula in sizes and indices: where the element with these indices goes |
# | `places` | formula in the sizes: how many places there are, 0 to `places` - 1 |
# | `rlimit` | units of work that Z3 may do for one question |
#
# The result is a pair of a verdict and what shows it. Where several things are wrong, any of them will do:
#
# | verdict | shown by | |
# |---|---|---|
# | `"bijective"` | `None` | for all sizes, every place has one element |
# | `"outside"` | a dict: number of each size and index | this element goes to a place that is none |
# | `"collision"` | a pair of such dicts | two elements of one map, with the same sizes, go to one place |
# | `"gap"` | a dict: number of each size | fewer elements than places, so some place stays empty |
# | `"unknown"` | `None` | Z3 gave up |
#
# `place` may hold `^`, the xor of bits, which Z3's whole numbers do not have. `z3.BitVec(name, 32)` is an unknown of
# 32 bits; `lesson.formula` takes it as well, and reads it as a number from 0 up. Where a formula has `^`, every number
# is below $2^{24}$. Whole numbers are the better choice elsewhere: bit vectors multiply unknowns slowly.
#
# **Two small examples.** `n - 1 - i` with `i` below `n` reverses a list, and is bijective. `i // 2` puts 0 and 1
# together, a collision; with `n = 1` it would be a bijection.
#
# **A puzzle.** "Every place has an element" is a 'for all' with a 'there is' in it. Solvers are weak there. Why can
# you do without?


# %% 14.prove_bijective tags=["answer", "14.prove_bijective"]
def prove_bijective(
    sizes: dict, given: list, indices: dict, place: str, places: str, rlimit: int
) -> tuple:
    """(verdict, what shows it): see the table above.

    >>> prove_bijective({"n": (1, 10)}, [], {"i": "n"}, "n - 1 - i", "n", 10_000_000)
    ('bijective', None)
    >>> prove_bijective({"n": (1, 10)}, [], {"i": "n"}, "i // 2", "n", 10_000_000)[0]
    'collision'
    """
    # BEGIN SOLUTION
    import z3

    def unknown(name: str) -> "z3.ExprRef":
        return z3.BitVec(name, 32) if "^" in place else z3.Int(name)

    def known(numbers: dict) -> list:
        texts = [f"{low} <= {name}" for name, (low, _) in sizes.items()]
        texts += [f"{name} <= {high}" for name, (_, high) in sizes.items()]
        texts += [f"0 <= {name}" for name in indices]
        texts += [f"{name} < {bound}" for name, bound in indices.items()]
        return [lesson.formula(text, numbers) for text in [*texts, *given]]

    def ask(*conditions: "z3.BoolRef") -> tuple:
        solver = z3.Solver()
        solver.set("rlimit", rlimit)
        solver.add(*conditions)
        found = solver.check()
        return found, solver.model() if found == z3.sat else None

    def shown(model: "z3.ModelRef", numbers: dict) -> dict:
        return {
            name: model.eval(one, model_completion=True).as_long()
            for name, one in numbers.items()
        }

    of_sizes = {name: unknown(name) for name in sizes}
    one = {**of_sizes, **{name: unknown(name) for name in indices}}
    other = {**of_sizes, **{name: unknown(name + " too") for name in indices}}
    below, above = f"({place}) < 0", f"({place}) >= ({places})"
    apart = z3.Or([one[name] != other[name] for name in indices])
    same = lesson.formula(place, one) == lesson.formula(place, other)
    elements = " * ".join(f"({bound})" for bound in indices.values())
    asked = {
        "outside": [z3.Or(lesson.formula(below, one), lesson.formula(above, one))],
        "collision": [*known(other), apart, same],
        "gap": [lesson.formula(f"{elements} < ({places})", one)],
    }
    verdicts = []
    for verdict, conditions in asked.items():
        found, model = ask(*known(one), *conditions)
        if model is not None and verdict == "collision":
            return verdict, (shown(model, one), shown(model, other))
        if model is not None:
            return verdict, shown(model, one if verdict == "outside" else of_sizes)
        verdicts.append(found)
    return ("bijective" if verdicts == [z3.unsat] * 3 else "unknown"), None
    # END SOLUTION


# %% 14.prove_bijective check tags=["check", "14.prove_bijective"]
check("14.prove_bijective")

# %% [markdown] after prove_bijective
# **Why it matters.** The xor of 14.swizzle for rows of 128 bytes, proved for any number of rows; and the map that goes
# wrong from row 512 on, which no test of small tiles finds.
#
# <details><summary>The puzzle</summary>
#
# Sets here are finite. If no two elements share a place, and none is outside, then as many places are taken as there
# are elements. Equal numbers leave no place empty. Counting needs no 'for all'.
#
# </details>


# %% [markdown] part 3
# ## Part 3: who moves the data

# %% [markdown] statement of flags
# ## 14.flags: who waits for whom
#
# Below is a kernel in AscendC, the language that TileLang lowers to for an Ascend AI core: `y = x / (1 + exp(-x))`,
# tile by tile, on a vector core. Everything is there but its synchronisation. A vector core has four units that work at
# the same time: the scalar unit runs the text, and three *pipes* do what it hands them. A call returns at once; a pipe
# does what it was given in order, and knows nothing of the other pipes.
#
# | call | pipe | reads | writes |
# |---|---|---|---|
# | `load(t)` | `PIPE_MTE2` | `x` in memory | `x0` or `x1` |
# | `compute(t)` | `PIPE_V` | `x0` or `x1` | `y0` or `y1` |
# | `store(t)` | `PIPE_MTE3` | `y0` or `y1` | `y` in memory |
#
# Tile `t` uses the buffers `x0` and `y0` in the unified buffer where `t` is even, `x1` and `y1` where it is odd. Two
# calls order two pipes:
#
# - `asc_sync_notify(from, to, event(id))` is queued on pipe `from` behind what that pipe was given before; when its
#   turn comes, it sets the flag `(from, to, id)`.
# - `asc_sync_wait(from, to, event(id))` is queued on pipe `to`, which stops there until the flag is set, and clears it.
#
# A flag holds one notify: to set it again before it was waited for is a fault. `id` is 0 to 15. `asc_sync()` waits
# until all pipes are empty.
#
# Write the part of the kernel that calls `load(t)`, `compute(t)` and `store(t)` for the tiles 0 to `TILES - 1`, with
# the flags that it needs. `flags() -> str` returns the whole source. With one tile, data has to be in order, and
# nothing else: the load comes before the computation, that before the store, so two flags do. From the third tile on a
# buffer is written again that somebody may still be reading.
#
# Your part may have these calls, loops, conditions, and whole numbers and functions (`auto f = [&](int t) {...};`) with
# names of your own; no arrays, pointers or other calls. What stands around it stays as it is.
#
# Your source is compiled and **executed on a virtual Ascend core**, for several numbers of tiles. It must
#
# 1. have no fault: nothing is read before a flag says that it is there, nothing is overwritten before a flag says that
#    it was read, no wait is for ever, and no flag is still set at the end;
# 2. give the right `y`, float32;
# 3. overlap: were every load, computation and store one step long, `n` tiles would take `n + 2` steps, in place of the
#    `3 n` of one after the other.


# %% 14.flags tags=["answer", "14.flags"]
def flags() -> str:
    """AscendC of silu_tiles(x, y, tiles), with its flags."""
    return """
// INSERT gpu_utils/exercises/u14_tilelang/flags.cpp
"""


# %% 14.flags check tags=["check", "14.flags"]
check("14.flags")

# %% [markdown] why flags
# **Why it matters.** TileLang places these flags for you, from the same graph that you drew. When it places one too
# few, or a kernel is written by hand, the result is right on most days: here every run looks at who has made what
# ready, whatever came out. The four flags have a counterpart on each machine: a full and an empty `mbarrier` for each
# stage of a TMA pipeline, `s_waitcnt` and `s_barrier` around a double buffer in LDS.


# %% [markdown] memory_plan
# ## 14.memory_plan: tiles and offsets
#
# Attention keeps a tile of queries and walks over the keys. Write `memory_plan(memories, buffers, tiles, n)`: the best
# tile that fits into the on-chip memories, and where each buffer lies. It returns `None` where no tile fits, or
#
# `{"tile": tile, "offsets": {name: [offset of each copy]}}`, offsets in bytes, a name for every buffer.
#
# | `memories[name]` | | a buffer | |
# |---|---|---|---|
# | `bytes` | of one part | `name`, `memory` | what it is, and where |
# | `parts` | share the rows of a tile | `shape` | numbers, or names of sizes in the tile; rows first |
# | `align` | offsets are multiples of it | `itemsize` | bytes of an element |
# | | | `copies` | 1 or `"stages"` |
# | | | `live` | `[first, last]`, steps of a round |
#
# A tile is `{"queries": ..., "keys": ..., "stages": ...}`, `tiles` is a list of them, `n` the number of queries, and of
# keys. `"queries"` in a shape stands for the tile's `queries`.
#
# **Size.** A part holds `ceil(rows / parts)` rows of a buffer, times the other sizes, times `itemsize`. All parts are
# laid out alike, so one offset serves for all.
#
# **Life.** A buffer is written in its first step and read in its last: both belong to its life. If it has two copies or
# more, each copy is live in every step, from 0 to the largest last step of all buffers: data of later rounds is on its
# way into them.
#
# **A plan fits** when every offset is a multiple of `align`, every copy ends within `bytes`, and no two copies that are
# live in the same step share a byte. A copy need not end on a multiple of `align`.
#
# **The best tile** has the fewest blocks, `ceil(n / queries)`, because each block reads all keys and values. Of these,
# the fewest rounds of a block, `ceil(n / keys)`; of these, the most stages. Any offsets that fit are right. At most 9
# copies share a memory, so you can be certain: say `None`, or pass over a tile, only where no offsets fit.
#
# **A small example**, with `n = 16`. The cell below the answer has its numbers.
#
# | memory | bytes | parts | align |
# |---|---|---|---|
# | `L1` | 128 | 1 | 32 |
# | `UB` | 160 | 2 | 32 |
#
# | buffer | memory | shape | itemsize | copies | live | 4 x 8, 1 stage | 8 x 8, 1 | 8 x 4, 1 | 8 x 4, 2 |
# |---|---|---|---|---|---|---|---|---|---|
# | `K` | `L1` | `keys`, 8 | 2 | `"stages"` | 0 to 0 | 128 | 128 | 64 | 2 of 64 |
# | `S` | `UB` | `queries`, `keys` | 4 | 1 | 0 to 1 | 64 | 128 | 64 | 64 |
# | `P` | `UB` | `queries`, `keys` | 2 | 1 | 1 to 2 | 32 | 64 | 32 | 32 |
# | `O` | `UB` | `queries`, 8 | 4 | 1 | 2 to 2 | 64 | 128 | 128 | 128 |
#
# With 8 x 8, `S` and `P` are live in step 1 and need 192 of 160 bytes. With 8 x 4, `O` needs bytes 0 to 127, so `P`
# goes to 128, although byte 64 is free when `S` has its place:
#
# `{"tile": {"queries": 8, "keys": 4, "stages": 2}, "offsets": {"K": [0, 64], "S": [0], "P": [128], "O": [0]}}`


# %% 14.memory_plan tags=["answer", "14.memory_plan"]
def memory_plan(
    memories: dict[str, dict[str, int]],
    buffers: list[dict],
    tiles: list[dict[str, int]],
    n: int,
) -> dict | None:
    """The best tile that fits, with an offset for each copy of each buffer."""
    # BEGIN SOLUTION
    end = max(one["live"][1] for one in buffers)

    def copies_in(memory, tile):
        found = []
        for one in buffers:
            if one["memory"] == memory:
                rows, *more = (tile.get(size, size) for size in one["shape"])
                size = math.ceil(rows / memories[memory]["parts"]) * math.prod(more)
                copies = tile["stages"] if one["copies"] == "stages" else 1
                live = (0, end) if copies > 1 else one["live"]
                found += [(one["name"], size * one["itemsize"], *live)] * copies
        return found

    def fill(memory, found):
        room, align = memories[memory]["bytes"], memories[memory]["align"]
        at = {}

        def place(left):
            if not left:
                return True
            for i in left:
                _, size, first, last = found[i]
                tops = [0]
                for j in at:
                    if first <= found[j][3] and found[j][2] <= last:
                        tops.append(at[j] + found[j][1])
                low = math.ceil(max(tops) / align) * align
                if low + size <= room:
                    at[i] = low
                    if place(left - {i}):
                        return True
                    del at[i]
            return False

        fits = place(frozenset(range(len(found))))
        return [at[i] for i in range(len(found))] if fits else None

    def order(tile):
        blocks, rounds = math.ceil(n / tile["queries"]), math.ceil(n / tile["keys"])
        return blocks, rounds, -tile["stages"]

    for tile in sorted(tiles, key=order):
        offsets = {one["name"]: [] for one in buffers}
        for memory in memories:
            found = copies_in(memory, tile)
            places = fill(memory, found)
            if places is None:
                break
            for (name, *_), place in zip(found, places, strict=True):
                offsets[name].append(place)
        else:
            return {"tile": tile, "offsets": offsets}
    return None
    # END SOLUTION


# %% 14.memory_plan check tags=["check", "14.memory_plan"]
check("14.memory_plan")

# %% [markdown] own plan
# **Three machines.** Your function on attention with vectors of 128, in the memories of an SM, a CU and an AI core.
# Tiles of 128 queries and multiples of it share out evenly over four waves, two groups of four warps and two vector
# cores. Before you run it: which memory is full first on each machine? Then change `d` to 256 in both places, and
# decide: on which machine is it worth the work to split `d`, so that a product runs in two halves?

# %% your plan
tiles = [
    {"queries": queries, "keys": keys, "stages": stages}
    for queries in (128, 256, 384, 512)
    for keys in range(32, 257, 32)
    for stages in (1, 2, 3)
]
planned = {}
with lesson.when_written():
    for machine in ("sm_90", "gfx942", "ascend950"):
        memories, buffers = lesson.attention_buffers(machine, d=128)
        planned[machine] = memory_plan(memories, buffers, tiles, 4096)
lesson.plan_figure(planned, d=128) if planned else None


# %% [markdown] statement of portability
# ## 14.portability: which tile survives the move?
#
# One tile program, several tile sizes, several chips. Write `portability(counts, chips, work)`: pick the tile that
# keeps most of the roofline **on the chip where it keeps least**, and say for it, chip by chip, what bounds it there
# and which fraction of the roofline it keeps.
#
# `counts[tile][chip]` is what one block of that tile counted on the chip, or `None` where the compiler refuses the
# tile:
#
# | key | |
# |---|---|
# | `blocks` | blocks of the whole launch; a block runs on one unit (SM, CU, AI core) |
# | `bytes` | bytes that **one block** moves between the chip and its memory, behind L2 |
# | `spilled` | bytes of **one block** beside `bytes`: what found no register goes to memory and comes back |
# | `matrix`, `other` | FLOPs of **one block** on the matrix units, and on all others, which work side by side |
# | `resident` | blocks that fit on one unit at the same time |
# | `buffers` | buffers for the rows of A and B: with 2, one fills while the other is multiplied |
#
# `chips[chip]` is the **whole chip**: `units`, the FLOP/s of the matrix units `matrix` and of all others `other`, and
# bytes/s `memory`. `work` is the operator itself, whatever the tiles: `flops` and the fewest `bytes`.
#
# - **Arithmetic** belongs to a unit. Units get blocks as evenly as whole blocks allow, and the launch takes as long
#   as the unit with the most blocks. Each unit has its share of the chip's FLOP/s; resident blocks share their unit.
# - **Copies** share one way to memory: the bytes of all blocks, over `memory`.
# - **Together**: they run at the same time where one unit has something to multiply while it waits: where
#   `resident * buffers` is 2 or more. Else the seconds of the copies and those of the arithmetic add up.
# - **Bound**: `"matrix"`, `"other"` or `"memory"`: the one that takes longest by itself.
# - **Fraction**: the least seconds that the operator needs on this chip, from `work` and the two rates of its
#   roofline (`matrix` and `memory`), over the seconds of the launch.
#
# The result is `(tile, {chip: (bound, fraction)})`. A tile that a chip of `chips` refuses is out; when none is left
# the result is `(None, {})`. Of equal tiles take any.
#
# **A small example.** Two chips and two tiles. The last five columns are results: three times and the launch in
# seconds, and the fraction:
#
# | | blocks | bytes | spilled | matrix | other | resident | buffers | matrix | other | copies | launch | fraction |
# |---|---|---|---|---|---|---|---|---|---|---|---|---|
# | small on gpu | 16 | 100 | 0 | 500 | 10 | 2 | 1 | 2 | 0.4 | 1.6 | 2 | 1 |
# | small on npu | 16 | 100 | 0 | 500 | 10 | 1 | 2 | 2 | 0.4 | 3.2 | 3.2 | 0.625 |
# | large on gpu | 4 | 200 | 50 | 2000 | 40 | 1 | 1 | 2 | 0.4 | 1 | 3 | 0.667 |
# | large on npu | 4 | 200 | 0 | 2000 | 40 | 1 | 2 | 2 | 0.4 | 1.6 | 2 | 1 |
#
# The gpu has 4 units, 4,000 FLOP/s on its matrix units, 400 elsewhere and 1,000 bytes/s; the npu 2 units, 4,000, 400
# and 500 bytes/s. The operator has 8,000 FLOPs and 1,000 bytes, so its least time is 2 s on both. `large` keeps two
# thirds where it keeps least, `small` 0.625: the result is `("large", {"gpu": ("matrix", 0.667), "npu": ("matrix",
# 1.0)})`, unrounded.


# %% 14.portability tags=["answer", "14.portability"]
def portability(counts: dict, chips: dict, work: dict) -> tuple:
    """(tile, {chip: (bound, fraction)}): the tile that keeps most on its worst chip."""
    # BEGIN SOLUTION
    best, chosen, report = 0.0, None, {}
    for tile, row in counts.items():
        if any(row[name] is None for name in chips):
            continue
        shares = {}
        for name, chip in chips.items():
            one = row[name]
            busiest = -(-one["blocks"] // chip["units"])
            moved = one["blocks"] * (one["bytes"] + one["spilled"])
            times = {
                "matrix": busiest * one["matrix"] * chip["units"] / chip["matrix"],
                "other": busiest * one["other"] * chip["units"] / chip["other"],
                "memory": moved / chip["memory"],
            }
            arithmetic = max(times["matrix"], times["other"])
            if one["resident"] * one["buffers"] >= 2:
                launch = max(arithmetic, times["memory"])
            else:
                launch = arithmetic + times["memory"]
            least = max(work["flops"] / chip["matrix"], work["bytes"] / chip["memory"])
            shares[name] = (max(times, key=times.get), least / launch)
        kept = min(fraction for _, fraction in shares.values())
        if kept > best:
            best, chosen, report = kept, tile, shares
    return chosen, report
    # END SOLUTION


# %% 14.portability check tags=["check", "14.portability"]
check("14.portability")

# %% [markdown] one block on three machines
# **The same block, counted.** Before the counters are believed: here is one block of a product in TileLang, 64 rows
# of A and 64 of B, 128 elements long, lowered for three vendors and executed on two virtual GPUs and a virtual AI
# core. Beside what was counted is what the table of the next cells has for such a block.

# %% counted on three machines
lesson.table(lesson.counted_block(BM=64, BN=64, BK=32, K=128), first="chip")

# %% [markdown] a product on three chips
# **Three vendors, one product.** Now 4,096 x 4,224 x 4,096 in float16, too large to execute: the counters of a block
# grow with the rows and columns of its tile and with the number of blocks, as in the block above. Three things are
# assumed, not counted: how often L2 saves a way to memory (6 blocks share a row on the H100, 4 on the MI300X, 3 on
# the Ascend), two buffers everywhere, and spills where the sums of a tile take more than a quarter of a GPU's
# registers.
#
# The chips first. All rates of the Ascend are derived from sizes and clock.
#
# > **Facts: the memory of an Ascend 950PR**
# >
# > - 27 bytes of a cycle for each of 28 cores at 1,650 MHz are 1.25 TB/s
# >   (source: CANN platform_config Ascend950PR_957bx.ini).
# > - A report on the announced chip has about 1.6 TB/s
# >   (source: whatpsu.com, Huawei Ascend 950 AI accelerator revealed in new image).
#
# This cannot show how fast anything is on these chips: nothing ran there. It says where a port will lose first, and
# why.

# %% the three chips
chips_of = {
    target: lesson.machine(target) for target in ("sm_90", "gfx942", "ascend950")
}
lesson.sourced(
    {
        f"{chip.name}: {what}": getattr(chip, what)
        for chip in chips_of.values()
        for what in ("units", "matrix", "other", "memory")
    }
)

# %% one tile for all, and one for each
picked = {}
with lesson.when_written():
    product = lesson.tiled_product()
    alone = [{name: chip} for name, chip in product["chips"].items()]
    for chips in (product["chips"], *alone):
        tile, report = portability(product["counts"], chips, product["work"])
        kept = {
            name: f"{share:.2f}, {bound}" for name, (bound, share) in report.items()
        }
        picked[f"best on {', '.join(chips)}"] = {"tile": tile} | kept
lesson.table(picked, first="pick")

# %% [markdown] what the move costs
# The first row is the program that runs everywhere, the others are tiles that were chosen for one chip alone. How
# much does each chip give up for the others, and which of the three bounds is to blame? A second table of tiles, one
# for each chip, gives it back: the program stays, its sizes do not.

# %% [markdown] end of the lab
# ## Done
#
# One operator runs on three vendors' machine code from one text; you have said who waits for whom, proved what tests
# cannot, and planned where everything lies. Unit 15 puts the parts of all units together.

# %% progress
progress()
