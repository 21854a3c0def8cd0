"""Pictures as bytes, the same for the same data."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hwgen import installing, printable
from hwgen.errors import InputError, ToolError

FORMATS = ("svg", "png")


def kind_of(path: str | None) -> str | None:
    """The kind of picture that a file is to hold, by its name; ``None`` without one.

    Raises
    ------
    InputError
        If it ends in something else.
    """
    if path is None:
        return None
    suffix = Path(path).suffix
    kind = suffix.lower().lstrip(".")
    if kind not in FORMATS:
        raise InputError(f"plot {path} must end in .svg or .png, not {suffix!r}")
    return kind


def picture(title: str, draw: Callable[[Any], None], kind: str, size: tuple[float, float] = (11, 8)) -> bytes:
    """A picture of ``kind`` (``svg`` or ``png``); ``draw`` gets matplotlib's figure.

    Raises
    ------
    InputError
        For another kind.
    ToolError
        If matplotlib is not installed.
    """
    if kind not in FORMATS:
        raise InputError(f"a plot must be one of {', '.join(FORMATS)}, not {kind!r}")
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.text import Text
    except ImportError:
        missing = f"plots need matplotlib, which is not installed: {installing.command('matplotlib')}"
        raise ToolError(missing) from None
    with rc_context({"svg.hashsalt": "hwgen", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(title)
        draw(figure)
        for label in figure.findobj(Text):  # XML can't have control characters
            label.set_text(printable.text(label.get_text()))
        buffer = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(buffer, format=kind, dpi=120, metadata=metadata)
    return buffer.getvalue()
