"""w2w profile: the table in plain text, files that it writes, errors of one sentence, exit codes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gpu_utils.cli import app
from gpu_utils.cli import profile as command
from gpu_utils.errors import ProfileUnreadable
from gpu_utils.profiling import reading
from gpu_utils.profiling.profile import LEFT_OUT, Event, Origin, Profile
from tests.unit.profiling.sample import HOSTILE, training


def call(monkeypatch, capsys, *arguments):
    """(exit code, output, errors) of `w2w profile ...`."""
    monkeypatch.setattr(sys, "argv", ["w2w", "profile", *arguments])
    with pytest.raises(SystemExit) as stop:
        app.main()
    code = stop.value.code
    shown = capsys.readouterr()
    if isinstance(code, str):  # what Python prints itself
        return 1, shown.out, shown.err + code
    return code or 0, shown.out, shown.err


@pytest.fixture
def given(monkeypatch):
    """Every file reads as one of the sample profiles."""

    def reads(profile):
        monkeypatch.setattr(reading, "read", lambda *paths: profile)

    reads(training("nvidia"))
    return reads


def test_the_table_is_plain_where_nobody_looks(monkeypatch, capsys, given):
    code, shown, _ = call(monkeypatch, capsys, "trace.json")
    lines = shown.splitlines()
    assert code == 0
    assert lines[2].split() == ["kernel", "calls", "time", "share", "a", "call", "limited", "by"]
    assert lines[3].split()[:4] == ["matmul", "4", "320", "us"]
    assert lines[0] == (
        "GPU 0: busy 55.3 % of 1.04 ms (kernels 50 %, copies 21.5 %), 3 gaps (465 us host launches too slowly)"
    )
    advised = next(line for line in lines if line.startswith("- transpose ("))
    assert "of the kernels' time): its lanes touch scattered addresses" in advised
    assert any(line.startswith("- trace.json: modelled, not measured") for line in lines)
    assert HOSTILE in shown
    assert not set(shown) & set("│┃━\x1b")


def test_a_terminal_gets_a_table_with_lines(monkeypatch, capsys, given):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    _, shown, _ = call(monkeypatch, capsys, "trace.json")
    assert "Kernels by time" in shown
    assert "matmul" in shown


def test_a_virtual_run_says_so_first(monkeypatch, capsys, given):
    given(training("amd", virtual=True))
    _, shown, _ = call(monkeypatch, capsys, "trace.json")
    assert shown.startswith("virtual GPU: counters are exact, times are modelled")


def test_what_takes_no_time_is_no_advice(monkeypatch, capsys, given):
    rows = [Event("kernel", name, at, at + ns, "s") for name, at, ns in (("long", 0, 9950), ("short", 9950, 50))]
    for row in rows:
        row.note("scratch_bytes", 64, "ncu")
    given(Profile(rows))
    _, shown, _ = call(monkeypatch, capsys, "trace.json")
    assert "- long (99.5 %" in shown
    assert "- short" not in shown  # 0.5 %
    assert shown.count("spills") == 2


def test_a_hint_comes_last(monkeypatch, capsys, given):
    profile = Profile([Event("kernel", name, 0, 100, "s") for name in ("hinted", "limited")])
    for name, value in (("load_requests", 100), ("load_sectors", 700)):
        profile.events[0].note(name, value, "ncu")
    profile.events[1].note("occupancy_limit", 20.0, "ncu")
    given(profile)
    _, shown, _ = call(monkeypatch, capsys, "trace.json")
    assert 0 < shown.index("- limited (50 %") < shown.index("- hinted (50 %")


def test_a_file_that_was_read_in_part_is_named_at_the_top(monkeypatch, capsys, given):
    remark = "the file is cut short: 1 whole event read, later ones are missing"
    given(Profile([Event("kernel", "k", 0, 9, "s")], [Origin("t.json", "torch.profiler", "", "", ("odd", remark))]))
    _, shown, _ = call(monkeypatch, capsys, "t.json")
    assert shown.splitlines()[0] == f"read in part: t.json ({remark})"


def test_what_was_not_read_is_the_first_remark(monkeypatch, capsys, given):
    read = Origin("t.json", "torch.profiler", "", "", tuple(f"oddity {number}" for number in range(9)))
    left = Origin("notes.txt", "no profiler", LEFT_OUT, "", ("left out: it is no profile",))
    given(Profile([Event("kernel", "k", 0, 9, "s")], [read, left]))
    _, shown, _ = call(monkeypatch, capsys, "t.json", "notes.txt")
    remarks = shown.split("remarks:\n")[1].splitlines()
    assert remarks[0] == "- notes.txt: left out: it is no profile"
    assert (len(remarks), remarks[-1]) == (7, "- and 4 more; --html has all")


def test_one_gap_is_one_and_few_copies_are_not_told_apart(monkeypatch, capsys, given):
    copy = Event("copy", "HtoD", 200, 201, "s")
    given(Profile([Event("kernel", "k", 0, 100, "s"), copy]))
    _, shown, _ = call(monkeypatch, capsys, "t.json")
    assert shown.splitlines()[0] == "GPU: busy 50.2 % of 201 ns, 1 gap (100 ns nothing recorded)"
    copy.end = 300
    _, shown, _ = call(monkeypatch, capsys, "t.json")
    assert shown.startswith("GPU: busy 66.7 % of 300 ns (kernels 33.3 %, copies 33.3 %), 1 gap (")


def test_a_run_with_counters_has_no_busy_share(monkeypatch, capsys, given):
    given(Profile([Event("kernel", "k", at, at + 50, "s", "0") for at in (0, 51)], serial={"0"}))
    _, shown, _ = call(monkeypatch, capsys, "t.json")
    assert shown.startswith("GPU 0: how busy it was cannot be told: kernels ran one at a time while counters were ")
    assert "busy 9" not in shown


def test_options_stand_before_or_after_the_files(monkeypatch, capsys, given):
    before = call(monkeypatch, capsys, "--chip", "H100", "a.json", "b.csv")
    assert before == call(monkeypatch, capsys, "a.json", "b.csv", "--chip", "H100")
    assert before[0] == 0


def test_no_kernels_and_no_times_are_said(monkeypatch, capsys, given):
    given(Profile([Event("op", "aten::mm", 0, 10)]))
    code, shown, _ = call(monkeypatch, capsys, "trace.json")
    assert code == 0
    assert "no kernel is in these files" in shown
    assert "cannot be told" in shown


def test_many_kernels_are_cut_and_counted(monkeypatch, capsys, given):
    given(Profile([Event("kernel", f"k{number}" + "x" * 99, 0, number + 1, "s") for number in range(50)]))
    _, shown, _ = call(monkeypatch, capsys, "trace.json")
    assert "and 30 more; --csv and --html have all" in shown
    assert max(map(len, shown.splitlines()[:22])) < 120


def test_the_report_and_the_launches_go_to_files(monkeypatch, capsys, given, tmp_path):
    html, csv = tmp_path / "r.html", tmp_path / "t.csv"
    code, shown, _ = call(monkeypatch, capsys, "a.json", "--html", str(html), "--csv", str(csv), "--chip", "H100")
    assert code == 0
    assert f"report: {html}" in shown
    assert "Peaks are those of H100 SXM" in html.read_text()
    rows = csv.read_text().splitlines()
    assert rows[0].startswith("name,kind,device,lane,process,number,start (ns),duration (ns),grid (blocks)")
    assert len(rows) == 1 + 16


@pytest.mark.parametrize("option", ["--html", "--csv"])
def test_a_forgotten_value_costs_no_file(monkeypatch, capsys, given, tmp_path, option):
    trace = tmp_path / "trace.json"
    trace.write_text("hours of work")
    for behind in (["counters.csv"], [str(trace)], ["--", "true"]):
        code, _, errors = call(monkeypatch, capsys, option, str(trace), *behind)
        assert (code, trace.read_text()) == (1, "hours of work")
        assert "trace.json is " in errors


def test_a_folder_with_its_report_is_read_again(monkeypatch, capsys, given, tmp_path):
    html = tmp_path / "r.html"
    for files in (["a.json"], ["a.json", str(html)]):
        code, _, errors = call(monkeypatch, capsys, "--html", str(html), *files)
        assert (code, errors) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no_such.json"], "no_such.json is not there"),
        (["train.py"], "train.py is a program; run it: "),
        (["trace.json", "--chip", "H1000"], "there is no chip 'H1000'"),
    ],
)
def test_an_error_is_one_sentence_and_code_1(monkeypatch, capsys, request, arguments, words):
    if "--chip" in arguments:
        request.getfixturevalue("given")
    code, _, errors = call(monkeypatch, capsys, *arguments)
    assert code == 1
    assert words in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    "arguments", [[], ["trace.json", "--", "python", "train.py"], ["--"], ["trace.json", "--tool", "ncu"]]
)
def test_words_that_do_not_fit_together_are_a_usage_error(monkeypatch, capsys, arguments):
    code, _, errors = call(monkeypatch, capsys, *arguments)
    assert code == 2
    assert "profile" in errors


FAKE = """#!/bin/sh
while [ "$1" != "--log-file" ]; do shift; done; log=$2; shift 2
"$@"; echo 'table' > "$log"
"""


@pytest.fixture
def ncu(tmp_path, monkeypatch):
    """A fake ncu on PATH, in a folder of its own."""
    tool = tmp_path / "tools" / "ncu"
    tool.parent.mkdir()
    tool.write_text(FAKE)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("wanted", [0, 3])
def test_a_program_is_run_read_and_its_code_is_ours(monkeypatch, capfd, given, ncu, wanted):
    words = ["--tool", "ncu", "--", "sh", "-c", f"echo trained; exit {wanted}", "--html"]  # the last is the program's
    code, shown, errors = call(monkeypatch, capfd, *words)
    assert code == wanted
    assert shown.startswith("trained\n")
    assert "matmul" in shown
    assert "again, without running it: " in shown
    assert "w2w: ncu records counters of every kernel" in errors
    assert (f"the program ended with code {wanted}" in errors) == bool(wanted)


@pytest.mark.parametrize("wanted", [0, 3])
def test_a_result_that_cannot_be_read_is_no_success(monkeypatch, capfd, ncu, wanted):
    def refuse(*paths):
        raise ProfileUnreadable(paths[0], "holds no table")

    monkeypatch.setattr(reading, "read", refuse)
    code, _, errors = call(monkeypatch, capfd, "--tool", "ncu", "--", "sh", "-c", f"exit {wanted}")
    assert code == (wanted or 1)
    told = "the program ended with code 3 before ncu had recorded anything; what it said is above"
    assert (told if wanted else "holds no table") in errors
    assert ("holds no table" in errors) == (not wanted)


def test_a_tool_that_is_not_there_is_one_sentence(monkeypatch, capfd, ncu):
    code, _, errors = call(monkeypatch, capfd, "--tool", "rocprofv3", "--", "true")
    assert code == 1
    assert "rocprofv3 is not on PATH" in errors


def test_nothing_slow_is_loaded_to_print_the_table():
    program = (
        "import sys; from gpu_utils.profiling import reading\n"
        "from tests.unit.profiling.sample import training\n"
        "reading.read = lambda *paths: training('amd')\n"
        "from pathlib import Path\n"
        "from gpu_utils.cli import profile\n"
        "profile.profile([Path('trace.json')], None, None, '', '')\n"
        "print('loaded', *({'torch', 'numpy', 'pandas', 'triton', 'jinja2', 'matplotlib'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "loaded"


def test_the_help_shows_both_ways():
    assert "profile trace.json counters.csv --html report.html" in command.profile.__doc__
    assert "profile -- python train.py" in command.profile.__doc__
