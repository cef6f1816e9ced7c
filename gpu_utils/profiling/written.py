"""What tools write into csv files: lines, cells, numbers of two conventions, units with their scales.

A line is read on its own: a line of the program's output with a quote that nobody closes costs that line only.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

DELIMITERS = (",", ";", "\t")

MISSING = frozenset({"", "n/a", "(!) n/a", "no data", "nan", "-nan", "inf", "-inf", "none", "(null)"})
"""Words in the place of a number, in small letters."""


def lines_of(text: str) -> list[str]:
    r"""Lines ended by \n, \r\n or \r and by nothing else: names of kernels may hold what str.splitlines splits at."""
    return re.split(r"\r\n|\n|\r", text)


def cells(line: str, delimiter: str = ",") -> list[str] | None:
    """The cells of one line; None when a quote in it is not closed.

    >>> cells('0,"f<""a"", 2>",7')
    ['0', 'f<"a", 2>', '7']
    >>> cells('0,"f<') is None
    True
    """
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return None


def missing(text: str) -> bool:
    """Whether a tool says that it has no number here."""
    return text.strip().lower() in MISSING


def number(text: str, decimal: str = ".") -> int | float | None:
    """The number that is written; None for a text, and for what is no finite number. Whole ones are int.

    >>> number("1,215,000,000.00"), number("27.595.520", ","), number("65,77", ","), number("4.0e-05")
    (1215000000, 27595520, 65.77, 4e-05)
    >>> number("n/a") is None
    True
    """
    bare = re.sub(r"(?<=\d)['\u2019\u00a0\u202f ](?=\d{3})", "", text.strip())
    bare = bare.replace(",", "") if decimal == "." else bare.replace(".", "").replace(",", ".")
    if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", bare):
        return None
    if re.fullmatch(r"[-+]?\d+", bare):
        return int(bare)
    value = float(bare)
    return None if not math.isfinite(value) else int(value) if value.is_integer() and abs(value) < 2**53 else value


@dataclass(frozen=True)
class Convention:
    """How numbers are written. decimal: "." or ","; doubtful: one that reads either way while no other tells; both:
    whether some are written in one way and some in the other."""

    decimal: str
    doubtful: str | None
    both: bool


def convention(texts: Iterable[str]) -> Convention:
    """Which of "1,215.5" and "1.215,5" these are. The English one where nothing tells.

    >>> convention(["27.595.520", "65,77"]).decimal, convention(["12,582,912", "0.5"]).decimal
    (',', '.')
    >>> convention(["117.344", "256"])
    Convention(decimal='.', doubtful='117.344', both=False)
    """
    english, european, doubtful = False, False, None
    for text in texts:
        bare = re.split("[eE]", text.strip().lstrip("-+"))[0]
        if not re.fullmatch(r"[\d.,]*\d[\d.,]*", bare):
            continue
        says = _convention(bare)
        english, european = english or says == ".", european or says == ","
        if says is None and re.fullmatch(r"\d{1,3}\.\d{3}", bare):
            doubtful = doubtful or text.strip()
    decimal = "," if european and not english else "."
    return Convention(decimal, None if english or european else doubtful, english and european)


def _convention(bare: str) -> str | None:
    """The decimal mark that one number gives away."""
    dots, commas = bare.count("."), bare.count(",")
    if dots and commas:
        return "." if bare.rfind(".") > bare.rfind(",") else ","
    if dots > 1 or commas > 1:
        return "," if dots > 1 else "."
    if not dots and not commas:
        return None
    mark = "." if dots else ","
    whole, part = bare.split(mark)
    return None if len(part) == 3 and 1 <= len(whole) <= 3 and whole != "0" else mark


_SCALES = {"": 1, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_TIMES = {
    "nsecond": 1,
    "ns": 1,
    "nanosecond": 1,
    "usecond": 1e3,
    "us": 1e3,
    "\u00b5s": 1e3,
    "microsecond": 1e3,
    "msecond": 1e6,
    "ms": 1e6,
    "millisecond": 1e6,
    "second": 1e9,
    "s": 1e9,
    "sec": 1e9,
}
_COUNTED = r"byte|hz|inst|cycle|sector|warp|thread|request|block|B"


def unit_of(word: str) -> tuple[str, float]:
    """A unit of ncu -> its base unit ("ns", "bytes", "bytes/s", ...) and the factor to it. Factors of 1000.

    >>> unit_of("usecond"), unit_of("Mbyte"), unit_of("Gbyte/second"), unit_of("register/thread"), unit_of("%")
    (('ns', 1000.0), ('bytes', 1000000.0), ('bytes/s', 1000000000.0), ('register/thread', 1), ('%', 1))
    """
    word = word.strip()
    if word in _TIMES:
        return "ns", _TIMES[word]
    over, slash, under = word.partition("/")
    found = re.fullmatch(rf"([KkMGT]?)({_COUNTED})", over, re.IGNORECASE if "hz" in over.lower() else 0)
    base, factor = (found[2], _SCALES[found[1]]) if found else (over, 1)
    base = {"byte": "bytes", "B": "bytes", "Hz": "hz"}.get(base, base)
    if not slash:
        return base, factor
    if under in _TIMES:
        return f"{base}/s", factor * 1e9 / _TIMES[under] if _TIMES[under] != 1e9 else factor
    return f"{base}/{under}", factor
