"""Drawing of pictures with matplotlib, as files whose bytes are equal for equal data."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hwgen import installing, printable
from hwgen.errors import InputError, ToolError

FORMATS = ("svg", "png")


def picture_format(path: str | None) -> str | None:
    """Return the format, ``svg`` or ``png``, from the ending of a picture's file name; ``None`` without a name.

    Raises
    ------
    InputError
        If the name has another ending.
    """
    if path is None:
        return None
    suffix = Path(path).suffix
    file_format = suffix.lower().lstrip(".")
    if file_format not in FORMATS:
        raise InputError(f"plot {path} must end in .svg or .png, not {suffix!r}")
    return file_format


def picture(title: str, draw: Callable[[Any], None], file_format: str, size: tuple[float, float] = (11, 8)) -> bytes:
    """Draw a matplotlib figure with the function ``draw``, and return the bytes of an SVG or PNG file.

    Parameters
    ----------
    title : str
        Title above the picture.
    draw : callable
        Function that draws on matplotlib's figure.
    file_format : str
        Format: ``svg`` or ``png``.
    size : tuple of float
        Width and height in inches.

    Raises
    ------
    InputError
        If the format is unknown.
    ToolError
        If matplotlib is not installed.
    """
    if file_format not in FORMATS:
        raise InputError(f"a plot must be one of {', '.join(FORMATS)}, not {file_format!r}")
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
        metadata = {"Date": None} if file_format == "svg" else {"Software": None}
        figure.savefig(buffer, format=file_format, dpi=120, metadata=metadata)
    return buffer.getvalue()
