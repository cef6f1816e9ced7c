"""Recordings as files: tensors in the format of safetensors, which holds no code, and the rest as JSON in its head."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from gpu_utils.model.activations import Call, Operator, Recording, RecordingError

SCHEMA = 1
_HEAD = "w2w recording"


def encoded(recording: Recording) -> bytes:
    """The bytes of a file that `load_recording` reads."""
    values = {str(number): value.contiguous() for number, value in enumerate(recording.values)}
    head = {
        "schema": SCHEMA,
        "calls": [asdict(call) for call in recording.calls],
        "operators": [asdict(operator) for operator in recording.operators],
        "weights": {str(number): name for number, name in recording.weights.items()},
        "about": recording.about,
    }
    return save(values, {_HEAD: json.dumps(head)})


def load_recording(path: Path) -> Recording:
    """Read what `encoded` gave. Raises RecordingError, in one sentence, where the file is something else."""
    try:
        with safe_open(path, framework="pt") as file:
            head: dict[str, Any] = json.loads((file.metadata() or {}).get(_HEAD, "{}"))
            values = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise RecordingError(f"{path} is not there; record it first, or check its name") from None
    except (SafetensorError, OSError, ValueError) as problem:
        raise RecordingError(f"{path} is no recording: {problem}; make one from a model on this machine") from None
    if head.get("schema") != SCHEMA:
        found = f"a recording of schema {head['schema']}" if head else "tensors without a recording, such as weights"
        raise RecordingError(f"{path} holds {found}; this version reads schema {SCHEMA}: record it again")
    return Recording(
        values=[values[str(number)] for number in range(len(values))],
        calls=[Call(**_tuples(call)) for call in head["calls"]],
        operators=[Operator(**_tuples(operator)) for operator in head["operators"]],
        weights={int(number): name for number, name in head["weights"].items()},
        about=head["about"],
    )


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
