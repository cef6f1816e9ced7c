"""11.overlap: experts compute one batch while the next one, and the results of the last, are on their way.

Judged by the order of events on each rank, which a busy machine does not change: what was under way from before a
compute began until after it had ended.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.on_ranks import on_ranks
from gpu_utils.exercises.u11_expert_parallelism import overlap_slips as slips
from gpu_utils.exercises.u11_expert_parallelism.recorded_compute import RecordedCompute, computed
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

LATENCY, COMPUTE = 0.12, 0.04
"""Seconds that a message takes, and a batch in the experts."""

Record = Mapping[str, Any]


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    world, width = case["ranks"], case["width"]

    def batch(rows: int) -> Tensor:
        return torch.randint(-50, 50, (rows * world, width), generator=generator).float()

    each = [{"batches": [batch(rows) for rows in case["rows"]]} for _ in range(world)]
    return {"each": each, "shared": {"seconds": COMPUTE}, "wires": {"latency": LATENCY}}


def reference(each: Any, shared: Any, wires: Any) -> list[list[Tensor]]:
    """By rank, its batches after each part was computed on the rank that it was sent to."""
    parts = [[batch.chunk(len(each)) for batch in one["batches"]] for one in each]
    return [[torch.cat([computed(rows, to) for to, rows in enumerate(batch)]) for batch in one] for one in parts]


def came(each: Any, rank: int) -> list[Tensor]:
    """What comes to a rank of each batch, by source."""
    world = len(each)
    batches = zip(*(one["batches"] for one in each), strict=True)
    return [torch.cat([batch.chunk(world)[rank] for batch in sources]) for sources in batches]


def _call(answer: Callable[..., Any], inputs: Inputs) -> Any:
    def on_a_rank(batches: list[Tensor], seconds: float) -> dict[str, Any]:
        compute = RecordedCompute(dist.get_rank(), seconds)
        return {"outs": answer(batches=batches, compute=compute), "computes": compute.calls}

    return on_ranks(seconds=30.0)(on_a_rank, inputs)


# --- what happened on a rank --------------------------------------------------------------------------------------


def _exchanges(events: list[Record], world: int) -> list[tuple[Record, float]]:
    """What brought rows, and which part of an exchange it is: an all-to-all is one, a recv from one rank a part."""
    found = [(event, 1.0) for event in events if event["name"].startswith("all_to_all")]
    return found + [(event, 1.0 / (world - 1)) for event in events if event["name"] == "recv"]


def _returned(exchanges: list[tuple[Record, float]], before: float) -> float:
    """How many were waited for, and over, before a moment."""
    return sum(part for event, part in exchanges if event["returned"] is not None and event["returned"] <= before)


def _under_way(exchanges: list[tuple[Record, float]], start: float, end: float) -> float:
    """How many had begun by `start` and were not waited for before `end`."""
    return sum(
        part
        for event, part in exchanges
        if event["issued"] <= start and (event["returned"] is None or event["returned"] >= end)
    )


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    expected = reference(**inputs)
    for rank, (found, events) in enumerate(zip(value["ranks"], value["events"], strict=True)):
        exchanges = _exchanges(events, len(expected))
        for look in (_form, _exchanged, _waited, _valued, _covered):
            if problem := look(found, expected[rank], exchanges):
                return Difference(problem.kind, f"on rank {rank} {problem.detail}")
        if problem := _in_turn(found, came(inputs["each"], rank)):
            return Difference(problem.kind, f"on rank {rank} {problem.detail}")
    return None


def _form(found: Any, expected: list[Tensor], exchanges: Any) -> Difference | None:
    outs = found["outs"]
    if not isinstance(outs, (list, tuple)) or not all(isinstance(out, Tensor) for out in outs):
        return Difference("form", "the result is no list of tensors; expected one for each batch")
    if len(outs) != len(expected):
        return Difference(f"length:{len(outs) - len(expected)}", f"{len(outs)} came back, expected {len(expected)}")
    if len(found["computes"]) != len(expected):
        return Difference("computes", f"compute ran {len(found['computes'])} times, expected once for each batch")
    return None


def _exchanged(found: Any, expected: list[Tensor], exchanges: Any) -> Difference | None:
    count = round(sum(part for _, part in exchanges), 3)
    if count != 2 * len(expected):
        detail = f"there were {count:g} exchanges, expected two for each of {len(expected)} batches: out, and back"
        return Difference(f"exchanges:{count / len(expected):g}", detail)
    return None


def _overlap(call: Record, place: int, until: int) -> bool:
    """Whether the rows of a compute lie in that stretch of memory, or in part of it."""
    return bool(call["place"] < until and place < call["until"])


def _waited(found: Any, expected: list[Tensor], exchanges: Any) -> Difference | None:
    for at, call in enumerate(found["computes"]):
        if _returned(exchanges, call["start"]) < at + 1 - 1e-6:
            begun = sum(part for event, part in exchanges if event["issued"] <= call["start"])
            kind = "early" if begun > at else "early:not sent"
            return Difference(kind, f"compute {at + 1} began before anybody had waited for its rows")
        own = [e for e, _ in exchanges if e["issued"] <= call["start"] and any(_overlap(call, *p) for p in e["places"])]
        if own and not any(e["returned"] is not None and e["returned"] <= call["start"] for e in own):
            return Difference(
                "early",
                f"compute {at + 1} began before anybody had waited for its rows; another exchange was waited for",
            )
    computes = found["computes"]
    for at in range(len(computes) - 1):
        if _overlap(computes[at], computes[at + 1]["place"], computes[at + 1]["until"]):
            detail = f"computes {at + 1} and {at + 2} read the same buffer, while the second's rows were on their way"
            return Difference("buffer", detail)
    if _returned(exchanges, float("inf")) < 2 * len(expected) - 1e-6:
        return Difference("not waited", "results were handed back before they had come: nobody waited for an exchange")
    return None


def _valued(found: Any, expected: list[Tensor], exchanges: Any) -> Difference | None:
    for at, (out, right) in enumerate(zip(found["outs"], expected, strict=True)):
        if not torch.equal(out, right) and any(torch.equal(out, other) for other in expected):
            return Difference("order", f"result {at + 1} is that of another batch")
        if out.shape != right.shape or out.dtype != right.dtype:
            detail = f"result {at + 1} is {tuple(out.shape)} of {out.dtype}, expected {tuple(right.shape)} of float32"
            return Difference("shape", detail)
        if not torch.equal(out, right):
            return Difference("value", f"result {at + 1} is not what the experts of each rank make of its rows")
    return None


def _in_turn(found: Any, expected: list[Tensor]) -> Difference | None:
    """Whether the experts got the batches in their order."""
    for at, (call, rows) in enumerate(zip(found["computes"], expected, strict=True)):
        if not torch.equal(call["given"], rows):
            return Difference("turn", f"compute {at + 1} got other rows than those of batch {at + 1}, by source")
    return None


def _covered(found: Any, expected: list[Tensor], exchanges: Any) -> Difference | None:
    """While a batch is computed the next is under way, and the result of the one before."""
    last = len(expected) - 1
    needed = [(at < last) + (at > 0) for at in range(last + 1)]
    seen = [_under_way(exchanges, call["start"], call["end"]) for call in found["computes"]]
    covered = [min(int(count + 1e-6), need) for count, need in zip(seen, needed, strict=True)]
    if covered == needed:
        return None
    first = _returned(exchanges, found["computes"][0]["start"])
    detail = f"{covered} exchanges were under way during the computes, expected {needed}: next batch, last result"
    return Difference(f"covered:{covered}:{first:g}", detail)


def _fresh(rng: random.Random) -> Case:
    rows = [rng.randrange(1, 6) for _ in range(rng.choice((2, 3, 4)))]
    return Case("batches nobody chose", ranks=rng.choice((2, 3)), rows=rows, width=rng.randrange(2, 9))


EXERCISE = Exercise(
    id="11.overlap",
    title="Compute behind communication",
    parameters=("batches", "compute"),
    kind="host",
    inputs=_inputs,
    reference=reference,
    call=_call,
    judge=_judge,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    ranks=True,
    seconds=60.0,
    cases=(
        Case("three batches of one size on two ranks", ranks=2, rows=[3, 3, 3], width=4),
        Case("four batches of different sizes on three ranks", ranks=3, rows=[2, 5, 1, 4], width=3),
        Case("one batch: there is nothing to hide behind", ranks=2, rows=[4], width=2),
    ),
    fresh=_fresh,
    trivial={
        "zeros": lambda batches, compute: [torch.zeros_like(batch) for batch in batches],
        "ones": lambda batches, compute: [torch.ones_like(batch) for batch in batches],
        "nan": lambda batches, compute: [torch.full_like(batch, torch.nan) for batch in batches],
        "the input": lambda batches, compute: list(batches),
    },
    misconceptions=(
        Misconception(
            "one_after_the_other",
            slips.overlapping(ahead=False, combine="now"),
            "Nothing is under way while the experts compute: each exchange is waited for as soon as it has begun. "
            "Begin the next exchange first, then wait for the one whose rows you need.",
        ),
        Misconception(
            "only_the_way_out",
            slips.overlapping(combine="now"),
            "The next batch travels while one is computed, its results do not: each is waited for at once. Keep the "
            "work that the way back gives, and wait for it at the end.",
        ),
        Misconception(
            "only_the_way_back",
            slips.overlapping(ahead=False),
            "Results travel while the next batch is computed, and the next batch does not: it is begun after the "
            "compute before it. Begin it before.",
        ),
        Misconception(
            "all_out_first",
            slips.all_out_then_all_in,
            "All batches were sent and all were waited for before the first compute. Wait for one alone: the others "
            "come while it is computed.",
        ),
        Misconception(
            "three_phases",
            slips.phases,
            "All out, all computed, all back: three phases, and nothing is under way in the second. While a batch is "
            "computed, the next one comes and the last result goes.",
        ),
        Misconception(
            "waits_for_the_next",
            slips.waits_for_the_next,
            "The next batch was begun, and waited for at once, before the compute that was to hide it. Wait for the "
            "rows of this compute only.",
        ),
        Misconception(
            "reads_before_waiting",
            slips.overlapping(reads_early=True),
            "compute got rows that had not come yet. An exchange that has begun gives a tensor at once, with "
            "whatever was in that memory: wait() first.",
        ),
        Misconception(
            "does_not_wait_at_the_end",
            slips.overlapping(combine="never"),
            "The results were returned while they were still on their way. Wait for every exchange before you return.",
        ),
        Misconception(
            "forgets_the_last",
            slips.forgets_the_last,
            "The last batch was sent and never computed. A loop over pairs of a batch and its next one has one "
            "compute to make up behind it.",
        ),
        Misconception(
            "one_buffer",
            slips.one_buffer,
            "Two batches come into one buffer: the next one writes where compute still reads. An exchange under way "
            "needs memory of its own.",
        ),
        Misconception(
            "last_first",
            slips.last_first,
            "The results are right and in the wrong order: result i belongs to batch i.",
        ),
        Misconception(
            "not_sent_back",
            slips.not_sent_back,
            "What the experts made stayed where they are. Each row goes back to the rank that sent it: a second "
            "exchange for each batch.",
        ),
        Misconception(
            "own_rows_first",
            slips.own_rows_first,
            "Rows were computed where they were, before they were sent. They belong to the experts of other ranks: "
            "first the exchange, then compute.",
        ),
    ),
    hints=(
        "Draw two lanes, one for the wire and one for the experts, and put three batches in: out 1, compute 1, back "
        "1, out 2, ... What may lie above compute 2?",
        "dist.all_to_all_single(out, rows, async_op=True) returns a work at once; out is filled when its wait() has "
        "returned. Begin the first exchange before the loop. In the loop: begin the next, wait for this one, compute, "
        "begin the way back, keep it in a list.",
        "coming = begin(batches[0]); for i in range(n): rows, work = coming; if i + 1 < n: coming = begin(batches[i "
        "+ 1]); work.wait(); back.append(begin(compute(rows))). Then wait for all of back. begin makes a new tensor "
        "each time.",
    ),
    explanation=(
        "An exchange needs nobody while it is under way, so the experts may work. What must be in order is little: "
        "rows are waited for before they are read, results before they are returned. So the next batch is begun "
        "before this one is computed, and results are waited for at the end. Of n batches all but the first way out "
        "and the last way back can be hidden, where compute is long enough. Two exchanges in flight need two "
        "buffers. On a GPU the work's wait() makes a stream wait, not the host, and NCCL or RCCL takes SMs or CUs "
        "from the compute it hides behind."
    ),
)
