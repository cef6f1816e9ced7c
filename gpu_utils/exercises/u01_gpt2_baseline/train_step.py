"""01.train_step: a step of training that is repaired: padding, a tied weight, gradients that are not finite."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.u01_gpt2_baseline.tensors import normal
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

Weights = dict[str, Tensor]
Parts = list[tuple[Tensor, Tensor]]
MOMENTUM, DECAY, PADDING = 0.9, 0.1, -100


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    d, vocab = case["width"], case["vocab"]
    weights = {
        "wte.weight": normal(generator, torch.float32, vocab, d),
        "mix.weight": normal(generator, torch.float32, d, d, std=d**-0.5),
        "mix.bias": normal(generator, torch.float32, d, std=0.5),
    }
    steps, parts = case["steps"], case["parts"]
    tokens = torch.randint(vocab, (steps, parts, 2, case["tokens"] + 1), generator=generator)
    rates = [case["lr"] * (step + 1) / steps for step in range(steps)]
    real = torch.full((steps, parts), 2 * case["tokens"])
    if case.get("padding"):  # any number but none; the first part of all holds few
        real = torch.randint(1, 2 * case["tokens"] + 1, (steps, parts), generator=generator)
        real[0] = torch.tensor([2, *[2 * case["tokens"]] * (parts - 1)])
    spoiled = case.get("spoiled", {})
    rest = {"rates": rates, "clip": case["clip"], "spoiled": [spoiled.get(str(step), "") for step in range(steps)]}
    return {"weights": weights, "tokens": tokens, "real": real.tolist(), **rest}


def _loss(weights: Weights, tokens: Tensor, targets: Tensor, spoiled: str = "") -> Tensor:
    """A model of two tokens with a tied output, small enough for float64: mean loss of a part's real targets.

    spoiled  "gradient": it is NaN, and the loss is what it would be; "loss": both are NaN
    """
    x = torch.tanh(F.linear(F.embedding(tokens, weights["wte.weight"]), weights["mix.weight"], weights["mix.bias"]))
    loss = F.cross_entropy(F.linear(x, weights["lm_head.weight"]).flatten(0, 1), targets.flatten())
    if spoiled == "gradient":
        loss = loss + (0 * weights["mix.weight"]).square().sum().sqrt()  # the slope of a root at 0
    return loss * math.nan if spoiled == "loss" else loss


def _parts(batch: Tensor, real: list[int]) -> Parts:
    """The batch (parts, sequences, T + 1) as pairs; all but the first `real` targets of each part are padding."""
    parts = [(part[:, :-1], part[:, 1:].clone()) for part in batch]
    for (_, targets), count in zip(parts, real, strict=True):
        targets.view(-1)[count:] = PADDING
    return parts


def _shown(norm: Any) -> Any:
    """A norm as it is compared: one that is not finite is NaN, for an infinity says the same."""
    number = norm.item() if isinstance(norm, Tensor) and norm.ndim == 0 else norm
    return math.nan if isinstance(number, float) and not math.isfinite(number) else norm


def _run(step: Callable[..., dict[str, Any]], inputs: Inputs, dtype: torch.dtype) -> dict[str, Any]:
    """Every step of a short training: what each returned, and the weights at the end."""
    weights = {name: w.detach().clone().to(dtype).requires_grad_() for name, w in inputs["weights"].items()}
    groups: list[dict[str, Any]] = [
        {"params": [w for w in weights.values() if w.dim() > 1], "weight_decay": DECAY},
        {"params": [w for w in weights.values() if w.dim() == 1]},
    ]
    optimizer = torch.optim.SGD(groups, lr=1.0, momentum=MOMENTUM)
    tied = {**weights, "lm_head.weight": weights["wte.weight"]}
    returned: dict[str, list[Any]] = {"loss": [], "norm": []}
    rest = (inputs["real"], inputs["rates"], inputs["spoiled"])
    for batch, real, lr, spoiled in zip(inputs["tokens"], *rest, strict=True):
        left = iter([spoiled])  # the first part of the step is spoiled
        result = step(
            weights=tied,
            optimizer=optimizer,
            loss=lambda tokens, targets, left=left: _loss(tied, tokens, targets, next(left, "")),
            parts=_parts(batch, real),
            lr=lr,
            clip=inputs["clip"],
        )
        if not isinstance(result, dict) or set(result) != set(returned):
            raise TypeError(f"train_step returned {type(result).__name__}; expected a dict with loss and norm")
        for name, values in returned.items():
            values.append(result[name])
    returned["norm"] = [_shown(norm) for norm in returned["norm"]]
    return {**returned, "weights": {name: w.detach() for name, w in weights.items()}}


def _step(
    weighs: str = "real targets",
    clear: str = "always",
    rate: str = "before",
    clip_when: str = "before",
    tied: bool = False,
    report: str = "before",
    loss_is: str = "of the batch",
    skips_by: str = "norm",
) -> Callable[..., dict[str, Any]]:
    """The step; the arguments make it wrong."""

    def answer(
        weights: Weights,
        optimizer: torch.optim.Optimizer,
        loss: Callable[[Tensor, Tensor], Tensor],
        parts: Parts,
        lr: float,
        clip: float,
    ) -> dict[str, Any]:
        leaves = list(weights.values()) if tied else list({id(w): w for w in weights.values()}.values())
        real = [int((targets != PADDING).sum()) for _, targets in parts]
        share = {"real targets": [one / sum(real) for one in real], "nothing": [1.0] * len(parts)}
        shares = share.get(weighs, [1 / len(parts)] * len(parts))
        losses = []
        if clear == "always":
            optimizer.zero_grad()
        for (tokens, targets), part_of in zip(parts, shares, strict=True):
            part = loss(tokens, targets)
            (part * part_of).backward()
            losses.append(part.item())
        norm = torch.nn.utils.get_total_norm([w.grad for w in leaves if w.grad is not None]).item()
        if clip_when == "before":
            torch.nn.utils.clip_grad_norm_(leaves, clip)
        if clip_when == "each number":
            torch.nn.utils.clip_grad_value_(leaves, clip)
        if clip_when == "to the norm":  # also where it is below
            for w in leaves:
                w.grad = w.grad * (clip / norm) if w.grad is not None else None
        if report == "after":
            norm = min(norm, clip) if math.isfinite(norm) else norm
        if rate in ("before", "first group"):
            _set_rate(optimizer.param_groups[: 1 if rate == "first group" else None], lr)
        if skips_by == "nothing" or math.isfinite({"norm": norm, "loss": sum(losses)}[skips_by]):
            optimizer.step()
            if clear == "after a step":
                optimizer.zero_grad()
        if clip_when == "after":
            torch.nn.utils.clip_grad_norm_(leaves, clip)
        if rate == "after":
            _set_rate(optimizer.param_groups, lr)
        weighed = sum(one * part_of for one, part_of in zip(losses, shares, strict=True))
        found = {"of the batch": weighed, "mean": sum(losses) / len(losses), "sum": sum(losses), "last": losses[-1]}
        return {"loss": found[loss_is], "norm": norm}

    return answer


def _set_rate(groups: list[dict[str, Any]], lr: float) -> None:
    for group in groups:
        group["lr"] = lr


def _call(answer: Any, inputs: Inputs) -> dict[str, Any]:
    return _run(answer, inputs, torch.float32)


def _reference(**inputs: Any) -> dict[str, Any]:
    with torch.enable_grad():
        return _run(_step(), inputs, torch.float64)


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # an element of a gradient sums one product a token and one a channel, in every step; three matrix products in a row
    k = 3 * case["steps"] * case["parts"] * (2 * case["tokens"] + case["width"])
    return tolerance(torch.float32, k=k, roundings=8 * case["steps"])


def _idle(value: float) -> Callable[..., dict[str, Any]]:
    return lambda **_given: {"loss": value, "norm": value}


def _fresh(rng: random.Random) -> Case:
    return Case(
        "a fresh run",
        width=rng.randint(4, 9),
        vocab=rng.randint(7, 20),
        tokens=rng.randint(3, 9),
        parts=rng.randint(2, 4),
        steps=3,
        lr=rng.uniform(0.05, 0.3),
        clip=rng.uniform(0.1, 0.3),
        padding=rng.choice([False, True]),
        spoiled={str(rng.randint(0, 1)): rng.choice(["gradient", "loss"])},
    )


EXERCISE = Exercise(
    id="01.train_step",
    title="A training step, repaired",
    parameters=("weights", "optimizer", "loss", "parts", "lr", "clip"),
    kind="torch",
    inputs=_inputs,
    reference=_reference,
    tolerance=_tolerance,
    dtype=lambda inputs: torch.float32,
    call=_call,
    trivial={"zeros": _idle(0.0), "ones": _idle(1.0), "nan": _idle(math.nan), "input": _idle(0.5)},
    cases=(
        Case(
            "one step, one part, a clip that is never reached: forward, backward, step",
            **{"width": 4, "vocab": 11, "tokens": 5, "parts": 1, "steps": 1, "lr": 0.1, "clip": 1e3},
        ),
        Case(
            "three full parts: the mean over the batch",
            **{"width": 6, "vocab": 13, "tokens": 4, "parts": 3, "steps": 1, "lr": 0.2, "clip": 1e3},
        ),
        Case(
            "three parts, one of them with 2 real targets: the mean over the batch's",
            **{"width": 5, "vocab": 11, "tokens": 6, "parts": 3, "steps": 2, "lr": 0.2, "clip": 1e3, "padding": True},
        ),
        Case(
            "four steps, each with another learning rate",
            **{"width": 5, "vocab": 9, "tokens": 6, "parts": 1, "steps": 4, "lr": 0.2, "clip": 1e3},
        ),
        Case(
            "a clip far below the norm",
            **{"width": 5, "vocab": 9, "tokens": 6, "parts": 2, "steps": 2, "lr": 0.3, "clip": 0.05},
        ),
        Case(
            "the second of four gradients is not finite, its loss is",
            **{"width": 4, "vocab": 9, "tokens": 5, "parts": 2, "steps": 4, "lr": 0.2, "clip": 0.2},
            spoiled={"1": "gradient"},
        ),
        Case(
            "neither the loss nor the gradient of the second step is finite",
            **{"width": 4, "vocab": 9, "tokens": 5, "parts": 1, "steps": 3, "lr": 0.2, "clip": 1e3},
            spoiled={"1": "loss"},
        ),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "parts_weigh_equally",
            _step(weighs="parts"),
            "Right where all parts hold equally many real targets. A mean over 2 targets must weigh less than one over "
            "12: each part's loss counts by its share of the batch's real targets.",
        ),
        Misconception(
            "loss_with_equal_weights",
            _step(loss_is="mean"),
            "The weights are right. The loss that is returned is the mean of the parts' means, not of the batch's real "
            "targets.",
        ),
        Misconception(
            "not_divided",
            _step(weighs="nothing", loss_is="mean"),
            "The gradients of the parts are added up with weight 1: the gradient, and its norm, grow with the number "
            "of parts. The batch's loss is a mean.",
        ),
        Misconception(
            "nothing_divided",
            _step(weighs="nothing"),
            "Loss and gradient are sums over the parts; both should be means over the batch's real targets.",
        ),
        Misconception(
            "skips_by_the_loss",
            _step(skips_by="loss"),
            "A step was done with a gradient that is not finite, because its loss was finite. The norm says it, the "
            "loss does not.",
        ),
        Misconception(
            "never_skips",
            _step(skips_by="nothing"),
            "A step was done with a gradient that is not finite, and from then on no weight is a number.",
        ),
        Misconception(
            "keeps_the_gradient_of_a_skipped_step",
            _step(clear="after a step"),
            "The step after a skipped one is wrong: what was in .grad stayed there, for gradients are cleared only "
            "where a step was done.",
        ),
        Misconception(
            "gradients_kept",
            _step(clear="never"),
            "The first step is right, the later ones are not: backward() adds to .grad, and nothing clears what the "
            "step before left there.",
        ),
        Misconception(
            "rate_after_the_step",
            _step(rate="after"),
            "The learning rate is set after the step, so each step uses the rate of the one before it.",
        ),
        Misconception(
            "rate_never_set",
            _step(rate="never"),
            "The optimizer keeps the rate that it was made with: every group of optimizer.param_groups holds its own.",
        ),
        Misconception(
            "rate_of_the_first_group_alone",
            _step(rate="first group"),
            "Only one group of optimizer.param_groups gets the rate. The optimizer has two, as at the end of the lab.",
        ),
        Misconception(
            "used_before_it_was_clipped",
            _step(clip_when="after"),
            "The optimizer has used a gradient that was not clipped: clip it after the last backward, before the step.",
        ),
        Misconception(
            "clips_each_number",
            _step(clip_when="each number"),
            "Every number is clipped on its own, which changes the direction. The norm of the whole gradient is what "
            "clip bounds: one factor for all.",
        ),
        Misconception(
            "always_scales_to_the_clip",
            _step(clip_when="to the norm"),
            "The gradient is scaled to the norm clip also where it was smaller: clipping never makes a gradient "
            "larger.",
        ),
        Misconception(
            "tied_weight_twice",
            _step(tied=True),
            "The norm is too large: weights holds the tied matrix under two names, and its gradient is counted for "
            "both. Take each tensor once; optimizer.param_groups has each once.",
        ),
        Misconception(
            "norm_after_clipping",
            _step(report="after"),
            "The weights are right. The norm is asked as it was before clipping: that is what clip_grad_norm_ returns.",
        ),
        Misconception(
            "sum_of_the_losses",
            _step(loss_is="sum"),
            "The weights are right. The loss of the batch is a mean over its real targets, this is the sum of the "
            "parts' means.",
        ),
        Misconception(
            "loss_of_the_last_part",
            _step(loss_is="last"),
            "The weights are right. The loss returned is that of the last part alone.",
        ),
    ),
    hints=(
        "Three things here never happen in the lesson's loop: parts with padding, a gradient that is not finite, and "
        "one tensor under two names. What does each line do then?",
        "A part's loss counts by its share of the real targets. Whether to step is decided by the norm, and .grad must "
        "be empty before the first backward, whatever the step before did. clip_grad_norm_ counts what it is given, "
        "once for each time. How many groups get lr?",
        "zero_grad first; for each part (loss * real targets of the part / real targets of the batch).backward(); "
        'norm = clip_grad_norm_(each weight once, clip); set group["lr"] in all optimizer.param_groups; '
        "optimizer.step() only if norm.isfinite(); return the weighted loss and the norm.",
    ),
    explanation=(
        "Every one of these faults trains: the loss falls, only less well, and no error shows until a gradient is not "
        "finite. Three of them need a batch that the lesson's loop never meets. What finds them is a comparison with a "
        "step that is known to be right, on batches made to be unpleasant, which is what the check does and what "
        "parity in unit 03 does."
    ),
)
