"""One block of GPT-2 as a picture: what each part holds, computes and keeps."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from gpu_utils.model.gpt2 import GPT2Config

_INK, _PALE, _LINE, _RESIDUAL = "#1f2328", "#f3f5f7", "#8c959f", "#0b5cad"
_FILLS = {"norm": "#fff4d6", "matrix": "#dcecff", "attention": "#ffe0d6", "pointwise": "#e3f4e1"}
_WIDTH, _ROW, _TOP, _LEFT, _BOX = 900, 38, 84, 96, 250
_COLUMNS = (470, 650, 830)


@dataclass(frozen=True)
class Part:
    """One operator of a block, for one token: weights it holds, FLOPs of its forward pass, values kept for backward."""

    label: str
    kind: str
    weights: int
    flops: int
    kept: int


def block_parts(config: GPT2Config, seq_len: int) -> list[Part]:
    """The eight operators of a block in their order; "kept" counts attention with its scores in memory."""
    d, heads = config.n_embd, config.n_head
    attention_keeps = 3 * d + heads * seq_len  # q, k, v and a row of probabilities per head
    return [
        Part("ln_1: layer norm", "norm", 2 * d, 0, d),
        Part("attn.c_attn: d → 3d", "matrix", 3 * d * d + 3 * d, 6 * d * d, d),
        Part(f"attention, {heads} heads of {config.head_dim}", "attention", 0, 4 * seq_len * d, attention_keeps),
        Part("attn.c_proj: d → d", "matrix", d * d + d, 2 * d * d, d),
        Part("ln_2: layer norm", "norm", 2 * d, 0, d),
        Part("mlp.c_fc: d → 4d", "matrix", 4 * d * d + 4 * d, 8 * d * d, d),
        Part("tanh GELU", "pointwise", 0, 0, 4 * d),
        Part("mlp.c_proj: 4d → d", "matrix", 4 * d * d + d, 8 * d * d, 4 * d),
    ]


@dataclass(frozen=True)
class BlockFigure:
    """A block of this model at this sequence length: SVG in a notebook, a table of text elsewhere.

    The SVG carries the text as its alternative.

    >>> print(BlockFigure(GPT2Config.preset("gpt2"), 1024))  # doctest: +ELLIPSIS
    One GPT-2 block, d = 768, T = 1024; per token: weights, forward FLOPs, values kept for backward.
    ln_1: layer norm: 1,536, 0, 768
    ...
    all of it: 7,087,872, 17,301,504, 24,576
    """

    config: GPT2Config
    seq_len: int

    def _total(self) -> Part:
        parts = block_parts(self.config, self.seq_len)
        weights, flops, kept = (sum(getattr(part, name) for part in parts) for name in ("weights", "flops", "kept"))
        return Part("all of it", "", weights, flops, kept)

    def __repr__(self) -> str:
        lines = [
            f"One GPT-2 block, d = {self.config.n_embd}, T = {self.seq_len}; "
            "per token: weights, forward FLOPs, values kept for backward."
        ]
        for part in [*block_parts(self.config, self.seq_len), self._total()]:
            lines.append(f"{part.label}: {part.weights:,}, {part.flops:,}, {part.kept:,}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts = block_parts(self.config, self.seq_len)
        # A "+" closes each half of the block, so the second half starts one row lower.
        rows = [row if row < 4 else row + 1 for row in range(len(parts))]
        height = _TOP + 11 * _ROW + 10
        words = escape(repr(self))
        svg = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
            f'aria-label="{words}" style="max-width:{_WIDTH}px;width:100%;background:white" '
            'font-family="sans-serif" font-size="14">',
            f"<title>{words}</title>",
            f'<text x="{_LEFT}" y="26" font-size="16" font-weight="bold" fill="{_INK}">One block: '
            f"d = {self.config.n_embd}, T = {self.seq_len}, {self.config.n_layer} of them in the model</text>",
        ]
        for x, title, unit in zip(
            _COLUMNS, ("weights", "forward FLOPs", "values kept"), ("", "per token", "per token"), strict=True
        ):
            svg.append(_text(x, 54, title, weight="bold"))
            svg.append(_text(x, 72, unit))
        for row, part in zip(rows, parts, strict=True):
            svg += _operator(row, part)
        svg += _residual(first_row=0, plus_row=4) + _residual(first_row=5, plus_row=9)
        y = _TOP + 10 * _ROW
        svg.append(f'<line x1="{_LEFT}" y1="{y + 4}" x2="{_COLUMNS[2]}" y2="{y + 4}" stroke="{_LINE}"/>')
        total = self._total()
        svg.append(f'<text x="{_LEFT}" y="{y + 28}" font-weight="bold" fill="{_INK}">the whole block</text>')
        svg += [
            _text(x, y + 28, f"{value:,}", weight="bold")
            for x, value in zip(_COLUMNS, (total.weights, total.flops, total.kept), strict=True)
        ]
        return "".join([*svg, "</svg>"])


def _text(x: float, y: float, words: str, weight: str = "normal") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="end" font-weight="{weight}" fill="{_INK}">{escape(words)}</text>'


def _operator(row: int, part: Part) -> list[str]:
    y = _TOP + row * _ROW
    middle = _LEFT + _BOX / 2
    return [
        f'<rect x="{_LEFT}" y="{y}" width="{_BOX}" height="{_ROW - 10}" rx="5" fill="{_FILLS[part.kind]}" '
        f'stroke="{_LINE}"/>',
        f'<text x="{middle}" y="{y + 19}" text-anchor="middle" fill="{_INK}">{escape(part.label)}</text>',
        f'<line x1="{middle}" y1="{y + _ROW - 10}" x2="{middle}" y2="{y + _ROW}" stroke="{_LINE}"/>',
        *(
            _text(x, y + 19, f"{value:,}" if value else "–")
            for x, value in zip(_COLUMNS, (part.weights, part.flops, part.kept), strict=True)
        ),
    ]


def _residual(first_row: int, plus_row: int) -> list[str]:
    """The stream that passes by the side of a half and is added to its result."""
    start, end = _TOP + first_row * _ROW - 7, _TOP + plus_row * _ROW + 13
    middle, side = _LEFT + _BOX / 2, _LEFT - 40
    return [
        f'<path d="M {middle} {start} H {side} V {end} H {middle - 13}" fill="none" stroke="{_RESIDUAL}" '
        'stroke-width="3"/>',
        f'<line x1="{middle}" y1="{start}" x2="{middle}" y2="{start + 7}" stroke="{_RESIDUAL}" stroke-width="3"/>',
        f'<circle cx="{middle}" cy="{end}" r="13" fill="white" stroke="{_RESIDUAL}" stroke-width="3"/>',
        f'<text x="{middle}" y="{end + 6}" text-anchor="middle" font-size="18" fill="{_RESIDUAL}">+</text>',
        f'<text x="{middle + 24}" y="{end + 5}" fill="{_RESIDUAL}">the residual stream goes on</text>',
    ]
