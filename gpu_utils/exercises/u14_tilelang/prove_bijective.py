"""14.prove_bijective: a map of indices hits every place once, at any size; or numbers that show it does not."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from gpu_utils.analytic.formulas import formula
from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u14_tilelang import prove_bijective_slips as slips
from gpu_utils.exercises.u14_tilelang.proofs import ENOUGH, LITTLE, broken, numbered, pair, said, short, with_z3
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception


@dataclass(frozen=True)
class Family:
    """Maps of one formula, one for each choice of the sizes, and what is wrong with one of them; None for nothing.

    sizes  name -> (smallest, largest); given: conditions on the sizes; indices: name -> how many, from 0 up
    """

    sizes: dict[str, tuple[int, int]]
    given: tuple[str, ...]
    indices: dict[str, str]
    place: str
    places: str
    fault: tuple[str, Any] | None = None
    rlimit: int = ENOUGH

    @property
    def inputs(self) -> Inputs:
        return {
            "sizes": dict(self.sizes),
            "given": list(self.given),
            "indices": dict(self.indices),
            "place": self.place,
            "places": self.places,
            "rlimit": self.rlimit,
        }

    @property
    def hard(self) -> bool:
        """Whether Z3 may give up."""
        return self.rlimit == LITTLE


def _collision(sizes: dict[str, int], one: dict[str, int], other: dict[str, int]) -> tuple[str, Any]:
    return "collision", ({**sizes, **one}, {**sizes, **other})


def _pieces(place: str, fault: tuple[str, Any] | None = None, pieces: int = 8, stride: int = 8) -> Family:
    """A tile of any number of rows, of so many pieces each, in places for `stride` pieces a row."""
    indices = {"row": "rows", "piece": str(pieces)}
    return Family({"rows": (1, 2**16)}, (), indices, place, f"rows * {stride}", fault)


def _grouped(columns: int, group: int, last: bool) -> Family:
    """Programs in groups of rows of tiles, as of a matrix product; last: whether the last group may be smaller."""
    height = f"min(rows - pid // {group * columns} * {group}, {group})" if last else str(group)
    inner = f"pid % {group * columns}"
    place = f"(pid // {group * columns} * {group} + {inner} % {height}) * {columns} + {inner} // {height}"
    fault = None if last else ("outside", {"rows": 1, "pid": 1})
    return Family({"rows": (1, 2**20)}, (), {"pid": f"rows * {columns}"}, place, f"rows * {columns}", fault)


def _swizzle(pieces: int, divisor: int, modulus: int) -> Family:
    """Pieces moved by xor with a part of the row's number."""
    late = {"row": divisor * pieces, "piece": 0, "rows": divisor * pieces + 1}
    fault = ("outside", late) if modulus > pieces else None
    part = f"row // {divisor} % {modulus}" if divisor > 1 else f"row % {modulus}"
    return _pieces(f"row * {pieces} + (piece ^ {part})", fault, pieces, pieces)


_LIST = {"i": "n"}
_MATRIX = {"rows": (1, 4096), "cols": (1, 4096)}
_PRODUCT = 1499999957 * 1234567891

FAMILIES: dict[str, Family] = {
    "backwards": Family({"n": (1, 10)}, (), _LIST, "n - 1 - i", "n"),
    "halves": Family({"n": (1, 10)}, (), _LIST, "i // 2", "n", _collision({"n": 2}, {"i": 0}, {"i": 1})),
    "xor swizzle": _swizzle(8, 1, 8),
    "xor with too many bits": _swizzle(8, 1, 16),
    "xor, wrong from row 512": _swizzle(8, 64, 16),
    "padded rows": _pieces("row * 9 + piece", ("gap", {"rows": 1}), stride=9),
    "every second piece": _pieces(
        "row * 8 + piece * 2 % 8", _collision({"rows": 1}, {"row": 0, "piece": 0}, {"row": 0, "piece": 4})
    ),
    "the last pieces from row 9 on": Family(
        {"rows": (1, 12)},
        (),
        {"row": "rows", "piece": "8"},
        "row * 8 + min(piece, 15 - row)",
        "rows * 8",
        _collision({"rows": 10}, {"row": 9, "piece": 6}, {"row": 9, "piece": 7}),
    ),
    "one to the left": Family({"n": (1, 2**20)}, (), _LIST, "i - 1", "n", ("outside", {"n": 1, "i": 0})),
    "transposed": Family(_MATRIX, (), {"i": "rows * cols"}, "i % cols * rows + i // cols", "rows * cols"),
    "transposed, the other stride": Family(
        _MATRIX,
        (),
        {"i": "rows * cols"},
        "i % cols * cols + i // cols",
        "rows * cols",
        ("outside", {"rows": 1, "cols": 2, "i": 1}),
    ),
    "groups of programs": _grouped(5, 4, last=True),
    "groups of programs, all of one size": _grouped(5, 4, last=False),
    "experts dealt to 8 ranks": Family(
        {"experts": (1, 1024)}, ("experts % 8 == 0",), {"e": "experts"}, "e % 8 * (experts // 8) + e // 8", "experts"
    ),
    "experts dealt to 8 ranks, any number": Family(
        {"experts": (8, 1024)},
        (),
        {"e": "experts"},
        "e % 8 * (experts // 8) + e // 8",
        "experts",
        _collision({"experts": 9}, {"e": 1}, {"e": 8}),
    ),
    "steps of three": Family({"n": (1, 10000)}, ("n % 3 == 1",), _LIST, "i * 3 % n", "n"),
    "steps of three, multiples too": Family(
        {"n": (6, 10000)}, (), _LIST, "i * 3 % n", "n", _collision({"n": 6}, {"i": 0}, {"i": 2})
    ),
    "steps of a divisor": Family(
        {"step": (2, 2**31 - 1), "rest": (2, 2**31 - 1)},
        (f"step * rest == {_PRODUCT}",),
        {"i": str(_PRODUCT)},
        f"i * step % {_PRODUCT}",
        str(_PRODUCT),
        _collision({"step": 1499999957, "rest": 1234567891}, {"i": 0}, {"i": 1234567891}),
        LITTLE,
    ),
}

_DRAWN: dict[str, Callable[..., Family]] = {"swizzle": _swizzle, "groups": _grouped}


def family_of(case: Case) -> Family:
    """The family of a case, by name, drawn, or given as an example."""
    if "family" in case.params:
        name = case["family"]
        drawn = {key: value for key, value in case.params.items() if key != "family"}
        return _DRAWN[name](**drawn) if name in _DRAWN else FAMILIES[name]
    return next(one for one in FAMILIES.values() if one.inputs == dict(case.params))


def _reference(**inputs: Any) -> tuple[str, Any]:
    """What is stated of a named family; of a drawn one what Z3 says. Raises CompilerMissing for these without it."""
    for family in FAMILIES.values():
        if family.inputs == inputs:
            return family.fault or ("bijective", None)
    return tuple(with_z3(slips.answer(), inputs))


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    family = family_of(case)
    if wrong := pair(value, ("bijective", "outside", "collision", "gap", "unknown")):
        return wrong
    verdict, witness = value
    if verdict == "unknown":
        if family.hard:
            return None
        return Difference("unknown", f"the verdict is 'unknown'; Z3 decides this one within rlimit = {family.rlimit:,}")
    if verdict != "bijective":
        return _WITNESS[verdict](family, witness)
    if family.fault is None:
        return None
    return Difference("bijective", f"'bijective', but {_told(family, *family.fault)}")


def _told(family: Family, verdict: str, witness: Any) -> str:
    """A fault in words."""
    if verdict == "gap":
        return (
            f"with {said(witness)} there are {_indices(family, witness)} indices for {_places(family, witness)} places"
        )
    one = witness if verdict == "outside" else witness[0]
    at = formula(family.place, one)
    if verdict == "outside":
        return f"with {said(one)} the place is {at} of {_places(family, one)}"
    return f"both {said(one)} and {said(witness[1])} go to place {at}"


def _indices(family: Family, numbers: Mapping[str, int]) -> int:
    return prod(formula(bound, numbers) for bound in family.indices.values())


def _places(family: Family, numbers: Mapping[str, int]) -> int:
    return int(formula(family.places, numbers))


def _of_family(family: Family, witness: Any, what: str, indices: bool = True) -> Difference | None:
    """What is wrong with numbers that should be sizes, and an index, of the family."""
    wanted = [*family.sizes, *(family.indices if indices else ())]
    if wrong := numbered(witness, wanted, what):
        return wrong
    for name, (low, high) in family.sizes.items():
        if not low <= witness[name] <= high:
            return Difference("witness", f"{what} has {name} = {short(witness[name])}; it is from {low} to {high}")
    if condition := broken(family.given, witness):
        return Difference("witness", f"{what} ({said(witness)}) breaks the condition {condition}")
    for name, bound in family.indices.items() if indices else ():
        if not 0 <= witness[name] < formula(bound, witness):
            return Difference("witness", f"{what} has {name} = {witness[name]}; expected 0 <= {name} < {bound}")
    return None


def _outside(family: Family, witness: Any) -> Difference | None:
    if wrong := _of_family(family, witness, "the witness"):
        return wrong
    at, count = formula(family.place, witness), _places(family, witness)
    if not 0 <= at < count:
        return None
    return Difference("witness", f"the witness ({said(witness)}) goes to place {at}, which is one of the {count}")


def _two(family: Family, witness: Any) -> Difference | None:
    if not isinstance(witness, (tuple, list)) or len(witness) != 2:
        return Difference(
            "witness:form", "the witness of a collision is no pair; expected two dicts, one for each index"
        )
    for numbers, what in zip(witness, ("the first index", "the second index"), strict=True):
        if wrong := _of_family(family, numbers, what):
            return wrong
    one, other = witness
    for name in family.sizes:
        if one[name] != other[name]:
            detail = f"the two indices are of different maps: {name} is {one[name]} and {other[name]}"
            return Difference("witness:sizes", detail)
    if all(one[name] == other[name] for name in family.indices):
        return Difference("witness:same", f"both indices are {said(one)}: an index does not collide with itself")
    here, there = formula(family.place, one), formula(family.place, other)
    if here == there:
        return None
    return Difference("witness", f"{said(one)} goes to place {here}, {said(other)} to {there}: they do not collide")


def _gap(family: Family, witness: Any) -> Difference | None:
    if wrong := _of_family(family, witness, "the witness", indices=False):
        return wrong
    indices, places = _indices(family, witness), _places(family, witness)
    if indices < places:
        return None
    return Difference(
        "witness", f"with {said(witness)} there are {indices} indices for {places} places: enough of them"
    )


_WITNESS: dict[str, Callable[[Family, Any], Difference | None]] = {"outside": _outside, "collision": _two, "gap": _gap}


def _fresh(rng: random.Random) -> Case:
    if rng.random() < 0.3:
        columns, group = rng.choice([(3, 2), (3, 4), (5, 2), (6, 4)])
        return Case("programs nobody chose", family="groups", columns=columns, group=group, last=rng.random() < 0.5)
    pieces, divisor = rng.choice([4, 8, 16, 32]), rng.choice([1, 2, 4, 16])
    modulus = pieces * rng.choice([1, 2]) // rng.choice([1, 2])
    return Case("a swizzle nobody chose", family="swizzle", pieces=pieces, divisor=divisor, modulus=modulus)


_WRONG: tuple[tuple[str, Callable[..., Any], str], ...] = (
    (
        "an_index_with_itself",
        slips.answer(differ="not asked"),
        "The two indices of a collision are one and the same. Ask for two that differ.",
    ),
    (
        "differ_in_every_part",
        slips.answer(differ="in all"),
        "Two indices are taken for different only if row and piece both differ. One of them is enough: two pieces of "
        "one row must not collide either.",
    ),
    (
        "neighbours_only",
        slips.answer(differ="by one"),
        "Only an index and the next one are compared. Indices far apart collide too: take two that may be any.",
    ),
    (
        "different_sizes",
        slips.answer(shared=False),
        "The two indices have sizes of their own, so they belong to two different maps. Sizes are shared; only the "
        "indices come twice.",
    ),
    (
        "inside_not_asked",
        slips.answer(inside=False),
        "Whether a place is one of the places is not asked. A map may never collide and still lead outside.",
    ),
    (
        "upper_bound_only",
        slips.answer(below=False),
        "A place below 0 is not seen. The places are 0 to `places` - 1.",
    ),
    (
        "collisions_not_asked",
        slips.answer(apart=False),
        "Collisions are not looked for. As many indices as places, all inside, is not enough: two may share a place.",
    ),
    (
        "places_left_empty",
        slips.answer(counted=False),
        "No index twice, none outside, and still not onto: there can be more places than indices. Padding is such a "
        "map. Count both.",
    ),
    (
        "conditions_forgotten",
        slips.answer(given=False),
        "What is given of the sizes is not asserted, so the witness is of a size that never occurs.",
    ),
    (
        "unknown_is_bijective",
        slips.answer(unknown="bijective"),
        "Z3 gave up on one of the questions, and that is reported as a proof. Only unsat is one.",
    ),
    (
        "narrow_bits",
        slips.answer(width=16),
        "The bit vectors are too narrow: 2^16 rows of 8 pieces need 20 bits, of 32 pieces 22, and what does "
        "not fit wraps around. The "
        "statement says how large numbers get.",
    ),
    (
        "small_sizes_tried",
        slips.tried,
        "Small sizes were tried. One map goes wrong from row 512 on only. Give Z3 sizes and indices as unknowns.",
    ),
)

EXERCISE = Exercise(
    id="14.prove_bijective",
    title="Every place once, at every size",
    parameters=("sizes", "given", "indices", "place", "places", "rlimit"),
    kind="host",
    inputs=lambda case, generator: family_of(case).inputs,
    reference=_reference,
    call=with_z3,
    judge=_judge,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    cases=(
        Example("the example of the docstring", **FAMILIES["backwards"].inputs),
        Example("two by two into the lower half", **FAMILIES["halves"].inputs),
        Case("pieces moved by xor with the row", family="xor swizzle"),
        Case("the same with a bit too many", family="xor with too many bits"),
        Case("wrong from row 512 on", family="xor, wrong from row 512"),
        Case("32 pieces a row: numbers of 22 bits", family="swizzle", pieces=32, divisor=1, modulus=32),
        Case("padding: nobody collides, and places stay empty", family="padded rows"),
        Case("collisions within a row", family="every second piece"),
        Case("collisions within a row, from row 9 on", family="the last pieces from row 9 on"),
        Case("one to the left: below 0", family="one to the left"),
        Case("a transposed matrix", family="transposed"),
        Case("the same with the other stride", family="transposed, the other stride"),
        Case("programs in groups, the last one smaller", family="groups of programs"),
        Case("the same without a smaller group", family="groups of programs, all of one size"),
        Case("experts dealt to ranks, a multiple of 8", family="experts dealt to 8 ranks"),
        Case("the same with any number", family="experts dealt to 8 ranks, any number"),
        Case("every third place, around and around", family="steps of three"),
        Case("the same, and n may be a multiple of 3", family="steps of three, multiples too"),
        Case("to decide it means to find the factors of a large number", family="steps of a divisor"),
    ),
    fresh=_fresh,
    trivial={
        "zeros": lambda **inputs: ("outside", dict.fromkeys((*inputs["sizes"], *inputs["indices"]), 0)),
        "ones": lambda **inputs: ("collision", (dict.fromkeys(inputs["sizes"], 1), dict.fromkeys(inputs["sizes"], 1))),
        "nan": lambda **inputs: float("nan"),
        "always bijective": lambda **inputs: ("bijective", None),
        "always unknown": lambda **inputs: ("unknown", None),
        "the input": lambda **inputs: ("gap", inputs["sizes"]),
    },
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    hints=(
        "Three things can go wrong, and each is a question for the solver: a place that is none, two indices with one "
        "place, a place with no index. For the third: if nobody collides and nobody is outside, how many places are "
        "taken?",
        "Indices come twice, with the same sizes: {**sizes, **one} and {**sizes, **other}. They differ if z3.Or of one "
        "!= other over the indices. The third question needs no place at all: fewer indices (the product of their "
        "bounds) than places. Where the formula has ^, take z3.BitVec(name, 32) in place of z3.Int(name).",
        "known(v): formula of f'{low} <= {name}', f'{name} <= {high}', f'0 <= {index}', f'{index} < {bound}' and of "
        "given. outside: known(one) and formula(f'({place}) >= ({places})', one), or below 0. collision: known(one), "
        "known(other), z3.Or(one[i] != other[i] for the indices), equal places. gap: known(one), product < places.",
    ),
    explanation=(
        "Injective and inside are questions with a witness of numbers. Onto is not: 'every place has an index' holds a "
        "'there is' within a 'for all', at which solvers are weak. For finite sets counting replaces it: as many "
        "indices as places, none outside, no two together, so none is left empty. Integers of Z3 divide and multiply "
        "well and have no xor; bit vectors have xor and know no products as large as these. A proof begins with the "
        "choice of a theory in which the formula is easy."
    ),
)
