"""01.train_step: a step of training that is repaired: gradients, clipping, learning rate, in their order."""

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
MOMENTUM, DECAY = 0.9, 0.1


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
    return {"weights": weights, "tokens": tokens, "rates": rates, "clip": case["clip"]}


def _loss(weights: Weights, tokens: Tensor, targets: Tensor) -> Tensor:
    """A model of two tokens with a tied output, small enough for float64: mean loss of a part."""
    x = torch.tanh(F.linear(F.embedding(tokens, weights["wte.weight"]), weights["mix.weight"], weights["mix.bias"]))
    return F.cross_entropy(F.linear(x, weights["lm_head.weight"]).flatten(0, 1), targets.flatten())


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
    for batch, lr in zip(inputs["tokens"], inputs["rates"], strict=True):
        parts = [(part[:, :-1], part[:, 1:]) for part in batch]
        result = step(
            weights=tied,
            optimizer=optimizer,
            loss=lambda tokens, targets: _loss(tied, tokens, targets),
            parts=parts,
            lr=lr,
            clip=inputs["clip"],
        )
        if not isinstance(result, dict) or set(result) != set(returned):
            raise TypeError(f"train_step returned {type(result).__name__}; expected a dict with loss and norm")
        for name, values in returned.items():
            values.append(result[name])
    return {**returned, "weights": {name: w.detach() for name, w in weights.items()}}


def _step(
    divide: bool = True,
    clear: bool = True,
    rate: str = "before",
    clip_when: str = "before",
    tied: bool = False,
    report: str = "before",
    loss_is: str = "mean",
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
        losses = []
        if clear:
            optimizer.zero_grad()
        for tokens, targets in parts:
            part = loss(tokens, targets)
            (part / len(parts) if divide else part).backward()
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
            norm = min(norm, clip)
        if rate in ("before", "first group"):
            _set_rate(optimizer.param_groups[: 1 if rate == "first group" else None], lr)
        optimizer.step()
        if clip_when == "after":
            torch.nn.utils.clip_grad_norm_(leaves, clip)
        if rate == "after":
            _set_rate(optimizer.param_groups, lr)
        mean = sum(losses) / len(losses)
        return {"loss": {"mean": mean, "sum": sum(losses), "last": losses[-1]}[loss_is], "norm": norm}

    return answer


def _set_rate(groups: list[dict[str, Any]], lr: float) -> None:
    for group in groups:
        group["lr"] = lr


def _call(answer: Any, inputs: Inputs) -> dict[str, Any]:
    return _run(answer, inputs, torch.float32)


def _reference(weights: Weights, tokens: Tensor, rates: list[float], clip: float) -> dict[str, Any]:
    inputs = {"weights": weights, "tokens": tokens, "rates": rates, "clip": clip}
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
            "three parts: the mean over the batch",
            **{"width": 6, "vocab": 13, "tokens": 4, "parts": 3, "steps": 1, "lr": 0.2, "clip": 1e3},
        ),
        Case(
            "four steps, each with another learning rate",
            **{"width": 5, "vocab": 9, "tokens": 6, "parts": 1, "steps": 4, "lr": 0.2, "clip": 1e3},
        ),
        Case(
            "a clip far below the norm",
            **{"width": 5, "vocab": 9, "tokens": 6, "parts": 2, "steps": 2, "lr": 0.3, "clip": 0.05},
        ),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "not_divided",
            _step(divide=False),
            "The gradients of the parts are added up, and their number is never divided out: the gradient, and its "
            "norm, grow with it. The batch's loss is the mean over its parts.",
        ),
        Misconception(
            "nothing_divided",
            _step(divide=False, loss_is="sum"),
            "Loss and gradient are sums over the parts; both should be means. Where is their number divided out?",
        ),
        Misconception(
            "gradients_kept",
            _step(clear=False),
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
            "The weights are right. The loss of the batch is the mean of the parts' losses, this is their sum.",
        ),
        Misconception(
            "loss_of_the_last_part",
            _step(loss_is="last"),
            "The weights are right. The loss returned is that of the last part alone.",
        ),
    ),
    hints=(
        "Say in which order things must happen: clear, all backward passes, clip, learning rate, step. Which lines "
        "stand in the wrong place, and which are missing?",
        "Each part's loss is divided by len(parts) before its backward. clip_grad_norm_ works on the gradients that "
        "are there when it is called, once for each tensor that it is given.",
        "zero_grad; for each part (loss / len(parts)).backward(); norm = clip_grad_norm_(each weight once, clip); set "
        'group["lr"] in optimizer.param_groups; optimizer.step(); return the mean loss and the norm.',
    ),
    explanation=(
        "Every one of these faults trains: the loss falls, only less well, and no error shows. A gradient that is not "
        "divided and then clipped even looks right, because clipping hides the factor. What finds them is a comparison "
        "with a step that is known to be right, which is what the check does and what parity in unit 03 does."
    ),
)
