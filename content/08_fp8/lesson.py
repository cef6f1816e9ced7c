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
