"""The logs of 03.triage: their texts as jobs wrote them, and the words in which another team's would differ."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

LOGS = Path(__file__).parent / "files" / "logs"

USERS = ("ada", "noor", "kim", "tove", "ravi")
NODES = ("node07", "gpu-a12", "r4n03", "mi-0021")

SWAPS: Mapping[str, Sequence[Sequence[tuple[str, ...]]]] = {
    "01_batch_job": [
        [("=4,5,6,7",), ("=6,7,2,3",), ("=4,3,2,1",)],
        [("MI300X",), ("MI325X",)],
    ],
    "02_workstation": [
        [("11.0.0", "gfx1100 with"), ("9.0.10", "gfx90a with"), ("12.0.1", "gfx1201 with")],
        [("assistant",), ("captioner",), ("indexer",)],
    ],
    "03_rl_actors": [
        [("DEVICES=2 ", "DEVICES=5 "), ("DEVICES=0 ", "DEVICES=7 "), ("DEVICES=3 ", "DEVICES=4 ")],
        [("BROADCAST", "broadcast"), ("ALLREDUCE", "all_reduce")],
    ],
    "04_new_node": [
        [
            ("MI355X", "gfx950:", "offload targets: gfx90a, gfx942", "287.6"),
            ("MI300X", "gfx942:", "offload targets: gfx90a", "191.7"),
            ("MI250X", "gfx90a:", "offload targets: gfx942, gfx950", "63.9"),
        ],
        [("paged_ops",), ("kv_ops",), ("rope_ops",)],
    ],
    "05_autotune": [
        [("98304", "BLOCK_N=256 BLOCK_K=64 num_stages=3"), ("73728", "BLOCK_N=256 BLOCK_K=32 num_stages=4")],
        [("scaled_mm_kernel",), ("grouped_gemm_kernel",), ("qkv_kernel",)],
    ],
    "06_first_step": [
        [("tanh.approx.f32",), ("ex2.approx.ftz.f32",), ("rcp.approx.ftz.f32",)],
        [("gate",), ("mixer",), ("decay",)],
    ],
    "07_build_a": [
        [("0xffffffff",), ("FULL_MASK",), ("0xFFFFFFFFu",)],
        [("shfl_xor",), ("shfl_down",), ("shfl_up",)],
        [("layernorm",), ("rmsnorm",), ("topk",)],
    ],
    "08_build_b": [
        [("kWaves", "kThreads / warpSize"), ("kParts", "256 / warpSize"), ("kRows", "kBlock / warpSize")],
        [("softmax",), ("welford",), ("argmax",)],
    ],
    "09_loss": [
        [("6.91", "qkv"), ("11.30", "up"), ("5.02", "down")],
        [("pretrain",), ("continue_training",)],
    ],
    "10_after_upgrade": [
        [
            ("step_timer.stop() calls torch.cuda.synchronize()",),
            ("step_timer.stop() calls event.synchronize()",),
            ("step_timer.stop() calls tokens.cpu()",),
        ],
    ],
    "11_fresh_env": [
        [("MI210",), ("MI300X",), ("MI250X",)],
        [("cu130",), ("cu128",), ("cu126",)],
        [("fastserve",), ("quickserve",)],
    ],
    "12_slow": [
        [("6127", "5930", "6040"), ("911", "1204", "873"), ("33001", "31744", "32590")],
        [("4096",), ("5120",), ("8192",)],
    ],
    "13_new_chip": [
        [("3.0e-02",), ("2.0e-02",), ("5.0e-02",)],
        [("6.91", "qkv"), ("11.30", "up"), ("5.02", "down")],
        [("MI300X run",), ("H100 run",)],
        [("pretrain",), ("continue_training",)],
    ],
    "14_two_nodes": [
        [("docker0", "172.17.0.1"), ("virbr0", "192.168.122.1"), ("br-7f1c", "172.18.0.1")],
        [("41277",), ("38915",), ("50233",)],
    ],
    "15_long_context": [
        [("131072, batch", "batch 12"), ("65536, batch", "batch 24"), ("262144, batch", "batch 6")],
        [("attention_kernel",), ("mixer_kernel",)],
        [("24.00 GiB",), ("18.50 GiB",)],
    ],
    "16_first_login": [
        [("=6,7", "=0,1"), ("=1,3", "=1,0"), ("=2,5", "=0,1")],
        [("tryout",), ("course",)],
    ],
}
"""Log -> groups of words that change together; the first of a group stands in the log."""

NOISE = (
    "FutureWarning: torch.cuda.amp.autocast is deprecated, use torch.amp.autocast",
    "NCCL INFO Channel 00 : 0 1 2 3, comm 0x55d0 ready",
    "UserWarning: hipBLASLt is asked for and has no entry in its list for one shape, another library answers",
    "HSA_OVERRIDE_GFX_VERSION is not set",
    "HIP_VISIBLE_DEVICES is not set",
    "memory: 11.8 of 63.9 GiB allocated",
    "network: 4 interfaces up, no errors counted",
    "triton: cache is empty, kernels will be compiled when they are first launched",
    "watchdog: thread started, timeout 600000 ms",
    "warning: learning rate scheduler is called before the optimizer's first step",
    "warp size 32 in the comment of a file that nobody compiles",
    "graph capture: enabled for decoding, not used in this step",
)
"""Lines that mean nothing for any of the logs. One that would contradict a log is left out there."""

TAILS = (
    "Watchdog caught collective operation timeout: ALLREDUCE, 600000 ms",
    "slurmstepd: error: *** STEP 88121.0 CANCELLED DUE TO TIME LIMIT ***",
    "NCCL WARN connection closed by remote peer",
    "job ended with exit code 1; retry 1 of 3 is queued",
)
"""Consequences: what comes after any failure."""

_CONTRADICTS = {
    "HSA_OVERRIDE": "HSA_OVERRIDE",
    "HIP_VISIBLE": "HIP_VISIBLE",
    "memory:": "GiB",
    "NCCL INFO": "NCCL WARN",
    "network:": "NCCL WARN",
    "learning rate": "learning rate",
}
"""Words of a line of noise -> words of the logs in which it would be no noise."""

HARMLESS = "env.sh: export HIP_VISIBLE_DEVICES=0,1,2,3,4,5,6,7"
"""A setting that does no harm where no other variable hides GPUs."""
_WHERE_IT_IS = ("8 x AMD", "4 x AMD")


@lru_cache(maxsize=1)
def raw_logs() -> Mapping[str, str]:
    """Name of a log -> its text as the job wrote it, in order."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(LOGS.glob("*.log"))}


def reworded(name: str, rng: random.Random) -> list[str]:
    """The lines of the same failure at another place: other words and numbers."""
    text = raw_logs()[name]
    for group in SWAPS[name]:
        for old, new in zip(group[0], rng.choice(group), strict=True):
            text = text.replace(old, new)
    pids = rng.randrange(1000, 20_000)
    text = re.sub(r"(pid=|\bnode[\w-]*:)(\d{4})", lambda t: f"{t[1]}{int(t[2]) + pids}", text)
    for names in (USERS, NODES):
        text = re.sub(rf"\b{names[0]}\b", rng.choice(names), text)
    return text.rstrip("\n").split("\n")


def noise_for(lines: Sequence[str], rng: random.Random) -> list[str]:
    """Lines that mean nothing for this log."""
    text = "\n".join(lines)
    fitting = [line for line in NOISE if not any(mark in line and word in text for mark, word in _CONTRADICTS.items())]
    chosen = rng.sample(fitting, 4)
    harmless = any(words in text for words in _WHERE_IT_IS) and "VISIBLE_DEVICES" not in text
    return [*chosen, HARMLESS] if harmless else chosen
