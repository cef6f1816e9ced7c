"""The course in a real browser: `./w2w study` on a copy of the repository, and a Chromium page."""

from __future__ import annotations

import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
START_SECONDS = 120
COPIED = ("content", "gpu_utils", "w2w")


@dataclass(frozen=True)
class Lab:
    """A running `./w2w study`: the learner's folder work/, the server's address and token, the place of screenshots."""

    folder: Path
    url: str
    token: str
    screenshots: Path

    def address(self, notebook: str) -> str:
        """The page of one notebook, with a layout of its own and nothing left open from an earlier test."""
        return f"{self.url}/lab/workspaces/{time.monotonic_ns()}/tree/{notebook}?token={self.token}"


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("course")
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    settings = folder / "settings"
    # every cell stays in the page, also those out of sight, so that a test can read all of them
    tracker = settings / "@jupyterlab" / "notebook-extension" / "tracker.jupyterlab-settings"
    tracker.parent.mkdir(parents=True)
    tracker.write_text('{"windowingMode": "none"}')
    environment = {
        **os.environ,
        "W2W_DATA": str(folder / "data"),
        "JUPYTERLAB_SETTINGS_DIR": str(settings),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "PYTHONPATH": str(folder),
        "PYTHONUNBUFFERED": "1",
    }
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "gpu_utils.cli", "study", "--no-browser", "--port", str(port)]
    server = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder
    )
    try:
        token = _token(server)
        screenshots = ROOT / "build" / "screenshots"
        screenshots.mkdir(parents=True, exist_ok=True)
        yield Lab(folder / "work", f"http://127.0.0.1:{port}", token, screenshots)
    finally:
        server.send_signal(signal.SIGINT)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()


def _token(server: subprocess.Popen[str]) -> str:
    """The token in the address that `./w2w study` prints once it serves; its output is read to the end."""
    lines: queue.Queue[str] = queue.Queue()
    assert server.stdout is not None
    output = server.stdout

    def read() -> None:
        for line in output:
            lines.put(line)

    threading.Thread(target=read, daemon=True).start()
    seen, deadline = "", time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        try:
            seen += lines.get(timeout=0.5)
        except queue.Empty:
            continue
        if found := re.search(r"token=(\w+)", seen):
            return found[1]
    pytest.fail(f"w2w study did not start: {seen}")


@pytest.fixture(scope="session")
def browser(chromium: str):
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield running
        running.close()


@pytest.fixture
def page(browser, lab, request):
    context = browser.new_context(viewport={"width": 1280, "height": 1400})
    page = context.new_page()
    page.set_default_timeout(60_000)
    failed_before = request.session.testsfailed
    yield page
    if request.session.testsfailed > failed_before:  # what was on the page, dialogs too
        page.screenshot(path=lab.screenshots / f"{request.node.name}.png")
    context.close()
