"""The small training program of unit 13: its faults cost time and nothing else, and its files say what they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.exercises.u13_profiling.diagnose_rows import COLUMNS_GIVEN, diagnosis_rows, kept_run
from gpu_utils.exercises.u13_profiling.diagnose_slips import busy_share, right, syncs_per_kernel
from gpu_utils.exercises.u13_profiling.small_training import (
    FAULTS,
    SMALL_TARGETS,
    WHERE,
    drawn,
    planted,
    small_run,
)

EVERY = [(target, fault, kernel) for target in SMALL_TARGETS for fault in FAULTS for kernel in WHERE[fault] or (None,)]


@pytest.fixture(scope="module")
def sound():
    return {target: kept_run(target, None, None, 2, 3) for target in SMALL_TARGETS}


def test_the_loss_falls_and_is_the_same_on_both_targets(sound):
    (one, two) = (run.losses for run in sound.values())
    assert one == two
    assert one[1] < one[0]


@pytest.mark.parametrize(("target", "fault", "kernel"), EVERY)
def test_a_fault_changes_no_result_costs_time_and_is_found_in_the_files_that_the_run_left(sound, target, fault, kernel):
    run = kept_run(target, fault, kernel, 1, 3)
    assert run.losses == sound[target].losses[:1]
    assert right(*diagnosis_rows(run)) == (fault, kernel)
    if kernel:
        faulty, usual = (
            next(one.duration for one in other.profile.kernels if one.name == kernel) for other in (run, sound[target])
        )
        assert faulty >= usual


@pytest.mark.parametrize("target", SMALL_TARGETS)
@pytest.mark.parametrize("seed", range(3))
def test_a_sound_run_is_busy_waits_once_and_shows_nothing(target, seed):
    events, kernels = diagnosis_rows(kept_run(target, None, None, 1, seed))
    assert right(events, kernels) == ("none", None)
    assert busy_share(events) > 0.9
    assert syncs_per_kernel(events) < 0.2
    assert all(row["occupancy_limit"] >= 85 for row in kernels)


def test_files_say_that_a_virtual_gpu_made_them_and_are_read_as_one(sound):
    nvidia, amd = sound["sm_80"], sound["gfx942"]
    assert json.loads(nvidia.files["trace.json"])["deviceProperties"][0]["virtual"] is True
    assert "==PROF== virtual GPU, not a device: gpu__time_duration.sum: modelled" in nvidia.files["counters.csv"]
    assert '"virtual gfx942"' in amd.files["counters.csv"]
    assert '"virtual gfx942"' in amd.files["kernel_trace.csv"]
    for run in (nvidia, amd):
        assert run.profile.virtual
        assert len(run.profile.kernels) == 12
    columns = [{name for name in COLUMNS_GIVEN if nvidia.profile.kernels[0].value(name) is not None} for _ in "1"]
    assert {"load_sectors", "conflict_passes", "occupancy_limit", "grid", "registers"} <= columns[0]


def test_faults_are_drawn_by_the_number():
    chosen = [drawn(number) for number in range(1, 301)]
    assert {fault for _, fault, _, _ in chosen} == {*FAULTS, None}
    assert {target for target, _, _, _ in chosen} == set(SMALL_TARGETS)
    assert {(fault, kernel) for _, fault, kernel, _ in chosen if kernel} == {(f, k) for f in FAULTS for k in WHERE[f]}
    assert planted(4, steps=1).files == planted(4, steps=1).files


@pytest.mark.parametrize("number", [1, 2, 3])
def test_no_name_tells_what_was_planted(number):
    run = planted(number, steps=1)
    assert len({kernel.name for kernel in run.profile.kernels}) == 6
    assert not any(f"__{fault}" in text for fault in (*FAULTS, "sound") for text in run.files.values())


def test_files_go_into_a_new_folder_and_nothing_is_overwritten(sound, tmp_path):
    paths = sound["gfx942"].save(tmp_path / "run")
    assert [path.name for path in paths] == ["trace.json", "kernel_trace.csv", "counters.csv"]
    with pytest.raises(BadArgument, match="is not empty; name a new folder"):
        sound["gfx942"].save(tmp_path / "run")


@pytest.mark.parametrize(
    "call",
    [
        lambda: small_run("sm_90"),
        lambda: small_run("sm_80", "slow"),
        lambda: small_run("sm_80", "spills", kernel="transpose"),
    ],
)
def test_unknown_targets_faults_and_kernels_are_named(call):
    with pytest.raises(UnknownName):
        call()


def test_the_lesson_shows_the_line_that_w2w_profile_prints():
    from gpu_utils.cli.profile import _busy_lines
    from gpu_utils.profiling.busy import busy

    lesson = (Path(__file__).parents[2] / "content" / "13_profiling" / "lesson.py").read_text("utf-8")
    (line, _) = _busy_lines(busy(planted(34).profile))
    assert line in lesson.replace("\n# ", " ")  # there it takes two lines


@pytest.mark.parametrize("target", SMALL_TARGETS)
def test_a_kernel_takes_the_shared_memory_that_it_names_and_not_that_of_its_neighbours(sound, target):
    taken = {kernel.name: kernel.value("shared_bytes") for kernel in sound[target].profile.kernels}
    assert (taken["activation"], taken["forward"], taken["transpose"]) == (0, 2176, 4224)
