"""Plans of on-chip memory: the search against brute force, the judge's sentences, the figure; pools of a KV cache."""

from __future__ import annotations

import copy
import itertools
import random

import pytest

from gpu_utils.analytic.kv_pools import Pool, hybrid_pools, pool_places
from gpu_utils.analytic.memory_plan import STEPS, attention_buffers, placed
from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.exercises.u14_tilelang.memory_plan import EXERCISE
from gpu_utils.exercises.u14_tilelang.memory_plan_cases import EXAMPLE
from gpu_utils.exercises.u14_tilelang.memory_plan_slips import RIGHT, Item, _exactly, right
from gpu_utils.ui.plan_figure import plan_figure

TILE = {"queries": 8, "keys": 4, "stages": 2}


def judged(value):
    assert EXERCISE.judge is not None
    found = EXERCISE.judge(EXERCISE.cases[0], copy.deepcopy(EXAMPLE), value)
    return found and found.kind


@pytest.mark.parametrize("seed", range(12))
def test_the_search_finds_a_placement_exactly_where_brute_force_does(seed):
    rng = random.Random(seed)
    found = []
    for at in range(4):
        first = rng.randrange(4)
        found.append(Item("ABCD"[at], rng.choice((3, 8, 12, 20)), first, rng.randrange(first, 4)))
    for room in range(20, 48, 4):

        def fits(offsets, room=room):
            taken = list(zip(found, offsets, strict=True))
            inside = all(at + one.bytes <= room for one, at in taken)
            return inside and not any(
                RIGHT.meet(a, b) and x < y + b.bytes and y < x + a.bytes
                for (a, x), (b, y) in itertools.combinations(taken, 2)
            )

        places = _exactly(found, room, 4, RIGHT)
        assert (places is not None) == any(map(fits, itertools.product(range(0, room, 4), repeat=4)))
        assert places is None or (fits(places) and not any(at % 4 for at in places))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (None, {"tile": TILE, "offsets": {"K": [0, 64], "S": [0], "P": [128], "O": [0]}}),
        (None, {"tile": (8, 4, 2), "offsets": {"K": (64, 0), "S": (0,), "P": (128,), "O": (0,)}}),
        ("none", None),
        ("form", 3),
        ("form", {"tile": TILE}),
        ("form:tile", {"tile": {"queries": 8, "keys": 4, "stages": 3}, "offsets": {}}),
        ("form:tile", {"tile": None, "offsets": {}}),
        ("form:names", {"tile": TILE, "offsets": {"K": [0, 64]}}),
        ("form:names", {"tile": TILE, "offsets": [0, 64]}),
        ("form:copies", {"tile": TILE, "offsets": {"K": [0], "S": [0], "P": [128], "O": [0]}}),
        ("form:copies", {"tile": TILE, "offsets": {"K": [0, 64], "S": 0, "P": [128], "O": [0]}}),
        ("form:copies", {"tile": TILE, "offsets": {"K": [0, 64.5], "S": [0], "P": [128], "O": [0]}}),
        ("align:P", {"tile": TILE, "offsets": {"K": [0, 64], "S": [0], "P": [129], "O": [0]}}),
        ("align:S", {"tile": TILE, "offsets": {"K": [0, 64], "S": [-32], "P": [128], "O": [0]}}),
        ("overlap:K:K", {"tile": TILE, "offsets": {"K": [0, 32], "S": [0], "P": [128], "O": [0]}}),
        ("overlap:P:S", {"tile": TILE, "offsets": {"K": [0, 64], "S": [64], "P": [64], "O": [0]}}),
        ("room:O:8 x 4 in 2 stages", {"tile": TILE, "offsets": {"K": [0, 64], "S": [0], "P": [64], "O": [96]}}),
        ("tile:8 x 4 in 1 stage", {"tile": (8, 4, 1), "offsets": {"K": [0], "S": [0], "P": [128], "O": [0]}}),
    ],
)
def test_the_judge_names_what_is_wrong_with_a_plan(kind, value):
    assert judged(value) == kind


def test_sizes_of_machines_and_bytes_of_their_buffers():
    memories, buffers = attention_buffers("sm_90")
    assert memories["shared"]["bytes"] == 227 * 1024
    assert memories["registers"]["bytes"] == (255 - 32) * 4 * 256
    assert attention_buffers("gfx942")[0]["registers"]["bytes"] == (512 - 32) * 4 * 256
    offsets = {one["name"]: [0] * (3 if one["copies"] == "stages" else 1) for one in buffers}
    tile = {"queries": 128, "keys": 64, "stages": 3}
    sizes = {one.name: one.bytes for one in placed(memories, buffers, tile, offsets)}
    assert sizes == {
        "Q": 32768,
        "K": 16384,
        "V": 16384,
        "S": 32768,
        "P": 16384,
        "O": 65536,
        "max and sum": 1024,
    }
    with pytest.raises(UnknownName, match="gfx942"):
        attention_buffers("gfx94")
    with pytest.raises(BadArgument, match="expected at least 1"):
        attention_buffers("sm_90", d=0)


def test_every_machine_has_a_step_for_each_life():
    for machine, steps in STEPS.items():
        memories, buffers = attention_buffers(machine)
        assert {one["memory"] for one in buffers} == set(memories)
        assert len({one["name"] for one in buffers}) == len(buffers)
        assert all(0 <= one["live"][0] <= one["live"][1] < len(steps) for one in buffers)


def test_the_figure_draws_every_copy_and_names_a_missing_buffer():
    tiles = [{"queries": 128, "keys": 64, "stages": 2}]
    plan = right(*attention_buffers("ascend950"), tiles, 256)
    assert plan is not None
    figure = plan_figure({"ascend950": plan, "gfx942": None})
    copies = sum(map(len, plan["offsets"].values()))
    assert figure.html.count('class="even"') == copies == 17
    assert "UB: " in figure.words
    assert "gfx942: no tile fits." in figure.words
    with pytest.raises(BadArgument, match="no offset for"):
        plan_figure({"sm_90": {"tile": tiles[0], "offsets": {}}})


def test_the_example_is_worked_out_as_the_statement_says():
    assert right(**EXAMPLE) == {"tile": TILE, "offsets": {"K": [0, 64], "S": [0], "P": [128], "O": [0]}}


def test_pools_hold_what_their_kind_keeps_and_the_coldest_leaves_first():
    window, heavy, keys, light = hybrid_pools()
    assert window.held(10**6) == window.held(128) == 43 * 128 * 1024
    assert heavy.held(1280) == 20 * 10 * 1024
    assert keys.read(4096) == keys.held(4096)
    assert light.read(1 << 20) == 21 * 512 * 1024
    assert light.read(1024) == light.held(1024)
    assert light.read(1 << 20, page=10**6) == light.held(1 << 20)
    places = pool_places(hybrid_pools(), 1 << 20, {"HBM": (2e9, 1e12), "host": (1e10, 1e10)})
    assert [row["kept in"] for row in places.values()] == ["HBM"] * 3 + ["host"]
    with pytest.raises(BadArgument, match="add one"):
        pool_places((Pool(name="all", layers=1, entry=1),), 100, {"HBM": (99, 1.0)})
    with pytest.raises(BadArgument, match='"hybrid" or "full"'):
        hybrid_pools("other")
