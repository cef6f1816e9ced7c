"""Parity report: is a run on this device the same training as an earlier one, and how fast is it?

`agreement` compares the arithmetic of one batch with float64 on the CPU; `parity` sets two run records side by side.
The bounds are those of `gpu_utils.analytic.tolerance` and the noise of the curves themselves; unit 09 makes both sharp.
Written for devices of both vendors; not yet run on AMD silicon.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import tolerance
from gpu_utils.model.device import default_device, training_dtype
from gpu_utils.model.gpt2 import GPT2, GPT2Config
from gpu_utils.model.records import RunRecord

SEED = 2024


@dataclass(frozen=True)
class Agreement:
    """Relative errors (norm of the difference over norm) of one batch against float64 on the CPU.

    logits, gradients  measured, the gradients of all parameters as one vector
    bound              what the dtype and the lengths of the sums allow, and why
    device, dtype      where and in what the matrix products ran
    """

    logits: float
    gradients: float
    bound: float
    why: str
    device: str
    dtype: str


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
    return Agreement(logits, gradients, tol.rtol + tol.atol, tol.why, device.type, name)


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

    holds  None where there is no bound: a speed is reported and not judged
    """

    what: str
    before: str
    now: str
    difference: str
    bound: str
    holds: bool | None


@dataclass(frozen=True)
class Parity:
    """Two run records compared. `passed` when every bound holds; `missing` says what could not be compared, and why."""

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


def parity(before: RunRecord, now: RunRecord, arithmetic: Agreement) -> Parity:
    """The report on `now` (this device) against `before` (usually `latest_record("01")`).

    Losses are compared when both runs had the same configuration: the same model, data, batches and rates, step by
    step. Speeds are reported as a ratio.
    """
    rows = [
        _arithmetic("logits of one batch", arithmetic.logits, arithmetic),
        _arithmetic("gradients of one batch", arithmetic.gradients, arithmetic),
    ]
    differing = _differing(before.config, now.config)
    if not differing:
        rows += _curves(before, now)
    old, new = before.tokens_per_second, now.tokens_per_second
    rows.append(Row("tokens/s", f"{old:,.0f}", f"{new:,.0f}", f"x {new / old:.2f}", "", None))
    missing = f"Losses are not compared: the runs differ in {', '.join(differing)}." if differing else ""
    return Parity(before, now, tuple(rows), missing)


def _arithmetic(what: str, error: float, found: Agreement) -> Row:
    return Row(what, "float64", found.dtype, f"{error:.1e}", f"{found.bound:.1e} ({found.why})", error <= found.bound)


def _curves(before: RunRecord, now: RunRecord) -> list[Row]:
    """First loss: one forward pass of equal weights and data. Later, curves part; they may do so within their noise."""
    first = tolerance(_dtype(before, now), k=4 * now.config["model"]["n_embd"], roundings=12)
    steps = min(len(now.train_loss), max(10, len(now.train_loss) // 10))
    noise = 3 * statistics.stdev(now.train_loss[-steps:]) / math.sqrt(steps)
    why = f"3 standard errors of the last {steps} steps"
    old, new = (statistics.mean(record.train_loss[-steps:]) for record in (before, now))
    apart = max(abs(a - b) for a, b in zip(before.train_loss, now.train_loss, strict=True))
    start = first.atol + first.rtol * before.train_loss[0]
    return [
        _loss("loss of the first step", before.train_loss[0], now.train_loss[0], start, first.why),
        _loss(f"mean of the last {steps} steps", old, new, noise, why),
        _loss("final validation loss", before.final_val_loss, now.final_val_loss, noise, why),
        Row("largest gap of one step", "", "", f"{apart:.1e}", "", None),
    ]


def _loss(what: str, before: float, now: float, bound: float, why: str) -> Row:
    gap = abs(now - before)
    return Row(what, f"{before:.4f}", f"{now:.4f}", f"{gap:.1e}", f"{bound:.1e} ({why})", gap <= bound)


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
