"""Every figure that is printed about a chip has a source: in the registry, in fact boxes, in running text."""

from __future__ import annotations

import textwrap
from dataclasses import replace

import pytest

from gpu_utils.analytic.access import SHAPES
from gpu_utils.chips import TARGETS, Figure
from gpu_utils.chips.caches import L2_OF_TARGET
from gpu_utils.chips.source import is_dated
from gpu_utils.course import facts_page
from gpu_utils.course.cells import parse_cells
from gpu_utils.course.facts import boxes, is_origin, problems, sourced
from gpu_utils.course.paths import Course, course
from gpu_utils.course.units import UNITS

HERE = course()
UNIT = UNITS[2]


@pytest.mark.parametrize("unit", HERE.written(), ids=lambda unit: unit.name)
def test_every_figure_of_a_unit_has_its_source(unit):
    assert problems(HERE, unit) == []


def test_every_figure_of_the_registry_has_a_source_or_says_why_there_is_none():
    assert facts_page.registry_problems() == []
    figures = list(facts_page.registry())
    assert len({owner for owner, _, _ in figures}) > 20
    assert any(figure.value is None for _, _, figure in figures)


@pytest.mark.parametrize(
    ("where", "when", "said"),
    [
        ("a data sheet of 2024", "", "was looked up on ''; expected a day"),
        ("a data sheet of 2024", "last week", "was looked up on 'last week'"),
        ("a data sheet of 2024", "2026-11-22, heard of it", "was looked up on '2026-11-22, heard of it'"),
        ("NVIDIA", "2026-11-22", "which does not say where"),
    ],
)
def test_a_figure_whose_source_has_no_place_or_no_day_is_found(monkeypatch, where, when, said):
    figure = Figure(80, "GB", where, when=when)
    monkeypatch.setattr(facts_page, "registry", lambda: iter([("H100", "memory", figure)]))
    (problem,) = facts_page.registry_problems()
    assert problem.startswith("H100: memory")
    assert said in problem


def test_a_limit_of_a_target_without_a_source_is_found(monkeypatch):
    row = TARGETS["sm_90"]
    bare = replace(row, sources={name: source for name, source in row.sources.items() if name != "granule"})
    monkeypatch.setattr(facts_page, "TARGETS", {"sm_90": bare})
    assert facts_page.registry_problems() == ["sm_90: granule has the source '', which does not say where"]


def test_every_row_of_the_page_that_has_a_value_has_a_source_and_a_day():
    heads: list[str] = []
    rows = 0
    for line in facts_page.place(HERE).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")] if line.startswith("| ") else []
        heads = (heads or cells) if cells else []
        row = dict(zip(heads, [cell.strip() for cell in line[2:-2].split(" | ")], strict=False)) if cells else {}
        if row.get("value", "value") not in ("value", "---", "-") and "looked up" in row:
            assert is_dated(row["looked up"]), line
            assert row["source"], line
            rows += 1
    assert rows > 150


def test_the_page_of_facts_is_what_its_sources_make():
    assert facts_page.is_current(HERE), "run `./w2w build`"


def test_the_page_holds_every_figure_of_the_registry_and_every_item_of_a_box():
    text = facts_page.place(HERE).read_text()
    for owner, name, figure in facts_page.registry():
        value = "-" if figure.value is None else f"{figure.value:g} {figure.unit}"
        assert f"| {owner} | {name} | {value} | " in text
    for unit in HERE.written():
        for box in boxes(parse_cells(HERE.source(unit, "lesson").read_text(), unit.name)):
            assert f"### {unit.number}, {box.title}" in text
            assert all(item.text.replace("|", "\\|") in text for item in box.items)


def test_transactions_are_the_first_cache_lines_of_the_registry():
    for target, cache in L2_OF_TARGET.items():
        assert cache.l1_line.value in (None, SHAPES[target].sector)


def made(tmp_path, text: str, part: str = "lesson") -> Course:
    """A course of one unit whose lesson (or lab) is one markdown cell, or code where the text starts with `# %%`."""
    folder = tmp_path / "content" / UNIT.name
    folder.mkdir(parents=True)
    text = textwrap.dedent(text).strip()
    commented = "\n".join(f"# {line}".rstrip() for line in text.split("\n"))
    source = text if text.startswith("# %%") else f"# %% [markdown] only\n{commented}"
    (folder / f"{part}.py").write_text(source + "\n")
    return Course(tmp_path)


BOX = """
    > **Facts: memory**
    >
    > - H100 has 80 GB and 3.35 TB/s. (source: a Page (of a site), with brackets)
    > - MI300X has 192 GB of memory; it is
    >   a discrete accelerator. (source: [ROCm, MI300](https://rocm.docs.amd.com/x))
    > - LLVM gives 68 registers 7 waves. (measured: clang 22, the cell below)
    > - GPT-2, float16, sm_90 and V3 are names.
"""


def test_a_box_is_read_item_by_item(tmp_path):
    here = made(tmp_path, BOX)
    assert problems(here, UNIT) == []
    (box,) = boxes(parse_cells(here.source(UNIT, "lesson").read_text(), "lesson.py"))
    assert box.title == "Facts: memory"
    assert [item.kind for item in box.items] == ["source", "source", "measured", ""]
    assert box.items[0].origin == "a Page (of a site), with brackets"
    assert box.items[1].text == "MI300X has 192 GB of memory; it is a discrete accelerator."
    assert [item.line for item in box.items] == [4, 5, 7, 8]
    assert {(80.0, "GB"), (3.35, "TB/s"), (192.0, "GB")} <= sourced(box)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("> **Facts: x**\n>\n> - H100 has 132 SMs.", "lesson.py:4: `H100 has 132 SMs.` holds a figure and no source"),
        ("> **Facts: x**\n>\n> - It has 132 SMs. (source: NVIDIA)", "(source: NVIDIA) does not say where"),
        ("> **Facts: x**\n>\n> - It has 132 SMs. (source: one die)", "(source: one die) does not say where"),
        ("> **Facts: x**\n>\n> - It takes 3 s. (measured: by us)", "(measured: by us) does not say where"),
        ("> **Facts: x**\n>\n> - 5 of them. (source: arXiv 1) Or 6.", "holds a figure and no source"),
        ("> **Facts: x**\n> It has 64 lanes.", "`It has 64 lanes.` holds a figure and no source"),
        ("> **Facts: x**", "the box has no items"),
        ("> **Claim and fact.** It is so.", "a fact box starts with"),
        ("> ### Facts: x", "a fact box starts with"),
        ("An H100 has 3.35 TB/s.", "lesson.py:2: 3.35 TB/s in `An H100 has 3.35 TB/s.` has no source"),
        ("A block of `gfx942` has 64 KiB of LDS.", "64 KiB in"),
        ("Communication takes 20 of the 132 SMs.", "132 SMs in"),
        ("| H100 | 989.4 TFLOP/s |\n|---|---|", None),  # the name stands in another cell of the table
        ("| memory | 80 GB (H100) |\n|---|---|", "80 GB in"),
        ("# %% code\nprint('MI300X reads 5.3 TB/s')", "lesson.py:2: 5.3 TB/s in"),
        ("NVLink moves 900 GB/s.", "900 GB/s in"),
    ],
)
def test_figures_without_a_source_are_found(tmp_path, text, message):
    found = problems(made(tmp_path, text), UNIT)
    assert (found == []) if message is None else (len(found) == 1 and message in found[0]), found


@pytest.mark.parametrize(
    "text",
    [
        "The weights are a file of 548 MB.",
        "On a chip with 16 TFLOP/s and 2 TB/s the ridge is at 8.",
        "On `gfx942` one stage of this kernel asks for 32 KiB.",
        "The name is `NVIDIA H100 80GB HBM3`.",
        "An H100 has 3.35 TB/s. (source: a data sheet, page 2)",
        "A warp has 32 lanes, a wavefront 64.",
        "# %% code\nnames = ['NVIDIA H100 80GB HBM3', 'NVIDIA A100-SXM4-80GB']",
        "> **Facts: x**\n>\n> - An H100 has 80 GB. (source: a data sheet, page 2)\n\n80 GB of H100 fill.",
        "> **Facts: x**\n>\n> - H100 has 227 KiB. (source: a guide, part 1)\n\nA block of `sm_90` has 227 KB.",
        "# %% code\nchip = 'H100'\nprint(f'{chip} has {CHIPS[chip].bandwidth} TB/s')",
        "> A quotation of nobody.",
    ],
)
def test_what_is_nobodys_figure_or_has_a_source_passes(tmp_path, text):
    assert problems(made(tmp_path, text), UNIT) == []


def test_a_lab_leans_on_the_boxes_of_its_lesson(tmp_path):
    here = made(tmp_path, BOX)
    (here.content / UNIT.name / "lab.py").write_text(
        "# %% [markdown] one\n# The 80 GB of an H100, the 24 GB of an RTX.\n"
    )
    (found,) = problems(here, UNIT)
    assert "/lab.py:2: 24 GB in" in found


def test_hints_and_cases_of_exercises_lean_on_the_lesson_too(tmp_path):
    here = made(tmp_path, BOX)
    folder = tmp_path / "gpu_utils" / "exercises" / f"u{UNIT.name}"
    folder.mkdir(parents=True)
    (folder / "one.py").write_text("HINTS = (\n    'an H100 has 80 GB',\n    'an H200 has 141 GB',\n)\n")
    (found,) = problems(here, UNIT)
    assert found.startswith(f"gpu_utils/exercises/u{UNIT.name}/one.py:3: 141 GB in")


@pytest.mark.parametrize(
    ("origin", "good"), [("rocm.docs.amd.com/en/x", True), ("CUDA guide", True), ("AMD", False), ("", False)]
)
def test_a_bare_word_is_no_source(origin, good):
    assert is_origin("source", origin) == good
