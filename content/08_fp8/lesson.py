# %% [markdown] top
# # 08 FP8: formats, scaling, training
#
# **Afterwards you can** read and write numbers of 8, 6 and 4 bits to the bit, on both vendors; choose who shares a
# scale; write quantisers and FP8 products in Triton, and see in the listing whether a chip really multiplies in FP8;
# train GPT-2 with FP8 products and say how far it is from bf16; and keep weights and caches in FP8 for decoding.
#
# **You need** units 03 (section 5: FN and FNUZ, the silent conversion), 04 and 05 (kernels, `tl.dot`), 06 (MLA). No
# GPU: every cell runs on a laptop. "Executed" means on a virtual GPU here; nothing in this lesson ran on a real one.
#
# **Time**: five sittings: reading (text and code at 200 words a minute) takes 9, 11, 12, 9 and 7 minutes, all of it
# with the predictions about 30, 30, 35, 25 and 20. All cells together run in a minute on a CPU. Then lab 08.
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
    because="0 1000 100 is (1 + 4/8) × 2^(8 - 7); 1/8 × 2^(1 - 7); three bits, 8 values.",
)
lesson.number_line("e4m3fn", "e5m2", low=2**-17, high=2**16)

# %% [markdown] digits and range
# (`fn` is the OCP's kind of E4M3, which lesson 03 met: finite, and with NaN.) On this axis every doubling takes the
# same room. E4M3 has 8 numbers in a doubling and E5M2 four; E5M2 reaches further on both sides. So a number between
# two neighbours is off by at most half a step: a share of $2^{-4}$ of itself in E4M3 and $2^{-3}$ in E5M2. This share
# is the *unit roundoff* $u$. bf16, with 7 bits of mantissa, has $2^{-8}$.
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
# So E4M3 for digits, E5M2 for range. Early recipes used E5M2 for gradients; section 14 tries both. With a scale for
# each small part of a matrix the range hardly matters, and E4M3 is enough everywhere.
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
# too large differs: to infinity, to NaN, or clipped. Clip it yourself, before the cast, at `torch.finfo(dtype).max`.
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
# the distance from below over the step. So 1.05, between 1 and 1.125, goes up in 40 of 100 times: right on average.
#
# Training changes a weight by little each time, thousands of times. Suppose the weight is kept in E4M3 itself. Here
# 4,096 weights start at 1 and get 1,000 updates of +0.001. To round stochastically one adds a random number to the
# digits that are cut off: what is there already decides how often it carries over.


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
    "After 1,000 updates of +0.001 the exact weight is 2. What is the mean of the 4,096 "
    "weights? From 1 the next number of E4M3 is 1.125.",
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
    "One scale for all. An even step of d makes an error of d / √12 on average; a "
    "typical number of FP8 is off by some 2.6%. Which is nearer to the numbers?",
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

# %% guess bits
guess = predict(
    "08.bits",
    "A scale of 32 bits for each 1 x 128, one of 8 bits for each 32, and NVFP4: bits "
    "for an element, its share of the scale included?",
    tile=lesson.number("1 x 128, E4M3"),
    mx=lesson.number("MXFP8"),
    nvfp4=lesson.number("NVFP4"),
)

# %% bits
bits = lesson.bits_per_value(512, 512)
guess.reveal(
    tile=bits["1 x 128"],
    mx=bits["MXFP8"],
    nvfp4=bits["NVFP4"],
    because="8 + 32 / 128, 8 + 8 / 32, 4 + 8 / 16.",
)
lesson.table({way: {"bits": each} for way, each in bits.items()}, first="way")

# %% [markdown] one massive element
# ## 8. What it is worth
#
# The input of the last `mlp.c_proj`: 512 tokens of 512 channels. First as it is. Then with a single massive activation:
# one of the 262,144 elements is made 100,000 times the median. All others stay as they are, so any more error of
# theirs comes from a scale that they share with it. An *own scale* in E4M3 leaves 2.2% on average.

# %% guess massive
WAYS = ("per tensor", "per row", "1 x 128", "128 x 128", "MXFP8", "MXFP4", "NVFP4")
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
rows = {way: {"bits": bits[way]} for way in WAYS}
for name, matrix in {"as it is": x, "one massive element": massive}.items():
    for way, error in lesson.relative_errors(matrix, *WAYS).items():
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
#   more error, because a power of two leaves up to half of the range unused or clips the largest.
# - With one massive element a single scale spoils the whole tensor: a tenth of it is 0. A row of its own confines the
#   damage, a tile more so. The 128 × 128 block spoils a sixteenth of this matrix.
# - Four bits make ten times the error, for half the bytes. There the *small* block is needed even as it is: with room
#   for a factor of 6, elements of a block that are much below its largest become 0.
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
lesson.error_figure(dy, shown)

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
# instruction (section 15). And the direction matters: the backward pass sums over other dimensions, so the same matrix
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
# divides what it has. That is one more reason for small tiles: 1 × 128 fits, a tensor does not. (Lab: 08.quantize_tile
# and 08.quantize_block.) Delayed scaling is cheap for one scale a tensor and has a risk, an amax that grew since:
# sitting 4 shows one.
#
# Why are some codes on `sm_89` not those of torch? Look at what the cast became:

# %% casts
CASTS = ("cvt.rz", "cvt.rn.s", "v_cvt_pk_fp8", "v_cvt_scalef32_pk_fp8")
rows = {}
for target in ("sm_89", "sm_90", "sm_100", "gfx90a", "gfx942", "gfx950", "gfx1201"):
    fp8 = FP8.get(target, torch.float8_e4m3fn)
    args = (x, scale, torch.empty(n, dtype=fp8), amax, n)
    compiled = compile_for(cast_kernel, target, args, LARGEST=240.0, BLOCK=1024)
    rows[target] = {
        "to FP8": ", ".join(lesson.mnemonics(compiled, starting=CASTS)) or "-",
        "instructions in all": lesson.mnemonics(compiled).total(),
    }
lesson.table(rows, first="target")

# %% [markdown] casts explained
# - `sm_89`: Triton 3.7 goes by way of fp16, and cuts there (`cvt.rz`) before it rounds: twice. So a few codes in a
#   thousand are one step off, though the chip has a direct conversion. `sm_90` and `sm_100` convert two numbers at once.
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
