"""The lines of an output of ncu: tables, what ncu says between them, and what the program printed.

One file may hold several tables (outputs pasted together), each with its own header.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from gpu_utils.profiling.written import DELIMITERS, cells, lines_of

SAID = re.compile(r"^==(PROF|WARNING|ERROR)== *(.*)$")
_ORDINARY = re.compile(r"(Connected to|Disconnected from|Profiling |Attaching|Target process|Report:|Trace|Note:)")
_DIFFERS = re.compile(r"virtual GPU, not a device: (\S+): (.*)$")
_MOST_LINES = 40
"""Of one row: descriptions of rules hold line ends."""

CAUSES = (
    (
        "ERR_NVGPUCTRPERM",
        "ncu had no permission to read the counters of the GPU (ERR_NVGPUCTRPERM): run it as root, or let the driver "
        "allow it with the module option NVreg_RestrictProfilingToAdminUsers=0; nsys and torch.profiler need neither",
    ),
    (
        "driver resource was unavailable",
        "another tool held the counters of the GPU: end it (DCGM, a second profiler) and profile again",
    ),
    (
        "--target-processes all",
        "the kernels ran in a child process: profile again with --target-processes all",
    ),
    (
        "returned an error code",
        "the program failed: run it without ncu until it ends well, then profile again",
    ),
    (
        "No kernels were profiled",
        "no kernel was profiled: look first at the name filter (-k takes the base name, or regex:...), then at "
        "whether the program launches any",
    ),
)
"""What ncu prints -> what it means for a file without a table. The first that fits is the cause."""


@dataclass
class Table:
    """One table. names: its header; rows: cells of each row, as many as `names`; units: of the wide form, or None."""

    names: list[str]
    delimiter: str
    rows: list[list[str]] = field(default_factory=list)
    units: list[str] | None = None

    @property
    def long(self) -> bool:
        return "Metric Name" in self.names

    def has(self, row: list[str], name: str) -> str:
        """A cell by the name of its column; "" where there is no such column."""
        return row[self.names.index(name)].strip() if name in self.names else ""


@dataclass
class Lines:
    """tables; said: (kind, sentence) of ncu; outside: lines that are in no table; rules: rows of advice; cut: whether
    the last row is cut short."""

    tables: list[Table] = field(default_factory=list)
    said: list[tuple[str, str]] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    rules: int = 0
    cut: bool = False

    @property
    def cause(self) -> str | None:
        """Why there is no table, as ncu says it."""
        text = "\n".join(sentence for _, sentence in self.said)
        return next((why for words, why in CAUSES if words in text), None)

    @property
    def notable(self) -> list[str]:
        """What ncu says that a reader of the table should know, each once."""
        kept: dict[str, list[str]] = {}
        for kind, sentence in self.said:
            if differs := _DIFFERS.match(sentence):
                kept.setdefault(f"virtual GPU, not a device: {differs[2]}", []).append(differs[1])
            elif sentence and not (kind == "PROF" and _ORDINARY.match(sentence)):
                kept.setdefault(sentence if kind == "PROF" else f"ncu says: {sentence}", [])
        return [f"{sentence} ({_some(names)})" if names else sentence for sentence, names in kept.items()]


def _some(names: list[str]) -> str:
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def header(line: str) -> tuple[list[str], str] | None:
    """The names and the delimiter, when this line is the header of a table of launches."""
    if "Kernel Name" not in line:
        return None
    for delimiter in DELIMITERS:
        names = [name.strip() for name in cells(line, delimiter) or ()]
        if "ID" in names and "Kernel Name" in names:
            return names, delimiter
    return None


def parse(text: str) -> Lines:
    """Sort the lines of a text."""
    found, lines = Lines(), lines_of(text)
    at = 0
    while at < len(lines):
        line, at = lines[at], at + 1
        if not line.strip():
            continue
        if said := SAID.match(line):
            found.said.append((said[1], said[2].strip()))
        elif names := header(line):
            found.tables.append(Table(*names))
        elif not found.tables:
            found.outside.append(line)
        else:
            at += _row(found, lines, at - 1)
    return found


def _row(found: Lines, lines: list[str], at: int) -> int:
    """Put the line at `at` where it belongs; how many of the next lines went with it."""
    table, line = found.tables[-1], lines[at]
    row, more = cells(line, table.delimiter), 0
    if row is None and re.match(r'"?\d*"?[,;\t]', line):
        for end in range(at + 2, min(at + _MOST_LINES, len(lines)) + 1):
            row = cells("\n".join(lines[at:end]), table.delimiter)
            if row is not None and _place(table, row):
                more = end - at - 1
                break
            row = None
    place = _place(table, row) if row is not None else ""
    if row is not None and place:
        row = [*row, *[""] * (len(table.names) - len(row))][: len(table.names)]
        if place == "units":
            table.units = row
        elif place == "rule":
            found.rules += 1
        else:
            table.rows.append(row)
    elif not any(rest.strip() for rest in lines[at + 1 :]) and re.match(r'"?\d+"?[,;\t]', line):
        found.cut = True
    else:
        found.outside.append(line)
    return more


def _place(table: Table, row: list[str]) -> str:
    """ "row", "units", "rule", or "" for what is none of this table."""
    names = table.names
    if len(row) == len(names) + 1 and not row[-1]:
        row = row[:-1]
    if len(row) > len(names) or len(row) < 3:
        return ""
    if not table.long:
        if len(row) != len(names):
            return ""
        empty = not row[names.index("ID")].strip() and not row[names.index("Kernel Name")].strip()
        return "units" if empty and table.units is None and not table.rows else "row" * row[names.index("ID")].isdigit()
    if not row[names.index("ID")].strip().isdigit():
        return ""
    metric, value = names.index("Metric Name"), names.index("Metric Value") if "Metric Value" in names else len(names)
    if "Rule Name" in names and len(row) > metric and not row[metric].strip():
        return "rule"
    if "Rule Name" not in names and len(row) == len(names) and not row[metric].strip():
        return "rule"
    return "row" if len(row) > value else ""
