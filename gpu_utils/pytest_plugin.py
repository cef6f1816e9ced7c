"""A pytest plugin: `pytest --virtual-gpu gfx942,sm_90 tests/` runs tests of Triton kernels on virtual GPUs.

Modules decide at import what they are on, so the virtual GPU is active before the first conftest.py is read, until the
session ends. Each of several targets gets a session of its own, in a process of its own. Without the option nothing is
imported but this module.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

SESSION = "virtual-gpu-session"
LAST = 5  # launches that a failure shows


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("virtual GPUs")
    group.addoption(
        "--virtual-gpu",
        metavar="TARGETS",
        help="run Triton's kernels on virtual GPUs, one session for each: --virtual-gpu=gfx942,sm_90",
    )
    group.addoption(
        "--virtual-gpu-sanitize",
        metavar="NAMES",
        nargs="?",
        const="default",
        help="with sanitizers: --virtual-gpu-sanitize for those that cost little, or =racecheck,waitcheck",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Open the virtual GPU before any file of the project is imported."""
    options = early_config.known_args_namespace
    targets = _names(options.virtual_gpu)
    if not targets:
        if options.virtual_gpu_sanitize:
            raise pytest.UsageError("--virtual-gpu-sanitize needs a GPU: add --virtual-gpu=gfx942, or another target")
        return
    from gpu_utils.errors import UnknownName
    from gpu_utils.virtual.models import MODELS
    from gpu_utils.virtual.sanitize.tools import chosen

    try:
        for target in targets:
            MODELS[target]
        sanitize: Any = options.virtual_gpu_sanitize or False
        sanitize = True if sanitize == "default" else _names(sanitize) if sanitize else False
        chosen(sanitize)
    except UnknownName as error:
        raise pytest.UsageError(str(error)) from None
    if len(targets) == 1:
        session = OneTarget(targets[0], sanitize)
        early_config.add_cleanup(session.stack.close)
        early_config.pluginmanager.register(session, SESSION)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Several targets: a session each. The exit code is the first that is not 0."""
    targets = _names(config.getoption("--virtual-gpu"))
    if len(targets) < 2:
        return None
    codes = {}
    for target in targets:
        codes[target] = subprocess.call(
            [sys.executable, "-m", "pytest", *_for_one(config.invocation_params.args, target)]
        )
    print("\nvirtual GPUs: " + ", ".join(f"{name} exit code {code}" for name, code in codes.items()))
    return next((code for code in codes.values() if code), 0)


@pytest.fixture(scope="session")
def virtual_gpu_target(request: pytest.FixtureRequest) -> str | None:
    """The target of this session, "gfx942"; None without `--virtual-gpu`."""
    session = request.config.pluginmanager.get_plugin(SESSION)
    return session.target if session is not None else None


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _for_one(args: Sequence[Any], target: str) -> list[str]:
    """The arguments of the session of one target; files of results get its name: out.xml becomes out-gfx942.xml."""
    out: list[str] = []
    rest = iter(str(arg) for arg in args)
    for arg in rest:
        name, equals, value = arg.partition("=")
        if name == "--virtual-gpu":
            if not equals:
                next(rest, None)
        elif name in ("--junitxml", "--junit-xml"):
            path = Path(value if equals else next(rest, ""))
            out.append(f"{name}={path.with_name(f'{path.stem}-{target}{path.suffix}')}")
        else:
            out.append(arg)
    return [f"--virtual-gpu={target}", *out]


class OneTarget:
    """The hooks of a session on one virtual GPU; of xdist's controller too, which only adds up."""

    def __init__(self, target: str, sanitize: Any) -> None:
        from gpu_utils.virtual.triton_driver import virtual_gpu

        self.target = target
        self.stack = ExitStack()
        self.gpu = self.stack.enter_context(virtual_gpu(target, sanitize=sanitize, cuda=True))
        self.launches = self.instructions = 0
        self.reports: dict[str, int] = {}

    def pytest_report_header(self) -> str:
        tools = f", sanitizers {', '.join(sorted(self.gpu.sanitize))}" if self.gpu.sanitize else ""
        return f"virtual GPU: {self.target} ({self.gpu.model.chip}){tools}"

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Each test starts with no launches: what is kept of them is not small."""
        self.gpu.launches.clear()
        yield
        self.gpu.launches.clear()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        outcome: Any = yield
        report = outcome.get_result()
        if report.when != "call":
            return
        counts = [launch.counters.instructions() for launch in self.gpu.launches]
        error = call.excinfo.value if call.excinfo else None
        known = _fault(error)
        report.virtual_gpu = {  # plain data: xdist sends it to its controller
            "launches": len(counts),
            "instructions": int(sum(sum(classes.values()) for classes in counts)),
            "fault": type(known).__name__ if known is not None else None,
        }
        if report.failed:
            report.sections.append((f"virtual GPU {self.target}", self._told(known)))

    def pytest_runtest_logreport(self, report: Any) -> None:
        found = getattr(report, "virtual_gpu", None)
        if found is None:
            return
        self.launches += found["launches"]
        self.instructions += found["instructions"]
        if found["fault"]:
            self.reports[found["fault"]] = self.reports.get(found["fault"], 0) + 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section(f"virtual GPU {self.target}")
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.reports.items())) or "none"
        terminalreporter.line(
            f"{self.launches} launches, {self.instructions:,} wave instructions; tests that ended in an error of the "
            f"virtual GPU: {faults}"
        )

    def _told(self, fault: BaseException | None) -> str:
        """The last launches with what they executed, and the fault."""
        lines = []
        for launch in self.gpu.launches[-LAST:]:
            classes = sorted(launch.counters.instructions().items(), key=lambda item: -item[1])
            shown = ", ".join(f"{name} {count:,}" for name, count in classes[:6] if count)
            lines.append(f"{launch.name}{list(launch.grid)} {shown}")
        lines = lines or ["no kernel was launched"]
        if fault is not None:
            lines.append(f"{type(fault).__name__}: {fault}")
            if (report := getattr(fault, "report", None)) is not None:
                lines.append(str(report))
        return "\n".join(lines)


def _fault(error: BaseException | None) -> BaseException | None:
    """The error of a virtual GPU that a test ended in, also as the cause of another."""
    from gpu_utils.errors import W2WError

    while error is not None and not isinstance(error, W2WError):
        error = error.__cause__ or error.__context__
    return error
