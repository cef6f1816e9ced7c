"""Run kernels of packages from PyPI, and of Triton's tutorials, on virtual GPUs with every sanitizer that True means.

    pip install liger-kernel flash-linear-attention
    python tools/foreign_kernels.py --targets gfx942,sm_90 --only liger --json build/foreign.json
    python tools/foreign_kernels.py --targets gfx942,sm_90 --tutorials FOLDER --only tutorials

FOLDER holds files of Triton's python/tutorials, which no wheel carries. Each operation of the modules `foreign_liger`,
`foreign_fla` and `foreign_tutorials` is compared with its reference in float64, forward and backward. Each target is a
process, since packages decide at import what they run on. Of an autotuned kernel one configuration is run. Writes a row
for each operation into the JSON file as soon as it is known, and the table in Markdown at the end. The exit code is 1
after a wrong result or an alarm.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import torch  # noqa: E402
from foreign_conch import CONCH_OPERATIONS  # noqa: E402
from foreign_fla import FLA_OPERATIONS  # noqa: E402
from foreign_gems import GEMS_OPERATIONS  # noqa: E402
from foreign_liger import LIGER_OPERATIONS  # noqa: E402
from foreign_operations import Operation  # noqa: E402
from foreign_tutorials import TUTORIALS, tutorial  # noqa: E402

from gpu_utils.errors import (  # noqa: E402
    BackendUnavailable,
    ResourceLimit,
    UninitialisedGlobal,
    UnsupportedInstruction,
    W2WError,
)
from gpu_utils.virtual import virtual_gpu  # noqa: E402

PACKAGES = {
    "liger-kernel": LIGER_OPERATIONS,
    "flash-linear-attention": FLA_OPERATIONS,
    "conch-triton-kernels": CONCH_OPERATIONS,
    "flag_gems": GEMS_OPERATIONS,
    "tutorials": TUTORIALS,
}
NOT_EXECUTED = (UnsupportedInstruction, ResourceLimit, BackendUnavailable)
"""Errors that say nothing of the kernel; every other error of the library is an alarm."""


class TooLong(BaseException):
    """No `except Exception` of a package takes it."""


class Clock:
    """Inside the block TooLong is raised after some seconds, and again: a `__del__` or another's except may take it."""

    def __init__(self, seconds: int) -> None:
        self.seconds, self.runs = seconds, False

    def __enter__(self) -> None:
        self.runs = True
        signal.signal(signal.SIGALRM, self.ring)
        signal.setitimer(signal.ITIMER_REAL, self.seconds, 2)

    def __exit__(self, *_: object) -> None:
        self.runs = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def ring(self, number: int, frame: FrameType | None) -> None:
        if self.runs:
            raise TooLong


@contextmanager
def one_configuration() -> Iterator[None]:
    """Inside the block an autotuned kernel runs with one configuration that compiles and fits, and none is timed.

    Its name draws where the search for one begins.
    """
    from triton.compiler.errors import CompileTimeAssertionFailure
    from triton.runtime.autotuner import Autotuner, OutOfResources, PTXASError

    before = Autotuner.prune_configs, Autotuner._bench

    def in_order(self: Any, named: Any) -> list[Any]:
        self.found = False
        configurations = before[0](self, named)
        begin = zlib.crc32(self.base_fn.__name__.encode()) % len(configurations)
        return [*configurations[begin:], *configurations[:begin]]

    def cost(self: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
        if self.found:
            return [float("inf")] * 3
        if config.pre_hook:
            config.pre_hook({**self.nargs, **meta, **config.all_kwargs()})
        try:
            self.fn.run(*args, **{**meta, **config.all_kwargs(), "warmup": True})._init_handles()
        except (OutOfResources, CompileTimeAssertionFailure, PTXASError):
            return [float("inf")] * 3
        self.found = True
        return [0.0] * 3

    Autotuner.prune_configs, Autotuner._bench = in_order, cost
    try:
        yield
    finally:
        Autotuner.prune_configs, Autotuner._bench = before


def as_tuple(found: Any) -> tuple[torch.Tensor, ...]:
    """What a call gave; nothing where it compares by itself."""
    return tuple(found) if isinstance(found, (tuple, list)) else () if found is None else (found,)


def results(operation: Operation, inputs: dict[str, torch.Tensor], call: Any) -> dict[str, torch.Tensor]:
    """Outputs of `call` by number and gradients by name, of cotangents that depend on the shapes alone."""
    leaves = {
        name: value.requires_grad_(operation.gradients and value.is_floating_point()) for name, value in inputs.items()
    }
    outputs = as_tuple(call(**leaves))
    found = {f"output {i}": output.detach().clone() for i, output in enumerate(outputs)}
    if operation.gradients:
        generator = torch.Generator().manual_seed(1)
        weights = [torch.randn(output.shape, generator=generator).to(output) for output in outputs]
        torch.autograd.backward(outputs, weights)
        found |= {f"gradient of {name}": leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}
    return found


def farthest(operation: Operation, found: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> tuple[float, str]:
    """(largest difference as a part of the largest value, which value)."""
    apart = [(0.0, "nothing")]
    for name, reference in right.items():
        if name not in found:
            return float("inf"), f"{name}: there is none"
        value = found[name].detach().cpu().double()
        if value.shape != reference.shape:
            return float("inf"), f"{name}: shape {tuple(value.shape)} for {tuple(reference.shape)}"
        difference = float((value - reference).abs().max() / reference.abs().max().clamp(min=1e-6))
        apart.append((difference if difference == difference else float("inf"), name))
    return max(apart)


def outcome(operation: Operation, module: ModuleType) -> tuple[str, str]:
    """(right, wrong, ran, alarm or not executed; what there is to say)."""
    torch.manual_seed(0)
    drawn = {name: draw() for name, draw in operation.inputs.items()}
    found = results(
        operation,
        {name: value.clone().cuda() for name, value in drawn.items()},
        lambda **given: operation.call(module, **given),
    )
    if operation.reference is None:
        finite = all(bool(torch.isfinite(value.cpu()).all()) for value in found.values())
        return ("ran", "") if finite else ("wrong", "not finite")
    exact = {name: value.double() if value.is_floating_point() else value.clone() for name, value in drawn.items()}
    right = results(operation, exact, operation.reference)
    apart, where = farthest(operation, found, right)
    return ("right" if apart <= operation.tolerance else "wrong"), f"{where}: {apart:.1e}"


def sentence(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:600]}"


def attempt(operation: Operation, load: Any, seconds: int) -> tuple[str, str]:
    """The outcome of one operation, of which nothing escapes but Ctrl-C."""
    try:
        with Clock(seconds):
            return outcome(operation, load(operation.module))
    except TooLong:
        return "not executed", f"longer than {seconds} s"
    except NOT_EXECUTED as error:
        return "not executed", sentence(error)
    except W2WError as error:
        return "alarm", sentence(error)
    except AssertionError as error:  # of an operation that compares by itself
        return "wrong", sentence(error)
    except Exception as error:
        return "not executed", sentence(error)


def chosen_operations(target: str, only: str, folder: Path | None) -> Iterator[tuple[str, str, Operation, Any]]:
    """(package, version, operation, what imports its module)."""
    for package, operations in PACKAGES.items():
        if package == "tutorials":
            if folder is None:
                continue
            version = metadata.version("triton")
            load = lambda name: tutorial(folder, name)  # noqa: E731
        else:
            try:
                version = metadata.version(package)
            except metadata.PackageNotFoundError:
                print(f"{package} is not installed: pip install {package}", file=sys.stderr)
                continue
            load = importlib.import_module
        for operation in operations:
            fits = not operation.targets or target.startswith(operation.targets)
            if fits and re.search(only, f"{package} {operation.name}"):
                yield package, version, operation, load


def run(target: str, only: str, folder: Path | None, seconds: int, out: Path) -> None:
    """The rows of one target, into `out`."""
    rows: list[dict[str, Any]] = []
    os.environ.setdefault("GEMS_VENDOR", "nvidia" if target.startswith("sm_") else "amd")  # flag_gems asks nvidia-smi
    with virtual_gpu(target, cuda=True, sanitize=True) as gpu, one_configuration():
        for package, version, operation, load in chosen_operations(target, only, folder):
            begun = time.monotonic()
            gpu.launches.clear()
            kind, said = attempt(operation, load, seconds)
            if said.startswith(UninitialisedGlobal.__name__):  # what is read may be selected away: what do others say?
                with virtual_gpu(target, cuda=True, sanitize=gpu.sanitize - {"initcheck"}):
                    said += f" Without initcheck: {': '.join(attempt(operation, load, seconds))}"
            row = {"package": package, "version": version, "operation": operation.name, "target": target}
            row |= {"outcome": kind, "said": said, "launches": len(gpu.launches)}
            rows.append(row | {"seconds": round(time.monotonic() - begun, 1)})
            out.write_text(json.dumps(rows, indent=1))
            print(f"{target} {package} {operation.name}: {kind} {said} ({rows[-1]['seconds']} s)", flush=True)


def table(rows: list[dict[str, Any]]) -> str:
    """A row for each operation, a column for each target; then what every outcome but "right" and "ran" said."""
    targets = list(dict.fromkeys(row["target"] for row in rows))
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        cells.setdefault((f"{row['package']} {row['version']}", row["operation"]), {})[row["target"]] = row["outcome"]
    lines = ["| Package | Operation | " + " | ".join(targets) + " |", "|---" * (2 + len(targets)) + "|"]
    for (package, operation), found in cells.items():
        lines.append(f"| {package} | {operation} | " + " | ".join(found.get(one, "-") for one in targets) + " |")
    lines.append("")
    for row in rows:
        if row["outcome"] not in ("right", "ran"):
            lines.append(f"- {row['operation']} on {row['target']}: {row['outcome']}: {row['said']}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default="gfx942,sm_90")
    parser.add_argument("--only", default="", help="a regular expression on 'package operation'")
    parser.add_argument("--tutorials", type=Path, help="a folder with files of Triton's python/tutorials")
    parser.add_argument("--seconds", type=int, default=120, help="for one operation on one target")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "foreign_kernels.json")
    given = parser.parse_args()
    targets = given.targets.split(",")
    given.json.parent.mkdir(parents=True, exist_ok=True)
    if len(targets) == 1:
        run(targets[0], given.only, given.tutorials, given.seconds, given.json)
        rows = json.loads(given.json.read_text()) if given.json.exists() else []
    else:
        rows = []
        for target in targets:
            part = given.json.with_name(f"{given.json.stem}-{target}.json")
            part.unlink(missing_ok=True)
            command = [sys.executable, __file__, "--targets", target, "--only", given.only, "--json", str(part)]
            command += ["--seconds", str(given.seconds)]
            command += ["--tutorials", str(given.tutorials)] if given.tutorials else []
            subprocess.run(command, check=False)
            rows += json.loads(part.read_text()) if part.exists() else []
        given.json.write_text(json.dumps(rows, indent=1))
    print(table(rows))
    sys.exit(any(row["outcome"] in ("wrong", "alarm") for row in rows))


if __name__ == "__main__":
    main()
