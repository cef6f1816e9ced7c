"""Formats as cases give them: four numbers and a word, those that exist and those that nobody has."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from gpu_utils.formats import FORMATS, Format

PARAMETERS = ("exponent_bits", "mantissa_bits", "bias", "specials")


def numbers_of(name: str) -> dict[str, Any]:
    """The parameters of a format of `FORMATS`.

    >>> numbers_of("e5m2")
    {'exponent_bits': 5, 'mantissa_bits': 2, 'bias': 15, 'specials': 'ieee'}
    """
    return {key: getattr(FORMATS[name], key) for key in PARAMETERS}


def numbers_in(given: Any) -> dict[str, Any]:
    """The parameters of a format among those of a case, or among inputs."""
    return {key: given[key] for key in PARAMETERS}


def format_of(numbers: Mapping[str, Any]) -> Format:
    """The format that has these parameters."""
    return Format("a format", **numbers_in(numbers), source="")


def invented(rng: random.Random) -> dict[str, Any]:
    """A signed format of 4 to 8 bits, with any bias near the usual one. Its numbers are normal in float32."""
    exponent_bits = rng.randint(2, 5)
    mantissa_bits = rng.randint(1, min(4, 7 - exponent_bits))
    bias = 2 ** (exponent_bits - 1) - 1 + rng.randint(-3, 8)
    specials = rng.choice(["ieee", "fn", "fnuz", "finite"])
    return dict(zip(PARAMETERS, (exponent_bits, mantissa_bits, bias, specials), strict=True))
