"""Numbers and other values as people read them: the same in tables, predictions and figures."""

from __future__ import annotations

import re
from typing import Any

_NUMERIC = re.compile(r"[-+≈<>≤≥]?\s?(\d{1,3}(,\d{3})+|\d[\d._]*)(\.\d+)?(e[-+]?\d+)?\s?(%|x|times)?")


def words(value: Any) -> str:
    """A value in words: thousands separated, floats to four digits, yes and no, "unknown" for None.

    >>> [words(value) for value in (65536, 0.33333, 12345.6, 5e-07, True, None, "gfx942")]
    ['65,536', '0.3333', '12,346', '5e-07', 'yes', 'unknown', 'gfx942']
    """
    value = plain(value)
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"
    return str(value)


def plain(value: Any) -> Any:
    """A Python number for one of torch or NumPy (a tensor of one element, a scalar); everything else as it is."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value


def is_numeric(text: str) -> bool:
    """Whether a text in a column reads as a number, and so stands at its right edge.

    >>> [is_numeric(text) for text in ("1,024", "12%", "3.1 x", "", "2 x 128 bits", "4,5,6,7")]
    [True, True, True, True, False, False]
    """
    return not text or text == "unknown" or bool(_NUMERIC.fullmatch(text))
