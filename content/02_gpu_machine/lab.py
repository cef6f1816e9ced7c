# %% [markdown] top
# # Lab 02: kernels held to their counters
#
# **Eight exercises.** In four of them you write or repair a kernel, and counters decide: bytes moved, bank conflicts,
# instructions issued, units filled. They are exact, on any machine, and every limit follows from a rule of lesson 02.
# The other four end in a decision: is this layout free of conflicts, which launch, which tile, which chip?
#
# - **First**: lesson 02. Everything that is asked here is explained there.
# - **Time**: three hours, on any machine. Kernels are compiled for both vendors and executed on virtual GPUs.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it. A check runs
#   the public cases and three fresh ones, and says what differs. `hint("02.coalesce")` gives three hints of growing
#   strength. `solution("02.coalesce")` asks first.
# - **C++**: 02.transpose and 02.converge are answered in CUDA-style C++, the others in Python and Triton. The compiler
#   is clang, from the extra `hip`: start the course once with `W2W_EXTRAS=hip ./w2w study`. Without it a check of these
#   two can grade only sources of which the course has a stored listing, and says so.
#
# A *wave* is a warp (NVIDIA, 32 lanes) or a wavefront (AMD: 64 lanes on CDNA, 32 on RDNA). Rounding a whole number `n`
# up to a multiple of `g` is `(n + g - 1) // g * g`; dividing and rounding up is `(n + g - 1) // g`, or `-(-n // g)`.

# %% imports tags=["setup"]
from collections.abc import Mapping, Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils import check, compile_for, hint, progress, solution, virtual_gpu
from gpu_utils.lesson import TARGETS, resources

# %% [markdown] a wasteful kernel
# ## 02.coalesce: a right kernel that moves too much
#
# Rotary embedding turns pairs of neighbours. With $a = x_{t,2i}$ and $b = x_{t,2i+1}$:
#
# $$ \text{out}_{t,2i} = a \cos_{t,i} - b \sin_{t,i}, \qquad \text{out}_{t,2i+1} = a \sin_{t,i} + b \cos_{t,i} $$
#
# Here is a kernel as one writes it first. It is right. Run it, and look at what it moves: x and the result have 8 bytes
# a pair, cos and sin 4 each, so 24 bytes a pair would do.


# %% the kernel as it is
@triton.jit
def as_given_kernel(x_ptr, cos_ptr, sin_ptr, out_ptr, pairs, BLOCK: tl.constexpr):
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = pair < pairs
    a = tl.load(x_ptr + 2 * pair, mask=mask)
    b = tl.load(x_ptr + 2 * pair + 1, mask=mask)
    cos = tl.load(cos_ptr + pair, mask=mask)
    sin = tl.load(sin_ptr + pair, mask=mask)
    tl.store(out_ptr + 2 * pair, a * cos - b * sin, mask=mask)
    tl.store(out_ptr + 2 * pair + 1, a * sin + b * cos, mask=mask)


for target in ("sm_80", "gfx942"):
    x, cos, sin = torch.randn(32, 64), torch.randn(32, 32), torch.randn(32, 32)
    with virtual_gpu(target) as gpu:
        as_given_kernel[(4,)](x, cos, sin, torch.empty_like(x), 1024, BLOCK=256)
    counted = gpu.counters.totals()
    moved = counted["global_load_sectors"] + counted["global_store_sectors"]
    print(f"{target}: {moved * counted['sector_bytes'] / 1024:.0f} bytes a pair")

# %% [markdown] statement of coalesce
# ### Repair it: 02.coalesce
#
# Write `coalesce(x, cos, sin)`, which launches a kernel of your own with the same result and moves every byte once.
#
# | | |
# |---|---|
# | `x` | float32, shape (tokens, d), contiguous; d is even |
# | `cos`, `sin` | float32, shape (tokens, d / 2), contiguous: pair `p` of `x`, counted over all rows, has angle `p` |
# | result | float32, shape (tokens, d), a new tensor |
#
# **Limits.** `global_load_bytes`: each value is asked for once, 16 bytes a pair. `global_moved_bytes`: where the pairs
# are a multiple of 64, so that every tensor ends where a transaction ends, loads and stores together move 24 bytes a
# pair, on `sm_80` and on `gfx942`.
#
# **Triton that helps.** Offsets of two dimensions: lesson 02, section 3, *Data in pairs*. `tl.split` takes a block of
# shape (BLOCK, 2) apart into two of (BLOCK,), and `tl.join` is its inverse (`help(tl.join)`). `mask[:, None]` has shape
# (BLOCK, 1).
#
# **A small example.** One token, d = 2: x = (3, 4), cos = 0, sin = 1 gives (-4, 3). `hint("02.coalesce")` gives three
# hints.


# %% 02.coalesce tags=["answer", "02.coalesce"]
@triton.jit
def rotate_kernel(x_ptr, cos_ptr, sin_ptr, out_ptr, pairs, BLOCK: tl.constexpr):
    # BEGIN SOLUTION
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = pair < pairs
    both = 2 * pair[:, None] + tl.arange(0, 2)[None, :]
    a, b = tl.split(tl.load(x_ptr + both, mask=mask[:, None]))
    cos = tl.load(cos_ptr + pair, mask=mask)
    sin = tl.load(sin_ptr + pair, mask=mask)
    turned = tl.join(a * cos - b * sin, a * sin + b * cos)
    tl.store(out_ptr + both, turned, mask=mask[:, None])
    # END SOLUTION


def coalesce(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Every pair (x[t, 2i], x[t, 2i + 1]) turned by its angle; each byte moves once."""
    # BEGIN SOLUTION
    out = torch.empty_like(x)
    pairs = x.numel() // 2
    rotate_kernel[(triton.cdiv(pairs, 256),)](x, cos, sin, out, pairs, BLOCK=256)
    return out
    # END SOLUTION


# %% tags=["check"]
check("02.coalesce")

# %% [markdown] why coalesce
# **Why it matters.** Interleaved data is everywhere: complex numbers, pairs of keys and values, gate and value of a
# gated MLP, pixels. A cache may hide a load with gaps from memory, but each load still asks for twice the sectors;
# another distribution of the same data over the lanes does not. Note what did *not* change: not one operation on
# values.

# %% [markdown] statement of bank_conflicts
# ## 02.bank_conflicts: is a layout free of conflicts?
#
# The next exercise needs a layout of shared memory in which no access waits. Write the rule of lesson 02, section 4,
# as a function that judges one access of one wave, for lanes that read within one word each. It is served in
# **groups** of `banks` lanes, in lane order. Return the **extra** cycles: those beyond one for each group with an
# active lane.
#
# | | |
# |---|---|
# | `addresses` | byte offset of each lane in shared memory; `None` where it is off |
# | `banks` | 32, or 64 where gfx950 reads 4 bytes a lane; so a wavefront is two groups of 32 or one of 64 |
# | result | int, extra cycles of the whole access |
#
# **A small example** with 4 banks and 8 lanes, so two groups. Their words, and where they lie:
#
# ```text
#                    group 0           group 1
# lanes              0   1   2   3     4   5   6   7
# addresses          0  16  32   4     8  10   8  24
# words              0   4   8   1     2   2   2   6
# banks              0   0   0   1     2   2   2   2
# cycles             3                 2                   5 cycles, of which 5 - 2 = 3 are extra
# ```
#
# Word 2 goes to three lanes at once, also to lane 5, which wants its upper half. `hint("02.bank_conflicts")` gives
# three hints.


# %% 02.bank_conflicts tags=["answer", "02.bank_conflicts"]
def bank_conflicts(addresses: Sequence[int | None], banks: int) -> int:
    """Extra cycles of one shared-memory read of a wave.

    >>> bank_conflicts([0, 16, 32, 4, 8, 10, 8, 24], banks=4)
    3
    """
    # BEGIN SOLUTION
    extra = 0
    for start in range(0, len(addresses), banks):
        group = addresses[start : start + banks]
        words = {address // 4 for address in group if address is not None}
        if words:
            in_bank = [word % banks for word in words]
            extra += max(in_bank.count(bank) for bank in range(banks)) - 1
    return extra
    # END SOLUTION


# %% tags=["check"]
check("02.bank_conflicts")

# %% [markdown] why bank_conflicts
# **Use it** before you write the next kernel, to judge layouts of a tile of 32 x 32. `place(r, c)` says at which word
# element (r, c) lies. A warp reads a column; a wavefront of a block of 32 x 8 threads reads two, and lanes 32 to 63
# take the one to the right.


# %% judge layouts
def judge(place):
    """Prints the extra cycles of the worst read of columns on each target."""
    for target, banks, columns in (
        ("sm_80", 32, 1),
        ("gfx942", 32, 2),
        ("gfx950", 64, 2),
    ):
        worst = 0
        for left in range(0, 32, columns):
            lanes = [(r, left + at) for at in range(columns) for r in range(32)]
            worst = max(
                worst, bank_conflicts([4 * place(r, c) for r, c in lanes], banks)
            )
        print(f"{target}: {worst}")


# When your function passes, take the `#` of the next line away; then try your own.
# judge(lambda r, c: 32 * r + c)

# %% [markdown] statement of transpose
# ## 02.transpose: a transpose without conflicts
#
# Write the body of the C++ kernel `transpose`, with a tile in shared memory: `out[c][r] = in[r][c]`. It must be free of
# conflicts on `sm_80`, `gfx942` and `gfx1100`, where 32 banks serve 32 lanes at a time, *and* on `gfx950`, where reads
# of 4 bytes go to 64 banks, 64 lanes at a time.
#
# **Given** `in` of shape (`rows`, `columns`), contiguous float32, both sizes multiples of 32; a block of 32 x 8 threads
# for each tile of 32 x 32, `blockIdx.x` counting tiles along the columns of `in` and `blockIdx.y` along its rows. So
# each thread moves four elements, and thread (`threadIdx.x`, `threadIdx.y`) is lane `threadIdx.x` of a warp, or one of
# two such rows of a wavefront.
#
# **Limits**, on all four targets. `global_moved_bytes`: 8 bytes an element, 4 read and 4 written. `bank_conflicts`: 0.
# And the check watches shared memory: where a wave reads what another wave has written, a barrier must stand between.
#
# **A small example**, still wrong, of where an element of a tile may lie: rows of 4 words on 4 banks, every second row
# turned round, as at the end of lesson 02, section 4. Element (r, c) lies at word 4 * r + c in even rows and
# 4 * r + 3 - c in odd ones, and a column visits banks 0, 3, 0, 3. Find a rule for 32 words of which `judge` says
# 0, 0, 0.
#
# What you have: `threadIdx`, `blockIdx`, `__shared__`, `__syncthreads()`. `hint("02.transpose")` gives three hints.


# %% 02.transpose tags=["answer", "02.transpose"]
def transpose() -> str:
    """C++ of transpose(in, out, rows, columns): through shared memory, no conflict."""
    return """
// INSERT gpu_utils/exercises/u02_gpu_machine/transpose.cu
"""


# %% tags=["check"]
check("02.transpose")

# %% [markdown] why transpose
# **Why it matters.** Every matrix product feeds its matrix instructions from tiles in shared memory that are written in
# one order and read in another. The layout that you have found is what compilers call a *swizzle*: Triton picks one for
# each target, and when it cannot, `bank_conflicts` is where it shows.

# %% [markdown] statement of converge
# ## 02.converge: fewer instructions for the same sum
#
# A block adds up its values in shared memory, as a tree. This loop is right, and it makes nearly every wave work in
# every step:
#
# ```cpp
# for (int step = 1; step < blockDim.x; step *= 2) {
#   if (threadIdx.x % (2 * step) == 0) sums[threadIdx.x] += sums[threadIdx.x + step];
#   __syncthreads();
# }
# ```
#
# Write `fold(float *sums)` in C++, with the same result and no more instructions on shared memory than the additions
# need: **a step of $n$ additions is the work of $\lceil n / 32 \rceil$ warps**, each with two loads and a store. (On
# wavefronts of 64 fewer are needed; the limit is the one of warps.)
#
# **Given** blocks of 64 to 1024 threads, a power of two, in one dimension; `sums` in shared memory with one value for
# each thread, all of them written before. After the call `sums[0]` holds the sum; the rest may be anything.
#
# **Limits**, on `sm_80`, `gfx942` and `gfx1100`. `shared_accesses`: wave instructions on shared memory. For 256 threads
# the steps have 128, 64, 32, 16 ... 1 additions: $4 + 2 + 1 + 1 + 1 + 1 + 1 + 1 = 12$ warps, so $3 \cdot 12$, plus 8 to
# store the values before and 1 to read the result: 45 a block. (The loop above: 150 on `sm_80`.) `bank_conflicts`: 0.
# `barriers`: every thread of the block reaches them. `shared_atomics`: one lane a warp at most.
#
# **A small example**: eight values 1 to 8 are 36, whichever tree adds them. `hint("02.converge")` gives three hints.


# %% 02.converge tags=["answer", "02.converge"]
def converge() -> str:
    """C++ of block_sum(x, out), whose fold(sums) keeps active threads together."""
    return """
// INSERT gpu_utils/exercises/u02_gpu_machine/converge.cu
"""


# %% tags=["check"]
check("02.converge")

# %% [markdown] why converge
# **Why it matters.** A wave with one lane on issues as much as a full one. `thread % n`, with a small `n`, puts one
# lane into every wave; `thread < n` puts all of them into a few and lets the others jump. The same thought sorts tokens
# by length and experts by load. (This repair is as old as CUDA: M. Harris, *Optimizing parallel reduction in CUDA*,
# steps 1 to 3.)

# %% [markdown] statement of occupancy
# ## 02.occupancy: which launch keeps most waves on a unit?
#
# A kernel can often be launched in several ways: larger tiles with more registers, fewer warps with more shared memory.
# You are given some launches and a target. For each launch work out how many blocks one SM, CU (gfx1100: WGP) holds at
# a time, and what forbids one more; then decide which launch keeps most **waves** there. `t = TARGETS[target]` has the
# figures: `waves_per_unit`, `simds`, `registers` (of a lane, in one part), `granule`, `shared_per_unit`,
# `shared_per_block`, `shared_granule`, `shared_reserved`, `blocks_per_unit`.
#
# | | |
# |---|---|
# | `launches` | list of dicts: `registers` of a lane, `shared_bytes` and `num_warps` of a block |
# | `target` | `"sm_80"`, `"sm_89"`, `"sm_90"`, `"gfx942"`, `"gfx950"` or `"gfx1100"` |
# | `"blocks"` in the result | list: for each launch, blocks that fit on one unit; 0 when one alone asks for too much |
# | `"limited_by"` | list: for each launch, a list of **all** resources that allow no more, in any order |
# | `"most_waves"` | int: number of the launch with most waves on the unit, the first of equals |
#
# The resources are `"waves"` (slots), `"registers"`, `"shared memory"` and `"blocks"` (slots, NVIDIA only: AMD's never
# run out first). Count each on its own: registers as if there were any number of slots. Shared memory of 0 bytes, with
# what the system adds, does not count at all.
#
# **A small example.** 128 registers, 40,000 bytes, 8 warps on `sm_90`: wave slots allow 8 blocks, registers 2, shared
# memory 5, block slots 32. So 2 blocks, limited by registers: 16 waves. With 64 registers they would be 4 blocks and 32
# waves. On AMD the check compiles a kernel with exactly these registers, and asks LLVM how many waves fit on a SIMD.
# `hint("02.occupancy")` gives three hints.


# %% 02.occupancy tags=["answer", "02.occupancy"]
def occupancy(launches: Sequence[Mapping[str, int]], target: str) -> dict:
    """Blocks of each launch on one unit, what limits them, who keeps most waves.

    >>> tile = {"registers": 128, "shared_bytes": 40_000, "num_warps": 8}
    >>> occupancy([tile, {**tile, "registers": 64}], "sm_90")
    {'blocks': [2, 4], 'limited_by': [['registers'], ['registers']], 'most_waves': 1}
    """
    t = TARGETS[target]
    # BEGIN SOLUTION
    blocks, limited_by, waves = [], [], []
    for launch in launches:
        registers = -(-launch["registers"] // t.granule) * t.granule
        warps = launch["num_warps"]
        allowed = {
            "waves": t.waves_per_unit // warps,
            "registers": t.registers // registers * t.simds // warps,
        }
        asked = launch["shared_bytes"] + t.shared_reserved
        if launch["shared_bytes"] > t.shared_per_block:
            allowed["shared memory"] = 0
        elif asked:
            shared = -(-asked // t.shared_granule) * t.shared_granule
            allowed["shared memory"] = t.shared_per_unit // shared
        if t.vendor == "nvidia":
            allowed["blocks"] = t.blocks_per_unit
        fewest = min(allowed.values())
        blocks.append(fewest)
        limited_by.append([name for name, count in allowed.items() if count == fewest])
        waves.append(fewest * warps)
    best = waves.index(max(waves))
    return {"blocks": blocks, "limited_by": limited_by, "most_waves": best}
    # END SOLUTION


# %% tags=["check"]
check("02.occupancy")

# %% [markdown] why occupancy
# **Why it matters.** `limited_by` is a list of things worth changing. A kernel at 40 registers and one at 33 keep as
# many warps, and one at 32 a third more: savings between two steps are worth nothing. And the compiler tells you half
# of it: LLVM's `; Occupancy` knows registers and slots, not what a launch asks for in LDS.

# %% [markdown] statement of sized_reduction
# ## 02.sized_reduction: a launch made for the chip
#
# The sum of a long vector. One program for each tile would be thousands of programs, each with its own reduction and a
# last round in which most of the chip idles. Write it the other way round: launch **exactly as many programs as the
# chip holds at once**, and let each walk through the vector.
#
# How many that are, nobody tells you: it follows from the registers that the compiler gives *your* kernel, and they
# change with the tile, with the warps and with the target. So the launch asks the compiler, and then your
# 02.occupancy.
#
# | | |
# |---|---|
# | `x` | float32, shape (n,), contiguous; small whole numbers, so that their sum is exact in any order |
# | `units` | SMs or CUs of an imagined chip: like the ones of `target`, but few |
# | `BLOCK`, `num_warps` | values of a tile, and warps of a program: take both as they come |
# | `target` | `"sm_80"` or `"gfx942"`: where it runs |
# | result | float32, shape (programs,): program `p` sums tiles `p`, `p + programs`, `p + 2 * programs` ... |
#
# **Limits**, on `sm_80` and `gfx942`:
#
# - `units_filled` equals `units`: the blocks that you launch over those that fit on one unit, by your kernel's own
#   registers. With more, some wait for a second round; with fewer, a unit has less to do while it waits.
# - `global_load_bytes`, 4 a value: each is read once. `waves_of_a_block`: `num_warps`.
#
# **What helps.** `resources(compile_for(kernel, target, args, BLOCK=..., num_warps=...))` of lesson 02, section 5, has
# `registers` and `shared`. `args` are those of the launch: pointers (any tensor of that type will do) and numbers.
# Numbers count, too: where 16 does not divide `n`, Triton makes another kernel. A check takes your `occupancy` along if
# you call it here.
#
# **A small example.** 2 units of `sm_80`, programs of 8 warps. If a lane of your kernel takes 40 registers, 512 // 40 =
# 12 warps fit on a part, 48 on the unit, and 2 * 6 programs are right. If it takes 32, 2 * 8 are.
# `hint("02.sized_reduction")` gives three hints.


# %% 02.sized_reduction tags=["answer", "02.sized_reduction"]
@triton.jit
def partial_sums_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    # BEGIN SOLUTION
    program, programs = tl.program_id(0), tl.num_programs(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(program * BLOCK, n, programs * BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(out_ptr + program, tl.sum(total, 0))
    # END SOLUTION


def sized_reduction(
    x: Tensor, units: int, BLOCK: int, num_warps: int, target: str
) -> Tensor:
    """Partial sums of x, from as many programs as `units` SMs or CUs hold at a time."""
    # BEGIN SOLUTION
    shape = {"BLOCK": BLOCK, "num_warps": num_warps}
    compiled = compile_for(partial_sums_kernel, target, (x, x, len(x)), **shape)
    programs = units * resources(compiled).occupancy.blocks
    partial = torch.empty(programs, device=x.device)
    partial_sums_kernel[(programs,)](x, partial, len(x), **shape)
    return partial
    # END SOLUTION


# %% tags=["check"]
check("02.sized_reduction")

# %% [markdown] why sized_reduction
# **Why it matters.** Such *persistent* launches are how fast reductions, matrix products (unit 05) and communication
# kernels (unit 11) are written: the launch fits the machine, the loop fits the data. Triton's own tutorial on a fused
# softmax asks its kernel for its registers in the same way before it launches.

# %% [markdown] statement of best_tile
# ## 02.best_tile: which tile, and what bounds it?
#
# $C = A\,B$ with $A$ of shape (M, K), $B$ of shape (K, N), $C$ of shape (M, N), 2 bytes a value. Each program computes
# one tile of $C$ from a strip of rows of $A$ and a strip of columns of $B$, sums in registers, and stores its tile
# once.
#
# ```text
#                        B  (K, N)
#                      +----+----+----+
#                      |    | ## |    |    the strip of columns that program (1, 1) loads
#        A  (M, K)     +----+----+----+
#      +----------+    +----+----+----+
#      |          |    |    |    |    |
#      +----------+    +----+----+----+
#      |##########|    |    | ## |    |    its tile of C
#      +----------+    +----+----+----+
# ```
#
# You have candidates. A program has 256 lanes, which share the float32 sums of a tile; a lane may keep **128** of them.
# Of the tiles that fit, choose the one that moves the fewest bytes when no cache keeps anything from one program to the
# next. Then say what bounds that product on a given chip: memory, or arithmetic.
#
# | | |
# |---|---|
# | `M`, `N`, `K` | int; sizes need not be multiples of a tile. Masked loads and stores move nothing |
# | `tiles` | list of `[block_m, block_n]`; one fits at least |
# | `tflops`, `tb_per_s` | peak and bandwidth of the chip, T = $10^{12}$ |
# | `"tile"` in the result | int, number of the tile; the first of equals |
# | `"bytes"` | int, bytes that all programs together read of A and B and write of C |
# | `"bound"` | `"memory"` where these bytes take longer than the $2\,MNK$ FLOP, else `"compute"` |
#
# **A small example.** M = 4, N = 6, K = 5 and a tile of 2 x 3: four programs, each of which reads 2 · 5 values of A and
# 5 · 3 of B and writes 6: 124 values, 248 bytes, for 240 FLOP: about one for each byte. `hint("02.best_tile")` gives
# three hints.


# %% 02.best_tile tags=["answer", "02.best_tile"]
def best_tile(
    M: int,
    N: int,
    K: int,
    tiles: Sequence[Sequence[int]],
    tflops: float,
    tb_per_s: float,
) -> dict[str, int | str]:
    """The tile that fits and moves fewest bytes, its bytes, what bounds the product.

    >>> best_tile(4, 6, 5, [[1, 1], [2, 3], [400, 400]], tflops=16.0, tb_per_s=2.0)
    {'tile': 1, 'bytes': 248, 'bound': 'memory'}
    """
    # BEGIN SOLUTION
    found = []
    for number, (block_m, block_n) in enumerate(tiles):
        if block_m * block_n <= 256 * 128:
            rows_of_tiles, columns_of_tiles = -(-M // block_m), -(-N // block_n)
            moved = 2 * (columns_of_tiles * M * K + rows_of_tiles * K * N + M * N)
            found.append((moved, number))
    moved, tile = min(found)
    slower = moved / tb_per_s > 2 * M * N * K / tflops
    return {"tile": tile, "bytes": moved, "bound": "memory" if slower else "compute"}
    # END SOLUTION


# %% tags=["check"]
check("02.best_tile")

# %% [markdown] why best_tile
# **Why it matters.** The tile is the one number of a matmul that decides its traffic, and registers decide the tile.
# With your function you can see that no tile that fits makes an H100 compute-bound without help from the L2. Unit 05
# chooses tiles and orders with this in mind, and counts the bytes on the virtual GPU.

# %% [markdown] statement of serve
# ## 02.serve: which batch fits, and which chip to take?
#
# A model decodes: one step makes one token for each sequence of a batch. For every token and every layer it keeps in
# the cache what attention needs again:
#
# - **MHA, GQA, MQA**: a key and a value of `head_dim` numbers for each of the `kv_heads` heads. In MHA `kv_heads`
#   equals `heads`, in MQA it is 1.
# - **MLA**: one latent vector of `latent` numbers, from which keys and values of all heads follow, and
#   `rope` numbers of the rotated key, shared by all heads.
#
# All sequences have `context` tokens. The batch is the largest that fits beside the weights. A step reads the weights
# once and the cache of every sequence, and does 2 FLOP for each parameter and sequence (the FLOP of attention, the
# activations and what a runtime keeps for itself are left out). It takes at least as long as its bytes take, and at
# least as long as its FLOP take; both go on at the same time.
#
# | | |
# |---|---|
# | `model` | dict: `layers`, `heads`, `head_dim`, `parameters`, and `kv_heads` or (MLA) `latent` and `rope` |
# | `context` | tokens of each sequence |
# | `cache_bytes`, `weight_bytes` | bytes of one value in the cache, and of one parameter: 2 for bf16, 1 for FP8 |
# | `chips` | list of dicts: `memory_gb` (of $10^9$ bytes), `tb_per_s`, `tflops` (T = $10^{12}$) |
# | `"batch"` in the result | list: largest batch on each chip; 0 where not even one sequence fits |
# | `"tokens_per_s"` | list: the most tokens that all sequences together can get in a second; 0.0 for no batch |
# | `"take"` | int: number of the chip with most tokens a second, the first of equals |
#
# **A small example.** 2 layers, 4 heads, 2 of them with keys and values, `head_dim` 8, 1000 parameters, everything in 2
# bytes. A token keeps 64 numbers, 128 bytes; a sequence of 10 takes 1280. In 0.00001 GB, 10,000 bytes, the weights
# leave 8000: six sequences. A step reads 2000 + 6 · 1280 = 9680 bytes: 9.68 ns at 1 TB/s, so at most 6 / 9.68 ns tokens
# a second, about 620 million. `hint("02.serve")` gives three hints.


# %% 02.serve tags=["answer", "02.serve"]
def serve(
    model: Mapping[str, int],
    context: int,
    cache_bytes: int,
    weight_bytes: int,
    chips: Sequence[Mapping[str, float]],
) -> dict:
    """Largest batch and most tokens a second on each chip, and the chip to take.

    >>> toy = {"layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 8}
    >>> toy["parameters"] = 1000
    >>> chip = {"memory_gb": 0.00001, "tb_per_s": 1.0, "tflops": 100.0}
    >>> plan = serve(toy, context=10, cache_bytes=2, weight_bytes=2, chips=[chip])
    >>> plan["batch"], round(plan["tokens_per_s"][0] / 1e6), plan["take"]
    ([6], 620, 0)
    """
    # BEGIN SOLUTION
    m, mla = model, "latent" in model
    values = m["latent"] + m["rope"] if mla else 2 * m["kv_heads"] * m["head_dim"]
    sequence = model["layers"] * values * cache_bytes * context
    weights = model["parameters"] * weight_bytes
    batches, rates = [], []
    for chip in chips:
        batch = max(0, round(chip["memory_gb"] * 10**9) - weights) // sequence
        traffic = (weights + batch * sequence) / (chip["tb_per_s"] * 1e12)
        arithmetic = 2 * model["parameters"] * batch / (chip["tflops"] * 1e12)
        batches.append(batch)
        rates.append(batch / max(traffic, arithmetic))
    return {"batch": batches, "tokens_per_s": rates, "take": rates.index(max(rates))}
    # END SOLUTION


# %% tags=["check"]
check("02.serve")

# %% [markdown] why serve
# **Why it matters.** In decoding, the batch is what makes the weights worth reading, and the cache is what limits the
# batch. So bytes a token are throughput: a quarter of the key-value heads is room for four times the sequences. Where
# memory differs by more than a factor of two between chips, the same model runs at quite different speeds, whatever
# the peaks say.

# %% [markdown] where you stand
# ## Where you stand
#
# You have written four kernels whose cost you could work out before they ran, and made four decisions that most people
# make by trying. Unit 03 takes code that was written for one of the two machines to the other.

# %% progress
progress()
