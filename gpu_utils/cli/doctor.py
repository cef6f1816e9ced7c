"""The command doctor: what this machine has, what that allows, and how to get what is missing."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from gpu_utils.command import script, w2w

ELSEWHERE = "Triton has no build for it: use a Linux container, or a remote Linux machine over ssh"
FREE_GIB = 2
COMPILED_FOR = ("sm_90", "gfx942")


class Finding(NamedTuple):
    """One row: what was looked for, what was found, what that allows or what to do, and whether it is enough.

    enough is None for what the course can do without.
    """

    what: str
    found: str
    means: str
    enough: bool | None = True


def doctor(
    node: Annotated[
        Path | None, typer.Option(help="A YAML file that describes a node: say what is wrong with it instead.")
    ] = None,
) -> None:
    """Say what this machine has and what that allows; exits non-zero when something needed is missing.

    With --node, look at a described node of GPUs instead of this machine: which physical GPUs each process sees, and
    which settings fail or cost speed, each with its source; exits non-zero when something is wrong.

    Example: ./w2w doctor

    Example: ./w2w doctor --node work/03_porting_to_rocm/nodes/mi300x_weekend.yaml

    A description has gpus, processes, and chip (MI300X) or target (gfx1103). It may have environment (variables of all
    processes), each_process (variables in which {rank} stands for the local rank), use (physical numbers),
    launcher (torchrun, ray, other), torch (2.13.0+rocm7.2), built_for (targets), and, each true or false,
    overlap (it computes while it communicates), tuned_gemms (TunableOp's results are there), tuning (this run makes
    them), in_script (the script sets the variables itself).
    """
    if node is not None:
        from gpu_utils.cli.doctor_node import read, report

        lines, found = report(read(node))
        typer.echo("\n".join(lines))
        raise typer.Exit(1 if any(one.level == "wrong" for one in found) else 0)
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table("", "what", title="This machine")
    for heading in ("found", "what that allows, or what to do"):
        table.add_column(heading, overflow="fold")
    missing = 0
    with console.status("looking ..."):
        for finding in examine():
            mark = {True: "ok", False: "MISSING", None: "without"}[finding.enough]
            table.add_row(mark, *finding[:3])
            missing += finding.enough is False
    console.print(table)
    if missing:
        typer.echo(f"{missing} needed {'thing is' if missing == 1 else 'things are'} missing.")
    raise typer.Exit(1 if missing else 0)


def examine() -> Iterator[Finding]:
    """Every finding, in the order of the table."""
    for look in (system, python, pytorch, triton, device):
        yield look()
    for target in COMPILED_FOR:
        yield compiling(target)
    for look in (cpp, tiles, browser, sandbox, data, disk):
        yield look()


def system() -> Finding:
    """The operating system and processor."""
    found = f"{platform.system()} {platform.release()}, {platform.machine()}"
    if sys.platform != "linux":
        return Finding("system", found, ELSEWHERE, False)
    if platform.machine() != "x86_64":
        return Finding("system", found, "the course is tested on x86-64 only", None)
    return Finding("system", found, "everything runs here")


def python() -> Finding:
    """The Python that runs this program."""
    found = f"{platform.python_version()} in {sys.prefix}"
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        return Finding("Python", found, "the course needs 3.11, 3.12 or 3.13", False)
    return Finding("Python", found, "supported")


def pytorch() -> Finding:
    """The installed build of PyTorch."""
    try:
        import torch
    except ImportError as error:
        return Finding("PyTorch", str(error), f"run {script()}, which installs it", False)
    if torch.version.hip:
        return Finding("PyTorch", torch.__version__, f"built for AMD, ROCm {torch.version.hip}")
    if torch.version.cuda:
        return Finding("PyTorch", torch.__version__, f"built for NVIDIA, CUDA {torch.version.cuda}")
    means = f"built for the CPU; W2W_TORCH=cuda {script()} installs NVIDIA's build, W2W_TORCH=rocm AMD's"
    return Finding("PyTorch", torch.__version__, means)


def triton() -> Finding:
    """The installed Triton; on AMD it is the one that PyTorch brings."""
    try:
        import triton
    except ImportError as error:
        return Finding("Triton", str(error), f"run {script()}, which installs it", False)
    return Finding("Triton", triton.__version__, "kernels can be written")


def device() -> Finding:
    """The GPU that torch sees, or the CPU."""
    from gpu_utils.chips import probe
    from gpu_utils.cli.bootstrap import DRIVERS

    found = probe()
    if found.vendor != "cpu":
        means = "kernels and training run on it; every check also compiles for the other vendor"
        return Finding("device", str(found), means)
    builds = [build for build, paths in DRIVERS.items() if any(path.exists() for path in paths)]
    if builds:
        build, vendor = builds[0], {"cuda": "NVIDIA", "rocm": "AMD"}[builds[0]]
        means = f"an {vendor} driver is loaded, but this PyTorch cannot use it; try W2W_TORCH={build} {script()}"
        return Finding("device", str(found), found.problem or means, None)
    means = "no GPU: kernels run on virtual GPUs of both vendors, and compile for more targets"
    return Finding("device", str(found), means, None)


def compiling(target: str) -> Finding:
    """Whether a kernel can be compiled to machine code for this target."""
    from gpu_utils.errors import CompileFailed

    what = f"compiler, {target}"
    try:
        from gpu_utils.chips.targets import TARGETS
        from gpu_utils.cli.probe_kernel import copy_kernel
        from gpu_utils.compiler import compile_for

        compiled = compile_for(copy_kernel, target, signature={"x_ptr": "*fp32", "y_ptr": "*fp32"}, BLOCK=128)
    except (CompileFailed, ImportError) as error:
        return Finding(what, str(error), f"install Triton again: remove .venv and run {script()}", False)
    vendor = TARGETS[target].vendor.upper()
    return Finding(what, f"{len(compiled.binary)} bytes of machine code", f"kernels compile for {vendor} with no GPU")


def cpp() -> Finding:
    """clang for kernels in C++, from the extra hip."""
    import importlib.metadata

    from gpu_utils.compiler.clang import installed

    if not installed():
        extra = f"W2W_EXTRAS=hip {script()} study installs it (about 411 MB)"
        means = f"C++ of your own cannot be compiled or graded; {extra}"
        return Finding("compiler, C++", "the wheel ziglang is not installed", means, None)
    found = f"clang from ziglang {importlib.metadata.version('ziglang')}"
    return Finding("compiler, C++", found, "C++ kernels compile for both vendors with no GPU")


def tiles() -> Finding:
    """TileLang, from the extra tilelang."""
    import importlib.metadata

    from gpu_utils.compiler.tilelang import installed

    if not installed():
        extra = f"W2W_EXTRAS=hip,nvrtc,tilelang {script()} study installs it (about 83 MB beside the compilers)"
        means = f"unit 14 shows stored sources, and exercises in TileLang are not graded; {extra}"
        return Finding("compiler, tiles", "TileLang is not installed", means, None)
    found = f"TileLang {importlib.metadata.version('tilelang')}"
    return Finding("compiler, tiles", found, "tile programs are lowered for NVIDIA, AMD and Ascend with no hardware")


def browser() -> Finding:
    """A Chromium for the tests that open a page."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return Finding("Chromium", path, f"{w2w('test')} opens a lab in it")
    return Finding("Chromium", "not on PATH", "only tests need it; on Debian: apt install chromium", None)


def sandbox() -> Finding:
    """A bubblewrap that works here."""
    path = shutil.which("bwrap")
    if path is None:
        means = "only grading the answers of others needs it; on Debian: apt install bubblewrap"
        return Finding("bubblewrap", "not on PATH", means, None)
    command = [path, "--unshare-all", "--ro-bind", "/", "/", "true"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    if tried.returncode:
        means = "this system forbids sandboxes; only grading the answers of others needs one"
        return Finding("bubblewrap", tried.stderr.strip(), means, None)
    return Finding("bubblewrap", path, "answers of others can be run in a sandbox")


def data() -> Finding:
    """The folder that holds progress and run records."""
    from gpu_utils.folders import data_folder

    folder = data_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe_file:
            probe_file.write(b"x")
    except OSError as error:
        means = "progress is not kept; give another folder with W2W_DATA=/some/folder"
        return Finding("data folder", f"{folder}: {error.strerror}", means, False)
    return Finding("data folder", str(folder), "progress and run records are kept there")


def disk() -> Finding:
    """Free space where the course lies."""
    free = shutil.disk_usage(os.getcwd()).free / 2**30
    found = f"{free:.0f} GiB free"
    if free < FREE_GIB:
        return Finding("disk", found, f"make room: {FREE_GIB} GiB are needed for caches and checkpoints", False)
    return Finding("disk", found, "enough for caches and checkpoints")
