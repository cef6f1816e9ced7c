"""The floors of the library: every module has one, the declared ones are the measured ones, the picture shows them."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import grimp
import pytest

from gpu_utils import lesson

ROOT = Path(__file__).parents[2]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("gpu_utils")


@pytest.fixture(scope="module")
def imports(graph) -> dict[str, set[str]]:
    """Module or package of gpu_utils -> the others that it imports; gpu_utils.lesson does so by name, when asked."""
    found: dict[str, set[str]] = {child.split(".")[1]: set() for child in graph.find_children("gpu_utils")}
    for module in graph.modules - {"gpu_utils"}:
        for other in graph.find_modules_directly_imported_by(module) - {"gpu_utils"}:
            found[module.split(".")[1]].add(other.split(".")[1])
    found["lesson"] |= {home.split(".")[1] for homes in lesson.GROUPS.values() for home in homes}
    return {module: others - {module} for module, others in found.items()}


def declared() -> list[set[str]]:
    """The floors of the contract, from the lowest."""
    (layers,) = (contract["layers"] for contract in CONTRACTS if contract["type"] == "layers")
    return [set(layer.split(" | ")) for layer in reversed(layers)]


def test_every_module_stands_on_the_lowest_floor_that_its_imports_allow(imports):
    @cache
    def floor(module: str) -> int:
        return max((floor(other) + 1 for other in imports[module]), default=0)

    measured = [{m for m in imports if floor(m) == number} for number in range(max(map(floor, imports)) + 1)]
    assert declared() == measured, "change `layers` in pyproject.toml and the table in CONTRIBUTING.md"


def test_the_picture_of_the_floors_is_the_contract():
    rows = re.findall(r"^\| (\d+) \| (`.*?) \|", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(reversed(range(len(declared()))))
    assert [set(re.findall(r"`(\w+)`", modules)) for _, modules in reversed(rows)] == declared()


def test_every_module_but_ui_and_cli_is_held_to_know_no_notebook(imports):
    (held,) = (
        contract["source_modules"] for contract in CONTRACTS if "IPython" in contract.get("forbidden_modules", ())
    )
    assert {name.split(".")[1] for name in held} == set(imports) - {"ui", "cli"}


def test_the_virtual_gpus_could_stand_alone(graph, imports):
    assert imports["virtual"] == {"errors", "chips", "analytic", "compiler"}
    used = {
        other
        for module in graph.find_descendants("gpu_utils.virtual")
        for other in graph.find_modules_directly_imported_by(module)
        if other.startswith("gpu_utils.compiler")
    }
    assert used == {"gpu_utils.compiler.cpp_module", "gpu_utils.compiler.constraints", "gpu_utils.compiler.cubin"}
