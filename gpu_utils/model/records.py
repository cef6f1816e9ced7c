"""Run records: what a training run measured, as JSON files that later units compare with.

They live in `runs/` under the data folder, one file a run, never overwritten. A file that cannot be read as a
record is moved aside (`.unreadable`), not deleted.
"""

from __future__ import annotations

import contextlib
import json
import math
import platform
import secrets
import warnings
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from gpu_utils.errors import W2WError
from gpu_utils.folders import data_folder

KIND = "w2w-run-record"
VERSION = 1
_PACKAGES = ("triton", "tokenizers", "transformers", "numpy")


class RecordError(W2WError):
    """A run record is missing, unreadable or cannot be written."""


class NewerRecord(RecordError):
    """A run record that a newer version of the course wrote."""


def now() -> str:
    """UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a measurement depends on; absent packages are left out.

    Torch's is its own, as in 2.13.0+cu130: the package's leaves out for which GPU it was built.
    """
    import torch

    found = {"python": platform.python_version(), "torch": torch.__version__}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


@dataclass(frozen=True)
class RunRecord:
    """What one training run was and what it measured.

    config: the training configuration, nested. parameters: count. device: name, vendor, dtype of the matrix
    products and so on. Losses are nats per token. train_loss: one value a step. val_loss: (step, loss) pairs.
    tokens_per_second leaves evaluation out. flops_per_token: see costs.flops_per_token. peak_flops: FLOP/s of
    the device or None, peak_source says where it comes from. mfu: 0 to 1, or None without a peak.
    memory_bytes: see memory_kind.
    """

    unit: str
    config: dict[str, Any]
    parameters: int
    device: dict[str, Any]
    train_loss: list[float]
    val_loss: list[tuple[int, float]]
    unigram_nats: float
    bits_per_byte: float
    seconds: float
    tokens_per_second: float
    flops_per_token: int
    peak_flops: float | None
    peak_source: str
    mfu: float | None
    memory_bytes: int
    memory_kind: str
    samples: list[str]
    created: str = field(default_factory=now)
    versions: dict[str, str] = field(default_factory=versions)

    @property
    def final_val_loss(self) -> float:
        """Nats per token on the validation files after the last step."""
        return self.val_loss[-1][1]


def runs_folder() -> Path:
    return data_folder() / "runs"


def save_record(record: RunRecord, folder: Path | None = None) -> Path:
    """Write the record as JSON and return its path. A reader sees the whole file or none.

    Raises RecordError when the folder cannot be written or the disk is full; the record in memory stays whole.
    """
    folder = folder or runs_folder()
    text = json.dumps({"kind": KIND, "version": VERSION, **asdict(record)}, indent=1)
    stamp = record.created.replace("-", "").replace(":", "")[:15]
    path = folder / f"{record.unit}-{stamp}-{secrets.token_hex(3)}.json"  # two runs may end in one second
    temporary = path.with_suffix(".tmp")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as problem:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise RecordError(
            f"the run record cannot be written to {folder} ({problem.strerror}); set W2W_DATA to a folder that you "
            "can write and has space, then save it again"
        ) from problem
    return path


def load_record(path: Path | str) -> RunRecord:
    """Read a record. Raises RecordError when the file is no record, or one of a newer version of the course."""
    path = Path(path)
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise RecordError(f"no run record at {path} ({problem.strerror})") from problem
    except ValueError as problem:
        raise RecordError(f"{path} is not JSON ({problem}); it was not written by save_record") from problem
    if not isinstance(raw, dict) or raw.get("kind") != KIND:
        raise RecordError(f"{path} is JSON but not a run record; give a file that save_record wrote")
    if raw.get("version") != VERSION:
        raise NewerRecord(f"{path} has version {raw.get('version')}, this course reads {VERSION}; update the course")
    wanted = {f.name for f in fields(RunRecord)}
    missing = sorted(wanted - raw.keys())
    if missing:
        raise RecordError(f"{path} lacks {', '.join(missing)}; it was not written by save_record")
    values = {name: raw[name] for name in wanted}
    try:
        values["val_loss"] = [(int(step), float(loss)) for step, loss in values["val_loss"]]
        values["train_loss"] = [float(loss) for loss in values["train_loss"]]
    except (TypeError, ValueError) as problem:
        raise RecordError(f"{path} holds losses that are no numbers ({problem})") from problem
    if not values["val_loss"] or not math.isfinite(values["val_loss"][-1][1]):
        raise RecordError(f"{path} holds no final validation loss; the run did not end well")
    return RunRecord(**values)


def latest_record(unit: str, folder: Path | None = None) -> RunRecord:
    """The newest readable record of a unit, as `latest_record("01")`.

    Unreadable files are moved aside with a warning. Raises RecordError when there is no record: run the unit's
    lesson first.
    """
    folder = folder or runs_folder()
    records = []
    for path in sorted(folder.glob(f"{unit}-*.json")):
        try:
            records.append(load_record(path))
        except NewerRecord as problem:
            warnings.warn(str(problem), stacklevel=2)
        except RecordError as problem:
            _keep_aside(path, problem)
    if not records:
        raise RecordError(f"there is no run record of unit {unit} in {folder}; run the lesson of unit {unit} first")
    return max(records, key=lambda record: record.created)


def _keep_aside(path: Path, problem: RecordError) -> None:
    aside = path.with_suffix(".unreadable")
    try:
        path.rename(aside)
    except OSError:
        aside = path
    warnings.warn(f"{problem}; kept as {aside}", stacklevel=3)
