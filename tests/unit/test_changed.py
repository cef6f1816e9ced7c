"""What a change asks for: every rule on a small checkout, and the graph of imports on this one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpu_utils.course.changed import Choice, base, changed_files, choose
from gpu_utils.errors import BadArgument

FILES = {
    "gpu_utils/__init__.py": 'from gpu_utils.lazy import lazily\n\n_HOME = {"bench": "gpu_utils.timing"}\n',
    "gpu_utils/lazy.py": "from importlib import import_module\n\nhome = import_module('x')\n",
    "gpu_utils/timing.py": "from gpu_utils import clock\n",
    "gpu_utils/clock.py": "",
    "gpu_utils/alone.py": "",
    "gpu_utils/virtual/__init__.py": "from gpu_utils.virtual.models import isa\n",
    "gpu_utils/virtual/models.py": "from importlib import import_module\n\nisa = import_module('virtual.isa')\n",
    "gpu_utils/virtual/isa.py": "from . import words\n",
    "gpu_utils/virtual/words.py": "",
    "gpu_utils/exercises/u01_gpt2_baseline/mlp.py": "",
    "content/01_gpt2_baseline/lab.py": "from gpu_utils import virtual_gpu\n",
    "content/02_gpu_machine/lesson.py": "from gpu_utils import bench\n",
    "tests/__init__.py": "",
    "tests/conftest.py": "import gpu_utils.clock\n\ndef fixture():\n    import gpu_utils.alone\n",
    "tests/helper.py": "import gpu_utils.virtual\n",
    "tests/unit/test_bench.py": "from gpu_utils import bench\n",
    "tests/unit/test_virtual.py": "def test():\n    from tests.helper import something\n",
    "tests/unit/test_command.py": "import subprocess\n",
    "tests/unit/test_words.py": "'README.md'\n",
    "tests/content/test_u01_gpt2_baseline.py": "from gpu_utils import bench\n",
    "README.md": "words",
    "docs/other.md": "words",
}
EVERY_TEST = tuple(sorted(name for name in FILES if "/test_" in name))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def unit_tests(*names: str) -> tuple[str, ...]:
    return tuple(sorted(f"tests/unit/test_{name}.py" for name in names))


@pytest.mark.parametrize(
    "file",
    [
        "content/01_gpt2_baseline/lesson.py",
        "labs/01_gpt2_baseline.ipynb",
        "solutions/01_gpt2_baseline.ipynb",
        "gpu_utils/exercises/u01_gpt2_baseline/mlp.py",
        "tests/content/test_u01_gpt2_baseline.py",
    ],
)
def test_a_file_of_a_unit_asks_for_that_unit(checkout, file):
    assert choose(checkout, [file]) == Choice(units=("01",))


@pytest.mark.parametrize(
    ("file", "units", "asked"),
    [
        ("gpu_utils/virtual/words.py", (), ("virtual", "command")),  # by name from models, which the helper imports
        ("gpu_utils/virtual/isa.py", (), ("virtual", "command")),
        ("gpu_utils/timing.py", ("02",), ("bench", "command")),  # through the names that gpu_utils offers
        ("gpu_utils/alone.py", (), ("command",)),
    ],
)
def test_a_module_asks_for_its_examples_and_whoever_imports_it_however_indirectly(checkout, file, units, asked):
    found = choose(checkout, [file])
    also = ("tests/content/test_u01_gpt2_baseline.py",) if "bench" in asked else ()
    assert found == Choice(units=units, files=tuple(sorted((file, *unit_tests(*asked), *also))))


def test_what_a_conftest_imports_at_its_head_concerns_every_test_below_it(checkout):
    found = choose(checkout, ["gpu_utils/clock.py"])
    assert found.files == ("gpu_utils/clock.py", *EVERY_TEST)
    assert choose(checkout, ["tests/conftest.py"]).files == EVERY_TEST


def test_a_test_asks_for_itself_and_a_helper_for_the_tests_that_import_it(checkout):
    assert choose(checkout, ["tests/unit/test_bench.py"]).files == unit_tests("bench")
    assert choose(checkout, ["tests/helper.py"]).files == unit_tests("virtual")


def test_a_document_asks_for_the_tests_that_name_it(checkout):
    assert choose(checkout, ["README.md"]) == Choice(files=unit_tests("words"))
    assert choose(checkout, ["docs/other.md"]) == Choice()


@pytest.mark.parametrize(
    "file",
    ["pyproject.toml", "tools/audit.py", "gpu_utils/gone.py", "gpu_utils/__init__.py", "gpu_utils/lazy.py", "w2w"],
)
def test_when_in_doubt_everything_runs(checkout, file):
    assert choose(checkout, ["README.md", file, "labs/01_gpt2_baseline.ipynb"]) == Choice(because=file)


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_changed_is_what_differs_from_where_the_branch_left_main_or_is_new(checkout):
    (checkout / ".gitignore").write_text("build/\n")
    git(checkout, "init")
    git(checkout, "add", ".")
    git(checkout, "commit", "-m", "first")
    git(checkout, "checkout", "-b", "mine")
    (checkout / "gpu_utils" / "clock.py").write_text("x = 1\n")
    git(checkout, "commit", "-am", "second")
    (checkout / "gpu_utils" / "alone.py").unlink()
    (checkout / "tests" / "unit" / "test_new.py").touch()
    (checkout / "build").mkdir()
    (checkout / "build" / "report.xml").touch()
    git(checkout, "checkout", "main")
    assert changed_files(checkout, base(checkout)) == ["gpu_utils/alone.py", "tests/unit/test_new.py"]
    git(checkout, "checkout", "mine")
    assert changed_files(checkout, base(checkout)) == [
        *("gpu_utils/alone.py", "gpu_utils/clock.py", "tests/unit/test_new.py")
    ]


def test_without_git_one_sentence_says_what_to_run(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(BadArgument, match=r"no checkout with commits.*run .*w2w test"):
        base(tmp_path)


def test_in_this_checkout_the_machine_of_virtual_gpus_is_reached_from_its_tests_and_every_unit(repo_root):
    found = choose(repo_root, ["gpu_utils/virtual/ptx/warp.py"])
    assert {"00", "02", "03"} <= set(found.units)
    assert {"tests/unit/virtual/ptx/test_ptx_warp.py", "tests/unit/virtual/test_kernel_set.py"} <= set(found.files)
    assert "tests/unit/test_chips.py" not in found.files
