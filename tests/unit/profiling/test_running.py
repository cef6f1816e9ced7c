"""Programs under a profiler: fake tools on PATH stand for those of both vendors, in every way that they can end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpu_utils.errors import UnknownName
from gpu_utils.profiling import running
from gpu_utils.profiling.reading import read
from gpu_utils.profiling.running import RunFailed, chosen, run

PROGRAM = "echo trained; echo warned >&2; exit {code}"

FAKES = {
    "rocprofv3": """
        while [ "$1" != "--" ]; do [ "$1" = "-d" ] && dir=$2; shift; done; shift
        "$@"; code=$?
        mkdir -p "$dir/host"; echo kernels > "$dir/host/42_kernel_trace.csv"
        echo agents > "$dir/host/42_agent_info.csv"
        exit $code""",
    "ncu": """
        while [ "$1" != "--log-file" ]; do shift; done; log=$2; shift 2
        "$@"; echo '"ID","Kernel Name"' > "$log"
        exit 0""",  # as some versions: 0 whatever the program did
    "nsys": """
        out=""; kind=$1; shift
        if [ "$kind" = export ]; then
            while [ "$1" != "-o" ]; do shift; done; cp "$3" "$2"; exit 0
        fi
        while [ "$1" != "-o" ]; do shift; done; out=$2; shift 2
        "$@"; code=$?; echo report > "$out.nsys-rep"; exit $code""",
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty folder to be in, and an empty PATH for fakes beside sh and its helpers."""
    monkeypatch.chdir(tmp_path)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "mkdir", "cp", "sleep", "cat"):
        (tools / name).symlink_to(
            next(each for each in (Path("/bin") / name, Path("/usr/bin") / name) if each.exists())
        )
    monkeypatch.setenv("PATH", str(tools))
    return tmp_path


def fake(place, name, script):
    tool = place / "tools" / name
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)


def program(code=0):
    return ["sh", "-c", PROGRAM.format(code=code)]


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        (["rocprofv3", "ncu", "nsys"], "rocprofv3"),
        (["ncu", "nsys"], "ncu"),
        (["nsys"], "nsys"),
        ([], "torch"),
    ],
)
def test_the_machine_decides_which_tool_it_is(place, there, wanted):
    for name in there:
        fake(place, name, "exit 0")
    assert chosen().name == wanted


def test_a_named_tool_must_be_known_and_there(place):
    with pytest.raises(UnknownName, match="rocprofv3"):
        chosen("rocprof3")
    fake(place, "nsys", "exit 0")
    with pytest.raises(RunFailed, match="ncu is not on PATH; install it, or use --tool nsys or --tool torch"):
        chosen("ncu")
    assert chosen("torch").name == "torch"


@pytest.mark.parametrize(
    ("tool", "files"),
    [("rocprofv3", ["42_agent_info.csv", "42_kernel_trace.csv"]), ("ncu", ["ncu.csv"]), ("nsys", ["run.sqlite"])],
)
@pytest.mark.parametrize("code", [0, 3])
def test_a_tool_runs_the_program_and_its_code_comes_through(place, capfd, tool, files, code):
    fake(place, tool, FAKES[tool])
    said = []
    done = run(program(code), say=said.append)
    assert (done.tool.name, done.code, done.problem) == (tool, code, "")
    assert [path.name for path in done.files] == files
    assert all(path.is_relative_to("profiles") for path in done.files)
    output = capfd.readouterr()
    assert (output.out, output.err) == ("trained\n", "warned\n")
    assert said[0].startswith(f"{tool} records ")
    assert str(done.folder) in said[0]
    assert said[0].endswith(done.command)
    assert "exit_code" not in done.command  # as one would type it


def test_every_run_has_a_folder_of_its_own(place, capfd):
    fake(place, "ncu", FAKES["ncu"])
    folders = {run(program()).folder for _ in range(3)}
    assert len(folders) == 3
    assert all((folder / "ncu.csv").exists() for folder in folders)


def test_the_commands_are_those_of_the_manuals(place):
    words, folder = ["python", "train.py"], Path("profiles/x")
    rocm = running.TOOLS["rocprofv3"].command(words, folder)
    assert rocm[: rocm.index("--") + 1] == [
        *("rocprofv3", "--kernel-trace", "--memory-copy-trace", "--hip-trace", "--output-format", "csv"),
        *("-d", "profiles/x", "--"),
    ]
    ncu = running.TOOLS["ncu"].command(words, folder)
    assert "dram__bytes.sum" in ncu[ncu.index("--metrics") + 1].split(",")
    assert ncu[ncu.index("--log-file") + 1] == "profiles/x/ncu.csv"
    assert all(tool.command(words, folder)[-1] == "train.py" for tool in running.TOOLS.values())
    nsys = running.TOOLS["nsys"].after(folder)
    assert nsys == ["nsys", "export", "--type", "sqlite", "-o", "profiles/x/run.sqlite", "profiles/x/run.nsys-rep"]


def test_a_tool_that_fails_before_the_program_runs_is_said_to(place, capfd):
    fake(place, "rocprofv3", 'echo "no agent found" >&2; exit 7')
    done = run(program())
    assert (done.code, done.files) == (7, ())
    assert done.problem.startswith("rocprofv3 ended with code 7 before the program did")
    assert "no agent found" in capfd.readouterr().err


def test_missing_permission_for_counters_has_its_cure(place, capfd):
    error = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
    fake(place, "ncu", FAKES["ncu"].replace("""'"ID","Kernel Name"'""", f"'{error}'"))
    done = run(program())
    assert (done.code, done.files) == (0, ())
    assert "ERR_NVGPUCTRPERM" in done.problem
    assert "--tool nsys or --tool torch" in done.problem


@pytest.mark.parametrize("tool", ["rocprofv3", "ncu", "nsys"])
def test_a_tool_that_writes_nothing_is_no_silent_success(place, capfd, tool):
    fake(
        place, tool, "exit 0" if tool != "ncu" else FAKES["ncu"].replace("""echo '"ID","Kernel Name"' > "$log\"""", ":")
    )
    done = run(program())
    assert done.files == ()
    assert done.problem.startswith(tool)


def test_a_program_that_crashes_leaves_its_signal_in_the_code(place, capfd):
    fake(place, "rocprofv3", FAKES["rocprofv3"])
    done = run(["sh", "-c", "kill -KILL $$"])
    assert done.code == 128 + signal.SIGKILL
    assert done.files


def test_a_program_that_is_not_there_is_told_by_its_code(place, capfd):
    fake(place, "nsys", FAKES["nsys"])
    assert run(["no_such_program"]).code == 127


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["./train.sh"], "records Python programs only"),
        (["torchrun", "train.py"], "records Python programs only"),
        (["python"], "needs a script"),
        (["python", "-c", "pass"], "needs a script"),
        (["python", "-m"], "needs a script"),
        (["python", "-"], "needs a script"),
    ],
)
def test_what_torch_cannot_record_is_refused_before_anything_runs(place, words, reason):
    with pytest.raises(RunFailed, match=reason):
        run(words)
    assert list((place / "profiles").iterdir()) == []


def test_flags_of_python_stay_in_front_of_the_recorder(place):
    command = running.TOOLS["torch"].command(["python3.11", "-u", "-X", "dev", "-m", "pkg.train", "-x"], Path("f"))
    found = command[command.index("sh", 3) + 1 :]
    assert found[1:] == ["-u", "-X", "dev", str(running.RECORDING), "f/trace.json", "-m", "pkg.train", "-x"]
    assert found[0] == sys.executable  # there is no python3.11 on this PATH


STUB = """
import json, os, sys
class ProfilerActivity: CPU, CUDA = "cpu", "cuda"
class profile:
    def __init__(self, activities): self.activities = activities
    def start(self):
        print("recording", *self.activities)
        os.write(2, b"USDT:profiler_start\\nW0101 no permission for counters\\n")
    def stop(self): os.write(2, b"USDT:profiler_stop\\n")
    def add_metadata(self, key, value): self.metadata = {key: value}
    def export_chrome_trace(self, path): open(path, "w").write(json.dumps({"traceEvents": [], **self.metadata}))
"""


@pytest.fixture
def torch_stub(place, monkeypatch):
    """A small package by the name torch, as the real one takes seconds: the recorder needs nothing else of it."""
    package = place / "stub" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("class cuda:\n    is_available = staticmethod(lambda: True)\n")
    (package / "profiler.py").write_text(STUB)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    return place


def recorded(place, source, *arguments):
    (place / "train.py").write_text(source)
    return run(["python", "train.py", *arguments], "torch")


def test_a_program_under_torch_sees_itself_as_main(torch_stub, capfd):
    (torch_stub / "helper.py").write_text("WORD = 'beside the script'\n")
    source = "import sys, helper, profile\nprint(__name__, sys.argv, helper.WORD, 'gpu_utils' in profile.__file__)\n"
    done = recorded(torch_stub, source, "--lr", "1")
    assert (done.code, [path.name for path in done.files]) == (0, ["trace.json"])
    assert capfd.readouterr().out == "recording cpu cuda\n__main__ ['train.py', '--lr', '1'] beside the script False\n"


def test_an_error_of_the_program_shows_its_own_lines_only_and_the_trace_is_written(torch_stub, capfd):
    done = recorded(torch_stub, "def f():\n    1 / 0\nf()\n")
    assert (done.code, [path.name for path in done.files]) == (1, ["trace.json"])
    error = capfd.readouterr().err
    assert error.splitlines()[1].strip() == 'File "train.py", line 3, in <module>' or 'train.py", line 3' in error
    assert "recording.py" not in error
    assert "ZeroDivisionError" in error


def test_what_libraries_say_comes_through_but_for_the_probes_of_torch(torch_stub, capfd):
    recorded(torch_stub, "import sys; print('own words', file=sys.stderr)")
    assert capfd.readouterr().err == "W0101 no permission for counters\nown words\n"


def test_a_script_that_is_not_there_fails_as_python_does_and_leaves_no_trace(torch_stub, capfd):
    done = run(["python", "no_such.py"], "torch")
    assert (done.code, done.files) == (2, ())
    assert "can't open file" in capfd.readouterr().err
    assert done.problem == "the program ended with code 2, and torch wrote nothing that can be read"


@pytest.mark.parametrize(("sees", "said"), [(False, True), (True, False)])
def test_the_trace_says_whether_torch_saw_a_gpu(torch_stub, capfd, sees, said):
    package = torch_stub / "stub" / "torch"
    (package / "__init__.py").write_text(f"class cuda:\n    is_available = staticmethod(lambda: {sees})\n")
    (package / "profiler.py").write_text(STUB.replace('"traceEvents": []', '"traceEvents": [' + OPERATOR + "]"))
    (remark,) = read(*recorded(torch_stub, "pass").files).remarks
    assert ("torch saw no GPU, so only operators of the CPU are in the trace" in remark) == said
    assert ("ProfilerActivity.CUDA" in remark) != said


OPERATOR = '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}'


def test_the_files_of_a_run_can_be_named_by_a_star(place, capfd):
    fake(place, "ncu", FAKES["ncu"])
    assert [path.name for path in run(program()).folder.glob("[!.]*")] == ["ncu.csv"]


def test_an_exit_code_of_the_program_comes_through_the_recorder(torch_stub, capfd):
    assert recorded(torch_stub, "import sys; sys.exit(5)").code == 5


def test_a_program_that_ends_without_python_leaves_no_trace_and_that_is_said(torch_stub, capfd):
    done = recorded(torch_stub, "import os; os._exit(0)")
    assert (done.code, done.files) == (0, ())
    assert "os._exit" in done.problem


def test_a_python_without_torch_is_named(place, capfd, monkeypatch):
    (place / "train.py").write_text("print('never')")
    (place / "torch.py").write_text("raise ImportError('no torch here')\n")
    monkeypatch.setenv("PYTHONPATH", str(place))
    done = run([sys.executable, "train.py"], "torch")
    assert (done.code, done.files) == (1, ())
    assert "has no torch" in capfd.readouterr().err


@pytest.mark.parametrize(("has", "used"), [(0, "python"), (1, sys.executable)])
def test_a_plain_python_without_torch_gives_way_to_that_of_the_course(place, has, used):
    fake(place, "python", f"exit {has}")
    command = running.TOOLS["torch"].command(["python", "train.py"], Path("f"))
    assert command[command.index("sh", 3) + 1] == used


def test_a_module_runs_as_with_python_m(torch_stub, capfd):
    (torch_stub / "job.py").write_text("import sys; print(__name__, sys.argv[1:])\n")
    assert run(["python", "-m", "job", "7"], "torch").code == 0
    assert capfd.readouterr().out.splitlines()[1] == "__main__ ['7']"


WAITING = """
import signal, sys, time
sys.path.insert(0, {root!r})
from gpu_utils.profiling.running import run
done = run(["sh", "-c", "trap 'echo stopped; exit 130' INT; echo ready; while :; do sleep 0.05; done"])
print("code", done.code, [path.name for path in done.files], done.problem)
"""


def test_ctrl_c_reaches_the_program_and_what_was_written_is_read(place):
    fake(place, "ncu", "trap : INT\n" + FAKES["ncu"])
    root = str(Path(running.__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING.format(root=root)],
        cwd=place,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert "code 130 ['ncu.csv']" in output


def test_a_second_ctrl_c_ends_tool_and_program(place):
    fake(place, "ncu", FAKES["ncu"].replace('"$@"', "trap '' INT\n\"$@\""))  # neither hears the first
    root = str(Path(running.__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING.format(root=root).replace("trap 'echo stopped; exit 130' INT; ", "")],
        cwd=place,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for _ in range(2):
        time.sleep(0.3)
        os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=15)  # the program holds the pipe while it lives
    assert "code 130 [] ncu was interrupted" in output
