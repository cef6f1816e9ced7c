"""Which metric of Nsight Compute and which counter of rocprofv3 answer the same question, and how well they match.

A table of data. match: "well" (the numbers compare), "fair" (they compare, but for what `note` says), "loosely" (only
their changes compare), "none" (one side has nothing; `note` says what to do instead).

Sources: names and meanings of NVIDIA's metrics from its Nsight Compute documentation and its answers in its forum, of
AMD's from rocprofiler-sdk's counter_defs.yaml, ROCm's page of MI300 and MI200 counters, and the documentation of
rocprofiler-compute. Where a counterpart is our own judgement and no vendor's, `source` begins with "ours".
"""

from __future__ import annotations

from typing import NamedTuple

MATCHES = ("well", "fair", "loosely", "none")

_NCU = "docs.nvidia.com/nsight-compute, Profiling Guide"
_NCU_CLI = "docs.nvidia.com/nsight-compute, Nsight Compute CLI"
_DEFS = "ROCm/rocprofiler-sdk, counter_defs.yaml"
_PAGE = "ROCm, MI300 and MI200 Series performance counters and metrics"
_CSV = "ROCm/rocm-systems, rocprofiler-sdk, generateCSV.cpp"
_COMPUTE = "ROCm Compute Profiler documentation"


class Counterpart(NamedTuple):
    """question: what one wants to know; nvidia, amd: names, "" for none; match: of MATCHES; note: what is to be minded;
    source: who says so."""

    question: str
    nvidia: str
    amd: str
    match: str
    note: str
    source: str


COUNTERPARTS = (
    Counterpart(
        "time",
        "gpu__time_duration.sum",
        "End_Timestamp - Start_Timestamp",
        "fair",
        "ns on both; ncu fixes clocks and empties caches first, unless told otherwise",
        f"{_NCU_CLI}, --clock-control and --cache-control; {_CSV}",
    ),
    Counterpart(
        "cycles",
        "gpc__cycles_elapsed.max",
        "GRBM_GUI_ACTIVE",
        "well",
        "",
        f"{_NCU}; {_DEFS}",
    ),
    Counterpart(
        "blocks",
        "Grid Size",
        "Grid_Size / Workgroup_Size",
        "well",
        "AMD's grid counts work-items, NVIDIA's blocks",
        f"{_COMPUTE}, pipeline metrics: Grid Size",
    ),
    Counterpart(
        "warps or waves launched",
        "smsp__warps_launched.sum",
        "SQ_WAVES",
        "well",
        "a warp has 32 lanes, a wave of CDNA 64",
        f"benchmarks of this course on an H100 (7 of 7 launches); {_PAGE}",
    ),
    Counterpart(
        "instructions",
        "smsp__inst_executed.sum",
        "SQ_INSTS_VALU + SALU + SMEM + VMEM_RD + VMEM_WR + LDS + BRANCH",
        "loosely",
        "AMD's scalar unit does once what 32 lanes repeat; SQ_INSTS_VALU alone is no counterpart",
        f"{_PAGE}; the judgement is ours",
    ),
    Counterpart(
        "fp32 work",
        "smsp__sass_thread_inst_executed_op_{fadd,fmul,ffma}_pred_on.sum",
        "SQ_INSTS_VALU_{ADD,MUL,FMA}_F32 x 64",
        "fair",
        "NVIDIA counts threads, AMD waves: an upper bound where lanes are off. A fused one counts 2",
        f"NVIDIA's answer in forums.developer.nvidia.com 215350; {_PAGE}",
    ),
    Counterpart(
        "matrix work",
        "sm__inst_executed_pipe_tensor.sum",
        "SQ_INSTS_VALU_MFMA_MOPS_* x 512",
        "fair",
        "NVIDIA counts instructions, whose size differs; sm__ops_path_tensor_* counts operations on newer chips",
        f"NVIDIA's answer in forums.developer.nvidia.com 275450; {_PAGE}",
    ),
    Counterpart(
        "matrix units busy",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        "MfmaUtil",
        "fair",
        "cycles, not FLOP over the peak; NVIDIA divides by active cycles, AMD by all",
        f"{_NCU}; {_DEFS}",
    ),
    Counterpart(
        "occupancy reached",
        "sm__warps_active.avg.pct_of_peak_sustained_active",
        "OccupancyPercent",
        "fair",
        "NVIDIA divides by cycles in which the SM was active, AMD by all",
        f"{_NCU}; {_DEFS}",
    ),
    Counterpart(
        "occupancy possible, and its limit",
        "sm__maximum_warps_per_active_cycle_pct, launch__occupancy_limit_*",
        "",
        "none",
        "AMD: work it out from VGPR_Count, LDS_Block_Size and Workgroup_Size",
        f"{_NCU}; {_CSV}",
    ),
    Counterpart(
        "registers of a lane",
        "launch__registers_per_thread",
        "VGPR_Count + Accum_VGPR_Count",
        "fair",
        "AMD has two kinds, and SGPR_Count for a whole wave",
        f"{_NCU}; {_CSV}",
    ),
    Counterpart(
        "shared memory of a block",
        "launch__shared_mem_per_block_static, ..._dynamic",
        "LDS_Block_Size",
        "fair",
        "AMD's is rounded up, and what a launch asks for on top may be missing",
        f"{_NCU}; {_CSV}",
    ),
    Counterpart(
        "local memory of a thread",
        "launch__local_mem_per_thread",
        "Scratch_Size",
        "fair",
        "spills, and arrays that are indexed at run time",
        f"{_NCU}; {_CSV}",
    ),
    Counterpart(
        "bytes from and to memory",
        "dram__bytes_read.sum, dram__bytes_write.sum",
        "FETCH_SIZE, WRITE_SIZE",
        "fair",
        "AMD's are KiB, and on MI300X what the Infinity Cache had is inside",
        f"{_NCU}; {_DEFS}",
    ),
    Counterpart(
        "hits of the L2",
        "lts__t_sector_hit_rate.pct",
        "TCC_HIT_sum / (TCC_HIT_sum + TCC_MISS_sum)",
        "fair",
        "sectors of 32 bytes against lines of 128",
        f"{_NCU}; {_DEFS}",
    ),
    Counterpart(
        "coalescing",
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum / l1tex__t_requests_...",
        "TCP_TOTAL_CACHE_ACCESSES_sum / (SQ_INSTS_VMEM_RD + SQ_INSTS_VMEM_WR)",
        "loosely",
        "4 sectors are ideal for 32 x 4 bytes; 2 lines of 128 for 64 x 4, loads and stores in one",
        "NVIDIA's answer in forums.developer.nvidia.com 285476; rocprofiler-compute, "
        "analysis_configs/gfx942/1600_vector_l1_data_cache.yaml; the ratio is ours",
    ),
    Counterpart(
        "bank conflicts",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
        "SQ_LDS_BANK_CONFLICT",
        "loosely",
        "passes against cycles: compare each with its own whole, "
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum and SQ_LDS_IDX_ACTIVE",
        f"forums.developer.nvidia.com 359822; {_COMPUTE}, LDS: Bank Conflict Rate",
    ),
    Counterpart(
        "lanes that are on",
        "smsp__thread_inst_executed_per_inst_executed.ratio",
        "VALUUtilization",
        "well",
        "NVIDIA: of 32; AMD: a percentage",
        f"{_NCU}; {_DEFS}",
    ),
    Counterpart(
        "why waves wait",
        "smsp__pcsamp_warps_issue_stalled_*",
        "PC sampling: Stall_Reason; SQ_WAIT_INST_ANY, SQ_WAIT_INST_LDS",
        "loosely",
        "AMD's reasons from gfx942 on, and with other names",
        f"{_NCU}; ROCm, Using PC sampling",
    ),
    Counterpart(
        "one bar for compute and memory",
        "sm__throughput.avg.pct_of_peak_sustained_elapsed, dram__throughput...",
        "",
        "none",
        "AMD: rocprofiler-compute makes a table of its own",
        f"{_NCU}; {_COMPUTE}, System Speed-of-Light",
    ),
    Counterpart(
        "warps that could issue",
        "smsp__warps_eligible.avg.per_cycle_active",
        "",
        "none",
        "AMD counts instructions issued (SQ_ACTIVE_INST_ANY), not waves that are ready",
        f"{_NCU}; {_PAGE}",
    ),
    Counterpart(
        "rounds of blocks over the chip",
        "launch__waves_per_multiprocessor",
        "",
        "none",
        "AMD: blocks / (CUs x blocks that fit). NVIDIA's word for a round is wave",
        f"{_NCU}; the formula is ours",
    ),
    Counterpart(
        "work of the scalar unit",
        "",
        "SQ_INSTS_SALU, SALUBusy",
        "none",
        "NVIDIA's uniform datapath is seen as a pipe only (sm__inst_executed_pipe_uniform)",
        f"{_DEFS}; the judgement is ours",
    ),
    Counterpart(
        "address unit held up",
        "",
        "MemUnitStalled",
        "none",
        "NVIDIA: stall reason lg_throttle comes near; MemUnitStalled is not defined for gfx942 and gfx950",
        f"{_DEFS}; the judgement is ours",
    ),
)


def without(vendor: str) -> tuple[Counterpart, ...]:
    """What a vendor has no counter for: "nvidia" or "amd".

    >>> [row.question for row in without("nvidia")]
    ['work of the scalar unit', 'address unit held up']
    """
    return tuple(row for row in COUNTERPARTS if not getattr(row, vendor))
