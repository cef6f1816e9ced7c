"""The command study, started for real on a free port."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import websocket

from gpu_utils.cli import study

START_SECONDS = 60
LESSON = "content/00_start/lesson.py"


@dataclass
class Server:
    """A running `w2w study`, the port it was told, and its address once printed."""

    process: subprocess.Popen[str]
    port: int
    address: str

    def get(self, path: str, method: str = "GET") -> bytes:
        token = self.address.split("token=")[1]
        body = b"{}" if method == "POST" else None
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body, method=method)
        request.add_header("Authorization", f"token {token}")
        return urllib.request.urlopen(request, timeout=30).read()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _course(folder: Path) -> Path:
    """The least that study takes for a checkout."""
    for name in ("content/00_start", "gpu_utils"):
        (folder / name).mkdir(parents=True)
    (folder / "gpu_utils" / "__init__.py").write_text("")
    (folder / LESSON).write_text("# %% [markdown] top\n# # A lesson\n")
    return folder


def _begin(folder: Path, port: int) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    own = {
        name: str(folder / name.lower()) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    }
    code = f"import sys; sys.path.insert(0, {str(root)!r}); from gpu_utils.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code, "study", "--no-browser", "--port", str(port)],
        cwd=folder,
        env={**os.environ, **own},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    port = _free_port()
    process = _begin(_course(tmp_path / "the course"), port)
    printed = []
    deadline = time.monotonic() + START_SECONDS
    assert process.stdout
    for line in process.stdout:
        printed.append(line)
        if found := re.search(r"http://\S+", line):
            break
        assert time.monotonic() < deadline, printed
    else:
        pytest.fail("".join(printed))
    yield Server(process, port, found[0])
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def test_study_serves_the_home_page_on_this_machine_only_with_a_token(server: Server) -> None:
    assert re.fullmatch(
        rf"http://127\.0\.0\.1:{server.port}/lab/tree/home\.ipynb\?token=[0-9a-f]{{48}}", server.address
    )
    page = urllib.request.urlopen(server.address, timeout=30).read().decode()
    found = re.search(r'<script id="jupyter-config-data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found
    config = json.loads(found[1])
    assert config["treePath"] == "home.ipynb"
    assert config["news"] == {"disabled": True}
    assert "@jupyterlab/apputils-extension:announcements" in config["disabledExtensions"]
    assert config["extensionManager"]["can_install"] is False
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/api/contents", timeout=30)
    assert refused.value.code == 403
    with socket.socket() as other, pytest.raises(OSError):
        other.connect(("127.0.0.2", server.port))  # every other address of this machine is closed
    served = json.loads(server.get("/api/contents"))["content"]
    assert {"home.ipynb", "lessons", "AGENTS.md"} <= {entry["name"] for entry in served}  # work/ is all that is served
    command_line = Path(f"/proc/{server.process.pid}/cmdline").read_text()
    assert server.address.split("token=")[1] not in command_line


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_stops_the_server_and_its_kernels_without_a_traceback(
    server: Server, number: signal.Signals
) -> None:
    kernel = json.loads(server.get("/api/kernels", "POST"))["id"]
    channels = f"ws://127.0.0.1:{server.port}/api/kernels/{kernel}/channels?{server.address.split('?')[1]}"
    page = websocket.create_connection(channels, timeout=30)
    assert page.recv()  # the kernel speaks: it has started
    kernels = _children(server.process.pid)
    assert kernels
    server.process.send_signal(number)
    out, _ = server.process.communicate(timeout=20)
    assert server.process.returncode == 0
    assert out.splitlines()[-1] == "Stopped."
    assert "Traceback" not in out
    assert [pid for pid in kernels if Path(f"/proc/{pid}").exists()] == []
    assert study.is_free(server.port)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_busy_port_is_one_sentence_that_names_a_free_one(tmp_path: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        refused = _begin(_course(tmp_path / "course"), port)
        out, _ = refused.communicate(timeout=60)
        assert refused.returncode == 1
        found = re.fullmatch(
            rf"w2w: port {port} is in use, perhaps by another study of the course; try: \S*w2w study --port (\d+)\n",
            out,
        )
        assert found
        assert study.is_free(int(found[1]))
        assert not study.is_free(port)


def test_a_course_without_content_says_how_to_get_it_back(tmp_path: Path) -> None:
    folder = _course(tmp_path / "course")
    (folder / LESSON).unlink()
    refused = _begin(folder, _free_port())
    out, _ = refused.communicate(timeout=60)
    assert refused.returncode == 1
    assert out == "w2w: content holds no unit; restore it with: git checkout content\n"


def test_the_highest_port_offers_a_lower_one() -> None:
    assert study.next_free(65535) < 65535
