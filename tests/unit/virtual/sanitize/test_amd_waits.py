"""waitcheck for AMDGCN on small hand-written kernels: each counter of each family, found and not found."""

import numpy as np
import pytest
import torch

from gpu_utils.errors import LateData
from gpu_utils.kernelset import CASES, Run
from gpu_utils.virtual import virtual_gpu
from gpu_utils.virtual.models import decode
from gpu_utils.virtual.sanitize.amd_counters import waits
from gpu_utils.virtual.sanitize.amd_needed import AT_ONCE, COVERED, NOTHING, unnecessary

LOAD = {"gfx942": "global_load_dword v1, v0, s[4:5]", "gfx1100": "global_load_b32 v1, v0, s[4:5]"}
LOAD |= {"gfx90a": LOAD["gfx942"], "gfx950": LOAD["gfx942"], "gfx1201": LOAD["gfx1100"]}
STORE = {"gfx942": "global_store_dword v0, v2, s[4:5]", "gfx1100": "global_store_b32 v0, v2, s[4:5]"}
STORE |= {"gfx1201": STORE["gfx1100"]}
ARGUMENTS = {"gfx942": "s_load_dwordx2 s[4:5], s[0:1], 0x0", "gfx1100": "s_load_b64 s[4:5], s[0:1], 0x0"}
ARGUMENTS |= {"gfx90a": ARGUMENTS["gfx942"], "gfx950": ARGUMENTS["gfx942"], "gfx1201": ARGUMENTS["gfx1100"]}
SCALAR = dict.fromkeys(ARGUMENTS, "s_waitcnt lgkmcnt(0)") | {"gfx1201": "s_wait_kmcnt 0x0"}
VECTOR = dict.fromkeys(ARGUMENTS, "s_waitcnt vmcnt(0)") | {"gfx1201": "s_wait_loadcnt 0x0"}
LDS = dict.fromkeys(ARGUMENTS, "s_waitcnt lgkmcnt(0)") | {"gfx1201": "s_wait_dscnt 0x0"}
EVERY = pytest.mark.parametrize("target", list(ARGUMENTS))

TEXT = """
.amdgcn_target "amdgcn-amd-amdhsa--{target}"
.text
k:
  {lines}
  s_endpgm
.amdhsa_kernel k
  .amdhsa_group_segment_fixed_size 1024
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_user_sgpr_count 2
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.kernels:
  - .name: k
    .args:
      - .offset: 0
        .size: 8
        .value_kind: global_buffer
    .kernarg_segment_size: 8
    .symbol: k.kd
...
.end_amdgpu_metadata
"""


def text(target: str, *lines: str) -> str:
    """A kernel with the address of its tensor in s[4:5] and a byte offset for each lane in v0."""
    begin = (ARGUMENTS[target], "v_lshlrev_b32 v0, 2, v0", SCALAR[target])
    return TEXT.format(target=target, lines="\n  ".join((*begin, *lines)))


def run(target: str, *lines: str, whole: bool = False, threads: int = 64, sanitize="waitcheck"):
    source = TEXT.format(target=target, lines="\n  ".join(lines)) if whole else text(target, *lines)
    with virtual_gpu(target, sanitize=sanitize) as gpu:
        return gpu.load(source).launch("k", 1, threads, [torch.zeros(256)])


def late(target: str, *lines: str, whole: bool = False) -> LateData:
    with pytest.raises(LateData) as error:
        run(target, *lines, whole=whole)
    return error.value


@EVERY
def test_a_vector_register_that_is_read_too_early(target):
    error = late(target, LOAD[target], "v_mov_b32 v2, v1")
    report = error.report
    assert (report.tool, report.what, report.first.does, report.second.does) == ("waitcheck", "v1", "fills", "reads")
    assert report.first.text == LOAD[target]
    assert report.missing == VECTOR[target]
    assert report.missing in str(error)
    assert "v_mov_b32 v2, v1" in str(error)
    run(target, LOAD[target], VECTOR[target], "v_mov_b32 v2, v1")


@EVERY
def test_a_vector_register_that_is_written_too_early(target):
    assert late(target, LOAD[target], "v_mov_b32 v1, 0").report.second.does == "writes"
    run(target, LOAD[target], "v_mov_b32 v2, 0")


@EVERY
def test_a_scalar_load_that_is_not_waited_for(target):
    error = late(target, ARGUMENTS[target], "s_mov_b32 s6, s5", whole=True)
    assert (error.report.what, error.report.missing) == ("s5", SCALAR[target])
    run(target, ARGUMENTS[target], SCALAR[target], "s_mov_b32 s6, s5", whole=True)


@EVERY
def test_a_read_of_lds_that_is_not_waited_for(target):
    read, write = (
        ("ds_load_b32", "ds_store_b32") if target >= "gfx11" and target[3] == "1" else ("ds_read_b32", "ds_write_b32")
    )
    lines = (f"{write} v0, v0", f"{read} v1, v0")
    assert late(target, *lines, "v_mov_b32 v2, v1").report.missing == LDS[target]
    run(target, *lines, LDS[target], "v_mov_b32 v2, v1")


def test_vector_loads_come_back_in_order():
    load = "global_load_dword v{}, v0, s[4:5]"
    loads = [load.format(i) for i in (1, 2, 3)]
    assert late("gfx942", *loads, "v_mov_b32 v4, v2").report.missing == "s_waitcnt vmcnt(1)"
    run("gfx942", *loads, "s_waitcnt vmcnt(1)", "v_mov_b32 v4, v2")
    late("gfx942", *loads, "s_waitcnt vmcnt(2)", "v_mov_b32 v4, v2")


def test_scalar_loads_come_back_in_any_order():
    loads = ["s_load_dword s6, s[0:1], 0x0", "s_load_dword s7, s[0:1], 0x4"]
    missing = late("gfx942", *loads, "s_waitcnt lgkmcnt(1)", "s_mov_b32 s8, s6").report.missing
    assert missing == "s_waitcnt lgkmcnt(0)"


def test_lds_keeps_its_order_beside_a_scalar_load_of_the_same_counter():
    mixed = ["ds_write_b32 v0, v0", "ds_read_b32 v1, v0", "s_load_dword s6, s[0:1], 0x0", "ds_read_b32 v2, v0"]
    run("gfx942", *mixed, "s_waitcnt lgkmcnt(1)", "v_mov_b32 v3, v1")
    late("gfx942", *mixed, "s_waitcnt lgkmcnt(2)", "v_mov_b32 v3, v1")
    late("gfx942", *mixed, "s_waitcnt lgkmcnt(1)", "s_mov_b32 s7, s6")


def test_stores_count_with_loads_on_gfx9_and_apart_later():
    lines = [LOAD["gfx942"], STORE["gfx942"]]
    run("gfx942", *lines, "s_waitcnt vmcnt(1)", "v_mov_b32 v3, v1")
    lines = [LOAD["gfx1100"], STORE["gfx1100"]]
    late("gfx1100", *lines, "s_waitcnt vmcnt(1)", "v_mov_b32 v3, v1")
    late("gfx1201", *lines, "s_wait_loadcnt 0x1", "v_mov_b32 v3, v1")


def test_two_loads_into_one_register():
    both = [LOAD["gfx942"]] * 2
    run("gfx942", *both)
    assert late("gfx1201", *[LOAD["gfx1201"]] * 2).report.second.does == "writes"  # gfx12 fills them in any order


def test_what_a_wait_does_not_name_it_does_not_wait_for():
    late("gfx942", LOAD["gfx942"], "s_waitcnt lgkmcnt(0) expcnt(0)", "v_mov_b32 v2, v1")
    late("gfx942", LOAD["gfx942"], "s_barrier", "v_mov_b32 v2, v1")


def test_the_halves_of_a_register_are_loaded_and_stored_apart():
    low, high = "global_load_d16_b16 v1, v0, s[4:5]", "global_load_d16_hi_b16 v1, v0, s[4:5] offset:2"
    run("gfx1100", low, high)
    run("gfx1100", high, "global_store_b16 v0, v1, s[4:5]")
    late("gfx1100", low, "global_store_b16 v0, v1, s[4:5]")


def test_a_flat_load_needs_both_counters():
    address = ["v_mov_b32 v2, s4", "v_mov_b32 v3, s5", "flat_load_dword v1, v[2:3]"]
    error = late("gfx942", *address, "s_waitcnt vmcnt(0)", "v_mov_b32 v4, v1")
    assert error.report.missing == "s_waitcnt lgkmcnt(0)"
    run("gfx942", *address, "s_waitcnt vmcnt(0) lgkmcnt(0)", "v_mov_b32 v4, v1")


def test_the_second_round_of_a_loop_is_looked_at():
    lines = ["s_mov_b32 s6, 0", "head:", "v_mov_b32 v2, v1", LOAD["gfx942"], "s_add_u32 s6, s6, 1",
             "s_cmp_lt_u32 s6, 3", "s_cbranch_scc1 head"]  # fmt: skip
    late("gfx942", *lines)
    run("gfx942", *lines[:2], "s_waitcnt vmcnt(0)", *lines[2:])


def test_the_same_place_is_reached_with_and_without_the_load():
    """Wave 1 has jumped over the load, so only wave 0 uses the register too early."""
    skip = ["v_readfirstlane_b32 s6, v0", "s_cmp_eq_u32 s6, 0", "s_cbranch_scc0 over", LOAD["gfx942"]]
    error_lines = [*skip, "over:", "v_mov_b32 v2, v1"]
    with pytest.raises(LateData, match="wave 0"):
        run("gfx942", *error_lines, threads=128)
    run("gfx942", *skip, "s_waitcnt vmcnt(0)", "over:", "v_mov_b32 v2, v1", threads=128)


@pytest.mark.parametrize(
    ("target", "line", "expected"),
    [
        ("gfx942", "s_waitcnt 0", {"vmcnt": 0, "lgkmcnt": 0, "expcnt": 0}),
        ("gfx942", "s_waitcnt 0xc07f", {"lgkmcnt": 0}),
        ("gfx942", "s_waitcnt vmcnt(63)", {}),
        ("gfx1100", "s_waitcnt 0xfc07", {"lgkmcnt": 0}),
        ("gfx1100", "s_waitcnt_vscnt null, 0x1", {"vscnt": 1}),
        ("gfx1201", "s_wait_loadcnt_dscnt 0x102", {"loadcnt": 1, "dscnt": 2}),
        ("gfx1201", "s_wait_storecnt_dscnt 0x0", {"storecnt": 0, "dscnt": 0}),
        ("gfx1201", "s_wait_alu 0xfffe", {}),
    ],
)
def test_what_a_wait_says(target, line, expected):
    op = next(op for op in decode(text(target, line), target, None).ops if op.text.strip() == line)
    assert waits(target, op) == expected


def test_a_wait_completes_the_accesses_of_lds_before_it(monkeypatch):
    from gpu_utils.virtual.sanitize.order import Order

    seen = []
    plain = Order.complete
    monkeypatch.setattr(
        Order, "complete", lambda self, queue, rows, epochs: (plain(self, queue, rows, epochs), seen.append(
            (queue, int(self.now(queue)[0] - self.known[0, self.queues[queue] * self.per_block]))))
    )  # fmt: skip
    write = "ds_write_b32 v0, v0"
    run("gfx942", write, write, write, "s_waitcnt lgkmcnt(1)", "s_waitcnt lgkmcnt(0)")
    assert seen[-2:] == [("lds", 1), ("lds", 0)]
    seen.clear()
    to_lds = ["s_mov_b32 m0, 0", "global_load_lds_dword v0, s[4:5]", LOAD["gfx942"]]
    run("gfx942", *to_lds, "s_waitcnt vmcnt(1)")
    assert seen[-1] == ("load to lds", 0)
    run("gfx942", *to_lds, "s_waitcnt vmcnt(2)")
    assert seen[-1] == ("load to lds", 1)


@pytest.mark.parametrize(("wait", "expected"), [("s_waitcnt vmcnt(0)", False), ("s_nop 0", True)])
def test_stores_in_flight_at_an_atomic(wait, expected, monkeypatch):
    from gpu_utils.virtual.global_memory import Memory

    seen = []
    plain = Memory.atomic

    def atomic(self, state, *rest):
        seen.append(state.watch.kept["waits"].stores_in_flight(state))
        return plain(self, state, *rest)

    monkeypatch.setattr(Memory, "atomic", atomic)
    run("gfx942", STORE["gfx942"], wait, "global_atomic_add v0, v2, s[4:5]", threads=128)
    assert np.array_equal(seen[0], [expected, expected])


def test_why_a_wait_is_not_needed():
    source = text(
        "gfx942", "s_waitcnt vmcnt(0)", LOAD["gfx942"], "s_waitcnt vmcnt(0)", "s_waitcnt vmcnt(0)", "v_mov_b32 v2, v1"
    )
    program = decode(source, "gfx942", None)
    first, second, third = [op for op in program.ops if "vmcnt" in op.text]
    assert [unnecessary(program, op) for op in (first, second, third)] == [NOTHING, AT_ONCE, NOTHING]
    program = decode(text("gfx942", LOAD["gfx942"], "s_waitcnt vmcnt(0)", "v_mov_b32 v2, v1"), "gfx942", None)
    assert unnecessary(program, next(op for op in program.ops if "vmcnt" in op.text)) is None


def test_code_between_branches_shows_a_wait_covered_only_if_it_shows_all_that_was_in_flight():
    two = [LOAD["gfx942"], LOAD["gfx942"].replace("v1", "v2", 1)]
    branch = ["s_cbranch_scc0 behind", "behind:"]
    ways = {
        AT_ONCE: ["s_waitcnt vmcnt(0)", *two, "s_waitcnt vmcnt(1)", "s_waitcnt vmcnt(0)", "v_mov_b32 v3, v1"],
        COVERED: [*two, *branch, "s_waitcnt vmcnt(1)", "s_waitcnt vmcnt(0)", "v_mov_b32 v3, v1"],
        None: [*two, *branch, "s_waitcnt vmcnt(1)", "v_mov_b32 v3, v1"],
    }
    for why, lines in ways.items():
        program = decode(text("gfx942", *lines), "gfx942", None)
        assert unnecessary(program, next(op for op in program.ops if "vmcnt(1)" in op.text)) == why


def test_a_wait_before_a_barrier_is_not_called_unnecessary():
    program = decode(text("gfx942", "ds_write_b32 v0, v0", "s_waitcnt lgkmcnt(0)", "s_barrier"), "gfx942", None)
    wait = [op for op in program.ops if op.text.strip() == "s_waitcnt lgkmcnt(0)"][-1]
    assert unnecessary(program, wait) is None


KERNELS = [(case, target) for case in CASES.values() for target in case.targets if target in ARGUMENTS]


@pytest.mark.drawn("all", 10)
@pytest.mark.parametrize(("case", "target"), [pytest.param(*each, id=f"{each[0].name}-{each[1]}") for each in KERNELS])
def test_no_false_alarm(case, target):
    with virtual_gpu(target, sanitize="waitcheck"):
        case.body(Run(target))
