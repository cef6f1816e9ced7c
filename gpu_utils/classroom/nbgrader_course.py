"""What nbgrader needs of a release: metadata of its cells, check cells that raise, and a course folder's settings.

The metadata is nbgrader's format 3 (nbgrader/nbgraderformat/v3.py): an answer is a solution cell, a check a grade cell
worth the exercise's points. `nbgrader autograde` runs a whole notebook and gives a grade cell its points unless it
raised or wrote to stderr (`determine_grade` in nbgrader/utils.py), so its check cells end in an assertion, and show the
report instead of returning it: what such a cell returns may be read as partial points.
"""

from __future__ import annotations

from typing import Any

SCHEMA = 3
COURSE_ID = "warp_to_wavefront"

CHECK = """\
report = check("{exercise}")
display(report)
assert report.passed, report.headline"""

CONFIG = f'''\
"""Settings of the nbgrader course that `w2w release` made. Run nbgrader in this folder.

`nbgrader autograde` runs what students wrote as you, with your files and your network. Autograde only what you trust;
`w2w grade` is the grader for everything else.
"""

import os
import tempfile

c = get_config()  # noqa: F821

c.CourseDirectory.course_id = "{COURSE_ID}"
c.ClearSolutions.enabled = False  # the notebooks hold no solutions; it would empty the answer cells altogether
c.Execute.timeout = 600  # seconds for a cell; checks have limits of their own, and compile kernels first

# What students pass is not your own progress.
os.environ["W2W_DATA"] = tempfile.mkdtemp(prefix="w2w-nbgrader-")
'''


def cell_metadata(role: str, exercise: str, points: float) -> dict[str, Any]:
    """The metadata of an answer or a check cell; role is "answer" or "check".

    >>> cell_metadata("answer", "00.saxpy", 2.0)["grade_id"]
    'answer-00-saxpy'
    """
    is_check = role == "check"
    metadata = {
        "cell_type": "code",
        "grade": is_check,
        "grade_id": f"{role}-{exercise.replace('.', '-')}",
        "locked": is_check,
        "schema_version": SCHEMA,
        "solution": not is_check,
        "task": False,
    }
    return metadata | ({"points": points} if is_check else {})
