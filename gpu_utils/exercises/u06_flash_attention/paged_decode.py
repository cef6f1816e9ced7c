"""06.paged_decode: one new query for each sequence against a cache in pages, found through a table."""

from __future__ import annotations

import math
import random

import torch
from torch import Tensor

from gpu_utils.exercises.u06_flash_attention import paged_decode_slips as slips
from gpu_utils.exercises.u06_flash_attention.paged_decode_slips import PAGE
from gpu_utils.exercises.u06_flash_attention.shared import (
    MOST_OF_A_PROGRAM,
    PEAK,
    attended,
    drawn_queries,
    dtype_of,
    tolerance_of_decoding,
)
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

GARBAGE = (-1, 10**6)


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    lengths, H, D, T = case["lengths"], case["H"], case["D"], case["T"]
    B, dtype, shared = len(lengths), dtype_of(case), case.get("shared", 0)
    q = drawn_queries((B, H, D), dtype, generator)
    counts = [math.ceil(length / PAGE) for length in lengths]
    used = sum(counts) - shared * (B - 1)
    ids = torch.randperm(used + 2, generator=generator).int().tolist()
    pool = torch.full((used + 2 + T, PAGE, 2, H, D), math.nan)  # pages of nobody hold anything
    wide = torch.full((B, T + case.get("beside", 0)), 0, dtype=torch.int32)
    for b, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        own = [int(wide[0, j]) if b and j < shared else ids.pop() for j in range(count)]
        for j in range(shared if b else 0, count):
            filled = min(PAGE, length - j * PAGE)
            pool[own[j], :filled] = torch.randn(filled, 2, H, D, generator=generator)
        behind = [GARBAGE[(b + j) % 2] for j in range(wide.shape[1] - count)]
        wide[b] = torch.tensor(own + behind, dtype=torch.int32)
        if case.get("peak"):  # scores fall by 96 in 32 positions, and exp(96) is infinite
            along = q[b].float() * (math.sqrt(D) / q[b].float().square().sum(1, keepdim=True))
            for t, wanted in enumerate(torch.linspace(PEAK, -PEAK, length)):
                pool[own[t // PAGE], t % PAGE, 0] += along * wanted
    pool = pool.to(dtype)
    k, v = pool[:, :, 0], pool[:, :, 1]
    if not case.get("packed"):
        k, v = k.contiguous(), v.contiguous()
    lengths_of_all = torch.tensor(lengths, dtype=torch.int32)
    return {"q": q, "k_pages": k, "v_pages": v, "table": wide[:, :T], "lengths": lengths_of_all}


def paged_decode_reference(q: Tensor, k_pages: Tensor, v_pages: Tensor, table: Tensor, lengths: Tensor) -> Tensor:
    """Attention of each query to the entries that its row of the table leads to, in float64."""
    rows = []
    for b, length in enumerate(lengths.tolist()):
        t = torch.arange(length)
        pages = table[b, t // PAGE].long()
        rows.append(attended(q[b], k_pages[pages, t % PAGE], v_pages[pages, t % PAGE]))
    return torch.stack(rows)


def _programs(case: Case) -> int:
    return len(case["lengths"]) * int(case["H"])


def _most_load_bytes(case: Case) -> float:
    # where a table's entry is loaded for each position, by all lanes that load from it, that is an eighth of the cache
    valid = 2 * sum(case["lengths"]) * case["H"] * case["D"] * dtype_of(case).itemsize
    return 1.25 * valid + MOST_OF_A_PROGRAM * _programs(case) if case.get("counted") else math.inf


def _case(why: str, lengths: tuple[int, ...], H: int, T: int, D: int = 32, **more: object) -> Case:
    given = {"dtype": "bfloat16", **more}
    return Case(why, lengths=lengths, H=H, T=T, D=D, **given)


def _fresh(rng: random.Random) -> Case:
    lengths = tuple(rng.randrange(1, 120) for _ in range(rng.randrange(2, 4)))
    T = math.ceil(max(lengths) / PAGE) + rng.randrange(3)
    return _case("lengths nobody chose", lengths, rng.randrange(2, 5), T)


EXERCISE = Exercise(
    id="06.paged_decode",
    title="A cache in pages, and a table that finds them",
    parameters=("q", "k_pages", "v_pages", "table", "lengths"),
    kind="kernel",
    inputs=_inputs,
    reference=paged_decode_reference,
    tolerance=tolerance_of_decoding,
    cases=(
        _case("full pages: here bytes are counted", (320, 192), 3, 20, D=64, dtype="float16", counted=True),
        _case("last pages that are not full, one with a single entry", (33, 1, 50), 2, 4),
        _case("sequences that begin with the same two pages", (70, 45, 40), 1, 5, shared=2),
        _case("a table with much room, a part of a wider one", (5, 30), 3, 12, beside=3),
        _case("k and v lie side by side in one pool", (40, 67), 3, 5, D=64, dtype="float16", packed=True),
        _case("scores that fall from 150 to -150", (100, 77), 1, 7, D=64, dtype="float16", peak=True),
    ),
    fresh=_fresh,
    torch_may=(),
    seconds=30.0,
    limits=(
        Limit(
            "launches",
            "One launch is enough: a program looks up the pages of its sequence by itself.",
            at_least=lambda case: 1,
            at_most=lambda case: 1,
        ),
        Limit(
            "blocks",
            "Each head of each sequence is a program of its own, B * H of them.",
            at_least=_programs,
            at_most=_programs,
        ),
        Limit(
            "global_load_bytes",
            "Each valid key and value is to be loaded once, and an entry of the table for a page or a position: in one "
            "pass, block by block.",
            at_most=_most_load_bytes,
        ),
        Limit(
            "global_store_bytes",
            "Only the result is stored; scores stay in registers.",
            at_most=lambda case: 2 * _programs(case) * case["D"] * 2,
        ),
        Limit(
            "scratch_bytes",
            "Registers spill to memory: take smaller blocks of the cache.",
            at_most=lambda case: 0,
        ),
    ),
    misconceptions=(
        Misconception(
            "lengths_ignored",
            slips.answer(room=True),
            "The whole table is followed. Its entries behind the end of a sequence hold anything, -1 too, and lead out "
            "of the pool. The loop ends at lengths[b].",
        ),
        Misconception(
            "one_entry_too_many",
            slips.answer(more=1),
            "One entry too many takes part: a sequence of n entries ends with entry n - 1.",
        ),
        Misconception(
            "whole_last_page",
            slips.answer(whole=PAGE, up=PAGE - 1),
            "The last page is used to its end. Only its first places belong to the sequence; behind them lies what "
            "was there before.",
        ),
        Misconception(
            "full_pages_only",
            slips.answer(whole=PAGE),
            "A last page that is not full is left out: length // 16 rounds down.",
        ),
        Misconception(
            "no_table",
            slips.answer("no table"),
            "Pages are taken one after another as they lie in the pool. Which page comes next is what the table says.",
        ),
        Misconception(
            "table_of_sequence_0",
            slips.answer(table_stride=lambda table: 0),
            "Every sequence follows the first row of the table. It works for pages that all share, and for no others.",
        ),
        Misconception(
            "entry_is_a_position",
            slips.answer("entry is a position"),
            "An entry of the table is taken for a position of the pool. It counts pages: 16 positions each, "
            "k_pages.stride(0) elements.",
        ),
        Misconception(
            "no_remainder",
            slips.answer("no remainder"),
            "Position t is looked for t places behind the beginning of its page. A page has 16 places: what is left of "
            "t once whole pages are taken off?",
        ),
        Misconception(
            "table_unmasked",
            slips.answer("table unmasked"),
            "Keys and values are masked, the table is not: the last block asks for entries behind the end of its row, "
            "and for the last sequence they lie behind the table.",
        ),
        Misconception(
            "rows_of_the_table",
            slips.answer(table_stride=lambda table: table.shape[1]),
            "It fails where the table is a part of a wider one: its rows are table.stride(0) entries apart.",
        ),
        Misconception(
            "rows_by_length",
            slips.answer("rows by length"),
            "A row of the table is taken to be as long as its sequence has pages. Rows of the table are "
            "table.stride(0) apart.",
        ),
        Misconception(
            "values_unmasked",
            slips.answer("v unmasked"),
            "NaN: values of lanes behind the end are loaded, too. Their weight is 0, and 0 times NaN is NaN: mask the "
            "load of v.",
        ),
        Misconception(
            "as_if_contiguous",
            slips.answer(strides=lambda k: (k[0].numel(), k.shape[2] * k.shape[3], k.shape[3])),
            "It fails where k_pages and v_pages are parts of one pool: pages and places lie as far apart as their "
            "strides say.",
        ),
        Misconception(
            "heads_before_places",
            slips.answer(strides=lambda k: (k.stride(0), k.shape[3], PAGE * k.shape[3])),
            "It is written for pages of shape (H, 16, D), as some servers have them. Here a page is (16, H, D): the "
            "next place of the same head is stride(1) further on.",
        ),
        Misconception(
            "numerator_unscaled",
            slips.answer("numerator unscaled"),
            "When a block brings a higher peak, the sum of weights shrinks and the vector does not. Both were taken "
            "relative to the old peak.",
        ),
        Misconception(
            "padding_counts",
            slips.answer("padding counts"),
            "Lanes behind the end of a sequence count: their score is 0, and exp of 0 - peak is added to the sum. A "
            "score that must not count is -inf.",
        ),
        Misconception(
            "torch_gathers",
            slips.torch_gathers,
            "torch copies every page to its place, and the kernel reads the copies: all bytes three times. The kernel "
            "can follow the table by itself.",
        ),
    ),
    hints=(
        "Position 37 of a sequence: which entry of its row of the table, and which place in that page? Write both with "
        "// and %. What is the address, if a page begins every stride(0) elements and a place every stride(1)?",
        "As in 06.decode with one part, but the address of a position has two steps. Load a block of table entries, "
        "one for each position, with the mask that the cache gets, too; then pages * stride + places * stride is a "
        "block of addresses. Lanes behind the length get no entry.",
        "t = start + tl.arange(0, BLOCK); there = t < length; page = tl.load(table_ptr + b * table_stride + t // 16, "
        "mask=there, other=0); at = page * stride_page + t % 16 * stride_place + h * stride_head; k = tl.load(k_ptr + "
        "at[:, None] + d, mask=there[:, None], other=0.0). The rest is the loop of 06.decode, and a division.",
    ),
    explanation=(
        "Attention does not care where keys lie: a sum has no order. So a cache may be cut into pages that lie "
        "anywhere, and sequences that begin alike may share them. The kernel pays with one load of a table entry "
        "before each page, which everything else waits for, and with an address that is a sum of two: page and place. "
        "A block of entries at a time hides most of that wait. What must be right is the end: behind the length, "
        "neither the table's entries nor the rest of the last page mean anything."
    ),
)
