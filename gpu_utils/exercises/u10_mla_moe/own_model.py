"""A learner's own parts in the small DeepSeek: the same steps of training with them and without."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.model.corpus import load_corpus
from gpu_utils.model.deepseek import MLA, DeepSeek, DeepSeekConfig, Losses, MoE
from gpu_utils.model.deepseek_config import NORM_EPS
from gpu_utils.model.device import default_device, one_thread
from gpu_utils.model.moe_training import BIAS_SPEED, RATES, batch_losses, optimizer_of
from gpu_utils.model.training import Batches

Own = Mapping[str, Callable[..., Any]]

PARTS = ("mla", "gate", "bias_update", "moe_block", "mtp")
SMALL = replace(RATES, batch=4, seq_len=64, steps=12, warmup=12, max_lr=1e-3)
"""256 tokens in a batch, and rates that grow slowly: what roundings change stays small for as long as this."""

NUDGE, ROOM = 2.0**-20, 4.0
"""Weights of the yardstick are changed by this share of themselves, 16 roundings; the bound is so many times its gap.

A part that is written otherwise rounds otherwise, in every layer and step. Training makes such differences larger,
also by another choice where two experts are as good: how much larger is measured, with the library's own parts.
"""


@dataclass(frozen=True)
class OwnModel:
    """What came of it: each step's losses of both tokens, with the own parts and with the library's, and the bound.

    rows   step -> losses
    gap    the largest difference of a loss
    bound  what it may be: `ROOM` times what a nudge of the weights by 16 roundings gives, at least 1e-5
    parts  whose own parts there were
    calls  how often each was called
    """

    rows: dict[str, dict[str, float]]
    gap: float
    bound: float
    parts: tuple[str, ...]
    calls: dict[str, int]

    @property
    def same(self) -> bool:
        return self.gap <= self.bound


def own_deepseek(**own: Callable[..., Any]) -> OwnModel:
    """Train the small DeepSeek for 12 steps with your own parts, and from the same weights with the library's.

    Any of mla, gate, bias_update, moe_block and mtp, each as its exercise asks for it; the rest stays the library's.
    About ten seconds on one CPU core. Raises UnknownName for another name, BadArgument for what cannot be called.
    """
    for name, function in own.items():
        if name not in PARTS:
            raise UnknownName("part of the model", name, PARTS)
        if not callable(function):
            raise BadArgument(f"{name} is {function!r}; expected your function for 10.{name}")
    with one_thread():
        return _compared(own)


def _compared(own: Own) -> OwnModel:
    device, corpus = default_device(), load_corpus(SMALL.corpus)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first = DeepSeek(DeepSeekConfig.preset("cpu")).to(device)
        nudged = copy.deepcopy(first)
        with torch.no_grad():
            for parameter in nudged.parameters():
                parameter.mul_(1 + NUDGE * torch.randn(parameter.shape).to(device))
    drawn = Batches(corpus.train, SMALL, device, seed=0)
    batches = [drawn.draw() for _ in range(SMALL.steps)]
    calls = dict.fromkeys(own, 0)
    yours = _trained(copy.deepcopy(first), batches, _counted(own, calls))
    library, other = _trained(first, batches, {}), _trained(nudged, batches, {})
    rows = {
        f"{step + 1}": {
            "your parts, next token": mine[0],
            "the library's": theirs[0],
            "your parts, the one after": mine[1],
            "the library's, too": theirs[1],
        }
        for step, (mine, theirs) in enumerate(zip(yours, library, strict=True))
    }
    return OwnModel(rows, _gap(yours, library), max(1e-5, ROOM * _gap(other, library)), tuple(own), calls)


def _gap(one: list[tuple[float, float]], other: list[tuple[float, float]]) -> float:
    gaps = [abs(a - b) for pair, same in zip(one, other, strict=True) for a, b in zip(pair, same, strict=True)]
    return max(gaps) if all(gap == gap for gap in gaps) else float("inf")


def _counted(own: Own, calls: dict[str, int]) -> Own:
    def counting(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return own[name](*args, **kwargs)

        return call

    return {name: counting(name) for name in own}


def _trained(model: DeepSeek, batches: list[tuple[Tensor, Tensor]], own: Own) -> list[tuple[float, float]]:
    with_own_parts(model, own)
    optimizer = optimizer_of(model, SMALL)
    found = []
    for step, (inputs, targets) in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = SMALL.learning_rate(step)
        losses = (
            _own_losses(model, inputs, targets, own["mtp"]) if "mtp" in own else batch_losses(model, inputs, targets)
        )
        assert losses.second is not None
        losses.total().backward()
        nn.utils.clip_grad_norm_(model.parameters(), SMALL.clip)
        optimizer.step()
        optimizer.zero_grad()
        for _, moe in model.moes():
            _move_bias(moe, own.get("bias_update"))
        found.append((losses.first.item(), losses.second.item()))
    return found


def with_own_parts(model: DeepSeek, own: Own) -> DeepSeek:
    """The model itself, with own parts of its layers in place: mla, gate and moe_block, those that are there."""
    for module in model.modules():
        if isinstance(module, MLA) and "mla" in own:
            module.forward = _as_mla(module, own["mla"])  # type: ignore[method-assign]
        if isinstance(module, MoE):
            if "gate" in own:
                module.route = _as_route(module, own["gate"])
            if "moe_block" in own:
                module.run_experts = _as_experts(module, own["moe_block"])
    return model


def _as_mla(module: MLA, mla: Callable[..., Any]) -> Callable[..., Tensor]:
    def forward(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        weights = {name.removesuffix(".weight"): weight for name, weight in module.named_parameters()}
        return mla(x, weights, module.config.heads, module.config.rope_theta, NORM_EPS)[0]

    return forward


def _as_route(moe: MoE, gate: Callable[..., Any]) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    def route(x: Tensor) -> tuple[Tensor, Tensor]:
        c, own = moe.config, moe.gate
        return gate(x, own.weight, own.e_score_correction_bias, c.k, c.route_scale)

    return route


def _as_experts(moe: MoE, moe_block: Callable[..., Any]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The shared expert is inside moe_block: the layer's own is taken away, and handed over."""
    shared = moe.shared_experts
    moe.shared_experts = None
    assert shared is not None
    moe.add_module("own_shared", shared)

    def run(x: Tensor, weights: Tensor, experts: Tensor) -> Tensor:
        stacks = [
            torch.stack([expert.get_parameter(f"{part}_proj.weight") for expert in moe.experts])
            for part in ("gate", "up", "down")
        ]
        return moe_block(
            x, weights, experts, *stacks, shared.gate_proj.weight, shared.up_proj.weight, shared.down_proj.weight
        )

    return run


def _move_bias(moe: MoE, bias_update: Callable[..., Any] | None) -> None:
    if bias_update is None:
        moe.gate.update_bias(moe.load, BIAS_SPEED)
        return
    chosen = torch.repeat_interleave(torch.arange(len(moe.load), device=moe.load.device), moe.load).unsqueeze(1)
    bias = moe.gate.e_score_correction_bias
    # the step has been routed: what it chose is given again, as if each choice were a token with one expert

    def route(x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        return torch.ones(chosen.shape, device=chosen.device), chosen

    found = bias_update(route, bias.clone(), [[torch.ones_like(chosen, dtype=torch.float32)]], BIAS_SPEED)
    bias.copy_((found[0] if isinstance(found, tuple | list) else found).detach())


def _own_losses(model: DeepSeek, inputs: Tensor, targets: Tensor, mtp: Callable[..., Any]) -> Losses:
    """The first loss as the library has it, the second by the answer to 10.mtp, with weight 1."""
    module = model.mtp
    assert module is not None
    hidden = model.hidden(inputs)
    first = nn.functional.cross_entropy(model.lm_head(hidden).flatten(0, 1), targets.flatten())
    tokens = torch.cat([inputs, targets[:, -1:]], dim=1)
    last = torch.zeros_like(hidden[:, :1])  # the hidden state of the last token, which nothing asks for

    def block(z: Tensor) -> Tensor:
        return module.block(z, model.cos[: z.shape[1]], model.sin[: z.shape[1]])

    second = mtp(
        torch.cat([hidden, last], dim=1), tokens, model.embed_tokens.weight, module.enorm.weight, module.hnorm.weight,
        module.eh_proj.weight, block, module.norm.weight, model.lm_head.weight, 1.0, -100,
    )  # fmt: skip
    return Losses(first, second)
