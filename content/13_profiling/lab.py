# %% [markdown] top
# # Lab 13: profiles, read by your own code
#
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it.
#   `hint("13.roofline_points")` gives three hints of growing strength. `solution("13.roofline_points")` asks first.

# %% imports tags=["setup"]
import math
import re
import statistics

from gpu_utils import check, hint, lesson, progress, solution

# %% [markdown] statement of roofline_points
# ## 13.roofline_points: which kernel would gain most?
#
# A list of launches with raw counters, as the tool of one vendor gives them. Write
# `roofline_points(kernels, peak, bandwidth)`: a point for each kernel **name**, what bounds it, and the kernel that
# would gain most of the whole run if it reached its roof. The run computes in float32; `peak` is in FLOP/s,
# `bandwidth` in bytes/s.
#
# A dict in `kernels` is one launch: `name`, and the counters of **one** vendor's tool.
#
# | AMD, rocprofv3, CDNA | unit |
# |---|---|
# | `Start_Timestamp`, `End_Timestamp` | ns |
# | `SQ_INSTS_VALU_ADD_F32`, `..._MUL_F32`, `..._FMA_F32` | instructions of waves of 64 lanes, all lanes on |
# | `SQ_INSTS_VALU_MFMA_MOPS_F32` | 512 FLOP each, on the matrix units |
# | `FETCH_SIZE`, `WRITE_SIZE` | 1024 bytes, fractions possible |
#
# | NVIDIA, ncu | unit |
# |---|---|
# | `gpu__time_duration.sum` | ns |
# | `smsp__sass_thread_inst_executed_op_{fadd,fmul,ffma}_pred_on.sum` | instructions of **threads** that were on |
# | `sm__inst_executed_pipe_tensor.sum` | instructions of warps on the tensor cores; FLOP of each unknown |
# | `dram__bytes_read.sum`, `dram__bytes_write.sum` | bytes |
#
# A fused multiply-add is two FLOP. A counter that was not collected is `None`. A sum that needs it is unknown,
# `None`, and so is what follows from that sum. FLOP are unknown too where a launch of the kernel used the tensor
# cores, or may have.
#
# The result is a dict. `"points"`: a list of dicts, one for each name, in any order:
#
# | field | |
# |---|---|
# | `name` | as in the launches |
# | `flop`, `bytes`, `seconds` | of **all launches together**; a launch's time is from its start to its end |
# | `intensity` | FLOP for a byte |
# | `share` | least seconds / `seconds`, where least seconds are those that the roof allows (below) |
# | `bound` | `"neither"` below a share of 0.5; else `"memory"` left of the ridge, `"compute"` from it on |
# | `gain` | seconds that the run would save if the kernel reached its roof; below 0 where a cache helped |
#
# The roof is the lower of two ceilings, `peak` and intensity x `bandwidth`; the ridge is the intensity at which
# they meet. Neither the arithmetic nor the traffic of a kernel can take less time than its ceiling allows.
#
# `"first"`: the name with the largest known `gain`; `None` where none is known. `bytes` and `seconds` are never 0,
# FLOP may be: a copy has a roof too.
#
# **A small example.** `gemv` on AMD, launched twice, with `peak` 1e12 and `bandwidth` 2e12:
#
# | | ns | ADD | MUL | FMA | MOPS | FETCH_SIZE | WRITE_SIZE |
# |---|---|---|---|---|---|---|---|
# | first | 1000 to 2000 | 10 | 5 | 1000 | 0 | 1024 | 1 |
# | second | 4000 to 4500 | 0 | 5 | 1000 | 0 | 511 | 0 |
#
# 64 · (20 + 2 · 2000) = 257,280 FLOP, 1536 · 1024 = 1,572,864 bytes, 1.5 µs. At peak the arithmetic takes 0.257 µs,
# at full bandwidth the bytes take 0.786 µs. So the share is 0.524, the gain 0.714 µs; 0.164 FLOP for a byte are
# left of the ridge at 0.5: `"memory"`.
#
# **A puzzle.** The two launches have 0.123 and 0.245 FLOP for a byte. Why is the kernel's intensity not the mean of
# the two?


# %% 13.roofline_points tags=["answer", "13.roofline_points"]
def roofline_points(kernels: list[dict], peak: float, bandwidth: float) -> dict:
    """A point for each kernel name, and the name that would gain most.

    kernels: launches with raw counters; peak: FLOP/s; bandwidth: bytes/s
    """
    # BEGIN SOLUTION
    amd, nvidia = "SQ_INSTS_VALU_", "smsp__sass_thread_inst_executed_op_"
    tensor = "sm__inst_executed_pipe_tensor.sum"
    of_flop = {f"{amd}ADD_F32": 64, f"{amd}MUL_F32": 64, f"{amd}FMA_F32": 128}
    of_flop[f"{amd}MFMA_MOPS_F32"] = 512
    for op, each in {"fadd": 1, "fmul": 1, "ffma": 2}.items():
        of_flop[f"{nvidia}{op}_pred_on.sum"] = each
    of_bytes = {"FETCH_SIZE": 1024, "WRITE_SIZE": 1024}
    of_bytes |= {"dram__bytes_read.sum": 1, "dram__bytes_write.sum": 1}
    of_ns = {"gpu__time_duration.sum": 1, "End_Timestamp": 1, "Start_Timestamp": -1}

    def total(rows, weights):
        counts = [(row[c], weights[c]) for row in rows for c in weights if c in row]
        if any(count is None for count, _ in counts):
            return None
        return sum(count * weight for count, weight in counts)

    launches = {}
    for row in kernels:
        launches.setdefault(row["name"], []).append(row)
    points = []
    for name, rows in launches.items():
        flop, moved = total(rows, of_flop), total(rows, of_bytes)
        seconds = total(rows, of_ns) * 1e-9
        if any(row.get(tensor, 0) != 0 for row in rows):
            flop = None
        point = {"name": name, "flop": flop, "bytes": moved, "seconds": seconds}
        if flop is None or moved is None:
            point |= dict.fromkeys(("intensity", "share", "bound", "gain"))
        else:
            least = max(flop / peak, moved / bandwidth)
            point["intensity"] = flop / moved
            point["share"] = least / seconds
            point["bound"] = "memory" if flop / moved < peak / bandwidth else "compute"
            if least / seconds < 0.5:
                point["bound"] = "neither"
            point["gain"] = seconds - least
        points.append(point)
    gains = {p["name"]: p["gain"] for p in points if p["gain"] is not None}
    return {"points": points, "first": max(gains, key=gains.get, default=None)}
    # END SOLUTION


# %% tags=["check"]
check("13.roofline_points")

# %% [markdown] why roofline_points
# **Why it matters.** A list of kernels sorted by time says where time goes, and one sorted by share says what is
# badly written. Neither says what to do on Monday: seconds above the roof do. Three things your function cannot
# know. `peak` is one number, and a kernel that runs in another format has another roof. `FETCH_SIZE` is counted
# where the L2 passes its misses on to Infinity Fabric ([L2
# cache](https://rocm.docs.amd.com/projects/rocprofiler-compute/en/amd-staging/conceptual/l2-cache.html)); the
# Infinity Cache of MI300X lies beyond, so a share of HBM's bandwidth may pass 1. And AMD counts a wave's
# instruction as 64 lanes even where some are off: its FLOP are an upper bound.
#
# <details><summary>The puzzle</summary>
#
# The first launch moved 1025 units of 1024 bytes and the second 511, so the first weighs twice as much. Only the
# ratio of sums, 0.164, times the bytes gives the FLOP again; the mean of ratios, 0.184, gives nothing.
#
# </details>

# %% [markdown] statement of occupancy_from_counters
# ## 13.occupancy_from_counters: raise the limit, or fill what there is?
#
# Occupancy is waves on an SM or CU, as a share of those that it can hold. What *could* be resident follows from the
# launch; what *was* resident, only a counter knows. Write `occupancy_from_counters(kernels, limits)`: both numbers
# for each kernel, what limits the first, and what to do.
#
# `limits` is a dict of one target. Two of them (source: `TARGETS` and `CHIPS` of the library, each figure with its
# own; docs/facts.md has the list):
#
# | | MI300X | H100 | |
# |---|---|---|---|
# | `target`, `units` | `"gfx942"`, 304 | `"sm_90"`, 132 | name; CUs or SMs of the chip |
# | `lanes` | 64 | 32 | of a wave or warp |
# | `simds`, `waves_per_simd` | 4, 8 | 4, 16 | parts of a unit, and waves that one part holds |
# | `registers`, `granule` | 512, 8 | 512, 8 | of one part for each lane, handed out in multiples |
# | `shared_per_unit`, `shared_granule` | 65,536, 512 | 233,472, 128 | bytes of LDS or shared memory, in multiples |
# | `shared_reserved` | 0 | 1,024 | bytes that the system adds to each block's, before rounding |
# | `blocks_per_unit` | `None` | 32 | most blocks of a unit; `None`: never the first to run out |
#
# `kernels` is a list of dicts, all of one vendor, one for each kernel:
#
# | AMD, rocprofv3 | |
# |---|---|
# | `VGPR_Count`, `Accum_VGPR_Count` | registers of a lane; from gfx90a on both come from one file |
# | `LDS_Block_Size`, `Workgroup_Size` | bytes, threads of a block |
# | `Grid_Size` | **work-items** of the grid; the last block may be part full |
# | `SQ_WAVE_CYCLES` | waves that were resident, summed over all CUs and cycles, **in units of four cycles** (gfx9) |
# | `GRBM_GUI_ACTIVE` | cycles in which the GPU worked (of several XCDs the largest number); 0: it did not run |
#
# | NVIDIA, ncu | |
# |---|---|
# | `launch__registers_per_thread`, `launch__block_size` | of a lane; threads of a block |
# | `launch__shared_mem_per_block_static`, `..._dynamic` | bytes of a block: both together |
# | `launch__grid_size` | **blocks** of the grid |
# | `sm__warps_active.avg.pct_of_peak_sustained_active` | achieved occupancy in %, as it is; maybe `None` |
#
# The result is a list of dicts, one for each kernel, in any order:
#
# | field | |
# |---|---|
# | `name` | |
# | `blocks` | int, blocks that one unit holds at a time: the fewest that any resource allows |
# | `limited_by` | list of **all** resources that allow no more, in any order |
# | `theoretical`, `achieved` | in %; `achieved` is `None` where its counter is unknown or did not run |
# | `verdict` | see below |
#
# The resources are `"waves"` (slots), `"registers"`, `"shared memory"` and `"blocks"`. Each is counted on its own,
# registers as if there were any number of slots; LDS of 0 bytes limits nothing. A wave lives on one part and takes
# its registers there; the waves of a block are spread over the parts.
#
# The **verdict**, the first that holds:
#
# | | |
# |---|---|
# | `"unknown"` | `achieved` is unknown |
# | `"grid"` | `achieved` is below 0.8 times `theoretical`, and `filled` is below 0.8 |
# | `"imbalance"` | `achieved` is below 0.8 times `theoretical`: some waves live much longer than others |
# | `"raise"` | `theoretical` is below 50 %: what stands in `limited_by` has to give way |
# | `"leave"` | the rest |
#
# A grid has too few blocks, or its last round is nearly empty. `filled`: all units together hold so many blocks at
# a time. The grid needs so many *rounds* of them, say 1.1, which take the time of 2 whole ones. `filled` is the
# rounds over the whole rounds: 0.55.
#
# **A small example**, on MI300X: 64 + 36 registers, 20,480 bytes, 320 threads, 2,918,400 work-items,
# `SQ_WAVE_CYCLES` 109,440,000, `GRBM_GUI_ACTIVE` 100,000. A block has 5 waves. 100 registers are handed out as 104,
# so a part holds 4 waves and the CU 16: 3 blocks. LDS: 3 blocks. Slots: 6. So 3 blocks or 15 of 32 waves:
# `theoretical` 46.875 %, limited by registers and shared memory. The GPU held 4 · 109,440,000 / 100,000 = 4,377.6
# waves on average, 14.4 on a CU: `achieved` 45 %. The verdict is `"raise"`.
#
# **A puzzle.** How many registers must a lane give up here before a fourth block fits, and is that enough?


# %% 13.occupancy_from_counters tags=["answer", "13.occupancy_from_counters"]
def occupancy_from_counters(kernels: list[dict], limits: dict) -> list[dict]:
    """Blocks of a unit, what limits them, both occupancies in %, and what to do."""

    # BEGIN SOLUTION
    def up(value, granule):
        return -(-value // granule) * granule

    slots = limits["simds"] * limits["waves_per_simd"]
    found = []
    for row in kernels:
        if "VGPR_Count" in row:
            registers = row["VGPR_Count"] + row["Accum_VGPR_Count"]
            shared, threads = row["LDS_Block_Size"], row["Workgroup_Size"]
            grid = -(-row["Grid_Size"] // threads)
            active = row["GRBM_GUI_ACTIVE"]
            achieved = None
            if active:
                waves = 4 * row["SQ_WAVE_CYCLES"] / active / limits["units"]
                achieved = 100 * waves / slots
        else:
            registers = row["launch__registers_per_thread"]
            shared = sum(
                row[f"launch__shared_mem_per_block_{kind}"]
                for kind in ("static", "dynamic")
            )
            threads, grid = row["launch__block_size"], row["launch__grid_size"]
            achieved = row["sm__warps_active.avg.pct_of_peak_sustained_active"]
        waves = -(-threads // limits["lanes"])
        of_part = limits["registers"] // up(registers, limits["granule"])
        allowed = {
            "waves": slots // waves,
            "registers": of_part * limits["simds"] // waves,
        }
        taken = up(shared + limits["shared_reserved"], limits["shared_granule"])
        if taken:
            allowed["shared memory"] = limits["shared_per_unit"] // taken
        if limits["blocks_per_unit"] is not None:
            allowed["blocks"] = limits["blocks_per_unit"]
        blocks = min(allowed.values())
        theoretical = 100 * blocks * waves / slots
        rounds = grid / (blocks * limits["units"])
        if achieved is None:
            verdict = "unknown"
        elif achieved < 0.8 * theoretical:
            verdict = "grid" if rounds / math.ceil(rounds) < 0.8 else "imbalance"
        else:
            verdict = "raise" if theoretical < 50 else "leave"
        found.append(
            {
                "name": row["name"],
                "blocks": blocks,
                "limited_by": [name for name in allowed if allowed[name] == blocks],
                "theoretical": theoretical,
                "achieved": achieved,
                "verdict": verdict,
            }
        )
    return found
    # END SOLUTION


# %% tags=["check"]
check("13.occupancy_from_counters")

# %% [markdown] why occupancy_from_counters
# **Why it matters.** Much work goes into registers of kernels whose grid is too small to notice. The two counters
# are cousins, not twins: NVIDIA divides by the cycles in which an SM had a warp, AMD by all cycles in which the GPU
# worked. With a grid that leaves half of the units empty, NVIDIA's number stays and AMD's halves. ncu prints its
# own limits (`launch__occupancy_limit_registers` and its kin); rocprofv3 has none, so there you work them out. Mind
# what a file has done to its numbers: MI300X counts `GRBM_GUI_ACTIVE` on each of its eight XCDs, and the tool's own
# formula takes the largest of them, not the sum (`OccupancyPercent` in
# [counter_defs.yaml](https://github.com/ROCm/rocprofiler-sdk/blob/amd-mainline/source/share/rocprofiler-sdk/counter_defs.yaml)).
#
# <details><summary>The puzzle</summary>
#
# Four blocks have 20 waves, five on each part: 512 // 5 = 102, handed out in eights: 96. So a lane must give up
# four of its 100. It is not enough: LDS allows three blocks too, and 16,384 bytes a block would be needed for four.
# Both have to give way.
#
# </details>

# %% [markdown] statement of regression
# ## 13.regression: what made it slower?
#
# Yesterday's profile and today's, with a list of commits in between. Write `regression(before, after)`: the one
# change that cost most, the kernel it hit, and how many ns it lost. Both are lists of launches of the same number
# of steps, on one stream, so that no two overlap. **Rows come in any order.** Each is a dict:
#
# | | |
# |---|---|
# | `name` | as the tool wrote it |
# | `start`, `duration` | ns, int |
# | `grid` | blocks, int |
# | `memory_bytes` | read and written by this launch; `None` where it was not collected |
# | `registers`, `shared_bytes` | of a lane; of a block, int |
# | `occupancy` | achieved, %; `None` where it was not collected |
#
# **Names.** Another build writes another name for the same kernel. The *base name* is what is left when these are
# taken off: `void ` in front; everything from the first `<`, `(`, `[` or `.` on; space at the end; then `_` and
# digits at the end. `void gemm<float, 64>(float*, int)`, `gemm_3.kd` and `gemm [clone .kd]` are all `gemm`.
#
# Names of only one of the profiles are kernels that were renamed, or split in two. They take as long as what they
# replace, so they are never the cause, and are left out of the losses below. (Their time is not idle time.)
#
# **Losses**, in ns. Of a kernel: all its time in `after` minus all its time in `before`. Of the GPU's waiting,
# idle: in a profile that is the time from the first start to the last end in which no kernel runs; the loss is the
# difference.
#
# The result is `{"cause": ..., "kernel": ..., "lost": ...}`, by the first row that holds:
#
# | `cause` | when | `kernel` | `lost` |
# |---|---|---|---|
# | `"clock"` | all launches are longer by one factor (see below) | `None` | time of all launches, after - before |
# | `"none"` | the largest loss is below 0.03 of the time from first start to last end of `before`: noise | `None` | 0 |
# | `"idle"` | idle lost most | `None` | its loss |
# | `"calls"` | the kernel that lost most is launched more often | base name | its loss |
# | `"bytes"` | a launch of it moves more bytes | base name | its loss |
# | `"occupancy"` | fewer of its waves were resident | base name | its loss |
# | `"unknown"` | no column says why | base name | its loss |
#
# *One factor*: take the mean time of a launch, after / before, of each kernel that both profiles have. The smallest
# ratio is 1.05 or more, the largest at most 1.04 times the smallest.
#
# *More bytes*: the mean of its launches is above 1.1 times what it was; not if either is unknown. *Fewer waves*:
# mean `occupancy` before is above 1.1 times that after. If it is unknown in one of the profiles, the launch says it
# instead: mean `registers` or mean `shared_bytes` above 1.1 times what it was.
#
# **A small example**, in thousands of ns:
#
# | before | start | duration | | after | start | duration |
# |---|---|---|---|---|---|---|
# | `void gemm<64>(float*)` | 0 | 800 | | `void gemm<128>(float*)` | 0 | 820 |
# | `softmax_1` | 900 | 100 | | `softmax_2` | 920 | 100 |
# | | | | | `softmax_2` | 1030 | 100 |
#
# `gemm` lost 20, `softmax` 100, idle 10. Noise ends at 30. `softmax` is launched twice as often:
# `{"cause": "calls", "kernel": "softmax", "lost": 100_000}`. `hint("13.regression")` gives three hints.


# %% 13.regression tags=["answer", "13.regression"]
def regression(before: list[dict], after: list[dict]) -> dict:
    """What made the program slower: {"cause": word, "kernel": name or None, "lost": ns}."""

    # BEGIN SOLUTION
    def grouped(rows):
        found = {}
        for row in rows:
            name = row["name"].removeprefix("void ")
            name = re.sub(r"_\d+$", "", re.split(r"[<(\[.]", name)[0].strip())
            found.setdefault(name, []).append(row)
        return found

    def time(rows):
        return sum(row["duration"] for row in rows)

    def span(rows):
        end = max(row["start"] + row["duration"] for row in rows)
        return end - min(row["start"] for row in rows)

    def rose(rows, later, column):
        values = [[row[column] for row in each] for each in (rows, later)]
        if any(None in each for each in values):
            return None
        return statistics.fmean(values[1]) > 1.1 * statistics.fmean(values[0])

    old, new = grouped(before), grouped(after)
    lost = {name: time(new[name]) - time(old[name]) for name in old if name in new}
    ratios = [time(new[n]) / len(new[n]) / (time(old[n]) / len(old[n])) for n in lost]
    if min(ratios) >= 1.05 and max(ratios) <= 1.04 * min(ratios):
        slower = time(after) - time(before)
        return {"cause": "clock", "kernel": None, "lost": slower}
    idle = span(after) - time(after) - (span(before) - time(before))
    kernel = max(lost, key=lost.get)
    if max(idle, lost[kernel]) < 0.03 * span(before):
        return {"cause": "none", "kernel": None, "lost": 0}
    if idle > lost[kernel]:
        return {"cause": "idle", "kernel": None, "lost": idle}
    rows, later = old[kernel], new[kernel]
    fewer_waves = rose(later, rows, "occupancy")
    if fewer_waves is None:
        launch = ("registers", "shared_bytes")
        fewer_waves = any(rose(rows, later, column) for column in launch)
    if len(later) > len(rows):
        cause = "calls"
    elif rose(rows, later, "memory_bytes"):
        cause = "bytes"
    else:
        cause = "occupancy" if fewer_waves else "unknown"
    return {"cause": cause, "kernel": kernel, "lost": lost[kernel]}
    # END SOLUTION


# %% tags=["check"]
check("13.regression")

# %% [markdown] payoff of regression
# **Why it matters.** A nightly run that compares two profiles by such rules finds a regression while the commit is
# fresh. Two things are simpler here than on a chip. Memory has a clock of its own: when the GPU's falls, kernels
# that wait for memory slow down less than others, and the ratios spread. And a profile with counters is a slower
# run than one without: take times from the one, bytes and occupancy from the other.
#
# **The payoff.** Below, the small training program of the lesson runs on two virtual GPUs, sound and with a fault,
# and your function compares the profiles. Times are modelled, not measured. No counter of memory is there, so
# `memory_bytes` is what loads and stores moved between first-level cache and L2; `occupancy` is the theoretical
# one.
#
# Before you run it: bank conflicts leave calls, bytes and occupancy as they were. What must your function say?

# %% your regression
rows = {}
with lesson.when_written():
    for target in ("sm_80", "gfx942"):
        sound = lesson.launch_rows(lesson.small_run(target).profile)
        for fault in ("uncoalesced", "low_occupancy", "bank_conflicts", "host_sync"):
            run = lesson.small_run(target, fault)
            found = regression(sound, lesson.launch_rows(run.profile))
            rows[f"{fault}, {target}"] = {
                "cause": found["cause"],
                "kernel": found["kernel"] or "none",
                "lost, ns": found["lost"],
            }
lesson.table(rows, first="what was planted")

# %% [markdown] what the profiles could not say
# <details><summary>What must it say of bank conflicts?</summary>
#
# `"unknown"`, with the right kernel and the right loss: none of the columns knows banks. That is half of the
# answer, and the better half: you know where to look, and that another counter must be collected, not which line to
# change. A function that had to name one of the causes that it knows would have blamed an innocent commit.
#
# </details>

# %% [markdown] end
# `progress()` shows where you stand.

# %% progress
progress()
