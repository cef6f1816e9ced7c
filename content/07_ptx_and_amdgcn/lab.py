# %% [markdown] top
# # Lab 07: PTX and AMDGCN
#
# **Twelve exercises.** You read listings, put single instructions into Triton kernels, write the heart of kernels in
# machine code for both vendors, place waits and barriers, repair a queue, retile a kernel, and decide how many SMs only
# send.
#
# - **First**: lesson 07. It has the ideas; each statement says what else it needs.
# - **Time**: four parts, as a guess 70, 60, 50 and 60 minutes, not from a stopwatch.
# - **Machine code is text here**: an answer returns it, the vendor's own assembler takes it (`ptxas`, LLVM), virtual
#   GPUs execute it under the sanitizers. PTX runs on this machine's NVIDIA GPU as well, if it has one. Nothing here has
#   run on AMD silicon.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it.
#   `hint("07.ptx_ex2")` gives three hints of growing strength. `solution("07.ptx_ex2")` asks first.

# %% imports tags=["setup"]
import re

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils import check, compile_for, hint, lesson, progress, solution

# %% [markdown] part one
# ## Part 1: read, and write one instruction
#
# Needs sitting 1 of the lesson. One exercise reads listings, three put instructions into Triton kernels.

# %% [markdown] statement of read_listing
# ## 07.read_listing: read listings, and choose one
#
# Write `read_listing(listings)`: `listings` is a dict from a name to a text, PTX or AMDGCN, all versions of one kernel.
# It returns
#
# ```python
# {"counts": {name: {"vendor": ..., "loads": ..., "bits": ..., "copies": ..., "matrix": ..., "barriers": ...}, ...},
#  "best": name}
# ```
#
# | | what it is |
# |---|---|
# | `vendor` | `"nvidia"` for PTX, where a line begins with `.target`; `"amd"` where one has `.amdgcn_target` |
# | `loads` | loads from global memory into registers |
# | `bits` | of one lane, in the widest of these loads; 0 without loads |
# | `copies` | copies from global memory to shared memory, past the registers |
# | `matrix` | products of matrices |
# | `barriers` | places where a whole block meets |
#
# The mnemonics, by their first words:
#
# | | PTX | AMDGCN |
# |---|---|---|
# | loads | `ld`, `ldu`, with `.global` among the modifiers | `global_load_`, `buffer_load_`; no copies |
# | copies | `cp.async.ca`, `cp.async.cg` | `global_load_lds_`, `buffer_load_lds_`; loads whose last word is `lds` |
# | | `cp.async.bulk.shared` | `global_load_async_to_lds_` |
# | | `cp.async.bulk.tensor.2d.shared`, 1d to 5d | `tensor_load_to_lds` |
# | matrix | `mma`, `wmma.mma`, `wgmma.mma_async`, `tcgen05.mma` | `v_mfma_`, `v_smfmac_`, `v_wmma_`, `v_swmmac_` |
# | barriers | `bar.sync`, `barrier.sync`, `barrier.cta.sync` | `s_barrier`; gfx12: `s_barrier_wait`, not `_signal` |
#
# In a copy of PTX the destination stands first: `.shared::cta.global` leads to shared memory, `.global.shared::cta`
# away from it. Widths: the last word of an AMD mnemonic is `ubyte` `sbyte` `u8` `i8` (8 bits), `ushort` `sshort` `u16`
# `b16` (16), `dword` `b32`, `dwordx2` `b64`, `dwordx3` `b96` or `dwordx4` `b128`. A load of PTX ends in `.b32` and the
# like, which counts as often as `.v2`, `.v4` or `.v8` says.
#
# Nothing else counts: no arguments (`ld.param`, `s_load`), no shared memory, no spills (`ld.local`, `scratch_load`), no
# stores, atomics, fences and waits. It counts **instructions in the text**, once each, of all kernels in it:
#
# - Comments are none: `//` and `/* */` in both, `;` in AMDGCN. In PTX `;` ends an instruction, and a line may hold
#   several, in braces.
# - Labels, directives (they begin with a dot) and the metadata at the end of AMDGCN, from `.amdgpu_metadata` on, are
#   none. A kernel may be called `global_load_test`.
# - Before a PTX mnemonic may stand a predicate: `@%p1` or `@!%p1`.
#
# **The decision.** All versions move the same bytes, and the one with the fewest instructions for them is `best`: the
# largest **mean width** of its loads and copies together. A copy `cp.async.ca` or `.cg` says its bytes in the third
# operand (16 or `0x10`); AMD's copies have names like loads. Copies of whole tiles (`cp.async.bulk`,
# `tensor_load_to_lds`) have no width and stay out of the mean. Without a width the mean is 0; of equals the first wins.
#
# `gpu_utils` has a reader of listings of its own. Do without it.
#
# The example of the docstring is one text with one load, of 64 bits. `hint("07.read_listing")` gives three hints.


# %% 07.read_listing tags=["answer", "07.read_listing"]
def read_listing(listings: dict[str, str]) -> dict:
    """What each listing loads, copies, multiplies and waits for, and the best of them.

    >>> text = '''
    ... .target sm_80
    ...     ld.param.b64 %rd1, [add_param_0];
    ...     @%p1 ld.global.v2.b32 {%r1, %r2}, [%rd1];
    ...     // bar.sync 0;
    ... '''
    >>> read_listing({"add": text})["best"]
    'add'
    >>> read_listing({"add": text})["counts"]["add"]
    {'vendor': 'nvidia', 'loads': 1, 'bits': 64, 'copies': 0, 'matrix': 0, 'barriers': 0}
    """
    # BEGIN SOLUTION
    PTX = {
        "copies": r"cp\.async\.(ca|cg)\b|cp\.async\.bulk\.(tensor\.\dd\.)?shared",
        "loads": r"ldu?\.(\S+\.)?global\b",
        "matrix": r"(mma|wmma\.mma|wgmma\.mma_async|tcgen05\.mma)\b",
        "barriers": r"bar(rier)?(\.cta)?\.sync\b",
    }
    AMD = {
        "copies": r"(global|buffer|tensor)_load_\S*lds|(global|buffer)_load_.* lds$",
        "loads": r"(global|buffer)_load_",
        "matrix": r"v_(mfma|smfmac|wmma|swmmac)_",
        "barriers": r"s_barrier(_wait)?( |$)",
    }
    NAMES = {"ubyte": 8, "sbyte": 8, "ushort": 16, "sshort": 16}
    NAMES |= {"dword": 32, "dwordx2": 64, "dwordx3": 96, "dwordx4": 128}

    def width(statement):
        """Bits of one lane; None for a copy of a whole tile."""
        mnemonic = statement.split()[0]
        if mnemonic.startswith(("cp.async.bulk", "tensor")):
            return None
        if mnemonic.startswith("cp."):
            return 8 * int(statement.split(",")[2], 0)
        if mnemonic.startswith("ld"):
            vector = re.search(r"\.v(\d)", mnemonic)
            bits = int(re.search(r"\d+$", mnemonic)[0])
            return bits * (int(vector[1]) if vector else 1)
        last = mnemonic.split("_")[-1]
        return NAMES[last] if last in NAMES else int(last[1:])

    counts, means = {}, {}
    for name, text in listings.items():
        amd = ".amdgcn_target" in text
        comment = r"/\*.*?\*/|(//|;)[^\n]*" if amd else r"/\*.*?\*/|//[^\n]*"
        text = text.partition(".amdgpu_metadata")[0]
        text = re.sub(comment, "", text, flags=re.DOTALL)
        found = {kind: [] for kind in PTX}
        for statement in re.split(r"[;\n]", text):
            statement = " ".join(statement.split())
            statement = re.sub(r"^(\{ ?|[\w$.]+:( |$)|@!?%\w+ )*", "", statement)
            for kind, pattern in (AMD if amd else PTX).items():
                if re.match(pattern, statement):
                    found[kind].append(statement)
                    break
        loads = [width(statement) for statement in found["loads"]]
        widths = loads + [width(statement) for statement in found["copies"]]
        widths = [bits for bits in widths if bits is not None]
        means[name] = sum(widths) / len(widths) if widths else 0
        counts[name] = {
            "vendor": "amd" if amd else "nvidia",
            "loads": len(loads),
            "bits": max(loads, default=0),
            **{kind: len(found[kind]) for kind in ("copies", "matrix", "barriers")},
        }
    return {"counts": counts, "best": max(means, key=means.get)}
    # END SOLUTION


# %% 07.read_listing check tags=["check", "07.read_listing"]
check("07.read_listing")

# %% [markdown] why read_listing
# **Why it matters.** Before a kernel is timed, its listing says what it can be: narrow loads where Triton did not know
# that an address is aligned, copies through registers where `cp.async` was meant, a product without matrix
# instructions. What a text cannot say is how often a line runs: a load in a loop is one line.

# %% [markdown] statement of ptx_ex2
# ## 07.ptx_ex2: the exponential that the chip has
#
# A chip raises one number to a power: 2. Write `ptx_ex2(x)`,
#
# $$y_i = e^{x_i} \qquad 0 \le i < n$$
#
# as one launch of a Triton kernel of your own, in which the power is **one instruction of inline PTX**,
# `ex2.approx.ftz.f32`:
#
# | | |
# |---|---|
# | `ex2.approx.ftz.f32 d, a;` | `d = 2^a`, float32, at most 2 ulps off; subnormal results become 0 |
# | without `.ftz` | the same, and subnormal results stay; both are right here (source: PTX ISA, ex2) |
# | `x` | `(n,)` float32, contiguous, any `n >= 1`; infinities, NaN, numbers of any size |
# | result | `(n,)` float32 on the device of `x`; of $-\infty$ it is 0, of NaN it is NaN |
#
# Everything else is Triton as you know it. The call is
# `tl.inline_asm_elementwise(text, constraints, [arguments], dtype=..., is_pure=True, pack=1)`: in the text `$0` is the
# result and `$1` the first argument; `constraints` names a register for each, results with `=` first, `f` for float32,
# with commas and no blanks. A check says when one is missing. Elsewhere LLVM would end the process, and your
# notebook's kernel with it.
#
# A small example: `ptx_ex2(torch.tensor([0.0, 1.0, -1.0, 2.0]))` is close to 1, 2.7183, 0.3679, 7.3891.
#
# Executed for `sm_80`, `sm_90` and `sm_100`. The check looks into the machine code of your kernel for the instruction.


# %% 07.ptx_ex2 tags=["answer", "07.ptx_ex2"]
@triton.jit
def exp_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    # BEGIN SOLUTION
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;",
        "=f,f",
        [x * 1.4426950408889634],
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )
    tl.store(y_ptr + offsets, y, mask=mask)
    # END SOLUTION


def ptx_ex2(x: Tensor) -> Tensor:
    """e to the power of each of x, (n,) float32."""
    BLOCK = 512
    n = x.numel()
    y = torch.empty_like(x)
    grid = (triton.cdiv(n, BLOCK),)
    # BEGIN SOLUTION
    exp_kernel[grid](x, y, n, BLOCK=BLOCK)
    return y
    # END SOLUTION


# %% 07.ptx_ex2 check tags=["check", "07.ptx_ex2"]
check("07.ptx_ex2")

# %% [markdown] why ptx_ex2
# **Why it matters.** `tl.exp` writes the same two instructions: a product and `ex2`. Who knows this takes the product
# out of a loop: flash attention multiplies its scores by $\log_2 e$ once, with the scale, and raises 2 from there on.

# %% [markdown] statement of ptx_cvt_fp8
# ## 07.ptx_cvt_fp8: two numbers to FP8 in one instruction
#
# Triton's own cast from float32 to E4M3 rounds twice on `sm_89`: to float16, then to eight bits. The chip has an
# instruction that rounds once. Write `ptx_cvt_fp8(x)`: the E4M3 code of each number, by a Triton kernel of your own
# with this instruction of inline PTX in it:
#
# | | |
# |---|---|
# | `cvt.rn.satfinite.e4m3x2.f32 d, a, b;` | float32 `a`, `b`; `d` has 16 bits: the code of `a` above, of `b` below |
# | rounding | to the nearest code, a tie to the even one |
# | too large, infinite | 448, the largest number, with its sign |
# | NaN, 0, -0 | `0x7F`, `0x00`, `0x80` |
# | `x` | `(n,)` float32, contiguous, any `n >= 1`, also an odd one |
# | result | `(n,)` uint8 on the device of `x`, exact to the bit |
#
# **Each `cvt` must convert two numbers of x.** For that `tl.inline_asm_elementwise` has `pack`: with `pack=2` the text
# is written for two neighbours at a time. Two float32 fill two registers, `$1` and `$2`, the lower neighbour first. Two
# results of `dtype=tl.uint8` share one of 16 bits, whose letter is `h`; the lower neighbour lies in the lower byte, as
# in memory.
#
# A small example: `ptx_cvt_fp8(torch.tensor([1.0, 0.3, 500.0, -0.0]))` is `[0x38, 0x2A, 0x7E, 0x80]`.
#
# Executed for `sm_89`, `sm_90`, `sm_100` and `sm_120`.


# %% 07.ptx_cvt_fp8 tags=["answer", "07.ptx_cvt_fp8"]
@triton.jit
def fp8_kernel(x_ptr, codes_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    # BEGIN SOLUTION
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    codes = tl.inline_asm_elementwise(
        "cvt.rn.satfinite.e4m3x2.f32 $0, $2, $1;",
        "=h,f,f",
        [x],
        dtype=tl.uint8,
        is_pure=True,
        pack=2,
    )
    tl.store(codes_ptr + offsets, codes, mask=mask)
    # END SOLUTION


def ptx_cvt_fp8(x: Tensor) -> Tensor:
    """The E4M3 codes of x, (n,) float32, as uint8."""
    BLOCK = 512
    n = x.numel()
    codes = torch.empty(n, dtype=torch.uint8, device=x.device)
    grid = (triton.cdiv(n, BLOCK),)
    # BEGIN SOLUTION
    fp8_kernel[grid](x, codes, n, BLOCK=BLOCK)
    return codes
    # END SOLUTION


# %% 07.ptx_cvt_fp8 check tags=["check", "07.ptx_cvt_fp8"]
check("07.ptx_cvt_fp8")

# %% [markdown] why ptx_cvt_fp8
# **Why it matters.** A quantiser that rounds twice is right on nearly every number, so no loss curve shows it, and two
# chips no longer agree to the bit. Inline assembly is also how kernels got at FP8 before their compilers knew it.

# %% [markdown] statement of amdgcn_perm
# ## 07.amdgcn_perm: bytes transposed in eight instructions
#
# Matrix instructions want the bytes of one word along one axis, and memory often has them along the other. A tile of
# 4 x 4 bytes lies in four int32 words, one for each row, byte 0 the lowest. Write `amdgcn_perm(rows)`, which
# transposes many such tiles:
#
# $$\text{byte}_r(\text{columns}_{k,i}) = \text{byte}_k(\text{rows}_{r,i}) \qquad 0 \le k, r < 4,\; 0 \le i < n$$
#
# | | |
# |---|---|
# | `rows` | `(4, n)` int32, contiguous, any `n >= 1`: tile `i` is `rows[:, i]` |
# | result | `(4, n)` int32 on its device |
# | how | **one text of inline AMDGCN with exactly eight `v_perm_b32`** and no other vector instruction, `pack=1` |
#
# `v_perm_b32 d, a, b, sel` makes a word of four bytes out of eight: 0 to 3 are those of `b`, 4 to 7 those of `a`. Each
# byte of `sel` chooses one byte of `d`, the lowest the lowest. gfx9 takes no 32-bit literal here: give selectors as
# arguments. A whole number among the arguments of `tl.inline_asm_elementwise` is one, and in a scalar register (`s`) it
# takes no vector register.
#
# **Several results.** `dtype` may be a tuple; the call then returns as many tensors. `$0`, `$1`, ... are the results,
# in order, and the arguments are numbered on from there. A result that nobody uses is how a text gets a register of its
# own for what is in between.
#
# **What the compiler assumes.** It takes the text for one instruction, which reads all of its arguments before it
# writes anything. So it may give a result the register of an argument. A text of several instructions must say
# otherwise: `"=&v"`, an *early clobber*, is a result that is written while arguments are still to be read.
#
# A small example, one tile:
#
# | | rows | columns |
# |---|---|---|
# | word 0 | `0x03020100` | `0x30201000` |
# | word 1 | `0x13121110` | `0x31211101` |
# | word 2 | `0x23222120` | `0x32221202` |
# | word 3 | `0x33323130` | `0x33231303` |
#
# Executed on virtual GPUs for `gfx942`, `gfx950`, `gfx1100` and `gfx1201`, also on a machine with an NVIDIA GPU.


# %% 07.amdgcn_perm tags=["answer", "07.amdgcn_perm"]
@triton.jit
def transpose_kernel(rows_ptr, columns_ptr, n, BLOCK: tl.constexpr):
    tiles = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = tiles < n
    r0 = tl.load(rows_ptr + tiles, mask=mask)
    r1 = tl.load(rows_ptr + n + tiles, mask=mask)
    r2 = tl.load(rows_ptr + 2 * n + tiles, mask=mask)
    r3 = tl.load(rows_ptr + 3 * n + tiles, mask=mask)
    c0, c1, c2, c3 = r0, r1, r2, r3  # your text makes the columns
    # BEGIN SOLUTION
    c0, c1, c2, c3, _ = tl.inline_asm_elementwise(
        """
        v_perm_b32 $0, $6, $5, $9
        v_perm_b32 $4, $8, $7, $9
        v_perm_b32 $1, $4, $0, $12
        v_perm_b32 $0, $4, $0, $11
        v_perm_b32 $2, $6, $5, $10
        v_perm_b32 $4, $8, $7, $10
        v_perm_b32 $3, $4, $2, $12
        v_perm_b32 $2, $4, $2, $11
        """,
        "=&v,=&v,=&v,=&v,=&v,v,v,v,v,s,s,s,s",
        [r0, r1, r2, r3, 0x05010400, 0x07030602, 0x05040100, 0x07060302],
        dtype=(tl.int32, tl.int32, tl.int32, tl.int32, tl.int32),
        is_pure=True,
        pack=1,
    )
    # END SOLUTION
    tl.store(columns_ptr + tiles, c0, mask=mask)
    tl.store(columns_ptr + n + tiles, c1, mask=mask)
    tl.store(columns_ptr + 2 * n + tiles, c2, mask=mask)
    tl.store(columns_ptr + 3 * n + tiles, c3, mask=mask)


def amdgcn_perm(rows: Tensor) -> Tensor:
    """The 4 x 4 bytes of each of the tiles rows[:, i], (4, n) int32, transposed."""
    BLOCK = 256
    n = rows.shape[1]
    columns = torch.empty_like(rows)
    grid = (triton.cdiv(n, BLOCK),)
    # BEGIN SOLUTION
    transpose_kernel[grid](rows, columns, n, BLOCK=BLOCK)
    return columns
    # END SOLUTION


# %% 07.amdgcn_perm check tags=["check", "07.amdgcn_perm"]
check("07.amdgcn_perm")

# %% [markdown] why amdgcn_perm
# **Why it matters.** Take the `&` away and run the check again: nothing warns, and the columns are wrong. With another
# text, or in a kernel that has other values in registers, the same mistake may show on one target and not on the next.
# So a text of inline assembly is best one instruction long. Where it has to be longer, its constraints are a promise
# that nobody checks.

# %% [markdown] part two
# ## Part 2: lanes
#
# Needs sitting 3. A sum over a wave by each vendor's own means, and the registers of a matrix instruction.

# %% [markdown] statement of lane_sum
# ## 07.lane_sum: a sum over a warp, in PTX
#
# A warp of 32 threads sums one row of float32:
#
# $$y_r = \sum_{c=0}^{\text{columns}-1} x_{r,c}$$
#
# The kernel is launched with one block of 32 threads for each row. `x` has shape (rows, columns) and lies row by row
# in memory, `y` has shape (rows,). A row has one column or more. With the rows `[1, 2, 3, 4]` and `[0.5, 0, 0, 2]`,
# `y` is `[10, 2.5]`.
#
# The loop stands there already: at the label `summed` each lane has the sum of columns lane, lane + 32, lane + 64, ...
# in `%f1`, and 0 where it had none. **You write what follows: the lanes exchange their sums, and one lane stores the
# total to `y[row]`.**
#
# - Lanes exchange by `shfl.sync` alone: no shared memory, no atomics, at most **five** shuffles of a warp.
# - **Exactly one** lane of a warp stores.
# - `%r1` is the lane, `%r2` the row, `%rd2` the address of `y`. All registers of the `.reg` lines are yours: `%p2` to
#   `%p7`, `%r6` to `%r31`, `%f2` to `%f31` and `%rd4` to `%rd15` are free.
# - `shfl.sync.MODE.b32 d, a, b, c, mask;` gives each lane in `d` the `a` of another lane. `MODE` is `down` (lane + b),
#   `up` (lane - b), `bfly` (lane XOR b) or `idx` (lane b). `c` is the bound: `0x1f`, with `up` it is `0`. A source
#   outside of it gives a lane its own `a`. `mask` has a bit for each lane that takes part; you name them, all 32, and
#   do not ask `activemask`, which says only who happens to be there.
# - `@%p2 INSTRUCTION;` is executed by the lanes whose `%p2` is true; `setp.eq.u32 %p2, a, b;` sets it.
#
# The check assembles your text with `ptxas` and executes it on the virtual sm_80, sm_89, sm_90, sm_100 and sm_120,
# with the sanitizers `racecheck`, `waitcheck` and `synccheck`; on a real NVIDIA GPU too, if this machine has one. The
# manual is the [PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/), section "shfl.sync".


# %% 07.lane_sum tags=["answer", "07.lane_sum"]
def lane_sum() -> str:
    """PTX of lane_sum(x_ptr, y_ptr, columns): a warp sums a row."""
    return """
// INSERT gpu_utils/exercises/u07_ptx_and_amdgcn/lane_sum.ptx
"""


# %% 07.lane_sum check tags=["check", "07.lane_sum"]
check("07.lane_sum")

# %% [markdown] why lane_sum
# **Why it matters.** These lines are what `tl.sum` and `__shfl_down_sync` become. The lanes left the loop after
# different turns, and nothing but the mask of `shfl.sync` brings them together again. Where the mask names a lane that
# never comes, the warp waits for ever; where it leaves one out that does come, the result is undefined.

# %% [markdown] statement of dpp_sum
# ## 07.dpp_sum: a sum over a wave, in AMDGCN
#
# The same sum by the other vendor's means. `v1` holds one float32 in each lane of a full wave. **Write the lines that
# leave the sum over all lanes in the scalar register `s8`**, for waves of 64 lanes (gfx90a, gfx942, gfx950) and of 32
# lanes (gfx1100, gfx1201, gfx1250): `dpp_sum(lanes)` returns the text for 64 or for 32, and each text must run on its
# three targets. If lane `i` of 32 holds `i + 1`, `s8` is 528.0.
#
# Your lines stand where `YOURS` is in this kernel (here for gfx942; the check chooses the waits of each target and its
# register with the number of the block):
#
# ```
#   s_load_dwordx4 s[4:7], s[0:1], 0x0      // x_ptr, y_ptr
#   s_lshl_b32 s3, s2, 8                    // row * 64 lanes * 4 bytes
#   v_lshl_add_u32 v14, v0, 2, s3           // + lane * 4: the place of x[row][lane]
#   v_mov_b32 v2, -1                        // v2 to v4: bits that are no number
#   v_mov_b32 v3, -1
#   v_mov_b32 v4, -1
#   s_waitcnt lgkmcnt(0)
#   global_load_dword v1, v14, s[4:5]
#   s_lshl_b32 s14, s2, 2
#   v_mov_b32 v15, s14
#   s_waitcnt vmcnt(0)
#   YOURS                                   // v1 -> s8
#   s_nop 1
#   v_mov_b32 v14, s8
#   s_mov_b64 exec, 1                       // lane 0 alone
#   global_store_dword v15, v14, s[6:7]     // y[row]
#   s_endpgm
# ```
#
# What you have. DPP lets the first source of a vector instruction come from another lane. In lane `i` `v_add_f32_dpp
# v1, v2, v3 row_shr:4` adds the `v2` of lane `i - 4` to the lane's own `v3`.
#
# | Modifier or instruction | Lane `i` reads | gfx9 | gfx11, gfx12 |
# |---|---|---|---|
# | `quad_perm:[a,b,c,d]` | within its four lanes, the one named at its place | yes | yes |
# | `row_shr:N`, `row_shl:N` | `i - N`, `i + N` within its row of 16 | yes | yes |
# | `row_ror:N` | `i - N` within its row, turned around at the end | yes | yes |
# | `row_half_mirror`, `row_mirror` | its 8 lanes, its row, from the other end | yes | yes |
# | `row_xmask:N` | `i` XOR `N` within its row | no | yes |
# | `row_bcast:15` | the last lane of the row before | yes | no |
# | `row_bcast:31` | lane 31, in rows 2 and 3 | yes | no |
# | `v_permlanex16_b32 d, a, s, t` | in the other row the lane that 4 bits of `s` or `t` name | no | yes |
# | `v_readlane_b32 s8, v1, N` | a scalar register gets what lane `N` has | yes | yes |
#
# A lane without a source (lane 0 under `row_shr:1`, row 0 under `row_bcast:15`) does nothing and keeps what it had;
# with `bound_ctrl:0` it reads 0.
#
# **Wait states.** On gfx9 the chip does not hold these reads back until the vector instruction before has written. The
# text must keep its distance, by other instructions or by `s_nop N`, which is N + 1 wait states (LLVM,
# GCNHazardRecognizer.cpp):
#
# | A vector instruction writes | then reads it | wait states between |
# |---|---|---|
# | a vector register | an instruction with DPP | 2 |
# | a vector register | `v_readlane_b32`, `v_readfirstlane_b32` | 1, on gfx942 and gfx950 |
# | a scalar register | a vector instruction | 2, on gfx942 and gfx950 |
# | a scalar register | `v_readlane_b32`, as the number of the lane | 4 |
#
# The virtual GPU runs one instruction after the other and would not notice, so the check reads the text for it. gfx11
# and gfx12 hold such reads back themselves.
#
# - `v1` to `v13` and `s8` to `s13` are yours. EXEC stays as it is: all lanes are on.
# - No LDS (`ds_...`), no memory, no branches, and at most 24 instructions besides waits.
# - One instruction a line: in AMDGCN `;` begins a comment, as `//` does.


# %% 07.dpp_sum tags=["answer", "07.dpp_sum"]
def dpp_sum(lanes: int) -> str:
    """AMDGCN that leaves in s8 the sum of v1 over a wave of 64 or 32 lanes."""
    if lanes == 64:
        return """
// INSERT gpu_utils/exercises/u07_ptx_and_amdgcn/dpp_sum_64.s
"""
    return """
// INSERT gpu_utils/exercises/u07_ptx_and_amdgcn/dpp_sum_32.s
"""


# %% 07.dpp_sum check tags=["check", "07.dpp_sum"]
check("07.dpp_sum")

# %% [markdown] why dpp_sum
# **Why it matters.** On AMD a shuffle of C++ (`__shfl_down`) goes through the LDS unit, as `ds_bpermute_b32`. DPP does
# the move inside the addition. What moves how far is part of the instruction set, so the code for 64 and for 32 lanes
# differs in more than a bound of a loop.

# %% [markdown] statement of mma_layout
# ## 07.mma_layout: fill the registers of one mma and one MFMA
#
# A matrix instruction multiplies A and B, but no register holds A. Each lane holds a few elements. Which ones, you
# say: `mma_layout(instruction, lane)` returns a dict with three lists of pairs, all counted from 0:
#
# - `"a"`: (row, k) of each element of A that this lane holds,
# - `"b"`: (k, column) of each element of B,
# - `"c"`: (row, column) of each element of C = A B,
#
# **in the order of the lane's registers, and within a register of float16 the lower half first.**
#
# | `instruction` | lanes | A | B | C | elements of a lane |
# |---|---|---|---|---|---|
# | `"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"` | 32 | 16 x 16 | 16 x 8 | 16 x 8 | a 8, b 4, c 4 |
# | `"v_mfma_f32_16x16x16_f16"` | 64 | 16 x 16 | 16 x 16 | 16 x 16 | a 4, b 4, c 4 |
#
# A and B are float16, two to a register of 32 bits; C is float32. `lane` is a whole number below the number of lanes.
#
# A made-up example: an instruction of two lanes multiplies a 2 x 2 matrix A by a 2 x 1 matrix B. Lane 0 has row 0 of A
# in one register, lane 1 has row 1; lane 0 has all of B, lane 1 nothing of it; each lane has the C of its row. Lane 1
# is then `{"a": [(1, 0), (1, 1)], "b": [], "c": [(1, 0)]}`.
#
# The check draws A and B, fills the registers of all lanes by your tables, executes the instruction in a kernel
# written by hand (mma: on the virtual sm_80, sm_89, sm_90, sm_100, sm_120, and on a real NVIDIA GPU of this machine;
# MFMA: on the virtual gfx90a, gfx942, gfx950), takes C out by your table and compares it with the product in float64:
#
# ```
# mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
#   {%f1, %f2, %f3, %f4}, {%r2, %r3, %r4, %r5}, {%r6, %r7}, {%f1, %f1, %f1, %f1};
#
# v_mfma_f32_16x16x16_f16 v[8:11], v[4:5], v[6:7], 0
# ```
#
# (For gfx90a the assembler spells the second `v_mfma_f32_16x16x16f16`.) So every answer passes that makes the product
# right. Where to look: the lesson; the PTX ISA, "Matrix Fragments for mma.m16n8k16"; for AMD the [Matrix Instruction
# Calculator](https://github.com/ROCm/amd_matrix_instruction_calculator).


# %% 07.mma_layout tags=["answer", "07.mma_layout"]
def mma_layout(instruction: str, lane: int) -> dict[str, list[tuple[int, int]]]:
    """Which elements of A, B and C the registers of a lane hold, in their order."""
    # BEGIN SOLUTION
    if instruction.startswith("mma"):
        group, pair = lane // 4, lane % 4 * 2
        return {
            "a": [
                (group + row, pair + k + half)
                for k in (0, 8)
                for row in (0, 8)
                for half in (0, 1)
            ],
            "b": [(pair + k + half, group) for k in (0, 8) for half in (0, 1)],
            "c": [(group + row, pair + half) for row in (0, 8) for half in (0, 1)],
        }
    line, first = lane % 16, lane // 16 * 4
    return {
        "a": [(line, first + i) for i in range(4)],
        "b": [(first + i, line) for i in range(4)],
        "c": [(first + i, line) for i in range(4)],
    }
    # END SOLUTION


# %% 07.mma_layout check tags=["check", "07.mma_layout"]
check("07.mma_layout")

# %% [markdown] why mma_layout
# **Why it matters.** In attention the C of one product, rounded to float16, is an operand of the next. Compare your
# tables: as which operand can a lane hand on what it holds, without asking another lane? `solution("07.mma_layout")`
# says it for both instructions. Where layouts do not fit, a compiler must move data between lanes, often through
# shared memory.

# %% [markdown] part three
# ## Part 3: wait and meet
#
# Needs sitting 2. Two listings without waits and barriers, and you put them in.

# %% [markdown] statement of waitcnt
# ## 07.waitcnt: place the waits
#
# On AMD nothing holds an instruction back until the data of a load is there. Counters count what is under way, and a
# wait lets a wave go on once a counter has fallen to a number. Below is a kernel **without any wait**. Put them in: as
# many as it needs, none more, each as loose as it can be.
#
# | joins the queue of | gfx9: gfx90a, gfx942, gfx950 | gfx11: gfx1100 | gfx12: gfx1201, gfx1250 |
# |---|---|---|---|
# | `global_load` | vmcnt | vmcnt | loadcnt |
# | `global_store` | vmcnt | vscnt | storecnt |
# | `ds_read`, `ds_write` | lgkmcnt | lgkmcnt | dscnt |
# | `s_load` | lgkmcnt | lgkmcnt | kmcnt |
# | a wait is written | `s_waitcnt vmcnt(2)`, `s_waitcnt lgkmcnt(0)` | the same | `s_wait_loadcnt 2`, `s_wait_dscnt 0` |
#
# A queue keeps the order in which a wave has issued its accesses, and its oldest access is done first; on gfx9 loads
# and stores share one. Scalar loads are the exception: they come back in any order. The LDS does all accesses of one
# wave, reads and writes, in the order of issue. A register that an instruction only reads is read when it is issued.
# (sources: LLVM's AMDGPUUsage, memory models, and its pass SIInsertWaitcnts.cpp; AMD's ISA manuals)
#
# Each of 64 threads works on three rows of 64 elements; its partner is the thread whose number differs in the lowest
# bit. `out[r][t]` is `x[r][t] * y[r][t] + x[r][partner]`, in row 2 without `y`. The loads were scrambled by hand:
#
# ```text
#  1  s_load_dwordx2 s[4:5], s[0:1], 0x0            // address of x
#  2  s_load_dwordx2 s[6:7], s[0:1], 0x8            // address of y
#  3  v_lshlrev_b32 v1, 2, v0                       // 4 * thread
#  4  v_xor_b32 v2, 4, v1                           // 4 * partner
#  5  global_load_dword v3, v1, s[4:5]              // x, row 0
#  6  global_load_dword v5, v1, s[6:7] offset:256   // y, row 1
#  7  global_load_dword v4, v1, s[6:7]              // y, row 0
#  8  global_load_dword v6, v1, s[4:5] offset:256   // x, row 1
#  9  s_load_dwordx2 s[8:9], s[0:1], 0x10           // address of out
# 10  ds_write_b32 v1, v3
# 11  ds_read_b32 v7, v2
# 12  v_mul_f32 v3, v3, v4
# 13  global_load_dword v4, v1, s[4:5] offset:512   // x, row 2
# 14  v_add_f32 v3, v3, v7
# 15  global_store_dword v1, v3, s[8:9]             // out, row 0
# 16  ds_write_b32 v1, v6
# 17  ds_read_b32 v9, v2
# 18  v_mul_f32 v6, v6, v5
# 19  ds_write_b32 v1, v4 offset:256
# 20  ds_read_b32 v8, v2 offset:256
# 21  v_add_f32 v6, v6, v9
# 22  global_store_dword v1, v6, s[8:9] offset:256  // out, row 1
# 23  v_add_f32 v4, v4, v8
# 24  global_store_dword v1, v4, s[8:9] offset:512  // out, row 2
# 25  s_endpgm
# ```
#
# `waitcnt(family) -> dict[int, str]`, where `family` is `"gfx9"`, `"gfx11"` or `"gfx12"`: for each line that needs one,
# the wait that stands **before** it. Several waits before one line are lines of one string, `"...\n..."`.
#
# A tiny example of another listing, on gfx9:
#
# | | | under way before it | needs | wait before it |
# |---|---|---|---|---|
# | 1 | `global_load_dword v3, v1, s[4:5]` | nothing | nothing | none |
# | 2 | `global_load_dword v4, v1, s[6:7]` | load 1 | nothing | none |
# | 3 | `v_add_f32 v5, v3, v3` | loads 1 and 2 | load 1 | `s_waitcnt vmcnt(1)` |
# | 4 | `v_add_f32 v5, v5, v4` | load 2 | load 2 | `s_waitcnt vmcnt(0)` |
#
# Its answer is `{3: "s_waitcnt vmcnt(1)", 4: "s_waitcnt vmcnt(0)"}`.
#
# **What is checked**, on all six virtual GPUs of AMD: LLVM's assembler takes the kernel; `waitcheck` finds no line that
# uses a register before its load is done, or names line and load; the numbers are right. Then two counts, both 0 in
# the best answer:
#
# - *accesses waited for early*: for each line, the accesses that are done behind the waits before it, and that could
#   still be under way behind the loosest waits with which this line may run. `s_waitcnt vmcnt(0)` before line 3 of the
#   tiny example makes 1.
# - *waits that hold back nothing*: waits behind which as much is under way as before.


# %% 07.waitcnt tags=["answer", "07.waitcnt"]
def waitcnt(family: str) -> dict[int, str]:
    """The waits of the listing: line -> what stands before it."""
    # BEGIN SOLUTION
    if family == "gfx12":
        return {
            5: "s_wait_kmcnt 0",
            10: "s_wait_loadcnt 3",
            12: "s_wait_loadcnt 1",
            14: "s_wait_dscnt 0",
            15: "s_wait_kmcnt 0",
            16: "s_wait_loadcnt 1",
            19: "s_wait_loadcnt 0",
            21: "s_wait_dscnt 2",
            23: "s_wait_dscnt 0",
        }
    stores = 1 if family == "gfx9" else 0  # line 15's, in the queue of the loads
    return {
        5: "s_waitcnt lgkmcnt(0)",
        10: "s_waitcnt vmcnt(3)",
        12: "s_waitcnt vmcnt(1)",
        14: "s_waitcnt lgkmcnt(0)",
        16: f"s_waitcnt vmcnt({1 + stores})",
        19: f"s_waitcnt vmcnt({stores})",
        21: "s_waitcnt lgkmcnt(2)",
        23: "s_waitcnt lgkmcnt(0)",
    }
    # END SOLUTION


# %% 07.waitcnt check tags=["check", "07.waitcnt"]
check("07.waitcnt")

# %% [markdown] why waitcnt
# **Why it matters.** This is what the compiler's last passes do for every kernel that you launch, and where inline
# assembly goes wrong: LLVM does not look into it. With every number at 0 the kernel is right as well, and each load is
# waited for alone.

# %% [markdown] statement of barriers
# ## 07.barriers: place the barriers
#
# One block of `n` threads turns weights into cumulative shares, as sampling needs them:
#
# $$\text{out}_t = \frac{w_0 + \dots + w_t}{w_0 + \dots + w_{n-1}} \qquad 0 \le t < n$$
#
# It adds in rounds through an array `a` in shared memory: with `d` = 1, 2, 4 and so on below `n`, every thread with
# `t >= d` adds `a[t - d]` to its sum and all write theirs to `a[t]`. With `n` = 4 and weights 1, 2, 3, 4:
#
# | | t = 0 | t = 1 | t = 2 | t = 3 |
# |---|---|---|---|---|
# | a | 1 | 2 | 3 | 4 |
# | after the round with d = 1 | 1 | 3 | 5 | 7 |
# | after the round with d = 2 | 1 | 3 | 6 | 10 |
# | out | 0.1 | 0.3 | 0.6 | 1 |
#
# The kernel is given, **without a barrier**, for both vendors. What stands around these lines loads `w[t]` and stores
# the share. All lines that touch shared memory are here.
#
# ```text
#  1  st.shared.f32 [%r3], %f0;        // a[t] = w[t]
#  2  mov.u32 %r4, 1;                  // d = 1
#  3  ROUND:
#  4  setp.lt.u32 %p1, %r1, %r4;
#  5  @%p1 bra KEEP;                   // if (t >= d) {
#  6  shl.b32 %r5, %r4, 2;
#  7  sub.u32 %r5, %r3, %r5;
#  8  ld.shared.f32 %f2, [%r5];        //   a[t - d]
#  9  add.f32 %f1, %f1, %f2;           //   sum += a[t - d]
# 10  KEEP:                            // }
# 11  st.shared.f32 [%r3], %f1;        // a[t] = sum
# 12  shl.b32 %r4, %r4, 1;             // d = 2 * d
# 13  setp.lt.u32 %p2, %r4, %r2;
# 14  @%p2 bra ROUND;                  // again while d < n
# 15  ld.shared.f32 %f3, [%r6];        // a[n - 1], the total
# ```
#
# ```text
#  1  ds_write_b32 v1, v7                   // a[t] = w[t]
#  2  s_mov_b32 s8, 4                       // d = 1, in bytes
#  3  ROUND:
#  4  v_cmp_le_u32 vcc, s8, v1
#  5  s_and_saveexec_b64 s[10:11], vcc      // if (t >= d) {
#  6  s_cbranch_execz KEEP
#  7  v_sub_u32 v2, v1, s8
#  8  ds_read_b32 v4, v2                    //   a[t - d]
#  9  s_waitcnt lgkmcnt(0)                  //   the sum needs it
# 10  v_add_f32 v3, v3, v4                  //   sum += a[t - d]
# 11  KEEP:                                 // }
# 12  s_or_b64 exec, exec, s[10:11]
# 13  ds_write_b32 v1, v3                   // a[t] = sum
# 14  s_lshl_b32 s8, s8, 1                  // d = 2 * d
# 15  s_cmp_le_u32 s8, s9
# 16  s_cbranch_scc1 ROUND                  // again while d < n
# 17  ds_read_b32 v5, v6                    // a[n - 1], the total
# ```
#
# This is gfx9. On gfx11 and gfx12, with waves of 32, lines 4, 5 and 12 have `vcc_lo`, `_b32`, `s10` and `exec_lo`, and
# gfx12's line 9 is `s_wait_dscnt 0`; the numbers are the same.
#
# `barriers(family) -> dict[int, str]`, where `family` is `"ptx"`, `"gfx9"`, `"gfx11"` or `"gfx12"`: for each line that
# needs something, what stands **before** it; several instructions are lines of one string, `"...\n..."`. An entry
# before a label is passed by those that fall through to it, not by those that jump there.
#
# | | |
# |---|---|
# | `"ptx"` | `bar.sync 0;` waits for the whole block |
# | `"gfx9"`, `"gfx11"` | `s_barrier`, and `s_waitcnt lgkmcnt(0)` where an access of LDS must be done first |
# | `"gfx12"` | `s_barrier_signal -1` and behind it `s_barrier_wait -1`; the wait for LDS is `s_wait_dscnt 0` |
#
# Only barriers, fences and waits may be put in. A barrier of PTX is for the whole block: its number stands there, and
# no count of threads.
#
# **What is checked**, on all eleven virtual GPUs with 64 to 1,024 threads: the vendor's assembler takes the kernel;
# `racecheck` finds no two waves that meet in shared memory with nothing between them, or names both lines; `synccheck`
# finds nobody who misses a barrier; the shares are right. Then one count: *barriers that a wave comes to* while the
# kernel runs, which must be as few as possible. Waits on AMD are not counted here.


# %% 07.barriers tags=["answer", "07.barriers"]
def barriers(family: str) -> dict[int, str]:
    """Barriers of a family's listing: line -> what stands before it."""
    # BEGIN SOLUTION
    if family == "ptx":
        return {2: "bar.sync 0;", 11: "bar.sync 0;", 12: "bar.sync 0;"}
    barrier, wait = "s_barrier", "s_waitcnt lgkmcnt(0)"
    if family == "gfx12":
        barrier, wait = "s_barrier_signal -1\ns_barrier_wait -1", "s_wait_dscnt 0"
    written = f"{wait}\n{barrier}"  # what is under way does not count as written
    return {2: written, 13: barrier, 14: written}
    # END SOLUTION


# %% 07.barriers check tags=["check", "07.barriers"]
check("07.barriers")

# %% [markdown] why barriers
# **Why it matters.** A race seldom shows: on the virtual GPU all waves of a block run in step, and without a barrier
# the shares may well be right. On a chip it depends on who is fast today. One barrier too many never shows in a
# result either, only in the time: all waves wait for the slowest one.

# %% [markdown] part four
# ## Part 4: whole kernels
#
# Needs sittings 2 and 4. A queue between blocks, a kernel that does not fit, and the price of an SM.

# %% [markdown] statement of fix_race
# ## 07.fix_race: a queue that does not depend on who comes first
#
# A persistent kernel has two roles. The first `senders` blocks send tiles of 100 float32 numbers, the other blocks
# receive them. Tile $t$ goes through slot $t \bmod \text{slots}$ of a ring in global memory. Each slot has two
# counters, 0 at first: `full[s]` says how many times slot $s$ has been filled, `empty[s]` how many times it has been
# emptied.
#
# $$\text{out}_t = 2 \cdot \text{ring}_{t \bmod \text{slots}}, \qquad
# \text{ring}_{t \bmod \text{slots}} = 2 \cdot x_t \qquad 0 \le t < \text{tiles}$$
#
# This is what stood between the marks. On a GPU it is right most of the time:
#
# ```cpp
# __device__ void send(Queue queue, const float *x, int t, int *clock) {
#   int slot = t % queue.slots;
#   double_tile(queue.ring + slot * WORDS, x + t * WORDS, t, clock);
#   if (threadIdx.x == 0) atomicAdd(&queue.full[slot], 1);
# }
#
# __device__ void receive(Queue queue, float *out, int t, int *clock) {
#   int slot = t % queue.slots, turn = t / queue.slots;
#   while (atomicAdd(&queue.full[slot], 0) < turn + 1) {
#   }
#   double_tile(out + t * WORDS, queue.ring + slot * WORDS, t, clock);
#   if (threadIdx.x == 0) atomicAdd(&queue.empty[slot], 1);
# }
# ```
#
# **Repair `send` and `receive`**, with helpers of your own where you like. `double_tile` is given, and all threads of
# a block call it. It reads a tile, doubles it and writes it, and its waves do not keep step: while one has finished,
# another may not have begun.
#
# **Given** `x` and `out` of shape `(tiles, 100)`, contiguous float32; 1 or more slots, senders and receivers, in any
# numbers; blocks of 32 to 128 threads, so 1 to 4 waves. All blocks are on the chip at the same time.
#
# **Example**: 3 tiles, 2 slots. Slot 0 carries tiles 0 and 2, slot 1 carries tile 1:
#
# | what happens | `full` | `empty` |
# |---|---|---|
# | at first | 0, 0 | 0, 0 |
# | tile 0 was sent | 1, 0 | 0, 0 |
# | tile 1 was sent; tile 2 must wait for its slot | 1, 1 | 0, 0 |
# | tile 0 was received | 1, 1 | 1, 0 |
# | tile 2 was sent | 2, 1 | 1, 0 |
#
# What you have, as in CUDA: `atomicAdd(address, value)` returns the old value, is seen by the whole GPU and is
# **relaxed**: it orders nothing else. `__threadfence()` orders the memory accesses of a thread for the whole GPU, those
# before it against those after it; `__threadfence_block()` for its block only. `__syncthreads()` is the barrier of a
# block. Use the fences: the `__ATOMIC_RELEASE` of an add (`__hip_atomic_fetch_add`) is lost on the way to PTX here.
#
# The virtual GPU reports two accesses that nothing orders as a `Race`, whatever the result. A wait that never ends is
# stopped after some hundred rounds. Every tile must go through its slot of the ring, and what stands around the marks
# must stay as it is, comments and blanks apart.


# %% 07.fix_race tags=["answer", "07.fix_race"]
def fix_race() -> str:
    """C++ of pass_on(x, ring, full, empty, out, clock, tiles, slots, senders)."""
    return """
// INSERT gpu_utils/exercises/u07_ptx_and_amdgcn/fix_race.cu
"""


# %% 07.fix_race check tags=["check", "07.fix_race"]
check("07.fix_race")

# %% [markdown] why fix_race
# **Why it matters.** Persistent kernels, stream-K, fused all-reduce and DeepEP's transfers all hold such counters. A
# test on one chip proves little: take one of your fences away, check, and read in the report which targets failed; put
# it back and take the next. Which fence did `gfx1100` never miss, and the other two did?

# %% [markdown] a kernel that spills
# ## Before 07.no_spills: a kernel that spills
#
# The distance between column $m$ of $a$ and column $n$ of $b$:
#
# $$\text{out}_{m,n} = \sum_{k=0}^{K-1} |a_{k,m} - b_{k,n}|$$
#
# **Given** `a` of shape `(K, M)` and `b` of shape `(K, N)`, contiguous float32, all sizes 1 or more. Return `out` of
# shape `(M, N)`, float32. For example, with $K = 2$: $a = (1, 2)$ as its only column and $b = (4, 0)$ as its only
# column give $|1 - 4| + |2 - 0| = 5$.
#
# The kernel below is right, and on some targets it **spills**: what is alive at one time does not fit in the registers
# of a lane, so the compiler stores some of it to memory and loads it again, in the inner loop.


# %% the kernel as it was found
@triton.jit
def distances_found(
    a_ptr,
    b_ptr,
    out_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        ks = (start + tl.arange(0, BLOCK_K))[:, None]
        in_a = (ks < K) & (rows[None, :] < M)
        in_b = (ks < K) & (cols[None, :] < N)
        a = tl.load(a_ptr + ks * M + rows[None, :], mask=in_a, other=0.0)
        b = tl.load(b_ptr + ks * N + cols[None, :], mask=in_b, other=0.0)
        total += tl.sum(tl.abs(a[:, :, None] - b[:, None, :]), axis=0)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(out_ptr + rows[:, None] * N + cols[None, :], total, mask=mask)


def registers_and_spills(kernel, targets, **options):
    """A table: registers of a lane, and what is spilled (NVIDIA: bytes, AMD: registers)."""
    args = (torch.float32, torch.float32, torch.float32, 250, 250, 9)
    found = {}
    for target in targets:
        need = lesson.resources(compile_for(kernel, target, args, **options))
        found[target] = {"registers": need.registers, "spills": need.spills}
    return lesson.table(found, first="target")


SEVEN = ("sm_80", "sm_90", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
as_found = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 4, "num_warps": 4}
registers_and_spills(distances_found, ("sm_80", "gfx942", "gfx1100"), **as_found)

# %% [markdown] statement of no_spills
# ## 07.no_spills: retile until nothing spills
#
# Few registers beside many spills are no comfort: what was spilled needs no register until it is loaded again.
#
# **Write the kernel and its launch**, `no_spills(a, b)`, so that
#
# - the result is right, for sizes that are no multiple of a tile;
# - nothing spills on any of `sm_80`, `sm_90`, `gfx90a`, `gfx942`, `gfx950`, `gfx1100`, `gfx1201`;
# - with $M = N = 255$ **4 to 8 programs** are launched: a tile of the result has 8192 elements or more, in one piece,
#   not in strips, no side of it is longer than the matrix, and each program loads its part of $a$ and $b$ once. With
#   tiles of 32 x 32 nothing would spill either, and every number would be loaded 8 times by $a$'s side and 8 times by
#   $b$'s.
#
# Tile, order of work and number of waves are yours, and so are further `tl.constexpr` parameters of the kernel. Before
# you change anything, count what one lane of 32, and one of 64, must hold of the sum, and what one step of the loop
# adds. `registers_and_spills(distances_kernel, SEVEN, BLOCK_M=..., BLOCK_N=..., num_warps=...)` shows what came
# of it.


# %% 07.no_spills tags=["answer", "07.no_spills"]
@triton.jit
def distances_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    # BEGIN SOLUTION
    rows = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    cols = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(K):
        a = tl.load(a_ptr + k * M + rows, mask=rows < M)
        b = tl.load(b_ptr + k * N + cols, mask=cols < N)
        total += tl.abs(a - b)
    tl.store(out_ptr + rows * N + cols, total, mask=(rows < M) & (cols < N))
    # END SOLUTION


def no_spills(a: Tensor, b: Tensor) -> Tensor:
    """(K, M) and (K, N) -> (M, N): sums of absolute differences of columns."""
    # BEGIN SOLUTION
    (K, M), N = a.shape, b.shape[1]
    out = a.new_empty(M, N)
    grid = (triton.cdiv(M, 128), triton.cdiv(N, 64))
    distances_kernel[grid](a, b, out, M, N, K, BLOCK_M=128, BLOCK_N=64, num_warps=4)
    return out
    # END SOLUTION


# %% 07.no_spills check tags=["check", "07.no_spills"]
check("07.no_spills")

# %% [markdown] why no_spills
# **Why it matters.** A kernel that was tuned where a lane has 512 registers spills where it has 255, with no message.
# Spilled values go through the caches in the innermost loop. Before you search for a faster tile, look at this number.

# %% [markdown] statement of sm_partition
# ## 07.sm_partition: how many SMs for communication?
#
# A persistent kernel has `sms` SMs (or CUs). It computes `tiles` tiles, each of which takes one SM `tile_us`
# microseconds, and it sends `megabytes` MB over a link. Two ways:
#
# **A split.** $n$ SMs only send, the others only compute, at the same time. One SM moves `sm_gb` GB/s, and the link no
# more than `link_gb` GB/s. The kernel ends with the slower side. In microseconds:
#
# $$t_\text{send}(n) = \frac{1000 \cdot \text{megabytes}}{\min(n \cdot \text{sm\_gb},\ \text{link\_gb})} \qquad
# t_\text{compute}(n) = \left\lceil \frac{\text{tiles}}{\text{sms} - n} \right\rceil \cdot \text{tile\_us}$$
#
# $$t(n) = \max(t_\text{send}(n),\ t_\text{compute}(n)) \qquad 1 \le n \le \text{sms} - 1$$
#
# **One after the other.** All SMs send, then all compute: $t_\text{send}(\text{sms}) + t_\text{compute}(0)$.
#
# **Write `sm_partition(sms, tiles, tile_us, megabytes, sm_gb, link_gb)`**: the $n$ of the fastest split, the fewest
# among equals; and 0 where one after the other is as fast as the best split, or faster. 1 MB is $10^6$ bytes, 1 GB/s is
# $10^9$ bytes a second. `sms` is 2 or more, `tiles` 1 or more, the other numbers are above 0. Compute in microseconds,
# as the formulas stand: in seconds, roundings would tell equal times apart.
#
# **Example**: `sms` 8, 24 tiles of 10 us, 1 MB, `sm_gb` 10, `link_gb` 40.
#
# | $n$ | send, us | compute, us | both, us |
# |---|---|---|---|
# | 1 | 100 | 4 rounds: 40 | 100 |
# | 2 | 50 | 4 rounds: 40 | **50** |
# | 3 | 33.3 | 5 rounds: 50 | 50 |
# | 4 | 25 | 6 rounds: 60 | 60 |
# | one after the other | 25 | 3 rounds: 30 | 55 |
#
# So `sm_partition(8, 24, 10.0, 1.0, 10.0, 40.0)` is 2.


# %% 07.sm_partition tags=["answer", "07.sm_partition"]
def sm_partition(
    sms: int,
    tiles: int,
    tile_us: float,
    megabytes: float,
    sm_gb: float,
    link_gb: float,
) -> int:
    """How many SMs only send; 0: all send, then all compute.

    >>> sm_partition(8, 24, 10.0, 1.0, 10.0, 40.0)
    2
    """

    # BEGIN SOLUTION
    def send(n):
        return 1000 * megabytes / min(n * sm_gb, link_gb)

    def compute(workers):
        return -(-tiles // workers) * tile_us

    best, chosen = send(sms) + compute(sms), 0
    for n in range(1, sms):
        time = max(send(n), compute(sms - n))
        if time < best:
            best, chosen = time, n
    return chosen
    # END SOLUTION


# %% 07.sm_partition check tags=["check", "07.sm_partition"]
check("07.sm_partition")

# %% [markdown] payoff of sm_partition
# **The payoff.** `lesson.roles_kernel` is such a kernel in Triton, with the queue of `07.fix_race` between its roles.
# Below it is executed on two virtual GPUs, with 8 programs and 24 tiles, first with the number that you chose. The
# tiles of the busiest program that computes are the rounds of the model. Rounds that a program waited show who waited
# for whom; they are no time.
#
# Before you run it: with 4 senders, how many tiles does the busiest of the other 4 compute? Who waits for whom?

# %% your split, executed
rows = {}
with lesson.when_written():
    chosen = sm_partition(8, 24, 10.0, 1.0, 10.0, 40.0)
    for senders in dict.fromkeys((chosen, 0, 1, 4)):
        for target in ("sm_90", "gfx942"):
            run = lesson.roles_run(8, senders, 24, target)
            name = f"{senders} send" if senders else "all send, then compute"
            rows[f"{name}, {target}"] = {
                "right": run.right,
                "tiles of the busiest": run.most_computed,
                "rounds waited by senders": sum(run.rounds[:senders]),
                "rounds waited by the others": sum(run.rounds[senders:]),
            }
lesson.table(rows, first="split")

# %% [markdown] end of the lab
# ## Done
#
# You have written for both machines in their own words. When a kernel is slow or wrong you can now go down to the
# instruction that makes it so, and back up to the line of Triton that caused it. Unit 08 needs that at once: FP8 is
# where a conversion, its order of halves and its rounding decide.

# %% progress
progress()
