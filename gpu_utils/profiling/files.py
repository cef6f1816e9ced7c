"""A file as text or as a database, whatever its name says: by its first bytes."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from gpu_utils.errors import ProfileUnreadable

SQLITE = b"SQLite format 3\x00"
_GZIP = b"\x1f\x8b"
_BOMS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


@dataclass
class Opened:
    """The content of a file.

    path     as it was given; data: its bytes, unpacked
    remarks  what was odd on the way: cut short, another encoding. A reader adds its own.
    """

    path: str
    data: bytes
    remarks: list[str] = field(default_factory=list)

    @property
    def is_database(self) -> bool:
        return self.data.startswith(SQLITE)

    @property
    def text(self) -> str:
        """Decoded; bytes that are not of the encoding become U+FFFD, with a remark."""
        encoding = next((name for bom, name in _BOMS if self.data.startswith(bom)), "utf-8")
        try:
            return self.data.decode(encoding)
        except UnicodeDecodeError:
            said = f"some bytes are no {encoding} and read as \N{REPLACEMENT CHARACTER}"
            if said not in self.remarks:
                self.remarks.append(said)
            return self.data.decode(encoding, errors="replace")


def opened(path: str | Path) -> Opened:
    """The content of a file, unpacked when it is gzip.

    Raises ProfileUnreadable, one sentence: no such file, a folder, empty, or packed and damaged from the start.
    """
    place = Path(path)
    if place.is_dir():
        raise ProfileUnreadable(path, "is a folder; name its files, for example with *.csv")
    try:
        data = place.read_bytes()
    except FileNotFoundError:
        raise ProfileUnreadable(path, "is not there; look at its name, and at what the profiler printed") from None
    except OSError as error:
        raise ProfileUnreadable(path, f"cannot be read: {error.strerror}") from None
    found = Opened(str(path), data)
    if data.startswith(_GZIP):
        found.data = _unpacked(data, found)
    if not found.data.strip():
        raise ProfileUnreadable(path, "is empty: the profiler did not finish, or the disk is full; profile again")
    return found


def _unpacked(data: bytes, found: Opened) -> bytes:
    try:
        return gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        stream = zlib.decompressobj(wbits=31)
        try:
            whole = stream.decompress(data)
        except zlib.error:
            whole = b""
        if not whole:
            raise ProfileUnreadable(found.path, "is packed (gzip) and damaged; profile again") from None
        found.remarks.append("the packed file is cut short: what came out of it was read")
        return whole
