"""What `limits` judges by: thresholds with their reasons, advice, and the counters that each question needs.

Tables only. Names of counters: Nsight Compute CLI; rocprofiler-sdk counter_defs.yaml.
"""

from __future__ import annotations

from typing import NamedTuple


class Threshold(NamedTuple):
    """value in unit; reason: why there and not elsewhere, one sentence."""

    value: float
    unit: str
    reason: str


THRESHOLDS = {
    "near_peak": Threshold(
        60, "% of a peak", "Nsight Compute's own rule: below 60 % of both peaks, waiting limits rather than throughput"
    ),
    "scattered": Threshold(
        4,
        "x ideal",
        "16 bytes a lane, the widest load, touch 4 times what 4 bytes a lane do; more is scattered whatever the type",
    ),
    "wider_or_scattered": Threshold(
        1.5, "x ideal", "above the ideal of 4 bytes a lane: wider elements, or a stride; the counter cannot tell which"
    ),
    "short_rows": Threshold(
        2, "x ideal", "rows of 64 bytes, as of a tile, touch twice the lines that whole rows do: a hint and no more"
    ),
    "conflicts": Threshold(
        20, "% of the accesses' time", "so much of the time in shared memory is the most that a new layout can win"
    ),
    "occupancy": Threshold(
        50, "%", "half of the wave slots is often enough; with less, and no peak near, more waves are the first try"
    ),
    "uneven": Threshold(
        70, "% of what fits", "waves end early, start late or are too few when far fewer are resident than fit"
    ),
    "lanes": Threshold(75, "%", "with a quarter of the lanes off, at least a quarter of the vector work is lost"),
    "small_part": Threshold(
        1, "% of the kernels' time", "with less, a kernel that took no time at all would win less (Amdahl's law)"
    ),
    "idle": Threshold(5, "% of the time", "for one cause; with less, removing it could not win a twentieth"),
    "above_peak": Threshold(
        105, "% of a peak", "more than a peak says that a cache answered, a unit is wrong, or the chip is another one"
    ),
}
"""Everything that a verdict depends on."""

ADVICE = {
    "memory": "Move fewer bytes: fuse it with its neighbours, narrow its type, or use again what was loaded (tiles).",
    "compute": "Use the matrix units or a narrower type where the numbers allow it; else only fewer operations help.",
    "latency": "Give each SM or CU more independent work: more waves and blocks, more loads in flight in each thread.",
    "uncoalesced": "Let neighbouring lanes touch neighbouring addresses: another order of the loops or of the data, "
    "or a tile in shared memory between.",
    "bank_conflicts": "Pad the rows in shared memory by one element, or swizzle the index.",
    "spills": "Keep fewer values alive: smaller tiles, less unrolling; arrays indexed at run time go to shared memory.",
    "occupancy": "Let more waves in: fewer registers or less shared memory a block, or blocks that fill the slots.",
    "uneven": "More blocks, or blocks of more even length: few waves were resident although more would fit.",
    "small_grid": "Make more blocks: smaller tiles, or split the long axis as well.",
    "lanes_off": "Let whole waves take the same branch, and choose blocks that divide the sizes.",
    "launch_bound": "Launch less and larger: fuse kernels (torch.compile, Triton), or replay a graph "
    "(torch.cuda.CUDAGraph, also on ROCm).",
    "sync": "Take .item(), printing and copies to the host out of the loop, and wait once for many steps.",
    "copy": "Use pinned memory and non_blocking=True, on a stream of its own, so that copies run beside kernels.",
    "slow_host": "See what the host does in the gaps: loading of data belongs in other processes.",
}
"""Kind of a finding -> what to try, one sentence."""


class Need(NamedTuple):
    """A question, and counters that answer it: of ncu and of rocprofv3. Empty: the plain kernel trace has it. None: no
    counter has."""

    question: str
    nvidia: tuple[str, ...]
    amd: tuple[str, ...] | None


_TIME = "gpu__time_duration.sum"
_FLOP = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
_VALU = "SQ_INSTS_VALU_{}_F32"

NEEDS = {
    "memory": Need("how near it is to the memory's peak", (_TIME, "dram__bytes.sum"), ("FETCH_SIZE", "WRITE_SIZE")),
    "compute": Need(
        "how near it is to the peak of arithmetic",
        (
            _TIME,
            "sm__throughput.avg.pct_of_peak_sustained_elapsed",
            *(_FLOP.format(each) for each in ("fadd", "fmul", "ffma")),
        ),
        (*(_VALU.format(each) for each in ("ADD", "MUL", "FMA")), "MfmaUtil"),
    ),
    "busiest": Need(
        "whether it waits, or another unit is near its peak",
        ("sm__throughput.avg.pct_of_peak_sustained_elapsed",),
        None,
    ),
    "uncoalesced": Need(
        "whether its loads and stores are coalesced",
        tuple(
            f"l1tex__t_{what}_pipe_lsu_mem_global_op_{way}.sum"
            for way in ("ld", "st")
            for what in ("requests", "sectors")
        ),
        ("SQ_INSTS_VMEM_RD", "SQ_INSTS_VMEM_WR", "TCP_TOTAL_CACHE_ACCESSES_sum"),
    ),
    "bank_conflicts": Need(
        "whether shared memory has bank conflicts",
        ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"),
        ("SQ_LDS_BANK_CONFLICT", "SQ_LDS_IDX_ACTIVE"),
    ),
    "spills": Need("whether registers are spilled", ("launch__local_mem_per_thread",), ()),
    "occupancy": Need(
        "how many waves are resident",
        ("sm__warps_active.avg.pct_of_peak_sustained_active", "launch__registers_per_thread"),
        ("OccupancyPercent",),
    ),
    "lanes_off": Need(
        "how many lanes are on", ("smsp__thread_inst_executed_per_inst_executed.ratio",), ("VALUUtilization",)
    ),
}


def command(key: str, vendor: str | None, program: str = "python train.py") -> str:
    """The command that records what a question needs.

    >>> command("memory", "amd")
    'rocprofv3 --pmc FETCH_SIZE WRITE_SIZE --kernel-trace --output-format csv -d counters -- python train.py'
    >>> command("busiest", "amd")
    'no counter of AMD says it'
    >>> command("lanes_off", None).count(", or ")
    1
    """
    need = NEEDS[key]
    if vendor is None:
        return f"{command(key, 'nvidia', program)}, or {command(key, 'amd', program)}"
    if vendor == "nvidia":
        return f"ncu --csv --page raw --log-file counters.csv --metrics {','.join(need.nvidia)} {program}"
    if need.amd is None:
        return "no counter of AMD says it"
    counters = f"--pmc {' '.join(need.amd)} " if need.amd else ""
    return f"rocprofv3 {counters}--kernel-trace --output-format csv -d counters -- {program}"
