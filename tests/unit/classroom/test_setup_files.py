"""The set-up files for a class: containers, a hub, Slurm, Kubernetes. They name what exists; nothing is built."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from distributed.cli.dask_scheduler import main as dask_scheduler
from distributed.cli.dask_worker import main as dask_worker
from traitlets.config import Config

from gpu_utils.cli import bootstrap
from gpu_utils.cli.app import COMMANDS
from tests import ROOT

CLASSROOM = ROOT / "classroom"
DASK = {
    name: {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for name, command in (("scheduler", dask_scheduler), ("worker", dask_worker))
}
"""Command of dask -> the options that it knows."""


def dockerfile() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with what follows them; continued lines are one."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1].strip()) for line in text.splitlines() if line.strip()]


def given(instruction: str) -> list[str]:
    return [rest for name, rest in dockerfile() if name == instruction]


# the container


def test_the_dockerfile_has_the_instructions_of_its_format_and_nothing_is_fetched_around_the_lock():
    assert {name for name, _ in dockerfile()} <= {"ARG", "FROM", "RUN", "USER", "WORKDIR", "COPY", "ENV", "CMD"}
    assert not [step for step in given("RUN") if re.search(r"\b(curl|wget)\b|pip install(?!.*--constraint)", step)]


def test_every_build_argument_is_used_and_the_default_ones_are_what_the_set_up_takes():
    arguments = dict(rest.split("=", 1) for rest in given("ARG"))
    assert arguments.keys() == {"BASE", "W2W_TORCH", "W2W_EXTRAS", "JUPYTERHUB"}
    text = (ROOT / "Dockerfile").read_text()
    assert all(f"${{{name}}}" in text for name in arguments)
    assert bootstrap.chosen_extras(arguments, ROOT) == "hip"
    assert bootstrap.torch_flavour(arguments, ROOT) == "cpu"


@pytest.mark.parametrize("torch", ["cpu", "cuda", "rocm"])
def test_the_set_up_inside_of_the_image_has_its_steps_for_each_build(torch):
    build = bootstrap.FLAVOURS[bootstrap.torch_flavour({"W2W_TORCH": torch}, ROOT)]
    steps = bootstrap.plan(ROOT, build, "classroom,hip")
    assert any("nbgrader" in step.command for step in steps)
    assert f"W2W_TORCH={torch}" in (ROOT / "Dockerfile").read_text()


def test_the_image_has_the_sandbox_and_what_the_set_up_needs_and_the_user_is_none_of_root():
    (installs,) = [step for step in given("RUN") if "apt-get install" in step]
    packages = set(installs.split("install", 1)[1].split("&&")[0].split()) - {"--yes", "--no-install-recommends"}
    assert packages == {"bubblewrap", "git", "gcc", "libc6-dev"}
    user = given("USER")[-1]
    assert any(f"useradd --create-home --uid 1000 {user}" in step for step in given("RUN"))
    assert given("COPY") == [f"--chown={user}:{user} . ."]


def test_the_commands_of_the_image_exist():
    called = [
        command for step in [*given("RUN"), *given("CMD")] for command in re.findall(r"\./w2w[\", ]+([a-z]+)", step)
    ]
    assert called == ["list", "study"]
    assert set(called) <= set(COMMANDS)


def test_the_image_leaves_out_what_git_ignores():
    left_out = (ROOT / ".dockerignore").read_text().split()
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().split()}
    for name in ignored - {".venv.lock"}:
        assert any(Path(name).match(pattern.removeprefix("**/")) for pattern in left_out), name


def test_the_development_container_uses_a_stage_and_a_user_of_the_dockerfile():
    found = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    build = found["build"]
    assert (ROOT / ".devcontainer" / build["dockerfile"]).resolve() == ROOT / "Dockerfile"
    assert (ROOT / ".devcontainer" / build["context"]).resolve() == ROOT
    assert build["target"] in [rest.split(" AS ")[1] for rest in given("FROM")]
    assert found["remoteUser"] in given("USER")
    assert found["postCreateCommand"].split() == ["./w2w", "list"]
    assert found["containerEnv"]["W2W_TORCH"] in bootstrap.FLAVOURS


# the hub


def hub() -> Config:
    """What the hub's settings set; they are run as JupyterHub runs them."""
    found = Config()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HUB_ADMIN", "teacher")
        exec((CLASSROOM / "jupyterhub_config.py").read_text(), {"get_config": lambda: found})
    return found


def test_the_hub_starts_the_image_in_the_folders_that_the_dockerfile_makes():
    spawner = hub().DockerSpawner
    (folder,) = given("WORKDIR")
    assert spawner.notebook_dir == f"{folder}/work"
    assert list(spawner.volumes.values()) == [f"{folder}/work"]
    data = re.search(r"W2W_DATA=(\S+)", " ".join(given("ENV")))
    assert data
    assert data[1].startswith(f"{folder}/work/")  # what a student passed is kept with what they wrote
    assert spawner.image in (CLASSROOM / "jupyterhub_config.py").read_text().split('"""')[1]


def test_a_student_s_server_makes_the_copies_and_then_becomes_the_hub_s(tmp_path):
    """The command of the hub, run with programs that only say how they were called."""
    shell, option, line, name = hub().DockerSpawner.cmd
    assert line.startswith(f"cd {given('WORKDIR')[0]}; ")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for unit in ("00_start", "01_gpt2_baseline"):
        (tmp_path / "content" / unit).mkdir(parents=True)
    for program in ("w2w", ".venv/bin/jupyterhub-singleuser"):
        _say(tmp_path / program)
    line = line.partition("; ")[2]
    done = subprocess.run(
        [shell, option, line, name, "--port=1"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "w2w start 00_start",
        "w2w start 01_gpt2_baseline",
        "jupyterhub-singleuser --port=1",
    ]


def test_the_hub_lets_in_whom_the_teacher_lets_in():
    found = hub()
    assert found.Authenticator.admin_users == {"teacher"}
    assert found.NativeAuthenticator.open_signup is False
    assert found.DockerSpawner.remove is True


# Slurm


def _say(program: Path, text: str = '"$(basename "$0")" "$@"') -> None:
    """A program that prints a text, or its name and how it was called."""
    program.write_text(f"#!/bin/sh\necho {text}\n")
    program.chmod(0o755)


def test_the_batch_job_starts_a_scheduler_workers_and_the_grader_at_one_address(tmp_path):
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for program in ("srun", ".venv/bin/dask"):
        _say(tmp_path / program)
        with (tmp_path / program).open("a") as script:
            script.write(f"touch {tmp_path}/$(basename $0).ran\n")
    _say(tmp_path / ".venv/bin/w2w")
    with (tmp_path / ".venv/bin/w2w").open("a") as script:  # the job ends with it, and stops the scheduler then
        script.write("until [ -e dask.ran ] && [ -e srun.ran ]; do sleep 0.02; done\n")
    _say(tmp_path / "hostname", "10.0.0.7 10.1.0.7")
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_CPUS_PER_TASK": "8"}
    command = ["bash", str(CLASSROOM / "grade.sbatch"), "handed in", "gradebook"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=20)
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert lines["w2w"] == "w2w grade handed in --out gradebook --scheduler tcp://10.0.0.7:8786"
    _check_dask(lines["dask"], "scheduler")
    _check_dask(lines["srun"].partition(".venv/bin/")[2], "worker")
    assert "tcp://10.0.0.7:8786" in lines["dask"]
    assert "tcp://10.0.0.7:8786" in lines["srun"]


def test_the_batch_job_asks_slurm_for_what_it_uses():
    text = (CLASSROOM / "grade.sbatch").read_text()
    asked = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", text, flags=re.MULTILINE))
    assert asked.keys() == {"job-name", "nodes", "ntasks-per-node", "cpus-per-task", "mem", "time"}
    assert len(asked) == text.count("#SBATCH")


def _check_dask(line: str, command: str) -> None:
    program, called, *arguments = shlex.split(line)
    assert (program, called) == ("dask", command)
    assert {word for word in arguments if word.startswith("--")} <= DASK[command]


def test_the_settings_for_dask_jobqueue_have_its_keys():
    known = {
        *("name", "cores", "memory", "processes", "python", "interface", "death-timeout", "local-directory"),
        *("shared-temp-directory", "worker-command", "worker-extra-args", "shebang", "queue", "account", "walltime"),
        *("env-extra", "job-script-prologue", "job-script-epilogue", "job-cpu", "job-mem", "job-extra-directives"),
        *("job-directives-skip", "log-directory", "scheduler-options"),
    }  # of dask-jobqueue 0.9.0, jobqueue.yaml
    text = (CLASSROOM / "jobqueue.yaml").read_text()
    for variant in (text, re.sub(r"# (job-extra-directives|worker-extra-args)", r"\1", text)):
        slurm = yaml.safe_load(variant)["jobqueue"]["slurm"]
        assert slurm.keys() <= known
        assert slurm["processes"] == slurm["cores"]
    assert set(slurm["worker-extra-args"][::2]) <= DASK["worker"]


# Kubernetes


def kubernetes() -> dict[str, Any]:
    return yaml.safe_load((CLASSROOM / "kubernetes.yaml").read_text())


def test_the_cluster_has_what_the_operator_s_format_requires():
    found = kubernetes()
    assert (found["apiVersion"], found["kind"]) == ("kubernetes.dask.org/v1", "DaskCluster")
    assert found["spec"].keys() == {"worker", "scheduler"}
    assert found["spec"]["worker"].keys() == {"replicas", "spec"}
    assert found["spec"]["scheduler"].keys() == {"spec", "service"}
    selector = found["spec"]["scheduler"]["service"]["selector"]
    assert selector == {"dask.org/cluster-name": found["metadata"]["name"], "dask.org/component": "scheduler"}
    assert f"service/{found['metadata']['name']}-scheduler" in (CLASSROOM / "kubernetes.yaml").read_text()


@pytest.mark.parametrize("part", ["worker", "scheduler"])
def test_a_pod_runs_a_command_that_exists_as_an_ordinary_user_who_knows_no_cluster(part):
    spec = kubernetes()["spec"][part]["spec"]
    (container,) = spec["containers"]
    assert container["name"] == part
    program, *rest = container["args"]
    assert program == ".venv/bin/dask"
    _check_dask(shlex.join(["dask", *rest]), part)
    assert container["securityContext"]["runAsUser"] == 1000
    assert spec["automountServiceAccountToken"] is False


def test_the_service_leads_to_the_ports_of_the_scheduler():
    scheduler = kubernetes()["spec"]["scheduler"]
    (container,) = scheduler["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {port["targetPort"]: port["port"] for port in scheduler["service"]["ports"]} == ports
    assert container["readinessProbe"]["httpGet"]["port"] in ports


# all of them


def test_the_grader_s_options_that_these_files_name_are_those_of_the_command():
    named = {
        word
        for path in sorted(CLASSROOM.iterdir())
        for line in path.read_text().splitlines()
        if "w2w grade" in line
        for word in re.findall(r"--[a-z-]+", line.partition("w2w grade")[2])
    }
    assert named == {"--out", "--scheduler"}
