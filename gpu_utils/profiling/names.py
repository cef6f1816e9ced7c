"""Names of kernels as different tools write them, made comparable."""

from __future__ import annotations

import re
from collections.abc import Callable


def spaced(name: str) -> str:
    """Without spaces and the word before a return type: ncu writes "float *", torch "float*".

    >>> spaced("void add<float>(int, float *)")
    'add<float>(int,float*)'
    """
    return re.sub(r"\s+", "", re.sub(r"^void\s+", "", name))


def without_arguments(name: str) -> str:
    """Also without the list of arguments, which ncu leaves out with --kernel-name-base function.

    >>> without_arguments("void add<f(int)>(int, float *)"), without_arguments("add")
    ('add<f(int)>', 'add')
    """
    text = spaced(name)
    if not text.endswith(")"):
        return text
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(text[at], 0)
        if depth == 0:
            return text[:at] or text
    return text


def base(name: str) -> str:
    """The bare name, without templates and name spaces.

    >>> base("void at::native::add<float>(int, float *)")
    'add'
    """
    text = re.split(r"[<(]", without_arguments(name), maxsplit=1)[0]
    return text.rpartition("::")[2] or text


LEVELS: tuple[Callable[[str], str], ...] = (spaced, without_arguments, base)
"""From the strictest on."""
