# %% [markdown] top
# # 9 PLACEHOLDER head

# %% imports
import torch

from gpu_utils import explore, lesson, predict

# %% [markdown] sitting 1
# # Sitting 1: PLACEHOLDER

# %% [markdown] sitting 2
# # Sitting 2: PLACEHOLDER

# %% [markdown] sitting 3
# # Sitting 3: the same bits on purpose
#
# ## 16. Four promises
#
# Different bits are no fault, as long as they stay within a bound. Still there are days on which one wants the *same*
# bits: to see whether a bug comes back, whether a change of the code changed a result, whether a broken chip adds
# wrongly; and in reinforcement learning the trainer should compute the probabilities that the server has drawn from.
# "The same bits" is four different promises:
#
# | the same bits | when this changes | what breaks it |
# |---|---|---|
# | **run to run** | nothing: program, input and chip are the same | an order that a race decides: atomic additions |
# | **tile to tile** | the block size, the split of K, `num_warps` | an order that follows the tile |
# | **batch to batch** | who else is in the batch | a tile or a split that is chosen by the shape |
# | **chip to chip** | the target | trees of a wave, matrix instructions, approximations |
#
# None follows from the one above it. A kernel may be deterministic to the last bit from run to run, and a served answer
# changes all the same, because the batch was another one. We break and mend each of them and count what it costs.
#
# ## 17. Run to run: a place for each
#
# Section 7 added to one number with atomics, and the order of the programs showed. The remedy: each program stores its
# sum at a place of its own, and one more launch adds these *parts* in an order that is written in the program. Here are
# both ways, with the programs of the virtual GPU in another order for each run.


# %% two ways to add
@triton.jit
def sum_atomic(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    tl.atomic_add(out_ptr, tl.sum(x))


@triton.jit
def sum_parts(x_ptr, parts_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    tl.store(parts_ptr + tl.program_id(0), tl.sum(x))  # a place of its own


@triton.jit
def add_parts(parts_ptr, out_ptr, PARTS: tl.constexpr):
    tl.store(out_ptr, tl.sum(tl.load(parts_ptr + tl.arange(0, PARTS))))


# %% guess turns
guess = predict(
    "09.turns",
    "64 programs, ten runs in ten orders. How many different sums come from the parts? "
    "And how many bytes do the 64 programs store as parts?",
    sums=lesson.number("different sums"),
    stored=lesson.number("bytes stored"),
)

# %% turns
torch.manual_seed(0)
BLOCK, PARTS = 256, 64
x = torch.randn(PARTS * BLOCK)
sums, costs = {"atomic additions": set(), "a place for each": set()}, {}
for target in ("sm_90", "gfx942"):
    for seed in range(10):
        with virtual_gpu(target, order="shuffled", seed=seed) as gpu:
            out, parts = torch.zeros(1), torch.zeros(PARTS)
            sum_atomic[(PARTS,)](x, out, BLOCK=BLOCK)
            sums["atomic additions"].add(out.item())
            one = gpu.counters.totals()
            sum_parts[(PARTS,)](x, parts, BLOCK=BLOCK)
            two = gpu.counters.totals()
            add_parts[(1,)](parts, out, PARTS=PARTS)
            sums["a place for each"].add(out.item())
            three = gpu.counters.totals()
    costs[target] = {
        "launches, atomic": 1,
        "launches, parts": 2,
        "instructions, atomic": one["instructions"],
        "instructions, parts": two["instructions"] + three["instructions"],
        "bytes stored as parts": two["global_store_bytes"],
    }
guess.reveal(
    sums=len(sums["a place for each"]),
    stored=two["global_store_bytes"],
    because="where a part is stored does not depend on when, and the second launch has "
    "one order. 64 × 4 bytes.",
)
lesson.table({way: {"different sums": len(found)} for way, found in sums.items()})

# %% price of turns
lesson.table(costs, across=True)

# %% [markdown] turns read
# The price is one launch and a few bytes; the instructions are about as many. It grows where each block has much to
# add: for the gradient of an embedding or of attention's keys, a place for each program is a whole tensor for each.
# That is why `index_add_`, `scatter_add_` and their like are where frameworks are not deterministic (source: PyTorch's
# notes of [1.3.1](https://pytorch.org/docs/1.3.1/notes/randomness.html), which name the atomic addition).
#
# A clock is a race, too. An autotuner times some tiles at the first call and keeps the fastest. On a busy machine it
# may keep another one, and then it is the next promise that counts.
#
# ## 18. Tile to tile: the order follows the tile
#
# One product of bf16 matrices, with the tile as a parameter, and K cut into `SPLIT` parts that are added at the end.


# %% a product in tiles
@triton.jit
def tiled(
    x_ptr, w_ptr, y_ptr, M, N, K,
    SPLIT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    n = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    part = tl.program_id(2)
    k = part * (K // SPLIT) + tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K // SPLIT, BK):
        x = tl.load(x_ptr + m * K + k[None, :])
        acc = tl.dot(x, tl.load(w_ptr + k[:, None] * N + n), acc)
        k += BK
    tl.store(y_ptr + part * M * N + m * N + n, acc)


# %% which instruction
M, K, N = 64, 256, 64
torch.manual_seed(0)
x, w = torch.randn(M, K).bfloat16(), torch.randn(K, N).bfloat16()
TILES = {
    "16 x 64": {"SPLIT": 1, "BM": 16, "BN": 64, "BK": 32},
    "64 x 64": {"SPLIT": 1, "BM": 64, "BN": 64, "BK": 32},
    "16 x 64, K in 4 parts": {"SPLIT": 4, "BM": 16, "BN": 64, "BK": 32},
}
args = (x, w, torch.zeros(4, M, N), M, N, K)
chosen = {}
for target in ("sm_90", "gfx942"):
    for name, tile in TILES.items():
        found = lesson.mnemonics(compile_for(tiled, target, args, **tile), "matrix")
        chosen.setdefault(name, {})[target] = next(iter(found))
lesson.table(chosen, first="tile")

# %% guess tiles
guess = predict(
    "09.tiles",
    "`m16n8k16`, `m64n64k16` and `16x16x16` take 16 places of K in a step, `32x32x8` "
    "takes 8. Against the tile of 16 x 64: are there other bits?",
    sm_90=lesson.yes_no("64 x 64 on sm_90"),
    gfx942=lesson.yes_no("64 x 64 on gfx942"),
    split=lesson.yes_no("K in 4 parts"),
)

# %% tiles
rows, first = {}, {}
for name, tile in TILES.items():
    rows[name] = {}
    for target in ("sm_90", "gfx942"):
        parts = torch.zeros(tile["SPLIT"], M, N)
        with virtual_gpu(target):
            grid = (M // tile["BM"], N // tile["BN"], tile["SPLIT"])
            tiled[grid](x, w, parts, M, N, K, **tile)
        y = parts.sum(0)
        rows[name][target] = (y != first.setdefault(target, y)).sum().item()
guess.reveal(
    sm_90=rows["64 x 64"]["sm_90"] > 0,
    gfx942=rows["64 x 64"]["gfx942"] > 0,
    split=all(rows["16 x 64, K in 4 parts"].values()),
    because="16 products after 16 products is one order; 8 after 8 is another, and so "
    "are four sums that are added at the end.",
)
lesson.table(rows, first="elements of 4,096 with other bits")

# %% [markdown] tiles read
# The tile chooses the instruction, and the instruction chooses the order. Read "0 on `sm_90`" as what happened here,
# not as a promise. How a chip rounds *within* one matrix instruction is not published, and a virtual GPU adds in an
# order of its own there, within the bound that `docs/virtual-gpu.md` states. That a tile *can* change bits, both
# columns show.
#
# The remedy is to fix what decides: one tile, one split, for all. Better still is an order that is a function of the
# index alone, so that the tile may be chosen freely; that is lab 09.fixed_tree.
#
# ## 19. Batch to batch: on your own machine
#
# Before a GPU comes in, ask the CPU that you have. One row of x goes through an operator of torch alone, and then as
# the first of n rows. Nothing random, no atomics, the same machine.

# %% guess batch on CPU
guess = predict(
    "09.own_cpu",
    "Row 0 alone and as one of 2 to 64 rows, in float32 on your CPU. Does it keep all "
    "of its bits, for every n?",
    product=lesson.yes_no("x[:n] @ w"),
    norm=lesson.yes_no("RMSNorm"),
)

# %% batch on CPU
torch.manual_seed(0)
x, w = torch.randn(64, 1024), torch.randn(1024, 1024)
operators = {
    "x @ w": lambda rows: rows @ w,
    "RMSNorm": lambda rows: torch.nn.functional.rms_norm(rows, (1024,)),
    "softmax": lambda rows: rows.softmax(-1),
}
rows = {
    name: {f"n = {n}": (f(x[:n])[0] != f(x[:1])[0]).sum() for n in (2, 4, 8, 16, 64)}
    for name, f in operators.items()
}
guess.reveal(
    product=not any(rows["x @ w"].values()),
    norm=not any(rows["RMSNorm"].values()),
    because="a library has a routine for a vector and others for few and many rows, "
    "each with its own order. A norm on a CPU takes its rows one by one.",
)
lesson.table(rows, first="elements of 1,024 with other bits")

# %% [markdown] own CPU read
# If one row is computed by another routine than four, it may have other bits among four. (On your machine the table may
# look otherwise; that is the point.) On a GPU the reason is stronger: one row fills a corner of the chip, so a library
# cuts its sums into parts that run side by side. Many rows fill it anyway.
#
# ## 20. A served token
#
# A server decodes: at each step every request in the batch gives one row. Others come and go, and the size of the
# batch is the load of the moment. Here is how three operators of a small decoder are cut "as libraries do": by the
# batch. The chip is full in any case, and that is the reason for such rules.

# %% how libraries cut
lesson.code(lesson.product_plan, lesson.norm_plan, lesson.attention_plan)

# %% guess rows
guess = predict(
    "09.rows",
    "Row 0 of a product that is cut by `product_plan`: does it get other bits when the "
    "batch grows from 1 row to 2, on both targets? And from 16 rows to 17? There the "
    "tile grows, as in section 18.",
    two=lesson.yes_no("1 to 2, on both"),
    sm_80=lesson.yes_no("16 to 17, sm_80"),
    gfx942=lesson.yes_no("16 to 17, gfx942"),
)

# %% row 0 on virtual GPUs
torch.manual_seed(0)
x, w = torch.randn(64, 256).half(), torch.randn(256, 64).half()
rows = {}
for target in ("sm_80", "gfx942"):
    with virtual_gpu(target):
        row_0 = {n: lesson.library_product(x[:n], w)[0] for n in (1, 2, 16, 17, 64)}
    rows[target] = {
        f"{n} rows against {m}": (row_0[n] != row_0[m]).sum()
        for m, n in ((1, 2), (2, 16), (16, 17), (17, 64))
    }
guess.reveal(
    two=all(row["2 rows against 1"] > 0 for row in rows.values()),
    sm_80=rows["sm_80"]["17 rows against 16"] > 0,
    gfx942=rows["gfx942"]["17 rows against 16"] > 0,
    because="K is no longer cut from 2 rows on. From 17 on the tile has 32 rows, and "
    "only gfx942 takes another matrix instruction for it.",
)
lesson.table(rows, across=True)

# %% [markdown] the served model
# Between these borders the bits stay, however many rows there are; across one they may change. Such rules are real:
# vLLM's RMSNorm takes blocks of up to 1,024 threads for fewer than 256 tokens, and of 256 for more (source:
# vllm-project/vllm, csrc/layernorm_kernels.cu).
#
# The model is small and honest about it: two layers, four heads, 256 tokens, weights drawn and not trained, float16
# into products and cache, float32 sums. Its last matrix is *prepared*: columns come in pairs that are nearly alike, so
# that the two best logits of each step are about a millionth apart. In a trained model such a near tie is rare, and
# comes with enough tokens; here it is there at once, and a last bit decides. All three operators are Triton kernels,
# executed on a virtual GPU. One request, greedy decoding, 6 tokens: once alone, and once with seven others.

# %% guess served
guess = predict(
    "09.served",
    "Served on the virtual sm_80. At which token do the logits have other bits for the "
    "first time? By how much? And do the two texts part within 6 tokens?",
    first=lesson.choice("the first", "a later one", "none", label="other bits from"),
    size=lesson.choice(
        "about 1e-7", "about 1e-4", "about 1e-1", label="first difference"
    ),
    parts=lesson.yes_no("the texts part"),
)

# %% served
answer = lesson.served(others=7, tokens=6, target="sm_80")
first = answer.first_bits
guess.reveal(
    first={None: "none", 1: "the first"}.get(first, "a later one"),
    size=None
    if first is None
    else lesson.nearest(
        answer.rows[first]["largest difference"],
        ("about 1e-7", "about 1e-4", "about 1e-1"),
    ),
    parts=answer.parts_at is not None,
    because="a step's first product already has another order; a last bit of float32 "
    "is 1e-7 of the number. Where two tokens are that close, the other one wins.",
)
lesson.table(answer.rows, first="token")

# %% [markdown] served read
# No race, no other chip, no other version: the neighbours in the batch chose the order. From the token on at which the
# texts part the contexts differ, and all that follows is another text.
#
# ## 21. Break it, keep it
#
# Each operator can be made **batch-invariant**: cut by what a row is, never by how many there are. The product gets one
# tile and no parts; the norm one block and one wave for each row; attention cuts a context into parts of 32 positions,
# so a long context still has many, and where they are cut depends on the context alone. Which of the three do you need?

# %% guess invariant
guess = predict(
    "09.invariant",
    "Make only the product batch-invariant, or only norm and attention, or all three. "
    "When do all logits of 6 tokens keep their bits?",
    product=lesson.yes_no("only the product"),
    others=lesson.yes_no("norm and attention"),
    all=lesson.yes_no("all three"),
)

# %% invariant
KEPT = "batch-invariant"
ways = {
    "only the product": {"product": KEPT},
    "norm and attention": {"norm": KEPT, "attention": KEPT},
    "all three": {"product": KEPT, "norm": KEPT, "attention": KEPT},
}
answers = {"none": answer}
for name, way in ways.items():
    answers[name] = lesson.served(**way, tokens=6, target="sm_80")
answers["none, gfx942"] = lesson.served(tokens=6, target="gfx942")
answers["all three, gfx942"] = lesson.served(
    **ways["all three"], tokens=6, target="gfx942"
)
guess.reveal(
    product=answers["only the product"].same_bits,
    others=answers["norm and attention"].same_bits,
    all=answers["all three"].same_bits,
    because="the product alone is enough to lose them, and so are the other two "
    "together. All that follows carries other bits on.",
)
lesson.table(
    {
        name: {
            "other bits from token": one.first_bits or "none",
            "texts part at token": one.parts_at or "none",
        }
        for name, one in answers.items()
    },
    first="batch-invariant",
)

# %% price of invariance
lesson.table(
    {
        f"{name}, {size}": counts
        for name in ("none", "all three")
        for size, counts in answers[name].counts.items()
    },
    first="batch-invariant, 6 tokens on sm_80",
)

# %% [markdown] price read
# A server has to mend *all* operators that sum. With the three cut by the row alone the bits are kept, on the virtual
# GPUs of both vendors.
#
# Counted, the price is small. Alone, there are fewer launches and instructions than before, as no parts are stored and
# added; in a batch there are a few percent more, as the cut is not the best one for eight rows. What it costs, a
# counter does not see: served alone, a product now fills fewer programs, and most of the chip waits. That is the price
# that is reported, too: a chip used less, and less throughput for small batches (source: [besthub.dev on
# DeepSeek-V4](https://www.besthub.dev/articles/why-deepseek-v4-insists-on-batch-invariance-and-what-it-costs-ffabd0dafb74)).
# In lab 09.batch_invariant the kernel is yours, what it may spend is limited, and it goes into this model afterwards.

# %% [markdown] chip to chip
# ## 22. Chip to chip
#
# The last promise is the dearest. Below is the product of section 18 in one tile on five targets, and beside it one
# that never leaves the order of K: a lane owns an element and adds one product after another, `fma` by `fma`. Products
# of bf16 numbers fit into a float32 exactly, so that fused or not makes no difference here.


# %% a product in order
@triton.jit
def in_order(x_ptr, w_ptr, y_ptr, N, K, BN: tl.constexpr):
    m, n = tl.program_id(0), tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BN,), tl.float32)
    for k in range(K):
        x = tl.load(x_ptr + m * K + k).to(tl.float32)
        acc += x * tl.load(w_ptr + k * N + n).to(tl.float32)
    tl.store(y_ptr + m * N + n, acc)


# %% guess chips
guess = predict(
    "09.chips",
    "Results of five targets, compared bit by bit: how many different ones? The tiled "
    "kernel issues 2,972 instructions on sm_90. In order, 64 warps need about 16 each "
    "for one k, and K is 256. How many times as many is that?",
    tile=lesson.choice("one", "more than one", label="matrix instructions"),
    order=lesson.choice("one", "more than one", label="in order"),
    times=lesson.number("instructions, times", factor=1.2),
)

# %% chips
torch.manual_seed(0)
x, w = torch.randn(M, K).bfloat16(), torch.randn(K, N).bfloat16()
rows, first = {}, None
for target in ("sm_80", "sm_90", "gfx942", "gfx950", "gfx1100"):
    y, ordered = torch.zeros(M, N), torch.zeros(M, N)
    with virtual_gpu(target) as gpu:
        tiled[(M // 64, N // 64, 1)](x, w, y, M, N, K, SPLIT=1, BM=64, BN=64, BK=32)
        fast = gpu.counters.totals()["instructions"]
        in_order[(M, N // 64)](x, w, ordered, N, K, BN=64, num_warps=1)
        slow = gpu.counters.totals()["instructions"]
    first = first or (y, ordered)
    rows[target] = {
        "other bits than sm_80": (y != first[0]).sum().item(),
        "other bits, in order": (ordered != first[1]).sum().item(),
        "instructions": fast,
        "instructions, in order": slow,
        "times": slow / fast,
    }


def different(column):
    return "more than one" if any(row[column] for row in rows.values()) else "one"


guess.reveal(
    tile=different("other bits than sm_80"),
    order=different("other bits, in order"),
    times=rows["sm_90"]["times"],
    because="the tile gets 8 or 16 products in a step, as the target has it. In order "
    "all is IEEE 754: a load, a conversion and an addition for each of K.",
)
lesson.table(rows, first="of 4,096 elements")

# %% [markdown] chips read
# Some 50 to 200 times the instructions, and the fastest units of the chip stand idle. Nobody serves a model that way.
# What one can have across chips at a fair price is sums *outside* of matrix products: norms, softmax, losses, with a
# tree that is written down, correctly rounded functions in place of approximations, and denormals kept. For products
# there are the bounds of sitting 2, and the next sitting.
#
# ## 23. What is promised
#
# Look for four words in a promise: *run*, *shape*, *version*, *device*.
#
# > **Facts: what frameworks and libraries promise**
# >
# > - PyTorch promises no complete reproducibility across releases, commits or platforms, nor between CPU and GPU, even
# >   with equal seeds. (source: [Reproducibility](https://docs.pytorch.org/docs/2.13/notes/randomness.html), 2.13)
# > - `torch.use_deterministic_algorithms(True)` asks for algorithms that give the same output for the same input on the
# >   same software and hardware, and raises RuntimeError where there is none. (source:
# >   [its page](https://docs.pytorch.org/docs/stable/generated/torch.use_deterministic_algorithms.html))
# > - A batched product need not have the bits of its slices. (source: PyTorch,
# >   [Numerical accuracy](https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html), Batched computations)
# > - cuBLAS: the same bits in every run with one version, one architecture and one number of SMs; not across versions,
# >   nor with several streams unless each has its workspace. (source:
# >   [cuBLAS](https://docs.nvidia.com/cuda/cublas/), section 2.1.4)
# > - rocBLAS: the same bits with one target, one ROCm version, one stream for a handle, and atomics switched off. By
# >   default products of matrices may use them. (source: ROCm/rocBLAS, docs/conceptual/rocblas-design-notes.rst,
# >   Bitwise reproducibility)
# > - CUB has a switch with three values: not guaranteed, run to run, and GPU to GPU. A sum is run to run by default.
# >   (source: [CUB, Determinism](https://nvidia.github.io/cccl/unstable/cub/determinism.html))
# > - XLA's flag `xla_gpu_deterministic_ops` guarantees run to run on a GPU. (source: openxla/xla,
# >   xla/debug_options_flags.cc)
# > - NCCL: two arrays reduced as one have other bits than each alone, since the place in an array decides which rank
# >   begins. All ranks get the same bits. (source: [NVIDIA/nccl #157](https://github.com/NVIDIA/nccl/issues/157) and
# >   [#855](https://github.com/NVIDIA/nccl/issues/855))
# > - NCCL's sums within the switch (NVLS) differed from call to call in 2024. (source:
# >   [NVIDIA/nccl #1497](https://github.com/NVIDIA/nccl/issues/1497))
# > - RCCL: the algorithm follows the size of a message; a user measured other bits in about 34% of the elements on four
# >   MI100. (source: [rocm-systems #11661](https://github.com/ROCm/rocm-systems/issues/11661))
# > - vLLM has `VLLM_BATCH_INVARIANT=1`, in beta, for NVIDIA from compute capability 8.0, gfx90a, gfx942 and gfx950.
# >   (source: [vLLM 0.32, Batch invariance](https://docs.vllm.ai/en/v0.32.0/features/batch_invariance/))
#
# Of these, most promise *runs*. vLLM's mode is about the *batch*. Only CUB's third value is about another *device*, and
# none is about another vendor.
#
# > **Claim and fact: DeepSeek-V4's kernels**
# >
# > - Claimed: kernels that do not depend on the batch and are deterministic, for the same bits in training and
# >   inference. (source: [DeepSeek-V4
# >   report](https://huggingface.co/deepseek-ai/DeepSeek-V4-Pro/blob/main/DeepSeek_V4.pdf), as summarised in [notes on
# >   it](https://ayushgarg.ca/notes/Deepseek-V4))
# > - As told: attention does not cut a context over SMs. (source: [besthub.dev on the
# >   report](https://www.besthub.dev/articles/why-deepseek-v4-insists-on-batch-invariance-and-what-it-costs-ffabd0dafb74))
# > - As told: in backward passes attention adds into buffers of its own and then in a fixed order. (source:
# >   [Megatron-Bridge #3538](https://github.com/NVIDIA-NeMo/Megatron-Bridge/issues/3538), after the report)
# > - DeepGEMM, a library of that company for products, was deterministic and batch-invariant until September 2026.
# >   Since then a switch decides, off by default, so that some kernels are faster. (source:
# >   [DeepGEMM #432](https://github.com/deepseek-ai/DeepGEMM/pull/432))
# > - Fact: kernels that keep a row's bits whoever shares the batch can be written in Triton, for both vendors.
# >   (measured: the cells of section 21, on virtual GPUs)
#
# We found no report from outside that shows that training to repeat bit for bit. A claim stays one until somebody runs
# it again.
#
# | the same bits | kept by | price, counted above |
# |---|---|---|
# | run to run | a place for each part | one launch, 256 bytes, for 64 parts |
# | tile to tile | an order that follows the index | lab 09.fixed_tree |
# | batch to batch | one cut for all batches | a few percent in a batch; alone, a chip that waits |
# | chip to chip | no matrix instructions | 50 to 200 times the instructions |
#
# **You have** four promises, what breaks each, what it costs, and who gives it. In the lab: 09.fixed_tree and
# 09.batch_invariant. Next: bits differ anyway. Is it noise, or a bug?

# %% end of the same bits
lesson.sitting("09", 3)

# %% [markdown] sitting 4
# # Sitting 4: noise or a bug
#
# ## 24. Six small faults
#
# A model is ported: the same weights, other code. It runs, it writes text, its loss looks right. Six things go wrong
# in such ports again and again: the base of the rotary angles, the eps of a norm, an exact GELU where the model was
# trained with the tanh form, a mask that is off by one, a wrong scale of the scores, and a square weight that is
# transposed. None of them raises an error.
#
# Here is a Llama of `transformers` in small, trained for a few seconds: once with seed 0, and once with seed 1, to see
# what chance alone does to the loss. Of the first there are six copies with one fault each, planted in some layer. All
# read the same 32 × 64 tokens.

# %% six ports
torch.set_num_threads(1)  # so small a model that threads would only wait
model, (tokens, targets) = lesson.trained_llama()
again, _ = lesson.trained_llama(seed=1)
broken = lesson.broken_ports(model, seed=25)
lesson.table(
    {name: {"in": one.module, "what": one.what} for name, (_, one) in broken.items()},
    first="fault",
)


# %% two seeds
def loss(logits):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


logits = lesson.logits_of(model, tokens)
chance = abs(loss(lesson.logits_of(again, tokens)) - loss(logits)).item()
lesson.table({"loss with seed 0": loss(logits), "seed 1 is off by": chance})

# %% guess losses
guess = predict(
    "09.losses",
    "How many of the six faults move the loss by less than another seed does? And a "
    "token that sees the next one: does the loss rise or fall?",
    hidden=lesson.number("faults that hide"),
    mask=lesson.choice("rises", "falls", label="mask off by one"),
)

# %% losses
found = {name: lesson.logits_of(port, tokens) for name, (port, _) in broken.items()}
with torch.autocast("cpu", torch.bfloat16):
    honest = lesson.logits_of(model, tokens).float()  # no fault, products in bf16
moved = {name: (loss(y) - loss(logits)).item() for name, y in found.items()}
rows = {
    name: {
        "loss moves by": loss(y) - loss(logits),
        "logits move by, %": 100 * (y - logits).norm() / logits.norm(),
        "best token changes, %": 100
        * (y.argmax(-1) != logits.argmax(-1)).double().mean(),
    }
    for name, y in {**found, "none, in bf16": honest}.items()
}
guess.reveal(
    hidden=sum(abs(change) < chance for change in moved.values()),
    mask="rises" if moved["mask"] > 0 else "falls",
    because="a trained model forgives much. Who sees the answer finds it easier.",
)
lesson.table(rows, first="fault")

# %% [markdown] losses read
# Only the transposed weight stands out. A fault that *lowers* the loss is the worst: it looks like progress, until the
# model must write a text whose next token nobody can see. The last row has no fault; it multiplies in bf16. It moves
# the logits more than two of the faults do, and changes nearly as many best tokens as two others. A test that "allows
# one percent" passes half of the list.
#
# ## 25. Where a short test cannot see
#
# The quickest test of a port reads one token, "hello", and compares the logits. One position has one score, and the
# softmax of one score is 1, whatever it is.

# %% guess positions
guess = predict(
    "09.positions",
    "At the first position: do the logits change, by this fault?",
    rope=lesson.yes_no("rope base"),
    scale=lesson.yes_no("scale"),
    mask=lesson.yes_no("mask"),
    eps=lesson.yes_no("eps"),
)

# %% positions
change = {
    name: ((y - logits).norm(dim=(0, 2)) / logits.norm(dim=(0, 2))).tolist()
    for name, y in found.items()
}
guess.reveal(
    rope=change["rope base"][0] > 0,
    scale=change["scale"][0] > 0,
    mask=change["mask"][0] > 0,
    eps=change["eps"][0] > 0,
    because="angles of position 0 are 0 for any base; one score gives the weight 1. "
    "With the wrong mask the first token sees two.",
)
lesson.curves(
    {
        name: [(at, max(one, 1e-7)) for at, one in enumerate(row)]
        for name, row in change.items()
    },
    "logits, relative",
    log=True,
    xlabel="position",
)

# %% [markdown] positions read
# Two faults do not show at the first position. A third, the mask in the last layer, does not show at the last position,
# which has no next token to see; and that is the one that a server reads. So test with many positions, a batch of more
# than one row, a length that is no power of two, and a context as long as will be served.
#
# ## 26. The culprit and its victims
#
# The logits only say *that* something is off. So both models are recorded: what each module was given and what it gave,
# in the order of execution. Then there are two ways to compare. Run both models **freely**, and every module behind the
# fault differs, because its inputs do: victims. Or give each module of the port what its partner in the original was
# **given**: then it can only differ by its own doing.

# %% guess victims
guess = predict(
    "09.victims",
    "The scale is wrong in the attention of the first of two layers. How many of all "
    "recorded modules differ by more than rounding, run freely? And given the inputs "
    "of the original?",
    freely=lesson.choice("one", "some", "most", label="run freely"),
    given=lesson.choice("one", "some", "most", label="given the same"),
)

# %% victims
short = tokens[:2, :24]  # a recording keeps every intermediate value
port, planted = broken["scale"]
original = lesson.recording_of(model, short)
freely = lesson.recordings_diff(original, lesson.recording_of(port, short))
given = lesson.port_diff(original, port, short)


def share(rows):
    off = sum(not row.apart.holds for row in rows)
    return "one" if off == 1 else "most" if off > len(rows) / 2 else "some"


guess.reveal(
    freely=share(freely.rows),
    given=share(given.rows),
    because="the residual stream carries a difference to all that follows. A module "
    "that is given the right numbers shows its own fault only.",
)


def over_bound(rows):
    return [
        max(1e-3, row.apart.error / row.apart.bound) if row.apart.error else 1e-3
        for row in rows
    ]


lesson.curves(
    {"run freely": over_bound(freely.rows), "given the same": over_bound(given.rows)},
    "worst element over its bound",
    levels={"the bound": 1.0},
    log=True,
    xlabel="module, in the order in which they are called",
)

# %% [markdown] who is around
# (Run freely, the first peaks are the model, its body and the layer *around* the culprit: they begin before it and end
# after it.) Now all six, each port given the original's inputs:

# %% all six found
lesson.table(
    {
        name: {
            "found in": one.module,
            "planted there": one.module == planted.module,
            "operator": one.operator,
            "error": one.apart.error,
            "because": one.because,
        }
        for name, (port, planted) in broken.items()
        for one in lesson.port_diff(original, port, short).faults
    },
    first="fault",
)

# %% [markdown] found read
# The bound is not a number somebody liked. It comes from section 14: the type, the length of the sums, the roundings
# since the inputs were equal; and from what a nudge of the inputs by half an ulp does to the value. Compared exactly,
# every honest difference of two chips would be a fault. With a fixed bound of 1e-2 the GELU would pass: its worst
# element is off by less than a thousandth.
#
# Your turn: plant one into the other model, do not look where, and let the line of code tell you.

# %% your turn
theirs = lesson.recording_of(again, short)  # the model of seed 1, still whole
lesson.plant_fault(again, "eps", seed=2026)  # take another seed, another fault
fault = lesson.port_diff(theirs, again, short).faults[0]
lesson.table(
    {
        "module": fault.module,
        "operator": fault.operator,
        "line": fault.line,
        "error, times its bound": fault.apart.error / fault.apart.bound,
    }
)

# %% [markdown] from a terminal
# The same from a terminal, on two models of your own, is `./w2w diff`. A file has a function for each that returns the
# model and its inputs:
#
# ```python
# from gpu_utils import lesson
#
# def original():
#     model, (tokens, _) = lesson.trained_llama()
#     return model, tokens[:2, :24]
#
# def port():
#     model, tokens = original()
#     lesson.plant_fault(model, "eps", seed=1)  # or break something yourself
#     return model, tokens
# ```
#
# `./w2w diff port.py:original port.py:port` names module, operator and line. With `-o A.safetensors` in place of the
# second one it records the first, to be carried to another machine. `./w2w diff --help` has the rest.
#
# Lab 09.layer_diff is the same tool, from your own hooks.
#
# ## 27. Two loss curves
#
# Now the port is clean as far as anyone can see, and is trained. Its loss curve is not the original's: bits differ, and
# each step is taken from where the last one led. How far may two curves be apart?
#
# A tiny GPT-2, 60 steps. The *reference* is ours. "bf16 products" rounds the operands of all linear layers: an honest
# port. "Scores 1.4 times" divides scores by the root of half a head's width: a fault. "AdamW's own betas" forgot an
# argument, so that the second is 0.999 and not 0.95: a fault as well. Runs with one seed have the same first weights
# and the same batches. They are a **pair**. In the figure two of the three curves belong to a pair.

# %% pairs of runs
names = ["reference", "bf16 products", "scores 1.4 times", "AdamW's own betas"]
runs = lesson.seed_pairs(names, seeds=range(5))
lesson.curves(
    {
        "reference, seed 0": runs["reference"][0].losses,
        "betas, seed 0": runs["AdamW's own betas"][0].losses,
        "reference, seed 1": runs["reference"][1].losses,
    },
    "loss, nats per token",
)

# %% guess pairs
guess = predict(
    "09.pairs",
    "The final losses of five seeds scatter. How many times less does the difference "
    "within pairs scatter (reference and the forgotten betas)? And in which ports does "
    "the 95% interval of the mean difference leave out 0?",
    times=lesson.choice("about 2", "about 20", "about 200", label="times less"),
    bf16=lesson.yes_no("bf16 products"),
    scores=lesson.yes_no("scores 1.4 times"),
    betas=lesson.yes_no("AdamW's own betas"),
)

# %% pairs
final = {name: torch.tensor([run.val_loss for run in runs[name]]) for name in names}
spread = final["reference"].std().item()
rows, seen = {}, {}
for name in names[1:]:
    gaps = final[name] - final["reference"]
    interval = lesson.mean_interval(gaps.tolist())
    seen[name] = not interval.low < 0 < interval.high
    rows[name] = {
        "mean difference": interval.mean,
        "spread of pairs": gaps.std(),
        "95% from": interval.low,
        "to": interval.high,
    }
within = (final["AdamW's own betas"] - final["reference"]).std().item()
guess.reveal(
    times=lesson.nearest(spread / within, ("about 2", "about 20", "about 200")),
    bf16=seen["bf16 products"],
    scores=seen["scores 1.4 times"],
    betas=seen["AdamW's own betas"],
    because="what a seed does to a run it does to both runs of its pair, and it drops "
    "out of the difference.",
)
lesson.table({"spread over seeds": spread, "spread of pairs": within})

# %% intervals
lesson.table(rows, first="against the reference")

# %% [markdown] pairs read
# What a seed does to both runs of a pair cancels. What rounding and the fault do stays.
#
# Two surprises. The forgotten betas *lower* the loss of these 60 steps: "not worse" is no test. And the wrong scale is
# not seen, since training fits its weights to it. *Not seen* is not *the same*: with twelve pairs the interval was
# -0.0017 to -0.0002 (measured: `lesson.seed_pairs(names, seeds=range(12))`, torch 2.13 on a CPU). The tool for that
# fault is section 26, and takes one forward pass.
#
# ## 28. A stated error rate
#
# A test of a port is run on every release. So one must know how often it cries wolf. The 95% interval states it: of
# honest ports with a difference of 0 it leaves out 0 five times in a hundred, *if* the pairs are independent and
# roughly normal. Count it: 20,000 drawn sets of five runs, with the two spreads that you have just measured, and a
# shift of the loss from 0 on. Once each run has the same seed as its partner, once both sides have seeds of their own.

# %% guess alarms
guess = predict(
    "09.alarms",
    "Alarms at a shift of 0, in percent? Alarms at a shift of 0.004? And somebody who "
    "tests each of 60 steps at 5%, as if they were independent: a false alarm in how "
    "many percent?",
    honest=lesson.number("at 0, in pairs", unit="%", factor=1.3),
    paired=lesson.choice("under 10%", "over 50%", label="at 0.004, in pairs"),
    others=lesson.choice("under 10%", "over 50%", label="at 0.004, other seeds"),
    steps=lesson.number("60 tests", unit="%", factor=1.1),
)

# %% alarms
shifts = [0, 0.0005, 0.001, 0.002, 0.004, 0.01, 0.02, 0.04, 0.08]
rates = lesson.alarm_rates(shifts, seeds=spread, within=within, runs=5)
at = {name: row[shifts.index(0.004)] for name, row in rates.items()}
guess.reveal(
    honest=100 * rates["the same seeds, in pairs"][0],
    paired="over 50%" if at["the same seeds, in pairs"] > 0.5 else "under 10%",
    others="over 50%" if at["other seeds"] > 0.5 else "under 10%",
    steps=100 * (1 - 0.95**60),
    because="5% is what the interval states; a shift of three spreads of the pairs is "
    "plain, and a sixth of a spread of seeds is not. 1 - 0.95^60.",
)
lesson.curves(
    {name: list(zip(shifts, row, strict=True)) for name, row in rates.items()},
    "share of alarms",
    levels={"5%": 0.05},
    xlabel="shift of the loss",
)

# %% [markdown] alarms read
# Both tests keep their word at 0. Away from it only the pairs have **power**: the share of real shifts that they see.
# State both: the rate of false alarms, and the smallest shift that is seen nine times in ten. Other slips:
#
# - *One pair.* It has a difference and no spread. Nothing follows.
# - *Each step a test*, or steps as if they were runs: neighbours on one curve are correlated, so the spread over steps
#   is not the spread over runs. Take **one number for each run**, such as the mean of its last steps, and count runs.
# - *The standard deviation for the standard error*: the mean of n differences scatters √n times less than one.
# - *Two for Student's t.* With five pairs the interval is 2.78 standard errors wide on each side, not 1.96.
# - *NaN.* A run that ended in NaN is no missing value; it is the answer.
#
# The parity report of unit 03 (`lesson.parity`) sets runs side by side in pairs in this way. Lab 09.convergence is the
# test, from you, and its error rates are measured.
#
# What no curve can show: a fault that moves the loss by less than the pairs scatter; one that shows only later, on
# longer contexts, on other data, or in what the model writes. So, in this order: operators against a bound (sitting 2),
# modules given the same inputs (section 26), gradients of one step, and only then curves.
#
# ## 29. The story: training on another vendor's chip
#
# > **Claim and fact: R2 on Ascend**
# >
# > - Reported: training R2 on Ascend met persistent technical problems, so NVIDIA's chips were used for training and
# >   Ascend for inference. Unnamed sources spoke of stability, slower links and weaker software. (source: Financial
# >   Times, 14 August 2025, as told by
# >   [datashieldhq.site](https://datashieldhq.site/2025/08/14/report-deepseek-model-delay-forces-use-of-nvidia-gpus))
# > - Reported: engineers of the vendor came, and still no training run succeeded; the companies did not comment.
# >   (source: the same article, as told by
# >   [btimesonline.com](https://www.btimesonline.com/articles/175224/20250814/deepseek-delays-r2-ai-model-after-huawei-chip-training-fails-denies-august-launch-timeline.htm))
# > - Reported in 2026: all parameters of DeepSeek-V4-Pro were post-trained on at least 1,000 Ascend 910C. (source: a
# >   city government's post, as told by [newsglobal.cc](https://newsglobal.cc/article/3096716)) Benchmarks were not
# >   given. (source:
# >   [buzzytoday.com](https://www.buzzytoday.com/articles/huawei-linked-claim-puts-deepseek-post-training-on-ascend))
# > - Reported: for V4 on Ascend core operators were written anew. (source:
# >   [hongkong.info](https://hongkong.info/en-us/news/detail-8959.html), 24 April 2026) It gives the model 1 trillion
# >   parameters where the report before has 1.6. (source: [newsglobal.cc](https://newsglobal.cc/article/3096716))
# > - Claimed: fine-grained expert parallelism was checked on NVIDIA GPUs and Ascend NPUs, 1.50 to 1.73 times as fast.
# >   (source: DeepSeek-V4 report)
# > - Fact: Ascend's sums over ranks are deterministic if `HCCL_DETERMINISTIC` says so; the default is off. (source:
# >   [CANN,
# >   HCCL_DETERMINISTIC](https://www.hiascend.com/document/detail/en/CANNCommunityEdition/900/maintenref/envvar/envref_07_0099.html))
# > - Fact: serving on Ascend has a mode that does not depend on the batch, in beta. (source: [vllm-ascend, Batch
# >   invariance](https://docs.vllm.ai/projects/ascend/en/latest/user_guide/feature_guide/batch_invariance.html))
#
# The reports disagree, and none comes with data: training there was given up, or training there was done. So both stay
# reports.
#
# Whether a fault in an operator stood behind any of them, nobody outside can say: they tell of problems, not of
# operators. What you have now is what would have told: a bound for each operator, the first module that breaks it,
# pairs of runs with a stated error rate. That is *alignment of operators*, on any vendor's chip.
#
# ## What you have
#
# - Six faults that hide in a loss, and a way to the module, the operator and the line.
# - Pairs over seeds, a test that states how often it is wrong, and the shift that it can see.
#
# In the lab: 09.layer_diff and 09.convergence.

# %% [markdown] summary of the unit
# ## Summary
#
# - Bits differ between chips for few reasons, most often because a sum has another order; the listing shows which.
# - A bound follows from the type, the length of the sum and its order; a tolerance is a bound.
# - The same bits from run to run, tile to tile, batch to batch and chip to chip are four promises with four prices.
# - What is chosen by the shape of a batch changes the bits of each request in it: product, norm, attention.
# - A trained model forgives most faults. Give each module the right inputs, and the culprit stands alone.
# - Pair runs by seed and batches; one number for each run; state false alarms and power.
#
# ## Read next
#
# - [Defeating nondeterminism in LLM
#   inference](https://thinkingmachines.ai/blog/defeating-nondeterminism-in-llm-inference/): a served model whose
#   answers depended on the load, and kernels that mend it.
# - PyTorch's notes on [reproducibility](https://docs.pytorch.org/docs/stable/notes/randomness.html) and
#   [numerical accuracy](https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html); cuBLAS, section 2.1.4;
#   rocBLAS, [design notes](https://rocm.docs.amd.com/projects/rocBLAS/en/latest/conceptual/rocblas-design-notes.html).
# - AMD's [determinism guide of
#   Primus](https://rocm.docs.amd.com/projects/primus/en/main/04-technical-guides/determinism-and-reproducibility.html)
#   for a whole training stack.
#
# ## Check yourself
#
# Answer first, then open.
#
# <details><summary>No atomics, one chip, one version, the same prompt, temperature 0. Why may a server answer
# otherwise today?</summary>
#
# Other requests share the batch, and tiles or splits are chosen by its size.
# </details>
#
# <details><summary>A port gives bits that differ in every layer. Is it broken?</summary>
#
# That does not follow. Compare each module, given the same inputs, with its bound.
# </details>
#
# <details><summary>The port's loss is lower than the original's. Good news?</summary>
#
# No. A mask that shows the next token lowers it, and so did forgotten betas.
# </details>
#
# <details><summary>Five pairs, an interval of -0.002 to 0.003. What may you say?</summary>
#
# That a shift of more than 0.003 has not been seen; not that there is none.
# </details>
#
# **You have** the unit. Now open [lab 09](../labs/09_operator_alignment.ipynb).

# %% end of noise
lesson.sitting("09", 4)
