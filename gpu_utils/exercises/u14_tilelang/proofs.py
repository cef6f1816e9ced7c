"""What the two exercises with proofs share: Z3 for the answer, and what a witness and a verdict must look like."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from gpu_utils.analytic.formulas import formula, needs_z3
from gpu_utils.errors import BadArgument
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Inputs
from gpu_utils.grading.plain import NotPlain

ENOUGH = 10_000_000
"""Units of work of Z3 in which it decides every formula here but those that say otherwise: seconds at most."""

LITTLE = 60_000
"""Units for a formula that Z3 cannot decide; less than a tenth of a second."""


UNLIMITED = 45.0
"""Seconds after which Z3 is interrupted. With its limit it takes a second at most; no alarm of Python's reaches it."""

_LATE = (
    f"not done after {UNLIMITED:g} s, so Z3 was stopped; does solver.set('rlimit', rlimit) come before every "
    "solver.check(), and are the unknowns z3.Int where no formula has ^?"
)

_OF_Z3 = {
    "CheckSatResult": "a result of Z3 (compare it: found == z3.sat, z3.unsat or z3.unknown)",
    "ModelRef": "a model of Z3 (model.eval(unknown, model_completion=True).as_long() is a number of it)",
    "IntNumRef": "a number of Z3 (.as_long() makes a whole number of it)",
    "BitVecNumRef": "a number of Z3 (.as_long() makes a whole number of it)",
}
"""What Z3 gives and an answer may hand on as it is -> what to do with it."""


def with_z3(answer: Callable[..., Any], inputs: Inputs) -> Any:
    """The answer, with an empty context of Z3: what was asked before changes how far Z3 gets with its units of work.

    Raises CompilerMissing where Z3 is not installed, BadArgument where the answer set Z3 no limit, or too much to do.
    """
    needs_z3()
    import z3.z3

    before, z3.z3._main_ctx = z3.z3._main_ctx, None
    found: Any = None
    try:
        with _interrupted(z3.main_ctx()) as late:
            try:
                found = answer(**inputs)
            except z3.Z3Exception:  # of what was interrupted, or the answer's own
                if not late.is_set():
                    raise
        if late.is_set():
            raise BadArgument(_LATE)
        return _in_words(found)
    finally:
        z3.z3._main_ctx = before


@contextmanager
def _interrupted(context: Any) -> Iterator[threading.Event]:
    """Interrupts Z3 after `UNLIMITED` seconds, and again while the block lasts; the event says whether it had to."""
    over, late = threading.Event(), threading.Event()

    def watch() -> None:
        wait = UNLIMITED
        while not over.wait(wait):
            late.set()
            context.interrupt()
            wait = 0.2

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield late
    finally:
        over.set()
        watcher.join()


def _in_words(value: Any, deep: int = 3) -> Any:
    """The same with a sentence for what is Z3's own, and whole numbers for torch's."""
    if name := _OF_Z3.get(type(value).__name__):
        return NotPlain(name)
    if isinstance(value, torch.Tensor) and not value.ndim and not value.dtype.is_floating_point:
        return value.item()
    if type(value) in (list, tuple) and deep and len(value) < 20:
        return [_in_words(one, deep - 1) for one in value]
    if type(value) is dict and deep and len(value) < 20:
        return {name: _in_words(one, deep - 1) for name, one in value.items()}
    return value


def pair(value: Any, verdicts: Sequence[str]) -> Difference | None:
    """What is wrong with the form (verdict, witness); None for nothing."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        return Difference("form", f"the result is {short(value)}; expected a pair, (verdict, witness)")
    if not isinstance(value[0], str) or value[0] not in verdicts:
        expected = " or ".join(repr(one) for one in verdicts)
        return Difference("form", f"the verdict is {short(value[0])}; expected {expected}")
    return None


def numbered(witness: Any, wanted: Sequence[str], what: str = "the witness") -> Difference | None:
    """What is wrong with the form {name: whole number} of a witness; None for nothing."""
    if not isinstance(witness, Mapping):
        return Difference("witness:form", f"{what} is {short(witness)}; expected a dict, name -> whole number")
    missing = [name for name in wanted if name not in witness]
    if missing:
        return Difference("witness:form", f"{what} has no {missing[0]}; expected a number for each of {_list(wanted)}")
    wrong = [name for name in wanted if isinstance(witness[name], bool) or not isinstance(witness[name], int)]
    if wrong:
        found = short(witness[wrong[0]])
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


def short(value: Any) -> str:
    """
    >>> len(short("a" * 1000))
    60
    """
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
