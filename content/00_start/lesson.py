# %% [markdown] top
# # 00 Your machine, and three ways to run one kernel
#
# **Afterwards you can** say in code whose GPU you are on, write a kernel with a mask and a grid, read a strided tensor
# in place, find your own lines again in the machine code of both vendors, and run that machine code, count its memory
# transactions and step one warp or wavefront through it, with no GPU at all.
#
# **You need** Python and some PyTorch. No GPU, no CUDA, no ROCm: every cell runs on a laptop, and uses a GPU when there
# is one. Nothing here has been run on AMD hardware by us: AMD's machine code is *compiled for* a chip and executed on
# a *virtual GPU*.
#
# **Time**: 55 minutes to read, well under a minute for the cells to run, on a CPU as on a GPU. Then lab 00.
#
# The course asks you to *predict, then run*. Where a cell says `my_guess = None`, write your number before you run
# the next one. Wrong guesses teach most.

# %% imports
import contextlib

import torch
import triton
import triton.language as tl

from gpu_utils import CHIPS, bench, compile_for, listing, probe, virtual_gpu
from gpu_utils.lesson import LaunchFigure, OutOfBounds, WaveFigure, interpreter, resources

# %% [markdown] whose gpu
# ## 1. Whose GPU is this?
#
# `probe()` looks at the machine: the device, how many lanes its warps (NVIDIA) or wavefronts (AMD) have, and the
# versions that matter. `./w2w doctor` in a terminal says the same and what it allows you to do.

# %% probe
probe()

# %% [markdown] names of builds
# PyTorch comes in three builds, and each knows what it was *built for*. That is not the same as what is *plugged in*.
#
# | build | `torch.version.cuda` | `torch.version.hip` | device string of a GPU |
# |---|---|---|---|
# | CUDA (NVIDIA) | `"12.8"` or the like | `None` | `"cuda"` |
# | ROCm (AMD) | `None` | `"6.4..."` or the like | `"cuda"` |
# | CPU | `None` | `None` | none |
#
# The last column is no misprint. PyTorch on ROCm keeps the names of CUDA on purpose, so that code runs unchanged:
# `x.to("cuda")` puts `x` on an AMD GPU, and there is no `torch.hip`
# ([PyTorch, HIP semantics](https://docs.pytorch.org/docs/stable/notes/hip.html)).
#
# **Predict.** You are on a machine with eight MI300X. What does `torch.cuda.is_available()` return, and what is
# `torch.version.cuda`?
#
# <details><summary>Compare</summary>
#
# `True` and `None`. So `is_available()` tells whether there is a GPU, of either vendor; it does not tell whose. And a
# test of `torch.version.cuda` finds no GPU on a machine that has eight. What does tell them apart is
# `torch.version.hip`.
# </details>

# %% three questions
print("built for CUDA:     ", torch.version.cuda)
print("built for HIP:      ", torch.version.hip)
print("a GPU is usable now:", torch.cuda.is_available())

# %% [markdown] backends
# From here on, kernels run on your GPU if there is one. Otherwise they run on a *virtual GPU*: Triton compiles the
# kernel for a real target (`sm_80`, which is an A100), and the course executes that code on the CPU, instruction by
# instruction. Section 4 compares the ways; for now it is enough that the next cell chooses for you.

# %% where kernels run
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def kernels_run():
    """A block in which kernels run here: on the GPU if there is one, else on a virtual one."""
    return contextlib.nullcontext() if DEVICE == "cuda" else virtual_gpu("sm_80")


# %% [markdown] programs
# ## 2. A kernel is one program, started many times
#
# A Triton kernel is written for one *program*: a piece of work on one block of elements. A *launch* starts a *grid* of
# them, `kernel[grid](...)`. All run the same code; the only thing that differs is `tl.program_id(0)`: 0, 1, 2, ...
# NVIDIA calls what runs a program a thread block, AMD a workgroup.
#
# So the first lines of nearly every kernel answer one question: *which elements are mine?*
#
# ```python
# program = tl.program_id(0)
# offsets = program * BLOCK + tl.arange(0, BLOCK)     # BLOCK numbers at once
# ```
#
# `tl.arange(0, BLOCK)` is 0, 1, ..., BLOCK - 1, so `offsets` is a small vector of positions, not a loop. `BLOCK` is a
# `tl.constexpr`, a number that the compiler knows; it must be a power of two.
#
# The kernel below writes the number of its program into every element that it owns. There are 10 elements, and a
# program has 4.
#
# **Predict.** How many programs must the grid have? And what would the last of them do without the `mask`?

# %% guess programs
my_guess = None  # how many programs?


# %% who owns what
@triton.jit
def owner_kernel(out_ptr, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    offsets = program * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n  # the last block hangs over the end: only the elements that exist
    tl.store(out_ptr + offsets, program, mask=mask)


n, BLOCK = 10, 4
grid = (triton.cdiv(n, BLOCK),)  # cdiv divides and rounds up: n // BLOCK would lose the tail
owner = torch.full((n,), -1, dtype=torch.int32, device=DEVICE)
with kernels_run():
    owner_kernel[grid](owner, n, BLOCK=BLOCK)

print(f"your guess: {my_guess}; the grid: {grid}")
print("element  ", *range(n))
print("program  ", *owner.tolist())

# %% [markdown] pointers
# Three programs: 10 / 4, rounded up. The last one has offsets 8, 9, 10, 11, of which 10 and 11 do not exist.
# `mask=mask` keeps these two lanes from touching memory.
#
# Note `out_ptr + offsets`. A tensor reaches the kernel as a *pointer*, the address of its first element, and adding
# offsets gives a vector of addresses. Nothing knows where the tensor ends. A GPU would mostly write to 10 and 11
# without complaint, over whatever lives there.
#
# Here is the same without a mask. It runs on two virtual GPUs, also when you have a real one, because a virtual GPU
# knows where each tensor ends and watches every address.


# %% no mask
@triton.jit
def maskless_kernel(out_ptr, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    offsets = program * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, program)


for target in ("sm_80", "gfx942"):
    try:
        with virtual_gpu(target):
            maskless_kernel[grid](torch.zeros(n, dtype=torch.int32), n, BLOCK=BLOCK)
    except OutOfBounds as problem:
        print(f"{target}: OutOfBounds: {problem}\n")

# %% [markdown] the message
# Each message says where: the line of the source, the program, the lane, the tensor, and how far past its end.

# %% [markdown] load and store
# Most kernels read as well. This one computes `out = factor * x`: load, compute, store, and one mask for both accesses.
# `factor` is a plain number; it needs no pointer.
#
# The function around it is the *launcher*: it allocates the result, works out the grid, and launches. Callers see an
# ordinary Python function.


# %% scale
@triton.jit
def scale_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    offsets = program * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, factor * x, mask=mask)


def scale(x, factor):
    out = torch.empty_like(x)  # same shape, dtype and device as x; its values are whatever was there
    n = x.numel()
    grid = (triton.cdiv(n, 1024),)
    scale_kernel[grid](x, out, n, factor, BLOCK=1024)
    return out


x = torch.randn(3000, device=DEVICE)
with kernels_run():
    y = scale(x, 2.5)
print("equal to torch:", torch.equal(y, 2.5 * x))

# %% [markdown] picture
# What becomes of one program on a chip? Its work is shared out among *warps* of 32 lanes (NVIDIA) or *wavefronts* of 64
# lanes (AMD's Instinct chips; the Radeon chips of this course run 32). A lane is one column of the vector unit: all
# lanes of a warp or wavefront carry out one instruction together, each on its own data. The launch option `num_warps`
# says how many warps or wavefronts share a program; it is 4 unless you ask for another number.
#
# Same source, same `BLOCK`, same `num_warps`; look at the number of elements that each lane holds.

# %% launch figure
LaunchFigure(n=3000, block=1024, num_warps=4)

# %% [markdown] strides
# ## 3. Rows, columns and strides
#
# A matrix lies in memory as one long line of numbers. Where element `[row, col]` lies is a matter of two *strides*,
# counted in elements:
#
# $$ \text{address}(row, col) = \text{first} + row \cdot \text{stride}_0 + col \cdot \text{stride}_1 $$
#
# Slicing and transposing move no data: they make a *view*, which is another first element, another shape and other
# strides over the same memory.

# %% views
wide = torch.arange(24.0).view(4, 6)
views = {"wide": wide, "wide[:, 1:4]": wide[:, 1:4], "wide[::2]": wide[::2], "wide.T": wide.T}
for name, view in views.items():
    print(f"{name:14} shape {tuple(view.shape)}  strides {view.stride()}  first element {view.storage_offset()}")

# %% [markdown] predict stride
# **Predict.** `view = wide[::2, 1:4]` takes every second row and three columns. Which number is `view[1, 2]`, and
# how far is it from `view[0, 0]` in memory?

# %% guess stride
my_guess = None  # the distance in elements

# %% distance
view = wide[::2, 1:4]
distance = 1 * view.stride(0) + 2 * view.stride(1)
print(f"your guess: {my_guess}")
print(f"strides {view.stride()}: view[1, 2] is {distance} elements after view[0, 0]")
memory = wide.flatten()  # the numbers in the order in which they lie
print("view[1, 2] =", view[1, 2].item(), "and memory holds", memory[view.storage_offset() + distance].item())

# %% [markdown] clamp
# A kernel that takes the strides works on any view. Here is one that clamps each element between two bounds. It uses a
# grid of *two* dimensions: `tl.program_id(0)` is the row, `tl.program_id(1)` the block of columns. The mask is about
# columns, because each row has its own tail.


# %% clamp rows
@triton.jit
def clamp_kernel(x_ptr, out_ptr, n_cols, low, high, stride_xm, stride_xn, stride_om, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride_xm + cols * stride_xn, mask=mask)
    x = tl.minimum(tl.maximum(x, low), high)
    tl.store(out_ptr + row * stride_om + cols, x, mask=mask)


def clamp(x, low, high):
    rows, cols = x.shape
    # empty_like would copy the strides of a transpose; a shape asks for a contiguous result
    out = torch.empty(rows, cols, dtype=x.dtype, device=x.device)
    grid = (rows, triton.cdiv(cols, 64))
    clamp_kernel[grid](x, out, cols, low, high, x.stride(0), x.stride(1), out.stride(0), BLOCK=64)
    return out


matrix = torch.randn(6, 200, device=DEVICE)
with kernels_run():
    for name, view in {"contiguous": matrix, "slice": matrix[:, 7:107], "transpose": matrix.T}.items():
        same = torch.equal(clamp(view, -0.5, 0.5), view.clamp(-0.5, 0.5))
        print(f"{name:10} strides {view.stride()!s:9} equal to torch: {same}")

# %% [markdown] ways
# ## 4. Three ways to run one kernel
#
# | way | what executes | what it is for |
# |---|---|---|
# | a real GPU | the GPU | speed: only here does a time mean anything |
# | a virtual GPU | the code compiled for `sm_80`, `gfx942`, ..., on the CPU | both vendors anywhere; exact counts |
# | Triton's interpreter | the lines of your kernel, in Python | `print` and breakpoints inside a kernel |
#
# A *virtual GPU* executes what the compiler made, for all lanes of many warps at once. For AMD that is AMDGCN, the
# chip's own instructions; for NVIDIA it is PTX, the last language before the binary. Nothing in the kernel changes:
# open a block with `virtual_gpu(target)`, pass tensors on the CPU, launch.
#
# What it cannot show is time: it has no clock and no caches (`docs/virtual-gpu.md` has the details). What the
# interpreter cannot show: lanes, counts, races (its programs run one after the other), bf16 and FP8, which it would
# compute wrongly.
#
# **Predict.** One kernel, one input, three ways and two vendors. Will all results be equal to torch's, bit for bit?

# %% guess equal
my_guess = None  # equal in how many of the ways?

# %% ways that work here
ways = {
    "interpreter": ("cpu", interpreter()),
    "virtual sm_80": ("cpu", virtual_gpu("sm_80")),
    "virtual gfx942": ("cpu", virtual_gpu("gfx942")),
}
if torch.cuda.is_available():
    ways["real GPU"] = ("cuda", contextlib.nullcontext())
values = torch.linspace(-1, 1, 5000)
print(f"your guess: {my_guess}")
for name, (device, block) in ways.items():
    with block:
        result = scale(values.to(device), 3.0)
    print(f"{name:15} equal to torch, bit for bit: {torch.equal(result.cpu(), 3.0 * values)}")

# %% [markdown] why equal
# In all of them: a float32 product is the exact product, rounded once, on every one of these machines. Unit 09 is about
# the operations where this ends: sums in another order, `exp`, matrix instructions.
#
# A check in a lab runs your kernel on the virtual `sm_80` and `gfx942`. If you have a GPU, it runs there first.

# %% [markdown] machine code
# ## 5. From your lines to the machine code of both vendors
#
# Triton's compiler needs no GPU to compile for one. `compile_for` asks it for any target. A *target* is an instruction
# set, not a product: `sm_90` is what an H100 runs, `gfx942` an MI300X, `gfx1100` a Radeon RX 7900 XTX.
#
# **Predict.** One program has `BLOCK = 1024` elements and 4 warps or wavefronts. How many elements does each lane
# handle on `sm_90` (32 lanes), how many on `gfx942` (64 lanes)? If one load instruction can bring 16 bytes to a lane,
# how many load instructions does each kernel need?

# %% guess loads
my_guess = None  # (loads on sm_90, loads on gfx942)

# %% compile for four targets
TARGETS = ("sm_80", "sm_90", "gfx942", "gfx1100")


def compare_targets(n):
    """Compile scale_kernel for a launch with n elements, and print what each target's lanes do."""
    print(f"{'target':8} {'lanes':>5} {'elements a lane':>16} {'loads a lane':>14} {'registers a lane':>17}")
    for target in TARGETS:
        # in place of a tensor its dtype: nothing is launched
        compiled = compile_for(scale_kernel, target, (torch.float32, torch.float32, n, 2.5), BLOCK=1024)
        needs = resources(compiled)
        loads = ", ".join(f"{count} x {bits} bits" for bits, count in needs.widths["global load"].items())
        elements = 1024 // (4 * needs.target.lanes)
        print(f"{target:8} {needs.target.lanes:5} {elements:16} {loads:>14} {needs.registers:17}")


print(f"your guess: {my_guess}")
compare_targets(n=1_000_000)

# %% [markdown] predict odd
# A lane of a 32-lane warp holds 8 elements and needs two loads of 128 bits; a lane of a 64-lane wavefront holds 4 and
# needs one. `gfx1100` is AMD too, and has 32 lanes: the width follows the chip, not the vendor.
#
# **Predict.** 1,000,000 is a multiple of 16. What changes with one element more, `n = 1_000_001`?

# %% guess odd
my_guess = None  # more loads, fewer loads, or as before?

# %% odd length
print(f"your guess: {my_guess}")
compare_targets(n=1_000_001)

# %% [markdown] why odd
# Four times as many loads, each a quarter as wide. A load of four floats is done whole or not at all, so the mask must
# be the same for all four. When Triton compiles for a launch it looks whether integers are divisible by 16. If `n` is,
# the end of the tensor never cuts through a group of four. If `n` is not, it may, and the compiler takes the elements
# one by one, in every program. This is one reason why sizes in GPU code like to be multiples of 16.
#
# Below is the whole kernel, with what became of each line: the source, then PTX for `sm_90`, then AMDGCN for `gfx942`.
# **Point at a line** (or walk through them with the arrow keys) to mark what belongs to it on the other sides.

# %% listing
any_pointers = {"x_ptr": "*fp32:16", "out_ptr": "*fp32:16", "n": "i32:16", "factor": "fp32"}  # :16: divisible by 16
listing(scale_kernel, "sm_90", "gfx942", signature=any_pointers, BLOCK=1024)

# %% [markdown] what to see
# What to look for:
#
# | in the source | PTX (NVIDIA) | AMDGCN (AMD) |
# |---|---|---|
# | `tl.program_id(0)` | `%ctaid.x` | in a scalar register when the kernel starts |
# | `tl.arange(0, BLOCK)` | made from `%tid.x`, the thread's number | made from `v0`, the thread's number |
# | `tl.load` of 4 floats | `ld.global.v4.b32` | `global_load_dwordx4` |
# | `mask` | a predicate: `@%p1` before the load | a bit in `EXEC`: `s_and_saveexec_b64` |
# | what all lanes share | in registers like all others | in scalar registers, `s0`, `s1`, ... |
# | waiting for a load | not written | written: `s_waitcnt vmcnt(0)` |
#
# Both mask the tail; they do it differently. A predicate belongs to one instruction. `EXEC` is one register of 64 bits,
# one for each lane of the wavefront, and it governs every vector instruction until it changes. When no lane is left,
# `s_cbranch_execz` jumps over the work. Unit 02 counts what idle lanes cost, unit 07 reads listings like these in full.
#
# A word on registers. PTX has as many as it likes (`%r1`, `%r2`, ...): it is a language for a virtual machine, and
# `ptxas` translates it to the real instructions and registers of one chip. AMDGCN is already those instructions, so
# its `v0`, `v1`, ... are real. That is why the table above asks NVIDIA's finished binary, not the PTX, for the count.
#
# The listing is for tensors of any size. In a launch Triton sees how large each tensor is, and on AMD, for tensors
# under 2 GiB, it masks in a third way. Here are the lines of `tl.load`, compiled as for a launch:

# %% buffer mask
as_launched = listing(scale_kernel, "gfx942", args=(torch.float32, torch.float32, 1_000_000, 2.5), BLOCK=1024)
load_line = next(number for number, text in as_launched.source if "tl.load" in text)
for instruction in as_launched.columns[0].of_line(load_line):
    print(instruction.text)

# %% [markdown] claim and fact
# `v_cndmask_b32` chooses, lane by lane, between the true offset and one far past the end (`v_bfrev_b32` makes it:
# $2^{31}$). A *buffer* load is told a size (here the largest, `0x7ffffffe` bytes) and gives 0 for an offset beyond it
# ([MLIR, AMDGPU dialect](https://mlir.llvm.org/docs/Dialects/AMDGPU/)). So three ways lead to the same masked load:
# skip the instruction, switch off the lane, aim outside the fence. You will step through all three in a moment.
#
# > **Claim and fact: "DeepSeek bypassed CUDA"**
# >
# > - *Claim*: headlines said that DeepSeek trained V3 by "bypassing CUDA", because its report mentions PTX.
# > - *Fact*: customised PTX serves the kernels for communication between GPUs, which run on 20 of the 132 SMs.
# >   (source: [DeepSeek-V3 report](https://arxiv.org/abs/2412.19437))
# > - What you have just read for `sm_90` **is** PTX, and it is a part of CUDA: the kernels that you write in CUDA C++
# >   or Triton become PTX on their way to an NVIDIA GPU. Writing one layer of CUDA by hand, for a few kernels,
# >   bypasses nothing. And none of it runs on an AMD GPU: AMDGCN is another language. (measured: the cells above)

# %% [markdown] counting
# ## 6. Run what you have read
#
# A virtual GPU counts while it executes, and the counts are exact: for one version of the compiler they are the same on
# every machine and in every run. It counts the instructions that warps or wavefronts execute, by class, and their
# *transactions* with memory. A GPU does not fetch single floats. One load instruction of a warp or wavefront becomes as
# many transactions as it touches pieces of memory: sectors of 32 bytes on NVIDIA, cache lines of 128 bytes on `gfx942`.
#
# **Predict.** `scale` on 65,536 elements, `BLOCK = 1024`, 4 warps or wavefronts to a program. How many warps are
# launched on `sm_80`, how many wavefronts on `gfx942`? Which of the two executes fewer instructions on global memory?
# How many transactions does each need for its loads, and how many bytes are they?

# %% guess counts
my_guess = None  # (warps on sm_80, wavefronts on gfx942)

# %% counters
VIRTUAL = ("sm_80", "gfx942")


def count(kernel, grid, *args, **options):
    """The counters of one launch on each virtual GPU."""
    counted = {}
    for target in VIRTUAL:
        with virtual_gpu(target) as gpu:
            kernel[grid](*args, **options)
        counted[target] = gpu.counters
    return counted


N = 65_536
x, out = torch.randn(N), torch.empty(N)
counted = count(scale_kernel, (triton.cdiv(N, 1024),), x, out, N, 2.5, BLOCK=1024)
totals = {target: counters.totals() for target, counters in counted.items()}

print(f"your guess: {my_guess}")
print(f"{'':28}{'sm_80':>10}{'gfx942':>10}")
for name in ("waves", "instructions", "global_load_bytes", "global_load_sectors", "sector_bytes"):
    print(f"{name:28}{totals['sm_80'][name]:>10,}{totals['gfx942'][name]:>10,}")
moved = {target: total["global_load_sectors"] * total["sector_bytes"] for target, total in totals.items()}
print(f"{'bytes that these are':28}{moved['sm_80']:>10,}{moved['gfx942']:>10,}\n")
classes = dict.fromkeys(name for counters in counted.values() for name in counters.instructions())
for name in classes:
    print(f"{'of class ' + name:28}", end="")
    print("".join(f"{counted[target].instructions().get(name, 0):>10,}" for target in VIRTUAL))

# %% [markdown] what the counts say
# As many wavefronts as warps, 256, because `num_warps` says how many share a program. But a wavefront has twice the
# lanes, so a lane has half the elements, and there are half as many loads and stores. The transactions differ in number
# and in size, and are the same bytes: each byte that came was asked for. Such access is called *coalesced*.
#
# Look at the classes, too. On AMD, what all lanes share is computed once, by *scalar* instructions. PTX knows no such
# difference. And where do all the moves on `sm_80` come from? Ask the lines:

# %% per line
by_line = {target: {line[1]: kinds for line, kinds in counted[target].per_line().items() if line} for target in VIRTUAL}
for number, text in as_launched.source:
    print(text)
    for target in VIRTUAL:
        kinds = by_line[target].get(number)
        if kinds:
            print(f"        {target:8}", ", ".join(f"{times} {kind}" for kind, times in kinds.items()))

# %% [markdown] strided
# Most moves belong to `tl.load`: a predicated load that is skipped leaves its registers as they were, so PTX puts zeros
# there first. AMD's buffer load returns zero by itself.
#
# Now an access that is *not* coalesced. This kernel gathers every `stride`-th element. It gets one warp for 32 elements
# or one wavefront for 64, so that each lane reads one.
#
# **Predict.** For each byte asked for, how many bytes come with `stride = 1`, with 8, with 32, on each of the two?

# %% guess strided
my_guess = None  # for stride 32: (on sm_80, on gfx942)


# %% strided access
@triton.jit
def gather_kernel(x_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets * stride, mask=mask), mask=mask)


def bytes_per_byte(target, stride, n=4096):
    """Bytes of all transactions of the loads, over the bytes that the lanes asked for."""
    x, out = torch.randn(n * stride), torch.empty(n)
    with virtual_gpu(target) as gpu:
        gather_kernel[(n // 256,)](x, out, n, stride, BLOCK=256, num_warps=256 // gpu.model.lanes)
    assert torch.equal(out, x[::stride])
    counted = gpu.counters.totals()
    return counted["global_load_sectors"] * counted["sector_bytes"] / counted["global_load_bytes"]


print(f"your guess: {my_guess}")
for stride in (1, 2, 4, 8, 16, 32, 64):
    print(f"stride {stride:2}", end="")
    for target in VIRTUAL:
        wasted = bytes_per_byte(target, stride)
        print(f"   {target} {wasted:4.0f} {'■' * round(wasted):32}", end="")
    print()

# %% [markdown] why strided
# The result is right every time; only the counter tells. From stride 8 on, each lane has a sector of its own on
# `sm_80`, and 28 of 32 bytes are for nobody. `gfx942` with its longer transactions falls further: from stride 32 on,
# 124 of 128 bytes are for nobody.
#
# A cache can soften this where another instruction soon asks for the rest. The counter says what the instructions ask
# for, before any cache. Unit 02 works these numbers out by hand; the lab bounds them.
#
# ## 7. Step through a masked tail
#
# The last thing that no real GPU lets you see: one warp or wavefront, instruction by instruction, with the registers of
# all its lanes. Take 100 elements, `BLOCK = 64`, one warp or wavefront to a program, and look at program 1: it owns
# elements 64 to 127, of which 28 do not exist.
#
# **Predict.** Which of 64 lanes have work? And of 32 lanes, with how many elements each?

# %% guess lanes
my_guess = None  # (lanes with work on gfx942, lanes with work on sm_80)


# %% step on gfx942
def step_through(target, kernel=scale_kernel, shown_first="", n=100):
    """Program 1 of the kernel, stepped; the first step shown is the one whose instruction has these words."""
    x, out = torch.arange(1.0, n + 1), torch.zeros(n)
    with virtual_gpu(target) as gpu, gpu.trace(program=(1, 0, 0)) as trace:
        kernel[(2,)](x, out, n, 2.5, BLOCK=64, num_warps=1)
    start = next(number for number, step in enumerate(trace.steps) if shown_first in step.text)
    return WaveFigure(trace, target, kernel, start)


print(f"your guess: {my_guess}")
step_through("gfx942", shown_first="v_cndmask")

# %% [markdown] stepped buffer
# Click an instruction, then use the arrow keys. What to see:
#
# - All 64 lanes stay on: `EXEC` never changes. `v_cmp_gt_i32` writes the mask into `vcc`, one bit a lane: 36 of 64.
# - `v_cndmask_b32` gives the other 28 lanes the offset `0x80000000`, which is $2^{31}$: outside.
# - `buffer_load_dword` loads 65, 66, ..., 100 into 36 lanes and 0 into 28. No branch, no lane switched off.
# - `v_mul_f32` multiplies the zeros, too. The work of a masked lane is not saved; only its memory access is.
#
# Triton takes this way where it knows that the tensor is small enough. Here is the same kernel with buffer operations
# turned off:

# %% step on gfx942 with EXEC
with triton.knobs.amd.scope():
    triton.knobs.amd.use_buffer_ops = False
    without_buffers = step_through("gfx942", triton.jit(scale_kernel.fn), "s_and_saveexec")
without_buffers

# %% [markdown] stepped EXEC
# Now `s_and_saveexec_b64` switches 28 lanes off, and keeps what `EXEC` was in `s[0:1]`. From here on the registers of
# these lanes stay as they are: their values are in parentheses. `s_cbranch_execz` would jump if no lane were left.
#
# And NVIDIA:

# %% step on sm_80
step_through("sm_80", shown_first="@%p1 ld")

# %% [markdown] stepped predicates
# Two elements a lane, so two predicates and two loads: `%p1` for elements 64, 66, ..., `%p2` for 65, 67, ... All lanes
# stay on; a guard decides, for this one instruction, which of them take part. Lanes 0 to 17 do. The others keep the
# zero that a `mov` put there, shown in parentheses. Two loads, not one of 64 bits, because 100 is no multiple of 16.

# %% [markdown] bytes first
# ## 8. Count bytes before you look at the clock
#
# How fast can `scale` be? Per float32 element it reads 4 bytes and writes 4 bytes, and does one multiplication. For $N$
# elements that is $8N$ bytes and $N$ FLOPs. (Adding two vectors, as in the lab, reads two and writes one: $12N$ bytes.)
# A chip needs at least
#
# $$ t \ge \max\left( \frac{\text{bytes}}{\text{memory bandwidth}},\; \frac{\text{FLOPs}}{\text{peak FLOP/s}} \right) $$
#
# which is the *roofline* bound. The registry `CHIPS` has both figures, each with its source, for every chip in the
# course; a figure that no source confirms is `None` there.
#
# **Predict.** Which of the two is larger for `scale` on an H100: the time for the bytes or the time for the FLOPs?
# By about how much?

# %% guess roofline
my_guess = None  # time for the bytes / time for the FLOPs

# %% roofline bound
N = 2**26
bytes_moved, flops = 8 * N, N
print(f"your guess: {my_guess}")
for name in ("H100", "MI300X"):
    chip = CHIPS[name]
    for_bytes = bytes_moved / (chip.bandwidth * 1e12)
    for_flops = flops / (chip.peak("fp32") * 1e12)
    print(f"{name}: at least {for_bytes * 1e6:.0f} us for the bytes, {for_flops * 1e6:.1f} us for the FLOPs:", end=" ")
    print(f"{for_bytes / for_flops:.0f} times as long, so memory decides")
    print(f"   bandwidth {chip.bandwidth_tb}")
    print(f"   float32   {chip.peak_figure('fp32')}")

# %% [markdown] measure
# These are bounds computed from data sheets, not measurements. What does *this* machine do? `bench` warms up, repeats,
# and gives the median with its spread; on a GPU it also empties the cache between runs. Bytes divided by time is a
# bandwidth, which you can hold against the bound.
#
# With a GPU the next cell times your kernel and torch's own in turn. Without one it times torch on the CPU:
# timing a virtual GPU would tell you about NumPy.

# %% measure here
N = 2**26 if DEVICE == "cuda" else 2**23
x = torch.randn(N, device=DEVICE)
out = torch.empty_like(x)


def with_torch():
    torch.mul(x, 2.5, out=out)


def with_triton():
    scale_kernel[(triton.cdiv(N, 1024),)](x, out, N, 2.5, BLOCK=1024)


if DEVICE == "cuda":
    compared = bench(with_triton, against=with_torch)
    print(f"Triton against torch: {compared}")
    seconds = compared.fn.median
else:
    timing = bench(with_torch)
    print(f"torch: {timing}")
    seconds = timing.median
print(f"{8 * N:,} bytes in that time: {8 * N / seconds / 1e9:.0f} GB/s")
chip = probe().chip
if chip is not None and chip.bandwidth is not None:
    print(f"that is {8 * N / seconds / (chip.bandwidth * 1e12):.0%} of the bandwidth of {chip.name}")

# %% [markdown] summary
# ## Summary
#
# - `torch.cuda.is_available()`: is there a GPU? `torch.version.hip`: is it AMD's? The device string is `"cuda"` on
#   both.
# - A kernel is one program; a launch starts a grid of them. Offsets = program × BLOCK + `tl.arange`, the grid is
#   rounded up, the mask keeps the last block inside the tensor.
# - A view is a pointer, a shape and strides. Give the kernel the strides and it reads any view in place.
# - One source compiles for both vendors with no GPU. 32 or 64 lanes, predicates or `EXEC`, `ld.global.v4` or
#   `global_load_dwordx4`: the same idea in two languages.
# - A virtual GPU executes that machine code on the CPU. It counts exactly and watches every address; it has no clock.
# - Neighbouring lanes should read neighbouring elements: a transaction is 32 or 128 bytes, needed or not.
# - Count bytes and FLOPs first. `scale` moves 8 bytes for one FLOP, so memory decides, on both vendors.
#
# ## Read next
#
# - [PyTorch, HIP (ROCm) semantics](https://docs.pytorch.org/docs/stable/notes/hip.html): what `torch.cuda` means on
#   AMD.
# - [CUDA C++ best practices](https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/), coalesced access: transactions
#   of 32 bytes.
# - [Triton tutorials](https://triton-lang.org/main/getting-started/tutorials/index.html): vector addition, fused
#   softmax.
# - [PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/): predicated execution, `ld`, special registers.
# - [LLVM, user guide for the AMDGPU backend](https://llvm.org/docs/AMDGPUUsage.html), and AMD's own
#   [ISA documents](https://gpuopen.com/amd-gpu-architecture-programming-documentation/): `EXEC`, `s_waitcnt`,
#   `global_load`.
# - [ROCm, GPU hardware specifications](https://rocm.docs.amd.com/en/latest/reference/gpu-arch-specs.html).
# - [Roofline: an insightful visual performance model](https://doi.org/10.1145/1498765.1498785), the paper behind
#   section 8.
#
# ## Check yourself
#
# Answer first, then open.
#
# <details><summary>A launch covers 5,000 elements with BLOCK = 1024. How many programs, and how many positions are
# masked?</summary>
#
# 5 programs cover 5,120 positions, so 120 are masked, all in the last program.
# </details>
#
# <details><summary>A script says <code>if torch.version.cuda: train_on_gpu()</code>. What happens on an
# MI300X?</summary>
#
# It does not train on the GPU: in a ROCm build <code>torch.version.cuda</code> is <code>None</code>.
# </details>
#
# <details><summary><code>x</code> has shape (100, 50). What are the strides of <code>x.T</code>, and does making it
# copy anything?</summary>
#
# (1, 50). Nothing is copied: it is a view.
# </details>
#
# <details><summary>Your kernel has no mask and gives the right answer on your GPU. Is it right?</summary>
#
# No. It reads and writes past the end; today nothing was in the way. On a virtual GPU it raises
# <code>OutOfBounds</code>.
# </details>
#
# <details><summary>Each lane reads one float32, 16 elements apart. How many of the bytes that come were asked for, on
# sm_80 and on gfx942?</summary>
#
# 4 of 32 on sm_80: each lane touches a sector of its own. On gfx942 two lanes share a line: 8 of 128.
# </details>
#
# <details><summary>BLOCK = 512, num_warps = 8. How many float32 elements does a lane hold on sm_90 and on
# gfx942?</summary>
#
# 512 / (8 × 32) = 2 and 512 / (8 × 64) = 1: too few for a load of 16 bytes on either.
# </details>
#
# Now open [lab 00](../labs/00_start.ipynb) and write your own.
