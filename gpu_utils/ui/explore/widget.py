"""The thin layer between a drawing and the learner: controls whose values a function turns into a picture."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import ipywidgets as widgets

from gpu_utils.errors import UnknownName, W2WError
from gpu_utils.ui.explore.drawing import Picture, alert, beside, styled

_LABEL = {"description_width": "120px"}


class Static(widgets.VBox):
    """A box that also carries its first state as HTML and text, for viewers that cannot run widgets.

    It fills the page. What is in it has no width of its own: 100% and the margins of a widget would make it scroll.
    """

    def __init__(self, children: Sequence[Any]) -> None:
        super().__init__(children, layout=widgets.Layout(width="100%"))

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return {**super()._repr_mimebundle_(**options), "text/html": self.html, "text/plain": self.words}


class Explorer(Static):
    """Controls above a picture.

    draw      called with the value of each control by its name; returns a Picture. What it refuses (W2WError) is shown
              as a sentence above the last picture.
    controls  name -> ipywidget with a `value`, in the order in which the Tab key should reach them
    shared    names of controls that are shown elsewhere, above two explorers that share them
    """

    def __init__(self, draw: Callable[..., Picture], controls: Mapping[str, Any], shared: Collection[str] = ()) -> None:
        self.draw, self.controls = draw, dict(controls)
        self.picture = draw(**self.values)
        self.report = widgets.HTML(self.picture._repr_html_(), layout=widgets.Layout(width="auto"))
        for control in self.controls.values():
            control.observe(self.update, names="value")
        own = [control for name, control in self.controls.items() if name not in shared]
        super().__init__([in_a_row(own), self.report])

    @property
    def values(self) -> dict[str, Any]:
        return {name: control.value for name, control in self.controls.items()}

    @property
    def html(self) -> str:
        return self.picture._repr_html_()

    @property
    def words(self) -> str:
        return self.picture.words

    def update(self, _: object = None) -> None:
        """Draw again from the values of the controls."""
        try:
            self.picture = self.draw(**self.values)
            self.report.value = self.picture._repr_html_()
        except W2WError as problem:
            self.report.value = styled(alert(str(problem)) + self.picture.html)


class Sides(Static):
    """Two explorers side by side, NVIDIA's first, with controls for both above them."""

    def __init__(self, left: Explorer, right: Explorer, above: Sequence[Any] = ()) -> None:
        self.left, self.right = left, right
        for side in (left, right):
            side.layout = widgets.Layout(flex="1 1 400px", min_width="0")
        pair = in_a_row([left, right], gap="0 20px")
        super().__init__([in_a_row(above), pair])

    @property
    def html(self) -> str:
        return beside(self.left.picture, self.right.picture)._repr_html_()

    @property
    def words(self) -> str:
        return f"{self.left.words}\n{self.right.words}"


def in_a_row(items: Sequence[Any], gap: str = "0") -> Any:
    """Controls in a row that breaks where the page is narrow."""
    return widgets.Box(list(items), layout=widgets.Layout(flex_flow="row wrap", width="auto", grid_gap=gap))


def slider(label: str, value: int, low: int, high: int, step: int = 1) -> Any:
    """A slider for whole numbers; the arrow keys move it by `step`."""
    return widgets.IntSlider(
        value, low, high, step, description=label, style=_LABEL, layout=widgets.Layout(flex="1 1 340px", min_width="0")
    )


def choice(label: str, options: Sequence[Any], value: Any) -> Any:
    """A drop-down list of names or of (label, value) pairs. Raises UnknownName for a value that is not in it."""
    values = [option[1] if isinstance(option, tuple) else option for option in options]
    if value not in values:
        raise UnknownName(label, str(value), map(str, values))
    return widgets.Dropdown(
        options=options, value=value, description=label, style=_LABEL, layout=widgets.Layout(flex="1 1 340px")
    )


def typed(label: str, value: str, examples: Sequence[str]) -> Any:
    """A line of text that is read on Enter, with examples to choose from."""
    return widgets.Combobox(
        value=value,
        options=examples,
        description=label,
        ensure_option=False,
        continuous_update=False,
        style=_LABEL,
        layout=widgets.Layout(flex="1 1 340px"),
    )
