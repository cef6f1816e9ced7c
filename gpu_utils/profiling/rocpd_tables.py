"""The tables of a rocpd database as lists of rows, whatever universally unique id stands behind their names.

Schema: the rocpd schema files of rocprofiler-sdk. Views with the plain names lie on the tables and are not needed: a
copy without them reads as well. Merged files hold several ids; rows are told apart by `guid` and `id`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from gpu_utils.errors import ProfileUnreadable
from gpu_utils.profiling.files import Opened

NAMES = (
    *("metadata", "string", "info_node", "info_process", "info_thread", "info_agent", "info_queue", "info_stream"),
    *("info_pmc", "info_kernel_symbol", "event", "pmc_event", "region", "kernel_dispatch", "memory_copy"),
)

Row = Mapping[str, Any]
_NEWEST = 3  # major version of the schema


class Tables:
    """rows(name): rows of all tables of that name; by_id(name): (guid, id) -> row."""

    def __init__(self, found: Opened) -> None:
        self._found = found
        self._connection = sqlite3.connect(":memory:")
        data = bytearray(found.data)
        if data[18:20] == b"\x02\x02":  # written with a log beside it, which a copy in memory cannot have
            data[18:20] = b"\x01\x01"
        self._connection.deserialize(bytes(data))
        self._connection.row_factory = sqlite3.Row
        every = self._ask("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'rocpd\\_%' ESCAPE '\\'")
        self._places: dict[str, list[str]] = {name: [] for name in NAMES}
        for (table,) in every:
            fitting = [name for name in NAMES if table == f"rocpd_{name}" or table.startswith(f"rocpd_{name}_")]
            if fitting:
                self._places[max(fitting, key=len)].append(table)
        self.version = self._version()

    def _ask(self, query: str) -> list[sqlite3.Row]:
        try:
            return self._connection.execute(query).fetchall()
        except sqlite3.DatabaseError as error:
            data = self._found.data
            size = int.from_bytes(data[16:18], "big") or 1
            pages = int.from_bytes(data[28:32], "big")
            page = 65536 if size == 1 else size
            if len(data) < pages * page:
                what = f"is cut: {len(data):,} of {pages * page:,} bytes are there; copy it again, or profile again"
            else:
                what = f"is a damaged database ({error}); profile again, or with --output-format csv"
            raise ProfileUnreadable(self._found.path, what) from None

    def rows(self, name: str) -> list[Row]:
        """Rows with their columns by name; "guid" is there always."""
        found: list[Row] = []
        for table in self._places[name]:
            rest = table.removeprefix(f"rocpd_{name}")
            for row in self._ask(f'SELECT * FROM "{table}"'):
                columns = dict(zip(row.keys(), tuple(row), strict=True))
                found.append({**columns, "guid": columns.get("guid") or rest})
        return found

    def by_id(self, name: str) -> dict[tuple[str, Any], Row]:
        return {(row["guid"], row["id"]): row for row in self.rows(name)}

    def _version(self) -> str:
        """Of the schema; refuses what is newer than this reader."""
        told = {str(row.get("tag")): str(row.get("value")) for row in self.rows("metadata")}
        version = told.get("schema_version", "")
        major = version.partition(".")[0]
        packed = told.get("compression", "").lower() not in ("", "none", "0")
        if (major.isdigit() and int(major) > _NEWEST) or packed:
            what = f"version {version}" + (", compressed" if packed else "")
            raise ProfileUnreadable(
                self._found.path,
                f"is a rocpd database newer than this reader knows ({what}); use rocpd convert -i FILE -f csv",
            )
        return version
