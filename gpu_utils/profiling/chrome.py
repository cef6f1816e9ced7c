"""A Chrome trace as head and events, also where its JSON is damaged: what is whole is read, what is not is counted."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import takewhile
from typing import Any

from gpu_utils.errors import ProfileUnreadable
from gpu_utils.profiling.files import Opened

_EVENTS = re.compile(r'"traceEvents"\s*:\s*\[')
_PROPERTIES = re.compile(r'"(?:deviceProperties|computeProperties)"\s*:\s*')
_NEXT = re.compile(r"\}\s*,\s*(?=\{)")
_SPACE = re.compile(r"[\s,]*")
_NO_NUMBER = re.compile(r"(:\s*)(?:N/A|-?nan|-?inf)(?=\s*[,}\]])")
_NO_VALUE = re.compile(r":\s*(?:N/A|NaN|-?Infinity|-?nan|-?inf)(?=\s*[,}\]])")
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NAME = re.compile(r'"name"\s*:\s*"([^"]*)"')
_NOT_A_NUMBER = "figures that are no number (N/A, NaN or Infinity)"


@dataclass
class Chrome:
    """head: what stands beside the events; events: dicts, as they are written. Fractions are Decimal, because a time of
    16 digits is no float."""

    head: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)


def parsed(found: Opened) -> Chrome:
    """The trace; what was odd is added to `found.remarks`. Raises ProfileUnreadable where no event can be read."""
    text = found.text
    if not text.lstrip().startswith(("{", "[")):
        raise ProfileUnreadable(found.path, "is no Chrome trace: it does not begin with { or [; give trace.json itself")
    for mend in (lambda: text, lambda: _mended(text, found)):
        try:
            return _shaped(_decoder(text, found).decode(mend()), found)
        except (ValueError, RecursionError):
            continue
    return _piecewise(_mended(text, found), found)


def clean(name: str) -> str:
    """A name without control characters."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", name)


def _decoder(text: str, found: Opened) -> json.JSONDecoder:
    return json.JSONDecoder(strict=False, parse_float=Decimal, parse_constant=lambda word: _missing(text, found))


def _missing(text: str, found: Opened) -> None:
    """Say once where the first figure stands that is no number."""
    no_value = None if any(remark.startswith(_NOT_A_NUMBER) for remark in found.remarks) else _NO_VALUE.search(text)
    if no_value:
        line = text.count("\n", 0, no_value.start()) + 1
        found.remarks.append(f"{_NOT_A_NUMBER}, first in line {line:,}, are missing")


def _mended(text: str, found: Opened) -> str:
    """Bare N/A as null, and backslashes of Windows' paths doubled."""
    mended = _NO_NUMBER.sub(r"\1null", text)
    if mended != text:
        _missing(text, found)
    text = mended
    bare = next((match for match in _ESCAPE.finditer(text) if len(match.group()) == 1), None)
    if bare is None:
        return text
    names = [name.group(1) for name in takewhile(lambda name: name.start() < bare.start(), _NAME.finditer(text))]
    said = (
        f"backslashes that JSON does not allow, first at byte {len(text[: bare.start()].encode()):,} in event "
        f"{names[-1] if names else '?'!r}, were read as they stand: paths of Windows; record without with_stack"
    )
    if said not in found.remarks:
        found.remarks.append(said)
    return _ESCAPE.sub(lambda match: match.group() if len(match.group()) > 1 else r"\\", text)


def _shaped(value: Any, found: Opened) -> Chrome:
    """Object or bare list; events one level deeper than they should be."""
    if isinstance(value, list):
        found.remarks.append("a bare list of events: it says nothing of the GPU")
        return Chrome({}, _dicts(value, found))
    events = value.get("traceEvents")
    if "rocprofiler-sdk-tool" in value:
        raise ProfileUnreadable(found.path, "is JSON of rocprofv3, no Chrome trace; read it with: w2w profile FILE")
    inner = events if isinstance(events, dict) else None
    if isinstance(events, list) and any(isinstance(event, dict) and "traceEvents" in event for event in events):
        inner = {"traceEvents": [one for event in events for one in _inside(event)]}
    if inner is not None:
        found.remarks.append(
            "traceEvents stands inside traceEvents: something wrapped the trace again; the inner one was read"
        )
        value = {**value, **inner}
        events = inner.get("traceEvents")
    if not isinstance(events, list):
        raise ProfileUnreadable(found.path, "is JSON without traceEvents; export with prof.export_chrome_trace(...)")
    return Chrome({key: part for key, part in value.items() if key != "traceEvents"}, _dicts(events, found))


def _inside(event: Any) -> list[Any]:
    inner = event.get("traceEvents") if isinstance(event, dict) else None
    return inner if isinstance(inner, list) else [event]


def _dicts(events: list[Any], found: Opened) -> list[dict[str, Any]]:
    whole = [event for event in events if isinstance(event, dict)]
    if len(whole) < len(events):
        found.remarks.append(f"{len(events) - len(whole):,} entries are no events and were left out")
    return whole


def _piecewise(text: str, found: Opened) -> Chrome:
    """Event by event; a damaged one is left out, and what comes after it is read."""
    first = _EVENTS.search(text)
    bare = first is None and text.lstrip().startswith("[")
    if first is None and not bare:
        raise ProfileUnreadable(found.path, "ends or is damaged before its first event; profile again, and let it end")
    at = text.index("[") + 1 if first is None else first.end()
    decoder, events, damaged, whole = _decoder(text, found), [], [], False
    while True:
        space = _SPACE.match(text, at)
        at = space.end() if space else at
        if at >= len(text) or text[at] == "]":
            whole = at < len(text)
            break
        try:
            event, at = decoder.raw_decode(text, at)
            events.append(event)
        except (ValueError, RecursionError):
            following = _NEXT.search(text, at)
            if following is None:
                break
            damaged.append(at)
            at = following.end()
    if damaged:
        byte = len(text[: damaged[0]].encode())
        found.remarks.append(f"{len(damaged):,} damaged events were left out, the first at byte {byte:,}")
    if not whole:
        missing = "the list has no end" if bare and at >= len(text) else "the file is cut short"
        found.remarks.append(f"{missing}: its {len(events):,} whole events were read, later ones are missing")
    return Chrome({} if first is None else _head(text[: first.start()], found), _dicts(events, found))


def _head(text: str, found: Opened) -> dict[str, Any]:
    """What stands before the events of a damaged file; of a damaged head, the GPUs."""
    try:
        return _decoder(text, found).decode(text.rstrip().rstrip(",") + "}")
    except (ValueError, RecursionError):
        gpus = _PROPERTIES.search(text)
    try:
        return {"deviceProperties": _decoder(text, found).raw_decode(text, gpus.end())[0]} if gpus else {}
    except (ValueError, RecursionError):
        return {}
