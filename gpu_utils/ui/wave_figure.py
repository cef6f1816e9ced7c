"""One warp or wavefront, stepped: each instruction with the lanes that are on and the registers that it changed."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Any

import numpy as np

from gpu_utils.chips.targets import TARGETS
from gpu_utils.errors import BadArgument
from gpu_utils.virtual.trace import Step, Trace

_ON, _OFF = "■", "·"
_GUARD = re.compile(r"@(!?)(%\w+)\s")
_MASKS = ("exec", "vcc")

_STYLE = """
#ID { display: flex; flex-wrap: wrap; gap: 12px; font: 12px/1.5 ui-monospace, monospace; }
#ID .w2w-steps { flex: 1 1 360px; min-width: 0; max-width: max-content; max-height: 420px; overflow: auto;
  scrollbar-gutter: stable; position: relative; border: 1px solid rgba(127, 127, 127, .5); }
#ID .w2w-row { white-space: pre; padding: 0 6px; width: max-content; min-width: 100%; box-sizing: border-box; }
#ID .w2w-row::before { content: "  "; }
#ID .w2w-row[aria-selected="true"] { background: rgba(127, 127, 127, .3); font-weight: bold; }
#ID .w2w-row[aria-selected="true"]::before { content: "▸ "; }
#ID .w2w-row:focus { outline: 2px solid currentColor; outline-offset: -2px; }
#ID .w2w-panels { flex: 1 1 660px; min-width: 0; min-height: 420px; overflow: auto; }
#ID .w2w-panels > div > * { margin: 0 0 8px; }
#ID pre { font: inherit; line-height: 1.2; }
#ID table { border-collapse: collapse; font-size: 11px; }
#ID td, #ID th { text-align: right; padding: 0 4px; border: 1px solid rgba(127, 127, 127, .3); min-width: 5ch;
  white-space: nowrap; }
#ID th { font-weight: normal; opacity: .75; }
#ID td.w2w-new { font-weight: bold; }
"""

_SCRIPT = """
(() => {
  const root = document.getElementById("ID");
  const rows = [...root.querySelectorAll(".w2w-row")], panels = [...root.querySelectorAll(".w2w-panels > div")];
  let now = START;
  const show = (to) => {
    if (to < 0 || to >= rows.length) return;
    rows[now].tabIndex = -1;
    rows[now].setAttribute("aria-selected", "false");
    panels[now].hidden = true;
    now = to;
    rows[now].tabIndex = 0;
    rows[now].setAttribute("aria-selected", "true");
    panels[now].hidden = false;
    const list = rows[now].parentElement, top = rows[now].offsetTop;
    if (top < list.scrollTop || top + rows[now].offsetHeight > list.scrollTop + list.clientHeight)
      list.scrollTop = top - list.clientHeight / 3;
  };
  root.addEventListener("click", (event) => {
    const row = event.target.closest(".w2w-row"), button = event.target.closest("button");
    if (row) { show(rows.indexOf(row)); row.focus({ preventScroll: true }); }
    if (button) show(now + Number(button.dataset.by));
  });
  root.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (!by || !event.target.closest(".w2w-row")) return;
    event.preventDefault();
    event.stopPropagation();
    show(now + by);
    rows[now].focus({ preventScroll: true });
  });
  show(now);
})();
"""


@dataclass(frozen=True, repr=False)
class WaveFigure:
    """A recorded trace of one warp or wavefront, to step through in a notebook; text elsewhere.

    trace   what `with gpu.trace(...) as trace` recorded on a virtual GPU; it needs at least one step
    target  the target that it ran on: "gfx942"; it decides the word for the lanes
    kernel  the @triton.jit function that ran, or the text of the C++, to show its lines; None for assembly text
    start   number of the step that is shown first, or words of its instruction: "v_cndmask"

    In a notebook the arrow keys and two buttons go from step to step; nothing is loaded. A panel shows the lanes that
    may write, the predicate of a guarded instruction, and every register that changed. A lane that takes no part has
    its value in parentheses, a value that is new is bold. 32-bit values are shown as float32 where all of them read as
    sensible numbers, else as signed integers, in hexadecimal from 2^24 on; wider ones in hexadecimal.
    """

    trace: Trace
    target: str
    kernel: Any = None
    start: int | str = 0

    @property
    def first(self) -> int:
        """Number of the step that is shown first. Raises BadArgument where no instruction has the words."""
        return self.start if isinstance(self.start, int) else self.number(self.start)

    def number(self, words: str) -> int:
        """Number of the first step whose instruction has these words. Raises BadArgument where there is none."""
        for number, step in enumerate(self.steps):
            if words in step.text:
                return number
        raise BadArgument(f"no instruction of this {self.title} has {words!r}; print the figure to read them")

    def mask(self, words: str) -> np.ndarray:
        """The mask, bool (lanes,), that the first instruction with these words writes: `figure.mask("v_cmp")`.

        Raises BadArgument where there is no such instruction, and where it writes no mask.
        """
        step = self.steps[self.number(words)]
        for name, bits in step.changed.items():
            written = as_mask(name, bits, len(step.active))
            if written is not None:
                return written
        raise BadArgument(f"`{step.text}` writes no mask of lanes; take a comparison")

    def floats(self, register: str, after: str, lanes: Sequence[int]) -> list[dict[str, float]]:
        """A float32 register of some lanes after each instruction with the words `after`: [{"lane 0": 2.0}, ...].

        Raises BadArgument where no instruction has the words.
        """
        first = self.number(after)
        numbers = [number for number in range(first, len(self.steps)) if after in self.steps[number].text]
        values = [self.trace.value(register, number).view(np.float32) for number in numbers]
        return [{f"lane {lane}": float(each[lane]) for lane in lanes} for each in values]

    @property
    def steps(self) -> list[Step]:
        return self.trace.steps

    @property
    def title(self) -> str:
        lanes = len(self.steps[0].active)
        wave = "wavefront" if TARGETS[self.target].vendor == "amd" else "warp"
        x, y, z = self.trace.program
        return (
            f"{self.target}: {wave} {self.trace.wave} of program ({x}, {y}, {z}), {lanes} lanes, "
            f"{len(self.steps)} instructions"
        )

    def __repr__(self) -> str:
        lines = [self.title]
        for number, step in enumerate(self.steps):
            changes = [f"{name} = {short(name, bits)}" for name, bits in step.changed.items()]
            lines.append(f"{number:>3} {_where(step)} {step.text} | {'; '.join([*self._lane_words(number), *changes])}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        name = f"w2w-wave-{secrets.token_hex(4)}"
        style, script = (part.replace("ID", name).replace("START", str(self.first)) for part in (_STYLE, _SCRIPT))
        rows = "".join(self._row(number, step) for number, step in enumerate(self.steps))
        panels = "".join(self._panel(number, step) for number, step in enumerate(self.steps))
        return (
            f'<style>{style}</style><div id="{name}" role="group" aria-label="{escape(self.title)}">'
            f'<div class="w2w-steps" role="listbox" aria-label="instructions in the order they ran">{rows}</div>'
            f'<div class="w2w-panels" aria-live="polite">{panels}</div></div><script>{script}</script>'
        )

    def _row(self, number: int, step: Step) -> str:
        chosen = 'aria-selected="true" tabindex="0"' if number == self.first else 'aria-selected="false" tabindex="-1"'
        return (
            f'<div class="w2w-row" role="option" {chosen}>{escape(f"{number:>3} {_where(step)}  {step.text}")}\n</div>'
        )

    def _panel(self, number: int, step: Step) -> str:
        parts = [
            f"<p><b>{escape(self.title)}</b></p>",
            f'<p><button data-by="-1">◂ previous</button> <button data-by="1">next ▸</button> step {number} of '
            f"{len(self.steps) - 1}, {escape(_where(step).strip())}{self._quoted(step)}</p>",
            f"<p><b>{escape(step.text)}</b></p>",
        ]
        taking_part = step.active
        for words, mask in self.lane_masks(number):
            parts.append(strip(words, mask))
            taking_part = taking_part & mask
        for name, bits in step.changed.items():
            if name == "exec":
                continue  # these are the lanes above
            written = as_mask(name, bits, len(step.active))
            if written is not None:
                parts.append(strip(f"{name} is now", written))
            elif bits.size == 1:
                parts.append(f"<p>{escape(name)} = {_words(bits)[0]}</p>")
            else:
                parts.append(_table(name, bits, self._before(name, number), taking_part))
        if not step.changed:
            parts.append("<p>No register changed.</p>")
        return f"<div{'' if number == self.first else ' hidden'}>{''.join(parts)}</div>"

    def _quoted(self, step: Step) -> str:
        """The step's source line, where that is a line of the kernel itself."""
        if self.kernel is None or step.line is None:
            return ""
        in_text = isinstance(self.kernel, str)
        lines = self.kernel.splitlines() if in_text else self.kernel.raw_src
        at = step.line[1] - (1 if in_text else self.kernel.starting_line_number)
        return f": <code>{escape(lines[at].strip())}</code>" if 0 <= at < len(lines) else ""

    def _before(self, name: str, number: int) -> np.ndarray:
        return self.trace.value(name, number - 1) if number else self.trace.first[name]

    def lane_masks(self, number: int) -> Iterator[tuple[str, np.ndarray]]:
        """(words, mask): the lanes that are on, and the predicate of a guarded instruction as it was before."""
        step = self.steps[number]
        yield ("EXEC" if TARGETS[self.target].vendor == "amd" else "lanes on"), step.active
        guard = _GUARD.match(step.text)
        if guard and TARGETS[self.target].vendor == "nvidia":
            predicate = self._before(guard[2], number).astype(bool)
            yield f"guard {guard[1]}{guard[2]}", ~predicate if guard[1] else predicate

    def _lane_words(self, number: int) -> list[str]:
        return [f"{words}: {lane_ranges(mask)}" for words, mask in self.lane_masks(number)]


def lane_ranges(mask: np.ndarray) -> str:
    """Which lanes of a mask (lanes,) are on, in words.

    >>> lane_ranges(np.arange(64) < 36), lane_ranges(np.zeros(32, bool))
    ('36 of 64 lanes (0-35)', '0 of 32 lanes')
    """
    numbered = groupby(enumerate(np.flatnonzero(mask).tolist()), key=lambda pair: pair[1] - pair[0])
    runs = [[lane for _, lane in run] for _, run in numbered]
    ranges = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"{int(mask.sum())} of {len(mask)} lanes" + (f" ({ranges})" if ranges else "")


def as_mask(name: str, bits: np.ndarray, lanes: int) -> np.ndarray | None:
    """A register that holds one bit a lane, as a bool array; None for others."""
    if name in _MASKS:
        return (int(bits[0]) >> np.arange(lanes, dtype=object) & 1).astype(bool)
    return bits if bits.dtype == bool and bits.size == lanes else None


def _words(bits: np.ndarray) -> list[str]:
    """The values of a register as text."""
    if bits.dtype != np.uint32:
        return [f"{int(value):#x}" if bits.dtype == np.uint64 else str(int(value)) for value in bits]
    if bits.size == 1:
        return [f"{int(bits[0])} ({int(bits[0]):#x})"]
    with np.errstate(all="ignore"):
        values = bits.view(np.float32)
        size = np.abs(values[bits != 0])
        sensible = size.size and bool(((size > 1e-9) & (size < 1e9)).all())
    if sensible:
        return [f"{value:g}" for value in values]
    return [
        str(value) if abs(value) < 1 << 24 else f"{value & 0xFFFFFFFF:#x}" for value in bits.view(np.int32).tolist()
    ]


def short(name: str, bits: np.ndarray) -> str:
    """A register in a few words: its mask, its value, or its first and last values."""
    if name in _MASKS:
        return f"{int(bits[0]):#x}"
    if bits.dtype == bool and bits.size > 1:
        return lane_ranges(bits)
    words = _words(bits)
    return words[0] if len(words) == 1 else f"{words[0]}, {words[1]}, ..., {words[-1]}"


def _where(step: Step) -> str:
    return f"line {step.line[1]:<3}" if step.line else "no line "


def strip(words: str, mask: np.ndarray) -> str:
    """32 lanes to a row, in groups of eight; a filled square is a lane that is on."""
    marks = "".join(_ON if on else _OFF for on in mask.tolist())
    rows = [f"{at:>4} {' '.join(marks[i : i + 8] for i in range(at, at + 32, 8))}" for at in range(0, len(marks), 32)]
    said = escape(f"{words}: {lane_ranges(mask)}")
    return f'<p>{said}</p><pre role="img" aria-label="{said}">{chr(10).join(rows)}</pre>'


def _table(name: str, bits: np.ndarray, before: np.ndarray, taking_part: np.ndarray) -> str:
    """The values of all lanes, eight to a row."""
    words = [word if on else f"({word})" for word, on in zip(_words(bits), taking_part.tolist(), strict=True)]
    cells = [
        f'<td class="{"w2w-new" if new else ""}">{word}</td>'
        for word, new in zip(words, (bits != before).tolist(), strict=True)
    ]
    head = "".join(f'<th scope="col">+{column}</th>' for column in range(8))
    body = "".join(
        f'<tr><th scope="row">lane {at}</th>{"".join(cells[at : at + 8])}</tr>' for at in range(0, len(cells), 8)
    )
    return f"<p>{escape(name)} is now</p><table><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>"
