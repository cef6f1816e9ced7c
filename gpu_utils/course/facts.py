"""Figures in the text of the course: fact boxes with their sources, and figures of chips that stand outside of one.

A fact box is a block quote in a markdown cell of a lesson:

    > **Facts: what a CU holds**
    >
    > - A block may have 64 KiB of LDS on MI300X. (source: Triton's AMD TargetInfo)
    > - LLVM gives a kernel of 68 registers 7 waves. (measured: clang 22 of ziglang 0.17.0, the cell below)

Its first line is bold and starts with `Facts: ` or `Claim and fact: `. Every item that holds a number ends with
`(source: a title or link)` or `(measured: with which versions, or in which cell)`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpu_utils.chips import CHIPS
from gpu_utils.course.cells import Cell, parse_cells
from gpu_utils.course.paths import Course
from gpu_utils.course.units import Unit


@dataclass(frozen=True)
class Item:
    """One sentence of a fact box.

    text   without its source; kind: "source", "measured", or "" when the item names neither
    origin what stands behind the colon; line: of the content file
    """

    text: str
    kind: str
    origin: str
    line: int


@dataclass(frozen=True)
class Box:
    """One fact box: its title as printed, the title of its cell, its items."""

    title: str
    cell: str
    items: tuple[Item, ...]
    line: int


_TITLE = re.compile(r"> \*\*((?:Facts|Claim and fact): .+?)\*\*$")
_LOOKS_LIKE_ONE = re.compile(r">[ #*]*(?:Facts?|Claim and fact)\b")
_ORIGIN = re.compile(r"\((source|measured): ?")


def boxes(cells: list[Cell]) -> list[Box]:
    """The fact boxes of a lesson, in order."""
    found = []
    for cell in cells:
        lines = cell.source.split("\n") if cell.kind == "markdown" else []
        for at, line in enumerate(lines):
            if title := _TITLE.match(line):
                items = tuple(_items(lines[at + 1 :], cell.first + at + 1))
                found.append(Box(title[1], cell.title, items, cell.first + at))
    return found


def _items(lines: list[str], first: int) -> Iterator[Item]:
    parts: list[str] = []
    start = first
    for number, line in enumerate([*lines, ""], first):
        inside = line.startswith(">")
        body = line.removeprefix(">").strip() if inside else ""
        if body.startswith("- ") or not body:
            if parts:
                yield _item(" ".join(parts), start)
            parts, start = ([body[2:]] if body else []), number
        elif parts:
            parts.append(body)
        else:
            yield Item(body, "", "", number)  # text of the box that is no list item
        if not inside:
            return


def _item(text: str, line: int) -> Item:
    """Split `sentence (source: origin)`; the bracket that opens last and closes at the end counts."""
    for found in reversed(list(_ORIGIN.finditer(text))):
        rest = text[found.end() :].rstrip(". ")
        if rest.endswith(")") and _balanced(rest[:-1]):
            return Item(text[: found.start()].strip(), found[1], rest[:-1].strip(), line)
    return Item(text, "", "", line)


def _balanced(text: str) -> bool:
    depth = 0
    for sign in text:
        depth += (sign == "(") - (sign == ")")
        if depth < 0:
            return False
    return depth == 0


def is_origin(kind: str, origin: str) -> bool:
    """Whether a reader can find it: a source of more than one word or a link; a measurement with versions or a cell.

    >>> [is_origin("source", word) for word in ("LLVM", "one die", "LLVM AMDGPUBaseInfo.cpp", "rocm.docs.amd.com/x")]
    [False, False, True, True]
    >>> is_origin("measured", "by us"), is_origin("measured", "the cell above"), is_origin("measured", "clang 22")
    (False, True, True)
    """
    if kind == "measured":
        return bool(re.search(r"\d|\bcells?\b", origin))
    named = len(origin.split()) > 1 and re.search(r"[A-Z\d./]", origin)
    return bool(named or re.search(r"[\w-]+\.\w+/\S", origin))


# Figures outside of boxes

_UNITS = {
    "TB/s": "TB/s",
    "GB/s": "GB/s",
    "TFLOP/s": "TFLOP/s",
    "TFLOPS": "TFLOP/s",
    "PFLOP/s": "PFLOP/s",
    "KiB": "KB",
    "KB": "KB",
    "MiB": "MB",
    "MB": "MB",
    "GiB": "GB",
    "GB": "GB",
    "SMs": "units",
    "CUs": "units",
    "XCDs": "dies",
}
_FIGURE = re.compile(rf"(\d[\d,]*(?:\.\d+)?)[ -]?({'|'.join(map(re.escape, _UNITS))})(?![\w/])")
_DEVICE = re.compile(r"(?<=[ -])\d+GB\b")
_NUMBER = re.compile(r"(?<![\w.-])\d[\d,]*(?:\.\d+)?")  # GPT-2 and V3 are names
_COUNTS = ("units", "dies")
NEAR = 24
_PRODUCTS = sorted({*CHIPS, "MI250", "MI300A", "RTX", "Radeon", "Instinct", "910B", "910C"}, key=len, reverse=True)
_HARDWARE = re.compile(
    rf"\b(?:{'|'.join(map(re.escape, _PRODUCTS))}|gfx\d\w+|sm_\d+|LDS|HBM\w*|L2|Infinity (?:Cache|Fabric)|NVLink"
    r"|CDNA\d?|RDNA\d?|Ampere|Hopper|Blackwell|Ada|AMD targets|NVIDIA targets)\b"
)
_CODE = re.compile(r"`([^`]*)`")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n\s*\n|\n\s*[-*|]|\|")


@dataclass(frozen=True)
class Stray:
    """A figure of a chip in running text: number and unit as written, the sentence, the line of its cell."""

    figure: str
    value: tuple[float, str]
    sentence: str
    line: int


def strays(cells: list[Cell]) -> list[Stray]:
    """Figures of chips in markdown outside of fact boxes and in strings of code cells.

    SMs, CUs and XCDs count always; a rate when its sentence names a chip, a target or a memory of one; bytes when such
    a name stands within NEAR characters, because the bytes of a tile or a model are nobody's figure. A paragraph that
    names its own `(source: ...)` or `(measured: ...)` is left alone, and so are code between backticks and the names
    of devices ("H100 80GB HBM3").
    """
    found = []
    for cell in cells:
        for text, line in _running_text(cell):
            for sentence in _SENTENCE.split(text):
                plain = _CODE.sub(
                    lambda code: code[1] if _HARDWARE.fullmatch(code[1]) else "", _DEVICE.sub("", sentence)
                )
                names = list(_HARDWARE.finditer(plain))
                for figure in _FIGURE.finditer(plain):
                    unit = _UNITS[figure[2]]
                    near = any(max(n.start() - figure.end(), figure.start() - n.end()) <= NEAR for n in names)
                    if unit in _COUNTS or (names if unit.endswith("/s") else near):
                        value = (_value(figure[1]), unit)
                        found.append(Stray(f"{figure[1]} {figure[2]}", value, " ".join(plain.split()), line))
    return found


def bare_figure(text: str) -> bool:
    """Whether a text holds a figure of a chip and no `(source: ...)`.

    >>> bare_figure("links of 50 GB/s"), bare_figure("links of 50 GB/s (source: a data sheet)"), bare_figure("8 GPUs")
    (True, False, False)
    """
    return bool(_FIGURE.search(text)) and not _ORIGIN.search(text)


def _running_text(cell: Cell) -> Iterator[tuple[str, int]]:
    if cell.kind == "code":
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value, cell.first + node.lineno - 1
        return
    paragraph: list[str] = []
    in_box, start = False, cell.first
    for number, line in enumerate([*cell.source.split("\n"), ""], cell.first):
        in_box = line.startswith(">") and (in_box or bool(_TITLE.match(line)))
        if line.strip(" >") and not in_box:
            start = start if paragraph else number
            paragraph.append(line.lstrip("> "))
        elif paragraph:
            text = "\n".join(paragraph)
            if not _ORIGIN.search(text):
                yield text, start
            paragraph = []


def _value(number: str) -> float:
    return float(number.replace(",", ""))


def sourced(box: Box) -> set[tuple[float, str]]:
    """The figures that a box gives a source for: each number of an item with each unit of that item."""
    found = set()
    for item in box.items:
        plain = _CODE.sub("", item.text)
        units = {_UNITS[unit] for _, unit in _FIGURE.findall(plain)}
        numbers = [*_NUMBER.findall(plain), *(number for number, _ in _FIGURE.findall(plain))]
        found |= {(_value(number), unit) for number in numbers for unit in units}
    return found


def problems(course: Course, unit: Unit) -> list[str]:
    """What is wrong with the figures of one unit, each as `file:line: sentence`; an empty list when nothing is.

    Read are its lesson, its lab, and the strings of its exercises: cases, hints, explanations.

    Errors: ContentError for a file that cannot be read as cells.
    """
    found: list[str] = []
    known: set[tuple[float, str]] = set()
    paths = [path for part in ("lesson", "lab") if (path := course.source(unit, part)).is_file()]
    cells = {course.relative(path): parse_cells(path.read_text(encoding="utf-8"), path.name) for path in paths}
    lesson = course.relative(course.source(unit, "lesson"))
    for box in boxes(cells.get(lesson, [])):
        known |= sourced(box)
        if not box.items:
            found.append(f"{lesson}:{box.line}: the box has no items; write them as a list in the block quote")
        for item in box.items:
            if item.kind and not is_origin(item.kind, item.origin):
                wish = "a title or link" if item.kind == "source" else "versions or the cell"
                found.append(f"{lesson}:{item.line}: ({item.kind}: {item.origin}) does not say where; name {wish}")
            elif not item.kind and _NUMBER.search(item.text):
                found.append(
                    f"{lesson}:{item.line}: `{item.text[:60]}` holds a figure and no source; end it with "
                    "(source: title or link) or (measured: versions or cell)"
                )
    for path in sorted((course.root / "gpu_utils" / "exercises" / f"u{unit.name}").glob("*.py")):
        cells[course.relative(path)] = [Cell("code", "", (), path.read_text(encoding="utf-8"), 1, 1)]
    for where, parsed in cells.items():
        found += _unread_boxes(where, parsed)
        for stray in strays(parsed):
            if stray.value not in known:
                found.append(
                    f"{where}:{stray.line}: {stray.figure} in `{stray.sentence[:80]}` has no source; put it into a "
                    "fact box of the lesson, print it from the registry in a cell, or end with (source: ...)"
                )
    return found


def _unread_boxes(path: str, cells: list[Cell]) -> Iterator[str]:
    for cell in cells:
        for at, line in enumerate(cell.source.split("\n") if cell.kind == "markdown" else []):
            if _LOOKS_LIKE_ONE.match(line) and not _TITLE.match(line):
                yield (
                    f"{path}:{cell.first + at}: a fact box starts with `> **Facts: title**` or "
                    f"`> **Claim and fact: title**` on a line of its own; found `{line[:60]}`"
                )
