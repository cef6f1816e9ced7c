# %% [markdown] top
# # 09 Operator alignment: the same answer on two chips
#
# **Afterwards you can** say why two chips give different bits, and find the reason in the listing; work out how far
# apart two honest results may be, and turn that into a tolerance which refuses a fault; keep bits equal where it
# matters, and say what that costs; bisect a port that went wrong to its first wrong operator; and tell a loss curve
# with a bug from one with noise.
#
# **You need** units 04 and 05 (reductions, `tl.dot`), 06 (softmax) and 08 (formats, section 1); unit 03 for the port.
# No GPU: every cell runs on a laptop. "Executed" means on a virtual GPU here; nothing has run on AMD silicon.
#
# **Time**: four sittings: reading (text and code at 200 words a minute) takes 19, 16, 16 and 14 minutes, all of it with
# the predictions about 40, 40, 35 and 35. The cells of a sitting run in under 20 seconds on a quiet CPU. Then lab 09.
#
# A port is done when the new chip gives the same answer as the old one. But the same *bits* it does not give, even
# where nothing is wrong. So what is "the same answer"?

# %% imports
import torch
import triton
import triton.language as tl

from gpu_utils import compile_for, lesson, listing, predict, virtual_gpu

# %% [markdown] sitting 1
# # Sitting 1: different bits
#
# ## 1. The step between two numbers
#
# A float type has gaps. The distance from a number to its neighbour is the *unit in the last place*, the **ulp**. It
# doubles with every power of two, as on this line for a type with three bits of mantissa:

# %% ticks
lesson.number_line("e4m3fn", low=0.5, high=8, log=False)

# %% [markdown] ulp
# From 1 to 2 there are eight steps of 1/8, from 2 to 4 eight of 1/4. In general a number between $2^e$ and $2^{e+1}$
# has an ulp of $2^{e-m}$, where $m$ is the number of bits of mantissa: 10 in fp16, 7 in bf16, 23 in fp32. An operation
# that is *rounded correctly* gives the number of the type that is nearest to the exact result, so it is off by half an
# ulp at most. Two results that are one ulp apart are neighbours: nothing lies between them.

# %% guess step
guess = predict(
    "09.step",
    "How large is an ulp at 1,000? (1,000 lies between 2^9 and 2^10.)",
    fp16=lesson.number("in fp16"),
    bf16=lesson.number("in bf16"),
    fp32=lesson.number("in fp32: 2 to the power of"),
)


# %% step
def ulp_at(x):
    return torch.nextafter(x, torch.full_like(x, torch.inf)) - x


TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
rows = {}
for name, dtype in TYPES.items():
    x = torch.tensor([1.0, 1000.0], dtype=dtype)
    one, thousand = ulp_at(x).tolist()
    rows[name] = {"ulp at 1": one, "ulp at 1,000": thousand}
guess.reveal(
    fp16=rows["fp16"]["ulp at 1,000"],
    bf16=rows["bf16"]["ulp at 1,000"],
    fp32=torch.tensor(rows["fp32"]["ulp at 1,000"]).log2(),
    because="2^(9 - 10), 2^(9 - 7), 2^(9 - 23).",
)
lesson.table(rows, first="type")

# %% [markdown] why ulps
# Why count in ulps? Because "off by 0.001" says nothing: in fp32 at 1,000 that is 16 steps, in bf16 no number lies so
# near. And because the count hints at the cause: 0 is the same bits, 1 or 2 another rounding, thousands a narrower type
# on the way. (Counting them for two tensors, across zero too, is your first exercise.)
#
# ## 2. One operator, five chips
#
# Now the experiment that this unit is about. One kernel, one input, five targets. `OP` picks one line:

# %% pointwise
FIVE = ("sm_80", "sm_90", "gfx942", "gfx950", "gfx1100")


@triton.jit
def pointwise(a_ptr, b_ptr, out_ptr, OP: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(a_ptr + at), tl.load(b_ptr + at)
    if OP == "a + b":
        out = a + b
    elif OP == "a * b":
        out = a * b
    elif OP == "a / b":
        out = a / b
    elif OP == "sqrt(a)":
        out = tl.sqrt(a)
    elif OP == "exp(a)":
        out = tl.exp(a)
    elif OP == "exp2(a)":
        out = tl.exp2(a)
    elif OP == "log(a)":
        out = tl.log(a)
    elif OP == "rsqrt(a)":
        out = tl.rsqrt(a)
    tl.store(out_ptr + at, out)


def on_five(kernel, grid, *args, shape, **options):
    """target -> what the kernel writes there, float32 of this shape."""
    results = {}
    for target in FIVE:
        results[target] = torch.empty(shape)
        lesson.launch_on([target], kernel, grid, *args, results[target], **options)
    return results


def same_bits(results):
    return all(torch.equal(results["sm_80"], one) for one in results.values())


# %% [markdown] ieee
# IEEE 754 wants +, −, ×, ÷ and the square root rounded correctly. There is one right answer, so two chips that follow
# it cannot differ. For exp and log it demands no such thing: a chip may be off by an ulp or two, each in its own way.

# %% guess operators
guess = predict(
    "09.operators",
    "4,096 numbers between 0.1 and 10. On which operators do all five targets agree in "
    "every bit?",
    plus=lesson.yes_no("a + b"),
    divide=lesson.yes_no("a / b"),
    exp=lesson.yes_no("exp(a)"),
    log=lesson.yes_no("log(a)"),
)

# %% operators
torch.manual_seed(0)
a, b = 10 ** (2 * torch.rand(2, 4096) - 1)
OPS = ("a + b", "a * b", "a / b", "sqrt(a)", "exp(a)", "log(a)", "rsqrt(a)")
of = {op: on_five(pointwise, (4,), a, b, shape=4096, OP=op, BLOCK=1024) for op in OPS}
guess.reveal(
    plus=same_bits(of["a + b"]),
    divide=same_bits(of["a / b"]),
    exp=same_bits(of["exp(a)"]),
    log=same_bits(of["log(a)"]),
    because="the first two came out rounded correctly; exp and log are approximations, "
    "and the two vendors take different ones.",
)
lesson.ulp_histogram(
    {f"{op}: sm_80, gfx942": (one["sm_80"], one["gfx942"]) for op, one in of.items()}
)

# %% [markdown] other pairs
# That was one pair of targets. What became of each line there? The next table shows the instructions on floats, and
# whether the targets of one vendor agree among each other.


# %% instructions
def arithmetic(op, target):
    compiled = compile_for(pointwise, target, (a, b, a), OP=op, BLOCK=32, num_warps=1)
    floats = [
        name if times == 1 else f"{times} {name}"
        for name, times in lesson.mnemonics(compiled).items()
        if "f32" in name and not name.startswith(("set", "v_cmp"))
    ]
    return ", ".join(floats)


lesson.table(
    {
        op: {
            "sm_80": arithmetic(op, "sm_80"),
            "gfx942": arithmetic(op, "gfx942"),
            "both NVIDIA": torch.equal(one["sm_80"], one["sm_90"]),
            "all AMD": torch.equal(one["gfx942"], one["gfx950"])
            and torch.equal(one["gfx942"], one["gfx1100"]),
        }
        for op, one in of.items()
    },
    first="line",
    note="Last columns: equal bits on sm_80 and sm_90; on gfx942, gfx950 and gfx1100.",
)

# %% [markdown] read the table
# Read it row by row.
#
# - **+ and ×**: one instruction, correctly rounded on both. These bits are safe.
# - **÷**: on AMD a reciprocal, and a chain of `v_fma` that corrects it. On NVIDIA Triton writes `div.full.f32`, which
#   is a *fast division*: NVIDIA allows it 2 ulp. So the agreement above is not a promise. It is our virtual GPU, which
#   divides exactly where the manual leaves room. `tl.div_rn(a, b)` asks for the IEEE result, and `tl.sqrt_rn` does the
#   same for the root, which is `sqrt.approx` on NVIDIA.
# - **exp**: both scale by $\log_2 e$ and take a power of two, `ex2.approx` or `v_exp`. Each is an approximation in
#   hardware.
# - **log**: here even the method differs. On NVIDIA it is a chain of twelve `fma`; on AMD `v_log` with a correction.
#
# > **Facts: what is promised**
# >
# > - `div.full.f32` is off by 2 ulp at most and does not follow IEEE 754; `div.rn.f32` does. (source: NVIDIA, PTX ISA
# >   9.1, section 9.7.3.8)
# > - `v_exp_f32`, `v_log_f32`, `v_rsq_f32`, `v_sqrt_f32`: 1 ulp. `ex2.approx`, `rsqrt.approx`, `sqrt.approx`: what the
# >   PTX manual states for each. (source: docs/virtual-gpu.md of this course, table "Exactness", with the manuals)
#
# What does the virtual GPU know of this? Additions, products, fma and conversions have the bits of the chip. For an
# approximation it has a number *within the bound of the manual*: for `ex2.approx` NumPy's float32, for `v_exp` float64
# rounded once. So that two vendors differ in exp, and by an ulp or two, is what the manuals allow; how *often* two real
# chips differ, a figure of ours cannot tell. Which results are approximations, the listing tells: by `.approx`, by a
# `v_` name of a function, or by a polynomial of `fma`.
#
# One more thing about exp, since attention lives on it. Both vendors compute $2^t$ with $t = x \log_2 e$, and $t$ is
# *rounded* to float32 first. At $x = -80$ it is near 115, where an ulp is $2^{-17}$. An error $d$ in $t$ makes $2^t$
# wrong by a share of $d \ln 2$; and one ulp of the result is a share of $2^{-23}$ at most.

# %% guess far
guess = predict(
    "09.far",
    "exp of numbers between -80 and -79. How far from the truth are the two at worst? "
    "And from each other?",
    truth=lesson.choice(
        "1 to 2 ulp", "20 to 70 ulp", "thousands", label="from the truth"
    ),
    apart=lesson.choice(
        "1 to 2 ulp", "20 to 70 ulp", "thousands", label="from each other"
    ),
)


# %% far
def kind(ulps):
    return "1 to 2 ulp" if ulps < 3 else "20 to 70 ulp" if ulps < 70 else "thousands"


rows = {}
for start in (-1, -10, -40, -80):
    x = start + torch.rand(1024)
    one = on_five(pointwise, (1,), x, x, shape=1024, OP="exp(a)", BLOCK=1024)
    ulp = ulp_at(x.exp()).double()
    rows[f"{start} to {start + 1}"] = {
        "sm_80 from exp(x)": ((one["sm_80"] - x.double().exp()).abs() / ulp).max(),
        "gfx942 from exp(x)": ((one["gfx942"] - x.double().exp()).abs() / ulp).max(),
        "from each other": ((one["sm_80"] - one["gfx942"]).abs() / ulp).max(),
    }
last = rows["-80 to -79"]
guess.reveal(
    truth=kind(last["sm_80 from exp(x)"]),
    apart=kind(last["from each other"]),
    because="half of 2^-17 times ln 2 is 22 times 2^-23, and log2 e is rounded, too; "
    "but both chips round the same product, with the same result.",
)
lesson.table(rows, first="x", note="largest distance, in ulp of the result")

# %% [markdown] far explained
# The two chips agree with each other far better than with the truth: they make the same mistake. So **agreement of two
# chips is no proof**; the judge is float64. (For a softmax it hardly matters: what is wrong by 40 ulp there is a weight
# of $10^{-35}$.)
#
# ## 3. One rounding or two
#
# `a * b + c` is two operations, so two roundings. A *fused multiply-add* does both and rounds once. A compiler that may
# replace the pair *contracts* it. Take `a * b - c * d`, with $c = a$ and $d = b$ in copies of their own, so that the
# compiler does not know. Triton contracts unless told otherwise; `enable_fp_fusion=False` tells it.


# %% cross
@triton.jit
def cross(a_ptr, b_ptr, c_ptr, d_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(a_ptr + at), tl.load(b_ptr + at)
    c, d = tl.load(c_ptr + at), tl.load(d_ptr + at)
    tl.store(out_ptr + at, a * b - c * d)


# %% guess fused
guess = predict(
    "09.fused",
    "fma(a, b, -c·d) rounds c·d first, then takes it from the exact a·b. Is the "
    "result 0? And with the fusion off? And do the five targets differ in bits?",
    fused=lesson.choice("0", "not 0", label="contracted"),
    apart=lesson.choice("0", "not 0", label="fusion off"),
    differ=lesson.yes_no("targets differ"),
)

# %% fused
pairs = (a, b, a.clone(), b.clone())
fused = on_five(cross, (4,), *pairs, shape=4096, BLOCK=1024)
plain = on_five(cross, (4,), *pairs, shape=4096, BLOCK=1024, enable_fp_fusion=False)
guess.reveal(
    fused="not 0" if fused["sm_80"].any() else "0",
    apart="not 0" if plain["sm_80"].any() else "0",
    differ=not (same_bits(fused) and same_bits(plain)),
    because="what is left is the rounding error of c·d, exactly; all five contract the "
    "same pair.",
)


def floats(target, **options):
    args = (*pairs, torch.empty(4096))
    compiled = compile_for(cross, target, args, BLOCK=32, num_warps=1, **options)
    return ", ".join(name for name in lesson.mnemonics(compiled) if "f32" in name)


lesson.table(
    {
        target: {
            "contracted": floats(target),
            "fusion off": floats(target, enable_fp_fusion=False),
        }
        for target in ("sm_80", "gfx942")
    },
    first="target",
)

# %% [markdown] fused explained
# Neither is wrong. The fused one is even nearer to the truth, of a formula that cancels everything else. A test that
# asks for "0" fails on it; so does a formula that relies on symmetry.
#
# All five targets agree here, because one compiler contracted them all. The difference comes when a kernel meets
# something *not* fused: torch's `a * b + c` in eager mode is two kernels with a rounding between them.


# %% eager
@triton.jit
def multiply_add(a_ptr, b_ptr, c_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b, c = tl.load(a_ptr + at), tl.load(b_ptr + at), tl.load(c_ptr + at)
    tl.store(out_ptr + at, a * b + c)


x, y, z = torch.randn(3, 4096)
contracted = on_five(multiply_add, (4,), x, y, z, shape=4096, BLOCK=1024)
lesson.ulp_histogram(
    {f"{target} against torch": (contracted[target], x * y + z) for target in FIVE[1:3]}
)

# %% [markdown] eager explained
# A quarter of the elements, or nearly, has other bits. Most are one ulp off; where product and sum nearly cancel
# it is hundreds of ulps, of a result that is small. Remember that: **ulps of a cancelled result are large**. Sitting 2
# says what to measure instead.
#
# One caution about PTX. It is not the last step: `ptxas` makes machine code of it, and a plain `mul.f32` followed by a
# plain `add.f32` it may still contract; with `.rn` in the name it may not (source: NVIDIA, PTX ISA, section on `add`).
# So look for `.rn` in the column "fusion off" above.
#
# ## 4. In which order?
#
# `tl.sum` adds 64 numbers with one warp or wavefront. Look at what the line becomes:


# %% row sum
@triton.jit
def row_sum(x_ptr, out_ptr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * BLOCK + tl.arange(0, BLOCK))
    tl.store(out_ptr + row, tl.sum(x))


args = (torch.randn(1, 64), torch.empty(1))
listing(row_sum, "sm_80", "gfx942", args=args, BLOCK=64, num_warps=1).only("tl.sum")

# %% [markdown] read the order
# A warp has 32 lanes, so on `sm_80` each lane holds two elements, neighbours, and adds them first. Then come exchanges
# with the lane 16 away, 8, 4, 2 and 1 away. A wavefront of `gfx942` has a lane for each element, and begins within rows
# of 16 lanes: `row_shr:8` gives the value of the lane 8 further down, then 4, 2, 1. Then rows are joined.
#
# Float addition is not associative, so the order decides the bits. Can one *see* the order, without the listing? Yes:
# put $M = 2^{40}$ at place $i$, $-M$ at place $j$, and 1 everywhere else. Each 1 that is added to a sum with $M$ in it
# is lost, because the ulp of $M$ is far larger. When $M$ and $-M$ meet they leave 0, and every 1 that comes later
# survives. So 64 minus the result is the number of elements in the smallest partial sum that has both $i$ and $j$ in
# it. (source: the method of FPRev, [arXiv 2411.00442](https://arxiv.org/abs/2411.00442))

# %% guess meets
guess = predict(
    "09.meets",
    "Element 0 of 64. With which element is it added first?",
    sm_80=lesson.number("on sm_80"),
    gfx942=lesson.number("on gfx942"),
    equal=lesson.yes_no("sm_80 and gfx1100, 32 lanes each, have the same tree"),
)

# %% meets
i, j = torch.combinations(torch.arange(64)).T  # every pair of places
probes = torch.ones(len(i), 64)
pair = torch.arange(len(i))
probes[pair, i], probes[pair, j] = 2.0**40, -(2.0**40)
grid = (len(i),)
sums = on_five(row_sum, grid, probes, shape=len(i), BLOCK=64, num_warps=1)
met = {}
for target in ("sm_80", "gfx942", "gfx1100"):
    met[target] = torch.ones(64, 64, dtype=torch.int)
    met[target][i, j] = met[target][j, i] = 64 - sums[target].int()
guess.reveal(
    sm_80=int((met["sm_80"][0] == 2).nonzero()),
    gfx942=int((met["gfx942"][0] == 2).nonzero()),
    equal=torch.equal(met["sm_80"], met["gfx1100"]),
    because="the neighbour in the same lane; the lane 8 away; and gfx1100 has two "
    "elements a lane, too, but then adds within rows of 16 lanes.",
)
lesson.sum_trees(met)

# %% [markdown] trees
# Three trees, all of height 6. Now real numbers: rows of 4,096, as a LayerNorm has them, and four warps. (On AMD's
# Instinct that is twice the lanes.) A lane has many elements there, and adds them one after another first.

# %% guess warps
guess = predict(
    "09.warps",
    "Rows of 4,096 numbers of a bell curve. In how many of a hundred rows do sm_80 and "
    "gfx942 have the same bits? And one chip, sm_80, with 4 and with 8 warps: the same "
    "bits in all rows?",
    share=lesson.choice("under 50", "50 to 95", "all", label="same bits"),
    warps=lesson.yes_no("4 and 8 warps agree"),
)

# %% warps
x = torch.randn(256, 4096)
four, eight = (
    on_five(row_sum, (256,), x, shape=256, BLOCK=4096, num_warps=warps)
    for warps in (4, 8)
)
share = 100 * (four["sm_80"] == four["gfx942"]).double().mean().item()
guess.reveal(
    share="all" if share == 100 else "50 to 95" if share >= 50 else "under 50",
    warps=torch.equal(four["sm_80"], eight["sm_80"]),
    because="another tree is another rounding at nearly every fork; num_warps changes "
    "the tree as a chip does.",
)
lesson.ulp_histogram(
    {
        "sm_80, sm_90": (four["sm_80"], four["sm_90"]),
        "gfx942, gfx950": (four["gfx942"], four["gfx950"]),
        "sm_80, gfx942": (four["sm_80"], four["gfx942"]),
        "sm_80, gfx1100": (four["sm_80"], four["gfx1100"]),
        "sm_80: 4, 8 warps": (four["sm_80"], eight["sm_80"]),
    }
)

# %% [markdown] autotune
# The last row is no port at all. An autotuner that picks another `num_warps`, on another machine or another day,
# changes bits. Sitting 3 comes back to that.
#
# ## 5. A float32 that is not
#
# Lesson 05 showed that `tl.dot` on float32 rounds its factors by default on some chips: to tf32 (10 bits of mantissa)
# on NVIDIA, to xf32 on `gfx942`. `gfx950` and `gfx1100` multiply float32 as it is. What is that in ulps?


# %% dot
@triton.jit
def product(a_ptr, b_ptr, c_ptr, K, IEEE: tl.constexpr):
    i, k = tl.arange(0, 64), tl.arange(0, 32)
    acc = tl.zeros((64, 64), tl.float32)
    for start in range(0, K, 32):
        a = tl.load(a_ptr + i[:, None] * K + start + k[None, :])
        b = tl.load(b_ptr + (start + k[:, None]) * 64 + i[None, :])
        acc = tl.dot(a, b, acc, input_precision="ieee") if IEEE else tl.dot(a, b, acc)
    tl.store(c_ptr + i[:, None] * 64 + i[None, :], acc)


# %% guess dot
guess = predict(
    "09.dot",
    "A factor in tf32 keeps 10 bits of 23, cut off: 13 bits are lost. K = 256. How far "
    "are sm_80 and gfx950 apart, typically? And with input_precision='ieee'?",
    default=lesson.choice("1 to 7 ulp", "hundreds", "thousands", label="by default"),
    ieee=lesson.choice("1 to 7 ulp", "hundreds", "thousands", label="'ieee'"),
)

# %% dots
x, y = torch.randn(64, 256), torch.randn(256, 64)
default, ieee = (
    on_five(product, (1,), x, y, shape=(64, 64), K=256, IEEE=full)
    for full in (False, True)
)


def typical(one, other):
    steps = ((one - other) / other).abs().median().item() * 2**23
    return "1 to 7 ulp" if steps < 8 else "hundreds" if steps < 1000 else "thousands"


guess.reveal(
    default=typical(default["sm_80"], default["gfx950"]),
    ieee=typical(ieee["sm_80"], ieee["gfx950"]),
    because="2^13 is 8,192, and errors of 256 products add up as their sum does; in "
    "float32 only the order differs.",
)
lesson.ulp_histogram(
    {
        "default: sm_80, gfx950": (default["sm_80"], default["gfx950"]),
        "default: sm_80, gfx942": (default["sm_80"], default["gfx942"]),
        "ieee: sm_80, gfx950": (ieee["sm_80"], ieee["gfx950"]),
        "ieee: sm_80, gfx1100": (ieee["sm_80"], ieee["gfx1100"]),
    }
)

# %% dot instructions
lesson.table(
    {
        name: {
            target: ", ".join(
                lesson.mnemonics(
                    compile_for(product, target, (x, y, x), K=256, IEEE=full),
                    starting=("mma", "wgmma.mma", "fma", "v_mfma", "v_fma"),
                )
            )
            for target in ("sm_80", "gfx942", "gfx950")
        }
        for name, full in {"default": False, "ieee": True}.items()
    },
    first="input_precision",
)

# %% [markdown] dot explained
# Thousands of ulps, and no error message. The listing names the reason: `tf32`, `xf32`. With `"ieee"` a few ulps are
# left. `sm_80` and `gfx1100` then have the same bits, since both go along K by `fma`, one product after another;
# `gfx950` takes a matrix instruction on float32. (The largest distances, millions, are results near 0, where the steps
# are tiny. No count of ulps is good there.)
#
# How a matrix instruction adds *inside* is published by neither vendor. Our virtual GPU takes one order within the
# bound (docs/virtual-gpu.md), so of MFMA and `mma` the bits here are a model's; lesson 08 (section 14) showed what a
# real H100 does.
#
# ## 6. Small numbers
#
# Below $2^{-126}$ float32 has only *subnormal* numbers, also called denormals, with fewer digits. Some instructions
# *flush* them: they take such an input, or give such a result, as 0. In PTX the letters `.ftz` say so. You saw
# `sqrt.approx.ftz.f32` and `rsqrt.approx.ftz.f32` in the table of section 2. On AMD no letter says it: `v_exp_f32`
# flushes its result by what it is.

# %% guess small
guess = predict(
    "09.small",
    "a = 2^-130, which is subnormal. What does sm_80 give? And gfx942?",
    nvidia_root=lesson.choice("0", "2^-65", "infinite", label="sqrt(a) on sm_80"),
    nvidia_rsqrt=lesson.choice("0", "2^65", "infinite", label="rsqrt(a) on sm_80"),
    amd_rsqrt=lesson.choice("0", "2^65", "infinite", label="rsqrt(a) on gfx942"),
)

# %% small
tiny = torch.full((1024,), 2.0**-130)
WORDS = {0.0: "0", torch.inf: "infinite", 2.0**-65: "2^-65", 2.0**65: "2^65"}
rows = {}
for op, a in {
    "a * b": tiny,
    "sqrt(a)": tiny,
    "rsqrt(a)": tiny,
    "exp2(a)": torch.full((1024,), -130.0),
    "exp(a)": torch.full((1024,), -90.0),
}.items():
    half = torch.full((1024,), 0.5)
    found = on_five(pointwise, (1,), a, half, shape=1024, OP=op, BLOCK=1024)
    rows[op] = {target: one[0].item() for target, one in found.items()}
guess.reveal(
    nvidia_root=WORDS[rows["sqrt(a)"]["sm_80"]],
    nvidia_rsqrt=WORDS[rows["rsqrt(a)"]["sm_80"]],
    amd_rsqrt=WORDS[rows["rsqrt(a)"]["gfx942"]],
    because=".ftz takes a for 0, and 1 / 0 is infinite; v_rsq_f32 does not flush.",
)
lesson.table(rows, first="line", note="a = 2^-130, b = 1/2; exp2 of -130, exp of -90")

# %% [markdown] small explained
# No count of ulps helps here: infinite against $2^{65}$. It shows where a denominator or a norm is nearly zero, in a
# padded row for instance; an `eps` under the root (LayerNorm has one) keeps you away from it. Flushing is a matter of
# the single instruction: `a * b` flushes nowhere; `tl.exp2` flushes a small *result* on all five, `tl.exp` on none. And
# on MI200 (`gfx90a`) matrix instructions flush fp16 and bf16 denormals (lesson 03).
#
# ## 7. Who comes first
#
# Until now each launch gave the same bits again. With atomics it need not. Here each program adds its part to *one*
# number. Which program comes first is left open by the hardware; the virtual GPU runs them in order, or in one that is
# drawn.


# %% arrive
@triton.jit
def arrive(x_ptr, sum_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(sum_ptr, tl.sum(tl.load(x_ptr + at)))


# %% guess arrival
guess = predict(
    "09.arrival",
    "8,192 numbers of a bell curve, 32 programs, run 20 times with the programs in "
    "another order each time. How many different sums?",
    sums=lesson.choice("1", "2 to 4", "5 and more", label="different sums"),
)

# %% arrival
x = torch.randn(32 * 256)
sums = []
for seed in range(20):
    total = torch.zeros(1)
    with virtual_gpu("gfx942", order="shuffled", seed=seed):
        arrive[(32,)](x, total, BLOCK=256)
    sums.append(total.item())
exact = x.double().sum().float()  # the nearest float32
many = len(set(sums))
guess.reveal(
    sums="1" if many == 1 else "2 to 4" if many < 5 else "5 and more",
    because="32 roundings in an order that is drawn; the results lie near each other.",
)
steps = {s: round(((s - exact) / ulp_at(exact).abs()).item()) for s in sums}
lesson.bars(
    {f"{step:+} ulp": sums.count(s) for s, step in sorted(steps.items())},
    "runs, by distance from the exact sum",
)

# %% [markdown] arrival explained
# A sum that depends on the order of arrival: no test for equal bits can hold, and no bisection by bits either.
#
# ## 8. Rounded twice
#
# Last a conversion. float32 to FP8 can be rounded once; or first to fp16 and then to FP8, which is not the same where
# the first rounding lands on the middle between two codes. Lesson 08 met it on `sm_89`: Triton's cast goes by way of
# fp16 there.


# %% casts
@triton.jit
def through_fp8(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    codes = tl.load(x_ptr + at).to(tl.float8e4nv)
    tl.store(out_ptr + at, codes.to(tl.float32))


x = torch.randn(16 * 1024, generator=torch.Generator().manual_seed(0))
once = x.to(torch.float8_e4m3fn).float()
rows = {}
for target in ("sm_89", "sm_90", "gfx950"):
    out = torch.empty_like(x)
    lesson.launch_on([target], through_fp8, (16,), x, out, BLOCK=1024)
    compiled = compile_for(through_fp8, target, (x, out), BLOCK=1024)
    rows[target] = {
        "other than torch's": (out != once).sum().item(),
        "lowest, over torch's": (out / once).abs().nan_to_num(1.0).min().item(),
        "instructions": ", ".join(
            lesson.mnemonics(compiled, starting=("cvt.r", "v_cvt_scale"))
        ),
    }
lesson.table(rows, first="target")

# %% [markdown] reasons
# 72 of 16,384 numbers on `sm_89`, each a code too low, which is up to 14%: the first conversion cuts to the middle
# between two codes, and the second sees a tie.
#
# ## 9. Seven reasons, and where they stand
#
# | Reason | In the listing | Size, here | To make it equal |
# |---|---|---|---|
# | order of the tree | `shfl.sync.bfly`, `row_shr`, loops | a few ulp | fix the order (sitting 3) |
# | contraction | `fma` for `mul` + `add` | 1 ulp, more where terms cancel | `enable_fp_fusion=False`, or `tl.fma` |
# | narrower factors | `tf32`, `xf32` | thousands of ulp | `input_precision="ieee"` |
# | flushed denormals | `.ftz` | 0 or infinite | stay above $2^{-126}$ |
# | approximations | `.approx`, `.full`, `v_exp`, `v_rsq` | 1 or 2 ulp | `tl.div_rn`, `tl.sqrt_rn`; for exp nothing |
# | atomics | `atom`, `red`, `global_atomic` | a few ulp, in each run another | no float atomics |
# | two roundings | two `cvt` in a row | one step of the narrow type | convert once |
#
# (`sm_80` and `sm_90` had the same bits everywhere: one compiler, warps of 32 lanes, and one model of `mma` and
# `wgmma`. On chips their matrix instructions add in ways of their own; source: MMA-Sim, arXiv 2511.10909.)
#
# Only the third and the fourth are large. The other five are honest: no side is wrong, and each is inside its bounds.
# What those bounds are is the question of the next sitting.

# %% stop 1
lesson.sitting("09", 1)

# %% [markdown] sitting 2
# # Sitting 2: how far apart may two sums be?
#
# ## 10. Two kinds of error
#
# A kernel gives $\hat s$ where the exact sum of $x_1, \ldots, x_K$ is $s$. There are two ways to ask how bad that is.
#
# - **Forward error**: how far is the result from the truth? $|\hat s - s| \,/\, |s|$.
# - **Backward error**: how far would the *inputs* have to move for $\hat s$ to be exact? $|\hat s - s| \,/\, \sum
#   |x_i|$.
#
# The first is what a user of the result sees, and the second is what the kernel can do something about. What lies
# between them is a matter of the numbers alone, their **condition**:
#
# $$ \text{forward} = \frac{\sum |x_i|}{|\sum x_i|} \cdot \text{backward}. $$
#
# With one sign the condition is 1. With both signs the terms cancel: $K$ numbers of a bell curve have $\sum |x_i|
# \approx 0.8\,K$ and a sum near $\sqrt K$.

# %% guess condition
guess = predict(
    "09.condition",
    "2,000 sums of 4,096 numbers of a bell curve, in float32, added in one way. The "
    "middle one of the conditions? By what factor are the largest and the middle "
    "forward error apart? And the backward errors?",
    middle=lesson.number("middle condition", factor=2),
    forward=lesson.choice("below 10", "10 to 100", "over 100", label="forward"),
    backward=lesson.choice("below 10", "10 to 100", "over 100", label="backward"),
)


# %% condition
def size(times):
    return "below 10" if times < 10 else "10 to 100" if times < 100 else "over 100"


torch.manual_seed(0)
x = torch.randn(2000, 4096)
found = torch.zeros(2000)
for column in x.T:  # one after another, all rows at once
    found = found + column
errors = {
    "condition": lesson.condition(x),
    "forward error": lesson.forward_error(found, x),
    "backward error": lesson.backward_error(found, x),
}
rows = {
    name: {"middle": e.median().item(), "largest": e.max().item()}
    for name, e in errors.items()
}
spread = {name: row["largest"] / row["middle"] for name, row in rows.items()}
guess.reveal(
    middle=rows["condition"]["middle"],
    forward=size(spread["forward error"]),
    backward=size(spread["backward error"]),
    because="0.8 × 4,096 over 0.67 × 64 is 76; where a sum happens to be near 0 the "
    "same rounding is a large share of it.",
)
lesson.table(rows, first="of 2,000 sums")

# %% [markdown] condition explained
# The kernel did the same for all rows. So a check that divides by the result (`rtol` alone, or a largest count of ulps)
# fails on whichever element happens to cancel; with enough elements there always is one. Measure against the sizes of
# the *terms*. That is what `atol` is for.
#
# ## 11. The height of the tree
#
# How large can the backward error be? Each addition is exact but for a factor $1 + \delta$ with $|\delta| \le u$, where
# $u$ is the unit roundoff: half an ulp of 1, $2^{-24}$ in float32, $2^{-11}$ in fp16, $2^{-8}$ in bf16. A term that
# goes through $h$ additions collects $h$ such factors. So
#
# $$ \text{backward error} \le \gamma_h = \frac{h u}{1 - h u} \approx h u, $$
#
# and $h$ is the height of the tree. (source: [arXiv 2107.01604](https://arxiv.org/abs/2107.01604)) The order matters
# only by its height:
#
# - **sequential**: the first term goes through all additions.
# - **blocked**: sums of blocks of $b$ terms, then the sum of those. (Lanes that add their elements, then exchange.)
# - **pairwise**: neighbours, then neighbours of those: a tree as flat as can be.
# - **Kahan's** sum goes one by one as well, but keeps in a second number what each addition cut off, and gives it to
#   the next term. For $2048 + 1 + 1$ in fp16: $2048 + 1$ is rounded to 2048, the lost 1 is kept, and $1 + 1$ is added
#   next: 2050. Its error is a few $u$, whatever $K$ (as long as $K u$ is small), for four times as many additions.

# %% guess heights
guess = predict(
    "09.heights",
    "K = 4,096. The height of the tree, sequential, pairwise, and in blocks of 64?",
    sequential=lesson.number(),
    pairwise=lesson.number(),
    blocked=lesson.number("blocks of 64", factor=1.02),
)

# %% heights
u = 2.0**-24
K = (16, 64, 256, 1024, 4096, 16384)
ORDERS = ("sequential", "blocked", "pairwise", "kahan")
bounds = {
    order: [(k, lesson.sum_bound(order, k, u, block=64)) for k in K] for order in ORDERS
}
measured = {
    order: list(lesson.sum_errors(order, K, one_sign=True, block=64).items())
    for order in ORDERS
}


def height(order):  # gamma = h u / (1 - h u), solved for h
    gamma = dict(bounds[order])[4096]
    return round(gamma / (1 + gamma) / u)


guess.reveal(
    sequential=height("sequential"),
    pairwise=height("pairwise"),
    blocked=height("blocked"),
    because="4,095; log2 of 4,096; 63 within a block and 63 for the 64 sums.",
)
lesson.bound_figure(measured, bounds, "backward error")

# %% [markdown] bounds explained
# Numbers from 0 to 1, of one sign, float32; each point is the largest error of 64 rows. All points lie below their
# lines, as they must. And two things are to be seen.
#
# - The *order of the orders* is that of the bounds. At $K$ = 16,384 the flat tree is 40 times as good as the long one,
#   and its bound a thousand times.
# - The lines are far too high for long sums. Not every rounding goes the same way.
#
# A dot product has products to round as well, $K$ more roundings, unless each step is an fma.

# %% guess products
guess = predict(
    "09.products",
    "Dot products one after another, float32, factors from 0 to 1, K = 1,024. By what "
    "factor is the largest error smaller with fma?",
    factor=lesson.choice("hardly at all", "about 2", "5 and more", label="smaller by"),
)

# %% products
K_DOT = (16, 64, 256, 1024)
dots = {
    "each step an fma": lesson.dot_errors(K_DOT, fused=True, one_sign=True),
    "product rounded, too": lesson.dot_errors(K_DOT, fused=False, one_sign=True),
}
factor = dots["product rounded, too"][1024] / dots["each step an fma"][1024]
guess.reveal(
    factor="hardly at all"
    if factor < 1.5
    else "about 2"
    if factor < 3
    else "5 and more",
    because="a product is rounded by a share of itself; the sum, which is hundreds of "
    "times as large, by the same share of the sum.",
)
lesson.table(
    {name: {f"K = {k:,}": e for k, e in of.items()} for name, of in dots.items()},
    first="largest backward error",
)

# %% [markdown] products explained
# So contraction changes bits, and hardly the error. It is the sum that counts.
#
# ## 12. Worst case and likely case
#
# If roundings are independent and as often up as down, $h$ of them add up like steps of a random walk: to about $\sqrt
# h\, u$, and not $h u$. (source: "A new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput., 2019)
# Five times that is practically never exceeded. The points of the last figure again, now with the line $5 \sqrt h\, u$:

# %% likely
likely = {
    order: [(k, lesson.sum_likely(order, k, u, block=64)) for k in K]
    for order in ("sequential", "blocked", "pairwise")
}
lesson.bound_figure({o: measured[o] for o in likely}, likely, "backward error")

# %% [markdown] how it grows
# Now the lines are 2 to 25 times too high, where the worst case was up to 200. (For the shortest sums the worst case is
# the lower of the two, and is drawn: 15 is less than $5 \sqrt{15}$.)
#
# How the *absolute* error grows with $K$ depends on how the partial sums grow, since each rounding is a share of the
# partial sum at that time:
#
# - **both signs**: partial sums near $\sqrt i$; squares of the roundings add up to $\sum i \approx K^2/2$.
# - **one sign**: partial sums near $i / 2$; squares add up to $\sum i^2 / 4 \approx K^3 / 12$.

# %% guess growth
guess = predict(
    "09.growth",
    "Sequential sums in float32, K from 64 to 16,384. The error grows like K to the "
    "power of what?",
    both=lesson.number("both signs", factor=1.1),
    one=lesson.number("one sign", factor=1.1),
)


# %% growth
def rms_errors(draw):
    points = []
    for k in (64, 256, 1024, 4096, 16384):
        x = draw(256, k)
        total = torch.zeros(256)
        for column in x.T:
            total = total + column
        points.append((k, (total - x.double().sum(1)).square().mean().sqrt().item()))
    return points


def exponent(points):
    (k, e), *_, (last, largest) = points
    return torch.tensor(largest / e).log() / torch.tensor(last / k).log()


growth = {"both signs": rms_errors(torch.randn), "one sign": rms_errors(torch.rand)}
worst = {
    "both signs": [(k, k * u * 0.8 * k) for k, _ in growth["both signs"]],
    "one sign": [(k, k * u * 0.5 * k) for k, _ in growth["one sign"]],
}
guess.reveal(
    both=exponent(growth["both signs"]),
    one=exponent(growth["one sign"]),
    because="the root of K^2, and the root of K^3.",
)
lesson.bound_figure(growth, worst, "error (root mean square)")

# %% [markdown] growth explained
# $K$ and $K^{1.5}$, where the worst case is $K^2$ in both. Over the *size of the result*, $\sqrt K$ or $K$, that is
# $\sqrt K$ either way. So for long sums the worst case is a promise that hardly says anything, and the likely case is
# what tolerances are made of.
#
# But likely is not certain. It needs roundings that go both ways. Where they all go *one* way it is broken:
#
# ## 13. Accumulators that are too narrow

# %% guess ones
guess = predict(
    "09.ones",
    "Add 1 again and again, 5,000 times, and round to the type each time. (A tie goes "
    "to the even neighbour.) Where does the sum end?",
    bf16=lesson.number("in bf16"),
    fp16=lesson.number("in fp16"),
    fp32=lesson.number("in fp32"),
)

# %% ones
ends = {}
for name, dtype in TYPES.items():
    total, one = torch.zeros((), dtype=dtype), torch.ones((), dtype=dtype)
    for _ in range(5000):
        total = total + one
    ends[name] = total.item()
guess.reveal(
    bf16=ends["bf16"],
    fp16=ends["fp16"],
    fp32=ends["fp32"],
    because="at 256 an ulp of bf16 is 2, and 257 is a tie; the same at 2,048 in fp16.",
)

# %% accumulators
K = (128, 512, 2048, 4096)
rows = {
    f"sequential in {name}": lesson.sum_errors("sequential", K, dtype, one_sign=True)
    for name, dtype in TYPES.items()
}
rows["pairwise in bf16"] = lesson.sum_errors(
    "pairwise", K, TYPES["bf16"], one_sign=True
)
rows["FP8 tensor core, 13 digits"] = lesson.worst_sum_errors(K)
rows["the same, to float32 every 128"] = lesson.worst_sum_errors(K, promoted_every=128)
lesson.table(
    {
        name: {f"K = {k:,}": f"{100 * e:.2g} %" for k, e in of.items()}
        for name, of in rows.items()
    },
    first="largest relative error, terms from 0 to 1",
)

# %% [markdown] accumulators explained
# In bf16 a sequential sum *stops*: from some point on each term is less than half an ulp of the sum. Its bound $K u$ is
# over 1 there, so it promises nothing. A flat tree in the same type does well, since at each fork the two sides are of
# similar size. The few digits of Hopper's FP8 sums (lesson 08, section 14) lie between; they cut off, so all errors go
# one way, and grow with $K$ and not $\sqrt K$. (The rows with FP8 are products, over the typical sum.)
#
# This is why kernels accumulate in float32 whatever the type of the result, and why a tolerance has to know the
# accumulator and not only the type.
#
# ## 14. From the bound to a tolerance
#
# A test compares $|\hat c - c| \le \text{atol} + \text{rtol}\,|c|$ with $c$ in float64. Where do the two come from?
#
# - **rtol**: the result is rounded to its own type. Each such rounding is at most $u$ of the result.
# - **atol**: the sum of $K$ products of size $m$, in the accumulator. Likely, for both signs: partial sums near $\sqrt
#   i\, m$ give a standard deviation of about $0.3\,K u m$.
#
# Rows whose partial sums wander far are off by more: of 100,000 sums the largest error was 3.3 $K u\,m$ (measured with
# 256 and 1,024 products of normal numbers). So $4\,K u\,m$ has room, if little: an honest kernel practically never
# fails. For products of one sign, partial sums are near $i\,m$: put $\sqrt K\,m$ for the magnitude. This is the
# function with which this course checks your kernels, in one place:

# %% our function
lesson.code(lesson.tolerance)

# %% guess room
guess = predict(
    "09.room",
    "Sums of K = 1,024 products of two factors of a bell curve (m = 1, both signs). "
    "atol in float32? And for bf16 results (u = 2^-8, two roundings): rtol?",
    atol=lesson.number("atol, float32", factor=1.05),
    rtol=lesson.number("rtol, bf16", factor=1.05),
)

# %% room
fp32, bf16 = (
    lesson.tolerance(dtype, k=1024) for dtype in (torch.float32, torch.bfloat16)
)
guess.reveal(
    atol=fp32.atol,
    rtol=bf16.rtol,
    because="4 × 1,024 × 2^-24; 2 × 2 × 2^-8.",
)
lesson.table(
    {
        "float32": {"rtol": fp32.rtol, "atol": fp32.atol, "why": fp32.why},
        "bfloat16": {"rtol": bf16.rtol, "atol": bf16.atol, "why": bf16.why},
    },
    first="K = 1,024",
)

# %% [markdown] if one sign
# Is the remark about one sign worth the trouble? Take an honest float32 sum of 16,384 numbers from 0 to 1. The *strain*
# of a result is its error over what is allowed; above 1 it is refused.

# %% guess one sign
guess = predict(
    "09.one_sign",
    "Sequential float32 sums, K = 16,384, numbers from 0 to 1 (m about 0.5), 256 rows. "
    "Does tolerance(float32, k, magnitude=m) refuse some? And with sqrt(K) m?",
    both=lesson.yes_no("refused with m"),
    one=lesson.yes_no("refused with sqrt(K) m"),
)

# %% one sign
k = 16384
x = torch.rand(256, k)
total = torch.zeros(256)
for column in x.T:
    total = total + column
exact = x.double().sum(1)
rows = {}
for name, m in {"m": 0.5, "sqrt(K) m": 0.5 * k**0.5}.items():
    allowed = lesson.tolerance(torch.float32, k=k, magnitude=m)
    room = allowed.atol + allowed.rtol * exact
    strains = (total - exact).abs() / room
    rows[name] = {"largest strain": strains.max().item(), "allowed": room[0].item()}
guess.reveal(
    both=rows["m"]["largest strain"] > 1,
    one=rows["sqrt(K) m"]["largest strain"] > 1,
    because="the errors grow like K^1.5 here, and 4 K u m grows like K.",
)
lesson.table(rows, first="magnitude")

# %% [markdown] faults
# So a wrong model of the terms refuses an honest kernel. The other side now: does the tolerance refuse a fault? The
# product of section 5, honest on five targets, and then with faults that somebody might plant.

# %% guess strain
guess = predict(
    "09.strain",
    "64 × 64 products over K = 256, float32. Which are refused?",
    ieee=lesson.yes_no("the worst of five targets, 'ieee'"),
    tf32=lesson.yes_no("sm_80 by default"),
    missing=lesson.yes_no("the last of 256 products missing"),
    scale=lesson.yes_no("all results 0.01% too large"),
)

# %% strain
x, y = torch.randn(64, 256), torch.randn(256, 64)
exact = x.double() @ y.double()


def strain(result, dtype):
    allowed = lesson.tolerance(dtype, k=256)
    error = (result.to(dtype).double() - exact).abs()
    return (error / (allowed.atol + allowed.rtol * exact.abs())).max().item()


honest = on_five(product, (1,), x, y, shape=(64, 64), K=256, IEEE=True)
default = on_five(product, (1,), x, y, shape=(64, 64), K=256, IEEE=False)
in_fp16 = torch.zeros(64, 64, dtype=torch.float16)
for k in range(256):
    in_fp16 += (x[:, k : k + 1] * y[k]).half()
candidates = {
    **{f"{target}, ieee": c for target, c in honest.items()},
    "sm_80, tf32": default["sm_80"],
    "summed in fp16": in_fp16,
    "last product missing": exact - x[:, -1:].double() * y[-1].double(),
    "0.01% too large": exact * 1.0001,
    "1% too large": exact * 1.01,
    "3% too large": exact * 1.03,
}
rows = {
    name: {"float32": strain(c, torch.float32), "bf16": strain(c, torch.bfloat16)}
    for name, c in candidates.items()
}
above = {name: row["float32"] > 1 for name, row in rows.items()}
guess.reveal(
    ieee=any(above[f"{target}, ieee"] for target in FIVE),
    tf32=above["sm_80, tf32"],
    missing=above["last product missing"],
    scale=above["0.01% too large"],
    because="honest sums stay within what is allowed; everything else is off by far "
    "more than roundings of 2^-24.",
)
lesson.table(rows, first="strain under the tolerance of")

# %% [markdown] strain explained
# Five honest results pass, with a bit of room: no target has to know the order of another. The strain of the faults is
# 70 and far more. In bf16, "tf32" is refused as well: where a result cancels, rtol allows little, and factors that were
# cut are off by a share of the *terms*.
#
# Two cases are left to the caller of our function, and the lab gives them to you. Where *factors* are rounded first, as
# to tf32, every product is off by a share of itself, up or down whatever its sign: ask how $K$ such errors add up. And
# where a running sum goes to a wider total every so many products and starts anew, only the sum of a *piece* grows in
# the narrow type.
#
# ## 15. What hides under a tolerance
#
# The second column is the same results rounded to bf16, with the tolerance for bf16. It passes "1% too large". That is
# no mistake: a bf16 number is off by up to 0.4% by itself, and two roundings with some room come to 1.6%. A test has
# **power** against a fault if it refuses it. Ask of every tolerance: how large a fault passes?

# %% guess power
guess = predict(
    "09.power",
    "All results too large by a share. At which share does half of the tests refuse? "
    "(rtol is 2^-6 in bf16, 2^-9 in fp16; a rounding by u adds to the fault.)",
    bf16=lesson.number("in bf16", unit="%", factor=1.5),
    fp16=lesson.number("in fp16", unit="%", factor=1.5),
)


# %% power
x, y = torch.randn(2, 40, 64, 64)  # 40 tests
truth, honest = x.double() @ y.double(), x @ y


def refused(share, dtype):
    """In percent of the tests, with honest results that are too large by a share."""
    allowed = lesson.tolerance(dtype, k=64)
    error = ((honest * (1 + share)).to(dtype).double() - truth).abs()
    seen = (error > allowed.atol + allowed.rtol * truth.abs()).flatten(1).any(1)
    return 100 * seen.double().mean().item()


SHARES = (10 ** torch.linspace(-7, -1, 49)).tolist()
power = {
    name: [(share, refused(share, dtype)) for share in SHARES]
    for name, dtype in TYPES.items()
}
half = {name: min(s for s, seen in of if seen >= 50) for name, of in power.items()}
guess.reveal(
    bf16=100 * half["bf16"],
    fp16=100 * half["fp16"],
    because="rtol less a rounding: 1.6% − 0.4%, and an eighth of that.",
)
lesson.table(
    {
        name: {
            "refused without a fault, %": refused(0.0, dtype),
            "share seen by half of the tests, %": 100 * half[name],
            "rtol, %": 100 * lesson.tolerance(dtype, k=64).rtol,
        }
        for name, dtype in TYPES.items()
    },
    first="64 × 64 results, K = 64",
)

# %% power drawn
lesson.curves(
    {
        name: [(float(torch.tensor(share).log10()), seen) for share, seen in of]
        for name, of in power.items()
    },
    "tests that refuse, %",
    xlabel="log10 of the share by which all results are too large",
)

# %% [markdown] make it visible
# The curves are steep: with 4,096 results in a test, one of them is nearly always rounded in the wrong direction. Left
# of its curve a fault hides. (In float32 most of the room is atol, for the sum, so rtol alone does not say where.) To
# make the tolerance smaller is not the way out, since then honest kernels fail. There are two better ones.
#
# - **Test in a wider type.** A kernel that is generic in its type shows its formula in float32, where a share of a
#   millionth is seen; bf16 then tests the casts only.
# - **Choose inputs that make the fault large.** RMSNorm divides by $\sqrt{\overline{x^2} + \varepsilon}$. With
#   $\varepsilon = 10^{-5}$ for $10^{-6}$, inputs near 1 change by $4.5 \cdot 10^{-6}$ of themselves.

# %% guess eps
guess = predict(
    "09.eps",
    "RMSNorm of bf16 rows of 768, with eps 1e-5 for 1e-6, under the tolerance for "
    "bf16. Is it refused with inputs of size 1? Of size 0.001?",
    one=lesson.yes_no("size 1"),
    small=lesson.yes_no("size 0.001"),
)


# %% eps
def rms_norm(x, eps):
    return x * (x.square().mean(1, keepdim=True) + eps).rsqrt()


allowed = lesson.tolerance(torch.bfloat16)
rows = {}
for size in (1.0, 0.1, 0.01, 0.001):
    x = (size * torch.randn(64, 768)).bfloat16().double()
    right, wrong = rms_norm(x, 1e-6), rms_norm(x, 1e-5).bfloat16().double()
    strains = (wrong - right).abs() / (allowed.atol + allowed.rtol * right.abs())
    rows[f"{size:g}"] = {"strain": strains.max().item()}
guess.reveal(
    one=rows["1"]["strain"] > 1,
    small=rows["0.001"]["strain"] > 1,
    because="at 0.001 the mean square is 1e-6: there eps is most of what is under the "
    "root.",
)
lesson.table(rows, first="size of the inputs")

# %% [markdown] rules
# The faults of sitting 4 are of this kind: right on ordinary inputs, to all digits that the type has.
#
# **Rules for a comparison.**
#
# 1. Compare with float64, not with another kernel in the same type: that has an error of its own, and the two may share
#    a fault.
# 2. Tolerance from type, accumulator, $K$ and the size of the terms, not from what happened to pass last time.
# 3. One sign or both? A sum of squares, a softmax's denominator, a mean of losses has one.
# 4. Say what fault the test would not see.

# %% [markdown] have 2
# You have the seven reasons of sitting 1, and a number for how far honest results may be apart. The lab's first three
# exercises ask for it: the distance in ulps, sums in four orders and which of them is good enough, and a tolerance that
# has to judge kernels it has not seen.

# %% stop 2
lesson.sitting("09", 2)

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
# batch. The chip is full in any case, and that is the reason for such rules. (`KEYS` is 16, `FEWEST_PROGRAMS` 32.)

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
# vLLM's RMSNorm with a residual takes blocks of up to 1,024 threads for fewer than 256 tokens, and of 256 for more
# (source: vllm-project/vllm, csrc/layernorm_kernels.cu, fused_add_rms_norm, at commit 0112cf2).
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
# added; in a batch there are 8% more instructions and 3% more bytes, as the cut is not the best one for eight rows.
# What it costs, a counter does not see: served alone, a product now fills fewer programs, and most of the chip waits.
# That is the price that is reported, too: a chip used less, and less throughput for small batches
# (source: [besthub.dev on
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
# | batch to batch | one cut for all batches | 3% of the bytes, 8% of the instructions; alone, a chip that waits |
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
# softmax of one score is 1, whatever it is. Below is the first position of a text of 64 tokens, where a wrong mask can
# already let it see the second.

# %% guess positions
guess = predict(
    "09.positions",
    "The first position of 64: do the logits change, by this fault?",
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
# With 95% confidence the shift lies between these two. 0 is among them, and so is 0.002: that there is none has not
# been shown.
# </details>
#
# **You have** the unit. Now open [lab 09](../labs/09_operator_alignment.ipynb).

# %% end of noise
lesson.sitting("09", 4)
