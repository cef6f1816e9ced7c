# %% [markdown] top
# # Lab 04: kernels that memory decides
#
# **Ten exercises.** In each you write kernels and their launcher; three have a backward pass, and a fourth is one. The
# counters of lesson 04 decide: bytes moved, accesses, launches, conflicts, spills.
#
# - **Times**: part 1 takes about 55 minutes, part 2 about 60, part 3 about 95, part 4 about 60. Between the parts are
#   stops.
# - **First**: lesson 04. Everything that is asked here is explained there, or in the exercise.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it. A check runs
#   the public cases and three fresh ones, and says what differs. `hint("04.softmax")` gives three hints of growing
#   strength. `solution("04.softmax")` asks first.
#
# Limits and reports name counters. They count over all launches of a call:
#
# | counter | what it counts |
# |---|---|
# | `global_load_bytes`, `global_store_bytes` | bytes that lanes ask for; an element that two lanes load counts twice |
# | `global_moved_bytes` | bytes of whole transactions: 32 each on `sm_80`, 128 on `gfx942` |
# | `global_sectors_per_ideal` | transactions, over the fewest that the same bytes could need |
# | `global_lane_accesses` | lanes that loaded or stored, over all instructions |
# | `global_atomics` | lanes that added to memory by an atomic |
# | `scratch_bytes` | bytes that spilled registers move; PTX, which runs for `sm_80`, spills none |
# | `bank_conflicts` | passes of shared memory beyond the fewest |
# | `launches`, `blocks` | kernels launched, and their programs |
#
# `resources(compile_for(kernel, target, args))` shows widths and spills of a kernel before you check it.

# %% imports tags=["setup"]
import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils import check, compile_for, hint, progress, solution, virtual_gpu
from gpu_utils.lesson import resources

# %% [markdown] part one
# ## Part 1: element by element

# %% [markdown] statement of copy
# ## 04.copy: full width, whatever the length
#
# A copy has no arithmetic to hide behind: it is as fast as its loads and stores. Here is the kernel as one writes it
# first. It is right for every length. Run it, and look at what one element more does to it.


# %% the kernel as one writes it first
@triton.jit
def masked_copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


for n in (32768, 32769):
    x = torch.randn(n)
    for target in ("sm_80", "gfx942"):
        with virtual_gpu(target) as gpu:
            masked_copy_kernel[(17,)](x, torch.empty(n), n, BLOCK=2048)
        accesses = gpu.counters.totals()["global_lane_accesses"]
        print(f"{n} elements, {target}: {2 * 4 * n / accesses:.1f} bytes a lane")

# %% [markdown] the task of copy
# ### Repair it: 04.copy
#
# Write `copy(x)`, which launches a kernel of your own and keeps 16 bytes a lane for every length.
#
# | | |
# |---|---|
# | `x` | float32, float16 or bfloat16, shape (n,), contiguous, n from 0 up; perhaps a view such as `t[1:]` |
# | result | a new tensor with the shape, the dtype and the numbers of `x` |
#
# **Limits.** `launches`: two at most, one is enough. `global_load_bytes` and `global_store_bytes`: every element once.
# `global_lane_accesses`, the lanes that loaded or stored, summed over all instructions: 5 % above
# `2 * n * itemsize / 16`, plus 1,024 for the end, on both targets. This is asked for n from 16,384 up, where `x` begins
# at a multiple of 16 bytes. Elsewhere the result must be right, no more. `blocks`: far fewer programs than elements,
# and at least one for each 16,384 of them: a program runs on one SM or CU, and the others would be idle.
#
# **Two puzzles.** Which program needs the mask? And how large must BLOCK be, so that there *are* 16 bytes for each
# lane? A program has four waves when nobody says otherwise: 128 lanes on `sm_80`, 256 on `gfx942`.
#
# **A small example.** With BLOCK = 8 and n = 19, programs 0 and 1 have whole blocks, and program 2 has 3 elements.
# `hint("04.copy")` gives three hints.


# %% 04.copy tags=["answer", "04.copy"]
@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    # BEGIN SOLUTION
    first = tl.program_id(0) * BLOCK
    offsets = first + tl.arange(0, BLOCK)
    if first + BLOCK <= n:
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))
    else:
        mask = offsets < n
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)
    # END SOLUTION


def copy(x: Tensor) -> Tensor:
    """A copy of the contiguous vector x, moved in accesses of 16 bytes a lane."""
    # BEGIN SOLUTION
    out = torch.empty_like(x)
    n = x.numel()
    copy_kernel[(triton.cdiv(n, 4096),)](x, out, n, BLOCK=4096)
    return out
    # END SOLUTION


# %% tags=["check"]
check("04.copy")

# %% [markdown] why copy
# **Why it matters.** The vocabulary of GPT-2 has 50,257 entries, an odd number; sequence lengths are what users type.
# A kernel that is tuned on powers of two loses most of its memory instructions' width on such sizes, silently: the
# result is right and the bytes are the same. The remedy costs one comparison for each program. Where you own the
# data, there is another one: pad the rows to a multiple of 16 bytes, as nanoGPT does with a vocabulary of 50,304.

# %% [markdown] statement of gelu
# ## 04.gelu: forward, backward, and nothing kept but x
#
# GPT-2's activation, with $u = \sqrt{2/\pi}\,(x + 0.044715\,x^3)$:
#
# $$ y = \frac{x}{2}\,(1 + \tanh u) = x \cdot \sigma(2u), \qquad \sigma(v) = \frac{1}{1 + e^{-v}} $$
#
# Write `gelu(x)`, which autograd can go through: a `torch.autograd.Function` whose `forward` launches one kernel and
# whose `backward` launches another. The derivative of $x \cdot \sigma(2u)$ is yours to work out, on paper.
#
# | | |
# |---|---|
# | `x` | float32, float16 or bfloat16, shape (rows, cols), contiguous |
# | `dy`, which `backward` gets | shape and dtype of `x`, **any strides**: a transpose, or one number expanded (0, 0) |
# | result of `gelu` | `y`: shape and dtype of `x` |
# | result of `backward` | `dx`: shape and dtype of `x` |
#
# **Limits.** `launches`: one each way. `global_load_bytes`: x, and then x and dy, once each. `global_store_bytes`: y
# and dx. So tanh u is not stored for the backward pass, and dy is not copied. `blocks`: far fewer programs than
# elements, and both launches together at least one for each 8,192. Arithmetic is in float32, whatever x is.
#
# **What to watch.** For x = 20 is $e^{2u}$ larger than float32 can hold. A tanh made of
# $(e^{2u} - 1) / (e^{2u} + 1)$ is infinity over infinity there.
#
# **Triton that helps.** `tl.sigmoid`; `.to(tl.float32)`. `tl.store` converts to the type of its pointer.
#
# **A small example.** gelu(1) = 0.8412, and its derivative there is 1.0830. `hint("04.gelu")` gives three hints.


# %% 04.gelu tags=["answer", "04.gelu"]
@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    # BEGIN SOLUTION
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(y_ptr + offsets, x * tl.sigmoid(2 * u), mask=mask)
    # END SOLUTION


@triton.jit
def gelu_backward_kernel(
    x_ptr, dy_ptr, dx_ptr, n, cols, stride_row, stride_col, BLOCK: tl.constexpr
):
    # BEGIN SOLUTION
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    dy_at = offsets // cols * stride_row + offsets % cols * stride_col
    dy = tl.load(dy_ptr + dy_at, mask=mask).to(tl.float32)
    gate = tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    slope = 1.5957691216057308 * (1 + 0.134145 * x * x)
    dx = dy * (gate + x * gate * (1 - gate) * slope)
    tl.store(dx_ptr + offsets, dx, mask=mask)
    # END SOLUTION


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        # BEGIN SOLUTION
        ctx.save_for_backward(x)
        y, n = torch.empty_like(x), x.numel()
        gelu_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
        return y
        # END SOLUTION

    @staticmethod
    def backward(ctx, dy: Tensor) -> Tensor:
        # BEGIN SOLUTION
        (x,) = ctx.saved_tensors
        dx, n = torch.empty_like(x), x.numel()
        grid = (triton.cdiv(n, 1024),)
        gelu_backward_kernel[grid](
            x, dy, dx, n, x.shape[1], dy.stride(0), dy.stride(1), BLOCK=1024
        )
        return dx
        # END SOLUTION


def gelu(x: Tensor) -> Tensor:
    """GPT-2's GELU (with tanh) of each element of x, for autograd to go through."""
    # BEGIN SOLUTION
    return Gelu.apply(x)
    # END SOLUTION


# %% tags=["check"]
check("04.gelu")

# %% [markdown] why gelu
# **Why it matters.** Lesson 01 counted about ten FLOPs for 8 bytes: GELU waits for memory. Written out in torch's
# operations it is eight kernels, and each moves all of x; fusing them is what `torch.compile` does first. Working
# values out again, instead of keeping them, is the other half of it: it saves bytes here, and memory for activations in
# a whole model.

# %% [markdown] statement of dropout
# ## 04.dropout: a mask that nobody stores
#
# In training, dropout sets each element to zero with probability $p$ and makes up for it where an element is kept:
#
# $$ y_i = \begin{cases} x_i / (1 - p) & \text{kept, with probability } 1 - p \\ 0 & \text{dropped} \end{cases} $$
#
# Backward does the same to `dy`, with the same mask. Keeping the mask for it costs a byte for each element, written and
# read again. There is a way without: `tl.rand(seed, offsets)` gives numbers in [0, 1) and has no state. The same seed
# and the same offset give the same number, in any launch.
#
# Write `dropout(x, p, seed)`, for autograd to go through.
#
# | | |
# |---|---|
# | `x` | float32, float16 or bfloat16, shape (rows, cols), contiguous |
# | `p` | float from 0 to 1, **both included** |
# | `seed` | int from 0 to 2^31 - 1 |
# | `dy`, which `backward` gets | shape and dtype of `x`, contiguous |
# | result of `dropout` | `y`: shape and dtype of `x` |
# | result of `backward` | `dx`: shape and dtype of `x`; `p` and `seed` have no gradient: `return dx, None, None` |
#
# **What decides.** Many draws are right, so properties are checked: every element is 0 or $x / (1 - p)$; the share that
# is kept fits p; no two places are always kept or dropped together; the same seed gives the same mask, and another
# seed one that has nothing to do with it; dx is 0 exactly where y is.
#
# **Limits**, over three calls forward and one backward: four launches; `global_load_bytes` and `global_store_bytes`,
# each one tensor a launch; `blocks`, far fewer programs than elements, and in each launch at least one for each 16,384.
# So no mask is stored, and y is not read to find it again.
#
# **A small example.** x = (1, 2, 3) and p = 0.5 give one of eight results, such as (2, 0, 6); p = 0 gives x, p = 1
# zeros. `hint("04.dropout")` gives three hints.


# %% 04.dropout tags=["answer", "04.dropout"]
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, seed, BLOCK: tl.constexpr):
    # BEGIN SOLUTION
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    keep = tl.rand(seed, offsets) >= p
    tl.store(y_ptr + offsets, tl.where(keep, x / (1 - p), 0.0), mask=mask)
    # END SOLUTION


class Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, p: float, seed: int) -> Tensor:
        # BEGIN SOLUTION
        ctx.p, ctx.seed = p, seed
        y, n = torch.empty_like(x), x.numel()
        dropout_kernel[(triton.cdiv(n, 1024),)](x, y, n, p, seed, BLOCK=1024)
        return y
        # END SOLUTION

    @staticmethod
    def backward(ctx, dy: Tensor) -> tuple[Tensor, None, None]:
        # BEGIN SOLUTION
        dx, n = torch.empty_like(dy), dy.numel()
        grid = (triton.cdiv(n, 1024),)
        dropout_kernel[grid](dy, dx, n, ctx.p, ctx.seed, BLOCK=1024)
        return dx, None, None
        # END SOLUTION


def dropout(x: Tensor, p: float, seed: int) -> Tensor:
    """x with a share p of its elements zero and the others scaled by 1 / (1 - p)."""
    # BEGIN SOLUTION
    return Dropout.apply(x, p, seed)
    # END SOLUTION


# %% tags=["check"]
check("04.dropout")

# %% [markdown] why dropout
# **Why it matters.** A mask of one byte for each element of every attention matrix is what made dropout dear in memory;
# fused attention kernels draw it again in the backward pass, as yours does. The slip to remember is the offset: numbers
# that repeat from program to program look random in every test of a single block, and a network trains with them, a
# little worse.

# %% [markdown] part two
# **Stop here**, if you like: element by element is done, forward and backward. What comes has a row for each program,
# and takes about 60 minutes.
#
# ## Part 2: a row for each program

# %% [markdown] statement of softmax
# ## 04.softmax: each row once in, once out
#
# Write `softmax(x)`, over the last dimension of a matrix of any strides, as one launch of one kernel:
#
# $$ p_{r,c} = \frac{e^{x_{r,c} - m_r}}{\sum_j e^{x_{r,j} - m_r}}, \qquad m_r = \max_j x_{r,j} $$
#
# | | |
# |---|---|
# | `x` | float32, float16 or bfloat16, shape (rows, columns), both at least 1; any row stride, any column stride |
# | its values | any finite ones, -10,000 and 10,000 too; also `-inf`, but never a whole row of it |
# | `columns` | 1 to 4,096, mostly no power of two |
# | result | shape (rows, columns), contiguous, dtype of `x`; computed in float32 |
#
# **Limits.** `launches`: 1. `global_load_bytes` and `global_store_bytes`: each element once, 5% more at most (counted
# where a row has 1,000 elements or more, so that no lane is without one). `global_moved_bytes`: where rows start at
# multiples of 128 bytes, 2 x the bytes of `x`, 5% more at most. `scratch_bytes`: 0, nothing spills. A copy of `x` by
# torch, `x.contiguous()`, is a second kernel that moves everything once more; it is refused.
#
# **A small example.** The row (1, 1 + ln 3) has m = 1 + ln 3; the exponentials are 1/3 and 1, their sum is 4/3, and the
# result is (0.25, 0.75). A block for a row of three elements has four lanes. What must the fourth one hold, so that
# neither `m` nor the sum changes, for the row (-200, -201, -202) as well?
#
# **Triton that helps.** `tl.max(x, 0)`, `tl.sum(x, 0)`, `tl.exp` (float32 only), `triton.next_power_of_2`. `tl.store`
# converts to the type of the pointer. Lesson 04, sitting *A row for each program*. `hint("04.softmax")` gives three
# hints.


# %% 04.softmax tags=["answer", "04.softmax"]
@triton.jit
def softmax_kernel(
    x_ptr, out_ptr, columns, stride_row, stride_column, BLOCK: tl.constexpr
):
    # BEGIN SOLUTION
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < columns
    at = x_ptr + row * stride_row + cols * stride_column
    x = tl.load(at, mask=mask, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * columns + cols, e / tl.sum(e, 0), mask=mask)
    # END SOLUTION


def softmax(x: Tensor) -> Tensor:
    """Softmax of each row of x (rows, columns); contiguous, in the dtype of x."""
    # BEGIN SOLUTION
    rows, columns = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(columns)
    softmax_kernel[(rows,)](x, out, columns, *x.stride(), BLOCK=block)
    return out
    # END SOLUTION


# %% tags=["check"]
check("04.softmax")

# %% [markdown] why softmax
# **Why it matters.** A softmax made of five operations of torch reads and writes its matrix again and again; yours
# moves 2 bytes for each byte of `x`, and no kernel can do with less. The order is the one of every kernel of this part:
# load a row, reduce it, use it while it is still in registers. Where a row is too long for that, maximum and sum must
# be merged block by block: 04.cross_entropy, and attention in unit 06.

# %% [markdown] statement of rmsnorm
# ## 04.rmsnorm: a sum and its norm, in one launch
#
# Between two layers of a model of Llama's kind stand two operations: the output `x` of a layer is added to the residual
# stream, and the sum is normalised for the next layer. Write `rmsnorm(x, residual, weight, eps)`, one launch that does
# both and returns `(y, h)`:
#
# $$ h_{r,c} = x_{r,c} + \text{residual}_{r,c}, \qquad
# y_{r,c} = \frac{h_{r,c}}{\sqrt{\frac{1}{\text{columns}} \sum_j h_{r,j}^2 + \text{eps}}} \cdot \text{weight}_c $$
#
# | | |
# |---|---|
# | `x`, `residual` | float32, float16 or bfloat16, both of shape (rows, columns), 1 to 4,096 columns |
# | their strides | each has a row stride of its own; the columns of a row lie side by side |
# | `weight` | dtype of `x`, shape (columns,), contiguous |
# | `eps` | float, above 0 |
# | result | two new tensors, contiguous, dtype and shape of `x`: `y`, then `h`; the inputs stay as they are |
#
# All arithmetic is in float32. `h` is rounded once, when it is stored. `y` is best computed from the float32 sum: from
# the stored one it is off by one rounding to the dtype of `x`, and both are accepted.
#
# **Limits.** `launches`: 1. With B the bytes of `x`, and 5% more at most: `global_load_bytes` 3 B: `x`, the
# residual, and the weight, which each row loads anew; `global_store_bytes` 2 B (both from 1,000 columns on).
# `global_moved_bytes`: 5 B where rows start at multiples of 128 bytes. `scratch_bytes`: 0. torch may not add.
#
# **A small example.** x = (1, 5), residual = (2, -1), so h = (3, 4). The mean of squares is 12.5. With a tiny eps and
# weight (1, 2), y = (3, 8) / 3.5355 = (0.849, 2.263). The largest float16 is 65,504, so from 256 on the
# square of h would be too large.
#
# **Triton that helps.** `tl.sqrt` (float32) or `tl.rsqrt`; a number like `eps` is passed to the kernel as it is.
# Lesson 04, sitting *A row for each program*. `hint("04.rmsnorm")` gives three hints.


# %% 04.rmsnorm tags=["answer", "04.rmsnorm"]
@triton.jit
def rmsnorm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    y_ptr,
    h_ptr,
    columns,
    x_stride,
    residual_stride,
    eps,
    BLOCK: tl.constexpr,
):
    # BEGIN SOLUTION
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < columns
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0)
    at = residual_ptr + row * residual_stride + cols
    residual = tl.load(at, mask=mask, other=0.0)
    weight = tl.load(weight_ptr + cols, mask=mask)
    h = x.to(tl.float32) + residual.to(tl.float32)
    size = tl.sqrt(tl.sum(h * h, 0) / columns + eps)
    tl.store(h_ptr + row * columns + cols, h, mask=mask)
    tl.store(y_ptr + row * columns + cols, h / size * weight, mask=mask)
    # END SOLUTION


def rmsnorm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """(y, h): h = x + residual, y = h over the root of its mean square, times weight."""
    # BEGIN SOLUTION
    rows, columns = x.shape
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    h = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    strides = x.stride(0), residual.stride(0)
    block = triton.next_power_of_2(columns)
    rmsnorm_kernel[(rows,)](
        x, residual, weight, y, h, columns, *strides, eps, BLOCK=block
    )
    return y, h
    # END SOLUTION


# %% tags=["check"]
check("04.rmsnorm")

# %% [markdown] why rmsnorm
# **Why it matters.** Apart they are an addition (two reads, one write) and a norm (a read and a write): 5 units of
# traffic. Together it is 4, and one launch in place of two, at each of the two norms of each layer, for each token that
# is generated. Inference engines hold exactly this kernel. Note the question that fusing brings up: what the sum is
# stored as, and what `y` is made of, need not be the same.

# %% [markdown] statement of layernorm
# ## 04.layernorm: statistics that stand a large mean
#
# Write `layernorm(x, weight, bias, eps)`, which returns `(y, mean, rstd)`, in one launch:
#
# $$ \mu_r = \frac{1}{n} \sum_c x_{r,c}, \qquad v_r = \frac{1}{n} \sum_c (x_{r,c} - \mu_r)^2, \qquad
# \rho_r = \frac{1}{\sqrt{v_r + \text{eps}}}, \qquad
# y_{r,c} = (x_{r,c} - \mu_r) \, \rho_r \, w_c + b_c $$
#
# | | |
# |---|---|
# | `x` | float32, float16 or bfloat16, shape (rows, n), at least 1 x 1, rows of any length |
# | its strides | any row stride; the columns of a row lie side by side |
# | `weight`, `bias` | dtype of `x`, shape (n,), contiguous: $w$ and $b$ |
# | `eps` | float, above 0 |
# | `y` | new, contiguous, shape and dtype of `x` |
# | `mean`, `rstd` | $\mu$ and $\rho$: float32 whatever the dtype of `x`, shape (rows,), for the backward pass |
#
# All arithmetic is in float32. Rows may have a mean of 10,000 and a spread of 1, and rows may be constant.
#
# **Limits.** `launches`: 1. `global_load_bytes`: with B the bytes of `x`, 4 B and 5% more (from 700 columns on): weight
# and bias are loaded for each row, so **`x` can be loaded twice, and not three times**. `scratch_bytes`: 0, also for a
# row of 40,001 elements.
#
# One block that holds a row needs one load. But 40,001 elements do not fit into the registers of a program: on `gfx942`
# such a kernel spills with 4, 8 and 16 warps. (`scratch_bytes` says so there alone: PTX, which runs for `sm_80`, has
# registers without end.) So walk along the row in blocks, say of 1,024: one walk for *both* statistics, and one for
# `y`. Then a row can have any length. How does one get a variance in one walk? The formula
# $\overline{x^2} - \mu^2$ does not stand a mean of 10,000. Think of two parts of a row, of which you know number, mean,
# and sum of squared differences to their own mean. What are the three of both parts together?
#
# **A small example.** Row (1, 3, 8), weight 1, bias 0, a tiny eps: mean 4, variance (9 + 1 + 16) / 3 = 8.667, rstd
# 0.3397, y = (-1.019, -0.340, 1.359). In parts: (1, 3) has the mean 2 and the sum of squares 2; (8) has 8 and 0.
# Together it is 26, so 24 come from the distance of the two means, 6, and from the numbers of elements, 2 and 1.
#
# **Triton that helps.** `for first in range(0, columns, BLOCK)`, `tl.minimum`, `tl.where`; a number that a loop changes
# has the type of its first value, so begin with a float. Lesson 04, sitting *A row for each program*.
# `hint("04.layernorm")` gives three hints.


# %% 04.layernorm tags=["answer", "04.layernorm"]
@triton.jit
def layernorm_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    columns,
    x_stride,
    eps,
    BLOCK: tl.constexpr,
):
    # BEGIN SOLUTION
    row = tl.program_id(0)
    mean, squares = 0.0, 0.0
    for first in range(0, columns, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        mask = cols < columns
        x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0)
        x = x.to(tl.float32)
        count = tl.minimum(columns - first, BLOCK)
        of_block = tl.sum(x, 0) / count
        off = tl.where(mask, x - of_block, 0.0)
        moved = of_block - mean
        share = count / (first + count)
        mean += moved * share
        squares += tl.sum(off * off, 0) + moved * moved * first * share
    rstd = 1 / tl.sqrt(squares / columns + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, columns, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < columns
        x = tl.load(x_ptr + row * x_stride + cols, mask=mask).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=mask)
        bias = tl.load(bias_ptr + cols, mask=mask)
        y = (x - mean) * rstd * weight + bias
        tl.store(y_ptr + row * columns + cols, y, mask=mask)
    # END SOLUTION


def layernorm(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(y, mean, rstd) of the rows of x; mean and rstd are float32, shape (rows,)."""
    # BEGIN SOLUTION
    rows, columns = x.shape
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    mean = torch.empty(rows, dtype=torch.float32, device=x.device)
    rstd = torch.empty(rows, dtype=torch.float32, device=x.device)
    layernorm_kernel[(rows,)](
        x, weight, bias, y, mean, rstd, columns, x.stride(0), eps, BLOCK=1024
    )
    return y, mean, rstd
    # END SOLUTION


# %% tags=["check"]
check("04.layernorm")

# %% [markdown] why layernorm
# **Why it matters.** This is the layer norm of your GPT-2, 25 of them in the small model; at the end of this unit it
# runs on your kernel. Merging (number, mean, sum of squared differences) is the pattern of every statistic that must be
# found in one walk or by many workers, and the online softmax is the same idea with (maximum, sum).

# %% [markdown] part three
# **Stop here**, if you like: softmax and both norms are yours. What comes has sums over rows and programs that share
# them, and takes about 95 minutes.
#
# ## Part 3: across rows and tiles

# %% [markdown] statement of sum_of_columns
# ## 04.sum_of_columns: many programs, one result
#
# $$ \text{out}_c = \sum_r x_{r,c} $$
#
# A matrix of many rows and few columns. One program for each block of columns would leave a chip nearly empty, so the
# rows are shared out, and several programs hold a part of the same sum. There are two ways to bring the parts together.
#
# | | |
# |---|---|
# | `x` | float32, float16 or bfloat16, shape (rows, columns), rows may be 0; any strides: views, a transpose |
# | `deterministic` | `False`: add to the result with atomics, in one launch. `True`: the same bits in every run |
# | result | float32, shape (columns,); all sums are made in float32 |
#
# With `deterministic=True` the check calls you twice, the second time with the programs in another order, and compares
# the bits. A float sum rounds after each step, so atomics do not pass. Two passes do: each program of the first stores
# its part, and a second launch adds the parts up in an order that you choose.
#
# **Limits.** A program adds up 16 to 256 rows of `x`. `blocks`: between one for 256 rows and one for 16 rows of 32
# columns.
# `global_atomics`, `global_store_bytes`: what the programs hand on is at most 1/16 of the elements of `x`.
# `global_load_bytes`: for whole tiles at most 1.25 times `x`. Two things break that: reading `x` twice, and a tile with
# fewer elements than the program has lanes (128 on `sm_80`, 256 on `gfx942`, with four waves), where several lanes load
# the same element. `num_warps=1` is allowed. `global_sectors_per_ideal`: neighbouring lanes read neighbours in a row.
#
# **A small example.** x = ((1, 2), (3, 4), (5, 6)) gives (9, 12). With two rows to a program the parts are (4, 6) and
# (5, 6).
#
# **Triton that helps.** `tl.atomic_add(pointers, values, mask=...)` adds to what is there. `tl.program_id(0)` and
# `tl.program_id(1)` of a grid of two dimensions. `tl.sum(tile, axis=0)` adds up along the rows of a tile.
# `hint("04.sum_of_columns")` gives three hints.


# %% 04.sum_of_columns tags=["answer", "04.sum_of_columns"]
@triton.jit
def column_sums_kernel(
    x_ptr,
    out_ptr,
    n_rows,
    n_cols,
    stride_m,
    stride_n,
    rows_each,
    ATOMIC: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    # BEGIN SOLUTION
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    first = tl.program_id(0) * rows_each
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(first, first + rows_each, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        at = rows[:, None] * stride_m + cols[None, :] * stride_n
        total += tl.load(x_ptr + at, mask=mask, other=0.0)
    sums = tl.sum(total, axis=0)
    if ATOMIC:
        tl.atomic_add(out_ptr + cols, sums, mask=cols < n_cols)
    else:
        part = out_ptr + tl.program_id(0) * n_cols
        tl.store(part + cols, sums, mask=cols < n_cols)
    # END SOLUTION


def sum_of_columns(x: Tensor, deterministic: bool) -> Tensor:
    """The sum of each column, in float32; with `deterministic` the same bits each time."""
    # BEGIN SOLUTION
    n_rows, n_cols = x.shape
    out = torch.zeros(n_cols, device=x.device)
    tile = {"BLOCK_M": 16, "BLOCK_N": 64}
    parts, blocks = triton.cdiv(n_rows, 64), triton.cdiv(n_cols, 64)
    partial = out
    if deterministic:
        partial = torch.empty(parts, n_cols, device=x.device)
    column_sums_kernel[(parts, blocks)](
        x, partial, n_rows, n_cols, *x.stride(), 64, ATOMIC=not deterministic, **tile
    )
    if deterministic:
        column_sums_kernel[(1, blocks)](
            partial, out, parts, n_cols, n_cols, 1, parts, ATOMIC=False, **tile
        )
    return out
    # END SOLUTION


# %% tags=["check"]
check("04.sum_of_columns")

# %% [markdown] why sum_of_columns
# **Why it matters.** Every gradient of a bias, of a scale, of an embedding is a sum that many programs share. Atomics
# are one launch and little code; the bits of the result then change from run to run, and so does, in the end, a
# training run that somebody wants to repeat. PyTorch has the second way behind
# `torch.use_deterministic_algorithms(True)`.

# %% [markdown] statement of layernorm_backward
# ## 04.layernorm_backward: a row's gradient, and two sums over all rows
#
# LayerNorm is $y = w \hat x + b$ with $\hat x = (x - \mu)\,r$, where $\mu$ (`mean`) and $r$ (`rstd`) are one number for
# each row. Given the gradient `dy` of y, with $g = w \cdot dy$ and means over the columns of a row:
#
# $$ c_1 = \text{mean}(g\,\hat x), \qquad c_2 = \text{mean}(g), \qquad dx = (g - \hat x\,c_1 - c_2)\,r $$
#
# $$ dw = \sum_{\text{rows}} dy\,\hat x, \qquad db = \sum_{\text{rows}} dy $$
#
# | | |
# |---|---|
# | `dy`, `x` | float32, float16 or bfloat16, shape (rows, columns); columns have stride 1, rows any stride, also 0 |
# | `weight` | the type of `x`, shape (columns,), at most 1,024 of them: a row fits in one block |
# | `mean`, `rstd` | float32, shape (rows,), as the forward pass saved them |
# | result | `(dx, dw, db)`, contiguous, in the type of `x`; everything is summed in float32 |
#
# dx needs its own row alone. dw and db are column sums, which all programs share: the puzzle of the last exercise.
# Either way will do, but no program may load, add and store where another one does: the virtual GPU reports the race.
#
# **Limits.** A program takes 8 to 32 rows. So `blocks`, the programs of all launches together, are at least rows / 32,
# and `global_atomics` at most one for each column of dw and of db and each 8 rows. `launches`: at most 3.
# `global_moved_bytes`: with 1,024 columns at most 1.4 times the bytes of `x`, `dy` and `dx`. So `x` and `dy` are read
# once, for dx *and* for the sums, `weight` is read once for each program, and the parts of dw and db are few.
# `scratch_bytes`: no spills. Where parts are added up, a program takes 16 columns or more (`blocks`). torch may make
# tensors and convert them, and not add.
#
# **A small example.** One row: x = (1, 1, 3, 3), mean 2, rstd 1, so xhat = (-1, -1, 1, 1). With w = 1 and
# dy = (1, 0, 0, 0): c1 = -1/4, c2 = 1/4, dx = (1/2, -1/2, 0, 0); dw = (-1, 0, 0, 0), db = (1, 0, 0, 0). The sum of dx
# is 0, and so is the sum of dx times xhat: why must both be?
#
# **Triton that helps.** A loop over rows with sums in registers: `dw = tl.zeros([BLOCK], tl.float32)`, `dw += ...`. The
# end of a program's rows is `tl.minimum(first + rows_each, n_rows)`. `hint("04.layernorm_backward")` gives three hints.


# %% 04.layernorm_backward tags=["answer", "04.layernorm_backward"]
@triton.jit
def layernorm_backward_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    dw_parts_ptr,
    db_parts_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_x,
    rows_each,
    BLOCK: tl.constexpr,
):
    # BEGIN SOLUTION
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    dw = tl.zeros([BLOCK], tl.float32)
    db = tl.zeros([BLOCK], tl.float32)
    first = tl.program_id(0) * rows_each
    for row in range(first, tl.minimum(first + rows_each, n_rows)):
        x = tl.load(x_ptr + row * stride_x + cols, mask=mask, other=0.0)
        dy = tl.load(dy_ptr + row * stride_dy + cols, mask=mask, other=0.0)
        dy = dy.to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        xhat = (x.to(tl.float32) - tl.load(mean_ptr + row)) * rstd
        g = weight * dy
        c1 = tl.sum(xhat * g, axis=0) / n_cols
        c2 = tl.sum(g, axis=0) / n_cols
        tl.store(dx_ptr + row * n_cols + cols, (g - xhat * c1 - c2) * rstd, mask=mask)
        dw += dy * xhat
        db += dy
    part = tl.program_id(0) * n_cols + cols
    tl.store(dw_parts_ptr + part, dw, mask=mask)
    tl.store(db_parts_ptr + part, db, mask=mask)
    # END SOLUTION


@triton.jit
def add_parts_kernel(parts_ptr, out_ptr, n_parts, n_cols, BLOCK: tl.constexpr):
    # BEGIN SOLUTION
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    total = tl.zeros([BLOCK], tl.float32)
    for part in range(n_parts):
        total += tl.load(parts_ptr + part * n_cols + cols, mask=mask, other=0.0)
    tl.store(out_ptr + cols, total, mask=mask)
    # END SOLUTION


def layernorm_backward(
    dy: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """(dx, dw, db) of LayerNorm, in the type of x; x and dy are read once."""
    # BEGIN SOLUTION
    n_rows, n_cols = x.shape
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_parts = triton.cdiv(n_rows, 16)
    dw_parts = torch.empty(n_parts, n_cols, device=x.device)
    db_parts = torch.empty_like(dw_parts)
    sizes = (n_rows, n_cols, dy.stride(0), x.stride(0), 16)
    layernorm_backward_kernel[(n_parts,)](
        *(dy, x, weight, mean, rstd, dx, dw_parts, db_parts, *sizes),
        BLOCK=triton.next_power_of_2(n_cols),
    )
    dw, db = torch.empty_like(weight), torch.empty_like(weight)
    grid = (triton.cdiv(n_cols, 256),)
    add_parts_kernel[grid](dw_parts, dw, n_parts, n_cols, BLOCK=256)
    add_parts_kernel[grid](db_parts, db, n_parts, n_cols, BLOCK=256)
    return dx, dw, db
    # END SOLUTION


# %% tags=["check"]
check("04.layernorm_backward")

# %% [markdown] why layernorm_backward
# **Why it matters.** A backward pass of a fused kernel mostly has this shape: something for each row, and gradients of
# parameters that all rows share. Reading `x` and `dy` once for both is what fusing it is worth. Note what the layout of
# the work decides: as many rows to a program as the chip can spare programs for, so that the parts are few.

# %% [markdown] statement of transpose
# ## 04.transpose: along rows, and along columns
#
# $$ \text{out}_{b,c,r} = x_{b,r,c} $$
#
# Nothing is computed; every element moves. Loads want to go along rows of `x`, and stores along rows of the result,
# which are columns of `x`. A program that takes one row stores each element into a transaction of its own.
#
# | | |
# |---|---|
# | `x` | float32, float16 or bfloat16, shape (batch, rows, columns), any strides |
# | result | the type of `x`, shape (batch, columns, rows), contiguous: a view of `x` is no answer |
#
# **Limits**, where rows and columns are multiples of 64. `global_moved_bytes`: each element is read once and written
# once, in whole transactions, on both targets. A transaction has 32 bytes on `sm_80` and 128 on `gfx942`, and an
# element 4 or 2. `launches`: one, for the whole batch. `blocks`: 64 elements to a program, or more.
# `bank_conflicts`: at most 1 for each 4 elements; Triton's own layouts stay below, and have none on `sm_80`.
#
# **A small example.** x = (((1, 2, 3), (4, 5, 6)),), one matrix of two rows, gives (((1, 4), (2, 5), (3, 6)),).
#
# **Triton that helps.** Offsets of two dimensions, `rows[:, None]` and `cols[None, :]`. `tl.trans(tile)` turns a tile
# of shape (M, N) into one of (N, M). A grid has up to three dimensions. `hint("04.transpose")` gives three hints.


# %% 04.transpose tags=["answer", "04.transpose"]
@triton.jit
def transpose_kernel(
    x_ptr,
    out_ptr,
    n_rows,
    n_cols,
    stride_b,
    stride_m,
    stride_n,
    TILE: tl.constexpr,
):
    # BEGIN SOLUTION
    cols = tl.program_id(0) * TILE + tl.arange(0, TILE)
    rows = tl.program_id(1) * TILE + tl.arange(0, TILE)
    x_ptr += tl.program_id(2) * stride_b
    out_ptr += tl.program_id(2) * n_rows * n_cols
    at = rows[:, None] * stride_m + cols[None, :] * stride_n
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    tile = tl.trans(tl.load(x_ptr + at, mask=mask))
    place = cols[:, None] * n_rows + rows[None, :]
    tl.store(out_ptr + place, tile, mask=tl.trans(mask))
    # END SOLUTION


def transpose(x: Tensor) -> Tensor:
    """Rows and columns of each matrix exchanged, in memory."""
    # BEGIN SOLUTION
    batch, n_rows, n_cols = x.shape
    out = torch.empty(batch, n_cols, n_rows, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(n_cols, 64), triton.cdiv(n_rows, 64), batch)
    transpose_kernel[grid](x, out, n_rows, n_cols, *x.stride(), TILE=64)
    return out
    # END SOLUTION


# %% tags=["check"]
check("04.transpose")

# %% [markdown] why transpose
# **Why it matters.** Heads of attention, weights for another library, channels first or last: much of what is called
# glue is a transpose. In Triton you choose the tile, and the compiler does the rest: it gives the load and the store
# distributions of their own and brings the tile from one to the other through shared memory, which in 02.transpose was
# your work. It is not always as good: on `gfx942` each tile here that moves whole transactions waits for banks, and in
# 02.transpose none did. Gluon, Triton's lower level, lets you choose the layout of shared memory.

# %% [markdown] part four
# **Stop here**, if you like: all but the loss is written. It has three kernels, and takes about 60 minutes.
#
# ## Part 4: the loss

# %% [markdown] statement of cross_entropy
# ## 04.cross_entropy: the loss, block by block
#
# The logits are the largest tensor of GPT-2's training step: 8 sequences of 1,024 tokens, 50,257 logits each, make
# 1.65 GB in float32. Softmax, logarithm, choice and mean as operations of torch carry tensors of that size to memory
# and back several times. Write `cross_entropy(logits, targets, ignore_index)`, a function that autograd can go through:
#
# $$ \mathrm{loss} = \frac{1}{N} \sum_{r \text{ counts}} \big( \mathrm{lse}_r - x_{r, t_r} \big), \qquad
# \mathrm{lse}_r = \ln \sum_c e^{x_{r,c}}, \qquad
# \frac{\partial\,\mathrm{loss}}{\partial x_{r,c}} = \frac{1}{N} \big( e^{x_{r,c} - \mathrm{lse}_r} - [c = t_r] \big) $$
#
# A row counts where its label $t_r$ is not `ignore_index`; $N$ is how many do. Other rows have no loss and gradient 0.
#
# | | |
# |---|---|
# | `logits` | float32, float16 or bfloat16, shape (rows, vocabulary) |
# | their strides | of a row: the vocabulary or more, also 2^30; of a column: 1 |
# | their values | any finite ones, -10,000 and 10,000 too; also `-inf`, for whole blocks, but never a whole row |
# | `targets` | int64, shape (rows,), contiguous: tokens, or `ignore_index` |
# | `ignore_index` | a number, by default -100; it may be a token of the vocabulary, too |
# | result | float32, shape (): the mean. Where no row counts it is 0 / 0 = NaN and all gradients are 0, as in torch |
# | gradient | shape and dtype of `logits`, a new tensor; times the gradient from above, a tensor of shape () |
#
# The arithmetic is float32. Rows lie further apart than they are long where the vocabulary is padded: 50,304 =
# 393 x 128 logits for GPT-2's 50,257 tokens make whole tiles for the matrix product, and `logits[:, :50257]` counts.
#
# **Limits.** The kernels do all the work, the mean too: torch only makes tensors. `launches`: 4 at most.
# `global_store_bytes`: only the gradient is as large as the logits, and it is written once; 64 bytes a row are left for
# other numbers. `global_moved_bytes`: logits read in the forward pass, read in the backward pass, gradient written: 3 x
# their bytes, 3.4 x at most. `scratch_bytes`: 0. So the forward pass reads the logits once: maximum and sum in one
# walk. What do you do when a block brings a higher peak than all before?
#
# **A small example.** Rows (0, ln 3), (5, 5), (0, ln 3) with labels 1, -100, 0. Their losses are ln(4/3), none and
# ln 4, the mean is 0.837; the gradient is (0.125, -0.125), (0, 0), (-0.375, 0.375). Then work out on paper what your
# loop does with a first block of `-inf` only, and what your gradient is where N is 0.
#
# **Triton that helps.** `tl.max`, `tl.sum`, `tl.exp`, `tl.log`, `tl.where`, `tl.maximum`; a number that one kernel
# leaves for another is a tensor of one element, loaded by its pointer. `ctx.save_for_backward` keeps tensors for the
# backward pass, which returns one gradient for each argument of `apply`, None for those that have none. Lesson 04,
# sections 5, *A row that does not fit: merging*, and 9, *The loss*. `hint("04.cross_entropy")` gives three hints.


# %% 04.cross_entropy tags=["answer", "04.cross_entropy"]
@triton.jit
def row_kernel(
    logits_ptr,
    targets_ptr,
    losses_ptr,
    lse_ptr,
    n_cols,
    stride,
    ignore_index,
    BLOCK: tl.constexpr,
):
    # BEGIN SOLUTION
    row = tl.program_id(0)
    # 8,192 x 50,257 fits 32 bits; 65,536 rows do not
    logits_ptr += row.to(tl.int64) * stride
    peak, total = float("-inf"), 0.0
    for first in range(0, n_cols, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + cols, mask=cols < n_cols, other=float("-inf"))
        x = x.to(tl.float32)
        higher = tl.maximum(peak, tl.max(x, axis=0))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(peak - base) + tl.sum(tl.exp(x - base), axis=0)
        peak = higher
    lse = peak + tl.log(total)
    target = tl.load(targets_ptr + row)
    own = tl.load(logits_ptr + target, mask=target != ignore_index, other=0.0)
    tl.store(losses_ptr + row, lse - own.to(tl.float32))
    tl.store(lse_ptr + row, lse)
    # END SOLUTION


@triton.jit
def mean_kernel(
    losses_ptr,
    targets_ptr,
    loss_ptr,
    count_ptr,
    n_rows,
    ignore_index,
    BLOCK: tl.constexpr,
):
    # BEGIN SOLUTION
    total = tl.zeros([BLOCK], tl.float32)
    count = tl.zeros([BLOCK], tl.float32)
    for first in range(0, n_rows, BLOCK):
        rows = first + tl.arange(0, BLOCK)
        mask = rows < n_rows
        target = tl.load(targets_ptr + rows, mask=mask, other=ignore_index)
        counts = target != ignore_index
        total += tl.where(counts, tl.load(losses_ptr + rows, mask=mask), 0.0)
        count += tl.where(counts, 1.0, 0.0)
    counted = tl.sum(count, axis=0)
    tl.store(count_ptr, counted)
    tl.store(loss_ptr, tl.sum(total, axis=0) / counted)
    # END SOLUTION


@triton.jit
def gradient_kernel(
    dloss_ptr,
    logits_ptr,
    targets_ptr,
    lse_ptr,
    count_ptr,
    dlogits_ptr,
    n_cols,
    stride,
    ignore_index,
    BLOCK: tl.constexpr,
):
    # BEGIN SOLUTION
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets_ptr + row)
    lse = tl.load(lse_ptr + row)
    scale = tl.load(dloss_ptr) / tl.load(count_ptr)
    for first in range(0, n_cols, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(logits_ptr + row * stride + cols, mask=mask).to(tl.float32)
        dx = (tl.exp(x - lse) - tl.where(cols == target, 1.0, 0.0)) * scale
        dx = tl.where(target == ignore_index, 0.0, dx)
        tl.store(dlogits_ptr + row * n_cols + cols, dx, mask=mask)
    # END SOLUTION


class CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits: Tensor, targets: Tensor, ignore_index: int) -> Tensor:
        # BEGIN SOLUTION
        rows, cols = logits.shape
        losses, lse = torch.empty(2, rows, device=logits.device)
        loss, count = torch.empty(2, device=logits.device)
        row_kernel[(rows,)](
            *(logits, targets, losses, lse, cols, logits.stride(0), ignore_index),
            BLOCK=1024,
        )
        mean_kernel[(1,)](losses, targets, loss, count, rows, ignore_index, BLOCK=1024)
        ctx.save_for_backward(logits, targets, lse, count)
        ctx.ignore_index = ignore_index
        return loss
        # END SOLUTION

    @staticmethod
    def backward(ctx, dloss: Tensor) -> tuple[Tensor, None, None]:
        # BEGIN SOLUTION
        logits, targets, lse, count = ctx.saved_tensors
        rows, cols = logits.shape
        dlogits = torch.empty(rows, cols, dtype=logits.dtype, device=logits.device)
        gradient_kernel[(rows,)](
            *(dloss, logits, targets, lse, count, dlogits),
            *(cols, logits.stride(0), ctx.ignore_index),
            BLOCK=1024,
        )
        return dlogits, None, None
        # END SOLUTION


def cross_entropy(logits: Tensor, targets: Tensor, ignore_index: int = -100) -> Tensor:
    """Mean loss in nats over the rows whose label is not ignore_index, float32, ()."""
    return CrossEntropy.apply(logits, targets, ignore_index)


# %% tags=["check"]
check("04.cross_entropy")

# %% [markdown] why cross_entropy
# **Why it matters.** The gradient of the logits costs three crossings of the memory bus, and no tensor of their size is
# kept but the one that is asked for. Two parts of a row, each with its peak and its sum, merge into one: that is the
# whole idea of attention in blocks (unit 06), where the parts are blocks of keys. Liger's kernel goes one step further:
# it writes the gradient in the forward pass, over the logits, and saves one tensor; the price is a second pass where
# the gradient from above is not 1.

# %% [markdown] your own
# ## GPT-2 on your kernels
#
# Now a GPT-2 takes a training step with your functions in place of torch's: a small one, so that it runs on the virtual
# GPUs of both vendors (2 layers of width 32, 4 sequences of 16 tokens, 300 words). Where a function is not written yet,
# the cell says so; run it again afterwards.
#
# Read the table from the left. *Off* is the relative difference of the loss, and the largest of any gradient, from
# torch in float64. *torch's off* is how far torch itself is off in float32: yours should be of that size. Launches and
# bytes are those of the replaced operators alone, forward and backward, counted alike for both: of each launch every
# 32 bytes that it reads count once, and every 32 bytes that it writes.

# %% your kernels in a training step
from gpu_utils import lesson

own = {
    "gelu": gelu,
    "dropout": dropout,
    "softmax": softmax,
    "layer_norm": (layernorm, layernorm_backward),
    "cross_entropy": cross_entropy,
}
rows = {}
for name, mine in own.items():
    with lesson.when_written():
        rows |= lesson.own_kernels_in_gpt2(**{name: mine})
lesson.table(rows, first="replaced, on")

# %% [markdown] same bytes
# A kernel saves bytes only where torch needs several for the same work. Torch's GELU and softmax are one kernel each,
# and so are yours: the bytes are equal. What you have won there is the kernel itself: in unit 06 the softmax becomes a
# part of attention, and then the matrix of scores is never written at all. The loss needs half of the bytes, and
# dropout no mask. The layer norm needs more launches than torch, for the second pass over the parts of dw and db.
# (Torch's own backward of it is counted as one launch; on a GPU it is several, too.)
#
# Now four of them at once, and not for one step: the model learns four sequences, on a virtual MI300X. GELU,
# layer norm and loss are your kernels, forward and backward, and softmax forward. (copy, rmsnorm, sum_of_columns and
# transpose have no part in this model; dropout is left out, so that torch can do the same.) Beside your loss stands
# torch's, of a model with the same weights. A guess among 300 words has the loss ln 300 = 5.70, and a model that knows
# all by heart has 0.

# %% twelve steps on your kernels
import copy as copies

rows = {}
with lesson.when_written():
    torch.manual_seed(0)
    model = lesson.GPT2(
        lesson.GPT2Config(300, n_positions=16, n_embd=32, n_layer=2, n_head=2)
    )
    twin = copies.deepcopy(model)
    tokens = torch.randint(300, (4, 17))
    loss_of = lesson.swapped(
        model.loss, **{n: f for n, f in own.items() if n != "dropout"}
    )
    losses = []
    for trained, of in ((model, loss_of), (twin, twin.loss)):
        adamw = torch.optim.AdamW(trained.parameters(), lr=2e-2)
        losses.append([])
        for _ in range(13):
            with virtual_gpu("gfx942"):
                loss = of(tokens[:, :-1], tokens[:, 1:])
                losses[-1].append(loss.item())
                adamw.zero_grad()
                loss.backward()
            adamw.step()
    for step in range(0, 13, 4):
        mine, torchs = (f"{of[step]:.3f}" for of in losses)
        rows[f"after {step} steps"] = {"your kernels": mine, "torch": torchs}
lesson.table(rows, first="loss")

# %% [markdown] needs of six targets
# What does your softmax launch, and what would that need of chips that you do not have? It is compiled for six.

# %% your launches on six targets
x = torch.randn(64, 1000)
rows = {}
with lesson.when_written():
    for launch in lesson.launches_of(softmax, x):
        print(launch.name, launch.grid)
    rows = lesson.needs({"softmax": softmax}, x)
lesson.table(rows, first="kernel, for")

# %% [markdown] the width of 1,000
# Accesses of 32 bits, because 16 does not divide 1,000. Try 1,008 columns.

# %% [markdown] speed
# With a real GPU the last cell times a training step of GPT-2 124M, with torch's operators and with yours.

# %% your speed
rows = {}
with lesson.when_written():
    rows = lesson.speed_in_gpt2(**own)
lesson.table(rows)

# %% [markdown] challenge
# ## A challenge: cross-entropy in the fewest cycles
#
# Optional, and against yourself alone. Your `cross_entropy` runs on 16 rows of 8,192 logits in bfloat16, some with an
# ignored label, on both virtual GPUs; the predicted cycles of all its launches are added up. Only a right answer
# enters. For each launch the model takes the largest of its bounds: instructions that must be issued, bytes over the
# memory bus, passes of shared memory, and waits for memory that no other wave fills. It predicts, and measures nothing.
#
# The course's solution is a plain one. Which reductions across lanes could happen once for each row, in place of once
# for each block? Which bytes need not move at all?

# %% your entry
from gpu_utils import challenge

challenge("04")

# %% [markdown] end of the lab
# ## Done
#
# Everything of GPT-2 that is no matrix product and no attention is yours now, forward and backward, on both vendors.
# Unit 05 takes the matrix products.

# %% progress
progress()
