"""Mutants: what the tables of mistakes make of a piece of code, and what the grader says to them."""

from __future__ import annotations

import textwrap

import pytest
import torch

from gpu_utils.cli import bench_grading
from gpu_utils.grading import mutant_trials
from gpu_utils.grading.exercise import Case, Example, Exercise, Misconception
from gpu_utils.grading.jobs import make_jobs
from gpu_utils.grading.mutant_trials import Trial, trial, try_all
from gpu_utils.grading.mutants import Mutant, mutants_of
from tests.unit.sample_exercises import AFFINE, find_sample


def python(source: str, written: range | None = None) -> dict[str, list[str]]:
    """Kind of mistake -> what the changed lines became."""
    source = textwrap.dedent(source).strip("\n")
    return grouped(mutants_of(source, written or range(1, source.count("\n") + 2), cpp=False))


def cpp(part: str) -> dict[str, list[str]]:
    source = f'def answer():\n    return """\n{part}\n"""'
    return grouped(mutants_of(source, range(3, 3 + part.count("\n") + 1), cpp=True))


def grouped(mutants: list[Mutant]) -> dict[str, list[str]]:
    kinds: dict[str, list[str]] = {}
    for mutant in mutants:
        kinds.setdefault(mutant.what, []).append(mutant.after)
    return kinds


KERNEL = """
    def kernel(x_ptr, n, BLOCK):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0).to(tl.float32)
        tl.debug_barrier()
        return tl.sum(x, axis=0)
"""


@pytest.mark.parametrize(
    ("kind", "line"),
    {
        "a mask that is one too wide": ("comparison", "mask=offsets <= n, other=0.0).to(tl.float32)"),
        "a lost mask": ("argument", "x = tl.load(x_ptr + offsets, other=0.0).to(tl.float32)"),
        "another value for masked lanes": ("constant", "other=1.0).to(tl.float32)"),
        "a lost cast": ("call", "x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)"),
        "a lost barrier": ("statement", "pass"),
        "a wrong axis": ("constant", "return tl.sum(x, axis=1)"),
        "a lost term": ("arithmetic", "offsets = tl.arange(0, BLOCK)"),
        "another parameter": ("name", "offsets = tl.program_id(0) * x_ptr + tl.arange(0, BLOCK)"),
        "a mean for a sum": ("call", "return tl.mean(x, axis=0)"),
    }.values(),
)
def test_a_kernel_gets_the_mistakes_that_kernels_have(kind, line):
    assert any(after.endswith(line) for after in python(KERNEL)[kind])


@pytest.mark.parametrize(
    ("source", "kind", "after"),
    [
        ("min(a, b)", "call", "a"),
        ("x.clamp(min=0)", "call", "x"),
        ("a and b", "condition", "a"),
        ("[a for a in b if a]", "condition", "[a for a in b]"),
        ("x[1:n]", "part", "x[1:]"),
        ("{'a': b, 'c': d}", "part", "{'a': d, 'c': b}"),
        ("f(a, b)", "argument", "f(b, a)"),
        ("x.sum(1, keepdim=True)", "argument", "x.sum(1)"),
        ("a // b", "arithmetic", "a / b"),
        ("a << b", "arithmetic", "a >> b"),
        ("-a", "arithmetic", "a"),
        ("cdiv(a, b)", "call", "a // b"),
        ("range(n)", "call", "range(n - 1)"),
        ("2 * (a + b)", "arithmetic", "2 * (a)"),
        ("f'{a + 1} of it'", "constant", "f'{a + 2} of it'"),
        ("a if b else c", "condition", "c"),
    ],
)
def test_a_mistake_stands_where_it_was_made_and_keeps_the_rest(source, kind, after):
    assert after in python(source)[kind]


def test_the_second_of_two_mistakes_on_a_line_is_bracketed_where_it_must_be():
    assert "2 * (a - b)" in python("2 * (a + b)")["arithmetic"]
    assert "2 + (a + b)" in python("2 * (a + b)")["arithmetic"]


MACHINE_CODE = """
    def answer():
        return '''
      shfl.sync.bfly.b32 %r3, %r2, 16, 0x1f, 0xffffffff;  // add.s32 %r1, %r1, 1;
      @!%p1 st.global.f32 [%rd5+4], %f1;
      v_add_f32_dpp v1, v2, v1 row_shr:8 row_mask:0xf bank_mask:0xf
      s_waitcnt vmcnt(2)
    '''
"""


@pytest.mark.parametrize(
    ("kind", "after"),
    [
        ("instruction", ""),
        ("opcode", "shfl.sync.down.b32 %r3, %r2, 16, 0x1f, 0xffffffff; // add.s32 %r1, %r1, 1;"),
        ("number", "shfl.sync.bfly.b32 %r3, %r2, 8, 0x1f, 0xffffffff; // add.s32 %r1, %r1, 1;"),
        ("register", "shfl.sync.bfly.b32 %r3, %r3, 16, 0x1f, 0xffffffff; // add.s32 %r1, %r1, 1;"),
        ("predicate", "st.global.f32 [%rd5+4], %f1;"),
        ("predicate", "@%p1 st.global.f32 [%rd5+4], %f1;"),
        ("operands", "@!%p1 st.global.f32 %f1, [%rd5+4];"),
        ("operands", "v_add_f32_dpp v1, v1, v2 row_shr:8 row_mask:0xf bank_mask:0xf"),
        ("opcode", "v_add_f32_dpp v1, v2, v1 row_shl:8 row_mask:0xf bank_mask:0xf"),
        ("number", "v_add_f32_dpp v1, v2, v1 row_shr:8 row_mask:0xe bank_mask:0xf"),
        ("number", "s_waitcnt vmcnt(3)"),
        ("opcode", "s_waitcnt lgkmcnt(2)"),
    ],
)
def test_machine_code_in_a_string_gets_mistakes_of_its_own(kind, after):
    assert after in python(MACHINE_CODE)[kind]


def test_a_string_of_words_a_docstring_and_a_comment_are_no_machine_code():
    words = python('def answer():\n    """add.f32 %f1, %f1, %f2;"""\n    return "e.g. a sum"')
    assert not {"instruction", "register", "opcode"} & set(words)
    assert not [text for texts in python(MACHINE_CODE).values() for text in texts if "sub.s32" in text]


def test_docstrings_annotations_messages_and_what_is_not_written_stay():
    source = '''
        def f(x: Literal[1]) -> Literal[2]:
            """Double 3."""
            if not x:
                raise ValueError("expected 4 or more")
            return x
    '''
    texts = [after for kind in python(source).values() for after in kind]
    assert texts
    assert not any(number in text for text in texts for number in ("[2]", "[3]", "Double 4", "expected 5"))
    assert python("a = 1\nb = 2", written=range(2, 3)) == {"constant": ["b = 3", "b = 1"]}


def test_a_mutant_that_compiles_to_the_same_code_is_none():
    assert "a = 4" not in [after for kind in python("a = 2 * 2").values() for after in kind]
    assert python("a = 2 * 2")["arithmetic"] == ["a = 2"]  # 2 + 2 is the same number


def test_a_key_outlives_changes_of_other_lines_and_of_the_indentation():
    one = mutants_of("a = 1\nb = c < d", [2], cpp=False)
    other = mutants_of("if a:\n\n    b = c < d", [3], cpp=False)
    assert [mutant.key for mutant in one] == [mutant.key for mutant in other]


@pytest.mark.parametrize(
    ("part", "kind", "after"),
    [
        ("int i = threadIdx.x % warpSize;", "operator", "int i = threadIdx.x / warpSize;"),
        ("int i = threadIdx.x % warpSize;", "name", "int i = threadIdx.x % 32;"),
        ("a = b;\n__syncthreads();", "statement", ";"),
        ("if (i < n && keep) out[i] = 1.0f;", "operand", "if ( keep) out[i] = 1.0f;"),
        ("if (i < n && keep) out[i] = 1.0f;", "operand", "if (i < n ) out[i] = 1.0f;"),
        ("if (i < n) out[i] = 1.0f;", "condition", "if (true) out[i] = 1.0f;"),
        ("if (i < n) out[i] = 1.0f;", "statement", "if (i < n) ;"),
        ("v = i < n ? a[i] : 0.0f;", "condition", "v = 0.0f;"),
        ("m = (1ull << lane) - 1;", "constant", "m = (1u << lane) - 1;"),
        ("m = ~0ull;", "sign", "m = 0ull;"),
        ("s += (float)x;", "cast", "s += x;"),
        ("v = f(a, b + 1);", "argument", "v = f(b + 1, a);"),
        ("v = __shfl_down_sync(m, v, o);", "name", "v = __shfl_up_sync(m, v, o);"),
    ],
)
def test_c_plus_plus_gets_the_mistakes_that_its_kernels_have(part, kind, after):
    assert after in cpp(part)[kind]


def test_comments_preprocessor_lines_pointers_and_loop_heads_are_left_alone():
    assert cpp("// a < b\n#define N 3") == {}
    assert "operator" not in cpp("float *x = p;")
    assert "statement" not in cpp("for (int i = 0; i < n; i += 2) {\n}")


# --- trying them ------------------------------------------------------------------------------------------------

HEAD = "def affine(x):\n"


@pytest.fixture
def tried(monkeypatch):
    """The verdict on a body of AFFINE's function."""

    def tried(body: str, exercise: Exercise = AFFINE) -> Trial:
        monkeypatch.setattr(mutant_trials.sources, "load", loaded)
        return trial(exercise, exercise, Mutant("", HEAD + textwrap.indent(body, "    "), 1, "", ""))

    return tried


def loaded(_name, source):
    space = {}
    exec(source, space)
    return space["affine"]


def test_a_wrong_answer_is_killed_by_its_first_failure_and_a_right_one_survives(tried):
    assert tried("return 2 * x + 1")[:2] == ("survived", "seed 1")
    killed = tried("return 2 * x")
    assert killed.verdict == "killed"
    assert killed.by.startswith("value on cpu, n=8")


def test_a_cell_that_fails_a_wrong_signature_and_an_endless_loop_are_killed(tried):
    assert tried("return 2 *").by == "the cell: SyntaxError"
    assert tried("while True:\n    pass").by.startswith("timeout")


def test_what_only_some_fresh_cases_show_is_a_survivor(tried):
    sizes = [job.inputs["x"].numel() for job in make_jobs(AFFINE, mutant_trials.SEEDS[0]) if job.fresh]
    wrong_by_chance = f"return 2 * x + (1 if x.numel() != {sizes[0]} else 0)"
    assert tried(wrong_by_chance)[:2] == ("survived", f"seed {mutant_trials.SEEDS[1]}")


def test_a_mutant_that_ends_its_process_is_killed_and_the_next_one_is_tried():
    mutants = [Mutant("", source, 1, "", "") for source in ("import os\nos._exit(3)", "1 +", "import os\nos.abort()")]
    found = list(try_all([(AFFINE.id, mutant) for mutant in mutants], find_dying, processes=1))
    assert [trial.by for _, _, trial in found] == ["died", "the cell: SyntaxError", "died"]


def find_dying(exercise_id: str) -> Exercise:
    """AFFINE in a process whose answers need no lab."""
    mutant_trials.sources.load = loaded
    mutant_trials.hurried = lambda exercise: exercise
    return find_sample(exercise_id)


def test_an_example_is_a_case_with_the_inputs_that_it_gives():
    given = torch.tensor([1.0, 2.0])
    exercise = Exercise(**{**vars(AFFINE), "cases": (Example("of the docstring", x=lambda: given), *AFFINE.cases)})
    job = make_jobs(exercise, seed=1)[0]
    assert torch.equal(job.inputs["x"], given)
    assert job.inputs["x"] is not given
    assert job.case.label == "x of shape (2,)"


# --- the table of equivalents -----------------------------------------------------------------------------------


def test_a_survivor_without_a_reason_is_shown_with_its_line_and_entries_that_do_not_hold_are_named(monkeypatch):
    monkeypatch.setattr(bench_grading.sources, "solution", lambda name: "a = 1\nb = c < d")
    known = {("b = c < d", "b = c <= d"): "c is never d", ("gone", "too"): "of an older solution"}
    monkeypatch.setattr(bench_grading.exercises, "equivalents", lambda name: known)
    wide, low = (Mutant("comparison", f"a = 1\n{text}", 2, "b = c < d", text) for text in ("b = c <= d", "b = c >= d"))
    faults = bench_grading.faults_of(
        AFFINE, [(wide, Trial("killed", "value", 0.1)), (low, Trial("survived", "seed 1", 0.1))]
    )
    assert len(faults) == 3
    assert "99.affine passes with this mistake (comparison, line 2 of the answer, seed 1):" in faults[0]
    assert faults[0].endswith("-b = c < d\n+b = c >= d")
    assert "`b = c < d` -> `b = c <= d`, which is killed" in faults[1]
    assert "`gone` -> `too`, which is no mutant of the solution" in faults[2]
    assert bench_grading.faults_of(AFFINE, [(wide, Trial("survived", "seed 1", 0.1))])[0].count("gone") == 1


def test_a_mistake_that_stays_out_of_the_cases_is_found():
    """The tool on a grader with a hole: AFFINE without the case that tells 2 x from 2 x + 1."""
    blind = Exercise(
        **{
            **vars(AFFINE),
            "inputs": lambda case, generator: {"x": torch.full((case["n"],), 1e30)},
            "cases": (Case("large", n=3), Case("larger", n=4)),
            "fresh": lambda rng: Case("fresh", n=5),
            "misconceptions": (Misconception("none", lambda x: x, "none"),),
        }
    )
    found = mutants_of("def affine(x):\n    return 2 * x + 1", [2], cpp=False)
    verdicts = {}
    for mutant in found:
        answer = loaded("", mutant.source)
        verdicts[mutant.after] = mutant_trials._first_failure(blind, blind, answer, 1)[0]
    assert verdicts["return 2 * x"] == ""
    assert verdicts["return x + 1"].startswith("value")
