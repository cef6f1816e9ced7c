# %% [markdown] top
# # 02 The GPU as a machine: warps, wavefronts, memory, occupancy, roofline
#
# **Afterwards you can** say what one SM and one CU hold, and why the same kernel sees 32 lanes on one and 64 on the
# other; count what a branch, a stride and a bank conflict cost on each, by hand and by counter; work out the occupancy
# of a compiled kernel for both vendors; place every operator of GPT-2 under the roofline of any chip; and plan what
# fits into its memory.
#
# **You need** lessons 00 and 01. No GPU: machine code for both vendors is *compiled for* its target and *executed on
# virtual GPUs*. Nothing here has run on AMD silicon. The C++ kernels are compiled with clang from the optional extra
# `hip` (`W2W_EXTRAS=hip ./w2w study`); without it they come from stored listings.
#
# **Time**: 80 minutes to read and play, about half a minute for all cells to run. Then lab 02: eight exercises.
#
# Where a cell says `my_guess = None`, write your guess before you run the next one. Every figure of a chip is printed
# from the registry or stands in a box with its source.

# %% imports
import re
import struct
from dataclasses import replace

import torch
import triton
import triton.language as tl
from IPython.display import Code

from gpu_utils import CHIPS, bench, compile_for, explore, probe, virtual_gpu
from gpu_utils.lesson import (
    L2_OF_TARGET,
    MODELS,
    TARGETS,
    GPT2Config,
    Point,
    UnknownFigure,
    bank_conflicts,
    chip_figure,
    compile_cpp,
    divergence,
    gpt2_operators,
    l2_traffic,
    largest_batch,
    plan,
    register_steps,
    resources,
    roofline,
    tile_traffic,
    transactions,
    unit_figure,
    unit_folder,
)

KERNELS = unit_folder("02") / "kernels"  # the C++ of this lesson


def source(name):
    return (KERNELS / name).read_text()


def execute(file, kernel, target, args, grid=1, block=128):
    """Compile a file of KERNELS for a target and launch one of its kernels on that virtual GPU, which it returns."""
    with virtual_gpu(target) as gpu:
        gpu.load(compile_cpp(source(file), target)).launch(kernel, grid, block, args)
    return gpu


# %% [markdown] the units
# ## 1. What an SM and a CU hold
#
# A GPU is a few dozen to a few hundred equal *compute units*: NVIDIA says streaming multiprocessor (SM), AMD says
# compute unit (CU). A block (AMD: workgroup) is placed on one of them and stays there until it ends.
#
# | idea | NVIDIA | AMD |
# |---|---|---|
# | compute unit | SM | CU; on Radeon RX 7000 and 9000 two CUs form a *WGP*, which a block shares |
# | its parts, each with registers and a scheduler of its own | sub-partition | SIMD |
# | lanes that carry out one instruction together | warp | wavefront, or wave |
# | one lane's work | thread | work-item |
# | on-chip memory of a block | shared memory | LDS, local data share |
# | registers of a lane | registers | VGPRs (vector); values that all lanes share go to SGPRs (scalar) |
#
# A part keeps the registers of *many* waves at once and picks, again and again, one that can go on. Nothing is saved or
# restored when it turns to another wave: the registers of all of them are there all the time. That is why a GPU waits
# so well, and why registers are the first thing that runs out. In this course *wave* means warp or wavefront.
#
# **Predict.** How many threads can one SM of an H100 hold at a time, and how many one CU of an MI300X? Which of the two
# has more bytes of registers?

# %% guess threads
my_guess = None  # (threads on an SM, threads on a CU, whose registers are larger)

# %% the units drawn
unit_figure("sm_90", "gfx942")

# %% the units in numbers
print(f"your guess: {my_guess}\n")
print(f"{'':30}" + "".join(f"{name:>10}" for name in ("sm_90", "gfx942", "gfx1100")))
rows = {
    "lanes of a wave": lambda t: t.lanes,
    "parts of the unit": lambda t: t.simds,
    "waves on a part, at most": lambda t: t.waves_per_simd,
    "threads on the unit, at most": lambda t: t.waves_per_unit * t.lanes,
    "registers of a part, a lane": lambda t: t.registers,
    "KiB of registers of the unit": lambda t: t.simds * t.registers * t.lanes * 4 // 1024,
    "most registers of one lane": lambda t: t.registers_max,
    "KiB of shared memory or LDS": lambda t: t.shared_per_unit // 1024,
    "  of which one block may have": lambda t: t.shared_per_block // 1024,
}
for label, figure in rows.items():
    print(f"{label:30}" + "".join(f"{figure(TARGETS[name]):>10}" for name in ("sm_90", "gfx942", "gfx1100")))

# %% [markdown] reading the units
# The same 2,048 threads on an SM and on a CU: 64 warps of 32, or 32 wavefronts of 64. But the CU has twice the bytes of
# registers, and a fraction of the shared memory. So a tile that lives in shared memory on an H100 may have to live in
# registers on an MI300X. (The column of `gfx1100` is a WGP: two CUs together.)
#
# Vendors count registers differently, so here is one way for both. CUDA's guide says 64 K registers of 32 bits an SM.
# Divide by 4 parts and 32 lanes: 512 *for each lane of a part*. LLVM says 512 for each lane of a SIMD, directly. One
# number, 512: a part can hold one wave whose lanes have 512 registers (if a lane may have so many), two waves with 256,
# four with 128, eight with 64. Section 5 is built on this division.
#
# > **Facts: the compute units**
# >
# > - An SM has four sub-partitions, each with a warp scheduler, a register file and warp slots. (source: NVIDIA
# >   developer forum, [answer on
# >   inst_executed](https://forums.developer.nvidia.com/t/inst-executed-and-thread-inst-executed/154021/4))
# > - An SM of an A100 or H100 has 64 K registers of 32 bits; a thread can have 255 of them. (source: CUDA programming
# >   guide, compute capabilities)
# > - A SIMD of gfx90a, gfx942 and gfx950 has 512 vector registers for each lane, VGPRs and AGPRs (for accumulators,
# >   section 5) together, and takes 8 waves; a CU has four SIMDs. (source: LLVM, AMDGPUBaseInfo.cpp)
# > - A SIMD of gfx1100 and gfx1201 has 1,536 for each of 32 lanes, and takes 16 waves. (source: LLVM,
# >   AMDGPUBaseInfo.cpp)
# > - A block can have 163 KiB of shared memory on sm_80, 99 KiB on sm_89, 227 KiB on sm_90. (source: CUDA programming
# >   guide, compute capabilities)
# > - A block can have 64 KiB of LDS on gfx90a, gfx942 and RDNA, 160 KiB on gfx950. (source: Triton, AMD TargetInfo)

# %% [markdown] chiplets
# ### From the unit to the chip
#
# An H100 puts all its SMs on one die. An MI300X is made of eight dies for computing (XCDs), each with an L2 of its
# own, on top of a common Infinity Cache. To a program it is still one device. But the L2 is not one cache: a line that
# blocks on all dies read is fetched by eight L2s. Blocks are dealt out in turn, block 0 to die 0, block 1 to die 1,
# ..., block 8 to die 0 again. Section 7 shows what that does to traffic.
#
# > **Facts: dies**
# >
# > - H100: one die of 814 mm². (source: Chips and Cheese, [Nvidia's H100: Funny L2, and Tons of
# >   Bandwidth](https://chipsandcheese.com/2023/07/02/nvidias-h100-funny-l2-and-tons-of-bandwidth/))
# > - MI300X: eight XCDs, each with 38 active CUs and an L2 of 4 MB. (source: ROCm, [MI300X workload
# >   optimization](https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/workload.html))
# > - Blocks are dealt to the XCDs in turn. (source: Modular docs, chiplet_transform_chunked)

# %% the chips drawn
chip_figure("H100", "MI300X")

# %% the chips in numbers
for name in ("H100", "MI300X", "RX 7900 XTX"):
    chip = CHIPS[name]
    print(f"{chip.name} ({chip.target})")
    print(f"   units      {chip.units}")
    print(f"   L2         {chip.l2_mb}")
    print(f"   behind it  {chip.mall_mb}")
    print(f"   memory     {chip.memory_gb}, {chip.bandwidth_tb}")
    print(f"   bf16       {chip.peak_figure('bf16')}")

# %% [markdown] divergence
# ## 2. Lanes that disagree
#
# The lanes of a wave carry out one instruction together. So what happens at an `if` when some lanes want the one side
# and some the other? The wave carries out *both sides*, one after the other, each with the lanes that took it; the
# others stand by. A side that no lane takes is jumped over.
#
# This kernel has 12 instructions on one side and 6 on the other. Which side a thread takes is read from memory, so we
# can try every pattern with the same machine code.

# %% read the branch
Code(source("branch.cu"), language="cpp")

# %% [markdown] predict divergence
# A block has 128 threads: four warps of 32 on `sm_80` and `gfx1100`, two wavefronts of 64 on `gfx942`.
#
# **Predict.** Threads 0 to 31 take the first side, 32 to 63 the second, 64 to 95 the first, 96 to 127 the second. How
# many instructions *of the two sides* do all waves together issue on `sm_80`, and on `gfx942`? What share of the lanes
# works in them?

# %% guess divergence
my_guess = None  # (instructions on sm_80, on gfx942)

# %% run the branch
THREADS = 128
THREE = ("sm_80", "gfx942", "gfx1100")
patterns = {
    "all the first": [0] * THREADS,
    "blocks of 64": [thread // 64 % 2 for thread in range(THREADS)],
    "blocks of 32": [thread // 32 % 2 for thread in range(THREADS)],
    "every other": [thread % 2 for thread in range(THREADS)],
    "only thread 5": [int(thread != 5) for thread in range(THREADS)],
}


def sides_executed(target, paths):
    """Instructions of the two sides that the waves of one block issued, and the lanes that worked in them."""
    takes = torch.tensor([int(path == 0) for path in paths], dtype=torch.int32)
    gpu = execute("branch.cu", "branch", target, [takes, torch.ones(THREADS)], block=len(paths))
    executed = gpu.counters.per_op()  # number of an instruction -> (waves, lanes) that executed it
    sides = [executed[op.index] for op in gpu.last.program.ops if "fma" in op.text]
    return sum(waves for waves, _ in sides), sum(lanes for _, lanes in sides)


print(f"your guess: {my_guess}\n{'':14}" + "".join(f"{target:>22}" for target in THREE))
for name, paths in patterns.items():
    row = f"{name:14}"
    for target in THREE:
        issued, lanes = sides_executed(target, paths)
        row += f"{issued:>9} issued, {lanes / (issued * TARGETS[target].lanes):4.0%} on"
    print(row)

# %% [markdown] divergence by hand
# Work one row out by hand: *blocks of 32*.
#
# - `sm_80`: each warp is of one mind. Two warps issue 12 instructions, two issue 6: **36**, and all 32 lanes work.
# - `gfx942`: each wavefront holds 32 lanes of either kind, so it issues both sides: 2 × (12 + 6) = **36** again. But
#   each of these instructions has 64 lane slots, of which 32 are lost.
#
# Equal counts, and yet twice the lane slots for the same work. The width of a wave is the distance over which threads
# must agree. Code that was written around 32, with a role for each warp, can fall apart on 64. Now *only thread 5*: one
# lane drags its whole wave through a second side; the wider wave has 63 lanes standing by, not 31.
#
# These are the rules, for a block of any size:
#
# - **issued**: sum over all waves of the instructions of each side that at least one of its lanes takes;
# - **lost lane slots**: instructions times lanes that are off. A last wave that is not full has lanes that never
#   existed, and threads that have returned are off too: they count as lost for as long as their wave goes on. A wave in
#   which nobody is left issues nothing.

# %% divergence by rule
paths = patterns["every other"][:100]  # 100 threads: the last wave is not full
for target in ("sm_80", "gfx942"):
    width = TARGETS[target].lanes
    rule = divergence(paths, width=width, instructions={0: 12, 1: 6})
    issued, lanes = sides_executed(target, paths)
    print(f"{target:7} rule: {rule.issued} issued, {rule.lost} of {rule.slots} lane slots lost;", end=" ")
    print(f"counted: {issued} issued, {issued * width - lanes} lost")

# %% [markdown] returned threads
# Try it on paper before you trust it. With 100 threads `gfx942` has a full wavefront (32 lanes of either kind wait in
# turn) and one with 36 threads. Both issue 18 instructions, so 2 × 18 × 64 = 2,304 slots; the work is 50 × 12 + 50 × 6
# = 900, and 1,404 slots are lost. That `sm_80` loses as many is no accident: every one of its warps is mixed, too.
#
# ### How the machine code switches lanes off
#
# Here is the branch in both languages, each instruction with the number of waves that executed it.

# %% the branch in both listings
every_other = torch.tensor(patterns["every other"], dtype=torch.int32)
for target in ("sm_80", "gfx942"):
    print(target)
    fused = 0
    for _, text, waves in execute("branch.cu", "branch", target, [every_other, torch.ones(THREADS)]).listing:
        fused = fused + 1 if "fma" in text else 0
        if waves and fused < 2 and re.search(r"setp|bra\b|exec|v_cmp|fma", text):
            print(f"   {waves} waves  {text}" + ("   ... and on" if fused else ""))

# %% [markdown] exec against predicates
# - **AMD writes it out.** `v_cmp` makes a bit for each lane. `s_and_saveexec_b64` keeps the old `EXEC` and switches off
#   the lanes that did not ask for this side; the vector instructions that follow touch only lanes that are on.
#   `s_xor_b64 exec` turns to the others. `s_cbranch_execz` and `execnz` are the jumps around a side that nobody wants.
#   It is all ordinary scalar arithmetic on a 64-bit register, which you can read.
# - **NVIDIA's PTX is written for one thread**: a predicate `%p1` and a plain branch. Which lanes wait, and where they
#   meet again, is not in the text; `ptxas` and the hardware arrange it. For short sides compilers drop the branch and
#   guard single instructions instead (`@%p1`), as you saw in unit 00: then the lanes that are off go through the
#   motions.
#
# What follows for your kernels: let the branch follow the wave where you can (`thread // 64`, not `thread % 2`); in
# Triton both sides of a `tl.where` are computed, whatever the data. And a loop runs until the *last* lane of the wave
# is done: sorting work so that neighbours have similar lengths pays, more on 64 lanes than on 32.
#
# Now step through a branch yourself: a shorter kernel, executed on both virtual GPUs; on the left two warps, on the
# right one wavefront. Type other conditions, move through the instructions.

# %% explore divergence
explore("divergence", "lane < 48")

# %% [markdown] coalescing
# ## 3. Coalescing: what one load costs
#
# In unit 00 you saw that one load of a wave becomes *transactions* with memory. Here is the exact rule. Memory is cut
# into aligned segments: segment 0 is bytes 0 to 31, segment 1 is bytes 32 to 63, and so on (32 bytes on NVIDIA). **A
# load of a wave costs one transaction for each distinct segment that any byte of any active lane falls into.**
#
# - Two lanes in one segment cost one transaction. The order of the lanes does not matter.
# - A lane that is switched off costs nothing. A wave with all lanes off costs nothing.
# - An access can *straddle*: 4 bytes that begin at byte 30 touch segments 0 and 1.
#
# > **Facts: bytes of one transaction, as the counters here count**
# >
# > - 32 on NVIDIA: a sector, a quarter of a line of 128. (source: Nsight Compute profiling guide)
# > - 64 on gfx90a: a line of its first-level cache. (source: Linux, drivers/gpu/drm/amd/amdkfd/kfd_crat.c)
# > - 128 on gfx942. (source: public profiling tools for gfx942 take 128 bytes for one TCP_TOTAL_CACHE_ACCESSES)
# > - 128 on gfx1100. (source: Linux, kfd_crat.c for gfx10 and later)
#
# For gfx950 and gfx1201 we found no source; the virtual GPU takes 128 there, too.
#
# **Predict.** A warp of 32 lanes reads float32 values, lane `i` at byte `4 * stride * i`. How many transactions for
# `stride` 1, 2, 8, 9? And a wavefront of 64 lanes on `gfx942`?

# %% guess strides
my_guess = None  # for strides 1, 2, 8, 9: ([...] on sm_80, [...] on gfx942)

# %% one by hand
stride = 2
touched = [4 * stride * lane // 32 for lane in range(32)]  # 4-byte values, aligned: each lies in one segment
print(f"stride {stride}, the segments of lanes 0 to 31: {' '.join(map(str, touched))}")
print(f"{len(set(touched))} distinct ones, so {len(set(touched))} transactions of 32 bytes; 128 bytes were asked for")

four = [0, 28, 30, None]  # byte addresses of four lanes; the last one is switched off
print(
    f"\nlanes at {four}, 4 bytes each:",
    transactions(four, access_bytes=4, segment=32),
    "transactions, because the third lane straddles",
)
print(f"all lanes off: {transactions([None] * 32, access_bytes=4, segment=32)}")


# %% count strides
@triton.jit
def read_kernel(x_ptr, out_ptr, stride, offset, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i * stride + offset))


def read_counted(target, stride=1, offset=0, threads=64, each=1):
    """Counters of a block of 64 threads in which every thread reads `each` values."""
    n = threads * each
    x, out = torch.arange(float(stride * n + offset)), torch.zeros(n)
    with virtual_gpu(target) as gpu:
        read_kernel[(1,)](x, out, stride, offset, BLOCK=n, num_warps=threads // gpu.model.lanes)
    assert torch.equal(out, x[offset::stride][:n])
    return gpu.counters.totals()


print(f"your guess: {my_guess}")
print("64 threads, transactions counted (by the rule), and bytes moved for each byte asked for")
print(f"{'stride':>6}" + "".join(f"{target:>22}" for target in ("sm_80", "gfx90a", "gfx942")))
for stride in (1, 2, 4, 8, 9, 16, 32):
    row = f"{stride:>6}"
    for target in ("sm_80", "gfx90a", "gfx942"):
        counted = read_counted(target, stride)["global_load_sectors"]
        lanes, segment = TARGETS[target].lanes, TARGETS[target].segment
        waves = [[4 * stride * (wave + lane) for lane in range(lanes)] for wave in range(0, 64, lanes)]
        rule = sum(transactions(addresses, access_bytes=4, segment=segment) for addresses in waves)
        row += f"{counted:>9} ({rule:>2}) {counted * segment / 256:>7.0f}x"
    print(row)

# %% [markdown] strides explained
# 64 threads are two warps: for one warp, halve the columns of `sm_80`, so 4, 8, 32 and 32 transactions for the strides
# that you predicted. The wavefront takes 2, 4, 16 and 18.
#
# The longer segment is better for neighbours and worse for strangers. With stride 8 every lane of `sm_80` has a sector
# of its own, and it cannot get worse. `gfx942` goes on getting worse until stride 32, where 124 of 128 bytes are for
# nobody.
#
# ### Wider loads, and one float too far
#
# A lane can load 4, 8 or 16 bytes with one instruction. Same bytes, same transactions, fewer instructions. Two things
# can spoil that: the values must lie side by side for each lane, and they must be aligned.
#
# **Predict.** 64 threads read 4 floats each, side by side: 1,024 bytes. Then the same, but the array begins one float
# later. What happens to the number of load instructions and of transactions on `sm_80`, and on `gfx942`?

# %% guess offset
my_guess = None  # (transactions on sm_80, on gfx942) with the offset

# %% widths and offsets
print(f"your guess: {my_guess}\n64 threads; in brackets: load instructions x bytes of a lane")
for each, offset in ((1, 0), (1, 1), (2, 0), (4, 0), (4, 1)):
    row = f"floats of a lane: {each}, offset {offset}"
    for target in ("sm_80", "gfx942"):
        sectors = read_counted(target, each=each, offset=offset)["global_load_sectors"]
        shape = {"BLOCK": 64 * each, "num_warps": 64 // TARGETS[target].lanes}
        compiled = compile_for(read_kernel, target, (torch.float32, torch.float32, 1, offset), **shape)
        widths = resources(compiled).widths["global load"]
        how = ", ".join(f"{number} x {bits // 8}" for bits, number in widths.items())
        row += f"   {target} {sectors:>4} transactions {f'({how})':8}"
    print(row)

# %% [markdown] offset explained
# On `gfx942` one line more: the block of bytes now straddles 9 lines where it filled 8. On `sm_80` four times as many.
# The reason is in the column before: a 16-byte load of PTX must be aligned to 16 bytes, or it faults; Triton knows
# that the pointer is aligned and that the offset is not, so it falls back to four loads of 4 bytes. Each of these has
# a stride of 16 bytes between lanes and touches every sector. AMD's `global_load_dwordx4` needs no such alignment, and
# stays whole. So on AMD a lane can straddle two lines; on NVIDIA it cannot, but the compiler pays.
#
# A first-level cache softens this, because the four loads want the same sectors soon after one another. The counter
# says what the instructions ask for, before any cache: it tells you what to repair, not how many microseconds it
# costs.
#
# > **Facts: alignment**
# >
# > - A PTX load or store must be aligned to its size; vector accesses to the size of the whole vector. (source: PTX
# >   ISA, addresses as operands)
# > - Triton widens an access only as far as it can prove the alignment: above, 4 x 4 bytes against 1 x 16. (measured:
# >   Triton 3.7.1, the cell above)
#
# Draw any pattern you like. `lane if lane < 20 else None` switches lanes off; the sizes are those of each target.

# %% explore coalescing
explore("access", "lane * 2")

# %% [markdown] banks
# ## 4. Banks: what one access to shared memory costs
#
# Shared memory (LDS) is not cut into lines but dealt out to *banks*, word by word: word `w` (4 bytes) lies in bank `w
# % 32`. Each bank serves one word a cycle. So 32 lanes that want words of 32 different banks are served in one cycle,
# however scattered they are; 32 lanes that want 32 words of *one* bank take 32 cycles. Any number of lanes that want
# the *same word*, or parts of it, are served at once: that is a broadcast.
#
# A wave of 64 lanes on 32 banks goes in two groups: lanes 0 to 31, then 32 to 63. In general: groups of as many lanes
# as there are banks, in lane order; a group takes as many cycles as the most distinct words that it wants of one bank;
# a group with no active lane takes none. **Conflicts** are the cycles above the least, which is one for each group
# with an active lane. That is what the counter `bank_conflicts` says. (Accesses of 8 and 16 bytes a lane, and writes on
# gfx950, go in smaller groups: `docs/facts.md`, Shared memory.)
#
# > **Facts: banks**
# >
# > - 32 banks of 4 bytes on NVIDIA. (source: CUDA programming guide, writing CUDA kernels, shared memory)
# > - 32 on CDNA3 and, for one wave, on RDNA3 and RDNA4; 64 on gfx950. (source:
# >   [measurements on five chips](https://github.com/nod-ai/amd-shark-ai/blob/main/docs/empirical-lds/lds_summary.md))
# > - Words are read in two phases on gfx942, lanes 0 to 31 and 32 to 63, and in one phase on gfx950. (source: the same,
# >   amd-shark-ai docs/empirical-lds/lds_summary.md)
# > - Writes on gfx950 see 32 banks: of 8 bytes a lane measured, of other sizes after AMD's model. (source: HipKittens,
# >   analysis/paper_experiments/phases; rocRoller, LDSBankModel.cpp in ROCm/rocm-libraries)
#
# **Predict.** 64 threads read one float each, thread `i` word `stride * i`. How many conflicts for strides 1, 2, 32 and
# 33 on `sm_80`, `gfx942` (32 banks) and `gfx950` (64 banks)? And if all read word 7?

# %% guess banks
my_guess = None  # for stride 32: (sm_80, gfx942, gfx950)

# %% one bank by hand
words = [32 * lane for lane in range(32)]  # a column of a matrix with rows of 32 floats
print("banks of 32:", [word % 32 for word in words][:8], "...: all 32 words wait for one bank, 31 conflicts")
print("banks of 64:", [word % 64 for word in words][:8], "...: two banks, 16 words each")
print("row of 33:  ", [33 * lane % 32 for lane in range(32)][:8], "...: all different")

# %% count banks
BANKED = ("sm_80", "gfx942", "gfx950")


def conflicts_counted(target, words):
    """The kernel look_up reads the word of each thread from shared memory; the counter of its launch."""
    out = torch.zeros(64)
    gpu = execute("banks.cu", "look_up", target, [torch.tensor(words, dtype=torch.int32), out], block=64)
    assert out.tolist() == words
    return gpu.counters.totals()["bank_conflicts"]


print(f"your guess: {my_guess}\n{'conflicts: counted (rule)':25}" + "".join(f"{target:>14}" for target in BANKED))
looked_up = {f"stride {stride}": [stride * i for i in range(64)] for stride in (1, 2, 3, 16, 32, 33, 64)}
looked_up["all read word 7"] = [7] * 64
for name, words in looked_up.items():
    row = f"{name:25}"
    for target in BANKED:
        lanes = TARGETS[target].lanes
        waves = [[4 * word for word in words[first : first + lanes]] for first in range(0, 64, lanes)]
        rule = sum(bank_conflicts(addresses, banks=TARGETS[target].banks).conflicts for addresses in waves)
        row += f"{conflicts_counted(target, words):>9} ({rule:>2})"
    print(row)

# %% [markdown] banks explained
# Stride 32 is 31 conflicts for a warp, so 62 for two warps, and 62 for one wavefront on 32 banks. Odd strides are free:
# they share no factor with a power of two, so they visit every bank once. On `gfx950`, stride 32 lands on two banks
# instead of one: 32 words each, 31 extra cycles.
#
# ### The transpose: both rules in one kernel
#
# A transpose reads rows and writes columns. Directly, one of the two is not coalesced. Through a tile in shared memory
# both are, but then the *tile* is read by columns. Making its rows one word longer (33 instead of 32) moves each row to
# the next bank: **padding**.

# %% read the transpose
Code(source("transpose.cu"), language="cpp")

# %% [markdown] predict transpose
# **Predict.** A matrix of 128 x 128 floats. How many times more store transactions does `direct` need than the tiles,
# on `sm_80` and on `gfx942`? How many bank conflicts has the tile of 33?

# %% guess transpose
my_guess = None  # (times on sm_80, times on gfx942, conflicts)

# %% count transpose
print(f"your guess: {my_guess}")
print(f"{'':8} {'kernel':11} {'load and store':>18} transactions {'bank conflicts':>20}")
for target in (*BANKED, "gfx1100"):
    for kernel in ("direct", "tile_of_32", "tile_of_33"):
        x, out = torch.randn(128, 128), torch.zeros(128, 128)
        counted = execute("transpose.cu", kernel, target, [x, out, 128], grid=(4, 4), block=(32, 8)).counters.totals()
        assert torch.equal(out, x.T)
        loads, stores = counted["global_load_sectors"], counted["global_store_sectors"]
        print(f"{target:8} {kernel:11} {loads:>9,}{stores:>9,} of {counted['sector_bytes']:>3} bytes", end="")
        print(f"{counted['bank_conflicts']:>20,}")

# %% [markdown] transpose explained
# Eight times as many stores on `sm_80` (32 bytes for 4), sixteen times on `gfx942` with lines of 128: there a wavefront
# of 64 is two rows of this block, so each line gets two neighbours. The tile of 32 repairs the stores and pays with
# conflicts in every read. The tile of 33 has none.
#
# Except on `gfx950`: 256. The padding was made for 32 banks. There a read takes 64 lanes at once, two rows of a block.
# Reading a column, lanes 0 to 31 want words 0, 33, 66, ... and lanes 32 to 63 want 1, 34, 67, ...: modulo 64, word 0 of
# the one and word 33 × 31 + 1 = 1,024 of the other lie in the same bank. One conflict for each of 256 reads. Writes see
# 32 banks there and go in two phases, so they have none. A portable kernel gives the layout of
# its tile as a parameter, as Triton does; unit 14 searches for layouts without conflicts.
#
# Try it: type `lane * 33`, then `lane % 32 * 33 + lane // 32`, which is the column of the tile; switch the AMD side to
# `gfx942`.

# %% explore banks
explore("access", "lane * 32", memory="shared", amd="gfx950")

# %% [markdown] occupancy
# ## 5. Occupancy: how many waves fit
#
# **Occupancy** is the number of waves that are on a compute unit at a time, over the most that it can hold. Blocks come
# whole, so the question is how many *blocks* fit. Four resources decide, each alone, and the smallest wins:
#
# 1. **Wave slots**: slots of the unit // waves of a block.
# 2. **Registers**: of a lane, rounded up to what the hardware hands out (the *granule*). How many waves fit on one
#    part? Times the parts, // waves of a block.
# 3. **Shared memory**: bytes of a block, rounded up to its granule; bytes of the unit // that. On NVIDIA 1 KiB a block
#    goes to the system and is added first. A block that uses no LDS is not limited by it.
# 4. **Blocks**: NVIDIA has a fixed number of block slots on an SM. (AMD: 16 blocks of two or more waves a CU, one
#    barrier each; the wave slots run out first or at the same time.)
#
# A block that asks for more registers or shared memory than the hardware gives one lane or one block does not fit at
# all.

# %% the rules in numbers
titles = ("wave slots", "registers", "granule", "shared", "granule", "+ a block", "blocks")
print(f"{'':9}" + "".join(f"{title:>11}" for title in titles))
for name in ("sm_80", "sm_90", "gfx90a", "gfx942", "gfx950", "gfx1100"):
    t = TARGETS[name]
    shared = (t.shared_per_unit, t.shared_granule, t.shared_reserved)
    figures = (t.waves_per_unit, t.registers, t.granule, *shared, t.blocks_per_unit)
    print(f"{name:9}" + "".join(f"{figure:>11}" for figure in figures))
print("\nregisters: of a lane and part; shared: bytes of a unit (gfx1100: a WGP)")
print(f"NVIDIA: {TARGETS['sm_90'].source}\nAMD: {TARGETS['gfx942'].source}")

# %% [markdown] a kernel to measure
# We need a kernel worth the trouble: a matrix product with tiles, which unit 05 makes fast. Each program computes a
# tile of `C`; it walks along `K` and multiplies strips of `A` and `B`.


# %% a matmul
@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        steps = start + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + rows * K + steps[None, :], mask=(rows < M) & (steps[None, :] < K), other=0.0)
        b = tl.load(b_ptr + steps[:, None] * N + columns, mask=(steps[:, None] < K) & (columns < N), other=0.0)
        accumulator = tl.dot(a, b, accumulator)
    tl.store(c_ptr + rows * N + columns, accumulator.to(tl.float16), mask=(rows < M) & (columns < N))


def compile_matmul(target, block_m, block_n, num_warps=4, **options):
    sizes = (torch.float16, torch.float16, torch.float16, 4096, 4096, 4096)
    return compile_for(
        matmul_kernel, target, sizes, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=32, num_warps=num_warps, **options
    )


compiled = {name: resources(compile_matmul(name, 64, 64)) for name in ("sm_80", "sm_90", "gfx942", "gfx950", "gfx1100")}
print("a tile of 64 x 64, 4 warps or wavefronts a block")
for name, needs in compiled.items():
    print(f"{name:8} {needs.registers:>3} registers a lane, {needs.shared:>6} bytes of shared memory")

# %% [markdown] predict occupancy
# **Predict**, with the rules above: how many blocks of this kernel fit on one SM of `sm_90`, how many on one CU of
# `gfx942`? What limits each?

# %% guess occupancy
my_guess = None  # (blocks on sm_90, blocks on gfx942)


# %% occupancy by hand
def round_up(value, granule):
    return -(-value // granule) * granule


print(f"your guess: {my_guess}")
for name in ("sm_90", "gfx942"):
    needs, t = compiled[name], TARGETS[name]
    registers = round_up(needs.registers, t.granule)
    waves = t.registers // registers
    shared = round_up(needs.shared + t.shared_reserved, t.shared_granule)
    by_registers, by_shared = waves * t.simds // 4, t.shared_per_unit // shared
    print(f"{name}")
    print(f"   wave slots: {t.waves_per_unit} // 4 = {t.waves_per_unit // 4} blocks")
    print(f"   registers:  {needs.registers} -> {registers}; {t.registers} // {registers} = {waves} waves a part")
    print(f"               {waves} * {t.simds} // 4 = {by_registers} blocks")
    print(f"   shared:     {needs.shared} + {t.shared_reserved} -> {shared}")
    print(f"               {t.shared_per_unit} // {shared} = {by_shared} blocks")

# %% occupancy by library
for needs in compiled.values():
    print(f"{needs.target.name}: {needs.registers} registers, {needs.shared} bytes")
    print(needs.occupancy.explain(), "\n")

# %% [markdown] reading occupancy
# `explain` marks what limits with `>`, and says what would let one block more in. The steps matter, not the slopes: on
# `gfx942` every count from 65 to 72 registers gives 7 waves on a SIMD, and 73 gives 6. `register_steps` lists them.
# One row is new: a SIMD of gfx9 has 800 scalar registers for all its waves. They limit kernels that use more than 100
# of them; few do.
#
# You need not take this on trust: the tests of this course compare every limit with NVIDIA's own `cuda_occupancy.h`,
# which comes with Triton, and the waves on a SIMD with what LLVM prints.
#
# A tile of 128 x 128 with 8 waves shows another loss: blocks come whole.

# %% blocks come whole
print("waves on a part: most registers of a lane")
for name in ("gfx942", "sm_90"):
    print(f"{name:7}", ", ".join(f"{waves}: {most}" for waves, most in register_steps(TARGETS[name]).items()))
wide = resources(compile_matmul("gfx942", 128, 128, num_warps=8))
on_simd = wide.occupancy.waves_per_simd
print(f"\n128 x 128, 8 waves, {wide.registers} registers: {on_simd} waves fit on a SIMD, {4 * on_simd} on the CU;")
print(f"a block has 8, so {wide.occupancy.blocks} blocks: {wide.occupancy}")

# %% [markdown] llvm says
# ### What LLVM says, and what it leaves out
#
# LLVM writes its own verdict into the assembly. Let us read it for a kernel that keeps more in LDS (more stages of the
# software pipeline, unit 05).
#
# **Predict.** The kernel below takes a lot of LDS. What does LLVM's `; Occupancy` say: more than what really fits,
# less, or the same?

# %% guess llvm
my_guess = None  # more, less or the same

# %% read the comments
deep = compile_matmul("gfx942", 128, 128, num_warps=8, num_stages=4)
needs = resources(deep)
print(f"your guess: {my_guess}\n")
for line in deep.asm.splitlines():
    if re.search(r"; (NumVgprs|NumAgprs|TotalNumVgprs|LDSByteSize|Occupancy)|\.group_segment_fixed_size", line):
        print("   ", line.strip())
print(f"\nTriton's metadata: {deep.shared} bytes of LDS")
print(needs.occupancy.explain())

# %% [markdown] llvm explained
# LLVM sees 0 bytes of LDS: Triton asks for it at launch, as *dynamic* memory, and the assembly does not know. So `;
# Occupancy` counts waves on a SIMD by registers (and slots) only. Here the LDS allows one block of 8 waves on the
# whole CU, two on each SIMD. Take the registers from the assembly and the LDS from `kernel.metadata.shared`;
# `resources` does.
#
# One more AMD word: CDNA has *accumulation* registers, AGPRs, in the same file as the VGPRs. LLVM's
# `TotalNumVgprs` is what counts: the VGPRs, rounded up to a multiple of 4 if there are AGPRs, plus the AGPRs.
# So 66 VGPRs and 20 AGPRs are 68 + 20 = 88 registers, and 5 waves.
#
# ### Blocks of 16 or of 8? Two sources disagree: decide it
#
# AMD's guide to tuning for the MI300X says that VGPRs are handed out in units of 16; LLVM, on which AMD's compiler is
# built, uses 8. The guide's example: a kernel with 170 VGPRs gets 176, and 176 × 3 > 512, so 2 waves.
#
# **Predict.** Does that example decide who is right? For which counts between 60 and 130 would the two rules give
# different numbers of waves?

# %% guess granule
my_guess = None  # counts that decide


# %% kernels of any size
@triton.jit
def hold_kernel(x_ptr, out_ptr, TAKES: tl.constexpr):
    i = tl.arange(0, 256)
    x = tl.load(x_ptr + i)
    # one line of assembly that claims to overwrite register v67: so the kernel must have 68 of them
    x = tl.inline_asm_elementwise("v_mov_b32 $0, $1", TAKES, [x], dtype=tl.float32, is_pure=False, pack=1)
    tl.store(out_ptr + i, x)


def hold(vgprs, target="gfx942"):
    """hold_kernel with exactly that many VGPRs, and the Occupancy that LLVM prints for it."""
    built = compile_for(hold_kernel, target, (torch.float32, torch.float32), TAKES=f"=v,v,~{{v{vgprs - 1}}}")
    assert resources(built).vgprs == vgprs
    return built, int(re.search(r"; Occupancy: (\d+)", built.asm)[1])


print(f"your guess: {my_guess}\n\nVGPRs      by 8   by 16   LLVM")
for vgprs in (60, 64, 65, 68, 72, 73, 80, 81, 96, 97, 104, 112, 113, 128, 129, 161, 168, 170):
    by_8, by_16 = (min(8, 512 // round_up(vgprs, granule)) for granule in (8, 16))
    print(f"{vgprs:>5} {by_8:>9} {by_16:>7} {hold(vgprs)[1]:>6}{'   <- decides' * (by_8 != by_16)}")

# %% [markdown] what the table says
# The guide's example decides nothing: 170 rounds to 176 either way. Only 65 to 72 and 161 to 168 tell the two apart,
# and there LLVM says 7 and 3. Our 64 x 64 product, with 68 registers by Triton 3.7.1, is such a case. One more look,
# at what LLVM hands to the hardware: a kernel descriptor of 64 bytes, in which six bits say how many registers a wave
# wants.


# %% the kernel descriptor
def descriptor(binary):
    """The 64 bytes that the command processor reads before it starts a kernel: section .rodata of the ELF file."""
    table, (number, names) = struct.unpack_from("<Q", binary, 0x28)[0], struct.unpack_from("<HH", binary, 0x3C)
    sections = [struct.unpack_from("<IIQQQQ", binary, table + 64 * at) for at in range(number)]
    for name, _, _, _, offset, size in sections:
        start = sections[names][4] + name
        if binary[start : start + 8] == b".rodata\0":
            return binary[offset : offset + size]


for target, vgprs in [*(("gfx942", vgprs) for vgprs in (64, 68, 72, 73, 166)), ("gfx1100", 97)]:
    built, waves = hold(vgprs, target)
    word = struct.unpack_from("<I", descriptor(built.binary), 48)[0]  # COMPUTE_PGM_RSRC1
    field = word & 0b111111
    asked = 8 * (field + 1)
    print(f"{target:7} {vgprs:>4} VGPRs: the field says {field}, that is {asked} registers; LLVM: {waves} waves")

# %% [markdown] granule verdict
# > **Facts: how registers are handed out on gfx942**
# >
# > - AMD's guide: in units of 16. (source: ROCm, [MI300X workload
# >   optimization](https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/workload.html),
# >   `waves_per_eu`)
# > - LLVM: in units of 8; 68 VGPRs give Occupancy 7. (source: LLVM AMDGPUBaseInfo.cpp, getVGPRAllocGranule)
# > - All kernels above get the waves of the rule with 8, and the descriptor counts in eights: 68 is sent as 72, not 80.
# >   (measured: LLVM of Triton 3.7.1, the two cells above)
#
# What have you shown? That the compiler counts in eights, and that it asks the chip for 72 registers, not 80. What you
# have *not* shown is what the chip does with it: a field may count in eights and the hardware still round further up.
# `gfx1100` is such a case, the last line: its field says 104, which would leave room for 1,536 // 104 = 14 waves; LLVM
# knows that it hands out 24 at a time, so 120, and 12 waves. So the last word belongs to an MI300X: launch a kernel
# with 68 VGPRs and read `OccupancyPercent` with `rocprofv3` (unit 13). Until then this course follows LLVM, and says
# so. When one register decides, measure.

# %% explore occupancy
explore("occupancy", compiled["sm_90"], compiled["gfx942"])

# %% [markdown] when it matters
# ### When occupancy matters
#
# A wave that waits for memory does nothing; occupancy is how many others can go on meanwhile. How many are needed?
# *Little's law*: to keep a memory busy that answers after a time, there must be
#
# $$ \text{bytes in flight} = \text{latency} \times \text{bandwidth} $$
#
# on the way. Each lane that has asked and waits contributes what it asked for: 4 bytes, or 16 with wide loads, or more
# if it asks for several values before it needs the first.
#
# > **Facts: a latency to calculate with**
# >
# > - 400 cycles at 1,755 MHz for global memory of an H100, so about 228 ns: an estimate that a published comparison of
# >   chips uses. (source: [doi
# >   10.1016/j.ultsonch.2023.106546](https://pmc.ncbi.nlm.nih.gov/articles/PMC10448217/table/t0015), Table 3)
#
# For the MI300X we found no figure with a source that we could check. The cell takes the same time for both: that is an
# assumption. Put in your own.
#
# **Predict.** Each lane has one load of 4 bytes on the way. Which occupancy keeps the memory of an H100 busy? Which
# with loads of 16 bytes?

# %% guess latency
my_guess = None  # (occupancy with 4 bytes, with 16)

# %% littles law
LATENCY = 400 / 1755e6  # seconds; an estimate for the H100, an assumption for the MI300X
print(f"your guess: {my_guess}")
for name in ("H100", "MI300X"):
    chip = CHIPS[name]
    in_flight = LATENCY * chip.bandwidth * 1e12
    lanes = chip.units.value * chip.limits.waves_per_unit * chip.limits.lanes
    print(
        f"{name}: {in_flight / 1e3:,.0f} KB in flight on the chip, {in_flight / chip.units.value / 1e3:.1f} KB a unit"
    )
    needed = {width: in_flight / (lanes * width) for width in (4, 8, 16)}
    print("   ", ", ".join(f"{share:.0%} occupancy with {width} bytes a lane" for width, share in needed.items()))

# %% [markdown] force it
# So occupancy is one way to have bytes in flight, and wide loads are another. What does it cost to force it? Both
# compilers can be told: Triton's `waves_per_eu` asks LLVM for that many waves on a SIMD, `maxnreg` gives `ptxas` a
# limit.
#
# **Predict.** A tile of 128 x 128 with 4 waves takes 140 registers on `gfx942`. What happens if we ask for 5 waves on a
# SIMD?

# %% guess force
my_guess = None  # (registers, spills, waves that really fit)

# %% force more waves
print(f"your guess: {my_guess}")
for target, option, values in (("gfx942", "waves_per_eu", (0, 4, 5)), ("sm_90", "maxnreg", (None, 128, 96))):
    for value in values:
        options = {option: value} if value else {}
        needs = resources(compile_matmul(target, 128, 128, options=options))
        fit, limits = needs.occupancy, " and ".join(needs.occupancy.limited_by)
        print(
            f"{target:7}{option} {value or 'unset':<6}{needs.registers:>4} registers, {needs.spills:>5} spilled;",
            end=" ",
        )
        print(f"{fit.waves} of {fit.most} waves, limited by {limits}")
print("spilled: registers on gfx942, bytes of a lane on sm_90")

# %% [markdown] occupancy is a means
# The registers that are taken away go to memory and come back: spills. And the fifth wave does not even fit, because
# now LDS (or shared memory) is the limit. A tile in registers is worth more than the waves it keeps out: such kernels
# load 16 bytes a lane, several steps ahead, and have plenty to compute meanwhile.
#
# - **Occupancy matters** when waves wait on memory with little asked for at a time: gathers, short rows, reductions,
#   generating one token at a time. Then look at what limits it; the next step may be a few registers away.
# - **It does not** when the kernel keeps enough on the way by itself, or when it is already at the roof of the next
#   section. More than enough buys nothing.

# %% [markdown] roofline
# ## 6. The roofline: which of the two limits is yours
#
# Before you optimise a kernel, count two numbers: its FLOPs (a multiply-add is two) and the bytes that it must move to
# and from memory. Their quotient is the **arithmetic intensity**, in FLOP per byte. A chip adds two figures: peak
# FLOP/s and bandwidth. Then
#
# $$ \text{attainable FLOP/s} = \min(\text{peak},\; \text{intensity} \times \text{bandwidth}), \qquad
#    t \ge \max\left(\frac{\text{FLOPs}}{\text{peak}}, \frac{\text{bytes}}{\text{bandwidth}}\right) $$
#
# The two lines meet at the **ridge**, peak over bandwidth. Left of it memory decides, from it on arithmetic. (T is
# $10^{12}$ here, G is $10^9$: vendors' prefixes are decimal.)
#
# **Predict.** Which of these needs the highest intensity to keep its bf16 units busy, which the lowest: H100, H200,
# H20, MI300X, RX 7900 XTX?

# %% guess ridge
my_guess = None  # highest ridge, lowest ridge

# %% the ridges
print(f"your guess: {my_guess}\n{'':24}{'bf16 TFLOP/s':>14}{'TB/s':>8}{'ridge':>8}")
for chip in CHIPS.values():
    peak, bandwidth, ridge = chip.peak("bf16"), chip.bandwidth, chip.ridge("bf16")
    figures = [f"{figure:g}" if figure is not None else "unknown" for figure in (peak, bandwidth)]
    print(f"{chip.name:24}{figures[0]:>14}{figures[1]:>8}{f'{ridge:.0f}' if ridge else '':>8}")
for name in ("H100", "MI300X"):
    print(f"{name}: {CHIPS[name].peak_figure('bf16')}; {CHIPS[name].bandwidth_tb}")

# %% [markdown] ridges explained
# H100 needs some 300 FLOP for every byte, MI300X 250, and the H20 only 37: it has four TB/s and little arithmetic.
# What is limited by arithmetic on one chip is limited by memory on the next.
# "Unknown" means that we found no source we trust for the registry; then there is no roofline.
#
# ### Count one operator by hand
#
# The first linear layer of GPT-2's MLP: $y = x W + b$ with $x$: $(n, d)$, $W$: $(d, 4d)$, for $n$ tokens at once, in
# bf16.
#
# - FLOPs: $2 \cdot n \cdot d \cdot 4d$ (the bias is left out: it is small).
# - Bytes: read $x$, $W$ and $b$, write $y$, each once: $2\,(nd + 4d^2 + 4d + 4nd)$.
#
# **Predict.** $d = 768$. What is the intensity in training, with 8 sequences of 1,024 tokens ($n = 8192$)? And when one
# sequence *decodes*, which makes one token at a time, so $n = 1$?

# %% guess intensity
my_guess = None  # (in training, in decoding)

# %% intensity by hand
d = 768
print(f"your guess: {my_guess}")
for what, n in (("training", 8192), ("decoding", 1)):
    flops = 2 * n * d * 4 * d
    moved = 2 * (n * d + d * 4 * d + 4 * d + n * 4 * d)
    print(f"{what}: {flops:,} FLOP / {moved:,} bytes = {flops / moved:.2f} FLOP per byte")
    for name in ("H100", "MI300X"):
        roof = roofline(name, "bf16")
        least = max(flops / roof.peak, moved / roof.bandwidth)
        print(f"   {name:7} {roof.bound(flops / moved):8} at least {least * 1e6:.1f} us")

# %% [markdown] all operators
# In decoding every weight is read to be used for *one* token: two FLOPs for two bytes. That is the whole story of
# decoding. Now all operators of a forward pass. The conventions, which the lab uses too:
#
# - linear layers read $x$, $W$ and the bias and write $y$; the logits have no bias and are computed for all tokens;
# - attention is fused: it reads $q$, $k$, $v$ and writes its output; scores are never written; they count in full, as
#   if there were no causal mask: $2 \cdot 2 \cdot \text{batch} \cdot \text{tokens} \cdot \text{context} \cdot d$
#   FLOPs. Keys and values of `context` tokens are read for each sequence;
# - layer norm counts 8 FLOPs a value, GELU 9, a residual addition 1, and each tensor moves once (the norm reads
#   its scale and shift as well: $2d$ values). So does the embedding, which adds two rows that it looks up; the lab
#   leaves it out.
#
# `tokens` are the new tokens of each sequence: all of them in training, 1 in decoding; `context` includes them.

# %% operators of gpt2
gpt2 = GPT2Config.preset("gpt2")
phases = {
    "training, 8 x 1024": {"batch": 8, "tokens": 1024},
    "decoding, batch 1": {"batch": 1, "tokens": 1, "context": 1024},
    "decoding, batch 64": {"batch": 64, "tokens": 1, "context": 1024},
}
tables = {phase: {op.name: op for op in gpt2_operators(gpt2, **shape)} for phase, shape in phases.items()}
print(f"{'FLOP per byte':14}" + "".join(f"{phase:>22}" for phase in phases))
for name in tables["training, 8 x 1024"]:
    print(f"{name:14}" + "".join(f"{table[name].intensity:>22.2f}" for table in tables.values()))
print("\nleast time of a forward pass:")
for phase, table in tables.items():
    for name in ("H100", "MI300X"):
        roof = roofline(name, "bf16")
        seconds = {op.name: op.count * roof.seconds(op.point()) for op in table.values()}
        whole = sum(seconds.values())
        largest = sorted(seconds, key=seconds.get)[-3:][::-1]
        shares = ", ".join(f"{operator} {seconds[operator] / whole:.0%}" for operator in largest)
        print(f"  {phase:19} {name:7} {whole * 1e6:>8,.0f} us: {shares}")

# %% [markdown] operators explained
# Three things to take away:
#
# - **In training** the matrix products are right of the ridge of both chips; norms and GELU stay at about 2 FLOP per
#   byte and residuals far below, whatever the batch. Fusing them is the only cure (unit 04). Unit 01's profile told
#   you how much time they take; here is why.
# - **In decoding** with a batch of one everything is memory-bound, by a factor of a hundred and more.
# - **A batch helps the linear layers and not attention.** 64 sequences share the weights, so each weight that is read
#   serves 64 tokens. But each sequence has keys and values of its own: attention stays at 1. So at large batches and
#   long contexts decoding is reading the cache, and what shrinks the cache (section 8) makes it faster.
#
# The peak is the peak of the *matrix* units in bf16. Norms and GELU run on the vector units, whose peak is far lower
# (the column `fp32` of the registry); they are so far to the left that it makes no difference.

# %% [markdown] your machine
# ### Your own machine has a roof, too
#
# The same layer with many tokens and with one, and an addition, measured on whatever runs this notebook: a GPU, or
# one core of this CPU in float32.
#
# **Predict.** Which share of the FLOP/s of the first will the second reach?

# %% guess your machine
my_guess = None  # share

# %% measure your machine
device, dtype = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
threads = torch.get_num_threads()
torch.set_num_threads(1)  # one core: no waiting for a second one
tokens, width = (8192 if device == "cuda" else 256), torch.finfo(dtype).bits // 8
weight = torch.randn(768, 3072, device=device, dtype=dtype)
many, one = (torch.randn(n, 768, device=device, dtype=dtype) for n in (tokens, 1))
long = torch.randn(2**24, device=device, dtype=dtype)
out = torch.empty_like(long)
layer_bytes = [width * (n * 768 + 768 * 3072 + n * 3072) for n in (tokens, 1)]
measured = [
    Point(f"MLP up, {tokens} tokens", 2 * tokens * 768 * 3072, layer_bytes[0], bench(lambda: many @ weight).low),
    Point("MLP up, 1 token", 2 * 768 * 3072, layer_bytes[1], bench(lambda: one @ weight).low),
    Point("residual", long.numel(), 3 * width * long.numel(), bench(lambda: torch.add(long, out, out=out)).low),
]
torch.set_num_threads(threads)
chip = probe().chip
print(f"your guess: {my_guess}; {probe().name}")
for point in measured:
    print(f"{point.name:20}{point.intensity:>8.2f} FLOP per byte{point.achieved / 1e9:>12,.1f} GFLOP/s", end="")
    print(f"{point.bytes / point.seconds / 1e9:>10,.1f} GB/s", end="")
    known = chip is not None and chip.ridge("bf16") is not None
    print(f"   {roofline(chip, 'bf16').fraction(point):.0%} of what the roofline allows" if known else "")
print(f"the second reaches {measured[1].achieved / measured[0].achieved:.0%} of the FLOP/s of the first")

# %% [markdown] your machine explained
# One kernel does much arithmetic for its bytes and two do little: the GFLOP/s of these two are set by bytes. (The
# times are lower quartiles: whatever else runs on the machine only adds.)
# Small tensors that stay in a cache can beat the bandwidth of the memory; then the bytes that you counted did not come
# from there. Compare *MLP up, 1 token* on your machine with this in mind.

# %% explore roofline
shown = {"training": tables["training, 8 x 1024"], "decoding": tables["decoding, batch 64"]}
names = ("norm", "qkv", "attention", "MLP up", "GELU")
points = [
    Point(f"{phase}: {name}", table[name].flops, table[name].bytes) for phase, table in shown.items() for name in names
]
explore("roofline", chips=["H100", "MI300X"], points=points, dtype="bf16")

# %% [markdown] tiles
# ## 7. Bytes of a tiled matrix product
#
# The intensity above assumed that each matrix is read *once*. No kernel does that. A tile of $C$ needs a strip of rows
# of $A$ and a strip of columns of $B$, and the next tile needs strips again:
#
# - all of $A$ is read once for each **column of tiles**: $\lceil N / \text{BLOCK\_N} \rceil$ times;
# - all of $B$ is read once for each **row of tiles**: $\lceil M / \text{BLOCK\_M} \rceil$ times;
# - $C$ is written once. `BLOCK_K` changes nothing: the strips are read whole, in however many steps.
#
# Masked lanes move nothing, so ragged edges cost no bytes. No cache is assumed to help.
#
# **Predict.** $M = N = K = 256$, float16. How many bytes are read with tiles of 32 x 32, and with 64 x 64?

# %% guess tiles
my_guess = None  # (bytes with 32, bytes with 64)

# %% count tiles
print(f"your guess: {my_guess}")
print(
    f"by hand, 64 x 64: A is {256 * 256 * 2:,} bytes, read {256 // 64} times, B too: {2 * 4 * 256 * 256 * 2:,} bytes\n"
)
print(
    f"{'M, N, K':14}{'tile':>9}{'A and B by formula':>21}{'counted on sm_80':>19}{'on gfx942':>12}{'FLOP per byte':>15}"
)
for M, N, K, block in ((256, 256, 256, 16), (256, 256, 256, 32), (256, 256, 256, 64), (200, 300, 104, 64)):
    rule = tile_traffic(M, N, K, block, block, 32)
    a, b, c = (torch.randn(shape).half() for shape in ((M, K), (K, N), (M, N)))
    grid, tile = (triton.cdiv(M, block), triton.cdiv(N, block)), {"BLOCK_M": block, "BLOCK_N": block, "BLOCK_K": 32}
    read = []
    for target in ("sm_80", "gfx942"):
        with virtual_gpu(target) as gpu:
            matmul_kernel[grid](a, b, c, M, N, K, **tile)
        torch.testing.assert_close(c.float(), a.float() @ b.float(), atol=0.05, rtol=0.01)
        read.append(gpu.counters.totals()["global_load_bytes"])
        assert gpu.counters.totals()["global_store_bytes"] == rule.written
    print(f"{M}, {N}, {K:<5}{block:>4} x {block:<2}{rule.read_a + rule.read_b:>21,}", end="")
    print(f"{read[0]:>19,}{read[1]:>12,}{rule.intensity:>15.1f}")

# %% [markdown] tiles explained
# The formula and the counters agree to the byte, ragged edges too, on both vendors: this is a property of the
# algorithm. The intensity of a tile of $B \times B$ in 16 bits is about $B / 2$: 2 B³ FLOPs of a cube for 2 × 2 B²
# bytes. To reach the ridge of an H100 by itself, near 300, a tile would need $B = 600$, and its accumulator alone, in
# float32, would take more than all registers of an SM.
#
# What saves us is the L2: strips that several programs want are fetched from memory once and served from the cache to
# the others, *if* they come close together in time. The virtual GPU can record every access and send it through a
# model of the L2.
#
# **Predict.** A product of 512 x 512 x 512 with tiles of 64. The formula says 8 readings of each matrix. How many are
# left behind the L2 of an A100, and behind the eight L2s of an MI300X?

# %% guess l2
my_guess = None  # readings of each matrix from memory: (A100, MI300X)

# %% through the l2
size, block = 512, 64
a, b, c = (torch.randn(size, size).half() for _ in range(3))
rule = tile_traffic(size, size, size, block, block)
once = rule.least - rule.written
print(f"your guess: {my_guess}")
print(f"formula, no cache: {rule.read_a + rule.read_b:>10,} bytes read; each matrix once: {once:,}")
for target in ("sm_80", "gfx942"):
    with virtual_gpu(target, l2=True) as gpu:
        matmul_kernel[(size // block, size // block)](a, b, c, size, size, size, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)
    l2 = L2_OF_TARGET[target]
    for parts in sorted({l2.sizes.parts, 1}, reverse=True):
        read = l2_traffic(gpu.last, cache=replace(l2.sizes, parts=parts)).read_bytes
        imagined = "" if parts == l2.sizes.parts else "  (imagined: all of it as one cache)"
        print(f"{l2.chip:15} {parts} L2: {read:>12,} bytes, {read / once:.1f} readings{imagined}")

# %% [markdown] l2 explained
# One L2 that holds both matrices reads each once. (The model takes the L2 of an A100 as one, though it has two
# partitions.) Eight L2s cannot see each other: programs are dealt to the dies in turn, and what all of them need comes
# eight times. Which matrix it is depends on the order of the programs: here the first index of the grid, the row of
# tiles, is the one that changes fastest, so die `i` gets row of tiles `i` of every column: its strip of A once, and all
# of B. That makes one reading of A and eight of B: 4.5 on average.
#
# So *the order in which programs are numbered* is part of the algorithm. Unit 05 groups them (`05.grouped_order`). The
# model knows sizes and dies; it knows no time, and its caches are cold at the start (`docs/virtual-gpu.md`).
#
# > **Facts: dies and L2**
# >
# > - An A100's L2 has two partitions; each caches what the SMs connected to it ask for, and data move between them.
# >   (source: NVIDIA developer forum, [answer that quotes the A100
# >   whitepaper](https://forums.developer.nvidia.com/t/meanings-of-l2-l2-copy/200725))
# > - MI300X: 8 dies, an L2 of 4 MB on each, 32 MB in all. (source: ROCm docs/reference/gpu-arch-specs.rst)
# > - AMD's advice for MI300X: at least 1,024 workgroups in a grid. (source: ROCm, [MI300X workload
# >   optimization](https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/workload.html))

# %% [markdown] memory
# ## 8. What fits: weights, cache, activations
#
# Memory is the other budget. In training it is state, as unit 01 counted: 16 bytes a parameter with AdamW, plus
# activations. In inference it is
#
# $$ \underbrace{\text{parameters} \times \text{bytes}}_{\text{weights}}
#    + \underbrace{\text{batch} \times \text{context} \times \text{bytes per token}}_{\text{KV cache}}
#    + \text{activations of one step} $$
#
# The cache keeps, for each token and layer, what attention will ask for again. How much that is has been worked on
# hard:
#
# | attention | values kept for each token and layer |
# |---|---|
# | MHA, multi-head: every head has its own keys and values | $2 \times \text{heads} \times \text{head\_dim}$ |
# | GQA, grouped-query: groups of query heads share them | $2 \times \text{kv\_heads} \times \text{head\_dim}$ |
# | MQA, multi-query: all share one | $2 \times \text{head\_dim}$ |
# | MLA, multi-head latent: one compressed vector, and the rotated part of the key | $\text{latent} + \text{rope}$ |
#
# There is no factor 2 in the last row: keys and values are both computed again from the one vector.
#
# **Predict.** Llama-7B (MHA, 32 layers, 32 heads of 128) and DeepSeek-V3 (MLA, 61 layers, 512 + 64), in bf16: bytes of
# cache for one token?

# %% guess cache
my_guess = None  # (Llama-7B, DeepSeek-V3)

# %% cache by hand
print(f"your guess: {my_guess}")
print(f"Llama-7B:    32 layers * 2 * 32 heads * 128 * 2 bytes = {32 * 2 * 32 * 128 * 2:,} bytes a token")
print(f"DeepSeek-V3: 61 layers * (512 + 64) * 2 bytes = {61 * (512 + 64) * 2:,} bytes a token\n")
print(f"{'':12}{'parameters':>18}{'kind':>6}{'bytes a token':>15}{'GB for 32 x 8192 tokens':>26}")
for model in MODELS.values():
    token, all_of_it = model.cache.total(1, 1), model.cache.total(batch=32, context=8192)
    figures = f"{model.parameters:>18,}{model.cache.kind:>6}{token:>15,}{all_of_it / 1e9:>26.1f}"
    print(f"{model.name:12}{figures}   {model.source}")

# %% [markdown] what fits
# A model a hundred times larger with less than a seventh of the cache. Now the chips. The largest batch is what is left
# beside the weights, divided by what one sequence needs; when the weights alone do not fit it is 0. We take the GB of a
# data sheet as $10^9$ bytes. That is on the safe side:
#
# > **Facts: the bytes of a GB**
# >
# > - An H100 of 80 GB reports 81,559 MiB, so 85.52 GB of $10^9$ bytes. (source: [Why does an NVIDIA H100 80GB card
# >   offer 85.52 GB?](https://thundergolfer.com/blog/nvidia-gpu-memory-capacity))
# > - An MI300X of 192 GB reports 206,141,652,992 bytes. (source: [ROCm issue
# >   4750](https://github.com/ROCm/legacy-rocm-build/issues/4750))
#
# A program also keeps memory for itself. What is free on your card, `torch.cuda.mem_get_info()` says.
#
# **Predict.** Mistral-7B (GQA) in bf16, sequences of 32,768 tokens. How many fit on an H100 and how many on an MI300X,
# with 2.4 times the memory?

# %% guess fits
my_guess = None  # (H100, MI300X)

# %% what fits where
CARDS = ("RX 7900 XTX", "H100", "H200", "MI300X")
mistral = MODELS["Mistral-7B"]
weights, sequence = mistral.parameters * 2, mistral.cache.total(batch=1, context=32768)
print(f"your guess: {my_guess}")
for name in ("H100", "MI300X"):
    memory = CHIPS[name].memory_gb.value * 1e9
    fit = int((memory - weights) // sequence)
    print(f"{name}: ({memory / 1e9:.0f} - {weights / 1e9:.1f}) GB // {sequence / 1e9:.2f} GB = {fit}")
print(f"\nlargest batch of 32,768 tokens, activations counted too{'':4}" + "".join(f"{name:>13}" for name in CARDS))
for model in MODELS.values():
    for what, width in (("bf16", 2), ("fp8 cache", 1)):
        batches = [largest_batch(name, model, 32768, weight_bytes=2, cache_bytes=width) for name in CARDS]
        print(f"  {model.name:14}{what:41}" + "".join(f"{batch:>13,}" for batch in batches))
print("\nmemory\n" + "\n".join(f"  {name:12} {CHIPS[name].memory_gb}" for name in CARDS))

# %% [markdown] fits explained
# More than 2.4 times: weights are paid once, and what is left is what serves. That is the case for memory: 2.4 times
# the memory holds 2.7 times the sequences here, and for a model that fills an H100 with its weights the factor is
# without bound. (GPT-2 itself stops at 1,024 tokens: its row is arithmetic. The table reserves the activations of
# reading one prompt, 3 to 4 GB for these models of 7 billion parameters: one sequence of Mistral-7B, twelve of
# Falcon-7B's small ones. The lab leaves them out.) Nothing on this list holds DeepSeek-V3: 671 billion parameters, even
# at one byte each, need several chips.
#
# And training? State alone, at 16 bytes a parameter:

# %% what trains where
print("state alone, with nothing left for activations:")
for name in CARDS:
    memory = CHIPS[name].memory_gb.value
    print(f"{name:12} {memory:>4g} GB: at most {memory / 16:.1f} billion parameters")
needs = plan("H100", mistral, batch=14, context=32768)
print(f"\nMistral-7B serving 14 x 32,768 tokens on an H100: weights {needs.weights / 1e9:.1f} GB,", end=" ")
print(f"cache {needs.cache / 1e9:.1f} GB, activations {needs.activations / 1e9:.1f} GB; free {needs.free / 1e9:.1f} GB")

# %% explore memory
explore("memory")

# %% [markdown] claims
# ## 9. Claim and fact
#
# Two statements that you will read in articles. Check both with the registry.

# %% the figures behind the claims
for name in ("H100", "H800", "H20"):
    chip = CHIPS[name]
    print(f"{chip.name}: {chip.units}")
    figures = {"memory": chip.memory_gb, "bandwidth": chip.bandwidth_tb, "NVLink": chip.link_gb}
    for label, figure in {"bf16": chip.peak_figure("bf16"), **figures}.items():
        print(f"   {label:10} {figure}")
try:
    roofline("MI325X", "bf16")
except UnknownFigure as unknown:
    print(f"\nwhat is not in the registry is not guessed:\n{unknown}")
print(f"\nMI300X: {CHIPS['MI300X'].note}")

# %% [markdown] the boxes
# > **Claim and fact: "DeepSeek trained on crippled H100s"**
# >
# > *The claim*: the H800 is a slow H100, so DeepSeek's results came from weak chips. *The figures*:
# >
# > - The H800 has 132 SMs, as many as an H100. (source: DeepSeek-V3 report, arXiv 2412.19437)
# > - Its peak in bf16 is 989.5 TFLOP/s, and its memory has 3.35 TB/s: an H100's. (source: feifeibear/LLMRoofline
# >   hardware_dict.py)
# > - What was cut is the link between GPUs: 400 GB/s of NVLink against 900. (source: philisun.com, comparison of H800
# >   and H100)
# > - The H20 is the other way round: full link and 4.0 TB/s, but 148 TFLOP/s in bf16. (source:
# >   feifeibear/LLMRoofline hardware_dict.py; willitrunai.com/gpus/h20-96gb)
#
# So a matrix product runs on an H800 as on an H100, and what changes is communication: hence the overlap, and the 20
# of 132 SMs that the report gives to it (units 11 and 12). On an H20 training is slow, and decoding, which lives from
# bandwidth, is not: its ridge is 37. "Slower" is no answer until you say at which intensity.
#
# > **Claim and fact: "MI300X has unified CPU and GPU memory"**
# >
# > *The claim* mixes up two products. *The facts*:
# >
# > - The MI300X is a discrete accelerator with 192 GB of its own. (source: ROCm docs/conceptual/gpu-arch/mi300.md and
# >   docs/reference/gpu-arch-specs.rst)
# > - One memory for CPU and GPU is what the MI300A has, which is another product. (source: ROCm
# >   docs/conceptual/gpu-arch/mi300.md)
# > - MI300X modules are connected to the host over PCIe. (source: ROCm, [MI300X workload
# >   optimization](https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/workload.html), RCCL)
#
# It matters: on an MI300X `tensor.cpu()` is a copy over PCIe, as on an H100 in a server.

# %% [markdown] summary
# ## Summary
#
# | | NVIDIA | AMD CDNA | AMD RDNA |
# |---|---|---|---|
# | lanes of a wave | 32 | 64 | 32 |
# | lanes are switched off by | predicates and branches | `EXEC`, written out | `EXEC`, written out |
# | bytes of a transaction, as counted here | 32 | 64 (gfx90a), 128 | 128 |
# | banks of shared memory | 32 | 32; gfx950 64 | 32 |
# | registers of a lane and part, granule | 512, 8 | 512, 8 (a guide says 16) | 1,536, 24 |
#
# - A wave pays for every side that one of its lanes takes. The wider the wave, the more must agree.
# - One load costs as many transactions as it touches aligned segments; one access to shared memory as many cycles as
#   words of one bank.
# - Occupancy: blocks allowed by slots, registers, shared memory, block slots; the smallest wins. LLVM's comment knows
#   no LDS.
# - Bytes in flight = latency × bandwidth: occupancy or wide loads, as you like.
# - Intensity against ridge decides whether memory or arithmetic limits. Decoding has about 1 FLOP per byte.
# - A tiled product reads A once a column of tiles and B once a row; the L2 repairs it, if it is one L2.
# - Weights are paid once; the cache is paid per token, and GQA and MLA shrink it.
#
# ## Read next
#
# - [CUDA C++ programming guide](https://docs.nvidia.com/cuda/cuda-c-programming-guide/): compute capabilities, shared
#   memory, the table of limits.
# - [CUDA C++ best practices](https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/): coalescing, occupancy.
# - [Nsight Compute profiling guide](https://docs.nvidia.com/nsight-compute/ProfilingGuide/): what sectors and bank
#   conflicts are to a profiler.
# - [HIP performance guidelines](https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/performance_guidelines.html)
#   and [MI300X workload
#   optimization](https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/workload.html).
# - [LLVM, user guide for AMDGPU](https://llvm.org/docs/AMDGPUUsage.html): kernel descriptor, registers;
#   [llvm-calc-occupancy](https://llvm.org/docs/CommandGuide/llvm-calc-occupancy.html).
# - [Roofline: an insightful visual performance model](https://doi.org/10.1145/1498765.1498785).
# - [GQA](https://arxiv.org/abs/2305.13245), [DeepSeek-V2](https://arxiv.org/abs/2405.04434) for MLA.
#
# ## Check yourself
#
# Answer first, then open.
#
# <details><summary>A block of 256 threads; thread <code>t</code> takes the long side (40 instructions) when
# <code>t % 64 &lt; 32</code>, else the short one (10). How many instructions of the sides are issued on sm_90, and on
# gfx942?</summary>
#
# sm_90: 8 warps, four take each side: 4 × 40 + 4 × 10 = 200, no lane lost. gfx942: 4 wavefronts, all mixed:
# 4 × 50 = 200, half of the lane slots lost.
# </details>
#
# <details><summary>A warp reads float64 values side by side, starting 8 bytes after an aligned address. Transactions on
# sm_80?</summary>
#
# 256 bytes from byte 8 to 263: segments 0 to 8 of 32 bytes: 9.
# </details>
#
# <details><summary>Lanes 0 to 31 read word 0, lanes 32 to 63 read word 32. Conflicts on gfx942, on gfx950?</summary>
#
# None on gfx942: two groups, each a broadcast. On gfx950 one group: word 0 is in bank 0, word 32 in bank 32: none
# either.
# </details>
#
# <details><summary>A kernel for gfx942 has 100 VGPRs, 4 waves a block and 20,000 bytes of LDS. How many waves are on a
# CU?</summary>
#
# 100 → 104; 512 // 104 = 4 waves a SIMD, 4 blocks. LDS: 20,000 → 20,480; 65,536 // 20,480 = 3 blocks. So 3 blocks, 12
# of 32 waves, limited by LDS. LLVM's comment says Occupancy 4.
# </details>
#
# <details><summary>Does a chip with twice the FLOP/s and the same bandwidth decode faster? With a batch of
# 512?</summary>
#
# With a small batch no: intensity is near 1 and memory decides. With 512 the linear layers come near the ridge and may
# profit; attention still reads every cache at 1 FLOP per byte.
# </details>
#
# <details><summary>Tiles of 128 x 64 (rows x columns), M = N = 4096: how often is A read, how often B?</summary>
#
# A once a column of tiles: 4096 / 64 = 64 times. B once a row of tiles: 4096 / 128 = 32 times.
# </details>
#
# Now open [lab 02](../labs/02_gpu_machine.ipynb): eight exercises, four of them kernels.
