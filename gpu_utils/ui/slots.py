"""What one slot of a prediction takes: a number, one of several choices, yes or no."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_utils.errors import BadArgument
from gpu_utils.ui.values import plain, words

_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}
_LARGEST = 1e30


@dataclass(frozen=True)
class Number:
    """A number. label: what is asked; unit: "bytes"; factor: how far off a guess may be, 1 for not at all."""

    label: str = ""
    unit: str = ""
    factor: float = 1.0

    @property
    def asks(self) -> str:
        return f"a number{f' of {self.unit}' if self.unit else ''}"

    def read(self, written: Any) -> float | int:
        """The number that was written: 1024, 1,024, 2**10, 64/48, 1e6 or 12%. Raises BadArgument for anything else.

        >>> [Number().read(text) for text in ("1,024", "2**10", "12 %", "3 * 64")]
        [1024, 1024, 0.12, 192]
        """
        written = plain(written)
        if isinstance(written, (int, float)) and not isinstance(written, bool):
            return written
        text = str(written).strip().removesuffix(self.unit or "\0").replace(",", "").replace("×", "*").strip()
        percent = text.endswith("%")
        try:
            value = _value(ast.parse(text.removesuffix("%").strip(), mode="eval").body)
            if isinstance(value, complex):
                raise ValueError
        except (SyntaxError, ValueError, ArithmeticError, TypeError, RecursionError):
            raise BadArgument(f"{str(written)[:40]!r} is not a number; write one, such as 24, 1e6 or 2**10") from None
        return value / 100 if percent else value

    def say(self, value: Any) -> str:
        return f"{words(value)} {self.unit}".strip()

    def hits(self, guess: Any, truth: Any) -> bool:
        """
        >>> Number().hits(3, 3), Number(factor=2).hits(60, 100), Number(factor=2).hits(40, 100)
        (True, True, False)
        """
        if math.isclose(guess, truth, rel_tol=1e-9, abs_tol=1e-12):
            return True
        return guess * truth > 0 and max(guess / truth, truth / guess) <= self.factor * (1 + 1e-9)

    def compared(self, guess: Any, truth: Any) -> str:
        """In words: as it is, or by which factor the guess is off.

        >>> Number().compared(8, 64), Number(factor=2).compared(120, 100), Number().compared(0, 3)
        ('8 times too low', 'near: 1.2 times', '3 too low')
        """
        if math.isclose(guess, truth, rel_tol=1e-9, abs_tol=1e-12):
            return "right"
        if guess * truth <= 0:
            return f"{words(abs(guess - truth))} too {'low' if guess < truth else 'high'}"
        times = max(guess / truth, truth / guess)
        said = f"{times:.3g}" if times >= 1.0095 else f"{times:.6g}"
        return f"near: {said} times" if self.hits(guess, truth) else f"{said} times too {_side(guess, truth)}"


def _side(guess: float, truth: float) -> str:
    return "low" if abs(guess) < abs(truth) else "high"


@dataclass(frozen=True)
class Choice:
    """One of several answers. label: what is asked."""

    options: tuple[str, ...]
    label: str = ""

    @property
    def asks(self) -> str:
        return f"one of {', '.join(map(repr, self.options))}"

    def read(self, written: Any) -> str:
        """The option meant; yes and no may be True and False. Raises BadArgument for anything else."""
        text = words(written) if isinstance(plain(written), bool) else str(written)
        if text not in self.options:
            raise BadArgument(f"{text[:40]!r} is none of the answers; choose {self.asks}")
        return text

    def say(self, value: Any) -> str:
        return str(value)

    def hits(self, guess: Any, truth: Any) -> bool:
        return bool(guess == truth)

    def compared(self, guess: Any, truth: Any) -> str:
        return "right" if guess == truth else "not so"


Slot = Number | Choice


def number(label: str = "", *, unit: str = "", factor: float = 1.0) -> Number:
    """A slot of `predict` for a number.

    label   what is asked, where the slot's own name does not say it
    unit    "bytes", "microseconds": it stands behind the field
    factor  a guess within this factor counts as right; 1: only the number itself

    Raises BadArgument for a factor below 1.
    """
    if factor < 1:
        raise BadArgument(f"a factor of {factor} was given; expected 1 for exact, or more")
    return Number(label, unit, factor)


def choice(*options: str, label: str = "") -> Choice:
    """A slot of `predict` for one of at least two answers."""
    if len(set(options)) < 2:
        raise BadArgument(f"{len(set(options))} different answers were given to choose from; expected two or more")
    return Choice(tuple(options), label)


def yes_no(label: str = "") -> Choice:
    """A slot of `predict` for yes or no; what is measured may be True or False."""
    return Choice(("yes", "no"), label)


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=bool()):
            raise ValueError
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            one, other = _value(left), _value(right)
            if isinstance(op, ast.Pow) and abs(one) > 1 and other * math.log10(abs(one)) > math.log10(_LARGEST):
                raise ValueError
            return _OPERATORS[type(op)](one, other)
    raise ValueError


def nearest(value: float, choices: Sequence[str]) -> str:
    """The choice whose last word is the number nearest to a value by ratio: "about 1e-3" for 0.002."""
    known = {words: float(words.split()[-1]) for words in choices}
    return min(known, key=lambda words: max(value / known[words], known[words] / value))
