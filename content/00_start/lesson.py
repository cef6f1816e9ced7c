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
# **Time**: two sittings. Sections 1 to 4 are 14 minutes to read (text and code at 200 words a minute) and about 25 with
# the predictions. Sections 5 to 8 are 16 minutes to read, and about 45 with the predictions and a look at the listings.
# All cells together run in 15 seconds on a CPU. Then lab 00.
#
# The course asks you to *predict, then run*. A small form takes your guess: type a number; Enter or Tab goes on.
# The next cell shows what you said beside what came out. Wrong guesses teach most. Your guesses are kept with your
# progress; after a break choose *Run > Run All Above Selected Cell*, and they are still there.

# %% imports
import contextlib
import textwrap

import torch
import triton
import triton.language as tl

from gpu_utils import lesson, predict, probe, virtual_gpu

# %% [markdown] whose gpu
# ## 1. Whose GPU is this?
#
# `probe()` looks at the machine: the device; with a GPU, how many lanes its warps (NVIDIA) or wavefronts (AMD) have;
# the versions that matter. `./w2w doctor` in a terminal says the same and what it allows you to do.

# %% probe
probe()

# %% [markdown] names of builds
# Three builds of PyTorch matter here, and each knows what it was *built for*. That is not the same as what is *plugged
# in*.
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
# Think before you open this: on a machine with eight MI300X, what does `torch.cuda.is_available()` return, and what is
# `torch.version.cuda`?
#
# <details><summary>Compare</summary>
#
# `True` and `None`. So `is_available()` tells whether there is a GPU, of either vendor; it does not tell whose. And a
# test of `torch.version.cuda` finds no GPU on a machine that has eight. What does tell them apart is
# `torch.version.hip`.
# </details>

# %% three questions
lesson.table(
    {
        "built for CUDA": torch.version.cuda or "no",
        "built for HIP": torch.version.hip or "no",
        "a GPU is usable now": torch.cuda.is_available(),
    }
)

# %% [markdown] backends
# From here on, kernels run on your GPU if there is one. Otherwise they run on a *virtual GPU*: Triton compiles the
# kernel for a real target (`sm_80`, which is an A100; AMD's `gfx942`, an MI300X, will stand beside it), and the course
# executes that code on the CPU, instruction by instruction. Section 4 compares the ways; for now it is enough that the
# next cell chooses for you.

# %% where kernels run
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def kernels_run():
    """A block in which kernels run: on the GPU if there is one, else on a virtual."""
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
# The kernel of the next experiment writes the number of its program into every element that it owns. There are 10
# elements, and a program has 4. A *mask* says which of its positions exist.

# %% guess programs
guess = predict(
    "00.programs",
    "10 elements, `BLOCK = 4`. How many programs must the grid have, "
    "and how many positions does the mask of the last one switch off?",
    programs=lesson.number(),
    masked=lesson.number("positions that are off"),
)


# %% who owns what
@triton.jit
def owner_kernel(out_ptr, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    offsets = program * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n  # the last block hangs over the end: only what exists
    tl.store(out_ptr + offsets, program, mask=mask)


n, BLOCK = 10, 4
grid = (triton.cdiv(n, BLOCK),)  # divided and rounded up: n // BLOCK loses the tail
owner = torch.full((n,), -1, dtype=torch.int32, device=DEVICE)
with kernels_run():
    owner_kernel[grid](owner, n, BLOCK=BLOCK)

of_the_last = (owner == grid[0] - 1).sum()
guess.reveal(
    programs=grid[0],
    masked=BLOCK - of_the_last,
    because="10 / 4 is 2.5, rounded up. The last offsets are 8 to 11, and n is 10.",
)
lesson.table({"program": {str(at): owner[at] for at in range(n)}}, first="element")

# %% [markdown] pointers
# `mask=mask` keeps these two positions from touching memory.
#
# Note `out_ptr + offsets`. A tensor reaches the kernel as a *pointer*, the address of its first element, and adding
# offsets gives a vector of addresses. Nothing knows where the tensor ends. A GPU would mostly write to 10 and 11
# without complaint, over whatever lives there. And what does a masked *load* bring? Nothing that you may count on:
# without `other=` the value at a position that is masked off is not defined. Either store with the same mask, as all
# kernels here do, or say `tl.load(..., mask=mask, other=0.0)`.
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
    except lesson.OutOfBounds as problem:
        print(textwrap.fill(f"{target}: OutOfBounds: {problem}", 84), "\n")

# %% [markdown] the message
# Each message says where: the line of the source, the program, the wave (a warp or a wavefront) and its lane (one of
# its threads), the tensor, how far past its end, and last the machine instruction that did it. Section 5 reads such
# instructions.

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
    out = torch.empty_like(x)  # same shape, dtype, device; values: whatever was there
    n = x.numel()
    grid = (triton.cdiv(n, 1024),)
    scale_kernel[grid](x, out, n, factor, BLOCK=1024)
    return out


x = torch.randn(3008, device=DEVICE)
with kernels_run():
    y = scale(x, 2.5)
print("equal to torch:", torch.equal(y, 2.5 * x))

# %% [markdown] picture
# What becomes of one program on a chip? Its work is shared out among *warps* of 32 lanes (NVIDIA) or *wavefronts* of 64
# lanes (AMD's Instinct chips of this course, called CDNA; its Radeon chips, called RDNA, run 32 here). A lane is one
# column of the vector unit: all lanes of a warp or wavefront carry out one instruction together, each on its own data.
# The launch option `num_warps` says how many warps or wavefronts share a program; it is 4 unless you ask for another
# number.

# %% guess lanes of a program
guess = predict(
    "00.elements_of_a_lane",
    "A program of `scale` has `BLOCK = 1024` elements and 4 warps or wavefronts. "
    "How many elements does each lane hold?",
    sm_80=lesson.number("sm_80, 32 lanes"),
    gfx942=lesson.number("gfx942, 64 lanes"),
)

# %% launch figure
figure = lesson.LaunchFigure(n=3008, block=1024, num_warps=4)
guess.reveal(
    sm_80=len(figure.elements(lanes=32)),
    gfx942=len(figure.elements(lanes=64)),
    because="1024 / (4 × 32) is 8, and 1024 / (4 × 64) is 4.",
)
figure

# %% [markdown] neighbours
# Look at *which* elements a lane holds. Four neighbours are 16 bytes, the most that one load instruction of these two
# chips brings to a lane. The 128 threads of a program's four warps, four elements each, are 512 elements, half of the
# block, so each lane comes back for four more, 512 further on. On `gfx942` four wavefronts are 256 threads, and one
# round is enough. In both, neighbouring lanes hold neighbouring elements; section 6 shows why that matters.

# %% [markdown] strides
# ## 3. Rows, columns and strides
#
# A matrix lies in memory as one long line of numbers. Where element `[row, col]` lies is a matter of two *strides*,
# counted in elements:
#
# $$ \text{address}(row, col) = \text{first} + row \cdot \text{stride}_0 + col \cdot \text{stride}_1 $$
#
# Slicing and transposing move no data: they make a *view*, which is another first element, another shape and other
# strides over the same memory. Here `wide` holds 0 to 23, six to a row.

# %% views
wide = torch.arange(24).view(4, 6)
views = {
    "wide": wide,
    "wide[:, 1:4]": wide[:, 1:4],
    "wide[::2]": wide[::2],
    "wide.T": wide.T,
}
lesson.table(
    {
        name: {
            "shape": tuple(v.shape),
            "strides": v.stride(),
            "first": v.storage_offset(),
        }
        for name, v in views.items()
    },
    first="view",
)

# %% guess stride
guess = predict(
    "00.stride",
    "`view = wide[::2, 1:4]` takes every second row and three columns. "
    "How far in memory is `view[1, 2]` from `view[0, 0]`, and which number is it?",
    distance=lesson.number(unit="elements"),
    value=lesson.number("view[1, 2]"),
)

# %% distance
view = wide[::2, 1:4]
first, last = view[0, 0], view[1, 2]
guess.reveal(
    distance=last.storage_offset() - first.storage_offset(),
    value=last,
    because="the strides are (12, 1): a row is 12, two columns 2; view[0, 0] is 1.",
)
lesson.table(
    {"strides of view": view.stride(), "view[0, 0]": first, "view[1, 2]": last}
)

# %% [markdown] clamp
# A kernel that takes the strides works on any view. Here is one that clamps each element between two bounds. It uses a
# grid of *two* dimensions: `tl.program_id(0)` is the row, `tl.program_id(1)` the block of columns. The mask is about
# columns, because each row has its own tail.


# %% clamp rows
@triton.jit
def clamp_kernel(
    x_ptr, out_ptr, n, low, high, stride_xm, stride_xn, stride_om, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n  # n: elements of a row
    x = tl.load(x_ptr + row * stride_xm + cols * stride_xn, mask=mask)
    x = tl.minimum(tl.maximum(x, low), high)
    tl.store(out_ptr + row * stride_om + cols, x, mask=mask)


def clamp(x, low, high):
    rows, cols = x.shape
    # empty_like would copy the strides of a transpose; a shape asks for contiguous
    out = torch.empty(rows, cols, dtype=x.dtype, device=x.device)
    grid = (rows, triton.cdiv(cols, 64))
    strides = (x.stride(0), x.stride(1), out.stride(0))
    clamp_kernel[grid](x, out, cols, low, high, *strides, BLOCK=64)
    return out


matrix = torch.randn(6, 200, device=DEVICE)
views = {"whole": matrix, "slice": matrix[:, 7:107], "transpose": matrix.T}
rows = {}
with kernels_run():
    for name, v in views.items():
        same = torch.equal(clamp(v, -0.5, 0.5), v.clamp(-0.5, 0.5))
        rows[name] = {"strides": v.stride(), "equal to torch": same}
lesson.table(rows, first="view")

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
# chip's own instructions; for NVIDIA it is PTX, from which `ptxas` makes the chip's own, called SASS. Where this course
# says "the machine code of both vendors", PTX is meant on NVIDIA's side. Nothing in the kernel changes: open a block
# with `virtual_gpu(target)`, pass tensors on the CPU, launch.
#
# What it cannot show is time: it has no clock and no caches (`docs/virtual-gpu.md` has the details). What the
# interpreter cannot show: lanes, counts, and races (its programs run one after the other). It would take the bits of
# bf16 and FP8 for integers, so the course refuses them there. But it can talk:


# %% print inside
@triton.jit
def talking_kernel(n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    print("offsets", offsets, "exist", offsets < n)


with lesson.interpreter():
    talking_kernel[(3,)](10, BLOCK=4)

# %% [markdown] several ways
# It works in a lab, too: `from gpu_utils import lesson`, a `print` in your kernel, and a call of your function inside
# such a block. Take the `print` out before you check. Compiled, a second text in a `print` is a `CompilationError`, and
# with one text it costs instructions, which are counted.
#
# The next cell computes `factor * x + 1` for 5,000 float32 numbers in every way that works here: the interpreter, a
# virtual GPU of each vendor, and your GPU if there is one. Torch does it in two steps: it rounds the product to
# float32, then the sum. A GPU has an instruction for both at once, a *fused multiply-add*, which rounds only at the
# end, and Triton lets a compiler use it. The interpreter runs your lines one by one, in NumPy.

# %% guess equal
guess = predict(
    "00.bit_for_bit",
    "`factor * x + 1`, several ways. Is each result equal to torch's, bit for bit?",
    interpreter=lesson.yes_no("Triton's interpreter"),
    sm_80=lesson.yes_no("virtual sm_80"),
    gfx942=lesson.yes_no("virtual gfx942"),
)


# %% ways that work here
@triton.jit
def scale_and_shift_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, factor * x + 1, mask=mask)


def scale_and_shift(x, factor):
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 1024),)
    scale_and_shift_kernel[grid](x, out, x.numel(), factor, BLOCK=1024)
    return out


ways = {
    "interpreter": ("cpu", lesson.interpreter()),
    "virtual sm_80": ("cpu", virtual_gpu("sm_80")),
    "virtual gfx942": ("cpu", virtual_gpu("gfx942")),
}
if torch.cuda.is_available():
    ways["real GPU"] = ("cuda", contextlib.nullcontext())
values = torch.linspace(-1, 1, 5000)
rows = {}
for name, (device, block) in ways.items():
    with block:
        result = scale_and_shift(values.to(device), 1.1).cpu()
    rows[name] = {
        "equal to torch": torch.equal(result, 1.1 * values + 1),
        "elements that differ": (result != 1.1 * values + 1).sum(),
    }
guess.reveal(
    interpreter=rows["interpreter"]["equal to torch"],
    sm_80=rows["virtual sm_80"]["equal to torch"],
    gfx942=rows["virtual gfx942"]["equal to torch"],
    because="both compilers fuse the product and the sum; the interpreter computes "
    "with NumPy, in two steps.",
)
lesson.table(rows, first="way")

# %% [markdown] why equal
# Neither is a bug, but they are not equally near. The fused result is the true value, rounded once. In two steps the
# rounding error of the product stays, and where the sum nearly cancels, at `x` = -0.9092, torch is 2,979 units in the
# last place off. The virtual GPUs show it because they execute the instruction that the compiler chose. A single
# product, as in `scale`, is equal everywhere. Unit 09 is about the operations where equality ends: fused ones, sums in
# another order, `exp`, matrix instructions. This is why checks in the labs allow for rounding.
#
# ### Stop: the first sitting ends here
#
# **You have** a kernel with a mask and a grid, a launcher, views read in place by their strides, and three ways to run
# all of it. That is what `00.platform`, `00.vector_add` and `00.saxpy` of [lab 00](../labs/00_start.ipynb) ask for: go
# there now if you like to write before you read on.
#
# **Next** you look under the kernel: what became of your lines on either vendor, and what they cost.

# %% first sitting ends
lesson.sitting("00", 1)

# %% [markdown] machine code
# ## 5. From your lines to the machine code of both vendors
#
# Triton's compiler needs no GPU: `compile_for` asks it for any *target*. A target is an instruction set: `sm_90` is
# what an H100 runs, `gfx942` an MI300X, `gfx1100` a Radeon RX 7900 XTX.
#
# A lane of `scale` holds 8 floats where there are 32 lanes and 4 where there are 64 (section 2), and one load
# instruction brings a lane at most 4. So there should be two loads or one. Compiled for a launch with `n = 1_000_000`:

# %% more imports
from gpu_utils import CHIPS, bench, compile_for, listing

# %% compile for four targets
TARGETS = ("sm_80", "sm_90", "gfx942", "gfx1100")


def compare_targets(n):
    rows = {}
    for target in TARGETS:
        # in place of a tensor its dtype: nothing is launched
        arguments = (torch.float32, torch.float32, n, 2.5)
        compiled = compile_for(scale_kernel, target, arguments, BLOCK=1024)
        found = lesson.resources(compiled)
        rows[target] = {
            "lanes": found.target.lanes,
            "loads": found.counts["global load"],
            "bits of each": max(found.widths["global load"]),
        }
    return rows


even = compare_targets(n=1_000_000)
lesson.table(even, first="target")

# %% [markdown] predict odd
# So it is. `gfx1100` is AMD too, and has 32 lanes: the width follows the chip, not the vendor.
#
# 1,000,000 is a multiple of 16. Now one element more. A load instruction has one bit of mask for each lane, not one for
# each element: it brings a lane all of its elements, or none.

# %% guess odd
guess = predict(
    "00.one_more_element",
    "The same kernel with `n = 1_000_001`: how many load instructions now?",
    sm_90=lesson.number("sm_90, 32 lanes"),
    gfx942=lesson.number("gfx942, 64 lanes"),
)

# %% odd length
odd = compare_targets(n=1_000_001)
guess.reveal(
    sm_90=odd["sm_90"]["loads"],
    gfx942=odd["gfx942"]["loads"],
    because="the end may cut through a group of four, so the floats come one by one.",
)
lesson.table(odd, first="target")

# %% [markdown] why odd
# Four times as many loads, each a quarter as wide. Triton looks whether the integers of a launch are divisible by 16.
# If `n` is, the end of the tensor never cuts through a group of four, and one mask serves all four. If not, every
# program takes its elements one by one. So sizes in GPU code like to be multiples of 16.
#
# And what becomes of your lines? PTX is written for a single thread. Its registers, `%r1` and so on, are that thread's
# own; a *predicate*, such as `%p1`, is one bit. AMDGCN is written for a whole wavefront. A *vector* register, such as
# `v0`, has a value for each lane, a *scalar* register, such as `s0`, one value for all of them. Two registers with
# names have one bit for each lane: `vcc`, where comparisons leave their result, and `EXEC`, which says on which lanes
# an instruction works.
#
# | in the source | PTX (NVIDIA) | AMDGCN (AMD) |
# |---|---|---|
# | `tl.program_id(0)` | `%ctaid.x` | in a scalar register when the kernel starts |
# | `tl.arange(0, BLOCK)` | made from `%tid.x`, the thread's number | made from `v0`, the thread's number |
# | `offsets < n` | `setp`, into a predicate | `v_cmp`, into `vcc` |
# | `tl.load` of 4 floats | `ld.global.v4.b32` | `global_load_dwordx4` |
# | its mask | a guard, `@%p1`, before the load | bits of `EXEC`: `s_and_saveexec_b64` |
# | waiting for a load | not written | written: `s_waitcnt vmcnt(0)` |
#
# Both mask the tail, in two ways. A guard is a predicate before an instruction, and holds for this one. `EXEC` governs
# every vector instruction until it changes, so a compiler writes it only where the mask changes, and restores it only
# if work for all lanes follows. When no lane is left, `s_cbranch_execz` jumps over the work.

# %% guess masks
guess = predict(
    "00.masks_in_machine_code",
    "`scale` with `n` a multiple of 16 again: its load and its store are masked. "
    "How many instructions have a guard on sm_90, how many write EXEC on gfx942?",
    sm_90=lesson.number("guards on sm_90, 8 floats a lane"),
    gfx942=lesson.number("writes of EXEC on gfx942, 4 floats"),
)

# %% listing
# types in place of arguments, for tensors of any size; :16 says divisible by 16
types = {"x_ptr": "*fp32:16", "out_ptr": "*fp32:16", "n": "i32:16", "factor": "fp32"}
whole = listing(scale_kernel, "sm_90", "gfx942", signature=types, BLOCK=1024)
masks = whole.only(kinds=("mask",))
ptx, amdgcn = ([one.text for one in side.instructions] for side in masks.columns)
guess.reveal(
    sm_90=sum(text.startswith("@") for text in ptx),
    gfx942=sum("saveexec" in text for text in amdgcn),
    because="two loads and two stores have a guard each; "
    "EXEC stays as it is from the load to the store.",
)
whole

# %% [markdown] what to see
# This is the whole kernel: source, PTX for `sm_90`, AMDGCN for `gfx942`. **Point at a line** (or use the arrow keys) to
# mark what became of it. You need not read it all. These are the instructions that make or use a mask:

# %% masks only
masks

# %% [markdown] third way
# To find the mask of a load in other code, read backwards from it: what guards it, and what wrote that? The first
# operand is what an instruction writes, except for a store. A comparison alone is no mask: `tl.where` and loops
# compare, too. And not every guard is a mask of yours. The one in the message of section 2, `@%p1 st.global`, was
# Triton's own: 4 elements were stored by 128 threads, and it lets one thread store each.
#
# This listing was for tensors of any size. A launch sees how large its tensors are, and on AMD, for those under 2 GiB,
# Triton masks in a third way. Look at the line of the load:

# %% buffer mask
arguments = (torch.float32, torch.float32, 1_000_000, 2.5)
listing(scale_kernel, "gfx942", args=arguments, BLOCK=1024)

# %% [markdown] claim and fact
# `v_cndmask_b32` chooses, lane by lane, by the bits of `vcc`: the true offset, or $2^{31}$, which `v_bfrev_b32` made.
# `buffer_load` takes no address but such an offset into a *buffer*. Four scalar registers, here `s[0:3]`, are the
# *buffer descriptor*: where the buffer begins, and how long it is. An offset beyond that gives 0 ([MLIR, AMDGPU
# dialect](https://mlir.llvm.org/docs/Dialects/AMDGPU/)). But read the length: `0x7ffffffe` bytes, whatever the size of
# your tensor. So only lanes that were aimed away fall outside. A lane whose mask you forget stays inside, and hits
# whatever lies behind the tensor.
#
# So there are three ways to mask: skip the instruction, switch off the lane, aim outside the buffer. You will step
# through all of them in section 7.
#
# <details><summary>Did DeepSeek "bypass CUDA" when it wrote PTX? A claim, and the facts</summary>
#
# > **Claim and fact: "DeepSeek bypassed CUDA"**
# >
# > - *Claim*: headlines said that DeepSeek trained V3 by "bypassing CUDA", because its report mentions PTX.
# > - *Fact*: customised PTX serves the kernels for communication between GPUs, which run on 20 of the 132 SMs
# >   (streaming multiprocessors, the cores of the chip; AMD calls its own CUs, compute units).
# >   (source: [DeepSeek-V3 report](https://arxiv.org/abs/2412.19437))
# > - What you have just read for `sm_90` **is** PTX: the kernels that you write in Triton become PTX on their way to
# >   an NVIDIA GPU. (measured: the cell `listing` above)
# > - PTX is a part of CUDA: the compiler of CUDA C++ makes it, too, so a layer of CUDA written by hand, for a few
# >   kernels, bypasses nothing.
# >   (source: [NVIDIA, CUDA compiler driver](https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/))
#
# </details>

# %% [markdown] counting
# ## 6. Run what you have read
#
# A virtual GPU counts while it executes, and the counts are exact: for one version of the compiler they are the same on
# every machine and in every run. In its tables a *wave* is a warp or a wavefront. It counts two things:
#
# - *Instructions* that waves execute, by class.
# - *Transactions* with memory. A GPU does not fetch single floats. One load instruction of a wave becomes as many
#   transactions as it touches pieces of memory: *sectors* of 32 bytes on NVIDIA, cache lines of 128 bytes on `gfx942`
#   (the source of each is in `docs/facts.md`, "Memory access"). The counter calls both sectors.
#
# You have all that the next question needs: a program has `num_warps` = 4 waves, and the floats that the lanes of a
# wave load lie side by side.

# %% guess counts
guess = predict(
    "00.counts",
    "`scale` on 65,536 elements with `BLOCK = 1024`: how many waves are launched, "
    "and how many transactions do their loads need?",
    waves_nvidia=lesson.number("waves on sm_80"),
    waves_amd=lesson.number("waves on gfx942"),
    sectors_nvidia=lesson.number("transactions of 32 bytes on sm_80"),
    sectors_amd=lesson.number("transactions of 128 bytes on gfx942"),
)

# %% counters
BOTH = ("sm_80", "gfx942")
n = 65_536
x, out = torch.randn(n), torch.empty(n)
gpus = lesson.launch_on(BOTH, scale_kernel, (n // 1024,), x, out, n, 2.5, BLOCK=1024)
counted = lesson.counts(gpus)
guess.reveal(
    waves_nvidia=counted["sm_80"]["waves"],
    waves_amd=counted["gfx942"]["waves"],
    sectors_nvidia=counted["sm_80"]["global_load_sectors"],
    sectors_amd=counted["gfx942"]["global_load_sectors"],
    because="64 programs of 4 waves, and 262,144 bytes in pieces of 32 or of 128.",
)
shown = ("waves", "global_load", "sector_bytes", "instructions_global")
lesson.table(lesson.counts(gpus, *shown), across=True, first="counter")

# %% [markdown] what the counts say
# As many wavefronts as warps, because `num_warps` says how many share a program. But a wavefront has twice the lanes,
# so a lane has half the elements, and there are half as many instructions on global memory. The transactions differ in
# number and in size, and are the same bytes: each byte that came was asked for. Such access is called *coalesced*.
#
# And what does *one* wave execute, line by line?

# %% per line
lesson.table(lesson.counts_by_line(gpus, scale_kernel), first="for each wave")

# %% [markdown] strided
# Three things to see. What ran on `gfx942` is the last listing of section 5; the PTX of `sm_80` is that of `sm_90`.
#
# - On `gfx942`, what all lanes share is computed once, by *scalar* instructions; in PTX each thread computes it for
#   itself, as *vector* instructions. Most scalar ones of `tl.load` and `tl.store` make the buffer descriptors.
# - The 8 moves of `tl.load` on `sm_80` are the `mov` with `0x0`. A load whose guard is false leaves its registers as
#   they were, so Triton's PTX puts zeros there first. AMD's buffer load returns zero by itself.
# - `sm_80` loads its 4 arguments. `gfx942` does not, although its listing begins with `s_load`: what stands in a
#   listing and what is executed are two questions.
#
# <details><summary>Why not? And does an A100 execute all that?</summary>
#
# A chip with current firmware *preloads* the arguments into scalar registers and starts the kernel behind these lines,
# 256 bytes further on ([LLVM,
# AMDGPUPreloadKernArgProlog](https://llvm.org/doxygen/AMDGPUPreloadKernArgProlog_8cpp_source.html)). The virtual
# `gfx942` does the same.
#
# AMDGCN is the chip's own code, so these are its own instructions. PTX is translated once more, by NVIDIA's `ptxas`, to
# the instructions and registers of one chip. Loads and stores stay; of the rest `ptxas` folds some together. It makes
# instructions for an A100 that take an argument straight from constant memory, such as `FMUL R8, R8, c[0x0][0x174]`
# (seen with NVIDIA's disassembler), so hardly any of the 4 loads is left there. On an H100 some are loads again.
# </details>
#
# Now an access that is *not* coalesced. The next kernel gathers every `stride`-th element. It gets one warp for 32
# elements or one wavefront for 64, so that each lane reads one float, 4 bytes. With `stride = 8` two neighbouring lanes
# are 32 bytes apart, with `stride = 32` they are 128 bytes apart.

# %% guess strided
guess = predict(
    "00.strided",
    "For each byte that the lanes ask for, how many bytes come?",
    nvidia_8=lesson.number("sm_80, stride 8"),
    amd_8=lesson.number("gfx942, stride 8"),
    nvidia_32=lesson.number("sm_80, stride 32"),
    amd_32=lesson.number("gfx942, stride 32"),
)


# %% strided access
@triton.jit
def gather_kernel(x_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets * stride, mask=mask), mask=mask)


def bytes_per_byte(stride, n=4096):
    """Bytes of all transactions of the loads over the bytes asked for, by target."""
    x, out = torch.randn(n * stride), torch.empty(n)
    arguments = (x, out, n, stride)
    # 256 threads for 256 elements: 8 warps, or 4 wavefronts
    gpus = lesson.launch_on(
        BOTH, gather_kernel, (n // 256,), *arguments, threads=256, BLOCK=256
    )
    assert torch.equal(out, x[::stride])
    return {
        target: found["global_load_sectors"]
        * found["sector_bytes"]
        / found["global_load_bytes"]
        for target, found in lesson.counts(gpus).items()
    }


wasted = {stride: bytes_per_byte(stride) for stride in (1, 2, 4, 8, 16, 32, 64)}
guess.reveal(
    nvidia_8=wasted[8]["sm_80"],
    amd_8=wasted[8]["gfx942"],
    nvidia_32=wasted[32]["sm_80"],
    amd_32=wasted[32]["gfx942"],
    because="from 32 bytes on, each lane has a sector of its own on sm_80; "
    "on gfx942 four lanes share a line at stride 8; at 32 each has its own.",
)
lesson.bars(
    {f"stride {s}": row for s, row in wasted.items()}, "bytes for each byte asked for"
)

# %% [markdown] why strided
# The result is right every time; only the counter tells. From stride 8 on, 28 of 32 bytes are for nobody on `sm_80`.
# `gfx942` with its longer transactions falls further: from stride 32 on, 124 of 128 bytes are for nobody.
#
# So the rule for your own kernels: *in one instruction, the lanes together should touch one unbroken stretch of
# memory.* The launch figure shows how: the lanes, in order, take the positions of `tl.arange` in order, one or a few to
# each. Four elements to a lane are fine if one load brings them. With `n = 65_537` four loads bring them, one by one
# (section 5). In each, neighbouring lanes are 16 bytes apart, so it touches as many pieces as the one wide load did:
# with one for the last element 32,769 transactions on `sm_80` and 8,193 on `gfx942`, in place of 8,192 and 2,048.
#
# A cache can soften a bad pattern where another instruction soon asks for the rest. The counter says what the
# instructions ask for, before any cache. Unit 02 works these numbers out by hand. The lab bounds them:
# `global_sectors_per_ideal` is the transactions over the fewest that the same bytes could need.
#
# ## 7. Step through a masked tail
#
# On a real GPU this takes a debugger: one warp or wavefront, instruction by instruction, with the registers of all its
# lanes. Take 100 elements, `BLOCK = 64`, one warp or wavefront to a program, and look at program 1: it owns elements 64
# to 127, of which 28 do not exist. Element 64 holds 65, element 65 holds 66, and so on: a zero that you see in a
# register was never loaded. A lane has one element where there are 64 lanes, and two neighbours where there are 32. The
# launch is one of those that section 5 ended with: a small tensor.

# %% guess lanes
guess = predict(
    "00.masked_tail",
    "Program 1, at its load: how many of the 64 lanes are switched off in `EXEC` on "
    "gfx942? How many of the 32 lanes on sm_80 pass the guard of the first load?",
    gfx942=lesson.number("lanes off on gfx942"),
    sm_80=lesson.number("lanes that load on sm_80"),
)


# %% step on gfx942
def step_through(target, start, n=100):
    """Program 1, stepped; `start`: words of the instruction that is shown first."""
    x, out = torch.arange(1.0, n + 1), torch.zeros(n)
    with virtual_gpu(target) as gpu, gpu.trace(program=(1, 0, 0)) as trace:
        scale_kernel[(2,)](x, out, n, 2.5, BLOCK=64, num_warps=1)
    return lesson.WaveFigure(trace, target, scale_kernel, start)


amd = step_through("gfx942", start="v_cndmask")
nvidia = step_through("sm_80", start="@%p1 ld")
at_the_load = amd.steps[amd.number("buffer_load")]
guess.reveal(
    gfx942=(~at_the_load.active).sum(),
    sm_80=nvidia.mask("setp").sum(),
    because="on gfx942 all 64 lanes load, 28 of them from outside; "
    "on sm_80 36 elements are two for each of 18 lanes.",
)
amd

# %% [markdown] stepped buffer
# Click an instruction, then use the arrow keys. What to see:
#
# - All 64 lanes stay on: `EXEC` never changes. `v_cmp_gt_i32` writes the mask into `vcc`, one bit a lane: 36 of 64.
# - `v_cndmask_b32` gives the other 28 lanes the offset `0x80000000`, which is $2^{31}$: outside.
# - `buffer_load_dword` loads 65, 66, ..., 100 into 36 lanes and 0 into 28. No branch, no lane switched off.
# - `v_mul_f32` multiplies the zeros, too. Here the work of a masked lane is not saved; only its memory access is.
#
# Triton takes this way where it knows that the tensor is small enough. Here is the same kernel with buffer operations
# turned off:

# %% step on gfx942 with EXEC
with triton.knobs.amd.scope():
    triton.knobs.amd.use_buffer_ops = False
    without_buffers = step_through("gfx942", start="s_and_saveexec")
without_buffers

# %% [markdown] stepped EXEC
# Now `s_and_saveexec_b64` switches 28 lanes off, and keeps what `EXEC` was in `s[0:1]`. From here on the registers of
# these lanes stay as they are: step on, and their values are in parentheses. `s_cbranch_execz` would jump if no lane
# were left. (`scc` is a single bit; here it says that some are.)
#
# And NVIDIA:

# %% step on sm_80
nvidia

# %% [markdown] stepped predicates
# Two elements a lane, so two predicates and two loads: `%p1` for elements 64, 66, ... (which hold 65, 67, ...), `%p2`
# for the others. All lanes stay on; a guard decides, for this one instruction, which of them take part. Lanes 0 to 17
# do. The others keep the zero that a `mov` put there, shown in parentheses. Two loads, not one of 64 bits, because 100
# is no multiple of 16.

# %% [markdown] bytes first
# ## 8. Count bytes before you look at the clock
#
# How fast can `scale` be? Per float32 element it reads 4 bytes and writes 4 bytes, and does one multiplication. For $N$
# elements that is $8N$ bytes and $N$ FLOPs. (Adding two vectors of $N$ elements reads two and writes one: $12N$ bytes.)
# A chip needs at least
#
# $$ t \ge \max\left( \frac{\text{bytes}}{\text{memory bandwidth}},\; \frac{\text{FLOPs}}{\text{peak FLOP/s}} \right) $$
#
# which is the *roofline* bound. The registry `CHIPS` has both figures, each with its source, for every chip in the
# course; a figure that no source confirms is `None` there. A peak counts a fused multiply-add as two FLOPs. `scale`
# only multiplies, so it could reach half of the peak at best; we hold it against the whole all the same. Here are two
# chips:

# %% two chips
lesson.sourced(
    {
        f"{name}, {what}": figure
        for name in ("H100", "MI300X")
        for what, figure in {
            "memory bandwidth": CHIPS[name].bandwidth_tb,
            "float32 peak": CHIPS[name].peak_figure("fp32"),
        }.items()
    }
)

# %% guess roofline
guess = predict(
    "00.roofline",
    "`scale` on an H100, held against its peak: "
    "by which factor do the bytes take longer than the FLOPs?",
    ratio=lesson.number("time for the bytes / time for the FLOPs", factor=1.5),
)

# %% roofline bound
N = 2**26
bounds = {}
for name in ("H100", "MI300X"):
    for_bytes = 8 * N / (CHIPS[name].bandwidth * 1e12)
    for_flops = N / (CHIPS[name].peak("fp32") * 1e12)
    bounds[name] = {
        "µs for the bytes": for_bytes * 1e6,
        "µs for the FLOPs": for_flops * 1e6,
        "ratio": for_bytes / for_flops,
    }
guess.reveal(
    ratio=bounds["H100"]["ratio"],
    because="8 bytes over TB/s against 1 FLOP over TFLOP/s: the element count cancels.",
)
lesson.table(bounds, first="at least")

# %% [markdown] measure
# Memory decides, on both, and would with half of the peak. These are bounds computed from data sheets, not
# measurements. What does *this* machine do? `bench` warms up, repeats, and gives the median with its spread; on a GPU
# it also empties the cache between runs. Bytes divided by time is a bandwidth, which you can hold against the bound.
#
# With a GPU the next cell times your kernel and torch's own in turn. Without one it times torch on the CPU, and a copy,
# which moves the same bytes: timing a virtual GPU would tell you about NumPy.

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
    print("Triton against torch:", compared)
else:
    compared = bench(with_torch, against=lambda: out.copy_(x))
    print("torch against a copy:", compared)
seconds = compared.fn.median
rate = 8 * N / seconds / 1e9
chip = probe().chip
known = chip is not None and chip.bandwidth is not None
share = f"{rate / (chip.bandwidth * 1e3):.0%}" if known else "no chip of the registry"
lesson.table({"bytes moved": 8 * N, "GB/s": rate, "of the chip's bandwidth": share})

# %% [markdown] what the clock said
# On a GPU the share should be high: a kernel that only moves bytes has nothing else to wait for. On a CPU there is no
# bound in the registry. The copy is your yardstick: it multiplies nothing. Does the multiplication cost more than the
# spread? Then compare the GB/s with the two chips of the table above.

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
# - In one instruction, the lanes should touch one unbroken stretch of memory: a transaction counts as 32 or 128
#   bytes, however few were asked for.
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
# **You have** read machine code of both vendors, counted what it moves, and stepped through it. Now open
# [lab 00](../labs/00_start.ipynb) and write your own.

# %% second sitting ends
lesson.sitting("00", 2)
