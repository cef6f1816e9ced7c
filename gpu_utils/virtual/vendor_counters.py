"""Counters of a launch under the names that its vendor's profiler uses.

    print(table(gpu.last))                       # vendor's name, value, and how ours differs from the device's

Only counters that a device has under the same name. AMD targets run the machine code itself, so their instruction
counts are the device's. NVIDIA targets run PTX, which ptxas turns into other instructions: what differs is said in
`Counter.differs`. There is no clock, so nothing is here that needs time. Traffic of memory is there for launches under
`virtual_gpu(target, l2=True)` (gpu_utils.virtual.cache).

Names: ROCm MI200 performance counters; Nsight Compute's comparison with nvprof, and its launch metrics.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from gpu_utils.analytic.occupancy import occupancy
from gpu_utils.chips.targets import TARGETS
from gpu_utils.virtual.cache import l2_traffic
from gpu_utils.virtual.ptx.state import PtxInfo


@dataclass(frozen=True)
class Counter:
    """One value under the vendor's name. differs: "" where it is what a device counts, else one sentence."""

    name: str
    unit: str
    value: float
    differs: str = ""


_PTX = "counts PTX instructions; ptxas turns them into others"
_REQUEST = "distinct sectors of the whole warp; the device may split a wide access into several passes"
_MODEL = "from the L2 model: cold cache, no first-level cache, dirty lines written back at the end"
_BANKS = (
    "bank cycles beyond one per group of lanes, with lanes grouped in order; the device groups some widths otherwise"
)
_MIXED = "all f8f6f4 instructions, also on 8-bit inputs: no source says where a device files those"
_LINES = (
    "distinct cache lines of each wavefront instruction; scratch as if its lanes lay side by side, as it is laid out"
)
_PACKED = "a packed instruction on two numbers counts as one: no source says how a device counts it"
_LOCAL = "counts PTX instructions; values that ptxas moves out of registers are not among them"

_MOPS = (  # what a matrix instruction's name says of its inputs -> suffix of SQ_INSTS_VALU_MFMA_MOPS_
    ("_xf32", "XF32"),
    ("fp8_", "F8"),
    ("bf8_", "BF8"),
    ("f8f6f4", "F6F4"),
    ("bf16", "BF16"),
    ("f16", "F16"),
    ("i8", "I8"),
    ("f64", "F64"),
    ("f32", "F32"),
)
_AMD_FP32 = (  # suffix of SQ_INSTS_VALU_*_F32 -> mnemonics
    ("ADD", r"v_(pk_)?(add|sub|subrev)_f32"),
    ("MUL", r"v_(pk_)?mul_(legacy_)?f32"),
    ("FMA", r"v_(pk_)?(fma|fmac|fmamk|fmaak|mac|mad)_f32"),
    ("TRANS", r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_(iflag_)?f32"),
)
_PTX_FP32 = (("fadd", r"(add|sub)\.(\w+\.)*f32"), ("fmul", r"mul\.(\w+\.)*f32"), ("ffma", r"(fma|mad)\.(\w+\.)*f32"))
_LIMITS = {"registers": "registers", "shared memory": "shared_mem", "waves": "warps", "blocks": "blocks"}
_MOPS_OF = {"fp8": ("F8", "BF8"), "f8f6f4": ("F6F4",)}  # inputs of a target's row; others bear their own name


def vendor_counters(launch: Any) -> list[Counter]:
    """The counters of a launch under the names that its vendor's profiler uses."""
    return _nvidia(launch) if launch.chip.isa == "ptx" else _amd(launch)


def table(launch: Any) -> str:
    """Name, value, unit of each counter, with a line below where ours differs from the device's."""
    rows = vendor_counters(launch)
    wide = max(len(row.name) for row in rows)
    lines = []
    for row in rows:
        lines.append(f"{row.name:<{wide}}  {number(row.value):>16} {row.unit}".rstrip())
        if row.differs:
            lines.append(f"    {row.differs}")
    return "\n".join(lines)


def number(value: float) -> str:
    """With thousands separators, as ncu writes.

    >>> number(1234567), number(12.5)
    ('1,234,567', '12.50')
    """
    return f"{int(value):,}" if value == int(value) else f"{value:,.2f}"


class _Tally:
    """Sums over the instructions of a launch that a pattern of mnemonics chooses."""

    def __init__(self, launch: Any) -> None:
        self.counters, self.ops = launch.counters, launch.program.ops
        self.per_op = self.counters.per_op()

    def waves(self, pattern: str, kinds: tuple[str, ...] = ()) -> int:
        """Wave instructions."""
        match = re.compile(pattern).match
        return sum(
            self.per_op[op.index][0] for op in self.ops if match(op.mnemonic) and (not kinds or op.kind in kinds)
        )

    def lanes(self, pattern: str) -> int:
        """Lane instructions: those of the lanes that were on."""
        match = re.compile(pattern).match
        return sum(self.per_op[op.index][1] for op in self.ops if match(op.mnemonic))

    def access(self, table: dict[int, Any], pattern: str, value: Callable[[Any], int]) -> int:
        """A sum over memory accesses."""
        match = re.compile(pattern).match
        return sum(value(access) for at, access in table.items() if match(self.ops[at].mnemonic))


def _conflicts(access: Any) -> int:
    return access.transactions - access.ideal


def _transactions(access: Any) -> int:
    return access.transactions


def _amd(launch: Any) -> list[Counter]:
    tally, counters = _Tally(launch), launch.counters
    loads, stores = r"(global|flat|buffer|scratch)_load", r"(global|flat|buffer|scratch)_(store|atomic)"
    found = [
        Counter("SQ_WAVES", "waves", counters.launched_waves),
        Counter("SQ_INSTS_VALU", "instructions", tally.waves(r"v_")),
        Counter("SQ_INSTS_SALU", "instructions", tally.waves(r"s_", ("scalar", "move"))),
        Counter("SQ_INSTS_SMEM", "instructions", tally.waves(r"s_(buffer_)?load")),
        Counter("SQ_INSTS_LDS", "instructions", tally.waves(r"ds_")),
        Counter("SQ_INSTS_BRANCH", "instructions", tally.waves(r"s_c?branch")),
    ]
    if "mfma" in launch.chip.matrix:
        found += [
            Counter("SQ_INSTS_VMEM_RD", "instructions", tally.waves(loads)),
            Counter("SQ_INSTS_VMEM_WR", "instructions", tally.waves(stores)),
            Counter("SQ_INSTS_MFMA", "instructions", tally.waves(r"v_s?mfma")),
        ]
        flops = dict.fromkeys((name for kind in launch.chip.inputs for name in _MOPS_OF.get(kind, (kind.upper(),))), 0)
        for op in tally.ops:
            if op.flops:
                flops[_input_format(op.mnemonic)] += op.flops * tally.per_op[op.index][0]
        found += [
            Counter(f"SQ_INSTS_VALU_MFMA_MOPS_{kind}", "512 operations", n / 512, _MIXED if kind == "F6F4" else "")
            for kind, n in flops.items()
        ]
        lines = tally.access(counters.globals, r"(?!scratch_)", _transactions)
        lines += tally.access(counters.globals, r"scratch_", lambda access: access.ideal)
        found.append(Counter("TCP_TOTAL_CACHE_ACCESSES_sum", "lines", lines, _LINES))
        found += [
            Counter(f"SQ_INSTS_VALU_{name}_F32", "instructions", tally.waves(pattern), _PACKED)
            for name, pattern in _AMD_FP32
        ]
    found += [
        Counter("SQ_LDS_IDX_ACTIVE", "cycles", tally.access(counters.shareds, r"", _transactions), _BANKS),
        Counter("SQ_LDS_BANK_CONFLICT", "cycles", tally.access(counters.shareds, r"", _conflicts), _BANKS),
    ]
    if counters.record is not None:
        traffic = l2_traffic(launch)
        found += [
            Counter("FETCH_SIZE", "KB", traffic.read_bytes / 1024, _MODEL),
            Counter("WRITE_SIZE", "KB", traffic.written_bytes / 1024, _MODEL),
        ]
    return found


def _input_format(mnemonic: str) -> str:
    """The suffix of the MOPS counter for a matrix instruction.

    >>> [_input_format(f"v_mfma_f32_{shape}") for shape in ("32x32x8_bf16_1k", "32x32x2_f32", "16x16x32_fp8_bf8")]
    ['BF16', 'F32', 'F8']
    """
    inputs = re.sub(r"^v_(s?mfma)(_scale)?_[a-z]+\d+_", "", mnemonic)
    return next(suffix for part, suffix in _MOPS if part in inputs or inputs.endswith(part))


def _nvidia(launch: Any) -> list[Counter]:
    tally, counters = _Tally(launch), launch.counters
    load, store = r"(ld|ldu)(?!.*(shared|local|param))", r"st(?!.*(shared|local|param|async|matrix))"
    requests = [
        ("ld", load),
        ("st", store),
        ("atom", r"atom(?!.*shared)"),
        ("red", r"red(?!ux)(?!.*(shared|async))"),
        ("ldgsts", r"cp\.async\.c[ag]"),
    ]
    found = [
        Counter("smsp__warps_launched.sum", "warp", counters.launched_waves),
        Counter("smsp__inst_executed.sum", "inst", sum(counters.instructions().values()), _PTX),
        Counter("smsp__thread_inst_executed_per_inst_executed.ratio", "", counters.lane_utilisation() * 32, _PTX),
        Counter("sm__inst_executed_pipe_tensor.sum", "inst", tally.waves(r"(wg)?mma", ("matrix",)), _PTX),
    ]
    for name, pattern in requests:
        waves = tally.access(counters.globals, pattern, lambda access: access.waves)
        sectors = tally.access(counters.globals, pattern, _transactions)
        if name != "ldgsts":  # an H100 leaves out an instruction whose lanes are all off
            found.append(Counter(f"smsp__inst_executed_op_global_{name}.sum", "inst", waves))
        found.append(Counter(f"l1tex__t_requests_pipe_lsu_mem_global_op_{name}.sum", "request", waves))
        found.append(Counter(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{name}.sum", "sector", sectors, _REQUEST))
    for name, pattern in (("ld", r"ld"), ("st", r"st")):
        conflicts = tally.access(counters.shareds, pattern, _conflicts)
        found.append(Counter(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{name}.sum", "", conflicts, _BANKS))
        local = tally.waves(rf"{name}u?\.(\w+\.)*local")
        found.append(Counter(f"smsp__inst_executed_op_local_{name}.sum", "inst", local, _LOCAL))
    every = tally.access(counters.shareds, r"", _conflicts)
    found.append(Counter("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "", every, _BANKS))
    passes = tally.access(counters.shareds, r"", _transactions)
    found.append(Counter("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "", passes, _BANKS))
    found += [
        Counter(f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum", "inst", tally.lanes(pattern), _PTX)
        for name, pattern in _PTX_FP32
    ]
    found += _launch_metrics(launch)
    if counters.record is not None:
        traffic = l2_traffic(launch)
        found += [
            Counter("dram__bytes_read.sum", "byte", traffic.read_bytes, _MODEL),
            Counter("dram__bytes_write.sum", "byte", traffic.written_bytes, _MODEL),
            Counter("dram__bytes.sum", "byte", traffic.bytes, _MODEL),
        ]
    return found


def _launch_metrics(launch: Any) -> list[Counter]:
    """What ncu works out of a launch without counting; registers and what follows from them where ptxas was asked."""
    static = cast(PtxInfo, launch.program.info).static_shared
    found = [
        Counter("launch__shared_mem_per_block_static", "byte/block", static),
        Counter("launch__shared_mem_per_block_dynamic", "byte/block", launch.shared_bytes - static),
    ]
    if launch.registers:
        target = TARGETS[launch.target]
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        fits = occupancy(target, launch.registers, launch.shared_bytes, -(-threads // target.lanes))
        found += [
            Counter("launch__registers_per_thread", "register/thread", launch.registers),
            Counter("launch__local_mem_per_thread", "byte/thread", launch.stack),
            *(Counter(f"launch__occupancy_limit_{_LIMITS[row.resource]}", "block", row.blocks) for row in fits.rows),
            Counter("sm__maximum_warps_per_active_cycle_pct", "%", 100 * fits.fraction),
        ]
    return found
