"""Reads AMDGCN assembly text into plain data: instructions, labels, constant data, kernel descriptors.

Nothing is executed or looked up here. The syntax is LLVM's, see the AMDGPU sections of the LLVM documentation.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any


@dataclass(slots=True)
class Instruction:
    """One line of code: `mnemonic operands modifiers`.

    modifiers: flags as {"glc": True}, numbers as {"offset": 16}, lists as {"op_sel": [0, 1]}, names as {"row_shr": 8}.
    """

    mnemonic: str
    operands: list[str]
    modifiers: dict[str, Any]
    text: str
    line: tuple[str, int] | None


@dataclass(slots=True)
class Kernel:
    """What the descriptor and the metadata say about one kernel."""

    name: str
    descriptor: dict[str, int] = field(default_factory=dict)
    params: list[tuple[int, int, str]] = field(default_factory=list)  # offset, size, value_kind
    notes: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Module:
    """A whole file. labels: name -> index in `code`. data: symbol -> offset in `blob`. relocations: offset -> name."""

    code: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    blob: bytearray = field(default_factory=bytearray)
    data: dict[str, int] = field(default_factory=dict)
    relocations: dict[int, str] = field(default_factory=dict)
    kernels: dict[str, Kernel] = field(default_factory=dict)
    symbols: dict[str, str] = field(default_factory=dict)


_DATA = {".byte": 1, ".short": 2, ".hword": 2, ".2byte": 2, ".long": 4, ".4byte": 4, ".quad": 8, ".8byte": 8}
_FLAG = re.compile(r"^[a-z][a-z0-9_]*$")
_MODIFIER = re.compile(r"([a-z_][a-z0-9_]*):(\[[^\]]*\]|quad_perm:\[[^\]]*\]|swizzle\([^)]*\)|[^\s,]+)", re.IGNORECASE)
# Words that follow the operands without a comma and carry no value.
_FLAGS = frozenset(
    [
        "glc",
        "slc",
        "dlc",
        "sc0",
        "sc1",
        "nt",
        "offen",
        "idxen",
        "addr64",
        "off",
        "lds",
        "tfe",
        "gds",
        "clamp",
        "row_mirror",
        "row_half_mirror",
        "mul:2",
        "high",
        "done",
        "vm",
        "unorm",
        "da",
        "r128",
        "d16",
        "compr",
        "scale_offset",
        "nv",
        "matrix_a_reuse",
        "matrix_b_reuse",
    ]
)


def split_operands(text: str) -> tuple[list[str], dict[str, Any]]:
    """Operands and modifiers of an instruction's tail.

    >>> split_operands("v1, s[12:15], 0 offen offset:16")
    (['v1', 's[12:15]', '0'], {'offen': True, 'offset': 16})
    """
    pieces, depth, start = [], 0, 0
    for at, char in enumerate(text):
        if char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "," and not depth:
            pieces.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    modifiers: dict[str, Any] = {}
    words = re.split(r"\s+(?![^\[(]*[\])])", last) if last else []
    operand: list[str] = []
    for word in words:
        name, colon, value = word.partition(":")
        if colon and re.fullmatch(r"[a-zA-Z_]\w*", name) and not re.fullmatch(r"[sva]\[\d+", name):
            modifiers[name.lower()] = _value(value)
        elif word in _FLAGS and (operand or pieces):
            if word == "off" and not operand:
                operand.append(word)
            else:
                modifiers[word] = True
        else:
            operand.append(word)
    if operand:
        pieces.append(" ".join(operand))
    return pieces, modifiers


_split = lru_cache(maxsize=4096)(split_operands)


def _value(text: str) -> Any:
    if text.startswith("["):
        return [int(part, 0) if part.strip().lstrip("-").isdigit() else part.strip() for part in text[1:-1].split(",")]
    try:
        return int(text, 0)
    except ValueError:
        return text


_COMMENT = re.compile(r";|//")
_LABEL = re.compile(r"^\s*([\w.$@]+):")
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?')
_BLOCK_COMMENT = re.compile(r"^[ \t]*/\*.*?\*/", re.MULTILINE | re.DOTALL)
"""At the beginning of a line, where inline assembly may have one."""
_OUTER = re.compile(r"@\[ ([^\s:]+):(\d+)")


@lru_cache(maxsize=16)
def parse(text: str) -> Module:
    """Parse a whole assembly file; its kernels are decoded one by one, so the last few are kept. Do not change it."""
    module = Module()
    files: dict[int, str] = {}
    bases: dict[str, str] = {}
    line: tuple[str, int] | None = None
    section, in_metadata, descriptor = "text", False, None
    metadata: list[str] = []
    for raw in _BLOCK_COMMENT.sub(" ", _plain_names(text)).splitlines():
        if in_metadata:
            if ".end_amdgpu_metadata" in raw:
                in_metadata = False
            else:
                metadata.append(raw)
            continue
        code, comment = _without_comment(raw)
        stripped = code.strip()
        if not stripped or stripped.startswith(("//", "#")):
            continue
        match = _LABEL.match(code)
        if match:
            if section == "text":
                module.labels[match[1]] = len(module.code)
            elif section == "data":
                module.data[match[1]] = len(module.blob)
            stripped = code[match.end() :].strip()
            if not stripped:
                continue
        if stripped.startswith("."):
            word = stripped.split(None, 1)[0]
            if word == ".loc":
                line = _line(raw, comment, files, bases, line)
            elif word == ".file":
                found = _FILE.match(raw)
                if found:
                    path = f"{found[2]}/{found[3]}" if found[3] else found[2]
                    files[int(found[1])] = path
                    bases[path.rsplit("/", 1)[-1]] = path
            elif word == ".amdgpu_metadata":
                in_metadata = True
            elif word == ".amdhsa_kernel":
                descriptor = module.kernels.setdefault(stripped.split()[1], Kernel(stripped.split()[1]))
            elif word == ".end_amdhsa_kernel":
                descriptor = None
            elif descriptor is not None and word.startswith(".amdhsa_"):
                descriptor.descriptor[word[8:]] = _number(stripped.split(None, 1)[1])
            elif word in (".text", ".section", ".data", ".bss", ".rodata"):
                section = _section(stripped)
            elif word == ".set":
                name, _, value = stripped[4:].partition(",")
                module.symbols[name.strip()] = value.strip()
            elif section == "data":
                _data(module, word, stripped)
            continue
        if section == "text":
            _code(module, stripped, line)
    _metadata(module, metadata)
    return module


def _without_comment(raw: str) -> tuple[str, str]:
    """What stands before `;` or `//`, and behind it; a string before that may hold either.

    >>> _without_comment('v_nop // "x"'), _without_comment('.file 1 "a;b"')
    (('v_nop ', ' "x"'), ('.file 1 "a;b"', ''))
    """
    before, quote, _ = raw.partition('"')
    found = _COMMENT.search(before)
    if found is None:
        return (raw, "") if quote else (before, "")
    return raw[: found.start()], raw[found.end() :]


def _plain_names(text: str) -> str:
    """The text with quoted symbols renamed: Triton 3.6 names a device function after its types, with brackets."""
    for name in set(re.findall(r'^"([^"\n]+)":', text, re.MULTILINE)):
        text = text.replace(f'"{name}"', re.sub(r"\W", "_", name))
    return text


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        return 0


def _section(text: str) -> str:
    if text.startswith(".text") or ".text" in text.split(",")[0]:
        return "text"
    name = text.split(None, 1)[-1]
    return "data" if re.match(r'"?\.?(rodata|data|bss|lds)', name.lstrip(".")) or text in (".data", ".bss") else "other"


def _line(
    raw: str, comment: str, files: dict[int, str], bases: dict[str, str], before: tuple[str, int] | None
) -> tuple[str, int] | None:
    """The line in the learner's own code: of a chain of inlined calls the outermost one.

    In C++ the innermost one of the source, whose functions are the learner's too; its header's are not.
    """
    found = _LOC.match(raw)
    outer = _OUTER.findall(comment)
    if outer:
        own = [(files.get(int(found[1]), ""), found[2])] if found else []
        in_cpp = (place for place in (*own, *outer) if place[0].endswith(".cu") and place[1] != "0")
        name, number = next(in_cpp, outer[-1])
        return bases.get(name, name), int(number)
    if not found or found[2] == "0":
        return before
    return files.get(int(found[1]), "?"), int(found[2])


def _code(module: Module, text: str, line: tuple[str, int] | None) -> None:
    parts = [_instruction(part, text, line) for part in text.split("::")]
    if len(parts) == 1:
        module.code.append(parts[0])
    else:
        module.code.append(Instruction("v_dual", [], {"parts": parts}, text, line))


def _instruction(part: str, text: str, line: tuple[str, int] | None) -> Instruction:
    mnemonic, _, rest = part.strip().partition(" ")
    if "\t" in mnemonic:
        mnemonic, _, more = mnemonic.partition("\t")
        rest = more + " " + rest
    operands, modifiers = _split(rest.strip())
    return Instruction(mnemonic, list(operands), dict(modifiers), text, line)


def _data(module: Module, word: str, text: str) -> None:
    blob = module.blob
    rest = text.split(None, 1)[1] if " " in text or "\t" in text else ""
    if word in _DATA:
        size = _DATA[word]
        for item in rest.split(","):
            item = item.strip()
            try:
                blob += (int(item, 0) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
            except ValueError:
                module.relocations[len(blob)] = item
                blob += bytes(size)
    elif word in (".zero", ".skip", ".space"):
        blob += bytes(int(rest.split(",")[0], 0))
    elif word in (".asciz", ".ascii", ".string"):
        blob += rest.strip().strip('"').encode().decode("unicode_escape").encode("latin-1")
        blob += b"\0" if word != ".ascii" else b""
    elif word in (".p2align", ".align"):
        step = 1 << int(rest.split(",")[0], 0)
        blob += bytes(-len(blob) % step)
    elif word in (".fill",):
        count, size, value = (int(v, 0) for v in rest.split(","))
        blob += struct.pack("<Q", value)[:size] * count


def _metadata(module: Module, lines: list[str]) -> None:
    """The .amdgpu_metadata block: a small, regular piece of YAML."""
    kernel = Kernel("")
    arg: dict[str, str] = {}
    args: list[dict[str, str]] = []

    def close() -> None:
        if kernel.name:
            known = module.kernels.setdefault(kernel.name, Kernel(kernel.name))
            known.params = [
                (int(a["offset"]), int(a["size"]), a.get("value_kind", "by_value")) for a in args if "offset" in a
            ]
            known.notes = kernel.notes

    for raw in lines:
        text = raw.strip()
        indent = len(raw) - len(raw.lstrip())
        if indent == 2 and text.startswith("- "):
            close()
            kernel, args = Kernel(""), []
        if indent >= 6 and text.startswith("- "):
            arg = {}
            args.append(arg)
        key, _, value = text.removeprefix("- ").partition(":")
        key, value = key.strip().lstrip("."), value.strip()
        if indent >= 6:
            arg[key] = value
        elif key == "name":
            kernel.name = value
        elif value.lstrip("-").isdigit():
            kernel.notes[key] = int(value)
    close()
