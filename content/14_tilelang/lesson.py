# %% [markdown] top
# # 14 TileLang: one source, three vendors
#
# **Afterwards you can** write one operator in a tile language and run it on an NVIDIA target, an AMD target and an
# Ascend core; say which decisions the language takes from you and which it leaves; read where each line of it went in
# three lowered sources; place the flags of a machine that has no caches for its tiles; treat layouts as functions and
# prove what you claim about them; plan on-chip memory; and say what limits a tile on each chip, from counts.
#
# **You need** units 02 (banks, occupancy, roofline), 05 (tiles), 06 (attention in tiles) and 07 (what a barrier or a
# wait is for). No GPU and no NPU. NVIDIA's and AMD's code is executed on the virtual GPUs you know. AscendC is compiled
# for this machine's CPU and **executed on a virtual Ascend core**; nothing here has run on an Ascend chip, nor on AMD
# silicon.
#
# **Time**: four sittings. Reading (text and code at 200 words a minute) takes about 11, 13, 11 and 13 minutes, all of
# it with the predictions about 35 each (a guess). All cells together run in about two minutes the first time. Then lab
# 14. Compilers are optional here as in unit 03: `W2W_EXTRAS=hip,nvrtc,tilelang ./w2w study` installs them.

# %% imports
import torch
import z3
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from gpu_utils import CHIPS, explore, lesson, predict

# %% [markdown] who decides
# # Sitting 1: a tile language
#
# ## 1. Who decides what
#
# A kernel is a pile of decisions: which block computes which tile, which memory holds it, which lane holds which
# element, which matrix instruction runs, who copies, who waits for whom. In CUDA or HIP all of them are yours. A **tile
# language** takes some away. Which ones? Three of them, beside each other:
#
# | Decision | Triton (unit 05) | Gluon | TileLang |
# |---|---|---|---|
# | which tile a program computes, and its size | you | you | you |
# | which memory holds a tile | the compiler | you | **you**: `T.alloc_shared`, `T.alloc_fragment` |
# | which lane holds which element | the compiler | you: layouts are values | the compiler |
# | how a tile lies in shared memory | the compiler | you | the compiler, or you: `T.annotate_layout` |
# | which matrix instruction | the compiler | you | the compiler, from `T.gemm` |
# | which copies overlap with arithmetic | `num_stages` | you | `T.Pipelined(..., num_stages=2)` |
# | barriers and waits | the compiler | you | **the compiler** |
#
# > **Facts: two neighbours**
# >
# > - Gluon is Triton's lower level: layouts, shared memory, roles of warps and features of one target are the
# >   programmer's (source: triton-lang.org/main/gluon, Gluon Overview, looked up 2026-11-28).
# > - TileLang 0.1.15 has back-ends for CUDA, HIP and Ascend in one wheel (source: its README, and the cells below).
#
# ### A layout as a value
#
# Gluon is in the Triton you have. In the kernel below 128 threads double 512 numbers, and the **layout** says who has
# which: `BlockedLayout([4], [32], [4], [0])` gives each thread 4 numbers in a row, a warp 32 such threads, the program
# 4 warps; the last list is the order of dimensions, of which there is one here. A layout that covers fewer numbers than
# the tensor has is repeated. Triton would have chosen all that by itself; here you must.


# %% a kernel in Gluon
@gluon.jit
def double(x, y, layout: gl.constexpr):
    at = gl.program_id(0) * 512 + gl.arange(0, 512, layout=layout)
    gl.store(y + at, gl.load(x + at) * 2)


layouts = {
    "1 number a thread": gl.BlockedLayout([1], [32], [4], [0]),
    "4 numbers a thread": gl.BlockedLayout([4], [32], [4], [0]),
}

# %% guess gluon
guess = predict(
    "14.gluon",
    "1,024 numbers of 4 bytes, two programs of 4 warps. Each warp loads and stores its "
    "128 numbers. How many instructions of global memory do all warps issue, with each "
    "layout? (A load or a store moves at most 16 bytes for a lane.)",
    one=lesson.number("1 number a thread"),
    four=lesson.number("4 numbers a thread"),
)

# %% gluon
x, rows = torch.randn(1024), {}
for name, layout in layouts.items():
    y = torch.zeros(1024)
    gpu = lesson.launch_on(("sm_80",), double, (2,), x, y, layout)["sm_80"]
    assert torch.equal(y, 2 * x)
    totals = gpu.counters.totals()
    rows[name] = {n: totals[n] for n in ("instructions_global", "global_load_bytes")}
guess.reveal(
    one=rows["1 number a thread"]["instructions_global"],
    four=rows["4 numbers a thread"]["instructions_global"],
    because="8 warps, 2 ways, and 128 numbers of a warp in 4 instructions or in 1.",
)
lesson.table(rows, first="layout, sm_80")

# %% [markdown] between the two
# The same result, the same bytes, a quarter of the instructions: a decision that Triton takes from you and Gluon gives
# back. TileLang stands between the two: memories have names, threads mostly do not. That is what makes it portable to a
# machine that has no threads in its matrix unit at all. The price: you must say where data lies, and where it lies is
# not the same on three machines.
#
# ## 2. A matrix product, read line by line
#
# The product is $C = A B^\top$, with `A` of shape [M, K] and `B` of [N, K]. A **tile program** in this course is a
# function that gets the language `T`, the vendor and the sizes, and returns a kernel. It imports nothing, so that the
# same text serves three languages: `T` is TileLang's for GPUs, or its dialect for Ascend.


# %% a tile program
def gemm(T, vendor, M, N, K, BM, BN, BK, dtype):
    ascend = vendor == "ascend"
    stage = T.alloc_l1 if ascend else T.alloc_shared
    accumulator = T.alloc_l0c if ascend else T.alloc_fragment
    blocks = (M // BM) * (N // BN)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(blocks) if ascend else T.Kernel(blocks, threads=128) as block:
            m = block // (N // BN) * BM
            n = block % (N // BN) * BN
            A_tile = stage((BM, BK), dtype)
            B_tile = stage((BN, BK), dtype)
            total = accumulator((BM, BN), "float32")
            for k in T.Pipelined(K // BK, num_stages=2):
                T.copy(A[m, k * BK], A_tile)
                T.copy(B[n, k * BK], B_tile)
                T.gemm(A_tile, B_tile, total, transpose_B=True, clear_accum=(k == 0))
            T.copy(total, C[m, n])

    return main


# %% [markdown] its lines
# - `T.prim_func` marks the kernel. Its parameters are tensors with shape and type; sizes are known when it is lowered.
# - `T.Kernel(blocks, threads=128)` is the grid, and how many threads a block has. On Ascend only blocks are counted.
# - `T.alloc_shared` is a tile in shared memory (LDS on AMD). `T.alloc_fragment` is a tile that the block's registers
#   hold together: which lane has which element is the compiler's business. On Ascend these two are `T.alloc_l1` and
#   `T.alloc_l0c`; sitting 2 says why.
# - `T.copy` moves a tile. The source `A[m, k * BK]` is a corner; the extent is that of the destination.
# - `T.Pipelined` is the loop over K. With two stages the copies of the next round may run beside this round's product.
# - `T.gemm` multiplies tiles. `transpose_B=True` says that `B_tile` lies by rows of N. `clear_accum` starts the sum.
#
# Nothing says how a thread copies, how tiles are swizzled, which instruction multiplies, or where anybody waits. Two
# stages of both tiles is all the shared memory that is asked for.

# %% guess shared
size = {"M": 128, "N": 128, "K": 128, "BM": 64, "BN": 64, "BK": 32}
size["dtype"] = "float16"
guess = predict(
    "14.shared",
    "Tiles of 64 x 32 of A and of B in float16, two stages. How many bytes of shared "
    "memory does a block need on sm_90?",
    bytes=lesson.number("a block", unit="bytes"),
)

# %% shared
lowered = {
    target: lesson.lower(gemm, target, **size)
    for target in ("sm_90", "gfx942", "ascend950")
}
guess.reveal(
    bytes=lowered["sm_90"].shared,
    because="2 tiles x 64 x 32 elements x 2 bytes x 2 stages.",
)
lesson.table(
    {
        target: {
            "blocks": one.grid[0],
            "threads": one.block[0],
            "shared bytes": one.shared,
            "lines": len(one.source.splitlines()),
        }
        for target, one in lowered.items()
    },
    first="target",
)

# %% [markdown] lowering
# `lesson.lower` has asked TileLang to **lower** the program: to translate it to the source that a vendor's compiler
# takes. Three things in the table are worth a look. On gfx942 there is half of the shared memory: its source has one
# buffer for each tile, and barriers before and after each copy. `num_stages=2` was a wish, and it did not come true:
# copies and products of one block take turns there. (Lowered for gfx950 it has two buffers; in TileLang 0.1.15 their
# copies are still loads into registers and stores into the LDS, as the template `hip/copy.h` of its wheel says.) On
# sm_90 the block has 256 threads though we asked for 128: 128 of them only copy, the others multiply (*warp
# specialization*). And on Ascend there are no threads here.
#
# ## 3. Where each line went
#
# The next figure is the heart of the lesson. Choose a line of the tile program; below, the lines that came from it in
# three sources. Lines with a dashed underline are flags, barriers and fences: **no line asks for them**. (A flag is
# what one unit of an AI core sets when it is done, and another waits for. Each copy and each product has one before and
# one after it; sitting 2 takes them apart.)

# %% guess flags
guess = predict(
    "14.asked",
    "The AscendC source has about 30 lines. How many of them are flags and barriers? "
    "And which of the three sources has the fewest?",
    ascend=lesson.number("in AscendC", factor=1.4),
    fewest=lesson.choice("CUDA", "HIP", "AscendC"),
)

# %% lines
matched = {target: lesson.match(gemm, one.source) for target, one in lowered.items()}
waits = {target: len(one.of("synchronisation")) for target, one in matched.items()}
guess.reveal(
    ascend=waits["ascend950"],
    fewest={"sm_90": "CUDA", "gfx942": "HIP", "ascend950": "AscendC"}[
        min(waits, key=waits.get)
    ],
    because="pipes of an AI core know nothing of each other; on gfx942 the waits for "
    "memory are not in HIP's source: its compiler adds them later.",
)
explore("lowered", gemm, size)

# %% [markdown] what to look for
# Look at three lines.
#
# - **`T.copy(A...)`** became one `tma_load` by one thread on sm_90; a loop of 16-byte loads by all threads on gfx942;
#   one `asc_copy_gm2l1_nd2nz` on Ascend: a unit of its own copies a whole tile, and reorders it on the way.
# - **`T.gemm`** became `wgmma` on tiles in shared memory; loops of LDS reads and `mfma` on gfx942; a call of a template
#   on Ascend, in which two more copies and a product hide.
# - **`T.copy(total, C...)`** became stores by each lane on both GPUs. On Ascend it is again a unit that copies.
#
# ## 4. Executed three times
#
# Lowering proves nothing. So each source goes through its vendor's compiler: NVIDIA's NVRTC, clang for AMD, clang for
# this CPU with the course's headers for AscendC. Then it runs, and meets the product in float64.

# %% guess bytes
guess = predict(
    "14.bytes",
    "M = N = K = 128 in float16, tiles of 64 x 64: four blocks. How many bytes of A "
    "and B do all blocks read from global memory together? Is it the same on all "
    "three?",
    read=lesson.number("read", unit="bytes"),
    same=lesson.yes_no("the same on all three?"),
)

# %% executed
a, b = (torch.randn(128, 128).half() for _ in range(2))
exact = a.double() @ b.double().T
rows, read = {}, {}
for target in ("sm_80", "sm_90", "gfx942", "ascend950"):
    c = torch.full((128, 128), float("nan"))
    run = lesson.launch_tile(gemm, (target,), (a, b, c), **size)[target]
    counted = lesson.tile_counts(run)
    read[target] = counted["bytes read"]
    rows[target] = counted | {"largest error": f"{(c - exact).abs().max():.1e}"}
guess.reveal(
    read=read["sm_90"],
    same=len(set(read.values())) == 1,
    because="each of 4 blocks reads 64 rows of A and 64 of B: 2 x 64 x 128 x 2 bytes.",
)
lesson.table(rows, first="target")

# %% [markdown] the same and not the same
# The same bytes, the same matrix FLOPs; the errors differ by the order of sums. What differs is *how*: lanes copied on
# sm_80 and gfx942, engines copied on sm_90 and on the AI core. On NVIDIA the layout that TileLang chose for the tiles
# left no bank conflict; on gfx942 it chose another, and there are some. Sitting 3 takes that apart.
#
# What one source could not hide are two names: where a tile lies, and where its sums lie. Sitting 2 is about these.
#
# ## 5. Work on single elements
#
# Not all is a product. These are the words for the rest, in both dialects:
#
# | Word | What it does |
# |---|---|
# | `for i, j in T.Parallel(R, N)` | a loop whose rounds may go in any order, spread over the threads |
# | `for k in T.serial(n)` | an ordinary loop |
# | `T.exp(v)`, `T.max(v, w)`, `T.cast(v, "float16")` | functions of one element |
# | `T.fill(tile, value)`, `T.clear(tile)` | all elements of a tile |
# | `T.reduce_sum(tile, out, dim=1)`, `T.reduce_max` | sums or maxima along a dimension |
# | `with T.SimtVF(threads=128)` | Ascend only: what is in it runs on the threads of a vector core |
# | `T.macro` | a piece of program that others put in, as it stands |
#
# A softmax without its maximum shows them. On a GPU the block's own threads do it. On an AI core rows are copied into
# the unified buffer (`T.alloc_shared` there), and a `SimtVF` works on them.


# %% a program over rows
def shares(T, vendor, rows, cols):
    ascend = vendor == "ascend"

    @T.macro
    def body(tile, out):
        row = T.alloc_fragment((8, cols), "float32")
        total = T.alloc_fragment((8,), "float32")
        for i, j in T.Parallel(8, cols):
            row[i, j] = T.exp(T.cast(tile[i, j], "float32"))
        T.reduce_sum(row, total, dim=1)
        for i, j in T.Parallel(8, cols):
            out[i, j] = row[i, j] / total[i]

    @T.prim_func
    def main(
        x: T.Tensor((rows, cols), "float16"), y: T.Tensor((rows, cols), "float32")
    ):
        with T.Kernel(rows // 8) if ascend else T.Kernel(rows // 8, threads=128) as b:
            tile = T.alloc_shared((8, cols), "float16")
            out = T.alloc_shared((8, cols), "float32")
            T.copy(x[b * 8, 0], tile)
            if ascend:
                with T.SimtVF(threads=128):
                    body(tile, out)
            else:
                body(tile, out)
            T.copy(out, y[b * 8, 0])

    return main


# %% rows on three machines
x, rows = torch.randn(64, 128).half(), {}
for target in ("sm_90", "gfx942", "ascend950"):
    y = torch.full((64, 128), float("nan"))
    run = lesson.launch_tile(shares, (target,), (x, y), rows=64, cols=128)[target]
    off = (y - x.double().softmax(1)).abs().max()
    rows[target] = lesson.tile_counts(run) | {"largest error": f"{off:.1e}"}
lesson.table(rows, first="target")

# %% [markdown] rows read
# No matrix FLOPs, and the same bytes on all three: 64 x 128 numbers of 2 bytes in, as many of 4 bytes out. The
# conversion stands in the vector part, not in a copy; section 9 shows what happens otherwise.

# %% stop 1
lesson.sitting("14", 1)

# %% [markdown] who moves
# # Sitting 2: who moves the data
#
# ## 6. Three machines
#
# A GPU hides its memory behind caches. A lane asks for an address, waits, and gets data; whether it came from L2 or
# from memory it learns from the clock alone. Where tiles are copied by hand, into shared memory, a barrier says when
# they are there. An **AI core** of Huawei's Ascend turns this round: no cache stands in front of its buffers. Five
# kinds of them have names, units called **pipes** move data from one to the next, and what is there, and when, is
# known only to whoever wrote the flags.

# %% machines
lesson.movers_figure("sm_90", "gfx942", "ascend950")

# %% [markdown] words of the AI core
# One AI core is a **cube core** (AIC) for matrix products and two **vector cores** (AIV) for everything else. Words you
# need, once:
#
# | Name | What it is |
# |---|---|
# | GM | global memory, with an L2 |
# | L1 | holds tiles for the cube core; `T.alloc_l1` |
# | L0A, L0B, L0C | left operand, right operand, sums; the product reads and writes nothing else; `T.alloc_l0c` |
# | UB | unified buffer, one for each vector core; `T.alloc_shared` in the Ascend dialect |
# | MTE2, MTE1 | pipes that copy GM to L1 or UB, and L1 to L0A or L0B |
# | M, V | pipes that multiply (cube) and compute (vector) |
# | FIX, MTE3 | pipes that copy L0C out, and UB to GM |
# | S | the scalar unit: it runs the text and hands operations to pipes |
#
# A pipe works in order. Two pipes have no order, unless a **flag** makes one: `asc_sync_notify(A, B, id)` is queued on
# pipe A and sets a flag when A has come that far; `asc_sync_wait(A, B, id)` is queued on B, which stops until the flag
# is set, and clears it.
#
# Between L1 and L0 data also change their shape. The cube works on **fractals**: 16 rows of 32 bytes, stored in one
# piece. A tile in L1 is a column of fractals after another, so that the hardware can fetch whole ones. `nd2nz` in a
# copy's name is this change: from rows (ND) to fractals (NZ).

# %% guess fractal
guess = predict(
    "14.fractal",
    "A tile of 64 rows in float16 lies in L1 in fractals: 16 rows x 16 columns, down "
    "the rows first. At which element does (row 17, column 35) lie?",
    place=lesson.number("element"),
)

# %% fractal
places = lesson.fractal_places(rows=64, cols=48, itemsize=2)
guess.reveal(
    place=int(places[17, 35]),
    because="column 35 is in the third column of fractals: 2 x 64 x 16 elements come "
    "before it; row 17 is 17 x 16 further, and 35 - 32 = 3.",
)
grid = [[str(places[r, c]) for c in range(0, 48, 8)] for r in range(0, 64, 8)]
lesson.grid_figure({"every 8th row and column: its place in L1": grid}, marked=("0",))

# %% [markdown] a copy, a function, a copy
# ## 7. Pipes and flags
#
# Here is the smallest kernel that has something to order. MTE2 copies a tile in, the vector pipe V works on it, MTE3
# copies it out. A **vector function** is code for threads of the vector core; `asc_vf_call` hands it to V. The text is
# AscendC as TileLang writes it, a little shortened. Read the three flags in it.

# %% a kernel in AscendC
ascendc = """\
#include "simt_api/asc_simt.h"
__simt_vf__ inline void relu(__ubuf__ float *tile) {
  for (int i = threadIdx.x; i < 1024; i += 128) tile[i] = max(tile[i], 0.0f);
}
extern "C" __global__ __vector__ void kernel(__gm__ float *x, __gm__ float *y) {
  asc_init();
  __ubuf__ float *ub = (__ubuf__ float *)0;
  for (int t = 0; t < 4; ++t) {
    if (t > 0) asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
    asc_copy_gm2ub_align((__ubuf__ uint8_t *)ub, (__gm__ uint8_t *)(x + t * 1024), 1,
        4096, 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), 4096, 4096);
    asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    asc_vf_call<relu>(cce::dim3(128), ub);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t *)(y + t * 1024), (__ubuf__ uint8_t *)ub, 1,
        4096, static_cast<asc_store_l2_cache_mode>(0), 4096, 4096);
    if (t < 3) asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  }
}
"""

# %% [markdown] the calls
# - `asc_copy_gm2ub_align(to, from, bursts, bytes, ..., stride, stride)` copies bursts of bytes into UB; each starts at
#   a multiple of 32 bytes. The zeros are for padding and the L2. `asc_copy_ub2gm_align` goes the other way.
# - `(__ubuf__ float *)0` is the start of UB: buffers are addresses that somebody chose.
# - Two flags say "it is there": MTE2 to V, V to MTE3. The third says "**it is free**": MTE3 to MTE2. Without it the
#   next tile might arrive while the last one is still being stored.

# %% guess steps
guess = predict(
    "14.steps",
    "Four tiles, and each copy and each vector function takes one step. How many steps "
    "does the kernel take? What would the fewest be, if everything could overlap?",
    taken=lesson.number("this kernel"),
    fewest=lesson.number("if pipes overlap"),
)

# %% steps
x = torch.randn(4096)
y = torch.full((4096,), float("nan"))
alone = lesson.run_ascendc(ascendc, "kernel", 1, (x, y))
guess.reveal(
    taken=alone.steps,
    fewest=4 + 2,
    because="one buffer: copy in, work, copy out, and only then the next copy in. With "
    "buffers to spare a pipe takes a tile each step, after two steps to fill.",
)
print("right:", torch.equal(y, x.relu()))
lesson.pipe_figure(alone)

# %% [markdown] what a step is
# A step is no time: the virtual core has no clock. It is the earliest moment at which flags and the order of each pipe
# would let an operation start, if each took one step. What overlaps here may overlap on a chip; what does not, cannot.
#
# ### A flag that is missing
#
# Take one flag away: V no longer waits for MTE2. On a chip the result would be right on most days.

# %% guess missing
guess = predict(
    "14.missing",
    "The wait (MTE2, V) is gone, and its notify too. Is y right on the virtual core, "
    "which runs operations in the order of the text? Does it report a fault?",
    right=lesson.yes_no("y is right"),
    fault=lesson.yes_no("a fault is reported"),
)

# %% missing
text = ascendc.splitlines(keepends=True)
without = "".join(line for line in text if "PIPE_MTE2, PIPE_V" not in line)
found = lesson.run_ascendc(without, "kernel", 1, (x, y), check=False)
guess.reveal(
    right=torch.equal(y, x.relu()),
    fault=bool(found.faults),
    because="it keeps, for every byte, who wrote it and what is ordered after that.",
)
lesson.table({fault.kind: str(fault) for fault in found.faults[:2]})

# %% [markdown] how it knows
# The order that happened is not what is judged. Each pipe carries a *vector clock*: what it knows to be done on every
# other pipe. A flag hands that knowledge on. Each byte of every buffer remembers who wrote and who read it last, and
# an access that knows nothing of them is a fault, whatever came out. These are the sanitizers of unit 07's barriers
# on another machine. docs/virtual-npu.md says what is modelled and what is not.
#
# A flag can also be one too few at the start, or one too many at the end. Take the `if (t > 0)` away: the first wait
# waits for a store that never was. The lab has you place all flags of a kernel with two buffers, in which the three
# pipes do overlap.

# %% deadlock
stuck = ascendc.replace("if (t > 0) asc_sync_wait", "asc_sync_wait")
found = lesson.run_ascendc(stuck, "kernel", 1, (x, y), check=False)
lesson.table({fault.kind: str(fault) for fault in found.faults[:2]})

# %% [markdown] the gemm's pipes
# ### What TileLang did
#
# For the product of sitting 1 TileLang placed all of these by itself. Its loop has two buffers in L1, with a flag
# each; sums in L0C are handed from M to FIX by another; between MTE1 and M stand **locks**, which give a buffer of L0
# to whoever asked first in the text.

# %% pipes of the product
c = torch.full((128, 128), float("nan"))
core = lowered["ascend950"]
run = lesson.run_ascendc(core.source, core.kernel, core.grid[0], (a, b, c))
lesson.pipe_figure(run)

# %% [markdown] pipes read
# Copies in run up to two rounds ahead: two buffers. The product waits for its operands, and the copy out for the last
# product. MTE2 and MTE1 make two copies each for one product: tiles of 64 x 64 x 32 are small.
#
# ## 8. From the cube to the vector cores
#
# A product is seldom alone: a bias, an activation, a scale come after it. On a GPU the sums are in registers, and every
# lane can go on. On an AI core the sums are in L0C, where no vector core can reach. A fused **epilogue** goes: FIX
# copies L0C to the UBs, half of the rows to each vector core; each works on its half; MTE3 stores. In the dialect:
#
# - `T.dual_copy(total, part)` with `part` of BM // 2 rows: both cores get theirs;
# - `with T.SimtVF(threads=128):` is a vector function; `T.Parallel` in it spreads a loop over its threads;
# - `T.dual_copy(part, C[...])` stores both halves.


# %% with an epilogue
def gemm_relu(T, vendor, M, N, K, BM, BN, BK, dtype):
    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel((M // BM) * (N // BN)) as block:
            m = block // (N // BN) * BM
            n = block % (N // BN) * BN
            A_tile = T.alloc_l1((BM, BK), dtype)
            B_tile = T.alloc_l1((BN, BK), dtype)
            total = T.alloc_l0c((BM, BN), "float32")
            part = T.alloc_shared((BM // 2, BN), "float32")
            for k in T.Pipelined(K // BK, num_stages=2):
                T.copy(A[m, k * BK], A_tile)
                T.copy(B[n, k * BK], B_tile)
                T.gemm(A_tile, B_tile, total, transpose_B=True, clear_accum=(k == 0))
            T.dual_copy(total, part)
            with T.SimtVF(threads=128):
                for i, j in T.Parallel(BM // 2, BN):
                    part[i, j] = T.max(part[i, j], 0)
            T.dual_copy(part, C[m : m + BM, n : n + BN])

    return main


# %% guess epilogue
guess = predict(
    "14.epilogue",
    "A second kernel for the ReLU would store C, read it and store it again. How many "
    "bytes of GM does the fused kernel save, for C of 128 x 128 in float32?",
    saved=lesson.number("saved", unit="bytes"),
)

# %% epilogue
c = torch.full((128, 128), float("nan"))
fused = lesson.launch_tile(gemm_relu, ("ascend950",), (a, b, c), **size)["ascend950"]
apart = 3 * c.nbytes  # store, read, store
guess.reveal(
    saved=apart - fused.counters["UB->GM"],
    because="C is stored once in place of stored, read and stored.",
)
assert torch.allclose(c.double(), exact.relu(), atol=1e-3)
lesson.table({"bytes": {path: n for path, n in fused.counters.items() if "->" in path}})

# %% [markdown] a bus of its own
# What a GPU does within registers is here a copy with a counter: `L0C->UB`. It is on the chip, so it is cheap, and it
# is not free: it needs room in UB beside everything else, and two more flags between cores
# (`asc_sync_intra_arrive`, `asc_sync_intra_wait`).
#
# ## 9. What TileLang checks, and what not
#
# A tile language knows more than a C compiler: it knows what a tile is. So it can refuse. Four small programs; guess
# what it says before you look.


# %% four programs
def casting_copy(T, vendor):
    @T.prim_func
    def main(x: T.Tensor((16, 64), "float32"), y: T.Tensor((16, 64), "float16")):
        with T.Kernel(1) if vendor == "ascend" else T.Kernel(1, threads=128):
            tile = T.alloc_shared((16, 64), "float16")
            T.copy(x, tile)
            T.copy(tile, y)

    return main


def odd_rows(T, vendor, columns):
    @T.prim_func
    def main(x: T.Tensor((4, columns), "float32"), y: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=128):
            rows = T.alloc_fragment((4, columns), "float32")
            total = T.alloc_fragment((4,), "float32")
            T.copy(x, rows)
            T.reduce_sum(rows, total, dim=1)
            T.copy(total, y)

    return main


def large_sums(T, vendor):
    @T.prim_func
    def main(
        A: T.Tensor((256, 64), "float16"),
        B: T.Tensor((512, 64), "float16"),
        C: T.Tensor((256, 512), "float32"),
    ):
        with T.Kernel(1):
            A_tile = T.alloc_l1((256, 64), "float16")
            B_tile = T.alloc_l1((512, 64), "float16")
            total = T.alloc_l0c((256, 512), "float32")
            T.copy(A, A_tile)
            T.copy(B, B_tile)
            T.gemm(A_tile, B_tile, total, transpose_B=True, clear_accum=True)
            T.copy(total, C)

    return main


def own_race(T, vendor):
    @T.prim_func
    def main(x: T.Tensor((256,), "float32"), y: T.Tensor((256,), "float32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((256,), "float32")
            T.copy(x, tile)
            for i in T.Parallel(256):
                tile[(i + 1) % 256] = tile[i]
            T.copy(tile, y)

    return main


# %% guess checks
guess = predict(
    "14.checks",
    "Does TileLang refuse: a copy from float32 to float16 on Ascend? The same on "
    "sm_90? Sums of 256 x 512 in float32, in an L0C of 256 KiB? A loop in which each "
    "thread writes what its neighbour reads?",
    cast=lesson.yes_no("refuses the cast, Ascend"),
    gpu=lesson.yes_no("refuses the cast, sm_90"),
    large=lesson.yes_no("refuses the large sums"),
    race=lesson.yes_no("refuses the race"),
)

# %% checks
said = {
    "cast, ascend950": lesson.refusal(casting_copy, "ascend950"),
    "cast, sm_90": lesson.refusal(casting_copy, "sm_90"),
    "large sums, ascend950": lesson.refusal(large_sums, "ascend950"),
    "race, sm_90": lesson.refusal(own_race, "sm_90"),
    "reduce 4 x 96, sm_90": lesson.refusal(odd_rows, "sm_90", columns=96),
}
refused = {name: words != "lowered" for name, words in said.items()}
guess.reveal(
    cast=refused["cast, ascend950"],
    gpu=refused["cast, sm_90"],
    large=refused["large sums, ascend950"],
    race=refused["race, sm_90"],
    because="it checks what it needs to lower; sizes of buffers and your own races it "
    "leaves to others.",
)
lesson.table(said)

# %% [markdown] two that pass
# The last row is a refusal of another kind: 96 columns do not spread evenly over 128 threads, and for a reduction
# TileLang found no layout. A size that "works" on paper can be one that a compiler has no plan for.
#
# Two programs pass that must not. The **large sums** need 512 KiB in a buffer of 256. In the **race** a thread writes
# what another reads. Both are lowered, compiled and run; what do those say that run them? A buffer that overflows
# shows on the virtual core, an order that is missing in the sanitizer of the virtual GPU.

# %% they run
big = [torch.randn(256, 64).half(), torch.randn(512, 64).half(), torch.zeros(256, 512)]
core = lesson.lower(large_sums, "ascend950")
run = lesson.run_ascendc(core.source, core.kernel, 1, big, check=False)
said = {"large sums, ascend950": str(run.faults[0])}
try:
    pair = (torch.randn(256), torch.zeros(256))
    lesson.launch_tile(own_race, ("sm_90",), pair, sanitize=True)
except Exception as problem:
    said["race, sm_90"] = str(problem)
lesson.table(said)

# %% [markdown] a line that moves
# A tile language moves the line between what is checked and what is not. It does not remove it.

# %% stop 2
lesson.sitting("14", 2)

# %% [markdown] layouts
# # Sitting 3: layouts and proofs
#
# ## 10. A layout is a function
#
# Where does element (row, column) of a tile lie in shared memory? The answer is a function from indices to a place.
# `row * cols + col` is one; padding is another, `row * (cols + 8) + col`; a **swizzle** permutes pieces within a row:
# `row * cols + (col ^ row % 8 * 8)`. The product is right with any of them, as long as writer and reader agree and no
# two elements share a place. They differ in what the banks of unit 02 say.
#
# TileLang lets you say it: `T.annotate_layout` gives a buffer a `T.Layout(shape, function)`. The function below gets
# row and column, and returns a place.


# %% a product with a layout
def product(T, vendor, place):
    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"),
        B: T.Tensor((64, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            A_tile = T.alloc_shared((64, 32), "float16")
            B_tile = T.alloc_shared((64, 32), "float16")
            total = T.alloc_fragment((64, 64), "float32")
            if place is not None:
                own = T.Layout((64, 32), place)
                T.annotate_layout({A_tile: own, B_tile: own})
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[0, k * 32], A_tile)
                T.copy(B[0, k * 32], B_tile)
                T.gemm(A_tile, B_tile, total, transpose_B=True, clear_accum=(k == 0))
            T.copy(total, C)

    return main


# %% [markdown] phases again
# A row of the tile is 32 elements of 2 bytes: 64 bytes, half of the 128 bytes that 32 banks serve in a pass. `ldmatrix`
# reads 8 rows at a time, 16 bytes of each. (Unit 02: an access of 16 bytes is served 8 lanes at a time.)

# %% guess rows
guess = predict(
    "14.rows",
    "Rows one after the other, 64 bytes each. ldmatrix reads the first 16 bytes of 8 "
    "rows. In how many passes, when one would do?",
    passes=lesson.number("passes"),
    swizzled=lesson.yes_no("does TileLang's own layout need more than the fewest?"),
)

# %% rows
layouts = {
    "row by row": lambda i, j: i * 32 + j,
    "xor of row / 2": lambda i, j: i * 32 + (j // 8 ^ i // 2 % 4) * 8 + j % 8,
    "TileLang's own": None,
}
a, b = (torch.randn(64, 64).half() for _ in range(2))
rows = {}
for name, place in layouts.items():
    c = torch.full((64, 64), float("nan"))
    gpu = lesson.launch_tile(product, ("sm_80",), (a, b, c), place=place)["sm_80"]
    assert torch.allclose(c.double(), a.double() @ b.double().T, atol=1e-3)
    totals = gpu.counters.totals()
    rows[name] = {n: totals[n] for n in ("shared_cycles", "bank_conflicts")}
conflicts = {name: row["bank_conflicts"] for name, row in rows.items()}
guess.reveal(
    passes=8 * 64 // 128,
    swizzled=conflicts["TileLang's own"] > 0,
    because="rows 0, 2, 4 and 6 begin at the same bank, and so do 1, 3, 5, 7: 4.",
)
lesson.table(rows, first="layout, sm_80")

# %% [markdown] two rows share a pass
# Copies in write along a row, and have no conflicts in any of these; the reads pay. The swizzle moves row pairs: two
# rows fill 128 bytes, so the pair's number is what must change the piece. The explorer shows it bank by bank: type a
# layout, choose how it is read.

# %% explore layouts
explore("layout", "row * cols + (col ^ row // 2 % 4 * 8)", cols=32, way="operand")

# %% [markdown] the same swizzle on AMD
# ### The same layout on another machine
#
# On gfx942 the LDS has 32 banks too, and reads of 16 bytes are served 8 lanes at a time. But which eight lanes belong
# to a phase is another choice of the hardware, and the matrix core wants other pieces together. Does TileLang take our
# swizzle there?

# %% guess on amd
guess = predict(
    "14.amd",
    "The xor layout is free of conflicts on sm_80. On gfx942: does TileLang accept it?",
    accepts=lesson.yes_no("accepts it"),
)

# %% on amd
words = lesson.refusal(product, "gfx942", place=layouts["xor of row / 2"])
guess.reveal(
    accepts=words == "lowered",
    because="there its T.gemm has a layout of its own in mind, and two do not fit.",
)
lesson.table({"TileLang says": words.partition("previous layout")[0]})

# %% [markdown] what it had in mind
# The message prints the function that its back-end chose: again a swizzle, by 8 rows. Sitting 1 counted conflicts with
# it: chosen for other phases than those that the course's registry has for gfx942, whose rows in docs/facts.md name
# their sources. Nobody has measured it on this course's machines. Which layouts are free of conflicts on both vendors,
# for rows of any width, is an exercise: `14.swizzle`.
#
# ## 11. Proofs in place of tests
#
# Tests try some sizes. A claim like "no access is out of bounds" is about all of them. **Z3** is a solver: you give
# it unknowns and conditions, and it finds numbers that meet them, or shows that there are none. TileLang has it inside
# for its own questions; you use it here for yours. The trick of all proofs with it: ask for a **counterexample**.
#
# A kernel copies `n` elements in blocks of 128. Claim: with `n // 128` blocks every element is copied.

# %% a counterexample
n, element = z3.Int("n"), z3.Int("element")
solver = z3.Solver()
solver.add(n >= 1, n <= 1_000_000)
solver.add(element >= 0, element < n)  # an element of the tensor
solver.add(element / 128 >= n / 128)  # whose block is not in the grid
found = solver.check()
model = solver.model() if found == z3.sat else None
lesson.table({"answer": str(found), "counterexample": str(model)})

# %% [markdown] sat and unsat
# `sat`: there are numbers that break the claim, and the model shows some. (On whole numbers `/` is division rounded
# down here.) Round the grid up instead, `(n + 127) / 128`. Now `unsat`, "there are none", would be a proof: for all n
# up to a million, without trying them.

# %% guess proof
guess = predict(
    "14.proof",
    "With (n + 127) / 128 blocks: what does Z3 answer?",
    answer=lesson.choice("sat", "unsat", "unknown"),
)

# %% proof
solver = z3.Solver()
solver.add(n >= 1, n <= 1_000_000, element >= 0, element < n)
solver.add(element / 128 >= (n + 127) / 128)
guess.reveal(
    answer=str(solver.check()),
    because="nothing breaks the claim, and that is for all sizes.",
)

# %% [markdown] what tests do not try
# ### What no test has tried
#
# An index is computed in 32 bits. `row * cols + col` is right in mathematics for any matrix, and in a kernel up to
# $2^{31}$ elements. Whole numbers of Z3 have no largest one, so they do not see it; **bit vectors** do:
# `z3.BitVec(name, 32)` adds and multiplies as a register does. `solver.add(x >= 0)` compares with sign. The other way
# is to keep whole numbers, and to ask of each step of the formula whether it leaves $-2^{31}$ to $2^{31} - 1$. Bit
# vectors are exact and slow where unknowns are multiplied; the lab has a use for both.

# %% guess overflow
guess = predict(
    "14.overflow",
    "row < rows, col < cols, and rows, cols up to 65,536. A test ran all shapes up to "
    "4,096 x 4,096 and passed. Is the index ever negative in 32 bits?",
    negative=lesson.yes_no("it can be negative"),
)

# %% overflow
row, col, rows_, cols_ = z3.BitVecs("row col rows cols", 32)
solver = z3.Solver()
for index, size_ in ((row, rows_), (col, cols_)):
    solver.add(size_ >= 1, size_ <= 65_536, index >= 0, index < size_)
solver.add(row * cols_ + col < 0)
found = solver.check()
guess.reveal(
    negative=found == z3.sat,
    because="65,536 x 65,536 is 2^32; the sign bit is set from 2^31 on.",
)
model = solver.model()
lesson.table({str(name): model[name].as_long() for name in (row, col, rows_, cols_)})

# %% [markdown] unknown is not proved
# Compute the index by hand from these numbers: it is beyond $2^{31} - 1$.
#
# A third answer exists: `unknown`. Products of two unknowns are hard, and a solver may give up. Then nothing is shown,
# neither the claim nor its opposite. `solver.set("rlimit", n)` bounds the work in units that are the same on every
# machine, unlike seconds.
#
# ## 12. Every place once
#
# A swizzle must be a **bijection**: no two elements share a place. As a question for a counterexample: are there two
# *different* elements with the *same* place? For the xor of section 10, with a row of `pieces` pieces:

# %% guess bijection
guess = predict(
    "14.bijection",
    "The piece's place in its row is piece ^ (row / 2 % 4). Rows of 4, 8 and 16 pieces "
    "were tested. Does each piece stay in its row, for rows of 4 to 16 pieces?",
    stays=lesson.yes_no("always stays in its row"),
)

# %% bijection
row, piece, pieces = z3.BitVecs("row piece pieces", 32)
place = piece ^ z3.URem(z3.UDiv(row, 2), 4)
solver = z3.Solver()
solver.add(z3.ULE(4, pieces), z3.ULE(pieces, 16), z3.ULT(piece, pieces))
solver.add(z3.ULT(row, 64), z3.UGE(place, pieces))
found = solver.check()
guess.reveal(
    stays=found == z3.unsat,
    because="xor turns the last pieces of a row whose length is no multiple of 4 "
    "into numbers beyond it.",
)
model = solver.model()
lesson.table({str(name): model[name].as_long() for name in (row, piece, pieces)})

# %% [markdown] drawn
# All tests had been powers of two. (`UDiv`, `URem`, `ULT`, `ULE` and `UGE` read bit vectors as numbers from 0 up; the
# plain operators read a sign.) A smaller counterexample, drawn: places of rows of 5 pieces. A place of 5 or more is in
# the next row, where another piece lies already.

# %% counterexample drawn
grid = [[str(i * 5 + (p ^ i // 2 % 4)) for p in range(5)] for i in range(8)]
twice = {place for row in grid for place in row if sum(place in r for r in grid) > 1}
lesson.grid_figure({"places of rows of 5 pieces; marked: two pieces": grid}, twice)

# %% [markdown] free of conflicts, for all rows
# Conflicts are a claim of the same kind. Eight rows from a multiple of 8 on, one piece each, rows of 4 pieces: the
# piece's place modulo 8 says which 16 bytes of the 128 serve it. Are there two different rows of one phase with the
# same one?

# %% conflicts
base, one, two = z3.BitVecs("base one two", 32)


def served(r):
    return z3.URem(r * 4 + (piece ^ z3.URem(z3.UDiv(r, 2), 4)), 8)


solver = z3.Solver()
solver.add(z3.ULT(piece, 4), z3.ULT(base, 2**20), one != two)
solver.add(z3.ULT(one, 8), z3.ULT(two, 8))
solver.add(served(base * 8 + one) == served(base * 8 + two))
lesson.table({"two rows of a phase share banks": str(solver.check())})

# %% [markdown] what was proved
# `unsat`: free of conflicts for every phase of eight million rows, in a fraction of a second. What was proved is about
# *these rules* of the banks: if the hardware's phases are others, the proof is as right as before and says nothing
# about it. That is why the layouts of this lesson were counted on the virtual GPU, too, and why somebody should
# measure them on the chip.
#
# In the lab you write the two provers: `14.prove_bounds` for indices in 32 bits, `14.prove_bijective` for maps.

# %% stop 3
lesson.sitting("14", 3)

# %% [markdown] memory
# # Sitting 4: memory, portability, and the story
#
# ## 13. What lies where, and when
#
# A tile is a claim on memory. Before a kernel runs, someone has decided which buffer has which bytes in which step: on
# a GPU the compiler for registers and mostly the tile language for shared memory (LDS), on an AI core the tile language
# for all of its buffers. When a tile does not fit, you meet that decision as an error, as spills, or as one block less
# on a unit. So it pays to be able to make it yourself.
#
# Attention is the example. A block keeps a tile of queries, `Q`, and walks over the keys in rounds. A round has steps:
# `K` arrives, `S = Q K`, softmax turns `S` into `P`, and `P V` is added to `O`. A buffer is **live** from the step that
# first writes it to the step that last reads it, both included: in the step in which softmax reads `S` and writes `P`,
# both are live and need bytes of their own. Buffers that are never live in the same step can have the same bytes.
#
# Four things decide the size of a plan.
#
# - **Shape and type.** `S` has float32, `P` 16 bits; `O` is summed in float32 from the first round to the last.
# - **Copies.** With several stages, a copy of `K` is filled for a later round while another is read. Such copies are
#   live in every step, whatever their own round does.
# - **Parts.** The two vector cores of an AI core have a unified buffer each, and each holds half of the rows. Two parts
#   of 248 KiB are not one of 496: a row lies in one of them.
# - **Alignment.** An offset is a multiple of what the hardware asks for: a swizzle of 128 bytes repeats after eight
#   rows, so such a tile starts at a multiple of 1,024.
#
# The bytes that are live in one step, at most over the steps, are a lower bound. They are no plan: offsets cannot move
# while a buffer is live, so what is free may lie in two holes. Only offsets prove that a tile fits, and only a search
# over all placements proves that it does not. With the few buffers of a kernel that search is small.
#
# The cell shows attention's buffers on a CU. Sizes of memories come from the course's registry; that the plan keeps 32
# registers of each thread back, for addresses and counters, is an assumption.

# %% buffers of attention
memories, buffers = lesson.attention_buffers("gfx942", d=128)
lesson.table(
    {one["name"]: {k: str(one[k]) for k in one if k != "name"} for one in buffers},
    first="buffer",
)

# %% [markdown] one tile
# Take 384 queries, 64 keys and one stage. In LDS lie `K`, `V` and `P`; sizes are
# rows times columns times bytes of an element, steps are in the column `live`.

# %% guess turns
guess = predict(
    "14.turns",
    "How many KiB do K, V and P take together? How many are live in one step, at most?",
    together=lesson.number("all three", unit="KiB"),
    live=lesson.number("live in one step, at most", unit="KiB"),
    fits=lesson.yes_no("does the tile fit into 64 KiB?"),
)

# %% turns
tile = {"queries": 384, "keys": 64, "stages": 1}
lds = [one for one in buffers if one["memory"] == "LDS"]
kib = {}
for one in lds:
    rows, columns = (tile.get(size, size) for size in one["shape"])
    kib[one["name"]] = rows * columns * one["itemsize"] / 1024
steps = [
    sum(kib[one["name"]] for one in lds if one["live"][0] <= step <= one["live"][1])
    for step in range(4)
]
guess.reveal(
    together=sum(kib.values()),
    live=max(steps),
    fits=max(steps) * 1024 <= memories["LDS"]["bytes"],
    because="K is last read in step 1; V and P are written from step 2 on.",
)
offsets = {"K": [0], "V": [0], "P": [16 * 1024]}
registers = {"Q": [0], "S": [96 * 1024], "O": [192 * 1024], "max and sum": [384 * 1024]}
lesson.plan_figure({"gfx942": {"tile": tile, "offsets": offsets | registers}})

# %% [markdown] three plans
# The figure is one plan, with offsets by hand: bytes upward, steps to the right. `V` takes the bytes of `K`. With two
# stages that would be wrong: a second copy of `K` would be on its way while `V` is read.
#
# Why 384 queries, and not 64? Each block reads all keys and values, so what memory delivers is the number of blocks
# times their bytes. The number of keys in a tile changes no traffic; it decides how many rounds there are, each with
# its barriers or flags. For one head with 4,096 queries and keys and vectors of 128, K and V in 16 bits:

# %% traffic of tiles
n, d = 4096, 128
traffic = {}
for queries in (64, 128, 256, 384, 512):
    read = -(-n // queries) * 2 * n * d * 2
    traffic[queries] = {
        "MB of K and V": read / 1e6,
        "FLOPs for a byte": 4 * n * n * d / read,
    }
lesson.table(traffic, first="queries of a tile")

# %% [markdown] plan it
# Compare the last column with the balance of a chip, FLOPs over bytes, from unit 05's roofline: below it, the keys come
# too slowly from memory, unless the L2 serves blocks that read the same keys at about the same time. On an AI core the
# same number decides between the cube and its memory.
#
# In `14.memory_plan` you write the solver: it chooses the tile and proves it by offsets, for an SM, a CU and an AI
# core. The three end in different places.
#
# ### The same question, a million times larger
#
# A serving system plans memory too: the KV cache of each sequence, in HBM, in the host's memory, on an SSD. As long as
# all layers keep the same, a plan is one number, bytes of a token. Models of today mix kinds of layers: all tokens, a
# **sliding window** of the latest ones, entries that **compress** several tokens into one. Each kind is a **pool** with
# a size, a growth and a temperature of its own.
#
# > **Facts: pools**
# > - vLLM's manager for hybrid models keeps slots for all tokens in layers with full attention, and for the latest
# >   tokens of the window in the others; a stored prefix is found again in a full layer if all of its tokens are there,
# >   in a window's layer if its last ones are (source: docs.vllm.ai, Hybrid KV Cache Manager).
# > - DeepSeek-V4-Flash has 43 layers with entries of 512 numbers, key and value at once, a window of 128 tokens, and an
# >   indexer with keys of 128 that picks 512 entries (source: docs.nvidia.com, NeMo AutoModel, defaults of
# >   DeepseekV4Config).
# > - Its first two layers keep the window alone; the others by turns one entry for 4 tokens, with the indexer's keys,
# >   and one for 128 (source: antirez/ds4 MODEL_CARD.md, a summary of the model card).
#
# The next cell takes these sizes, with 2 bytes for each number; real systems store some in 8 bits or 4. A step decodes
# one token. It reads the window, all entries of 128, and all keys of the indexer; of the entries of 4 it reads those
# that the indexer picked.

# %% pools of a long sequence
tokens = 1 << 20
pools = lesson.hybrid_pools()
rows = lesson.pool_rows(pools, tokens)
rows |= lesson.pool_rows(lesson.hybrid_pools("full"), tokens)
lesson.table(rows, first="pool, a million tokens")

# %% [markdown] cold
# The last row is the same model if every layer kept every token. The largest pool, one entry for 4 tokens, is read
# least: a step touches one byte of it in 500. It is the one to move out of HBM. The window and the indexer's keys are
# read whole in each step.
#
# So let this sequence have little more HBM than its other pools take: no room for the largest one. The host has enough,
# behind PCIe 5.0 at 64 GB/s. Each entry that is picked has 1,024 bytes. Paged caches move whole pages: let a page hold
# 64 entries, and let picked entries lie in pages of their own, which is the worst case.

# %% guess pages
guess = predict(
    "14.pages",
    "How many MB must come from the host in a step: by entries, and by pages of 64?",
    entries=lesson.number("entry by entry", unit="MB", factor=1.1),
    pages=lesson.number("by pages", unit="MB", factor=1.1),
    largest=lesson.yes_no(
        "by pages, do these reads take longer than all reads of HBM?"
    ),
)

# %% pages
bandwidth = CHIPS["H100"].bandwidth_tb.value * 1e12
pcie = lesson.LINKS["PCIe 5.0 x16"].gb.value * 1e9
tiers = {"HBM": (2e9, bandwidth), "host": (1e12, pcie)}
cold = pools[-1]
one, paged = (lesson.pool_places(pools, tokens, tiers, page) for page in (1, 64))
others = sum(row["ms of a step"] for row in one.values() if row["kept in"] == "HBM")
guess.reveal(
    entries=cold.read(tokens) / 1e6,
    pages=cold.read(tokens, page=64) / 1e6,
    largest=paged[cold.name]["ms of a step"] > others,
    because="21 of the 43 layers have entries of 4; each picks 512 of 1,024 bytes. "
    "A page multiplies that by 64. (That 64 GB/s makes as many ms of it is chance.)",
)
lesson.table(
    {
        name: {"kept in": row["kept in"], "ms by entries": row["ms of a step"]}
        | {"ms by pages": paged[name]["ms of a step"]}
        for name, row in one.items()
    },
    first="pool",
)

# %% [markdown] windows
# Entry by entry, the host serves the cold pool in less time than HBM needs for the indexer's keys. By pages it is the
# bottleneck of the step. The size of a page is no detail of bookkeeping: it must follow how a pool is read. Pools that
# are read whole take large pages; a pool that is picked from takes small ones, or stays in HBM. This is a count by
# peak rates: a start of a copy costs too, and 10,752 small reads want a kernel that gathers them, not as many copies.
#
# A **sliding window** asks another question: what to keep for later. While it decodes, it needs 128 tokens, a ring of
# fixed size, which is never worth moving. When the sequence is put away on an SSD and comes back with a new question,
# the window's layers need the 128 tokens before the point at which the prefix ends, and nothing else. Who stores no
# window must compute it again; who stores it at every token stores more than all compressed pools hold. In between lies
# a checkpoint each few thousand tokens: storage against computing again. The compressed pools have no such choice, as
# each later token reads them from the start.
#
# The plan for three memories is then: in HBM what each step reads whole; on the host what is picked from, in small
# pages, and sequences that will go on soon; on the SSD prefixes that may come back, all of the compressed pools and
# windows at checkpoints. What is evicted first is the coldest pool, not the oldest sequence: 5.6 GB of the sequence
# above can leave HBM, and it still decodes.


# %% [markdown] portability
# ## 14. What a move costs
#
# A program that runs on three chips is portable. Is its speed? Without a chip nobody can say how fast anything is. What
# can be counted is what limits it. Bytes and matrix FLOPs follow from the tile: a tile of BM x BN reads (BM + BN) K
# elements for 2 BM BN K FLOPs, so in float16 BM BN / (BM + BN) FLOPs for a byte. For 64 x 64 these are 32, for
# 128 x 128 they are 64. A roofline asks for the balance of the chip, a few hundred: a product of 64 x 64 tiles whose
# every byte came from memory would keep 32 / 300, about a tenth, of a chip with a balance of 300. L2 saves most of it.
#
# What the tile takes of a unit is the other half: registers, spills, shared memory, how many blocks fit. One tile
# program, three tile sizes, compiled for four targets of two vendors. (On NVIDIA spills are bytes of a thread, on AMD
# registers.)

# %% guess spills
guess = predict(
    "14.spills",
    "Sums of a tile of 256 x 128 in float32, spread over 128 threads. How many "
    "registers of a thread do they take? A thread of NVIDIA's has at most 255; does it "
    "spill on sm_80?",
    sums=lesson.number("registers for the sums"),
    spills=lesson.yes_no("spills on sm_80"),
)

# %% spills
tiles = ((64, 64), (128, 128), (256, 128))
found = {}
for target in ("sm_80", "gfx90a", "gfx942", "gfx950"):
    for rows_of, cols_of in tiles:
        shape = {"M": 256, "N": 256, "K": 128, "BM": rows_of, "BN": cols_of}
        one = lesson.lower(gemm, target, BK=32, dtype="float16", **shape)
        found[f"{target}, {rows_of} x {cols_of}"] = lesson.tile_resources(one)
guess.reveal(
    sums=256 * 128 // 128,
    spills=found["sm_80, 256 x 128"]["spills"] > 0,
    because="256 do not fit into 255, and addresses and operands come on top.",
)
lesson.table(found, first="target, tile")

# %% [markdown] a cliff
# The tile that one machine likes is a cliff on the next: a thread of CDNA has 512 registers (VGPRs and AGPRs together),
# so a large tile fits there; with 128 threads on sm_80 it does not. On an AI core the same tile takes half of L0C, and
# no register at all. A port that keeps its tiles is a port that is slow somewhere.
#
# What survives the move, then, is what follows from the operator: bytes and FLOPs. What does not survive is every
# number that was tuned. In `14.portability` you choose a tile for all three by the fraction of the roofline that it
# keeps where it keeps least.
#
# ## 15. The story, as reports
#
# TileLang and Ascend met in the news. Here is what is reported. The reports do not agree, and none can be checked here.
# Beside each stands where this course read it.
#
# > **Facts: reports, each with its date**
# >
# > - 2025-08-14: a newspaper's sources say that DeepSeek tried for months to train R2 on Ascend chips, with engineers
# >   of Huawei in the house, finished no run, and went back to NVIDIA's H20. Named as causes: stability of the chips,
# >   the interconnect, the software. Ascend stayed in use for inference. (source: The Register, 2025-08-14, on a
# >   report of the Financial Times with three unnamed sources; DeepSeek had not answered)
# > - 2025-08-14: the delay of R2 is also put down to labelling of data (source: the same article). That R2 would come
# >   in that August was denied. (source: btimesonline.com, 2025-08-14, which names iThome)
# > - 2026-04-24: DeepSeek released V4. Huawei says that its chips did a part of the training, and not which part; most
# >   of it seems to have been done on NVIDIA's. (source: sipoch.com, which carries an article of Silicon)
# > - 2026-04: V4's report says that its fine-grained expert parallelism was checked on NVIDIA GPUs and on Ascend NPUs.
# >   (source: DeepSeek-V4 report, section 3.1, read in a public translation, as in unit 11)
# > - 2026-04-24: kernels of V4 in TileLang-Ascend, a variant of the language for Ascend NPUs. (source:
# >   tile-ai/tilelang-ascend, README, Latest News)
# > - V4-Flash is served on Ascend A3, quantised to 8-bit integers. (source: docs.sglang.io, Ascend NPUs, best practices
# >   for DeepSeek-V4-Flash)
# > - 2026: V4's inference on an Ascend 950DT is analysed from the first day on. (source: SemiAnalysis newsletter,
# >   DeepSeekV4 1.6T Day 0 to Day 43)
# > - Training code for V4 exists with support for NPUs. (source: ByteDance-Seed/VeOmni, release v0.1.12, which says
# >   nothing of a run)
# > - TileLang's Ascend 950 back-end: its first version was written mainly by people of DeepSeek. (source: tilelang
# >   0.1.15, tilelang/ascend/README.md in the wheel)
#
# What of this do you now understand? Three difficulties were named.
#
# - **Software**: caches and barriers turned into buffers and flags. A kernel is a plan, and a compiler that
#   places flags has to exist first; that is what the back-end above is. Not explained: whether the tools of 2025
#   could do it. This back-end is newer than the reports on R2.
# - **Stability**: flags that are missing, which no test on a quiet day shows; buffers that overflow, and nothing
#   refuses. Not explained: chips that fail, drivers, clocks. Nothing here models hardware that breaks.
# - **Interconnect**: nothing in this unit. Unit 11 has the arithmetic: bytes of dispatch over a link's rate. The link's
#   real rate and the software of collectives are not in it.
#
# So a tile language explains one of three, and that one well. Claim and fact: *"TileLang makes DeepSeek independent of
# CUDA"* is a headline. The fact you have seen: one operator, one text with two switches for its memories, three
# machines; and then tiles, layouts and plans that are each machine's own.
#
# ## 16. What you have
#
# - A tile language fixes threads, instructions and waits; it leaves tiles, memories and their sizes to you.
# - A lowered source is mostly what you did not write. Read it by its lines; look for who waits for whom.
# - On an AI core a missing flag is a race, and only an order of events can judge it, not a result.
# - A layout is a function: it can be drawn, counted and proved. `unknown` is not proved.
# - What is live when decides what fits; what fits decides the tile; the tile decides the bytes.
#
# Next: [lab 14](../labs/14_tilelang.ipynb).
#
# **To read on**: the TileLang paper (arXiv 2504.17577); docs/virtual-npu.md and docs/tilelang.md of this course; CANN's
# asc-devkit (its C API is what the AscendC sources call); Triton's Gluon tutorials.
#
# > **Check yourself.** Which line of the product asks for a barrier? What did `num_stages=2` become on gfx942? Who
# > tells MTE2 that a buffer is free? What does `unsat` mean for a claim whose opposite you asked for? Which buffers of
# > attention share bytes?

# %% stop 4
lesson.sitting("14", 4)
