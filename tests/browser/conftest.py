"""A JupyterLab of its own and a Chromium page for each test module."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
START_SECONDS = 60


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab: its folder, address and token, and where screenshots are kept."""

    folder: Path
    url: str
    token: str
    screenshots: Path

    def address(self, notebook: str) -> str:
        """A single-document page without sidebars, and without a layout left over from an earlier test."""
        return f"{self.url}/doc/workspaces/{secrets.token_hex(4)}/tree/{notebook}?token={self.token}"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("course")
    shutil.copytree(ROOT / "labs", folder / "labs")
    token = secrets.token_hex(16)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "W2W_DATA": str(folder / "data"),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "PYTHONPATH": str(ROOT),
    }
    command = [
        *(sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root", "--ip=127.0.0.1"),
        *(f"--port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}"),
        *(f"--ServerApp.root_dir={folder}", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"),
        "--LabApp.news_url=None",
    ]
    log = (folder / "jupyter.log").open("w")
    server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                urllib.request.urlopen(f"{url}/api?token={token}", timeout=2)
                break
            except OSError:
                assert server.poll() is None, (folder / "jupyter.log").read_text()
                assert time.monotonic() < deadline, (folder / "jupyter.log").read_text()
                time.sleep(0.2)
        screenshots = ROOT / "build" / "screenshots"
        screenshots.mkdir(parents=True, exist_ok=True)
        yield Lab(folder, url, token, screenshots)
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
        log.close()


@pytest.fixture(scope="module")
def browser(chromium: str):
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield running
        running.close()


@pytest.fixture
def page(browser):
    context = browser.new_context(viewport={"width": 1280, "height": 1400})
    page = context.new_page()
    page.set_default_timeout(60_000)
    yield page
    context.close()
