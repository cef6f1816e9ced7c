"""The command study: JupyterLab on this machine only, opened at the learner's home page."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
from pathlib import Path
from typing import Annotated

import typer

HOST = "127.0.0.1"

# News, update checks and the extension manager would reach for the internet; what the page itself must leave out is in
# labconfig/page_config.json of this folder. The extension there runs the home page when it comes to the front.
PAGE_SETTINGS = Path(__file__).with_name("jupyter")
EXTENSIONS = PAGE_SETTINGS / "labextensions"
SETTINGS = (
    "--ServerApp.log_level=ERROR",
    "--LabApp.log_level=ERROR",
    "--ServerApp.port_retries=0",
    "--LabApp.news_url=None",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    "--LabApp.extension_manager=readonly",
    "--LanguageServerManager.autodetect=False",
    "--KernelManager.transport_encryption=auto",  # other users of this machine share 127.0.0.1
)


def study(
    port: Annotated[int, typer.Option(min=1024, max=65535, help="The port on 127.0.0.1.")] = 8888,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address, open no browser.")] = False,
) -> None:
    """Open the course in JupyterLab at your home page; Ctrl-C stops it.

    Your own copies of lessons and labs are made below work/ first, where they are missing; what you changed there is
    never overwritten. On a remote machine: start it there with --no-browser, then forward the port from your own
    machine with ssh -L 8888:127.0.0.1:8888 HOST.

    Example: ./w2w study --no-browser --port 8890
    """
    from gpu_utils.command import w2w
    from gpu_utils.course.paths import course
    from gpu_utils.errors import W2WError
    from gpu_utils.ui.home import prepare

    here = course()
    if not is_free(port):
        other = w2w(f"study --port {next_free(port)}")
        raise W2WError(f"port {port} is in use, perhaps by another study of the course; try: {other}")
    if not here.written():
        raise W2WError(f"{here.relative(here.content)} holds no unit; restore it with: git checkout content")
    for note in prepare(here).notes:
        typer.echo(note)
    serve(here.work, port, open_browser=not no_browser)


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of 127.0.0.1 now."""
    with socket.socket() as probe:
        # As the server does: a port whose last connections are still closing is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def next_free(port: int) -> int:
    """The first free port above `port`, or below it when there is none above."""
    return next(other for other in [*range(port + 1, 65536), *range(port - 1, 1023, -1)] if is_free(other))


def serve(folder: Path, port: int, *, open_browser: bool) -> None:
    """Run JupyterLab in this process until Ctrl-C or SIGTERM; the token never shows in a list of processes."""
    from jupyterlab.labapp import LabApp

    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(
        filter(None, [str(PAGE_SETTINGS), os.environ.get("JUPYTER_CONFIG_PATH")])
    )
    token = secrets.token_hex(24)
    page = "/lab/tree/home.ipynb"
    arguments = [
        *SETTINGS,
        f"--ServerApp.ip={HOST}",
        f"--ServerApp.port={port}",
        f"--ServerApp.root_dir={folder}",
        f"--ServerApp.open_browser={open_browser}",
        f"--LabApp.default_url={page}",
        f"--LabApp.extra_labextensions_path={EXTENSIONS}",
        f"--IdentityProvider.token={token}",
    ]
    if os.geteuid() == 0:
        typer.echo("Note: you are root, so every notebook cell runs as root; an ordinary user is safer.")
        arguments.append("--ServerApp.allow_root=True")
    logging.getLogger("LabApp").setLevel(logging.ERROR)  # it speaks before its own setting is read
    server = LabApp.initialize_server(argv=arguments)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Jupyter's own Ctrl-C asks for a second one on a terminal, and leaves the kernels elsewhere.
        signal.signal(number, lambda *_: server.stop(from_signal=True))
    address = f"http://{HOST}:{port}{page}?token={token}"
    server.io_loop.add_callback(server.contents_manager.trust_notebook, "home.ipynb")  # its output is our own
    server.io_loop.add_callback(typer.echo, f"The course is open at\n\n    {address}\n\nCtrl-C stops it.")
    server.start()
    typer.echo("Stopped.")
