"""Unit 07, what content tests do not reach: the persistent kernel with roles on every virtual GPU."""

from __future__ import annotations

import pytest

from gpu_utils.errors import BadArgument, Race
from gpu_utils.exercises.u07_ptx_and_amdgcn.roles import roles_run
from gpu_utils.virtual import MODELS


@pytest.mark.parametrize("target", MODELS)
def test_the_kernel_with_roles_is_right_whatever_the_split(target: str) -> None:
    for programs, communication, tiles in ((8, 2, 24), (6, 5, 9), (6, 0, 13)):
        run = roles_run(programs, communication, tiles, target)
        assert run.right
        assert sum(run.sent) == sum(run.computed) == tiles
        assert run.most_computed == -(-tiles // (programs - communication))


@pytest.mark.parametrize("target", ["sm_80", "gfx942", "gfx1201"])
def test_relaxed_flags_are_a_race(target: str) -> None:
    with pytest.raises(Race, match="roles_kernel"):
        roles_run(6, 2, 12, target, slots=2, ordered=False)


def test_programs_that_do_one_thing_are_named() -> None:
    rows = roles_run(3, 1, 2).rows
    assert [row["role"] for row in rows.values()] == ["sends", "computes", "computes"]
    assert {row["role"] for row in roles_run(2, 0, 4).rows.values()} == {"sends, then computes"}


def test_somebody_must_compute() -> None:
    with pytest.raises(BadArgument, match="at least one program that computes"):
        roles_run(4, 4, 8)
