"""04.cross_entropy: the mean loss of a language model and its gradient, block by block, without probabilities."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.gradient import forward_and_backward
from gpu_utils.exercises.u04_triton_reductions import cross_entropy_slips as slips
from gpu_utils.grading import apart
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Limit, Misconception, Speed

MOST_MOVED = 3.4
"""Bytes moved over those of the logits. Forward reads them, backward reads them and writes as many: 3. Numbers that all
lanes of a program load (the label, the sum) add up to 0.16 on sm_80 and gfx942; a second reading adds 1."""

HIDDEN = 4096
"""Logits at the head or the end of a row that are -inf: at the head whole blocks of any size up to this one."""

FAR = {"rows": 4, "cols": 21, "dtype": "bfloat16", "row_stride": 2**30}
"""Triton takes a stride for 32 bits as long as it fits, and row 2 begins 2^31 elements behind row 0."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    rows, cols = case["rows"], case["cols"]
    width = case.get("width", cols)
    logits = 3 * torch.randn(rows, width, generator=generator)
    targets = torch.randint(cols // 2, cols, (rows,), generator=generator)
    ignored = case.get("ignore_index", -100)
    if case.get("peak"):
        logits += case["peak"] * (1 - 2 * (torch.arange(rows) % 2))[:, None]
    if case.get("hidden"):
        logits[0::4, :HIDDEN] = -math.inf
        logits[2::4, -HIDDEN:] = -math.inf
        logits[1::2, 1::3] = -math.inf
        targets[0::4] = cols - 1 - targets[0::4] % (cols - HIDDEN)  # labels are where logits are finite
        targets[2::4] %= cols - HIDDEN
        targets[1::2] -= (targets[1::2] % 3 == 1).long()
    targets[1::3] = ignored
    if case.get("all_ignored"):
        targets[:] = ignored
    logits[:, cols:] = 50.0  # what lies between the rows shows where it is read
    dy = 200.0 + 400.0 * torch.rand((), generator=generator)
    far = {"row_stride": case["row_stride"]} if case.get("row_stride") else {}
    return {
        "logits": logits.to(getattr(torch, case.get("dtype", "float32")))[:, :cols],
        "targets": targets,
        "ignore_index": ignored,
        "dy": dy,
        **far,
    }


_FORWARD_AND_BACKWARD = forward_and_backward("logits", value="loss")


def _call(answer: Callable[..., Any], inputs: Inputs) -> dict[str, Any]:
    """Forward and backward; with `row_stride` the rows of the logits are brought that far from each other first."""
    given = dict(inputs)
    stride = given.pop("row_stride", 0)
    if stride:
        given["logits"] = apart.rows_apart(given["logits"], stride)
    return _FORWARD_AND_BACKWARD(answer, given)


def cross_entropy_reference(
    logits: Tensor, targets: Tensor, ignore_index: int, dy: Tensor, row_stride: int = 0
) -> dict[str, Tensor]:
    """The mean of lse(row) - row[target] over the rows that count, and dy times its gradient, in float64.

    Where no row counts the mean is 0 / 0 = NaN and the gradient is 0, as in torch.
    """
    x = logits.double()
    counts = targets != ignore_index
    lse = x.logsumexp(1, keepdim=True)
    place = targets.where(counts, 0)[:, None]
    count = counts.double().sum()
    loss = (lse - x.gather(1, place))[counts].sum() / count
    gradient = (x - lse).exp().scatter_add(1, place, -torch.ones_like(x[:, :1])) * (dy.double() / count.clamp(min=1))
    return {"loss": loss, "dlogits": gradient.where(counts[:, None], 0.0)}


def _tolerance(case: Case, inputs: Inputs) -> dict[str, Tolerance]:
    # a sum of cols terms of one sign, each at most 1, is off by a share of at most cols roundings, and its logarithm
    # by as much; lse is rounded at the size of the largest logit, and exp makes a relative error of an absolute one
    logits = inputs["logits"].float()
    largest = float(logits.masked_fill(logits.isinf(), 0).abs().max())
    k = logits.shape[1] + 2 * math.ceil(largest)
    counted = max(1, int((inputs["targets"] != inputs["ignore_index"]).sum()))
    size = float(inputs["dy"]) / counted
    return {
        "loss": tolerance(torch.float32, k=k),
        "dlogits": tolerance(inputs["logits"].dtype, k=k, magnitude=size),
    }


def _tolerance_of_many(case: Case, inputs: Inputs) -> dict[str, Tolerance]:
    # over 50,257 logits each p is small: its error is a share of it, of the root of as many roundings
    of_a_sum = 2 + math.isqrt(case["cols"])
    size = float(inputs["dy"]) / max(1, int((inputs["targets"] != inputs["ignore_index"]).sum()))
    return {
        "loss": tolerance(torch.float32, roundings=of_a_sum),
        "dlogits": tolerance(torch.float32, magnitude=size, roundings=of_a_sum),
    }


def _dtypes(inputs: Inputs) -> dict[str, torch.dtype | None]:
    return {"loss": torch.float32, "dlogits": inputs["logits"].dtype}


def _most_moved(case: Case) -> float:
    """Where rows begin and end with whole transactions."""
    whole = case.get("cols", 1) % 4096 == 0
    return MOST_MOVED * case["rows"] * case["cols"] * 4 if whole else math.inf


def _most_stored(case: Case) -> float:
    """The gradient, and sixteen numbers for each row."""
    if isinstance(case, Example):
        return math.inf
    size = getattr(torch, case.get("dtype", "float32")).itemsize
    return case["rows"] * (case["cols"] * size + 64)


def _fresh(rng: random.Random) -> Case:
    dtype = rng.choice(["float32", "float32", "bfloat16", "float16"])
    cols = 2 * rng.randrange(60, 700) + 1
    width = {"width": (cols // 16 + 1) * 16} if dtype == "float16" else {}
    ignored = rng.choice([-100, 2, cols - 1])
    return Case("sizes nobody chose", rows=rng.randrange(3, 9), cols=cols, dtype=dtype, ignore_index=ignored, **width)


EXERCISE = Exercise(
    id="04.cross_entropy",
    title="Cross-entropy that never holds probabilities",
    parameters=("logits", "targets", "ignore_index"),
    kind="kernel",
    inputs=_inputs,
    reference=cross_entropy_reference,
    tolerance=_tolerance,
    dtype=_dtypes,
    call=_call,
    cases=(
        Example(
            "the example of the statement",
            logits=lambda: torch.tensor([[0.0, math.log(3.0)], [5.0, 5.0], [0.0, math.log(3.0)]]),
            targets=lambda: torch.tensor([1, -100, 0]),
            ignore_index=-100,
            dy=lambda: torch.tensor(1.0),
        ),
        Case("whole blocks: here every byte is counted", rows=6, cols=4096),
        Case(
            "whole blocks of -inf at the head or the end of a row, and -inf in between", rows=4, cols=4501, hidden=True
        ),
        Case("rows lie further apart than they are long", rows=7, cols=1257, width=1264, dtype="float16"),
        Case("half precision of the other kind", rows=5, cols=1001, dtype="bfloat16"),
        Case("logits near 10,000 and near -10,000", rows=5, cols=1501, peak=1e4),
        Case("the label that is ignored is a token of the vocabulary", rows=7, cols=701, ignore_index=5),
        Case("no row counts: the mean is 0 / 0, the gradient 0", rows=5, cols=301, all_ignored=True),
        Case("many rows, a small vocabulary", rows=1030, cols=21),
        Case("rows 2^30 elements apart: row times stride leaves 32 bits", **FAR),
    ),
    fresh=_fresh,
    limits=(
        Limit(
            "launches",
            "Forward and backward launch kernels of your own; one for the rows, one for the mean and one for the "
            "gradient are enough.",
            at_least=lambda case: 2,
            at_most=lambda case: 4,
        ),
        Limit(
            "global_store_bytes",
            "Only the gradient is as large as the logits. It is written once, by the backward pass and in their type; "
            "the forward pass leaves a few numbers for each row.",
            at_most=_most_stored,
        ),
        Limit(
            "global_moved_bytes",
            "The logits are read once in the forward pass and once in the backward pass, and the gradient is written "
            "once: three times their bytes.",
            at_most=_most_moved,
        ),
        Limit(
            "scratch_bytes",
            "Registers spill to memory: a block is too large for its warps. Take a smaller BLOCK.",
            at_most=lambda case: 0,
        ),
    ),
    torch_may=(),
    address_space=8 << 30,
    seconds=30.0,
    failures=2,
    speed=Speed(
        case=Case("a batch of GPT-2's logits: 412 MB", rows=2048, cols=50257),
        baseline="torch's cross_entropy",
        against=slips.of_torch,
        bytes=lambda case: 3 * 4 * case["rows"] * case["cols"],
        tiers=(1.0, 1.4, 1.8),
        tolerance=_tolerance_of_many,
    ),
    trivial={
        "zeros": lambda logits, targets, ignore_index: (0.0 * logits.nan_to_num(0, 0, 0)).sum().float(),
        "ones": lambda logits, targets, ignore_index: logits.nan_to_num(0, 0, 0).sum().float() * 0 + 1,
        "nan": lambda logits, targets, ignore_index: logits.sum().float() * math.nan,
        "an input": lambda logits, targets, ignore_index: logits[0, -1].float(),
    },
    misconceptions=(
        Misconception(
            "no_peak",
            slips.answer("no peak"),
            "exp of a large logit is infinite, and exp of a very small one is 0, whose logarithm is -inf. Subtract the "
            "row's peak from every logit before exp, and add it again behind log.",
        ),
        Misconception(
            "no_rescaling",
            slips.answer("no rescaling"),
            "Rows of several blocks are wrong. The sum so far was taken relative to the peak so far: when a block "
            "brings a higher one, the old sum has to shrink to the new base. By what factor?",
        ),
        Misconception(
            "each_block_its_own_peak",
            slips.answer("own peaks"),
            "Rows of several blocks are wrong: each block's sum is relative to its own peak, and sums with different "
            "bases cannot be added. Bring both to the higher of the two peaks first.",
        ),
        Misconception(
            "last_block_alone",
            slips.answer("last block alone"),
            "The sum of a row holds its last block only: each step replaces the sum so far. Bring that sum to the new "
            "peak, and add it.",
        ),
        Misconception(
            "inf_minus_inf",
            slips.answer("unguarded"),
            "NaN where a whole block is -inf: the peak is still -inf then, and -inf - (-inf) is NaN, in the factor as "
            "well as in the terms. The sum of such a block is 0. What could be subtracted in place of the peak?",
        ),
        Misconception(
            "peak_from_zero",
            slips.answer("from zero"),
            "It fails where all logits of a row are far below 0: a peak that starts at 0 stays there, every exp is 0, "
            "and so is their sum. Which number is below every logit?",
        ),
        Misconception(
            "peak_lost",
            slips.answer("peak lost"),
            "log of the sum alone is relative to the peak: log(sum exp(x)) = peak + log(sum exp(x - peak)).",
        ),
        Misconception(
            "padding_counts",
            slips.answer("padding counts"),
            "Lanes behind the end of a row take part: with other=0.0 each adds exp(0 - peak) to the sum, and may be "
            "the peak itself. Which value for `other` adds nothing and is never the peak?",
        ),
        Misconception(
            "tail_missing",
            slips.answer("tail missing"),
            "The last, incomplete block of each row is missing from its sum: the loop goes on while a block begins "
            "before the end of the row.",
        ),
        Misconception(
            "base_two",
            slips.answer("base two"),
            "exp2(x) is 2 to the power x. exp(x) is exp2(x / ln 2), so the logits need the factor 1.4427 first, and a "
            "logarithm to base 2 the factor ln 2 afterwards.",
        ),
        Misconception(
            "own_logit_missing",
            slips.answer("no own logit"),
            "The loss of a row is lse - logits[row, target]. Here the label's own logit is not taken off.",
        ),
        Misconception(
            "own_logit_of_row_0",
            slips.answer("own logit of row 0"),
            "The label's logit comes from row 0 in every row: its address needs row * stride as well.",
        ),
        Misconception(
            "label_of_an_ignored_row",
            slips.answer("label unmasked"),
            "An offset of about -100 elements: the label is ignore_index, which is no token, and logits are loaded at "
            "it. Mask this load.",
        ),
        Misconception(
            "ignored_label_unknown",
            slips.answer("ignored forgotten"),
            "Rows whose label is ignore_index take part. They have no loss, do not count in the mean and get a "
            "gradient of 0; a label of -100 is no place in the row either.",
        ),
        Misconception(
            "always_minus_100",
            slips.answer(ignore=-100),
            "-100 is only the default: compare the labels with ignore_index. Here it is a token of the vocabulary.",
        ),
        Misconception(
            "mean_over_all_rows",
            slips.answer("all rows divide"),
            "The sum is divided by the number of rows. Rows whose label is ignored do not count in the mean.",
        ),
        Misconception(
            "first_rows_alone",
            slips.answer("first rows alone"),
            "With few rows it is right: the kernel that takes the mean looks at one block of rows, and there can be "
            "more than a block has.",
        ),
        Misconception(
            "sum_for_mean",
            slips.answer("sum"),
            "This is the sum of the losses. The result is their mean over the rows that count, and so is the gradient.",
        ),
        Misconception(
            "at_least_one_row",
            slips.answer("at least one"),
            "Where no row counts the loss is 0 / 0 = NaN, as in torch: no loss was measured, and a loss of 0 would "
            "look like a perfect model.",
        ),
        Misconception(
            "zero_times_infinity",
            slips.answer("zero times"),
            "The gradient is NaN where no row counts: upstream / 0 is infinite, and 0 times infinity is NaN. Choose "
            "the 0 with tl.where in place of multiplying by it.",
        ),
        Misconception(
            "offsets_of_32_bits",
            slips.answer("32 bits"),
            "It fails where rows lie far apart: the number of a program and a stride have 32 bits, and so has their "
            "product, which is negative from 2^31 on. Make the row 64 bits wide before you multiply: .to(tl.int64).",
        ),
        Misconception(
            "row_stride_forgotten",
            slips.answer("row ends at n_cols"),
            "It fails where the logits are a slice of a wider matrix: from row to row it is logits.stride(0) elements, "
            "not the size of the vocabulary.",
        ),
        Misconception(
            "upstream_forgotten",
            slips.answer("no upstream"),
            "The gradient ignores what comes from above: backward gets the gradient of the loss as a tensor, and it is "
            "1 only where the loss is the end of everything. With loss scaling it is 65,536.",
        ),
        Misconception(
            "gradient_of_the_sum",
            slips.answer("not the mean's"),
            "The loss is a mean, so each row's gradient is divided by the number of rows that count.",
        ),
        Misconception(
            "gradient_without_the_one",
            slips.answer("no one"),
            "These are the probabilities. The label's own logit is taken off the loss, so its gradient is p - 1.",
        ),
        Misconception(
            "one_unscaled",
            slips.answer("one unscaled"),
            "The 1 of the label is subtracted after the scaling. upstream / count multiplies (p - 1) as a whole.",
        ),
        Misconception(
            "probabilities_unnormalised",
            slips.answer("unnormalised"),
            "exp(x - peak) is no probability yet: it has to be divided by the row's sum. exp(x - lse) is.",
        ),
        Misconception(
            "ignored_rows_learn",
            slips.answer("ignored rows learn"),
            "Rows whose label is ignored get a gradient here: no label matches, so all their logits are pushed down. "
            "Their gradient is 0, and has to be written as such.",
        ),
        Misconception(
            "gradient_laid_out_like_the_logits",
            slips.answer("rows of the logits"),
            "The gradient is new memory with rows of its own stride. Where the logits are a slice of a wider matrix, "
            "their stride leads out of it.",
        ),
        Misconception(
            "store_unmasked",
            slips.answer("store unmasked"),
            "The last block of a row writes past the row's end: into the next row, and out of the gradient.",
        ),
        Misconception(
            "reads_twice",
            slips.answer("reads twice"),
            "The numbers are right, but the forward pass reads the logits twice: first for the peak, then for the sum. "
            "Keep a sum for the peak so far, and correct it when the peak grows.",
        ),
        Misconception(
            "probabilities_written",
            slips.answer("writes in forward"),
            "The numbers are right, but the forward pass writes something as large as the logits. Probabilities can be "
            "made anew from the logits and one number for each row; and a gradient that is made in the forward pass "
            "must be read and written again when the gradient from above is known.",
        ),
        Misconception(
            "row_numbers_in_half",
            slips.answer(rows_dtype=lambda logits: logits.dtype),
            "It fails for half precision alone: what the forward pass leaves for each row is kept in the type of the "
            "logits. A few numbers cost nothing: keep them in float32.",
        ),
        Misconception(
            "loss_in_half",
            slips.answer(loss_dtype=lambda logits: logits.dtype),
            "The loss is float32, whatever the logits are.",
        ),
        Misconception(
            "gradient_in_float32",
            slips.answer(gradient_dtype=torch.float32),
            "For half precision the kernel writes a gradient of twice the size, and autograd makes another one of it "
            "in the type of the logits, without a word. Allocate it with dtype=logits.dtype; the store converts.",
        ),
        Misconception(
            "gradient_over_the_logits",
            slips.answer(in_place=True),
            "The gradient is written over the logits. That saves memory, and some libraries do it; here somebody still "
            "needs the logits, so write it to new memory.",
        ),
        Misconception(
            "a_loss_for_each_row",
            slips.answer(each_row=True),
            "The result has a loss for each row. The mean over the rows that count is one number, of shape ().",
        ),
        Misconception(
            "no_way_back",
            slips.answer(detached=True),
            "The loss does not know how it was made. Write a torch.autograd.Function with forward and backward, and "
            "return what its apply returns.",
        ),
        Misconception(
            "copies_first",
            slips.answer(copied=True),
            "contiguous() copies all logits before your kernel reads them. It can read them where they are, by their "
            "row stride.",
        ),
        Misconception(
            "torch_does_a_part",
            slips.answer(torch_scales=True),
            "The numbers are right, and torch did a part of the work: each of its operations is a launch of its own. A "
            "kernel of one program can take sum, count and mean, and the scale belongs into the gradient's kernel.",
        ),
        Misconception(
            "computes_with_torch",
            slips.of_torch,
            "The numbers are right, but torch computed them. Here it is the work of your kernels.",
        ),
    ),
    hints=(
        "A row's loss is lse - logits[row, target] with lse = log(sum(exp(row))), and its gradient is exp(row - lse), "
        "less 1 at the label. So one number for each row is all that the backward pass needs. How can it be found in "
        "one reading, when the peak is known only at the end?",
        "Keep two numbers while you go through a row: the peak so far, and the sum of exp(x - peak so far). When a "
        "block raises the peak, the old sum is multiplied by exp(old peak - new peak). Three kernels: a program for "
        "each row; one program for the mean and the number of rows that count; a program for each row's gradient.",
        "In the loop: higher = tl.maximum(peak, tl.max(x, axis=0)); base = 0 where higher is -inf, else higher; total "
        "= total * tl.exp(peak - base) + tl.sum(tl.exp(x - base), axis=0); peak = higher. Behind it lse = peak + "
        "tl.log(total), stored for each row. Backward loads the gradient from above and the count by their pointers, "
        "and stores tl.where(target == ignore_index, 0.0, (tl.exp(x - lse) - (cols == target)) * scale).",
    ),
    explanation=(
        "The sum of exp(x - peak) can be corrected when a higher peak turns up: multiply it by exp(old - new). So one "
        "reading is enough, in blocks of any size, and (peak, sum) of two parts of a row merge into those of both. "
        "Attention over blocks of keys (unit 06) rests on the same step. The probabilities are never stored: "
        "exp(x - lse) makes them anew where they are needed, and arithmetic is free in a kernel that waits for memory. "
        "For GPT-2 with 8 sequences of 1,024 tokens the logits in float32 are 8,192 x 50,257 x 4 bytes = 1.65 GB, and "
        "each of the three times that they cross the memory bus counts."
    ),
)
