"""Which lines of a lowered source come from which line of a tile program, as far as names and operators tell.

TileLang keeps no table of lines. What it keeps are the names of parameters, buffers and loop variables, and operators
have calls of their own. A line that these do not settle belongs to none: no link is better than a wrong one.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

SYNC = "synchronisation"
"""In place of a number: flags, barriers and fences. No line of a tile program asks for them."""

_SYNC = re.compile(
    r"__syncthreads|mbarrier|cp_async_(?:commit|wait)|asc_sync|asc_lock|asc_unlock|asc_vf_barrier|fence|warpgroup_(?:arrive"
    r"|commit|wait)|s_barrier|tma_store_(?:arrive|wait)|arrive_and|sync_warp|__builtin_amdgcn_s_waitcnt|tcgen05_(?:wait|before|after)"
)
_GEMM = re.compile(
    r"\bmma_|wgmma|tcgen05mma|mfma|wmma|ascend_gemm|asc_mmad|ldmatrix|GmmaDescriptor|Tcgen05|(?:initialize|increase)_\w*descriptor|gemm_"
)
_REDUCE = re.compile(r"AllReduce")
_MATH = {"exp", "exp2", "log", "tanh", "sqrt", "rsqrt", "erf", "sigmoid"}
_LOOP = re.compile(r"\bfor \(\w+ (\w+?)(?:_\d+)? = ")
_DECLARED = re.compile(r"^\s*(?:extern\s+)?(?:[\w:]+[\s*]+)+(\w+)(?:\[\w*\])?(?:\s*=.*)?;")
_SETS = re.compile(r"asc_set_\w+_para")


@dataclass
class Line:
    """One line of a tile program: what it does, and the names that it does it with."""

    number: int
    text: str
    copies: set[str] = field(default_factory=set)
    allocates: set[str] = field(default_factory=set)
    loops: set[str] = field(default_factory=set)
    math: set[str] = field(default_factory=set)
    stores: set[str] = field(default_factory=set)
    gemm: bool = False
    reduces: bool = False


@dataclass(frozen=True)
class Matched:
    """A tile program beside one lowered source.

    program  lines of the tile program, numbered from 1
    lowered  the lowered source's lines; owners: for each the number of a line, SYNC, or None
    """

    program: tuple[Line, ...]
    lowered: tuple[str, ...]
    owners: tuple[int | str | None, ...]

    def of(self, owner: int | str | None) -> list[tuple[int, str]]:
        """The lowered lines of an owner, with their numbers from 1."""
        return [
            (n, text) for n, (text, who) in enumerate(zip(self.lowered, self.owners, strict=True), 1) if who == owner
        ]


def program_lines(program: Callable[..., Any]) -> tuple[tuple[Line, ...], set[str]]:
    """The lines of a tile program's kernel with what they do, and the names of its parameters."""
    text = textwrap.dedent(inspect.getsource(program))
    tree = ast.parse(text)
    kernel = next(
        (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _decorated(node, "prim_func")), None
    )
    lines = [Line(number, line) for number, line in enumerate(text.splitlines(), 1)]
    for node in ast.walk(tree):
        _note(node, lines)
    return tuple(lines), {argument.arg for argument in kernel.args.args} if kernel else set()


def match(program: Callable[..., Any], lowered: str) -> Matched:
    """Lines of a lowered source by the line of the tile program that they come from."""
    lines, parameters = program_lines(program)
    owners: list[int | str | None] = []
    inside = False
    for text in lowered.splitlines():
        signature = "__global__" in text
        inside = inside or signature or "__simt_vf__" in text or "__simd_vf__" in text
        owners.append(_owner(text, lines, parameters) if inside and not signature else None)
    for place, text in reversed(list(enumerate(lowered.splitlines()))):
        if _SETS.search(text) and place + 1 < len(owners):
            owners[place] = owners[place + 1]  # registers that the next operation reads
    _whole_blocks(lowered.splitlines(), owners)
    return Matched(lines, tuple(lowered.splitlines()), tuple(owners))


def _whole_blocks(texts: list[str], owners: list[int | str | None]) -> None:
    """A loop in which all that is settled belongs to one line belongs to that line as a whole, from inside out."""
    blocks = []
    for start, text in enumerate(texts):
        if text.rstrip().endswith("{") and text.lstrip().startswith(("for ", "if ", "{")):
            depth = _depth(text)
            end = next(
                (n for n in range(start + 1, len(texts)) if texts[n].strip() and _depth(texts[n]) <= depth), start
            )
            blocks.append((end - start, start, end))
    for _, start, end in sorted(blocks):
        settled = {owners[n] for n in range(start, end + 1) if owners[n] is not None}
        if len(settled) != 1:
            continue
        owner = settled.pop()
        first = start - 1 if start and texts[start - 1].strip() == "#pragma unroll" else start
        for n in range(first, end + 1):
            owners[n] = owner


def _depth(text: str) -> int:
    return len(text) - len(text.lstrip())


def _owner(text: str, lines: tuple[Line, ...], parameters: set[str]) -> int | str | None:
    words = set(re.findall(r"[A-Za-z_]\w*", text))
    named = {word.removesuffix("_desc") for word in words} & parameters
    if _SYNC.search(text) and not named:  # a bulk copy names its barrier, too
        return SYNC
    if found := _LOOP.search(text):
        return _only(line for line in lines if found[1] in line.loops)
    if _GEMM.search(text):
        return _only(line for line in lines if line.gemm)
    if named:
        return _only(line for line in lines if line.copies & named) or _only(
            line for line in lines if line.stores & named
        )
    if found := _DECLARED.match(text):
        return _only(line for line in lines if found[1] in line.allocates)
    if _REDUCE.search(text):
        return _only(line for line in lines if line.reduces)
    called = {word.rstrip("f").removeprefix("h").removeprefix("__") for word in words} & _MATH
    return _only(line for line in lines if line.math & called) if called else None


def _only(found: Any) -> int | None:
    """The number of the one line that was found; None for several, since nothing tells which."""
    numbers = [line.number for line in found]
    return numbers[0] if len(numbers) == 1 else None


def _decorated(node: ast.FunctionDef, name: str) -> bool:
    return any(isinstance(each, ast.Attribute) and each.attr == name for each in node.decorator_list)


def _note(node: ast.AST, lines: list[Line]) -> None:
    """What one node of the program does, entered at its line."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        line, called = lines[node.lineno - 1], node.func.attr
        if called in ("copy", "dual_copy"):
            line.copies |= {
                each.id for argument in node.args for each in ast.walk(argument) if isinstance(each, ast.Name)
            }
        line.gemm |= called == "gemm"
        line.reduces |= called.startswith("reduce_")
        line.math |= {called} & _MATH
    elif isinstance(node, ast.For) and isinstance(node.target, ast.Name):
        lines[node.lineno - 1].loops.add(node.target.id)
    elif isinstance(node, ast.Assign):
        target = node.targets[0]
        if isinstance(target, ast.Name) and "alloc_" in lines[node.lineno - 1].text:
            lines[node.lineno - 1].allocates.add(target.id)
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            lines[node.lineno - 1].stores.add(target.value.id)
