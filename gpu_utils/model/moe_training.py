"""Training of a DeepSeek: losses of both tokens, the load of each expert, and a dense model beside it in a pair.

The runs of a pair have the same batches, rates and number of steps, and the same first numbers where their parts agree
in shape and order. On a CPU a run keeps to one thread: its products are small.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from gpu_utils.model.corpus import Corpus, load_corpus
from gpu_utils.model.deepseek import MTP_WEIGHT, DeepSeek, DeepSeekConfig, Losses
from gpu_utils.model.deepseek_costs import forward_flops
from gpu_utils.model.device import default_device, one_thread, training_dtype
from gpu_utils.model.training import Batches, TrainConfig, parameter_groups

BIAS_SPEED = 0.01
"""Ten times DeepSeek-V3's: a run of 150 steps has to balance its experts in 150 steps."""

RATES = replace(TrainConfig.preset("cpu"), steps=150, warmup=20, max_lr=4e-3, min_lr=4e-4)
"""Batches and rates of a run. (Its `model` is unit 01's, and not used.)"""


@dataclass
class MoeRun:
    """One run.

    losses, second  of each step's batch, nats per token: of the next token, and of the one after it
    loads           step -> layer -> tokens that went to each expert
    biases          step -> layer -> the bias of each expert, after the step
    val_loss, val_second  on the same batches of validation files for every run
    flops           of one step, forward and backward, by formula
    seconds         of training alone
    """

    model: DeepSeek
    corpus: Corpus
    losses: list[float] = field(default_factory=list)
    second: list[float] = field(default_factory=list)
    loads: list[list[list[int]]] = field(default_factory=list)
    biases: list[list[list[float]]] = field(default_factory=list)
    val_loss: float = float("nan")
    val_second: float = float("nan")
    flops: int = 0
    seconds: float = 0.0

    def imbalance(self, layer: int) -> list[float]:
        """Of each step: the largest load of a layer's experts over the mean."""
        return [max(step[layer]) * len(step[layer]) / sum(step[layer]) for step in self.loads]


def optimizer_of(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    groups = parameter_groups(model, config.weight_decay)
    return torch.optim.AdamW(groups, lr=config.max_lr, betas=(0.9, 0.95), fused=True)


def batch_losses(model: DeepSeek, inputs: Tensor, targets: Tensor) -> Losses:
    """Both losses of a batch; the forward pass runs under autocast where the device trains in a narrow type."""
    dtype = training_dtype(model.device)
    with torch.autocast(model.device.type, dtype, enabled=dtype != torch.float32):
        return model.losses(inputs, targets)


def moe_steps(
    model: DeepSeek, batches: Batches, config: TrainConfig, *, speed: float = BIAS_SPEED, weight: float = MTP_WEIGHT
) -> Iterator[Losses]:
    """The loop of training; yields each step's losses, detached. After a step every gate's bias moves by its load."""
    optimizer = optimizer_of(model, config)
    for step in range(config.steps):
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate(step)
        losses = batch_losses(model, *batches.draw())
        losses.total(weight).backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimizer.step()
        optimizer.zero_grad()
        for _, moe in model.moes():
            moe.gate.update_bias(moe.load, speed)
        yield Losses(losses.first.detach(), None if losses.second is None else losses.second.detach())


def train_deepseek(
    config: DeepSeekConfig,
    rates: TrainConfig = RATES,
    *,
    speed: float = BIAS_SPEED,
    weight: float = MTP_WEIGHT,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> MoeRun:
    """Train from random weights on unit 01's corpus. About half a minute on one CPU core with the preset "cpu"."""
    device = default_device() if device is None else torch.device(device)
    corpus = load_corpus(rates.corpus)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = DeepSeek(config).to(device)
    run = MoeRun(model, corpus, flops=3 * forward_flops(config, rates.batch, rates.seq_len))
    moes = [moe for _, moe in model.moes()]
    with one_thread() if device.type == "cpu" else nullcontext():
        start = time.perf_counter()
        for losses in moe_steps(model, Batches(corpus.train, rates, device, seed), rates, speed=speed, weight=weight):
            run.losses.append(losses.first.item())
            run.second.append(float("nan") if losses.second is None else losses.second.item())
            run.loads.append([moe.load.tolist() for moe in moes])
            run.biases.append([moe.gate.e_score_correction_bias.tolist() for moe in moes])
        run.seconds = time.perf_counter() - start
        run.val_loss, run.val_second = validation_losses(model, corpus, rates)
    return run


@torch.no_grad()
def validation_losses(model: DeepSeek, corpus: Corpus, rates: TrainConfig) -> tuple[float, float]:
    """Mean losses of both tokens on the same batches of validation files every time; NaN without MTP."""
    batches = Batches(corpus.val, rates, model.device, seed=0)
    found = [batch_losses(model, *batches.draw()) for _ in range(rates.eval_batches)]
    second = [float("nan") if losses.second is None else float(losses.second) for losses in found]
    return float(sum(losses.first for losses in found)) / len(found), sum(second) / len(second)


@dataclass(frozen=True)
class Drafts:
    """Shares of positions: the draft is what the main model then picks; it is the text's token; the main model's is."""

    accepted: float
    right: float
    main_right: float


@torch.no_grad()
def drafts(model: DeepSeek, corpus: Corpus, rates: TrainConfig = RATES) -> Drafts:
    """How good the module of MTP is as a draft on validation text, where both always take the likeliest token.

    For each position the module guesses the token after the next, and the main model, one position on, picks the same
    token: a draft is accepted where the two agree. Both have read the text, not what they wrote themselves.
    """
    batches = Batches(corpus.val, rates, model.device, seed=0)
    accepted, right, main_right, seen = 0, 0, 0, 0
    for _ in range(rates.eval_batches):
        inputs, targets = batches.draw()
        hidden = model.hidden(inputs)
        picked = model.lm_head(hidden).argmax(-1)[:, 1:]
        drafted = model.second_logits(hidden[:, :-1], targets[:, :-1]).argmax(-1)
        accepted += int((drafted == picked).sum())
        right += int((drafted == targets[:, 1:]).sum())
        main_right += int((picked == targets[:, 1:]).sum())
        seen += picked.numel()
    return Drafts(accepted / seen, right / seen, main_right / seen)
