"""To show something that is not the last line of a cell: in a notebook as it shows itself there, else as text."""

from __future__ import annotations

from typing import Any


def in_notebook() -> bool:
    """Whether this code runs under IPython, which a notebook's kernel is."""
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return get_ipython() is not None


def show(thing: Any) -> None:
    if in_notebook():
        from IPython.display import display

        display(thing)
    else:
        print(thing)
