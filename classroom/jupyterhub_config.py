"""JupyterHub for a class: a container of the course for every student, made from this repository's Dockerfile.

    docker build -t warp-to-wavefront:hub --build-arg JUPYTERHUB=6.1.1 .
    docker network create warp-hub
    pip install jupyterhub==6.1.1 dockerspawner==14.0.0 jupyterhub-nativeauthenticator
    npm install --global configurable-http-proxy
    HUB_ADMIN=teacher jupyterhub -f classroom/jupyterhub_config.py

Students sign up at /hub/signup and wait until the admin lets them in at /hub/authorize. The settings are those of
https://github.com/jupyterhub/jupyterhub-deploy-docker and https://jupyterhub-dockerspawner.readthedocs.io.
"""

import os

IMAGE = "warp-to-wavefront:hub"
COURSE = "/opt/warp-to-wavefront"

c = get_config()  # noqa: F821

c.JupyterHub.spawner_class = "dockerspawner.DockerSpawner"
c.JupyterHub.hub_ip = "0.0.0.0"  # containers reach the hub through the network below
c.DockerSpawner.image = IMAGE
c.DockerSpawner.network_name = "warp-hub"
c.DockerSpawner.use_internal_ip = True
c.DockerSpawner.remove = True

# What a student wrote outlives the container. The copies of lessons and labs are made where they are missing.
c.DockerSpawner.volumes = {"warp-{username}": f"{COURSE}/work"}
c.DockerSpawner.notebook_dir = f"{COURSE}/work"
START = 'for unit in content/*/; do ./w2w start "$(basename "$unit")"; done; exec .venv/bin/jupyterhub-singleuser "$@"'
c.DockerSpawner.cmd = ["bash", "-c", f"cd {COURSE}; {START}", "hub"]

# Compiling a kernel takes a gigabyte, training the small GPT-2 two.
c.DockerSpawner.mem_limit = "4G"
c.DockerSpawner.cpu_limit = 2
c.DockerSpawner.extra_host_config = {"pids_limit": 1024}

c.JupyterHub.authenticator_class = "nativeauthenticator.NativeAuthenticator"
c.NativeAuthenticator.open_signup = False
c.Authenticator.allow_all = True  # of those whom the admin let in
c.Authenticator.admin_users = {os.environ["HUB_ADMIN"]}
