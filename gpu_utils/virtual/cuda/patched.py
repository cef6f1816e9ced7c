"""Attributes of torch that say other things while the door is open: put in place together, and taken away together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_MISSING = object()


class Patches:
    """Attributes that were replaced. `put` replaces, `take_away` restores in reverse order."""

    def __init__(self) -> None:
        self.before: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, values: Mapping[str, Any], new: bool = False) -> None:
        """Set attributes of a module or class. new: also those that it does not have itself."""
        for name, value in values.items():
            own = vars(owner).get(name, _MISSING)
            if own is _MISSING and not new:
                continue
            self.before.append((owner, name, own))
            setattr(owner, name, value)

    def wrap(self, owner: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
        """Replace an attribute by what `wrapper` makes of it, where there is one."""
        if hasattr(owner, name):
            self.put(owner, {name: wrapper(getattr(owner, name))})

    def take_away(self) -> None:
        while self.before:
            owner, name, own = self.before.pop()
            if own is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, own)
