"""The logs of 03.triage as a collector of a cluster keeps them: a time and a job in front of every line.

Seed 0 is a log by itself, in the order of its events. Another seed gives another team's: other words, lines in the
order of their arrival, harmless lines, lines of other jobs, and a second attempt of the job that failed in another way.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from gpu_utils.exercises.u03_porting_to_rocm.triage_logs import TAILS, noise_for, raw_logs, reworded
from gpu_utils.exercises.u03_porting_to_rocm.triage_tables import TRUTHS

Kind = Literal["log", "noise", "later", "other"]
_TIME = re.compile(r"\[(\d\d):(\d\d):(\d\d)\] ")
_LATEST = 1200.0
"""Seconds after which the last line of an event has arrived."""
_NEXT_ATTEMPT = "runner: attempt 1 has ended, attempt 2 starts with other settings"


@dataclass(frozen=True)
class Line:
    """One line of a collected log.

    number  its place in the text, from 1
    at      seconds since midnight
    kind    "log": of the failure itself; "noise": of the job, and harmless; "later": of the job, after the failure;
            "other": of another job
    """

    number: int
    at: float
    job: str
    text: str
    kind: Kind


@dataclass(frozen=True)
class Collected:
    """A whole text, and its lines without the header, in the order of the text."""

    text: str
    lines: tuple[Line, ...]


@lru_cache(maxsize=256)
def collect(name: str, seed: int = 0) -> Collected:
    """The log as it is collected."""
    rng = random.Random(f"{name}/{seed}")
    job = "88121" if seed == 0 else str(rng.randrange(10_000, 99_999))
    raw = raw_logs()[name].rstrip("\n").split("\n") if seed == 0 else reworded(name, rng)
    start = 36_000.0 if seed == 0 else rng.randrange(3600, 60_000) + rng.randrange(1000) / 1000
    events: list[tuple[float, str, str, Kind]] = [(start + at, job, text, "log") for at, text in _timed(raw)]
    if seed:
        end = events[-1][0]
        events += [(start - rng.uniform(1, 60), job, text, "noise") for text in noise_for(raw, rng)]
        events += [(end + rng.uniform(1, 60), job, text, "later") for text in rng.sample(TAILS, rng.randint(1, 2))]
        events.append((end + 61, job, _NEXT_ATTEMPT, "later"))
        others = [other for other in TRUTHS if other != name]
        for other in rng.sample(others, 2):
            events += [(end + rng.uniform(62, 300), job, text, "later") for text in evidence_of(other)]
        for other in rng.sample(others, 4):
            their, when = str(int(job) + rng.randrange(1, 40)), start - rng.uniform(-60, 600)
            events += [(when + i, their, text, "other") for i, text in enumerate(evidence_of(other))]
    arrivals = {event: event[0] + (rng.uniform(0, _LATEST) if seed else 0.0) for event in events}
    ordered = sorted(events, key=lambda event: arrivals[event])
    lines = tuple(Line(number, *event) for number, event in enumerate(ordered, 2))
    header = f"job {job} failed; its lines and those of its neighbours, in the order in which they arrived"
    return Collected("\n".join([header, *(f"{_clock(one.at)} {one.job} {one.text}" for one in lines)]) + "\n", lines)


def public_logs() -> Mapping[str, str]:
    """Name of a log -> its text as it is collected, in order."""
    return {name: collect(name).text for name in TRUTHS}


def evidence_of(name: str) -> list[str]:
    """The lines of a log that show its cause, as the job wrote them, without their times."""
    raw = raw_logs()[name].split("\n")
    found = [next(line for line in raw if matches(marker, line)) for marker in TRUTHS[name].evidence]
    return [_TIME.sub("", line).strip() for line in dict.fromkeys(found)]


def matches(marker: str, line: str) -> bool:
    """Whether a line holds the marker; `@` in it stands for any number."""
    return re.search(r"\d+".join(map(re.escape, marker.split("@"))), line) is not None


def misleading(cause: str, lines: tuple[Line, ...]) -> Line | None:
    """The first line in the text that shows a cause to another job, or to a later attempt; None where none does."""
    markers = [marker for truth in TRUTHS.values() if truth.cause == cause for marker in truth.evidence]
    foreign = (line for line in lines if line.kind in ("other", "later"))
    return next((line for line in foreign if any(matches(marker, line.text) for marker in markers)), None)


def _timed(raw: list[str]) -> list[tuple[float, str]]:
    """(seconds since the first line, text): lines without a time follow the one before them."""
    first = next((_seconds(found) for line in raw if (found := _TIME.match(line))), 0.0)
    at, timed = 0.0, []
    for index, line in enumerate(raw):
        found = _TIME.match(line)
        at = max(_seconds(found) - first if found else 0.0, at)
        timed.append((at + index / 1000, _TIME.sub("", line)))
    return timed


def _seconds(time: re.Match[str]) -> float:
    return int(time[1]) * 3600.0 + int(time[2]) * 60 + int(time[3])


def _clock(at: float) -> str:
    thousandths = round(at * 1000)
    seconds = thousandths // 1000
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{thousandths % 1000:03d}"
