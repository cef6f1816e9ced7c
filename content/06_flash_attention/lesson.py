# %% [markdown] top
# # 06 FlashAttention, forward, backward and decoding
#
# **Afterwards you can** write attention that never stores its scores, skip what a causal mask hides, derive its
# backward pass and code it, and write the kernels that decode: split over the cache, heads packed into one tile, MLA
# with the absorbed projection, and a cache in pages. All of it on both vendors.
#
# **You need** units 02 (occupancy, GQA, MLA), 04 (online softmax, races) and 05 (tiles, `tl.dot`, split K). No GPU:
# every cell runs on a laptop.
#
# **Time**: four sittings: reading (text and code at 200 words a minute) takes 13, 8, 7 and 13 minutes, all of it with
# the predictions about 40, 25, 25 and 35. All cells together run in a minute and a half on a CPU. Then lab 06.

# %% imports
import torch
import triton
import triton.language as tl

from gpu_utils import CHIPS, compile_for, explore, lesson, predict, virtual_gpu

BOTH, LOG2_E = ("sm_80", "gfx942"), 1.44269504

# %% [markdown] cost
# # Sitting 1: forward
#
# ## 1. What attention moves
#
# For one head, with $N$ positions and vectors of length $D$:
#
# $$ S = \tfrac{1}{\sqrt D}\, Q K^T, \qquad P = \text{softmax}(S) \text{ row by row}, \qquad O = P V $$
#
# $Q$, $K$, $V$ and $O$ have $N D$ numbers each. $S$ and $P$ have $N^2$. Operator by operator, all of them go through
# memory: the product writes $S$, the scaling reads and writes it, the softmax reads it and writes $P$, the second
# product reads $P$.


# %% attention by hand
def attention_by_hand(q, k, v):
    s = (q @ k.T) * q.shape[1] ** -0.5
    return torch.softmax(s, dim=1) @ v


# %% guess bytes
guess = predict(
    "06.bytes",
    "N = 1,024, D = 64, float32. How many numbers do these four operators read and "
    "write, over the N × D of one matrix? (A matrix of N × N counts as 16 of them.)",
    times=lesson.number("times N × D", factor=1.03),
    least=lesson.number("at least: q, k, v in, o out"),
)

# %% bytes
q, k, v = (torch.randn(1024, 64) for _ in range(3))
with lesson.traffic_of_torch() as traffic:
    attention_by_hand(q, k, v)
times = traffic.found.bytes / (4 * q.numel())
guess.reveal(
    times=times,
    least=sum(t.numel() for t in (q, k, v, q)) / q.numel(),
    because="the products: 2 + 16 and 16 + 2; scaling and softmax: 32 each.",
)
lesson.table({"operators": traffic.found.launches, "bytes": traffic.found.bytes})

# %% [markdown] quadratic
# And it grows with $N^2$: with 8,192 positions a matrix of scores has 128 times as many numbers as $Q$. The two
# products are $2 \cdot 2 N^2 D$ FLOPs. Over the least traffic, $4 N D$ numbers of 2 bytes, that is $N / 2$ FLOPs for
# each byte. An H100 wants 295 (N = 590), an MI300X 247 (N = 493; lesson 05). So with many hundred positions attention
# could be bound by arithmetic, if only the scores stayed on the chip. That is the whole idea of FlashAttention.
#
# > **Facts: FlashAttention**
# >
# > - The algorithm computes exact attention in tiles, without storing the matrix of scores, and recomputes it in the
# >   backward pass. (source: Dao et al., [arXiv 2205.14135](https://arxiv.org/abs/2205.14135))
#
# ## 2. A sum that carries a vector
#
# Lesson 04 merged blocks of a row by two numbers, the maximum $m$ and the sum $l$. Attention wants, for a query $q$
# with scores $s_j$,
#
# $$ o = \frac{\sum_j e^{s_j - m}\, v_j}{\sum_j e^{s_j - m}} $$
#
# The denominator is $l$. The numerator is the same sum with a *vector* at each term. It is merged by the same factor:
# when a block brings a higher maximum, the vector so far is multiplied by $e^{m_\text{old} - m_\text{new}}$, exactly
# as $l$ is. Division by $l$ comes once, at the end.

# %% guess merge
guess = predict(
    "06.merge",
    "Scores (0, 0) with values 2 and 4, then a block with one score 1 and the value 8. "
    "e^-1 = 0.37. The numerator after both blocks, and the result?",
    numerator=lesson.number("numerator", factor=1.02),
    result=lesson.number("result", factor=1.02),
)

# %% merge
s, values = torch.tensor([0.0, 0.0, 1.0]), torch.tensor([2.0, 4.0, 8.0])
m = torch.tensor(float("-inf"))
l = total = torch.tensor(0.0)
rows = {}
for block in (slice(0, 2), slice(2, 3)):
    new = torch.maximum(m, s[block].max())
    factor, p = torch.exp(m - new), torch.exp(s[block] - new)
    l, total = l * factor + p.sum(), total * factor + (p * values[block]).sum()
    m = new
    found = {"factor": factor, "m": m, "l": l, "numerator": total}
    rows[f"scores {s[block].tolist()}"] = {name: x.item() for name, x in found.items()}
guess.reveal(
    numerator=total,
    result=total / l,
    because="6 × 0.37 + 8; l is 2 × 0.37 + 1.",
)
lesson.table(rows, first="after")

# %% [markdown] kernel
# ## 3. The kernel
#
# A program owns `BM` rows of $Q$ and goes through $K$ and $V$ in blocks of `BN`. Two products in a loop, and between
# them the merge, row by row. Here for one head, without a mask and with whole blocks:


# %% attention kernel
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, N, scale,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    i, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    q = tl.load(q_ptr + i[:, None] * D + d[None, :])
    m = tl.full([BM], float("-inf"), tl.float32)
    l = tl.zeros([BM], tl.float32)
    total = tl.zeros([BM, D], tl.float32)
    for start in range(0, N, BN):
        n = start + tl.arange(0, BN)
        k = tl.load(k_ptr + n[None, :] * D + d[:, None])  # (D, BN): already turned
        s = tl.dot(q, k) * scale
        new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp(s - new[:, None])
        factor = tl.exp(m - new)
        l = l * factor + tl.sum(p, axis=1)
        v = tl.load(v_ptr + n[:, None] * D + d[None, :])
        total = total * factor[:, None] + tl.dot(p.to(v.dtype), v)
        m = new
    tl.store(o_ptr + i[:, None] * D + d[None, :], total / l[:, None])


def attention(q, k, v, BM=64, BN=64, **options):
    N, D = q.shape
    o = torch.empty_like(q)
    tile = {"D": D, "BM": BM, "BN": BN}
    attention_kernel[(N // BM,)](q, k, v, o, N, D**-0.5, **tile, **options)
    return o


# %% guess loads
guess = predict(
    "06.loads",
    "N = 512, D = 64 in fp16, BM = 64. How often does each number of K and V get "
    "loaded by a program, and how many bytes are stored?",
    loads=lesson.number("times"),
    stores=lesson.number("bytes stored", unit="bytes"),
)

# %% loads
torch.manual_seed(0)
q, k, v = (torch.randn(512, 64).half() for _ in range(3))
exact = attention_by_hand(q.double(), k.double(), v.double())
rows = {}
for target in BOTH:
    with virtual_gpu(target) as gpu:
        o = attention(q, k, v)
    found = gpu.counters.totals()
    rows[target] = {
        "largest error": (o - exact).abs().max().item(),
        "bytes loaded": found["global_load_bytes"],
        "bytes stored": found["global_store_bytes"],
        "matrix FLOPs": found["matrix_flops"],
    }
size = q.numel() * 2
guess.reveal(
    loads=(rows["sm_80"]["bytes loaded"] - size) / (2 * size),
    stores=rows["sm_80"]["bytes stored"],
    because="512 / 64 = 8 programs, each goes through K and V; stored is o alone.",
)
lesson.table(rows, first="target")

# %% [markdown] linear
# Nothing of size $N^2$ is stored. Loads grow with $N^2 / BM$: each block of queries reads all keys. Repeats may come
# from an L2; K and V of this head are 131,072 bytes. An H100 has one L2, an MI300X one for each of eight dies, and
# program $i$ goes to die $i \bmod 8$ (lesson 05).

# %% guess l2
guess = predict(
    "06.l2",
    "These 8 programs: how many times are K and V read past the L2s?",
    one=lesson.number("with one L2"),
    eight=lesson.number("with eight L2s"),
)

# %% l2
past = {}
for target in BOTH:
    with virtual_gpu(target, l2=True) as gpu:
        attention(q, k, v)
    cache = lesson.L2_OF_TARGET[target].sizes
    read = lesson.l2_traffic(gpu.last, cache=cache).read_bytes
    past[cache.parts] = {"readings of K and V": (read - size) / (2 * size)}
guess.reveal(
    one=past[1]["readings of K and V"],
    eight=past[8]["readings of K and V"],
    because="8 programs are on 8 dies, and each die fetches all of K and V.",
)
lesson.table(past, first="number of L2s")

# %% [markdown] heads and dies
# The Infinity Cache softens that. With many heads the cure is free. The grid of a real kernel is `(N / BM, heads ×
# sequences)`: the second program id chooses the head, and strides bring it there (GPT-2's queries are a view into
# (B, N, 3 · H · D)). If the programs are numbered so that all blocks of *one head* go to one die, that head's keys and
# values are fetched once.
#
# > **Facts: heads and dies**
# >
# > - Attention with each head kept on one die is up to 50% faster on an MI300X than conventional orders. (source:
# >   Choudhary et al., with AMD, [arXiv 2511.02132](https://arxiv.org/abs/2511.02132))
#
# Note that `p` is rounded to the type of `v` before the second product: matrix instructions want 16-bit factors. `p` is
# at most 1, because the maximum has been taken away, so fp16 cannot overflow. `l` adds the unrounded `p`.
#
# Now look at the last column of the counters. The work is $4 N^2 D$ = 67,108,864 FLOPs. `sm_80` does just that.
# `gfx942` does half as much again.
#
# ## 4. Each wave its own rows
#
# Softmax runs along a row of scores. If one wave holds whole rows, maximum and sum stay inside of it. Then its scores
# are also the rows of $P$ that the same wave needs for the second product. So Triton deals the *first* of the two
# products by rows: wave 0 gets the first rows, wave 1 the next ones. A matrix instruction has 16 rows on `sm_80`, 32
# here on `gfx942` (`32x32x8`), and 64 for four warps together in Hopper's wgmma. The waves own rows apart only if
#
# $$ BM \ge \text{rows of an instruction} \times \text{waves} $$
#
# With fewer rows the deal begins again at the top: several waves compute the *same* scores. BM = 64 with four waves:

# %% deal
lesson.grid_figure(
    {
        "gfx942: scores, 64 × 64, by wave": [["0, 2", "0, 2"], ["1, 3", "1, 3"]],
        "gfx942: the result of P V, by wave": [["0", "1"], ["2", "3"]],
        "sm_80: both, by warp": [["0"], ["1"], ["2"], ["3"]],
    },
    marked=("0, 2", "1, 3"),
)

# %% guess rows
guess = predict(
    "06.rows",
    "So with BM = 64 and four waves gfx942 does 2 + 1 products where 1 + 1 are needed. "
    "What do 8 waves do, where the result of P V is dealt by 2 × 4 waves? And 8 warps "
    "on sm_80, dealt by rows in both products?",
    gfx942=lesson.number("FLOPs / needed, 8 waves, gfx942"),
    sm_80=lesson.number("FLOPs / needed, 8 warps, sm_80"),
)

# %% rows
ways = {
    "as it was: BM = 64, 4 waves, gfx942": {},
    "8 waves, gfx942": {"num_warps": 8},
    "2 waves, gfx942": {"num_warps": 2},
    "BM = 128, 4 waves, gfx942": {"BM": 128},
    "MFMA of 16 rows, 4 waves, gfx942": {"matrix_instr_nonkdim": 16},
    "BM = 64, 4 warps, sm_80": {},
    "8 warps, sm_80": {"num_warps": 8},
}
rows = {}
for name, options in ways.items():
    with virtual_gpu(name.split(", ")[-1]) as gpu:
        attention(q[:256], k[:256], v[:256], **options)
    found = gpu.counters.totals()
    waves = options.get("num_warps", 4) * 256 // options.get("BM", 64)
    rows[name] = {
        "FLOPs / needed": found["matrix_flops"] / (4 * 256**2 * 64),
        "instructions": found["instructions"],
        "barriers of a wave": found["instructions_barrier"] / waves,
    }
guess.reveal(
    gfx942=rows["8 waves, gfx942"]["FLOPs / needed"],
    sm_80=rows["8 warps, sm_80"]["FLOPs / needed"],
    because="8 × 32 rows are 4 times 64, 4 × 32 columns twice 64: (4 + 2) / 2; and "
    "8 × 16 rows are twice 64, in both.",
)
lesson.table(rows, first="N = 256")

# %% [markdown] rows explained
# The instructions of the same work differ by a factor of four, and nothing in the source changed. Three cures are in
# the table: fewer waves, more rows, an instruction with fewer rows. Where the two products are dealt differently, $P$
# must go through the LDS from one deal to the other: 19 barriers for each wave in place of 9.
#
# How do the scores get from the result of one product into the factor of the next? Count what moves between registers
# and shared memory (LDS) in the listing:

# %% way of p
WORDS = (
    "ds_write_b16",
    "ds_read_u16",
    "v_permlane32_swap",
    "st.shared",
    "shfl",
    "bpermute",
)
rows = {}
for target, options in {
    "sm_80": {},
    "gfx942": {},
    "gfx942, BM = 128": {"BM": 128},
    "gfx950, BM = 128": {"BM": 128},
}.items():
    with virtual_gpu(target.partition(",")[0]) as gpu:
        attention(q[:128], k[:128], v[:128], **options)
    names = [op.mnemonic for op in gpu.last.program.ops]
    rows[target] = {word: sum(word in name for name in names) for word in WORDS}
lesson.table(rows, first="instructions in the listing")

# %% [markdown] way explained
# - `sm_80`: the accumulators of `mma` lie in the lanes where the next `mma` wants its first factor. Two numbers are
#   packed into a register, and nothing moves. The stores to shared memory are those of $Q$ and of the result; `shfl`
#   is the maximum and the sum of a row.
# - `gfx942`, waves that share rows: $P$ goes through the LDS, number by number (`ds_write_b16`, `ds_read_u16`).
# - `gfx942`, each wave its own rows: as on NVIDIA, nothing of $P$ moves. Triton computes the scores transposed there
#   (its intermediate code says `isTransposed = true`), so that neighbours along the keys lie in one lane.
# - `gfx950`, each wave its own rows: nothing of $P$ moves, either. Of its 12 swaps four stand in maximum and sum, where
#   `gfx942` has `ds_bpermute`. The other eight come behind the loop: lanes exchange halves of `o`, so that each can
#   store 16 bytes at once.
#
# ## 5. Cheaper exponentials
#
# > **Facts: two speeds**
# >
# > - An H100 has 989 TFLOP/s of matrix products and 3.9 of special functions such as the exponential. (source: Shah et
# >   al., FlashAttention-3, [arXiv 2407.08608](https://arxiv.org/abs/2407.08608), section 3.2)
#
# A score costs $4 D$ FLOPs of products, and one exponential.

# %% guess share
guess = predict(
    "06.exp_share",
    "The time of the exponentials over that of the products, on an H100?",
    d128=lesson.number("D = 128", factor=1.05),
    d64=lesson.number("D = 64", factor=1.05),
)

# %% share
share = {D: (1 / 3.9) / (4 * D / 989) for D in (128, 64)}
guess.reveal(d128=share[128], d64=share[64], because="(1 / 3.9) / (4 D / 989).")
lesson.table(share, first="D")

# %% [markdown] cheaper
# With D = 64 they take as long as the products! So a kernel must do both at the same time: FlashAttention-3 lets one
# group of warps do softmax while another multiplies. (For an MI300X we found no such figure in AMD's documents.) And
# each exponential should be as cheap as can be.
#
# A GPU has an instruction for $2^x$ and none for $e^x$: `tl.exp` multiplies by $\log_2 e$ first. But a multiplication
# is made already, the scaling of the scores. So multiply the *scale* by $\log_2 e$, once, and use `tl.exp2`. Maximum
# and sum do not mind, as long as everything is in base 2. If somebody wants the logarithm of $l$ in base $e$, multiply
# by $\ln 2$ = 0.693 at the end.


# %% count exponentials
@triton.jit
def exp_kernel(x_ptr, y_ptr, scale, BLOCK: tl.constexpr, BASE_2: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i) * scale
    tl.store(y_ptr + i, tl.exp2(x) if BASE_2 else tl.exp(x))


# %% guess exponentials
guess = predict(
    "06.exp2",
    "64 lanes with 4 numbers each, on sm_80 that are 2 warps: e^(x · scale), and "
    "2^(x · scale). How many vector instructions less has the second there?",
    sm_80=lesson.number("fewer, on sm_80"),
)

# %% exponentials
rows, x = {}, torch.randn(256)
for name, base_2 in {"exp": False, "exp2": True}.items():
    gpus = lesson.launch_on(
        BOTH, exp_kernel, (1,), x, torch.empty(256), 1.0, BLOCK=256,
        BASE_2=base_2, threads=64,
    )  # fmt: skip
    rows[name] = lesson.counted(gpus, "instructions_vector")
guess.reveal(
    sm_80=rows["exp"]["sm_80"] - rows["exp2"]["sm_80"],
    because="one multiplication for each of 4 numbers, in 2 warps.",
)
lesson.table(rows, first="vector instructions")

# %% [markdown] exponentials explained
# `gfx942` saves much more: 25 instructions of one wave. But PTX is not what an NVIDIA chip executes. Look at the
# machine code of `exp` on `sm_80`:

# %% exp in sass
args = (x, torch.empty(256), 1.0)
compiled = compile_for(exp_kernel, "sm_80", args, BLOCK=256, BASE_2=False, num_warps=2)
print(lesson.sass(compiled, "FMUL", "STG.E.128"))

# %% [markdown] guards
# For each number there are four instructions more than with `exp2`, 16 of a warp: the multiplication by $\log_2 e$, a
# comparison with -126, and two guarded multiplications (halve x, square the result). They keep results below the
# smallest normal number. `gfx942` has the same guard, with `v_ldexp_f32` at its end. `exp2` goes without, on both: tiny
# results become 0. In a softmax a term of $10^{-38}$ beside a largest term of 1 does not matter.
#
# **You have** attention without a matrix of scores: two products and a merge in each round, rows that belong to one
# wave, and cheap exponentials. In the lab: 06.online_softmax. Next: what a mask hides.

# %% first sitting ends
lesson.sitting("06", 1)

# %% [markdown] causal
# # Sitting 2: masks and room
#
# ## 6. What a causal mask hides
#
# In a language model position $i$ sees positions $0$ to $i$. In tiles of `BM` × `BN` there are three kinds:
#
# - **full**: all keys lie before all queries, or at them. No mask is needed.
# - **on the diagonal**: some do. Here scores of later keys become $-\infty$ before the maximum.
# - **hidden**: all keys lie behind. The tile is *skipped*: neither loaded nor computed.
#
# So the loop over keys ends early: for a block of queries that begins at row `first`, the last key that matters is
# `first + BM - 1`. And a mask in every tile costs comparisons for nothing. Good kernels have two loops: one over full
# tiles without a mask, one over the tiles on the diagonal. A helper holds what both have in common:


# %% causal kernel
@triton.jit
def one_block(
    q, k_ptr, v_ptr, start, i, m, l, total, scale,
    D: tl.constexpr, BN: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    n, d = start + tl.arange(0, BN), tl.arange(0, D)
    k = tl.load(k_ptr + n[None, :] * D + d[:, None])
    v = tl.load(v_ptr + n[:, None] * D + d[None, :])
    s = tl.dot(q, k) * scale
    if MASK:
        s = tl.where(n[None, :] <= i[:, None], s, float("-inf"))
    new = tl.maximum(m, tl.max(s, axis=1))
    p, factor = tl.exp2(s - new[:, None]), tl.exp2(m - new)
    l = l * factor + tl.sum(p, axis=1)
    return new, l, total * factor[:, None] + tl.dot(p.to(v.dtype), v)


@triton.jit
def causal_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, N, scale,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    SKIP: tl.constexpr, TWO_LOOPS: tl.constexpr,
):  # fmt: skip
    tl.static_assert(BM % BN == 0)  # the diagonal begins at a block of keys
    first = tl.program_id(0) * BM
    i, d = first + tl.arange(0, BM), tl.arange(0, D)
    q = tl.load(q_ptr + i[:, None] * D + d[None, :])
    m = tl.full([BM], float("-inf"), tl.float32)
    l = tl.zeros([BM], tl.float32)
    total = tl.zeros([BM, D], tl.float32)
    end = first + BM if SKIP else N
    whole = first if TWO_LOOPS else 0  # keys before it need no mask
    for start in range(0, whole, BN):
        m, l, total = one_block(
            q, k_ptr, v_ptr, start, i, m, l, total, scale, D, BN, False
        )
    for start in range(whole, end, BN):
        m, l, total = one_block(
            q, k_ptr, v_ptr, start, i, m, l, total, scale, D, BN, True
        )
    tl.store(o_ptr + i[:, None] * D + d[None, :], total / l[:, None])


def causal(q, k, v, SKIP=True, TWO_LOOPS=True, BM=128, BN=64):
    N, D = q.shape
    o = torch.empty_like(q)
    args = (q, k, v, o, N, D**-0.5 * LOG2_E)
    tile = {"D": D, "BM": BM, "BN": BN}
    causal_kernel[(N // BM,)](*args, **tile, SKIP=SKIP, TWO_LOOPS=TWO_LOOPS)
    return o


# %% guess tiles
guess = predict(
    "06.tiles",
    "N = 512, BM = 128, BN = 64: 4 × 8 tiles. How many are computed when hidden ones "
    "are skipped, and how many of those are on the diagonal?",
    computed=lesson.number("computed"),
    diagonal=lesson.number("on the diagonal"),
)

# %% tiles
kinds = {"full": 0, "diagonal": 0, "hidden": 0}
for row in range(0, 512, 128):
    for key in range(0, 512, 64):
        full, hidden = key + 63 <= row, key > row + 127
        kinds["full" if full else "hidden" if hidden else "diagonal"] += 1
guess.reveal(
    computed=kinds["full"] + kinds["diagonal"],
    diagonal=kinds["diagonal"],
    because="2 + 4 + 6 + 8 tiles, and 128 / 64 = 2 of each block of queries.",
)
lesson.table(kinds)

# %% causal in counters
rungs = {
    "mask everywhere": lambda q, k, v: causal(q, k, v, False, False),
    "hidden tiles skipped": lambda q, k, v: causal(q, k, v, True, False),
    "and two loops": causal,
}
lesson.table(lesson.climbed(rungs, BOTH, q, k, v), first="rung")

# %% [markdown] causal explained
# 20 of 32 tiles: 41,943,040 of 67,108,864 FLOPs. Skipping takes away FLOPs, loads and instructions; the second loop
# takes away comparisons only: 5% of the instructions on `sm_80`, 8% on `gfx942`. The more positions, the nearer the
# first gets to one half, and the more of the rest are full tiles.
#
# (`gfx942` moves 458,752 bytes more than `sm_80`. They are not loaded: with MFMA of 32 rows a lane holds four
# neighbours of a row of `o`, so each store touches many lines, and `bytes moved` counts whole lines. A cache that
# collects writes may join them.)
#
# Programs are now unequal: the last block of queries has eight tiles to do, the first two. A chip that gets the long
# ones last waits for them at the end. So kernels start the long ones first, or pair a long with a short one.
#
# With a *sliding window* of W keys the tiles far below the diagonal are hidden, too, and the work grows with $N W$.
# Look where the edges of a window cut tiles:

# %% explore causal
explore("causal")

# %% [markdown] unseen
# ## 7. Rows that have seen nothing
#
# A window brings back a trap of lesson 04. With a window of 100 keys, row i sees i - 99 to i. Suppose the loop begins
# with key 0, as above, and goes through blocks of 64 keys: a row may see nothing of the first blocks. Its maximum stays
# $-\infty$. The same in PyTorch, block by block:


# %% windowed
def windowed(q, k, v, window, BN=64):
    i, n = torch.arange(len(q))[:, None], torch.arange(len(k))[None, :]
    s = q @ k.T * q.shape[1] ** -0.5
    s[(n > i) | (n <= i - window)] = -torch.inf
    m, l, total = torch.full((len(q), 1), -torch.inf), 0.0, 0.0
    for block in s.split(BN, dim=1):
        new = torch.maximum(m, block.max(dim=1, keepdim=True).values)
        p, factor = torch.exp(block - new), torch.exp(m - new)
        values, v = v[: block.shape[1]], v[block.shape[1] :]
        l = l * factor + p.sum(dim=1, keepdim=True)
        total, m = total * factor + p @ values, new
    return total / l


# %% guess window
guess = predict(
    "06.window",
    "512 rows, a window of 100, blocks of 64 keys from key 0 on. Which is the first "
    "row with NaN in its result? And how many rows have some?",
    first=lesson.number("first row with NaN"),
    rows=lesson.number("rows with NaN"),
)

# %% window
o = windowed(q.float(), k.float(), v.float(), window=100)
bad = o.isnan().any(dim=1).nonzero().flatten()
guess.reveal(
    first=bad[0].item(),
    rows=len(bad),
    because="row 163 is the first that sees nothing of keys 0 to 63; later ones, too.",
)
lesson.table({"the first": bad[0].item(), "rows with NaN": len(bad), "of": len(o)})

# %% [markdown] window explained
# `s - new` and `m - new` are both $-\infty - -\infty$, which is NaN, and NaN stays. Two cures, and you want both:
#
# - Begin the loop at the first block that any row of the tile sees. That is also what makes the work linear.
# - A row of that block can still see nothing of it. So never subtract $-\infty$: use `tl.where(new == float("-inf"),
#   0.0, new)` as what is subtracted. Then $e^{-\infty - 0} = 0$: the row adds nothing.
#
# A row that sees nothing *at all* ends with $l = 0$, and 0 / 0. What its result is must be said: in the lab 0, with the
# logarithm $-\infty$.
#
# ## 8. What fits where
#
# In registers: the sums `BM × D`, the scores `BM × BN`, `m`, `l`, often $Q$. In shared memory: blocks of $K$ and $V$,
# times the stages. D = 128 is usual in larger models.

# %% guess registers
guess = predict(
    "06.registers",
    "BM = 128, BN = 64, D = 128 with 4 warps or wavefronts. How many numbers of sums "
    "and scores has a lane, and does it spill?",
    sm_90=lesson.number("numbers, 128 lanes"),
    gfx942=lesson.number("numbers, 256 lanes"),
    spills=lesson.yes_no("spills on gfx1100, 128 lanes"),
)

# %% registers
wide = [torch.randn(128, 128).half() for _ in range(3)]


def tile(BM, BN, targets):
    rung = {f"{BM} × {BN}, 4 waves": lambda q, k, v: attention(q, k, v, BM, BN)}
    return lesson.needs(rung, *wide, targets=targets)


needs = tile(128, 64, ("sm_90", "sm_100", "gfx942", "gfx950", "gfx1100"))
needs |= tile(64, 32, ("gfx1100",))
numbers = 128 * 128 + 128 * 64
guess.reveal(
    sm_90=numbers / 128,
    gfx942=numbers / 256,
    spills=needs["128 × 64, 4 waves, gfx1100"][lesson.SPILLS] > 0,
    because="128 × 128 + 128 × 64 = 24,576, over 4 × 32 or 4 × 64 lanes; gfx1100 has "
    "256 registers a lane, and its WMMA takes both factors twice.",
)
columns = ("registers", lesson.SPILLS, "shared bytes", "occupancy (%)")
lesson.table(
    {name: {column: row[column] for column in columns} for name, row in needs.items()},
    first="tile",
)

# %% [markdown] registers explained
# Half the numbers in a lane are not half the registers. `gfx942` takes 270 for 96 numbers; the listing does not say
# why, but it may: a lane of CDNA has 512. Yet 270 is above 256, so a SIMD holds one such wave, and a CU one program.
# `gfx950` takes 250: two programs. `sm_90` is full at 255, with one program. So on CDNA look at the steps of 512 (256,
# 168, 128), on NVIDIA at 255. On RDNA 3 this tile spills; 64 × 32, a quarter of it, does not. In shared memory it is
# the other way round: `sm_90` takes 131,072 bytes of stages, `gfx942` has 65,536 in all.
#
# A space of configurations for attention therefore has other entries for each vendor:
#
# | | NVIDIA | AMD |
# |---|---|---|
# | `BM`, `BN` | 64 or 128, 32 to 128 | 128 or 256, 32 to 64 |
# | waves | 4, 8 with BM = 128 | 4; 2 with BM = 64 |
# | stages | 2 to 4 | 1 or 2 |
# | more | | `matrix_instr_nonkdim` 16 or 32, `waves_per_eu` 1 to 3 |
#
# (A starting point for tuning, from the rules above: rows of a wave, and what fits. It is not measured on a GPU. With
# two loops BN must divide BM.)
#
# **You have** a mask that saves half of the work, the cure for rows that have seen nothing, and tiles for both vendors.
# In the lab: 06.forward, 06.sliding_window. Next: backward.

# %% second sitting ends
lesson.sitting("06", 2)

# %% [markdown] backward
# # Sitting 3: backward
#
# ## 9. Derive it
#
# $O = P V$, $P = \text{softmax}(S)$, $S = Q K^T / \sqrt D$. The gradient $dO$ comes in. Step by step, from the end:
#
# 1. $O = P V$ is a product: $dV = P^T dO$ and $dP = dO\, V^T$.
# 2. Softmax of a row: $dS_{ij} = P_{ij} \bigl(dP_{ij} - \sum_k P_{ik}\, dP_{ik}\bigr)$. (Softmax does not notice a
#    constant added to the row, so its gradient must sum to 0 along the row. That is what the subtraction does.)
# 3. $S = Q K^T / \sqrt D$: $dQ = dS\, K / \sqrt D$ and $dK = dS^T Q / \sqrt D$.
#
# $P$ is as large as before. It is not stored: from $\text{lse}_i = m_i + \ln l_i$, one number a row (*log-sum-exp*),
# each tile of it comes back as $P_{ij} = e^{S_{ij} - \text{lse}_i}$, final at once, without a merge.
#
# The sum in step 2 runs over a whole row of $P$ and $dP$. Is a pass over all keys needed before anything can begin?
# Put $dP = dO\,V^T$ in, and exchange the sums:
#
# $$ \Delta_i = \sum_k P_{ik}\, dP_{ik} = \sum_k P_{ik} \sum_d dO_{id} V_{kd} = \sum_d dO_{id} \sum_k P_{ik} V_{kd}
#    = \sum_d dO_{id}\, O_{id} $$
#
# One number a row, from two rows that are there. This identity makes the backward pass local: each tile of $dS$ can be
# computed by itself.

# %% guess delta
guess = predict(
    "06.delta",
    "A head of N = 8,192 positions. What forward leaves for backward besides q, k, v "
    "and o: P in bf16, or lse in float32? How many times smaller is lse?",
    of_p=lesson.number("bytes of P", unit="bytes"),
    times=lesson.number("times smaller"),
)


# %% delta
def attention_backward(do, q, k, v, o, lse):
    scale = q.shape[1] ** -0.5
    p = torch.exp(q @ k.T * scale - lse[:, None])
    delta = (do * o).sum(1)
    ds = p * (do @ v.T - delta[:, None])
    return ds @ k * scale, ds.T @ q * scale, p.T @ do


torch.manual_seed(0)
small = [torch.randn(96, 16, dtype=torch.float64, requires_grad=True) for _ in range(3)]
do, o = torch.randn(96, 16, dtype=torch.float64), attention_by_hand(*small)
wanted = torch.autograd.grad(o, small, do)
lse = torch.logsumexp(small[0] @ small[1].T * 0.25, dim=1)
forwards = [x.detach() for x in (do, *small, o, lse)]
grads = attention_backward(*forwards)
N = 8192
guess.reveal(
    of_p=N * N * 2,
    times=N * N * 2 / (N * 4),
    because="N² numbers of 2 bytes, against one of 4 bytes a row: N / 2.",
)
lesson.table(
    {
        name: {"differs from autograd by": (mine - theirs).abs().max().item()}
        for name, mine, theirs in zip(("dq", "dk", "dv"), grads, wanted, strict=True)
    },
    first="gradient",
)

# %% [markdown] five products
# ## 10. Who owns what
#
# Count the products of a tile: $S$ again, $dP$, then $dV$, $dK$, $dQ$.
#
# $dQ$ of a block of queries is a sum over *keys*. $dK$ and $dV$ of a block of keys are sums over *queries*. A program
# can own only one of the two:
#
# - **It owns keys** and loops over queries. `dk` and `dv` stay in registers. But every round adds to the `dq` of
#   somebody: by atomics on a float32 buffer of zeros (in any order, so other bits each time).
# - **Two kernels**: one owns keys and makes `dk` and `dv`, one owns queries and makes `dq`. No atomics, the same bits
#   each time. Both need $S$ and $dP$.

# %% owners
lesson.grid_figure(
    {
        "owns keys: dK, dV of a column": [["", "own", "", ""]] * 4,
        "and adds to dQ of every row": [["", "add", "", ""]] * 4,
        "owns queries: dQ of a row": [[""] * 4, ["own"] * 4, [""] * 4, [""] * 4],
    },
    marked=("own",),
)

# %% [markdown] a sister
# The smallest of the gradients, $dV = P^T dO$, as a kernel that owns keys. `lse` is in base 2 here, as the scores:


# %% dv kernel
@triton.jit
def dv_kernel(
    q_ptr, k_ptr, do_ptr, lse_ptr, dv_ptr, N, scale,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    n, d = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, D)
    k = tl.load(k_ptr + n[None, :] * D + d[:, None])
    dv = tl.zeros([BN, D], tl.float32)
    for start in range(0, N, BM):
        i = start + tl.arange(0, BM)
        at = i[:, None] * D + d[None, :]
        q, do = tl.load(q_ptr + at), tl.load(do_ptr + at)
        p = tl.exp2(tl.dot(q, k) * scale - tl.load(lse_ptr + i)[:, None])
        dv += tl.dot(tl.trans(p.to(do.dtype)), do)
    tl.store(dv_ptr + n[:, None] * D + d[None, :], dv)


def grad_of_v(q, k, do, lse, BM=64, BN=64, **options):
    N, D = q.shape
    dv = torch.empty(N, D)
    args = (q, k, do, lse * LOG2_E, dv, N, D**-0.5 * LOG2_E)
    dv_kernel[(N // BN,)](*args, D=D, BM=BM, BN=BN, **options)
    return dv


# %% dv in counters
torch.manual_seed(0)
q, k, do = (torch.randn(256, 64).half() for _ in range(3))
lse = torch.logsumexp(q.float() @ k.float().T / 8, dim=1)
exact = torch.softmax(q.double() @ k.double().T / 8, dim=1).T @ do.double()
rows = {}
for way, options in {
    "sm_80": {},
    "gfx942": {},
    "gfx942, MFMA of 16 rows": {"matrix_instr_nonkdim": 16},
}.items():
    with virtual_gpu(way.partition(",")[0]) as gpu:
        dv = grad_of_v(q, k, do, lse, **options)
    found = gpu.counters.totals()
    rows[way] = {
        "largest error": (dv - exact).abs().max().item(),
        "bytes stored": found["global_store_bytes"],
        "FLOPs / needed": found["matrix_flops"] / (4 * 256**2 * 64),
    }
lesson.table(rows, first="dV")

# %% [markdown] dv explained
# One product makes $P$ again, one adds to `dv`. The deal of section 4 is back as well, with the same cure. `dk` needs
# two products more, and another `BN × D` sums in registers: backward takes smaller tiles than forward.

# %% guess flops
guess = predict(
    "06.backward_flops",
    "How many times the FLOPs of forward has backward, with one kernel and with two? "
    "And with one, N = 8,192 and BN = 64: how many atomics arrive at a number of dQ?",
    together=lesson.number("times, one kernel"),
    apart=lesson.number("times, two kernels"),
    atomics=lesson.number("atomics at one number"),
)

# %% flops
forward, together, apart = 2, 5, 3 + 4
guess.reveal(
    together=together / forward,
    apart=apart / forward,
    atomics=8192 // 64,
    because="dq needs S, dP and one product; dk and dv need S, dP and two; and each "
    "block of keys adds once.",
)
counts = {"forward": forward, "one kernel": together, "two kernels": apart}
lesson.bars({name: {"products": x} for name, x in counts.items()}, "products of a tile")

# %% [markdown] ownership
# Neither is always better: 40% more FLOPs against atomics of $N D$ numbers for each block of keys. A plain load, add
# and store of `dq` is the third way, and wrong: the race of lesson 04. Where heads share keys (section 13), `dk` and
# `dv` are sums over the heads of the group as well: the loop goes on over them.
#
# With a causal mask the two loops are mirror images. A block of queries sees keys from 0 to its last row. A block of
# keys is seen by queries from its *first* key on, to N: its hidden tiles come first.
#
# ## 11. Which mask protects numbers?
#
# N is not a multiple of a block, so tiles are padded. Where loads are masked, with `other=0.0`, a padded row of Q, K,
# V, dO is 0, and its lse and Δ are 0. Without `other`, what a masked load returns is undefined.

# %% guess padding
guess = predict(
    "06.padding",
    "Pad all matrices with rows of zeros (lse and Δ, too), and mask nothing else. "
    "What comes out wrong in the rows that count?",
    o=lesson.yes_no("forward: o"),
    dq=lesson.yes_no("dq"),
    dk=lesson.yes_no("dk"),
    dv=lesson.yes_no("dv"),
)


# %% padding
def padded(x):
    return torch.cat([x, x.new_zeros(32, *x.shape[1:])])


inputs = [padded(x) for x in forwards]
found = (*attention_backward(*inputs), attention_by_hand(*inputs[1:4]))
right = dict(zip(("dq", "dk", "dv", "o"), (*wanted, o), strict=True))
off = {
    name: (one[:96] - right[name]).abs().max().item()
    for name, one in zip(right, found, strict=True)
}
guess.reveal(
    o=off["o"] > 1e-9,
    dq=off["dq"] > 1e-9,
    dk=off["dk"] > 1e-9,
    dv=off["dv"] > 1e-9,
    because="in forward each padded key adds e to the power of 0 - m to l; in backward "
    "every padded term is multiplied by a 0.",
)
lesson.table({name: {"largest error": x} for name, x in off.items()}, first="")

# %% [markdown] padding explained
# Forward must put $-\infty$ where there is no key. In backward, $P$ of a padded query is 1, not 0, and yet harmless: it
# meets `do` = 0 in dV, and a `dS` of 0 in dK. Rely on that only if *all* loads of padded rows give 0, and nothing there
# is NaN or infinite: $0 \cdot \infty$ is NaN. A padded *key* has the score 0, and where lse is below -88 (large
# negative scores) $e^{0 - \text{lse}}$ is infinite, and dQ becomes NaN. A row that saw nothing has lse = $-\infty$. To
# mask $P$ itself costs one `tl.where`, and is the safe way.
#
# **What is rounded.** $P$ and $dS$ are rounded to 16 bits before their products, as $P$ was in forward. `lse` and `Δ`
# stay in float32: an error of lse multiplies all of its row of $P$. In bf16, lse = 9.02 would be kept as 9.0:

# %% lse in 16 bits
lse = torch.tensor(9.02)
kept = lse.bfloat16().float()
off = torch.exp(lse - kept)
lesson.table({"lse": lse.item(), "in bf16": kept.item(), "P times": off.item()})

# %% [markdown] end of backward
# **You have** the formulas, the identity that makes them local, who owns which gradient, and which masks matter. In the
# lab: 06.backward. Next: one token at a time.

# %% third sitting ends
lesson.sitting("06", 3)

# %% [markdown] decoding
# # Sitting 4: decoding
#
# ## 12. One query
#
# When a model writes, each step has *one* new query per sequence, and a cache of all keys and values so far. FLOPs:
# $4 S D$ for each head with a cache of $S$ positions. Bytes: $2 \cdot 2 S D$ in bf16.

# %% guess intensity
guess = predict(
    "06.intensity",
    "How many FLOPs for each byte, in bf16? What binds a decoding step on an H100 (295 "
    "FLOPs for each byte)?",
    flops=lesson.number("FLOPs for each byte"),
    bound=lesson.choice("memory", "arithmetic", label="bound by"),
)

# %% intensity
S, D = 4096, 128
flops, bytes_read = 4 * S * D, 2 * 2 * S * D
guess.reveal(
    flops=flops / bytes_read,
    bound="memory" if flops / bytes_read < 295 else "arithmetic",
    because="every number of the cache is used once, for one product and one sum.",
)
lesson.table({"FLOPs": flops, "bytes of the cache": bytes_read})

# %% [markdown] memory bound
# So decoding is a kernel of unit 04: read the cache once, at full bandwidth. What stands in the way is that there are
# **too few programs**. One for each sequence and head: 4 sequences with 8 heads of keys are 32, on a chip with 132 or
# 304 units. Each walks through a long cache alone.
#
# The cure is split K by another name. `splits` programs share a cache; each leaves `m`, `l` and its vector; a second
# kernel merges them by the rule of section 2. Two caches, from the first position to the last, by the program that
# reads them:

# %% split caches
lesson.grid_figure(
    {
        "one split: 2 programs": [["0"] * 4, ["1"] * 4],
        "two splits: 4 programs": [["0", "0", "1", "1"], ["2", "2", "3", "3"]],
        "four splits: 8 programs": [["0", "1", "2", "3"], ["4", "5", "6", "7"]],
        "then the merge": [["0"], ["1"]],
    },
    marked=("0",),
)

# %% guess splits
guess = predict(
    "06.splits",
    "32 caches of 4,096 positions in blocks of 64, one program on a unit at a time. "
    "Out of 1, 2, 4, 8, 16 splits: the fewest with which the unit that works longest "
    "has the fewest blocks to do?",
    h100=lesson.number("H100"),
    mi300x=lesson.number("MI300X"),
)

# %% splits
UNITS = {name: CHIPS[name].units.value for name in ("H100", "MI300X")}
longest = {
    name: {n: triton.cdiv(32 * n, units) * 64 // n for n in (1, 2, 4, 8, 16)}
    for name, units in UNITS.items()
}
best = {name: min(blocks, key=blocks.get) for name, blocks in longest.items()}
guess.reveal(
    h100=best["H100"],
    mi300x=best["MI300X"],
    because="4 × 32 = 128 programs are one round of 132, 8 × 32 = 256 are one of 304; "
    "with more there are more rounds of shorter programs.",
)
partial = {n: 100 * 32 * n * 4 * (D + 2) / (32 * bytes_read) for n in longest["H100"]}
lesson.table({**longest, "partial results, % of the caches": partial}, first="splits")

# %% [markdown] splits explained
# The partial results (m, l and a vector in float32) cost next to nothing; the merge is one more launch. A cache of
# another length fills its parts unevenly, and sequences of a batch have different lengths: some parts are *empty*.
# Merge three parts of a row, of which the second saw nothing:


# %% merge of parts
def merged(o, m, l):
    most = m.max()
    factor = torch.exp(m - most)
    return (o * factor[:, None]).sum(0) / (l * factor).sum()


torch.manual_seed(0)
s, values = torch.randn(96), torch.randn(96, 4)
s[32:64] = -torch.inf
parts = s.view(3, 32)
m = parts.amax(1)
p = torch.exp(parts - m[:, None])
l, o = p.sum(1), torch.einsum("pj,pjd->pd", p, values.view(3, 32, 4))
o0, l0 = o.nan_to_num(), l.nan_to_num()  # 0 where a part saw nothing
exact = torch.softmax(s, dim=0) @ values
lesson.table(
    {
        "m, l and o as they come": {"result": merged(o, m, l)},
        "l = 0, o = 0 in the empty part": {"result": merged(o0, m, l0)},
        "softmax of the whole row": {"result": exact},
    },
    first="",
)

# %% [markdown] empty parts
# An empty part must leave $m = -\infty$, $l = 0$ and a vector of zeros: never $e^{-\infty - -\infty}$. The merge takes
# the largest $m$ of all parts. Only if *all* of them are empty it meets the same trap itself. (The order of the parts
# changes nothing but the rounding.)
#
# ## 13. Heads that share keys
#
# Grouped-query attention (GQA) gives several query heads the same keys and values. A program for each *query* head
# loads the same cache several times. A program for each *group* packs its heads into the rows of one tile: the cache is
# loaded once, and the tile has more rows of use in a matrix instruction, which has 16.


# %% decode kernel
@triton.jit
def decode_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, S, scale,
    D: tl.constexpr, BN: tl.constexpr, HEADS: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    row, d = tl.arange(0, 16), tl.arange(0, D)  # 16 rows, of which HEADS are heads
    head = tl.program_id(0) * HEADS + row
    at, mine = head[:, None] * D + d[None, :], row[:, None] < HEADS
    q = tl.load(q_ptr + at, mask=mine, other=0.0)
    cache = (tl.program_id(0) * HEADS // GROUP) * S * D
    k_ptr, v_ptr = k_ptr + cache, v_ptr + cache
    m = tl.full([16], float("-inf"), tl.float32)
    l = tl.zeros([16], tl.float32)
    total = tl.zeros([16, D], tl.float32)
    for start in range(0, S, BN):
        m, l, total = one_block(
            q, k_ptr, v_ptr, start, row, m, l, total, scale, D, BN, False
        )
    tl.store(o_ptr + at, total / l[:, None], mask=mine)


def decode(q, k, v, heads, num_warps=4):
    (H, D), (groups, S, _) = q.shape, k.shape
    o = torch.empty_like(q)
    args = (q, k, v, o, S, D**-0.5 * LOG2_E)
    sizes = {"D": D, "BN": 64, "HEADS": heads, "GROUP": H // groups}
    decode_kernel[(H // heads,)](*args, **sizes, num_warps=num_warps)
    return o


# %% guess packing
guess = predict(
    "06.packing",
    "16 query heads in 4 groups, a cache of 512 positions, D = 64, fp16. Bytes that "
    "programs load of K and V, with a program for each head and for each group?",
    heads=lesson.number("each head", unit="bytes", factor=1.05),
    groups=lesson.number("each group", unit="bytes", factor=1.05),
)

# %% packing
torch.manual_seed(0)
q = torch.randn(16, 64).half()
k, v = (torch.randn(4, 512, 64).half() for _ in range(2))
rungs = {
    "a program for each head": lambda q, k, v: decode(q, k, v, 1),
    "a program for each group": lambda q, k, v: decode(q, k, v, 4),
    "the same, 1 wave": lambda q, k, v: decode(q, k, v, 4, num_warps=1),
}
caches = 2 * k.numel() * 2
guess.reveal(
    heads=4 * caches,
    groups=caches,
    because="2 × 4 × 512 × 64 × 2 bytes; each of the 4 heads of a group loads them.",
)
lesson.table(lesson.climbed(rungs, BOTH, q, k, v, least=caches), first="rung")

# %% [markdown] packing explained
# A quarter of the bytes, of the instructions and of the matrix FLOPs: with one head 15 of the 16 rows multiplied zeros,
# packed 12 of them. On a real GPU the second, third and fourth load of a cache may come from the L2, if the four heads
# run at the same time. Packing does not rely on that.
#
# 16 rows cannot be dealt to four waves (section 4). `sm_80` deals *keys* instead: no FLOP is repeated, but maxima and
# sums go through shared memory, with barriers. `gfx942` repeats: 2.5 times the FLOPs. One wave for each program repeats
# nothing and waits for nobody; then more programs must fill the unit.
#
# With several queries of each head (a short prompt, speculative decoding) packing is as cheap: the heads of a group are
# neighbours, so their queries are one matrix of (heads of a group · queries) rows; row r is query `r % queries`, and
# its causal mask counts from that. With a single query head for each cache there is nothing to pack. Then products and
# sums on the vector units do as well, `tl.sum(q[None, :] * k, axis=1)`: memory is the limit.
#
# ## 14. MLA: a cache that is not keys
#
# DeepSeek's multi-head latent attention stores for each position *one* latent vector $c$ of 512 numbers and a rotary
# part of 64 (the part of a key that is turned by the position, RoPE), for all 128 heads together. The key of head $h$
# is $W^{UK}_h c$, its value $W^{UV}_h c$. Naively one would make all keys and values from the cache, at each step. But
# a score is a scalar product:
#
# $$ q_h \cdot (W^{UK}_h c) = (W^{UK\,T}_h q_h) \cdot c $$
#
# The matrix is *absorbed* into the query, once a step. Then every head attends to the same vectors $c$: it is GQA with
# one group of 128 heads, keys of 512 + 64, and values that *are* the first 512 numbers of the keys. The projection of
# the values is absorbed in the same way, behind the sum: $\sum_j p_j W^{UV}_h c_j = W^{UV}_h \sum_j p_j c_j$. The
# rotary part cannot be absorbed, because it is turned by the position: it stays as it is, 64 numbers more in each
# score.

# %% guess mla
guess = predict(
    "06.mla",
    "Numbers in the cache for a position and layer: 128 heads with keys of 128 + 64 "
    "and values of 128, against MLA's 512 + 64. How many times smaller? And how many "
    "FLOPs for each byte of the latents in bf16, when 128 heads use them (a score is a "
    "product of 576, a value has 512)?",
    times=lesson.number("times smaller", factor=1.02),
    flops=lesson.number("FLOPs for each byte", factor=1.03),
)

# %% mla
full, latent = 128 * (128 + 64 + 128), 512 + 64
mla_flops = 2 * 128 * (576 + 512) / (2 * latent)
guess.reveal(
    times=full / latent,
    flops=mla_flops,
    because="40,960 / 576; 2 × 128 × (576 + 512) FLOPs over 1,152 bytes.",
)
torch.manual_seed(0)
c, q = torch.randn(40, 32, dtype=torch.float64), torch.randn(4, 16, dtype=torch.float64)
w_uk, w_uv = torch.randn(2, 4, 16, 32, dtype=torch.float64)  # 4 heads of 16
keys, values = (torch.einsum("hdc,sc->hsd", w, c) for w in (w_uk, w_uv))
p = torch.softmax(torch.einsum("hd,hsd->hs", q, keys) / 4, dim=1)
naive = torch.einsum("hs,hsd->hd", p, values)
p = torch.softmax(torch.einsum("hd,hdc->hc", q, w_uk) @ c.T / 4, dim=1)
absorbed = torch.einsum("hc,hdc->hd", p @ c, w_uv)
off = (naive - absorbed).abs().max()
print(f"4 heads, 40 positions, both projections absorbed: differs by {off:.1e}")
lesson.table(
    {
        "heads of their own, 1 query head a cache": {"FLOPs for each byte": 1.0},
        "GQA, 8 query heads a cache": {"FLOPs for each byte": 8.0},
        "MLA, 128 heads": {"FLOPs for each byte": mla_flops},
        "MLA, 16 of the 128 heads": {"FLOPs for each byte": mla_flops / 8},
        **{
            f"{name}: peak / bandwidth": {
                "FLOPs for each byte": CHIPS[name].peak("bf16") / CHIPS[name].bandwidth
            }
            for name in ("H100", "MI300X")
        },
    },
    first="bf16",
)

# %% [markdown] mla explained
# > **Facts: MLA**
# >
# > - DeepSeek-V3 has 128 heads, a latent of 512 numbers, keys of 128 and a rotary part of 64, values of 128. (source:
# >   deepseek-ai/DeepSeek-V3, inference/configs/config_671B.json)
# > - With both projections absorbed the result is that of full keys and values, up to rounding. (measured: the cell
# >   above)
#
# It is a bargain, and not free: each score is a product of length 576, not 192. 71 times fewer bytes and 3.4 times the
# FLOPs, (576 + 512) / (192 + 128), bring a decoding step from deep in memory's land to the ridge of the roofline. So an
# MLA kernel must do both: read each latent once, and keep the matrix units busy. Two consequences:
#
# - If the heads are dealt to eight GPUs, each has 16 of them and *all* latents: 30 FLOPs for each byte, and eight
#   copies of the cache. It is better to deal out the sequences.
# - Do not absorb where a whole prompt is read, or in training: there arithmetic binds, and 3.4 times the FLOPs is a
#   loss.
#
# For the kernel: the tile of latents is loaded *once* and used twice, as keys and, its first 512 columns, as values.
# And a trap before it: the product that absorbs is one matrix for each head, so what `torch.einsum` returns is not laid
# out as its shape says.

# %% strides of the absorbed query
found = torch.einsum("bhn,hnc->bhc", torch.randn(2, 4, 16), torch.randn(4, 16, 32))
lesson.table({"shape": str(tuple(found.shape)), "strides": str(found.stride())})

# %% [markdown] laid out by heads
# Heads lie apart by 64 numbers and sequences by 32: hand these strides to the kernel, or make it contiguous.
#
# ## 15. A cache in pages
#
# Sequences grow at different speeds, end, and share beginnings. A server keeps the cache in *pages* of, say, 16
# positions, anywhere in a *pool* of memory, and a table for each sequence. Position `t` of sequence `b` is row `t % 16`
# of page `table[b, t // 16]`. Here A has three pages and B has two, and three are free:

# %% pages and tables
lesson.grid_figure(
    {
        "the pool, page 0 to page 7": [["B 0", "", "A 1", "B 1", "", "A 0", "", "A 2"]],
        "table of A": [["5", "2", "7"]],
        "table of B": [["0", "3"]],
    },
    marked=("A 0", "A 1", "A 2", "5", "2", "7"),
)

# %% [markdown] table first
# The kernel reads the table first, then the page:


# %% paged kernel
@triton.jit
def sum_of_pages_kernel(
    x_ptr, table_ptr, out_ptr, length,
    D: tl.constexpr, PAGE: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    d, total = tl.arange(0, D), tl.zeros([D], tl.float32)
    for start in range(0, length, BN):
        t = start + tl.arange(0, BN)
        page = tl.load(table_ptr + t // PAGE, mask=t < length, other=0)
        at = (page * PAGE + t % PAGE)[:, None] * D + d[None, :]
        x = tl.load(x_ptr + at, mask=t[:, None] < length, other=0.0)
        total += tl.sum(x.to(tl.float32), axis=0)
    tl.store(out_ptr + d, total)


# %% guess pages
guess = predict(
    "06.pages",
    "Pages of 16 positions, D = 64, fp16; 500 positions. The pages in order, then "
    "shuffled over the pool: does the number of sectors of 32 bytes grow? How many are "
    "the positions alone?",
    more=lesson.yes_no("more sectors when shuffled"),
    sectors=lesson.number("sectors of the positions", factor=1.01),
)

# %% pages
pool, rows = torch.randn(64 * 16, 64).half(), {}
orders = {"in order": torch.arange(32), "shuffled": torch.randperm(64)[:32]}
for order, pages in orders.items():
    gpus = lesson.launch_on(
        BOTH, sum_of_pages_kernel, (1,), pool, pages.int(), torch.empty(64), 500,
        D=64, PAGE=16, BN=64,
    )  # fmt: skip
    rows[order] = lesson.counted(gpus, "global_load_sectors")
guess.reveal(
    more=rows["shuffled"]["sm_80"] > rows["in order"]["sm_80"],
    sectors=500 * 64 * 2 / 32,
    because="a page is 2,048 bytes in one piece; 500 × 128 / 32. The rest of sm_80's "
    "are entries of the table, and gfx942 counts lines of 128 bytes.",
)
lesson.table(rows, first="sectors, lines")

# %% [markdown] pages explained
# A page is long enough to fill sectors and lines, so the shuffle costs no byte. (A cache with several heads lies as
# (page, position, head, D): then a head's rows are pieces of D numbers. What scattered pages cost in rows of DRAM and
# in address translation, no counter here can show.) What it costs is a load that everything waits for: the address of a
# page is known only when its entry has come. Kernels load the entries of the next block ahead.
#
# (A pool of gigabytes also passes $2^{31}$ elements: `page.to(tl.int64)` before it is multiplied.)
#
# And it is one more way to read somebody else's memory: entries of the table behind the end of a sequence hold whatever
# they hold, -1 or the page of somebody else. So the mask belongs to the load of the *entry*, too.
#
# On a real GPU the next cell times the causal rungs against torch's `scaled_dot_product_attention`.

# %% race the rungs
n = 2048 if torch.cuda.is_available() else 256
q, k, v = (torch.randn(n, 64).half() for _ in range(3))
rungs = {
    "hidden tiles skipped": lambda q, k, v: causal(q, k, v, True, False),
    "and two loops": causal,
}


def sdpa(q, k, v):
    heads = (x[None, None] for x in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)


work = {"bytes": 4 * 2 * n * 64, "flops": 2 * n * n * 64, "dtype": "fp16"}
lesson.table(lesson.raced(rungs, q, k, v, torch=sdpa, **work), first="rung")

# %% [markdown] summary
# (One head is far too little for a GPU: the ratio tells more than the share of the roofline. The lab times a batch.)
#
# ## Summary
#
# - Attention by operators moves matrices of $N^2$ several times. FlashAttention keeps a tile of them in registers.
# - Maximum, sum and a vector are merged by one factor, $e^{m_\text{old} - m_\text{new}}$; division comes last.
# - Each wave its own rows: BM ≥ rows of an instruction × waves. Otherwise waves repeat each other's work.
# - On an MI300X each die fetches what its programs read: keep a head on one die.
# - Exponentials take as long as products. Multiply the scale by $\log_2 e$ and use exp2.
# - Skip hidden tiles, mask only those on the diagonal. Never subtract $-\infty$.
# - Backward recomputes $P$ from lse, and needs Δ, the row sums of $dO \cdot O$. Five products; who owns `dq`?
# - Decoding is bound by memory: split the cache, pack heads, read pages through a table. MLA with 128 heads stands near
#   the ridge.
#
# ## Read next
#
# - [FlashAttention](https://arxiv.org/abs/2205.14135), [FlashAttention-2](https://arxiv.org/abs/2307.08691) and
#   [FlashAttention-3](https://arxiv.org/abs/2407.08608): Hopper, with warps that load and warps that compute.
# - [Triton's tutorial on fused
#   attention](https://triton-lang.org/main/getting-started/tutorials/06-fused-attention.html).
# - [FlashMLA](https://github.com/deepseek-ai/FlashMLA), [AITER](https://github.com/ROCm/aiter): kernels in production.
# - [PagedAttention](https://arxiv.org/abs/2309.06180).
#
# ## Check yourself
#
# Answer first, then open.
#
# <details><summary>m is 3, a block brings a maximum of 5. By which factor are l and the vector multiplied?</summary>
#
# $e^{3-5}$, 0.135.
# </details>
#
# <details><summary>Causal, N = 1,024, BM = 128, BN = 64: how many blocks of keys does the last block of queries visit,
# and how many of them need the mask?</summary>
#
# 16, of which the last two.
# </details>
#
# <details><summary>BM = 64 on gfx950 with 4 waves. Which `matrix_instr_nonkdim` gives each wave its own rows?</summary>
#
# 16: 4 × 16 = 64.
# </details>
#
# <details><summary>Why does backward not need m and l apart?</summary>
#
# P is e to the power S - lse, and lse = m + ln l.
# </details>
#
# <details><summary>A decode kernel is twice as slow with 8 query heads a group as with 4, at the same cache. What is
# wrong?</summary>
#
# It loads the cache for each query head. Packed, the time hardly depends on the heads of a group.
# </details>
#
# **You have** attention in all its forms. In the lab: 06.gqa, 06.decode, 06.paged_decode, 06.mla_decode. Now open
# [lab 06](../labs/06_flash_attention.ipynb).

# %% fourth sitting ends
lesson.sitting("06", 4)
