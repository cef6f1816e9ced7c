"""The command doctor: every row on this machine, and the rows of machines that lack something."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import typer

from gpu_utils.cli import doctor
from gpu_utils.compiler import compile_for
from gpu_utils.errors import CompileFailed


def test_this_machine_has_what_the_course_needs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as stop:
        doctor.doctor()
    assert stop.value.exit_code == 0
    shown = capsys.readouterr().out
    for what in ("system", "Python", "PyTorch", "Triton", "device", "compiler, sm_90", "compiler, gfx942", "disk"):
        assert what in shown
    assert "MISSING" not in shown


@pytest.mark.parametrize("target", doctor.COMPILED_FOR)
def test_the_compiler_is_tried_to_machine_code(target: str) -> None:
    finding = doctor.compiling(target)
    assert finding.enough is True
    assert int(finding.found.split()[0]) > 1000


def test_a_compiler_that_fails_is_missing_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise CompileFailed("ptxas not found")

    monkeypatch.setattr(sys.modules[compile_for.__module__.rpartition(".")[0]], "compile_for", broken)
    finding = doctor.compiling("sm_90")
    assert finding.enough is False
    assert finding.found == "ptxas not found"
    assert "run ./w2w" in finding.means


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_elsewhere_a_container_or_a_remote_machine_is_named(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    finding = doctor.system()
    assert finding.enough is False
    assert "container" in finding.means
    assert "remote Linux machine" in finding.means


def test_a_data_folder_that_cannot_be_written_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    occupied = tmp_path / "a file"
    occupied.write_text("")
    monkeypatch.setenv("W2W_DATA", str(occupied / "data"))
    finding = doctor.data()
    assert finding.enough is False
    assert finding.found == f"{occupied / 'data'}: Not a directory"
    assert "W2W_DATA=" in finding.means


def test_missing_tools_of_tests_are_not_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.browser().enough is None
    assert doctor.sandbox().enough is None
    forbidden = tmp_path / "bwrap"
    forbidden.write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n")
    forbidden.chmod(0o755)
    assert doctor.sandbox().found == "No permissions to create new namespace"


def test_a_full_disk_is_missing_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 2**20})())
    assert doctor.disk().enough is False


def test_something_missing_makes_the_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: [doctor.Finding("disk", "full", "make room", False)])
    with pytest.raises(typer.Exit) as stop:
        doctor.doctor()
    assert stop.value.exit_code == 1
    assert "1 needed thing is missing." in capsys.readouterr().out


def test_without_clang_the_row_of_cpp_says_what_that_costs_and_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_utils.compiler.clang.installed", lambda: False)
    finding = doctor.cpp()
    assert finding.enough is None
    assert "W2W_EXTRAS=hip ./w2w study" in finding.means


def test_without_tilelang_its_row_says_what_that_costs_and_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_utils.compiler.tilelang.installed", lambda: False)
    finding = doctor.tiles()
    assert finding.enough is None
    assert "W2W_EXTRAS=hip,nvrtc,tilelang ./w2w study" in finding.means
