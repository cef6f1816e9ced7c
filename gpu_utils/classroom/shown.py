"""What a student may be told of a result: the one place where it is decided.

Told are the status, the points, the headline, the hint, and the public cases with what differs. Of fresh cases only
how many passed, and how the others failed in words of our own. Never their names, sizes, values or seed; never flags,
log or paths.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gpu_utils.classroom.records import Result

_LONGEST = 600

WAYS = {
    "value": "wrong values",
    "nan": "NaN where there should be a number",
    "shape": "another shape than expected",
    "dtype": "another dtype than expected",
    "type": "another type than expected",
    "device": "a tensor on another device",
    "mutated": "an input was changed",
    "timeout": "it took too long",
    "died": "the process ended",
    "error": "it raised an error",
    "torch": "torch did a part of the work",
    "limit": "a limit of the exercise was passed",
    "compile": "a kernel did not compile",
    "idle": "right although the kernel did nothing",
    "skipped": "it could not run here",
}
"""How a fresh case fails, by the first word of its kind."""
_OTHER_WAY = "it did not do what the exercise asks"

_ONLY_FRESH = "The public cases passed, a fresh case did not. Which inputs of that kind does the task allow, too?"
_HIDDEN = "It differs from what was expected."

_PATH = re.compile(r"(?<![\w./:])(?:~|[A-Za-z]:)?(?:[/\\][\w.@+~-]+){2,}[/\\]?")
_STEERS_TEXT = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Case:
    """A public case, on every backend where it went alike; `detail` says what differs."""

    name: str
    why: str
    where: str
    status: str
    detail: str


@dataclass(frozen=True)
class Shown:
    """A result, for the eyes of the student it is about.

    fresh    a sentence about the fresh cases; "" when none was drawn
    notes    sentences: that it ran without a sandbox
    """

    exercise: str
    status: str
    points: Decimal
    out_of: Decimal
    headline: str
    hint: str = ""
    cases: tuple[Case, ...] = ()
    fresh: str = ""
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All of it as plain text."""
        lines = [self.headline, *([f"Hint: {self.hint}"] if self.hint else [])]
        for case in self.cases:
            lines.append(f"{case.status}: {case.name} on {case.where}{f' ({case.why})' if case.why else ''}")
            lines += [f"    {case.detail}"] if case.detail else []
        return "\n".join([*lines, *([self.fresh] if self.fresh else []), *self.notes])


def shown(result: Result, points: Decimal, out_of: Decimal) -> Shown:
    """What the student may see of this result."""
    public = [outcome for outcome in result.outcomes if not outcome.get("fresh")]
    fresh = [outcome for outcome in result.outcomes if outcome.get("fresh")]
    secrets = _secrets(result, fresh, public)
    headline = _headline(result, secrets)
    return Shown(
        exercise=result.exercise,
        status=result.status,
        points=points,
        out_of=out_of,
        headline=headline,
        hint=readable(result.hint),
        cases=_cases(public, secrets, headline),
        fresh=_of_fresh(fresh, any(outcome["status"] == "failed" for outcome in public)),
        notes=("This answer ran without a sandbox.",) if result.walls == "none" else (),
    )


def readable(text: str) -> str:
    """Text from anywhere, for a student: `clean`, and without paths.

    >>> readable("cannot open /home/somebody/.cache/x.py\\x1b[2J")
    'cannot open (a path) [2J'
    """
    return clean(_PATH.sub("(a path)", text[: 4 * _LONGEST]))


def clean(text: str, longest: int = _LONGEST, kept: str = "") -> str:
    """Text from anywhere, for a page: no control characters but `kept`, nothing that turns its direction, not endless.

    >>> clean("a\\tb\\u202ec", kept="\\t"), clean("abcdef", 3)
    ('a\\tbc', 'abc ...')
    """
    cut = text[: longest + 1].encode("utf-8", "replace").decode()
    shown = "".join(
        " " if unicodedata.category(each) == "Cc" and each not in kept else each for each in _STEERS_TEXT.sub("", cut)
    )
    return shown.strip(" ") if len(text) <= longest else f"{shown[:longest]} ..."


def _secrets(result: Result, fresh: Sequence[Mapping[str, Any]], public: Sequence[Mapping[str, Any]]) -> list[str]:
    """Texts that nothing which is shown may hold: what is of fresh cases alone, and the seed."""
    known = {outcome[name] for outcome in public for name in ("case", "why", "detail")}
    texts = {outcome[name] for outcome in fresh for name in ("case", "why", "detail")} - known
    seeds = {result.seed, str(int(result.seed, 16))} if re.fullmatch(r"[0-9a-fA-F]+", result.seed) else {result.seed}
    return [text for text in texts | seeds if len(text) > 3]


def _headline(result: Result, secrets: Sequence[str]) -> str:
    """The grader's own sentence tells the first failure; where that is of a fresh case, it is told without it."""
    first = next((outcome for outcome in result.outcomes if outcome["status"] == "failed"), None)
    if result.status == "failed" and first is not None and first.get("fresh"):
        failed_in_public = any(o["status"] == "failed" and not o.get("fresh") for o in result.outcomes)
        return _HIDDEN if failed_in_public else _ONLY_FRESH
    return readable(_HIDDEN if _tells(result.headline, secrets) else result.headline)


def _tells(text: str, secrets: Sequence[str]) -> bool:
    return any(secret in text for secret in secrets)


def _cases(public: Sequence[Mapping[str, Any]], secrets: Sequence[str], headline: str) -> tuple[Case, ...]:
    """Failures first; what went alike on several backends is one case. What the headline has just said is left out."""
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    for outcome in public:
        detail = outcome["detail"] if outcome["status"] != "passed" else ""
        detail = readable(_HIDDEN if _tells(detail, secrets) else detail)
        key = (outcome["case"], outcome["why"], outcome["status"], "" if headline.endswith(detail) else detail)
        alike.setdefault(key, []).append(outcome["where"])
    order = {"failed": 0, "skipped": 1, "passed": 2}
    rows = sorted(alike.items(), key=lambda row: order.get(row[0][2], 0))
    return tuple(
        Case(readable(name), readable(why), readable(", ".join(dict.fromkeys(where))), status, detail)
        for (name, why, status, detail), where in rows
    )


def _of_fresh(fresh: Sequence[Mapping[str, Any]], public_failed: bool) -> str:
    if not fresh:
        return ""
    counts = Counter(outcome["status"] for outcome in fresh)
    ways = Counter(WAYS.get(o["kind"].partition(":")[0], _OTHER_WAY) for o in fresh if o["status"] == "failed")
    drawn = "Fresh cases" if public_failed else "The public checks passed; fresh cases"
    said = f"{drawn} drawn when it was graded: {counts['passed']} of {len(fresh)} checks passed"
    failed = "; ".join(f"{count} failed: {way}" for way, count in ways.items())
    skipped = f"{counts['skipped']} could not run here" if counts["skipped"] else ""
    return "; ".join(filter(None, [said, failed, skipped])) + "."
