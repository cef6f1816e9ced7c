"""shfl, vote, match, redux, activemask and elect, lane by lane against plain Python."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from ptx_harness import run_lines

from gpu_utils.virtual.ptx.warp import MATCH_FORMS, REDUX_FLOAT_FORMS, REDUX_FORMS, SHFL_FORMS, VOTE_FORMS

LANES = np.arange(64, dtype=np.uint32)
FULL = 0xFFFFFFFF


def shuffled(mode: str, values: list[int], b: int, c: int) -> list[tuple[int, bool]]:
    """The manual's loop for one warp."""
    found = []
    for lane in range(32):
        mask, limit = c >> 8 & 31, c & 31
        top, bottom = lane & mask | limit & ~mask & 31, lane & mask
        step = b & 31
        j, ok = {
            "up": (lane - step, lane - step >= top), "down": (lane + step, lane + step <= top),
            "bfly": (lane ^ step, lane ^ step <= top), "idx": (bottom | step & ~mask & 31,
            (bottom | step & ~mask & 31) <= top),
        }[mode]  # fmt: skip
        found.append((values[j] if ok else values[lane], ok))
    return found


@pytest.mark.parametrize("form", SHFL_FORMS)
@pytest.mark.parametrize("literal", [True, False])
def test_shfl_takes_the_value_that_the_manual_names(form, literal):
    mode = form.split(".")[2]
    values = np.random.default_rng(1).integers(0, 2**32, 64, np.uint32)
    for b, c in itertools.product((0, 1, 2, 3, 8, 16, 31, 33), (0, 31, 0x1F1F, 0x181F, 0x1000, 0x1C07)):
        where = (
            (f"{b}, {c}", "") if literal else ("%bb, %cc", f".reg .b32 %bb, %cc; mov.u32 %bb, {b}; mov.u32 %cc, {c};")
        )
        got, ok = run_lines(
            f".reg .pred %q; {where[1]} {form} %out0|%q, %in0, {where[0]}, -1; selp.b16 %out1, 1, 0, %q;",
            [values],
            [32, 16],
        )
        want = [pair for start in (0, 32) for pair in shuffled(mode, values[start : start + 32].tolist(), b, c)]
        assert list(zip(got.tolist(), ok.astype(bool).tolist(), strict=True)) == want, (b, c)


@pytest.mark.parametrize("form", VOTE_FORMS)
@pytest.mark.parametrize("members", [FULL, 0x0000FFFF, 1])
def test_vote_counts_the_members_only(form, members):
    mode = form.split(".")[2]
    for bits in ([0] * 64, [1] * 64, [i % 3 == 0 for i in range(64)], [1] * 16 + [0] * 48):
        votes = np.array(bits, np.uint16)
        # lanes outside the member mask must not execute the instruction
        body = ".reg .pred %p, %q, %m; .reg .b32 %l, %k; mov.u32 %l, %laneid;"
        body += f" shr.u32 %k, {members}, %l; and.b32 %k, %k, 1;"
        body += " setp.ne.u32 %m, %k, 0; setp.ne.b16 %p, %in0, 0; mov.b32 %out0, 0; setp.ne.u32 %q, 0, 0;"
        target = "%out0" if mode == "ballot" else "%q"
        body += f" @%m {form} {target}, %p, {members};" + ("" if mode == "ballot" else " selp.b32 %out0, 1, 0, %q;")
        (got,) = run_lines(body, [votes], [32])
        for warp in (0, 1):
            inside = [i for i in range(32) if members >> i & 1]
            mine = [int(votes[32 * warp + i]) for i in inside]
            want = {
                "all": int(all(mine)), "any": int(any(mine)), "uni": int(len(set(mine)) == 1),
                "ballot": sum(v << i for i, v in zip(inside, mine, strict=True)),
            }[mode]  # fmt: skip
            assert all(int(got[32 * warp + i]) == want for i in inside)


def test_an_inverted_vote_reads_the_predicate_upside_down():
    votes = (LANES % 2).astype(np.uint16)
    (got,) = run_lines(".reg .pred %p; setp.ne.b16 %p, %in0, 0; vote.sync.ballot.b32 %out0, !%p, -1;", [votes], [32])
    assert set(got.tolist()) == {0x55555555}


@pytest.mark.parametrize("form", REDUX_FORMS)
def test_redux_reduces_over_the_members(form):
    name, kind = form.split(".")[2:]
    values = np.random.default_rng(2).integers(0, 2**32, 64, np.uint32)
    (got,) = run_lines(f"{form} %out0, %in0, -1;", [values], [32])
    view = values.view(np.int32) if kind == "s32" else values
    for warp in (0, 1):
        mine = [int(v) for v in view[32 * warp : 32 * warp + 32]]
        want = mine[0]
        for v in mine[1:]:
            want = {
                "add": want + v,
                "min": min(want, v),
                "max": max(want, v),
                "and": want & v,
                "or": want | v,
                "xor": want ^ v,
            }[name]
        assert set(got[32 * warp : 32 * warp + 32].tolist()) == {want % 2**32}


@pytest.mark.parametrize("form", MATCH_FORMS)
def test_match_finds_the_lanes_with_the_same_value(form):
    bits = int(form[-2:])
    for values in (LANES % 5, LANES * 0 + 7):
        data = values.astype(f"u{bits // 8}")
        if ".all." in form:
            body = f".reg .pred %q; {form} %out0|%q, %in0, -1; selp.b16 %out1, 1, 0, %q;"
            got, ok = run_lines(body, [data], [32, 16])
            same = len(set(values.tolist())) == 1
            assert set(got.tolist()) == {FULL if same else 0}
            assert set(ok.tolist()) == {int(same)}
        else:
            (got,) = run_lines(f"{form} %out0, %in0, -1;", [data], [32])
            for i in range(64):
                warp = i // 32 * 32
                assert got[i] == sum(1 << j for j in range(32) if values[warp + j] == values[i])


def test_activemask_shows_the_lanes_that_took_the_branch():
    (got,) = run_lines(
        ".reg .pred %p; mov.b32 %out0, 0; setp.lt.u32 %p, %in0, 8; @!%p bra OVER; activemask.b32 %out0; OVER:",
        [LANES % 32],
        [32],
    )
    assert got[:8].tolist() == [0xFF] * 8
    assert got[8:32].tolist() == [0] * 24


def test_elect_picks_one_lane_of_each_warp():
    body = ".reg .pred %q; elect.sync %out0|%q, -1; selp.b16 %out1, 1, 0, %q;"
    leader, chosen = run_lines(body, [LANES], [32, 16])
    assert chosen.reshape(2, 32).sum(axis=1).tolist() == [1, 1]
    assert [int(np.argmax(row)) for row in chosen.reshape(2, 32)] == leader.reshape(2, 32)[:, 0].tolist()


@pytest.mark.parametrize("form", REDUX_FLOAT_FORMS)
def test_redux_of_floats_on_sm_100(form):
    parts = form.split(".")
    values = np.random.default_rng(len(form)).normal(size=64).astype(np.float32)
    values[[3, 40]], values[[9, 50]] = -0.0, np.nan
    values[32:40] = -np.abs(values[32:40])
    (found,) = run_lines(f"{form} %out0, %in0, -1;", [values.view(np.uint32)], [32], target="sm_100")
    for warp in range(2):
        own = values[32 * warp : 32 * warp + 32]
        own = np.abs(own) if "abs" in parts else own
        expected = np.nan if "NaN" in parts else (np.nanmin if "min" in parts else np.nanmax)(own)
        assert np.array_equal(found[32 * warp : 32 * warp + 32].view(np.float32), np.full(32, expected), equal_nan=True)
