"""Sums over spans of a GPU with one mistake each, and the right one. Plain Python: they run wherever an answer runs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

Spans = list[dict[str, Any]]
Answer = Callable[[Spans], dict[str, Any]]


def union(spans: Spans) -> list[list[int]]:
    """Stretches of time with at least one of the spans, in order, none of them touching the next."""
    stretches: list[list[int]] = []
    for span in sorted(spans, key=lambda span: span["start"]):
        if stretches and span["start"] <= stretches[-1][1]:
            stretches[-1][1] = max(stretches[-1][1], span["end"])
        else:
            stretches.append([span["start"], span["end"]])
    return stretches


def length(stretches: list[list[int]]) -> int:
    return sum(end - start for start, end in stretches)


def between(stretches: list[list[int]]) -> list[list[int]]:
    return [[a[1], b[0]] for a, b in pairwise(stretches)]


def true(spans: Spans) -> Spans:
    return [span for span in spans if span["end"] > span["start"]]


def of(kind: str, spans: Spans) -> Spans:
    return [span for span in spans if span["kind"] == kind]


def overlap(spans: Spans) -> int:
    copies, kernels = (length(union(of(kind, spans))) for kind in ("copy", "kernel"))
    return copies + kernels - length(union(spans))


def right(spans: Spans) -> dict[str, Any]:
    """busy, idle and overlap in ns, gaps as [start, end]."""
    spans = true(spans)
    stretches = union(spans)
    gaps = between(stretches)
    return {"busy": length(stretches), "idle": length(gaps), "gaps": gaps, "overlap": overlap(spans)}


def with_other(**parts: Callable[[Spans], Any]) -> Answer:
    """The right answer with other parts, each made from the spans that took time."""

    def gpu_idle(spans: Spans) -> dict[str, Any]:
        return right(spans) | {name: part(true(spans)) for name, part in parts.items()}

    return gpu_idle


def window(spans: Spans) -> int:
    return max((span["end"] for span in spans), default=0) - min((span["start"] for span in spans), default=0)


def summed(spans: Spans) -> int:
    return sum(span["end"] - span["start"] for span in spans)


sums_durations = with_other(busy=summed, idle=lambda spans: window(spans) - summed(spans))


def _of_streams(spans: Spans) -> list[list[list[int]]]:
    return [union([span for span in spans if span["stream"] == one]) for one in {span["stream"] for span in spans}]


def _gaps_of_streams(spans: Spans) -> list[list[int]]:
    return sorted(gap for stretches in _of_streams(spans) for gap in between(stretches))


gaps_of_streams = with_other(gaps=_gaps_of_streams, idle=lambda spans: length(_gaps_of_streams(spans)))
"""What streams wait is taken for what the device waits; busy is right."""

all_of_streams = with_other(
    gaps=_gaps_of_streams,
    idle=lambda spans: length(_gaps_of_streams(spans)),
    busy=lambda spans: sum(map(length, _of_streams(spans))),
)


def from_zero(spans: Spans) -> dict[str, Any]:
    """The window begins at 0."""
    found = right(spans)
    first = min((span["start"] for span in true(spans)), default=0)
    gaps = [[0, first], *found["gaps"]] if first else found["gaps"]
    return found | {"gaps": gaps, "idle": length(gaps)}


def _pairs(spans: Spans) -> int:
    """Each copy with each kernel."""
    both = [(a, b) for a in of("copy", spans) for b in of("kernel", spans)]
    return sum(max(0, min(a["end"], b["end"]) - max(a["start"], b["start"])) for a, b in both)


def _copies_alone(spans: Spans) -> int:
    """Kernels are united, copies are not."""
    kernels = union(of("kernel", spans))
    copies = of("copy", spans)
    return sum(max(0, min(a["end"], end) - max(a["start"], start)) for a in copies for start, end in kernels)


def _touched(spans: Spans) -> int:
    """Copies, whole, that any kernel overlaps."""
    copies = [a for a in of("copy", spans) if _pairs([a, *of("kernel", spans)])]
    return length(union(copies))


every_pair = with_other(overlap=_pairs)
each_copy = with_other(overlap=_copies_alone)
whole_copies = with_other(overlap=_touched)
all_with_all = with_other(overlap=lambda spans: summed(spans) - length(union(spans)))
copies_over_the_rest = with_other(overlap=lambda spans: summed(of("copy", spans)))


def gaps_of_nothing(spans: Spans) -> dict[str, Any]:
    """Stretches that touch stay two, with a gap of no length."""
    found, spans = right(spans), true(spans)
    stretches: list[list[int]] = []
    for span in sorted(spans, key=lambda span: span["start"]):
        if stretches and span["start"] < stretches[-1][1]:
            stretches[-1][1] = max(stretches[-1][1], span["end"])
        else:
            stretches.append([span["start"], span["end"]])
    return found | {"gaps": between(stretches)}


def _swept(spans: Spans, ordered: bool = True, furthest: bool = True) -> dict[str, Any]:
    """A walk over the spans that looks at the one before."""
    found, spans = right(spans), true(spans)
    if ordered:
        spans = sorted(spans, key=lambda span: span["start"])
    gaps: list[list[int]] = []
    busy, until = 0, None
    for span in spans:
        if until is None or span["start"] > until:
            gaps += [] if until is None else [[until, span["start"]]]
            busy += span["end"] - span["start"]
        else:
            busy += max(0, span["end"] - until)
        until = span["end"] if until is None or not furthest else max(until, span["end"])
    return found | {"busy": busy, "idle": length(gaps), "gaps": gaps}


def end_of_the_one_before(spans: Spans) -> dict[str, Any]:
    return _swept(spans, furthest=False)


def in_order_of_the_file(spans: Spans) -> dict[str, Any]:
    return _swept(spans, ordered=False)


def kernels_only(spans: Spans) -> dict[str, Any]:
    return right(of("kernel", spans)) | {"overlap": overlap(true(spans))}


def until_the_last_started(spans: Spans) -> dict[str, Any]:
    """idle by the window, which ends with the span that started last."""
    found, spans = right(spans), sorted(true(spans), key=lambda span: span["start"])
    return found | {"idle": (spans[-1]["end"] - spans[0]["start"] if spans else 0) - found["busy"]}


def all_spans(spans: Spans) -> dict[str, Any]:
    """Spans that took no time, or less, are counted like others."""
    stretches = union(spans)
    gaps = between(stretches)
    return {"busy": length(stretches), "idle": length(gaps), "gaps": gaps, "overlap": overlap(spans)}


def window_of_all(spans: Spans) -> dict[str, Any]:
    """idle by the window, which spans that took no time widen."""
    found = right(spans)
    return found | {"idle": window(spans) - found["busy"]}


def turned_around(spans: Spans) -> dict[str, Any]:
    """Where the end lies before the start, they change places."""
    return right(
        [span | {"start": min(span["start"], span["end"]), "end": max(span["start"], span["end"])} for span in spans]
    )
