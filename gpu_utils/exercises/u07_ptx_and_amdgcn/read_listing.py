"""07.read_listing: what listings of both vendors load, copy, multiply and wait for, and which moves data best."""

from __future__ import annotations

import random

import torch

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u07_ptx_and_amdgcn import read_listing_slips as slips
from gpu_utils.exercises.u07_ptx_and_amdgcn.read_listing_texts import one_each, short, stored, written
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

TEXT = """
.target sm_80
    ld.param.b64 %rd1, [add_param_0];
    @%p1 ld.global.v2.b32 {%r1, %r2}, [%rd1];
    // bar.sync 0;
"""
GCN = """\t.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
add:
    s_load_dwordx2 s[0:1], s[0:1], 0x0
    global_load_dwordx3 v[0:2], v3, s[0:1]
    s_waitcnt vmcnt(0)  ; s_barrier
    s_endpgm
"""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    if isinstance(case, Example):
        return case.inputs
    rng = random.Random(int(torch.randint(2**31, (), generator=generator)))
    return {"listings": {f"text {n}": written(rng, case["vendor"], case["kernels"]) for n in range(case["texts"])}}


def _fresh(rng: random.Random) -> Case:
    vendor = rng.choice(("nvidia", "amd"))
    return Case("texts that nobody has seen", vendor=vendor, kernels=rng.choice((1, 2)), texts=rng.choice((2, 3)))


def _stored(*names: str) -> dict[str, str]:
    return {name: stored(name) for name in names}


def _decisions(vendor: str) -> tuple[Example, ...]:
    """Small texts of which the best differs by the rule that is followed."""
    v = vendor
    return (
        Example(
            f"{vendor}: the widest load of all is not in the best text",
            listings={"a": short(v, (128, 32, 32, 32)), "b": short(v, (64, 64)), "c": short(v, (32,))},
        ),
        Example(
            f"{vendor}: copies count as loads do",
            listings={"a": short(v, (64, 64)), "b": short(v, (32,), (128, 128, 128)), "c": short(v, (), (32,) * 9)},
        ),
        Example(
            f"{vendor}: copies of whole tiles have no width",
            listings={"a": short(v, (64, 64)), "b": short(v, (128,), (), 3), "c": short(v, (), (), 2)},
        ),
        Example(
            f"{vendor}: of equals the first",
            listings={"a": short(v, (32, 32)), "b": short(v, (64, 64)), "c": short(v, (64,))},
        ),
        Example(
            f"{vendor}: means that differ by little",
            listings={"a": short(v, (32,) + (64,) * 7), "b": short(v, (), (64,)), "c": short(v, (32,) * 2 + (64,) * 5)},
        ),
        Example(
            f"{vendor}: means that differ by less than a half",
            listings={"a": short(v, (32,) * 4 + (64,) * 9), "b": short(v, (32,) * 3 + (64,) * 7)},
        ),
        Example(f"{vendor}: every way to write a load", listings=one_each(v)),
    )


EXERCISE = Exercise(
    id="07.read_listing",
    title="Read listings, and choose one",
    parameters=("listings",),
    kind="host",
    inputs=_inputs,
    reference=slips.right,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    cases=(
        Example("the example of the docstring", listings={"add": TEXT}),
        Example("an example of AMD's", listings={"odd": GCN}),
        Example(
            "Triton's, of one kernel with pointers that 16 divides and without",
            listings=lambda: _stored("gelu.sm_80.plain", "gelu.sm_80.aligned"),
        ),
        Example("the same for gfx942", listings=lambda: _stored("gelu.gfx942.plain", "gelu.gfx942.aligned")),
        Example(
            "Triton's, a product with one stage and with three",
            listings=lambda: _stored("matmul.sm_90.one_stage", "matmul.sm_90.three_stages", "matmul.sm_80.one_stage"),
        ),
        Example(
            "Triton's for three AMD targets, whose instructions have other names",
            listings=lambda: _stored("row_sum.gfx1100", "row_sum.gfx1201", "matmul.gfx950.one_stage"),
        ),
        Case("drawn PTX of two kernels, with all that misleads", vendor="nvidia", kernels=2, texts=2),
        Case("drawn AMDGCN of two kernels, with all that misleads", vendor="amd", kernels=2, texts=2),
        *_decisions("nvidia"),
        *_decisions("amd"),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "comments_too",
            slips.comments_too,
            "Instructions in comments were counted. // and /* */ begin one in both languages, ; in AMDGCN.",
        ),
        Misconception(
            "words_anywhere",
            slips.words_anywhere,
            "Every line was counted in which such a word stands somewhere: names of kernels, directives and comments. "
            "An instruction begins with its mnemonic.",
        ),
        Misconception(
            "no_block_comments",
            slips.no_block_comments,
            "Lines between /* and */ were counted. Such a comment may go over several lines, and the next */ ends it.",
        ),
        Misconception(
            "no_semicolon_comments",
            slips.no_semicolon_comments,
            "In AMDGCN a semicolon begins a comment, which is no instruction.",
        ),
        Misconception(
            "no_predicates",
            slips.no_predicates,
            "Instructions with a predicate are missing: @%p1 or @!%p1 stands before the mnemonic.",
        ),
        Misconception(
            "first_kernel_only",
            slips.first_kernel_only,
            "Counting stopped at the end of the first kernel. A text may hold several, and all count.",
        ),
        Misconception(
            "one_in_a_line",
            slips.one_in_a_line,
            "A line of PTX may hold several instructions, in braces: each ends with a semicolon.",
        ),
        Misconception(
            "arguments_too",
            slips.arguments_too,
            "Arguments of the kernel were counted as loads: ld.param and s_load read them, for the whole wave at once.",
        ),
        Misconception(
            "shared_too",
            slips.shared_too,
            "Loads from shared memory were counted: ld.shared, ds_read and ds_load read what is on the chip.",
        ),
        Misconception(
            "scratch_too",
            slips.scratch_too,
            "Spilled registers were counted as loads: ld.local and scratch_load bring back what the kernel put away.",
        ),
        Misconception(
            "waits_are_copies",
            slips.waits_are_copies,
            "cp.async.commit_group and cp.async.wait_group copy nothing: they close a group of copies, and wait for "
            "one.",
        ),
        Misconception(
            "stores_are_copies",
            slips.stores_are_copies,
            "A copy from shared memory was counted. In PTX the destination comes first: .shared::cta.global is a copy "
            "to shared memory, .global.shared::cta one from there.",
        ),
        Misconception(
            "lds_at_the_end",
            slips.lds_at_the_end,
            "Some copies to shared memory were taken for loads: on AMD the word lds may be the last of the operands.",
        ),
        Misconception(
            "copies_without_tma",
            slips.copies_without_tma,
            "Copies of whole tiles are missing: cp.async.bulk, with or without .tensor, and tensor_load_to_lds.",
        ),
        Misconception(
            "any_wgmma",
            slips.any_wgmma,
            "wgmma.fence, .commit_group and .wait_group multiply nothing. Only .mma_async does.",
        ),
        Misconception(
            "any_matrix",
            slips.any_matrix,
            "Moves were counted as matrix instructions: ldmatrix, stmatrix and reads that transpose only bring "
            "operands.",
        ),
        Misconception(
            "mfma_only",
            slips.mfma_only,
            "Matrix instructions are missing: wgmma and tcgen05 beside mma, and on AMD v_wmma, and the sparse v_smfmac "
            "and v_swmmac.",
        ),
        Misconception(
            "signals_too",
            slips.signals_too,
            "One barrier of gfx12 was counted twice: s_barrier_signal arrives, s_barrier_wait waits. Only the wait "
            "counts.",
        ),
        Misconception(
            "no_new_barrier",
            slips.no_new_barrier,
            "Barriers of gfx12 are missing: they wait in s_barrier_wait.",
        ),
        Misconception(
            "any_barrier",
            slips.any_barrier,
            "Barriers of other kinds were counted: bar.warp is for one warp, an mbarrier is an object in memory.",
        ),
        Misconception(
            "fences_too",
            slips.fences_too,
            "Fences and waits were counted as barriers. They order what one wave does, and wait for nobody else.",
        ),
        Misconception(
            "no_vectors",
            slips.no_vectors,
            "The width is that of one register: .v4 and x4 say how many of them a lane loads.",
        ),
        Misconception(
            "old_names_only",
            slips.old_names_only,
            "Names of gfx11 and later have no width here: they end in _b32, _b64, _b128, _u8 instead of _dword, "
            "_dwordx2, _dwordx4, _ubyte.",
        ),
        Misconception("bytes_for_bits", slips.bytes_for_bits, "The widths are in bytes. bits counts bits of one lane."),
        Misconception(
            "bits_of_copies",
            slips.bits_of_copies,
            "bits is the widest load alone. A copy has its width too, but counts in the mean only.",
        ),
        Misconception(
            "copies_are_loads",
            slips.copies_are_loads,
            "Copies were counted as loads too: on AMD they have names like loads, and what is a copy is no load.",
        ),
        Misconception(
            "hexadecimal",
            slips.hexadecimal,
            "The best text hangs on a copy of 0x10 bytes, which are 16: int(text, 0) reads both ways to write it.",
        ),
        Misconception(
            "copies_in_bytes",
            slips.copies_in_bytes,
            "The last number of cp.async counts bytes: 16 of them are 128 bits. The best text hangs on it.",
        ),
        Misconception(
            "best_by_widest",
            slips.best_by_widest,
            "The best text was chosen by its widest instruction. One wide load among narrow ones does not help those.",
        ),
        Misconception(
            "best_by_fewest",
            slips.best_by_fewest,
            "The best text was chosen by the number of its instructions. One narrow load in a loop is one instruction, "
            "too: divide bits by instructions.",
        ),
        Misconception(
            "best_by_sum",
            slips.best_by_sum,
            "The best text was chosen by all its bits together: that only says which listing is longer. Divide by the "
            "number of instructions.",
        ),
        Misconception(
            "best_of_loads",
            slips.best_of_loads,
            "The best text was chosen by loads alone. Copies to shared memory move the same data, and count too.",
        ),
        Misconception(
            "tma_in_the_mean",
            slips.tma_in_the_mean,
            "Copies of whole tiles went into the mean with a width of 0. They have none: leave them out.",
        ),
        Misconception(
            "last_of_equals", slips.last_of_equals, "Two texts are equally good: the first of them is asked for."
        ),
    ),
    hints=(
        "Four steps: take comments away, cut the text into statements (lines in AMDGCN, semicolons in PTX), take away "
        "labels and predicates, look at the mnemonic. Then a regular expression for each row of the table.",
        "re.sub with re.DOTALL takes /* */ away. A statement begins with its mnemonic, statement.split()[0]: in PTX "
        "mnemonic.split('.') gives the parts, and 'global' in parts tells a load from ld.param. Look for copies first: "
        "what is a copy is no load.",
        "Widths: .v4 and .b32 of PTX multiply; AMD's _dwordx4 is 4 * 32, _b128 is 128, _ubyte and _u8 are 8; the third "
        "operand of cp.async times 8. best = max(listings, key=mean), which takes the first of equals, and the mean of "
        "no width at all is 0.",
    ),
    explanation=(
        "A listing is read by its mnemonics, and almost every other line is there to mislead a search for words. The "
        "table of classes is short: a load of global memory, a copy past the registers, a matrix instruction, a "
        "meeting of the block. The decision says what the counts are for: a kernel bound by memory moves the same "
        "bytes either way, and fewer, wider instructions move them with fewer requests in flight to keep track of. "
        "In the listings of the same kernel here it was one promise that made the difference: 16 divides the "
        "address, so four floats may be loaded at once. What the mean cannot say is how often a line runs: for that "
        "the virtual GPU counts."
    ),
)
