"""Several csv reports in one text, between other lines: each with its header, whose columns carry their units."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from gpu_utils.profiling.files import Opened

UNITS = {
    **{"ns": (1.0, "ns"), "nsec": (1.0, "ns"), "us": (1e3, "ns"), "usec": (1e3, "ns"), "μs": (1e3, "ns")},
    **{"ms": (1e6, "ns"), "msec": (1e6, "ns"), "s": (1e9, "ns"), "sec": (1e9, "ns"), "%": (1.0, "%")},
    **{"B": (1.0, "bytes"), "KB": (1e3, "bytes"), "MB": (1e6, "bytes"), "GB": (1e9, "bytes")},
    **{"MB/s": (1.0, "MB/s"), "MBps": (1.0, "MB/s"), "GB/s": (1.0, "GB/s")},
}
"""Unit in a header -> factor to this library's unit, and that."""

_COLUMN = re.compile(r"^(.*?)\s*\(([^()]*)\)$")
_SAID = re.compile(r"^\s*(Processing \[|Generating |NOTICE:|SKIPPED:|Exporting |Importer |\*\* )")
_REPORT = re.compile(r"^Processing \[.*\] with \[(?:.*[/\\])?(\w+)\.py")


@dataclass
class Sheet:
    """A report. name: as nsys calls it, "" where the text does not say; labels: of the columns, without units."""

    name: str
    labels: list[str]
    scales: list[tuple[float, str]]
    rows: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.places = {label.lower(): place for place, label in reversed(list(enumerate(self.labels)))}

    def has(self, *labels: str) -> bool:
        return all(label in self.places for label in labels)

    def has_any(self, *labels: str) -> bool:
        return any(label in self.places for label in labels)

    def unit(self, label: str) -> str:
        place = self.places.get(label.lower())
        return "" if place is None else self.scales[place][1]


@dataclass
class Row:
    """A row of a report; a column that is not there, or an empty cell, is "" or None."""

    sheet: Sheet
    cells: list[str]

    def text(self, label: str) -> str:
        place = self.sheet.places.get(label.lower())
        return "" if place is None else self.cells[place].strip()

    def value(self, label: str) -> float | str | None:
        """In the unit of this library; a text where it is no number."""
        text = self.text(label)
        number = _number(text)
        if number is None:
            return text or None
        factor = self.sheet.scales[self.sheet.places[label.lower()]][0]
        return number if factor == 1 else number * factor

    def number(self, label: str) -> float | None:
        value = self.value(label)
        return None if isinstance(value, str) else value

    def whole(self, *labels: str) -> int | None:
        """The first of these columns that is there."""
        found = next((value for label in labels if (value := self.number(label)) is not None), None)
        return None if found is None else round(found)

    def size(self, *labels: str) -> tuple[int, ...] | None:
        """Three numbers, in three columns or in one."""
        numbers = [int(part) for label in labels for part in re.findall(r"\d+", self.text(label))]
        return tuple(numbers) if len(numbers) == 3 else None


def _number(text: str) -> float | None:
    text = text.replace(",", "")
    if text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    try:
        value = float(text)
    except ValueError:
        return None
    if value != value or value in (float("inf"), float("-inf")):
        return None
    return value


def _cells(line: str, delimiter: str) -> list[str] | None:
    """None where a quote is not closed: the line was cut."""
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return None


def _header(line: str) -> tuple[str, list[str]] | None:
    """Delimiter and cells of a line in which at least two columns carry a unit that is known."""
    for delimiter in (",", "\t", ";"):
        cells = _cells(line, delimiter) or []
        matches = [_COLUMN.match(cell.strip()) for cell in cells]
        if sum(found is not None and found.group(2) in UNITS for found in matches) >= 2:
            return delimiter, cells
    return None


def is_header(line: str) -> bool:
    """Whether a line is the header of a report.

    >>> is_header("Time(%),Total Time (ns),Instances,Name"), is_header('"Name","Calls","TotalDurationNs"')
    (True, False)
    """
    return "(" in line and _header(line) is not None


def sheets(found: Opened) -> Iterator[Sheet]:
    """The reports of a text. Lines that are no row of a report are counted in `found.remarks`."""
    sheet, delimiter, name, short = None, ",", "", 0
    for line in found.text.splitlines():
        report = _REPORT.match(line)
        if report:
            name = report.group(1)
        if not line.strip() or _SAID.match(line):
            continue
        header = _header(line) if "(" in line else None
        if header is not None:
            if sheet is not None:
                yield sheet
            delimiter, cells = header
            matches = [_COLUMN.match(cell.strip()) for cell in cells]
            labels = [match.group(1) if match else cell.strip() for match, cell in zip(matches, cells, strict=True)]
            units = [match.group(2) if match else "" for match in matches]
            sheet = Sheet(name, _named(labels), [UNITS.get(unit, (1.0, unit)) for unit in units])
            name = ""
        elif sheet is not None:
            row = _row(sheet, line, delimiter)
            short += row is None
            sheet.rows += [row] if row is not None else []
    if sheet is not None:
        yield sheet
    if short:
        found.remarks.append(f"{short:,} lines are no whole rows (cut, or of something else) and were left out")


_SPELLINGS = {"average": "Avg", "minimum": "Min", "maximum": "Max", "median": "Med", "stdev": "StdDev"}


def _named(labels: list[str]) -> list[str]:
    """Old spellings as the present ones."""
    return [_SPELLINGS.get(label.lower(), label) for label in labels]


def _row(sheet: Sheet, line: str, delimiter: str) -> Row | None:
    cells = _cells(line, delimiter)
    if cells is None or len(cells) < len(sheet.labels):
        return None
    last = len(sheet.labels) - 1  # a name that is not quoted, with commas in it
    return Row(sheet, [*cells[:last], delimiter.join(cells[last:])])
