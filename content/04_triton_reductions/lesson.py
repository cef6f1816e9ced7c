# %% [markdown] top
# # 04 Memory-bound kernels in Triton
#
# **Afterwards you can** write the kernels of GPT-2 that are not matrix products: activations, dropout, softmax, layer
# norm, the loss, forward and backward. You can say how many bytes each must move, prove with counters that yours moves
# no more, and see in the machine code of both vendors what makes one version wide and another narrow.
#
# **You need** units 00 and 02: masks, coalescing, registers, occupancy. No GPU: every cell runs on a laptop.
#
# **Time**: four sittings: reading (text and code at 200 words a minute) takes 17, 13, 10 and 9 minutes, all of it with
# the predictions about 40, 35, 35 and 25. All cells together run in half a minute on a CPU. Then lab 04.
#
# All kernels here follow one ladder. *Naive*: a formula, operator by operator. *Fused*: one kernel that reads
# its inputs once and writes its result once. *Tuned*: the same bytes with fewer instructions, no spills and no idle
# units. At every rung you count first, then run.

# %% imports
import torch
import triton
import triton.language as tl

from gpu_utils import CHIPS, compile_for, explore, lesson, predict, virtual_gpu

# %% [markdown] a copy
# # Sitting 1: element by element
#
# ## 1. The first rung: a copy
#
# Most of a transformer's operators do little arithmetic. An addition of two vectors does one FLOP for 12 bytes. How
# many FLOPs could the chip do while one byte comes from memory?

# %% balance
rows = {}
for name in ("H100", "MI300X"):
    chip = CHIPS[name]
    flops = chip.peak("fp32") / chip.bandwidth
    # a fused multiply-add is 2 FLOPs; AMD's figure also takes two of them at once
    results = 2 if chip.vendor == "nvidia" else 4
    rows[name] = {
        "TB/s": chip.bandwidth,
        "float32 TFLOP/s": chip.peak("fp32"),
        "FLOPs for each byte": flops,
        "instructions of a lane for each byte": flops / results,
    }
lesson.table(
    rows,
    first="chip",
    note="MI300X: the peak is that of packed float32, two results of an instruction",
)

# %% [markdown] balance explained
# Twenty to thirty FLOPs, eight to ten instructions of a lane. Nearly everything in this unit stays far below that
# (section 3 has the exception), so its time is the time of its bytes: *bytes moved, divided by bandwidth*. No clever
# arithmetic makes such a kernel faster. Moving less does.
#
# The smallest such kernel is a copy. It reads `n` floats and writes `n` floats: `8 * n` bytes. The launcher of unit 00
# would do. Here it is, with a block of 1,024 elements and 4 warps (NVIDIA) or wavefronts (AMD), which is Triton's
# default.


# %% copy kernel
@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


BOTH = ("sm_80", "gfx942")
SIX = ("sm_80", "sm_90", "sm_100", "gfx942", "gfx950", "gfx1100")


def bits_of_a_load(n, targets=SIX, BLOCK=1024, num_warps=4, dtype=torch.float32):
    """Bits that one load instruction of a lane brings, and how many there are."""
    x = torch.empty(n, dtype=dtype)
    found = {}
    for target in targets:
        args = (x, torch.empty_like(x), n, BLOCK)
        kernel = compile_for(copy_kernel, target, args, num_warps=num_warps)
        ((bits, loads),) = lesson.resources(kernel).widths["global load"].items()
        found[target] = {"bits": bits, "loads of a lane": loads}
    return found


lesson.table(bits_of_a_load(16_384), first="n = 16,384")

# %% [markdown] width
# 128 bits, 16 bytes, is the widest load that Triton makes for these targets. A lane has `1024 / (4 * 32)`
# = 8 floats where a wave has 32 lanes, so two such loads; and 4 floats, one load, where a wave has 64.
#
# In unit 00 one element more, `n = 16,385`, turned these loads into 8 (4) of 32 bits, in *every* program, also in the
# 16 that the last element does not touch. The compiler makes one machine code for all programs, and it must be right
# for the mask. A load has one predicate (NVIDIA) or one bit of EXEC (AMD) for each lane, not for each element. With
# `offsets < n` and *nothing known about n*, of four neighbours two may be inside and two outside: so each element gets
# a load of its own. (AMD's buffer loads could check each of four words against the buffer's end. Triton's mask may be
# any condition, so it does not use that.)
#
# With `n = 16,384` something was known. When a kernel is launched, Triton notes of each whole number among the
# arguments whether it is **divisible by 16**, and of each tensor whether its address is. Then groups of up to 16
# neighbours are inside or outside together, and one predicate serves the wide load. Each such property makes a kernel
# of its own: 16,384, 16,385 and 1 (which becomes a constant) are three compilations, and the first call of each waits
# for one.

# %% guess divisible
guess = predict(
    "04.divisible",
    "Which of these n bring loads of 128 bits on sm_80?",
    n_16386=lesson.yes_no("16,386 = 2 × 8,193"),
    n_16392=lesson.yes_no("16,392 = 8 × 2,049"),
    n_16400=lesson.yes_no("16,400 = 16 × 1,025"),
)

# %% divisible
widths = {n: bits_of_a_load(n, BOTH) for n in (16_384, 16_385, 16_386, 16_392, 16_400)}
guess.reveal(
    n_16386=widths[16_386]["sm_80"]["bits"] == 128,
    n_16392=widths[16_392]["sm_80"]["bits"] == 128,
    n_16400=widths[16_400]["sm_80"]["bits"] == 128,
    because="Triton asks one question: does 16 divide n? Being even, or a multiple "
    "of 8, is not noted.",
)
lesson.table(
    {
        f"{n:,}": {target: row[target]["bits"] for target in BOTH}
        for n, row in widths.items()
    },
    first="n",
    note="bits of a load",
)

# %% [markdown] cost of narrow
# What do narrow loads cost? The bytes that are asked for are the same. But a lane of `gfx942` that owned 16 bytes now
# makes four loads of 4, and neighbouring lanes are 16 bytes apart in each of them.

# %% guess narrow
guess = predict(
    "04.narrow",
    "16,384 floats are 512 lines of 128 bytes, and gfx942 needs 512 load transactions "
    "for n = 16,384. How many for n = 16,385?",
    gfx942=lesson.number("load transactions", factor=1.01),
)

# %% counts of the copy
rows = {}
for n in (16_384, 16_385):
    x, out = torch.randn(n), torch.empty(n)
    gpus = lesson.launch_on(
        BOTH, copy_kernel, (triton.cdiv(n, 1024),), x, out, n, BLOCK=1024
    )
    for target, found in lesson.counts(gpus).items():
        rows[f"n = {n:,} on {target}"] = {
            "bytes asked for": found["global_load_bytes"],
            "load transactions": found["global_load_sectors"],
            "instructions, all": found["instructions"],
        }
guess.reveal(
    gfx942=rows["n = 16,385 on gfx942"]["load transactions"],
    because="each of a lane's four loads touches every line once: 4 × 512, and the "
    "line of the last element.",
)
lesson.table(rows, first="launch")

# %% [markdown] first-level cache
# Four times the transactions, more than twice the instructions. A first-level cache can catch the repeated ones before
# they reach memory; the unit for loads and stores has to serve them all the same. How much time that costs only a real
# GPU can say. That a kernel's speed hangs on whether somebody's batch is a multiple of 16 is bad enough.
#
# The cure is in the question *which program needs a mask?* Of the 17 programs only the last one reaches past the end.
# (Lab: 04.copy.) A block that lies inside as a whole needs no mask, and without one nothing need be known about `n`:


# %% without a mask
@triton.jit
def whole_blocks_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))


x, out = torch.randn(16_385), torch.full((16_385,), -1.0)
gpus = lesson.launch_on(BOTH, whole_blocks_kernel, (16,), x, out, BLOCK=1024)
print(
    "the first 16,384 are right:", torch.equal(out[:-1], x[:-1]), "; the last:", out[-1]
)
lesson.table(
    {
        target: {
            "load transactions": found["global_load_sectors"],
            "instructions, all": found["instructions"],
        }
        for target, found in lesson.counts(gpus).items()
    },
    first="target",
)

# %% [markdown] the second knob
# The second thing that makes loads narrow is a launch with *too many threads for its block*. A lane can only load side
# by side what it owns side by side. How much it owns is `BLOCK / (num_warps * lanes)`.

# %% guess threads
guess = predict(
    "04.too_many_threads",
    "n = 16,384, BLOCK = 256, 4 warps or wavefronts. How wide is a load?",
    sm_80=lesson.number("on sm_80", unit="bits"),
    gfx942=lesson.number("on gfx942", unit="bits"),
    bf16=lesson.number("sm_80, bf16 and BLOCK = 1,024", unit="bits"),
)

# %% threads
few = bits_of_a_load(16_384, BOTH, BLOCK=256)
halves = bits_of_a_load(16_384, BOTH, dtype=torch.bfloat16)
guess.reveal(
    sm_80=few["sm_80"]["bits"],
    gfx942=few["gfx942"]["bits"],
    bf16=halves["sm_80"]["bits"],
    because="256 / (4 × 32) = 2 floats of 32 bits; 256 / (4 × 64) = 1; 8 numbers of "
    "16 bits are 128 bits.",
)
rows = {
    "float32, BLOCK = 256": few,
    "bf16, BLOCK = 1,024": halves,
    "float32, BLOCK = 256, 1 warp": bits_of_a_load(16_384, BOTH, 256, 1),
}
lesson.table(
    {name: {t: row[t]["bits"] for t in BOTH} for name, row in rows.items()},
    first="bits of a load",
)

# %% [markdown] rule of width
# So one more rule for tables of configurations: the same BLOCK and `num_warps` that fill 128 bits on `sm_80` leave
# `gfx942` at half of that, because its wave is twice as wide. With `num_warps=1` both are at 128 bits. At the same
# BLOCK a target with waves of 64 wants half of the warps. (In bf16 a block wants twice the elements: 16 bytes are 8 of
# them.)
#
# ## 2. Eight operators, or one kernel
#
# GPT-2's activation is the tanh form of GELU:
#
# $$ \text{gelu}(x) = \tfrac12\, x\, \bigl(1 + \tanh(u)\bigr), \qquad u = \sqrt{2/\pi}\,(x + 0.044715\, x^3) $$
#
# Written with PyTorch's operators, each of them is a kernel of its own. It reads its inputs from memory and writes its
# result back, and the next one reads it again.


# %% gelu by hand
def gelu_by_hand(x):
    u = 0.7978845608 * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + torch.tanh(u))


# %% guess gelu
guess = predict(
    "04.gelu_by_hand",
    "x has n elements. Eight operators: x**3, 0.044715 *, x +, 0.7978 *, tanh, 1 +, "
    "0.5 *, and the last product. How often is a tensor of n elements read or "
    "written, all together? How many times as fast could one kernel be that reads x "
    "once and writes y once?",
    by_hand=lesson.number("reads and writes"),
    faster=lesson.number("times as fast"),
)

# %% traffic of gelu
x = torch.randn(4096)
with lesson.traffic_of_torch() as traffic:
    gelu_by_hand(x)
guess.reveal(
    by_hand=traffic.found.bytes / (4 * x.numel()),
    faster=traffic.found.bytes / (2 * 4 * x.numel()),
    because="six operators have one input and one output; the sum with x and the last "
    "product have two inputs: 6 × 2 + 2 × 3 = 18, against 2.",
)
lesson.table({"operators": traffic.found.launches, "bytes": traffic.found.bytes})

# %% [markdown] fusing
# (The count goes by a rule: each operator reads its inputs once and writes its result once, and no cache helps.) 18
# against 2: if every read and write goes to memory, a ninth of the bytes, and of the time. That is all that *operator
# fusion* means.
#
# PyTorch has fused the well-known ones already: `F.gelu(x, approximate="tanh")` is one kernel, and so is `F.softmax`.
# `torch.compile` fuses formulas by writing Triton kernels, with reductions, random numbers and backward passes too. You
# learn to write them to read what it wrote, to see where it did not fuse (`TORCH_LOGS=output_code` prints it), and for
# what needs another algorithm: a loss that never stores its probabilities, attention that never stores its scores.
#
# The lab wants GELU. Here is its sister, SiLU, which Llama and DeepSeek use: $y = x\,\sigma(x)$, with
# $\sigma(x) = 1 / (1 + e^{-x})$.
#
# **The backward pass** gets `dy`, the gradient of the loss by `y`, and returns
#
# $$ dx = dy \cdot \frac{d}{dx}\bigl(x\,\sigma(x)\bigr) = dy \cdot \bigl(\sigma + x\,\sigma\,(1 - \sigma)\bigr) $$
#
# because $\sigma' = \sigma (1 - \sigma)$. It needs $\sigma(x)$ again. Keep it, or work it out again from `x`?
# Keeping means writing `n` numbers now and reading them later; working it out means a few FLOPs on a value that is in a
# register anyway. At 20 FLOPs for each byte, recomputing is free.


# %% silu
@triton.jit
def silu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)  # arithmetic in float32
    y = x * tl.sigmoid(x)
    tl.store(y_ptr + offsets, y, mask=mask)  # rounds to the type of y_ptr


@triton.jit
def silu_backward_kernel(x_ptr, dy_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    dy = tl.load(dy_ptr + offsets, mask=mask).to(tl.float32)
    s = tl.sigmoid(x)  # again, not kept
    tl.store(dx_ptr + offsets, dy * (s + x * s * (1 - s)), mask=mask)


class SiLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        y = torch.empty_like(x)
        silu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        dx = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        silu_backward_kernel[grid](x, dy, dx, x.numel(), BLOCK=1024)
        return dx


# %% [markdown] autograd function
# `torch.autograd.Function` joins the two. `forward` gets `ctx`, in which it leaves what `backward` will need, here `x`
# alone; `backward` gets the gradient of each result, and returns one for each argument of `forward` (`None` for an
# argument that needs none). You call it by `SiLU.apply(x)`.

# %% silu on both
x = torch.randn(3000, requires_grad=True)
wanted = torch.autograd.grad(torch.nn.functional.silu(x), x, torch.ones(3000))[0]
rows = {}
for target in BOTH:
    with virtual_gpu(target) as gpu:
        y = SiLU.apply(x)
        (dx,) = torch.autograd.grad(y, x, torch.ones(3000))
    rows[target] = {
        "launches": len(gpu.launches),
        "y differs by": (y - torch.nn.functional.silu(x)).abs().max().item(),
        "dx differs by": (dx - wanted).abs().max().item(),
    }
lesson.table(rows, first="target")

# %% [markdown] dy of stride 0
# Now the call that everybody writes: `y.sum().backward()`. The gradient of a sum is 1 for each element. PyTorch does
# not write `n` ones: it makes one, and *expands* it to the shape of `y`, a view with stride 0.

# %% guess stride 0
ENDS = ("right", "wrong numbers", "reads outside")
guess = predict(
    "04.stride_0",
    "`SiLU.apply(x).sum().backward()` with 3,000 elements, on a virtual GPU: the "
    "backward kernel reads `dy_ptr + offsets`. `SiLU.apply(wide[:, :30])`, where wide "
    "has 60 columns: forward reads `x_ptr + offsets`. And dx of `SiLU.apply(x.T)` with "
    "a contiguous dy: what happens?",
    what=lesson.choice(*ENDS, label="dy of a sum"),
    slice=lesson.choice(*ENDS, label="x is a slice"),
    transposed=lesson.choice(*ENDS, label="dx of x.T"),
)

# %% stride 0
wide = torch.randn(8, 60)
with virtual_gpu("gfx942"):
    y = SiLU.apply(wide[:, :30])
same = torch.allclose(y, torch.nn.functional.silu(wide[:, :30]), atol=1e-5)
turned, dy = torch.randn(8, 60, requires_grad=True), torch.randn(60, 8)
with virtual_gpu("gfx942"):
    (dx,) = torch.autograd.grad(SiLU.apply(turned.T), turned, dy)
(wanted,) = torch.autograd.grad(torch.nn.functional.silu(turned.T), turned, dy)
try:
    with virtual_gpu("gfx942"):
        SiLU.apply(x).sum().backward()
    what = "right"
except lesson.OutOfBounds as problem:
    what = "reads outside"
    print(problem)
guess.reveal(
    what=what,
    slice="right" if same else "wrong numbers",
    transposed="right" if torch.allclose(dx, wanted, atol=1e-5) else "wrong numbers",
    because="dy has 3,000 elements by its shape, and one in memory; the slice has gaps "
    "of 30, which belong to wide; x and dy are walked in different orders.",
)

# %% [markdown] contiguous
# On a real GPU the kernel would read 2,999 numbers that belong to somebody else, without complaint, and only in this
# call. `dy.contiguous()` makes a copy where one is needed and returns the tensor itself where not; or hand the strides
# to the kernel. The slice is silently wrong everywhere. Forward of `x.T` goes well by luck: `torch.empty_like` copies
# its strides, so both sides are walked in the same order. Backward does not: x comes with the strides of the transpose,
# dy mostly without.
#
# **One trap of arithmetic.** GELU needs tanh, for which Triton has no `tl.tanh`, and $\tanh u = (e^{2u} - 1) / (e^{2u}
# + 1)$. The largest float32 is about 3.4e38, which is $e^{88.7}$.

# %% guess tanh
guess = predict(
    "04.tanh",
    "What does this formula give in float32 at u = 50, where tanh is 1?",
    at_50=lesson.choice("1", "inf", "nan"),
    at_minus_50=lesson.choice("-1", "-inf", "nan", label="at u = -50"),
)

# %% tanh
u = torch.tensor([-50.0, -2.0, 2.0, 50.0])
e = torch.exp(2 * u)
naive = (e - 1) / (e + 1)
guess.reveal(
    at_50=f"{naive[3]:g}",
    at_minus_50=f"{naive[0]:g}",
    because="e^100 is inf, and inf / inf is nan; e^-100 is 0, and -1 / 1 is right.",
)
lesson.table({"u": u.tolist(), "formula": naive.tolist(), "tanh": u.tanh().tolist()})

# %% [markdown] safe exp
# The rule behind it is worth more than the formula: **give `exp` only arguments that are zero or negative.** Then it
# can underflow to 0, which is right, and never overflow. Here: use $e^{-2|u|}$ and put the sign back, or use $\tanh u =
# 2\,\sigma(2u) - 1$. (`tl.sigmoid` is $1 / (1 + e^{-x})$. Below -88 its `exp` is inf, but 1 / inf is 0, which is right.
# Dangerous is inf above *and* below the line.) Near u = 0 both forms subtract two numbers close to 1 and keep few
# digits of tanh itself; in GELU's $1 + \tanh u$ these do not count. A ready one is `from triton.language.extra import
# libdevice` and `libdevice.tanh`. Softmax will need the same rule, and so will attention.
#
# ## 3. Random numbers that nobody stores
#
# Dropout keeps each element with probability $1 - p$ and scales it by $1 / (1 - p)$; the others become 0. The backward
# pass must use the *same* draw. PyTorch's own kernel stores it: a mask of one byte for each element, kept until
# backward.
#
# A GPU's random generator can do better. `tl.rand(seed, offset)` is a *function*: a scrambling of two numbers (the
# algorithm is called Philox) whose result looks random, and is the same each time. No state is kept anywhere. So
# backward need not read a mask: it draws again, with the same seed and the same offsets.
#
# > **Facts: Philox**
# >
# > - Triton's `tl.rand` takes a seed and offsets and returns uniform float32 in [0, 1); its Philox uses 10 rounds by
# >   default. (source: Triton, [tl.rand](https://triton-lang.org/main/python-api/generated/triton.language.rand.html))
# > - Counter-based generators of this kind were published as Random123. (source: Salmon et al., [Parallel random
# >   numbers: as easy as 1, 2, 3](https://doi.org/10.1145/2063384.2063405))


# %% same draw
@triton.jit
def draw_kernel(out_ptr, seed, BLOCK: tl.constexpr, OF_THE_PROGRAM: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    place = tl.program_id(0) * BLOCK + offsets
    tl.store(out_ptr + place, tl.rand(seed, offsets if OF_THE_PROGRAM else place))


def draw(seed, of_the_program=False, programs=4, BLOCK=256):
    out = torch.empty(programs * BLOCK)
    with virtual_gpu("gfx942"):
        draw_kernel[(programs,)](out, seed, BLOCK=BLOCK, OF_THE_PROGRAM=of_the_program)
    return out


print("seed 7 twice is equal: ", torch.equal(draw(7), draw(7)))
print("seeds 7 and 8 are equal:", torch.equal(draw(7), draw(8)))

# %% [markdown] slip of the offsets
# The slip to avoid: offsets that begin at 0 in *every* program, as `OF_THE_PROGRAM=True` does above.

# %% guess offsets
guess = predict(
    "04.offsets",
    "p = 0.5. How many of the 256 elements of program 1 are treated like their twin in "
    "program 0, if each program draws with tl.arange(0, BLOCK)?",
    twins=lesson.number("equal decisions of 256", factor=1.2),
    independent=lesson.number("with offsets of their own", factor=1.2),
)

# %% offsets
twins = (draw(7, of_the_program=True) > 0.5).view(4, 256)
own = (draw(7) > 0.5).view(4, 256)
guess.reveal(
    twins=(twins[0] == twins[1]).sum(),
    independent=(own[0] == own[1]).sum(),
    because="the same seed and the same offsets are the same numbers; other draws "
    "agree in half of the cases (both keep, or both drop).",
)
lesson.lane_figure(
    {
        f"{name}, program {program}": draws[program, :64].tolist()
        for name, draws in {"arange": twins, "own": own}.items()
        for program in (0, 1)
    },
    what="elements",
)

# %% [markdown] pattern
# The loss still falls with such a dropout, and no assertion fails. The share that is kept is right, too. Only somebody
# who looks at two programs side by side sees it.
#
# Is drawing again free? Ten rounds of multiplications are more than SiLU needs. Count what a wave issues for each
# element, beside a kernel that only turns its offsets into floats and stores them. `tl.rand4x` returns all *four*
# numbers of one scrambling; `tl.rand` uses one, and the compiler drops what it can of the other three. (They are other
# numbers than those of `tl.rand`: forward and backward must use the same of the two.)


# %% cost of philox
@triton.jit
def convert_kernel(out_ptr, seed, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + place, tl.random.uint_to_uniform_float(place + seed))


@triton.jit
def rand_kernel(out_ptr, seed, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + place, tl.rand(seed, place))


@triton.jit
def rand4x_kernel(out_ptr, seed, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK // 4)
    for_each = tl.rand4x(seed, place)
    for i in tl.static_range(4):
        tl.store(out_ptr + place + i * (BLOCK // 4), for_each[i])


def per_element(kernel, n=16_384):
    """Instructions of a wave, times its lanes, for each element: by target."""
    gpus = lesson.launch_on(BOTH, kernel, (n // 1024,), torch.empty(n), 7, BLOCK=1024)
    return {
        target: issued * lesson.TARGETS[target].lanes / n
        for target, issued in lesson.counted(gpus, "instructions").items()
    }


KERNELS = (convert_kernel, rand_kernel, rand4x_kernel)
cost = {kernel.__name__: per_element(kernel) for kernel in KERNELS}
lesson.table(
    {"convert_kernel": cost["convert_kernel"], "rand_kernel": cost["rand_kernel"]}
)

# %% guess philox
SHARES = {"a quarter": 0.3, "a third": 0.4, "nearly half": 0.6}
guess = predict(
    "04.philox",
    "What is left of tl.rand's instructions for each element with rand4x, four numbers "
    "for one scrambling? Converting and storing stay as they are.",
    share=lesson.choice(*SHARES),
)

# %% philox
share = cost["rand4x_kernel"]["sm_80"] / cost["rand_kernel"]["sm_80"]
guess.reveal(
    share=next(words for words, most in SHARES.items() if share < most),
    because="6.6 of 71.5 convert and store. A quarter of the rest, and these, are 23; "
    "it is 32, because tl.rand alone never pays for a full scrambling.",
)
lesson.bars(cost, "lane instructions for each element")

# %% [markdown] philox explained
# About 70 lines of PTX, or instructions of `gfx942`, for each element, and a float32 dropout moves 8 bytes for it. In
# the time of 8 bytes an H100 issues 8 × 10 float32 instructions, an MI300X 8 × 7.7 (section 1's table): the same size.
# Which of the two decides cannot be said from this count. PTX is not yet machine code, and nearly all of these are
# integer instructions, whose rate is another one. In bf16, with half the bytes, `tl.rand` is the larger. So: nearly
# free, not free; measure. (A real model takes another seed for each layer and each step, or every layer drops the same
# places.)
#
# **You have** a copy at full width, a fused operator with its backward pass, and random numbers without memory. In the
# lab: 04.copy, 04.gelu, 04.dropout. Next: rows.

# %% first sitting ends
lesson.sitting("04", 1)

# %% [markdown] a row for each program
# # Sitting 2: rows
#
# ## 4. Softmax: a row for each program
#
# $$ y_j = \frac{e^{x_j - m}}{\sum_k e^{x_k - m}}, \qquad m = \max_k x_k $$
#
# Subtracting the maximum changes nothing on paper, and keeps the rule of section 2's end: `exp` gets only arguments
# that are zero or negative. First the naive rung, operator by operator. The maximum and the sum have one number for
# each row, which hardly counts.


# %% softmax by hand
def softmax_by_hand(x):
    shifted = x - x.max(dim=1, keepdim=True).values
    e = torch.exp(shifted)
    return e / e.sum(dim=1, keepdim=True)


# %% guess softmax
guess = predict(
    "04.softmax_by_hand",
    "Five operators: max, minus, exp, sum, division. How often is a tensor as large as "
    "x read or written, all together?",
    by_hand=lesson.number("by hand"),
)

# %% traffic of softmax
x = torch.randn(64, 1000)
with lesson.traffic_of_torch() as traffic:
    softmax_by_hand(x)
guess.reveal(
    by_hand=round(traffic.found.bytes / (4 * x.numel())),
    because="max and sum read one each; minus, exp, division read one and write one.",
)
lesson.table({"operators": traffic.found.launches, "bytes": traffic.found.bytes})

# %% [markdown] fused softmax
# Eight; two would do, if a whole row stays in registers between the maximum and the division. So: one program for each
# row, and a block that is as long as the row. `tl.max(x, axis=0)` and `tl.sum(e, axis=0)` reduce a block to one number,
# which every lane then has.
#
# The lab asks for that kernel. Its little sister has the same two reductions and writes one number a row, the logarithm
# of the denominator:
#
# $$ \text{logsumexp}(x) = \log \sum_k e^{x_k} = m + \log \sum_k e^{x_k - m} $$
#
# A block has a power of two of positions, a row seldom has. What should the positions behind the row's end hold?


# %% logsumexp kernel
@triton.jit
def logsumexp_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr, FILL: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=FILL)
    x = x.to(tl.float32)  # sums in float32, whatever the type of x
    m = tl.max(x, axis=0)
    tl.store(out_ptr + row, m + tl.log(tl.sum(tl.exp(x - m), axis=0)))


def logsumexp(x, num_warps=4, fill=float("-inf")):
    rows, cols = x.shape
    out = torch.empty(rows, device=x.device)
    options = {"BLOCK": triton.next_power_of_2(cols), "FILL": fill}
    logsumexp_kernel[(rows,)](x, out, cols, **options, num_warps=num_warps)
    return out


# %% guess fill
guess = predict(
    "04.fill",
    "The row (-1, -2, -3) in a block of 4, with FILL = 0. e^-1 = 0.37, e^-2 = 0.14, "
    "e^-3 = 0.05: the sum is 0.55, its logarithm -0.59. This kernel's result is the "
    "logarithm of which number?",
    total=lesson.number("where 0.55 is right", factor=1.05),
)

# %% fill
row = torch.tensor([[-1.0, -2.0, -3.0]])
rows = {}
for fill in (0.0, float("-inf")):
    with virtual_gpu("gfx942"):
        y = logsumexp(row, fill=fill)
    rows[f"{fill:g}"] = {"logsumexp": y.item(), "the sum": y.exp().item()}
guess.reveal(
    total=rows["0"]["the sum"],
    because="the fourth position counts e^0 = 1: 0.55 + 1.",
)
lesson.table(rows, first="FILL")

# %% [markdown] neutral element
# Fill with what changes nothing: for a maximum $-\infty$, for a sum 0. Here one load serves both, because
# $e^{-\infty - m} = 0$. In a layer norm it is not as easy: with 0 as filling the sum is right, and then every position
# behind the end has $(0 - \text{mean})^2$ to add to the variance. There `tl.where(mask, ..., 0.0)` belongs *behind* the
# subtraction.
#
# ### How lanes add up
#
# `tl.sum` over a block is work for three levels. Each lane first adds up what it holds. Then the lanes of a wave
# exchange their sums: five steps with 32 lanes, six with 64. Then, if the program has several waves, each writes its
# sum to shared memory, and all meet at a **barrier**; *one* wave adds these up and writes the result, and after a
# second barrier all read it. A row of logsumexp, as of softmax, has two reductions.

# %% guess barriers
guess = predict(
    "04.barriers",
    "logsumexp of 8 rows with 1,008 columns. How many barriers do all waves of one "
    "launch pass, together?",
    one=lesson.number("1 warp or wavefront a program"),
    more=lesson.number("with 8", factor=1.3),
)

# %% barriers
x = torch.randn(8, 1008)  # divisible by 16
BY_WAVES = {
    f"{waves} wave{'s' * (waves > 1)}": lambda x, waves=waves: logsumexp(x, waves)
    for waves in (1, 4, 8)
}
rows = lesson.climbed(BY_WAVES, BOTH, x)
one, eight = (rows[f"{name}, sm_80"]["barriers"] for name in ("1 wave", "8 waves"))
guess.reveal(
    one=one,
    more=eight,
    because="8 waves of 8 programs pass 5 barriers each, one more than two reductions "
    "have; a single wave needs none.",
)
COLUMNS = ("bytes moved", "instructions", "barriers")
lesson.table(
    {name: {column: row[column] for column in COLUMNS} for name, row in rows.items()},
    first="waves of a program",
)

# %% [markdown] barriers explained
# Two reductions make four barriers; the fifth stands between them, because they use the same place. A wave that arrives
# early waits. For short rows one wave for each row does without. (The numbers are equal on both targets because Triton
# places the barriers, not the vendor's compiler. `gfx942` moves more bytes with 8 waves: a row is 31.5 lines, so every
# second row begins inside of one, and each load touches a line more.)
#
# Section 1 is still with us. A row of 1,000 columns would be loaded 32 bits at a time, in place of 128: 16 does not
# divide it, and the mask knows only that.
#
# Inside a wave the vendors differ. These are the instructions by which lanes exchange values in the kernel with one
# wave for each row:

# %% exchanges
WORDS = ("shfl", "redux", "_dpp", "readlane", "permute", "permlane")
rows = {}
for target in ("sm_90", "sm_100", "gfx942", "gfx1100"):
    args = (x, torch.empty(8), 1008, 1024, float("-inf"))
    compiled = compile_for(logsumexp_kernel, target, args, num_warps=1)
    found = lesson.mnemonics(compiled)
    rows[target] = {
        "exchanges": ", ".join(
            f"{times} × {name}"
            for name, times in found.items()
            if any(word in name for word in WORDS)
        )
    }
lesson.table(rows, first="target")

# %% [markdown] exchanges explained
# - `shfl.sync.bfly`: each lane gets the value of the lane whose number differs in one bit. Five bits, two reductions:
#   ten. `sm_100` has one instruction, `redux.sync.max.f32`, for the whole maximum; for sums there is none, so five
#   stay.
# - AMD's `_dpp` is no instruction of its own but a *way to read an operand*: from another lane of the same 16 or across
#   rows of 16. Most additions take it themselves, `v_add_f32_dpp`; for the maximum the value is moved first. 7 + 5 are
#   2 × 6 steps for 64 lanes. On `gfx1100` DPP stays within 16 lanes and `v_permlanex16` crosses to the other 16: 8 + 2
#   are 2 × 5. `v_readlane_b32` hands the result to a scalar register, which all lanes can read.
#
# Unit 07 writes both by hand.
#
# ### The tile that fits one chip and spills on another
#
# No barriers, so always one wave for each row? A row lives in the registers of its program. Take 8,192 columns.

# %% guess spills
guess = predict(
    "04.spills",
    "8,192 float32 in one warp or wavefront. A lane can have 255 registers on NVIDIA, "
    "and 256 for ordinary instructions on AMD. Who must spill some to memory?",
    sm_90=lesson.yes_no("sm_90 spills"),
    gfx942=lesson.yes_no("gfx942 spills"),
    gfx1100=lesson.yes_no("gfx1100, waves of 32, spills"),
)

# %% spills
FOUR = ("sm_90", "gfx942", "gfx950", "gfx1100")
needs = lesson.needs(BY_WAVES, torch.randn(1, 8192), targets=FOUR)
spills = {t: needs[f"1 wave, {t}"][lesson.SPILLS] for t in FOUR}
guess.reveal(
    sm_90=spills["sm_90"] > 0,
    gfx942=spills["gfx942"] > 0,
    gfx1100=spills["gfx1100"] > 0,
    because="8,192 / 32 is 256 numbers a lane, all registers there are (ptxas folds a "
    "few away); 8,192 / 64 is 128.",
)
lesson.table(
    {
        name: {
            "registers": row["registers"],
            "spilt bytes of a lane": row[lesson.SPILLS] * (4 if ", gfx" in name else 1),
            "occupancy (%)": row["occupancy (%)"],
        }
        for name, row in needs.items()
    },
    first="waves of a program",
)

# %% [markdown] spills explained
# The same kernel, the same numbers, one launch option: right on `gfx942` and spilling on `sm_90`. A spill is memory
# traffic that your byte count does not know. So a table of configurations is made *for each vendor*: the same
# `num_warps` is another number of lanes.
#
# | if | then |
# |---|---|
# | rows are short, up to about 1,000 | one wave a row: no barriers. Very short ones: several rows in a block |
# | rows are long | more waves, until no lane spills and enough of them fit on a unit |
# | the target has waves of 64 | half of the waves that you would take for 32 |
#
# ## 5. A row that does not fit: merging
#
# GPT-2 has 50,257 tokens in its vocabulary. A row of logits is 200 KB: no block can hold it. So a program goes through
# the row block by block, and must know the maximum before it can begin to sum. Two passes, so two reads?
#
# One is enough. For a part $A$ of a row keep two numbers: $m_A$, its maximum, and $l_A = \sum_{j \in A} e^{x_j - m_A}$.
# Two parts can be merged without looking at their elements again, because a sum that was taken with the wrong maximum
# is wrong by a *known factor*:
#
# $$ m = \max(m_A, m_B), \qquad l = l_A\, e^{m_A - m} + l_B\, e^{m_B - m} $$
#
# One of the two factors is 1, the other at most 1: again `exp` gets no positive argument.

# %% guess merge
guess = predict(
    "04.merge",
    "A = (0, 0) and B = (1): m and l of each, then of both together? (e^-1 is 0.37.)",
    l_a=lesson.number("l of A"),
    l_both=lesson.number("l of both", factor=1.02),
)


# %% merge
def summary(part):
    m = part.max()
    return m, (part - m).exp().sum()


def merged(a, b):
    (m_a, l_a), (m_b, l_b) = a, b
    m = torch.maximum(m_a, m_b)
    return m, l_a * (m_a - m).exp() + l_b * (m_b - m).exp()


a, b = summary(torch.tensor([0.0, 0.0])), summary(torch.tensor([1.0]))
both = merged(a, b)
guess.reveal(
    l_a=a[1],
    l_both=both[1],
    because="A has m = 0, l = 2; B has m = 1, l = 1; 2 × 0.37 + 1 × 1.",
)
whole = summary(torch.tensor([0.0, 0.0, 1.0]))
lesson.table(
    {
        name: {"m": m.item(), "l": total.item()}
        for name, (m, total) in {
            "A": a,
            "B": b,
            "merged": both,
            "whole": whole,
        }.items()
    },
    first="part",
)

# %% [markdown] the explorer
# The explorer shows a row of logits, block by block: the running maximum, the running sum, and the factor by which the
# sum so far is corrected at each block. What must the logits look like so that the factor is 1 from the second block
# on? When is the correction strongest?

# %% explore online
explore("online")

# %% [markdown] a block of minus infinity
# One case breaks the formula. Logits can be $-\infty$: a padded vocabulary, a mask. If a *whole block* is $-\infty$,
# its maximum is $-\infty$ too.

# %% guess minus infinity
guess = predict(
    "04.minus_infinity",
    "The first block is (-inf, -inf), the second (1, 2). What is l of the first block, "
    "by the formula?",
    first=lesson.choice("0", "2", "nan"),
    both=lesson.choice("1.37", "nan", label="l after the merge"),
)

# %% minus infinity
nothing = torch.tensor([float("-inf")] * 2)
a, b = summary(nothing), summary(torch.tensor([1.0, 2.0]))
both = merged(a, b)
guess.reveal(
    first=f"{a[1]:.3g}",
    both=f"{both[1]:.3g}",
    because="-inf minus -inf is nan, and nan times 0 is nan.",
)
empty = (torch.tensor(float("-inf")), torch.tensor(0.0))  # m and l of such a block


def guarded(a, b):
    (m_a, l_a), (m_b, l_b) = a, b
    m = torch.maximum(m_a, m_b)
    base = torch.where(m == float("-inf"), 0.0, m)
    return m, l_a * (m_a - base).exp() + l_b * (m_b - base).exp()


lesson.table(
    {
        "l = 0 for such a block": {
            "one of them": merged(empty, b)[1].item(),
            "two of them": merged(merged(empty, empty), b)[1].item(),
        },
        "and a guard in the merge": {
            "one of them": guarded(empty, b)[1].item(),
            "two of them": guarded(guarded(empty, empty), b)[1].item(),
        },
    },
    first="l after the merge",
)

# %% [markdown] guard
# To write 0 for the sum of such a block is not enough: two of them in a row, or a running state that starts at
# $(-\infty, 0)$, have the factor $e^{-\infty - -\infty}$. The guard belongs to *every* subtraction of a maximum, also
# in the merge: subtract 0 where it is $-\infty$. In Triton: `base = tl.where(m == float("-inf"), 0.0, m)`. (The kernel
# of section 4 has this hole, too: a row of $-\infty$ alone gives nan, `torch.logsumexp` gives $-\infty$.)
#
# This merge is called **online softmax**. It is half of the secret of FlashAttention (unit 06): there the sum carries a
# vector along. Where the softmax itself is wanted, a long row is read twice: once for $m$ and $l$, once to write
# $e^{x - m} / l$. Where only $m$ and $l$ are wanted, as for the loss, once.
#
# > **Facts: online softmax**
# >
# > - The merge of maximum and sum was published as "online normalizer calculation". (source: Milakov and Gimelshein,
# >   [arXiv 1805.02867](https://arxiv.org/abs/1805.02867))
#
# ## 6. A variance that loses everything
#
# Layer norm wants the mean and the variance of each row:
#
# $$ y = \frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}}\, w + b, \qquad
#    \sigma^2 = \tfrac1n \sum (x - \mu)^2 = \tfrac1n \sum x^2 - \mu^2 $$
#
# The right-hand form is tempting: the sums of $x$ and of $x^2$ come out of one pass. float32 keeps 24 bits: numbers
# between $2^{26}$ and $2^{27}$, which is between 67 and 134 million, are 8 apart.

# %% guess variance
guess = predict(
    "04.variance",
    "A row of 1,000 numbers with mean 10,000 and variance 1. What does the right-hand "
    "form give in float32? (10,000² is 100 million.)",
    tempting=lesson.choice("within 10% of 1", "off by more than that"),
    negative=lesson.yes_no("can it come out negative?"),
)


# %% variance
@triton.jit
def variances_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + cols, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / n
    tempting = tl.sum(x * x, axis=0) / n - mean * mean
    centred = tl.where(mask, x - mean, 0.0)
    tl.store(out_ptr, tempting)
    tl.store(out_ptr + 1, tl.sum(centred * centred, axis=0) / n)


def variances(x):
    out = torch.empty(2)
    lesson.launch_on(["gfx942"], variances_kernel, (1,), x, out, 1000, BLOCK=1024)
    return out.tolist()


rows = {}
for mean in (0, 100, 1000, 10_000):
    rows_of_x = torch.randn(8, 1000, generator=torch.Generator().manual_seed(0)) + mean
    found = [variances(x) for x in rows_of_x]
    tempting, centred = zip(*found, strict=True)
    rows[f"{mean:,}"] = {
        "float64, lowest": rows_of_x.double().var(1, correction=0).min().item(),
        "and highest": rows_of_x.double().var(1, correction=0).max().item(),
        "mean of squares - mean², lowest": min(tempting),
        "highest": max(tempting),
        "mean of (x - mean)², lowest": min(centred),
        " highest": max(centred),
    }
guess.reveal(
    tempting="within 10% of 1" if 0.9 < tempting[0] < 1.1 else "off by more than that",
    negative=min(tempting) < 0,
    because="both terms are near 100 million, where float32 goes in steps of 8: "
    "their difference is off by several, to either side.",
)
lesson.table(rows, first="mean", note="of eight rows")

# %% [markdown] two sums
# The error grows with the *square* of the mean over the spread. Where the mean is small against the spread the tempting
# form survives. It fails on raw inputs (pixels, prices, times), and nothing says when. When the
# row is in registers the right form costs no byte: subtract, square, add up, all on values that are there already.
#
# A row that does not fit into a block can be read twice (mean first), or merged like the softmax: keep count, mean and
# $M = \sum (x - \mu)^2$ of each part. With $\delta = \mu_B - \mu_A$ and $n = n_A + n_B$:
#
# $$ \mu = \mu_A + \delta\,\frac{n_B}{n}, \qquad M = M_A + M_B + \delta^2\, \frac{n_A\, n_B}{n} $$
#
# (Chan, Golub and LeVeque's formula; PyTorch's layer norm on GPUs uses Welford's form of it,
# [layer_norm_kernel.cu](https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/cuda/layer_norm_kernel.cu).)
#
# **RMS norm** leaves the mean out: $y = x / \sqrt{\tfrac1n \sum x^2 + \varepsilon} \cdot w$. Llama and DeepSeek use it.
# It is nearly always preceded by an addition, $h = x + \text{residual}$, and $h$ is wanted later, too.

# %% guess rmsnorm
guess = predict(
    "04.rmsnorm",
    "h = x + residual, then y; both are results. Operator by operator: addition, "
    "square, mean, product (what is done to one number a row hardly counts). How many "
    "reads and writes of a tensor? How many times as fast could one kernel be?",
    by_hand=lesson.number("reads and writes"),
    faster=lesson.number("times as fast"),
)


# %% rmsnorm
def add_then_norm(x, residual):
    h = x + residual
    return h, h * torch.rsqrt(h.square().mean(dim=1, keepdim=True) + 1e-5)


x, residual = torch.randn(64, 1000), torch.randn(64, 1000)
with lesson.traffic_of_torch() as traffic:
    h, y = add_then_norm(x, residual)
by_hand = round(traffic.found.bytes / (4 * x.numel()))
guess.reveal(
    by_hand=by_hand,
    faster=by_hand / 4,
    because="3 for the addition, 2 for the square, 1 for the mean, 2 for the product; "
    "one kernel reads x and residual and writes h and y.",
)
lesson.table({"operators": traffic.found.launches, "bytes": traffic.found.bytes})

# %% [markdown] second sitting
# **You have** reductions inside a lane, a wave and a program, their price in barriers and registers, the merge that
# makes one pass out of two, and a variance that survives a large mean. In the lab: 04.softmax, 04.rmsnorm,
# 04.layernorm. Next: sums that cross programs.

# %% second sitting ends
lesson.sitting("04", 2)

# %% [markdown] columns
# # Sitting 3: across rows, and the loss
#
# ## 7. Column sums, and who may write
#
# The bias of a linear layer has a gradient that is a sum over all tokens: of a matrix with `rows` × `columns` one sum
# for each column. Lanes next to each other own columns next to each other (lab 00.column_sums), and a program walks
# down the rows. GPT-2 has 768 columns and, in a training step, 10,000 rows and more.

# %% guess programs
guess = predict(
    "04.column_programs",
    "768 columns, a program for each 128 of them. On how many of an H100's SMs can "
    "there be work? An MI300X has 304: into how many parts must the rows be cut, so "
    "that each CU has a program?",
    busy=lesson.number("SMs with work"),
    parts=lesson.number("parts of the rows"),
)

# %% programs
programs = triton.cdiv(768, 128)
chips = {name: int(CHIPS[name].units.value) for name in ("H100", "MI300X")}
guess.reveal(
    busy=programs,
    parts=triton.cdiv(chips["MI300X"], programs),
    because="768 / 128 = 6 programs, and a program is on one SM; 304 / 6 is 50.7.",
)
lesson.table(
    {
        name: {
            "SMs or CUs": units,
            "share with work": f"{programs / units:.0%}",
            "parts to fill it": triton.cdiv(units, programs),
        }
        for name, units in chips.items()
    },
    first="chip",
)

# %% [markdown] split the rows
# So several programs must share a column: a grid of two dimensions, columns × *parts* of the rows. Each has a sum of
# its own in the end, and they must become one. The first idea:


# %% add in place
@triton.jit
def part_of_columns_kernel(
    x_ptr,
    out_ptr,
    rows,
    cols,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = col < cols
    total = tl.zeros([BLOCK], tl.float32)
    for row in range(tl.program_id(1) * ROWS, (tl.program_id(1) + 1) * ROWS):
        total += tl.load(x_ptr + row * cols + col, mask=mask & (row < rows), other=0.0)
    so_far = tl.load(out_ptr + col, mask=mask)
    tl.store(out_ptr + col, so_far + total, mask=mask)


# %% guess race
guess = predict(
    "04.race",
    "Four programs load, add and store the same 128 sums at the same time, on a real "
    "GPU. Which result can come out?",
    result=lesson.choice(
        "always the right one",
        "sums in which parts are missing",
        "sums in which parts count twice",
    ),
)

# %% race
x, out, result = torch.randn(128, 128), torch.zeros(128), "always the right one"
try:
    with virtual_gpu("gfx942"):
        part_of_columns_kernel[(1, 4)](x, out, 128, 128, ROWS=32, BLOCK=128)
except lesson.W2WError as problem:
    print(type(problem).__name__, problem, sep=": ")
    if "an update may be lost" in str(problem):
        result = "sums in which parts are missing"
guess.reveal(
    result=result,
    because="two read the same old sum, both add to it, and the later store wins.",
)

# %% [markdown] race explained
# A real GPU says nothing, and often enough the result is right. The virtual GPU watches who writes where, and stops.
#
# There are two ways out.
#
# - **Atomics**: `tl.atomic_add` reads, adds and writes in one step that nobody can interrupt. The memory must be zero
#   at the start. Every part costs one atomic for each column.
# - **Two passes**: each program stores its sums into a row of its own, of shape (parts, columns); a second kernel adds
#   these rows up.

# %% guess order
guess = predict(
    "04.order",
    "64 parts of a column sum, added in 200 random orders in float32, as atomics may "
    "arrive. How many different results?",
    different=lesson.choice("1", "2 to 5", "more than 5"),
)

# %% order
torch.manual_seed(0)
parts = torch.randn(64)
sums = set()
for _ in range(200):
    total = torch.tensor(0.0)
    for part in parts[torch.randperm(64)]:
        total = total + part
    sums.add(total.item())
guess.reveal(
    different="1" if len(sums) == 1 else "2 to 5" if len(sums) <= 5 else "more than 5",
    because="each addition rounds, and what is lost depends on the order.",
)
lesson.table(
    {
        "different results": len(sums),
        "from": min(sums),
        "to": max(sums),
        "in float64": parts.double().sum().item(),
    }
)

# %% [markdown] determinism
# So with atomics two runs of the same program differ in the last bits. For debugging, and for the comparison of two
# chips (unit 09), one wants the same bits each time: two passes, in an order that is fixed by the program and not by
# who comes first.
#
# What do two passes cost? `parts * columns` numbers are written and read once more. With 10,000 rows in 51 parts these
# are 102 numbers of a column where the matrix has 10,000: about one percent of the bytes. And a second launch.
#
# ## 8. Backward through a norm
#
# A backward pass needs the derivative of every output by every input, and in a row of a norm each output depends on
# each input. Written as a matrix that is large; worked out it is two numbers a row. Here for RMS norm, with
# $r = 1 / \sqrt{\tfrac1n\sum x^2 + \varepsilon}$, $\hat x = r\,x$ and $y_j = w_j\,\hat x_j$:
#
# 1. Call $g_j = dy_j\, w_j$, the gradient by $\hat x_j$.
# 2. $x_i$ acts on $\hat x_i$ directly, with factor $r$; and on *all* $\hat x_j$ through $r$.
# 3. $\partial r / \partial x_i = -\tfrac12 r^3 \cdot \tfrac2n x_i = -\tfrac1n r^2\, \hat x_i$.
# 4. So $dx_i = g_i\, r + \sum_j g_j x_j \cdot \bigl(-\tfrac1n r^2 \hat x_i\bigr)
#    = r\,\bigl(g_i - \hat x_i \cdot \tfrac1n \sum_j g_j \hat x_j\bigr)$.
#
# In words: *the gradient, minus the part of it that points along $\hat x$*. Making x longer changes nothing of y, since
# the norm divides by the length; so no gradient may ask for it. What a norm takes away from $x$, its backward pass
# takes away from $g$.

# %% guess backward
guess = predict(
    "04.norm_backward",
    "A layer norm takes away the mean as well: adding a constant to all of x changes "
    "nothing of y. What is the sum of its dx along a row, whatever dy is?",
    total=lesson.number("sum of dx, to two decimals"),
)


# %% backward
def rmsnorm_backward(dy, x, w, eps):
    r = (x.square().mean(1, keepdim=True) + eps).rsqrt()
    x_hat, g = x * r, dy * w
    return r * (g - x_hat * (g * x_hat).mean(1, keepdim=True))


torch.manual_seed(0)
x, dy, w = (torch.randn(shape, dtype=torch.float64) for shape in ((4, 9), (4, 9), (9,)))
x.requires_grad_()
y = torch.nn.functional.rms_norm(x, (9,), w, eps=1e-5)
(by_autograd,) = torch.autograd.grad(y, x, dy)
along = (rmsnorm_backward(dy, x, w, 0.0) * x).sum(1)
y = torch.nn.functional.layer_norm(x, (9,), w)
(dx_of_layer_norm,) = torch.autograd.grad(y, x, dy)
guess.reveal(
    total=round(dx_of_layer_norm.sum(1).abs().max().item(), 2),
    because="no gradient may ask for what changes nothing: dx has no part along the "
    "constant vector.",
)
lesson.table(
    {
        "RMS norm: dx differs from autograd by": (
            rmsnorm_backward(dy, x, w, 1e-5) - by_autograd
        )
        .abs()
        .max()
        .item(),
        "RMS norm, eps = 0: dx · x, at most": along.abs().max().item(),
        "layer norm: sum of dx, at most": dx_of_layer_norm.sum(1).abs().max().item(),
    }
)

# %% [markdown] layer norm backward
# Layer norm takes *two* things away from $x$: its mean and its length. Then its backward pass takes two things away
# from $g$. Lab 04.layernorm_backward has the formula in its statement: find both there.
#
# The gradients of $w$ and $b$ are sums over *rows*: $dw_j = \sum_{rows} dy_j\,\hat x_j$ and $db_j = \sum_{rows} dy_j$.
# `dx` wants a row at a time, `dw` and `db` want columns, and all of them want `x` and `dy`, which are read *once* if
# one kernel serves both: a program takes several rows, writes their `dx`, and keeps a running `dw` and `db` for all
# columns in registers. What then? Section 7.
#
# ## 9. The loss
#
# Cross entropy of one row of logits $x$ with the right token $t$:
#
# $$ \text{loss} = -\log \frac{e^{x_t}}{\sum_j e^{x_j}} = m + \log l - x_t $$
#
# with $m$ and $l$ from section 5: one read, and a row leaves a single number behind. Its gradient is
#
# $$ \frac{\partial\, \text{loss}}{\partial x_j} = \frac{e^{x_j - m}}{l} - [\,j = t\,] $$
#
# the probabilities, and 1 less at the right token. Backward reads the logits again, with $m$ and $l$ (or $m + \log l$)
# from forward, and writes the gradient. PyTorch's operators keep the logarithms of all probabilities: with GPT-2's
# vocabulary the largest tensor of the training step (lesson 01).


# %% guess loss
guess = predict(
    "04.loss_traffic",
    "Logits of (16, 4,000) in float32. Forward of F.cross_entropy: log_softmax, then "
    "nll_loss. How often is a tensor as large as the logits read or written?",
    times=lesson.choice("1", "2", "3"),
)

# %% loss
x, targets = torch.randn(16, 4000), torch.randint(4000, (16,))
with lesson.traffic_of_torch() as traffic:
    torch.nn.functional.cross_entropy(x, targets)
times = traffic.found.bytes / (4 * x.numel())
guess.reveal(
    times=lesson.nearest(times, ("1", "2", "3")),
    because="log_softmax reads the logits and writes a tensor as large; nll_loss takes "
    "16 numbers of it. A fused kernel reads once, and writes a number a row.",
)
lesson.table({"operators": traffic.found.launches, "bytes": traffic.found.bytes})

# %% [markdown] four traps
# There is no need for a scatter, or for a second kernel that subtracts the 1: in each block the columns are known, and
# `cols == target` is a mask. But three traps wait.
#
# **Labels that are ignored.** Padding has the label -100. `tl.load(row_ptr + target)` then reads 100 numbers *before*
# the row: of the row above, or of somebody else.

# %% guess ignored
guess = predict(
    "04.ignored",
    "Logits (4, 1,000). Rows 0 and 2 have the label -100. What does a plain load of "
    "x[row, label] find?",
    row_0=lesson.choice("a number of another row", "reads outside", label="row 0"),
    row_2=lesson.choice("a number of another row", "reads outside", label="row 2"),
)


# %% ignored
@triton.jit
def picked_kernel(x_ptr, labels_ptr, out_ptr, n_cols, first):
    row = first + tl.program_id(0)
    label = tl.load(labels_ptr + row)
    tl.store(out_ptr + row, tl.load(x_ptr + row * n_cols + label))


x, labels = torch.randn(4, 1000), torch.tensor([-100, 3, -100, 5])
found = {}
for row in (0, 2):
    out = torch.zeros(4)
    try:
        lesson.launch_on(["sm_80"], picked_kernel, (1,), x, labels, out, 1000, row)
        found[row] = "a number of another row"
        print(f"row {row}:", out[row].item(), "is x[1, 900]:", x[1, 900].item())
    except lesson.OutOfBounds:
        found[row] = "reads outside"
guess.reveal(
    row_0=found[0],
    row_2=found[2],
    because="row 0 begins where the tensor begins; before row 2 lies row 1.",
)

# %% [markdown] more traps
# A mask helps: `tl.load(..., mask=label != ignore_index, other=0.0)`, and a loss of 0 for such a row, which does not
# count in the mean either.
#
# **Rows that begin anywhere.** A vocabulary of 50,257 is odd. Section 1 told what that does to a mask; here it also
# moves the beginning of each row.

# %% guess vocabulary
guess = predict(
    "04.vocabulary",
    "A program reads row `program_id` of bf16 logits with `row * n_cols + cols` and a "
    "mask `cols < n_cols`. How wide is a load on sm_80?",
    odd=lesson.number("n_cols = 50,257", unit="bits"),
    padded=lesson.number("n_cols = 50,304 = 128 × 393", unit="bits"),
)


# %% vocabulary
@triton.jit
def row_maximum_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_ptr + row * n_cols + cols, mask=cols < n_cols, other=float("-inf")
        )
        best = tl.maximum(best, x.to(tl.float32))
    tl.store(out_ptr + row, tl.max(best, axis=0))


rows = {}
for n_cols in (50_257, 50_304):
    logits = torch.empty(4, n_cols, dtype=torch.bfloat16)
    args = (logits, torch.empty(4), n_cols, 1024)
    kernels = {target: compile_for(row_maximum_kernel, target, args) for target in BOTH}
    rows[f"{n_cols:,}"] = {
        target: max(lesson.resources(kernel).widths["global load"])
        for target, kernel in kernels.items()
    }
guess.reveal(
    odd=rows["50,257"]["sm_80"],
    padded=rows["50,304"]["sm_80"],
    because="nothing is known of 50,257, and 50,304 is divisible by 16.",
)
lesson.table(rows, first="n_cols", note="bits of the widest load")

# %% [markdown] padded vocabulary
# This is one reason why training code pads GPT-2's vocabulary to 50,304
# ([nanoGPT](https://github.com/karpathy/nanoGPT/blob/master/model.py) takes the nearest multiple of 64 above). Matrix
# instructions are the other (unit 05).
#
# **Offsets that do not fit.** `tl.program_id` is a 32-bit integer, and so is `row * n_cols`.

# %% guess offsets of 32 bits
guess = predict(
    "04.offsets_of_32_bits",
    "65,536 tokens, 50,304 columns. The first row whose offset no longer fits into a "
    "signed 32-bit integer (2,147,483,647 at most)?",
    row=lesson.number("row", factor=1.01),
    sign=lesson.choice("positive", "negative", label="its offset in 32 bits"),
)


# %% offsets of 32 bits
@triton.jit
def offset_kernel(out_ptr, row, n_cols):
    tl.store(out_ptr, (row * n_cols).to(tl.int64))
    tl.store(out_ptr + 1, row.to(tl.int64) * n_cols)


row = (2**31 - 1) // 50_304 + 1
out = torch.zeros(2, dtype=torch.int64)
lesson.launch_on(["gfx942"], offset_kernel, (1,), out, row, 50_304)
guess.reveal(
    row=row,
    sign="negative" if out[0] < 0 else "positive",
    because="2,147,483,647 / 50,304 = 42,690.1: row 42,691 begins behind it, and the "
    "product wraps to the other end.",
)
lesson.table({"in 32 bits": out[0].item(), "in 64 bits": out[1].item()})

# %% [markdown] sixty-four bits
# (Row 42,690 begins in time, and fails within itself.) `tl.program_id(0).to(tl.int64)` is the cure, before the product.
# Such a kernel passes every small test and fails on the first large batch.
#
# **You have** sums that many programs share, the backward pass of a norm, and a loss with its traps. In the lab:
# 04.sum_of_columns, 04.layernorm_backward, 04.cross_entropy. Next: a tile, and the last rung.

# %% third sitting ends
lesson.sitting("04", 3)

# %% [markdown] transposing
# # Sitting 4: tiles, and tuning
#
# ## 10. A transpose through a tile
#
# A transpose reads rows and writes columns: with one element for each lane one of the two is not coalesced. So a *tile*
# goes through shared memory: read a tile by rows, write it by rows of the result. In C++ (lab 02.transpose) you moved
# the elements yourself. In Triton you say *what* belongs where, and the compiler decides which lane holds what. (Here
# for sizes that the tile divides.)


# %% transpose
@triton.jit
def transpose_kernel(
    x_ptr, out_ptr, rows, cols, TILE_R: tl.constexpr, TILE_C: tl.constexpr
):
    r = tl.program_id(0) * TILE_R + tl.arange(0, TILE_R)
    c = tl.program_id(1) * TILE_C + tl.arange(0, TILE_C)
    x = tl.load(x_ptr + r[:, None] * cols + c[None, :])
    tl.store(out_ptr + c[None, :] * rows + r[:, None], x)


# %% guess tiles
guess = predict(
    "04.tiles",
    "float32, sectors of 32 bytes on sm_80, lines of 128 on gfx942. Tiles of 32 × 32 "
    "and of 8 × 128: transactions over the fewest possible?",
    square=lesson.number("sm_80, 32 × 32"),
    flat=lesson.number("gfx942, 8 × 128, stores and loads together", factor=1.05),
)

# %% tiles
EXECUTED = ("sm_80", "sm_90", "gfx942", "gfx950", "gfx1100")
x = torch.randn(128, 128)
moved, conflicts = {}, {}
for tile in ((32, 32), (8, 128), (1, 128)):
    out = torch.empty(128, 128)
    grid = (128 // tile[0], 128 // tile[1])
    options = {
        "TILE_R": tile[0],
        "TILE_C": tile[1],
        "threads": min(256, tile[0] * tile[1]),
    }
    gpus = lesson.launch_on(
        EXECUTED, transpose_kernel, grid, x, out, 128, 128, **options
    )
    assert torch.equal(out, x.T)
    name = f"{tile[0]} × {tile[1]}"
    conflicts[name] = lesson.counted(gpus, "bank_conflicts")
    moved[name] = {
        target: (found["global_load_sectors"] + found["global_store_sectors"])
        / found["global_sectors_ideal"]
        for target, found in lesson.counts(gpus).items()
    }
guess.reveal(
    square=moved["32 × 32"]["sm_80"],
    flat=moved["8 × 128"]["gfx942"],
    because="32 floats are 128 bytes: a whole line either way. A row of the result "
    "gets 8 floats of a tile: 32 bytes, a sector, but a quarter of a line.",
)
lesson.table(moved, first="tile", note="transactions over the fewest possible")

# %% conflicts
for name, row in conflicts.items():
    tile = {"TILE_R": int(name.split()[0]), "TILE_C": int(name.split()[2])}
    args = (x, torch.empty(128, 128), 128, 128)
    used = lesson.resources(compile_for(transpose_kernel, "sm_80", args, **tile)).shared
    row["shared memory on sm_80, bytes"] = used
lesson.table(conflicts, first="tile", note="bank conflicts")

# %% [markdown] tiles explained
# The 1 × 128 tile is no tile: each program stores a column of the result, 4 bytes of each sector or line. At 8 × 128
# the stores fill sectors of 32 bytes, and lines of 128 only by a quarter. Whole lines need 32 floats in both directions
# (or 64 numbers of 16 bits).
#
# Bank conflicts: Triton lays the tile out in shared memory with a permutation like the one that you wrote in unit 02,
# and that is free of conflicts on `sm_80`, `sm_90` and `gfx1100`. On `gfx942` and `gfx950` some are left for the tiles
# of two dimensions. They cost cycles of the LDS, not bytes of memory; whether that shows, only a chip can say.
#
# ## 11. Tuning: the knobs that move no byte
#
# All rungs so far changed *what is moved*. The last rung keeps the bytes and changes how the launch uses the chip.
#
# | knob | what it does | where to see it |
# |---|---|---|
# | `num_warps` | lanes of a program | width of loads, barriers, registers (sections 1, 4) |
# | `BLOCK` | elements of a program | loads in flight, registers, number of programs |
# | `tl.range(..., num_stages=s)` | loads of later rounds of this loop that are under way already | the next cell |
# | `waves_per_eu` (AMD), `maxnreg` (NVIDIA) | asks the compiler for fewer registers, so that more waves fit | spills |
#
# There are two options of the last name. `num_stages` in a launch, or in a `triton.Config`, moves only loads that feed
# a `tl.dot` (unit 03). `tl.range(..., num_stages=4)` moves most loads of *this* loop. (source: Triton's docstring of
# `tl.range`) A row of `x` is 1,024 floats; this kernel walks down the columns, 256 at a time. `sm_80` has an
# instruction, `cp.async`, that copies from memory to shared memory past the registers, while the warp goes on; the
# three rows ahead wait there. `gfx942` has none that Triton uses here.


# %% stages kernel
@triton.jit
def walk_kernel(x_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for row in tl.range(0, rows, num_stages=STAGES):
        total += tl.load(x_ptr + row * cols + col)
    tl.store(out_ptr + col, total)


x, out = torch.randn(64, 1024), torch.empty(1024)
WAYS = {"1": (1, 1), "4 in the launch": (1, 4), "4 in tl.range": (4, 1)}
kernels = {
    (way, target): compile_for(
        walk_kernel, target, (x, out, 64, 1024, 256, inside), num_stages=outside
    )
    for way, (inside, outside) in WAYS.items()
    for target in BOTH
}

# %% guess stages
guess = predict(
    "04.stages",
    "Does num_stages=4 in the launch change the loads of sm_80? And how many bytes of "
    "shared memory take three rows ahead, with 4 in tl.range?",
    launch=lesson.yes_no("4 in the launch changes them"),
    shared=lesson.number("4 in tl.range, sm_80", unit="bytes"),
    gfx942=lesson.number("4 in tl.range, gfx942", unit="bytes"),
)

# %% stages
rows = {}
for (way, target), kernel in kernels.items():
    needs, found = lesson.resources(kernel), lesson.mnemonics(kernel)
    loads = [name for name in found if "cp.async.c" in name or "_load_dword" in name]
    loads += [name for name in found if "ld.global" in name]
    rows[f"{way}, {target}"] = {
        "loads of x": ", ".join(
            f"{found[n]} × {n}"
            for n in loads
            if not n.startswith(("s_", "cp.async.com"))
        ),
        "shared memory, bytes": needs.shared,
        "registers": needs.registers,
    }
guess.reveal(
    launch=rows["4 in the launch, sm_80"] != rows["1, sm_80"],
    shared=rows["4 in tl.range, sm_80"]["shared memory, bytes"],
    gfx942=rows["4 in tl.range, gfx942"]["shared memory, bytes"],
    because="no load here feeds a tl.dot; 3 × 256 × 4; and gfx942 loads to registers.",
)
lesson.table(rows, first="num_stages")

# %% [markdown] stages explained
# With one stage nothing in Triton's code runs ahead, and the option of the launch changes nothing. With four in
# `tl.range`,
#
# - `sm_80` has `cp.async`, which copies from memory to *shared memory* and lets the warp go on. Three rows of 256
#   floats are 3,072 bytes: `num_stages` - 1 buffers.
# - `gfx942` issues ordinary loads early, for three rounds ahead, into *registers*, and waits with `s_waitcnt` for the
#   oldest. No LDS is needed, a few registers are.
#
# So for a load that feeds no matrix product the same number costs shared memory on one chip and registers on the other.
# (The operands of a matrix product wait in shared memory on both: unit 05.)
#
# **Choosing.** `triton.autotune` runs every configuration of a list the first time that a new `key` comes, keeps the
# fastest, and remembers it. Rows of 208 columns; how many waves should share one? (AMD's `waves_per_eu` goes into such
# a configuration like any constant: `triton.Config({"waves_per_eu": 2}, num_warps=1)`. And a kernel with atomics needs
# `reset_to_zero=["out_ptr"]`, or every trial adds to the result.)


# %% autotune
def predicted(columns, targets=BOTH):
    """Predicted cycles: waves of a program -> target -> cycles."""
    configs = [triton.Config({}, num_warps=waves) for waves in (1, 2, 4, 8, 16)]
    x, out = torch.randn(16, columns), torch.empty(16)
    block = triton.next_power_of_2(columns)
    rows = {}
    for target in targets:
        tuned = triton.autotune(configs, key=["n_cols"])(logsumexp_kernel)
        with virtual_gpu(target):
            tuned[(16,)](x, out, columns, BLOCK=block, FILL=float("-inf"))
        for config, (cycles, *_) in tuned.configs_timings.items():
            rows.setdefault(f"{config.num_warps} waves", {})[target] = round(cycles)
    return rows


lesson.bars(predicted(208), "predicted cycles for one SM or CU, rows of 208")

# %% [markdown] predicted cycles
# A virtual GPU has no clock. It ranks by *predicted cycles*: the largest of four lower bounds, from the counters, for
# issue, memory (8 bytes a cycle), shared memory and latency. With one wave the bound is memory: 16 rows of 208 floats
# are 13,312 bytes, 1,664 cycles, and a little more for whole sectors or lines. Every wave that joins runs the steps of
# the reduction again, and issue passes it. One wave a row wins on both.
#
# Now rows of 8,192: 16 × 8,192 × 4 bytes are 65,536 cycles of memory.

# %% guess tuner
guess = predict(
    "04.tuner",
    "Rows of 8,192. A reduction of 16 waves issues a few thousand instructions for all "
    "rows. Which number of waves do the predicted cycles prefer on sm_80?",
    prefers=lesson.choice("1", "8", "they cannot tell"),
)

# %% tuner
rows = predicted(8192, ["sm_80"])
cycles = {name: row["sm_80"] for name, row in rows.items()}
best = min(cycles, key=cycles.get)
close = max(cycles.values()) < 1.05 * min(cycles.values())
guess.reveal(
    prefers="they cannot tell" if close else "1" if best.startswith("1 ") else "8",
    because="memory is the largest bound for all of them, and it is the same.",
)
lesson.table(rows, first="rows of 8,192")

# %% [markdown] choosing
# What the bounds do not know: that one warp spills (section 4 showed it for `sm_90`), and what it costs to wait at a
# barrier. So ask the
# compiler for spills, and a chip for the rest. A *space* of configurations is made for each vendor, wide enough to hold
# the best one of each.
#
# With a real GPU the next cell times the rungs: operator by operator, and fused, each against PyTorch's own function
# and what `torch.compile` makes of it.


# %% race the rungs
def logsumexp_by_hand(x):
    m = x.max(dim=1).values
    return m + torch.exp(x - m[:, None]).sum(dim=1).log()


x = torch.randn(16_384 if torch.cuda.is_available() else 16, 1024)
lesson.table(
    lesson.raced(
        {"naive": logsumexp_by_hand, "fused": logsumexp},
        x,
        torch=lambda x: torch.logsumexp(x, dim=1),
        bytes=4 * x.numel(),
    ),
    first="rung",
)

# %% [markdown] summary
# ## Summary
#
# - Below about 20 FLOPs for each byte the bytes decide. Count how often each tensor is read and written; fuse until
#   each input is read once and each result written once. GELU: 18 to 2. Softmax: 8 to 2. Add and norm: 8 to 4.
# - A load is as wide as the compiler can prove: 16 divides the number in the mask, 16 bytes the address, and a lane
#   owns enough neighbours. Half of the warps on waves of 64.
# - Backward recomputes what registers can make again: activations, random numbers, probabilities.
# - Fill with the neutral element. `exp` gets only arguments that are zero or negative. Guard $-\infty$.
# - A reduction costs exchanges inside a wave and barriers between waves. A row in too few lanes spills, on 32 lanes
#   before 64.
# - Partial results can be merged: maximum and sum, count, mean and M. That makes one pass out of two.
# - Sums across programs: atomics (any order, other bits each time) or two passes (same bits).
# - The backward pass of a norm takes away from the gradient what the norm took away from x.
# - 64-bit offsets, padded vocabularies, labels that are ignored: the loss has them all.
# - Knobs are chosen for each vendor. `tl.range(..., num_stages)` costs shared memory on `sm_80` and registers on
#   `gfx942`; the launch option of that name moves only operands of `tl.dot`.
#
# ## Read next
#
# - [Triton tutorials](https://triton-lang.org/main/getting-started/tutorials/index.html): fused softmax, low-memory
#   dropout, layer norm.
# - [Liger-Kernel](https://github.com/linkedin/Liger-Kernel): the kernels of this unit as a library, for training.
# - [Online normalizer calculation for softmax](https://arxiv.org/abs/1805.02867), the merge of section 5.
# - [AMD, optimising Triton
#   kernels](https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/optimizing-triton-kernel.html):
#   `waves_per_eu`, `num_stages`, what to look for in the listing.
#
# ## Check yourself
#
# Answer first, then open.
#
# <details><summary>A kernel computes y = a × x + b for float32 vectors a, x, b. How many bytes for each element, fused
# and as two operators?</summary>
#
# Fused 16: three reads, one write. As two: 12 for the product, 12 for the sum, 24.
# </details>
#
# <details><summary>Your copy is fast with n = 1,000,000 and slow with n = 1,000,001. Why, and what is the
# cure?</summary>
#
# 1,000,000 is divisible by 16, so Triton knows that groups of neighbours share a mask. With the odd number each element
# is loaded under a mask of its own. Only the last program needs a mask.
# </details>
#
# <details><summary>A softmax over rows of 300 gives sums below 1 when all logits are negative. What is the
# mistake?</summary>
#
# The positions behind the row's end hold 0, not minus infinity, and count.
# </details>
#
# <details><summary>Which is deterministic: tl.sum in a program, atomics from many programs, a second kernel that adds
# up stored parts?</summary>
#
# The first and the third: their order is fixed by the program. Atomics arrive in any order.
# </details>
#
# <details><summary>dy of a layer norm's backward has all elements equal, and the weights are 1. What is
# dx?</summary>
#
# Zero: such a gradient points along the constant vector, which the norm takes away.
# </details>
#
# **You have** every memory-bound kernel of GPT-2 in parts. Now open [lab 04](../labs/04_triton_reductions.ipynb), write
# them, and train GPT-2 on them.

# %% fourth sitting ends
lesson.sitting("04", 4)
