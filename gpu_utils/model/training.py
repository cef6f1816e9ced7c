"""Train a GPT-2 and measure it: loss, tokens/s, MFU, memory, as a run record.

One loop for a two-core CPU and for a GPU of either vendor; `TrainConfig.preset` chooses the size. Not handled:
several devices (unit 11) and restarting from a checkpoint.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gpu_utils.errors import UnknownName, W2WError
from gpu_utils.model.corpus import Corpus, CorpusConfig, draw_batch, load_corpus
from gpu_utils.model.costs import flops_per_token, param_count
from gpu_utils.model.device import (
    Stopwatch,
    default_device,
    describe,
    device_peak,
    peak_memory,
    reset_peak_memory,
    training_dtype,
)
from gpu_utils.model.gpt2 import GPT2, GPT2Config, generate
from gpu_utils.model.records import RunRecord

PROMPTS = ("def __init__(self,", "for name in", "import os\nimport")
_REPORT_SECONDS = 1.0


class TrainingError(W2WError):
    """Training cannot start, or its loss is no longer a number."""


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides a run.

    batch: sequences in one forward pass; accumulate: such passes a step; seq_len: tokens a sequence.
    max_lr, min_lr, warmup: see learning_rate. clip: largest norm of the gradient. eval_every: steps between two
    validations of eval_batches batches.
    """

    model: GPT2Config
    corpus: CorpusConfig
    batch: int
    seq_len: int
    steps: int
    warmup: int
    max_lr: float
    min_lr: float
    accumulate: int = 1
    weight_decay: float = 0.1
    clip: float = 1.0
    eval_every: int = 100
    eval_batches: int = 8
    seed: int = 1337

    def __post_init__(self) -> None:
        if self.corpus.vocab_size > self.model.vocab_size:
            raise TrainingError(
                f"the tokenizer makes {self.corpus.vocab_size} tokens, the model knows {self.model.vocab_size}; "
                "give both the same vocab_size"
            )
        if self.seq_len > self.model.n_positions:
            raise TrainingError(
                f"seq_len {self.seq_len} is more than the model's n_positions {self.model.n_positions}; shorten it"
            )
        if self.steps < 1 or self.batch < 1 or self.accumulate < 1:
            raise TrainingError("steps, batch and accumulate must be 1 or more")

    @property
    def tokens_per_step(self) -> int:
        return self.batch * self.accumulate * self.seq_len

    def learning_rate(self, step: int) -> float:
        return learning_rate(step, warmup=self.warmup, total=self.steps, max_lr=self.max_lr, min_lr=self.min_lr)

    @classmethod
    def preset(cls, name: str) -> TrainConfig:
        """ "cpu": under a minute on two cores. "gpt2": the 124M model, for a GPU with 16 GB or more."""
        if name not in PRESETS:
            raise UnknownName("training preset", name, PRESETS)
        return PRESETS[name]


PRESETS = {
    "cpu": TrainConfig(
        model=GPT2Config.preset("cpu"),
        corpus=CorpusConfig(vocab_size=1024, max_bytes=4_000_000),
        batch=8,
        seq_len=128,
        steps=160,
        warmup=40,
        max_lr=3e-3,
        min_lr=3e-4,
        eval_every=40,
        eval_batches=16,
    ),
    "gpt2": TrainConfig(
        model=GPT2Config.preset("gpt2"),
        corpus=CorpusConfig(vocab_size=50257),
        batch=8,
        accumulate=2,
        seq_len=1024,
        steps=200,
        warmup=20,
        max_lr=6e-4,
        min_lr=6e-5,
        eval_every=50,
    ),
}


@dataclass(frozen=True)
class Progress:
    """Where a run stands: loss in nats per token, tokens/s of training so far, seconds since the start."""

    step: int
    steps: int
    loss: float
    learning_rate: float
    tokens_per_second: float
    seconds: float


def print_progress(now: Progress) -> None:
    """One line that overwrites itself, in a terminal and under a notebook cell."""
    width = 24
    done = width * now.step // now.steps
    left = now.seconds / now.step * (now.steps - now.step)
    line = (
        f"[{'=' * done}{' ' * (width - done)}] {now.step}/{now.steps}  loss {now.loss:.3f}  "
        f"{now.tokens_per_second:,.0f} tokens/s  {left:.0f} s left"
    )
    sys.stdout.write(f"\r{line:<90}" + ("\n" if now.step == now.steps else ""))
    sys.stdout.flush()


@dataclass(frozen=True)
class TrainResult:
    """The trained model, its corpus, the record to save, and the norm of each step's gradient before it was clipped."""

    model: GPT2
    corpus: Corpus
    record: RunRecord
    gradient_norms: list[float]


def learning_rate(step: int, *, warmup: int, total: int, max_lr: float, min_lr: float) -> float:
    """Linear warm-up to max_lr, then half a cosine down to min_lr, which holds from `total` on. Steps from 0.

    >>> [round(learning_rate(s, warmup=2, total=6, max_lr=1.0, min_lr=0.0), 3) for s in (0, 1, 2, 4, 6)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    if step < warmup:
        return max_lr * (step + 1) / warmup
    if step >= total:
        return min_lr
    return min_lr + (max_lr - min_lr) * (1 + math.cos(math.pi * (step - warmup) / (total - warmup))) / 2


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """AdamW groups: matrices (weights of linear layers and embeddings) decay, biases and norms do not."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]


class Batches:
    """Batches of one part of a corpus on a device, in an order that the seed decides."""

    def __init__(self, tokens: np.ndarray, config: TrainConfig, device: torch.device, seed: int) -> None:
        self.tokens, self.config, self.device = tokens, config, device
        self.generator = np.random.default_rng(seed)

    def draw(self) -> tuple[Tensor, Tensor]:
        """(inputs, targets), both (batch, seq_len) int64."""
        pair = draw_batch(self.tokens, self.config.batch, self.config.seq_len, self.generator)
        inputs, targets = (torch.from_numpy(part) for part in pair)
        if self.device.type == "cuda":
            inputs, targets = inputs.pin_memory(), targets.pin_memory()
        return inputs.to(self.device, non_blocking=True), targets.to(self.device, non_blocking=True)


@torch.no_grad()
def validation_loss(model: GPT2, corpus: Corpus, config: TrainConfig) -> float:
    """Mean loss in nats per token on the same eval_batches batches of validation files every time."""
    batches = Batches(corpus.val, config, model.device, seed=0)
    losses = [batch_loss(model, *batches.draw()) for _ in range(config.eval_batches)]
    return float(torch.stack(losses).mean())


def accumulated_step(model: GPT2, batches: Batches, accumulate: int) -> Tensor:
    """Add the gradients of `accumulate` batches, each scaled by 1/accumulate; return their mean loss (detached).

    With batches of equal size this is the gradient of one batch `accumulate` times as large, at the activation
    memory of a small one.
    """
    total = torch.zeros((), device=model.device, dtype=model.wte.weight.dtype)
    for _ in range(accumulate):
        loss = batch_loss(model, *batches.draw()) / accumulate
        loss.backward()
        total += loss.detach()
    return total


def training_steps(
    model: GPT2,
    batches: Batches,
    config: TrainConfig,
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """The loop of training; after each step its number, from 1, the batch's loss and the gradient's norm (detached)."""
    groups = parameter_groups(model, config.weight_decay)
    optimizer = torch.optim.AdamW(groups, lr=config.max_lr, betas=(0.9, 0.95), fused=True)
    for step in range(config.steps):
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate(step)
        loss = accumulated_step(model, batches, config.accumulate)
        norm = nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimizer.step()
        optimizer.zero_grad()
        yield step + 1, loss, norm


def train(
    config: TrainConfig,
    *,
    device: torch.device | str | None = None,
    progress: Callable[[Progress], None] | None = print_progress,
    unit: str = "01",
) -> TrainResult:
    """Train from random weights and measure. The same config, device and versions give the same losses.

    device: the GPU if there is one, else the CPU. progress: called about once a second and after the last
    step. tokens/s leaves out the first step (it allocates and tunes) and validation. Raises TrainingError when
    the loss is not finite.
    """
    device = default_device() if device is None else torch.device(device)
    dtype = training_dtype(device)
    peak = device_peak(device, dtype)
    corpus = load_corpus(config.corpus)
    torch.manual_seed(config.seed)
    model = GPT2(config.model).to(device)
    batches = Batches(corpus.train, config, device, config.seed)
    reset_peak_memory(device)

    losses: list[Tensor] = []
    norms: list[Tensor] = []
    val_loss = [(0, validation_loss(model, corpus, config))]
    whole, steps_only = Stopwatch(device), Stopwatch(device)
    whole.start()
    steps_only.start()
    reported_at = -math.inf
    for done, step_loss, norm in training_steps(model, batches, config):
        losses.append(step_loss)
        norms.append(norm)
        if done == 1 < config.steps:
            steps_only.reset()
        if done == config.steps or time.monotonic() > reported_at + _REPORT_SECONDS:
            reported_at = time.monotonic()
            timed_steps, timer = (done - 1, steps_only) if done > 1 else (1, whole)
            speed_so_far = config.tokens_per_step * timed_steps / timer.seconds()
            loss = losses[-1].item()
            if not math.isfinite(loss):
                raise TrainingError(f"the loss is {loss} at step {done}; try a max_lr below {config.max_lr}")
            if progress is not None:
                lr = config.learning_rate(done - 1)
                progress(Progress(done, config.steps, loss, lr, speed_so_far, whole.seconds()))
        if done == config.steps or done % config.eval_every == 0:
            steps_only.stop()
            val_loss.append((done, validation_loss(model, corpus, config)))
            steps_only.start()
    steps_only.stop()

    tokens_per_second = config.tokens_per_step * max(config.steps - 1, 1) / steps_only.seconds()
    flops = flops_per_token(config.model, config.seq_len)
    memory_bytes, memory_kind = peak_memory(device)
    record = RunRecord(
        unit=unit,
        config=asdict(config),
        parameters=param_count(config.model),
        device=describe(device, dtype),
        train_loss=torch.stack(losses).tolist(),
        val_loss=val_loss,
        unigram_nats=corpus.unigram_entropy,
        bits_per_byte=corpus.bits_per_byte(val_loss[-1][1]),
        seconds=whole.seconds(),
        tokens_per_second=tokens_per_second,
        flops_per_token=flops,
        peak_flops=peak.flops_per_second,
        peak_source=peak.source,
        mfu=tokens_per_second * flops / peak.flops_per_second if peak.flops_per_second else None,
        memory_bytes=memory_bytes,
        memory_kind=memory_kind,
        samples=[sample(model, corpus, prompt, seed=seed) for seed, prompt in enumerate(PROMPTS)],
    )
    return TrainResult(model, corpus, record, torch.stack(norms).tolist())


def sample(model: GPT2, corpus: Corpus, prompt: str, *, tokens: int = 60, seed: int = 0) -> str:
    """The prompt and up to `tokens` more tokens of text that the model makes up (temperature 0.7, 40 candidates)."""
    ids = torch.tensor([corpus.tokenizer.encode(prompt).ids], device=model.device)
    generator = torch.Generator(model.device).manual_seed(seed)
    room = model.config.n_positions - ids.shape[1]
    out = generate(model, ids, min(tokens, room), temperature=0.7, top_k=40, generator=generator)
    return corpus.tokenizer.decode(out[0].tolist())


def default_preset() -> str:
    """ "gpt2" where there is a GPU, else "cpu"."""
    return "gpt2" if default_device().type == "cuda" else "cpu"


def trial(corpus: Corpus, config: TrainConfig, *, steps: int = 6, **changes: Any) -> float:
    """Tokens/s of a few steps with some settings of `config` changed, as `trial(corpus, config, batch=1)`.

    The first step, which allocates, does not count; of the others the middle one does.
    """
    tried = replace(config, steps=steps, **changes)
    device = default_device()
    model = GPT2(tried.model).to(device)
    watch, seconds = Stopwatch(device), []
    watch.start()
    for _ in training_steps(model, Batches(corpus.train, tried, device, tried.seed), tried):
        seconds.append(watch.seconds())
        watch.reset()
    return tried.tokens_per_step / sorted(seconds[1:])[len(seconds[1:]) // 2]


def speed(steps: int) -> dict[str, Any]:
    """Train `steps` steps of this machine's preset and return what was measured, without its losses."""
    name = default_preset()
    config = replace(TrainConfig.preset(name), steps=steps, eval_batches=1)
    record = train(config, progress=None).record
    return {
        "preset": name,
        "steps": steps,
        "tokens_per_second": record.tokens_per_second,
        "mfu": record.mfu,
        "peak_source": record.peak_source,
    }


def batch_loss(model: GPT2, inputs: Tensor, targets: Tensor) -> Tensor:
    """Mean loss of a batch, nats per token; inputs and targets: (batch, seq_len) int64.

    The forward pass runs under autocast where the device trains in a narrow type.
    """
    dtype = training_dtype(model.device)
    with torch.autocast(model.device.type, dtype, enabled=dtype != torch.float32):
        return model.loss(inputs, targets)
