"""The HTML pages that the classroom writes: one file each, without scripts and without the network."""

from __future__ import annotations

import functools
from decimal import Decimal
from typing import Any

import jinja2

from gpu_utils.classroom.marks import plain
from gpu_utils.classroom.shown import clean, readable

_LONGEST_SOURCE = 20_000


def page(template: str, **values: Any) -> bytes:
    """A template of this package, filled in; every value is escaped."""
    return _environment().get_template(template).render(values).encode("utf-8", "replace")


def _source(text: str) -> str:
    return clean(text, _LONGEST_SOURCE, kept="\n\t")


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gpu_utils.classroom"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        readable=readable, clean=clean, source=_source, plain=lambda number: plain(Decimal(number))
    )
    return environment
