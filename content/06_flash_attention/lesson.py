# %% [markdown] top
# # 06 FlashAttention, forward, backward and decoding
#
# **Afterwards you can** write attention that never stores its scores, skip what a causal mask hides, derive its backward
# pass and code it, and write the kernels that decode: split over the cache, heads packed into one tile, MLA with the
# absorbed projection, and a cache in pages. All of it on both vendors.
#
# **You need** units 04 (online softmax) and 05 (tiles). No GPU: every cell runs on a laptop.
#
# **Time**: three sittings. TIMES

# %% imports
import torch
import triton
import triton.language as tl

from gpu_utils import explore, lesson, predict, virtual_gpu

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
    "write, over the N × D of one matrix? (A tensor of N × N counts as 16 of them.)",
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
# And it grows with $N$: with 8,192 positions a matrix of scores has 128 times as many numbers as $Q$. FLOPs are
# $2 \cdot 2 N^2 D$, so about $2D$ for each score: enough to be bound by arithmetic, if only the scores stayed on the
# chip. That is the whole idea of FlashAttention.
#
# > **Facts: FlashAttention**
# >
# > - The algorithm computes exact attention in tiles, without storing the matrix of scores, and recomputes it in the
# >   backward pass. (source: Dao et al., [arXiv 2205.14135](https://arxiv.org/abs/2205.14135))
#
# ## 2. A sum that carries a vector
#
# Lesson 04 merged blocks of a row by two numbers, $m$ and $l$. Attention wants, for a query $q$,
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
s, v = torch.tensor([0.0, 0.0, 1.0]), torch.tensor([2.0, 4.0, 8.0])
m = torch.tensor(float("-inf"))
l = total = torch.tensor(0.0)
rows = {}
for block in ((0, 1), (2,)):
    part, values = s[list(block)], v[list(block)]
    new = torch.maximum(m, part.max())
    factor, p = torch.exp(m - new), torch.exp(part - new)
    l, total, m = l * factor + p.sum(), total * factor + (p * values).sum(), new
    rows[f"scores {part.tolist()}"] = {
        "factor": factor.item(),
        "m": m.item(),
        "l": l.item(),
        "numerator": total.item(),
    }
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
    m_rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + m_rows[:, None] * D + d[None, :])
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
    tl.store(o_ptr + m_rows[:, None] * D + d[None, :], total / l[:, None])


def attention(q, k, v, BM=64, BN=64, num_warps=4):
    N, D = q.shape
    o = torch.empty_like(q)
    tile = {"D": D, "BM": BM, "BN": BN, "num_warps": num_warps}
    attention_kernel[(N // BM,)](q, k, v, o, N, D**-0.5, **tile)
    return o


# %% guess loads
guess = predict(
    "06.loads",
    "N = 512, D = 64 in fp16, BM = 64. How often does each number of K and V get loaded "
    "by a program, and how many bytes are stored?",
    loads=lesson.number("times"),
    stores=lesson.number("bytes stored", unit="bytes"),
)

# %% loads
BOTH = ("sm_80", "gfx942")
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
    because="512 / 64 = 8 programs, each goes through all of K and V; stored is o alone.",
)
lesson.table(rows, first="target")

# %% [markdown] linear
# Nothing of size $N^2$ is stored, so what is written grows with $N$, not with $N^2$. Loads grow with $N^2 / BM$: each
# block of queries reads all keys. They come from the L2, which all programs share and which holds K and V of a head
# with ease; memory sees them about once.
#
# Check the FLOPs: $4 N^2 D$ = 67,108,864. All of them are matrix instructions.
#
# ## 4. Cheaper exponentials
#
# A GPU has an instruction for $2^x$ and none for $e^x$: `tl.exp` multiplies by $\log_2 e$ first. But a multiplication
# is made already, the scaling of the scores. So multiply the *scale* by $\log_2 e$, once, and use `tl.exp2`. Maximum
# and sum do not mind, as long as everything is in base 2; the logarithm of $l$, if someone wants it, is then $\log_2$.


# %% count exponentials
@triton.jit
def exp_kernel(x_ptr, y_ptr, scale, BLOCK: tl.constexpr, BASE_2: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i) * scale
    tl.store(y_ptr + i, tl.exp2(x) if BASE_2 else tl.exp(x))


# %% guess exponentials
guess = predict(
    "06.exp2",
    "One warp with 4 numbers a lane: e^(x · scale), and 2^(x · scale). How many "
    "instructions less has the second, at least, on sm_80?",
    fewer=lesson.choice("none", "1 to 3", "4 and more"),
)

# %% exponentials
rows = {}
x = torch.randn(256)
for base_2 in (False, True):
    gpus = lesson.launch_on(
        BOTH, exp_kernel, (1,), x, torch.empty(256), 1.0, BLOCK=256,
        BASE_2=base_2, threads=64,
    )  # fmt: skip
    rows["exp2" if base_2 else "exp"] = lesson.counted(gpus, "instructions_vector")
fewer = rows["exp"]["sm_80"] - rows["exp2"]["sm_80"]
guess.reveal(
    fewer="none" if fewer < 1 else "1 to 3" if fewer < 4 else "4 and more",
    because="one multiplication for each number.",
)
lesson.table(rows, first="vector instructions")

# %% [markdown] causal
# ## 5. What a causal mask hides
#
# In a language model position $i$ sees positions $0$ to $i$. In tiles of `BM` × `BN` there are three kinds:
#
# - **full**: all keys lie before all queries. No mask is needed.
# - **on the diagonal**: some do. Here scores of later keys become $-\infty$ before the maximum.
# - **hidden**: all keys lie behind. The tile is *skipped*: neither loaded nor computed.
#
# So the loop over keys ends early: for a block of queries that begins at row `r`, the last key that matters is
# `r + BM - 1`.

# %% guess tiles
guess = predict(
    "06.tiles",
    "N = 512, BM = BN = 64: 8 × 8 tiles. How many are full, how many on the diagonal?",
    full=lesson.number("full"),
    diagonal=lesson.number("on the diagonal"),
)

# %% tiles
kinds = {"full": 0, "diagonal": 0, "hidden": 0}
for row in range(0, 512, 64):
    for key in range(0, 512, 64):
        last_key, last_row = key + 63, row + 63
        kind = "full" if last_key <= row else "hidden" if key > last_row else "diagonal"
        kinds[kind] += 1
guess.reveal(
    full=kinds["full"],
    diagonal=kinds["diagonal"],
    because="below the diagonal 7 + 6 + ... + 1 = 28, and 8 on it.",
)
lesson.table(kinds)

# %% [markdown] causal explorer
# 36 of 64 tiles: a little more than half of the work. With a *sliding window* of W keys the tiles far below the
# diagonal are hidden, too, and the work grows with $N W$. Look where the edges of a window cut tiles:

# %% explore causal
explore("causal")

# %% [markdown] two loops
# A mask in every tile costs instructions and comparisons for nothing. Good kernels have two loops: one over full tiles
# without a mask, one over the tiles on the diagonal. And one trap from lesson 04 is back: a row of a tile that is hidden
# as a whole has the maximum $-\infty$. With a causal mask alone this happens only when a block of keys comes before
# any visible one; with a window it happens.
#
# ## 6. What fits where
#
# In registers: the accumulator `BM × D`, the scores `BM × BN`, `m`, `l`, and $Q$. In shared memory: blocks of $K$ and
# $V$, times the stages. D = 128 is usual.

# %% guess registers
guess = predict(
    "06.registers",
    "BM = 128, BN = 64, D = 128 with 4 warps or wavefronts: who spills?",
    sm_90=lesson.yes_no("sm_90"),
    gfx942=lesson.yes_no("gfx942"),
    gfx1100=lesson.yes_no("gfx1100"),
)

# %% registers
wide = [torch.randn(128, 128).half() for _ in range(3)]
rungs = {
    f"{BM} × {BN}, {warps} waves": lambda q, k, v, t=(BM, BN, warps): attention(q, k, v, *t)
    for BM, BN, warps in ((128, 64, 4), (128, 64, 8), (64, 64, 4))
}
FIVE = ("sm_90", "sm_100", "gfx942", "gfx950", "gfx1100")
needs = lesson.needs(rungs, *wide, targets=FIVE)
spilt = {t: needs[f"128 × 64, 4 waves, {t}"][lesson.SPILLS] > 0 for t in FIVE}
guess.reveal(
    **{target: spilt[target] for target in ("sm_90", "gfx942", "gfx1100")},
    because="128 × 128 sums and 128 × 64 scores are 192 numbers for a lane of 32, and "
    "96 for one of 64.",
)
lesson.table(needs, first="tile")

# %% [markdown] first end
# **You have** attention without a matrix of scores, with two products and a merge in each round, and a mask that saves
# half of the work. In the lab: 06.online_softmax, 06.forward, 06.sliding_window. Next: backward.

# %% first sitting ends
lesson.sitting("06", 1)

# %% [markdown] backward
# # Sitting 2: backward
#
# ## 7. Derive it
#
# With $P$ = softmax($S$) and $O = P V$, the gradient $dO$ comes in. Step by step, from the end:
#
# 1. $O = P V$ is a product: $dV = P^T dO$ and $dP = dO\, V^T$.
# 2. Softmax of a row: $dS_{ij} = P_{ij} \bigl(dP_{ij} - \sum_k P_{ik}\, dP_{ik}\bigr)$. (What softmax takes away from
#    its input is a constant added to the row; so its backward pass takes away a mean: lesson 04, section 8.)
# 3. $S = Q K^T / \sqrt D$: $dQ = dS\, K / \sqrt D$ and $dK = dS^T Q / \sqrt D$.
#
# $P$ is as large as before. It is not stored: from $\text{lse}_i = m_i + \log l_i$, one number a row, each tile of it
# comes back as $P_{ij} = e^{S_{ij} - \text{lse}_i}$, final at once, without a merge.
#
# The sum in step 2 runs over a whole row of $P$ and $dP$. Is a pass over all keys needed before anything can begin? Put
# $dP = dO\,V^T$ in:
#
# $$ \Delta_i = \sum_k P_{ik}\, dP_{ik} = \sum_k P_{ik} \sum_d dO_{id} V_{kd} = \sum_d dO_{id} \sum_k P_{ik} V_{kd}
#    = \sum_d dO_{id}\, O_{id} $$
#
# One number a row from two rows that are there. That identity makes the backward pass local.

# %% guess delta
guess = predict(
    "06.delta",
    "N = 1,024, D = 64. How many numbers must forward leave for backward, besides q, k, v "
    "and o? How many would P be?",
    kept=lesson.number("numbers kept"),
    of_p=lesson.number("numbers of P"),
)


# %% delta
def attention_backward(do, q, k, v, o, lse):
    scale = q.shape[1] ** -0.5
    p = torch.exp(q @ k.T * scale - lse[:, None])
    delta = (do * o).sum(1)
    ds = p * (do @ v.T - delta[:, None])
    return ds @ k * scale, ds.T @ q * scale, p.T @ do


torch.manual_seed(0)
q, k, v, do = (torch.randn(96, 16, dtype=torch.float64) for _ in range(4))
for each in (q, k, v):
    each.requires_grad_()
o = attention_by_hand(q, k, v)
lse = torch.logsumexp(q @ k.T * 0.25, dim=1)
wanted = torch.autograd.grad(o, (q, k, v), do)
found = attention_backward(do, q, k, v, o, lse)
guess.reveal(
    kept=1024,
    of_p=1024**2,
    because="lse, one number a row.",
)
lesson.table(
    {
        name: {"differs from autograd by": (mine - theirs).abs().max().item()}
        for name, mine, theirs in zip(("dq", "dk", "dv"), found, wanted, strict=True)
    },
    first="gradient",
)

# %% [markdown] five products
# ## 8. Two loops again, and who owns what
#
# Count the products of a tile: $S$ again, $dP$, then $dV$, $dK$, $dQ$. Five, where forward has two.

# %% guess flops
guess = predict(
    "06.backward_flops",
    "Forward has 4 N² D FLOPs. How many times as many has backward? And if a program for "
    "dq and a program for dk, dv each make S and dP for themselves?",
    together=lesson.number("times, one kernel"),
    apart=lesson.number("times, two kernels"),
)

# %% flops
forward, together, apart = 2, 5, 3 + 4
guess.reveal(
    together=together / forward,
    apart=apart / forward,
    because="dq needs S, dP and one product; dk and dv need S, dP and two.",
)
lesson.table({"forward": forward, "one kernel": together, "two kernels": apart})

# %% [markdown] ownership
# Why two? $dK$ and $dV$ of a block of keys are sums over *queries*, $dQ$ of a block of queries is a sum over *keys*. A
# program that owns keys and loops over queries holds `dk` and `dv` in registers, but adds to the `dq` of everybody: by
# atomics on a float32 buffer (in any order, other bits each time), or in a second kernel that owns queries. A plain
# load, add, store of `dq` is the race of lesson 04.
#
# With a causal mask the loop of a block of keys begins at the first query that sees it; the hidden tiles are those
# *before* it. Queries behind the end (padding) must not contribute: their rows of $P$ would be $e^{0 - 0} = 1$.
#
# **You have** the formulas, the identity that makes them local, and the ownership that makes them free of races. In the
# lab: 06.backward. Next: one token at a time.

# %% second sitting ends
lesson.sitting("06", 2)

# %% [markdown] decoding
# # Sitting 3: decoding
#
# ## 9. One query
#
# When a model writes, each step has *one* new query per sequence, and a cache of all keys and values so far. FLOPs:
# $4 S D$ for each head with a cache of $S$ positions. Bytes: $2 \cdot 2 S D$ in bf16.

# %% guess intensity
guess = predict(
    "06.intensity",
    "How many FLOPs for each byte, in bf16? An MI300X has about 250 for each byte "
    "(lesson 05).",
    flops=lesson.number("FLOPs for each byte"),
    bound=lesson.choice("memory", "arithmetic", label="bound by"),
)

# %% intensity
S, D = 4096, 128
flops, bytes_read = 4 * S * D, 2 * 2 * S * D
guess.reveal(
    flops=flops / bytes_read,
    bound="memory" if flops / bytes_read < 250 else "arithmetic",
    because="every number of the cache is used once, for one product and one sum.",
)
lesson.table({"FLOPs": flops, "bytes of the cache": bytes_read})

# %% [markdown] memory bound
# So decoding is a kernel of unit 04: read the cache once, at full bandwidth. Two things stand in the way.
#
# **Too few programs.** One program for each sequence and head: 8 sequences with 12 heads are 96, on a chip with 132 or
# 304 units, and each walks through a long cache alone. The cure is split-K by another name: several programs share a
# cache, each leaves `m`, `l` and a vector, and a second kernel merges them (06.online_softmax, 06.decode). Splits may
# turn out empty, when a sequence is short: their $m$ is $-\infty$.
#
# **Matrix instructions want 16 rows.** With one query a tile has one row of use. Then ordinary products and sums,
# `tl.sum(q[None, :] * k, axis=1)`, are as good: memory is the limit.
#
# ## 10. Heads that share keys
#
# Grouped-query attention gives several query heads the same keys and values. Llama 3 has 4 or 8 to a group. A program
# for each *query* head loads the same cache 4 or 8 times. A program for each *group* packs its heads into the rows of
# one tile: the cache is loaded once, and the tile has rows enough for a matrix instruction.

# %% guess packing
guess = predict(
    "06.packing",
    "32 query heads in 8 groups, a cache of 4,096 positions, D = 128, bf16. Bytes that "
    "programs load for one sequence, with a program for each head and for each group?",
    heads=lesson.number("each head", unit="million bytes", factor=1.05),
    groups=lesson.number("each group", unit="million bytes", factor=1.05),
)

# %% packing
one_cache = 2 * 2 * 4096 * 128
guess.reveal(
    heads=32 * one_cache / 1e6,
    groups=8 * one_cache / 1e6,
    because="2 × 4,096 × 128 numbers of 2 bytes are 2.1 million bytes; 32 or 8 times.",
)
lesson.table({"one head's cache": one_cache, "32 times": 32 * one_cache, "8 times": 8 * one_cache})

# %% [markdown] mla
# ## 11. MLA: a cache that is not keys
#
# DeepSeek's multi-head latent attention stores for each position *one* latent vector $c$ of 512 numbers and a rotary
# part of 64, for all 128 heads together. The key of head $h$ is $W^{UK}_h c$. Naively one would make all keys from the
# cache at each step. But a score is a scalar product:
#
# $$ q_h \cdot (W^{UK}_h c) = (W^{UK\,T}_h q_h) \cdot c $$
#
# The matrix is *absorbed* into the query, once a step. Then every head attends to the same vectors $c$: it is GQA with
# one group of 128 heads, keys of 512 + 64, and values that *are* the first 512 numbers of the keys. The values'
# projection is absorbed behind the sum in the same way.

# %% guess mla
guess = predict(
    "06.mla",
    "Numbers in the cache for a position and layer: 128 heads with keys and values of 128 "
    "each, against MLA's 512 + 64. How many times smaller?",
    times=lesson.number("times smaller", factor=1.02),
)

# %% mla
full, latent = 2 * 128 * 128, 512 + 64
guess.reveal(times=full / latent, because="32,768 against 576.")
torch.manual_seed(0)
c, w_uk, q = torch.randn(40, 32), torch.randn(4, 16, 32), torch.randn(4, 16)
keys = torch.einsum("hdc,sc->hsd", w_uk, c)
naive = torch.einsum("hd,hsd->hs", q, keys)
absorbed = torch.einsum("hd,hdc->hc", q, w_uk) @ c.T
lesson.table(
    {
        "numbers for a position": {"keys and values": full, "latent": latent},
        "scores differ by": {"latent": (naive - absorbed).abs().max().item()},
    },
    first="",
)

# %% [markdown] pages
# > **Claim and fact: "MLA shrinks the cache for free"**
# >
# > - DeepSeek-V3 has 128 heads, a latent of 512 numbers and a rotary part of 64. (source: deepseek-ai/DeepSeek-V3,
# >   inference/configs/config_671B.json)
# > - Scores by the absorbed projection are those of full keys, up to rounding. (measured: the cell above)
#
# It is not free: scores now are products of length 576, not 192, so a step has three times the FLOPs for a fraction of
# the bytes. On a chip that waits for memory that is a good bargain.
#
# ## 12. A cache in pages
#
# Sequences grow at different speeds, end, and share beginnings. A server keeps the cache in *pages* of, say, 16
# positions, anywhere in memory, and a table for each sequence: page $t // 16$ of the sequence is page
# `table[b, t // 16]` of the pool. The kernel reads the table first, then the page:
#
# ```python
# page = tl.load(table_ptr + b * stride_tb + t // PAGE, mask=t < length, other=0)
# k = tl.load(k_ptr + page * stride_kp + (t % PAGE) * stride_kt + d, ...)
# ```
#
# One more load that everything waits for, and one more way to read somebody else's memory: entries of the table behind
# the end of a sequence hold whatever they hold.

# %% guess pages
guess = predict(
    "06.pages",
    "Pages of 16 positions; a sequence of 100. How many entries of its table are in use, "
    "and which position of which page holds position 70?",
    entries=lesson.number("entries in use"),
    entry=lesson.number("position 70: entry of the table"),
    place=lesson.number("and its place in the page"),
)

# %% pages
guess.reveal(
    entries=triton.cdiv(100, 16),
    entry=70 // 16,
    place=70 % 16,
    because="100 / 16 is 6.25; 70 = 4 × 16 + 6.",
)
lesson.table({"entries": triton.cdiv(100, 16), "70": f"entry {70 // 16}, place {70 % 16}"})

# %% [markdown] summary
# ## Summary
#
# - Attention by operators moves matrices of $N^2$ several times. FlashAttention keeps a tile of them in registers.
# - Maximum, sum and a vector are merged by one factor, $e^{m_\text{old} - m_\text{new}}$; division comes last.
# - Skip hidden tiles, mask only the diagonal ones. Scale by $\log_2 e$ and use exp2.
# - Backward recomputes $P$ from lse, and needs $\Delta$ = row sums of $dO \cdot O$. Five products; who owns `dq`?
# - Decoding is bound by memory: split the cache, pack heads, absorb projections, read pages through a table.
#
# ## Read next
#
# - [FlashAttention](https://arxiv.org/abs/2205.14135) and [FlashAttention-2](https://arxiv.org/abs/2307.08691).
# - [Triton's tutorial on fused attention](https://triton-lang.org/main/getting-started/tutorials/06-fused-attention.html).
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
# <details><summary>Causal, N = 1,024, BM = 128, BN = 64: how many blocks of keys does the last block of queries visit, and
# how many of them need the mask?</summary>
#
# 16, of which the last two.
# </details>
#
# <details><summary>Why does backward not need m and l apart?</summary>
#
# P is e to the power S - lse, and lse = m + log l.
# </details>
#
# <details><summary>A decode kernel is twice as slow with 8 query heads a group as with 4, at the same cache. What is
# wrong?</summary>
#
# It loads the cache for each query head. Packed, the time hardly depends on the heads of a group.
# </details>
#
# **You have** attention in all its forms. Now open [lab 06](../labs/06_flash_attention.ipynb).

# %% third sitting ends
lesson.sitting("06", 3)
