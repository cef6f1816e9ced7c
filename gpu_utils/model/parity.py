"""Parity report: is a run on this device the same training as an earlier one, and how fast is it?

`agreement` compares the arithmetic of one batch with float64 on the CPU, and asks whether a token sees its future.
`parity` sets runs side by side in pairs: the same seeds, data and rates. What a loss may differ by follows from the
earlier runs alone: from how far they lie apart with different seeds, or from the noise of one of them. So a candidate
cannot widen its own bound. What a curve cannot show: a fault that moves the loss by less than another seed does.
Written for devices of both vendors; not yet run on AMD silicon.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_utils.analytic.paired import mean_interval, t_quantile
from gpu_utils.analytic.tolerance import tolerance
from gpu_utils.model.device import default_device, training_dtype
from gpu_utils.model.gpt2 import GPT2, GPT2Config
from gpu_utils.model.records import RecordError, RunRecord

SEED = 2024

CONFIDENCE = 0.95
"""Of the bounds that several seeds give: one in twenty right candidates may be beyond such a bound."""


@dataclass(frozen=True)
class Agreement:
    """Relative errors (norm of the difference over norm) of one batch against float64 on the CPU.

    logits, gradients  measured, the gradients of all parameters as one vector
    bound              what the dtype and the lengths of the sums allow, and why
    device, dtype      where and in what the matrix products ran
    future             largest change of a logit when a later token of its row changes; 0 in any dtype, because the
                       softmax gives a masked score the weight 0 exactly
    """

    logits: float
    gradients: float
    bound: float
    why: str
    device: str
    dtype: str
    future: float


def agreement(device: torch.device | str | None = None, config: GPT2Config | None = None) -> Agreement:
    """Logits and gradients of a GPT-2 with random weights on `device` (the GPU if there is one), against float64.

    The matrix products run as in training: in bfloat16 under autocast where the device has it, else in float32.
    """
    device = default_device() if device is None else torch.device(device)
    config = config or GPT2Config.preset("cpu")
    dtype = training_dtype(device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = GPT2(config)
        tokens = torch.randint(config.vocab_size, (4, config.n_positions + 1))
    exact = GPT2(config).double()
    exact.load_state_dict(model.state_dict())
    wanted = _logits_and_gradients(exact, tokens, torch.float64)
    found = _logits_and_gradients(model.to(device), tokens.to(device), dtype)
    logits, gradients = (_relative(one, other) for one, other in zip(found, wanted, strict=True))
    stages = 12 * config.n_layer + 2
    tol = tolerance(dtype, k=4 * config.n_embd, roundings=stages)
    name = str(dtype).removeprefix("torch.")
    future = _seen_of_the_future(model, tokens[:, :-1].to(device), dtype)
    return Agreement(logits, gradients, tol.rtol + tol.atol, tol.why, device.type, name, future)


@torch.no_grad()
def _seen_of_the_future(model: GPT2, tokens: Tensor, dtype: torch.dtype) -> float:
    """Exchange the last token of each row; how far do the logits before it move?"""
    other = tokens.clone()
    other[:, -1] = (other[:, -1] + 1) % model.config.vocab_size
    with torch.autocast(model.device.type, dtype, enabled=dtype in (torch.bfloat16, torch.float16)):
        change = model(tokens)[:, :-1] - model(other)[:, :-1]
    return float(change.abs().max())


def _logits_and_gradients(model: GPT2, tokens: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    with torch.autocast(model.device.type, dtype, enabled=dtype in (torch.bfloat16, torch.float16)):
        logits = model(tokens[:, :-1])
        loss = model.loss(tokens[:, :-1], tokens[:, 1:])
    loss.backward()
    gradients = [parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None]
    return logits.detach().double().cpu().flatten(), torch.cat(gradients).double().cpu()


def _relative(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@dataclass(frozen=True)
class Row:
    """One line: what was compared, both values, their difference or ratio, the bound, and whether it holds.

    before, now  "" where this device is compared with float64 or with itself, and not with the earlier runs
    difference   of a loss absolute, of an arithmetic relative (`Agreement`), of a speed the ratio
    limit, why   the largest difference that is allowed, and where it comes from; "" where there is none
    holds        None where there is no bound: a speed is reported and not judged
    """

    what: str
    before: str
    now: str
    difference: str
    limit: str
    why: str
    holds: bool | None

    @property
    def bound(self) -> str:
        """The limit and where it comes from, in one text."""
        return f"{self.limit} ({self.why})" if self.why else self.limit


@dataclass(frozen=True)
class Parity:
    """Two sets of runs compared. `passed` when every bound holds; `missing` says what was not compared, and why."""

    before: RunRecord
    now: RunRecord
    rows: tuple[Row, ...]
    missing: str

    @property
    def passed(self) -> bool:
        return all(row.holds is not False for row in self.rows)

    def __str__(self) -> str:
        table = [("", "before", "now", "difference", "bound", "")]
        verdicts = {None: "", True: "holds", False: "BROKEN"}
        table += [(r.what, r.before, r.now, r.difference, r.bound, verdicts[r.holds]) for r in self.rows]
        widths = [max(len(line[column]) for line in table) for column in range(6)]
        lines = [f"{name:<7}{_where(record)}" for name, record in (("before", self.before), ("now", self.now))]
        lines += [""] + [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in table
        ]
        return "\n".join(line.rstrip() for line in [*lines, *([self.missing] if self.missing else [])])

    __repr__ = __str__


def _where(record: RunRecord) -> str:
    device = record.device
    versions = ", ".join(
        f"{name} {version}" for name, version in record.versions.items() if name in ("torch", "triton")
    )
    return f"{device['name']} ({device['target'] or device['type']}), {device['dtype']}, {versions}, {record.created}"


def parity(before: Runs, now: Runs, arithmetic: Agreement) -> Parity:
    """The report on `now` (this device) against `before` (one record, such as `latest_record("01")`, or several).

    Several runs are pairs: run i of both has the same configuration, with a seed of its own. Losses are compared when
    all pairs agree in model, data, batches, rates and seed. Speeds are reported with their spread, and not judged.
    Raises RecordError when the numbers of runs differ.
    """
    old, new = _runs(before), _runs(now)
    if len(old) != len(new):
        raise RecordError(f"{len(old)} runs before and {len(new)} now; each needs its partner with the same seed")
    rows = [
        _arithmetic("logits of one batch", arithmetic.logits, arithmetic),
        _arithmetic("gradients of one batch", arithmetic.gradients, arithmetic),
        Row("seen of the future", "", "", _small(arithmetic.future), "0", "a masked weight", arithmetic.future == 0),
    ]
    differing = sorted(
        {name for pair in zip(old, new, strict=True) for name in _differing(pair[0].config, pair[1].config)}
    )
    if not differing:
        rows += _curves(old, new)
    rows.append(_speed(old, new))
    missing = f"Losses are not compared: the runs differ in {', '.join(differing)}." if differing else ""
    return Parity(old[0], new[0], tuple(rows), missing)


Runs = RunRecord | Sequence[RunRecord]


def _runs(given: Runs) -> list[RunRecord]:
    return [given] if isinstance(given, RunRecord) else list(given)


def _arithmetic(what: str, error: float, found: Agreement) -> Row:
    why = f"{found.dtype} against float64: {found.why}"
    return Row(what, "", "", _small(error), f"{found.bound:.1e}", why, error <= found.bound)


def _small(number: float) -> str:
    return f"{number:.1e}" if number else "0"


def _curves(old: list[RunRecord], new: list[RunRecord]) -> list[Row]:
    """First loss: one forward pass of equal weights and data. Later the curves part, by no more than other seeds do."""
    first = tolerance(_dtype(*old, *new), k=4 * new[0].config["model"]["n_embd"], roundings=12)
    steps = min(len(new[0].train_loss), max(10, len(new[0].train_loss) // 10))
    pairs = [(a.train_loss[0], b.train_loss[0]) for a, b in zip(old, new, strict=True)]
    widest = max(pairs, key=lambda pair: abs(pair[1] - pair[0]))
    start = first.atol + first.rtol * widest[0]
    apart = max(
        abs(a - b)
        for one, two in zip(old, new, strict=True)
        for a, b in zip(one.train_loss, two.train_loss, strict=True)
    )

    def tail(record: RunRecord) -> float:
        return statistics.mean(record.train_loss[-steps:])

    return [
        _loss("loss of the first step", *widest, start, first.why),
        _mean(f"mean of the last {steps} steps", old, new, tail, steps),
        _mean("final validation loss", old, new, lambda record: record.final_val_loss, steps),
        Row("largest gap of one step", "", "", _small(apart), "", "", None),
        *_by_pairs(old, new),
    ]


def _mean(
    what: str, old: list[RunRecord], new: list[RunRecord], value: Callable[[RunRecord], float], steps: int
) -> Row:
    """The mean over all pairs. Its bound: by how much the mean of the earlier runs moves with other seeds, at an error
    rate of 5%; of one run three standard errors by step."""
    times = 3.0
    if len(old) > 1:
        error = statistics.stdev(map(value, old)) / math.sqrt(len(old))
        times = t_quantile(CONFIDENCE, len(old) - 1)
        why = f"{times:.2f} standard errors: {CONFIDENCE:.0%} of Student's t for {len(old)} seeds before"
    elif len(old[0].train_loss) < 4:
        return Row(what, f"{value(old[0]):.4f}", f"{value(new[0]):.4f}", "", "none from so few steps", "", None)
    else:  # from one step to the next: the slope of the curve is no noise
        last = old[0].train_loss[-steps - 1 :]
        error = statistics.stdev(b - a for a, b in itertools.pairwise(last)) / math.sqrt(2 * steps)
        why = f"3 standard errors of the last {steps} steps before"
    before, here = (statistics.mean(map(value, runs)) for runs in (old, new))
    return _loss(what, before, here, times * error, why)


def _by_pairs(old: list[RunRecord], new: list[RunRecord]) -> list[Row]:
    """How far the validation losses of pairs lie apart, with an interval. It is not judged: it also shows what another
    rounding does to every seed alike, however little that is."""
    if len(old) < 2:
        return []
    found = mean_interval([b.final_val_loss - a.final_val_loss for a, b in zip(old, new, strict=True)], CONFIDENCE)
    why = f"{CONFIDENCE:.0%} of Student's t for {len(old)} pairs, not judged"
    half = found.high - found.mean
    return [Row("validation by pairs", "", "", _small(abs(found.mean)), f"{half:.1e}", why, None)]


def _loss(what: str, before: float, now: float, bound: float, why: str) -> Row:
    gap = abs(now - before)
    return Row(what, f"{before:.4f}", f"{now:.4f}", _small(gap), f"{bound:.1e}", why, gap <= bound)


def _speed(old: list[RunRecord], new: list[RunRecord]) -> Row:
    shown, middle = [], []
    for runs in (old, new):
        speeds = [record.tokens_per_second for record in runs]
        middle.append(statistics.median(speeds))
        spread = f" ({min(speeds):,.0f} to {max(speeds):,.0f})" if len(speeds) > 1 else ""
        shown.append(f"{middle[-1]:,.0f}{spread}")
    return Row("tokens/s", shown[0], shown[1], f"x {middle[1] / middle[0]:.2f}", "", "", None)


def _dtype(*records: RunRecord) -> torch.dtype:
    """The narrowest type in which the products of these runs were computed."""
    found = [getattr(torch, str(record.device["dtype"])) for record in records]
    return max(found, key=lambda dtype: torch.finfo(dtype).eps)


def _differing(one: dict, other: dict, where: str = "") -> list[str]:
    """Names of the settings that differ, "model.n_layer"; a record from a file and one from memory count as equal."""
    names: list[str] = []
    for key in sorted({*one, *other}):
        a, b = one.get(key), other.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            names += _differing(a, b, f"{where}{key}.")
        elif a != b:
            names.append(f"{where}{key}")
    return names
