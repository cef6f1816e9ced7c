"""Tests that need a real NVIDIA or AMD GPU; tests/conftest.py says what happens where there is none."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from gpu_utils.chips import probe
from tests import ROOT

RESULTS = ROOT / "benchmarks" / "results"


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/gpu/" in item.path.as_posix():
            item.add_marker(pytest.mark.gpu)


@contextmanager
def results(name: str, **parts: Any) -> Iterator[dict[str, Any]]:
    """What tests find on this device: begun with chip, versions and date, written to benchmarks/results/ at the end."""
    found = probe()
    written = {
        "kind": f"w2w-{name.replace('_', '-')}",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "target": found.target,
        "chip": found.name,
        "units": found.units,
        "versions": found.versions,
        **parts,
    }
    yield written
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}_{found.target}.json").write_text(json.dumps(written, indent=1) + "\n")
