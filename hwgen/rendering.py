"""Renderer of text templates, based on Jinja.

Templates have Jinja's statements between ``@%`` and ``%@``, and values between ``@{`` and ``}``. These marks do not
occur in Verilog, Makefiles, XML, C or Markdown.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any
from xml.sax.saxutils import escape

from jinja2 import Environment, PackageLoader, StrictUndefined


def render(loader: PackageLoader, template: str, **values: Any) -> str:
    """Return the text of the template ``TEMPLATE.j2`` in a loader's package, with ``values`` for its variables."""
    return _environment(loader).get_template(f"{template}.j2").render(values)


@cache
def _environment(loader: PackageLoader) -> Environment:
    environment = Environment(
        loader=loader,
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
    """Return a list with one copy of a text per value, where ``{0}`` is replaced by the value."""
    return [text.format(value) for value in values]
