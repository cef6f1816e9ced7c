# %% [markdown] top
# # 05 Matrix multiplication in Triton
#
# **Afterwards you can** write a matrix product in Triton for any shape, say which instruction does the work on each
# chip, choose its tile by arithmetic and not by trial alone, order the programs for the caches of an H100 and an
# MI300X, and fill a chip whose number of units does not divide your number of tiles.
#
# **You need** units 00, 02 and 04. No GPU: every cell runs on a laptop.
#
# **Time**: four sittings: reading (text and code at 200 words a minute) takes 12, 9, 8 and 8 minutes, all of it with
# the predictions about 30, 30, 25 and 20. All cells together run in a minute and a half on a CPU. Then lab 05.
#
# In GPT-2 nearly all arithmetic is matrix products (lesson 01 counted it). The libraries, cuBLAS and hipBLASLt, do them
# well. You write your own because everything that is fused *into* a product, from a GELU to attention, begins with a
# product that you own. One product is followed here from a single program to a full chip.

# %% imports
import torch
import triton
import triton.language as tl

from gpu_utils import CHIPS, compile_for, explore, lesson, predict

# %% [markdown] flops and bytes
# # Sitting 1: one tile
#
# ## 1. FLOPs and bytes
#
# $C = A B$ with $A$ of shape $(M, K)$ and $B$ of shape $(K, N)$. Each of the $M N$ elements of $C$ is a sum of $K$
# products: $2 M N K$ FLOPs. The least traffic reads $A$ and $B$ once and writes $C$ once. With $M = N = K = n$ and
# numbers of 2 bytes:
#
# $$ \text{FLOPs for each byte} = \frac{2 n^3}{2 \cdot 3 n^2} = \frac{n}{3} $$
#
# What would the chips like to have? Their peak over their bandwidth (dense bf16):

# %% balance
balance = {
    name: {
        "bf16 TFLOP/s": CHIPS[name].peak("bf16"),
        "TB/s": CHIPS[name].bandwidth,
        "FLOPs for each byte": CHIPS[name].peak("bf16") / CHIPS[name].bandwidth,
    }
    for name in ("H100", "MI300X")
}
lesson.table(balance, first="chip")

# %% guess square
guess = predict(
    "05.square",
    "From which n on can a product of square bf16 matrices be bound by arithmetic and "
    "no longer by memory, at best?",
    h100=lesson.number("n on an H100", factor=1.05),
    mi300x=lesson.number("n on an MI300X", factor=1.05),
)

# %% square
n = {name: 3 * row["FLOPs for each byte"] for name, row in balance.items()}
guess.reveal(
    h100=n["H100"],
    mi300x=n["MI300X"],
    because="n / 3 must reach 295 on an H100 and 247 on an MI300X.",
)
lesson.table({name: {"n": round(value)} for name, value in n.items()}, first="chip")

# %% [markdown] square explained
# *At best*: if every element came from memory once. It does not come by itself. A program that computes one element of
# $C$ reads a row of $A$ and a column of $B$, $4 K$ bytes for $2 K$ FLOPs: half a FLOP for each byte, whatever $n$ is.
#
# ## 2. The first rungs: a tile, by hand and by instruction
#
# So a program computes a *tile* of `BM` × `BN` elements. In each step of `k` it takes `BM` numbers of a column of $A$
# and `BN` of a row of $B$, and each of them is used `BN` or `BM` times. The sums stay in registers: the *accumulator*.
#
# (A lane's fused multiply-add does 2 FLOPs. The matrix instruction of `sm_80`, `mma.sync.m16n8k16`, lets a warp do
# 2 × 16 × 8 × 16 = 4,096.)
#
# The first rung writes that down: for each `k` an outer product, added to the accumulator. The second takes `BK` steps
# at once and gives them to `tl.dot`, which multiplies a block (BM, BK) by a block (BK, BN).


# %% two kernels
@triton.jit
def outer_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros([BM, BN], tl.float32)
    for k in range(0, K):
        a = tl.load(a_ptr + m * K + k).to(tl.float32)  # a column of the tile of A
        b = tl.load(b_ptr + k * N + n).to(tl.float32)  # a row of the tile of B
        total += a[:, None] * b[None, :]
    tl.store(c_ptr + m[:, None] * N + n[None, :], total)


@triton.jit
def dot_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_bk, stride_bn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros([BM, BN], tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :])
        b = tl.load(b_ptr + k[:, None] * stride_bk + n[None, :] * stride_bn)
        total = tl.dot(a, b, total)  # total + a @ b
    tl.store(c_ptr + m[:, None] * N + n[None, :], total)


# %% launchers
def outer(a, b, BM=64, BN=64):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty(M, N, device=a.device)
    outer_kernel[(M // BM, N // BN)](a, b, c, M, N, K, BM=BM, BN=BN)
    return c


def dot(a, b, BM=64, BN=64, BK=32, out=None, **options):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty(M, N, dtype=out or torch.float32, device=a.device)
    tile = {"BM": BM, "BN": BN, "BK": BK}
    grid = (M // BM, N // BN)
    dot_kernel[grid](a, b, c, M, N, K, *b.stride(), **tile, **options)
    return c


# %% [markdown] whole tiles
# (No masks yet: all sizes here are whole numbers of tiles. Section 5 adds them.)

# %% guess instructions
BOTH = ("sm_80", "gfx942")
TIMES = {"about 4,000": 1000, "about 64": 30, "about 8": 0}
guess = predict(
    "05.instructions",
    "256 × 256 × 256 in fp16, tiles of 64 × 64. How many times as many instructions "
    "does the outer product issue on sm_80?",
    times=lesson.choice(*TIMES),
)

# %% instructions
torch.manual_seed(0)
a, b = (torch.randn(256, 256).half() for _ in range(2))
rungs = {"outer product": outer, "tl.dot": dot}
rows = lesson.climbed(rungs, BOTH, a, b, least=3 * 2 * 256 * 256)
issued = [rows[f"{name}, sm_80"]["instructions"] for name in rungs]
times = issued[0] / issued[1]
guess.reveal(
    times=next(words for words, least in TIMES.items() if times >= least),
    because="an fma of a warp does 64 FLOPs, mma.sync 4,096. They are a sixth of "
    "either kernel, and the rest (single loads, offsets) shrinks about as much.",
)
SHOWN = ("bytes moved", "instructions", "matrix FLOPs")
lesson.table({r: {c: row[c] for c in SHOWN} for r, row in rows.items()}, first="rung")

# %% [markdown] instructions explained
# `matrix FLOPs` is 0 for the outer product: its FLOPs are ordinary `fma`, one for each lane, 2 FLOPs × 32 lanes for
# each instruction of a warp. (On `gfx942` it is packed, two sums a lane.) With `tl.dot` all $2 \cdot 256^3$ = 33.6
# million are done by *matrix instructions*. The bytes tell two more things. The outer product loads the same numbers
# again and again, one at a time, in many lanes. And `tl.dot` moves twice as many bytes on `gfx942`: a block of A has
# rows of 32 numbers, half a line of 128 bytes, and the sums go out from where the instruction left them, a part of a
# line at a time. (The counters stand before any cache; an L2 joins the parts.)
#
# That is where the peaks of data sheets come from. What the vector units have beside them (the MI300X's figure is for
# packed instructions):

# %% two peaks
lesson.table(
    {
        name: {
            "vector units, float32": CHIPS[name].peak("fp32"),
            "matrix units, bf16": CHIPS[name].peak("bf16"),
        }
        for name in ("H100", "MI300X")
    },
    first="TFLOP/s",
)

# %% [markdown] one word five instructions
# The same `tl.dot` becomes another instruction on every chip:

# %% matrix instructions
SIX = ("sm_80", "sm_90", "sm_100", "gfx942", "gfx950", "gfx1100")
WORDS = ("mma.sync", "mma_async", "tcgen05.mma", "mfma", "wmma")


def found(target, b=b, words=WORDS, **options):
    """The instructions of the compiled kernel whose mnemonic holds one of the words."""
    c = torch.empty(256, 256)
    args = (a, b, c, 256, 256, 256, *b.stride())
    tile = {"BM": 64, "BN": 64, "BK": 32} | options
    kernel = compile_for(dot_kernel, target, args, **tile)
    return {
        name: times
        for name, times in lesson.mnemonics(kernel).items()
        if any(word in name for word in words)
    }


lesson.table(
    {target: {"matrix instruction": ", ".join(found(target))} for target in SIX},
    first="target",
)

# %% [markdown] shapes of instructions
# The name holds the shape: `m16n8k16` multiplies 16 × 16 by 16 × 8, `32x32x8` 32 × 8 by 8 × 32.
#
# | target | who issues it | where A, B and the sums are |
# |---|---|---|
# | `sm_80`: mma.sync | a warp | all in registers, a few numbers in each lane |
# | `sm_90`: wgmma | four warps together, and go on meanwhile | B in shared memory, A there or in registers, as sums |
# | `sm_100`: tcgen05.mma | one thread for the block | B in shared memory, A there or in *tensor memory*, as the sums |
# | `gfx942`, `gfx950`: MFMA | a wavefront | all in registers |
# | `gfx1100`: WMMA | a wave of 32 | all in registers; A and B twice |
#
# > **Facts: matrix instructions**
# >
# > - wgmma is issued by four warps together and is asynchronous; B comes from shared memory, A from shared memory or
# >   registers, and the sums are in registers. (source: NVIDIA, [warpgroup MMA programming
# >   guide](https://docs.nvidia.com/cutlass/latest/media/docs/pythonDSL/mma_docs/wgmma_programming.html))
# > - One thread issues tcgen05.mma; B comes from shared memory, A from there or from Tensor Memory, which holds the
# >   sums. (source: NVIDIA, [tcgen05 MMA programming
# >   guide](https://docs.nvidia.com/cutlass/latest/media/docs/pythonDSL/mma_docs/tcgen05_programming.html))
# > - On RDNA 3 both halves of a wave hold A and B. (source: AMD, [how to accelerate AI applications on RDNA 3 using
# >   WMMA](https://gpuopen.com/learn/wmma_on_rdna3/))

# %% guess count
guess = predict(
    "05.count",
    "One block product of 64 × 64 × 32, shared by 4 warps or wavefronts. How many of "
    "its matrix instructions does each of them issue?",
    sm_80=lesson.number("m16n8k16 on sm_80"),
    gfx942=lesson.number("32x32x8 on gfx942"),
)

# %% count
each = {}
for target, word in {"sm_80": "mma", "gfx942": "mfma"}.items():
    gpus = lesson.launch_on(
        [target], dot_kernel, (1, 1), a, b, torch.empty(256, 256),
        256, 256, 32, *b.stride(), BM=64, BN=64, BK=32,
    )  # fmt: skip
    each[target] = lesson.issued(gpus, word)[target]["issued"] / 4
guess.reveal(
    sm_80=each["sm_80"],
    gfx942=each["gfx942"],
    because="262,144 FLOPs: 64 × 4,096, or 16 × 16,384; by four.",
)
lesson.table({"for each warp or wavefront": each})

# %% [markdown] block and waves
# A block must be large enough for its waves:

# %% small tiles
rows = {}
for tile in (16, 32, 64):
    gpus = lesson.launch_on(
        BOTH, dot_kernel, (1, 1), a, b, torch.empty(256, 256),
        256, 256, 32, *b.stride(), BM=tile, BN=tile, BK=32,
    )  # fmt: skip
    rows[f"{tile} × {tile} × 32"] = {"needed": 2 * tile * tile * 32} | lesson.counted(
        gpus, "matrix_flops"
    )
lesson.table(rows, first="tile, 4 waves", note="matrix FLOPs")

# %% [markdown] operands
# Too small a tile does not make a wave idle. It makes it compute what another one computes: 32 × 32 is enough for four
# warps, and done four times over by four wavefronts, whose instruction alone is 32 × 32.
#
# ## 3. The way of the operands
#
# In memory a row of $A$ is one stretch. A matrix instruction wants its numbers in lanes, in a pattern of its own (unit
# 07 fills one by hand). Between the two stands shared memory: written as it comes from memory, read as the instruction
# wants it. Follow the instructions on each target. First with $B$ as it is, rows of $K$; then with the *same* $B$ laid
# out by columns, so that the numbers along $K$ are neighbours.

# %% guess way
guess = predict(
    "05.way",
    "A matrix instruction takes pairs of neighbours along K. Whose code changes when "
    "B's neighbours in memory run along K and no longer along N?",
    sm_80=lesson.yes_no("sm_80"),
    gfx942=lesson.yes_no("gfx942"),
    gfx950=lesson.yes_no("gfx950"),
)

# %% way
NEEDED = {"sm_80": 16, "gfx942": 4, "gfx950": 2, "gfx1100": 8}  # 64 × 64 × 32, a wave
MOVES = (
    "cp.async.c",
    "ldmatrix",
    "ds_read",
    "ds_load",
    "ds_write",
    "ds_store",
    "v_perm_",
)
by_columns = b.T.contiguous().T  # the same numbers, strides (1, 256)


def way(target, b, **options):
    """What one block of K takes; a listing that was unrolled holds several blocks."""
    issued = sum(found(target, b, **options).values())
    needed = NEEDED[target] * options.get("BK", 32) // 32
    return {
        name.split(".shared")[0]: times * needed / issued
        for name, times in found(target, b, MOVES, **options).items()
        if "cp.async" not in name
    }


def as_text(way):
    return {
        "between shared memory (LDS) and registers, for one block of K": ", ".join(
            f"{times:g} × {name}" for name, times in way.items()
        )
    }


rows, changes = {}, {}
for target in NEEDED:
    ways = [way(target, each, num_stages=2) for each in (b, by_columns)]
    changes[target] = ways[0] != ways[1]
    for layout, each in zip(("along N", "along K"), ways, strict=True):
        rows[f"{target}, neighbours of B {layout}"] = as_text(each)
guess.reveal(
    sm_80=changes["sm_80"],
    gfx942=changes["gfx942"],
    gfx950=changes["gfx950"],
    because="where B runs along N, somebody must turn it: by one word in ldmatrix, by "
    "reads of single numbers, or by reads that transpose.",
)
rows["gfx942, along N, blocks of 64"] = as_text(way("gfx942", b, num_stages=2, BK=64))
lesson.table(rows, first="target")

# %% [markdown] way explained
# - `sm_80`: `cp.async` brings 16 bytes from memory to shared memory past the registers. `ldmatrix` reads four 8 × 8
#   blocks into the lanes of a warp, and with `.trans` it turns them: as many either way.
# - `sm_90`: no row, for there is no `ldmatrix`. wgmma reads its factors from shared memory by itself, 16-bit ones in
#   either direction (and so does tcgen05 on `sm_100`, by the table above). A kernel that is written for these chips
#   also leaves the copying to a unit of its own, the *tensor memory accelerator*: in Triton
#   `tl.make_tensor_descriptor`. Pointers, as here, become `cp.async`.
# - `gfx942`: loads go to registers and from there by `ds_write` to the LDS. With blocks of 32 along K single numbers
#   are read to turn $B$, `ds_read_u16`: many small reads. With blocks of 64 the compiler turns it *in the registers*
#   (`v_perm_b32`) before it writes, and the reads are wide. So look at the listing.
# - `gfx950` has `ds_read_b64_tr_b16`, a read that transposes: no turning in registers.
# - `gfx1100` reads single numbers, too, and WMMA wants everything twice.
#
# PyTorch's `nn.Linear` keeps its weight as (out, in), and $B$ is its transpose: neighbours along K. (In the backward
# pass dX = dY W meets the other layout, so a training step has both.) What the layout of $B$ costs in instructions, for
# blocks of 32 along K (in PTX on `sm_80`, where the 8% are additions for addresses):

# %% layout in counters
rungs = {
    "along N": lambda a, b: dot(a, b),
    "along K": lambda a, b: dot(a, b.T.contiguous().T),
}
rows = lesson.climbed(rungs, ("sm_80", "gfx942", "gfx950", "gfx1100"), a, b)
lesson.bars(
    {
        name: {
            target: rows[f"{name}, {target}"]["instructions"]
            for target in ("sm_80", "gfx942", "gfx950", "gfx1100")
        }
        for name in rungs
    },
    "instructions",
)

# %% [markdown] end of the first sitting
# **You have** a product by matrix instructions, and the way of its numbers from memory into lanes. Next: how large a
# tile may be.

# %% first sitting ends
lesson.sitting("05", 1)

# %% [markdown] tile and traffic
# # Sitting 2: the right tile
#
# ## 4. How large a tile?
#
# A program reads a strip of $A$ (BM rows) and a strip of $B$ (BN columns), all of $K$. There are $M N$ / (BM BN)
# programs. Together, in numbers of 2 bytes:
#
# $$ \text{bytes read} = 2\, M N K \left( \frac{1}{BN} + \frac{1}{BM} \right) $$

# %% guess traffic
guess = predict(
    "05.traffic",
    "256 × 256 × 256 in fp16. Tiles of 128 × 128 and of 256 × 64 have the same number "
    "of sums. How many bytes do all programs load with each?",
    square=lesson.number("tiles of 128 × 128", unit="bytes", factor=1.02),
    long=lesson.number("tiles of 256 × 64", unit="bytes", factor=1.02),
)

# %% traffic
rows = {}
for BM, BN in ((64, 64), (128, 128), (256, 64)):
    gpus = lesson.launch_on(
        BOTH, dot_kernel, (256 // BM, 256 // BN), a, b, torch.empty(256, 256),
        256, 256, 256, *b.stride(), BM=BM, BN=BN, BK=32,
    )  # fmt: skip
    rows[f"{BM} × {BN}"] = {
        "by the formula": round(2 * 256**3 * (1 / BM + 1 / BN)),
        **lesson.counted(gpus, "global_load_bytes"),
    }
guess.reveal(
    square=rows["128 × 128"]["sm_80"],
    long=rows["256 × 64"]["sm_80"],
    because="2 × 256³ × (1 / 128 + 1 / 128), and × (1 / 256 + 1 / 64): 1.25 times.",
)
lesson.table(rows, first="tile", note="bytes loaded")

# %% [markdown] registers of a tile
# So larger is better, and square is better than long, until the accumulator is too large. Its `BM * BN` sums lie in
# registers, spread over the lanes of the program: `BM * BN / (num_warps * lanes)` registers each. (`sm_100` keeps them
# in tensor memory while it multiplies.)

# %% guess spills
guess = predict(
    "05.spills",
    "256 × 256 with 8 warps or wavefronts: how many sums has a lane? A lane has 255 "
    "registers on sm_90, and 256 on gfx942 when 8 waves are on a CU. Who spills?",
    sums_nvidia=lesson.number("sums of a lane, sm_90"),
    sums_amd=lesson.number("sums of a lane, gfx942"),
    sm_90=lesson.yes_no("sm_90 spills"),
    gfx942=lesson.yes_no("gfx942 spills"),
)

# %% spills
rungs = {
    "128 × 128, 4 waves": lambda a, b: dot(a, b, 128, 128, 64, num_warps=4),
    "256 × 256, 8 waves": lambda a, b: dot(a, b, 256, 256, 64, num_warps=8),
}
needs = lesson.needs(rungs, a, b, targets=SIX[1:])
spilt = {t: needs[f"256 × 256, 8 waves, {t}"][lesson.SPILLS] > 0 for t in SIX[1:]}
guess.reveal(
    sums_nvidia=256 * 256 / (8 * 32),
    sums_amd=256 * 256 / (8 * 64),
    sm_90=spilt["sm_90"],
    gfx942=spilt["gfx942"],
    because="65,536 / (8 × 32): the sums alone fill all registers; 65,536 / (8 × 64): "
    "half of them.",
)
columns = ("registers", lesson.SPILLS, "shared bytes")
lesson.table(
    {name: {column: row[column] for column in columns} for name, row in needs.items()},
    first="tile",
)

# %% [markdown] spills explained
# The same tile is right on `gfx942` and spills on `sm_90`; and 128 × 128 with four waves, a good start on data centre
# chips, spills on a Radeon. Two rows are no matter of counting sums. `gfx950` has as many as `gfx942`, and comes out a
# few registers above what it has. `sm_100` keeps them in tensor memory, and spills where it takes them out to store
# them (an inference: nothing else of the kernel holds so many numbers). So compile, and look. On waves of 64 the
# accumulator of a program is spread over twice the lanes. Shared memory goes the other way (unit 02: `sm_90` has more
# than three times as much for a program as `gfx942`). A tile is chosen for a chip.
#
# ## 5. Edges, and what may be rounded
#
# Real sizes are no multiples. Three masks, and they are not alike. Rows of $A$ and columns of $B$ behind the edge give
# rows and columns of $C$ that nobody stores: their masks protect memory. Numbers behind the edge *along K* are added
# into every sum.


# %% guess edges
guess = predict(
    "05.edges",
    "K = 20 in blocks of 16, no mask along K. A's row has 20 numbers, then the next "
    "begins. What does the second block take for k = 20 to 31 of row 0?",
    first=lesson.choice("zeros", "numbers of row 1", "an error", label="row 0 of A"),
    last=lesson.choice("zeros", "numbers of row 0", "an error", label="the last row"),
)

# %% edges
one, two = torch.ones(1, 20).half(), 100 * torch.ones(1, 20).half()
rows_of_a = torch.cat([one, two] * 8)  # rows of ones and of hundreds, 20 numbers each
ones = torch.ones(32, 16).half()  # B, with 12 rows more than K
short = {"BM": 16, "BN": 16, "BK": 16}
try:
    args = (rows_of_a, ones, torch.empty(16, 16), 16, 16, 20, 16, 1)
    lesson.launch_on(["sm_80"], dot_kernel, (1, 1), *args, **short)
    last = "numbers of row 0"
except lesson.OutOfBounds as problem:
    last = "an error"
    print(problem)
with_room = torch.cat([rows_of_a, one])  # a row more, so that nothing is outside
c = torch.empty(16, 16)
args = (with_room, ones, c, 16, 16, 20, 16, 1)
lesson.launch_on(["sm_80"], dot_kernel, (1, 1), *args, **short)
guess.reveal(
    first="numbers of row 1" if c[0, 0] == 20 + 12 * 100 else "zeros",
    last=last,
    because="element 20 of row 0 is element 0 of row 1; behind the last row is nobody.",
)
lesson.table({"c[0, 0]": c[0, 0].item(), "20 products of 1 × 1": 20})

# %% [markdown] edges explained
# In the middle of a matrix there is no error, only a wrong sum: 20 + 12 × 100. And the error for the last row is the
# virtual GPU's kindness: on a real one the memory behind a tensor mostly belongs to somebody else, and is read without
# a word. So the mask along K needs `other=0.0`, and it needs it for *both* operands: 0 × NaN is NaN, and what lies
# behind B's last row may be NaN.
#
# Odd sizes cost in another way, too: with rows of 257 numbers only every eighth begins at a multiple of 16 bytes, and
# the stride is no multiple of 16: wide loads are out. The same product, with a B whose rows are that long in memory:

# %% odd rows
long_rows = torch.randn(256, 257).half()
rungs = {
    "rows of 256": lambda a, b: dot(a, b),
    "rows of 257": lambda a, b: dot(a, long_rows[:, :256]),
}
rows = lesson.climbed(rungs, BOTH, a, b)
SHOWN = ("bytes moved", "instructions")
lesson.table({r: {c: row[c] for c in SHOWN} for r, row in rows.items()}, first="B")

# %% [markdown] odd rows explained
# 72% more instructions on `sm_80`, 25% on `gfx942`, and a fifth more bytes. (So vocabularies are padded, and offsets of
# large logits want 64 bits: lesson 04.)
#
# A mask costs something in each round of the loop. Two ways around it: run the loop over whole blocks without a mask
# along K, and the last block with one; or let rows and columns behind the edge read row `m % M`, column `n % N`, which
# exist, so that M and N need no mask in the loop at all. (Nobody stores what they give.)
#
# ### What the sum is kept in
#
# `tl.dot` of 16-bit numbers multiplies exactly and adds up in about float32: what is lost in one addition is at most
# $2^{-23}$ of the sum so far. (No vendor promises how it is rounded; NVIDIA's units were found to cut off: [Fasi et
# al., 2021](https://peerj.com/articles/cs-330/).) If these errors have both signs, $K$ additions lose about $\sqrt K$
# of them: for K = 4,096 $2^{-17}$. One rounding to bf16 at the end loses up to $2^{-9}$, 256 times as much. Only a sum
# that cancels, or errors of one sign over a very long K, change that. Rounding *in between* is another thing. Here the
# sum is rounded to fp16 or bf16 after each block of 32, as happens when somebody declares the accumulator in the type
# of the inputs.


# %% guess accumulator
guess = predict(
    "05.accumulator",
    "K = 4,096, a sum of products of size 1, rounded to bf16 after each of 128 blocks. "
    "How large is the error against one rounding at the end?",
    times=lesson.choice("as large", "2 to 4 times", "5 times and more"),
)


# %% accumulator
def rounded(a, b, dtype, each):
    """a @ b with sums in float32; rounded to dtype after each block of K, or once."""
    total = torch.zeros(len(a), b.shape[1])
    for k in range(0, a.shape[1], each):
        total = (total + a[:, k : k + each] @ b[k : k + each]).to(dtype).float()
    return total


torch.manual_seed(0)
long_a, long_b = torch.randn(64, 4096), torch.randn(4096, 64)
exact = long_a.double() @ long_b.double()
rows = {}
for dtype in (torch.float16, torch.bfloat16):
    errors = [
        (rounded(long_a, long_b, dtype, each) - exact).square().mean().sqrt().item()
        for each in (4096, 32)
    ]
    rows[str(dtype)[6:]] = {
        "rounded once": errors[0],
        "after each block": errors[1],
        "times": errors[1] / errors[0],
    }
times = rows["bfloat16"]["times"]
guess.reveal(
    times="as large"
    if times < 1.5
    else "2 to 4 times"
    if times < 4.5
    else "5 times and more",
    because="128 roundings of a growing sum, each half a step of bf16 at most; they "
    "add up like a random walk.",
)
lesson.table(rows, first="type", note="root mean square of the error")

# %% [markdown] float32 is not float32
# And float32 inputs? NVIDIA's matrix instructions take none without rounding it first. `tl.dot` has
# `input_precision`, and its *default* is not the same everywhere:

# %% default precision
WHERE = ("sm_80", "sm_90", "gfx90a", "gfx942", "gfx950", "gfx1100")
x, y = torch.randn(64, 512), torch.randn(512, 64)
exact = x.double() @ y.double()
rows = {}
for target in WHERE:
    c = torch.empty(64, 64)
    args = (x, y, c, 64, 64, 512, 64, 1)
    gpus = lesson.launch_on([target], dot_kernel, (1, 1), *args, BM=64, BN=64, BK=32)
    names = {op.mnemonic for op in gpus[target].last.program.ops}
    matrix = [n for n in names if any(word in n for word in WORDS)]
    rows[target] = {
        "largest error": (c - exact).abs().max().item(),
        "instruction": matrix[0] if matrix else "fma, on the vector units",
    }
lesson.table(rows, first="target")

# %% [markdown] precision explained
# `tf32` keeps 10 bits of the fraction, and so does `xf32`, AMD's name for it on gfx942; the errors are about 1,500 and
# 600 times those of float32. (In the course's model tf32 cuts off and xf32 rounds to nearest, hence the two figures.)
# gfx90a and gfx950 multiply float32 as such. So the same source is precise on one chip and not on another.
# `input_precision="ieee"` asks for full precision everywhere, and pays: on `sm_80` with the vector units.

# %% [markdown] the epilogue
# ## 6. The epilogue
#
# The tile is complete, and its sums are in registers. Whatever is done to each element *now* costs no byte of the
# result: an activation or a rounding costs none, a bias nearly none, a residual its one reading. (In training the
# backward pass needs what stood before the GELU: store it, or work it out again.) GPT-2's MLP is $\text{gelu}(x W^T +
# b)$.

# %% guess epilogue
guess = predict(
    "05.epilogue",
    "x: 8,192 × 768, W: 3,072 × 768, in bf16. Bytes moved at least: the product, "
    "then bias and GELU as a kernel of their own. Which share is saved by one kernel?",
    saved=lesson.number("saved", unit="%", factor=1.1),
)

# %% epilogue
product = 2 * (8192 * 768 + 3072 * 768 + 8192 * 3072)
pointwise = 2 * 2 * 8192 * 3072
guess.reveal(
    saved=100 * pointwise / (product + pointwise),
    because="the result is read and written again: 100.7 of 168.3 million bytes.",
)
lesson.table({"product": product, "bias and GELU alone": pointwise})

# %% [markdown] end of the second sitting
# **You have** a tile of the right size for a chip, edges that are safe, sums that are exact enough, and an epilogue for
# free. In the lab: 05.tiled, 05.accumulate, 05.epilogue. Next: the loop and the order of the tiles.

# %% second sitting ends
lesson.sitting("05", 2)

# %% [markdown] pipelining
# # Sitting 3: keeping the matrix units busy
#
# ## 7. Stages
#
# A round of the loop loads two blocks and multiplies them. Memory answers after hundreds of cycles. With
# `num_stages=s` the compiler starts loads for rounds ahead, and keeps the blocks that are under way or in use in shared
# memory. Lesson 04 saw this for a plain load. For the operands of `tl.dot` both vendors use shared memory, and they
# count differently. One stage of this product holds a block of A, 128 × 64, and one of B, 64 × 128, in fp16: 32 KiB.

# %% room for stages
lesson.table(
    {
        target: {"KiB for a program, at most": limits.shared_per_block // 1024}
        for target, limits in lesson.TARGETS.items()
        if target in SIX
    },
    first="target",
)

# %% guess stages
guess = predict(
    "05.stages",
    "num_stages = 4 for this product, four stages of that size or three. Where does it "
    "not load, by the table above?",
    sm_80=lesson.choice("fits", "too large"),
    sm_90=lesson.choice("fits", "too large"),
    gfx942=lesson.choice("fits", "too large"),
)


# %% stages
def compiled(target, BM=128, BN=128, BK=64, num_warps=4, **options):
    args = (a, b, torch.empty(256, 256), 256, 256, 256, *b.stride(), BM, BN, BK)
    kernel = compile_for(dot_kernel, target, args, num_warps=num_warps, **options)
    return lesson.resources(kernel)


SHOWN = ("sm_80", "sm_90", "gfx942")
stages = {n: {t: compiled(t, num_stages=n) for t in SHOWN} for n in (1, 2, 3, 4)}
fits = {t: "too large" if stages[4][t].over_budget else "fits" for t in SHOWN}
guess.reveal(
    sm_80=fits["sm_80"],
    sm_90=fits["sm_90"],
    gfx942=fits["gfx942"],
    because="4 × 32 on sm_90, 3 × 32 on the others: more than the 64 of gfx942.",
)
lesson.table(
    {
        n: {t: found.shared // 1024 for t, found in row.items()}
        for n, row in stages.items()
    },
    first="num_stages",
    note="KiB of shared memory or LDS of a program",
)

# %% [markdown] stages explained
# From two on, one stage more costs 32 KiB everywhere. But `sm_90` keeps `num_stages` copies, since wgmma reads shared
# memory while the next blocks arrive; `sm_80` and AMD keep one less, since what is being multiplied is in registers.
# AMD's advice is `num_stages=2` for one product ([ROCm, optimising
# Triton](https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/workload.html)). On `gfx942`
# three fit, and leave room for one program; two leave room for two. A configuration that is too large compiles, and
# fails when it is loaded.
#
# ## 8. Knobs of AMD
#
# | knob | what it asks for |
# |---|---|
# | `matrix_instr_nonkdim` | MFMA of 16 × 16 or of 32 × 32 |
# | `kpack` | how many numbers along K a lane reads from the LDS at once (gfx942; ignored on gfx950) |
# | `waves_per_eu` | registers so few that this many waves fit on a SIMD |
#
# Each of them changes the listing. NVIDIA's newer chips have knobs of their own: `num_ctas` (programs in a cluster,
# from `sm_90` on), `maxnreg` (lesson 04), tensor descriptors (section 3), and *warp specialisation*, `tl.range(...,
# warp_specialize=True)`: some warps load while others multiply. AMD's compiler gets a like effect by *ping-pong*: two
# waves on a SIMD take turns at loading and multiplying (`s_setprio` in the listing).

# %% guess nonkdim
guess = predict(
    "05.nonkdim",
    "v_mfma_f32_32x32x8_f16 does 32 × 32 × 8 products, 16x16x16 does 16 × 16 × 16. "
    "How many times as many of the small ones does a tile need?",
    times=lesson.number("times as many"),
)

# %% nonkdim
TILE = {"BM": 128, "BN": 128, "BK": 64, "num_stages": 2}
rows = {}
for size in (32, 16):
    for pack in (1, 2):
        options = {"matrix_instr_nonkdim": size, "kpack": pack}
        names = found("gfx942", b, ("mfma", "ds_read"), **TILE, **options)
        rows[f"nonkdim {size}, kpack {pack}"] = {
            "MFMA": ", ".join(f"{t} × {n}" for n, t in names.items() if "mfma" in n),
            "reads of the LDS": ", ".join(
                f"{t} × {n}" for n, t in names.items() if "ds" in n
            ),
        }
counts = [int(row["MFMA"].split(" × ")[0]) for row in rows.values()]
guess.reveal(
    times=counts[2] / counts[0],
    because="32 × 32 × 8 is 8,192 products, 16 × 16 × 16 is 4,096.",
)
lesson.table(rows, first="options")

# %% [markdown] nonkdim explained
# Twice as many small ones. AMD's guide to optimising workloads has 16 × 16 first for MI300X all the same (source: ROCm,
# workload optimisation); the listing cannot show why. Which is faster is a measurement, so both belong into the
# table of configurations. `kpack=2` does not lower the number of reads: `ds_read2st64_b64` brought two separate
# stretches of 8 bytes, `ds_read_b128` brings 16 in a row.

# %% guess waves per eu
guess = predict(
    "05.waves_per_eu",
    "The kernel needs about 200 of 512 registers and half of the LDS, so two waves fit "
    "on a SIMD. waves_per_eu=4 asks for four. What does the compiler do?",
    what=lesson.choice("ignores it", "finds a better way", "spills"),
)

# %% waves per eu
rows = {}
for waves in (0, 2, 3, 4):
    needs = compiled("gfx942", num_stages=2, waves_per_eu=waves)
    rows[waves or "not set"] = {"registers": needs.registers, "spills": needs.spills}
spilt = rows[4]["spills"]
guess.reveal(
    what="spills"
    if spilt
    else "ignores it"
    if rows[4] == rows[2]
    else "finds a better way",
    because="64 sums (16,384 / 256), the blocks on their way, operands and addresses "
    "make 202; of 512 / 4 = 128 the rest does not fit.",
)
lesson.table(rows, first="waves_per_eu")

# %% [markdown] second half
# And the request was vain. A program has 4 waves, one for each SIMD, and half of the LDS that a CU has: two programs
# fit, so two waves on a SIMD, whatever the registers are. Ask which limit is yours (unit 02) before you turn a knob.
# `waves_per_eu` is for kernels that are a *few* registers above a border. Look at the spills each time.
#
# ## 9. The order of the programs
#
# The formula of section 4 counts what programs *load*. Between them and memory is the L2. A strip of A that several
# programs need *at the same time* comes from memory once. Which programs run at the same time? The chip starts them in
# the order of their numbers, as many as it has room for.
#
# Take 8,192 × 8,192 × 8,192 in bf16, tiles of 128 × 128, one program on each SM. There are 64 × 64 tiles. With the
# usual `pid // tiles_n, pid % tiles_n` program 0 takes the first tile of the first row, and so on, row by row.

# %% guess strips
guess = predict(
    "05.strips",
    "The first 132 programs take 132 tiles. How many strips (of A and of B together) "
    "do they need?",
    rows=lesson.number("row by row, 64 tiles in a row"),
    groups=lesson.number("in columns of 8 tiles: 16 full columns and a half"),
)

# %% strips
tiles = torch.cartesian_prod(torch.arange(64), torch.arange(64))  # row by row
# groups of 8 rows; in a group column by column
in_groups = tiles.view(8, 8, 64, 2).transpose(1, 2).reshape(-1, 2)
orders = {"row by row": tiles.numpy(), "groups of 8 rows": in_groups.numpy()}
first = {
    name: len(set(order[:132, 0])) + len(set(order[:132, 1]))
    for name, order in orders.items()
}
guess.reveal(
    rows=first["row by row"],
    groups=first["groups of 8 rows"],
    because="3 rows (two whole, 4 tiles of a third) and all 64 columns; "
    "8 rows and 17 columns.",
)
sizes, tile = (8192, 8192, 8192), (128, 128)
H100 = lesson.L2_OF_TARGET["sm_90"].sizes
traffic = {
    name: lesson.order_traffic(order, sizes, tile, 132, H100.size)
    for name, order in orders.items()
}
lesson.table(
    {
        name: {
            "strips of the first 132": first[name],
            "GB past the L2": found.bytes / 1e9,
            "over the least": found.bytes / found.least,
        }
        for name, found in traffic.items()
    },
    first="order",
)

# %% [markdown] square rounds
# The nearer the tiles of a round are to a square, the fewer strips they need: 132 tiles as 11 × 12 would need 23. The
# kernel is the same, only the arithmetic of `pid` changes. (The figures come from a model of the L2, with rounds of 132
# programs that keep step; `docs/virtual-gpu.md` says what it leaves out.)
#
# ### Eight dies
#
# The CUs of an MI300X are on eight dies, called XCDs. Each die has an L2 of its own, and programs are dealt like
# cards: program $i$ goes to die $i \bmod 8$.

# %% two caches
MI300X = lesson.L2_OF_TARGET["gfx942"].sizes
lesson.table(
    {
        name: {
            "SMs or CUs": int(CHIPS[name].units.value),
            "dies with an L2": cache.parts,
            "MiB of L2 on each": cache.size / cache.parts / 2**20,
        }
        for name, cache in {"H100": H100, "MI300X": MI300X}.items()
    },
    first="chip",
)

# %% guess dies
guess = predict(
    "05.dies",
    "Groups of 8 rows, in a group column by column, 38 programs on each die. Which "
    "tiles of a group does die 0 get, and how many strips does it need?",
    shape=lesson.choice("a square part", "one row", "one column"),
    strips=lesson.number("strips for its first 38 tiles"),
)

# %% dies
order = orders["groups of 8 rows"]
on_die_0 = order[:304][torch.arange(304) % 8 == 0]
rows_of, columns_of = (set(on_die_0[:, side].tolist()) for side in (0, 1))
guess.reveal(
    shape="one row" if len(rows_of) == 1 else "a square part",
    strips=len(rows_of) + len(columns_of),
    because="program i has row i mod 8 of its group: die 0 gets row 0 of 38 columns.",
)
odd = torch.cartesian_prod(torch.arange(61), torch.arange(67))
walks = {name: (order, sizes) for name, order in orders.items()}
walks["row by row, 61 × 67 tiles"] = odd, (61 * 128, 67 * 128, 8192)
rows = {}
for name, (order, shape) in walks.items():
    past = lesson.order_traffic(order, shape, tile, 304, MI300X.size, dies=8)
    rows[name] = {
        "GB past the L2s": past.bytes / 1e9,
        "over the least": past.bytes / past.least,
    }
lesson.table(rows, first="order, on an MI300X")

# %% [markdown] remap
# The order that was good for one L2 gives each of eight L2s a row of its own, and the strips of B are fetched eight
# times. (Row by row looks well here by luck: 64 tiles in a row are a multiple of 8, so that each die owns eight
# columns. With 61 × 67 tiles it is worse than the groups: the last row.) The cure is to
# renumber first: let the programs of *one die* walk through neighbouring tiles, and then group. Which tiles should
# programs 0, 8, 16, ... take? (Lab: 05.grouped_order.) Behind the L2s an MI300X has an Infinity Cache that all dies
# share, which softens this; the L2s still wait for it.
#
# Try sizes, tiles and orders, with the strips that are needed at one time:

# %% explore tiles
explore("tiles")

# %% [markdown] end of the third sitting
# **You have** the pipeline, AMD's knobs with their effect in the listing, and an order for one cache or for eight. In
# the lab: 05.grouped_order. Next: sizes that do not fill the chip.

# %% third sitting ends
lesson.sitting("05", 3)

# %% [markdown] rounds
# # Sitting 4: a full chip
#
# ## 10. The last round
#
# Programs come and go in rounds (NVIDIA's guides say *waves*, and *wave quantization* for what follows). Counted here
# with one program on a unit; where more fit, they share its matrix units. 64 × 64 tiles on the SMs of an H100, 132 at a
# time, are 31 full rounds and 4 tiles more: a 32nd round, in which nearly all SMs have nothing to do. With many rounds
# that hardly counts. With few it does.

# %% guess last round
guess = predict(
    "05.last_round",
    "A product with 140 tiles, 132 at a time, each the same time. Which share of the "
    "SMs' time is used?",
    share=lesson.number("share", unit="%", factor=1.03),
)

# %% last round
share = 100 * 140 / (2 * 132)
guess.reveal(share=share, because="two rounds have room for 264 tiles: 140 / 264.")
UNITS = {"H100": 132, "MI300X": 304}
lesson.bars(
    {
        f"{tiles:,} tiles": {
            name: 100 * tiles / (triton.cdiv(tiles, units) * units)
            for name, units in UNITS.items()
        }
        for tiles in (132, 140, 304, 310, 600, 1024, 4096)
    },
    "% of the units' time",
)

# %% the products of GPT-2
tiles = {
    f"{name}, N = {N:,}": 8192 // 128 * N // 128
    for name, N in {"QKV": 2304, "out": 768, "MLP in": 3072, "logits": 50304}.items()
}
lesson.table(
    {
        name: {"tiles": n}
        | {chip: 100 * n / (triton.cdiv(n, u) * u) for chip, u in UNITS.items()}
        for name, n in tiles.items()
    },
    first="8,192 tokens, 128 × 128",
    note="% of the units' time",
)

# %% [markdown] persistent
# A saw, and real products meet it: of GPT-2's own, with 8,192 tokens, two waste a third and a sixth of an MI300X. What
# helps?
#
# - **Other tiles**: smaller ones fill the last round better, and cost traffic (section 4).
# - **Persistent programs**: launch exactly as many programs as there are units, and let each walk over tiles `pid`,
#   `pid + units`, ... The saw stays. But a program that goes on to its next tile can load ahead while it stores the
#   last one, and it is launched once. It is also the frame for what follows. (Lab: 05.persistent.)
# - **Split K**: cut the work of a tile.
#
# ## 11. Split K
#
# In decoding, a language model multiplies a few rows by a large matrix: M = 16, N = 4,096, K = 4,096. With tiles of
# 16 × 128 that are 32 programs, on a chip with 132 units. Nothing is left to cut but K: `splits` programs work on the
# same tile, each on a part of K, and their sums must be added up.

# %% guess split
guess = predict(
    "05.split",
    "32 tiles of 64 blocks of K, 132 programs at a time, one on an SM. How many blocks "
    "must the longest SM do, one after another, with 4 splits and with 5?",
    four=lesson.number("4 splits"),
    five=lesson.number("5 splits"),
)

# %% split
tiles, blocks, room = 4096 // 128, 4096 // 64, 132
longest = {
    n: triton.cdiv(n * tiles, room) * triton.cdiv(blocks, n) for n in (1, 2, 4, 5, 8)
}
guess.reveal(
    four=longest[4],
    five=longest[5],
    because="4 × 32 = 128 programs are one round of 16; 160 are two rounds of 13.",
)
weights = 4096 * 4096 * 2
lesson.table(
    {
        n: {
            "programs": n * tiles,
            "blocks, the longest SM": steps,
            "bytes of partial sums / of weights": f"{n * 2**19 / weights:.0%}",
        }
        for n, steps in longest.items()
    },
    first="splits",
)

# %% [markdown] split explained
# (With M = 16 the product is bound by memory: about 16 FLOPs for each byte. The splits are wanted for loads that are on
# their way from every SM, not for FLOPs. Then several programs fit on an SM, 5 and 8 splits start at once, and the
# staircase is gone: measure.) Adding up is what lesson 04 showed for column sums: atomics on a float32
# result that begins with zeros, in any order; or partial results and a second kernel, with the same bits each time. A
# bias, an activation and the rounding to bf16 come *after* the sum, not in each split. (Lab: 05.split_k.)
#
# **Stream-K** goes one step further. Count all blocks of K of all tiles in one long line, `tiles * K / BK` of them, and
# give each of the 132 programs an equal stretch of it. At its ends a program shares a tile with its neighbour, and
# partial sums are exchanged there.

# %% guess stream
guess = predict(
    "05.stream_k",
    "140 tiles with 64 blocks of K each, on 132 programs. How many blocks has the "
    "longest stretch? How much of the SMs' time is used?",
    blocks=lesson.number("blocks of K"),
    share=lesson.number("share", unit="%", factor=1.02),
)

# %% stream
blocks = 140 * 64
longest = triton.cdiv(blocks, 132)
guess.reveal(
    blocks=longest,
    share=100 * blocks / (132 * longest),
    because="8,960 / 132 is 67.9; two rounds of whole tiles are 128 blocks.",
)
stretches = [range(p * blocks // 132, (p + 1) * blocks // 132) for p in range(132)]
owners = [{p for p, one in enumerate(stretches) if k in one} for k in range(blocks)]
shared = sum(len(set().union(*owners[t * 64 : t * 64 + 64])) > 1 for t in range(140))
lesson.table(
    {
        "": {"whole tiles": 2 * 64, "stream-K": longest},
        "SMs' time used": {
            "whole tiles": f"{140 / 264:.0%}",
            "stream-K": f"{blocks / (132 * longest):.1%}",
        },
        "tiles that are shared": {"whole tiles": 0, "stream-K": shared},
    },
    first="blocks of K, the longest program",
)

# %% [markdown] stream source
# The time is even, and nearly every tile pays an exchange. So one usually does the full rounds by whole tiles and gives
# only the last one or two to stream-K.
# (Osama et al., [Stream-K](https://arxiv.org/abs/2301.03598), 2023. Units that are not equally fast, and the exchange
# itself, make it less than ideal; the order of section 9 is harder to keep.)

# %% [markdown] choose
# ## 12. A space of configurations for each vendor
#
# Put the parts together. A configuration is good for a chip if
#
# 1. its stages fit into shared memory or LDS (section 7),
# 2. its accumulator leaves registers for the operands (section 4), with no spill,
# 3. its waves are right for the instruction: wgmma wants 4 warps and BM of 64 or more,
# 4. there are tiles enough to fill the chip, or K is split (sections 10, 11).
#
# What an autotuner tries should hold only such ones, and different ones: sizes of products differ.

# %% guess space
guess = predict(
    "05.space",
    "128 × 256 × 64, fp16, 8 waves, num_stages = 3: on which targets is it right, "
    "fitting and without spills?",
    sm_90=lesson.yes_no("sm_90"),
    gfx942=lesson.yes_no("gfx942"),
    gfx950=lesson.yes_no("gfx950"),
)

# %% space
right, rows = {}, {}
for target in ("sm_90", "gfx942", "gfx950"):
    for n in (2, 3):
        needs = compiled(target, 128, 256, 64, num_warps=8, num_stages=n)
        right[target, n] = not needs.over_budget and not needs.spills
        rows[f"{target}, {n} stages"] = {
            "KiB": needs.shared // 1024,
            "registers": needs.registers,
            "spills": needs.spills,
            "right": right[target, n],
        }
guess.reveal(
    sm_90=right["sm_90", 3],
    gfx942=right["gfx942", 3],
    gfx950=right["gfx950", 3],
    because="A and B of a stage take 48 (in KiB); sm_90 keeps three, AMD two: 96.",
)
lesson.table(rows, first="target")

# %% [markdown] space explained
# (On `sm_90` two stages take as much as one, 128 KiB and not 96: the float32 sums go out through shared memory, 16 KiB
# for each of 8 warps.) On `gfx942` two stages are the most for such a tile. So one table for both vendors either wastes
# the H100 or does not load on the MI300X. (Lab: 05.autotune.)
#
# With a real GPU the next cell times rungs against `torch.matmul`, which calls cuBLAS or hipBLASLt. (Two traps of such
# races: a chip holds its clock for zeros and lowers it for random numbers, so the *data* matters; and the peaks of data
# sheets assume a clock that few chips hold under full load.) The lab races your own.

# %% race the rungs
n = 4096 if torch.cuda.is_available() else 256
a, b = (torch.randn(n, n, dtype=torch.bfloat16) for _ in range(2))
rungs = {
    "64 × 64": lambda a, b: dot(a, b, out=a.dtype),
    "128 × 128": lambda a, b: dot(
        a, b, 128, 128, 64, out=a.dtype, num_warps=8, num_stages=2
    ),
}
lesson.table(
    lesson.raced(
        rungs,
        a,
        b,
        torch=torch.matmul,
        bytes=3 * 2 * n * n,
        flops=2 * n**3,
        dtype="bf16",
    ),
    first="rung",
)

# %% [markdown] summary
# ## Summary
#
# - $2 M N K$ FLOPs; n / 3 FLOPs for each byte at best. `tl.dot` becomes mma.sync, wgmma, tcgen05, MFMA or WMMA.
# - A tile of BM × BN loads $2 M N K (1/BM + 1/BN)$ bytes and holds BM BN sums in the registers of its lanes. Waves of
#   64 have room for twice the sums, H100s for three times the shared memory.
# - Operands go through shared memory. Turning B costs no more reads on `sm_80`, permutations or many small reads on
#   `gfx942`, one special read on `gfx950`.
# - Masks along M and N protect memory; the mask along K protects the numbers.
# - Keep sums in float32, round once. The default precision of float32 products differs from chip to chip.
# - `num_stages` is shared memory; `waves_per_eu` is registers; look at spills and at what fits.
# - Rounds of programs should be square for the L2, and on an MI300X square on each die.
# - The last round, persistent programs, split K, stream-K: ways to keep all units busy.
# - What the epilogue does costs no byte of the result.
#
# ## Read next
#
# - [Triton's tutorial on matrix
#   multiplication](https://triton-lang.org/main/getting-started/tutorials/03-matrix-multiplication.html) and on
#   persistent products.
# - [Stream-K](https://arxiv.org/abs/2301.03598).
# - [ROCm, workload
#   optimisation](https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/workload.html): the
#   knobs of section 8.
# - [DeepGEMM](https://github.com/deepseek-ai/DeepGEMM): FP8 products on Hopper (unit 08 needs its idea).
#
# ## Check yourself
#
# Answer first, then open.
#
# <details><summary>A tile of 128 × 64 with 4 waves: how many sums has a lane on sm_90, and on gfx942?</summary>
#
# 8,192 / 128 = 64 and 8,192 / 256 = 32.
# </details>
#
# <details><summary>Your product is right for K = 1,024 and wrong for K = 1,000. Where do you look?</summary>
#
# At the mask along K, and at its `other=0.0`.
# </details>
#
# <details><summary>300 tiles where 304 run at a time, then 310 tiles. What happens to the time?</summary>
#
# It doubles, nearly: the 310 need a second round for six tiles.
# </details>
#
# <details><summary>Why does split-K with bf16 atomics lose precision, where one with float32 atomics does
# not?</summary>
#
# Each atomic rounds the running sum to bf16. The sum must be kept in float32 and be rounded once.
# </details>
#
# **You have** one product, from a tile to a full chip. Now open [lab 05](../labs/05_triton_matmul.ipynb).

# %% fourth sitting ends
lesson.sitting("05", 4)
