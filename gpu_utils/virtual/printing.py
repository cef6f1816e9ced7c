"""What a kernel says: C's printf on the host's side, the console, and the error of a failed assertion.

The instruction sets bring a message here from where their hardware leaves it: PTX calls `vprintf` with a packed buffer,
an AMD kernel sends packets (`amdgcn/hostcall.py`).
"""

from __future__ import annotations

import ctypes
import math
import re
import sys
from collections.abc import Callable
from typing import Any

from gpu_utils.errors import DeviceAssert

_SPEC = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\d+|\*)?(?:\.(?P<precision>\d+|\*)?)?(?P<length>hh|h|ll|l|L|j|z|t)?"
    r"(?P<kind>[diouxXeEfFgGaAcspn%])"
)
_BITS = {"hh": 8, "h": 16, "": 32, "l": 64, "ll": 64, "j": 64, "z": 64, "t": 64}
LONGEST_STRING = 4096
"""Bytes of a string argument that are read when no zero ends it before."""

Take = Callable[[str], Any]


def c_format(layout: str, take: Take) -> tuple[str, int]:
    """(text, arguments taken) of C's printf.

    take(kind) gives the next argument: an int for "int" (32 bits), "long" (64 bits) and "pointer", a float for
    "double", a str for "string". What the format asks for decides how many bits of an integer count, as in C.

    >>> arguments = iter([2**32 - 1, 12.5])
    >>> c_format("%d of %5.2f%%", lambda kind: next(arguments))
    ('-1 of 12.50%', 2)
    """
    taken = 0

    def next_one(kind: str) -> Any:
        nonlocal taken
        taken += 1
        return take(kind)

    def convert(match: re.Match[str]) -> str:
        return _convert(match, next_one)

    return _SPEC.sub(convert, layout), taken


def _convert(match: re.Match[str], take: Take) -> str:
    kind, flags = match["kind"], match["flags"]
    if kind == "%":
        return "%"
    width, precision = match["width"] or "", match["precision"]
    if width == "*":
        width = str(signed(take("int"), 32))
    if precision == "*":
        precision = str(max(signed(take("int"), 32), 0))
    point = "" if precision is None and "." not in match.group() else f".{precision or 0}"
    shape = f"%{flags}{width}{point}"
    if kind == "s":
        return f"{shape}s" % take("string")
    if kind in "eEfFgG":
        return f"{shape}{kind}" % take("double")
    if kind in "aA":
        return f"%{flags.replace('0', '')}{width}s" % _hexadecimal(take("double"), kind)
    bits = _BITS[match["length"] or ""]
    if kind == "p":
        return f"%{flags}{width}s" % f"{take('pointer'):#x}"
    value = take("long" if bits == 64 else "int")
    if kind == "n":
        return ""
    if kind == "c":
        return f"%{flags.replace('0', '')}{width}s" % chr(value & 0xFF)
    if kind in "di":
        return f"{shape}d" % signed(value, bits)
    value &= (1 << bits) - 1
    if kind == "o" and "#" in flags:  # Python would write 0o
        return f"%{width}s" % f"0{value:o}"
    return f"{shape}{'d' if kind == 'u' else kind}" % value


def signed(value: int, bits: int) -> int:
    """The low `bits` of an integer in two's complement."""
    value &= (1 << bits) - 1
    return value - (value >> (bits - 1) << bits)


def _hexadecimal(value: float, kind: str) -> str:
    text = float(value).hex()
    if math.isfinite(value):
        text = re.sub(r"\.?0*p", "p", text)
    return text.upper() if kind == "A" else text


def c_string(memory: Any, address: int) -> str:
    """The zero-terminated string at a real address of a launch's memory."""
    if address == 0:
        return "(null)"
    found = c_bytes(memory, address, LONGEST_STRING)
    return found.split(b"\0", 1)[0].decode(errors="replace") if found else f"(no string at {address:#x})"


def c_bytes(memory: Any, address: int, most: int) -> bytes:
    """Up to `most` bytes at a real address of a launch's memory; none where no region is."""
    for region in memory.regions:
        if region.start <= address < region.start + region.size:
            return ctypes.string_at(address, min(most, region.start + region.size - address))
    return b""


def show(text: str) -> None:
    """To the console of the launch: in a notebook the cell's output."""
    sys.stdout.write(text)


def failed_assertion(kernel: str, message: str, line: tuple[str, int] | None, where: str) -> DeviceAssert:
    """The error of a device assertion.

    message: as the learner wrote it; line: its source file and line; where: words for the program and the lane.
    """
    place = f" at {line[0].rsplit('/', 1)[-1]}:{line[1]}" if line else ""
    said = f" {message!r}" if message else ""
    return DeviceAssert(f"kernel {kernel}: device assertion{said} failed{place} in {where}")
