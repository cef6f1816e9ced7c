"""Messages on a pipe, as bytes: each with its length before it. What they hold is `wire`'s."""

from __future__ import annotations

import os
import select
import struct
import time

MOST_BYTES = 1 << 30
"""Of one message."""

PIECE, WORD = b"p", b"w"
"""How messages of a nursery begin: bytes that its child wrote, and what the nursery itself says."""

_LENGTH = struct.Struct("<Q")


class BadMessage(ValueError):
    """What came is no message of ours."""


class Gone(EOFError):
    """The other side has closed its end."""


class TooLate(TimeoutError):
    """The time was over before a message had come."""


def send_bytes(pipe: int, data: bytes) -> None:
    """Write one message that is packed already. Raises BrokenPipeError when nobody reads."""
    for part in (_LENGTH.pack(len(data)), data):
        view = memoryview(part)
        while view:
            view = view[os.write(pipe, view[: 1 << 20]) :]


def receive_bytes(pipe: int, deadline: float | None = None) -> bytes:
    """The next message, not unpacked."""
    (length,) = _LENGTH.unpack(_exactly(pipe, _LENGTH.size, deadline))
    if length > MOST_BYTES:
        raise BadMessage(f"a message of {length:,} bytes")
    return _exactly(pipe, length, deadline)


def first_of(data: bytearray, most: int) -> bytes | None:
    """Take the first message from the front of what was received so far; None where it is not whole yet."""
    if len(data) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(data)
    if length > most:
        raise BadMessage(f"a message of {length:,} bytes")
    end = _LENGTH.size + length
    if len(data) < end:
        return None
    found = bytes(data[_LENGTH.size : end])
    del data[:end]
    return found


def splice(source: int, pipe: int, count: int, before: bytes = b"") -> None:
    """Write one message of which `count` bytes wait in another pipe: they do not pass through this process's memory."""
    os.write(pipe, _LENGTH.pack(len(before) + count) + before)
    while count:
        count -= os.splice(source, pipe, count)


def _exactly(pipe: int, count: int, deadline: float | None) -> bytes:
    found = bytearray()
    while len(found) < count:
        if deadline is not None and not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TooLate
        part = os.read(pipe, min(1 << 20, count - len(found)))
        if not part:
            raise Gone
        found += part
    return bytes(found)
