"""A training step of unit 10's model over expert-parallel and data-parallel ranks, on a CPU as on GPUs.

Ranks are numbered rank = replica * expert_ranks + place. A rank holds its part of every layer's experts and all other
weights, and sees its own sequences. Tokens travel within a replica; gradients of experts are summed over the replicas
that hold the same ones, all others over all ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gpu_utils.errors import BadArgument
from gpu_utils.exercises.u11_expert_parallelism import combine_slips, dispatch_slips
from gpu_utils.model.corpus import load_corpus
from gpu_utils.model.deepseek import DeepSeek, DeepSeekConfig, MoE

Dispatch = Callable[..., tuple[Tensor, Tensor]]
Combine = Callable[..., Tensor]

CONFIG = DeepSeekConfig(
    vocab_size=1024, n_positions=32, layers=3, width=32, heads=2, q_lora=16, kv_lora=16, nope=12, rope=4, v_head=12,
    dense_layers=1, dense_width=64, experts=8, shared=1, k=2, expert_width=32, groups=4, keep=2,
)  # fmt: skip
RATE, MOMENTUM = 0.1, 0.9


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
        ones = torch.ones(experts.shape, device=rows.device)
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


def new_model() -> DeepSeek:
    """The same weights in every process, float32."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return DeepSeek(CONFIG)


def new_optimizer(model: DeepSeek) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)


class ModelOnRanks:
    """This rank's part of the model; every rank of the default group makes one, and they step together.

    expert_ranks  of how many ranks a replica consists; they divide the world and the experts. None for as many as do
    dispatch, combine  answers to 11.dispatch and 11.combine; the course's own for None
    device        where this rank computes
    sum_over_replicas  False forgets it for the experts' gradients: a mistake, to be looked at
    pairs         of a token and one of its experts: how many this rank's steps have had so far
    """

    def __init__(
        self,
        expert_ranks: int | None = None,
        dispatch: Dispatch | None = None,
        combine: Combine | None = None,
        device: str | torch.device = "cpu",
        sum_over_replicas: bool = True,
    ) -> None:
        self.world, self.rank = dist.get_world_size(), dist.get_rank()
        most = math.gcd(self.world, CONFIG.experts)
        expert_ranks = most if expert_ranks is None else expert_ranks
        if expert_ranks < 1 or self.world % expert_ranks or CONFIG.experts % expert_ranks:
            raise BadArgument(
                f"{expert_ranks} expert ranks of {self.world} ranks for {CONFIG.experts} experts, expected a number "
                f"that divides both; try {most}"
            )
        replicas = self.world // expert_ranks
        rows = [dist.new_group([r * expert_ranks + e for e in range(expert_ranks)]) for r in range(replicas)]
        columns = [dist.new_group([r * expert_ranks + e for r in range(replicas)]) for e in range(expert_ranks)]
        self._place, self._sum_over_replicas = self.rank % expert_ranks, sum_over_replicas
        self._same_experts = columns[self._place]
        wire = Wire(
            dispatch or dispatch_slips.right,
            combine or combine_slips.right,
            CONFIG.experts,
            rows[self.rank // expert_ranks],
        )
        self.model, self.pairs = new_model(), 0
        for _, moe in self.model.moes():
            spread_experts(moe, wire)
        self.model.to(device)
        self._experts = {id(p) for _, moe in self.model.moes() for p in moe.experts.parameters()}
        self._optimizer = new_optimizer(self.model)

    @staticmethod
    def batches(steps: int, sequences: int) -> list[tuple[Tensor, Tensor]]:
        """Of each step `sequences` sequences of unit 01's text, and the tokens that follow: two (sequences, 32) int64.

        They are those of all ranks, the same in every process.
        """
        text = torch.from_numpy(load_corpus().train[:200_000].astype("int64"))
        generator = torch.Generator().manual_seed(0)
        length, found = CONFIG.n_positions, []
        for _ in range(steps):
            starts = torch.randint(len(text) - length - 1, (sequences,), generator=generator)
            rows = torch.stack([text[start : start + length + 1] for start in starts])
            found.append((rows[:, :-1].contiguous(), rows[:, 1:].contiguous()))
        return found

    def step(self, tokens: Tensor, targets: Tensor) -> float:
        """One step on this rank's part of the sequences, which are those of all ranks; the loss of all, in nats."""
        tokens, targets = (part.chunk(self.world)[self.rank].to(self.model.device) for part in (tokens, targets))
        loss = self.model.loss(tokens, targets) / self.world
        self._optimizer.zero_grad()
        loss.backward()
        for p in self.model.parameters():
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            if id(p) not in self._experts:
                dist.all_reduce(p.grad)
            elif self._sum_over_replicas:
                dist.all_reduce(p.grad, group=self._same_experts)
        self._optimizer.step()
        self.pairs += CONFIG.k * tokens.numel() * len(list(self.model.moes()))
        total = loss.detach().clone()
        dist.all_reduce(total)
        return total.item()

    def gradients(self) -> dict[str, Tensor]:
        """Of the latest step: name of the weight in the whole model -> its gradient over all sequences, on the CPU."""
        found = {}
        for name, p in self.model.named_parameters():
            if p.grad is not None:
                before, experts, after = name.partition(".experts.")
                if experts:
                    local, _, after = after.partition(".")
                    each = len(self.model.get_submodule(f"{before}.experts"))  # type: ignore[arg-type]
                    after = f"{self._place * each + int(local)}.{after}"
                found[before + experts + after] = p.grad.cpu().clone()
        return found

    @property
    def held(self) -> dict[str, int]:
        """Weights of this rank: all, and those in experts."""
        sizes = {id(p): p.numel() for p in self.model.parameters()}
        return {"all": sum(sizes.values()), "experts": sum(sizes[one] for one in self._experts)}
