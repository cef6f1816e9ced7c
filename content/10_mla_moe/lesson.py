# %% [markdown] top
# # 10 Multi-head latent attention and mixture of experts
#
# **Afterwards you can** say what each kind of attention keeps of a token, and why latent attention keeps least; derive
# and count its absorbed projections; write a router, balance it without a loss, and say what imbalance costs; sort
# tokens to experts and multiply them in one launch, on both vendors' machine code; and build, train and count a small
# model of DeepSeek's shape, with a head that predicts the token after the next.
#
# **You need** units 02 (roofline, GQA), 05 (`tl.dot`, persistent kernels), 06 (MLA's decoding kernel) and 08 (FP8). No
# GPU: every cell runs on a laptop. "Executed" means on a virtual GPU here; nothing has run on AMD silicon.
#
# **Time**: four sittings. Reading (text and code at 200 words a minute) takes about 21, 16, 23 and 12
# minutes, all of it with the predictions about 45, 35, 45 and 35 (a guess). All cells together run in two minutes on a
# quiet CPU, most of it in sitting 4. Then lab 10.
#
# A model can know more than it computes: DeepSeek-V3 has 671 billion parameters, and a token uses 37 billion of them.

# %% imports
import tempfile

import torch
import triton
import triton.language as tl
from torch.utils.flop_counter import FlopCounterMode

from gpu_utils import CHIPS, compile_for, explore, lesson, predict, virtual_gpu

# %% [markdown] what a token leaves
# # Sitting 1: from MHA to GQA to MLA
#
# ## 1. What a token leaves behind
#
# A model that writes text keeps of every token what later tokens need of it: in each layer a key and a value for each
# *key-value head*. How many of these heads there are tells the kinds of attention apart:
#
# - **MHA**, multi-head attention: each query head has a key-value head of its own.
# - **GQA**, grouped-query attention: a group of query heads shares one. **MQA**, multi-query: all share a single one.
# - **MLA**, multi-head latent attention: nothing of a head is kept. One *latent vector* is, and a small *rope key*;
#   keys and values of all heads are made of them again.
#
# DeepSeek-V3 has 61 layers with 128 heads. A key has 128 numbers without a position (*nope*) and 64 that carry it
# (*rope*, after the rotary position embedding of section 3), a value 128. A latent vector has 512. In bfloat16 a
# number is 2 bytes. Two well-known models with GQA have 8 key-value heads with keys and values of 128: Qwen2.5 72B in
# 80 layers, Llama 3.1 405B in 126.

# %% guess cache of a token
guess = predict(
    "10.cache_of_a_token",
    "Bytes that DeepSeek-V3 keeps of a token, in all layers? How many times more "
    "would it be if each of its heads kept key and value? And with how many "
    "key-value heads of 128 + 128 would GQA keep as much in a layer as MLA?",
    mla=lesson.number("MLA", unit="bytes", factor=1.02),
    times=lesson.number("MHA, times more", factor=1.02),
    heads=lesson.number("heads of GQA", factor=1.02),
)

# %% cache of a token
HEADS, NOPE, ROPE, VALUE, RANK = 128, 128, 64, 128, 512  # DeepSeek-V3
kept = {  # numbers of a token in one layer, if the model had this kind of attention
    "MHA": {"keys": HEADS * (NOPE + ROPE), "values": HEADS * VALUE},
    "GQA, 8 heads": {"keys": 8 * 128, "values": 8 * 128},
    "MQA": {"key": 128, "value": 128},
    "MLA": {"latent": RANK, "rope": ROPE},
}
numbers = {kind: sum(parts.values()) for kind, parts in kept.items()}
layers = {"DeepSeek-V3": 61, "Qwen2.5 72B": 80, "Llama 3.1 405B": 126}
guess.reveal(
    mla=layers["DeepSeek-V3"] * 2 * numbers["MLA"],
    times=numbers["MHA"] / numbers["MLA"],
    heads=numbers["MLA"] / (128 + 128),
    because="61 × 2 × 576; 128 × (192 + 128) / 576; 576 / 256: a little more than two.",
)
lesson.cache_figure(kept)

# %% caches of models
kinds = dict(zip(layers, ("MLA", "GQA, 8 heads", "GQA, 8 heads"), strict=True))
lesson.table(
    {
        model: {
            "kind": kinds[model],
            "numbers in a layer": numbers[kinds[model]],
            "layers": n,
            "KB for a token": n * 2 * numbers[kinds[model]] / 1000,
            "GB for 128,000 tokens": n * 2 * numbers[kinds[model]] * 128_000 / 1e9,
        }
        for model, n in layers.items()
    },
    first="bfloat16",
)

# %% [markdown] sources of caches
# > **Facts: caches of a token**
# >
# > - DeepSeek-V3 70.272 KB, Qwen2.5 72B 327.680 KB, Llama 3.1 405B 516.096 KB, in bfloat16; a KB is 1,000 bytes.
# >   (source: Insights into DeepSeek-V3, [arXiv 2505.09343](https://arxiv.org/abs/2505.09343), table 1)
# > - DeepSeek-V3: 61 layers, 128 heads, 512 latent, 128 + 64 and 128 numbers. (source: deepseek-ai/DeepSeek-V3,
# >   inference/configs/config_671B.json)
#
# The table computes the paper's three figures from the models' shapes. MLA keeps as much as GQA with 2.25 heads would.
# But GQA with two heads has two different keys at each position, and MLA has 128. How can that be?
#
# ## 2. Low rank: few numbers, many keys
#
# All keys of a token, put behind each other, are one long vector $k = W x$, with a matrix $W$ that has a row for each
# number of each head. Whoever wants to keep fewer numbers takes $W$ for a product of two narrow matrices:
#
# $$ k = W^{U} (W^{D} x), \qquad c = W^{D} x \text{ is kept}. $$
#
# $W^{D}$ goes *down* to few numbers, $W^{U}$ *up* to all heads. The number of columns of $W^U$ bounds the *rank*: in
# how many independent directions keys of all tokens can differ. GQA is the special case in which $W^{U}$ only copies:
# each head gets the numbers of its group. MLA lets $W^U$ be any matrix, and training finds it.
#
# Now 400 tokens of 256 random numbers, and 8 heads with keys of 24 numbers: GQA keeps two keys of 24, MLA a latent
# vector of 48.

# %% guess low rank
guess = predict(
    "10.low_rank",
    "The keys of all heads are a matrix of 400 x 192. Its rank? And how many of the 8 "
    "keys of one token are different from each other?",
    rank_gqa=lesson.number("rank, GQA with 2 key-value heads"),
    rank_mla=lesson.number("rank, MLA"),
    keys_gqa=lesson.number("different keys, GQA"),
    keys_mla=lesson.number("different keys, MLA"),
)

# %% low rank
torch.manual_seed(0)
x, down = torch.randn(400, 256), torch.randn(48, 256)  # both keep 48 numbers
copies = torch.eye(48).view(2, 24, 48).repeat_interleave(4, 0).reshape(192, 48)
up = {"MHA": None, "GQA": copies, "MLA": torch.randn(192, 48)}
rows = {}
for kind, matrix in up.items():
    keys = x @ torch.randn(256, 192) if matrix is None else x @ down.T @ matrix.T
    rows[kind] = {
        "numbers kept": 192 if matrix is None else 48,
        "rank of all keys": torch.linalg.matrix_rank(keys),
        "different keys of a token": len(keys[0].view(8, 24).unique(dim=0)),
    }
guess.reveal(
    rank_gqa=rows["GQA"]["rank of all keys"],
    rank_mla=rows["MLA"]["rank of all keys"],
    keys_gqa=rows["GQA"]["different keys of a token"],
    keys_mla=rows["MLA"]["different keys of a token"],
    because="both go through 48 numbers; copies are alike, and mixtures are not.",
)
lesson.table(rows, first="8 heads of 24")

# %% [markdown] low rank explained
# The same rank and the same cache. GQA spends it on two keys that four heads must share; MLA on eight different views
# of 48 numbers. Whether a *trained* model loses nothing by it this cell cannot show: it is a bet on what keys need,
# and DeepSeek's ablations, below, are its evidence.
#
# What is compressed in DeepSeek-V3:
#
# - keys *and* values, by **one** latent vector $c$ of 512 numbers, 1/64 of the 32,768 numbers of 128 nope keys and
#   values;
# - queries too, by a latent vector of their own, of 1,536 numbers. It is not kept; it makes the projection cheaper and
#   saves memory of activations in training;
# - both latent vectors go through an RMSNorm between the two projections.
#
# > **Facts: latent attention against full attention**
# >
# > - In DeepSeek's ablations MLA did better than MHA, with 4% and 14% of its cache in two mixture-of-experts models;
# >   GQA and MQA did worse than MHA. (source: DeepSeek-V2, [arXiv 2405.04434](https://arxiv.org/abs/2405.04434),
# >   appendix D)
#
# One part of a key does not go through the latent vector: the rope key.
#
# ## 3. Why positions travel apart
#
# First the idea that saves MLA. A score of a head is a product of a query with a key, and the key is made of $c$:
#
# $$ q \cdot (W^{UK} c) = (W^{UK\,\top} q) \cdot c. $$
#
# On the right no key is made: $W^{UK}$ is *absorbed* into the query, and the query meets $c$ itself. One matrix serves
# all positions.
#
# RoPE, the rotary position embedding, turns queries and keys by their position: a pair of numbers of the token at
# position $t$ is turned by the angle $t\,\omega$, each pair with an $\omega$ of its own. Suppose that whole keys were
# turned so. In the score of a query at $t$ with a key at $j$ both rotations meet, and only the distance $d = t - j$
# remains:
#
# $$ (R_t\, q) \cdot (R_j\, W^{UK} c) = \bigl( W^{UK\,\top} R_{d}\, q \bigr) \cdot c. $$
#
# Now the matrix that the query would have to absorb, $A_d = W^{UK\,\top} R_d$, is another one for each distance. Are
# all of them at least mixtures of a few fixed matrices, which the query could absorb instead? A rotation of one pair
# is $\cos(d\,\omega)$ times a fixed matrix plus $\sin(d\,\omega)$ times another. So count: a key of 16 numbers, a
# latent vector of 40, distances 0 to 255.

# %% guess turned keys
guess = predict(
    "10.turned_keys",
    "Each A_d is a matrix of 40 x 16. Of how many fixed matrices, at least, are all "
    "256 of them mixtures: without rotation, with one pair turned, with all 8 pairs "
    "turned, each by its own angle?",
    none=lesson.number("no rotation"),
    one=lesson.number("one pair turned"),
    all=lesson.number("8 pairs turned"),
)


# %% turned keys
def rotation(distance, turned):
    """16 x 16: the first `turned` of 8 pairs turn, each by an angle of its own."""
    blocks = []
    for pair in range(8):
        angle = torch.tensor(distance * 100.0 ** (-pair / 8) if pair < turned else 0.0)
        cos, sin = angle.cos(), angle.sin()
        blocks.append(torch.stack([cos, -sin, sin, cos]).view(2, 2).double())
    return torch.block_diag(*blocks)


torch.manual_seed(1)
w_uk = torch.randn(16, 40).double()
rows = {}
for turned in (0, 1, 8):
    absorbed = torch.stack([w_uk.T @ rotation(d, turned) for d in range(256)])
    flat = absorbed.flatten(1)
    off = (absorbed - absorbed[0]).norm(dim=(1, 2)) / absorbed[0].norm()
    rows[f"{turned} pairs turned"] = {
        "fixed matrices needed": torch.linalg.matrix_rank(flat),
        "A_1 is off A_0 by, %": 100 * off[1],
        "at most, %": 100 * off.max(),
    }
needed = [row["fixed matrices needed"] for row in rows.values()]
guess.reveal(
    none=needed[0],
    one=needed[1],
    all=needed[2],
    because="cos and sin of each pair, and one more where the other pairs stand still.",
)
lesson.table(rows, first="the matrix to absorb")

# %% [markdown] decoupled
# Without rotation one matrix serves all. With 8 pairs turned a head would need 16 absorbed queries in place of one, and
# then a sum that knows the distance of each token: sixteen times the work. The other way out is to make all keys of the
# cache again at each step, which is what absorbing was to avoid. (One matrix for all distances would be wrong by up to
# 1.75 times its own size, as the last column says.)
#
# So MLA separates the two jobs, *decoupled RoPE*. A query and a key have two parts:
#
# - the **nope** part, made of latent vectors, is never turned: it can be absorbed;
# - the **rope** part is turned, as usual. Its key is made of $x$ directly, by a matrix of its own, has 64 numbers, and
#   **all heads share it**. It is kept turned, beside the latent vector.
#
# The score is the sum of both products, and its scale comes from the length of both: $1 / \sqrt{128 + 64}$. Positions
# cost 64 numbers of the 576. With a rope key for each head they would cost 8,192.
#
# > **Facts: decoupled RoPE**
# >
# > - Keys of latent attention cannot be turned as a whole, because the rotation would stand between the query's
# >   projection and $W^{UK}$; so RoPE has queries and one shared key of its own. (source: DeepSeek-V2,
# >   [arXiv 2405.04434](https://arxiv.org/abs/2405.04434), section 2.1.3; measured: the cell above)
# > - A pair is two neighbours in DeepSeek's weights, $(2i, 2i + 1)$; in many other models it is $(i, i + d/2)$.
# >   (source: deepseek-ai/DeepSeek-V3, inference/model.py, `apply_rotary_emb`; huggingface/transformers,
# >   modeling_deepseek_v3.py, `rope_interleave`)
#
# ## 4. Brackets: the same score, a hundredth of the work
#
# A cache of S tokens, one query, one head. The nope scores of all tokens are a product of three factors: the latent
# vectors (S × 512), the matrix $W^{UK}_h$ (128 × 512, transposed), the query (128). The bracket can stand left or
# right:

# %% two brackets
lesson.bracket_figure(tokens=4096, rank=512, key=128)

# %% [markdown] how to count
# Multiplying (m × k) by (k × n) takes $2mkn$ FLOPs and makes $mn$ numbers.

# %% guess brackets
guess = predict(
    "10.brackets",
    "S = 4,096, one query, one head. How many times the FLOPs of the right bracket "
    "does the left one take? How many numbers does each make before it comes to the "
    "scores?",
    times=lesson.number("FLOPs, left over right", factor=1.05),
    left=lesson.number("numbers, left: keys first"),
    right=lesson.number("numbers, right: the query first"),
)

# %% brackets
S = 4096
c, w, q = torch.randn(S, RANK), torch.randn(NOPE, RANK), torch.randn(NOPE, 1)
flops, made = {}, {}
for name, first, last in (("left", (c, w.T), q), ("right", (w.T, q), c)):
    with FlopCounterMode(display=False) as counter:
        middle = first[0] @ first[1]
        scores = middle @ last if name == "left" else last @ middle
    flops[name], made[name] = counter.get_total_flops(), middle.numel()
guess.reveal(
    times=flops["left"] / flops["right"],
    left=made["left"],
    right=made["right"],
    because="S × 512 × 128 + S × 128 against 512 × 128 + S × 512; 4,096 × 128; 512.",
)
lesson.table(
    {
        name: {
            "MFLOP": flops[name] / 1e6,
            "numbers made": made[name],
            "the same for 128 heads, MB in bfloat16": 128 * 2 * made[name] / 1e6,
        }
        for name in flops
    },
    first=f"S = {S:,}",
)

# %% [markdown] values and prefill
# With longer contexts the factor tends to 128 here: a key costs $2 \cdot 512 \cdot 128$ and then $2 \cdot 128$ for
# each token, an absorbed query meets it with $2 \cdot 512$. And 128 heads would make 134 MB of keys for every new
# token, of a cache that has 4.7 MB.
#
# Values work the same way from the other side. What comes out of a head is $\sum_j p_j W^{UV} c_j$, with the weights
# $p_j$ of the softmax. The matrix does not depend on $j$: it comes out of the sum. So the sum is one of latent vectors,
# and $W^{UV}$ is applied once, *after* it. One could go on and multiply $W^{UV}$ into the output projection; then both
# matrices are gone, and larger ones have taken their places. Lab 06's kernel leaves them apart.
#
# Is absorbing always better, then? Count again with T new tokens and H heads. Two things have to be done:
#
# | FLOPs | expanded | absorbed |
# |---|---|---|
# | the two matrices | $2 \cdot S H \cdot 512 \cdot (128 + 128)$ | $2 \cdot T H \cdot 512 \cdot (128 + 128)$ |
# | scores and sums | $2 \cdot T S H \cdot (192 + 128)$ | $2 \cdot T S H \cdot (576 + 512)$ |
#
# Expanded, the two matrices work on each of the S tokens of the cache, absorbed on each of the T queries. But a score
# is then a product of length 576 in place of 192, and a value has 512 numbers in place of 128.

# %% guess break-even
guess = predict(
    "10.break_even",
    "S is large. From how many new tokens T at once does the expanded form take fewer "
    "FLOPs? And for a whole prompt, T = S = 8,192 (no mask): FLOPs of the absorbed "
    "form over those of the expanded one?",
    tokens=lesson.number("new tokens", factor=1.1),
    prompt=lesson.number("prompt, absorbed / expanded", factor=1.1),
)


# %% break-even
def form_flops(T, S):
    """FLOPs of the two forms, by the table above, for one head."""
    matrices, both = 2 * RANK * (NOPE + VALUE), RANK + ROPE + RANK
    return {
        "expanded": S * matrices + 2 * T * S * (NOPE + ROPE + VALUE),
        "absorbed": T * matrices + 2 * T * S * both,
    }


def ratio(T, S):
    found = form_flops(T, S)
    return found["absorbed"] / found["expanded"]


assert form_flops(3, 200) == lesson.mla_flops(3, 200, heads=1)  # torch counts the same
guess.reveal(
    tokens=next(T for T in range(1, 1000) if ratio(T, 10**6) > 1),
    prompt=ratio(8192, 8192),
    because="512 × 256 / (1,088 - 320) = 171; for long prompts towards 1,088 / 320.",
)
contexts = (1024, 8192, 65536)
lesson.table(
    {
        f"{T} new tokens": {f"S = {S:,}": ratio(T, S) for S in contexts}
        for T in (1, 2, 16, 128, 171, 512)
    },
    first="absorbed / expanded, FLOPs",
)

# %% [markdown] seconds
# So a server has both forms: it expands where it reads a prompt, and absorbs where it writes. Are seconds what the
# FLOPs say? Four heads of these sizes on one core of this CPU: one query behind 1,024 tokens, and 512 queries with
# 512 tokens. Both forms run in turn; the table has the median of the ratios and the quartiles.

# %% seconds of both forms
cases = {"one query, 1,024 tokens": (1, 1024), "512 queries, 512 tokens": (512, 512)}
rows = {}
for name, (T, S) in cases.items():
    race, counted = lesson.mla_race(T, S), lesson.mla_flops(T, S)
    rows[name] = {
        "FLOPs": counted["expanded"] / counted["absorbed"],
        "seconds": race.ratio,
        "quartiles": f"{race.low:.2f} to {race.high:.2f}",
        "absorbed, GFLOP/s": counted["absorbed"] / race.fn.median / 1e9,
        "expanded, GFLOP/s": counted["expanded"] / race.against.median / 1e9,
    }
lesson.table(rows, first="expanded / absorbed")

# %% [markdown] seconds explained
# The direction is that of the FLOPs in both rows, and the factor is smaller in the first: with one query the absorbed
# form does fewer FLOPs in a second, as the last columns show. It multiplies matrices by single vectors, so each number
# that it reads serves one product; the expanded form multiplies matrices by matrices. Few FLOPs are no use where bytes
# bind. So count those, too.
#
# > **Facts: both forms in production**
# >
# > - vLLM uses a form that saves arithmetic for prefill and one that saves data movement for decoding. (source: vLLM
# >   documentation,
# >   [mla_attention](https://docs.vllm.ai/en/v0.26.0/api/vllm/model_executor/layers/attention/mla_attention/))
#
# ## 5. A decoded token by its bytes
#
# One decoded token of one sequence, one layer, all 128 heads, bfloat16. It reads the matrices of attention: 187 million
# numbers. And it reads the cache. Three ways: a cache of full keys and values, MHA's; the latent cache, expanded, where
# keys and values are written and read again besides; the latent cache, absorbed. The matrices are read once for a whole
# batch; a cache belongs to one sequence.

# %% guess weights or cache
guess = predict(
    "10.weights_or_cache",
    "A batch of 64 sequences decodes with absorbed projections. From which context on "
    "does a layer read more bytes of caches than of its matrices? And with a cache of "
    "full keys and values (40,960 numbers)?",
    latent=lesson.number("latent cache", unit="tokens", factor=1.1),
    full=lesson.number("full cache", unit="tokens", factor=1.1),
)

# %% weights or cache
D, Q_RANK = 7168, 1536
matrices = {
    "queries": D * Q_RANK + Q_RANK * HEADS * (NOPE + ROPE),
    "latents and rope": D * (RANK + ROPE),
    "up to keys and values": RANK * HEADS * (NOPE + VALUE),
    "output": HEADS * VALUE * D,
}
weights = sum(matrices.values())
guess.reveal(
    latent=weights / (64 * numbers["MLA"]),
    full=weights / (64 * numbers["MHA"]),
    because="187 million over 64 × 576, and over 64 × 40,960.",
)
ways = {}
for S in contexts:
    found, full = form_flops(1, S), 2 * S * (NOPE + ROPE + VALUE)
    made = (
        2 * 2 * S * HEADS * (NOPE + VALUE)
    )  # bytes of keys and values, written and read
    for way, gflop, moved in (
        ("full cache", full, 2 * S * numbers["MHA"]),
        ("latent, expanded", found["expanded"], 2 * S * numbers["MLA"] + made),
        ("latent, absorbed", found["absorbed"], 2 * S * numbers["MLA"]),
    ):
        ways[f"{way}, S = {S:,}"] = {
            "GFLOP": HEADS * gflop / 1e9,
            "MB of cache, keys and values": moved / 1e6,
            "FLOPs for each byte": HEADS * gflop / moved,
        }
lesson.table(ways, first="one token, one layer, without the other matrices")

# %% [markdown] what grows
# All of a *full* cache is used once: one FLOP for a byte, far on memory's side of every roofline. The *expanded* form
# has the worst of both: it moves 1.6 times the bytes of a full cache, and computes 400 times as much. (So its 254 in
# the last column is no merit: it makes the same keys again for each token.) The *absorbed* form does 3.4 times the
# FLOPs of a full cache, as lesson 06 counted, and moves a seventy-first of the bytes. All 128 heads share what they
# read.
#
# ## 6. From memory to the matrix units
#
# FLOPs for each byte are the *arithmetic intensity*; where a chip's peak over its bandwidth is lower, its matrix units
# bind. Lesson 06 found 242 for one token and 128 heads. Two things move it. With multi-token prediction (sitting 4) a
# step checks two tokens of a sequence at once: both read the same cache. And lesson 08 stored the cache in FP8, 656
# bytes for a token; its codes are widened, and multiplied in bfloat16. The rooflines, bfloat16:

# %% rooflines
chips = ("H100", "H800", "MI300X")
lesson.table(
    {
        name: {
            "peak, TFLOP/s": CHIPS[name].peak("bf16"),
            "memory, TB/s": CHIPS[name].bandwidth,
            "FLOPs for each byte": CHIPS[name].peak("bf16") / CHIPS[name].bandwidth,
        }
        for name in chips
    },
    first="chip",
)

# %% guess intensity
SIDES = ("memory", "matrix units")
guess = predict(
    "10.intensity",
    "128 heads. FLOPs for each byte of the cache with two tokens at once, bfloat16? "
    "With one token and 656 bytes? And what binds the plain case, one token in "
    "bfloat16, by these peaks?",
    two=lesson.number("two tokens", factor=1.05),
    fp8=lesson.number("one token, FP8 cache", factor=1.05),
    h800=lesson.choice(*SIDES, label="plain, H800"),
    mi300x=lesson.choice(*SIDES, label="plain, MI300X"),
)

# %% intensity
per_token = 2 * HEADS * (RANK + ROPE + RANK)
steps = {  # FLOPs for each byte of the cache
    "one token": per_token / (2 * numbers["MLA"]),
    "two tokens": 2 * per_token / (2 * numbers["MLA"]),
    "one token, FP8 cache": per_token / 656,
    "one token, 16 of the heads": per_token / 8 / (2 * numbers["MLA"]),
}
ridges = {name: CHIPS[name].peak("bf16") / CHIPS[name].bandwidth for name in chips}


def binds(chip, step):
    return SIDES[steps[step] > ridges[chip]]


guess.reveal(
    two=steps["two tokens"],
    fp8=steps["one token, FP8 cache"],
    h800=binds("H800", "one token"),
    mi300x=binds("MI300X", "one token"),
    because="twice 242; 278,528 over 656; 242 is just below 247 and 295.",
)
lesson.table(
    {
        step: {"FLOPs for each byte": n}
        | {f"{chip}: binds": binds(chip, step) for chip in chips[1:]}
        | {f"{chip}: % of peak": 100 * min(1, n / ridges[chip]) for chip in chips[1:]}
        for step, n in steps.items()
    },
    first="MLA, absorbed",
)

# %% [markdown] claim and fact
# By the peaks of the data sheets one token with 128 heads is just on memory's side: at most 98% of the MI300X's
# matrix units, and 82% of the H800's. No chip keeps its peak. DeepSeek's engineers put the H800's peak under load at
# 865 TFLOP/s: then it balances at 258, hardly above 242, and they call their kernel compute-bound. Two tokens at
# once, or an FP8 cache, are beyond every ridge here: then fewer bytes would not help any more, and neither would a
# faster memory.
#
# The last row is the trap of lesson 06: deal the heads to eight GPUs, and each reads the whole cache for 16 of them.
#
# > **Claim and fact: MLA is only a smaller cache**
# >
# > - *Claim*: MLA is compression; what is computed stays as it was.
# > - *Fact*: absorbed, it makes 3.4 times the FLOPs of full attention on a seventy-first of the bytes, so that decoding
# >   goes from memory's side of the roofline to its ridge. (measured: the counts of sections 5 and 6)
# > - *Fact*: with 128 heads DeepSeek counts FlashMLA among the compute-bound kernels, at a throttled peak of 865
# >   TFLOP/s and 3.35 TB/s, and reports up to 660 TFLOP/s on an H800. (source: deepseek-ai/FlashMLA,
# >   docs/20250422-new-kernel-deep-dive.md)
# > - *Fact*: it is not free: expanded at each step it moves more than a full cache, and absorbed in a prompt it costs
# >   up to 3.4 times the FLOPs. (measured: the tables of sections 4 and 5)
#
# No such figure of an AMD chip stands here: none was measured. The arithmetic is the same on both vendors' chips, and
# so is the kernel of lab 06, which was compiled for both and executed on both virtual GPUs.
#
# **You have** the bytes of every kind of cache, a reason for each part of latent attention, and counts that say when to
# absorb. In the lab: 10.mla and 10.mla_absorb, and your own two functions that decode together. Next: which expert gets
# a token.

# %% first sitting of unit 10 ends
lesson.sitting("10", 1)

# %% [markdown] sitting on routing
# # Sitting 2: who computes which token
#
# ## 7. Two gates
#
# A layer with a *mixture of experts* (MoE) has E small MLPs, the *experts*, in place of a large one. Each token is
# computed by k of them, and their outputs are added, each with a *weight*. Who gets which token is decided by the
# *router*: one matrix with a row for each expert. Token times row is a *logit*; a *gate* turns logits into *scores*.
#
# Two gates are common. **Softmax**: the scores of a token add up to 1, so each depends on all. **Sigmoid**: each logit
# becomes a score between 0 and 1 alone. The k experts with the largest scores are chosen (*top-k*), and the weights are
# the scores of the chosen, divided by their sum. Without the division the size of the layer's output would follow how
# sure the gate is: k sigmoids may add up to nearly 0 or to nearly k.
#
# $e = 2.72$; the sigmoids of 2, 1, 0 and -1 are 0.881, 0.731, 0.5 and 0.269.

# %% guess gates
guess = predict(
    "10.gates",
    "Logits 2, 1, 0, -1, and k = 2: experts 0 and 1. How many times the weight of "
    "expert 1 has expert 0? Then the logit of expert 3 rises from -1 to 0.9: what "
    "happens to the score of expert 0?",
    softmax=lesson.number("softmax: times", factor=1.05),
    sigmoid=lesson.number("sigmoid: times", factor=1.05),
    then=lesson.choice("softmax's falls", "sigmoid's falls", "both fall", label="then"),
)

# %% gates
logits = torch.tensor([2.0, 1.0, 0.0, -1.0])
later = torch.tensor([2.0, 1.0, 0.0, 0.9])
GATES = {"softmax": lambda x: x.softmax(0), "sigmoid": torch.sigmoid}
times = {
    name: (gate(logits)[0] / gate(logits)[1]).item() for name, gate in GATES.items()
}
falls = {name: bool(gate(later)[0] < gate(logits)[0]) for name, gate in GATES.items()}
guess.reveal(
    softmax=times["softmax"],
    sigmoid=times["sigmoid"],
    then="both fall" if all(falls.values()) else f"{max(falls, key=falls.get)}'s falls",
    because="e^(2 - 1) = 2.72; 0.881 / 0.731 = 1.2. Only a softmax divides by the sum "
    "over all experts.",
)
lesson.table(
    {f"{name}, expert 3 {word}": dict(enumerate(gate(x).tolist()))
     for name, gate in GATES.items() for word, x in (("-1", logits), ("0.9", later))},
    first="scores of experts",
)  # fmt: skip

# %% [markdown] what gates differ in
# After the division by the sum of the chosen, softmax depends on differences of logits alone. Sigmoid weights lie
# close together where logits are large: several experts can be good at once. The scores of a softmax over 256 experts
# are 1/256 on average; a sigmoid may be anywhere from 0 to 1 with any number of experts, so a number that is *added*
# to it, as in section 9, means the same everywhere.
#
# > **Facts: gates**
# >
# > - DeepSeek-V3: sigmoid, 256 routed experts, top-8, weights normalised over the chosen, then times 2.5. (source:
# >   DeepSeek-V3 technical report, [arXiv 2412.19437](https://arxiv.org/abs/2412.19437), section 2.1.2 and 4.2;
# >   `routed_scaling_factor` in transformers' DeepseekV3Config)
# > - DeepSeek-V4: the square root of softplus in place of the sigmoid; the first layers choose experts by a hash of the
# >   token. (source: DeepSeek-V4 technical report, section 2.1)
#
# ## 8. Loads, places, and tokens that are dropped
#
# The *load* of an expert is the number of tokens that chose it. T tokens with k choices each make a mean load of
# $T k / E$. The *imbalance* is the largest load over the mean: from 1, all loads even, to E / k. Suppose nobody prefers
# anybody: each token draws its k experts at random. Then a load of mean m still spreads by about $\sqrt{m}$, as counts
# do; the largest of 16 such numbers lies about 1.8 spreads above the mean.
#
# Early MoE layers gave each expert a fixed number of *places*, because tensors had fixed shapes: the *capacity* is a
# *capacity factor* times the mean load. A token that comes when the places are taken is *dropped*: that expert adds
# nothing to it, and the residual connection carries it on. At a factor of 1 whatever lies above the mean is dropped;
# for a bell curve that is 0.4 spreads for each expert.

# %% guess chance
guess = predict(
    "10.chance",
    "256 tokens, 16 experts, k = 2: the mean load is 32, its spread 5.3 (two different "
    "experts for a token: a little less than the root). With experts drawn at random: "
    "the imbalance of such a batch? How many of the choices are dropped at a capacity "
    "factor of 1?",
    imbalance=lesson.number("imbalance", factor=1.08),
    dropped=lesson.number("dropped", unit="%", factor=1.25),
)

# %% chance
torch.manual_seed(0)
E, k, T = 16, 2, 256
found = []
for _ in range(200):
    experts = torch.rand(T, E).topk(k).indices  # two different ones for each token
    load = lesson.loads(experts, E)
    row = {"imbalance": lesson.imbalance(load)}
    for factor in (1.0, 1.25, 1.5):
        kept = lesson.fits(experts, E, lesson.capacity(T, k, E, factor))
        row[f"dropped at {factor}, %"] = 100 * (~kept).float().mean().item()
    found.append(row)
chance = {name: sum(row[name] for row in found) / 200 for name in found[0]}
guess.reveal(
    imbalance=chance["imbalance"],
    dropped=chance["dropped at 1.0, %"],
    because="1 + 1.8 × 5.3 / 32; 0.4 × 5.3 / 32.",
)
lesson.table({"mean of 200 batches": chance})

# %% [markdown] chance explained
# So an imbalance of 1.3 in a batch of this size says nothing about the router. To see the router, add up the loads of
# several batches: the mean grows with their number, the spread with its root.
#
# > **Facts: capacity**
# >
# > - Capacity: tokens of a batch over experts, times the capacity factor; tokens beyond it skip the layer through the
# >   residual connection. (source: Switch Transformers, [arXiv 2101.03961](https://arxiv.org/abs/2101.03961),
# >   section 2.2)
# > - DeepSeek-V3 drops no token, in training or in inference. (source: DeepSeek-V3 technical report, section 2.1.2)
#
# Without a capacity shapes differ from batch to batch. That is what permutation and grouped GEMM are for, in the next
# sitting.
#
# ## 9. Three trainings
#
# Now a router that learns. The model is as small as one can be: the embeddings of a token and of the one before it are
# added, a layer of 16 experts with k = 2 works on the sum, a head predicts the next token of unit 01's corpus. There is
# no attention. This is its forward pass; `route`, a sigmoid gate, is yours to write in the lab.

# %% a model with experts
lesson.code(lesson.RoutedModel.forward)

# %% [markdown] why it gets uneven
# Every token has some gradient for the two experts that it chose, and none for the other 14. Who is chosen learns; who
# has learned is chosen. Three ways to deal with it:
#
# - **nothing**;
# - an **auxiliary loss**: a number that is small when loads are even is added to the loss, so the gate is pushed by its
#   gradient. Its formula stands below;
# - a **bias**: a number for each expert is added to its score *for the choice alone*. After each step it goes up a
#   little where the load was below the mean, and down where it was above. No gradient goes through it.
#
# Each is trained four times for 120 steps, from the same four random beginnings and on the same batches: runs with the
# same seed form a pair.

# %% guess three trainings
guess = predict(
    "10.trainings",
    "Loads of the last 20 steps together. The imbalance without any balance, and with "
    "the bias? And the loss of the last 20 steps: what does an even load do to it in a "
    "training as short as this?",
    nothing=lesson.choice("below 1.5", "1.5 to 6", "above 6", label="nothing"),
    bias=lesson.choice("below 1.5", "1.5 to 6", "above 6", label="bias"),
    loss=lesson.choice("clearly better", "clearly worse", "little", label="the loss"),
)

# %% three trainings
corpus = lesson.load_corpus(lesson.TrainConfig.preset("cpu").corpus)
WAYS = {
    "nothing": {"balance": "none"},
    "auxiliary loss": {"balance": "auxiliary loss", "alpha": 0.1},
    "bias": {"balance": "bias", "speed": 0.005},
}
runs = {
    name: [
        lesson.routed_run(lesson.RoutedConfig(**way, steps=120), corpus.train, seed)
        for seed in range(4)
    ]
    for name, way in WAYS.items()
}
rows = {}
for name, of in runs.items():
    ends = [run.loads[-20:].sum(0) for run in of]
    pairs = zip(of, runs["nothing"], strict=True)
    gaps = [(sum(a.losses[-20:]) - sum(b.losses[-20:])) / 20 for a, b in pairs]
    gap = lesson.mean_interval(gaps)  # 95%, four pairs
    rows[name] = {
        "imbalance": sum(map(lesson.imbalance, ends)) / 4,
        "least load / mean": sum((e.min() / e.double().mean()).item() for e in ends)
        / 4,
        "loss, nats": sum(sum(run.losses[-20:]) for run in of) / 80,
        "against nothing": gap.mean,
        "±": gap.high - gap.mean,
    }
SIZES = {"below 1.5": (0, 1.5), "1.5 to 6": (1.5, 6), "above 6": (6, 99)}
between = {
    name: next(s for s, (a, b) in SIZES.items() if a <= row["imbalance"] < b)
    for name, row in rows.items()
}
change, off = rows["bias"]["against nothing"], rows["bias"]["±"]
guess.reveal(
    nothing=between["nothing"],
    bias=between["bias"],
    loss="little"
    if abs(change) < off
    else ("clearly worse" if change > 0 else "clearly better"),
    because="who is chosen learns, and is chosen. The difference of the losses is "
    "within its ±.",
)  # fmt: skip
lesson.table(rows, first="mean of four runs")

# %% loads drawn
lesson.curves(
    {name: of[1].imbalance(window=10) for name, of in runs.items()},
    "imbalance",
    levels={"perfectly even": 1.0},
)

# %% [markdown] three trainings explained
# (The curves are those of one seed, over 10 steps each.) Left alone the loads spread and stay spread; the idlest
# expert has a twentieth of the mean. Both remedies work, the auxiliary loss within some 35 steps, the bias within some
# 45. And the loss? The differences of the pairs are within their ±: four pairs of 120 steps **cannot show** whether
# balance helps or hurts the model. What they do show is who computes. With idle experts you pay the memory of 16 and
# train fewer; and you pay in time, as the next section counts.
#
# ## 10. What a slow expert costs
#
# Let each expert live on a GPU of its own, and let its time be proportional to its load. The layer is done when the
# last expert is: **time is the largest load**. Or let four neighbours share a GPU: experts 0 to 3, 4 to 7 and so on;
# its load is then their sum. Take the imbalance of "nothing" in the table as I.

# %% guess slow expert
guess = predict(
    "10.slow_expert",
    "One GPU for each expert: how many times the time of an even load does the layer "
    "take with `nothing`? How busy are the 16 GPUs on average? And with four experts "
    "on each of 4 GPUs: is the imbalance, now of GPUs, larger?",
    times=lesson.number("times", factor=1.05),
    busy=lesson.number("busy", unit="%", factor=1.05),
    four=lesson.choice("larger", "smaller", "the same", label="four on a GPU"),
)

# %% slow expert
ends = [run.loads[-20:].sum(0) for run in runs["nothing"]]
alone = sum(map(lesson.imbalance, ends)) / 4
shared = sum(lesson.imbalance(end.view(4, 4).sum(1)) for end in ends) / 4
guess.reveal(
    times=alone,
    busy=100 / alone,
    four="smaller" if shared < alone else "larger",
    because="the largest load over the mean is I; the mean over the largest 1 / I; "
    "a sum of four mixes busy and idle ones.",
)
lesson.table(
    {
        "a GPU for each expert": {"time / even": alone, "busy, %": 100 / alone},
        "four experts on a GPU": {"time / even": shared, "busy, %": 100 / shared},
    }
)

# %% [markdown] slow expert explained
# One GPU of 16 works all the time, and the others wait for it two thirds of theirs. With four experts on a GPU a busy
# one and an idle one share it, and less time is lost; a model with more experts on fewer GPUs is more forgiving. Twice
# the GPUs do not help against it: the busiest expert is on one of them. (For few tokens an expert's time is that of
# reading its weights, whatever its load: the third sitting.) Where a bias no longer helps, in inference, the busiest
# experts get a second copy: redundant experts, unit 11.
#
# ## 11. How fast a bias moves
#
# The bias has one number to choose: the *speed*, by which it moves in a step, up or down, however far off the load is.
# Scores lie between 0 and 1. Suppose an expert's scores are 0.1 below those of the others for nearly every token.

# %% guess speed
guess = predict(
    "10.speed",
    "How many steps until a bias has made up for 0.1, at the speed 0.001 of "
    "DeepSeek-V3, and at 0.02? Three trainings with 0.0002, 0.02 and 0.5: which has "
    "the smallest imbalance in the last 20 steps?",
    slow=lesson.number("steps at 0.001"),
    fast=lesson.number("steps at 0.02"),
    best=lesson.choice("0.0002", "0.02", "0.5", label="the most even"),
)

# %% speed
at = {}
for speed in (0.0002, 0.02, 0.5):
    config = lesson.RoutedConfig(balance="bias", speed=speed, steps=120)
    at[f"speed {speed:g}"] = lesson.routed_run(config, corpus.train, seed=1)
batch = {
    name: [lesson.imbalance(load) for load in run.loads] for name, run in at.items()
}
guess.reveal(
    slow=0.1 / 0.001,
    fast=0.1 / 0.02,
    best=min(batch, key=lambda name: sum(batch[name][-20:])).removeprefix("speed "),
    because="100 and 5 steps; a bias that jumps by 0.5 overtakes every score, and the "
    "next step chooses the others.",
)
lesson.curves(batch, "imbalance of each batch")

# %% [markdown] speed explained
# Too slow and nothing happens in 120 steps. Too fast and the experts take turns: each batch is uneven, the other way
# round. DeepSeek-V3's 0.001 would be slow in our 120 steps; its own training had far more of them.
#
# ## 12. Balance by a loss, over a batch or over a sequence
#
# The auxiliary loss takes two numbers of each expert e. $f_e$ is E / k times the share of tokens that chose it, so 1
# when all are even. $P_e$ is its mean score over the tokens, where each token's scores are divided by their sum first.
# With a weight $\alpha$:
#
# $$ L = \alpha \sum_e f_e P_e $$
#
# $f$ counts, and has no gradient. $P$ has one: the busier an expert, the more its score is pushed down. DeepSeek-V3
# adds this **for each sequence by itself**, with a tiny α, beside its bias. Is that not the same? Take two sequences,
# one of Python and one of French, and 4 experts with k = 2. Each token of the first has the scores 1, 1, 0, 0 and each
# of the second 0, 0, 1, 1.

# %% guess sequences
guess = predict(
    "10.sequences",
    "These two sequences are a batch. Its imbalance, as the bias sees it? L with "
    "α = 1, over the batch as one? And the mean of L over each sequence by itself?",
    imbalance=lesson.number("imbalance of the batch"),
    batch=lesson.number("L of the batch"),
    sequence=lesson.number("L of sequences"),
)

# %% sequences
python = torch.tensor([1.0, 1.0, 0.0, 0.0]).expand(8, 4)
both = torch.stack([python, python.flip(1)])  # (sequences, tokens, experts)


def evenness(scores):  # (tokens, experts) -> L with alpha = 1, k = 2
    share = torch.bincount(scores.topk(2).indices.flatten(), minlength=4) / len(scores)
    f, P = share * 4 / 2, (scores / scores.sum(1, keepdim=True)).mean(0)
    return (f * P).sum()


experts = both.topk(2).indices
guess.reveal(
    imbalance=lesson.imbalance(lesson.loads(experts, 4)),
    batch=evenness(both.flatten(0, 1)),
    sequence=sum(map(evenness, both)) / 2,
    because="over both all f are 1 and all P 1/4; in one sequence two f are 2 and "
    "their P 1/2.",
)

# %% [markdown] sequences explained
# The batch is even. Each sequence is not, and its own loss says so: it asks French and Python to use the same experts.
# A loss for sequences therefore works against experts that *specialise*, and V3 keeps it at α = 0.0001, against the
# extreme case alone: the largest L here, E / k = 32 times α for V3's 256 experts and k = 8 with all of a sequence on
# the same 8, is 0.0032.
#
# > **Claim and fact: routing needs an auxiliary loss**
# >
# > - The early answer: an auxiliary loss over the batch, α = 0.01. (source: Switch Transformers, section 2.2)
# > - DeepSeek-V3: a bias with speed 0.001 for the first 14.3T tokens, then 0 for the last 500B; a sequence-wise loss
# >   with α = 0.0001. (source: DeepSeek-V3 technical report, section 4.2)
# > - Validation losses of three 1B models: 2.258 with a sequence-wise loss, 2.253 with the bias, 2.253 with a
# >   batch-wise loss. So it is the scope that costs, and not that it is a loss. (source: DeepSeek-V3 technical report,
# >   section 4.5.3)
# > - Loads even out with no loss at all. (measured: the cell "three trainings")
#
# Look around. Compare *bias* with *sequence loss* in the column "within a sequence", and let the capacity factor decide
# what an imbalance costs.

# %% explore routing
explore("routing", "bias", step=60)

# %% [markdown] groups
# ## 13. Groups of experts
#
# A node has 8 GPUs, and what leaves it goes over a slower network (unit 11). V3's 256 experts lie on 8 nodes, 32 on
# each, in training. A token is sent once to each node that has any of its 8 experts. Chosen at random, a given node has
# none of them with a probability of about $(7/8)^8 = 0.34$. V3's rule allows four nodes for a token.

# %% guess nodes
guess = predict(
    "10.nodes",
    "How many of the 8 nodes does a token reach on average, when its 8 experts are any "
    "of the 256? And which share of all sends does the rule of four nodes save?",
    free=lesson.number("nodes, any expert", factor=1.04),
    saved=lesson.number("sends saved", unit="%", factor=1.15),
)

# %% nodes
torch.manual_seed(0)
anywhere = torch.rand(20_000, 256).topk(8).indices
reached = lesson.groups_reached(anywhere, size=32)
guess.reveal(
    free=reached.double().mean(),
    saved=100 * (1 - reached.clamp(max=4).sum() / reached.sum()).item(),
    because="8 × (1 - 0.34) = 5.3; 1 - 4 / 5.3, as nearly all tokens reach 4 or more.",
)
share = torch.bincount(reached, minlength=9) / len(reached)
lesson.bars({f"{n} nodes": 100 * share[n].item() for n in range(3, 9)}, "% of tokens")

# %% [markdown] groups explained
# The rule: each node's experts are a *group*; a group's value is the sum of its two best experts (bias included); only
# the best four groups may be chosen from, then top-8. Two best, because 8 experts on 4 nodes are two for each. It is a
# restriction, so it can only make the choice worse; the network pays for it. (source: DeepSeek-V3 technical report,
# section 2.1.2.) DeepSeek-V4 has dropped it. (source: DeepSeek-V4 technical report, section 2.1.) A trap lies in how
# the other experts are ruled out: scores are positive, but score + bias need not be. The lab has it.
#
# ## 14. Shared experts
#
# One expert of V3 works for **every** token: the *shared* expert, of the same size as the routed ones. What all tokens
# need is learned there once, and not 256 times; the router has nothing to decide about it, and its load is always even.
#
# An expert of V3, of either kind, is a *gated* MLP, called SwiGLU: $V (\operatorname{silu}(G x) \odot U x)$, two
# matrices in and one back. How many numbers lie between them is the *expert width* (`moe_intermediate_size` in Hugging
# Face's files): 2,048 in V3, beside a model's width of 7,168. Section 23 counts what all experts come to.
#
# **You have** gates, loads, capacity, three ways to balance and what they ask for, groups and shared experts. In the
# lab: 10.gate, 10.group_limited, 10.bias_update. Next: from loads to tiles.

# %% sitting on routing ends
lesson.sitting("10", 2)

# %% [markdown] many small products
# # Sitting 3: kernels of a layer of experts
#
# ## 15. A loop over experts starves a GPU
#
# The router has chosen k experts for each token. The plain way to go on is a loop: for each expert pick its tokens,
# multiply them by its weights, put the results back. Each step of the loop is a product by itself. How large is it?
#
# > **Facts: DeepSeek-V3's experts**
# >
# > - 256 routed experts in a layer, of which a token uses 8; the model's width is 7,168, the expert width
# >   2,048. (source: DeepSeek-V3 Technical Report, [arXiv 2412.19437](https://arxiv.org/abs/2412.19437), section 4.2)
#
# An expert has three matrices: $G$ and $U$ (the gate and the up projection) from 7,168 to 2,048, and $V$ back. If all
# experts are chosen alike, T tokens give each of them 8 T / 256 rows. A product of M rows by a matrix with N = 2,048
# outputs has, in tiles of 128 × 128, as many programs as tiles (unit 05):
#
# $$ \lceil M / 128 \rceil \cdot \lceil N / 128 \rceil $$
#
# How many of them can run at a time? As many as there are SMs or CUs, with one on each:

# %% units of two chips
UNITS = {name: int(CHIPS[name].units.value) for name in ("H100", "MI300X")}
lesson.table({name: {"SMs or CUs": units} for name, units in UNITS.items()})

# %% guess starved
guess = predict(
    "10.starved",
    "4,096 tokens, all experts chosen alike, tiles of 128 × 128. How many tiles has "
    "one expert's up projection? Which share of an H100's SMs gets one? How many "
    "products does the loop launch for the three matrices of all experts?",
    tiles=lesson.number("tiles"),
    share=lesson.number("SMs with a tile", unit="%", factor=1.05),
    launches=lesson.number("launches"),
)

# %% starved
EXPERTS, CHOSEN, EXPERT_WIDTH = 256, 8, 2048
rows = {}
for tokens in (128, 4096, 65536):
    each = tokens * CHOSEN // EXPERTS
    tiles = triton.cdiv(each, 128) * triton.cdiv(EXPERT_WIDTH, 128)
    rows[f"{tokens:,} tokens"] = {"rows of an expert": each, "tiles": tiles} | {
        f"{name}: busy, %": 100 * min(1, tiles / units) for name, units in UNITS.items()
    }
guess.reveal(
    tiles=rows["4,096 tokens"]["tiles"],
    share=rows["4,096 tokens"]["H100: busy, %"],
    launches=3 * EXPERTS,
    because="128 rows are one row of tiles, 2,048 / 128 = 16 of them; 16 / 132; "
    "3 × 256.",
)
lesson.table(rows, first="one launch of the loop")

# %% [markdown] starved explained
# As one product this batch would fill the chip many times over; of 256 pieces each fills an eighth of an H100, and a
# twentieth of an MI300X. And the host asks each time how many rows there are, so it waits for the GPU before it can
# launch. (While a model decodes, 128 tokens give an expert four rows. What counts then is that weights are read: an
# output's row of weights, 2 · 7,168 bytes in bf16, serves four tokens.)
#
# The way out has three steps. **Permute**: copy the tokens so that the rows of each expert are one *stretch*. **Grouped
# product**: one launch that works on all stretches. **Combine**: bring results back to their tokens, weighed. Each has
# a trap.
#
# ## 16. To the experts: whose row is where?
#
# Six tokens, three experts, two for each token:

# %% a small batch
experts = torch.tensor([[2, 0], [0, 1], [2, 1], [0, 2], [0, 1], [2, 0]])
stretches = {e: [token for token in range(6) if e in experts[token]] for e in range(3)}
lesson.table(
    {
        f"expert {e}": {"tokens": ", ".join(map(str, tokens))}
        for e, tokens in stretches.items()
    },
    first="stretch",
)

# %% [markdown] slots by atomics
# Two things are needed: where each stretch begins, and which row of it an *entry* gets, one choice of one token. The
# second is the trap. A short answer lets every token ask a counter of its expert, by an atomic, for the next free row:


# %% a slot for each entry
@triton.jit
def slot_kernel(experts_ptr, filled_ptr, slots_ptr, k):
    token = tl.program_id(0)
    for j in range(0, k):
        expert = tl.load(experts_ptr + token * k + j)
        slot = tl.atomic_add(filled_ptr + expert, 1)  # how many came before me
        tl.store(slots_ptr + token * k + j, slot)


def slots(experts, order, seed=0):
    filled = torch.zeros(3, dtype=torch.int32)
    found = torch.empty(experts.shape, dtype=torch.int32)
    with virtual_gpu("gfx942", order=order, seed=seed):
        slot_kernel[(len(experts),)](experts, filled, found, experts.shape[1])
    return filled, found


# %% guess slots
guess = predict(
    "10.slots",
    "The launch runs twice, its programs in another order the second time. What is the "
    "same both times?",
    counts=lesson.yes_no("the counts of the experts"),
    slots=lesson.yes_no("the row of each entry"),
)

# %% slots twice
(counts, first), (again, second) = (
    slots(experts, "program"),
    slots(experts, "shuffled", 2),
)
guess.reveal(
    counts=torch.equal(counts, again),
    slots=torch.equal(first, second),
    because="whole numbers add up to the same in any order; who comes third does not "
    "stay third.",
)
lesson.table(
    {
        f"token {t}": {
            "experts": "{}, {}".format(*experts[t]),
            "in order": "{}, {}".format(*first[t]),
            "in another order": "{}, {}".format(*second[t]),
        }
        for t in range(6)
    },
    first="row within the stretch",
)

# %% [markdown] slots explained
# Both are permutations, both give right results, and a real GPU gives another one in each run. That matters where
# rows are *added up*: the gradient of an expert's weights is a sum over its rows, and a float sum rounds after each
# step. Two runs from one seed part, and a bug that shows once in ten runs is hard to find. So the order of this
# course, in this unit and the next, is fixed: **by expert, then by token number**. Such an order is called *stable*.
#
# Counting may use atomics on whole numbers; the row of an entry may not. It is the number of *earlier* entries with
# the same expert, which has nothing to do with who runs first. So a permutation gives four things: `rows`; `offsets`,
# where each stretch begins; `source`, the token of each row; and `position`, the row of each choice of each token.
# (Lab: 10.permute. There a row of x is also loaded once, though k rows come of it.)
#
# ## 17. What padding costs
#
# A program computes a tile of BM rows. If every stretch begins at a multiple of BM and its end is filled up with rows
# of zeros, a tile belongs to one expert, and no load along M needs a mask. The price is the work on zeros. An expert
# with n rows takes $\lceil n / BM \rceil$ tiles, whatever is in the last one.
#
# Loads vary. When each of 32,768 entries (4,096 tokens, 8 each) falls on one of 256 experts by chance, an expert gets
# 128 on average, and two thirds of them get between 117 and 139.

# %% guess padding
guess = predict(
    "10.padding",
    "32,768 entries fall on 256 experts by chance. How many rows of zeros come on top "
    "of them, in percent?",
    small=lesson.number("tiles of 16 rows", unit="%", factor=1.3),
    large=lesson.number("tiles of 128 rows", unit="%", factor=1.15),
)


# %% padding
def added(tokens, tile, seed=0):
    """Rows of zeros in percent, loads drawn by chance."""
    drawn = torch.Generator().manual_seed(seed)
    chosen = torch.randint(EXPERTS, (tokens * CHOSEN,), generator=drawn)
    loads = chosen.bincount(minlength=EXPERTS)
    padded = (loads + tile - 1) // tile * tile
    return 100 * (padded.sum() / loads.sum() - 1).item()


TILES = (16, 32, 64, 128)
waste = {
    tokens: {tile: added(tokens, tile) for tile in TILES}
    for tokens in (128, 1024, 3500, 4096, 4600, 16384, 65536)
}
guess.reveal(
    small=waste[4096][16],
    large=waste[4096][128],
    because="8 of 128 are half a small tile each. Loads just above 128 take two large "
    "tiles, those below one: 64 of 128 on average.",
)
lesson.table(
    {
        f"{tokens:,} tokens, {tokens * CHOSEN // EXPERTS:,} rows an expert": {
            f"BM = {tile}": f"{percent:,.0f}%" for tile, percent in row.items()
        }
        for tokens, row in waste.items()
    },
    first="rows of zeros",
)

# %% [markdown] padding explained
# Where loads vary by more than a tile, the last tile of each expert is half empty on average: half a tile each. At 128
# rows and tiles of 128 half a tile came out by luck, since the mean lies on a tile's edge: with 3,500 tokens it is
# 21%, with 4,600 it is 69%. And an expert that has any row takes one tile at least: 128 tokens with tiles of 128 rows
# are 32 times the work. So one chooses the tile by the *rows of an expert*, not by the size of the product; and a
# decoding engine has another kernel than a training run.
#
# That is a count on paper. Is it what the machine code does? Here is a product for a stretch, in tiles. The same
# kernel serves two launchers, the first two *rungs* of this sitting. `launch_each` launches it for every expert, with
# the grid that its load needs. `padded_grid` launches it once: every expert gets as many programs as the longest one
# needs, and those with nothing to do leave at once.


# %% one kernel for two rungs
@triton.jit
def stretch_kernel(
    rows_ptr, weights_ptr, offsets_ptr, out_ptr, first_expert, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    expert = first_expert + tl.program_id(2)
    row = tl.load(offsets_ptr + expert) + tl.program_id(0) * BM
    if row < tl.load(offsets_ptr + expert + 1):
        m = row + tl.arange(0, BM)[:, None]
        n = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
        total = tl.zeros([BM, BN], tl.float32)
        for start in range(0, K, BK):
            k = start + tl.arange(0, BK)
            a = tl.load(rows_ptr + m * K + k[None, :])
            b = tl.load(weights_ptr + expert * N * K + n * K + k[:, None])
            total = tl.dot(a, b, total)
        tl.store(out_ptr + m * N + n, total)


# %% two rungs
def launch_each(rows, weights, offsets, BM=64):
    """The host reads the offsets, and launches for each expert that has rows."""
    out = torch.empty(len(rows), weights.shape[1], dtype=rows.dtype)
    ends, (E, N, K) = offsets.tolist(), weights.shape
    for e in range(E):
        grid = ((ends[e + 1] - ends[e]) // BM, N // 64, 1)
        if grid[0]:
            tensors = rows, weights, offsets, out
            stretch_kernel[grid](*tensors, e, N, K, BM=BM, BN=64, BK=32)
    return out


def padded_grid(rows, weights, offsets, BM=64):
    """One launch; every expert gets the programs of the longest."""
    out = torch.empty(len(rows), weights.shape[1], dtype=rows.dtype)
    E, N, K = weights.shape
    longest = (offsets.diff().max() // BM).item()
    tensors = rows, weights, offsets, out
    stretch_kernel[longest, N // 64, E](*tensors, 0, N, K, BM=BM, BN=64, BK=32)
    return out


# %% uneven loads
LOADS = torch.tensor([200, 70, 20, 10, 5, 3, 1, 0])
torch.manual_seed(0)
weights = torch.randn(8, 128, 64).half() / 8


def stretches_of(loads, tile):
    """Random rows in padded stretches, and the offsets."""
    offsets = torch.zeros(len(loads) + 1, dtype=torch.int32)
    offsets[1:] = ((loads + tile - 1) // tile * tile).cumsum(0)
    rows = torch.zeros(int(offsets[-1]), 64).half()
    for begin, load in zip(offsets.tolist(), loads.tolist(), strict=False):
        rows[begin : begin + load] = torch.randn(load, 64).half()
    return rows, offsets


useful = 2 * int(LOADS.sum()) * 128 * 64
counted = {}
for tile in (16, 32, 64):
    rows, offsets = stretches_of(LOADS, tile)
    found = lesson.climbed(
        {"": lambda *args, tile=tile: launch_each(*args, BM=tile)},
        ("sm_80", "gfx942"), rows, weights, offsets,
    )  # fmt: skip
    counted[f"BM = {tile}"] = {"by the rows, %": 100 * len(rows) / LOADS.sum()} | {
        f"{name[2:]}, %": 100 * row["matrix FLOPs"] / useful
        for name, row in found.items()
    }
lesson.table(counted, first="matrix FLOPs over those of the 309 entries")

# %% [markdown] counted padding
# The count by rows and the count by machine agree, but for one: on `gfx942` tiles of 32 rows cost four times as much.
# A tile of 32 × 64 is two instructions of 32 × 32, and the four wavefronts of the program all execute both (unit 05:
# too small a tile makes a wave compute what another one computes). With the smaller instruction there are eight of
# them, two for each wave:

# %% smaller instructions
rows, offsets = stretches_of(LOADS, 32)
out = torch.empty(len(rows), 128).half()
args = (rows, weights, offsets, out, 0, 128, 64)
grid = (int(offsets.diff().max()) // 32, 2, 8)
least = 2 * len(rows) * 128 * 64
issued = {}
for size in (32, 16):
    gpus = lesson.launch_on(
        ["gfx942"], stretch_kernel, grid, *args,
        BM=32, BN=64, BK=32, matrix_instr_nonkdim=size,
    )  # fmt: skip
    flops = lesson.counted(gpus, "matrix_flops")["gfx942"]
    issued[f"{size} × {size}"] = {"matrix FLOPs over the tiles'": flops / least}
lesson.table(issued, first="BM = 32, instruction")

# %% [markdown] rows of an instruction
# ## 18. Which tile does the instruction ask for?
#
# The matrix instructions have rows of their own (unit 05): `mma.sync` of `sm_80` 16, wgmma of `sm_90` 64 for its four
# warps, MFMA of `gfx942` and `gfx950` 16 or 32. The compiler takes what fits into the tile.

# %% guess instruction
guess = predict(
    "10.instruction",
    "Tiles of 16 × 64 for experts with few rows. Which instruction multiplies them?",
    sm_90=lesson.choice("wgmma", "mma.sync", "fma", label="sm_90"),
    gfx942=lesson.choice("MFMA 32 × 32", "MFMA 16 × 16", "fma"),
)

# %% instruction
found = {}
for tile in (16, 32, 64, 128):
    rows, offsets = stretches_of(LOADS, tile)
    args = (rows, weights, offsets, torch.empty(len(rows), 128).half(), 0, 128, 64)
    found[f"BM = {tile}"] = {}
    for target in ("sm_80", "sm_90", "gfx942", "gfx950"):
        kernel = compile_for(stretch_kernel, target, args, BM=tile, BN=64, BK=32)
        words = ("mma.sync", "mma_async", "mfma")
        names = [n for n in lesson.mnemonics(kernel) if any(w in n for w in words)]
        short = {n.split(".f32")[0].replace(".sync.aligned", "") for n in names}
        found[f"BM = {tile}"][target] = ", ".join(sorted(short)) or "none"
small = found["BM = 16"]
guess.reveal(
    sm_90="wgmma" if "wgmma" in small["sm_90"] else "mma.sync",
    gfx942="MFMA 16 × 16" if "16x16" in small["gfx942"] else "MFMA 32 × 32",
    because="wgmma has 64 rows, so a smaller tile falls back to the instruction of "
    "sm_80; MFMA has a shape of 16 × 16.",
)
lesson.table(found, first="tile")

# %% [markdown] instruction explained
# Here the vendors part. On `sm_90` a tile of fewer than 64 rows gives up wgmma, and with it the peak of the data sheet
# (unit 05). On AMD's chips a tile of 16 rows keeps a matrix instruction of its own. So the padding that hardware asks
# for is 64 rows on an H100 and 16 on an MI300X or MI355X, if one wants the fast instruction. Below that a *decoding*
# product is bound by the bytes of the weights anyway, and the slower instruction will do. (Or a kernel computes the
# transposed product: then the tokens are the *columns* of wgmma's tile, of which there may be as few as 8.)
#
# Here is what stands in the loop along K of the same kernel, with tiles of 64 × 64 and 32 along K: both listings,
# without addresses and waiting.

# %% both listings
STEPS = {
    "from memory": ("global load", "copy to shared"),
    "to shared memory (LDS)": ("shared store",),
    "from shared memory (LDS)": ("shared load",),
    "multiply": ("matrix",),
}
rows, offsets = stretches_of(LOADS, 64)
args = (rows, weights, offsets, torch.empty(len(rows), 128).half(), 0, 128, 64)
listings = {}
for target in ("sm_80", "gfx942"):
    kernel = compile_for(stretch_kernel, target, args, BM=64, BN=64, BK=32)
    for step, kinds in STEPS.items():
        names = [
            one.mnemonic.split(".f32")[0].replace(".sync.aligned", "")
            for one in lesson.in_loops(kernel, *kinds)
        ]
        parts = (f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
        listings.setdefault(step, {})[target] = ", ".join(parts) or "none"
lesson.table(listings, first="in the loop")

# %% [markdown] listings explained
# A wave of `sm_80` has sixteen `mma.sync` of 16 × 8 × 16, one of `gfx942` four `mfma` of 32 × 32 × 8: four waves on
# either side, 2 · 64 · 64 · 32 FLOPs in all. `cp.async` goes from memory to shared memory in one instruction, on
# `gfx942` a load and a `ds_write` do. Nothing says that there are experts: that question stands before the loop, once.
# And no load has a mask for rows behind the end of a stretch: that is what the rows of zeros have bought.
#
# > **Facts: grouped products in libraries**
# >
# > - DeepGEMM's *contiguous* layout: the tokens of all experts in one tensor, each segment aligned to the block of M;
# >   meant for training's forward pass and prefill. Its *masked* layout: for decoding under a CUDA graph, where the CPU
# >   does not know the loads; a mask tensor tells the kernel which part is valid. (source: DeepGEMM's
# >   [README](https://github.com/deepseek-ai/DeepGEMM))
# > - FlashInfer's contiguous grouped FP8 product for SM100 wants boundaries between experts at multiples of 128 rows.
# >   (source:
# >   [FlashInfer](https://docs.flashinfer.ai/generated/flashinfer.gemm.group_gemm_fp8_nt_groupwise_contiguous.html),
# >   `m_indices`)
# > - wgmma's tile has 64 rows and 8 to 256 columns. (source: PTX ISA,
# >   [wgmma.mma_async](https://docs.nvidia.com/cuda/parallel-thread-execution/), `.m64n8k16` to `.m64n256k16`)
# > - On AMD's side hipBLASLt has a grouped product among its extensions. (source:
# >   [hipBLASLtExt](https://rocm.docs.amd.com/projects/hipBLASLt/en/develop/reference/ext-reference.html))
#
# ## 19. Who works on which tile?
#
# Back to 64 rows. The loads are 200, 70, 20, 10, 5, 3, 1 and 0: in tiles 4, 2, 1, 1, 1, 1, 1 and 0. With N = 128 each
# has two tiles next to each other. A *program* costs a start even if it leaves at once.

# %% guess programs
guess = predict(
    "10.programs",
    "Eight experts with these loads, N = 128. How many programs has the padded grid in "
    "all, and how many of them leave without a tile? How many launches has the loop?",
    programs=lesson.number("programs of the padded grid"),
    idle=lesson.number("without a tile"),
    launches=lesson.number("launches, one for each expert with rows"),
)

# %% programs
rows, offsets = stretches_of(LOADS, 64)
rungs = {"a launch each": launch_each, "a padded grid": padded_grid}
climbed = lesson.climbed(rungs, ("sm_80", "gfx942"), rows, weights, offsets)
programs = {}
for name, rung in rungs.items():
    grids = [launch.grid for launch in lesson.launches_of(rung, rows, weights, offsets)]
    programs[name] = sum(x * y * z for x, y, z in grids)
tiles = len(rows) // 64 * 2
guess.reveal(
    programs=programs["a padded grid"],
    idle=programs["a padded grid"] - tiles,
    launches=climbed["a launch each, sm_80"]["launches"],
    because="8 × 4 × 2 = 64 programs, 2 × 11 = 22 tiles; seven experts have rows.",
)
shown = ("launches", "instructions", "matrix FLOPs")
lesson.table(
    {
        name: {"programs": programs[name.split(", ")[0]]} | {c: row[c] for c in shown}
        for name, row in climbed.items()
    },
    first="rung",
)

# %% [markdown] programs explained
# Both rungs do the same matrix work. The padded grid needs no knowledge of loads but the longest one, and two thirds of
# its programs find nothing. With 256 experts, of which one is loaded ten times the average, nine tenths would. (They
# leave quickly; what hurts is that idle ones are handed out between the busy ones.) The loop has no idle program, and
# seven launches one after another, most of them of two tiles.
#
# The third way is a **persistent** kernel (unit 05) over *all* tiles: P programs, as many as units, of which each
# takes every P-th tile of the long list. What the list needs to know is where stretches begin, and that stands in
# `offsets`, in the GPU's own memory. On paper, for one layer of DeepSeek-V3 with 4,096 tokens, up projection, tiles of
# 128 × 128, loads by chance; a *round* is the time of one tile, and each unit runs one program at a time:

# %% three ways on paper
drawn = torch.Generator().manual_seed(0)
chosen = torch.randint(EXPERTS, (4096 * CHOSEN,), generator=drawn)
tall = (chosen.bincount(minlength=EXPERTS) + 127) // 128  # tiles along M
wide = EXPERT_WIDTH // 128
ways = {}
for chip, units in UNITS.items():
    each = sum(triton.cdiv(int(t) * wide, units) for t in tall)
    grid = EXPERTS * int(tall.max()) * wide
    whole = int(tall.sum()) * wide
    ways[f"{chip}, a launch each"] = (EXPERTS, whole, 0, each)
    rounds = triton.cdiv(whole, units)
    ways[f"{chip}, a padded grid"] = (1, grid, grid - whole, rounds)
    ways[f"{chip}, persistent"] = (1, units, 0, rounds)
columns = ("launches", "programs", "of them idle", "rounds")
lesson.table(
    {name: dict(zip(columns, row, strict=True)) for name, row in ways.items()},
    first="256 experts",
)

# %% [markdown] ways explained
# (For the padded grid this counts rounds of busy programs only.) A launch each takes 256 rounds where 46 or 20 would
# do. Launches in several streams overlap some of that; the waiting for the loads stays. What the persistent kernel adds
# to unit 05's is one question at the head of each tile: *whose tile is this?* (Lab: 10.grouped_gemm.)
#
# ## 20. Back to the tokens
#
# Each token has k results, in k stretches. Its output is their weighted sum. Two ways: a program for each *row* of the
# results adds it to its token's output by atomics; or a program for each *token* fetches its k rows, from where
# `position` says they are, and adds them up itself.


# %% two ways back
@triton.jit
def scatter_kernel(y_ptr, source_ptr, weight_ptr, out_ptr, D: tl.constexpr):
    row, d = tl.program_id(0), tl.arange(0, D)
    token = tl.load(source_ptr + row)
    if token >= 0:  # not a row of zeros
        y = tl.load(weight_ptr + row) * tl.load(y_ptr + row * D + d)
        tl.atomic_add(out_ptr + token * D + d, y)


@triton.jit
def gather_kernel(y_ptr, position_ptr, weight_ptr, out_ptr, k, D: tl.constexpr):
    token, d = tl.program_id(0), tl.arange(0, D)
    total = tl.zeros([D], tl.float32)
    for j in range(0, k):
        row = tl.load(position_ptr + token * k + j)
        total += tl.load(weight_ptr + row) * tl.load(y_ptr + row * D + d)
    tl.store(out_ptr + token * D + d, total)


# %% [markdown] commutative
# Float addition is commutative: a + b and b + a have the same bits. It is not associative: (a + b) + c and a + (b + c)
# may differ in the last bit. Atomics add to a zero, one result after the other, in any order.

# %% guess bits
guess = predict(
    "10.bits",
    "64 tokens, float32, programs in order and then in another order. Are all sums the "
    "same to the bit?",
    atomic_two=lesson.yes_no("atomics, k = 2"),
    atomic_four=lesson.yes_no("atomics, k = 4"),
    gather_four=lesson.yes_no("a program for each token, k = 4"),
)


# %% bits
def combined(way, k, target, **order):
    """64 tokens, whose results lie in mixed rows; the counters beside the sums."""
    drawn = torch.Generator().manual_seed(k)
    position = torch.randperm(64 * k, generator=drawn).view(64, k)
    y, weight = (torch.randn(64 * k, n, generator=drawn) for n in (64, 1))
    source = torch.empty(64 * k, dtype=torch.int64)
    source[position] = torch.arange(64)[:, None]
    out = torch.zeros(64, 64)
    with virtual_gpu(target, **order) as gpu:
        if way == "atomics":
            scatter_kernel[(64 * k,)](y, source, weight, out, D=64)
        else:
            gather_kernel[(64,)](y, position, weight, out, k, D=64)
    return out, gpu.counters.totals()


rows, same = {}, {}
for way, k in (("atomics", 2), ("atomics", 4), ("for each token", 4)):
    for target in ("sm_80", "gfx942"):
        first, counts = combined(way, k, target)
        again, _ = combined(way, k, target, order="shuffled", seed=1)
        same[way, k] = torch.equal(first, again)
        rows[f"{way}, k = {k}, {target}"] = {
            "sums with other bits": int((first != again).sum()),
            "atomics": counts["global_atomics"],
            "bytes by plain stores": counts["global_store_bytes"],
        }
guess.reveal(
    atomic_two=same["atomics", 2],
    atomic_four=same["atomics", 4],
    gather_four=same["for each token", 4],
    because="0 + a + b and 0 + b + a are the same; with three terms and more the order "
    "shows. The loop over j has one order.",
)
lesson.table(rows, first="way back")

# %% [markdown] bits explained
# With two experts for each token a test for determinism passes, and with four the same code fails it. (A rule for
# tests: three terms at least.) The program for each token needs neither zeros to begin with nor atomics, stores each
# sum once, and always adds in the order of j. This is why a permutation keeps `position` beside `source`: one for the
# way back, one for the way there.
#
# ## 21. Experts in FP8
#
# Most of the weights of a mixture are in its experts, and while it decodes, they are what is read. In FP8 they are
# half the bytes. The kernel is `stretch_kernel` again with codes, and two scales for what comes out of the sum, as in
# unit 08: one for each row of the tokens and one for each output of each expert. K is 128 here, so that a row of the
# tokens is one tile of 1 × 128, as in DeepSeek-V3 (whose weights have a scale for each block of 128 × 128: fewer
# scales than here).


# %% the rung in fp8
@triton.jit
def fp8_kernel(
    rows_ptr, scale_ptr, weights_ptr, w_scale_ptr, offsets_ptr, out_ptr, N,
    K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    expert = tl.program_id(2)
    row = tl.load(offsets_ptr + expert) + tl.program_id(0) * BM
    if row < tl.load(offsets_ptr + expert + 1):
        m, k = row + tl.arange(0, BM), tl.arange(0, K)
        n = expert * N + tl.program_id(1) * BN + tl.arange(0, BN)
        a = tl.load(rows_ptr + m[:, None] * K + k[None, :])
        b = tl.load(weights_ptr + n[None, :] * K + k[:, None])
        product = tl.dot(a, b)
        product *= tl.load(scale_ptr + m)[:, None] * tl.load(w_scale_ptr + n)[None, :]
        n -= expert * N
        tl.store(out_ptr + m[:, None] * N + n[None, :], product)


# %% guess fp8 experts
guess = predict(
    "10.fp8_experts",
    "E4M3 puts a number off by some 2.6% (root mean square, unit 08). A sum of "
    "products of two such numbers, both signs: how far off, over the size of the "
    "results? Which share of bf16's bytes has an expert of 128 outputs, its scales in "
    "float32?",
    error=lesson.choice("about 0.4%", "about 4%", "about 30%"),
    share=lesson.number("codes and scales", unit="%", factor=1.02),
)


# %% fp8 experts
def by_rows(x, fp8):
    """Codes, and a scale for each row of the last dimension."""
    largest = torch.finfo(fp8).max
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-12) / largest
    return (x / scale).clamp(-largest, largest).to(fp8), scale


torch.manual_seed(0)
wide_rows, wide_weights = torch.randn(256, 128), torch.randn(4, 128, 128)
offsets = torch.tensor([0, 128, 128, 192, 256], dtype=torch.int32)
which = torch.repeat_interleave(torch.arange(4), offsets.diff())
exact = torch.einsum("rk,rnk->rn", wide_rows.double(), wide_weights[which].double())
rows = {}
for target, fp8 in {
    "sm_89": torch.float8_e4m3fn,
    "gfx942": torch.float8_e4m3fnuz,
}.items():
    (codes, scale), (w_codes, w_scale) = (
        by_rows(x, fp8) for x in (wide_rows, wide_weights)
    )
    out = torch.empty(256, 128)
    args = (codes, scale, w_codes, w_scale, offsets, out, 128)
    with virtual_gpu(target) as gpu:
        fp8_kernel[2, 2, 4](*args, K=128, BM=64, BN=64)
    counts = gpu.counters.totals()
    error = (out - exact).square().mean().sqrt() / exact.square().mean().sqrt()
    stored = w_codes.numel() + 4 * w_scale.numel()
    rows[target] = {
        "error, %": 100 * error,
        "bytes of the experts over bf16's, %": 100 * stored / (2 * w_codes.numel()),
        "FP8 FLOPs, % of the matrix FLOPs": 100
        * counts["fp8_matrix_flops"]
        / counts["matrix_flops"],
    }
error = rows["sm_89"]["error, %"]
guess.reveal(
    error="about 0.4%" if error < 1 else "about 4%" if error < 12 else "about 30%",
    share=rows["sm_89"]["bytes of the experts over bf16's, %"],
    because="errors of two factors add like a random walk: 2.6% × √2; the sum of "
    "many is as far off as one. (1 + 4 / 128) / 2.",
)
lesson.table(rows, first="target")

# %% [markdown] fp8 experts explained
# The same kernel is compiled for both; only the dtype of the codes differs, `fn` or `fnuz`. All matrix work is in FP8
# instructions on both vendors. What is permuted is also half: tokens can be quantised *before* they are copied, and in
# unit 11 before they are sent, the scale of a row travelling with it.
#
# **You have** the three steps of a layer of experts and their traps: an order by luck, padding by the wrong tile, a
# grid for the longest, a sum in any order. In the lab: 10.permute and 10.grouped_gemm, and a whole layer by your own
# kernels.

# %% third sitting of unit 10 ends
lesson.sitting("10", 3)

# %% [markdown] the model's skeleton
# # Sitting 4: the model
#
# ## 22. The parts in their places
#
# You have latent attention, a gate and experts. Here is what holds them together. A block adds attention and then
# experts to the residual stream; each reads it through an RMSNorm. The first layers of DeepSeek-V3 are *dense*: one
# SwiGLU for every token in place of experts. `MTP`, the module of multi-token prediction, comes in section 26.

# %% the skeleton
block = type(lesson.DeepSeek(lesson.DeepSeekConfig.preset("cpu")).layers[0])
lesson.code(block, lesson.MoE.forward, lesson.MTP, lesson.DeepSeek.losses)

# %% [markdown] a shape is a file
# `route` and `run_experts` are attributes: a function of yours can take their place. Lab 10 does that, and so does unit
# 11, where the experts live on other ranks.
#
# A shape is a `config.json`, in the words of Hugging Face. `hidden_size` is the width of the residual stream, here
# `width`; `kv_lora` is the length of the latent vector, `k` how many routed experts a token uses. `lesson.from_config`
# reads one, and refuses what this model would compute otherwise.

# %% two shapes
v3 = lesson.DeepSeekConfig.preset("v3")
small = lesson.DeepSeekConfig.preset("cpu")
folder = lesson.save(lesson.DeepSeek(small), tempfile.mkdtemp())  # config.json, weights
assert lesson.from_config(folder) == small
names = (
    "layers width heads kv_lora experts shared k expert_width dense_layers vocab_size"
)
lesson.table(
    {
        name: {"DeepSeek-V3": getattr(v3, name), "small": getattr(small, name)}
        for name in names.split()
    },
    first="field",
)

# %% [markdown] total against active
# ## 23. 671 billion parameters, 37 billion for a token
#
# Call *active* what one token uses. An expert of DeepSeek-V3 has 3 · 7,168 · 2,048 parameters, 44.04 million. Each of
# the 58 layers with experts has 256 routed ones and one shared; a token uses 8 of the routed ones and the shared one.

# %% guess parameters
guess = predict(
    "10.parameters",
    "671B parameters in all, 37B active. Which share of all are routed experts? Which "
    "share of the 37B? And the shared experts' part of the 37B?",
    stored=lesson.number("routed, of 671B", unit="%", factor=1.02),
    active=lesson.number("routed, of 37B", unit="%", factor=1.05),
    shared=lesson.number("shared, of 37B", unit="%", factor=1.1),
)

# %% parameters
expert = 3 * v3.width * v3.expert_width
sparse = v3.layers - v3.dense_layers  # layers with experts
parts = {  # all, and active
    "routed experts": (sparse * v3.experts * expert, sparse * v3.k * expert),
    "shared experts": (sparse * v3.shared * expert,) * 2,
    "gates": (sparse * v3.experts * v3.width,) * 2,
}


def in_all(parts):
    return tuple(sum(column) for column in zip(*parts.values(), strict=True))


shapes = lesson.parameters(v3)  # of the model itself
shapes = {name: (part.total, part.active) for name, part in shapes.items()}
assert shapes.pop("experts and gates") == in_all(parts)
mtp = shapes.pop("MTP")
parts |= shapes
stored, active = parts["in all"] = in_all(parts)
guess.reveal(
    stored=100 * parts["routed experts"][0] / stored,
    active=100 * parts["routed experts"][1] / active,
    shared=100 * parts["shared experts"][1] / active,
    because="58 × 256 × 44.04M = 653.9B; 8 of 256 of that, 20.4B; 58 × 44.04M = 2.55B.",
)
lesson.table(
    {
        name: {"all, billion": total / 1e9, "active, billion": used / 1e9}
        for name, (total, used) in (parts | {"MTP, beside it": mtp}).items()
    },
    first="DeepSeek-V3",
    mark=["in all"],
)

# %% [markdown] the published figures
# Without MTP it is the report's 671B (source: DeepSeek-V3 technical report, section 4.2); active are 37.55 billion
# with the embedding *and* the head, 36.63 without the embedding, of which a token reads one row. So 97% of the memory
# is in experts of which a token uses a thirty-second. That is the bargain of MoE: memory for FLOPs. It holds where
# memory is spread over many GPUs and all of them have work, and both are questions of routing.
#
# > **Claim and fact: what is active**
# >
# > - The notes to the weights say 671B in all and 36.7B active, "including" 0.9B for the embedding and 0.9B for the
# >   head; MTP has 11.5B of its own. (source: deepseek-ai/DeepSeek-V3, README_WEIGHTS.md)
# > - Counted from the config: 37.55B with both, 36.63B with the head alone, 11.61B for MTP, of which its
# >   projection has 2 · 7,168 · 7,168, 0.10B. (measured: the cell above)
#
# The published figure fits a count with one of the two. A difference of 0.9 in 37 decides nothing, but it shows why a
# figure should name what it counts.
#
# ## 24. FLOPs
#
# Each active parameter of a matrix multiplies once for a token: 2 FLOPs forward, 4 backward. To this come the scores of
# attention. torch counts the FLOPs of products while they run: a formula can be checked.

# %% guess counter
guess = predict(
    "10.counter",
    "The small model: 8 experts, 2 of them and the shared one for a token. A dense "
    "model has one SwiGLU as wide as those three. How many times the FLOPs of the "
    "dense one does a step of the MoE take? And how many times its parameters has it "
    "(the experts are three quarters of the MoE's)?",
    flops=lesson.choice("1.0 times", "1.5 times", "3 times", label="FLOPs"),
    parameters=lesson.choice("1.0 times", "2 times", "8 times", label="parameters"),
)

# %% counted flops
dense = lesson.dense_of_equal_activity(small)
tokens = torch.randint(small.vocab_size, (2, 64))
rows = {}
for name, config in {"MoE": small, "dense": dense}.items():
    model = lesson.DeepSeek(config)
    with FlopCounterMode(display=False) as counter:
        model.losses(tokens, tokens).total().backward()
    parts = lesson.parameters(config).values()
    rows[name] = {
        "counted, MFLOP": counter.get_total_flops() / 1e6,
        "by formula": 3 * lesson.forward_flops(config, 2, 64) / 1e6,
        "parameters": sum(part.total for part in parts),
        "active": sum(part.active for part in parts),
    }
ratio = {name: rows["MoE"][name] / rows["dense"][name] for name in rows["MoE"]}
near = {f"{n} times": float(n) for n in ("1.0", "1.5", "2", "3", "8")}
guess.reveal(
    flops=min(near, key=lambda word: abs(near[word] - ratio["counted, MFLOP"])),
    parameters=min(near, key=lambda word: abs(near[word] - ratio["parameters"])),
    because="equal active parameters but for the gates; embedding, head and attention "
    "are the same in both.",
)
lesson.table(rows, first="model")

# %% [markdown] what is trained
# ## 25. Two models, the same FLOPs
#
# Both train on unit 01's text: the same 150 batches of 8 × 128 tokens, the same rates, MTP in both. The cells take half
# a minute each on one core. Biases of the gates move by 0.01 a step, ten times DeepSeek-V3's 0.001, since there are so
# few steps. (source: arXiv 2412.19437, section 4.2)

# %% guess pair
guess = predict(
    "10.pair",
    "Twice the parameters at the same FLOPs, and each routed expert sees a quarter of "
    "the tokens. How far apart are the two validation losses after 150 steps?",
    gap=lesson.choice("less than 2%", "2% to 10%", "more than 10%"),
)

# %% train moe
moe = lesson.train_deepseek(small)
lesson.curves({"next token": moe.losses, "the one after": moe.second}, "nats per token")

# %% train dense
plain = lesson.train_deepseek(dense)
gap = abs(plain.val_loss / moe.val_loss - 1)
guess.reveal(
    gap="less than 2%" if gap < 0.02 else "2% to 10%" if gap < 0.1 else "more than 10%",
    because="this machine's pair; what it can show is said below.",
)
spent = {"MoE": moe, "dense": plain}
lesson.curves(
    {
        name: [
            (step * run.flops / 1e9, run.losses[step - 1]) for step in range(5, 151, 5)
        ]
        for name, run in spent.items()
    },
    "nats per token",
    xlabel="GFLOP spent",
)
lesson.table(
    {
        name: {
            "validation, nats": run.val_loss,
            "the one after, nats": run.val_second,
            "GFLOP a step": run.flops / 1e9,
            "seconds": run.seconds,
        }
        for name, run in spent.items()
    },
    first="model",
)

# %% [markdown] what one pair cannot show
# Who is better one pair cannot show: there is one seed, so the spread is unknown. And it is not even a blind pair: the
# sizes and the rate were chosen among six settings that were tried once each, and in the first of them the dense model
# ended lower, by 0.8%. The loop over experts costs seconds that FLOPs do not count. That a mixture wins needs more
# steps than a lesson has. What the pair does show: at equal FLOPs the loss falls on the same path, with twice the
# parameters.
#
# Now the loads. What do the biases do for the imbalance of a layer? One thing is changed: the same model trains once
# more, with biases that stand still. With 8 experts and k = 2 the imbalance is 4 at most.

# %% guess loads
guess = predict(
    "10.moving_biases",
    "Moving biases move by 0.01 a step; scores lie between 0 and 1. The last layer's "
    "imbalance, the mean of the last 20 steps, with both kinds of biases?",
    moving=lesson.choice("below 2", "2 to 3", "above 3"),
    still=lesson.choice("below 2", "2 to 3", "above 3"),
)

# %% drawn loads
still = lesson.train_deepseek(small, speed=0.0)
biases = {"moving": moe, "still": still}
late = {
    f"layer {n}": {
        name: sum(run.imbalance(n)[-20:]) / 20 for name, run in biases.items()
    }
    for n in range(small.layers)
}
last = {
    name: "below 2" if found < 2 else "2 to 3" if found <= 3 else "above 3"
    for name, found in late["layer 2"].items()
}
guess.reveal(
    moving=last["moving"],
    still=last["still"],
    because="a bias takes from the busy and gives to the idle, step by step; without "
    "one, who is chosen learns and is chosen.",
)
lesson.curves(
    {name: run.imbalance(2) for name, run in biases.items()}, "imbalance, last layer"
)
lesson.table(
    late
    | {"validation loss, nats": {name: run.val_loss for name, run in biases.items()}},
    first="imbalance of the last 20 steps",
)

# %% [markdown] what moving biases cost
# A layer that was even by itself gains nothing: there the steps of the biases only shift tokens to and fro. And the
# losses of the two runs differ by about as much as those of the two models above.

# %% [markdown] what mtp predicts
# ## 26. The token after the next
#
# At a position the main model predicts the next token. The module of MTP takes its hidden state *and the embedding of
# that next token*, and predicts the one after. Embedding and head are the main model's; both losses teach them, the
# second with a weight (DeepSeek-V3: 0.3, later 0.1; source: arXiv 2412.19437, section 4.2). Its loss need not be higher
# than the main one: it is told $t_{i+1}$, so for it, too, the target is the very next token, and it has a block more.
#
# When text is generated the module can *draft*: the main model picks a token, the module guesses the one after, and the
# main model checks the guess while it computes the next step anyway. If it would have picked the same, two tokens came
# out of one step. The share of guesses that it accepts is the *acceptance*.

# %% guess acceptance
guess = predict(
    "10.acceptance",
    "Both take the likeliest token, on validation text. The small model's own pick is "
    "the text's token in about one case of five. How often does the draft agree with "
    "what the main model then picks?",
    accepted=lesson.choice("about 20%", "about 40%", "about 65%", "about 90%"),
)

# %% measured acceptance
found = lesson.drafts(moe.model, moe.corpus)
shares = {"about 20%": 0.2, "about 40%": 0.4, "about 65%": 0.65, "about 90%": 0.9}
guess.reveal(
    accepted=min(shares, key=lambda word: abs(shares[word] - found.accepted)),
    because="agreeing needs no truth: both follow the same frequent pairs.",
)
lesson.table(
    {
        "drafts that the main model accepts": found.accepted,
        "drafts that are the text's token": found.right,
        "the main model's picks that are": found.main_right,
    }
)

# %% [markdown] acceptance elsewhere
# Both have read the text here, not what they wrote themselves, and a weak model accepts easily: where two guess "self"
# after a bracket, they agree. DeepSeek-V3's report names 85% to 90% for its second token, over several topics of
# text. (source: arXiv 2412.19437, section 5.4.3)
#
# With acceptance `a` a step gives `1 + a` tokens, less what the module costs.
#
# ## 27. The same model elsewhere
#
# `transformers` has DeepseekV3 modules. With the same weights they must give the same logits. Three things to know:
# experts of a layer are stacked there into two tensors; the pairs that RoPE turns come out in another order, in queries
# and keys alike, so that scores agree; and its language model leaves MTP out.

# %% guess elsewhere
guess = predict(
    "10.elsewhere",
    "float32 has 24 bits. Logits of the two, as the norm of their difference over the "
    "norm of the logits: below 1e-5? And the way back, their weights in our model?",
    there=lesson.yes_no("below 1e-5"),
    back=lesson.yes_no("the same bits on the way back"),
)

# %% both ways
theirs = lesson.as_transformers(moe.model)
with torch.no_grad():
    ours, other = moe.model(tokens), theirs(tokens).logits
    again = lesson.load_transformers(theirs, small)(tokens)
error = float((ours - other).norm() / ours.norm())
guess.reveal(
    there=error < 1e-5,
    back=bool((again == ours).all()),
    because="the same numbers in another order of sums; back here, also the same sums.",
)
lesson.table({"relative difference": error, "largest": (ours - other).abs().max()})

# %% [markdown] where next
# FP8 experts were sitting 3. Now put your own parts into this model: [lab 10](../labs/10_mla_moe.ipynb), part 4.

# %% [markdown] summary of the unit
# ## Summary
#
# - MLA keeps one latent vector of 512 numbers and a rope key of 64 for all heads: 70,272 bytes of a token in
#   DeepSeek-V3, 71 times less than full heads.
# - The same score, bracketed the other way, needs no keys. Few new tokens absorb, a prompt expands. A rotation cannot
#   be absorbed: positions travel in a part of their own.
# - A router chooses by score + bias and weighs by score alone. A small step of a bias evens loads without a gradient.
#   A layer takes as long as its busiest expert.
# - Tokens are sorted by expert and number, stretches padded to tiles, all experts multiplied in one launch; the way
#   back is a gather in a fixed order, which gives the same bits each time.
# - Padding costs about half a tile for each expert, where loads vary by more than a tile: tiles are chosen by the rows
#   of an expert.
# - Parameters are not FLOPs: 97% of DeepSeek-V3's are routed experts, and a token uses 8 of 256 in a layer.
#
# ## Read next
#
# - [DeepSeek-V2](https://arxiv.org/abs/2405.04434), section 2.1, and [DeepSeek-V3](https://arxiv.org/abs/2412.19437),
#   sections 2.1 and 2.2.
# - [Auxiliary-loss-free load balancing](https://arxiv.org/abs/2408.15664).
# - [Switch Transformers](https://arxiv.org/abs/2101.03961), section 2.2: capacity and the auxiliary loss.
# - [DeepGEMM](https://github.com/deepseek-ai/DeepGEMM): layouts of grouped products.
# - [FlashMLA](https://github.com/deepseek-ai/FlashMLA): decoding with latent vectors.
#
# ## Check yourself
#
# Answer first, then open.
#
# <details><summary>Why is MLA's scale 1/√192 although the absorbed query has 576 numbers?</summary>
#
# Absorbing changes no score: it is still a product of 128 + 64 numbers.
# </details>
#
# <details><summary>Every bias of a router rises by 1. What changes?</summary>
#
# Nothing: choices depend on differences, and weights never see the bias.
# </details>
#
# <details><summary>Why does a test with k = 2 say nothing about atomics in a combine?</summary>
#
# 0 + a + b and 0 + b + a have the same bits; three terms may not.
# </details>
#
# <details><summary>Ten rows for each expert, tiles of 128: how much of the work is wasted?</summary>
#
# 118 of 128 rows: 12.8 times the work that is needed.
# </details>
#
# **You have** attention and experts of DeepSeek's kind, from the bytes to a trained model. Now open
# [lab 10](../labs/10_mla_moe.ipynb).

# %% fourth sitting ends
lesson.sitting("10", 4)
