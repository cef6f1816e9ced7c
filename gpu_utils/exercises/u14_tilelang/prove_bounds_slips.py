"""Answers to 14.prove_bounds: the right one, and each slip of it as one changed argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from gpu_utils.analytic.formulas import formula, steps

Verdict = tuple[str, Any]
Given = Sequence[str]


def answer(
    *,
    ranged: bool = True,
    given: bool = True,
    low: bool = True,
    beyond: Callable[[Any, Any], Any] = lambda index, length: index >= length,
    checked: Callable[[str], Sequence[str]] = steps,
    most: Callable[[int], int] = lambda bits: 2 ** (bits - 1) - 1,
    least: Callable[[int], int] = lambda bits: -(2 ** (bits - 1)),
    unknown: str = "unknown",
    claimed: bool = False,
    witness: Callable[[Any], Any] = lambda number: number.as_long(),
) -> Callable[..., Verdict]:
    """An answer that asks Z3 for a fault.

    ranged, given  whether ranges and conditions are asserted; low, beyond: what is out of bounds
    checked        the steps whose overflow is a fault; most, least: numbers of so many bits
    unknown        what is said when Z3 gives up; claimed: whether the claim is asserted in place of its negation
    """

    def found(names: Any, given_: Given, index: str, length: str, bits: int, rlimit: int) -> Verdict:
        import z3

        numbers = {name: z3.Int(name) for name in names}
        at = formula(index, numbers)
        faults = [beyond(at, formula(length, numbers))] + ([at < 0] if low else [])
        for step in checked(index):
            value = formula(step, numbers)
            faults += [value > most(bits), value < least(bits)]
        solver = z3.Solver()
        solver.set("rlimit", rlimit)
        if ranged:
            solver.add(*(z3.And(low_ <= numbers[name], numbers[name] <= high) for name, (low_, high) in names.items()))
        if given:
            solver.add(*(formula(one, numbers) for one in given_))
        solver.add(z3.Not(z3.Or(faults)) if claimed else z3.Or(faults))
        result = solver.check()
        if claimed:
            return ("proved", None) if result == z3.sat else ("refuted", dict.fromkeys(names, 0))
        if result == z3.sat:
            model = solver.model()
            return "refuted", {
                name: witness(model.eval(number, model_completion=True)) for name, number in numbers.items()
            }
        return ("proved", None) if result == z3.unsat else (unknown, None)

    return lambda names, given, index, length, bits, rlimit: found(names, given, index, length, bits, rlimit)


def implied(names: Any, given: Given, index: str, length: str, bits: int, rlimit: int) -> Verdict:
    """Negates the conditions together with the claim."""
    import z3

    numbers = {name: z3.Int(name) for name in names}
    at = formula(index, numbers)
    within = [at >= 0, at < formula(length, numbers)]
    for step in steps(index):
        value = formula(step, numbers)
        within += [value < 2 ** (bits - 1), value >= -(2 ** (bits - 1))]
    solver = z3.Solver()
    solver.set("rlimit", rlimit)
    solver.add(*(z3.And(low <= numbers[name], numbers[name] <= high) for name, (low, high) in names.items()))
    solver.add(z3.Not(z3.And(*(formula(one, numbers) for one in given), *within)))
    result = solver.check()
    if result == z3.sat:
        model = solver.model()
        return "refuted", {
            name: model.eval(number, model_completion=True).as_long() for name, number in numbers.items()
        }
    return ("proved", None) if result == z3.unsat else ("unknown", None)


def tried(names: Any, given: Given, index: str, length: str, bits: int, rlimit: int, upto: int = 3) -> Verdict:
    """Tries the smallest numbers of each range and proves nothing."""
    ranges = [range(low, min(high, low + upto) + 1) for low, high in names.values()]
    for numbers in product(*ranges):
        values = dict(zip(names, numbers, strict=True))
        if all(formula(one, values) for one in given) and fault(values, index, length, bits):
            return "refuted", values
    return "proved", None


def fault(values: Mapping[str, int], index: str, length: str, bits: int) -> str:
    """What is wrong with an access for these numbers, in words; "" for nothing.

    >>> fault({"n": 4, "i": 3}, "i + 1", "n", 32)
    'the index is 4, the length 4'
    >>> fault({"n": 2**30 + 1, "i": 2**30}, "i * 2 // 2", "n", 32)
    'i * 2 is 2147483648, which 32 bits do not hold'
    """
    for step in steps(index):
        value = formula(step, values)
        if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            return f"{step} is {value}, which {bits} bits do not hold"
    at, long = formula(index, values), formula(length, values)
    return "" if 0 <= at < long else f"the index is {at}, the length {long}"
