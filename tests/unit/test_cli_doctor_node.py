"""`w2w doctor --node`: the example nodes, and files that cannot be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from gpu_utils.analytic.node import KEYS
from gpu_utils.cli import doctor
from gpu_utils.cli.app import program
from gpu_utils.cli.doctor_node import read
from gpu_utils.course.paths import unit_folder
from gpu_utils.errors import BadArgument

NODES = unit_folder("03") / "files" / "nodes"


def run(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(typer.Exit) as stop:
        doctor.doctor(node=path)
    return stop.value.exit_code, capsys.readouterr().out


@pytest.mark.parametrize("name", ["mi300x_right.yaml", "h100_right.yaml"])
def test_a_right_node_has_nothing_wrong(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = run(NODES / name, capsys)
    assert code == 0
    assert "0 wrong, 0 could be better." in shown


def test_the_three_faults_are_found_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = run(NODES / "mi300x_weekend.yaml", capsys)
    assert code == 1
    assert "2 wrong, 1 could be better." in shown
    for text in (
        "no GPU",
        "counts among 4 GPUs and leaves none",
        "WRONG: processes 0 to 3: ROCR_VISIBLE_DEVICES",
        "HSA_OVERRIDE_GFX_VERSION=11.0.0",
        "NCCL_P2P_DISABLE=1",
    ):
        assert text in shown
    assert shown.count("    from: ") == shown.count("    does: ") == shown.count("    try:  ") == 5


def test_a_foreign_override_on_a_workstation_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = run(NODES / "rx7900xtx_override.yaml", capsys)
    assert code == 1
    assert "passes for gfx1030" in shown


def test_the_physical_gpus_of_each_process_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "node.yaml"
    file.write_text("chip: MI250X\ngpus: 8\nprocesses: 2\neach_process: {HIP_VISIBLE_DEVICES: '{rank},7'}\n")
    _, shown = run(file, capsys)
    assert "process 0: cuda:0 = GPU 0, cuda:1 = GPU 7" in shown
    assert "process 1: cuda:0 = GPU 1, cuda:1 = GPU 7" in shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpus: [", "line 1"),
        ("gpus 8", "found text"),
        ("gpus: 8\nprocesses: 8\nchips: MI300X", "there is no key of a node 'chips'; did you mean 'chip'"),
        ("", "found nothing"),
    ],
)
def test_a_file_that_describes_no_node_is_one_sentence_with_its_name(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(text)
    with pytest.raises(BadArgument) as refusal:
        read(file)
    assert str(refusal.value).startswith(str(file))
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_file_that_is_not_there_or_no_text_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="No such file"):
        read(tmp_path / "nothing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadArgument, match="UTF-8"):
        read(tmp_path / "binary.yaml")


def test_the_help_has_an_example_and_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program().main(["doctor", "--help"], prog_name="w2w")
    shown = " ".join(capsys.readouterr().out.split())
    assert "./w2w doctor --node work/03_porting_to_rocm/nodes/mi300x_weekend.yaml" in shown
    assert all(re.search(rf"\b{key}\b", shown) for key in KEYS)
