"""Where the parts of a checkout of the course are."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import gpu_utils
from gpu_utils.course.units import UNITS, Unit, find_unit
from gpu_utils.errors import ContentError, NotWritten

GENERATED = {"lesson": "notebooks", "lab": "labs", "solution": "solutions"}


@dataclass(frozen=True)
class Course:
    """A checkout: the folder that holds content/, the generated notebooks and the learner's work/."""

    root: Path

    @property
    def content(self) -> Path:
        return self.root / "content"

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def triton_cache(self) -> Path:
        """Triton's cache for the tests and notebooks of this checkout, so that they compile each kernel once.

        Triton knows a kernel by its text: one that was compiled in another checkout would name that one's files.
        """
        place = hashlib.sha256(str(self.root).encode()).hexdigest()[:8]
        return self.root / "build" / f"triton-{place}"

    def source(self, unit: Unit, part: str) -> Path:
        """content/NN_name/lesson.py or lab.py."""
        return self.content / unit.name / f"{part}.py"

    def notebook(self, unit: Unit, kind: str) -> Path:
        """The generated notebook of a kind: "lesson", "lab" or "solution"."""
        return self.root / GENERATED[kind] / f"{unit.name}.ipynb"

    def material(self, unit: Unit) -> Path:
        """The package of the unit's exercises, with what its lesson shows: kernels/, and files/ for learners."""
        return self.root / "gpu_utils" / "exercises" / f"u{unit.name}"

    def copy(self, unit: Unit, kind: str = "lab") -> Path:
        """The learner's copy of the lab or of the lesson."""
        return (self.work if kind == "lab" else self.work / "lessons") / f"{unit.name}.ipynb"

    @property
    def home(self) -> Path:
        """The learner's home page."""
        return self.work / "home.ipynb"

    def relative(self, path: Path) -> str:
        """A path for messages: from the root where that is possible."""
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)

    def is_written(self, unit: Unit) -> bool:
        return self.source(unit, "lesson").is_file() or self.source(unit, "lab").is_file()

    def written(self) -> list[Unit]:
        """The units that exist now, in order. Raises ContentError for a folder that no unit is called after."""
        names = {unit.name for unit in UNITS}
        for folder in sorted(self.content.glob("*")):
            if folder.is_dir() and folder.name not in names and any(folder.glob("*.py")):
                raise ContentError(
                    f"{self.relative(folder)}:1: no unit has this name; the names are in gpu_utils/course/units.py"
                )
        return [unit for unit in UNITS if self.is_written(unit)]

    def find(self, text: str) -> Unit:
        """The unit that `text` names. Raises UnknownName, and NotWritten for a unit that is only planned."""
        unit = find_unit(text)
        if not self.is_written(unit):
            exist = ", ".join(known.name for known in self.written()) or "none"
            raise NotWritten(
                f"unit {unit.name} ({unit.title}) is planned but not written yet; the units that exist now: {exist}"
            )
        return unit


def course(start: Path | None = None) -> Course:
    """The checkout around `start` (default: the working folder), else the one that this library lies in.

    Raises ContentError when there is none, for example when only the library was installed.
    """
    try:
        here = (start or Path.cwd()).absolute()
    except FileNotFoundError:  # the working folder was deleted
        here = Path("/")
    for folder in (here, *here.parents, Path(gpu_utils.__file__).absolute().parents[1]):
        if (folder / "content").is_dir() and (folder / "gpu_utils" / "__init__.py").is_file():
            return Course(folder)
    raise ContentError(f"{here}:1: no checkout of the course found here; run this inside the cloned repository")


def unit_folder(text: str) -> Path:
    """The folder with what a unit's lesson shows, beside its exercises; `text` names the unit, as "03" does.

    Raises UnknownName, NotWritten, and ContentError outside of a checkout.
    """
    here = course()
    return here.material(here.find(text))
