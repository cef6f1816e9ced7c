"""What every explorer draws with: a picture with its words, inline SVG in the colours of the theme, small tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from gpu_utils.chips import CHIPS, TARGETS

_STYLE = """<style>
.w2w-x { --ink: var(--jp-ui-font-color1, #1f2328); --paper: var(--jp-layout-color0, #fff); --line: #6e7781;
  --soft: #eef1f4; --nvidia: #2f7d32; --amd: #b3401f; --hue: #0b62c4; color: var(--ink); background: var(--paper);
  font: 14px/1.45 var(--jp-ui-font-family, sans-serif); white-space: normal; padding: 2px; }
[data-jp-theme-light="false"] .w2w-x { --line: #9aa4ae; --soft: #30363d; --nvidia: #7ecb82;
  --amd: #ff9b78; --hue: #79b8ff; }
.w2w-x .nvidia { --hue: var(--nvidia); } .w2w-x .amd { --hue: var(--amd); }
.w2w-x .sides { display: flex; flex-wrap: wrap; gap: 8px 20px; }
.w2w-x .side { flex: 1 1 400px; min-width: 0; }
.w2w-x .side:has(.wide) { flex-basis: 100%; }
.w2w-x .scroll { overflow-x: auto; contain: inline-size; }
.w2w-x svg { display: block; width: 100%; font-family: inherit; }
.w2w-x svg text { fill: var(--ink); } .w2w-x svg .line { stroke: var(--line); fill: none; }
.w2w-x svg .edge { stroke: var(--ink); stroke-width: 2; fill: none; }
.w2w-x svg .grid { stroke: var(--line); stroke-opacity: .35; fill: none; }
.w2w-x svg .hue { stroke: var(--hue); fill: none; stroke-width: 2; } .w2w-x svg .mark { fill: var(--hue); }
.w2w-x svg .ring { fill: var(--paper); stroke: var(--ink); stroke-dasharray: 2 2; }
.w2w-x svg .done { fill: var(--paper); stroke: var(--ink); stroke-width: 2; }
.w2w-x svg .empty { fill: none; stroke: var(--line); } .w2w-x svg .room { fill: var(--soft); stroke: var(--line); }
.w2w-x svg .even { fill: var(--hue); fill-opacity: .5; stroke: var(--hue); }
[data-jp-theme-light="false"] .w2w-x svg .even { fill-opacity: .4; }
.w2w-x svg .odd { fill: var(--hue); fill-opacity: .2; stroke: var(--hue); }
.w2w-x svg .now { fill: var(--hue); fill-opacity: .18; stroke: var(--ink); }
.w2w-x .spot:focus { outline: 2px solid var(--ink); } .w2w-x .tip { visibility: hidden; pointer-events: none; }
.w2w-x .spot:hover .tip, .w2w-x .spot:focus .tip { visibility: visible; }
.w2w-x svg .tip rect { fill: var(--paper); stroke: var(--ink); }
.w2w-x h4 { margin: 2px 0; font-size: 15px; } .w2w-x p { margin: 4px 0; }
.w2w-x .small { font-size: 12px; }
.w2w-x .unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.w2w-x .alert { border: 2px solid currentColor; padding: 4px 8px; font-weight: bold; }
.w2w-x table { border-collapse: collapse; color: inherit; font-size: 13px; margin: 4px 0; }
.w2w-x.w2w-x table th, .w2w-x.w2w-x table td { text-align: left; padding: 1px 10px 1px 0; vertical-align: top; }
.w2w-x th { font-weight: normal; opacity: .8; border-bottom: 1px solid var(--line); }
.w2w-x.w2w-x table th.num, .w2w-x.w2w-x table td.num { text-align: right; padding-left: 14px;
  font-variant-numeric: tabular-nums; }
.w2w-x tr.binds td { font-weight: bold; }
.w2w-x .answer { border-left: 4px solid var(--hue); padding: 2px 12px; }
.w2w-x .closer { border: 1px solid var(--line); padding: 2px 8px; }
.w2w-x pre { margin: 0; color: inherit; background: none; font-size: 12px; line-height: 1.2; }
.w2w-x code, .w2w-x pre, .w2w-x .mono { font-family: var(--jp-code-font-family, monospace); }
</style>"""


@dataclass(frozen=True, repr=False)
class Picture:
    """One state of an explorer.

    html   a drawing (role=img with a text alternative), and what belongs under it
    words  what there is to see, in plain sentences; they are in the HTML, too
    """

    html: str
    words: str

    def __repr__(self) -> str:
        return self.words

    def _repr_html_(self) -> str:
        return f"{_STYLE}{self.html}"


def status(words: str, unseen: bool = False) -> str:
    """A sentence that a screen reader says whenever it changes; unseen where a drawing or a table shows it all."""
    hidden = ' class="unseen"' if unseen else ""
    return f'<p role="status"{hidden}>{escape(words)}</p>'


def picture(vendor: str, words: str, *parts: str, after: str = "", spoken: bool = True) -> Picture:
    """Parts above the words. vendor: "nvidia", "amd" or "" chooses the colour; after: HTML under the words.

    spoken: whether the words are written out; without, they are only the drawing's alternative, as it shows them all.
    """
    under = status(words) if spoken else ""
    return Picture(
        f'<div class="w2w-x"><div class="{vendor or "both"}">{"".join(parts)}{under}{after}</div></div>', words
    )


def beside(*pictures: Picture) -> Picture:
    """Pictures side by side where there is room, else below each other."""
    sides = "".join(f'<div class="side">{one.html}</div>' for one in pictures)
    return Picture(
        f'<div class="w2w-x"><div class="sides">{sides}</div></div>', "\n".join(one.words for one in pictures)
    )


def alert(words: str) -> str:
    return f'<div class="w2w-x"><p class="alert" role="alert">{escape(words)}</p></div>'


def styled(html: str) -> str:
    """HTML with the style sheet that it needs, once."""
    return f"{_STYLE}{html}"


def heading(words: str) -> str:
    return f"<h4>{escape(words)}</h4>"


def small(words: str) -> str:
    return f'<p class="small">{escape(words)}</p>'


def svg(width: float, height: float, parts: Iterable[str], words: str, *, least: float = 0, role: str = "img") -> str:
    """A drawing in units of about one pixel. It shrinks with the page down to `least` pixels, then it scrolls.

    role: "group" for a drawing whose parts can be focused and have words of their own.
    """
    style = f"max-width:{width * 1.25:.0f}px;min-width:{least:.0f}px"
    kind = "scroll wide" if width > 600 else "scroll"
    return (
        f'<div class="{kind}"><svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="{role}" '
        f'aria-label="{escape(words)}" style="{style}">{"".join(parts)}</svg></div>'
    )


def text(x: float, y: float, words: object, *, size: float = 12, at: str = "start", bold: bool = False) -> str:
    """Words whose `at` ("start", "middle", "end") is at x, on the base line y."""
    style = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{at}"{style}>{escape(str(words))}</text>'


def box(x: float, y: float, width: float, height: float, kind: str = "empty") -> str:
    """A rectangle. kind: "empty", "room" (to be filled), "even" or "odd" (filled), "now" (chosen)."""
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}"/>'


def spot(x: float, y: float, mark: str, words: Sequence[str], edge: float) -> str:
    """A mark at (x, y) that shows lines of words when the pointer or the focus is on it, left of `edge`."""
    wide, high = 7.0 * max(map(len, words)) + 12, 16 * len(words) + 8
    left, top = min(x + 10, edge - wide), max(y - high - 8, 2)
    lines = "".join(text(left + 6, top + 16 + 16 * at, line) for at, line in enumerate(words))
    return (
        f'<g class="spot" tabindex="0" role="img" aria-label="{escape("; ".join(words))}">{mark}'
        f'<g class="tip">{box(left, top, wide, high)}{lines}</g></g>'
    )


def path(points: Sequence[tuple[float, float]], kind: str = "line", dashes: str = "") -> str:
    """A line through points. kind: "line" (grey), "edge" (ink), "grid" (faint) or "hue"."""
    along = " L ".join(f"{x:.1f} {y:.1f}" for x, y in points)
    style = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<path class="{kind}" d="M {along}"{style}/>'


def table(head: Sequence[str], rows: Iterable[Sequence[object]], marked: Sequence[int] = ()) -> str:
    """A table; the rows whose numbers are in `marked` are bold and start with an arrow."""
    body = []
    for number, row in enumerate(rows):
        cells = "".join(f"<td>{escape(str(cell))}</td>" for cell in row)
        sign = "▸" if number in marked else ""
        kind = "binds" if number in marked else "other"
        body.append(f'<tr class="{kind}"><td>{sign}</td>{cells}</tr>')
    names = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    head_row = f'<tr><th scope="col"></th>{names}</tr>'
    return f'<div class="scroll"><table><thead>{head_row}</thead><tbody>{"".join(body)}</tbody></table></div>'


def wave(vendor: str) -> str:
    """What the vendor calls a group of lanes that run together."""
    return "warp" if vendor == "nvidia" else "wavefront"


def count(number: int, what: str) -> str:
    """
    >>> count(1, "block"), count(3, "warp"), count(2, "pass")
    ('1 block', '3 warps', '2 passes')
    """
    plural = what if number == 1 else what + ("es" if what.endswith("s") else "s")
    return f"{number:,} {plural}"


def percent(share: float) -> str:
    """
    >>> percent(0.0213), percent(1 / 3), percent(1.0), percent(0.0)
    ('2.13%', '33.3%', '100%', '0%')
    """
    return f"{100 * share:.3g}%"


def targets_of(vendor: str) -> list[tuple[str, str]]:
    """(label, name) of a vendor's targets, each with the chips that it stands for."""
    chips = {name: [chip for chip in CHIPS if CHIPS[chip].target == name] for name in TARGETS}
    return [
        (f"{name} ({', '.join(chips[name])})" if chips[name] else name, name)
        for name, target in TARGETS.items()
        if target.vendor == vendor
    ]
