"""The page itself: documents of its sections in, one HTML file out; and back."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hwgen import printable
from hwgen.errors import InputError
from hwgen.network.graph import Network

__all__ = ["NAME", "digest", "merged", "read", "render", "sections"]

NAME = "report.html"

#: What the drawings are made with: dagre lays out the network, plotly.js draws the charts.
_SCRIPTS = ("dagre.min.js", "plotly-cartesian.min.js", "page.js")

#: Of the documents in the page, so that a later hwgen knows what it reads.
_FORMAT = 2

_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


#: The sections of a page in order: the name of its template, its title, and the document without which it is not there.
_SECTIONS = (
    ("verification", "Verification", "verification"),
    ("accuracy", "Accuracy", "accuracy"),
    ("fronts", "Fronts", "fronts"),
    ("network", "Network", "design"),
    ("table", "Plan", "design"),
    ("resources", "Resources", "design"),
    ("synthesis", "Synthesis", "synthesis"),
    ("vivado", "Vivado", "vivado"),
    ("times", "Timeline", "times"),
    ("memory", "Memory", "design"),
)


def render(document: Mapping[str, Any]) -> bytes:
    """The page of some sections.

    Parameters
    ----------
    document : mapping
        ``title``, and what there is of ``design`` (`design.document`), ``times``, ``verification``, ``accuracy``,
        ``synthesis``, ``vivado`` and ``fronts``; and ``remarks``, lines at the top. All plain values.
    """
    document = _printable(document)
    page = _environment().get_template("page.html.j2")
    scripts = [Markup(_asset(name)) for name in _SCRIPTS]
    given = {"remarks": [], **{key: document.get(key) for _, _, key in _SECTIONS}}
    return page.render(
        document={**given, **document, "sections": sections(document)},
        design=document.get("design"),
        data=_embedded({"format": _FORMAT, **document}),
        scripts=scripts,
        style=Markup(_asset("page.css")),
        version=metadata.version("hwgen") if _installed() else "",
    ).encode(errors="backslashreplace")


def _printable(value: Any) -> Any:
    """Return a plain value with escapes for what is not printable in its texts."""
    if isinstance(value, str):
        return printable.text(value)
    if isinstance(value, Mapping):
        return {_printable(key): _printable(each) for key, each in value.items()}
    return [_printable(each) for each in value] if isinstance(value, list | tuple) else value


def sections(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The sections of a document's page, in order: names and titles."""
    return [(name, title) for name, title, key in _SECTIONS if document.get(key)]


def read(text: str, path: str) -> dict[str, Any]:
    """The sections that a page holds.

    Raises
    ------
    InputError
        If it is no page of this hwgen's; ``path`` is its name in the message.
    """
    found = _DATA.search(text)
    try:
        document = json.loads(found[1]) if found else None
    except ValueError:
        document = None
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise InputError(f"{path} is not a report of this version of hwgen: write it anew with hwgen build")
    return document


def merged(document: Mapping[str, Any], path: str | Path) -> dict[str, Any]:
    """A document, and the sections that a page which is there already has of the same design beyond it.

    Designs are the same if ``of`` says so, or, where one of both is of a plan and of no weights, ``plan``. A file that
    is no page, or of another design, adds nothing.
    """
    try:
        before = read(Path(path).read_text(encoding="utf-8"), str(path))
    except (OSError, ValueError, InputError):
        return dict(document)
    shared = [key for key in ("of", "plan") if key in before and key in document]
    same = bool(shared) and all(before[key] == document[key] for key in shared)
    return {**(before if same else {}), **document}


def digest(plan_json: str, network: Network | None = None) -> str:
    """By which sections are known to be of one design: the plan, and all integers of its network if that is given."""
    found = hashlib.sha256(plan_json.encode())
    for layer in () if network is None else network.layers:
        _add(found, layer)
    return found.hexdigest()


def _add(found: Any, value: Any) -> None:
    if isinstance(value, np.ndarray):
        found.update(np.ascontiguousarray(value))
    elif isinstance(value, tuple | list):
        for each in value:
            _add(found, each)
    elif is_dataclass(value):
        for part in fields(value):
            _add(found, getattr(value, part.name))
    else:
        found.update(repr(value).encode(errors="backslashreplace"))


def _embedded(document: Mapping[str, Any]) -> Markup:
    """JSON that no text in it can end: within a script only ``<`` could."""
    return Markup(json.dumps(document, separators=(",", ":")).replace("<", "\\u003c"))


def _installed() -> bool:
    try:
        metadata.version("hwgen")
    except metadata.PackageNotFoundError:
        return False
    return True


@cache
def _asset(name: str) -> str:
    """A file of the page, as it may stand within an element of HTML: nothing ends it, and no character is forbidden."""
    text = resources.files("hwgen.report.page").joinpath(name).read_text(encoding="utf-8")
    text = re.sub(r"(?m)^//# sourceMappingURL=.*$", "", text).replace("</script", "<\\/script")
    return re.sub(r"[\x00-\x08\x0b\x0e-\x1f]", lambda found: f"\\x{ord(found[0]):02x}", text)


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("hwgen.report.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"number": _number, "share": lambda part, whole: f"{part / whole:.0%}" if whole else "0%"}
    return found


def _number(value: float) -> str:
    """With commas between thousands, and no more digits than the figure has."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}" if value < 1000 else f"{value:,.1f}"
