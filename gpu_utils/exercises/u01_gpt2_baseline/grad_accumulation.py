"""01.grad_accumulation: many small steps whose gradient equals that of the large batch, padding included."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.u01_gpt2_baseline.tensors import normal
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception
from gpu_utils.grading.watch import Watch

PADDING = -100
_TENSORS_OF_A_PART = 9
_TENSORS_OF_THE_WEIGHT = 6


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    B, T, d, V = case["batch"], case["tokens"], case["width"], case["vocab"]
    targets = torch.randint(V, (B, T), generator=generator)
    if case.get("padded", True):  # rows of very different length, so that micro-batches hold different numbers
        lengths = torch.randint(1, T + 1, (B, 1), generator=generator)
        lengths[0], lengths[-1] = T, 1
        targets[torch.arange(T) >= lengths] = PADDING
    x, weight = normal(generator, torch.float32, B, T, d), normal(generator, torch.float32, V, d, std=d**-0.5)
    return {"weight": weight, "x": x, "targets": targets, "micro_batch": case["micro_batch"]}


def _reference(weight: Tensor, x: Tensor, targets: Tensor, micro_batch: int) -> dict[str, Any]:
    real = targets != PADDING
    rows, wanted = x.double()[real], targets[real]
    p = (rows @ weight.double().T).softmax(-1)
    loss = -p[torch.arange(len(rows)), wanted].log().mean().item()
    error = (p - F.one_hot(wanted, len(weight))) / len(rows)
    memory = {"rows of logits at once": f"at most {micro_batch} sequences", "kept for backward": "one part at a time"}
    return {"loss": loss, "grad": error.T @ rows, **memory}


class _Logits(Watch):
    """Watches tensors with an axis as long as the vocabulary.

    largest  the most rows that one of them had
    alive    the most rows that were in memory at one time, in all of them together
    """

    def __init__(self, vocab: int, width: int) -> None:
        super().__init__()
        self.vocab, self.width, self.largest, self.alive = vocab, width, 0, 0
        self._rows: dict[StorageWeakRef, int] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.ndim > 1 and self.vocab in result.shape:
            rows = result.numel() // self.vocab
            if result.shape[-2:] != (self.vocab, self.width):  # gradients of the weight are no logits
                self.largest = max(self.largest, rows)
            self._rows[StorageWeakRef(result.untyped_storage())] = rows
            self._rows = {memory: rows for memory, rows in self._rows.items() if not memory.expired()}
            self.alive = max(self.alive, sum(self._rows.values()))
        return result


def _call(answer: Any, inputs: Inputs) -> Any:
    _, T, d = inputs["x"].shape
    with _Logits(*inputs["weight"].shape) as seen:
        result = answer(**inputs)
    if not isinstance(result, dict):
        raise TypeError(f"grad_accumulation returned {type(result).__name__}; expected a dict with loss and grad")
    part = inputs["micro_batch"] * T
    # the transposed weight has such an axis, too: d rows of it are no logits
    within = seen.largest <= max(part, d)
    found = f"at most {inputs['micro_batch']} sequences" if within else f"{seen.largest // T} sequences"
    # one part has its logits, what comes of them on the way to the loss, and the gradients of these; the weight has
    # copies and gradients
    room = _TENSORS_OF_A_PART * part + _TENSORS_OF_THE_WEIGHT * d
    parts = "one part at a time" if seen.alive <= room else "several parts at once"
    return {**result, "rows of logits at once": found, "kept for backward": parts}


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # a gradient sums one product per target, each divided by their number; each holds a softmax over sums of d terms
    n = int((inputs["targets"] != PADDING).sum())
    return tolerance(torch.float32, k=n * inputs["x"].shape[-1], magnitude=1 / n, roundings=8)


def _variant(divide: str = "targets", clear: bool = False, drop_last: bool = False, whole: bool = False) -> Any:
    """A wrong accumulation: the right one with one thing changed."""

    def answer(weight: Tensor, x: Tensor, targets: Tensor, micro_batch: int) -> dict[str, Any]:
        w = weight.detach().clone().requires_grad_()
        size = len(x) if whole else micro_batch
        parts = list(zip(x.split(size), targets.split(size), strict=True))
        if drop_last and len(parts) > 1 and len(parts[-1][0]) < size:
            parts.pop()
        total = 0.0
        for part, wanted in parts:
            if clear:
                w.grad = None
            summed = F.cross_entropy((part @ w.T).flatten(0, 1), wanted.flatten(), reduction="sum")
            own = (wanted != PADDING).sum()
            loss = {
                "targets": summed / (targets != PADDING).sum(),
                "parts": summed / own / len(parts),
                "own": summed / own,
                "sequences": summed / own * len(part) / len(x),
                "all tokens": summed / targets.numel(),
            }[divide]
            loss.backward()
            total += loss.item()
        return {"loss": total, "grad": w.grad}

    return answer


def _one_graph(weight: Tensor, x: Tensor, targets: Tensor, micro_batch: int) -> dict[str, Any]:
    w = weight.detach().clone().requires_grad_()
    total: Any = 0.0
    for part, wanted in zip(x.split(micro_batch), targets.split(micro_batch), strict=True):
        total = total + F.cross_entropy((part @ w.T).flatten(0, 1), wanted.flatten(), reduction="sum")
    total = total / (targets != PADDING).sum()
    total.backward()
    return {"loss": total.item(), "grad": w.grad}


def _vocabulary_first(weight: Tensor, x: Tensor, targets: Tensor, micro_batch: int) -> dict[str, Any]:
    real = targets != PADDING
    rows, wanted = x[real], targets[real]
    p = (weight @ rows.T).softmax(0)
    place = wanted, torch.arange(len(rows), device=x.device)
    loss = -p[place].log().mean()
    p[place] -= 1
    return {"loss": loss, "grad": p @ rows / len(rows)}


def _filled(value: float) -> Any:
    return lambda weight, x, targets, micro_batch: {"loss": value, "grad": torch.full_like(weight, value)}


def _fresh(rng: random.Random) -> Case:
    return Case(
        "a fresh case with an uneven end",
        batch=3 * rng.randint(2, 4) + rng.randint(1, 2),
        micro_batch=3,
        tokens=rng.randint(5, 9),
        width=rng.randint(3, 12),
        vocab=rng.randint(17, 60),
    )


EXERCISE = Exercise(
    id="01.grad_accumulation",
    title="Gradient accumulation that equals the large batch",
    parameters=("weight", "x", "targets", "micro_batch"),
    kind="torch",
    inputs=_inputs,
    reference=_reference,
    tolerance=_tolerance,
    dtype=lambda inputs: torch.float32,
    call=_call,
    trivial={
        "zeros": _filled(0.0),
        "ones": _filled(1.0),
        "nan": _filled(math.nan),
        "input": lambda weight, x, targets, micro_batch: {"loss": 0.0, "grad": weight},
    },
    cases=(
        Case(
            "the micro-batch is the batch: nothing to accumulate", batch=2, micro_batch=2, tokens=5, width=4, vocab=13
        ),
        Case(
            "even parts, no padding: every way of averaging agrees",
            batch=6,
            micro_batch=2,
            tokens=7,
            width=8,
            vocab=31,
            padded=False,
        ),
        Case("the last part is smaller", batch=7, micro_batch=3, tokens=6, width=8, vocab=29, padded=False),
        Case(
            "padding: parts of the same size hold different numbers of targets",
            batch=6,
            micro_batch=2,
            tokens=9,
            width=10,
            vocab=37,
        ),
        Example(
            "the example of the docstring",
            weight=lambda: torch.zeros(2, 1),
            x=lambda: torch.ones(3, 1, 1),
            targets=lambda: torch.tensor([[0], [1], [-100]]),
            micro_batch=2,
        ),
        Case(
            "both, one sequence at a time, and so many that their graphs must not pile up",
            **{"batch": 14, "micro_batch": 1, "tokens": 11, "width": 6, "vocab": 41},
        ),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "mean_of_means",
            _variant(divide="parts"),
            "Each part was averaged on its own and the averages were averaged. Parts with few targets then count as "
            "much as full ones. By what must every target's loss be divided?",
        ),
        Misconception(
            "means_weighed_by_sequences",
            _variant(divide="sequences"),
            "Right without padding, also where the last part is smaller. But a part weighs by its real targets, not by "
            "its sequences: some of those are mostly padding.",
        ),
        Misconception(
            "sum_of_means",
            _variant(divide="own"),
            "The gradients of the parts are added without dividing by how many parts there are: the step grows with "
            "their number.",
        ),
        Misconception(
            "counts_the_padding",
            _variant(divide="all tokens"),
            "The sum is divided by all positions. Those with target -100 have no loss and must not be counted.",
        ),
        Misconception(
            "clears_the_gradient",
            _variant(clear=True),
            "Only the last part is left in the gradient: it is cleared before each part. backward() adds to .grad by "
            "itself.",
        ),
        Misconception(
            "drops_the_last",
            _variant(drop_last=True),
            "The smaller last part is missing.",
        ),
        Misconception(
            "whole_batch",
            _variant(whole=True),
            "The numbers are right, but the logits of more sequences than micro_batch were in memory at once, which "
            "is what accumulation is there to avoid.",
        ),
        Misconception(
            "whole_batch_vocabulary_first",
            _vocabulary_first,
            "The numbers are right, but the logits of the whole batch were in memory at once, with the vocabulary as "
            "another axis. No more than micro_batch sequences may have theirs there.",
        ),
        Misconception(
            "one_graph",
            _one_graph,
            "The numbers are right, but all parts are in memory together, as much as for the large batch: autograd "
            "keeps what a part needs until its backward() has run, and a list keeps what is put into it. When can a "
            "part go?",
        ),
    ),
    hints=(
        "The large batch divides the sum of all losses by the number of real targets. Each part must be divided by "
        "that same number.",
        "Count the targets that are not -100 once, over the whole batch. For each part take the sum of losses "
        '(reduction="sum"), divide by the count, call backward().',
        "w = weight.detach().clone().requires_grad_(); loop over zip(x.split(micro_batch), "
        "targets.split(micro_batch)); "
        'F.cross_entropy(logits.flatten(0, 1), part.flatten(), reduction="sum") / count; .grad adds up by itself.',
    ),
    explanation=(
        "The mean of means equals the mean only when all parts hold the same number of targets. With padding they "
        "never do, and short sequences then pull harder on the weights. The same mistake appears when ranks average "
        "their gradients (unit 11). Memory holds the logits of one part at a time: for GPT-2 they are 50,257 "
        "numbers a token."
    ),
)
