"""14.prove_bounds: no lane reads or writes past a tensor, at any size; or numbers for which one does."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpu_utils.analytic.formulas import formula
from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u14_tilelang import prove_bounds_slips as slips
from gpu_utils.exercises.u14_tilelang.proofs import ENOUGH, LITTLE, broken, numbered, pair, said, short, with_z3
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

INT = 2**31 - 1
SIZE = (1, INT)


@dataclass(frozen=True)
class Access:
    """One access, what is known about its numbers, and numbers for which it goes wrong; None where it never does.

    names   name -> (smallest, largest); given: conditions that hold; bits: of the integers that the index is made of
    """

    names: dict[str, tuple[int, int]]
    given: tuple[str, ...]
    index: str
    length: str
    bits: int
    fault: dict[str, int] | None = None
    rlimit: int = ENOUGH

    @property
    def inputs(self) -> Inputs:
        return {
            "names": dict(self.names),
            "given": list(self.given),
            "index": self.index,
            "length": self.length,
            "bits": self.bits,
            "rlimit": self.rlimit,
        }

    @property
    def hard(self) -> bool:
        """Whether Z3 may give up."""
        return self.rlimit == LITTLE


_COPY = {"pid": (0, INT), "lane": (0, 127), "n": SIZE}
_BLOCKS = "pid < (n + 127) // 128"
_GRID = {"row": (0, INT), "col": (0, INT), "rows": (1, 2**20), "cols": (1, 2**20)}
_PLANE = {"row": (0, INT), "col": (0, 59999), "rows": (1, 2**16 - 1)}
_LOOP = {"pid": (0, 131), "step": (0, 2**24), "lane": (0, 127), "m": (1, 2**20), "n": (1, 2**20)}
_TILES = "pid + step * 132 < (m + 127) // 128 * ((n + 127) // 128)"
_ROW = "(pid + step * 132) // ((n + 127) // 128) * 128 + lane"
_HEADS = {"token": (0, INT), "head": (0, 127), "d": (0, 127), "tokens": (1, INT)}
_SEARCH = {"low": (0, INT), "high": (0, INT), "n": SIZE}
_WITHIN = ("row < rows", "col < cols")
_HALF = ("low <= high", "high < n")
_PRODUCT = 1499999957 * 1234567891

ACCESSES: dict[str, Access] = {
    "next": Access({"i": (0, 9), "n": (1, 10)}, ("i < n",), "i + 1", "n", 32, {"i": 0, "n": 1}),
    "ten elements": Access({"i": (0, 9), "part": (0, 3)}, ("i % 4 == part",), "i", "10", 32),
    "only what is given": Access({"i": (-INT, INT), "n": (-INT, INT)}, ("i < n", "0 <= i"), "i", "n", 32),
    "masked copy": Access(_COPY, (_BLOCKS, "pid * 128 + lane < n"), "pid * 128 + lane", "n", 32),
    "copy without a mask": Access(_COPY, (_BLOCKS,), "pid * 128 + lane", "n", 64, {"pid": 0, "lane": 1, "n": 1}),
    "left neighbour": Access({"i": (0, INT), "n": SIZE}, ("i < n",), "i - 1", "n", 32, {"i": 0, "n": 1}),
    "row and column, 32 bits": Access(
        _GRID, _WITHIN, "row * cols + col", "rows * cols", 32, {"row": 2**15, "col": 0, "rows": 2**20, "cols": 2**16}
    ),
    "up to 4 billion": Access(
        _PLANE, ("row < rows",), "row * 60000 + col", "rows * 60000", 32, {"row": 60000, "col": 0, "rows": 60001}
    ),
    "the largest number": Access({"i": (0, INT)}, (), "i + 1", str(2**32), 32, {"i": INT}),
    "just below it": Access({"i": (0, INT - 1)}, (), "i + 1", str(2**32), 32),
    "the smallest number": Access({"i": (0, INT)}, (), "0 - i - 2 + i + 2", "1", 32, {"i": INT}),
    "just above it": Access({"i": (0, INT)}, (), "0 - i - 1 + i + 1", "1", 32),
    "middle of a range": Access(
        _SEARCH, _HALF, "(low + high) // 2", "n", 32, {"low": 2**30, "high": 2**30, "n": 2**30 + 1}
    ),
    "middle by the difference": Access(_SEARCH, _HALF, "low + (high - low) // 2", "n", 32),
    "resampled": Access(
        {"i": (0, INT), "n": SIZE}, ("i < n",), "i * 65537 // 65536", "n", 64, {"i": 65536, "n": 65537}
    ),
    "persistent loop": Access(_LOOP, (_TILES,), _ROW, "m", 64, {"pid": 0, "step": 0, "lane": 1, "m": 1, "n": 1}),
    "persistent loop, masked": Access(_LOOP, (_TILES, f"{_ROW} < m"), _ROW, "m", 64),
    "keys of a head": Access(_HEADS, ("token < tokens",), "(token * 128 + head) * 128 + d", "tokens * 128 * 128", 64),
    "a grid of exactly so many tiles": Access(
        {"rows": (2, INT), "cols": (2, INT)},
        (f"rows * cols == {_PRODUCT}",),
        "rows",
        "rows",
        64,
        {"rows": 1499999957, "cols": 1234567891},
        LITTLE,
    ),
}


def _tile(block: int, shift: int, bits: int) -> Access:
    """Blocks of a copy that is masked, moved by `shift` elements."""
    moved = f"pid * {block} + lane" + (f" {'+' if shift > 0 else '-'} {abs(shift)}" if shift else "")
    names = {"pid": (0, INT), "lane": (0, block - 1), "n": SIZE}
    given = (f"pid < (n + {block - 1}) // {block}", f"pid * {block} + lane < n")
    return Access(names, given, moved, "n", bits, {"pid": 0, "lane": 0, "n": 1} if shift else None)


def _plane(rows: int, cols: int) -> Access:
    """A row-major tensor of up to so many rows, in 32 bits."""
    names = {"row": (0, INT), "col": (0, cols - 1), "rows": (1, rows)}
    worst = {"row": rows - 1, "col": cols - 1, "rows": rows}
    fault = worst if rows * cols > 2**31 else None
    return Access(names, ("row < rows",), f"row * {cols} + col", f"rows * {cols}", 32, fault)


_DRAWN: dict[str, Callable[..., Access]] = {"tile": _tile, "plane": _plane}


def access_of(case: Case) -> Access:
    """The access of a case, by name, drawn, or given as an example."""
    if "access" in case.params:
        name = case["access"]
        drawn = {key: value for key, value in case.params.items() if key != "access"}
        return _DRAWN[name](**drawn) if name in _DRAWN else ACCESSES[name]
    return next(one for one in ACCESSES.values() if one.inputs == dict(case.params))


def _reference(**inputs: Any) -> tuple[str, Any]:
    """What is stated of a named access; of a drawn one what Z3 says. Raises CompilerMissing for these without it."""
    for access in ACCESSES.values():
        if access.inputs == inputs:
            return ("proved", None) if access.fault is None else ("refuted", dict(access.fault))
    return tuple(with_z3(slips.answer(), inputs))


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    access = access_of(case)
    if wrong := pair(value, ("proved", "refuted", "unknown")):
        return wrong
    verdict, witness = value
    if verdict == "refuted":
        return _witness(access, witness)
    if verdict == "unknown":
        if access.hard:
            return None
        return Difference("unknown", f"the verdict is 'unknown'; Z3 decides this one within rlimit = {access.rlimit:,}")
    if access.fault is None:
        return None
    what = slips.fault(access.fault, access.index, access.length, access.bits)
    return Difference("proved", f"'proved', but with {said(access.fault)} {what}")


def _witness(access: Access, witness: Any) -> Difference | None:
    if wrong := numbered(witness, list(access.names)):
        return wrong
    numbers = {name: witness[name] for name in access.names}
    for name, (low, high) in access.names.items():
        if not low <= numbers[name] <= high:
            return Difference("witness", f"the witness has {name} = {short(numbers[name])}; it is from {low} to {high}")
    if condition := broken(access.given, numbers):
        return Difference("witness", f"the witness ({said(numbers)}) breaks the condition {condition}")
    if slips.fault(numbers, access.index, access.length, access.bits):
        return None
    at, long = (formula(text, numbers) for text in (access.index, access.length))
    return Difference(
        "witness",
        f"the witness ({said(numbers)}) gives the index {at} of {long} elements, and every step fits in "
        f"{access.bits} bits: nothing is wrong there",
    )


def _fresh(rng: random.Random) -> Case:
    if rng.random() < 0.5:
        block = rng.choice([32, 48, 64, 96, 256, 512])
        return Case(
            "a tile nobody chose",
            access="tile",
            block=block,
            shift=rng.choice([-2, -1, 0, 1, 2]),
            bits=rng.choice([32, 64]),
        )
    return Case(
        "a tensor nobody chose", access="plane", rows=2 ** rng.randrange(12, 21), cols=rng.randrange(3000, 2**19)
    )


_WRONG: tuple[tuple[str, Callable[..., Any], str], ...] = (
    (
        "ranges_forgotten",
        slips.answer(ranged=False),
        "The ranges of the names are not asserted, so Z3 takes numbers that never occur. Everything that is known goes "
        "into the solver: the ranges, and what is given.",
    ),
    (
        "conditions_forgotten",
        slips.answer(given=False),
        "What is given is not asserted: the mask and the size of the grid are why an access can be in bounds at all.",
    ),
    (
        "conditions_negated_too",
        slips.implied,
        "The conditions are negated together with the claim, so a witness may break them. Assert what is given as it "
        "is, and negate the claim alone.",
    ),
    (
        "upper_bound_only",
        slips.answer(low=False),
        "An index below 0 is not seen. In bounds means two things: 0 <= index, and index < length.",
    ),
    (
        "one_past_the_end",
        slips.answer(beyond=lambda index, length: index > length),
        "The index may be equal to the length here. The last element has the index length - 1.",
    ),
    (
        "integers_without_end",
        slips.answer(checked=lambda index: ()),
        "Z3's integers have no largest number, those of a kernel have. That a step of the index does not fit into "
        "`bits` bits is a fault as well.",
    ),
    (
        "only_the_result_must_fit",
        slips.answer(checked=lambda index: (index,)),
        "Only the finished index is held against the bits. A step on the way overflows too, and a division may bring "
        "the result back: look at every one of lesson.steps(index).",
    ),
    (
        "without_the_sign",
        slips.answer(most=lambda bits: 2**bits - 1, least=lambda bits: -(2 ** (bits - 1))),
        "The limit is that of unsigned numbers. One of the bits is the sign: a number of 32 bits ends at 2^31 - 1.",
    ),
    (
        "numbers_from_0_up",
        slips.answer(most=lambda bits: 2**bits - 1, least=lambda bits: 0),
        "The limits are those of unsigned numbers, from 0 up. The kernel's have a sign: a step may be negative, and a "
        "number of 32 bits ends at 2^31 - 1.",
    ),
    (
        "the_limit_itself_fits",
        slips.answer(most=lambda bits: 2 ** (bits - 1)),
        "2^(bits - 1) was let through, and that is one too many: the largest number of `bits` bits is "
        "2^(bits - 1) - 1.",
    ),
    (
        "as_far_below_as_above",
        slips.answer(least=lambda bits: -(2 ** (bits - 1)) + 1),
        "The smallest number was taken for the negative of the largest. There is one more below 0: -2^(bits - 1) fits.",
    ),
    (
        "too_large_only",
        slips.answer(least=lambda bits: -(2**80)),
        "A step that is too small is not seen. `bits` bits have a smallest number as well, -2^(bits - 1).",
    ),
    (
        "always_32_bits",
        slips.answer(most=lambda bits: 2**31 - 1, least=lambda bits: -(2**31)),
        "Every index is held against 32 bits. `bits` says how many it has; with 64 most of these have room.",
    ),
    (
        "unknown_is_proved",
        slips.answer(unknown="proved"),
        "Z3 gave up, and that is reported as a proof. There are three results: sat, unsat and unknown. Only unsat, no "
        "fault exists, is a proof.",
    ),
    (
        "claim_in_place_of_its_negation",
        slips.answer(claimed=True),
        "The solver is asked whether the claim can hold, and some numbers for which it holds are no proof. Ask for a "
        "fault: if there is none (unsat), the claim holds for all.",
    ),
    (
        "small_sizes_tried",
        slips.tried,
        "Small numbers were tried. The faults that are left begin where nobody looks: at 65,536, or at 2^31. Give Z3 "
        "the names as unknowns in place of numbers.",
    ),
)

EXERCISE = Exercise(
    id="14.prove_bounds",
    title="In bounds at every size",
    parameters=("names", "given", "index", "length", "bits", "rlimit"),
    kind="host",
    inputs=lambda case, generator: access_of(case).inputs,
    reference=_reference,
    call=with_z3,
    judge=_judge,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    cases=(
        Example("the example of the docstring", **ACCESSES["next"].inputs),
        Case("ten elements: the ranges say it all, and a condition says more", access="ten elements"),
        Case("the conditions say it all, and the ranges nothing", access="only what is given"),
        Case("blocks of a copy, the last one masked", access="masked copy"),
        Case("the same without a mask", access="copy without a mask"),
        Case("the element to the left: below 0", access="left neighbour"),
        Case("rows times columns, both unknown", access="row and column, 32 bits"),
        Case("between 2^31 and 2^32", access="up to 4 billion"),
        Case("one more than the largest number of 32 bits", access="the largest number"),
        Case("the largest number itself", access="just below it"),
        Case("one less than the smallest number, on the way", access="the smallest number"),
        Case("the smallest number itself", access="just above it"),
        Case("the middle of a range, as a binary search computes it", access="middle of a range"),
        Case("the same by the difference", access="middle by the difference"),
        Case("wrong from 65,536 elements on", access="resampled"),
        Case("tiles of a persistent loop: the last one passes the end", access="persistent loop"),
        Case("the same, masked", access="persistent loop, masked"),
        Case("three dimensions, more than 2^40 elements", access="keys of a head"),
        Case("to decide it means to find the factors of a large number", access="a grid of exactly so many tiles"),
    ),
    fresh=_fresh,
    trivial={
        "zeros": lambda **inputs: ("refuted", dict.fromkeys(inputs["names"], 0)),
        "ones": lambda **inputs: ("refuted", dict.fromkeys(inputs["names"], 1)),
        "nan": lambda **inputs: float("nan"),
        "always proved": lambda **inputs: ("proved", None),
        "always unknown": lambda **inputs: ("unknown", None),
        "the input": lambda **inputs: ("refuted", inputs["names"]),
    },
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    hints=(
        "A proof for all sizes is a search that comes back empty. What would a fault look like, as a condition on the "
        "names? There are more kinds of it than one.",
        "numbers = {name: z3.Int(name) for name in names}. Assert each range and each formula of given as it is. Then "
        "assert that something is wrong: z3.Or of index < 0, index >= length, and for each of lesson.steps(index) that "
        "it is too small or too large for `bits` bits. solver.set('rlimit', rlimit) comes before solver.check().",
        "unsat means proved, unknown means unknown. After sat, model = solver.model(), and "
        "model.eval(number, model_completion=True).as_long() is the value of each name. The limits of a step are "
        "-2**(bits - 1) and 2**(bits - 1) - 1.",
    ),
    explanation=(
        "The negation of 'for all' is 'there is one', and that is what a solver looks for. What is known stays as it "
        "is, only the claim is negated. sat is a counterexample that can be run; unsat is a proof for every size in "
        "the ranges; unknown is neither. A test of small sizes could not have found the sum of two halves that no "
        "longer fits, nor the row that begins past 2^31. Products of two unknowns are where Z3 may give up: then the "
        "claim needs more help, or smaller ranges, and not a nicer word."
    ),
)
