"""A timeline of host and GPU: a profile, or a modelled program whose launches and kernels change under a slider."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpu_utils.errors import BadArgument
from gpu_utils.profiling.modelled import Costs, Modelled
from gpu_utils.profiling.profile import Profile
from gpu_utils.ui.explore.drawing import Picture
from gpu_utils.ui.explore.widget import Explorer, choice, slider
from gpu_utils.ui.trace_figure import trace_figure

STEPS, KERNELS, BATCH = 3, 6, 2_000_000
"""Steps of a scenario, kernels of a step, bytes of the batch that a step reads."""

LAUNCH, KERNEL, ZOOM = (1, 20), (1, 60), (0, 6)
"""Limits of the sliders: µs, µs, doublings."""


def _launch_bound(host: Modelled, ns: int) -> None:
    """Many kernels, and nothing between them."""
    for _ in range(STEPS * KERNELS):
        host.launch("part", ns)
    host.sync()


def _sync(host: Modelled, ns: int) -> None:
    """Each step reads its loss on the host."""
    for _ in range(STEPS):
        for number in range(KERNELS):
            host.launch(f"layer {number}", ns)
        host.item()
        host.work(15_000, "log the loss")


def _copy(host: Modelled, ns: int) -> None:
    """Each step waits for its batch."""
    for _ in range(STEPS):
        host.copy(BATCH, blocking=True)
        for number in range(KERNELS):
            host.launch(f"layer {number}", ns)
    host.sync()


def _overlap(host: Modelled, ns: int) -> None:
    """The next batch comes on a stream of its own, while the kernels of this one run."""
    side = host.stream + 6
    host.copy(BATCH, stream=side)
    for step in range(STEPS):
        host.wait(host.record(side))
        for number in range(KERNELS):
            host.launch(f"layer {number}", ns)
        if step + 1 < STEPS:
            host.copy(BATCH, stream=side)
    host.sync()


SCENARIOS: dict[str, Callable[[Modelled, int], None]] = {
    "launch-bound": _launch_bound,
    "sync": _sync,
    "copy": _copy,
    "overlap": _overlap,
}


def draw(scenario: str | Profile, vendor: str, launch: int, kernel: int, zoom: int, position: int) -> Picture:
    """A part of a timeline.

    scenario  a name of SCENARIOS, or a profile; vendor, launch and kernel are of scenarios only
    launch    µs of the host for each call; kernel: µs of each kernel
    zoom      so many doublings; position: of the view's middle, in percent of the whole
    """
    profile = scenario if isinstance(scenario, Profile) else modelled(scenario, vendor, launch, kernel)
    times = [at for event in profile.events for at in (event.start, event.end) if at is not None]
    whole = max(times, default=0) - min(times, default=0)
    wide = whole / 2**zoom
    start = min(max(whole * position / 100 - wide / 2, 0), whole - wide)
    return trace_figure(profile, start=int(start), end=int(start + wide) + 1)


def modelled(scenario: str, vendor: str, launch: int, kernel: int) -> Profile:
    """The profile of a scenario; launch and kernel in µs."""
    host = Modelled(vendor, Costs(launch=1_000 * launch, least=1_000))
    SCENARIOS[scenario](host, 1_000 * kernel)
    return host.profile(scenario)


def explorer(
    what: str | Profile = "launch-bound",
    *,
    vendor: str = "nvidia",
    launch: int = 5,
    kernel: int = 2,
    zoom: int = 0,
    position: int = 50,
) -> Any:
    """A profile with zoom and position, or modelled programs with the cost of a launch and the length of a kernel.

    what  a profile, or "launch-bound", "sync", "copy" or "overlap"; vendor: "nvidia" or "amd", the names in the picture

    Errors: UnknownName for a scenario or vendor that is not in the list; BadArgument for a value beyond its slider.
    """
    limits = {
        "launch": (launch, LAUNCH),
        "kernel": (kernel, KERNEL),
        "zoom": (zoom, ZOOM),
        "position": (position, (0, 100)),
    }
    for name, (value, (low, high)) in limits.items():
        if not low <= value <= high:
            raise BadArgument(f"{name} is {value}; expected {low} to {high}")
    view = {"zoom": slider("zoom, doublings", zoom, *ZOOM), "position": slider("position, %", position, 0, 100, 5)}
    if isinstance(what, Profile):
        return Explorer(lambda zoom, position: draw(what, vendor, launch, kernel, zoom, position), view)
    controls = {
        "scenario": choice("program", list(SCENARIOS), what),
        "vendor": choice("names of", [("NVIDIA", "nvidia"), ("AMD", "amd")], vendor),
        "launch": slider("a launch, µs", launch, *LAUNCH),
        "kernel": slider("a kernel, µs", kernel, *KERNEL),
    }
    return Explorer(draw, controls | view)
