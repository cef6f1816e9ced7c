"""Answers to 14.prove_bijective: the right one, and each slip of it as one changed argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, Literal

from gpu_utils.analytic.formulas import formula

Verdict = tuple[str, Any]
Numbers = dict[str, int]
Ranges = Mapping[str, tuple[int, int]]
Differ = Literal["in one", "in all", "not asked", "by one"]

BITS = ("^", "&", "<<", ">>")
"""Operations that need bit vectors."""


def answer(
    *,
    given: bool = True,
    differ: Differ = "in one",
    inside: bool = True,
    below: bool = True,
    apart: bool = True,
    counted: bool = True,
    shared: bool = True,
    width: int = 32,
    unknown: str = "unknown",
) -> Callable[..., Verdict]:
    """An answer that asks Z3 for a place outside, for a collision, and for more places than indices.

    given    whether the conditions are asserted; differ: how the two indices of a collision differ
    inside, apart, counted  whether it asks each of the three; below: for places below 0, too
    shared   whether both indices have the same sizes
    width    of bit vectors, where the formula needs them; unknown: what is said when Z3 gives up
    """

    def found(
        sizes: Ranges, given_: Sequence[str], indices: Mapping[str, str], place: str, places: str, rlimit: int
    ) -> Verdict:
        import z3

        bits = any(sign in text for text in (place, places, *given_) for sign in BITS)

        def numbers(mark: str, old: Mapping[str, Any]) -> dict[str, Any]:
            return {
                name: old.get(name, z3.BitVec(name + mark, width) if bits else z3.Int(name + mark))
                for name in (*sizes, *indices)
            }

        def known(of: Mapping[str, Any]) -> list[Any]:
            texts = [f"{low} <= {name}" for name, (low, _) in sizes.items()]
            texts += [f"{name} <= {high}" for name, (_, high) in sizes.items()]
            texts += [f"0 <= {name}" for name in indices]
            texts += [f"{name} < {bound}" for name, bound in indices.items()]
            return [formula(text, of) for text in (*texts, *(given_ if given else ()))]

        def ask(*conditions: Any) -> Any:
            solver = z3.Solver()
            solver.set("rlimit", rlimit)
            solver.add(*conditions)
            result = solver.check()
            return solver.model() if result == z3.sat else result

        def values(model: Any, of: Mapping[str, Any], wanted: Any) -> Numbers:
            return {name: model.eval(of[name], model_completion=True).as_long() for name in wanted}

        one = numbers("", {})
        other = numbers("'", {name: one[name] for name in sizes} if shared else {})
        results = []
        if inside:
            asked = z3.Or([formula(f"({place}) {beyond}", one) for beyond in [f">= ({places})"] + ["< 0"] * below])
            results.append(found := ask(*known(one), asked))
            if isinstance(found, z3.ModelRef):
                return "outside", values(found, one, one)
        if apart:
            pairs = [(one[name], other[name]) for name in indices]
            different = {
                "in one": z3.Or([a != b for a, b in pairs]),
                "in all": z3.And([a != b for a, b in pairs]),
                "not asked": z3.And([a == a for a, _ in pairs]),
                "by one": z3.And([a == b for a, b in pairs[:-1]] + [pairs[-1][0] + 1 == pairs[-1][1]]),
            }[differ]
            same = formula(place, one) == formula(place, other)
            results.append(found := ask(*known(one), *known(other), different, same))
            if isinstance(found, z3.ModelRef):
                return "collision", (values(found, one, one), values(found, other, other))
        if counted:
            all_indices = " * ".join(f"({bound})" for bound in indices.values())
            results.append(found := ask(*known(one), formula(f"{all_indices} < ({places})", one)))
            if isinstance(found, z3.ModelRef):
                return "gap", values(found, one, sizes)
        return ("bijective", None) if all(one == z3.unsat for one in results) else (unknown, None)

    return lambda sizes, given, indices, place, places, rlimit: found(sizes, given, indices, place, places, rlimit)


def tried(
    sizes: Ranges, given: Sequence[str], indices: Mapping[str, str], place: str, places: str, rlimit: int
) -> Verdict:
    """Every index of the smallest sizes, and no proof."""
    for chosen in product(*(range(low, min(high, low + 4) + 1) for low, high in sizes.values())):
        of_sizes = dict(zip(sizes, chosen, strict=True))
        if all(formula(one, of_sizes) for one in given):
            found = every_index(of_sizes, indices, place, places)
            if found[0] != "bijective":
                return found
    return "bijective", None


def every_index(sizes: Numbers, indices: Mapping[str, str], place: str, places: str) -> Verdict:
    """The verdict for one choice of the sizes, from every index.

    >>> every_index({"n": 4}, {"i": "n"}, "i * 2 % n", "n")
    ('collision', ({'n': 4, 'i': 0}, {'n': 4, 'i': 2}))
    """
    seen: dict[int, Numbers] = {}
    count = formula(places, sizes)
    for chosen in product(*(range(formula(bound, sizes)) for bound in indices.values())):
        numbers = {**sizes, **dict(zip(indices, chosen, strict=True))}
        at = formula(place, numbers)
        if not 0 <= at < count:
            return "outside", numbers
        if at in seen:
            return "collision", (seen[at], numbers)
        seen[at] = numbers
    return ("bijective", None) if len(seen) == count else ("gap", dict(sizes))
