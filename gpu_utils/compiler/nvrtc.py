"""CUDA C++ compiled by NVIDIA's own compiler with NVIDIA's headers, from wheels: no toolkit, no driver, no GPU.

NVRTC is a library (wheel nvidia-cuda-nvrtc); the headers are those of nvidia-cuda-runtime, nvidia-cuda-crt and
nvidia-cuda-cccl, all of CUDA 13.0: the extra `nvrtc`. Source of names, codes and options: NVRTC's manual
(docs.nvidia.com/cuda/nvrtc) and nvrtc.h of the wheel.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpu_utils.chips.targets import TARGETS, Target
from gpu_utils.command import script
from gpu_utils.compiler.cpp_cache import keep, kept
from gpu_utils.compiler.cpp_module import CppModule, assembled, of_ptx, parameters_of_ptx, source_name
from gpu_utils.errors import BadArgument, CompileFailed, CompilerMissing
from gpu_utils.folders import cache_folder

SOURCE_NAME = "/w2w/kernel.cu"
"""The file that a source is in its listing. The folder does not exist: NVRTC looks there for `#include "..."` first."""

PARTS = {
    "nvidia-cuda-nvrtc": "lib/libnvrtc-builtins.so.*",
    "nvidia-cuda-runtime": "include/cooperative_groups.h",
    "nvidia-cuda-crt": "include/crt/mma.h",
    "nvidia-cuda-cccl": "include/cccl/cuda/std/version",
}
"""Wheel -> a file of its own, below the folder that all of them share (`nvidia/cu13`)."""

_C = ("float", "limits", "math", "stddef", "stdint", "stdlib", "string")
# fmt: off
_CPP = (
    "algorithm", "array", "atomic", "bit", "chrono", "complex", "concepts", "functional", "initializer_list",
    "iterator", "limits", "new", "numeric", "optional", "ratio", "span", "tuple", "type_traits", "utility", "variant",
)
# fmt: on
_HOMES = {f"{name}.h": f"c{name}" for name in _C} | {f"c{name}": f"c{name}" for name in _C} | {n: n for n in _CPP}
_TYPES = "w2w_types.h"
_WORDS = {"char": 8, "short": 16, "int": 32, "long long": 64}
HEADERS: Mapping[str, str] = {
    **{
        name: f"#pragma once\n#include <cuda/std/{home}>\nnamespace std {{ using namespace cuda::std; }}\n"
        for name, home in _HOMES.items()
    },
    **dict.fromkeys(("assert.h", "cassert", "stdio.h", "cstdio"), ""),  # assert and printf are NVRTC's own
    _TYPES: "".join(
        f"typedef signed {word} int{bits}_t; typedef unsigned {word} uint{bits}_t;\n" for word, bits in _WORDS.items()
    )
    + "typedef unsigned short ushort; typedef unsigned int uint; typedef unsigned long ulong;\n"
    + "#define NAN __int_as_float(0x7fc00000)\n#define INFINITY __int_as_float(0x7f800000)\n",
}
"""Headers by their text. NVRTC has none of the standard library; the wheel cccl has them for device code, as
cuda/std/... w2w_types.h comes before every source: names of types and of math.h's numbers, which nvcc's own headers
bring along."""


def compile_cpp(
    source: str,
    target: str,
    *,
    include: Sequence[str | os.PathLike[str]] = (),
    defines: Sequence[str] = (),
    options: Sequence[str] = (),
    names: Sequence[str] = (),
) -> CppModule:
    """`gpu_utils.compiler.clang.compile_cpp` with compiler="nvrtc", where the arguments and errors are told."""
    limits = TARGETS[target]
    if limits.vendor != "nvidia":
        raise BadArgument(f"NVRTC compiles for NVIDIA's targets, and {target} is AMD's; leave compiler= out for clang")
    found = _installed()
    flags = [*_flags(limits, found, options), *(f"-D{name}" for name in defines)]
    places = [*map(Path, include), found / "include", found / "include" / "cccl"]
    if missing := next((place for place in places if not place.is_dir()), None):
        raise BadArgument(f"include names the folder {missing}, which is not there")
    flags += [f"-I{place.absolute()}" for place in places]
    place = cache_folder() / "nvrtc" / f"{_fingerprint(source, target, flags, names, places)}.json"
    if module := kept(place):
        return module
    built = _build(_library(found), source, flags, names, limits)
    module = _module(built, source, target)
    keep(place, module)
    return module


def missing() -> list[str]:
    """The wheels of the extra that are not installed; none when NVRTC can be used."""
    folders = _folders()
    return [wheel for wheel, file in PARTS.items() if not any(next(f.glob(file), None) for f in folders)]


def _folders() -> list[Path]:
    """Folders of CUDA below the name `nvidia`, which many wheels share."""
    spec = importlib.util.find_spec("nvidia")
    places = map(Path, spec.submodule_search_locations or ()) if spec else ()
    return [folder for place in places for folder in sorted(place.glob("cu[0-9]*"), reverse=True)]


def _installed() -> Path:
    if absent := missing():
        raise CompilerMissing(
            f'compiler="nvrtc" needs NVIDIA\'s compiler and headers from wheels, and {", ".join(absent)} '
            f"{'is' if len(absent) == 1 else 'are'} not installed; run `W2W_EXTRAS=nvrtc {script()} study`, or "
            "`pip install warp-to-wavefront[nvrtc]` (about 96 MB)"
        )
    return next(f for f in _folders() if all(next(f.glob(file), None) for file in PARTS.values()))


def _flags(limits: Target, found: Path, options: Sequence[str]) -> list[str]:
    # With the letter a: wgmma, setmaxnreg and tcgen05 exist only there. Triton compiles for the same.
    letter = "a" if limits.capability >= 90 else ""
    standard = [] if any(option.lstrip("-").startswith("std") for option in options) else ["-std=c++17"]
    return [
        f"-arch={limits.name}{letter}",
        f"--pre-include={_TYPES}",
        *standard,
        "-lineinfo",
        "--ptxas-options=-v",
        *options,
    ]


def _fingerprint(source: str, target: str, flags: Sequence[str], names: Sequence[str], places: Sequence[Path]) -> str:
    """Of all that decides what comes out: headers by their names, sizes and times, our own code by its text."""
    code = [path.read_text() for path in sorted(Path(__file__).parent.glob("[cn]*.py"))]
    parts = [source, target, *flags, *names, *(_state(place) for place in places), *code]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _state(folder: Path) -> str:
    """Changes when a file below the folder does."""
    seen = hashlib.sha256()
    for place, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            facts = os.stat(os.path.join(place, name))
            seen.update(f"{place}/{name} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return seen.hexdigest()


# NVRTC


@dataclass(frozen=True)
class _Built:
    ptx: str
    log: str
    symbols: dict[str, str]  # of the name expressions


@cache
def _library(found: Path) -> ctypes.CDLL:
    # NVRTC asks for its builtins by their bare name: loaded first, they are found without a search path
    ctypes.CDLL(str(next(found.glob(PARTS["nvidia-cuda-nvrtc"]))))
    library = ctypes.CDLL(str(next(found.glob("lib/libnvrtc.so.*"))))
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


def _build(library: ctypes.CDLL, source: str, flags: list[str], names: Sequence[str], limits: Target) -> _Built:
    program = ctypes.c_void_p()
    texts, titles = _strings(HEADERS.values()), _strings(HEADERS)
    name = SOURCE_NAME.encode()
    _check(
        library,
        library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name, len(HEADERS), texts, titles),
        limits,
    )
    try:
        for each in names:
            _check(library, library.nvrtcAddNameExpression(program, each.encode()), limits)
        code = library.nvrtcCompileProgram(program, len(flags), _strings(flags))
        log = _text(library, program, "ProgramLog")
        if code:
            said = log or library.nvrtcGetErrorString(code).decode()
            raise CompileFailed(f"C++ for {limits.name}: {first_error(said, source)}")
        return _Built(_text(library, program, "PTX"), log, {each: _lowered(library, program, each) for each in names})
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _strings(texts) -> ctypes.Array[ctypes.c_char_p]:
    encoded = [text.encode() for text in texts]
    return (ctypes.c_char_p * len(encoded))(*encoded)


def _check(library: ctypes.CDLL, code: int, limits: Target) -> None:
    if code:
        raise CompileFailed(f"C++ for {limits.name}: NVRTC says {library.nvrtcGetErrorString(code).decode()}")


def _text(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> str:
    size = ctypes.c_size_t()
    getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{what}")(program, text)
    return text.raw.replace(b"\0", b"").decode(errors="replace")  # the log has one between its two compilers


def _lowered(library: ctypes.CDLL, program: ctypes.c_void_p, expression: str) -> str:
    symbol = ctypes.c_char_p()
    library.nvrtcGetLoweredName(program, expression.encode(), ctypes.byref(symbol))
    return (symbol.value or b"").decode()


# What it said

_ERROR = re.compile(r"^(?:(?P<file>[^\n(]+)\((?P<line>\d+)\): )?(?:catastrophic |internal )?error(?: #[\w-]+)?: (.*)")
_PTXAS = re.compile(r"^ptxas (?:(?P<place>\S.*?); )?(?:error|fatal)\s*: (.*)")
_HOST = "a source holds kernels and device functions only; launch the kernel from Python: gpu.load(...).launch(...)"
_ADVICE = {
    "cannot open source file": "{}; there are CUDA's headers, those of the standard library that device code "
    "can use, and what include= names",
    "explicitly marked as a __host__ function": "{} (" + _HOST + ")",
    "a host function call": "{} (" + _HOST + ")",
    "cannot be configured": _HOST,
}


def first_error(log: str, source: str) -> str:
    """NVRTC's first error, with the line of the learner's source that led to it."""
    lines = log.splitlines()
    for at, line in enumerate(lines):
        if found := _ERROR.match(line):
            message = next((text for part, text in _ADVICE.items() if part in found[3]), "{}").format(found[3].strip())
            return _with_line(message, found["file"], found["line"], lines[at:], source)
        if found := _PTXAS.match(line):
            return f"ptxas refused the PTX: {_in_source_names(found[2].strip())}"
    return next((line.strip() for line in lines if line.strip()), "NVRTC failed without a message")


def _in_source_names(message: str) -> str:
    return re.sub(r"'(_Z\w+)'", lambda symbol: f"'{source_name(symbol[1])}'", message)


def _with_line(message: str, file: str | None, number: str | None, rest: list[str], source: str) -> str:
    where = "" if file in (SOURCE_NAME, None) else f"{file}({number}): "
    if where:  # an error inside of a header: the line that instantiated or included it
        places = (
            re.search(rf"at line (\d+)(?: of (?P<file>\S+))?|^{re.escape(SOURCE_NAME)}\((\d+)\)", t) for t in rest
        )
        number = next(
            (p[1] or p[3] for p in places if p and p["file"] in (SOURCE_NAME, None, f'"{SOURCE_NAME}"')), None
        )
    text = source.split("\n")
    if number is None or int(number) > len(text):
        return where + message
    return f"line {number}, `{text[int(number) - 1].strip()}`: {where}{message}"


def _module(built: _Built, source: str, target: str) -> CppModule:
    described = of_ptx(built.ptx, built.log)
    if not described and "__global__" in source:
        raise CompileFailed(
            f"C++ for {target}: no kernel is left; kernels that are templates are compiled where an instance is named: "
            'names=["copy<float, 4>"]'
        )
    expressions = {symbol: expression for expression, symbol in built.symbols.items()}
    return assembled(target, built.ptx, parameters_of_ptx(built.ptx, source), described, expressions)
