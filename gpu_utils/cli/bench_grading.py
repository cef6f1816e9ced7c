"""`w2w bench grading`: mutants of every solution, which the grader must fail."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpu_utils import exercises
from gpu_utils.course import sources
from gpu_utils.course.files import write_atomically
from gpu_utils.grading.exercise import Exercise
from gpu_utils.grading.mutant_trials import Trial, mutants, try_all
from gpu_utils.grading.mutants import Mutant

Tried = list[tuple[Mutant, Trial]]


def run(which: str, out: Path) -> bool:
    """Try the mutants of a unit, of an exercise or of all, print a table, write JSON; True when none is unexplained.

    which  "00", "00.saxpy", or "" for all. Raises UnknownName for another
    """
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table

    chosen = _chosen(which)
    tasks = [(exercise.id, mutant) for exercise in chosen for mutant in mutants(exercise)]
    tried: dict[str, Tried] = {exercise.id: [] for exercise in chosen}
    results = try_all(tasks, exercises.find)
    for name, mutant, trial in track(results, "mutants", total=len(tasks), transient=True):
        tried[name].append((mutant, trial))
    faults = {exercise.id: faults_of(exercise, tried[exercise.id]) for exercise in chosen}

    table = Table(title="Mutants of the solutions")
    heads = ("mutants", "killed", "same code", "equivalent", "not tried", "survivors", "seconds")
    table.add_column("exercise")
    for head in heads:
        table.add_column(head, justify="right")
    for name, found in tried.items():
        table.add_row(name, *(f"{count:.0f}" for count in _counts(name, found).values()))
    console = Console(width=120, highlight=False)
    console.print(table)
    for name, found in tried.items():
        for mutant, trial in sorted(found, key=lambda entry: entry[0].line):
            if trial.verdict == "survived" and mutant.key in exercises.equivalents(name):
                reason = exercises.equivalents(name)[mutant.key]
                console.print(f"{name}, equivalent: {mutant.after}: {reason}", markup=False, soft_wrap=True)
    for sentences in faults.values():
        for sentence in sentences:
            console.print(f"\n{sentence}", markup=False, soft_wrap=True)
    write_atomically(out, (json.dumps(_json(tried), indent=1) + "\n").encode())
    console.print(f"written to {out}")
    return not any(faults.values())


def faults_of(exercise: Exercise, tried: Tried) -> list[str]:
    """A text for each survivor without a reason, and for each entry of the table of equivalents that does not hold."""
    known, solution = exercises.equivalents(exercise.id), sources.solution(exercise.id)
    faults = [
        f"{exercise.id} passes with this mistake ({mutant.what}, line {mutant.line} of the answer, {trial.by}):\n"
        f"{mutant.diff(solution)}"
        for mutant, trial in tried
        if trial.verdict == "survived" and mutant.key not in known
    ]
    verdicts: dict[tuple[str, str], set[str]] = {}
    for mutant, trial in tried:
        only_a_gpu_tells = trial.verdict == "killed" and " on gpu" in trial.by
        verdicts.setdefault(mutant.key, set()).add("survived" if only_a_gpu_tells else trial.verdict)
    for key in known:
        if not verdicts.get(key, set()) & {"survived", "not tried"}:  # the line may stand twice, and one be killed
            what = "is killed or compiles to the same code" if key in verdicts else "is no mutant of the solution"
            faults.append(f"{exercise.id}: equivalent.toml has `{key[0]}` -> `{key[1]}`, which {what}; take it out")
    return faults


def _chosen(which: str) -> tuple[Exercise, ...]:
    if not which:
        return exercises.every()
    return (exercises.find(which),) if "." in which else exercises.of_unit(which)


def _counts(name: str, tried: Tried) -> dict[str, float]:
    verdicts = Counter(trial.verdict for _, trial in tried)
    known = exercises.equivalents(name)
    explained = sum(trial.verdict == "survived" and mutant.key in known for mutant, trial in tried)
    return {
        "mutants": len(tried),
        "killed": verdicts["killed"],
        "same code": verdicts["same"],
        "equivalent": explained,
        "not tried": verdicts["not tried"],
        "survivors": verdicts["survived"] - explained,
        "seconds": sum(trial.seconds for _, trial in tried),
    }


def _json(tried: dict[str, Tried]) -> dict[str, Any]:
    return {
        name: {
            **_counts(name, found),
            "trials": [{**asdict(mutant), **trial._asdict(), "source": None} for mutant, trial in found],
        }
        for name, found in tried.items()
    }
