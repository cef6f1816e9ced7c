"""Listings of the course's own C++ kernels, for machines without the compiler: `compile_cpp` falls back to them.

`tools/store_listings.py` makes them with the compiler, and a test recompiles and compares. They hold what executing
needs (code, data, metadata, the lines of the source), without debug sections, comments and the header's lines.
"""

from __future__ import annotations

import functools
import hashlib
import json
import lzma
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gpu_utils.compiler.cpp_module import CppModule, from_json
from gpu_utils.errors import CompileFailed

PLACE = Path(__file__).parent / "stored_listings.json.xz"

_TOKEN = re.compile(
    r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|\.?\d(?:[eEpP][+-]|[\w.\'])*|\w+'
    r"|<<=|>>=|<=>|\.\.\.|->|\+\+|--|&&|\|\||::|<<|>>|[-+*/%&|^!=<>]=|\S"
)
_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')|//[^\n]*|/\*.*?\*/', re.DOTALL)


def find(source: str, target: str) -> CppModule | None:
    """The stored listing of a source that differs at most in comments and spaces; None when there is none.

    Line breaks count, because the lines of the listing are those of the source that was stored. Raises CompileFailed
    where the compiler had refused the source.
    """
    entry = _entries().get(key(source, target))
    if entry is None:
        return None
    if "refused" in entry:
        raise CompileFailed(entry["refused"])
    return replace(from_json(entry), stored=True)


def key(source: str, target: str) -> str:
    """Equal for sources with the same tokens on the same lines.

    >>> key("int a=1; // one", "sm_80") == key("int  a = 1;", "sm_80"), key("a--b", "sm_80") == key("a - -b", "sm_80")
    (True, False)
    """
    plain = _COMMENT.sub(lambda found: found[1] or " " + "\n" * found[0].count("\n"), source)
    lines = [_line(line) for line in plain.rstrip().split("\n")]
    return hashlib.sha256("\n".join([target, *lines]).encode()).hexdigest()[:20]


def _line(line: str) -> str:
    # in `#define F (x)` the space before the bracket has a meaning
    return " ".join(line.split() if line.lstrip().startswith("#") else _TOKEN.findall(line))


def entry(source: str, target: str, compile: Callable[[str, str], CppModule]) -> dict[str, Any]:
    """What is stored of one source: its listing, or why the compiler refused it."""
    try:
        module = compile(source, target)
    except CompileFailed as problem:
        return {"target": target, "source": source, "refused": str(problem)}
    kernels = {name: asdict(kernel) for name, kernel in module.kernels.items()}
    return {"target": target, "source": source, "asm": slim(module.asm), "kernels": json.loads(json.dumps(kernels))}


def write(entries: Iterable[dict[str, Any]]) -> None:
    """Replace everything that is stored."""
    table = {key(entry["source"], entry["target"]): entry for entry in entries}
    text = json.dumps(dict(sorted(table.items())), indent=0)
    PLACE.write_bytes(lzma.compress(text.encode(), preset=9))
    _entries.cache_clear()


def entries() -> list[dict[str, Any]]:
    """Everything that is stored."""
    return list(_entries().values())


@functools.cache
def _entries() -> dict[str, dict[str, Any]]:
    return json.loads(lzma.decompress(PLACE.read_bytes())) if PLACE.exists() else {}


_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?', re.MULTILINE)
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")
_CALLER = re.compile(r"@\[ ([^\s:]+):(\d+)")
_STARTS = re.compile(r"\s*\.(?:section|text|type|amdgpu_metadata)\b")
_DEBUG = re.compile(r'\s*\.section\s+"?\.debug')
# of the comments only LLVM's own figures are kept: `; NumVgprs: 11`
_NEEDLESS = re.compile(r"\s*$|\s*(?:;(?! \w+: \d)|//)|(?:\.L|\$L__)tmp\d+:|\s*\.(?:cfi_|addrsig|ident)")


def slim(asm: str) -> str:
    """PTX or AMDGCN without what nobody executes; `.loc` names the innermost line of the source itself."""
    kept: list[str] = []
    files = {number: second or first for number, first, second in _FILE.findall(asm)}
    own = next((number for number, name in files.items() if name.endswith(".cu")), "")
    debug, last = False, ""
    for line in asm.splitlines():
        if _STARTS.match(line):
            debug = _DEBUG.match(line) is not None
        if found := _FILE.match(line):  # in PTX after the debug sections
            if found[1] == own:
                kept.append(line.partition(" md5 ")[0].rstrip())
        elif debug or _NEEDLESS.match(line):
            continue
        elif found := _LOC.match(line):
            places = [(files.get(found[1], ""), found[2]), *_CALLER.findall(line)]
            number = next((n for name, n in places if name.endswith(".cu") and n != "0"), "")
            if number not in ("", last):
                kept.append(f"\t.loc\t{own} {number} 0")
                last = number
        else:
            kept.append(line if '"' in line else re.split(r"\s+(?:;|//)", line)[0])
    return "\n".join(kept) + "\n"
