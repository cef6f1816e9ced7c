"""03.launch_env: the environment of each process of a job on a described node.

An answer is judged by the rules of `w2w doctor --node`, and must set nothing that they do not ask for.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import torch

from gpu_utils.analytic.node import Node, generation
from gpu_utils.analytic.node_rules import OVERRIDE_VARIABLE, findings
from gpu_utils.analytic.visibility import CUDA, HIP, ROCR, VARIABLES
from gpu_utils.errors import BadArgument
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

Environments = list[dict[str, str]]
Description = dict[str, Any]

_NVIDIA = ("sm_80", "sm_90", "sm_100")
_BUILT_FOR = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    node = {
        "vendor": "nvidia" if case["target"].startswith("sm_") else "amd",
        "target": case["target"],
        "gpus": case["gpus"],
        "use": list(case["use"]),
        "overlap": case.get("overlap", False),
        "tuned_gemms": case.get("tuned_gemms", False),
        "built_for": list(case.get("built_for", _NVIDIA if case["target"].startswith("sm_") else _BUILT_FOR)),
        "inherited": dict(case.get("inherited", {})),
    }
    return {"node": node}


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def _joined(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


def _settings(node: Description) -> dict[str, str]:
    """What a job on this node needs beside its GPUs."""
    settings = {}
    if node["target"] == "gfx942" and len(node["use"]) > 1:
        settings["NCCL_MIN_NCHANNELS"] = "112"
        if node["overlap"]:
            settings |= {"TORCH_NCCL_HIGH_PRIORITY": "1", "GPU_MAX_HW_QUEUES": "2"}
    kin = next((target for target in node["built_for"] if generation(target) == generation(node["target"])), None)
    if node["target"] not in node["built_for"] and kin:
        settings[OVERRIDE_VARIABLE] = f"{kin[3:-2]}.{kin[-2]}.{kin[-1]}"
    if node["tuned_gemms"]:
        settings |= {"PYTORCH_TUNABLEOP_ENABLED": "1", "PYTORCH_TUNABLEOP_TUNING": "0"}
    return settings


def _mask(node: Description) -> dict[str, str]:
    if node["vendor"] == "nvidia":
        return {CUDA: _joined(node["use"])}
    below = _numbers(node["inherited"][ROCR]) if ROCR in node["inherited"] else list(range(node["gpus"]))
    return {HIP: _joined([below.index(gpu) for gpu in node["use"]])}


def launch_env_reference(node: Description) -> Environments:
    """One right answer; `_judge` accepts others too."""
    return [_mask(node) | _settings(node) for _ in node["use"]]


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    node = inputs["node"]
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        return Difference(
            "type", f"the result is of type {type(value).__name__}, expected a list of dicts, one a process"
        )
    if not value:
        return Difference("processes:0", "the list is empty: no process is started; expected one dict for each process")
    for rank, one in enumerate(value):
        wrong = next((pair for pair in one.items() if not all(isinstance(part, str) for part in pair)), None)
        if wrong is not None:
            return Difference("type", f"process {rank}: {wrong[0]!r} is {wrong[1]!r}; names and values are text")
        if ROCR in node["inherited"] and one.get(ROCR, node["inherited"][ROCR]) != node["inherited"][ROCR]:
            return Difference(
                "scheduler",
                f"process {rank}: {ROCR} becomes {one[ROCR]!r}, but the scheduler set {node['inherited'][ROCR]!r}: "
                "that layer is not yours to change",
            )
    described = Node(
        **{key: node[key] for key in ("vendor", "target", "gpus", "overlap", "tuned_gemms")},
        environments=tuple(node["inherited"] | one for one in value),
        use=tuple(node["use"]),
        built_for=tuple(node["built_for"]),
    )
    try:
        first = next((one for one in findings(described) if one.level != "note"), None)
    except BadArgument as problem:
        return Difference("list", str(problem))
    if first is None:
        return _as_asked(node, value)
    seen = described.seen[0].gpus
    kind = f"{first.kind}:{_joined(list(seen))}" if first.kind in ("wrong-gpus", "cut-list") else first.kind
    return Difference(kind, f"{first.found}: {first.does} (source: {first.source})")


def _as_asked(node: Description, value: Environments) -> Difference | None:
    """Every process has all that the node asks for, and nothing else; "0" and an empty text switch nothing on."""
    wanted = _settings(node)
    for rank, one in enumerate(value):
        for name, right in wanted.items():
            found = one.get(name, node["inherited"].get(name))
            if found is None:
                return Difference(
                    f"missing:{name}", f"process {rank} lacks {name}={right}; every process needs its own settings"
                )
            if found != right and name != OVERRIDE_VARIABLE:
                return Difference(
                    f"value:{name}",
                    f"process {rank}: {name} is {found!r}; the lesson's fact for this node says {right}",
                )
        for name, found in one.items():
            if name in wanted or name in VARIABLES or found in ("", "0", node["inherited"].get(name)):
                continue
            return Difference(
                f"extra:{name}",
                f"process {rank}: {name}={found} is set, and nothing in the description of this node asks for it; "
                "leave it out",
            )
    return None


def _masked(mask: Callable[[Description], Mapping[str, str]]) -> Callable[[Description], Environments]:
    """A right answer but for the variables that choose the GPUs."""
    return lambda node: [dict(mask(node)) | _settings(node) for _ in node["use"]]


def _with(change: Callable[[Description, dict[str, str]], None]) -> Callable[[Description], Environments]:
    """A right answer but for what `change` does to each process's settings."""

    def answer(node: Description) -> Environments:
        environments = launch_env_reference(node)
        for environment in environments:
            change(node, environment)
        return environments

    return answer


def _amd(node: Description) -> bool:
    return bool(node["vendor"] == "amd")


def _physical(node: Description) -> dict[str, str]:
    return {HIP if _amd(node) else CUDA: _joined(node["use"])}


def _within_the_last_mask(node: Description) -> dict[str, str]:
    given = node["inherited"].get(HIP) or node["inherited"].get(CUDA)
    if not given:
        return _mask(node)
    return {HIP if _amd(node) else CUDA: _joined([_numbers(given).index(gpu) for gpu in node["use"]])}


def _every_layer(node: Description) -> dict[str, str]:
    if ROCR in node["inherited"] or not _amd(node):
        return _mask(node)
    return dict.fromkeys((ROCR, HIP, CUDA), _joined(node["use"]))


def _rocr_for_each(node: Description) -> Environments:
    if not _amd(node) or ROCR in node["inherited"]:
        return launch_env_reference(node)
    return [{ROCR: str(gpu), HIP: "0"} | _settings(node) for gpu in node["use"]]


def _one_gpu_for_each(node: Description) -> Environments:
    name, numbers = next(iter(_mask(node).items()))
    return [{name: number} | _settings(node) for number in numbers.split(",")]


def _override_for_all(node: Description, environment: dict[str, str]) -> None:
    if _amd(node):
        environment[OVERRIDE_VARIABLE] = "11.0.0"


def _rdna_3(node: Description, environment: dict[str, str]) -> None:
    if OVERRIDE_VARIABLE in environment:
        environment[OVERRIDE_VARIABLE] = "11.0.0"


def _instinct_too(node: Description, environment: dict[str, str]) -> None:
    if node["target"].startswith("gfx9") and node["target"] not in node["built_for"]:
        environment[OVERRIDE_VARIABLE] = "9.0.10"  # gfx90a, the first of the same digits


def _from_memory(node: Description, environment: dict[str, str]) -> None:
    if OVERRIDE_VARIABLE in environment:
        environment[OVERRIDE_VARIABLE] = {"10": "10.3.0", "11": "11.0.0", "12": "12.0.1"}[node["target"][3:-2]]


def _sorted_below(node: Description) -> dict[str, str]:
    if ROCR not in node["inherited"]:
        return _mask(node)
    below = _joined(sorted(_numbers(node["inherited"][ROCR])))
    return _mask({**node, "inherited": {ROCR: below}})


def _streams_on_nvidia(node: Description, environment: dict[str, str]) -> None:
    if not _amd(node) and node["overlap"]:
        environment["TORCH_NCCL_HIGH_PRIORITY"] = "1"


def _streams_for_all(node: Description, environment: dict[str, str]) -> None:
    if node["target"] == "gfx942":
        environment |= {"TORCH_NCCL_HIGH_PRIORITY": "1", "GPU_MAX_HW_QUEUES": "2"}


def _first_only(node: Description) -> Environments:
    return [_mask(node) | (_settings(node) if rank == 0 else {}) for rank in range(len(node["use"]))]


def _own_name(node: Description, environment: dict[str, str]) -> None:
    own = node["target"]
    if _amd(node) and own in node["built_for"]:
        environment[OVERRIDE_VARIABLE] = f"{int(own[3:-2])}.{own[-2]}.{int(own[-1], 16)}"


def _tunes(node: Description, environment: dict[str, str]) -> None:
    if node["tuned_gemms"]:
        del environment["PYTORCH_TUNABLEOP_TUNING"]


def _without(*names: str) -> Callable[[Description, dict[str, str]], None]:
    def change(node: Description, environment: dict[str, str]) -> None:
        for name in names:
            environment.pop(name, None)

    return change


_MISCONCEPTIONS = (
    Misconception(
        "physical_numbers_after_a_mask",
        _masked(_physical),
        "The scheduler's ROCR_VISIBLE_DEVICES has already hidden GPUs and numbered the rest anew from 0. Which "
        "numbers do yours have among those that are left?",
    ),
    Misconception(
        "counts_within_a_mask_that_it_replaces",
        _masked(_within_the_last_mask),
        "Your value takes the place of an inherited one of the same layer, so it does not count within it. Only "
        "ROCR_VISIBLE_DEVICES is a layer of its own.",
    ),
    Misconception(
        "cuda_variable_below_hip",
        _masked(lambda node: {CUDA: next(iter(_mask(node).values()))}),
        "HIP looks at CUDA_VISIBLE_DEVICES only where HIP_VISIBLE_DEVICES is empty. Here one is inherited, and yours "
        "is never read.",
    ),
    Misconception(
        "sets_every_variable",
        _masked(_every_layer),
        "ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES compose: the second list counts among what the first has left, "
        "so the same numbers twice hide nearly everything. Set one of them.",
    ),
    Misconception(
        "amd_variable_on_nvidia",
        _masked(lambda node: {HIP: next(iter(_mask(node).values()))}),
        "Nothing on an NVIDIA node reads AMD's variables. Which one does CUDA read?",
    ),
    Misconception(
        "rocr_mask_for_each_process",
        _rocr_for_each,
        "With a ROCR_VISIBLE_DEVICES of its own a process has no other GPU, not even to read from, and RCCL cannot "
        "connect them. The layer above leaves them reachable.",
    ),
    Misconception(
        "one_gpu_for_each_process",
        _one_gpu_for_each,
        "The script calls torch.cuda.set_device(local_rank). How many devices does the second process have, and which "
        "number does it ask for?",
    ),
    Misconception(
        "one_process_for_all",
        lambda node: launch_env_reference(node)[:1],
        "Your list has one process for several GPUs. ROCm launches kernels on them one after the other then. The "
        "length of the list is the number of processes.",
    ),
    Misconception(
        "override_for_every_amd_gpu",
        _with(_override_for_all),
        "HSA_OVERRIDE_GFX_VERSION=11.0.0 makes every AMD GPU pass for an RDNA 3 one. Compare the target with built_for "
        "first: does it need another name at all?",
    ),
    Misconception(
        "override_with_its_own_name",
        _with(_own_name),
        "A GPU for which the libraries were built needs no override, not even with its own number: on data centre GPUs "
        "the variable has no place.",
    ),
    Misconception(
        "no_override",
        _with(_without("HSA_OVERRIDE_GFX_VERSION")),
        "One of the targets is not in built_for, so no library has a kernel for it. Which target of the same "
        "generation is there?",
    ),
    Misconception(
        "override_on_instinct",
        _with(_instinct_too),
        "Only Radeon targets pass for others of their generation. gfx90a, gfx942 and gfx950 share their first digit "
        "and no more: another name makes kernels crash.",
    ),
    Misconception(
        "override_from_memory",
        _with(_from_memory),
        "The name must be one of built_for: on one of these nodes that is gfx1101, and nothing is there for gfx1100.",
    ),
    Misconception(
        "override_of_rdna_3",
        _with(_rdna_3),
        "11.0.0 is the name of one RDNA 3 chip. A GPU of another generation needs the name of its own generation that "
        "the libraries know.",
    ),
    Misconception(
        "sorts_the_gpus",
        _masked(lambda node: _mask({**node, "use": sorted(node["use"])})),
        "The local rank is a place in the list, so the order of `use` counts: GPU 7 before GPU 2 means that rank 0 has "
        "GPU 7.",
    ),
    Misconception(
        "sorts_what_the_scheduler_left",
        _masked(_sorted_below),
        "ROCR_VISIBLE_DEVICES numbers the GPUs in the order in which it names them: the first in the list is 0.",
    ),
    Misconception(
        "priority_on_nvidia",
        _with(_streams_on_nvidia),
        "Priority for RCCL's streams is AMD's advice for MI300X. Nothing asks for it on an NVIDIA node.",
    ),
    Misconception(
        "settings_for_rank_0",
        _first_only,
        "Each process reads its own environment. What only the first one has, the others do without.",
    ),
    Misconception(
        "no_channels",
        _with(_without("NCCL_MIN_NCHANNELS")),
        "AMD's guide for MI300X raises the least number of RCCL's channels. RCCL reads NCCL's variables.",
    ),
    Misconception(
        "channels_everywhere",
        _with(lambda node, environment: environment.update(NCCL_MIN_NCHANNELS="112")),
        "112 channels are advice for MI300X (gfx942), and only where several GPUs communicate.",
    ),
    Misconception(
        "no_priority",
        _with(_without("TORCH_NCCL_HIGH_PRIORITY", "GPU_MAX_HW_QUEUES")),
        "This job computes while it communicates. Which two settings make room for RCCL's streams on MI300X?",
    ),
    Misconception(
        "streams_without_overlap",
        _with(_streams_for_all),
        "Two settings make room for communication behind compute. A job that does not overlap the two, or has one GPU "
        "only, gains nothing from them.",
    ),
    Misconception(
        "tunes_in_every_run",
        _with(_tunes),
        "TunableOp tunes as soon as it is enabled: tuning is on by default. The file of results is there already.",
    ),
    Misconception(
        "does_not_use_the_tuned_file",
        _with(_without("PYTORCH_TUNABLEOP_ENABLED", "PYTORCH_TUNABLEOP_TUNING")),
        "The node has a file of tuned matrix products. Nothing reads it unless TunableOp is enabled.",
    ),
    Misconception(
        "peer_access_off",
        _with(lambda node, environment: environment.update(NCCL_P2P_DISABLE="1")),
        "NCCL_P2P_DISABLE hides the symptom of a wrong mask and sends all traffic through the host. Leave it out.",
    ),
)


def _fresh(rng: random.Random) -> Case:
    kind = rng.choice(("scheduler", "hip", "nvidia", "workstation"))
    if kind == "workstation":
        gpus = rng.randint(1, 4)
        target = rng.choice(("gfx1100", "gfx1103", "gfx1101", "gfx1201", "gfx1032", "gfx1200"))
        return Case("a workstation nobody described", target=target, gpus=gpus, use=[rng.randrange(gpus)])
    shared = rng.sample(range(8), rng.randint(4, 7))
    use = rng.sample(shared, rng.randint(1, 4))
    if kind == "nvidia":
        target, inherited = rng.choice(("sm_80", "sm_90")), {CUDA: _joined(shared)}
    else:
        target, inherited = (
            rng.choice(("gfx942", "gfx942", "gfx90a")),
            {ROCR if kind == "scheduler" else HIP: _joined(shared)},
        )
    flags = {"overlap": rng.random() < 0.5, "tuned_gemms": rng.random() < 0.3}
    return Case("a node nobody described", target=target, gpus=8, use=use, inherited=inherited, **flags)


_ALL = list(range(8))

EXERCISE = Exercise(
    id="03.launch_env",
    title="The environment of each process of a job",
    parameters=("node",),
    kind="host",
    inputs=_inputs,
    reference=launch_env_reference,
    judge=_judge,
    dtype=lambda inputs: None,
    cases=(
        Case(
            "eight MI300X, all of them, with communication behind compute",
            target="gfx942",
            gpus=8,
            use=_ALL,
            overlap=True,
        ),
        Case(
            "a scheduler has hidden half of the node and numbered the rest in an order of its own",
            target="gfx942",
            gpus=8,
            use=[2, 7],
            inherited={ROCR: "6,7,2,3"},
        ),
        Case(
            "somebody's shell sets HIP_VISIBLE_DEVICES already",
            target="gfx942",
            gpus=8,
            use=[4, 5],
            inherited={HIP: "2,3,4,5"},
        ),
        Case("matrix products were tuned yesterday", target="gfx942", gpus=8, use=_ALL, tuned_gemms=True),
        Case(
            "MI355X: the advice for MI300X is not for it, nor may it pass for one",
            target="gfx950",
            gpus=8,
            use=_ALL,
            overlap=True,
            built_for=("gfx90a", "gfx942", "gfx1100"),
        ),
        Case(
            "one MI300X alone has nobody to talk to, and tuned matrix products",
            target="gfx942",
            gpus=8,
            use=[3],
            overlap=True,
            tuned_gemms=True,
        ),
        Case(
            "two MI300X that compute while they communicate, in another order",
            target="gfx942",
            gpus=8,
            use=[7, 2],
            overlap=True,
        ),
        Case("the second GPU of a workstation, alone", target="gfx1100", gpus=2, use=[1]),
        Case(
            "a laptop's GPU, for which no library was built; the one of its kin that is there is gfx1101",
            target="gfx1103",
            gpus=1,
            use=[0],
            built_for=("gfx90a", "gfx942", "gfx1030", "gfx1101", "gfx1201"),
        ),
        Case("an RDNA 2 GPU: its generation has another name", target="gfx1031", gpus=1, use=[0]),
        Case(
            "NVIDIA, where one variable counts physical GPUs",
            target="sm_90",
            gpus=8,
            use=[7, 5],
            inherited={CUDA: "4,5,6,7"},
        ),
        Example(
            "the example of the docstring",
            node={
                "vendor": "amd",
                "target": "gfx90a",
                "gpus": 8,
                "use": [5, 7],
                "overlap": False,
                "tuned_gemms": False,
                "built_for": ["gfx90a"],
                "inherited": {ROCR: "4,5,6,7"},
            },
        ),
        Case(
            "NVIDIA has a file of tuned matrix products too, and a job that computes while it communicates",
            target="sm_90",
            gpus=8,
            use=_ALL,
            tuned_gemms=True,
            overlap=True,
        ),
    ),
    fresh=_fresh,
    trivial={
        "nothing": lambda node: [],
        "None": lambda node: None,
        "empty environments": lambda node: [{} for _ in node["use"]],
        "what is inherited": lambda node: [dict(node["inherited"]) for _ in node["use"]],
        "the node": lambda node: node,
    },
    misconceptions=_MISCONCEPTIONS,
    hints=(
        "Three questions, one after the other: which numbers do the GPUs of `use` have after what is inherited? What "
        "does AMD's guide set for this target when several GPUs communicate? Does the target need another name?",
        "On AMD: the place of each GPU of `use` in the inherited ROCR_VISIBLE_DEVICES, or its own number where there "
        "is none, into HIP_VISIBLE_DEVICES. On NVIDIA: physical numbers into CUDA_VISIBLE_DEVICES. The same dict for "
        "every process, len(use) times.",
        "gfx942 and len(use) > 1: NCCL_MIN_NCHANNELS=112, and with overlap TORCH_NCCL_HIGH_PRIORITY=1 and "
        'GPU_MAX_HW_QUEUES=2. Target not in built_for: HSA_OVERRIDE_GFX_VERSION, where "gfx1100" is written "11.0.0". '
        "tuned_gemms: PYTORCH_TUNABLEOP_ENABLED=1 and PYTORCH_TUNABLEOP_TUNING=0. All values are text.",
    ),
    explanation=(
        "Every process gets the same list, so that all GPUs of the job stay reachable and the local rank is the "
        "number of the device. Numbers count within the layer below, which on AMD is ROCR_VISIBLE_DEVICES and "
        "nothing else. The rest is advice for one chip or one situation, and each has its condition: channels where "
        "MI300X communicate, two settings where they also compute, another name only for a GPU that no library was "
        "built for, TunableOp only with its results and without its search. A variable without its condition is the "
        "next person's puzzle; `./w2w doctor --node` asks the same questions of a file."
    ),
)
