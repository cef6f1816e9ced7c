"""What a compiled C++ source consists of: kernels, their arguments and resources, read from the compilers' texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gpu_utils.analytic.occupancy import Occupancy, occupancy
from gpu_utils.chips.targets import TARGETS
from gpu_utils.errors import CompileFailed, UnknownName


@dataclass(frozen=True)
class Argument:
    """One parameter of a kernel as it lies in the parameter buffer.

    name    as in the source; "" where the compiler dropped it
    kind    "pointer", "int", "float" (2, 4 or 8 bytes), "bfloat", "struct", or "word": 8 bytes of which NVRTC's PTX
            does not tell whether they are an address
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
    stored   not compiled here: the listing came with the course, because the compiler is not installed
    """

    target: str
    asm: str
    kernels: Mapping[str, CppKernel]
    stored: bool = False

    def kernel(self, name: str) -> CppKernel:
        """A kernel by its name in the source or its symbol. Raises UnknownName."""
        for found in self.kernels.values():
            if name in (found.name, found.symbol):
                return found
        raise UnknownName("kernel", name, self.kernels)

    def occupancy(self, name: str, threads: int, dynamic_shared: int = 0) -> Occupancy:
        """Blocks of `threads` threads and `dynamic_shared` bytes more than the static ones that fit on an SM or CU."""
        kernel, limits = self.kernel(name), TARGETS[self.target]
        shared = kernel.shared + dynamic_shared
        return occupancy(limits, kernel.registers, shared, -(-threads // limits.lanes), scalars=kernel.sgprs)

    def __repr__(self) -> str:
        origin = ", a stored listing: clang is not installed" if self.stored else ""
        return f"CppModule({', '.join(self.kernels)} for {self.target}: {self.asm.count(chr(10))} lines{origin})"


def from_json(data: Mapping[str, Any]) -> CppModule:
    """The module of which `data` holds target, asm and the fields of each kernel."""
    kernels = {
        key: CppKernel(**{**facts, "arguments": tuple(Argument(**a) for a in facts["arguments"])})
        for key, facts in data["kernels"].items()
    }
    return CppModule(data["target"], data["asm"], MappingProxyType(kernels))


def assembled(
    target: str,
    asm: str,
    declared: Mapping[str, Sequence[tuple[str, str]]],
    described: Mapping[str, dict[str, Any]],
    names: Mapping[str, str] = MappingProxyType({}),
) -> CppModule:
    """The module of an assembly text.

    declared   symbol of a kernel -> (name, kind) of its parameters; described: symbol -> what `of_ptx` read
    names      symbol -> what the kernel is called, where that is not its name in the source
    """
    kernels: dict[str, CppKernel] = {}
    for symbol, facts in described.items():
        layout, kinds = facts.pop("layout"), declared.get(symbol, [])
        if len(kinds) != len(layout):
            raise CompileFailed(
                f"C++ for {target}: kernel {symbol} has {len(layout)} arguments in memory and {len(kinds)} in its "
                "declaration; pass pointers and numbers only"
            )
        arguments = tuple(
            Argument(name, kind, offset, size) for (name, kind), (offset, size) in zip(kinds, layout, strict=True)
        )
        name = names.get(symbol) or source_name(symbol)
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


def signatures(ir: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
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


def of_amdgcn(asm: str) -> dict[str, dict[str, Any]]:
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


_ENTRY = re.compile(r"^(?:\.visible |\.weak )?\.entry ([\w$]+)\((.*?)\)", re.MULTILINE | re.DOTALL)
_PARAM = re.compile(r"\.param\s+(?:\.align (\d+)\s+)?\.[bsuf](\d+)[^,\[]*(?:\[(\d+)\])?")

_USAGE = re.compile(r"(\d+) (registers|bytes smem|bytes stack|bytes spill st)")


def of_ptx(asm: str, log: str) -> dict[str, dict[str, Any]]:
    """Kernel -> layout of its arguments from PTX, and its resources from what `ptxas -v` printed."""
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


def parameters_of_ptx(asm: str, source: str) -> dict[str, list[tuple[str, str]]]:
    """Symbol -> (name, kind) of every parameter, from PTX and from how the source declares them, where it can be read.

    PTX has no names, and its types do not tell pointers from integers of 64 bits, nor float16 from bfloat16.
    """
    found = {}
    for symbol, inside in _ENTRY.findall(asm):
        types = _PTX_TYPE.findall(inside)
        written = _written(source, source_name(symbol))
        texts = written if len(written) == len(types) else [""] * len(types)
        found[symbol] = [
            _described(letter, bits, count, text) for (letter, bits, count), text in zip(types, texts, strict=True)
        ]
    return found


_PTX_TYPE = re.compile(r"\.param\s+(?:\.align \d+\s+)?\.([a-z])(\d+)[^,\[]*(?:\[(\d+)\])?")
_NAME_AT_END = re.compile(r"(\w+)\s*(?:\[[^\]]*\])*\s*(?:=.*)?$", re.DOTALL)


def _described(letter: str, bits: str, count: str, text: str) -> tuple[str, str]:
    name = _NAME_AT_END.search(text)
    if count:
        kind = "struct"
        if count == "2":
            kind = "bfloat" if "bfloat16" in text else "float" if "half" in text else "struct"
    elif letter == "f":
        kind = "float"
    else:
        kind = "pointer" if "*" in text else "word" if bits == "64" else "int"
    return name[1] if name else "", kind


def _written(source: str, name: str) -> list[str]:
    """The parameters of a kernel as its declaration has them; [] where there is none to be found."""
    at = re.search(rf"__global__\b[^;{{}}]*?\b{re.escape(name)}\s*\(", source)
    if at is None:
        return []
    inside, depth, parts = "", 1, []
    for letter in re.sub(r"//[^\n]*|/\*.*?\*/", " ", source[at.end() :], flags=re.DOTALL):
        depth += (letter in "(<[") - (letter in ")>]")
        if depth == 0:
            break
        if letter == "," and depth == 1:
            parts.append(inside)
            inside = ""
        else:
            inside += letter
    return [text.strip() for text in (*parts, inside) if text.strip()]
