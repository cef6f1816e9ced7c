"""The large launches of `w2w bench virtual`: what is reported of one, on a launch small enough for a test."""

import pytest

from gpu_utils.cli import bench_workloads as module


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_a_workload_reports_cold_and_warm_times_and_where_the_time_goes(target):
    small = module.Workload("few programs", lambda: module._programs(8, 64), (target,), 60.0, 0)
    timing = module.measure(small, target)
    assert timing.right
    assert timing.met
    assert timing.first > timing.wall > 0
    assert 0 < timing.decode < timing.first
    assert timing.torch > 0
    assert sum(timing.shares["kinds"].values()) == pytest.approx(1)
    assert "global" in timing.shares["kinds"]
    assert len(timing.shares["instructions"]) == module.SHOWN


def test_a_wrong_result_meets_no_goal():
    right = module.Workload("few programs", lambda: module._programs(8, 64), ("sm_80",), 60.0, 0)
    launch, _, neighbour = right.prepare()
    wrong = module.Workload("wrong", lambda: (launch, lambda: False, neighbour), ("sm_80",), 60.0, 0)
    assert not module.measure(wrong, "sm_80").met


def test_growth_compares_the_two_products_of_each_target():
    def timing(name, target, cpu):
        return module.Timing(name, target, None, 0, 0, cpu, cpu, 1, 1, True, {})

    rows = [timing("matmul fp16 1024", "sm_90", 0.5), timing("matmul fp16 2048", "sm_90", 4.0)]
    assert module.growth([*rows, timing("matmul fp16 1024", "gfx942", 1.0)]) == {"sm_90": 8.0}
