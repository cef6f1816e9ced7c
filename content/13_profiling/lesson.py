# %% [markdown] top
# # 13 Profiling
#
# This part is sitting 3.

# %% imports
import torch
import triton
import triton.language as tl
from torch import nn

from gpu_utils import CHIPS, compile_for, lesson, predict, virtual_gpu

# %% [markdown] theoretical occupancy
# # Sitting 3: why it is slow, and what a profile does to it
#
# The third question, *what limits this kernel*, has an easy half: memory or compute, by the roofline. The other half
# are kernels that reach neither roof. Their waves wait, or there are too few of them. (A *wave* is a warp of 32 lanes
# or a wavefront of 64.)
#
# ## 13. Two numbers with one name
#
# *Theoretical occupancy*: the waves that can be resident on an SM or CU, over the slots for them. It follows from
# registers, shared memory (AMD: LDS) and block size, before anything runs; the smallest of the three decides. *Achieved
# occupancy*: the waves that were resident on average while the kernel ran. It is counted.
#
# | | NVIDIA | AMD |
# |---|---|---|
# | achieved | `sm__warps_active.avg.pct_of_peak_sustained_active` | `OccupancyPercent`, from `SQ_WAVE_CYCLES` |
# | averaged over | cycles in which the SM has work | all cycles of the kernel |
# | theoretical | `sm__maximum_warps_per_active_cycle_pct` | no counter: work it out |
# | what sets it | `launch__occupancy_limit_registers`, ... | `VGPR_Count`, `Accum_VGPR_Count`, `LDS_Block_Size` |
#
# The two counters of achieved occupancy differ in what they divide by: a CU that has nothing to do lowers AMD's figure,
# an SM that has nothing to do does not lower NVIDIA's. Now change one thing. This is the matrix product of lesson 05,
# one tile of it.


# %% a tile of a product
@triton.jit
def tile_kernel(
    a_ptr, b_ptr, c_ptr, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros([BM, BN], tl.float32)
    for start in range(0, K, BK):
        a = tl.load(a_ptr + m[:, None] * K + (start + k)[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * BN + n[None, :])
        total = tl.dot(a, b, total)
    tl.store(c_ptr + m[:, None] * BN + n[None, :], total)


def needs(target, size, **options):
    a, b = torch.zeros(size, 256).half(), torch.zeros(256, size).half()
    args = a, b, torch.zeros(size, size), 256
    compiled = compile_for(
        tile_kernel, target, args, BM=size, BN=size, BK=64, **options
    )
    found = lesson.resources(compiled)
    return {
        "registers": found.registers,
        "bytes of shared memory or LDS": found.shared,
        "blocks": found.occupancy.blocks,
        "waves": f"{found.occupancy.waves} of {found.occupancy.most}",
        "limited by": " and ".join(found.occupancy.limited_by),
        "spills": found.spills,
    }


rows = {
    f"{target}, num_stages={stages}": needs(target, 64, num_stages=stages)
    for target in ("sm_80", "gfx942")
    for stages in (2, 3)
}
lesson.table(rows, first="64 x 64, four waves a block")

# %% [markdown] one knob, stages
# An SM of `sm_80` has 167,936 bytes of shared memory, of which each block takes 1,024 more than it asks for; a CU of
# `gfx942` has 65,536 bytes. A lane's registers stay at 96, with which 5 blocks fit on either.

# %% guess stages
guess = predict(
    "13.stages",
    "num_stages=4 takes as many bytes more as the step from 2 to 3 took. How many "
    "blocks are resident then?",
    sm_80=lesson.number("blocks on an SM, sm_80"),
    gfx942=lesson.number("blocks on a CU, gfx942"),
)

# %% stages
for target in ("sm_80", "gfx942"):
    rows[f"{target}, num_stages=4"] = needs(target, 64, num_stages=4)
guess.reveal(
    sm_80=rows["sm_80, num_stages=4"]["blocks"],
    gfx942=rows["gfx942, num_stages=4"]["blocks"],
    because="167,936 // (49,152 + 1,024) and 65,536 // 49,152.",
)
lesson.table(dict(sorted(rows.items())), first="64 x 64, four waves a block")

# %% [markdown] achieved
# ## 14. Achieved far below theoretical
#
# Theoretical occupancy knows one unit and one moment. What the counter averages has a beginning and an end, and many
# units. Say that all blocks take equally long, and that two of them fit on each unit. Blocks then run in *rounds*, and
# the last round is seldom full. (NVIDIA's tools call rounds *waves*: `launch__waves_per_multiprocessor`. AMD has no
# such counter, and a wave there is 64 lanes.)

# %% guess tail
units = {chip: int(CHIPS[chip].units.value) for chip in ("A100", "MI300X")}
guess = predict(
    "13.tail",
    f"300 blocks, two fit on a unit. SMs or CUs: {units}. Averaged over all units and "
    "the whole kernel: achieved over theoretical occupancy?",
    a100=lesson.number("A100", unit="%", factor=1.03),
    mi300x=lesson.number("MI300X", unit="%", factor=1.03),
)

# %% tail
shares = {}
for blocks in (300, 600, 1200, 5000):
    for chip in ("A100", "MI300X"):
        places = 2 * units[chip]
        rounds = -(-blocks // places)
        shares.setdefault(f"{blocks} blocks", {})[chip] = (
            100 * blocks / (rounds * places)
        )
guess.reveal(
    a100=shares["300 blocks"]["A100"],
    mi300x=shares["300 blocks"]["MI300X"],
    because="216 places: a full round, then 84 blocks. 608 places: half a round.",
)
lesson.bars(shares, "achieved, in % of theoretical")

# %% [markdown] when more does not help
# AMD's counter averages like this. NVIDIA's leaves out the cycles in which an SM has no work, and so looks better than
# this bar for the half round: ask for the number of blocks, too. The other reasons for a gap: blocks of unequal length,
# waves of a block that end early and hold its place until the last one is done, and launches so short that units are
# still being filled when the first ones finish. For each of them the cure is in the grid or the work, not in registers.
# So first ask which of the two numbers is low.
#
# And is more occupancy better? It hides waiting, nothing else. When every SIMD always has a wave that can go on, one
# more changes nothing: 9 waves that compute for 50 cycles and then wait for 400 keep a SIMD as busy as 18. And with
# two loads under way at once, for twice the work between two waits, 5 waves are enough. (NVIDIA counts this directly:
# `smsp__warps_eligible.avg.per_cycle_active`, the waves that could go on. AMD has no such counter.)

# %% waves that hide waiting
lesson.latency_figure(50, 400, 4, 9, 18)

# %% [markdown] registers taken away
# What hides waiting is bytes under way: waves, times loads of each. Large tiles buy the second by registers, and have
# few waves; a kernel of matrix products at 12% occupancy may be as fast as it gets. A memory-bound kernel at its
# bandwidth gains nothing either: more waves wait in a longer queue.
#
# And registers that are taken from a wave to make room for another one may be missed. Take the tile of 128 × 128. Both
# compilers can be told to use fewer registers: `maxnreg=128` for NVIDIA, `waves_per_eu=3` for AMD, where three waves on
# each SIMD leave a lane 168.

# %% needs of a large tile
squeezed = {"sm_80": {"maxnreg": 128}, "gfx942": {"waves_per_eu": 3}}
large = {
    f"{target}, as it comes": needs(target, 128, num_stages=2) for target in squeezed
}
lesson.table(large, first="128 x 128, four waves a block")

# %% guess squeezed
guess = predict(
    "13.squeezed",
    "The register limit is applied; LDS and shared memory stay. A part of an SM has "
    "512 registers for each of its lanes, a SIMD of gfx942 as well. A block of four "
    "waves has one on each of the four. How many waves are resident?",
    sm_80=lesson.number("sm_80, 128 registers"),
    gfx942=lesson.number("gfx942, 168 registers"),
)

# %% squeezed
after = {
    target: needs(target, 128, num_stages=2, **o) for target, o in squeezed.items()
}
waves = {target: int(row["waves"].split()[0]) for target, row in after.items()}
guess.reveal(
    sm_80=waves["sm_80"],
    gfx942=waves["gfx942"],
    because="512 // 128 is 4 blocks of four. 512 // 168 would be 3, but LDS of 32,768 "
    "bytes lets two in.",
)
large |= {f"{target}, fewer registers": row for target, row in after.items()}
lesson.table(dict(sorted(large.items())), first="128 x 128, four waves a block")

# %% [markdown] price of the squeeze
# On `sm_80` occupancy doubles; on `gfx942` it stays, because two limits held and one was lifted. Both pay: the column
# *spills* is bytes of a thread on NVIDIA, registers on AMD. A spilled register is stored to memory and loaded again. In
# counters this is *local memory* on NVIDIA (`launch__local_mem_per_thread`, local loads and stores), *scratch* on AMD
# (`Scratch_Size`). What `gfx942` executed for one tile:

# %% executed spills
a, b = torch.randn(128, 256).half(), torch.randn(256, 128).half()
c = torch.empty(128, 128)
executed = {}
for label, options in {
    "as it comes": {},
    "fewer registers": {"waves_per_eu": 3},
}.items():
    with virtual_gpu("gfx942") as gpu:
        tile_kernel[(1,)](a, b, c, 256, BM=128, BN=128, BK=64, num_stages=2, **options)
    total = gpu.counters.totals()
    executed[label] = {name: total[name] for name in ("instructions", "scratch_bytes")}
lesson.table(executed, first="one tile on gfx942")

# %% [markdown] local arrays
# Not all scratch is a spill. Registers have no index that is known at run time only: in C++, a local array that is
# read as `kept[i]` with such an `i` goes to the same memory, though nothing was short. The compiler's report tells the
# two apart (`.vgpr_spill_count` and "spill stores" count spills alone), the counters do not.
#
# ## 15. Why a wave waits
#
# A sampler looks, every so many cycles, at which instruction a wave stands, and why. Where does it stand when memory is
# slow? Not at the load: a load is issued, and the wave goes on until it *needs* the answer.


# %% two loads
@triton.jit
def mix_kernel(a_ptr, b_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(a_ptr + at)
    b = tl.load(b_ptr + at)
    a = a * a + 1
    tl.store(out_ptr + at, a * b)


x = torch.randn(3, 256)
mixed = {}
for target in ("sm_80", "gfx942"):
    with virtual_gpu(target) as gpu, gpu.trace() as mixed[target]:
        mix_kernel[(1,)](*x, BLOCK=256, num_warps=1)
print("\n".join(step.text for step in mixed["gfx942"].steps[6:]))

# %% [markdown] the counter of waiting
# This is `gfx942`'s machine code, from the first load on. AMD's waves wait in instructions of their own: `vmcnt(n)`
# says that at most `n` of the vector memory accesses issued so far may still be under way; they finish in order.
# `lgkmcnt(n)` is the same for LDS and scalar loads. NVIDIA's code has no such instruction: the hardware holds an
# instruction back until its registers are there (the *scoreboard*).

# %% guess stands
guess = predict(
    "13.stands",
    "Memory answers after hundreds of cycles. At which instruction will a sampler find "
    "the wave most often? And in gfx942's listing: when the first v_pk_fma starts, how "
    "many of the two loads may still be under way?",
    gfx942=lesson.choice("buffer_load", "s_waitcnt", "v_pk_fma", "buffer_store"),
    sm_80=lesson.choice("ld.global", "fma", "mul", "st.global"),
    under_way=lesson.number("loads under way"),
)

# %% stands
longest, rows = {}, {}
for target, trace in mixed.items():
    found = lesson.waits(trace)  # a model: an answer takes 500 cycles, an instruction 4
    longest[target] = max(found, key=lambda wait: wait.cycles).text
    rows |= {f"{target}: {wait.text}": {"cycles": wait.cycles} for wait in found}
first = longest["gfx942"]
guess.reveal(
    gfx942=first.split()[0],
    sm_80=longest["sm_80"].split(".")[0],
    under_way=int(first.split("vmcnt(")[1][0]),
    because="the square needs a alone: vmcnt(1). On NVIDIA the reader of a is held.",
)
lesson.table(rows, first="modelled: waits of a wave that is alone")

# %% [markdown] words of both vendors
# So read a hot line backwards: the samples lie at the *consumer*, the culprit is the *load* that fills its registers.
# (Line numbers help only so far: the compiler gave this `s_waitcnt` the line of the store.) The words of both vendors:
#
# | the wave stands because | ncu, `smsp__pcsamp_warps_issue_stalled_...` | AMD, `Stall_Reason` |
# |---|---|---|
# | global or local memory has not answered | `long_scoreboard` | `WAITCNT` |
# | shared memory (LDS) has not answered | `short_scoreboard` | `WAITCNT` too: see which counter |
# | others of its block are not at the barrier yet | `barrier` | `BARRIER_WAIT` |
# | an instruction of fixed latency is not done | `wait` | `ALU_DEPENDENCY` |
# | the pipe takes nothing more | `math_pipe_throttle`; memory: `lg_throttle`, `mio_throttle` | `ARBITER_WIN_EX_STALL` |
# | another wave was chosen | `not_selected` | `ARBITER_NOT_WIN` |
# | its next instruction is not there | `no_instruction` | `NO_INSTRUCTION_AVAILABLE` |
#
# Rows side by side mean the same situation, not the same circuit. The last but one is good news: work is waiting for
# the hardware. A high share of one word matters only where the scheduler had *nobody* to choose.
#
# > **Facts: samplers**
# >
# > - AMD's reasons and what each means. (source: ROCm/rocm-systems, rocprofiler-sdk,
# >   [Analyzing PC sampling data on CDNA3 and CDNA4](https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/develop/how-to/cdna3-cdna4-pc-sampling.html))
# > - Reasons come from stochastic sampling, which MI300 and later have; MI200 has host-trap sampling, which says where
# >   and not why. (source: ROCm Compute Profiler,
# >   [Using PC sampling](https://rocm.docs.amd.com/projects/rocprofiler-compute/en/latest/how-to/pc_sampling.html))
# > - PC sampling of rocprofv3 is a beta that must be enabled, and may freeze the hardware. (source: rocprofiler-sdk,
# >   [PC sampling method](https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/docs-6.3.1/api-reference/pc_sampling.html))
# > - NVIDIA's reasons. (source: Nsight Compute, Kernel Profiling Guide, warp stall reasons)
#
# ## 16. What the profiler changes
#
# A profile is of a run that was profiled. Counters need room: a chip counts a few things at a time. `ncu` therefore
# runs each kernel several times, in *passes*, and restores memory between them (*replay*). `rocprofv3` runs the *whole
# program* once for each group of counters, so two groups come from two runs. Both let one kernel run at a time: what
# overlapped in the timeline does not overlap under counters. `ncu` also sets the clock, and empties the caches before
# each pass.
#
# What does the last one cost? Here a kernel writes y, 1 MiB, and the next one reads it. The L2 of the chips that stand
# for the two targets is below; on `gfx942` each die has its own, and block i goes to the same die in both launches.


# %% a producer and its consumer
@triton.jit
def double_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, 2 * tl.load(x_ptr + at))


sizes = {target: lesson.L2_OF_TARGET[target].sizes for target in ("sm_80", "gfx942")}
rows = {
    target: {"L2 in all, MiB": one.size / 2**20, "in so many parts": one.parts}
    for target, one in sizes.items()
}
lesson.table(rows, first="target")

# %% guess warm
guess = predict(
    "13.warm",
    "How much does the consumer read from memory, when it follows its producer as in "
    "the program, and when the caches were emptied in between?",
    follows=lesson.number("follows", unit="KiB"),
    emptied=lesson.number("emptied", unit="KiB"),
)

# %% warm
n = 2**18
x, y, z = torch.randn(n), torch.empty(n), torch.empty(n)
rows = {}
for target in ("sm_80", "gfx942"):
    with virtual_gpu(target, l2=True) as gpu:
        double_kernel[(n // 1024,)](x, y, BLOCK=1024)
        double_kernel[(n // 1024,)](y, z, BLOCK=1024)
    follows = lesson.l2_in_order(gpu.launches)[1]  # finds what the first one left
    emptied = lesson.l2_traffic(gpu.launches[1])  # finds nothing
    rows[target] = {
        "follows, KiB read": follows.read_bytes / 1024,
        "L2 hits, %": 100 * follows.read_hit_rate,
        "emptied, KiB read": emptied.read_bytes / 1024,
        "L2 hits then, %": 100 * emptied.read_hit_rate,
    }
guess.reveal(
    follows=rows["sm_80"]["follows, KiB read"],
    emptied=rows["sm_80"]["emptied, KiB read"],
    because="y fits, so all of it is still there; after a flush none of it is.",
)
lesson.table(rows, first="the consumer, by the model of the L2")

# %% [markdown] distortions
# By this model a fused or well-ordered program loses under `ncu` what it was built for. (The model keeps written lines
# in the L2 between kernels; it knows nothing of what an MI300X writes back so that its other dies see it.)
# `--cache-control none` leaves the caches alone: then the second pass of a replay finds *its own* data, warmer than
# in the program. Neither is the program. For times take the timeline, for causes the counters.
#
# > **Claim and fact: distortion**
# >
# > - `--cache-control` is `all` by default: caches are flushed before each pass. `--clock-control` fixes the clock, and
# >   its default differs: `base` in older manuals, `boost` in that of version 2026.1. So say which you used. (source:
# >   Nsight Compute CLI v2026.1.0, [options](https://docs.nvidia.com/nsight-compute/NsightComputeCli/index.html))
# > - While counters are collected one kernel at a time executes. (source: rocprofiler-sdk,
# >   [counter collection services](https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/api-reference/counter_collection_services.html))
# > - ROCm Compute Profiler runs a program some 13 to 20 times for all of its counters. (source: rocprofiler-sdk,
# >   [Kernel replay and the downstream tools](https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/develop/conceptual/kernel_replay/kernel_replay_downstream_tools.html))
#
# Kernels that wait for one another, as collectives do, can hang when they run one at a time.
#
# The timeline is not free either: torch.profiler notes each operator while the program runs. Here is a training step
# of a small model on this CPU.

# %% a step to watch
torch.manual_seed(0)
layers = [nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(8)]
model = nn.Sequential(*layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.randn(32, 64)


def step():
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


shares = lesson.operator_shares(step)
operators = sum(row["calls"] for row in shares.values())
cost = lesson.profiler_cost(step)
plain = cost["not watched"]["us a call"]
lesson.table({"operators of a step": operators, "us of a step, not watched": plain})

# %% guess overhead
guess = predict(
    "13.overhead",
    "Say that to note one operator takes 2 us. How many times as long is a step under "
    "torch.profiler.profile()? And does with_stack=True, which notes each call of "
    "Python as well, cost more?",
    profile=lesson.number("times as long", factor=1.5),
    more=lesson.yes_no("with_stack costs more"),
)

# %% overhead
guess.reveal(
    profile=cost["profile()"]["times the unwatched"],
    more=cost["with_stack=True"]["us a call"] > cost["profile()"]["us a call"],
    because="1 + 2 us x operators / us of a step; what it really takes is below.",
)
lesson.table(cost, first="seven rounds, the ways in turn")

# %% [markdown] spread and permissions
# Each event costs, so a step of many small operators suffers most. Look at the spread before you believe a digit: a
# busy machine moves these ratios more than the difference between two options. With a GPU the host is slower by as
# much, so gaps in a trace look longer than they are without it. `record_shapes` and `with_stack` are documented as
# additional overhead (docstring of `torch.profiler.profile`). Record few steps, after a warm-up, and time without the
# profiler.
#
# <details><summary>When counters are refused</summary>
#
# `ERR_NVGPUCTRPERM`: NVIDIA's driver lets only administrators read counters. The cure: run as root, or with
# `CAP_SYS_ADMIN` (Docker: `--cap-add=SYS_ADMIN`), or let everybody: a file in `/etc/modprobe.d` with
# `options nvidia NVreg_RestrictProfilingToAdminUsers=0`, then load the module anew or reboot. Check it with
# `grep RmProfilingAdminOnly /proc/driver/nvidia/params`. Traces (`nsys`, torch.profiler) need none of it. (source:
# [developer.nvidia.com/ERR_NVGPUCTRPERM](https://developer.nvidia.com/ERR_NVGPUCTRPERM)) On AMD whoever may open
# `/dev/kfd` can run kernels at all; that is a group, `render` or `video` by distribution (source:
# [ROCT-Thunk-Interface](https://github.com/ROCm/ROCT-Thunk-Interface/), README). "A driver resource was unavailable"
# means that another tool holds the counters, such as DCGM.
#
# </details>
#
# ## 17. Two profiles: what changed
#
# Last week the program was faster. Two profiles of it answer in the order of the three questions. Is the GPU busier or
# idler? Which kernel's time changed, by more *calls* or by more *time of one*? And of one call: more bytes, more
# instructions, or the same work slower? Here somebody cut the batch into four parts. The timeline is modelled: a
# launch costs the host 5 µs, and a stream runs what it has in order.


# %% two modelled runs
def run(parts):
    host = lesson.Modelled("amd")
    for _ in range(20 * parts):
        for kernel in ("forward", "backward", "update"):
            host.launch(kernel, 12_000 // parts)  # ns on the GPU
    host.sync()
    return host.profile()


before, after = run(parts=1), run(parts=4)
rows = {
    name: {
        "calls": len(profile.kernels),
        "us of one": profile.kernels[0].duration / 1000,
        "us of all": sum(kernel.duration for kernel in profile.kernels) / 1000,
    }
    for name, profile in {"before": before, "after": after}.items()
}
lesson.table(rows, first="kernels, modelled")

# %% guess two profiles
guess = predict(
    "13.two_profiles",
    "The kernels take as long as before in all. What became of the time from the first "
    "kernel to the last, and how much of it is the GPU idle after the change?",
    longer=lesson.number("times as long", factor=1.1),
    idle=lesson.number("idle", unit="%", factor=1.1),
)

# %% two profiles
change = lesson.compared(before, after)
guess.reveal(
    longer=change.window[1] / change.window[0],
    idle=100 * change.idle[1] / change.window[1],
    because="a kernel of 3 µs ends before the host has launched the next, 5 µs on.",
)
rows = {
    one.name: {"what changed": one.words, "us of the difference": one.difference / 1000}
    for one in change.changes
}
rows["the GPU idle"] = {
    "what changed": "idle: {:,} -> {:,} ns".format(*change.idle),
    "us of the difference": (change.idle[1] - change.idle[0]) / 1000,
}
lesson.table(rows, first="before and after, modelled")

# %% [markdown] reading the change
# Four times the calls, a quarter of the time of each: the kernels cancel out, and what is left is idle time. No counter
# of any kernel would have found it. That is why the questions have an order.
#
# ## 18. Six faults and where they show
#
# | fault | in the timeline | NVIDIA | AMD |
# |---|---|---|---|
# | lanes far apart in memory | one kernel is long | sectors a request | cache lines over `VMEM` instructions |
# | bank conflicts | one kernel is long | conflicts over passes | `SQ_LDS_BANK_CONFLICT` over `SQ_LDS_IDX_ACTIVE` |
# | spills, local arrays | one kernel is long | `launch__local_mem_per_thread`, local loads | `Scratch_Size` |
# | low occupancy | one kernel is long | `sm__warps_active`, and its limits | `OccupancyPercent`; registers, LDS |
# | bound by launches | gaps everywhere, kernels short, the host busy launching | none | none |
# | the host waits | gaps after a sync or a copy, then launches again | none | none |
#
# The first four have one row in the timeline and a number in a counter; the last two have no counter at all. What is
# *much* depends on the kernel: compare a figure with the fewest that its bytes could need, and with its neighbours. In
# the lab: 13.diagnose hides one of the six, 13.fix has three of them to mend, 13.regression compares two runs.
#
# **You have** the third question answered to the cause, and know what the answer costs.

# %% third sitting ends
lesson.sitting("13", 3)
