"""CUDA-style C++ compiled for both vendors without CUDA or ROCm: clang from the wheel `ziglang`, and a header of ours.

The header (include/w2w_gpu.h) is included by itself, as nvcc does with its own. A source holds kernels and device
functions, no host code. `compile_cpp(source, "sm_80")` gives PTX, `compile_cpp(source, "gfx942")` AMDGCN.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gpu_utils.chips.targets import TARGETS, Target
from gpu_utils.compiler.resources import Occupancy, occupancy
from gpu_utils.errors import BackendUnavailable, CompileFailed, UnknownName
from gpu_utils.folders import cache_folder

INCLUDE = Path(__file__).parent / "include"
SECONDS = 120
_SOURCE = "kernel.cu"
# clang 22 would write PTX 8.8, which the ptxas that comes with Triton 3.7 cannot read; 8.6 knows sm_100.
_PTX_VERSION = [word for feature in ("-ptx88", "+ptx86") for word in ("-Xclang", "-target-feature", "-Xclang", feature)]


@dataclass(frozen=True)
class Argument:
    """One parameter of a kernel as it lies in the parameter buffer.

    name    as in the source; "" where the compiler dropped it
    kind    "pointer", "int", "float" (2, 4 or 8 bytes), "bfloat" or "struct"
    offset, size  bytes
    """

    name: str
    kind: str
    offset: int
    size: int


@dataclass(frozen=True)
class CppKernel:
    """One kernel of a compiled source, and what it needs of the hardware.

    name       as in the source; symbol: as in the assembly (they differ without `extern "C"`)
    arguments  in order
    shared     bytes of static shared memory (LDS) of one block
    registers  32-bit vector registers of one lane, on AMD VGPRs and AGPRs together
    vgprs, agprs, sgprs  AMD's kinds; on NVIDIA vgprs equals registers and the others are 0
    spills     AMD: vector registers that did not fit; NVIDIA: bytes of spill stores of one thread
    scratch    bytes of stack or scratch memory of one lane
    """

    name: str
    symbol: str
    arguments: tuple[Argument, ...]
    shared: int
    registers: int
    vgprs: int
    agprs: int
    sgprs: int
    spills: int
    scratch: int


@dataclass(frozen=True)
class CppModule:
    """A source compiled for one target.

    target   "sm_80", "gfx942"
    asm      the assembly text: PTX or AMDGCN
    kernels  by their name in the source, or by symbol where two kernels share a name (instances of a template)
    """

    target: str
    asm: str
    kernels: Mapping[str, CppKernel]

    def kernel(self, name: str) -> CppKernel:
        """A kernel by its name in the source or its symbol. Raises UnknownName."""
        for found in self.kernels.values():
            if name in (found.name, found.symbol):
                return found
        raise UnknownName("kernel", name, self.kernels)

    def occupancy(self, name: str, threads: int, dynamic_shared: int = 0) -> Occupancy:
        """Blocks of `threads` threads and `dynamic_shared` bytes more than the static ones that fit on an SM or CU."""
        kernel, limits = self.kernel(name), TARGETS[self.target]
        return occupancy(limits, kernel.registers, kernel.shared + dynamic_shared, -(-threads // limits.lanes))

    def __repr__(self) -> str:
        return f"CppModule({', '.join(self.kernels)} for {self.target}: {self.asm.count(chr(10))} lines)"


def compile_cpp(source: str, target: str) -> CppModule:
    """Compile CUDA-style C++ to the assembly text of a target.

    source  kernels (`__global__`) and device functions; the names that exist are those of include/w2w_gpu.h
    target  "sm_80", "sm_89", "sm_90", "sm_100", "gfx90a", "gfx942", "gfx950", "gfx1100" or "gfx1201"

    Returns a CppModule, kept in the cache folder by the content of everything that went into it. The text has passed an
    assembler: ptxas for NVIDIA, LLVM's own for AMD.
    Errors: UnknownName for a target; BackendUnavailable without the wheel ziglang; CompileFailed with the first error
    of clang or of the assembler and its line, also when static shared memory (LDS) is larger than the target allows.
    """
    limits = TARGETS[target]
    clang = _clang()
    place = cache_folder() / "clang" / f"{_fingerprint(source, target)}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        return _from_json(json.loads(place.read_text()))
    with tempfile.TemporaryDirectory(prefix="w2w-clang-") as folder:
        (Path(folder) / _SOURCE).write_text(source)
        asm = _run(clang, limits, Path(folder), [], source)
        signatures = dict(_signatures(_run(clang, limits, Path(folder), _IR, source)))
        if limits.vendor == "nvidia":
            described = _of_ptx(asm, limits, Path(folder))
        else:
            _assemble_amdgcn(clang, asm, limits, Path(folder))
            described = _of_amdgcn(asm)
    module = _module(target, asm, signatures, described)
    _keep(place, module)
    return module


def _clang() -> list[str]:
    """The command of clang inside the wheel, with its own freestanding headers."""
    found = importlib.util.find_spec("ziglang")
    if found is None or not found.submodule_search_locations:
        raise BackendUnavailable(
            "compiling C++ kernels needs clang from the wheel ziglang, which is not installed; "
            "run `pip install -c constraints.txt -e .[hip]` (about 411 MB)"
        )
    folder = Path(next(iter(found.submodule_search_locations)))
    return [
        str(folder / "zig"),
        "clang",
        "-nostdinc",
        "-isystem",
        str(INCLUDE),
        "-isystem",
        str(folder / "lib/include"),
    ]


_IR = ["-emit-llvm", "-Xclang", "-disable-llvm-passes", "-fno-discard-value-names"]
_OPTIONS = ["--cuda-device-only", "-std=c++17", "-O3", "-g1", "-S", "-ffreestanding", "-include", "w2w_gpu.h"]
_VENDOR = {
    "nvidia": ["-x", "cuda", "-nocudalib", "-nocudainc", "-Wno-unknown-cuda-version", *_PTX_VERSION],
    "amd": ["-x", "hip", "-nogpulib", "-nogpuinc", "-mcode-object-version=5", "-fuse-cuid=none"],
}


def _options(limits: Target) -> list[str]:
    arch = "--cuda-gpu-arch" if limits.vendor == "nvidia" else "--offload-arch"
    return [*_VENDOR[limits.vendor], f"{arch}={limits.name}", *_OPTIONS]


def _fingerprint(source: str, target: str) -> str:
    parts = [source, *_options(TARGETS[target]), *_IR, Path(__file__).read_text()]
    parts += [path.read_text() for path in sorted(INCLUDE.rglob("*.h"))]
    parts += [importlib.metadata.version(name) for name in ("ziglang", "triton")]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _run(clang: list[str], limits: Target, folder: Path, more: list[str], source: str) -> str:
    maps = [f"-ffile-prefix-map={INCLUDE}=w2w", f"-ffile-prefix-map={folder}=."]
    log = _call([*clang, *_options(limits), *more, *maps, _SOURCE, "-o", "out"], limits, folder)
    if not (folder / "out").exists():
        raise CompileFailed(f"C++ for {limits.name}: {_first_error(log, source)}")
    text = (folder / "out").read_text()
    (folder / "out").unlink()
    return text


def _call(command: list[str], limits: Target, folder: Path) -> str:
    """Run a tool; returns what it printed, "" only when it found nothing to say."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        name = Path(command[0]).name
        raise CompileFailed(f"C++ for {limits.name}: {name} took longer than {SECONDS} s and was stopped") from None
    return done.stdout + done.stderr


_HOST = "a source holds kernels and device functions only; launch the kernel from Python: gpu.load(...).launch(...)"
_ADVICE = {
    "file not found": "{}; the headers here are those of CUDA's and HIP's runtime and clang's own, such as stdint.h",
    "cudaConfigureCall": _HOST,
    "__hipPushCallConfiguration": _HOST,
}


def _first_error(log: str, source: str) -> str:
    """clang's first error, with the line of the learner's source that led to it."""
    lines = log.splitlines()
    at = next((i for i, line in enumerate(lines) if "error:" in line), None)
    if at is None:
        return next((line for line in lines if line.strip()), "clang failed without a message")
    message = lines[at].partition("error:")[2].strip()
    message = next((advice for found, advice in _ADVICE.items() if found in message), "{}").format(message)
    places = [re.match(rf"(?:\./)?{re.escape(_SOURCE)}:(\d+):", line) for line in lines[at:]]
    number = next((int(place[1]) for place in places if place), None)
    text = source.split("\n")
    if number is None or number > len(text):
        return message
    return f"line {number}, `{text[number - 1].strip()}`: {message}"


# What the compiler says about the kernels


def _module(
    target: str, asm: str, signatures: dict[str, list[tuple[str, str]]], described: dict[str, dict[str, Any]]
) -> CppModule:
    kernels: dict[str, CppKernel] = {}
    for symbol, facts in described.items():
        layout, kinds = facts.pop("layout"), signatures.get(symbol, [])
        if len(kinds) != len(layout):
            raise CompileFailed(
                f"C++ for {target}: kernel {symbol} has {len(layout)} arguments in memory and {len(kinds)} in its "
                "declaration; pass pointers and numbers only"
            )
        arguments = tuple(
            Argument(name, kind, offset, size) for (name, kind), (offset, size) in zip(kinds, layout, strict=True)
        )
        name = source_name(symbol)
        key = symbol if name in kernels else name
        kernels[key] = CppKernel(name, symbol, arguments, **facts)
    if not kernels:
        raise CompileFailed(f"C++ for {target}: the source has no kernel; mark a function with __global__")
    return CppModule(target, asm, MappingProxyType(kernels))


def source_name(symbol: str) -> str:
    """The name of a function in C++ from its symbol, without namespace and arguments.

    >>> source_name("_Z10vector_addPKfPfi"), source_name("_ZN2my4copyEPf"), source_name("vector_add")
    ('vector_add', 'copy', 'vector_add')
    """
    found = re.match(r"_ZN?", symbol)
    if found is None:
        return symbol
    at, name = found.end(), symbol
    while length := re.match(r"\d+", symbol[at:]):
        start = at + length.end()
        at = start + int(length[0])
        name = symbol[start:at]
        if not symbol.startswith("_ZN"):
            break
    return name


_DEFINITION = re.compile(r'^define [^@]*\b(?:ptx_kernel|amdgpu_kernel)\b[^@]*@"?([\w.$]+)"?\((.*)\)', re.MULTILINE)
_KINDS = {"half": "float", "bfloat": "bfloat", "float": "float", "double": "float"}


def _signatures(ir: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Kernel -> (name, kind) of every parameter, from LLVM's text."""
    for symbol, inside in _DEFINITION.findall(ir):
        parameters = re.split(r",\s*(?![^(\[<{]*[)\]>}])", inside) if inside.strip() else []
        yield symbol, [_parameter(text) for text in parameters]


def _parameter(text: str) -> tuple[str, str]:
    word, name = text.split()[0], text.rpartition("%")[2].removesuffix(".coerce")
    if "byval" in text or "byref" in text:
        kind = "struct"
    elif word == "ptr":
        kind = "pointer"
    else:
        kind = "int" if re.fullmatch(r"i\d+", word) else _KINDS.get(word, "struct")
    return "" if name.isdigit() else name, kind


def _of_amdgcn(asm: str) -> dict[str, dict[str, Any]]:
    """Kernel -> layout of its arguments and its resources, from the metadata at the end of the text."""
    described = {}
    metadata = asm.partition(".amdgpu_metadata")[2].partition(".end_amdgpu_metadata")[0]
    kernels = metadata.partition("amdhsa.kernels:")[2].partition("\namdhsa.")[0]
    for chunk in re.split(r"\n  - ", kernels)[1:]:
        layout = re.findall(r"\.offset:\s+(\d+)\n\s+\.size:\s+(\d+)\n\s+\.value_kind:\s+(?!hidden)\w", chunk)
        facts = {name: int(value) for name, value in re.findall(r"\.(\w+):\s+(\d+)$", chunk, re.MULTILINE)}
        symbol = re.findall(r"\n    \.name:\s+(\S+)", chunk)[0]
        described[symbol] = {
            "layout": [(int(offset), int(size)) for offset, size in layout],
            "shared": facts["group_segment_fixed_size"],
            "registers": facts["vgpr_count"],
            "vgprs": facts["vgpr_count"] - facts.get("agpr_count", 0),
            "agprs": facts.get("agpr_count", 0),
            "sgprs": facts["sgpr_count"],
            "spills": facts["vgpr_spill_count"],
            "scratch": facts["private_segment_fixed_size"],
        }
    return described


def _assemble_amdgcn(clang: list[str], asm: str, limits: Target, folder: Path) -> None:
    """Refuse text that LLVM cannot assemble (inline assembly), and calls of functions that are declared only."""
    (folder / "kernel.s").write_text(asm)
    command = [*clang[:2], "-x", "assembler", "-target", "amdgcn-amd-amdhsa", f"-mcpu={limits.name}", "-c", "kernel.s"]
    log = _call([*command, "-o", "kernel.o"], limits, folder)
    if not (folder / "kernel.o").exists():
        raise CompileFailed(f"C++ for {limits.name}: the assembler refused the AMDGCN: {_first_error(log, '')}")
    defined = set(re.findall(r"^([\w.$]+):", asm, re.MULTILINE))
    for symbol in re.findall(r"([\w.$]+)@(?:rel32|gotpcrel32)", asm):
        if symbol not in defined:
            raise CompileFailed(f"C++ for {limits.name}: {source_name(symbol)} is declared and used, but not defined")


_ENTRY = re.compile(r"^\.visible \.entry ([\w$]+)\((.*?)\)", re.MULTILINE | re.DOTALL)
_PARAM = re.compile(r"\.param\s+(?:\.align (\d+)\s+)?\.[bsuf](\d+)[^,\[]*(?:\[(\d+)\])?")

_USAGE = re.compile(r"(\d+) (registers|bytes smem|bytes stack|bytes spill st)")


def _of_ptx(asm: str, limits: Target, folder: Path) -> dict[str, dict[str, Any]]:
    """Kernel -> layout of its arguments from the text, and its resources from ptxas."""
    from triton import knobs

    (folder / "kernel.ptx").write_text(asm)
    ptxas = knobs.nvidia.ptxas_blackwell if limits.name == "sm_100" else knobs.nvidia.ptxas
    command = [ptxas.path, "-v", f"--gpu-name={limits.name}", "kernel.ptx", "-o", "kernel.cubin"]
    log = _call(command, limits, folder)
    if not (folder / "kernel.cubin").exists():
        errors = [line.partition(":")[2].strip() for line in log.splitlines() if "error" in line or "fatal" in line]
        raise CompileFailed(f"C++ for {limits.name}: ptxas refused the PTX: {(errors or [log.strip()])[0]}")
    usage = {
        name: {key: int(number) for number, key in _USAGE.findall(text)}
        for name, text in re.findall(r"Compiling entry function '([\w$]+)'(.*?)(?=Compiling entry|\Z)", log, re.DOTALL)
    }
    described = {}
    for symbol, inside in _ENTRY.findall(asm):
        layout, end = [], 0
        for align, bits, count in _PARAM.findall(inside):
            element = int(bits) // 8
            start = -(-end // int(align or element)) * int(align or element)
            end = start + element * int(count or 1)
            layout.append((start, end - start))
        facts = usage[symbol]
        described[symbol] = {
            "layout": layout,
            "shared": facts.get("bytes smem", 0),
            "registers": facts["registers"],
            "vgprs": facts["registers"],
            "agprs": 0,
            "sgprs": 0,
            "spills": facts["bytes spill st"],
            "scratch": facts["bytes stack"],
        }
    return described


# The cache


def _from_json(data: dict[str, Any]) -> CppModule:
    kernels = {
        key: CppKernel(**{**facts, "arguments": tuple(Argument(**a) for a in facts["arguments"])})
        for key, facts in data["kernels"].items()
    }
    return CppModule(data["target"], data["asm"], MappingProxyType(kernels))


def _keep(place: Path, module: CppModule) -> None:
    """Write the file in one step, so that a reader never sees half of it. Without a cache folder it compiles again."""
    data = {"target": module.target, "asm": module.asm, "kernels": {k: asdict(v) for k, v in module.kernels.items()}}
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=place.parent, suffix=".part", delete=False) as file:
            json.dump(data, file)
        os.replace(file.name, place)
