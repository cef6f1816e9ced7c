"""03.launch_env: the environment of each process of a job on a described node.

An answer is judged by the rules of `w2w doctor --node`, and must set nothing that they do not ask for.
"""

from __future__ import annotations

import random
from typing import Any

import torch

from gpu_utils.analytic.node import Node
from gpu_utils.analytic.node_rules import OVERRIDE_VARIABLE, findings
from gpu_utils.analytic.visibility import CUDA, HIP, ROCR, VARIABLES
from gpu_utils.errors import BadArgument
from gpu_utils.exercises.u03_porting_to_rocm.launch_env_rules import (
    Description,
    Environments,
    joined,
    launch_env_reference,
    settings_of,
)
from gpu_utils.exercises.u03_porting_to_rocm.launch_env_slips import MISCONCEPTIONS
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs

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
    kind = f"{first.kind}:{joined(list(seen))}" if first.kind in ("wrong-gpus", "cut-list") else first.kind
    return Difference(kind, f"{first.found}: {first.does} (source: {first.source})")


def _as_asked(node: Description, value: Environments) -> Difference | None:
    """Every process has all that the node asks for, and nothing else; "0" and an empty text switch nothing on."""
    wanted = settings_of(node)
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


def _fresh(rng: random.Random) -> Case:
    kind = rng.choice(("scheduler", "hip", "nvidia", "workstation"))
    if kind == "workstation":
        gpus = rng.randint(1, 4)
        target = rng.choice(("gfx1100", "gfx1103", "gfx1101", "gfx1201", "gfx1032", "gfx1200"))
        return Case("a workstation nobody described", target=target, gpus=gpus, use=[rng.randrange(gpus)])
    shared = rng.sample(range(8), rng.randint(4, 7))
    use = rng.sample(shared, rng.randint(1, 4))
    if kind == "nvidia":
        target, inherited = rng.choice(("sm_80", "sm_90")), {CUDA: joined(shared)}
    else:
        target, inherited = (
            rng.choice(("gfx942", "gfx942", "gfx90a")),
            {ROCR if kind == "scheduler" else HIP: joined(shared)},
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
    misconceptions=MISCONCEPTIONS,
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
