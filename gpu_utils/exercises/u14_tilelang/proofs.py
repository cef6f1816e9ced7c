"""What the two exercises with proofs share: Z3 for the answer, and what a witness and a verdict must look like."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpu_utils.analytic.formulas import formula, needs_z3
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Inputs

ENOUGH = 10_000_000
"""Units of work of Z3 in which it decides every formula here but those that say otherwise: seconds at most."""

LITTLE = 60_000
"""Units for a formula that Z3 cannot decide; less than a tenth of a second."""


def with_z3(answer: Callable[..., Any], inputs: Inputs) -> Any:
    """The answer, with an empty context of Z3: what was asked before changes how far Z3 gets with its units of work.

    Raises CompilerMissing where Z3 is not installed.
    """
    needs_z3()
    import z3.z3

    before, z3.z3._main_ctx = z3.z3._main_ctx, None
    try:
        return answer(**inputs)
    finally:
        z3.z3._main_ctx = before


def pair(value: Any, verdicts: Sequence[str]) -> Difference | None:
    """What is wrong with the form (verdict, witness); None for nothing."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        return Difference("form", f"the result is {_short(value)}; expected a pair, (verdict, witness)")
    if not isinstance(value[0], str) or value[0] not in verdicts:
        expected = " or ".join(repr(one) for one in verdicts)
        return Difference("form", f"the verdict is {_short(value[0])}; expected {expected}")
    return None


def numbered(witness: Any, wanted: Sequence[str], what: str = "the witness") -> Difference | None:
    """What is wrong with the form {name: whole number} of a witness; None for nothing."""
    if not isinstance(witness, Mapping):
        return Difference("witness:form", f"{what} is {_short(witness)}; expected a dict, name -> whole number")
    missing = [name for name in wanted if name not in witness]
    if missing:
        return Difference("witness:form", f"{what} has no {missing[0]}; expected a number for each of {_list(wanted)}")
    wrong = [name for name in wanted if isinstance(witness[name], bool) or not isinstance(witness[name], int)]
    if wrong:
        found = _short(witness[wrong[0]])
        return Difference("witness:form", f"{what} gives {wrong[0]} as {found}; expected a whole number")
    return None


def broken(given: Sequence[str], witness: Mapping[str, int]) -> str | None:
    """The first condition that does not hold for these numbers."""
    return next((one for one in given if not formula(one, witness)), None)


def said(witness: Mapping[str, int]) -> str:
    """
    >>> said({"n": 1, "lane": 3})
    'n = 1, lane = 3'
    """
    return ", ".join(f"{name} = {number}" for name, number in witness.items())


def _list(words: Sequence[str]) -> str:
    return ", ".join(words)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
