"""bench says at once, not after minutes, when its result cannot be written; it measures what a learner waits for."""

from __future__ import annotations

import sys

import pytest

from gpu_utils.cli import bench as module
from gpu_utils.cli import bench_cold
from gpu_utils.errors import CannotWrite


@pytest.fixture(autouse=True)
def measured_nothing(monkeypatch):
    def never():
        raise AssertionError("measured before it was known that the result can be written")

    for name in ("waits", "_checks", "_import_seconds", "_start_seconds", "_training"):
        monkeypatch.setattr(module, name, never)


def test_a_folder_as_the_result_is_refused_before_anything_is_measured(tmp_path):
    with pytest.raises(CannotWrite, match="is a folder; give the name of a file"):
        module.bench(out=tmp_path)


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CannotWrite, match="cannot write"):
        module.bench(out=tmp_path / "file" / "bench.json")


def test_a_process_that_fails_is_no_measurement():
    with pytest.raises(bench_cold.MeasureFailed, match="ended with code 3: out of order"):
        bench_cold.fastest([sys.executable, "-c", "import sys; print('out of order'); sys.exit(3)"], runs=2)


def test_every_command_that_a_learner_waits_for_is_run_cold_in_a_checkout_of_its_own(monkeypatch):
    commands = []

    def noted(command, runs, cwd=None, **settings):
        if cwd is not None:
            assert (cwd / "content").is_dir()
            assert settings["W2W_DATA"].is_relative_to(cwd)
            commands.append(" ".join(command[1:3]))
        return 0.25, "  0.10 s; fresh cases\n  0.05 s; fresh cases\n"

    monkeypatch.setattr(bench_cold, "fastest", noted)
    found = {wait["what"]: (wait["seconds"], wait["limit"]) for wait in bench_cold.waits()}
    assert {"status", "hint 00.saxpy", "list", "start 00", "start 03", "check 02", "check 03"} <= set(commands)
    assert found["w2w status"] == found["w2w hint"] == found["w2w list"] == (0.25, 0.5)
    assert found["w2w start, the slowest unit"] == (0.25, 0.5)
    assert found["w2w check 02, the solutions"] == (0.25, None)
    assert found["w2w check 02, beyond its checks"] == (pytest.approx(0.1), 4.0)
    assert found["from gpu_utils import check, beyond torch's own import"] == (0.0, 0.3)
