"""What is wrong with the way a job is started on a node, and what could be better: each rule with its source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpu_utils.analytic.node import Node, generation, gfx_of
from gpu_utils.analytic.visibility import CUDA, HIP, ROCR, VARIABLES

GUIDE = (
    "ROCm workload optimization guide, rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/workload"
)
ISOLATION = "ROCm GPU isolation techniques, rocm.docs.amd.com/en/latest/conceptual/gpu-isolation; pytorch #142292"
RUNTIMES = "ROCR-Runtime amd_filter_device.cpp; ROCm clr rocdevice.cpp; NVIDIA CUDA programming guide"
HIP_FIRST = "ROCm clr rocclr/device/rocm/rocdevice.cpp; torch.cuda _parse_visible_devices"
OVERRIDE = "ROCm/rocm-systems #5686 and #3461; ROCm/ROCm #3065; project-nomad #810"
DDP = "PyTorch, torch.nn.parallel.DistributedDataParallel"
NCCL_ENV = "NVIDIA NCCL user guide, environment variables; RCCL reads the same ones"
TUNABLE = "ROCm workload optimization guide, PyTorch TunableOp; pytorch #114894; comfyui-amd-go-fast #2"
RAY = "vllm #46895; ray #52701, #53757"

CHANNELS, PRIORITY, QUEUES = "NCCL_MIN_NCHANNELS", "TORCH_NCCL_HIGH_PRIORITY", "GPU_MAX_HW_QUEUES"
OVERRIDE_VARIABLE = "HSA_OVERRIDE_GFX_VERSION"
TUNABLE_ON, TUNABLE_TUNES = "PYTORCH_TUNABLEOP_ENABLED", "PYTORCH_TUNABLEOP_TUNING"
P2P_OFF = "NCCL_P2P_DISABLE"
KEEP_ROCR = "RAY_EXPERIMENTAL_NOSET_ROCR_VISIBLE_DEVICES"
AMD_ONLY = (ROCR, HIP, OVERRIDE_VARIABLE, QUEUES)


@dataclass(frozen=True)
class Finding:
    """One thing about a node.

    kind    a stable word for the rule
    level   "wrong": the job fails or computes elsewhere; "advice": it works, and could be better; "note": good to know
    found   what is so here
    does    what that does
    advice  what to try; "" where nothing needs to change
    source  where the rule comes from
    """

    kind: str
    level: Literal["wrong", "advice", "note"]
    found: str
    does: str
    advice: str
    source: str


def findings(node: Node) -> list[Finding]:
    """All that can be said about a node, in the order in which one would look."""
    rules = (
        _build,
        _processes,
        _masks,
        _visibility,
        _names,
        _override,
        _channels,
        _streams,
        _tunable,
        _transport,
        _time,
    )
    return [finding for rule in rules for finding in rule(node)]


def _set(node: Node, variable: str) -> str | None:
    """The variable's value in the first process that has it."""
    return next((environment[variable] for environment in node.environments if variable in environment), None)


def _build(node: Node) -> Iterator[Finding]:
    build = node.torch.partition("+")[2]
    right = "rocm" if node.vendor == "amd" else "cu"
    if build and not build.startswith(right):
        yield Finding(
            "build",
            "wrong",
            f"torch {node.torch} on a GPU of {'AMD' if node.vendor == 'amd' else 'NVIDIA'}",
            "this build has no code for the GPU: torch.cuda.is_available() is False, and the job runs on the CPU or "
            "stops",
            f"install a build whose version ends in +{right}...",
            "PyTorch, HIP (ROCm) semantics, docs.pytorch.org/docs/stable/notes/hip.html",
        )


def _processes(node: Node) -> Iterator[Finding]:
    at_work, count = len(node.at_work), len(node.environments)
    if at_work > count:
        yield Finding(
            "processes",
            "advice" if node.use is None else "wrong",
            f"{count} process{'es' if count > 1 else ''} for {at_work} GPUs",
            "ROCm launches the kernels of one process on several GPUs one after the other, and RCCL is at its best "
            "with one process for each GPU"
            if node.vendor == "amd"
            else "DistributedDataParallel and its kin expect one process for each GPU",
            f"start {at_work} processes, one for each GPU",
            GUIDE + ", use one-process-per-GPU mode" if node.vendor == "amd" else DDP,
        )
    if count > at_work > 0:
        yield Finding(
            "processes",
            "wrong",
            f"{count} processes for {at_work} GPU{'s' if at_work > 1 else ''}",
            "two ranks on one GPU share its memory and wait for each other",
            f"start {at_work}",
            DDP,
        )
    if node.target == "gfx942" and node.gpus == 8 and 1 < at_work < 8:
        yield Finding(
            "few-gpus",
            "note",
            f"collectives over {at_work} of 8 GPUs",
            "every pair of GPUs has its own link; with fewer than 8 GPUs most links are idle, and the bandwidth is a "
            "fraction of what the node has",
            "use one GPU or all eight where you can choose",
            GUIDE + ", use all eight GPUs",
        )


def _masks(node: Node) -> Iterator[Finding]:
    masks = {environment.get(ROCR) for environment in node.environments}
    if node.vendor == "amd" and len(masks) > 1:
        yield Finding(
            "rocr-mask",
            "wrong",
            f"each process has a {ROCR} of its own",
            "the GPUs of the other processes do not exist for it, so RCCL cannot open their memory, and the first "
            "collective fails",
            "let every process see all GPUs of the job and choose with torch.cuda.set_device(local_rank)",
            RAY,
        )
    if node.vendor == "amd" and node.launcher == "ray" and len(node.at_work) > 1 and _set(node, KEEP_ROCR) is None:
        yield Finding(
            "ray",
            "advice",
            "Ray starts the processes",
            f"Ray hides GPUs from its workers by itself; versions that set {ROCR} break access between GPUs in RCCL, "
            "or meet your own variables",
            f"set {KEEP_ROCR}=1 and set no visibility variable yourself",
            RAY,
        )


def _as_meant(node: Node, gpus: tuple[int, ...]) -> bool:
    """Under torchrun the local rank is a place in the list, so all have the same one; else a part of it will do."""
    assert node.use is not None
    return gpus == node.use if node.launcher == "torchrun" else set(gpus) <= set(node.use)


def _who(node: Node, first: int) -> str:
    """The processes from `first` on that see the same."""
    last = first
    while last + 1 < len(node.seen) and node.seen[last + 1] == node.seen[first]:
        last += 1
    return f"process {first}" if last == first else f"processes {first} to {last}"


def _visibility(node: Node) -> Iterator[Finding]:
    for rank, seen in enumerate(node.seen):
        cut = next((layer for layer in seen.layers if layer.dropped), None)
        if not seen.gpus:
            why = "; ".join(map(str, seen.layers))
            advice = "number the GPUs as they are numbered after the layer below, from 0" if cut else "name a GPU"
            yield Finding("no-gpu", "wrong", f"{_who(node, rank)}: {why}", "no GPU is seen", advice, ISOLATION)
        elif cut:
            does = "numbers to the right of one that does not exist are dropped, without a word"
            advice = f"count from 0 among the {len(cut.before)} GPUs that are left"
            yield Finding("cut-list", "wrong", f"{_who(node, rank)}: {cut}", does, advice, RUNTIMES)
        elif node.launcher == "torchrun" and rank >= len(seen.gpus):
            yield Finding(
                "ordinal",
                "wrong",
                f"process {rank} sees {len(seen.gpus)} GPU{'s' if len(seen.gpus) > 1 else ''}",
                f"torch.cuda.set_device({rank}), its local rank, ends in an invalid device ordinal",
                "give all processes the same list, or let each use device 0",
                "radixark/miles #1233; vllm #12572",
            )
        elif node.use is not None and not _as_meant(node, seen.gpus):
            shown, wanted = (", ".join(map(str, gpus)) for gpus in (seen.gpus, node.use))
            why = "; ".join(map(str, seen.layers)) or "no variable hides anything"
            yield Finding(
                "wrong-gpus",
                "wrong",
                f"process {rank} sees GPU {shown}, meant was {wanted}: {why}",
                "the job lands on other GPUs, perhaps on those of somebody else",
                "see which layers there are, and number the GPUs within the layer below",
                ISOLATION,
            )
        else:
            continue
        return  # the other processes would say the same


def _names(node: Node) -> Iterator[Finding]:
    if node.vendor == "nvidia":
        for name in AMD_ONLY:
            if _set(node, name) is not None:
                found = f"{name}={_set(node, name)} on an NVIDIA GPU"
                yield Finding("foreign-variable", "advice", found, "nothing reads it here", f"use {CUDA}", ISOLATION)
        return
    first = node.environments[0]
    if first.get(HIP) and first.get(CUDA) and first[HIP] != first[CUDA]:
        yield Finding(
            "both-variables",
            "advice",
            f"{HIP}={first[HIP]} and {CUDA}={first[CUDA]}",
            f"HIP takes {HIP} and never looks at the other; a framework may look at the other one only",
            "set one of them",
            HIP_FIRST,
        )
    if ROCR in first and (first.get(HIP) or first.get(CUDA)):
        yield Finding(
            "composed",
            "note",
            f"{ROCR} and {HIP if first.get(HIP) else CUDA} are both set",
            "they compose: the second counts among the GPUs that the first has left",
            "set one layer, not both, where you can choose",
            ISOLATION + "; SwarmUI #565",
        )


def _override(node: Node) -> Iterator[Finding]:
    value = _set(node, OVERRIDE_VARIABLE)
    listed = node.built_for or (node.target,)
    if node.vendor != "amd":
        return
    if value is None:
        kin = [target for target in listed if generation(target) == generation(node.target)]
        if node.target not in listed and kin:
            yield Finding(
                "override-missing",
                "wrong",
                f"the libraries were built for {', '.join(listed)}, and the GPU is {node.target}",
                "there is no code for this GPU in them: the first kernel ends in an invalid device function",
                f"install libraries for {node.target}; until then {OVERRIDE_VARIABLE} for {kin[0]}, whose generation "
                "it shares, on no more than this one machine",
                "ROCm/ROCm #4440; project-nomad #1134",
            )
        return
    stands_for = gfx_of(value)
    found = f"{OVERRIDE_VARIABLE}={value or '(empty)'} on {node.target}"
    if stands_for is None:
        does = "an empty value makes runtimes take the GPU for gfx000" if not value else "this names no target"
        yield Finding("override-wrong", "wrong", found, does, "unset it", OVERRIDE)
    elif generation(stands_for) != generation(node.target):
        does = f"the GPU passes for {stands_for}, of another generation: discovery fails, or kernels crash"
        yield Finding("override-wrong", "wrong", found, does, "unset it", OVERRIDE)
    elif node.target in listed:
        does = f"every GPU of the process passes for {stands_for}; this chip is supported and needs no other name"
        level: Literal["wrong", "advice"] = "advice" if stands_for == node.target else "wrong"
        yield Finding("override-needless", level, found, does, "unset it", OVERRIDE)
    elif stands_for not in listed:
        does = f"the GPU passes for {stands_for}, for which the libraries were not built either"
        advice = f"take one of the same generation among {', '.join(listed)}"
        yield Finding("override-wrong", "wrong", found, does, advice, OVERRIDE)


def _channels(node: Node) -> Iterator[Finding]:
    value = _set(node, CHANNELS)
    if node.target == "gfx942" and node.collectives and value is None:
        yield Finding(
            "channels",
            "advice",
            f"{CHANNELS} is not set, and {len(node.at_work)} GPUs communicate",
            "RCCL may use fewer channels than MI300X can feed",
            f"{CHANNELS}=112, then measure",
            GUIDE + ", RCCL in E2E workloads",
        )
    elif value == "112" and (node.target != "gfx942" or not node.collectives):
        why = (
            "one GPU has nobody to talk to"
            if not node.collectives
            else f"the number was chosen for MI300X, not {node.target}"
        )
        yield Finding("channels-foreign", "advice", f"{CHANNELS}=112", why, f"leave {CHANNELS} alone", GUIDE)


def _streams(node: Node) -> Iterator[Finding]:
    wanted = {PRIORITY: "1", QUEUES: "2"} if node.target == "gfx942" and node.overlap and node.collectives else {}
    missing = [f"{name}={value}" for name, value in wanted.items() if _set(node, name) != value]
    if missing:
        yield Finding(
            "streams",
            "advice",
            f"the job computes while it communicates, without {' and '.join(missing)}",
            "streams of RCCL and of compute kernels do not always overlap well; the hardware is at its best with four "
            "streams or fewer",
            f"set {' and '.join(missing)}: two streams for each, those of RCCL first",
            GUIDE + ", multi-node FSDP and RCCL settings",
        )


def _tunable(node: Node) -> Iterator[Finding]:
    on = _set(node, TUNABLE_ON) == "1"
    tunes = on and _set(node, TUNABLE_TUNES) != "0"
    if tunes and not node.tuning:
        yield Finding(
            "tuning",
            "advice",
            f"{TUNABLE_ON}=1 and {TUNABLE_TUNES}={_set(node, TUNABLE_TUNES) or '1 (its default)'}",
            "every new shape of a matrix product is measured with every kernel there is, in the middle of the job",
            f"tune once, then run with {TUNABLE_TUNES}=0" if node.tuned_gemms else f"leave {TUNABLE_ON} unset",
            TUNABLE,
        )
    if node.tuned_gemms and not on and not node.tuning:
        yield Finding(
            "tuned-unused",
            "advice",
            f"there is a file of tuned matrix products, and {TUNABLE_ON} is not set",
            "nothing reads the file",
            f"{TUNABLE_ON}=1 and {TUNABLE_TUNES}=0",
            TUNABLE,
        )


def _transport(node: Node) -> Iterator[Finding]:
    if _set(node, P2P_OFF) == "1":
        yield Finding(
            "p2p",
            "advice",
            f"{P2P_OFF}=1",
            "GPUs of the node no longer read each other's memory: their traffic goes through the host, and the fault "
            "that made somebody set it stays",
            "unset it, and find out why access between GPUs failed (a mask of one process?)",
            NCCL_ENV,
        )


def _time(node: Node) -> Iterator[Finding]:
    early = [name for name in (*VARIABLES, OVERRIDE_VARIABLE) if _set(node, name) is not None]
    if node.in_script and early:
        yield Finding(
            "in-script",
            "advice",
            f"the script sets {' and '.join(early)} itself",
            "runtimes read it once, when they start, and some frameworks when they are imported: later it has no "
            "effect",
            "set it before the process starts, or in its first lines, before import torch",
            "vllm #3198; ray #52701; vllm #33308",
        )
