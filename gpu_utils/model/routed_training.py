"""A language model of one mixture-of-experts layer, small enough to train it many times and to watch its loads.

Two embeddings (of a token and of the one before it) are added; a router sends each position to k of E experts; a head
reads the sum. Everything is float32. Not handled: attention, shared experts, several layers (gpu_utils.model.deepseek).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.model.corpus import draw_batch
from gpu_utils.model.routing import auxiliary_loss, imbalance, loads, sequence_loss

BALANCES: dict[str, Callable[[Tensor, Tensor, int, float], Tensor] | None] = {
    "none": None,
    "auxiliary loss": auxiliary_loss,
    "sequence loss": sequence_loss,
    "bias": None,
    "bias and sequence loss": sequence_loss,
}
"""Ways to balance -> the loss that is added, times alpha. Those with "bias" in their name move it by speed."""


@dataclass(frozen=True)
class RoutedConfig:
    """A layer and its training: experts E of which k are chosen, width D, `hidden` numbers inside an expert.

    batch sequences of length tokens a step; rate: of AdamW. balance: a name of BALANCES; alpha: of the loss that
    balances, speed: of the bias, where it has one.
    """

    vocab_size: int = 1024
    experts: int = 16
    k: int = 2
    width: int = 32
    hidden: int = 32
    batch: int = 8
    length: int = 32
    steps: int = 150
    rate: float = 1e-2
    balance: str = "none"
    alpha: float = 0.01
    speed: float = 0.005

    def __post_init__(self) -> None:
        if self.balance not in BALANCES:
            raise UnknownName("way to balance", self.balance, BALANCES)
        if not 1 <= self.k <= self.experts:
            raise BadArgument(f"k is {self.k}; expected 1 to the number of experts, {self.experts}")


class RoutedModel(nn.Module):
    """The model. `bias` is no parameter: it has no gradient."""

    bias: Tensor

    def __init__(self, config: RoutedConfig) -> None:
        super().__init__()
        self.config = config
        V, E, D, H = config.vocab_size, config.experts, config.width, config.hidden
        self.token = nn.Embedding(V, D)
        self.before = nn.Embedding(V, D)
        self.gate = nn.Parameter(torch.randn(E, D) / D**0.5)
        self.up = nn.Parameter(torch.randn(E, D, H) / D**0.5)
        self.down = nn.Parameter(torch.randn(E, H, D) / H**0.5)
        self.head = nn.Linear(D, V, bias=False)
        for embedding in (self.token, self.before):
            nn.init.normal_(embedding.weight, std=0.02)  # as in GPT-2
        self.register_buffer("bias", torch.zeros(E))

    def tokens(self, ids: Tensor) -> Tensor:
        """What the router sees of ids (..., T): (..., T, D)."""
        earlier = nn.functional.pad(ids, (1, 0))[..., :-1]
        return nn.functional.rms_norm(self.token(ids) + self.before(earlier), (self.config.width,))

    def route(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Weights and experts (B, T, k), and the scores (B, T, E)."""
        scores = torch.sigmoid(nn.functional.linear(x, self.gate))
        experts = (scores.detach() + self.bias).topk(self.config.k, dim=-1).indices
        chosen = scores.gather(-1, experts)
        return chosen / chosen.sum(-1, keepdim=True), experts, scores

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits (B, T, V), experts (B, T, k), scores (B, T, E)."""
        x = self.tokens(ids)
        weights, experts, scores = self.route(x)
        # every expert computes every token: for so few that is faster than to gather, and the sum is the same
        mix = torch.zeros_like(scores).scatter(-1, experts, weights)
        inside = nn.functional.silu(torch.einsum("btd,edh->bteh", x, self.up)) * mix[..., None]
        rows = torch.einsum("bteh,ehd->btd", inside, self.down)
        return self.head(x + rows), experts, scores


@dataclass(frozen=True)
class RoutedRun:
    """A trained model and what was seen on the way.

    losses of the batches in nats per token, without what balances; loads int64 (steps, E); experts of all steps, int64
    (steps, batch, length, k).
    """

    model: RoutedModel
    losses: list[float]
    loads: Tensor
    experts: Tensor

    def imbalance(self, window: int = 10) -> list[float]:
        """Largest over mean of the loads of `window` steps together, up to each step (fewer at the beginning)."""
        return [imbalance(self.loads[max(0, step + 1 - window) : step + 1].sum(0)) for step in range(len(self.loads))]

    def of_sequences(self) -> list[float]:
        """For each step: largest load over the mean within one sequence, a mean over the batch's sequences."""
        counts = nn.functional.one_hot(self.experts, self.loads.shape[1]).sum((2, 3)).double()
        return (counts.amax(-1) / counts.mean(-1)).mean(1).tolist()


def routed_steps(model: RoutedModel, stream: np.ndarray, seed: int) -> Iterator[tuple[float, Tensor]]:
    """The loop of training; after each step the batch's loss, and the experts (batch, length, k) of its tokens."""
    config, added = model.config, BALANCES[model.config.balance]
    adamw = torch.optim.AdamW(model.parameters(), lr=config.rate, betas=(0.9, 0.95), weight_decay=0.0)
    draws = np.random.default_rng(seed)
    for _ in range(config.steps):
        ids, targets = map(torch.from_numpy, draw_batch(stream, config.batch, config.length, draws))
        logits, experts, scores = model(ids)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        balance = added(scores, experts, config.k, config.alpha) if added else 0.0
        (loss + balance).backward()
        adamw.step()
        adamw.zero_grad()
        if "bias" in config.balance:
            load = loads(experts, config.experts)
            model.bias += config.speed * torch.sign(load.float().mean() - load)
        yield loss.item(), experts


def routed_run(config: RoutedConfig, stream: np.ndarray, seed: int = 0) -> RoutedRun:
    """Train from the weights and on the batches that the seed decides. Random numbers of the caller stay as they are.

    Errors: as of RoutedConfig.

    >>> stream = np.arange(1000) % 7
    >>> run = routed_run(RoutedConfig(vocab_size=7, experts=4, width=8, hidden=8, steps=3), stream)
    >>> run.loads.shape, run.loads.sum(1).tolist(), run.experts.shape
    (torch.Size([3, 4]), [512, 512, 512], torch.Size([3, 8, 32, 2]))
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = RoutedModel(config)
    seen = list(routed_steps(model, stream, seed))
    experts = torch.stack([chosen for _, chosen in seen])
    each = torch.stack([loads(chosen, config.experts) for chosen in experts])
    return RoutedRun(model, [loss for loss, _ in seen], each, experts)


def zipf_stream(vocab_size: int, length: int, seed: int = 0) -> np.ndarray:
    """Tokens of a made-up language, int64: some are frequent, and half of them follow from the one before.

    Token i is drawn with a probability proportional to 1 / (i + 1), or is 5 times the last one plus 1, around the end.
    """
    draws = np.random.default_rng(seed)
    weights = 1 / np.arange(1, vocab_size + 1)
    fresh = draws.choice(vocab_size, size=length, p=weights / weights.sum())
    follows = draws.random(length) < 0.5
    for at in range(1, length):
        if follows[at]:
            fresh[at] = (5 * fresh[at - 1] + 1) % vocab_size
    return fresh
