"""Readings of ncu's tables with one mistake each, and the right one. Plain Python: they run wherever an answer runs."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from typing import Any

Rows = list[dict[str, Any]]
Lines = list[str]

THOUSANDS = {"Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
FACTORS = {
    **{"ns": 1, "nsecond": 1, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "second": 1e9, "s": 1e9},
    **THOUSANDS,
}
TWO_TO_THE_TEN = {"Kbyte": 2**10, "Mbyte": 2**20, "Gbyte": 2**30}
SHORT = ("us", "ms", "s")


def _table(text: str) -> Lines:
    """What begins with a quote."""
    return [line for line in text.splitlines() if line.startswith('"')]


def from_the_fourth(text: str) -> Lines:
    return [line for line in text.splitlines()[3:] if line.startswith('"')]


def without_prof_lines(text: str) -> Lines:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("==")]
    return lines[next((at for at, line in enumerate(lines) if line.startswith('"ID"')), len(lines)) :]


def all_lines(text: str) -> Lines:
    return text.splitlines()


def _commas(lines: Lines) -> list[dict[str, str]]:
    """Split at each comma, whatever is around it."""
    cells = [[cell.strip('"') for cell in line.split(",")] for line in lines]
    return [dict(zip(cells[0], row, strict=False)) for row in cells[1:]]


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def until_the_comma(text: str) -> float:
    return float(text.split(",")[0])


def _triple(text: str | None) -> list[int] | None:
    return [int(part) for part in text.strip("()").split(",")] if text else None


def reading(
    table: Callable[[str], Lines] = _table,
    cells: Callable[[Lines], Any] = lambda lines: list(csv.DictReader(lines)),
    number: Callable[[str], float] = _number,
    factors: Mapping[str, float] = FACTORS,
    key: Callable[[dict[str, str]], Any] = lambda row: (row["Process ID"], row["ID"]),
    missing: Any = None,
    first_unit: bool = False,
    wide_units: bool = True,
    units_row: bool = False,
    rules: bool = False,
    turned: bool = False,
) -> Callable[[str], Rows]:
    """An answer.

    table       the lines that are read; cells: rows of them; number: of the text of a value; factors: of units
    key         what tells kernels apart; missing: what stands for "n/a"; "left out" for nothing at all
    first_unit  the unit of a metric's first row is taken for all of its rows
    wide_units  False: the units of a wide table are not read; units_row: they come back as a kernel
    rules       rows of rules are metrics too; turned: grid and block change places
    """

    def read_ncu(text: str) -> Rows:
        rows = cells(table(text))
        if not rows:
            return []
        found: dict[Any, dict[str, Any]] = {}
        units: dict[str, str] = {}
        wide = "Metric Name" not in rows[0]
        if wide and not units_row:
            units, rows = (rows[0] if wide_units else {}), rows[1:]
        for row in rows:
            if key(row) not in found:
                found[key(row)] = {
                    "process": int(row["Process ID"]) if row["Process ID"] else None,
                    "id": int(row["ID"]) if row["ID"] else None,
                    "kernel": row["Kernel Name"],
                    "grid": _triple(row.get("Block Size" if turned else "Grid Size")),
                    "block": _triple(row.get("Grid Size" if turned else "Block Size")),
                    "metrics": {},
                }
            metrics = found[key(row)]["metrics"]
            values = {name: (value, units.get(name, "")) for name, value in row.items() if name and "__" in name}
            if not wide:
                name, unit = row["Metric Name"], row["Metric Unit"]
                unit = units.setdefault(name, unit) if first_unit else unit
                values = {name: (row["Metric Value"], unit)} if name or rules else {}
            for name, (value, unit) in values.items():
                try:
                    metrics[name] = number(value) * factors.get(unit, 1)
                except ValueError:
                    if missing != "left out":
                        metrics[name] = missing
        return list(found.values())

    return read_ncu


right = reading()
header_is_the_fourth_line = reading(table=from_the_fourth)
prof_lines_only = reading(table=without_prof_lines)
from_the_first_line = reading(table=all_lines)
split_at_commas = reading(cells=_commas)
number_until_the_comma = reading(number=until_the_comma)
no_units = reading(factors={})
bytes_only = reading(factors=THOUSANDS)
times_only = reading(factors={unit: factor for unit, factor in FACTORS.items() if unit not in THOUSANDS})
long_words_only = reading(factors={unit: factor for unit, factor in FACTORS.items() if unit not in SHORT})
two_to_the_ten = reading(factors=FACTORS | TWO_TO_THE_TEN)
missing_is_zero = reading(missing=0.0)
missing_is_left_out = reading(missing="left out")
by_name = reading(key=lambda row: row["Kernel Name"])
by_id_alone = reading(key=lambda row: row["ID"])
unit_of_the_first = reading(first_unit=True)
wide_without_units = reading(wide_units=False)
units_are_a_kernel = reading(units_row=True)
rules_are_metrics = reading(rules=True)
grid_and_block_turned = reading(turned=True)
