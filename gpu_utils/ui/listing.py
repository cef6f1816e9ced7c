"""The listing as HTML: a source line and its instructions on every target light up together."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from gpu_utils.compiler.assembly import Instruction
from gpu_utils.compiler.listing import Column, Listing
from gpu_utils.compiler.listing import listing as compile_listing

_STYLE = """
#ID { display: flex; flex-wrap: wrap; gap: 8px; font: 12px/1.5 ui-monospace, monospace; color: inherit; }
#ID .pane { flex: 1 1 auto; min-width: min(320px, 100%); max-width: 100%; box-sizing: border-box;
  border: 1px solid rgba(127, 127, 127, .5); }
#ID .title { padding: 2px 6px; font-weight: bold; border-bottom: 1px solid rgba(127, 127, 127, .5); }
#ID .lines { max-height: 480px; overflow: auto; scrollbar-gutter: stable; position: relative; }
#ID .w2w-row { white-space: pre; padding: 0 6px; width: max-content; min-width: 100%; box-sizing: border-box; }
#ID .w2w-row:focus { outline: 2px solid currentColor; outline-offset: -2px; }
#ID .number { display: inline-block; width: 5ch; text-align: right; opacity: .75; user-select: none; }
#ID .mark { display: inline-block; width: 2ch; text-align: center; user-select: none; visibility: hidden; }
#ID .on { background: rgba(127, 127, 127, .3); font-weight: bold; }
#ID .on .mark { visibility: visible; }
"""

_SCRIPT = """
(() => {
  const root = document.getElementById("ID");
  const light = (row) => {
    const line = row.dataset.line;
    root.querySelectorAll(".on").forEach((old) => {
      old.classList.remove("on");
      old.setAttribute("aria-selected", "false");
    });
    if (!line) return;
    root.querySelectorAll(`[data-line="${line}"]`).forEach((same) => {
      same.classList.add("on");
      same.setAttribute("aria-selected", "true");
    });
    root.querySelectorAll(".lines").forEach((pane) => {
      const first = pane.querySelector(".on");
      if (!first || pane.contains(row)) return;
      if (first.offsetTop < pane.scrollTop || first.offsetTop + first.offsetHeight > pane.scrollTop + pane.clientHeight)
        pane.scrollTop = first.offsetTop - pane.clientHeight / 3;
    });
  };
  root.addEventListener("mouseover", (event) => {
    const row = event.target.closest(".w2w-row");
    if (row) light(row);
  });
  root.addEventListener("focusin", (event) => {
    const row = event.target.closest(".w2w-row");
    if (row) light(row);
  });
  root.addEventListener("keydown", (event) => {
    const row = event.target.closest(".w2w-row");
    const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    if (!row || !step || !row[step]) return;
    event.preventDefault();
    event.stopPropagation();
    row.tabIndex = -1;
    row[step].tabIndex = 0;
    row[step].focus();
  });
})();
"""


def listing_html(listing: Listing) -> str:
    """The listing as one HTML element with its own style and script; it loads nothing.

    Each instruction shows the number of its source line, so the match can be read without colour, hover or script.
    Tab moves between the panes, the arrow keys move inside one.
    """
    name = f"w2w-listing-{secrets.token_hex(4)}"
    panes = [_pane(listing.name, listing.source, "source")]
    panes += [_target_pane(column) for column in listing.columns]
    style, script = (part.replace("ID", name) for part in (_STYLE, _SCRIPT))
    return f'<style>{style}</style><div id="{name}">{"".join(panes)}</div><script>{script}</script>'


def _target_pane(column: Column) -> str:
    rows = [(found.source, found.text, _explained(found)) for found in column.instructions]
    title = f"{column.target}: {len(rows)} instructions"
    return _pane(title, rows, f"instructions for {column.target}")


def _explained(found: Instruction) -> str:
    return f"{found.kind}, {found.bits} bits a lane" if found.bits else found.kind


def _pane(title: str, rows: Sequence[tuple[Any, ...]], label: str) -> str:
    lines = "".join(_row(index, *row) for index, row in enumerate(rows))
    return (
        f'<div class="pane"><div class="title">{escape(title)}</div>'
        f'<div class="lines" role="listbox" aria-label="{escape(label)}">{lines}</div></div>'
    )


def _row(index: int, number: int | None, text: str, explained: str = "") -> str:
    data = f' data-line="{number}"' if number is not None else ""
    title = f' title="{escape(explained)}"' if explained else ""
    return (
        f'<div class="w2w-row" role="option" aria-selected="false" tabindex="{0 if index == 0 else -1}"{data}{title}>'
        f'<span class="number">{"" if number is None else number}</span><span class="mark">▸</span>'
        f"{escape(text)}\n</div>"
    )


def listing(
    kernel: Any,
    *targets: str,
    args: Sequence[Any] | None = None,
    signature: Mapping[str, str] | None = None,
    **kwargs: Any,
) -> Listing:
    _show_listings_as_html()
    return compile_listing(kernel, *targets, args=args, signature=signature, **kwargs)


listing.__doc__ = compile_listing.__doc__


def _show_listings_as_html() -> None:
    try:
        from IPython import get_ipython
    except ImportError:
        return
    shell = get_ipython()
    if shell is not None:
        shell.display_formatter.formatters["text/html"].for_type(Listing, listing_html)
