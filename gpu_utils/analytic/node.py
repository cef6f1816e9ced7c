"""A node of GPUs as a description: what it has, and how a job is started on it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from gpu_utils.analytic.visibility import Visible, visible
from gpu_utils.chips import CHIPS
from gpu_utils.chips.targets import capability_of
from gpu_utils.errors import BadArgument, UnknownName

LAUNCHERS = ("torchrun", "ray", "other")
_TARGET = r"sm_\d{2,3}|gfx[0-9a-f]{3,4}"


@dataclass(frozen=True)
class Node:
    """One node and one job on it.

    vendor        "amd" or "nvidia"
    target        what a compiler builds for: "gfx942", "sm_90"
    gpus          GPUs in the node
    environments  the variables of each process of the job, by local rank; its length is the number of processes
    chip          name in the registry of chips, or "" for a chip that is not in it
    use           physical numbers of the GPUs that the job is meant to use, in order; None when nobody said
    torch         version of torch with its build: "2.13.0+rocm7.2"; "" when not known
    built_for     targets that the GPU libraries were built for (torch.cuda.get_arch_list()); empty when not known
    launcher      "torchrun": every process calls torch.cuda.set_device(local_rank); "ray": each has device 0; "other"
    overlap       the job computes while it communicates (FSDP)
    tuned_gemms   there is a file of TunableOp's results that the job shall use
    tuning        this very run is there to make that file
    in_script     the variables are set by the script itself, not before it starts
    """

    vendor: str
    target: str
    gpus: int
    environments: tuple[Mapping[str, str], ...]
    chip: str = ""
    use: tuple[int, ...] | None = None
    torch: str = ""
    built_for: tuple[str, ...] = ()
    launcher: str = "torchrun"
    overlap: bool = False
    tuned_gemms: bool = False
    tuning: bool = False
    in_script: bool = False

    @property
    def seen(self) -> tuple[Visible, ...]:
        """What each process sees."""
        return tuple(visible(environment, self.gpus, self.vendor) for environment in self.environments)

    @property
    def at_work(self) -> tuple[int, ...]:
        """The GPUs of the job: those it is meant to use, else all that any of its processes sees."""
        return self.use if self.use is not None else tuple(sorted({gpu for seen in self.seen for gpu in seen.gpus}))

    @property
    def collectives(self) -> bool:
        """More than one GPU at work, so that they talk to each other."""
        return len(self.at_work) > 1


def gfx_of(version: str) -> str | None:
    """The target that HSA_OVERRIDE_GFX_VERSION names; None when it names none.

    >>> gfx_of("11.0.0"), gfx_of("9.0.10"), gfx_of("9.4.2"), gfx_of("gfx942")
    ('gfx1100', 'gfx90a', 'gfx942', None)
    """
    found = re.fullmatch(r"(\d+)\.(\d)\.(\d{1,2})", version)
    return f"gfx{found[1]}{found[2]}{int(found[3]):x}" if found and int(found[3]) < 16 else None


def generation(target: str) -> str:
    """What targets share that may pass for each other: of Radeon's all digits but the last two, of Instinct's all.

    >>> generation("gfx942"), generation("gfx1103")
    ('gfx942', 'gfx11')
    """
    return target[:-2] if target.startswith("gfx1") else target


_KINDS: Mapping[str, tuple[type, str]] = {
    "chip": (str, "a chip of the registry, such as MI300X"),
    "target": (str, "what a compiler builds for, such as gfx1103, for a chip that is not in the registry"),
    "gpus": (int, "how many GPUs the node has"),
    "processes": (int, "how many processes the job starts on the node"),
    "use": (list, "physical numbers of the GPUs that the job is meant to use, such as [0, 1]"),
    "torch": (str, "the version of torch with its build, such as 2.13.0+rocm7.2"),
    "built_for": (list, "targets the GPU libraries were built for, such as [gfx942, gfx1100]"),
    "launcher": (str, f"one of {', '.join(LAUNCHERS)}"),
    "overlap": (bool, "true when the job computes while it communicates, as FSDP does"),
    "tuned_gemms": (bool, "true when the job shall use a file of TunableOp's results"),
    "tuning": (bool, "true when this run is there to tune"),
    "in_script": (bool, "true when the script sets the variables itself"),
    "environment": (dict, "variables of every process, name: value"),
    "each_process": (dict, "variables in which {rank} stands for the local rank, name: value"),
}
"""Key of a description -> its type, and what it means."""

KEYS = {key: meaning for key, (_, meaning) in _KINDS.items()}


def describe(data: Any) -> Node:
    """The Node of a description, as it is written in YAML.

    Errors: BadArgument with one sentence for what is not understood.

    >>> describe({"chip": "MI300X", "gpus": 8, "processes": 8}).target
    'gfx942'
    """
    if not isinstance(data, dict):
        raise BadArgument(f"a node is described by lines of key: value, found {_kind(data)}; the keys are {_keys()}")
    for key, value in data.items():
        if key not in _KINDS:
            raise UnknownName("key of a node", str(key), _KINDS)
        wanted, meaning = _KINDS[key]
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise BadArgument(f"{key} is {_kind(value)} ({value!r}), expected {meaning}")
    missing = [key for key in ("gpus", "processes") if key not in data]
    if missing:
        raise BadArgument(f"the description has no {missing[0]}: {KEYS[missing[0]]}")
    for key in ("gpus", "processes"):
        if not 1 <= data[key] <= 1024:
            raise BadArgument(f"{key} is {data[key]}, expected a number from 1 to 1024")
    return Node(environments=_environments(data), **_hardware(data), **_plain(data))


def _hardware(data: Mapping[str, Any]) -> dict[str, Any]:
    if "chip" in data:
        chip = CHIPS[data["chip"]]  # UnknownName for one that is not there
        if data.get("target", chip.target) != chip.target:
            raise BadArgument(f"target is {data['target']}, but {chip.name} is {chip.target}; leave target out")
        return {"chip": chip.name, "vendor": chip.vendor, "target": chip.target}
    target = data.get("target", "")
    if not re.fullmatch(_TARGET, target):
        raise BadArgument(
            f"target is {target!r}, expected something like gfx1103 or sm_90, or a chip: {', '.join(CHIPS)}"
        )
    return {"target": target, "vendor": "amd" if capability_of(target) is None else "nvidia"}


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    if data.get("launcher", LAUNCHERS[0]) not in LAUNCHERS:
        raise UnknownName("launcher", data["launcher"], LAUNCHERS)
    use = data.get("use", [0])
    wrong = next((gpu for gpu in use if type(gpu) is not int or gpu not in range(data["gpus"])), None)
    if wrong is not None:
        raise BadArgument(f"use names GPU {wrong!r}, but the node has GPUs 0 to {data['gpus'] - 1}")
    if not use or len(set(use)) < len(use):
        raise BadArgument(f"use is {use}, expected the numbers of one or more GPUs, each once")
    wrong = next((target for target in data.get("built_for", []) if not re.fullmatch(_TARGET, str(target))), None)
    if wrong is not None:
        raise BadArgument(f"built_for names {wrong!r}, expected targets such as gfx942 or sm_90")
    names = {field.name for field in fields(Node)} - {"chip", "target", "vendor"}
    return {key: tuple(value) if isinstance(value, list) else value for key, value in data.items() if key in names}


def _environments(data: Mapping[str, Any]) -> tuple[dict[str, str], ...]:
    written = {**data.get("environment", {}), **data.get("each_process", {})}
    for name, value in written.items():
        if not isinstance(value, (str, int)) or isinstance(value, bool):
            raise BadArgument(f"{name} is {_kind(value)} ({value!r}); write its value in quotes, as in {name}: '0,1'")
    return tuple(
        {str(name): str(value).replace("{rank}", str(rank)) for name, value in written.items()}
        for rank in range(data["processes"])
    )


def _kind(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return "nothing" if value is None else names.get(type(value), type(value).__name__)


def _keys() -> str:
    return ", ".join(_KINDS)
