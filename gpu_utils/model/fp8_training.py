"""The same training twice, in FP8 and in BF16: loss curves, and the gap between them with its bound.

Both runs have the same first weights, batches and rates, and go through the same layers; only the types of the operands
differ (`RECIPES["bf16"]` rounds them to bfloat16). On a CPU all else is float32; on a GPU it runs under autocast.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch

from gpu_utils.analytic.paired import Interval, mean_interval
from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.model.corpus import load_corpus
from gpu_utils.model.device import default_device, one_thread
from gpu_utils.model.fp8_linear import Recipe, converted
from gpu_utils.model.fp8_log import AmaxLog
from gpu_utils.model.fp8_recipes import RECIPES
from gpu_utils.model.gpt2 import GPT2
from gpu_utils.model.training import Batches, TrainConfig, training_steps, validation_loss

REPORTED_GAP = 0.25
"""Percent: what the loss error against BF16 stays below in the DeepSeek-V3 report (arXiv 2412.19437, section 3.3)."""

SHORT = replace(
    TrainConfig.preset("cpu"), model=replace(TrainConfig.preset("cpu").model, n_positions=64), batch=4, seq_len=64,
    steps=60, warmup=20, max_lr=1e-3, min_lr=1e-4,
)  # fmt: skip
"""Seconds on one core. A third of the preset's rate: at 3e-3, roundings moved losses by up to 1% in 100 steps."""

ALONE = 1024
"""With so few tokens in a step a run on the CPU keeps to one thread."""

WIDE = replace(SHORT, batch=8)
"""512 tokens in a batch: as many rows of an activation, four tiles of 128."""


@dataclass(frozen=True)
class Fp8Run:
    """One run.

    losses    of each step's batch, nats per token; one that is not finite ends the run
    val_loss  after the last step, NaN where the run ended before
    seconds   from the first step on, with validation
    """

    recipe: Recipe
    seed: int
    losses: list[float]
    val_loss: float
    log: AmaxLog
    seconds: float

    @property
    def died(self) -> int | None:
        """The step, from 1, whose loss was not finite."""
        return None if math.isfinite(self.losses[-1]) else len(self.losses)


def fp8_run(
    recipe: Recipe, *, seed: int = 0, config: TrainConfig = SHORT, device: torch.device | str | None = None
) -> Fp8Run:
    """Train a GPT-2 whose linear layers follow the recipe, from the first weights and batches that the seed decides.

    device: the GPU if there is one, else the CPU. The same arguments and versions give the same losses.
    """
    device = default_device() if device is None else torch.device(device)
    with one_thread() if device.type == "cpu" and config.tokens_per_step <= ALONE else nullcontext():
        return _run(recipe, seed, config, device)


def _run(recipe: Recipe, seed: int, config: TrainConfig, device: torch.device) -> Fp8Run:
    corpus = load_corpus(config.corpus)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model, log = converted(GPT2(config.model).to(device), recipe)
    losses: list[float] = []
    start = time.perf_counter()
    for step, loss, _ in training_steps(model, Batches(corpus.train, config, device, seed), config):
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            return Fp8Run(recipe, seed, losses, math.nan, log, time.perf_counter() - start)
        log.step = step + 1
    val_loss = validation_loss(model, corpus, config)
    return Fp8Run(recipe, seed, losses, val_loss, log, time.perf_counter() - start)


def fp8_trial(
    names: Iterable[str], *, seeds: Iterable[int] = range(4), config: TrainConfig = SHORT
) -> dict[str, list[Fp8Run]]:
    """Runs of the named recipes, one for each seed; raises UnknownName for one that is not in `RECIPES`."""
    wanted, seeds = list(names), list(seeds)
    for name in wanted:
        if name not in RECIPES:
            raise UnknownName("recipe", name, RECIPES)
    return {name: [fp8_run(RECIPES[name], seed=seed, config=config) for seed in seeds] for name in wanted}


@dataclass(frozen=True)
class Gap:
    """Validation losses of pairs of runs, the second minus the first, in percent of the first.

    percent   of each pair; interval: their mean and its two-sided 95% interval, NaN where a run died
    """

    percent: list[float]
    interval: Interval

    @property
    def within_report(self) -> bool:
        """Whether the whole interval lies below the gap that the report names."""
        return self.interval.high < REPORTED_GAP


def loss_gap(baseline: Sequence[Fp8Run], runs: Sequence[Fp8Run]) -> Gap:
    """The gap of runs to those of the same seeds in BF16, such as `loss_gap(trial["bf16"], trial["deepseek"])`."""
    seeds, others = [run.seed for run in baseline], [run.seed for run in runs]
    if seeds != others:
        raise BadArgument(f"the seeds {seeds} and {others} do not form pairs; give both the same, in one order")
    percent = [100 * (run.val_loss - base.val_loss) / base.val_loss for base, run in zip(baseline, runs, strict=True)]
    return Gap(percent, mean_interval(percent))
