"""Say which figures of the course lack a source, or the day on which it was looked up. Status 1 when there is one, or
when docs/facts.md is not current.

`./w2w build` writes docs/facts.md; this reads the registry of chips, the fact boxes and the running text.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gpu_utils.course.facts import problems
from gpu_utils.course.facts_page import is_current, registry_problems
from gpu_utils.course.paths import Course


def main() -> int:
    course = Course(Path(__file__).resolve().parents[1])
    found = registry_problems()
    for unit in course.written():
        found += problems(course, unit)
    if not is_current(course):
        found.append("docs/facts.md is not what its sources make; run `./w2w build`")
    print("\n".join(found) or "every figure has one source and a day, and docs/facts.md is current")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
