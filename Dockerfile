# The course in a container: for a class, for a hub, for a laptop without Linux.
#
#   docker build -t warp-to-wavefront .                                   PyTorch for the CPU
#   docker build -t warp-to-wavefront:cuda --build-arg W2W_TORCH=cuda .   for NVIDIA; run it with --gpus all
#   docker build -t warp-to-wavefront:rocm --build-arg W2W_TORCH=rocm .   for AMD; run it with --device /dev/kfd
#                                           --device /dev/dri --group-add video --group-add render
#   docker run --rm -it --network host -v warp-work:/opt/warp-to-wavefront/work warp-to-wavefront
#
# PyTorch's wheels bring CUDA's and ROCm's libraries, so that the base is the same for all three: of a machine with a GPU
# only the driver is used. To grade in a container, give it what bubblewrap needs: docs/classroom.md, "Containers".
# Without a container engine the same steps are: apt-get install bubblewrap git gcc libc6-dev; then, in a fresh clone,
# W2W_TORCH=cpu W2W_EXTRAS=hip ./w2w list. That takes some minutes, so the tests only look at these steps.

ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS system
# gcc and libc6-dev: on a real GPU Triton compiles the little C program that launches a kernel
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap git gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --uid 1000 learner && install -d -o learner -g learner /opt/warp-to-wavefront
USER learner

FROM system AS course
ARG W2W_TORCH=cpu
# hip,classroom adds nbgrader, whose menus students would then see
ARG W2W_EXTRAS=hip
# of JupyterHub, for an image that a hub starts; it must be the hub's own version
ARG JUPYTERHUB=
WORKDIR /opt/warp-to-wavefront
COPY --chown=learner:learner . .
RUN ./w2w list && rm -rf /home/learner/.cache
RUN if [ -n "${JUPYTERHUB}" ]; then .venv/bin/python -m pip install --no-cache-dir --constraint constraints.txt "jupyterhub==${JUPYTERHUB}"; fi
# one volume keeps what a learner wrote and what they have passed
RUN mkdir -p work/.data
ENV W2W_TORCH=${W2W_TORCH} W2W_EXTRAS=${W2W_EXTRAS} W2W_DATA=/opt/warp-to-wavefront/work/.data
CMD ["./w2w", "study", "--no-browser"]
