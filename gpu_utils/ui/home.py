"""The learner's home page: the map of the units, what is done in each, and where to go on.

The page is the notebook work/home.ipynb. Its one cell calls `show`; `./w2w study` writes it with its output, so that it
can be read and its links followed before, and without, any kernel.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any

from gpu_utils.command import w2w
from gpu_utils.course import copies, work
from gpu_utils.course.paths import Course, course
from gpu_utils.course.units import UNITS, Unit
from gpu_utils.errors import ProgressUnavailable, W2WError
from gpu_utils.grading import progress as store

CELL = "from gpu_utils.ui.home import show\n\nshow()"
TAG = "w2w-home"

_STYLE = """<style>
.w2w-home { max-width: 62em; container-type: inline-size; padding: 4px 0 12px; font-size: 14px; line-height: 1.5;
  color: var(--jp-ui-font-color1, #1f2328); font-family: var(--jp-ui-font-family, sans-serif); }
.w2w-home h1 { font-size: 1.7em; font-weight: 600; margin: 0 0 .4em; }
.w2w-home p { margin: .3em 0; }
.w2w-home .next { border: 1px solid var(--jp-border-color1, #bbb); border-radius: 6px;
  border-left: 6px solid var(--jp-brand-color1, #1976d2); padding: 10px 16px; margin: 10px 0 16px; }
.w2w-home .note { border-left: 6px dotted var(--jp-border-color1, #bbb); padding: 2px 12px; margin: 8px 0; }
.w2w-home .next a, .w2w-home .next a:hover { display: inline-block; margin-top: 8px; padding: 6px 16px;
  border-radius: 5px; background: #1565c0; color: #fff; font-weight: 600; text-decoration: none; }
.w2w-home .next a:hover { background: #0d47a1; }
.w2w-home ol { list-style: none; margin: 0 !important; padding: 0 !important; }
.w2w-home li { display: grid; grid-template-columns: 1fr 1fr; gap: 2px 16px; align-items: baseline; margin: 0;
  padding: 7px 2px; border-top: 1px solid var(--jp-border-color2, #ddd); }
.w2w-home li b { grid-column: 1 / -1; font-weight: 600; }
.w2w-home li.planned { color: var(--jp-ui-font-color2, #666); padding: 2px; grid-template-columns: 1fr 5em; }
.w2w-home li.planned b { grid-column: auto; font-weight: 400; }
@container (min-width: 50em) {
  .w2w-home li { grid-template-columns: 1fr 12em 18em; }
  .w2w-home li b { grid-column: auto; }
  .w2w-home li.planned { grid-template-columns: 1fr 12em 18em; }
}
.w2w-home li a { text-decoration: underline; }
.w2w-home a:focus-visible { outline: 3px solid var(--jp-brand-color1, #1976d2); outline-offset: 2px; }
.w2w-home > small { margin-top: 10px; }
.w2w-home small { display: block; color: var(--jp-ui-font-color2, #555); font-size: .9em; }
</style>"""


@dataclass(frozen=True)
class Row:
    """One unit on the map.

    cells  code cells of the learner's lesson
    run    those of them that were run when it was last saved
    """

    unit: Unit
    kinds: tuple[str, ...]
    standing: tuple[store.Standing, ...] = ()
    run: int = 0
    cells: int = 0

    @property
    def passed(self) -> int:
        return sum(each.state == "passed" for each in self.standing)

    @property
    def done(self) -> bool:
        return self.passed == len(self.standing)

    @property
    def begun(self) -> bool:
        return any(each.state != "not started" for each in self.standing)


@dataclass(frozen=True)
class Home:
    """The page as a value: it shows itself as HTML in a notebook, as text elsewhere.

    outdated  lessons and labs that were changed and kept while the course got newer ones
    """

    rows: tuple[Row, ...]
    outdated: tuple[copies.Copy, ...]
    at: datetime
    note: str = ""

    @property
    def next(self) -> tuple[Row, str] | None:
        """Where to go on: the first unit that is not done, and "lesson" until all of it was run or the lab begun."""
        for row in self.rows:
            if row.kinds and not row.done:
                reading = "lesson" in row.kinds and not row.begun and row.run < row.cells
                return row, "lesson" if reading or "lab" not in row.kinds else "lab"
        return None

    @property
    def notes(self) -> list[str]:
        return [*map(advice, self.outdated), *([self.note] if self.note else [])]

    def __repr__(self) -> str:
        lines = ["Warp to Wavefront", "", _next_words(self.next), ""]
        for row in self.rows:
            title = f"{row.unit.number}  {row.unit.title:<52}"
            lines.append(f"{title} {'; '.join(_words(row, kind) for kind in row.kinds) or 'planned'}")
        return "\n".join([*lines, "", *self.notes])

    def _repr_html_(self) -> str:
        notes = "".join(f'<p class="note">{escape(note)}</p>' for note in self.notes)
        rows = "".join(map(_item, self.rows))
        # Enter and the arrow keys belong to the page while it has the focus, not to the notebook around it
        return (
            f'{_STYLE}<div class="w2w-home" data-lm-suppress-shortcuts="true"><h1>Warp to Wavefront</h1>'
            f'<div class="next">{_next_html(self.next)}</div>{notes}<ol aria-label="The units">{rows}</ol>'
            f"<small>As of {self.at:%H:%M}. Run this cell (Shift+Enter) to bring the page up to date.</small></div>"
        )


def look(here: Course, found: list[copies.Copy]) -> Home:
    """The page of a checkout whose copies were just made."""
    names = {unit: work.exercises(here, unit) for unit in UNITS}
    note = ""
    try:
        known = {each.exercise: each for each in store.standing([name for each in names.values() for name in each])}
    except ProgressUnavailable as problem:
        known, note = {}, str(problem)
    rows = []
    for unit in UNITS:
        run, cells = _cells_run(here.copy(unit, "lesson"))
        standing = tuple(known.get(name, store.Standing(name, None, 0, 0, False)) for name in names[unit])
        rows.append(Row(unit, tuple(copies.kinds(here, unit)), standing, run, cells))
    return Home(tuple(rows), tuple(copy for copy in found if copy.outdated), datetime.now(), note)


def show() -> Any:
    """The home page, as the last line of its cell; where widgets run, with a button for each outdated lesson."""
    here = course()
    page = look(here, copies.make_all(here))
    lessons = [copy for copy in page.outdated if copy.kind == "lesson"]
    if not lessons:
        return page
    from IPython.display import display

    display(page)
    for copy in lessons:
        display(renewal(here, copy))
    return None


def renewal(here: Course, copy: copies.Copy) -> Any:
    """A button that puts the new lesson in the old one's place, with the old one kept beside it."""
    import ipywidgets as widgets

    button = widgets.Button(
        description=f"Get the new lesson {copy.unit.number}", layout=widgets.Layout(width="auto"), tooltip=advice(copy)
    )
    said = widgets.HTML()

    def renew(_: object) -> None:
        try:
            _, kept = work.reset(here, copy.unit, datetime.now(), copy.kind)
        except W2WError as problem:
            said.value = escape(str(problem))
            return
        button.disabled = True
        said.value = f"Done. Yours is kept as {escape(here.relative(kept))}." if kept else "Done."

    button.on_click(renew)
    return widgets.VBox([button, said])


def advice(copy: copies.Copy) -> str:
    """One sentence about a copy that was kept while the course got a newer one."""
    command = w2w(f"reset {copy.unit.number}{' --lesson' if copy.kind == 'lesson' else ''}")
    return (
        f"{copy.kind.capitalize()} {copy.unit.number} of the course is newer than your copy, which you changed and "
        f"which was kept: `{command}` puts the new one in its place and keeps yours beside it."
    )


def prepare(here: Course) -> Home:
    """Makes the learner's copies and the notebook work/home.ipynb, and returns what that shows. Raises CannotWrite."""
    home = look(here, copies.make_all(here))
    copies.follow(here.home, _notebook(home), outputs=True)
    return home


def _notebook(home: Home) -> dict[str, Any]:
    output = {"data": {"text/html": home._repr_html_(), "text/plain": repr(home)}, "metadata": {}}
    cell = {
        "cell_type": "code",
        "id": "w2w-home",
        "metadata": {"tags": [TAG], "jupyter": {"source_hidden": True}, "editable": True},
        "source": CELL.splitlines(keepends=True),
        "execution_count": None,
        "outputs": [{"output_type": "display_data", **output}],
    }
    metadata = {
        "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "w2w": {"kind": "home"},
    }
    return copies.stamped({"cells": [cell], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5})


def _cells_run(lesson: Path) -> tuple[int, int]:
    """Code cells of a notebook that were run, and all of them; 0 of 0 when it cannot be read."""
    try:
        cells = [cell for cell in json.loads(lesson.read_bytes())["cells"] if cell["cell_type"] == "code"]
        cells = [cell for cell in cells if "".join(cell["source"]).strip()]
        return sum(cell["execution_count"] is not None for cell in cells), len(cells)
    except (OSError, ValueError, KeyError, TypeError):
        return 0, 0


def _address(row: Row, kind: str) -> str:
    return f"lessons/{row.unit.name}.ipynb" if kind == "lesson" else f"{row.unit.name}.ipynb"


def _words(row: Row, kind: str) -> str:
    if kind == "lesson":
        return f"{row.run} of {row.cells} cells run" if row.run else "not begun"
    return f"{row.passed} of {len(row.standing)} passed"


def _item(row: Row) -> str:
    name = f"<b>{row.unit.number}&ensp;{escape(row.unit.title)}</b>"
    if not row.kinds:
        return f'<li class="planned">{name}<span>planned</span></li>'
    links = []
    for kind in row.kinds:
        link = f'<a href="{_address(row, kind)}">{kind.capitalize()} {row.unit.number}</a>'
        links.append(f"<span>{link}<small>{_boxes(row) if kind == 'lab' else ''}{_words(row, kind)}</small></span>")
    return f"<li>{name}{''.join(links)}</li>"


def _boxes(row: Row) -> str:
    """A box for each exercise, full when it was passed; the words beside them say the same."""
    boxes = "".join("■" if each.state == "passed" else "□" for each in row.standing)
    return f'<span aria-hidden="true">{boxes}</span> '


def _next_words(step: tuple[Row, str] | None) -> str:
    if step is None:
        return "Every exercise that there is so far is passed."
    row, kind = step
    if kind == "lesson":
        verb = "Go on with" if row.run else "Begin with"
        return f"{verb} lesson {row.unit.number}: {row.unit.title}"
    following = next((each.exercise for each in row.standing if each.state != "passed"), "")
    return f"Go on with lab {row.unit.number}: next is {following}"


def _next_html(step: tuple[Row, str] | None) -> str:
    words = f"<p>{escape(_next_words(step))}</p>"
    if step is None:
        return words
    row, kind = step
    return f'{words}<a href="{_address(row, kind)}">Open {kind} {row.unit.number}</a>'
