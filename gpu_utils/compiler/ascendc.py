"""AscendC compiled for this machine by the course's clang: a shared library that the child process loads."""

from __future__ import annotations

import hashlib
import importlib.util
import platform
import re
import subprocess
import tempfile
from pathlib import Path

from gpu_utils.chips.npus import NPUS
from gpu_utils.command import script
from gpu_utils.compiler import clang
from gpu_utils.compiler.ascendc_text import Prepared
from gpu_utils.errors import CompileFailed, CompilerMissing
from gpu_utils.folders import cache_folder

CHIP = NPUS["ascend950"]
_PROCESSOR = {"x86_64": ("-mcpu=x86_64_v3",), "aarch64": ()}
"""What the library may use of a processor: what it converts 16-bit floats with, and nothing that a newer one adds."""
_OPTIONS = (
    *("-O1", "-std=c++20", "-fPIC", "-fno-exceptions", "-fno-rtti", "-fwrapv", "-fno-strict-aliasing"),
    *("-fno-delete-null-pointer-checks", "-fno-finite-loops", "-ffp-contract=off", "-w"),
    # every load and store of the kernel's own code calls the machine, also one that a store to the same place follows
    *("-fsanitize=thread", "-mllvm", "-tsan-instrument-func-entry-exit=0"),
    *("-mllvm", "-tsan-instrument-read-before-write=1"),
    *(f"-DW2W_{name.upper()}={getattr(CHIP, name)}" for name in ("l1", "l0a", "l0b", "l0c", "ub")),
)
_ERROR = re.compile(r"^ascendc:(\d+):\d+: error: (.*)", re.MULTILINE)
_ANY_ERROR = re.compile(r": error: (.*)")
_UNKNOWN = re.compile(
    r"undeclared identifier '(\w+)'|unknown type name '(\w+)'|no matching function for call to '(\w+)'"
)


def build(prepared: Prepared, include: Path) -> Path:
    """The library of a prepared source, from the cache folder where it was built before.

    include  the folder of the headers that give what AscendC names

    Errors: CompilerMissing without clang, or without the templates of TileLang that the source includes; CompileFailed
    with the line and what is unknown there.
    """
    if platform.system() != "Linux" or platform.machine() not in _PROCESSOR:
        raise CompilerMissing(
            f"the virtual AI core runs on Linux ({' or '.join(_PROCESSOR)}), and this is {platform.system()} on "
            f"{platform.machine()}; try the course's container"
        )
    wheel = clang.wheel_folder()
    if wheel is None:
        raise CompilerMissing(
            "a virtual AI core compiles AscendC with clang from the wheel ziglang, which is not installed; run "
            f"`W2W_EXTRAS=hip,nvrtc,tilelang {script()} study`, or `pip install warp-to-wavefront[hip]` (about 411 MB)"
        )
    flags = [*_OPTIONS, *_PROCESSOR[platform.machine()], f"-I{include}"]
    if prepared.collectives:
        flags.append("-DW2W_COLLECTIVES")
    if prepared.templates:
        flags.append(f"-I{_templates(prepared.templates)}")
    place = cache_folder() / "npu" / f"{_fingerprint(prepared.text, flags, include)}.so"
    if place.exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    zig = str(wheel / "zig")
    with tempfile.TemporaryDirectory(prefix="w2w-npu-") as folder:
        text, made, library = (Path(folder) / name for name in ("kernel.cc", "kernel.o", "kernel.so"))
        text.write_text(prepared.text)
        done = subprocess.run([zig, "c++", "-c", *flags, str(text), "-o", str(made)], capture_output=True, text=True)
        if done.returncode:
            raise CompileFailed(_said(done.stderr))
        subprocess.run([zig, "ld.lld", "-shared", str(made), "-o", str(library)], check=True, capture_output=True)
        temporary = place.with_suffix(f".{Path(folder).name}")
        temporary.write_bytes(library.read_bytes())
        temporary.replace(place)
    return place


def _templates(names: tuple[str, ...]) -> Path:
    """The folder that TileLang's own headers are included from."""
    found = importlib.util.find_spec("tilelang")
    if found is None or not found.submodule_search_locations:
        raise CompilerMissing(
            f"this source includes {names[0]} of TileLang, which is not installed; run "
            f"`W2W_EXTRAS=hip,nvrtc,tilelang {script()} study`, or `pip install warp-to-wavefront[tilelang]`"
        )
    return Path(next(iter(found.submodule_search_locations))) / "src"


def _fingerprint(text: str, flags: list[str], include: Path) -> str:
    headers = b"".join(file.read_bytes() for file in sorted(include.rglob("*.h")))
    return hashlib.sha256("\0".join([text, *flags, platform.machine()]).encode() + headers).hexdigest()[:24]


def _said(log: str) -> str:
    """One sentence from the compiler's log: the first error, in the kernel's own text where there is one.

    >>> _said("ascendc:7:3: error: use of undeclared identifier 'asc_sort'")
    'AscendC, line 7: the virtual AI core does not know asc_sort; docs/virtual-npu.md lists what it does'
    """
    own, anywhere = _ERROR.search(log), _ANY_ERROR.search(log)
    said = own[2] if own else anywhere[1] if anywhere else log.strip()[:300]
    where = f"AscendC, line {own[1]}" if own else "AscendC"
    names = [
        name for found in _UNKNOWN.findall(said) for name in found if name.startswith(("asc_", "ascend_", "vector_"))
    ]
    if names:
        return f"{where}: the virtual AI core does not know {names[0]}; docs/virtual-npu.md lists what it does"
    return f"{where}: {said}"
