"""Runs a program under the profiler that the machine has: its own output, exit code and Ctrl-C are as without one.

Every run gets a folder of its own. The program runs inside of a shell that notes its exit code, since tools differ in
what they return.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import psutil

from gpu_utils.errors import UnknownName, W2WError
from gpu_utils.profiling.needs import NEEDS

FOLDER = Path("profiles")
EXIT_CODE = ".exit_code"
"""A name that * does not match, so that all files of a folder can be read."""
RECORDING = Path(__file__).with_name("recording.py")

_SHELL = 'trap : INT; "$@"; code=$?; echo $code > "$W2W_EXIT_CODE"; exit $code'
_FLAG = re.compile(r"-[bBdEiIOPqRsSuvx]+$")
_NO_PERMISSION = "ERR_NVGPUCTRPERM"
_LAST_WAIT_SECONDS = 20


class RunFailed(W2WError):
    """A profiler that could not do its work; what the program did is said beside it."""


@dataclass(frozen=True)
class Tool:
    """A profiler.

    program  its name on PATH; "" for torch.profiler, which every machine with the program's torch has
    records  what it records, a few words
    command  (program's words, folder) -> the words to run
    after    commands that make readable files of what it wrote: folder -> words; None where none is needed
    files    patterns of the files to read, in the folder and below
    """

    name: str
    program: str
    records: str
    command: Callable[[Sequence[str], Path], list[str]]
    after: Callable[[Path], list[str]] | None
    files: tuple[str, ...]


def _shielded(words: Sequence[str]) -> list[str]:
    return ["sh", "-c", _SHELL, "sh", *words]


def _typed(command: Sequence[str]) -> str:
    """The command as one would type it: without the shell that notes the exit code."""
    at = command.index(_SHELL)
    return shlex.join([*command[: at - 2], *command[at + 2 :]])


def _rocprofv3(words: Sequence[str], folder: Path) -> list[str]:
    traces = ["--kernel-trace", "--memory-copy-trace", "--hip-trace", "--output-format", "csv"]
    return ["rocprofv3", *traces, "-d", str(folder), "--", *_shielded(words)]


def _ncu(words: Sequence[str], folder: Path) -> list[str]:
    metrics = dict.fromkeys(metric for need in NEEDS.values() for metric in need.nvidia)
    wanted = ["--csv", "--page", "raw", "--set", "full", "--metrics", ",".join(metrics)]
    return ["ncu", *wanted, "--target-processes", "all", "--log-file", str(folder / "ncu.csv"), *_shielded(words)]


def _nsys(words: Sequence[str], folder: Path) -> list[str]:
    return ["nsys", "profile", "--trace=cuda,nvtx", "-o", str(folder / "run"), *_shielded(words)]


def _nsys_export(folder: Path) -> list[str]:
    return ["nsys", "export", "--type", "sqlite", "-o", str(folder / "run.sqlite"), str(folder / "run.nsys-rep")]


def _torch(words: Sequence[str], folder: Path) -> list[str]:
    """python [flags] program ... -> the same Python with `recording` between."""
    python, *rest = words
    if not re.match(r"(python|pypy)[\d.]*$", Path(python).name):
        raise RunFailed(
            f"torch.profiler records Python programs only, and {python} is none; write the program as "
            "python train.py, or name a tool with --tool"
        )
    flags: list[str] = []
    while rest and (_FLAG.match(rest[0]) or (rest[0] in ("-W", "-X") and len(rest) > 1)):
        flags += [rest.pop(0) for _ in range(2 if rest[0] in ("-W", "-X") else 1)]
    if not rest or rest[0] == "-" or (rest[0].startswith("-") and rest[0] != "-m") or rest == ["-m"]:
        raise RunFailed(
            f"torch.profiler needs a script or -m module behind {python}, not {shlex.join(rest) or 'nothing'}; "
            "put the program into a file"
        )
    return _shielded([_with_torch(python), *flags, str(RECORDING), str(folder / "trace.json"), *rest])


def _with_torch(python: str) -> str:
    """The Python to run: that of the course for a plain "python" that is not there, or has no torch."""
    if os.sep in python:
        return python
    asked = [python, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"]
    has = shutil.which(python) and subprocess.run(asked, capture_output=True, check=False).returncode == 0
    return python if has else sys.executable


TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            "rocprofv3",
            "rocprofv3",
            "a timeline of kernels, copies and calls of HIP",
            _rocprofv3,
            None,
            ("*kernel_trace.csv", "*memory_copy_trace.csv", "*hip_api_trace.csv", "*agent_info.csv"),
        ),
        Tool("ncu", "ncu", "counters of every kernel, which it runs again and again", _ncu, None, ("ncu.csv",)),
        Tool("nsys", "nsys", "a timeline of kernels, copies and calls of CUDA", _nsys, _nsys_export, ("run.sqlite",)),
        Tool("torch", "", "a timeline of kernels, copies and operators of torch", _torch, None, ("trace.json",)),
    )
}
"""In the order in which they are looked for."""


@dataclass(frozen=True)
class Run:
    """What happened.

    tool, command  what ran, as one would type it; folder: where its files are
    code           the program's exit code (128 + signal where one ended it); the tool's where the program never ended
    files          to be read; problem: one sentence where there is none
    """

    tool: Tool
    command: str
    folder: Path
    code: int
    files: tuple[Path, ...]
    problem: str = ""


def chosen(name: str = "") -> Tool:
    """The named tool, or the first that is on PATH; torch.profiler where none is.

    Errors: UnknownName; RunFailed for a named tool that is not installed.
    """
    if not name:
        return next(tool for tool in TOOLS.values() if not tool.program or shutil.which(tool.program))
    if name not in TOOLS:
        raise UnknownName("profiler", name, TOOLS)
    tool = TOOLS[name]
    if tool.program and shutil.which(tool.program) is None:
        there = [each.name for each in TOOLS.values() if not each.program or shutil.which(each.program)]
        raise RunFailed(f"{name} is not on PATH; install it, or use --tool {' or --tool '.join(there)}")
    return tool


def run(words: Sequence[str], name: str = "", say: Callable[[str], None] = lambda line: None) -> Run:
    """Run a program, its words as typed, under a profiler; its input and output are this process's.

    name  of TOOLS, or "" for what the machine has
    say   is told what is about to run, and where the files go

    Errors: UnknownName, RunFailed before anything has run.
    """
    tool = chosen(name)
    folder = _folder(words)
    try:
        command = tool.command(words, folder)
    except RunFailed:
        folder.rmdir()
        raise
    typed = _typed(command)
    say(f"{tool.name} records {tool.records}, into {folder}: {typed}")
    tool_code, interrupted = _wait(command, folder / EXIT_CODE)
    code = _program_code(folder / EXIT_CODE)
    if code is None:
        code = 130 if interrupted else tool_code or 1
        ended = "was interrupted" if interrupted else f"ended with code {tool_code} before the program did"
    else:
        ended = ""
    if tool.after is not None and not _found(tool, folder):
        _wait(tool.after(folder), folder / EXIT_CODE)
    files = _found(tool, folder)
    problem = _problem(tool, folder, files, ended, code)
    return Run(tool, typed, folder, code, () if problem else files, problem)


def _folder(words: Sequence[str]) -> Path:
    """A new folder, named by the time and the program."""
    scripts = [word for word in words if word.endswith(".py")] or words[:1]
    program = re.sub(r"\W+", "_", Path(scripts[0]).stem)[:40]
    stamp = f"{datetime.now():%Y%m%d-%H%M%S}-{program}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    for count in range(1, 1000):
        folder = FOLDER / (stamp if count == 1 else f"{stamp}-{count}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise RunFailed(f"{FOLDER / stamp} and 998 others are taken; move them away")


def _wait(command: Sequence[str], exit_code: Path) -> tuple[int, bool]:
    """(exit code of the tool, whether Ctrl-C was pressed). Ctrl-C reaches the tool as it reaches us: it may finish."""
    environment = {**os.environ, "W2W_EXIT_CODE": str(exit_code.absolute())}
    try:
        process = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise RunFailed(f"{command[0]} cannot be started: {error.strerror}") from None
    interrupted = False
    while True:
        try:
            return process.wait(_LAST_WAIT_SECONDS if interrupted else None), interrupted
        except KeyboardInterrupt:
            if interrupted:  # the second time it is meant
                _kill(process)
            interrupted = True
        except subprocess.TimeoutExpired:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The tool and all that it started: a program must not go on behind a tool that is gone."""
    with contextlib.suppress(psutil.NoSuchProcess):
        started = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for child in started:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()


def _program_code(noted: Path) -> int | None:
    try:
        return int(noted.read_text())
    except (FileNotFoundError, ValueError):
        return None


def _found(tool: Tool, folder: Path) -> tuple[Path, ...]:
    return tuple(sorted({path for pattern in tool.files for path in folder.rglob(pattern) if path.stat().st_size}))


def _problem(tool: Tool, folder: Path, files: Sequence[Path], ended: str, code: int) -> str:
    """Why there is nothing to read, one sentence; "" where there is."""
    said = "".join(path.read_text(errors="replace")[:100_000] for path in files) if tool.name == "ncu" else ""
    if _NO_PERMISSION in said:
        return (
            "ncu may not read the GPU's counters here (ERR_NVGPUCTRPERM): let an administrator allow it "
            "(docs/profiling.md), or record a timeline, which needs no permission: --tool nsys or --tool torch"
        )
    if files:
        return ""
    if ended:
        return f"{tool.name} {ended}, and wrote nothing that can be read; what it said is above"
    if code:
        return f"the program ended with code {code}, and {tool.name} wrote nothing that can be read"
    hints = {
        "rocprofv3": "did the program use the GPU? rocprofv3 --doctor says what is missing",
        "ncu": "did the program launch a kernel? what ncu said is above",
        "nsys": f"there should be run.nsys-rep in {folder}; what nsys said is above",
        "torch": "did the program end by os._exit or a signal? then nothing can write the trace",
    }
    return f"{tool.name} wrote no file that can be read; {hints[tool.name]}"
