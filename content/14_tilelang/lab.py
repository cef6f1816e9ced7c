# %% [markdown] top
# # Lab 14: one source, three vendors
#
# **Eight exercises.** TODO top

# %% imports tags=["setup"]
from gpu_utils import check, explore, hint, lesson, progress, solution

# %% [markdown] part 1
# ## Part 1: one source

# %% [markdown] TODO gemm
# TODO gemm


# %% [markdown] TODO fused_epilogue
# TODO fused_epilogue


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
# `row` and `col`. Change `8` to `4` in it, and watch the reads.

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
# What you need of Z3: `z3.Int(name)` is an unknown whole number, without a largest one. `solver = z3.Solver()`;
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
# Formulas may hold `^`, the xor of bits, which Z3's whole numbers do not have. `z3.BitVec(name, 32)` is an unknown of
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

# %% [markdown] TODO flags
# TODO flags


# %% [markdown] TODO memory_plan
# TODO memory_plan


# %% [markdown] TODO portability
# TODO portability
