"""Wrong answers to 03.launch_env, as learners write them, and what each is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpu_utils.analytic.node_rules import OVERRIDE_VARIABLE
from gpu_utils.analytic.visibility import CUDA, HIP, ROCR
from gpu_utils.exercises.u03_porting_to_rocm.launch_env_rules import (
    Description,
    Environments,
    joined,
    launch_env_reference,
    mask_of,
    numbers,
    settings_of,
)
from gpu_utils.grading.exercise import Misconception


def _masked(mask: Callable[[Description], Mapping[str, str]]) -> Callable[[Description], Environments]:
    """A right answer but for the variables that choose the GPUs."""
    return lambda node: [dict(mask(node)) | settings_of(node) for _ in node["use"]]


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
    return {HIP if _amd(node) else CUDA: joined(node["use"])}


def _within_the_last_mask(node: Description) -> dict[str, str]:
    given = node["inherited"].get(HIP) or node["inherited"].get(CUDA)
    if not given:
        return mask_of(node)
    return {HIP if _amd(node) else CUDA: joined([numbers(given).index(gpu) for gpu in node["use"]])}


def _every_layer(node: Description) -> dict[str, str]:
    if ROCR in node["inherited"] or not _amd(node):
        return mask_of(node)
    return dict.fromkeys((ROCR, HIP, CUDA), joined(node["use"]))


def _rocr_for_each(node: Description) -> Environments:
    if not _amd(node) or ROCR in node["inherited"]:
        return launch_env_reference(node)
    return [{ROCR: str(gpu), HIP: "0"} | settings_of(node) for gpu in node["use"]]


def _one_gpu_for_each(node: Description) -> Environments:
    name, numbers = next(iter(mask_of(node).items()))
    return [{name: number} | settings_of(node) for number in numbers.split(",")]


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
        return mask_of(node)
    below = joined(sorted(numbers(node["inherited"][ROCR])))
    return mask_of({**node, "inherited": {ROCR: below}})


def _streams_on_nvidia(node: Description, environment: dict[str, str]) -> None:
    if not _amd(node) and node["overlap"]:
        environment["TORCH_NCCL_HIGH_PRIORITY"] = "1"


def _streams_for_all(node: Description, environment: dict[str, str]) -> None:
    if node["target"] == "gfx942":
        environment |= {"TORCH_NCCL_HIGH_PRIORITY": "1", "GPU_MAX_HW_QUEUES": "2"}


def _first_only(node: Description) -> Environments:
    return [mask_of(node) | (settings_of(node) if rank == 0 else {}) for rank in range(len(node["use"]))]


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


MISCONCEPTIONS = (
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
        _masked(lambda node: {CUDA: next(iter(mask_of(node).values()))}),
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
        _masked(lambda node: {HIP: next(iter(mask_of(node).values()))}),
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
        _masked(lambda node: mask_of({**node, "use": sorted(node["use"])})),
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
