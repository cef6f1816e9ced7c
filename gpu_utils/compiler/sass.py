"""SASS, the machine code of NVIDIA's chips: what ptxas makes of PTX, read back by NVIDIA's disassembler."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from gpu_utils.chips.targets import TARGETS
from gpu_utils.compiler.cubin import nvidia_tool
from gpu_utils.compiler.reading import HasAssembly
from gpu_utils.compiler.triton import ptxas
from gpu_utils.errors import BadArgument, CompileFailed, CompilerMissing

_LINE = re.compile(r"^(\.L_\w+):|^\s+/\*[0-9a-f]+\*/\s+(.+?)\s*;", re.MULTILINE)
_ARCHITECTURE = re.compile(r"^\.target (\w+)", re.MULTILINE)


def sass(compiled: HasAssembly, first: str = "", last: str = "") -> str:
    """The SASS of a kernel for NVIDIA: its PTX, assembled for its target by ptxas, as nvdisasm prints it.

    compiled     what compile_for or compile_cpp returned for an NVIDIA target, a stored listing too
    first, last  mnemonics: from the first line with the one to the next with the other; "": from the start, to the end

    Instructions of one mnemonic in a row are one line: the first, and how many follow. A label stands where it is
    jumped to. Nothing is executed.
    Raises BadArgument for another vendor's target and for a mnemonic that is not there, CompilerMissing where Triton
    came without the two tools, CompileFailed where one of them refuses the code.
    """
    if TARGETS[compiled.target].vendor != "nvidia":
        raise BadArgument(f"SASS is NVIDIA's machine code, and this kernel is for {compiled.target}; print its `asm`")
    lines = _LINE.findall(re.sub(r"`\((\.L_\w+)\)", r"\1", _disassembled(compiled)))
    wanted = {word for _, text in lines for word in text.split()}
    shown = [(label, text) for label, text in lines if text or label in wanted]
    return "\n".join(_folded(_between(shown, first, last)))


def _disassembled(compiled: HasAssembly) -> str:
    architecture = _ARCHITECTURE.search(compiled.asm)
    with tempfile.TemporaryDirectory(prefix="w2w-sass-") as folder:
        ptx, cubin = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        ptx.write_text(compiled.asm)
        gpu = f"--gpu-name={architecture[1] if architecture else compiled.target}"
        try:
            nvidia_tool(ptxas(TARGETS[compiled.target]), gpu, str(ptx), "-o", str(cubin))
            return nvidia_tool(_nvdisasm(), "-c", str(cubin))
        except subprocess.CalledProcessError as problem:
            said = (problem.stderr or problem.stdout).strip().partition("\n")[0]
            raise CompileFailed(f"{Path(problem.cmd[0]).name} refused the code for {compiled.target}: {said}") from None
        except (RuntimeError, OSError):
            raise CompilerMissing(
                "reading SASS needs ptxas and nvdisasm, which come with Triton's usual wheel and are not in this one; "
                "install the wheel `triton` of PyPI, or read the PTX"
            ) from None


def _nvdisasm() -> str:
    from triton import knobs

    return knobs.nvidia.nvdisasm.path


def _mnemonic(line: tuple[str, str]) -> str:
    """
    >>> _mnemonic(("", "@!P0 BRA .L_x_1")), _mnemonic(("", "FFMA R0, R0, R5, 1")), _mnemonic((".L_x_1", ""))
    ('BRA', 'FFMA', '.L_x_1')
    """
    label, text = line
    return label or re.sub(r"^@!?\w+\s+", "", text).split()[0]


def _between(lines: list[tuple[str, str]], first: str, last: str) -> list[tuple[str, str]]:
    names = [_mnemonic(line) for line in lines]
    start = _at(first, names, 0)
    stop = _at(last, names, start) if last else len(lines) - 1
    return lines[start : stop + 1]


def _at(name: str, names: list[str], start: int) -> int:
    if not name or name in names[start:]:
        return names.index(name, start) if name else start
    there = sorted({other for other in names[start:] if other[0] != "."})
    raise BadArgument(f"no {name} in this code; there are {', '.join(there)}")


def _folded(lines: list[tuple[str, str]]) -> Iterator[str]:
    for name, alike in groupby(lines, key=_mnemonic):
        (label, text), *others = alike
        one = f"{label}:" if label else f"    {text}"
        yield f"{one}   ... and {len(others)} more {name}" if others else one
