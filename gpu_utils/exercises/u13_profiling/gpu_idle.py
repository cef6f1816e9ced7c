"""13.gpu_idle: when a GPU had nothing to do, and how much of its copies was hidden."""

from __future__ import annotations

import random
from typing import Any

import torch

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u13_profiling import gpu_idle_slips as slips
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception


def span(kind: str, stream: int, start: int, end: int) -> dict[str, Any]:
    return {"kind": kind, "stream": stream, "start": start, "end": end}


STATED = [
    span("kernel", 7, 100, 250),
    span("copy", 20, 200, 300),
    span("kernel", 7, 340, 400),
    span("kernel", 8, 360, 380),
    span("kernel", 7, 400, 450),
]
"""The example of the statement."""


def drawn(rng: random.Random, count: int, dense: float) -> list[dict[str, Any]]:
    """Spans of three streams in the order in which a tool might write them, and four that cannot be.

    Of those, one of no length lies before all others, and one that ends before it starts lies after them.

    dense  how much of the time a stream works
    """
    spans: list[dict[str, Any]] = []
    base = rng.randrange(10_000, 99_000)
    for stream, kinds in ((7, ("kernel",)), (8, ("kernel", "copy")), (20, ("copy",))):
        clock = base + rng.randrange(0, 400)
        for _ in range(count):
            length = rng.randrange(50, 900)
            spans.append(span(rng.choice(kinds), stream, clock, clock + length))
            clock += length + rng.choice((0, int(length / dense - length), rng.randrange(1, 90)))
    last = max(one["end"] for one in spans)
    alone = last + rng.randrange(100, 200)  # a gap, a stretch that touches the next, a short one in a long one
    spans += [  # and a gap of one ns at the end
        span("copy", 20, alone + 1_001, alone + 1_040),
        span("copy", 21, alone + 1_010, alone + 1_020),
        span("kernel", 7, alone, alone + 500),
        span("copy", 8, alone + 100, alone + 180),
        span("kernel", 7, alone + 500, alone + 700),
        span("kernel", 8, alone + 900, alone + 950),
        span("kernel", 7, alone + 850, alone + 1_000),
    ]
    rng.shuffle(spans)
    backwards = span("kernel", 7, alone + 750, alone + 740)
    before = span("copy", 20, base - 500, base - 500)
    after = span("kernel", 8, alone + 3_000, alone + 2_900)
    return [before, *spans, span("kernel", 7, alone + 800, alone + 800), backwards, after]


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    if isinstance(case, Example):
        return case.inputs
    rng = random.Random(int(torch.randint(2**31, (), generator=generator)))
    return {"spans": drawn(rng, case["count"], case["dense"])}


def _fresh(rng: random.Random) -> Case:
    return Case("streams nobody chose", count=rng.randrange(3, 12), dense=round(rng.uniform(0.2, 0.8), 2))


EXERCISE = Exercise(
    id="13.gpu_idle",
    title="When the GPU waited",
    parameters=("spans",),
    kind="host",
    inputs=_inputs,
    reference=slips.right,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    parts=("busy", "idle", "gaps", "overlap"),
    cases=(
        Example("the example of the statement", spans=STATED),
        Example(
            "spans in the order of their ends; two copies at once, one of them only half behind a kernel",
            spans=[
                span("copy", 20, 30, 60),
                span("kernel", 7, 20, 70),
                span("copy", 21, 40, 90),
                span("kernel", 8, 10, 95),
                span("copy", 20, 93, 110),
                span("kernel", 7, 150, 160),
            ],
        ),
        Example(
            "a span of no length, and one that ends before it starts",
            spans=[
                span("kernel", 7, 10, 40),
                *[span("kernel", 7, 50, 50), span("copy", 20, 45, 42), span("kernel", 7, 60, 90)],
            ],
        ),
        Example(
            "the same before all others and after them, and a gap of one ns",
            spans=[
                *[span("kernel", 7, 10, 10), span("kernel", 7, 50, 70), span("copy", 20, 71, 90)],
                span("copy", 20, 140, 120),
            ],
        ),
        Example(
            "none but spans of no length, or that end before they start",
            spans=[span("kernel", 7, 50, 50), span("copy", 20, 90, 60), span("kernel", 8, 70, 70)],
        ),
        Case("three streams that work a third of the time", count=6, dense=0.33),
        Case("three streams that are nearly always at work", count=9, dense=0.9),
        Example("a run in which nothing ran", spans=[]),
        Example("a copy that nothing hides", spans=[span("copy", 7, 5, 25)]),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "sums_durations",
            slips.sums_durations,
            "Durations were added up. Where two streams work at once, that time counts twice, and a GPU seems busy for "
            "longer than it ran. busy is time in which at least one of them works.",
        ),
        Misconception(
            "gaps_of_streams",
            slips.gaps_of_streams,
            "These are gaps of single streams. The GPU waits only where all of its streams do.",
        ),
        Misconception(
            "all_of_streams",
            slips.all_of_streams,
            "Each stream was taken for itself and the results were added. One GPU serves all of them: put their spans "
            "together first.",
        ),
        Misconception(
            "from_zero",
            slips.from_zero,
            "A gap before the first span was counted. Time 0 is only where the tool's clock began; what happened "
            "before the first span is not known.",
        ),
        Misconception(
            "every_pair",
            slips.every_pair,
            "A copy behind two kernels at once was counted twice. overlap is time in which at least one copy and at "
            "least one kernel run.",
        ),
        Misconception(
            "each_copy",
            slips.each_copy,
            "Two copies at once, say one in each direction, were counted twice. Unite the copies too before you "
            "compare them with the kernels.",
        ),
        Misconception(
            "whole_copies",
            slips.whole_copies,
            "A copy that is hidden in part was counted whole. Only the part that lies under a kernel is overlap.",
        ),
        Misconception(
            "all_with_all",
            slips.all_with_all,
            "All that was counted twice is in this overlap: kernels with kernels, too. Asked is a copy with a kernel.",
        ),
        Misconception(
            "copies_over_the_rest",
            slips.copies_over_the_rest,
            "This is how long copies took. How much of it lies under a kernel?",
        ),
        Misconception(
            "gaps_of_nothing",
            slips.gaps_of_nothing,
            "There are gaps of length 0: one span ends where the next begins. Nothing waits there.",
        ),
        Misconception(
            "end_of_the_one_before",
            slips.end_of_the_one_before,
            "A long span holds a short one, and a gap was seen behind the short one. Keep the latest end so far, not "
            "the end of the span that started last.",
        ),
        Misconception(
            "in_order_of_the_file",
            slips.in_order_of_the_file,
            "The spans do not come in order of their starts. Sort them first.",
        ),
        Misconception(
            "kernels_only",
            slips.kernels_only,
            "Only kernels counted as work. A GPU that copies is not idle.",
        ),
        Misconception(
            "until_the_last_started",
            slips.until_the_last_started,
            "idle does not fit gaps: the window was closed with the span that started last. An earlier one may end "
            "later.",
        ),
        Misconception(
            "all_spans",
            slips.all_spans,
            "A span of no length, or one that ends before it starts, was used. Leave both out before anything else: "
            "they split gaps and make sums too small.",
        ),
        Misconception(
            "window_of_all",
            slips.window_of_all,
            "idle does not fit gaps: the window was made of all spans. Those that are left out do not widen it either.",
        ),
        Misconception(
            "turned_around",
            slips.turned_around,
            "A span that ends before it starts was turned around. Nobody knows which of its two times is wrong: leave "
            "it out.",
        ),
    ),
    hints=(
        "Draw the five spans of the example as bars on paper, one line for each stream, and shade every moment with at "
        "least one bar. All four results can be read off three such shadings.",
        "Sort by start and walk: while the next span starts at or before the latest end so far, only move that end; "
        "else a gap lies between, and a new stretch begins. Write it as a function of a list of spans and call it "
        "three times: for all, for copies, for kernels.",
        "For two sets of time A and B: in both = |A| + |B| - |A or B|. So overlap = busy(copies) + busy(kernels) - "
        "busy(all), with the united length for busy.",
    ),
    explanation=(
        "Busy time is the measure of a union of intervals: sorted by start, one pass with the latest end so far "
        "finds stretches and gaps, in n log n. Sums of durations answer another question, how much work there was, "
        "and can exceed the wall time. Overlap follows from three unions. A GPU that is idle for a third of the time "
        "gains more from filling gaps than from any faster kernel, and which host call lies over the longest gap "
        "says how."
    ),
)
