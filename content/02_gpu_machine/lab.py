# %% [markdown] top
# # Lab 02: what an instruction, a block and a byte cost
#
# Nine small models of a GPU, each a few lines of Python: what one memory instruction costs, what a branch costs, how
# many blocks fit, how fast a kernel can be at best, and what fits into memory. They are the pencil that you will hold
# for the rest of the course: count first, then measure.
#
# - **First**: lesson 02. Everything that is asked here is explained there, and its explorers draw it.
# - **Time**: about two hours for nine exercises, on any machine. No GPU is used. The check of 02.occupancy_amd compiles
#   kernels for AMD targets with Triton and asks LLVM.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it. A check runs
#   the public cases and three fresh ones, and says what differs. `hint("02.transactions")` gives three hints of growing
#   strength. `solution("02.transactions")` asks first.
#
# A *wave* is a warp (NVIDIA, 32 lanes) or a wavefront (AMD: 64 lanes on CDNA, 32 on RDNA). Rounding a whole number `n`
# up to a multiple of `g` is `(n + g - 1) // g * g`; dividing and rounding up is `(n + g - 1) // g`, or `-(-n // g)`.

# %% imports tags=["setup"]
from collections.abc import Sequence

from gpu_utils import check, hint, progress, solution
from gpu_utils.lesson import TARGETS

# %% [markdown] statement of transactions
# ## 02.transactions: one access to global memory
#
# Each lane of a wave reads `access_bytes` bytes from its own address. The memory system moves whole **aligned
# segments**: segment $k$ holds the bytes $k \cdot \text{segment}$ to $(k + 1) \cdot \text{segment} - 1$. The access
# costs one transaction for each **distinct** segment in which any byte of any active lane lies.
#
# | | |
# |---|---|
# | `addresses` | byte address of each lane, in lane order; `None` where a mask has switched the lane off |
# | `access_bytes` | bytes that each lane reads, 4 to 16; never more than a segment |
# | `segment` | bytes: 32 on NVIDIA (a sector), 64 on gfx90a, 128 on gfx942 and gfx1100 (a line of the L1) |
# | result | int, number of transactions; 0 when all lanes are off |
#
# **A small example.** Five lanes read 4 bytes each, with segments of 32. Lane 3 is off, lane 4 begins in one segment
# and ends in the next:
#
# ```text
# addresses = [0, 4, 8, None, 62]
#
# byte     0               32              64              96
#          |-- segment 0 --|-- segment 1 --|-- segment 2 --|
# lanes    0 1 2                          4 4
# touched        yes             yes             yes           3 transactions
# ```
#
# Such a lane is possible on AMD, where an access need not be aligned to its own size. `hint("02.transactions")` gives
# three hints.


# %% 02.transactions tags=["answer", "02.transactions"]
def transactions(addresses: Sequence[int | None], access_bytes: int, segment: int) -> int:
    """Distinct aligned segments that one access of a wave touches.

    >>> transactions([0, 4, 8, None, 62], 4, 32)
    3
    """
    # BEGIN SOLUTION
    touched = set()
    for address in addresses:
        if address is not None:
            touched.add(address // segment)
            touched.add((address + access_bytes - 1) // segment)
    return len(touched)
    # END SOLUTION


# %% tags=["check"]
check("02.transactions")

# %% [markdown] why transactions
# **Why it matters.** Your first kernels were held to this number: `global_sectors_per_ideal` in lab 00 is transactions
# over the least that the same bytes need. A column of a row-major matrix costs a warp 32 sectors of 32 bytes for 128
# bytes of use, and a wavefront on gfx942 64 lines of 128 bytes for 256. No cache setting repairs that; another order of
# lanes does.

# %% [markdown] statement of bank_conflicts
# ## 02.bank_conflicts: one access to shared memory
#
# Shared memory (LDS on AMD) is split into `banks` banks. Word $w$, the bytes $4w$ to $4w + 3$, lies in bank
# $w \bmod \text{banks}$. Each lane's access lies within one word. Lanes are served in **groups** of `banks` lanes, in
# lane order, one group after the other. Within a group each bank hands out **one word a cycle**, to all lanes that want
# that word. So a group with an active lane takes as many cycles as the bank that is asked for most *different words*;
# a group with no active lane takes none.
#
# Return the **extra** cycles: those beyond one for each group with an active lane. This is what the counter
# `bank_conflicts` of a virtual GPU says.
#
# | | |
# |---|---|
# | `addresses` | byte offset of each lane in shared memory; `None` where it is off |
# | `banks` | 32, or 64 on gfx950; a warp is one group, a wavefront two groups of 32 or one of 64 |
# | result | int, extra cycles of the whole access |
#
# **A small example** with 4 banks and 8 lanes, so two groups:
#
# ```text
#                    group 0           group 1
# lanes              0   1   2   3     4   5   6   7
# addresses          0  16  32   4     8  10   8  24
# word = address//4  0   4   8   1     2   2   2   6
# bank = word % 4    0   0   0   1     2   2   2   2
# different words    bank 0: 0, 4, 8   bank 2: 2, 6
# cycles             3                 2                   5 cycles, of which 5 - 2 = 3 are extra
# ```
#
# Word 2 goes to three lanes at once, also to lane 5, which wants its upper half. `hint("02.bank_conflicts")` gives
# three hints.


# %% 02.bank_conflicts tags=["answer", "02.bank_conflicts"]
def bank_conflicts(addresses: Sequence[int | None], banks: int) -> int:
    """Extra cycles of one shared-memory access of a wave.

    >>> bank_conflicts([0, 16, 32, 4, 8, 10, 8, 24], banks=4)
    3
    """
    # BEGIN SOLUTION
    extra = 0
    for start in range(0, len(addresses), banks):
        words = {address // 4 for address in addresses[start : start + banks] if address is not None}
        if words:
            in_bank = [word % banks for word in words]
            extra += max(in_bank.count(bank) for bank in range(banks)) - 1
    return extra
    # END SOLUTION


# %% tags=["check"]
check("02.bank_conflicts")

# %% [markdown] why bank_conflicts
# **Why it matters.** A 32 x 32 tile that is written by rows and read by columns is the transpose of unit 04. Until its
# rows are one word longer, reading a column takes a warp 32 cycles instead of one. The same padding helps on both
# vendors; how much is left you can now work out for 32 lanes on 32 banks, 64 on 32, and 64 on 64.

# %% [markdown] statement of divergence
# ## 02.divergence: what a branch costs
#
# A block's threads are cut into waves of `width` lanes, in order. At a branch each thread takes one path. A wave
# **issues** all instructions of every path that at least one of its lanes takes, one path after the other, and jumps
# over the others. While a path runs, the lanes that are not on it are switched off: in each instruction their **slot**
# is lost.
#
# | | |
# |---|---|
# | `paths` | for each thread of the block the number of its path, 0, 1, 2 ...; `None` when it has returned before |
# | `instructions` | list; `instructions[p]` is the length of path `p`, 0 for an `if` without `else` |
# | `width` | lanes of a wave: 32 or 64 |
# | result | `{"issued": int, "lost": int}`: instructions issued by all waves, lane slots lost |
#
# A wave always has `width` lanes: those of threads that have returned, and those beyond the end of the block in the
# last wave, are lost in every instruction that their wave issues. A wave with nobody left issues nothing.
#
# **A small example.** Four threads, waves of 4, `paths = [0, 0, 1, None]`, `instructions = [10, 4]`:
#
# ```text
# lane          0   1   2   3
# path 0, x10   on  on  .   .      10 issued, 2 lanes off: 20 slots lost
# path 1, x4    .   .   on  .       4 issued, 3 lanes off: 12 slots lost
# ```
#
# The answer is `{"issued": 14, "lost": 32}`. `hint("02.divergence")` gives three hints.


# %% 02.divergence tags=["answer", "02.divergence"]
def divergence(paths: Sequence[int | None], instructions: Sequence[int], width: int) -> dict[str, int]:
    """Instructions issued and lane slots lost when a block runs a branch in waves of `width` lanes.

    >>> divergence([0, 0, 1, None], [10, 4], width=4)
    {'issued': 14, 'lost': 32}
    """
    # BEGIN SOLUTION
    issued = lost = 0
    for start in range(0, len(paths), width):
        wave = list(paths[start : start + width])
        for path, length in enumerate(instructions):
            lanes = wave.count(path)
            if lanes:
                issued += length
                lost += length * (width - lanes)
    return {"issued": issued, "lost": lost}
    # END SOLUTION


# %% tags=["check"]
check("02.divergence")

# %% [markdown] why divergence
# **Why it matters.** Code that was tuned for warps gives work to groups of 32 threads. On a wavefront of 64, two such
# groups share a program counter: each waits while the other runs. Nothing is wrong, no test fails, and half of the
# lanes idle. Unit 03 shows code for which it is worse than slow.

# %% [markdown] statement of occupancy_nvidia
# ## 02.occupancy_nvidia: how many blocks an SM holds
#
# A block is on an SM as a whole or not at all. Four resources each allow some number of blocks:
#
# - `"warps"`: an SM has `t.waves_per_unit` warp slots, where `t = TARGETS[target]`. A block takes `num_warps`.
# - `"registers"`: an SM has `t.simds` parts, and a part has `t.registers` registers for each lane. A warp takes
#   `registers`, rounded up to a multiple of `t.granule`. First whole warps on a part, then all parts together, then
#   whole blocks.
# - `"shared memory"`: an SM has `t.shared_per_unit` bytes. A block takes `shared_bytes` plus `t.shared_reserved`,
#   rounded up to a multiple of `t.shared_granule`.
# - `"blocks"`: an SM takes `t.blocks_per_unit` blocks at most.
#
# Count each resource on its own: the registers as if there were any number of warp slots. The fewest blocks that one of
# them allows is what fits.
#
# | | |
# |---|---|
# | `registers` | of one lane (CUDA: of one thread), at least 1 |
# | `shared_bytes` | shared memory of one block, in bytes |
# | `num_warps` | warps of one block |
# | `target` | `"sm_80"`, `"sm_89"` or `"sm_90"` |
# | `"blocks"` in the result | int, blocks that fit on one SM; 0 when one alone asks for too much |
# | `"limited_by"` | list of **all** names that allow no more than these, in the order above |
# | `"occupancy"` | float, resident warps over warp slots |
#
# **A small example.** 128 registers, 40,000 bytes, 8 warps, `sm_90`. Warps: 64 // 8 = 8 blocks. Registers: 128 is a
# multiple of 8; 512 // 128 = 4 warps on a part, 16 on four parts, 16 // 8 = **2** blocks. Shared memory: 40,000 + 1024
# = 41,024, rounded up to 41,088; 233,472 // 41,088 = 5 blocks. At most 32 blocks. So two blocks, limited by registers:
# 16 of 64 warps. `hint("02.occupancy_nvidia")` gives three hints.


# %% 02.occupancy_nvidia tags=["answer", "02.occupancy_nvidia"]
def occupancy_nvidia(
    registers: int, shared_bytes: int, num_warps: int, target: str
) -> dict[str, int | float | list[str]]:
    """Blocks of a kernel that one SM holds at a time, what limits them, and the share of warp slots in use.

    >>> occupancy_nvidia(128, 40_000, 8, "sm_90")
    {'blocks': 2, 'limited_by': ['registers'], 'occupancy': 0.25}
    """
    t = TARGETS[target]
    # BEGIN SOLUTION
    taken = -(-registers // t.granule) * t.granule
    shared = -(-(shared_bytes + t.shared_reserved) // t.shared_granule) * t.shared_granule
    allowed = {
        "warps": t.waves_per_unit // num_warps,
        "registers": t.registers // taken * t.simds // num_warps,
        "shared memory": t.shared_per_unit // shared,
        "blocks": t.blocks_per_unit,
    }
    blocks = min(allowed.values())
    return {
        "blocks": blocks,
        "limited_by": [name for name, count in allowed.items() if count == blocks],
        "occupancy": blocks * num_warps / t.waves_per_unit,
    }
    # END SOLUTION


# %% tags=["check"]
check("02.occupancy_nvidia")

# %% [markdown] why occupancy_nvidia
# **Why it matters.** `limited_by` is a list of things worth changing. A kernel at 40 registers and one at 33 run with
# the same number of warps, and one at 32 with a third more: savings between two steps are worth nothing. And a high
# occupancy is no aim in itself. It hides latency; a matmul with few warps and much work in flight hides it as well.

# %% [markdown] statement of occupancy_amd
# ## 02.occupancy_amd: the same on a CU, checked by LLVM
#
# The idea is the same, the numbers come from another machine. Again `t = TARGETS[target]`:
#
# - **Registers of a lane.** VGPRs and AGPRs come out of one file. Without AGPRs a lane needs `vgprs` registers; with
#   AGPRs it needs `vgprs` rounded up to a multiple of 4, plus `agprs`. A wave takes this number, rounded up to a
#   multiple of `t.granule`, out of `t.registers` on its SIMD.
# - **`"waves_per_simd"`**: the waves whose registers fit on one SIMD, at most its `t.waves_per_simd` slots. LLVM prints
#   this number as `; Occupancy` into the assembly of every kernel.
# - **Blocks.** A CU has `t.simds` SIMDs, and the waves of a block are spread over them. Three resources:
#   - `"waves"`: a CU has `t.waves_per_unit` wave slots. A block takes `num_waves`.
#   - `"registers"`: waves whose registers fit on a SIMD (here without the limit of the slots), times the SIMDs, in
#     whole blocks.
#   - `"LDS"`: a CU has `t.shared_per_unit` bytes. A block takes `lds_bytes`, rounded up to a multiple of
#     `t.shared_granule`. More than `t.shared_per_block` allows 0 blocks. With 0 bytes LDS does not count at all and is
#     never in `limited_by`.
#
# (A CU also has 16 barriers, one for each block of two waves or more; they never run out before the wave slots. Scalar
# registers do not limit in these cases.)
#
# | | |
# |---|---|
# | `vgprs`, `agprs` | registers of one lane, as LLVM counts them |
# | `lds_bytes` | LDS of one block, in bytes |
# | `num_waves` | wavefronts of one block |
# | `target` | `"gfx90a"`, `"gfx942"`, `"gfx950"`, or `"gfx1100"`, where a WGP of two CUs holds the blocks |
# | result | `{"waves_per_simd": int, "blocks": int, "limited_by": list, "occupancy": float}`, as above |
#
# **A small example.** 68 VGPRs, 20 AGPRs, 20,000 bytes, 4 waves, `gfx942`. 68 is a multiple of 4; 68 + 20 = 88, a
# multiple of 8; 512 // 88 = 5 waves on a SIMD. Waves: 32 // 4 = 8 blocks. Registers: 5 · 4 // 4 = 5 blocks. LDS: 20,000
# becomes 20,480; 65,536 // 20,480 = **3** blocks. So three blocks of 4 waves, limited by LDS: 12 of 32.
#
# The check does not trust anybody's formula for `waves_per_simd`: it compiles a kernel with exactly these registers for
# exactly this target, and reads what LLVM says. `hint("02.occupancy_amd")` gives three hints.


# %% 02.occupancy_amd tags=["answer", "02.occupancy_amd"]
def occupancy_amd(
    vgprs: int, agprs: int, lds_bytes: int, num_waves: int, target: str
) -> dict[str, int | float | list[str]]:
    """Waves that a SIMD and blocks that a CU (gfx1100: a WGP) holds at a time, what limits them, and the occupancy.

    >>> occupancy_amd(68, 20, 20_000, 4, "gfx942")
    {'waves_per_simd': 5, 'blocks': 3, 'limited_by': ['LDS'], 'occupancy': 0.375}
    """
    t = TARGETS[target]
    # BEGIN SOLUTION
    total = -(-vgprs // 4) * 4 + agprs if agprs else vgprs
    fit = t.registers // (-(-total // t.granule) * t.granule)
    allowed = {"waves": t.waves_per_unit // num_waves, "registers": fit * t.simds // num_waves}
    if lds_bytes > t.shared_per_block:
        allowed["LDS"] = 0
    elif lds_bytes:
        allowed["LDS"] = t.shared_per_unit // (-(-lds_bytes // t.shared_granule) * t.shared_granule)
    blocks = min(allowed.values())
    return {
        "waves_per_simd": min(fit, t.waves_per_simd),
        "blocks": blocks,
        "limited_by": [name for name, count in allowed.items() if count == blocks],
        "occupancy": blocks * num_waves / t.waves_per_unit,
    }
    # END SOLUTION


# %% tags=["check"]
check("02.occupancy_amd")

# %% [markdown] why occupancy_amd
# **Why it matters.** Guides and compilers disagree, and the compiler is the one that makes your kernel. In blocks of 16
# registers, a kernel of 68 would hold 6 waves on a SIMD; LLVM plans for 7, as you have just matched. What the chip does
# with that plan only a chip can say: unit 13 reads it from a counter. And the same compiler is silent about LDS: for a
# kernel of Triton, `; Occupancy` can say 4 where only 2 waves fit on a SIMD.

# %% [markdown] statement of attainable
# ## 02.attainable: the roofline
#
# A kernel does `flops` operations and moves `bytes_moved` bytes between memory and the chip. Its **intensity** is FLOP
# per byte. At best the chip computes at its peak, and at best the memory delivers at its bandwidth, both at once:
#
# $$ \text{attainable} = \min(\text{peak},\; \text{intensity} \times \text{bandwidth}), \qquad
# \text{ridge} = \frac{\text{peak}}{\text{bandwidth}} $$
#
# ```text
# FLOP/s        ridge
#   peak |        .------------   compute: more FLOP/s do not exist
#        |      /
#        |    /     memory: only fewer bytes help
#        |  /
#        +-------------------- FLOP per byte
# ```
#
# | | |
# |---|---|
# | `flops`, `bytes_moved` | float; FLOP and bytes of the kernel |
# | `peak_tflops`, `bandwidth_tb` | float; TFLOP/s and TB/s of the chip, T = $10^{12}$ |
# | `"intensity"` | float, FLOP per byte |
# | `"tflops"` | float, attainable TFLOP/s |
# | `"bound"` | `"memory"` left of the ridge, `"compute"` from the ridge on |
# | `"us"` | float, the least time in microseconds |
#
# **A small example.** $8 \cdot 10^9$ FLOP and $2 \cdot 10^9$ bytes: 4 FLOP per byte. On a chip with 16 TFLOP/s and
# 2 TB/s the ridge is at 8, so the kernel is memory-bound at 4 · 2 = 8 TFLOP/s, and takes 1000 microseconds.
# `hint("02.attainable")` gives three hints.


# %% 02.attainable tags=["answer", "02.attainable"]
def attainable(flops: float, bytes_moved: float, peak_tflops: float, bandwidth_tb: float) -> dict[str, float | str]:
    """Intensity, attainable TFLOP/s, what bounds it, and the least time in microseconds.

    >>> attainable(8e9, 2e9, peak_tflops=16.0, bandwidth_tb=2.0)
    {'intensity': 4.0, 'tflops': 8.0, 'bound': 'memory', 'us': 1000.0}
    """
    # BEGIN SOLUTION
    intensity = flops / bytes_moved
    tflops = min(peak_tflops, intensity * bandwidth_tb)
    bound = "memory" if intensity < peak_tflops / bandwidth_tb else "compute"
    return {"intensity": intensity, "tflops": tflops, "bound": bound, "us": flops / tflops / 1e6}
    # END SOLUTION


# %% tags=["check"]
check("02.attainable")

# %% [markdown] why attainable
# **Why it matters.** This is the floor under every time that you will measure. A kernel within a few percent of it is
# done, whatever its occupancy says; a kernel far above it has a reason that can be found. The floor is one line of
# arithmetic and is the same sentence on both vendors.

# %% [markdown] statement of arithmetic_intensity
# ## 02.arithmetic_intensity: GPT-2, operator by operator
#
# For one run of each operator of a GPT-2 (forward), count FLOP and bytes. `batch` sequences get `tokens` new tokens
# each, so $n = \text{batch} \cdot \text{tokens}$ rows go through the model. Every new token attends to `context` tokens
# of its sequence, itself included: `context == tokens` in training and for a prompt, `tokens == 1` when decoding. Each
# tensor crosses the memory bus once, and $d$ is `n_embd`.
#
# | operator | FLOP | reads and writes, in values |
# |---|---|---|
# | `"norm"` | 8 for each of $n\,d$ values | input, weight ($d$), bias ($d$), output |
# | `"qkv"` | linear, $d$ to $3d$ | input ($n$ rows), weights, bias, output ($n$ rows) |
# | `"attention"` | two products, $q k^\top$ and $p\,v$ | $q$ and output ($n$ rows), $k$ and $v$ (all contexts) |
# | `"projection"` | linear, $d$ to $d$ | as `"qkv"` |
# | `"MLP up"` | linear, $d$ to $4d$ | as `"qkv"` |
# | `"GELU"` | 9 for each of $4\,n\,d$ values | input, output |
# | `"MLP down"` | linear, $4d$ to $d$ | as `"qkv"` |
# | `"residual"` | 1 for each of $n\,d$ values | two inputs, one output |
# | `"logits"` | linear, $d$ to `vocab_size`, for all $n$ rows | as `"qkv"`, but no bias |
#
# Attention is fused: its scores are never in memory, and of its FLOP only the two products over all `context` keys
# count, masked or not. A linear layer from $a$ to $b$ takes $2\,n\,a\,b$ FLOP; biases do not count as FLOP. A value
# takes `bytes_per_value` bytes: 2 in bf16, 4 in float32. All arguments are ints. `n_head` is there because a model has
# it: does it change any count?
#
# Return a dict with the nine names, each `{"flops": int, "bytes": int, "intensity": float}`.
#
# **A small example.** GPT-2 decodes one token in bf16 with 1024 tokens of context: attention does
# $2 \cdot 2 \cdot 1024 \cdot 768 = 3{,}145{,}728$ FLOP and moves $2\,(768 + 2 \cdot 1024 \cdot 768 + 768) =
# 3{,}148{,}800$ bytes. That is 0.999 FLOP per byte. `hint("02.arithmetic_intensity")` gives three hints.


# %% 02.arithmetic_intensity tags=["answer", "02.arithmetic_intensity"]
def arithmetic_intensity(
    batch: int, tokens: int, context: int, n_embd: int, n_head: int, vocab_size: int, bytes_per_value: int
) -> dict[str, dict[str, float]]:
    """FLOP, bytes and FLOP per byte of one run of each operator of a GPT-2.

    >>> arithmetic_intensity(1, 1, 1024, 768, 12, 50257, 2)["attention"]["bytes"]
    3148800
    """
    # BEGIN SOLUTION
    n, d = batch * tokens, n_embd

    def linear(a: int, b: int, bias: int) -> tuple[int, int]:
        return 2 * n * a * b, n * a + a * b + bias + n * b

    counted = {
        "norm": (8 * n * d, 2 * n * d + 2 * d),
        "qkv": linear(d, 3 * d, 3 * d),
        "attention": (2 * 2 * n * context * d, 2 * n * d + 2 * batch * context * d),
        "projection": linear(d, d, d),
        "MLP up": linear(d, 4 * d, 4 * d),
        "GELU": (9 * 4 * n * d, 2 * 4 * n * d),
        "MLP down": linear(4 * d, d, d),
        "residual": (n * d, 3 * n * d),
        "logits": linear(d, vocab_size, 0),
    }
    return {
        name: {"flops": flops, "bytes": bytes_per_value * values, "intensity": flops / (bytes_per_value * values)}
        for name, (flops, values) in counted.items()
    }
    # END SOLUTION


# %% tags=["check"]
check("02.arithmetic_intensity")

# %% [markdown] why arithmetic_intensity
# **Why it matters.** The same nine operators stand at quite different places of the roofline in training and in
# decoding. A batch moves the linear layers to the right, because all rows share one reading of the weights. It does not
# move attention: every sequence brings its own keys and values. That is the pressure behind GQA, MLA and the next
# exercise.

# %% [markdown] statement of kv_cache_bytes
# ## 02.kv_cache_bytes: how large the cache is, and what fits
#
# For every token and every layer, decoding keeps what attention needs again:
#
# - **MHA, GQA, MQA** keep a key and a value of `head_dim` numbers for each of the `kv_heads` heads. In MHA `kv_heads`
#   equals `heads`, in MQA it is 1.
# - **MLA** keeps one latent vector of `latent` numbers, from which keys and values of all heads are computed again, and
#   `rope` numbers of the rotated key, shared by all heads.
#
# | | |
# |---|---|
# | `model` | dict: `layers`, `heads`, `head_dim`, `parameters`, and `kv_heads` or (MLA) `latent` and `rope` |
# | `batch`, `context` | sequences, and tokens of each |
# | `cache_bytes`, `weight_bytes` | bytes of one value in the cache, and of one parameter: 2 for bf16, 1 for FP8 |
# | `memory_gb` | memory of the chip in GB, each taken as $10^9$ bytes |
# | `"per_token"` in the result | int, bytes of one token in all layers |
# | `"cache"` | int, bytes of `batch` sequences of `context` tokens |
# | `"largest_batch"` | int, most sequences of `context` tokens that fit beside the weights; 0 when none does |
#
# Activations and what a runtime keeps for itself are left out.
#
# **A small example.** DeepSeek-V3: 61 layers, `latent` 512, `rope` 64, in bf16: $61 \cdot (512 + 64) \cdot 2 =
# 70{,}272$ bytes a token. A toy: 2 layers, 4 heads, 2 of them with keys and values, `head_dim` 8, 1000 parameters,
# everything in 2 bytes. One token takes $2 \cdot 2 \cdot 2 \cdot 8 \cdot 2 = 128$ bytes, a sequence of 10 takes 1280.
# In 0.00001 GB, 10,000 bytes, the weights leave 8000: six sequences. `hint("02.kv_cache_bytes")` gives three hints.


# %% 02.kv_cache_bytes tags=["answer", "02.kv_cache_bytes"]
def kv_cache_bytes(
    model: dict[str, int], batch: int, context: int, cache_bytes: int, weight_bytes: int, memory_gb: float
) -> dict[str, int]:
    """Bytes of the KV cache for a token and for a batch, and the largest batch that fits beside the weights.

    >>> toy = {"layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 8, "parameters": 1000}
    >>> kv_cache_bytes(toy, batch=3, context=10, cache_bytes=2, weight_bytes=2, memory_gb=0.00001)
    {'per_token': 128, 'cache': 3840, 'largest_batch': 6}
    """
    # BEGIN SOLUTION
    is_mla = "latent" in model
    values = model["latent"] + model["rope"] if is_mla else 2 * model["kv_heads"] * model["head_dim"]
    per_token = model["layers"] * values * cache_bytes
    room = round(memory_gb * 10**9) - model["parameters"] * weight_bytes
    return {
        "per_token": per_token,
        "cache": per_token * batch * context,
        "largest_batch": max(0, room) // (per_token * context),
    }
    # END SOLUTION


# %% tags=["check"]
check("02.kv_cache_bytes")

# %% [markdown] why kv_cache_bytes
# **Why it matters.** In decoding, the batch is what makes the linear layers efficient, and the cache is what limits the
# batch. So bytes per token are throughput: a quarter of the key-value heads is room for four times the sequences. Where
# memory differs by more than a factor of two between chips, the same model runs at quite different points of its
# roofline.

# %% [markdown] statement of tile_traffic
# ## 02.tile_traffic: what a tiled product moves
#
# $C = A\,B$ with $A$ of shape (M, K), $B$ of shape (K, N), $C$ of shape (M, N). Each program computes one tile of $C$,
# `block_m` x `block_n`, from a strip of rows of $A$ and a strip of columns of $B$. It walks along K in steps of
# `block_k`, sums in registers, and stores its tile once.
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
#      |          |    |    |    |    |
#      +----------+    +----+----+----+
# ```
#
# How many bytes cross between memory and the chip, when no cache keeps anything from one program to the next? Tiles at
# the edges may be cut off: masked loads and stores move nothing outside of the matrices.
#
# | | |
# |---|---|
# | `M`, `N`, `K`, `block_m`, `block_n`, `block_k` | int; sizes need not be multiples of the blocks |
# | `bytes_per_value` | bytes of one value of A, B and C |
# | `"read_a"`, `"read_b"` in the result | int, bytes that all programs together read of A and of B |
# | `"written"` | int, bytes written of C |
# | `"intensity"` | float, $2\,M N K$ FLOP over all these bytes |
#
# **A small example.** M = 4, N = 6, K = 5, tiles of 2 x 3, one byte a value: 2 rows and 2 columns of tiles. Each
# program reads 2 · 5 = 10 bytes of A and 5 · 3 = 15 of B and writes 6. Four of them read 40 and 60 and write 24; the
# intensity is 240 / 124. `hint("02.tile_traffic")` gives three hints.


# %% 02.tile_traffic tags=["answer", "02.tile_traffic"]
def tile_traffic(
    M: int, N: int, K: int, block_m: int, block_n: int, block_k: int, bytes_per_value: int
) -> dict[str, float]:
    """Bytes that a tiled product reads and writes when no cache helps, and its FLOP per byte.

    >>> tile_traffic(4, 6, 5, 2, 3, 1, bytes_per_value=1)
    {'read_a': 40, 'read_b': 60, 'written': 24, 'intensity': 1.935483870967742}
    """
    # BEGIN SOLUTION
    rows_of_tiles, columns_of_tiles = -(-M // block_m), -(-N // block_n)
    read_a = columns_of_tiles * M * K * bytes_per_value
    read_b = rows_of_tiles * K * N * bytes_per_value
    written = M * N * bytes_per_value
    intensity = 2 * M * N * K / (read_a + read_b + written)
    return {"read_a": read_a, "read_b": read_b, "written": written, "intensity": intensity}
    # END SOLUTION


# %% tags=["check"]
check("02.tile_traffic")

# %% [markdown] why tile_traffic
# **Why it matters.** The tile is the one number of a matmul that decides its traffic, and registers and shared memory
# decide the tile. With square tiles of side $b$ in bf16 the intensity is near $b/2$: compare that with the ridge of
# your chip, and you know how much the L2 has to give. In unit 05 you choose tiles and orders with this in mind, and
# count the bytes on the virtual GPU.

# %% [markdown] where you stand
# ## Where you stand
#
# You can now put a number on an access, a branch, a launch and a model before anything runs. Unit 03 takes code that
# was written for one of the two machines to the other.

# %% progress
progress()
