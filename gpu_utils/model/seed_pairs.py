"""Runs in pairs: the same first weights and batches, trained by a reference and by ports of it.

A tiny GPT-2 on the CPU, a quarter of a second a run, so that many pairs fit into a cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from gpu_utils.errors import UnknownName
from gpu_utils.model.corpus import load_corpus
from gpu_utils.model.device import one_thread
from gpu_utils.model.fp8_linear import converted
from gpu_utils.model.fp8_recipes import RECIPES
from gpu_utils.model.fp8_training import SHORT
from gpu_utils.model.gpt2 import GPT2
from gpu_utils.model.training import Batches, accumulated_step, parameter_groups, validation_loss

TINY = replace(
    SHORT, model=replace(SHORT.model, n_embd=64, n_layer=1, n_head=4, n_positions=32), batch=4, seq_len=32, steps=60,
    warmup=10, max_lr=3e-3, eval_batches=8,
)  # fmt: skip


@dataclass(frozen=True)
class Port:
    """What a port does otherwise: a change of the model before training, and the betas of AdamW."""

    change: Callable[[GPT2], GPT2] = lambda model: model
    betas: tuple[float, float] = (0.9, 0.95)


def _attention_in_parts(model: GPT2) -> GPT2:
    for block in model.h:
        block.get_submodule("attn").how = "explicit"  # type: ignore[assignment]
    return model


def _larger_scores(model: GPT2) -> GPT2:
    """Scores divided by the root of half the width of a head: queries that are larger do the same."""
    width = model.config.n_embd

    def larger(_: nn.Module, __: tuple[Tensor, ...], qkv: Tensor) -> Tensor:
        return torch.cat([2**0.5 * qkv[..., :width], qkv[..., width:]], dim=-1)

    for block in model.h:
        block.get_submodule("attn.c_attn").register_forward_hook(larger)
    return model


PORTS = {
    "reference": Port(),
    "scores in memory": Port(_attention_in_parts),
    "bf16 products": Port(lambda model: converted(model, RECIPES["bf16"])[0]),
    "scores 1.4 times": Port(_larger_scores),
    "AdamW's own betas": Port(betas=(0.9, 0.999)),
}
"""Name -> what it changes. The second and third are honest, the last two are faults."""


@dataclass(frozen=True)
class SeedRun:
    """One run. losses: of each step's batch, val_loss: after the last step; both in nats per token."""

    seed: int
    losses: list[float]
    val_loss: float


def seed_pairs(names: Iterable[str], seeds: Iterable[int] = range(8)) -> dict[str, list[SeedRun]]:
    """Runs of the named ports (`PORTS`), one for each seed: run i of all of them has the same weights and batches.

    Raises UnknownName for another port.
    """
    wanted, seeds = list(names), list(seeds)
    for name in wanted:
        if name not in PORTS:
            raise UnknownName("port", name, PORTS)
    with one_thread():
        return {name: [_run(PORTS[name], seed) for seed in seeds] for name in wanted}


def _run(port: Port, seed: int) -> SeedRun:
    corpus = load_corpus(TINY.corpus)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = port.change(GPT2(TINY.model))
    batches = Batches(corpus.train, TINY, model.device, seed)
    optimizer = torch.optim.AdamW(parameter_groups(model, TINY.weight_decay), betas=port.betas, fused=True)
    losses = []
    for step in range(TINY.steps):
        for group in optimizer.param_groups:
            group["lr"] = TINY.learning_rate(step)
        losses.append(accumulated_step(model, batches, 1).item())
        nn.utils.clip_grad_norm_(model.parameters(), TINY.clip)
        optimizer.step()
        optimizer.zero_grad()
    return SeedRun(seed, losses, validation_loss(model, corpus, TINY))
