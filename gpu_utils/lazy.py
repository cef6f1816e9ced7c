"""A module whose names live elsewhere: each is loaded when it is first used, so that importing the module is free."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

absent: Callable[[str], Any] | None = None
"""What stands for a name whose module is not there; None: the ImportError itself. Where answers are graded, parts of
the library are left out, and a notebook's first cell names them all the same."""


def lazily(module: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a module that offers names of others.

    homes  name -> the module that defines it, or the package of which it is a module
    Errors: AttributeError for a name that is not in `homes`; it lists those that are.
    """

    def getattribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}; public names are {', '.join(homes)}")
        try:
            home = importlib.import_module(homes[name])
        except ImportError:
            if absent is None:
                raise
            return absent(name)
        value = getattr(home, name) if hasattr(home, name) else importlib.import_module(f"{homes[name]}.{name}")
        setattr(sys.modules[module], name, value)
        return value

    return getattribute, lambda: sorted({*homes, *vars(sys.modules[module])})
