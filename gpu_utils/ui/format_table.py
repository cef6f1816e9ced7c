"""Narrow number formats beside each other, as a table: how their bits are dealt, and what their ends are."""

from __future__ import annotations

import numpy as np

from gpu_utils.errors import UnknownName
from gpu_utils.formats import FORMATS, Format
from gpu_utils.ui.number_figure import plain
from gpu_utils.ui.table import Table, table


def format_table(*names: str) -> Table:
    """A row for each format: bits, bias, the smallest and the largest number, and how many codes are no numbers.

    names  of FORMATS; UnknownName for another

    >>> format_table("e4m3fn").rows
    (('e4m3fn', '1 + 4 + 3', '7', '2^-9', '2^-6', '448', '2', '0'),)
    """
    return table({name: _row(_known(name)) for name in names}, first="format")


def format_numbers(name: str) -> list[float]:
    """The different finite numbers of a format, rising; 0 and -0 are one. UnknownName for a name not in FORMATS.

    >>> format_numbers("e2m1")[-3:]
    [3.0, 4.0, 6.0]
    """
    of = _known(name)
    values = of.values[np.isfinite(of.values)]
    return [float(value) for value in np.unique(values + 0.0)]  # -0 becomes 0


def _known(name: str) -> Format:
    if name not in FORMATS:
        raise UnknownName("number format", name, FORMATS)
    return FORMATS[name]


def _row(of: Format) -> dict[str, str]:
    parts = (of.signed, of.exponent_bits, of.mantissa_bits)
    return {
        "bits: sign, exponent, mantissa": " + ".join(f"{bits:d}" for bits in parts),
        "bias": f"{of.bias}",
        "smallest above 0": _power(of.smallest),
        "smallest with all digits": _power(of.smallest_normal),
        "largest": plain(of.largest) if of.largest < 1e6 else _power(of.largest),
        "codes of NaN": f"{np.isnan(of.values).sum()}",
        "of infinity": f"{np.isinf(of.values).sum()}",
    }


def _power(number: float) -> str:
    """
    >>> _power(0.25), _power(1.0), _power(0.5)
    ('2^-2', '2^0', '2^-1')
    """
    return f"2^{int(np.frexp(number)[1]) - 1}"
