"""Two profiles: kernels matched by name, differences in parts that add up, new and vanished ones, idle time."""

from __future__ import annotations

import random

import pytest

from gpu_utils.profiling.comparing import compared, plain, short
from gpu_utils.profiling.modelled import Modelled
from gpu_utils.profiling.profile import Event, Profile


def profile(**kernels):
    """name -> times of its launches, one after another."""
    rows, at = [], 0
    for name, times in kernels.items():
        for ns in times:
            rows.append(Event("kernel", name, at, at + ns, "stream 7", "0"))
            at += ns
    return Profile(rows)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("saxpy(int, float*) [clone .kd]", "saxpy(int, float*)"),
        ("saxpy(int, float*) (.kd)", "saxpy(int, float*)"),
        ("_Z5saxpyiPf.kd", "_Z5saxpyiPf"),
        ("a   b", "a b"),
        ("", ""),
    ],
)
def test_what_tools_add_to_a_name_is_taken_off(name, wanted):
    assert plain(name) == wanted


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("void gemm<float, 64>(float*)", "gemm"),
        ("at::native::(anonymous namespace)::add<T>(int)", "at::native::(anonymous namespace)::add"),
        ("ns::functor<int>::operator()(int)", "ns::functor::operator()"),
        ("ns::operator<<(int)", "ns::operator<<"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("<kernel 12>", "<kernel 12>"),
        ("unbalanced>>)name", "unbalancedname"),
        ("", ""),
    ],
)
def test_a_short_name_has_no_templates_and_no_arguments(name, wanted):
    assert short(name) == wanted


def test_a_difference_is_split_into_calls_and_time_of_a_call():
    (one,) = compared(profile(add=[100] * 4), profile(add=[150] * 6)).changes
    assert (one.calls, one.ns, one.difference) == ((4, 6), (400, 900), 500)
    assert (one.by_calls, one.by_time) == (200, 300)
    assert one.words == "4 -> 6 calls, 100 -> 150 ns a call"


def test_new_and_vanished_kernels_are_told():
    found = compared(profile(old=[70], both=[10]), profile(new=[30], both=[10]))
    assert [(one.name, one.kind, one.difference) for one in found.changes] == [
        ("old", "vanished", -70),
        ("new", "new", 30),
        ("both", "both", 0),
    ]
    assert found.changes[0].words == "gone: 1 calls, 70 ns"


def test_the_largest_difference_comes_first_in_either_direction():
    found = compared(profile(a=[100], b=[100], c=[100]), profile(a=[110], b=[20], c=[150]))
    assert [one.name for one in found.changes] == ["b", "c", "a"]


def test_names_that_are_in_both_are_not_mixed_with_their_kin():
    rows = {"gemm<64>": [10], "gemm<128>": [20]}
    found = compared(profile(**rows), profile(**{**rows, "gemm<256>": [5]}))
    assert {one.name: one.difference for one in found.changes} == {"gemm<64>": 0, "gemm<128>": 0, "gemm": 5}


def test_suffixes_do_not_part_a_kernel_from_itself():
    (one,) = compared(profile(**{"add.kd": [10]}), profile(**{"add [clone .kd]": [30]})).changes
    assert (one.name, one.by_time) == ("add", 20)


@pytest.mark.parametrize("seed", range(10))
def test_the_parts_add_up_to_the_whole(seed):
    rng = random.Random(seed)

    def draw():
        names = [f"k{number}<{rng.randrange(3)}>" for number in range(6)]
        return {name: [rng.randrange(1, 999) for _ in range(rng.randrange(1, 5))] for name in names}

    before, after = profile(**draw()), profile(**draw())
    found = compared(before, after)
    assert all(one.by_calls + one.by_time == one.difference for one in found.changes)
    whole = [sum(event.duration for event in each.kernels) for each in (before, after)]
    assert sum(one.difference for one in found.changes) == whole[1] - whole[0]
    assert found.kernels == tuple(whole)


def test_idle_time_is_compared_too():
    def trained(wait):
        host = Modelled("nvidia")
        for _ in range(4):
            host.launch("step", 50_000)
            if wait:
                host.item()
        return host.profile()

    found = compared(trained(False), trained(True))
    assert found.idle[0] == 0
    assert found.idle[1] > 0
    assert found.window[1] - found.window[0] == found.busy[1] - found.busy[0] + found.idle[1] - found.idle[0]
    (one,) = found.changes
    assert one.difference == 0


def test_kernels_without_a_time_are_counted():
    found = compared(Profile([Event("kernel", "a")]), Profile())
    assert (found.changes, found.untimed, found.window) == ((), (1, 0), (0, 0))
