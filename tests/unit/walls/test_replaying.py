"""A record is done again as it says; one that was changed is refused, in words, or gives a value and nothing else."""

from __future__ import annotations

import contextlib
import copy
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_utils.errors import W2WError
from gpu_utils.grading import apart
from gpu_utils.grading.walls import wire
from gpu_utils.grading.walls.recording import Record, recording
from gpu_utils.grading.walls.replaying import BadRecord, Replay

VIEW = [torch.float32, [4], [1], 0]
LAUNCH = {
    "do": "launch", "gpu": 0, "order": ["sm_80", "forward"], "text": 0, "name": "double", "grid": [1, 1, 1],
    "threads": [32, 1, 1], "shared": 0, "meta": {"global_scratch_size": 0}, "source": None,
    "values": [["x", "ptr", {"tensor": 0, "view": VIEW, "at": 0}], ["n", "i32", 4]],
}  # fmt: skip
RECORD = {
    "texts": ["the machine code"],
    "launched": 1,
    "lines": [
        {"do": "memory", "storage": 1, "bytes": torch.zeros(16, dtype=torch.uint8)},
        {"do": "torch", "op": "aten.clone.default", "args": [{"tensor": 0, "view": VIEW}], "kwargs": {},
         "out": {"tensor": 2, "view": VIEW}},
        LAUNCH,
    ],
    "value": [{"tensor": 2, "view": VIEW}, {"tensor": 1, "view": VIEW}],
}  # fmt: skip


def double(_what, values, _meta, _shuffled, _source):
    """Stands for the virtual GPU: doubles the first argument in place."""
    values[0][2].mul_(2)


def replayed(record, idle=False, allowed=(), launch=double, **inputs):
    replay = Replay(record, allowed, idle, launch)
    return replay(inputs or {"x": torch.arange(4.0)}), replay


def sent(record):
    return wire.unpack(wire.pack(record.as_data()))


def test_a_record_is_done_again_on_other_inputs():
    x = torch.ones(4)
    (copied, zeros), replay = replayed(RECORD, x=x)
    assert (copied.tolist(), zeros.tolist(), x.tolist()) == ([1.0] * 4, [0.0] * 4, [2.0] * 4)
    assert len(replay.seen) == 1


def test_a_launch_does_nothing_in_an_idle_run():
    x = torch.ones(4)
    _, replay = replayed(RECORD, idle=True, x=x)
    assert x.tolist() == [1.0] * 4
    assert len(replay.seen) == 1


def test_what_torch_did_to_an_input_is_recorded_and_done_again():
    record, x = Record(), torch.arange(4.0)
    record.begin({"x": x})
    with recording(record):
        out = torch.cat([x, x])
    record.value = record.ref(out)
    value, _ = replayed(sent(record), x=torch.ones(4))
    assert value.tolist() == [1.0] * 8


def test_numbers_that_torch_computed_aside_are_those_of_the_decoy():
    record, x = Record(), torch.arange(4.0)
    record.begin({"x": x})
    with recording(record):
        out = torch.tensor([2 * number for number in range(4)], dtype=torch.float32)
    record.value = record.ref(out)
    value, _ = replayed(sent(record), x=torch.ones(4))
    assert value.tolist() == [0.0, 2.0, 4.0, 6.0]


def test_tensors_without_elements_are_recorded_and_come_back_in_their_shapes():
    record = Record()
    record.begin({"x": torch.empty(0)})
    with recording(record):
        x, other = torch.empty(0), torch.empty(3, 0, dtype=torch.int32)
        out = torch.cat([x, x])
    pointer = record._value(out, "ptr")
    record.value = [record.ref(out), record.ref(other), record.ref(torch.ones(2)[:0])]
    assert pointer["at"] == 0
    (first, second, third), _ = replayed(sent(record), x=torch.empty(0))
    assert [tuple(one.shape) for one in (first, second, third)] == [(0,), (3, 0), (0,)]
    assert second.dtype == torch.int32


def test_what_torch_does_to_nothing_is_not_taken_for_work_on_an_input():
    record = Record()
    record.begin({"x": torch.empty(0)})
    with recording(record):
        record.ref(torch.empty(0))
        torch.softmax(torch.empty(0), 0)
    assert [line for line in record.lines if line["do"] == "torch"] == []


@pytest.mark.parametrize(
    "name", ["aten.add.Tensor", "aten.from_file.default", "prims.mul.default", "aten.__class__.x", "add", "", None, 7]
)
def test_torch_does_nothing_that_is_not_in_the_table(name):
    record = {**RECORD, "lines": [{**RECORD["lines"][1], "op": name}]}
    with pytest.raises(BadRecord, match="that is the kernel's part"):
        replayed(record)


NEGATED = {**RECORD["lines"][1], "op": "aten.neg.default"}
WRITTEN = {**RECORD["lines"][1], "op": "aten.sub_.Tensor", "args": [{"tensor": 0, "view": VIEW}, 1.0]}
OF_WRITTEN = {**RECORD["lines"][1], "args": [{"tensor": 2, "view": VIEW}], "out": {"tensor": 3, "view": VIEW}}


def test_what_torch_may_not_do_is_left_out_where_nothing_comes_of_it():
    value, _ = replayed({**RECORD, "lines": [NEGATED, LAUNCH], "value": {"tensor": 0, "view": VIEW}}, x=torch.ones(4))
    assert value.tolist() == [2.0] * 4


@pytest.mark.parametrize(
    ("lines", "number"),
    [([NEGATED], 2), ([NEGATED, OF_WRITTEN], 3), ([WRITTEN], 0), ([{**WRITTEN, "out": None}], 0)],
    ids=["its result", "a copy of it", "what it returns", "what it writes to"],
)
def test_what_it_would_have_written_may_not_be_used(lines, number):
    with pytest.raises(BadRecord, match="that is the kernel's part"):
        replayed({**RECORD, "lines": lines, "value": {"tensor": number, "view": VIEW}})
    used = {**LAUNCH, "values": [["x", "ptr", {"tensor": number, "view": VIEW, "at": 0}]]}
    with pytest.raises(BadRecord, match="that is the kernel's part"):
        replayed({**RECORD, "lines": [*lines, used], "value": None})


def test_an_answer_that_asks_for_a_number_after_a_launch_looks_at_it():
    record, x = Record(), torch.arange(4.0)
    record.begin({"x": x})
    with recording(record):
        assert x[1] == 1
        assert not record.looked
        record.launch(SimpleNamespace(target="sm_80", order="forward"), "", "double", (1, 1, 1), (32, 1, 1), [])
        assert (x * 2)[1] == 2
    assert record.looked


def test_an_exercise_may_leave_more_to_torch():
    line = {**RECORD["lines"][1], "op": "aten.neg.default"}
    value, _ = replayed({**RECORD, "lines": [line], "value": line["out"]}, allowed=("neg",), x=torch.ones(4))
    assert value.tolist() == [-1.0] * 4


REPEATED = {**LAUNCH, "gpu": 1, "order": ["sm_80", "shuffled"]}
OTHER_NUMBER = {**REPEATED, "values": [LAUNCH["values"][0], ["n", "i32", 5]]}
OTHER_GRID = {**REPEATED, "grid": [2, 1, 1]}


def test_a_launch_may_be_repeated_in_another_order():
    orders = []
    replayed({**RECORD, "lines": [LAUNCH, REPEATED], "value": None}, launch=lambda *given: orders.append(given[3]))
    assert orders == [False, True]


def of_storage(launch, number):
    return {**launch, "values": [["x", "ptr", {"tensor": number, "view": VIEW, "at": 0}], LAUNCH["values"][1]]}


def test_what_is_repeated_may_have_memory_of_its_own_and_not_what_a_launch_that_counts_has_worked_on():
    made = [{"do": "memory", "storage": n, "bytes": torch.zeros(16, dtype=torch.uint8)} for n in (1, 2, 3)]
    counted = [*made, of_storage(LAUNCH, 1), of_storage(LAUNCH, 2)]
    replayed({**RECORD, "lines": [*counted, of_storage(REPEATED, 3)], "value": None})
    replayed({**RECORD, "lines": [*counted, of_storage(REPEATED, 1)], "value": None})
    other = {**LAUNCH, "values": [of_storage(LAUNCH, 2)["values"][0], ["n", "i32", 5]]}
    in_place_of_an_input = [*made, LAUNCH, of_storage(REPEATED, 1)]
    what_another_wrote = [*made, of_storage(LAUNCH, 1), other, of_storage(REPEATED, 2)]
    for lines in (in_place_of_an_input, what_another_wrote):
        with pytest.raises(BadRecord, match="of the answer's own"):
            replayed({**RECORD, "lines": lines, "value": None})


def test_rows_are_brought_apart_again_with_the_numbers_that_count():
    record, x = Record(), torch.zeros(2, 4)
    record.begin({"x": x})
    with recording(record):
        far = apart.rows_apart(x, 1000)
        out = far.clone()
    record.value = [record.ref(far), record.ref(out)]
    rows = torch.arange(8.0).reshape(2, 4)
    value = Replay(sent(record), (), False, double, address_space=1 << 20)({"x": rows})
    assert [one.tolist() for one in value] == [rows.tolist()] * 2
    assert value[0].stride() == (1000, 1)
    with pytest.raises(BadRecord, match="too far apart"):
        Replay(sent(record), (), False, double, address_space=1000)({"x": rows})


@pytest.mark.parametrize("launch", [OTHER_NUMBER, OTHER_GRID], ids=["another number", "another grid"])
def test_what_is_not_counted_must_repeat_what_is(launch):
    with pytest.raises(BadRecord, match="of the answer's own"):
        replayed({**RECORD, "lines": [LAUNCH, launch], "value": None})


def test_an_error_of_the_virtual_gpu_stays_what_it_is():
    def fails(*_):
        raise ValueError("no such register")

    with pytest.raises(ValueError, match="no such register"):
        replayed(RECORD, launch=fails)


def places(tree, at=()):
    """Every place in a tree, as the keys that lead there."""
    found = [at]
    for key, item in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        found += places(item, (*at, key))
    return found


def changed(place, junk):
    tree = {"record": copy.deepcopy(RECORD)}
    owner = tree
    *way, last = ("record", *place)
    for key in way:
        owner = owner[key]
    owner[last] = junk
    return tree["record"]


JUNK = st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats() | st.text(max_size=5) | st.binary(max_size=5)
JUNK |= st.sampled_from([torch.float64, torch.zeros(3), torch.zeros(0), {}, [], {"tensor": 0}, {"stray": "cuda"}, [[]]])
JUNK |= st.sampled_from([{"tensor": -1, "view": VIEW}, {"tensor": 0, "view": [torch.float32, [2**30], [1], 0]}])
JUNK |= st.sampled_from(["launch", "aten.fill_.Scalar", "aten.set_.default", "aten.empty_like.default", [0] * 100])


@given(st.sampled_from(places(RECORD)[1:]), JUNK)
@settings(max_examples=120, deadline=None)
def test_a_changed_record_raises_only_errors_of_ours(place, junk):
    with contextlib.suppress(W2WError):
        replayed(changed(place, junk), launch=lambda *_: None)
