"""A profile as one HTML file: no network, no other file; timeline, kernels, roofline, what limits what, and sources."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jinja2

from gpu_utils.profiling import bars, words
from gpu_utils.profiling.busy import SERIAL, Busy, busy
from gpu_utils.profiling.counted import counted
from gpu_utils.profiling.limits import KernelLimits, Limits, Missing, limits
from gpu_utils.profiling.needs import THRESHOLDS
from gpu_utils.profiling.profile import LEFT_OUT, Device, Profile
from gpu_utils.profiling.roof_drawing import Spot, drawing

GAPS = 20
"""Longest gaps of a device that the page lists."""

DETAILED = 30
"""Kernels with a section of their own, by their time, if there is something to say; the table has all."""


def report(profile: Profile, chip: str | None = None) -> str:
    """The page. chip: name of a row of CHIPS, for the peaks; without one it is told from the profile.

    Errors: UnknownName for a chip that is not in the registry.
    """
    found = busy(profile)
    return page(profile, found, limits(profile, chip, found))


def page(profile: Profile, found: Busy, judged: Limits) -> str:
    """The same for whoever has judged the profile already."""
    line = bars.timeline(profile, [kernel.name for kernel in judged.kernels])
    gaps = _gaps(found, line.start) if line else []
    spots = _spots(judged)
    return (
        _environment()
        .get_template("report.html")
        .render(
            profile=profile,
            names=list(dict.fromkeys(Path(one.path).name for one in profile.origins if one.form != LEFT_OUT)),
            devices=list(dict.fromkeys(_said(name, device) for name, device in profile.devices.items())),
            found=found,
            serial=SERIAL,
            judged=judged,
            line=line,
            gaps=gaps,
            data=_script_safe({**line.data, "gaps": gaps}) if line else "",
            spots=spots,
            roof=drawing(judged.roofs, spots) if spots else "",
            common=_common(judged),
            told=[
                (number, kernel) for number, kernel in enumerate(judged.kernels, 1) if kernel.findings or kernel.points
            ][:DETAILED],
            most_gaps=GAPS,
            thresholds=THRESHOLDS,
        )
    )


def _said(name: str, device: Device) -> str:
    """A device in words: NVIDIA A100-SXM4-80GB (sm_80), 108 SMs."""
    target = f" ({device.target})" if device.target else ""
    unit = "CU" if device.vendor == "amd" else "SM"
    units = f", {device.units} {unit}{'s' if device.units != 1 else ''}" if device.units else ""
    return f"{device.name or name}{target}{units}"


def _gaps(found: Busy, start: int) -> list[dict[str, Any]]:
    """The longest of each device, in order of time: start and length in ns from the timeline's start, and words."""
    listed = []
    for device in found.devices:
        if device.serial:
            continue
        longest = sorted(device.gaps, key=lambda gap: -gap.ns)[:GAPS]
        for gap in sorted(longest, key=lambda gap: gap.start):
            where = f"{gap.cause}; after {gap.after}, before {gap.before}"
            evidence = gap.words.removeprefix(gap.cause).removeprefix(": ")
            at = {"start": gap.start - start, "ns": gap.ns, "words": where, "host": evidence, "device": device.device}
            listed.append(at)
    return listed


def _spots(judged: Limits) -> list[Spot]:
    """Kernels on the roof that they come nearest to."""
    spots = []
    for number, kernel in enumerate(judged.kernels, 1):
        placed = [Spot(number, name, point, judged.roofs[name]) for name, point in _known(kernel, judged)]
        if placed:
            spots.append(max(placed, key=lambda spot: spot.achieved))
    return spots


def _known(kernel: KernelLimits, judged: Limits) -> list[tuple[str, Any]]:
    return [(name, point) for name, point in kernel.points.items() if name in judged.roofs and point.flops > 0]


def _common(judged: Limits) -> list[Missing]:
    """What is missing for all kernels; the page says it once."""
    return (
        [one for one in judged.kernels[0].missing if all(one in each.missing for each in judged.kernels)]
        if judged.kernels
        else []
    )


def _script_safe(data: dict[str, Any]) -> str:
    """JSON that may stand inside of a script element: no <, no >, no & and no line separators of JavaScript."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gpu_utils.profiling"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(time=words.time, share=words.share, rate=words.rate, gpu=words.gpu, counted=counted)
    return environment
