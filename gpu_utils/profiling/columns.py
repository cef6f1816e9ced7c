"""The columns of the one table, and which counter of which tool each comes from.

A table of data: a new counter gets its row here and no code. Units are this library's; a tool's figure is multiplied by
`factor`. Names of counters: Nsight Compute CLI and Profiling Guide; rocprofiler-sdk counter_defs.yaml and the MI200 and
MI300 counter pages. What has no counterpart on the other side is in `gpu_utils.profiling.counterparts`.
"""

from __future__ import annotations

from typing import NamedTuple


class Column(NamedTuple):
    """unit: of its values; says: what it is, in one line."""

    unit: str
    says: str


COLUMNS = {
    # of the launch
    "grid": Column("blocks", "blocks of the grid, (x, y, z)"),
    "block": Column("threads", "threads of a block, (x, y, z)"),
    "blocks": Column("blocks", "blocks of the grid, where only their number is known"),
    "threads": Column("threads", "threads of a block, where only their number is known"),
    "calls": Column("launches", "that this row sums up, in files of sums only"),
    "registers": Column("registers", "vector registers of one lane (VGPRs on AMD)"),
    "accumulators": Column("registers", "accumulation registers of one lane (AGPRs)"),
    "scalar_registers": Column("registers", "scalar registers of one wave (SGPRs)"),
    "shared_bytes": Column("bytes", "shared memory or LDS of one block, static and dynamic"),
    "scratch_bytes": Column("bytes", "local memory or scratch of one thread: spills, and arrays indexed at run time"),
    # time
    "duration": Column("ns", "from its start to its end on the GPU"),
    "cycles": Column("cycles", "of the GPU while it ran"),
    "busy_cycles": Column("cycles", "in which any unit of the GPU worked"),
    # what it executed
    "waves": Column("waves", "warps or wavefronts launched"),
    "instructions": Column("instructions", "wave instructions of all kinds"),
    "vector_instructions": Column("instructions", "wave instructions of the vector units (AMD), matrix ones included"),
    "scalar_instructions": Column("instructions", "wave instructions of the scalar unit (AMD)"),
    "matrix_instructions": Column("instructions", "wave instructions of the matrix units"),
    "lanes_on": Column("%", "lanes that were on, of the lanes of the instructions"),
    "fp32_flop": Column("FLOP", "fp32 additions, multiplications and 2 for each fused one, vector units"),
    "matrix_flop": Column("FLOP", "of the matrix units"),
    # memory
    "memory_read": Column("bytes", "read by the L2 from memory"),
    "memory_written": Column("bytes", "written by the L2 to memory"),
    "memory_bytes": Column("bytes", "both together"),
    "l2_hits": Column("%", "of what the L2 was asked for and had"),
    "load_requests": Column("requests", "global loads of whole waves (NVIDIA)"),
    "load_sectors": Column("sectors", "32-byte sectors that these touched (NVIDIA)"),
    "store_requests": Column("requests", "global stores of whole waves (NVIDIA)"),
    "store_sectors": Column("sectors", "32-byte sectors that these touched (NVIDIA)"),
    "sectors_per_load": Column("sectors", "load_sectors over load_requests: 4 where 32 lanes load 4 bytes in a row"),
    "load_instructions": Column("instructions", "vector memory loads of whole waves (AMD)"),
    "store_instructions": Column("instructions", "vector memory stores of whole waves (AMD)"),
    "cache_lines": Column("lines", "lines of the first-level cache that were looked up (AMD)"),
    "lines_per_access": Column("lines", "cache_lines over load_instructions and store_instructions (AMD)"),
    # shared memory
    "shared_instructions": Column("instructions", "wave instructions on shared memory or LDS"),
    "shared_passes": Column("passes", "passes over shared memory (NVIDIA)"),
    "shared_cycles": Column("cycles", "in which the LDS served an indexed access (AMD)"),
    "conflict_passes": Column("passes", "passes because of bank conflicts (NVIDIA)"),
    "conflict_cycles": Column("cycles", "cycles because of bank conflicts (AMD)"),
    # how full, how busy
    "occupancy": Column("%", "achieved: waves resident on average, of those that the hardware can hold"),
    "occupancy_limit": Column("%", "theoretical: waves that registers, shared memory and block size allow"),
    "occupancy_limiter": Column("", "the resource that sets occupancy_limit"),
    "occupancy_estimate": Column("%", "what torch.profiler works out from the launch; measured by nobody"),
    "wave_cycles": Column("cycles", "resident waves summed over cycles (AMD)"),
    "compute_busy": Column("%", "of the busiest part of the SM (NVIDIA)"),
    "memory_busy": Column("%", "of the peak bandwidth of memory"),
    "matrix_busy": Column("%", "cycles in which the matrix units worked"),
    "vector_busy": Column("%", "cycles in which the vector units worked (AMD)"),
    # copies and fills
    "bytes": Column("bytes", "copied or filled"),
    "direction": Column("", "host to device, device to host, device to device"),
    # of torch
    "op": Column("", "operator of torch that it was launched for"),
}


class Counter(NamedTuple):
    """A counter of a tool: column: its place in COLUMNS; factor: from the tool's base unit to the column's."""

    column: str
    factor: float = 1.0


NCU = {
    "gpu__time_duration.sum": Counter("duration"),
    "sm__cycles_elapsed.max": Counter("cycles"),
    "gpc__cycles_elapsed.max": Counter("cycles"),
    "launch__registers_per_thread": Counter("registers"),
    "launch__local_mem_per_thread": Counter("scratch_bytes"),
    "smsp__warps_launched.sum": Counter("waves"),
    "smsp__inst_executed.sum": Counter("instructions"),
    "sm__inst_executed_pipe_tensor.sum": Counter("matrix_instructions"),
    "smsp__thread_inst_executed_per_inst_executed.ratio": Counter("lanes_on", 100 / 32),
    "dram__bytes_read.sum": Counter("memory_read"),
    "dram__bytes_write.sum": Counter("memory_written"),
    "dram__bytes.sum": Counter("memory_bytes"),
    "lts__t_sector_hit_rate.pct": Counter("l2_hits"),
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": Counter("load_requests"),
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": Counter("load_sectors"),
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum": Counter("store_requests"),
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": Counter("store_sectors"),
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio": Counter("sectors_per_load"),
    "smsp__inst_executed_op_shared.sum": Counter("shared_instructions"),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": Counter("shared_passes"),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": Counter("conflict_passes"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": Counter("occupancy"),
    "sm__maximum_warps_per_active_cycle_pct": Counter("occupancy_limit"),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": Counter("compute_busy"),
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": Counter("memory_busy"),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": Counter("matrix_busy"),
}
"""Full names of ncu's metrics, in base units (ns, bytes). What is a sum of several is in `deriving`."""

ROCPROF = {
    "SQ_WAVES": Counter("waves"),
    "SQ_INSTS_VALU": Counter("vector_instructions"),
    "SQ_INSTS_SALU": Counter("scalar_instructions"),
    "SQ_INSTS_MFMA": Counter("matrix_instructions"),
    "SQ_INSTS_LDS": Counter("shared_instructions"),
    "SQ_INSTS_VMEM_RD": Counter("load_instructions"),
    "SQ_INSTS_VMEM_WR": Counter("store_instructions"),
    "VALUUtilization": Counter("lanes_on"),
    "FETCH_SIZE": Counter("memory_read", 1024),
    "WRITE_SIZE": Counter("memory_written", 1024),
    "L2CacheHit": Counter("l2_hits"),
    "TCP_TOTAL_CACHE_ACCESSES_sum": Counter("cache_lines"),
    "SQ_LDS_IDX_ACTIVE": Counter("shared_cycles"),
    "SQ_LDS_BANK_CONFLICT": Counter("conflict_cycles"),
    "GRBM_GUI_ACTIVE": Counter("busy_cycles"),
    "OccupancyPercent": Counter("occupancy"),
    "MfmaUtil": Counter("matrix_busy"),
    "VALUBusy": Counter("vector_busy"),
}
"""Counters of rocprofv3 and rocprof. FETCH_SIZE and WRITE_SIZE are in KiB. SQ_WAVE_CYCLES counts in fours on gfx9 and
not on others, so `deriving` makes wave_cycles of it where the target is known."""

NCU_LABELS = {
    "Duration": "gpu__time_duration.sum",
    "Elapsed Cycles": "gpc__cycles_elapsed.max",
    "Registers Per Thread": "launch__registers_per_thread",
    "Executed Instructions": "smsp__inst_executed.sum",
    "Avg. Active Threads Per Warp": "smsp__thread_inst_executed_per_inst_executed.ratio",
    "Achieved Occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "Theoretical Occupancy": "sm__maximum_warps_per_active_cycle_pct",
    "Compute (SM) Throughput": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "DRAM Throughput": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "L2 Hit Rate": "lts__t_sector_hit_rate.pct",
}
"""What sections of ncu call a metric -> its full name. Two metrics share "Memory Throughput", which has no row."""
