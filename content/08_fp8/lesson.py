# %% [markdown] top
# # 08 FP8: formats, scaling, training
#
# **Afterwards you can** read and write numbers of 8, 6 and 4 bits to the bit, on both vendors; choose who shares a
# scale; write quantisers and FP8 products in Triton, and see in the listing whether a chip really multiplies in FP8;
# train GPT-2 with FP8 products and say how far it is from bf16; and keep weights and caches in FP8 for decoding.
#
# **You need** units 03 (section 5: FN and FNUZ, the silent conversion), 04 and 05 (kernels, `tl.dot`), 06 (MLA). No
# GPU: every cell runs on a laptop. "Executed" means on a virtual GPU here. What was measured on a real H100 says so;
# nothing has run on AMD silicon.
#
# **Time**: five sittings: reading (text and code at 200 words a minute) takes 10, 10, 12, 9 and 8 minutes, all of it
# with the predictions about 30, 30, 35, 30 and 25. All cells together run in a minute and a half on a quiet CPU; those
# of sitting 4 that train take ten seconds each, and longer where other work runs. Then lab 08.
#
# Half the bytes of bf16, and matrix instructions that are twice as fast: that is the offer. The price is a number with
# three digits behind the binary point.

# %% imports
import torch
import triton
import triton.language as tl

from gpu_utils import CHIPS, compile_for, explore, lesson, predict, virtual_gpu

# %% [markdown] three fields
# # Sitting 1: eight bits
#
# ## 1. A byte as a number
#
# A float has three fields: a sign, an exponent field $f$ and a mantissa $m$. You know fp16: 1 + 5 + 10 bits. Its
# *bias* is 15, so that $f = 15$ stands for $2^0$. Two examples:
#
# - `0x3E00` is `0 01111 1000000000`: $f = 15$, $m = 512$ of 1,024. Value: $(1 + 512/1024) \cdot 2^{15 - 15} = 1.5$.
# - `0x0001` is `0 00000 0000000001`: $f = 0$. Here the leading 1 is gone, and the exponent is the one of $f = 1$:
#   $1/1024 \cdot 2^{1 - 15} = 2^{-24}$. Such numbers are *subnormal*. They fill the gap between the smallest normal
#   number and zero in even steps.
#
# FP8 is the same with fewer bits. **E4M3** has 4 bits of exponent and 3 of mantissa, bias 7. **E5M2** has 5 and 2,
# bias 15, like fp16 cut short.

# %% guess byte
guess = predict(
    "08.byte",
    "E4M3, so 1 + 4 + 3 bits with bias 7. What is the byte 0x44? Which power of two is "
    "the smallest number above zero? How many numbers are there from 1 up to, and "
    "without, 2?",
    value=lesson.number("0x44"),
    smallest=lesson.number("the smallest: 2 to the power of"),
    many=lesson.number("numbers in [1, 2)"),
)

# %% byte
codes = torch.arange(256, dtype=torch.uint8)
e4m3 = codes.view(torch.float8_e4m3fn).float()  # the same bytes, read as numbers
guess.reveal(
    value=e4m3[0x44],
    smallest=e4m3[e4m3 > 0].min().log2(),
    many=((e4m3 >= 1) & (e4m3 < 2)).sum(),
    because="0 1000 100 is (1 + 4/8) × 2^(8 - 7); 1/8 × 2^-6; 3 bits, 8 values.",
)
lesson.number_line("e4m3fn", "e5m2", low=2**-17, high=2**16)

# %% [markdown] digits and range
# (`fn` is the OCP's kind of E4M3, which lesson 03 met: finite, and with NaN.) On this axis every doubling takes the
# same room. E4M3 has 8 numbers in a doubling and E5M2 four; E5M2 reaches further on both sides. So a number between
# two neighbours is off by at most half a step: a share of $2^{-4}$ of itself in E4M3 and $2^{-3}$ in E5M2. This share
# is the *unit roundoff* $u$. bf16, with 7 bits of mantissa, has $2^{-8}$. (Measured against the number itself the
# worst case is a little less, $u / (1 + u)$: 5.9% for E4M3 and 11.1% for E5M2, since the middle lies above the lower
# neighbour.)
#
# Near zero the share grows: subnormals stand in even steps, and what is below half of the smallest becomes 0.

# %% guess zeros
guess = predict(
    "08.zeros",
    "Gradients are spread over many powers of two. Take numbers spread evenly over the "
    "20 doublings from 2^-20 to 1. How many in a hundred become 0?",
    e4m3=lesson.number("E4M3", unit="%", factor=1.05),
    e5m2=lesson.number("E5M2", unit="%", factor=1.05),
)

# %% zeros
FLAVOURS = {"E4M3": torch.float8_e4m3fn, "E5M2": torch.float8_e5m2}
x = torch.exp2(torch.linspace(-20, 0, 100_001))
rows = {}
for name, dtype in FLAVOURS.items():
    back = x.to(dtype).float()
    normal = x >= torch.finfo(dtype).smallest_normal
    error = (back - x).abs() / x
    rows[name] = {
        "become 0, %": 100 * (back == 0).double().mean(),
        "largest error of a normal number, %": 100 * error[normal].max(),
    }
guess.reveal(
    e4m3=rows["E4M3"]["become 0, %"],
    e5m2=rows["E5M2"]["become 0, %"],
    because="half of 2^-9 is 2^-10, half of 2^-16 is 2^-17: 10 and 3 of the 20.",
)
lesson.table(rows, first="format")

# %% [markdown] which one
# So E4M3 for digits, E5M2 for range. NVIDIA's guide to Transformer Engine gives E4M3 to the forward pass and E5M2 to
# gradients ([Using FP8](https://docs.nvidia.com/deeplearning/transformer-engine/user-guide/examples/fp8_primer.html));
# DeepSeek-V3 uses E4M3 for all (section 17). Section 19 tries both for gradients without a scale. With a scale for each
# small part of a matrix the range hardly matters.
#
# ## 2. The last codes
#
# What do the largest exponent field and the code of -0 mean? Here the kinds differ:
#
# | kind | the largest exponent field | `0x80`, the code of -0 |
# |---|---|---|
# | E5M2, as in IEEE 754 | infinity where $m = 0$, else NaN | -0 |
# | E4M3 **FN** | numbers, but $m = 7$ is NaN | -0 |
# | E4M3 and E5M2 **FNUZ** (MI300X) | numbers, all of them | the only NaN |
#
# FNUZ has the bias 8 in E4M3 and 16 in E5M2, one more. Why one more? It has a code for each of the numbers that FN
# spends on infinities and NaN, all at the large end; the shift gives some of that to the small end. It is the reason
# why the same byte is half the value. Lesson 03 counted 253 halves of 256 in E4M3. Now E5M2:

# %% guess fnuz
guess = predict(
    "08.fnuz",
    "The same 256 bytes read as E5M2 and as E5M2 FNUZ. How many are not exactly half? "
    "(E5M2's infinities and NaNs count.) And the largest number of each?",
    others=lesson.number("codes that are not half"),
    e5m2=lesson.number("largest of E5M2"),
    fnuz=lesson.number("largest of E5M2 FNUZ"),
)

# %% fnuz
e5m2 = codes.view(torch.float8_e5m2).float()
fnuz = codes.view(torch.float8_e5m2fnuz).float()
others = codes[~(fnuz == e5m2 / 2)].tolist()
guess.reveal(
    others=len(others),
    e5m2=e5m2[e5m2.isfinite()].max(),
    fnuz=fnuz[fnuz.isfinite()].max(),
    because="field 31 has four codes of either sign, and 0x80: 9. "
    "1.75 × 2^(30 - 15) and 1.75 × 2^(31 - 16) are the same.",
)
pairs = {f"{c:#04x}": {"E5M2": e5m2[c], "E5M2 FNUZ": fnuz[c]} for c in others}
lesson.table(pairs, first="code")

# %% [markdown] what follows from it
# Two things follow for code that must run on both vendors. A tensor of codes belongs to one kind; going over to the
# other means to move each *value*, and some do not fit (lab: 08.fn_to_fnuz). And what a cast does with a number that is
# too large differs: to infinity, to NaN, or clipped. In torch 2.13 on a CPU 500 becomes 448 in FN and NaN in FNUZ. Clip
# it yourself, before the cast, at `torch.finfo(dtype).max`.
#
# Look around: type a byte or a value, zoom in, and see what the other vendor reads.

# %% explore numbers
explore("numbers", value="0x44", second="e5m2")

# %% [markdown] fewer
# ## 3. Fewer bits, and only an exponent
#
# The OCP's Microscaling (MX) formats go on below: **E3M2** and **E2M3** with six bits, **E2M1** with four. None of
# them has infinities or NaN. And there is **E8M0**: 8 bits of exponent, nothing else. No sign, no mantissa, no zero;
# bias 127, the last code is NaN. It is for scales, which are powers of two there.

# %% guess four bits
guess = predict(
    "08.four_bits",
    "E2M1: sign, two bits of exponent with bias 1, one of mantissa, no special codes. "
    "Its largest number? How many different values (0 and -0 are one)? And E8M0's "
    "code 130?",
    largest=lesson.number("largest of E2M1"),
    values=lesson.number("values of E2M1"),
    scale=lesson.number("E8M0's 130"),
)

# %% four bits
e2m1 = lesson.format_numbers("e2m1")  # different finite numbers, rising
e8m0 = codes.view(torch.float8_e8m0fnu).float()
guess.reveal(
    largest=max(e2m1),
    values=len(e2m1),
    scale=e8m0[130],
    because="0 11 1 is 1.5 × 2^(3 - 1); 16 codes, two of them zero; 2^(130 - 127).",
)
lesson.number_line("e2m1", "e3m2", "e2m3", "e4m3fn", low=0, high=8, log=False)

# %% all formats
lesson.format_table(
    "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e3m2", "e2m3", "e2m1", "e8m0"
)

# %% [markdown] sources of formats
# > **Facts: formats**
# >
# > - E4M3 and E5M2: OCP's specification; E4M3 has no infinities and two codes of NaN. (source: OCP 8-bit Floating Point
# >   Specification (OFP8) 1.0)
# > - FNUZ: no infinities, one NaN, no negative zero, bias 8 and 16. (source: openxla/stablehlo,
# >   rfcs/20230321-fp8_fnuz.md)
# > - E3M2, E2M3, E2M1 and E8M0: blocks of 32 elements with one scale. (source: OCP Microscaling Formats (MX)
# >   Specification 1.0)
#
# ## 4. Rounding
#
# A number between two neighbours must go to one of them. *Nearest, ties to even*: to the nearer one, and from the
# middle to the one whose last bit is 0. *Toward zero*: cut the digits off. *Stochastic*: up with a probability that is
# the distance from below over the step. So 1.05, between 1 and 1.125, goes up 40 times in 100: right on average.
#
# Training changes a weight by little each time, thousands of times. Suppose the weight is kept in E4M3 itself. Here
# 4,096 weights start at 1 and get 1,000 updates of +0.001. Stochastic rounding in bits: add a random number of 0 up to
# one step to the digits that will go, then cut. The more is there already, the more often the addition carries.


# %% three roundings
def nearest(x):
    return x.to(torch.float8_e4m3fn).float()


def toward_zero(x):
    return (x.view(torch.int32) & -(1 << 20)).view(torch.float32)  # 3 of 23 digits stay


def stochastic(x):  # for normal numbers within E4M3's range
    noise = torch.randint(0, 1 << 20, x.shape, dtype=torch.int32)
    return toward_zero((x.view(torch.int32) + noise).view(torch.float32))


# %% guess updates
guess = predict(
    "08.updates",
    "After 1,000 updates of +0.001 the exact weight is 2. What is the mean of the "
    "4,096 weights? From 1 the next number of E4M3 is 1.125.",
    nearest=lesson.number("nearest", factor=1.02),
    stochastic=lesson.number("stochastic", factor=1.02),
)

# %% updates
torch.manual_seed(0)
ways = {"nearest": nearest, "toward zero": toward_zero, "stochastic": stochastic}
weights = {name: torch.ones(4096) for name in [*ways, "kept in float32"]}
for _ in range(1000):
    for name, way in ways.items():
        weights[name] = way(weights[name] + 0.001)
    weights["kept in float32"] += 0.001
guess.reveal(
    nearest=weights["nearest"].mean(),
    stochastic=weights["stochastic"].mean(),
    because="an update of 0.001 is less than half a step of 0.125, each time anew; "
    "stochastically it goes up by 0.125 once in 125 times.",
)
lesson.table(
    {name: {"mean": w.mean(), "spread": w.std()} for name, w in weights.items()},
    first="weights after 1,000 updates",
)

# %% [markdown] master weights
# Nearest loses *all* of a thousand updates, and so would bf16 where they are below $2^{-9}$ of a weight. Stochastic
# rounding keeps them on average, with noise: a spread of 0.38 after a growth of 1. So the weights that the optimizer
# changes, the *master weights*, stay in float32 (or bf16 with care), and FP8 is what a product *reads*: rounded anew,
# from the master, each time. That error does not pile up.
#
# > **Facts: stochastic rounding in hardware**
# >
# > - `gfx942` and `gfx950` convert with it: `v_cvt_sr_fp8_f32` adds given random bits to the mantissa. (source: AMD's
# >   CDNA3 and CDNA4 instruction set manuals, pseudo-code of V_CVT_SR_FP8_F32)
# > - PTX has `cvt.rs`, which takes random bits; LLVM offers it for sm_100a and sm_103a. (source:
# >   [llvm-project #160494](https://github.com/llvm/llvm-project/pull/160494))
#
# ## 5. Eight bits of integer
#
# INT8 has 8 bits too: whole numbers from -127 to 127, and one scale that stretches the largest element to 127. Its
# steps are even, 1/127 of the largest. FP8's steps grow with the number. Which loses less? Take 65,536 numbers from a
# bell curve with a spread of 1: the largest of so many is a little above 4. Then the same beside one more number, 100,
# which the scale must reach. The error that counts is the root of the mean square.

# %% guess int8
guess = predict(
    "08.int8",
    "One scale for all. An even step of d makes an error of d / √12; E4M3 puts a "
    "number off by some 2.6% (both are root mean square). Which is nearer to the "
    "numbers?",
    bell=lesson.choice("INT8", "E4M3", label="bell curve"),
    outlier=lesson.choice("INT8", "E4M3", label="with one outlier of 100"),
)


# %% int8
def through_int8(x, amax):
    return (x * 127 / amax).round() * amax / 127


def through_e4m3(x, amax):
    return (x * 448 / amax).to(torch.float8_e4m3fn).float() * amax / 448


torch.manual_seed(0)
x = torch.randn(65536)
rows, nearer = {}, {}
for name, amax in {"bell curve": x.abs().max(), "one outlier of 100": 100.0}.items():
    after = {"INT8": through_int8(x, amax), "E4M3": through_e4m3(x, amax)}
    error = {n: (y - x).square().mean().sqrt() / x.std() for n, y in after.items()}
    nearer[name] = min(error, key=error.get)
    rows[name] = {"largest": amax} | {f"{n}, error in %": 100 * error[n] for n in after}
    for n, y in after.items():
        rows[name][f"{n}, % that became 0"] = 100 * (y == 0).double().mean()
guess.reveal(
    bell=nearer["bell curve"],
    outlier=nearer["one outlier of 100"],
    because="steps of 4.6 / 127 make an error of 1%, steps of 100 / 127 one of 23%. "
    "FP8's steps follow the number.",
)
lesson.table(rows, first="error of the 65,536 numbers")

# %% [markdown] int8 explained
# On a tame tensor INT8 is the better of the two: its codes are all used, while FP8 spends half of its codes on numbers
# that are small. An outlier costs INT8 a factor of 22 and FP8 nothing, until it is so large that the others fall among
# the subnormals. Activations and gradients have outliers. That is the case for floats; it is also why a scale should be
# shared by few. That is the next sitting.
#
# **You have** all formats to the bit, and a reason for master weights. In the lab: 08.decode, 08.encode, 08.fn_to_fnuz.
# Next: scales.

# %% first sitting ends
lesson.sitting("08", 1)

# %% [markdown] range of a scale
# # Sitting 2: scales
#
# ## 6. What one scale can hold
#
# FP8 is never used bare. A tensor is stored as codes and a *scale*: value = code × scale. The scale is chosen so that
# the largest number in size, *amax*, becomes the largest of the format: scale = amax / 448 for E4M3. What stands far
# below amax then loses digits, and further below it becomes 0. How far?

# %% guess room
guess = predict(
    "08.room",
    "The largest number of a tile is scaled to the format's largest. How many times "
    "smaller may another one be, to keep all digits of its format? (E4M3 has them from "
    "2^-6 on, E2M1 from 1 on.)",
    e4m3=lesson.number("E4M3", factor=1.05),
    e2m1=lesson.number("E2M1", factor=1.05),
)

# %% room
ends = {"E4M3": (448, 2**-6, 2**-9), "E2M1": (6, 1, 0.5)}
rows = {
    name: {
        "all digits up to": largest / normal,
        "not 0 up to": largest / (smallest / 2),
    }
    for name, (largest, normal, smallest) in ends.items()
}
guess.reveal(
    e4m3=rows["E4M3"]["all digits up to"],
    e2m1=rows["E2M1"]["all digits up to"],
    because="448 × 64, and 6 / 1.",
)
lesson.table(rows, first="times below the largest")

# %% [markdown] real operands
# So E4M3 with a single scale has room for 14.8 doublings, and a code of four bits for 2.6. What do real operands need?
# Here is a GPT-2 of unit 01's kind, small, trained for a few seconds. A linear layer multiplies three matrices in a
# step: its input x, its weight w, and in the backward pass dy, the gradient of the loss with respect to its output.

# %% operands of GPT-2
model, batches = lesson.trained_gpt2()
operands = lesson.layer_operands(model, *batches.draw())
ratios = {
    layer: {
        name: (x.abs().max() / x.abs().median()).item() for name, x in matrices.items()
    }
    for layer, matrices in operands.items()
}
lesson.table(ratios, first="largest over median, |x|")

# %% [markdown] honest ratios
# Activations and weights of a model this small are tame: the largest is 5 to 17 times the median. Two gradients stand
# out, those of `attn.c_attn`; section 9 shows why. Large models are not tame:
#
# > **Facts: massive activations**
# >
# > - In large language models a few activations are much larger than the others, for example 100,000 times. (source:
# >   Sun et al., [arXiv 2402.17762](https://arxiv.org/abs/2402.17762), abstract)
#
# 100,000 is more than the room of E4M3. The remedy is always the same: share a scale among fewer, so that fewer suffer.
#
# ## 7. Who shares a scale
#
# In this course a row of x is a token, a row of w an output, and a product sums along the columns: K.

# %% who shares
lesson.scale_figure({"x": (512, 512)})

# %% [markdown] names of ways
# Two names are DeepSeek-V3's: activations in **tiles** of 1 × 128, weights in **blocks** of 128 × 128 (arXiv
# 2412.19437, section 3.3). **MXFP8** and **MXFP4** have a scale of 8 bits, E8M0, for 32 elements of E4M3 or E2M1.
# **NVFP4** has one of 8 bits, E4M3, for 16 elements of E2M1, and one float32 above all of them (arXiv 2509.25149).
# A scale of MX is a power of two, rounded down: $2^{\lfloor \log_2 \text{amax} \rfloor - 8}$ for E4M3, whose largest
# power is $2^8$. So amax can be up to 512 scales, and what is beyond 448 is clipped.

# %% guess bits
guess = predict(
    "08.bits",
    "Bits for an element, its share of the scales included? Which takes more: E4M3 in "
    "tiles of 1 x 128 with scales in float32, or MXFP8?",
    tile=lesson.number("1 x 128, E4M3"),
    nvfp4=lesson.number("NVFP4"),
    more=lesson.choice("1 x 128", "MXFP8", "the same", label="takes more"),
)

# %% bits
bits = lesson.bits_per_value(512, 512)
guess.reveal(
    tile=bits["1 x 128"],
    nvfp4=bits["NVFP4"],
    more="the same"
    if bits["1 x 128"] == bits["MXFP8"]
    else max("1 x 128", "MXFP8", key=bits.get),
    because="8 + 32 / 128, 4 + 8 / 16. A scale of a quarter of the bits for a quarter "
    "of the elements costs the same: 8 + 8 / 32.",
)
lesson.table({way: {"bits": each} for way, each in bits.items()}, first="way")

# %% [markdown] one massive element
# ## 8. What it is worth
#
# The input of the last `mlp.c_proj`: 512 tokens of 512 channels. First as it is. Then with a single massive activation:
# one of the 262,144 elements is made 100,000 times the median. All others stay as they are, so any more error of
# theirs comes from a scale that they share with it. An *own scale* in E4M3 leaves 2.2% in the mean. (Section 5 took the
# root of the mean square, 2.6%: there large errors count more.) In the table *lost* is what became 0.

# %% guess massive
WAYS = ("per tensor", "per row", "1 x 128", "128 x 128", "MXFP8")
FOUR_BITS = ("MXFP4", "NVFP4", "E2M1, 1 x 128", "E2M1, per row")
guess = predict(
    "08.massive",
    "The mean error of all elements, with one massive element among them. Which of the "
    "E4M3 ways stays below 2.5%?",
    tensor=lesson.yes_no("per tensor"),
    row=lesson.yes_no("per row"),
    tile=lesson.yes_no("1 x 128"),
    block=lesson.yes_no("128 x 128"),
)

# %% massive
x = operands["h.1.mlp.c_proj"]["x"]
massive = x.clone()
massive[100, 200] = 100_000 * x.abs().median()
rows = {way: {"bits": bits[way]} for way in WAYS + FOUR_BITS}
for name, matrix in {"as it is": x, "one massive element": massive}.items():
    for way, error in lesson.relative_errors(matrix, *rows).items():
        rows[way][f"{name}: error, %"] = 100 * error.nanmean()
        rows[way][f"{name}: lost, %"] = 100 * (error >= 1).double().mean()
error = {way: row["one massive element: error, %"] for way, row in rows.items()}
guess.reveal(
    tensor=error["per tensor"] < 2.5,
    row=error["per row"] < 2.5,
    tile=error["1 x 128"] < 2.5,
    block=error["128 x 128"] < 2.5,
    because="all suffer, or a row of 512 of the 262,144, or 128 of them, or 16,384.",
)
lesson.table(rows, first="way")

# %% [markdown] massive explained
# - *As it is* all four ways with E4M3 are equal, 2.2%. On a tame tensor a finer scale buys nothing! MXFP8 has a little
#   more error: a float32 scale makes the largest element exact, a power of two does not, and may clip it.
# - With one massive element a single scale spoils the whole tensor: a tenth of it is 0. A row of its own confines the
#   damage, a tile more so. The 128 × 128 block spoils a sixteenth of this matrix.
# - Four bits make ten times the error, for half the bytes. There the *small* block is needed even as it is: with room
#   for a factor of 6, elements of a block that are much below its largest become 0. The last two rows have E2M1 in
#   larger groups: the larger the group, the more is lost.
#
# ## 9. A gradient that needs tiles
#
# `attn.c_attn` makes queries, keys and values with one matrix: its output, and so dy, has 128 columns for each. Its
# largest gradient is hundreds of times the median.

# %% guess gradient
guess = predict(
    "08.gradient",
    "The gradients of queries and keys come through the softmax, which is nearly flat "
    "in a young model; those of values do not. Whose columns lose digits when all 384 "
    "share a scale?",
    who=lesson.choice("queries and keys", "values"),
)

# %% gradient
dy = operands["h.1.attn.c_attn"]["dy"]
shown = lesson.relative_errors(dy, "per tensor", "per row", "1 x 128", "MXFP8", "MXFP4")
parts = ("queries", "keys", "values")
lost = shown["per tensor"].nanmean(0).view(3, 128).mean(1)
guess.reveal(
    who="values" if lost[2] > lost[:2].max() else "queries and keys",
    because="theirs are the small ones; the scale follows the values.",
)
lesson.error_figure(dy / dy.abs().median(), shown)  # |x| in medians

# %% gradient by part
lesson.table(
    {
        way: dict(zip(parts, 100 * error.nanmean(0).view(3, 128).mean(1), strict=True))
        for way, error in shown.items()
    },
    first="mean error, %",
)

# %% [markdown] along K
# The tiles of 128 happen to fall on queries, keys and values. (In a larger model, with heads of 128, on single heads.)
#
# ## 10. Why along K
#
# A quantiser by rows is four lines of torch, and a product of two matrices that were quantised so is one more:


# %% by rows
def by_rows(x, fp8):
    """Codes, and a scale for each row. (A row of zeros would need a scale, too.)"""
    largest = torch.finfo(fp8).max
    scale = x.abs().amax(1, keepdim=True) / largest
    return (x / scale).clamp(-largest, largest).to(fp8), scale


torch.manual_seed(0)
a, b = torch.randn(64, 4096), torch.randn(32, 4096)  # both along K
(a8, a_scale), (b8, b_scale) = (by_rows(m, torch.float8_e4m3fn) for m in (a, b))
outside = (a8.float() @ b8.float().T) * a_scale * b_scale.T  # scales behind the sum
inside = (a8.float() * a_scale) @ (b8.float() * b_scale).T
lesson.table(
    {
        "scales behind the sum, or before: largest difference": (outside - inside)
        .abs()
        .max()
    }
)

# %% [markdown] out of the sum
# Element (m, n) is a sum over k. The scale of row m of A is the same for all k, so it comes *out of the sum*: one
# multiplication at the end. A scale for each column k of A could not. (It could be multiplied into row k of the weight
# beforehand: that is SmoothQuant, [arXiv 2211.10438](https://arxiv.org/abs/2211.10438).) A scale for each 128 along K
# is between the two: it comes out of a *part* of the sum.

# %% guess parts
guess = predict(
    "08.parts",
    "K = 4,096. How many partial sums of an element must be scaled, each by itself?",
    rows=lesson.number("scales by rows"),
    tiles=lesson.number("1 x 128 and 128 x 128"),
    mx=lesson.number("MX, blocks of 32"),
)

# %% parts
K = a.shape[1]
partial = {"scales by rows": K // K, "1 x 128 and 128 x 128": K // 128, "MX": K // 32}
guess.reveal(
    rows=partial["scales by rows"],
    tiles=partial["1 x 128 and 128 x 128"],
    mx=partial["MX"],
    because="a scale may not change within a part: 4,096 / 4,096, / 128, / 32.",
)
lesson.table(
    {name: {"partial sums": n} for name, n in partial.items()}, first="K = 4,096"
)

# %% [markdown] price of parts
# A partial sum that is scaled and added up outside of the matrix instruction costs the vector units a multiply-add for
# each element. Every 128 steps that is bearable; every 32 it would not be, so chips that have MX do it inside the
# instruction (section 16). And the direction matters: the backward pass sums over other dimensions, so the same matrix
# needs other tiles there. Blocks of 128 × 128 serve both.
#
# ## 11. Online or delayed
#
# The scale needs amax, and amax needs the whole tensor (or tile). *Online*: read it once for amax, read it again to
# divide and cast. *Delayed*: use the amax of earlier steps, cast at once, and note this step's amax for later. In
# Triton, with bf16 in and one scale for the tensor:


# %% two kernels
@triton.jit
def amax_kernel(x_ptr, amax_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(amax_ptr + tl.program_id(0), tl.max(tl.abs(x), axis=0))


@triton.jit
def cast_kernel(
    x_ptr, scale_ptr, codes_ptr, amax_ptr, n, LARGEST: tl.constexpr, BLOCK: tl.constexpr
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(amax_ptr + tl.program_id(0), tl.max(tl.abs(x), axis=0))  # for later
    y = tl.clamp(x / tl.load(scale_ptr), -LARGEST, LARGEST)
    tl.store(codes_ptr + i, y.to(codes_ptr.dtype.element_ty), mask=i < n)


# %% [markdown] casts in Triton
# `codes_ptr.dtype.element_ty` is the type that the tensor has outside: with `torch.empty(n, dtype=fp8)` the same kernel
# serves both kinds. Where the codes lie in an array of bytes, `bytes.view(fp8)` is the same memory under another type.
# The clamp is no luxury: amax may be from an older step, and what a cast does beyond the largest depends on the chip.

# %% guess passes
guess = predict(
    "08.passes",
    "Bytes of x and of codes that move for each element, x in bf16?",
    online=lesson.number("online", unit="bytes", factor=1.1),
    delayed=lesson.number("delayed", unit="bytes", factor=1.1),
)

# %% passes
FP8 = {"sm_89": torch.float8_e4m3fn, "gfx942": torch.float8_e4m3fnuz}
n, BLOCK = 1 << 17, 8192
torch.manual_seed(4)
x = torch.randn(n).bfloat16()
grid, amax, rows = (n // BLOCK,), torch.empty(n // BLOCK), {}
for target, fp8 in FP8.items():
    codes, top = torch.empty(n, dtype=fp8), torch.finfo(fp8).max
    with virtual_gpu(target) as gpu:
        amax_kernel[grid](x, amax, n, BLOCK=BLOCK)
        scale = amax.max().view(1) / top
        cast_kernel[grid](x, scale, codes, amax, n, LARGEST=top, BLOCK=BLOCK)
    counted = [launch.counters.totals() for launch in gpu.launches]
    moved = [c["global_load_bytes"] + c["global_store_bytes"] for c in counted]
    unlike = codes.view(torch.uint8) != (x.float() / scale).to(fp8).view(torch.uint8)
    rows[target] = {
        "online, bytes": sum(moved) / n,
        "delayed, bytes": moved[1] / n,
        "codes unlike torch's": unlike.sum(),
    }
guess.reveal(
    online=rows["sm_89"]["online, bytes"],
    delayed=rows["sm_89"]["delayed, bytes"],
    because="2 to read for amax, 2 to read again, 1 to write; or 2 + 1. (The rest are "
    "lanes that load the scale.)",
)
lesson.table(rows, first="for each element")

# %% [markdown] passes explained
# 5 bytes against 3. But a program that holds its *whole* tile in registers needs no second reading: it finds amax, then
# divides what it has: 3 bytes, with a scale that is not old. That is one more reason for small tiles: 1 × 128 fits, a
# tensor does not. (Lab: 08.quantize_tile and 08.quantize_block.) Delayed scaling is cheap for one scale a tensor and
# has a risk, an amax that grew since: sitting 4 shows one.
#
# Why are some codes on `sm_89` not those of torch? Look at what the cast became:

# %% casts
CASTS = ("cvt.rz", "cvt.rn.s", "v_cvt_pk_fp8", "v_cvt_scalef32_pk_fp8")
rows = {}
for target in ("sm_89", "sm_90", "sm_100", "gfx90a", "gfx942", "gfx950", "gfx1201"):
    fp8 = FP8.get(target, torch.float8_e4m3fn)
    args = (x, scale, torch.empty(n, dtype=fp8), amax, n)
    top = torch.finfo(fp8).max
    compiled = compile_for(cast_kernel, target, args, LARGEST=top, BLOCK=1024)
    rows[target] = {
        "to FP8": ", ".join(lesson.mnemonics(compiled, starting=CASTS)) or "-",
        "instructions in all": lesson.mnemonics(compiled).total(),
    }
lesson.table(rows, first="target")

# %% [markdown] casts explained
# - `sm_89`: Triton 3.7 goes by way of fp16, and cuts there (`cvt.rz`) before it rounds: twice. So a few codes in a
#   thousand are one step off. How many depends on the scale: with some there are none. `sm_90` and `sm_100` convert two
#   numbers at once.
# - `gfx942` and `gfx950` have an instruction for two numbers, too; that of `gfx950` could apply a power of two besides.
# - `gfx90a` has no FP8. `gfx1201` has (section 12), and Triton 3.7 does not use it for casts: both do it by shifts and
#   comparisons, in many more instructions.
#
# So tests of a quantiser allow one step where a value is near the middle of two codes.
#
# **You have** scales: who shares one, what it costs, and kernels that make them. In the lab: 08.quantize_tile and
# 08.quantize_block. Next: products.

# %% second sitting ends
lesson.sitting("08", 2)

# %% [markdown] product
# # Sitting 3: products
#
# ## 12. One product, seven targets
#
# FP8 codes go into `tl.dot` as they are, and the sums are float32. With one scale for each matrix all of scaling is a
# multiplication behind the loop:


# %% product kernel
@triton.jit
def product_kernel(
    a_ptr, b_ptr, scales_ptr, c_ptr, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EVERY: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros([BM, BN], tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :])
        b = tl.load(b_ptr + n[None, :] * K + k[:, None])  # rows of B run along K
        total = tl.dot(a, b, total, max_num_imprecise_acc=EVERY)
    scale = tl.load(scales_ptr) * tl.load(scales_ptr + 1)
    tl.store(c_ptr + m[:, None] * N + n[None, :], total * scale)


# %% [markdown] twice along k
# (`EVERY` is for section 14; None leaves the compiler its default.) On NVIDIA and on `gfx942` an FP8
# instruction takes as many *bytes* along K as one for fp16; the table shows which targets differ. Lesson 05 met those
# for fp16: `m16n8k16` on `sm_80`, wgmma `k16` on `sm_90`, `32x32x8` on `gfx942`, `32x32x16` on `gfx950`.

# %% guess instruction
guess = predict(
    "08.instruction",
    "How many places along K does the FP8 instruction take? And what does gfx942 use "
    "for codes of FN, which is not its kind?",
    sm_90=lesson.number("sm_90, wgmma"),
    gfx942=lesson.number("gfx942, 32x32x..., FNUZ"),
    other=lesson.choice("an error", "the FP8 instruction", "the fp16 instruction"),
)

# %% instructions
FN, FNUZ = torch.float8_e4m3fn, torch.float8_e4m3fnuz
KINDS = {
    "sm_89, FN": FN, "sm_90, FN": FN, "sm_90, FNUZ": FNUZ, "sm_100, FN": FN,
    "gfx90a, FN": FN, "gfx942, FNUZ": FNUZ, "gfx942, FN": FN,
    "gfx950, FN": FN, "gfx950, FNUZ": FNUZ, "gfx1201, FN": FN,
}  # fmt: skip


def compiled(target, fp8, every=None, BK=64):
    a, c = torch.empty(128, 256, dtype=fp8), torch.empty(128, 128)
    args = (a, a, torch.ones(2), c, 128, 256)
    tile = {"BM": 64, "BN": 64, "BK": BK, "EVERY": every}
    return compile_for(product_kernel, target, args, **tile)


used = dict.fromkeys(KINDS, "error")
for name, fp8 in KINDS.items():
    with lesson.kept_error(lesson.CompileFailed):
        used[name] = ", ".join(
            lesson.mnemonics(compiled(name.split(",")[0], fp8), "matrix")
        )
guess.reveal(
    sm_90=lesson.places_along_k(used["sm_90, FN"]),
    gfx942=lesson.places_along_k(used["gfx942, FNUZ"]),
    other={
        "refused": "an error",
        "FP8 instructions": "the FP8 instruction",
        "converted": "the fp16 instruction",
    }[lesson.fp8_fate(used["gfx942, FN"])],
    because="bytes, not numbers: twice as many of half the size. AMD's compiler "
    "converts what its chip lacks, and says nothing.",
)
lesson.table(
    {n: {"matrix instruction": i} for n, i in used.items()}, first="target, kind"
)

# %% [markdown] instructions explained
# - NVIDIA: `k32` in place of `k16`. `sm_100`'s `tcgen05.mma` has one kind for all floats of 8, 6 and 4 bits,
#   `f8f6f4`. FNUZ is an error there.
# - AMD: `gfx942` has FP8 for FNUZ, `gfx950` and `gfx1201` for FN. `gfx950` takes 64 along K.
# - The silent ones: FN on `gfx942` and on `gfx90a` becomes fp16, number by number, without a word. FNUZ on `gfx950`
#   warns. The result is *right* in all these cases: only speed is gone. So a test of the result cannot find it. The
#   listing can, and so can a counter.

# %% guess silent
guess = predict(
    "08.silent",
    "The kernel runs on gfx942 with codes of FNUZ, then of FN. Which of these differ?",
    result=lesson.yes_no("the result is wrong for FN"),
    loaded=lesson.yes_no("bytes loaded"),
    flops=lesson.yes_no("FLOPs of FP8 instructions"),
)

# %% silent
torch.manual_seed(0)
K = 512
a, b = torch.randn(128, K), torch.randn(128, K)
exact = a.double() @ b.double().T
sizes = a.abs().double() @ b.abs().double().T  # sum of |a| |b|, for section 15
products = {}
for name in (
    "gfx942, FNUZ",
    "gfx942, FN",
    "sm_89, FN",
    "sm_90, FN",
    "gfx950, FN",
    "gfx1201, FN",
):
    top, c = torch.finfo(KINDS[name]).max, torch.empty(128, 128)
    scales = torch.stack([a.abs().max(), b.abs().max()]) / top
    a8, b8 = ((x / s).to(KINDS[name]) for x, s in zip((a, b), scales, strict=True))
    codes_exact = (a8.double() @ b8.double().T) * scales.double().prod()
    with virtual_gpu(name.split(",")[0]) as gpu:
        product_kernel[(2, 2)](
            a8, b8, scales, c, 128, K, BM=64, BN=64, BK=128, EVERY=None
        )
    counted = gpu.counters.totals()
    products[name] = {
        "bytes loaded": counted["global_load_bytes"],
        "matrix FLOPs": counted["matrix_flops"],
        "of them in FP8": counted["fp8_matrix_flops"],
        "off from the codes' product": ((c - codes_exact).abs() / sizes).max().item(),
        "off from a × b, % of sum |a||b|": 100 * ((c - exact).abs() / sizes).max(),
    }
first, second = products["gfx942, FNUZ"], products["gfx942, FN"]
guess.reveal(
    result=second["off from the codes' product"] > 1e-6,
    loaded=first["bytes loaded"] != second["bytes loaded"],
    flops=first["of them in FP8"] != second["of them in FP8"],
    because="fp16 holds every number of FP8, so nothing is lost but the speed.",
)
lesson.table(products, first="executed on the virtual GPU")

# %% [markdown] doubled
# ## 13. What FP8 doubles
#
# Half the bytes of A and B, and twice the FLOPs in the same time. The result is still bf16. For a square product of
# side n, least traffic: 2 n² bytes for A and B, 2 n² for C, for 2 n³ FLOPs: n / 2 FLOPs for a byte.

# %% peaks
peaks = {
    name: {
        "bf16 TFLOP/s": CHIPS[name].peak("bf16"),
        "FP8 TFLOP/s": CHIPS[name].peak("fp8"),
        "TB/s": CHIPS[name].bandwidth,
    }
    for name in ("H100", "MI300X")
}
lesson.table(peaks, first="chip")

# %% guess balance
guess = predict(
    "08.balance",
    "From which n on can a square FP8 product be bound by arithmetic, at best? (In "
    "bf16, with n / 3 FLOPs for a byte, it is 886 and 740.)",
    h100=lesson.number("n on an H100", factor=1.03),
    mi300x=lesson.number("n on an MI300X", factor=1.03),
)

# %% balance
least = {
    name: {
        "n, bf16": 3 * row["bf16 TFLOP/s"] / row["TB/s"],
        "n, FP8": 2 * row["FP8 TFLOP/s"] / row["TB/s"],
    }
    for name, row in peaks.items()
}
guess.reveal(
    h100=least["H100"]["n, FP8"],
    mi300x=least["MI300X"]["n, FP8"],
    because="n / 2 must reach 591 and 493, FP8 TFLOP/s over TB/s.",
)
lesson.table(least, first="chip")

# %% [markdown] small products
# So products must be *larger* to gain from the FLOPs. A product that is bound by memory gains from the bytes instead:
# up to twice, and C is not halved. What quantising costs comes on top: 3 to 5 bytes for each element of A (section
# 11), unless it is fused into what made A.
#
# ## 14. The sum
#
# Codes are exact, products of two codes are exact. And the sum? On paper it is float32.
#
# > **Facts: how FP8 products are added up**
# >
# > - DeepSeek found about 14 bits on an H800, and a largest relative error of nearly 2% for two random matrices with
# >   K = 4,096. (source: arXiv 2412.19437, section 3.3)
# > - Hopper's FP8 products go to registers with 1 sign, 8 exponent and 13 mantissa bits. (source: "Insights into
# >   DeepSeek-V3", [arXiv 2505.09343](https://arxiv.org/abs/2505.09343))
# > - Ada and Hopper keep 13 digits and cut the rest, Blackwell keeps 25; an MI300X aligns groups of 16 products to 24
# >   digits and rounds each sum to float32. (source: MMA-Sim, [arXiv 2511.10909](https://arxiv.org/abs/2511.10909) and
# >   microsoft/MMA-Sim, mmasim/simulator; a model that was compared with chips bit by bit)
# > - NVIDIA and AMD document the type of the result, float32. (no source found in which they say how the sum is made)
#
# An instruction aligns 32 products and the running sum to the largest of them, and cuts. The running sum grows with K,
# so the same cut costs more and more. The cell simulates that model for factors from 0 to 1, whose products add up, and
# for factors of a bell curve, whose products cancel. The error is the largest of 512 sums, over the typical sum (root
# mean square).

# %% guess sum
guess = predict(
    "08.sum",
    "Factors from 0 to 1, so the sum grows like K. Each instruction cuts at the size "
    "of the sum, and there are K / 32 of them. K = 4,096 against K = 1,024: the "
    "relative error grows by which factor? And if every 128 places the sum goes to "
    "a float32 total and starts anew?",
    plain=lesson.number("never promoted", factor=1.25),
    promoted=lesson.number("promoted every 128", factor=1.25),
)

# %% sum
LENGTHS = (128, 256, 512, 1024, 2048, 4096)
ways = {
    "0 to 1": {},
    "0 to 1, every 512": {"promoted_every": 512},
    "0 to 1, every 128": {"promoted_every": 128},
    "bell curve": {"signs": True},
    "bell curve, every 128": {"signs": True, "promoted_every": 128},
    "0 to 1, 25 digits": {"digits": 25},
}
error = {n: lesson.worst_sum_errors(LENGTHS, **way) for n, way in ways.items()}
guess.reveal(
    plain=error["0 to 1"][4096] / error["0 to 1"][1024],
    promoted=error["0 to 1, every 128"][4096] / error["0 to 1, every 128"][1024],
    because="four times as many cuts, each a fixed share of the sum at that time; or "
    "as many cuts as in 128, each time.",
)
lesson.table(
    {
        n: {f"K = {k:,}": f"{100 * e:.2g} %" for k, e in of.items()}
        for n, of in error.items()
    },
    first="largest error",
)

# %% [markdown] sum explained
# The report's 2% lies between our two kinds of matrices, 7% and 0.6% at K = 4,096; it does not say which it took. What
# does not depend on that: without promotion the error grows with K, and with promotion every 128 it stays below 0.1%.
# With 25 digits, as on Blackwell, there is nothing to promote. Is the model true? A real chip decided:
#
# > **Facts: the sums of an H100**
# >
# > - 4,096 sums of 2,048 products, made by `wgmma`: with either kind of factors, promoted every 128 or never, all
# >   4,096 are the bits of the model with 13 digits. With 12 or 14 digits at most 98 are. (measured: H100, Triton 3.6,
# >   driver 580.159.04, 2026-11-26; benchmarks/results/fp8_sm_90.json)
# > - The largest error of 262,144 sums at K = 4,096 by `torch._scaled_mm`: 7.1% with factors from 0 to 1, 1.8% with
# >   those of a bell curve. With `use_fast_accum=False` 0.06% and 0.07%. (measured: H100, torch 2.11, 2026-11-26; the
# >   same file)
#
# 13 digits behind the point and the 1 before it: these are the report's 14 bits. And the worst of many sums of a bell
# curve comes near its 2%: among 262,144 it is three times as bad as among our 512.
#
# DeepSeek-V3 promotes every 128 places, four instructions of 32: there the scales of a tile have to be applied anyway.
# Triton has an option for `sm_90`: `max_num_imprecise_acc`, the places that may be summed up in the tensor core.

# %% guess option
guess = predict(
    "08.option",
    "BK = 128 and 64 × 64 sums on 128 lanes: 32 sums for each lane. How many additions "
    "to a float32 total are in the loop for sm_90 when the option is 128, and when it "
    "is 32?",
    at_128=lesson.number("128"),
    at_32=lesson.number("32"),
)

# %% option
rows = {}
for every in (None, 128, 64, 32, 0):
    loop = [op.mnemonic for op in lesson.in_loops(compiled("sm_90", FN, every, BK=128))]
    rows["not said" if every is None else every] = {
        "matrix instruction": next(m for m in loop if "m64n64" in m or "m16n8" in m),
        "additions in the loop": loop.count("add.f32"),
    }
guess.reveal(
    at_128=rows[128]["additions in the loop"],
    at_32=rows[32]["additions in the loop"],
    because="32 sums, once or four times in 128 places.",
)
lesson.table(rows, first="max_num_imprecise_acc")

# %% [markdown] option explained
# - Nothing said: no addition. Triton's default leaves the whole sum to the tensor core.
# - 128: one promotion in each round of the loop, an addition for each sum.
# - 0: not FP8 at all. The codes become fp16 and go to `mma.sync`, as exact as slow. That is a silent fallback as well,
#   on NVIDIA. In torch the knob of `_scaled_mm` is `use_fast_accum`.
# - The virtual `sm_90` adds in full precision: it cannot show the loss. On a real Hopper the next cell measures it.

# %% real Hopper
found = "not measured here: it takes a GPU of sm_90"
if torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0):
    x, y = (torch.rand(512, 4096, device="cuda").to(FN) for _ in range(2))
    one = torch.ones((), device="cuda")
    true = x.double() @ y.double().T
    found = {}
    for fast in (True, False):
        z = torch._scaled_mm(
            x, y.T, one, one, out_dtype=torch.float32, use_fast_accum=fast
        )
        found[f"largest error, %, fast = {fast}"] = (
            100 * ((z - true) / true).abs().max()
        )
lesson.table(
    found if isinstance(found, dict) else {"K = 4,096, factors from 0 to 1": found}
)

# %% [markdown] error bound
# ## 15. How far off may it be?
#
# Each factor is off by at most a share $u = 2^{-4}$ of itself, so a product by at most $2u + u^2$ of itself, and the
# sum by at most that share of $\sum |a| |b|$ (if no number fell below the normal ones):
#
# $$ |\text{error}| \le (2u + u^2) \sum_k |a_k| |b_k|, \qquad 2u + u^2 = 12.9\% $$

# %% guess bound
SHARES = ("about 0.13", "about 0.01", "about 0.0001")
guess = predict(
    "08.bound",
    "The worst case needs every factor at its worst, and all errors of one sign. With "
    "K = 512 random numbers, the largest of 16,384 errors, as a share of the sum of "
    "|a| |b|?",
    share=lesson.choice(*SHARES),
)

# %% bound
largest = products["sm_89, FN"]["off from a × b, % of sum |a||b|"].item()
guess.reveal(
    share=lesson.nearest(largest / 100, SHARES),
    because="errors of both signs cancel: they grow like √K, the bound like K.",
)
u = 2**-4
lesson.table({"bound, %": 100 * (2 * u + u * u), "largest measured, %": largest})

# %% [markdown] blocks in hardware
# A test of an FP8 product should compare with the product of the *codes*, in float64: then what is left is the sum
# alone, and errors of 1% do not hide a wrong index. (Section 12, "off from the codes' product": 3e-8.)
#
# ## 16. Scales inside the instruction
#
# `gfx950` and `sm_100` have matrix instructions that take the scales of MX as operands: a power of two for each 32
# places along K. In Triton, `tl.dot_scaled`. Codes come as bytes (`.view(torch.uint8)`), scales as bytes of E8M0, a row
# of K / 32 for each row of A and each column of B:


# %% mx kernel
@triton.jit
def mx_kernel(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, c_ptr, N, K: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros([BM, BN], tl.float32)
    for start in range(0, K, BK):
        k, block = start + tl.arange(0, BK), start // 32 + tl.arange(0, BK // 32)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :])
        b = tl.load(b_ptr + n[None, :] * K + k[:, None])
        a_scale = tl.load(a_scale_ptr + m[:, None] * (K // 32) + block[None, :])
        b_scale = tl.load(b_scale_ptr + n[:, None] * (K // 32) + block[None, :])
        total = tl.dot_scaled(a, a_scale, "e4m3", b, b_scale, "e4m3", total)
    tl.store(c_ptr + m[:, None] * N + n[None, :], total)


# %% guess mx
guess = predict(
    "08.mx",
    "Two chips have such an instruction; that of sm_100 takes 128 rows (lesson 05). "
    "Compiled for these tiles: does the compiler use it?",
    small=lesson.yes_no("sm_100, 64 × 64"),
    large=lesson.yes_no("sm_100, 128 × 128"),
    sm_90=lesson.yes_no("sm_90, 128 × 128"),
)

# %% mx
a8, a_scale = lesson.mx_codes(a)
b8, b_scale = lesson.mx_codes(b)
args = (a8, a_scale, b8, b_scale, torch.empty(128, 128), 128, K)
rows = {}
for target, side in (("gfx950", 64), ("sm_100", 64), ("sm_100", 128), ("sm_90", 128)):
    kernel = compile_for(mx_kernel, target, args, BM=side, BN=side, BK=128)
    instruction = ", ".join(lesson.mnemonics(kernel, "matrix"))
    rows[f"{target}, {side} × {side}"] = {"matrix instruction": instruction}
scaled = {name: "scale" in row["matrix instruction"] for name, row in rows.items()}
guess.reveal(
    small=scaled["sm_100, 64 × 64"],
    large=scaled["sm_100, 128 × 128"],
    sm_90=scaled["sm_90, 128 × 128"],
    because="64 rows do not fill it, and Hopper has none: codes are widened first.",
)
lesson.table(rows, first="target, tile")

# %% [markdown] mx explained
# With tiles of 64 × 64 `sm_100` falls back, too: `kind::f16`. Its block-scaled instruction wants 128 rows. For
# `gfx942` Triton 3.7 does not compile `dot_scaled` with two scaled factors. tcgen05 is compiled and read here; nothing
# in this course executes it. The scaled MFMA of `gfx950` is executed:

# %% mx executed
c = torch.empty(128, 128)
with virtual_gpu("gfx950") as gpu:
    mx_kernel[(2, 2)](a8, a_scale, b8, b_scale, c, 128, K, BM=64, BN=64, BK=128)
counted = gpu.counters.totals()
lesson.table(
    {
        "FLOPs in FP8": counted["fp8_matrix_flops"],
        "needed": 2 * 128 * 128 * K,
        "off from a × b, % of sum |a||b|": 100 * ((c - exact).abs() / sizes).max(),
    }
)

# %% [markdown] end of the third sitting
# As exact as with one float32 for the whole matrix, and with no float32 multiplication anywhere.
#
# **You have** FP8 products on six targets, two ways to lose them without a word, and the trap of the sum. In the lab:
# 08.gemm and 08.accumulator. Next: training.

# %% third sitting ends
lesson.sitting("08", 3)

# %% [markdown] training
# # Sitting 4: training
#
# ## 17. Three products of a layer
#
# A linear layer computes $y = x\, w^T$. Its backward pass gets $dy$ and computes $dx = dy\, w$ and $dw = dy^T x$. All
# three are products of large matrices, and FP8 is to do all three. A scale must be the same along what a product sums
# over. So: over what?

# %% guess sums
guess = predict(
    "08.sums",
    "x is (tokens, inputs), w (outputs, inputs), dy (tokens, outputs). Over what does "
    "each product sum?",
    y=lesson.choice("tokens", "inputs", "outputs", label="y = x wᵀ"),
    dx=lesson.choice("tokens", "inputs", "outputs", label="dx = dy w"),
    dw=lesson.choice("tokens", "inputs", "outputs", label="dw = dyᵀ x"),
)

# %% sums
layer = operands["h.1.attn.c_attn"]
x, w, dy = layer["x"], layer["w"], layer["dy"]
NAMES = {x.shape[0]: "tokens", x.shape[1]: "inputs", w.shape[0]: "outputs"}
factors = {"y = x wᵀ": (x, w.T), "dx = dy w": (dy, w), "dw = dyᵀ x": (dy.T, x)}
over = {name: NAMES[left.shape[1]] for name, (left, _) in factors.items()}
guess.reveal(
    y=over["y = x wᵀ"],
    dx=over["dx = dy w"],
    dw=over["dw = dyᵀ x"],
    because="the dimension that the result does not have.",
)
lesson.table(
    {
        name: {
            "left": str(tuple(left.shape)),
            "right": str(tuple(right.shape)),
            "sums over": over[name],
        }
        for name, (left, right) in factors.items()
    },
    first="product",
)

# %% [markdown] turned tiles
# So x is needed twice: with tiles along the inputs for y, along the tokens for dw. The same holds for dy: along the
# outputs, then along the tokens. Tiles of 1 × 128 of one direction are no use in the other; they must be made anew. A
# block of 128 × 128 has the same scale both ways, and w needs no second set.
#
# Between the passes x waits in memory, for every layer. A function of one's own says what is kept, and what the
# backward pass does with it. Here a layer that keeps x in bf16:


# %% own function
class KeepsBf16(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x.bfloat16(), w)
        return x @ w.T

    @staticmethod
    def backward(ctx, dy):  # one gradient for each argument of forward
        x, w = ctx.saved_tensors
        return dy @ w, dy.T @ x.float()


leaf = w.clone().requires_grad_()
KeepsBf16.apply(x, leaf).backward(dy)
exact = dy.double().T @ x.double()
off = (leaf.grad - exact).norm() / exact.norm()
lesson.table({"x kept, bytes": x.numel() * 2, "dw off by, %": 100 * off})

# %% [markdown] what stays
# With codes and scales in place of bf16 it is a little more than half of that. In which precision should everything
# else be?
#
# > **Facts: DeepSeek-V3's mixed precision**
# >
# > - E4M3 for all operands of the three products; activations and gradients in tiles of 1 × 128, weights in blocks of
# >   128 × 128, scales online. (source: arXiv 2412.19437, section 3.3)
# > - Kept in higher precision: embedding, output head, MoE gating, normalisation and attention. (source: arXiv
# >   2412.19437, section 3.3)
#
# And, as sitting 1 showed, the weights that the optimizer changes.
#
# ## 18. Is the loss worse?
#
# The library's `fp8_trial` trains a small GPT-2 by a recipe: each operand of the 8 linear layers goes through codes and
# scales, all else is float32. What a chip does with the codes is not simulated: products are those of the numbers that
# the codes stand for. Each seed decides first weights and batches; the recipe "bf16" with the same seed is its partner.
# First the partners alone:

# %% partners
runs = lesson.fp8_trial(("bf16",), seeds=range(4))
bf16 = {f"seed {run.seed}": run.val_loss for run in runs["bf16"]}
lesson.table({"bf16": bf16}, first="validation loss")

# %% [markdown] pairs
# The seeds alone differ by more than what we look for. So look at *pairs*: the gap of each, its mean, and the interval
# that holds the true mean in 95 of 100 such experiments.

# %% guess gap
guess = predict(
    "08.gap",
    "DeepSeek reports a gap of the loss below 0.25% against bf16. Four seeds, 60 "
    "steps. Is the interval of our gap below 0.25%? And do the losses of two "
    "bf16 seeds lie further apart than the mean gap?",
    below=lesson.yes_no("below 0.25%"),
    apart=lesson.yes_no("seeds differ by more"),
)

# %% gap
runs |= lesson.fp8_trial(("deepseek",), seeds=range(4))


def gaps(name):
    """The gap of a recipe in percent: of each pair, and the interval of the mean."""
    gap = lesson.loss_gap(runs["bf16"][: len(runs[name])], runs[name])
    row = {f"seed {seed}": each for seed, each in enumerate(gap.percent)}
    return gap, row | {"from": gap.interval.low, "to": gap.interval.high}


gap, row = gaps("deepseek")
spread = 100 * (max(bf16.values()) / min(bf16.values()) - 1)
guess.reveal(
    below=gap.within_report,
    apart=spread > abs(gap.interval.mean),
    because="a rounding that is new in each step does not pile up; other first "
    "weights and batches weigh far more.",
)
lesson.curves({name: runs[name][0].losses for name in runs}, "loss, seed 0")

# %% gaps of pairs
lesson.table({"deepseek": row}, first="gap to bf16, %")

# %% [markdown] gap explained
# One curve lies on the other, and seeds differ by more than recipes: without pairs nothing would be seen. Does your
# interval hold 0? That depends on your text, the standard library of your Python. (measured: with two builds of
# Python 3.11, -0.08% to 0.10%, and 0.011% to 0.017%) If it does, four pairs show no loss, which is a statement about
# the width of the interval. If it does not, they show one, and how small it is. 60 steps of a small model say little
# about trillions of tokens: a drift that is slow would not show. What they do show is that the recipe has no gross
# error.
#
# > **Claim and fact: "DeepSeek trained in FP8"**
# >
# > - The claim: DeepSeek-V3, all of it, was trained in FP8.
# > - The products of the linear layers were; embedding, head, gating, norms and attention were not. (source: arXiv
# >   2412.19437, section 3.3)
# > - Against bf16 the loss was off by less than 0.25%. (source: arXiv 2412.19437, section 3.3)
# > - In pairs of short runs of a small GPT-2 the gap is at most about a tenth of a percent. (measured: the cells
# >   above)
# > - None is seen in three pairs of GPT-2 124M, 60 steps of 16,384 tokens: the mean gap is 0.06%, its interval from
# >   -0.24% to 0.36%. (measured: H100, torch 2.11, 2026-11-26; benchmarks/results/fp8_training_sm_90.json)
#
# ## 19. Cheaper recipes
#
# *Delayed*: one scale for a matrix, from the largest amax of the last 16 steps, with no room beyond. *Plain cast*: no
# scales at all. A code of E4M3 is 0 below $2^{-10} \approx 0.00098$, one of E5M2 below $2^{-17} \approx 0.0000076$.
# These are the gradients:

# %% gradients
runs |= lesson.fp8_trial(("delayed",), seeds=range(3))  # shown below
lesson.table(
    {
        name: {
            "largest |dy|": layer["dy"].abs().max().item(),
            "median |dy|": layer["dy"].abs().median().item(),
        }
        for name, layer in operands.items()
    },
    first="layer",
)

# %% guess recipes
SHARES = ("hardly any", "about half", "nearly all")
guess = predict(
    "08.recipes",
    "The mean gap of each recipe to bf16: more than 1%? And a plain cast of dy of "
    "`h.1.mlp.c_proj` alone: which share becomes 0 in E4M3, and in E5M2?",
    delayed=lesson.yes_no("delayed: more than 1%"),
    cast=lesson.yes_no("plain cast, E4M3: more than 1%"),
    e4m3=lesson.choice(*SHARES, label="0 in E4M3"),
    e5m2=lesson.choice(*SHARES, label="0 in E5M2"),
)

# %% recipes
runs |= lesson.fp8_trial(("plain cast",), seeds=range(3))
found = {name: gaps(name) for name in ("deepseek", "delayed", "plain cast")}
dy = operands["h.1.mlp.c_proj"]["dy"]
zero = {n: (dy.to(fp8).float() == 0).double().mean() for n, fp8 in FLAVOURS.items()}
share = {n: SHARES[(z > 0.1).int() + (z > 0.9).int()] for n, z in zero.items()}
guess.reveal(
    delayed=found["delayed"][0].interval.mean > 1,
    cast=found["plain cast"][0].interval.mean > 1,
    e4m3=share["E4M3"],
    e5m2=share["E5M2"],
    because="even the largest |dy| is near E4M3's limit, and the median is far above "
    "E5M2's.",
)
lesson.table({name: row for name, (_, row) in found.items()}, first="gap, %")

# %% [markdown] recipes explained
# Only the plain cast has an interval without 0. Which gradients were lost in training? The log of a run knows, for each
# operand, amax, scale, and the shares that were cut off or became 0. (The last two rows: the batch of section 6.)

# %% lost gradients
layer = "h.1.mlp.c_proj"
lesson.table(
    {
        name: {
            "dy that became 0, %": 100
            * runs[name][0].log.series(layer, "dy").underflowed[-1]
        }
        for name in runs
    }
    | {f"one batch, {n}": {"dy that became 0, %": 100 * z} for n, z in zero.items()},
    first=f"{layer}, last step",
)

# %% [markdown] frozen
# All of dy of this layer is 0, so its weight stands still, and what lies before it gets no gradient through it. The
# model trains all the same: the gradients of embeddings, head and the way past the layers are not FP8.
#
# *The first step has no history.* Here the recipe makes its first scales from the matrices themselves. Where a scale
# must be there before the product there are two ways: a pass that only looks, forward and back without a step, or a
# number to begin with. A number that is far off spoils the first gradients, and AdamW remembers them for many steps.
# And a look sees what its own scales leave: behind a gradient that became 0 it notes an amax of 0. (Lab: 08.train.)
#
# ## 20. A recipe that breaks
#
# What could go wrong with old scales? Begin with x and w alone, gradients in bf16. The scale of each matrix is made in
# the first step, with room for half as much again, and kept. The kind is FNUZ, and nobody clips: what is too large
# becomes NaN. The figure follows the operand that comes nearest to its end; the run goes on, and the rest of the
# figure is cut off. The band is what the format holds at that scale.

# %% amax before
bad = lesson.fp8_run(lesson.RECIPES["frozen"])
layer, operand = bad.log.nearest_edge()
series = bad.log.series(layer, operand)
shown = slice(0, bad.died - 2)
lesson.amax_figure(
    {
        f"{operand} of {layer}": {
            "amax": series.amax[shown],
            "scale": series.scale[shown],
            "saturated": series.saturated[shown],
            "underflowed": series.underflowed[shown],
        }
    },
    "e4m3fnuz",
)

# %% reach
last = len(series.steps[shown])
lesson.table(
    {
        f"step {step}": {"reach": series.reach[step - 1], "loss": bad.losses[step - 1]}
        for step in range(last - 7, last + 1)
    },
    note="reach: amax over the largest number that the scale can hold",
)

# %% guess death
guess = predict(
    "08.death",
    "Go on as the last steps do. In which step is the reach above 1? A NaN among the "
    "codes of x spoils its product. Is the loss of the step before that one unusual?",
    beyond=lesson.number("reach above 1 in step", factor=1.1),
    warned=lesson.yes_no("the loss warned"),
)

# %% death
beyond = next(step for step, reach in enumerate(series.reach, 1) if reach > 1)
before = bad.losses[beyond - 2]
guess.reveal(
    beyond=beyond,
    warned=before > 1.1 * min(bad.losses[: beyond - 1]),
    because="the operand grows by a few percent in a step. The loss fell as it should "
    "until there was none.",
)
lesson.table(
    {
        f"step {step}": {"reach": series.reach[step - 1], "loss": bad.losses[step - 1]}
        for step in range(bad.died - 2, bad.died + 1)
    }
)

# %% [markdown] seen coming
# So log amax: step by step it drew near to the edge, and no loss said so. (A reach just above 1 may live: what is below
# 248, the middle of 240 and 256, still goes down to 240. x is cast in the forward pass, so the loss of that step is NaN
# already.)
#
# The remedies: scales that follow, with room, and a clip. Now gradients are in FP8, too. All scales come from the
# largest amax of the last 16 steps, with room for twice that.

# %% guess jump
guess = predict(
    "08.jump",
    "What grows by a few percent in a step will be met in time. Do these runs live "
    "through all 60 steps?",
    bare=lesson.yes_no("delayed, room 2, not clipped"),
    clipped=lesson.yes_no("the same, clipped"),
)

# %% jump
followed = {
    name: lesson.fp8_run(lesson.RECIPES[name])
    for name in ("delayed, not clipped", "delayed, clipped")
}
bare, clipped = followed.values()
guess.reveal(
    bare=bare.died is None,
    clipped=clipped.died is None,
    because="gradients jump: see the table.",
)
layer, operand = bare.log.nearest_edge()
reach = bare.log.series(layer, operand).reach
step = next((n for n, r in enumerate(reach, 1) if r > 1), len(reach))
gap = 100 * (clipped.val_loss / runs["bf16"][0].val_loss - 1)
lesson.table(
    {
        f"reach of {operand} of {layer}": {
            f"step {n}": reach[n - 1] for n in range(step - 3, step + 1)
        },
        "loss, not clipped": {
            f"step {n}": bare.losses[n - 1]
            for n in range(step - 3, step + 2)
            if n <= len(bare.losses)
        },
    },
    note=f"clipped: a gap to bf16 of {gap:.2f}% after 60 steps",
)

# %% [markdown] end of the fourth sitting
# From one step to the next a gradient was several times as large: the batch held something rare. No history foresees
# that. (dy is cast in the backward pass, so the loss shows NaN one step later.) The clip saves the run: what is cut off
# in one step does little harm. Scales made online cannot meet the case. A log of amax shows the slow danger, a clip
# bears the sudden one; a recipe needs both, or scales that are made from the matrix itself.
#
# **You have** FP8 training with a measured gap, and a log that warns. In the lab: 08.linear and 08.train. Next:
# decoding.

# %% fourth sitting ends
lesson.sitting("08", 4)

# %% [markdown] decoding
# # Sitting 5: decoding
#
# ## 21. Weights alone
#
# A step of decoding with one sequence reads every weight once and does two FLOPs with it: bound by memory, deeply
# (lesson 02). Here FP8 need not be multiplied at all. Weights are stored as codes and become bf16 or float32 in
# registers (`codes.to(tl.float32)`), and the scale comes behind the loop. What counts is bytes.

# %% guess tokens
guess = predict(
    "08.tokens",
    "GPT-2 has 124,439,808 parameters. The least time to read them once, at the "
    "bandwidth of an H100 (section 13)?",
    bf16=lesson.number("bf16", unit="µs", factor=1.03),
    fp8=lesson.number("FP8", unit="µs", factor=1.03),
)

# %% tokens
rows = {}
for name in ("H100", "MI300X"):
    bandwidth = CHIPS[name].bandwidth * 1e12
    rows[name] = {
        f"{kind}, µs": 1e6 * bytes_each * 124_439_808 / bandwidth
        for kind, bytes_each in {"bf16": 2, "FP8": 1}.items()
    }
guess.reveal(
    bf16=rows["H100"]["bf16, µs"],
    fp8=rows["H100"]["FP8, µs"],
    because="124,439,808 × 2 / 3.35e12, and half of it. (A scale for each row is 1 in "
    "1,000 bytes.)",
)
lesson.table(rows, first="least time for a token")

# %% [markdown] widened
# Half of the bytes, if the kernel reads codes. Here is one, for a single token: a program makes 16 outputs. Each code
# is widened in registers; `scale` holds a number for each row of w:


# %% widening kernel
@triton.jit
def token_kernel(x_ptr, w_ptr, scale_ptr, y_ptr, K, BN: tl.constexpr, BK: tl.constexpr):
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros([BN, BK], tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        w = tl.load(w_ptr + n[:, None] * K + k[None, :]).to(tl.float32)
        total += w * tl.load(x_ptr + k)[None, :]
    tl.store(y_ptr + n, tl.sum(total, 1) * tl.load(scale_ptr + n))


# %% widened weights
of_layer = operands["h.1.mlp.c_proj"]
w, x, rows = of_layer["w"], of_layer["x"][0].bfloat16(), {}
N, K = w.shape
for target, fp8 in {"sm_90": FN, "gfx942": FNUZ}.items():
    codes, scale = by_rows(w, fp8)
    kinds = {"bf16": (w.bfloat16(), torch.ones(N)), "FP8": (codes, scale.flatten())}
    for kind, (stored, by) in kinds.items():
        y = torch.empty(N)
        with virtual_gpu(target) as gpu:
            token_kernel[(N // 16,)](x, stored, by, y, K, BN=16, BK=128)
        true, counted = w.double() @ x.double(), gpu.counters.totals()
        moved = counted["global_load_sectors"] * counted["sector_bytes"]
        rows[f"{target}, {kind}"] = {
            "bytes loaded for a weight": moved / w.numel(),
            "y off by, %": 100 * ((y - true).norm() / true.norm()),
        }
lesson.table(rows, first="executed on the virtual GPU")

# %% [markdown] what it costs
# (Bytes in whole sectors or lines, as lesson 02 counts them; what is beyond 2 and 1 is x, which each program reads.)
# What does it cost in quality? Take the small GPT-2 of sitting 2 and round the weights of its linear layers, a scale
# for each row.

# %% guess logits
CHANGES = ("about 0.003", "about 0.03", "about 0.3")
guess = predict(
    "08.logits",
    "Each weight is off by about 2.6% (root mean square), in both directions. The "
    "error of one layer's output, over the output's own spread? And of the logits: "
    "blocks add their outputs to the embedding, which is not rounded.",
    layer=lesson.choice(*CHANGES, label="one layer"),
    logits=lesson.choice("more than that", "less than that", label="logits"),
)


# %% logits
def rounded(weight, fp8):
    codes, scale = by_rows(weight, fp8)
    return codes.float() * scale


inputs, targets = batches.draw()
of_layer = operands["h.1.mlp.c_fc"]
y, rows = of_layer["x"] @ of_layer["w"].T, {}
with torch.no_grad():
    exact, loss = model(inputs), model.loss(inputs, targets)
    for kind, fp8 in FLAVOURS.items():
        twin = lesson.GPT2(model.config)
        twin.load_state_dict(model.state_dict())
        for name, weight in twin.named_parameters():
            if name.startswith("h.") and weight.ndim == 2:
                weight.copy_(rounded(weight, fp8))
        off = of_layer["x"] @ rounded(of_layer["w"], fp8).T - y
        rows[kind] = {
            "one layer": (off.std() / y.std()).item(),
            "logits": ((twin(inputs) - exact).std() / exact.std()).item(),
            "loss, %": 100 * (twin.loss(inputs, targets) / loss - 1),
        }
found = rows["E4M3"]
guess.reveal(
    layer=lesson.nearest(found["one layer"], CHANGES),
    logits="more than that"
    if found["logits"] > found["one layer"]
    else "less than that",
    because="a sum of many products is off by about as much as one of them, relative "
    "to its size. The blocks of so young a model add little to the embedding.",
)
lesson.table(rows, first="off by, weights in")

# %% [markdown] logits explained
# (The loss of a model that was trained for seconds hardly moves; a large one must be measured itself.) With scales for
# rows there is no reason for E5M2: weights need digits.
#
# ## 22. A cache in FP8
#
# With long contexts the cache is what a step reads. MLA keeps 512 numbers of a latent and 64 of the rotary part for
# each token (lesson 06): 576 in bf16. FlashMLA's FP8 cache stores the latent as 512 codes of E4M3 with a float32 for
# each 128, and leaves the 64 rotary numbers in bf16.

# %% guess cache
guess = predict(
    "08.cache",
    "Bytes of a token in this FP8 cache? How many times as many tokens fit into the "
    "same memory?",
    fp8=lesson.number("FP8", unit="bytes"),
    more=lesson.number("tokens", unit="times as many", factor=1.02),
)

# %% cache
latent, rotary = 512, 64
parts = {
    "512 codes": latent,
    "4 scales in float32": 4 * latent // 128,
    "64 rotary numbers in bf16": 2 * rotary,
}
guess.reveal(
    fp8=sum(parts.values()),
    more=2 * (latent + rotary) / sum(parts.values()),
    because="512 + 16 + 128 = 656, in place of 2 × 576 = 1,152.",
)
lesson.table({"bytes": parts | {"in all": sum(parts.values())}}, across=True)

# %% [markdown] what the cache loses
# What is lost? Our small GPT-2 has no latent, but it has keys and values. Here each token's 128 keys and 128 values go
# through E4M3 with a scale of their own, as the latent's parts of 128 do. Its attention is young: the scores of a query
# hardly differ, so each output is close to a mean of many values.

# %% guess kept
guess = predict(
    "08.kept",
    "A key or a value is off by 2.6% (root mean square). Whose rounding changes the "
    "output of attention more? Both rounded: off by how much, over its own spread?",
    whose=lesson.choice("keys", "values"),
    off=lesson.choice("about 0.1", "about 0.01", "about 0.001", label="off by"),
)


# %% kept
def heads(rows):  # (tokens, 128) -> (sequences, heads, positions, 32)
    return rows.view(-1, 64, 4, 32).transpose(1, 2)


def through_cache(rows):
    codes, scale = by_rows(rows, FN)
    return codes.float() * scale


of_layer = operands["h.1.attn.c_attn"]
bias = model.h[1].attn.c_attn.bias.detach()
q, k, v = (of_layer["x"] @ of_layer["w"].T + bias).split(128, dim=1)
outputs = {
    name: torch.nn.functional.scaled_dot_product_attention(
        heads(q), heads(keys), heads(values), is_causal=True
    )
    for name, (keys, values) in {
        "exact": (k, v),
        "keys": (through_cache(k), v),
        "values": (k, through_cache(v)),
        "both": (through_cache(k), through_cache(v)),
    }.items()
}
spread = outputs["exact"].std()
off = {n: ((y - outputs["exact"]).std() / spread).item() for n, y in outputs.items()}
guess.reveal(
    whose=max(("keys", "values"), key=off.get),
    off=lesson.nearest(off["both"], ("about 0.1", "about 0.01", "about 0.001")),
    because="scores that hardly differ still hardly differ; and in a mean of many "
    "values errors of both signs cancel in part.",
)
lesson.table({f"rounded: {n}": {"output off by": e} for n, e in off.items()})

# %% [markdown] source of the cache
# > **Facts: FlashMLA's FP8 cache**
# >
# > - 656 bytes for a token: 512 of E4M3, 16 of four float32 scales, 128 of 64 bf16 numbers, which are not quantised for
# >   accuracy. (source: deepseek-ai/FlashMLA, README; vLLM documentation,
# >   [flashmla_sparse](https://docs.vllm.ai/en/v0.11.0/api/vllm/v1/attention/backends/mla/flashmla_sparse.html))
#
# (In a trained model attention is sharp, and keys count: measure it there.) 57% of the bytes, 1.76 times the tokens.
# Three types in one record: how does one write that? The record is an array of
# bytes, and a *view* reads part of it under another type. Strides count elements of the view's own type. An example
# with other fields: 8 codes, a float32, four bytes free, an int64, 24 bytes in all.

# %% guess views
guess = predict(
    "08.views",
    "`record` is (tokens, 24) of bytes. How far apart are two tokens in each view, in "
    "elements of its type?",
    codes=lesson.number("codes, E4M3"),
    scale=lesson.number("float32"),
    position=lesson.number("int64"),
)

# %% views
record = torch.zeros(4, 24, dtype=torch.uint8)
codes = record[:, 0:8].view(FN)
scale = record[:, 8:12].view(torch.float32)
position = record[:, 16:24].view(torch.int64)
codes.copy_(torch.arange(32.0).view(4, 8).to(FN))
scale.fill_(0.5)
position[:, 0] = torch.arange(4)
guess.reveal(
    codes=codes.stride(0),
    scale=scale.stride(0),
    position=position.stride(0),
    because="24 / 1, 24 / 4, 24 / 8.",
)
lesson.table({f"token {t}": record[t].tolist() for t in range(2)}, first="bytes")

# %% [markdown] alignment
# A kernel gets the three views as three pointers of three types, each with its own stride, and stores through each of
# them. A view exists only where the start and the distance of tokens are multiples of the type's size: so the four free
# bytes before the int64. And 656 is 41 × 16: every record begins at a multiple of 16 bytes, the widest load of a lane.
#
# A last trap: codes in a cache are of one kind. A cache that was filled on an MI300X (FNUZ) and is read by an H100 (FN)
# is off by a factor of two, and nobody complains. The bytes do not say what they are.
#
# ## Summary
#
# - A float of 8 bits: E4M3 has three digits behind the point and 17.8 doublings; FNUZ is half of FN, with one NaN.
# - Rounding to nearest loses small updates; master weights stay in float32. INT8 is better on tame tensors, FP8 with
#   outliers.
# - A scale is amax over the format's largest. E4M3 has room for a factor of 28,672 below it, E2M1 for 6. Small groups
#   confine outliers; groups along K come out of parts of the sum.
# - On the wrong chip FP8 becomes fp16 in silence: FN on `gfx942` and `gfx90a`, `max_num_imprecise_acc=0` on `sm_90`,
#   `dot_scaled` with small tiles on `sm_100`. Results stay right. Read the listing.
# - FP8 doubles FLOPs and halves bytes of A and B. Ada and Hopper add with 13 digits: promote every 128.
# - Training: three products, which sum over inputs, outputs and tokens. Compare with bf16 in pairs. Log amax.
# - Decoding: weights as codes halve the bytes; MLA's cache goes from 1,152 to 656 bytes.
#
# ## Read next
#
# - [DeepSeek-V3](https://arxiv.org/abs/2412.19437), section 3.3, and
#   [Insights into DeepSeek-V3](https://arxiv.org/abs/2505.09343).
# - [FP8 Formats for Deep Learning](https://arxiv.org/abs/2209.05433) and
#   [8-bit Numerical Formats for Deep Neural Networks](https://arxiv.org/abs/2206.02915): FN and FNUZ.
# - [OCP Microscaling Formats](https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf).
# - [Transformer Engine, common API](https://nvidia.github.io/TransformerEngine/api/common.html): delayed scaling, by
#   default with a history of 1,024 steps.
# - [DeepGEMM](https://github.com/deepseek-ai/DeepGEMM): scaled products with promotion on Hopper.
# - [MMA-Sim](https://arxiv.org/abs/2511.10909): how tensor cores and matrix cores add, bit by bit.
#
# ## Check yourself
#
# Answer first, then open.
#
# <details><summary>What is the byte 0xC0 in E4M3 FN, and in FNUZ?</summary>
#
# 1 1000 000: -2, and -1.
# </details>
#
# <details><summary>A checkpoint of FN weights has been converted to FNUZ by doubling the scales. One weight in a
# thousand is NaN. Which?</summary>
#
# Those with the code 0x80, -0 in FN.
# </details>
#
# <details><summary>Your FP8 product on an MI300X is right and as slow as fp16. Where do you look?</summary>
#
# At the matrix instruction in the listing: `f16` in its name says that the codes are of the other kind.
# </details>
#
# <details><summary>Why can x not keep its tiles of 1 × 128 for dw?</summary>
#
# dw sums over tokens; a tile of 1 × 128 has another scale for each token, and no scale may change within a sum.
# </details>
#
# <details><summary>K doubles, and the error of an FP8 product on Hopper doubles. What is missing?</summary>
#
# Promotion: partial sums must go to float32 at a fixed interval.
# </details>
#
# **You have** FP8 from the bit to a trained model. Now open [lab 08](../labs/08_fp8.ipynb).

# %% fifth sitting ends
lesson.sitting("08", 5)
