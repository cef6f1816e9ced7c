"""The sanitizers by name, after NVIDIA's compute-sanitizer, and which of them a launch is run with."""

from __future__ import annotations

from collections.abc import Collection

from gpu_utils.errors import UnknownName

TOOLS = {
    "racecheck": "accesses of shared memory (LDS) by two waves of a block with nothing that orders them",
    "waitcheck": "registers and shared memory that are used before the data of an asynchronous access is there",
    "synccheck": "barriers that not all threads reach; lanes that take a value from a lane that is off or absent",
    "initcheck": "reads of global memory that nobody has written",
    "lockstep": "accesses of shared memory by two lanes of one wave that only running in step orders",
}
"""Name -> what it finds. Accesses outside of every tensor and races between programs are found without them."""

ON_REQUEST = frozenset({"lockstep"})
"""Those that `sanitize=True` leaves out."""


def chosen(sanitize: bool | str | Collection[str]) -> frozenset[str]:
    """The names that `virtual_gpu(target, sanitize=...)` asks for: all with True, or one, or some.

    >>> sorted(chosen("racecheck")), chosen(False), "lockstep" in chosen(True)
    (['racecheck'], frozenset(), False)
    """
    if isinstance(sanitize, bool):
        return frozenset(TOOLS) - ON_REQUEST if sanitize else frozenset()
    names = [sanitize] if isinstance(sanitize, str) else list(sanitize)
    for name in names:
        if name not in TOOLS:
            raise UnknownName("sanitizer", name, list(TOOLS))
    return frozenset(names)
