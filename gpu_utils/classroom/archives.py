"""Every file below a folder or an archive, one after the other, whoever made it and with whatever intent.

Nothing is written to disk, and nothing is trusted: neither a declared size, nor a name, nor a link. Zips are read
within zips. What cannot be read is a file with its reason, and the next one follows: no limit is shared by what
different students handed in.

| What a hostile archive tries | What happens |
|---|---|
| names with `..`, absolute names, drives | the file is named, and not read |
| symbolic links, in archives and in folders | the link is named, and not followed |
| zip bombs | a member is read up to its limit and to RATIO times its packed size; members may not overlap |
| thousands of members, a huge directory | MAX_FILES, MAX_NESTED_FILES and MAX_DIRECTORY_BYTES |
| zips in zips in zips | MAX_DEPTH |
| encrypted, or packed by a method whose output has no bound (bzip2, lzma) | named, and not read |
| other archives: tar, 7z, rar | named, and not read |
"""

from __future__ import annotations

import io
import os
import stat
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from gpu_utils.grading.notebook import MAX_BYTES, too_large

MAX_DEPTH = 3
MAX_NAMES = 30
MAX_FILES = 20_000
MAX_NESTED_FILES = 2_000
MAX_FILES_BELOW = 500_000
"""Of an archive on disk; of one within it and all that is deeper; of an archive on disk and all that is deeper."""
MAX_ARCHIVE_BYTES = 100_000_000
MAX_DIRECTORY_BYTES = 4_000_000
RATIO, SLACK = 200, 1_000_000
"""A member of n packed bytes may unpack to RATIO * n + SLACK: a notebook shrinks to a fifth, a bomb to a thousandth."""

_CHUNK = 1 << 20
_ENCRYPTED = 0x1
OUTSIDE = "(outside)"
"""Stands in a trail for all the folders of a member whose name leads out of its archive."""
NOTHING = "(nothing)"
"""Stands for the files of an empty folder."""
_LEADS_OUT = "has a name that leads out of its archive; it is not read"
_UNREAD = (".tar", ".gz", ".tgz", ".bz2", ".tbz", ".xz", ".txz", ".zst", ".7z", ".rar")
_OF_SYSTEMS = {"__macosx", "thumbs.db", "desktop.ini", "__pycache__", "node_modules"}


@dataclass(frozen=True)
class File:
    """A file, where it is and what can be told without reading it.

    trail     the names of folders and archives on the way from the place, which is the first, and its own
    on_disk   the file on disk that it is or lies in
    members   its number among the members of each archive on the way; () on disk
    size      bytes, as declared
    times     when the file on disk was changed, then the member of each archive on the way: (number of its name in the
              trail, time or None)
    problem   why it was not read, one sentence; "" when it was, or when nobody asked for its content
    """

    trail: tuple[str, ...]
    on_disk: Path
    members: tuple[int, ...] = ()
    size: int = 0
    times: tuple[tuple[int, datetime | None], ...] = ()
    problem: str = ""

    @property
    def name(self) -> str:
        return self.trail[-1]

    @property
    def source(self) -> str:
        """For the log: "class.zip::student-001/00_start.ipynb"."""
        archives = {at for at, _ in self.times[:-1]}
        parts = (name + ("::" if at in archives else "/") for at, name in enumerate(self.trail[:-1]))
        return "".join(parts) + self.name

    def time(self, at: int) -> datetime | None:
        """When the name number `at` of the trail, or the first file below it, was changed, as what holds it says."""
        return next((when for number, when in self.times if number >= at), None)


class TooMuch(Exception):
    """An archive holds more than may be read of one; the message is the rest of a sentence about it."""


@dataclass
class _Limit:
    """How many files may still come out of an archive and of all within it."""

    files: int

    def count(self) -> None:
        self.files -= 1
        if self.files < 0:
            raise TooMuch("holds more files than a class needs")


Wanted = Callable[[str], bool]


def files_below(place: Path, wanted: Wanted) -> Iterator[tuple[File, bytes]]:
    """Every file of a folder, of an archive, or the file itself, with its content where `wanted` says so of its name.

    At most one content is held at a time. Files of the system's own (`is_of_systems`) are yielded without content.
    """
    place = place.resolve()
    yield from _on_disk(place, (printable(place.name),), wanted)


class Contents:
    """Reads again what `files_below` has yielded. The archive on disk that was last asked for stays open."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._stream: IO[bytes] = io.BytesIO()
        self._archive: zipfile.ZipFile | None = None

    def of(self, file: File) -> bytes:
        """The content of a file that was yielded with its content; b"" when it has gone since."""
        try:
            if not file.members:
                with open(file.on_disk, "rb") as stream:
                    return stream.read(file.size)
            at = self._opened(file.on_disk)
            for number in file.members[:-1]:
                at = _opened(io.BytesIO(_unpacked(at, number, MAX_ARCHIVE_BYTES)))
            return _unpacked(at, file.members[-1], MAX_BYTES)
        except Exception:  # it was read a moment ago: somebody changes the file
            return b""

    def close(self) -> None:
        self._stream.close()
        self._path = self._archive = None

    def _opened(self, path: Path) -> zipfile.ZipFile:
        if self._archive is None or path != self._path:
            self.close()
            self._stream = open(path, "rb")  # noqa: SIM115  # closed by close
            self._archive, self._path = _opened(self._stream), path
        return self._archive


def is_of_systems(file: File) -> bool:
    """Whether it is a file that a system, an editor or a tool left: hidden, a copy for checkpoints, a cache."""
    return any(name.startswith((".", "~$")) or name.casefold() in _OF_SYSTEMS for name in file.trail[1:])


def is_archive(name: str) -> bool:
    """Whether a file's name is that of an archive, of a kind that is read or not."""
    return name.lower().endswith((".zip", *_UNREAD))


def printable(name: str) -> str:
    """A name on disk as text that can be stored: bytes that are no UTF-8 are written as escapes.

    >>> printable("caf\\udce9")
    'caf\\\\xe9'
    """
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


# --- folders ---


def _on_disk(path: Path, trail: tuple[str, ...], wanted: Wanted) -> Iterator[tuple[File, bytes]]:
    file = File(trail, path)
    try:
        found = path.lstat()
        kind = found.st_mode
        when = datetime.fromtimestamp(found.st_mtime, tz=UTC)
        file = replace(file, size=found.st_size, times=((len(trail) - 1, when),))
        names = sorted(os.listdir(path)) if stat.S_ISDIR(kind) else []
    except (OSError, ValueError, OverflowError) as error:
        yield replace(file, problem=f"{file.source} cannot be read: {getattr(error, 'strerror', None) or error}"), b""
        return
    if stat.S_ISLNK(kind):
        yield replace(file, problem=f"{file.source} is a link, which is not followed; put the file itself there"), b""
    elif stat.S_ISDIR(kind) and len(trail) > MAX_NAMES:
        yield replace(file, problem=f"{file.source} lies in more than {MAX_NAMES} folders"), b""
    elif stat.S_ISDIR(kind):
        if not names:
            yield replace(file, trail=(*trail, NOTHING)), b""
        for name in names:
            yield from _on_disk(path / name, (*trail, printable(name)), wanted)
    elif not stat.S_ISREG(kind):
        yield replace(file, problem=f"{file.source} is not a regular file"), b""
    elif is_archive(file.name) and not is_of_systems(file):
        yield from _archive_on_disk(file, wanted)
    elif wanted(file.name) and not is_of_systems(file):
        yield _read_on_disk(file)
    else:
        yield file, b""


def _read_on_disk(file: File) -> tuple[File, bytes]:
    if file.size > MAX_BYTES:
        return replace(file, problem=too_large(file.source, file.size)), b""
    try:
        with open(file.on_disk, "rb") as stream:
            return file, stream.read(file.size)  # asked for more, it would make room for more
    except OSError as error:
        return replace(file, problem=f"{file.source} cannot be read: {error.strerror}"), b""


# --- archives ---


def _archive_on_disk(file: File, wanted: Wanted) -> Iterator[tuple[File, bytes]]:
    try:
        with open(file.on_disk, "rb") as stream:
            yield from _archive(file, stream, wanted, _Limit(MAX_FILES_BELOW))
    except OSError as error:
        yield replace(file, problem=f"{file.source} cannot be read: {error.strerror}"), b""


def _archive(file: File, stream: IO[bytes], wanted: Wanted, limit: _Limit) -> Iterator[tuple[File, bytes]]:
    """The files of an archive; or the archive itself, with what is wrong with it, after what could be read."""
    if problem := _refused(file):
        yield replace(file, problem=problem), b""
        return
    try:
        archive = _opened(stream)
        infos = archive.infolist()
        if len(infos) > MAX_FILES:
            raise TooMuch(f"holds {len(infos):,} files, more than {MAX_FILES:,}")
        if sum(info.compress_size for info in infos) > stream.seek(0, os.SEEK_END):
            raise TooMuch("has members that overlap or are longer than itself")
        for number, info in enumerate(infos):
            limit.count()
            if not info.is_dir():
                yield from _inside(file, archive, number, wanted, limit)
    except TooMuch as error:
        yield replace(file, problem=f"{file.source} {error}; hand in the notebook alone"), b""
    except Exception as error:  # of any kind: zipfile lets errors of many modules through for bytes made to upset it
        yield replace(file, problem=f"{file.source} is no zip archive that can be read ({_in_short(error)})"), b""


def _refused(file: File) -> str:
    if file.name.lower().endswith(_UNREAD):
        return f"{file.source} is an archive of a kind that is not read; hand in the notebook itself, or a zip"
    if len(file.members) >= MAX_DEPTH:
        return f"{file.source} is an archive in {MAX_DEPTH} others, deeper than is read; hand in the notebook itself"
    return ""


def _inside(
    file: File, archive: zipfile.ZipFile, number: int, wanted: Wanted, limit: _Limit
) -> Iterator[tuple[File, bytes]]:
    info = archive.infolist()[number]
    names = info.filename.replace("\\", "/").split("/")
    problem = _unsafe(info, names)
    kept = [OUTSIDE, names[-1]] if problem == _LEADS_OUT else [name for name in names if name not in ("", ".")]
    trail = (*file.trail, *map(printable, kept[:MAX_NAMES]))
    times = (*file.times, (len(trail) - 1, _time(info)))
    member = File(trail, file.on_disk, (*file.members, number), info.file_size, times)
    if problem:
        yield replace(member, problem=f"{member.source} {problem}"), b""
    elif is_of_systems(member):
        yield member, b""
    elif is_archive(member.name):
        yield from _nested(member, archive, wanted, limit)
    elif wanted(member.name):
        yield _content(member, archive, MAX_BYTES)
    else:
        yield member, b""


def _nested(member: File, archive: zipfile.ZipFile, wanted: Wanted, limit: _Limit) -> Iterator[tuple[File, bytes]]:
    if problem := _refused(member):
        yield replace(member, problem=problem), b""
        return
    member, data = _content(member, archive, MAX_ARCHIVE_BYTES)
    if member.problem:
        yield member, b""
        return
    inner = _Limit(min(limit.files, MAX_NESTED_FILES))
    before = inner.files
    yield from _archive(member, io.BytesIO(data), wanted, inner)
    limit.files -= before - max(inner.files, 0)


def _content(member: File, archive: zipfile.ZipFile, most: int) -> tuple[File, bytes]:
    """A member with its content, or with the reason why it has none."""
    try:
        return member, _unpacked(archive, member.members[-1], most)
    except TooMuch as error:
        problem = f"{member.source} {error}; clear the outputs of the notebook and hand it in alone"
    except Exception as error:  # see _archive
        problem = f"{member.source} cannot be unpacked ({_in_short(error)}); was it cut off?"
    return replace(member, problem=problem), b""


def _unpacked(archive: zipfile.ZipFile, number: int, most: int) -> bytes:
    """The content of a member. Raises TooMuch where it has more than `most` bytes, having unpacked no more."""
    info = archive.infolist()[number]
    chunks, size = [], 0
    with archive.open(info) as stream:
        while chunk := stream.read(_CHUNK):
            size += len(chunk)
            if size > most:
                raise TooMuch(f"has more than {most / 1e6:.0f} MB")
            if size > RATIO * info.compress_size + SLACK:
                raise TooMuch(f"unpacks to more than {RATIO} times its size")
            chunks.append(chunk)
    return b"".join(chunks)


def _opened(stream: IO[bytes]) -> zipfile.ZipFile:
    return zipfile.ZipFile(_Careful(stream))


class _Careful:
    """A file that refuses to give a whole directory of millions of members to zipfile, which reads it at once."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.seek, self.tell, self.seekable = stream.seek, stream.tell, stream.seekable

    def read(self, size: int = -1) -> bytes:
        if size > MAX_DIRECTORY_BYTES:
            raise TooMuch(f"has a directory of {size / 1e6:.0f} MB")
        return self._stream.read(size)

    def close(self) -> None:
        pass


def _unsafe(info: zipfile.ZipInfo, names: list[str]) -> str:
    """Why a member is not read, whatever it holds; "" when nothing speaks against it."""
    if ".." in names or not names[0] or names[0].endswith(":") or not names[-1]:
        return _LEADS_OUT
    if len(names) > MAX_NAMES:
        return f"lies in more than {MAX_NAMES} folders"
    if stat.S_ISLNK(info.external_attr >> 16):
        return "is a link, which is not followed; put the file itself there"
    if info.flag_bits & _ENCRYPTED:
        return "is encrypted; hand it in without a password"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is packed by a method that is not read; pack it as an ordinary zip (deflate)"
    return ""


def _time(info: zipfile.ZipInfo) -> datetime | None:
    try:
        return datetime(*info.date_time).astimezone()  # a zip's times have no zone: this machine's
    except (ValueError, OverflowError, OSError):
        return None


def _in_short(error: Exception) -> str:
    """A decoder's error in a line.

    >>> _in_short(zipfile.BadZipFile("File is not a zip file"))
    'File is not a zip file'
    """
    said = " ".join(str(error).split())[:120]
    return printable(said) or type(error).__name__
