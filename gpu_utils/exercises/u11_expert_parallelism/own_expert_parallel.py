"""Unit 10's model over expert-parallel and data-parallel ranks, with a learner's own dispatch and combine.

Ranks are numbered rank = replica * expert_ranks + place. A rank holds its part of every layer's experts and all other
weights, and sees its own sequences. Tokens travel within a replica; gradients of experts are summed over the replicas
that hold the same ones, all others over all ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gpu_utils.distributed import run_ranks
from gpu_utils.exercises.u11_expert_parallelism import combine_slips, dispatch_slips
from gpu_utils.model.corpus import load_corpus
from gpu_utils.model.deepseek import DeepSeek, DeepSeekConfig, MoE

Dispatch = Callable[..., tuple[Tensor, Tensor]]
Combine = Callable[..., Tensor]

CONFIG = DeepSeekConfig(
    vocab_size=1024, n_positions=32, layers=3, width=32, heads=2, q_lora=16, kv_lora=16, nope=12, rope=4, v_head=12,
    dense_layers=1, dense_width=64, experts=8, shared=1, k=2, expert_width=32, groups=4, keep=2,
)  # fmt: skip
RATE, MOMENTUM, SEQUENCES = 0.1, 0.9, 16


class _Out(torch.autograd.Function):
    """Rows of pairs to the ranks of their experts; the gradients come back as combine brings results back."""

    @staticmethod
    def forward(ctx: Any, pairs: Tensor, experts: Tensor, wire: Wire) -> tuple[Tensor, Tensor]:
        rows, counts = wire.out(pairs, experts)
        ctx.wire, ctx.experts, ctx.counts = wire, experts, counts
        ctx.mark_non_differentiable(counts)
        return rows, counts

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return ctx.wire.back(grads[0].contiguous(), ctx.counts, ctx.experts), None, None


class _Back(torch.autograd.Function):
    """Results back to the ranks of their tokens; the gradients go out as dispatch sends rows."""

    @staticmethod
    def forward(ctx: Any, results: Tensor, counts: Tensor, experts: Tensor, wire: Wire) -> Tensor:
        ctx.wire, ctx.experts = wire, experts
        return wire.back(results, counts, experts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.wire.out(grads[0].contiguous(), ctx.experts)[0], None, None, None


@dataclass
class Wire:
    """A learner's two functions, for pairs: one expert and the weight 1 a row. Each is then the other's reverse."""

    dispatch: Dispatch
    combine: Combine
    num_experts: int
    group: Any

    def out(self, pairs: Tensor, experts: Tensor) -> tuple[Tensor, Tensor]:
        return self.dispatch(x=pairs, experts=experts, num_experts=self.num_experts, group=self.group)

    def back(self, rows: Tensor, counts: Tensor, experts: Tensor) -> Tensor:
        ones = torch.ones(experts.shape, dtype=torch.float32)
        return self.combine(y=rows, counts=counts, experts=experts, weights=ones, group=self.group)


def spread_experts(moe: MoE, wire: Wire) -> None:
    """Keep this rank's part of the experts, and let tokens travel to the others."""
    world, place = dist.get_world_size(wire.group), dist.get_rank(wire.group)
    each = len(moe.experts) // world
    own = moe.experts = nn.ModuleList(list(moe.experts)[place * each : (place + 1) * each])

    def run_experts(x: Tensor, weights: Tensor, experts: Tensor) -> Tensor:
        tokens, k = experts.shape
        pairs, of_pairs = x.repeat_interleave(k, 0), experts.reshape(-1, 1)
        rows, counts = _Out.apply(pairs, of_pairs, wire)
        parts = rows.split(counts.sum(0).tolist())
        results = torch.cat([expert(part) for expert, part in zip(own, parts, strict=True)])
        back = _Back.apply(results, counts, of_pairs, wire)
        return (back.view(tokens, k, -1) * weights.to(x.dtype).unsqueeze(-1)).sum(1)

    moe.run_experts = run_experts


def batches(steps: int) -> list[tuple[Tensor, Tensor]]:
    """Of each step SEQUENCES sequences of tokens of unit 01's text, and the tokens that follow."""
    text = torch.from_numpy(load_corpus().train[:200_000].astype("int64"))
    generator = torch.Generator().manual_seed(0)
    length, found = CONFIG.n_positions, []
    for _ in range(steps):
        starts = torch.randint(len(text) - length - 1, (SEQUENCES,), generator=generator)
        rows = torch.stack([text[start : start + length + 1] for start in starts])
        found.append((rows[:, :-1].contiguous(), rows[:, 1:].contiguous()))
    return found


def new_model(dtype: torch.dtype) -> DeepSeek:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return DeepSeek(CONFIG).to(dtype)


def trained_alone(steps: list[tuple[Tensor, Tensor]], dtype: torch.dtype = torch.float32) -> list[float]:
    """Losses in nats per token of each step, on one rank that holds all."""
    model = new_model(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    losses = []
    for tokens, targets in steps:
        loss = model.loss(tokens, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _rank(
    steps: list[tuple[Tensor, Tensor]], expert_ranks: int, dispatch: Dispatch, combine: Combine
) -> dict[str, Any]:
    """What a rank does: the same loop, its own sequences, gradients summed over those who hold the same weight."""
    world, rank = dist.get_world_size(), dist.get_rank()
    replicas = world // expert_ranks
    rows = [dist.new_group([r * expert_ranks + e for e in range(expert_ranks)]) for r in range(replicas)]
    columns = [dist.new_group([r * expert_ranks + e for r in range(replicas)]) for e in range(expert_ranks)]
    wire = Wire(dispatch, combine, CONFIG.experts, rows[rank // expert_ranks])
    model, pairs = new_model(torch.float32), 0
    for _, moe in model.moes():
        spread_experts(moe, wire)
    experts = {id(p) for _, moe in model.moes() for p in moe.experts.parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    losses = []
    for tokens, targets in steps:
        tokens, targets = (part.chunk(world)[rank] for part in (tokens, targets))
        loss = model.loss(tokens, targets) / world
        optimizer.zero_grad()
        loss.backward()
        pairs += CONFIG.k * tokens.numel() * len(list(model.moes()))
        for p in model.parameters():
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            dist.all_reduce(p.grad, group=columns[rank % expert_ranks] if id(p) in experts else None)
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item())
    sizes = {id(p): p.numel() for p in model.parameters()}
    in_experts = sum(sizes[one] for one in experts)
    return {"losses": losses, "pairs": pairs, "held": sum(sizes.values()), "experts": in_experts}


@dataclass(frozen=True)
class ExpertParallel:
    """A training run over ranks, beside the same run on one.

    losses   name of the run -> loss of each step in nats per token
    off      name -> largest difference from one rank in float64, over all steps
    weights  name of the kind -> how many a rank holds
    sent     [source][destination] -> bytes that dispatch and combine sent; gradients are not in it
    bytes_of_a_pair  bytes that crossed between ranks for a token and one of its experts, in a step, both passes
    """

    losses: dict[str, list[float]]
    off: dict[str, float]
    weights: dict[str, int]
    sent: list[list[int]]
    bytes_of_a_pair: float
    seconds: float

    @property
    def rows(self) -> dict[str, dict[str, float]]:
        return {
            name: {"first loss": every[0], "last loss": every[-1], "off by at most": self.off.get(name, 0.0)}
            for name, every in self.losses.items()
        }


def expert_parallel(
    dispatch: Dispatch | None = None,
    combine: Combine | None = None,
    expert_ranks: int = 4,
    replicas: int = 2,
    steps: int = 12,
    seconds: float = 120.0,
) -> ExpertParallel:
    """Train unit 10's model, small, on expert_ranks * replicas processes, and alone in float32 and float64.

    dispatch, combine  answers to 11.dispatch and 11.combine; the course's own for None. All of it in float32.
    """
    given = batches(steps)
    exact, alone = trained_alone(given, torch.float64), trained_alone(given)
    shared = {
        "steps": given,
        "expert_ranks": expert_ranks,
        "dispatch": dispatch or dispatch_slips.right,
        "combine": combine or combine_slips.right,
    }
    found = run_ranks(_rank, expert_ranks * replicas, shared=shared, seconds=seconds)
    first = found.values[0]
    losses = {f"{expert_ranks} x {replicas} ranks": first["losses"], "one rank": alone, "one rank, float64": exact}
    off = {name: max(abs(a - b) for a, b in zip(every, exact, strict=True)) for name, every in losses.items()}
    pairs = sum(value["pairs"] for value in found.values)
    whole = sum(p.numel() for p in DeepSeek(CONFIG).parameters())
    weights = {"all of the model": whole, "on a rank": first["held"], "of these in its experts": first["experts"]}
    return ExpertParallel(losses, off, weights, found.sent, sum(map(sum, found.sent)) / pairs, found.seconds)
