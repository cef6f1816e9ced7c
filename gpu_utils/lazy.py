"""A module whose names live elsewhere: each is loaded when it is first used, so that importing the module is free."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazily(module: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a module that offers names of others.

    homes  name -> the module that defines it, or the package of which it is a module
    Errors: AttributeError for a name that is not in `homes`; it lists those that are.
    """

    def getattribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}; public names are {', '.join(homes)}")
        home = importlib.import_module(homes[name])
        value = getattr(home, name) if hasattr(home, name) else importlib.import_module(f"{homes[name]}.{name}")
        setattr(sys.modules[module], name, value)
        return value

    return getattribute, lambda: sorted({*homes, *vars(sys.modules[module])})
