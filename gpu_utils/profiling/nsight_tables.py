"""The database that nsys exports, as tables of which any may be missing and any column too.

Tables are made only when there is something in them, and their columns change with the version (NVIDIA, Nsight Systems:
exporter schema). So a column that is not there reads as None, and a table that is not there has no rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from gpu_utils.errors import ProfileUnreadable
from gpu_utils.profiling.files import Opened

_AGAIN = "export again: nsys export --type sqlite --force-overwrite true -o {stem}.sqlite {stem}.nsys-rep"


class Tables:
    """A database in memory: what is on the disk is not opened, so it is neither locked nor changed."""

    def __init__(self, found: Opened, database: sqlite3.Connection) -> None:
        self._database = database
        self.path = found.path
        self.names = [
            name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        ]

    def columns(self, table: str) -> list[str]:
        return [row[1] for row in self._database.execute(f"PRAGMA table_info({_quoted(table)})")]

    def rows(self, table: str, *wanted: str) -> Iterator[tuple[Any, ...]]:
        """The columns that were asked for, None for those that this version has not; nothing without the table."""
        if table in self.names:
            have = set(self.columns(table))
            chosen = ", ".join(_quoted(name) if name in have else "NULL" for name in wanted)
            yield from self._database.execute(f"SELECT {chosen} FROM {_quoted(table)}")

    def dicts(self, table: str) -> Iterator[dict[str, Any]]:
        """Rows with all columns of this version."""
        names = self.columns(table) if table in self.names else []
        for row in self.rows(table, *names):
            yield dict(zip(names, row, strict=True))

    def count(self, table: str) -> int:
        return self._database.execute(f"SELECT COUNT(*) FROM {_quoted(table)}").fetchone()[0]

    @cached_property
    def _strings(self) -> dict[int, str]:
        return dict(self.rows("StringIds", "id", "value"))

    def text(self, found: int | str | None) -> str | None:
        """A name: a number in the table of strings, or text as it stands in old exports."""
        if found is None or isinstance(found, str):
            return found
        return self._strings.get(found, f"<string {found} missing>")

    @cached_property
    def _gpus(self) -> dict[tuple[int | None, int], int]:
        """(process, CUDA's number of a GPU in it) -> nsys's number; process None: the same in all."""
        seen = list(self.rows("TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId"))
        everywhere = {(None, cuda): gpu for _, cuda, gpu in seen}
        everywhere |= {
            (None, cuda): gpu for cuda, gpu in self.rows("TARGET_INFO_GPU", "cuDevice", "id") if cuda is not None
        }
        return everywhere | {(process, cuda): gpu for process, cuda, gpu in seen}

    def gpu(self, process: int | None, number: int | None) -> str:
        """The GPU that a process calls by this number: programs may see some of the GPUs only, and count these."""
        if number is None:
            return ""
        return str(self._gpus.get((process, number), self._gpus.get((None, number), number)))

    def labels(self, table: str) -> dict[int, str]:
        """A table of an enumeration: number -> what people call it."""
        return {number: label or name for number, label, name in self.rows(table, "id", "label", "name")}


@contextmanager
def tables(found: Opened) -> Iterator[Tables]:
    """The tables of a file. Raises ProfileUnreadable, one sentence: no database, cut short, damaged."""
    again = _AGAIN.format(stem=Path(found.path).stem)
    if not found.is_database:
        raise ProfileUnreadable(found.path, f"is no sqlite database, whatever its name says; {again}")
    size, pages = int.from_bytes(found.data[16:18], "big"), int.from_bytes(found.data[28:32], "big")
    whole = (65536 if size == 1 else size) * pages
    if len(found.data) < whole and found.data[24:28] == found.data[92:96]:
        raise ProfileUnreadable(
            found.path, f"is cut short: {len(found.data):,} of {whole:,} bytes; copy it again, or {again}"
        )
    wal = Path(f"{found.path}-wal")
    if wal.is_file() and wal.stat().st_size:
        found.remarks.append(
            f"{wal.name} lies beside it: the last rows are in there and were not read; close what wrote it"
        )
    data = found.data
    if data[18:20] != b"\x01\x01":  # a write-ahead log is asked for, which a database in memory has not
        data = data[:18] + b"\x01\x01" + data[20:]
    with closing(sqlite3.connect(":memory:")) as database:
        database.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
        try:
            database.deserialize(data)
            yield Tables(found, database)
        except sqlite3.Error as error:
            raise ProfileUnreadable(found.path, f"is damaged (sqlite says: {error}); {again}") from None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
