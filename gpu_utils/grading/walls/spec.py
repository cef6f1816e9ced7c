"""What of an exercise goes inside of the walls: how an answer is called, and nothing of what is right."""

from __future__ import annotations

import dataclasses
import importlib
import io
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import cloudpickle

import gpu_utils
from gpu_utils.compiler import stored
from gpu_utils.grading.exercise import Exercise, Inputs, Kind, Named

MODEL_UNITS = ("03",)
"""Units whose labs use the course's own GPT-2. For the others it is not there: to write it is what unit 01 asks."""

FORMATS_UNITS = ("08",)
"""Units that ask for the conversions of the course's own number formats, which are not there then."""


PROFILING_UNITS = ("13",)
"""Units that ask for readers of profiles and sums over timelines, of which the library has its own."""


@dataclass(frozen=True)
class Counted:
    """A limit, as far as running an answer has to know it."""

    counter: str


@dataclass(frozen=True)
class Spec(Named):
    """The part of an `Exercise` that running an answer needs."""

    id: str
    parameters: tuple[str, ...]
    kind: Kind
    seconds: float
    torch_may: tuple[str, ...] | None
    address_space: int
    limits: tuple[Counted, ...]
    forbids: tuple[str, ...]
    call: Callable[[Callable[..., Any], Inputs], Any]


@lru_cache(maxsize=64)
def fields_of(exercise: Exercise) -> Mapping[str, Any]:
    """The spec of an exercise as plain data; its call travels as code, from us to the inside and never back."""
    return {
        "id": exercise.id,
        "parameters": exercise.parameters,
        "kind": exercise.kind,
        "seconds": exercise.seconds,
        "torch_may": exercise.torch_may,
        "address_space": exercise.address_space,
        "limits": tuple(limit.counter for limit in exercise.limits),
        "forbids": exercise.forbids,
        "call": as_code(exercise.call, ("exercises", *_packages_hidden(exercise))),
    }


def spec_of(fields: Mapping[str, Any]) -> Spec:
    """The spec, on the inside."""
    may: Sequence[str] | None = fields["torch_may"]
    return Spec(
        id=fields["id"],
        parameters=tuple(fields["parameters"]),
        kind=fields["kind"],
        seconds=fields["seconds"],
        torch_may=None if may is None else tuple(may),
        address_space=fields["address_space"],
        limits=tuple(map(Counted, fields["limits"])),
        forbids=tuple(fields["forbids"]),
        call=cloudpickle.loads(fields["call"]),
    )


def with_call(spec: Spec, call: Callable[[Callable[..., Any], Inputs], Any]) -> Spec:
    return dataclasses.replace(spec, call=call)


_STORED = stored.PLACE.relative_to(Path(gpu_utils.__file__).parent).as_posix()
"""What was compiled of the course's C++, solutions too."""


def hidden(exercise: Exercise) -> tuple[str, ...]:
    """Files and folders of the library, from its own, that are not there while this exercise is graded."""
    return (_STORED, *_packages_hidden(exercise))


def _packages_hidden(exercise: Exercise) -> tuple[str, ...]:
    model = () if exercise.unit in MODEL_UNITS else ("model",)
    formats = ("formats",) if exercise.unit in FORMATS_UNITS else ()
    return (*model, *formats, *(("profiling",) if exercise.unit in PROFILING_UNITS else ()))


class _Pickler(cloudpickle.Pickler):
    """Takes modules that are objects of another class by their names, too: torch.backends is one."""

    def reducer_override(self, found: Any) -> Any:
        if isinstance(found, types.ModuleType) and type(found) is not types.ModuleType:
            name = next((name for name, module in sys.modules.items() if module is found), None)
            if name is not None:
                return importlib.import_module, (name,)
        return super().reducer_override(found)


def as_code(function: Any, packages: Sequence[str]) -> bytes:
    """A function, and of packages that are not there inside what it names itself."""
    modules = [importlib.import_module(f"gpu_utils.{name}") for name in packages]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    file = io.BytesIO()
    try:
        _Pickler(file).dump(function)
        return file.getvalue()
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
