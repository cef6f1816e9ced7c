"""`w2w doctor --node file.yaml`: what a described node shows its processes, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import yaml

from gpu_utils.analytic.node import Node, describe
from gpu_utils.analytic.node_rules import Finding, findings
from gpu_utils.analytic.visibility import Visible
from gpu_utils.errors import BadArgument, W2WError

_LABELS = {"wrong": "WRONG", "advice": "could be better", "note": "note"}


def read(path: Path) -> Node:
    """The node of a YAML file. Errors: BadArgument that names the file."""
    try:
        return describe(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not text in UTF-8"
        raise BadArgument(f"{path}: {reason}; expected a YAML file that describes a node") from None
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        what = getattr(problem, "problem", None) or "not understood"
        raise BadArgument(f"{path}{line}: this is no YAML ({what}); expected lines of key: value") from None
    except W2WError as problem:
        raise BadArgument(f"{path}: {problem}") from None


def report(node: Node) -> tuple[list[str], list[Finding]]:
    """The lines to print, and what was found. Lines of what a process sees are folded where they are the same."""
    name = node.chip or node.target
    count = len(node.environments)
    lines = [f"{node.gpus} x {name} ({node.target}), {count} process{'es' if count > 1 else ''}", ""]
    for seen, ranks in _alike(node):
        who = f"process {ranks[0]}" if len(ranks) == 1 else f"processes {ranks[0]} to {ranks[-1]}"
        devices = ", ".join(f"cuda:{number} = GPU {gpu}" for number, gpu in enumerate(seen.gpus)) or "no GPU"
        lines.append(f"{who}: {devices}")
        lines += [f"    {layer}" for layer in seen.layers]
    found = findings(node)
    for one in found:
        lines += ["", f"{_LABELS[one.level]}: {one.found}", f"    does: {one.does}"]
        lines += [f"    try:  {one.advice}", f"    from: {one.source}"]
    wrong = sum(one.level == "wrong" for one in found)
    lines += ["", f"{wrong} wrong, {sum(one.level == 'advice' for one in found)} could be better."]
    return lines, found


def _alike(node: Node) -> list[tuple[Visible, list[int]]]:
    groups: list[tuple[Visible, list[int]]] = []
    for rank, seen in enumerate(node.seen):
        if groups and groups[-1][0] == seen:
            groups[-1][1].append(rank)
        else:
            groups.append((seen, [rank]))
    return groups
