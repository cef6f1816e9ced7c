"""Writing files so that a reader sees the old or the new one, never half of one."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from gpu_utils.errors import CannotWrite, WorkConflict


def write_atomically(path: Path, data: bytes) -> None:
    """Writes or replaces `path`; folders are made. Raises CannotWrite, with the old file untouched."""
    with _written_beside(path, data) as temporary:
        os.replace(temporary, path)


def write_new(path: Path, data: bytes) -> None:
    """Writes `path`, which must not exist. Raises WorkConflict when it does, also when it appears meanwhile."""
    if os.path.lexists(path):
        raise WorkConflict(f"{path} exists already and was left as it is")
    with _written_beside(path, data) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise WorkConflict(f"{path} exists already and was left as it is") from None
        except OSError:  # a file system without hard links
            os.replace(temporary, path)


def keep(path: Path, folder: Path, now: datetime) -> Path:
    """Writes what `path` holds into `folder` under a name with the time, never over another file; returns that file."""
    content = path.read_bytes()
    for count in range(1, 100):
        stamp = f"{now:%Y%m%d-%H%M%S}" + (f"-{count}" if count > 1 else "")
        kept = folder / f"{path.stem}.{stamp}{path.suffix}"
        with contextlib.suppress(WorkConflict):
            write_new(kept, content)
            return kept
    raise WorkConflict(f"{folder} holds 99 copies of {path.name} from this second already; nothing was changed")


@contextlib.contextmanager
def _written_beside(path: Path, data: bytes) -> Iterator[str]:
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        yield temporary
    except OSError as error:
        raise CannotWrite(_sentence(path, error)) from None
    finally:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


_ADVICE = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "your disk quota is used up; free some space",
    errno.EROFS: "the file system is read-only; clone the course into a folder that you can write to",
    errno.EACCES: "you may not write there; clone the course into a folder that you can write to",
    errno.EPERM: "you may not write there; clone the course into a folder that you can write to",
    errno.EEXIST: "a file has the name of its folder; move that file away",
    errno.ENOTDIR: "a file has the name of its folder; move that file away",
}


def _sentence(path: Path, error: OSError) -> str:
    advice = _ADVICE.get(error.errno or 0, f"{error.strerror or error}; check the disk")
    return f"cannot write {path}: {advice}. Nothing was changed."
