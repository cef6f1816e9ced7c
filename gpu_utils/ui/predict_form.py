"""The form of a prediction: a field or some buttons for each slot, and a sentence that says where it stands."""

from __future__ import annotations

from functools import partial
from html import escape
from typing import Any

import ipywidgets as widgets

from gpu_utils.errors import BadArgument
from gpu_utils.ui.explore.drawing import alert, styled
from gpu_utils.ui.explore.widget import Static
from gpu_utils.ui.predict import Guess, code
from gpu_utils.ui.slots import Number

_FILLS = widgets.Layout(width="auto")


class Form(Static):
    """The controls of a guess, in the order of its slots, which is that of the Tab key.

    A number is kept on Enter and when the field is left; a choice when its button is pressed. Once the answer was
    shown, the controls are locked, and a button opens another try. A form that is made again shows the answer, too.
    """

    def __init__(self, guess: Guess) -> None:
        self.guess = guess
        self.controls = {slot: _control(guess, slot) for slot in guess.slots}
        self.status = widgets.HTML(layout=_FILLS)
        self.button = widgets.Button(
            description="Guess again (the first counts)", layout=widgets.Layout(width="auto", align_self="flex-start")
        )
        self.button.on_click(lambda _: self.again())
        for slot, control in self.controls.items():
            control.observe(partial(self.said, slot), names="value")
        asked = widgets.HTML(
            styled(f'<div class="w2w-x"><p><b>Predict.</b> {code(guess.question)}</p></div>'), layout=_FILLS
        )
        rows = [_row(guess, slot, control) for slot, control in self.controls.items()]
        super().__init__([asked, *rows, self.status, self.button])
        guess.changed = self.update
        self.update()

    def said(self, slot: str, change: Any) -> None:
        """A control has a new value: keep it, or say why it cannot be read."""
        if change["new"] in ("", None):
            return
        try:
            self.guess.keep(slot, change["new"])
        except BadArgument as problem:
            self.status.value = styled(alert(str(problem)))
            self.controls[slot].focus()

    def again(self) -> None:
        self.guess.again()
        for control in self.controls.values():
            control.value = None if isinstance(control, widgets.ToggleButtons) else ""
        next(iter(self.controls.values())).focus()

    def update(self) -> None:
        """Show where the guess stands."""
        locked = self.guess.locked
        for control in self.controls.values():
            control.disabled = locked
        self.button.layout.display = "" if locked else "none"
        self.status.value = self._standing()

    def _standing(self) -> str:
        if self.guess.locked and not self.guess.shown:
            return styled(f'<div class="w2w-x">{self.guess.answer().html()}</div>')
        if self.guess.locked:
            return styled('<div class="w2w-x"><p role="status">Locked: the answer is below.</p></div>')
        tried = f"{self.guess.title}. " if self.guess.now.attempt > 1 else ""
        words = f"{tried}{self.guess.standing} {self.guess.note}".strip()
        return styled(f'<div class="w2w-x"><p role="status">{escape(words)}</p></div>')

    @property
    def words(self) -> str:
        return repr(self.guess)

    @property
    def html(self) -> str:
        return f"<pre>{escape(self.words)}</pre>"


def _control(guess: Guess, slot: str) -> Any:
    kind, said = guess.slots[slot], guess.now.guesses.get(slot)
    if isinstance(kind, Number):
        field = widgets.Text(
            said or "",
            placeholder="a number, Enter goes on",
            continuous_update=False,
            layout=widgets.Layout(width="14em"),
        )
    else:
        field = widgets.ToggleButtons(options=kind.options, value=said, layout=widgets.Layout(width="auto"))
        field.style.button_width = "auto"
    field.tooltip = guess.label(slot)
    return field


def _row(guess: Guess, slot: str, control: Any) -> Any:
    """The label, the control and the unit."""
    kind = guess.slots[slot]
    unit = [widgets.Label(kind.unit)] if isinstance(kind, Number) and kind.unit else []
    widest = max(len(guess.label(each)) for each in guess.slots)
    label = widgets.Label(guess.label(slot), layout=widgets.Layout(flex="0 0 auto", width=f"{0.58 * widest + 1:.1f}em"))
    return widgets.Box([label, control, *unit], layout=widgets.Layout(flex_flow="row wrap", width="auto"))
