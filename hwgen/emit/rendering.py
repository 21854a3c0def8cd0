"""Rendering of the text templates beside this file, with Jinja.

Statements of Jinja stand between ``@%`` and ``%@``, and values between ``@{`` and ``}``: neither occurs in Verilog,
in a Makefile, in XML, in C or in Markdown.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any
from xml.sax.saxutils import escape

from jinja2 import Environment, PackageLoader, StrictUndefined

__all__ = ["render"]


def render(template: str, **values: Any) -> str:
    """Return the text of a template, ``NAME.j2`` in this package, with these values in it."""
    return _environment().get_template(f"{template}.j2").render(values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("hwgen.emit", "."),
        undefined=StrictUndefined,
        variable_start_string="@{",
        variable_end_string="}",
        block_start_string="@%",
        block_end_string="%@",
        comment_start_string="@#",
        comment_end_string="#@",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["texts"] = _texts
    environment.filters["xml"] = escape
    return environment


def _texts(values: Iterable[Any], text: str) -> list[str]:
    """Return the text for each value, which stands for ``{0}`` in it."""
    return [text.format(value) for value in values]
