"""Writer and reader of a report's HTML page, a file that also contains its sections' values as JSON."""

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

NAME = "report.html"

#: Scripts of the page: dagre lays out the network, plotly.js draws the charts.
_SCRIPTS = ("dagre.min.js", "plotly-cartesian.min.js", "page.js")

#: Format of the documents in the page, so that a later hwgen can refuse an unknown one.
_FORMAT = 2

_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


#: Sections of a page in order: template, title, and the document that the section needs.
_SECTIONS = (
    ("verification", "Verification", "verification"),
    ("accuracy", "Accuracy", "accuracy"),
    ("fronts", "Fronts", "fronts"),
    ("network", "Network", "design"),
    ("table", "Plan", "design"),
    ("resources", "Resources", "design"),
    ("synthesis", "Synthesis", "synthesis"),
    ("vivado", "Vivado", "vivado"),
    ("routing", "Routing", "routing"),
    ("times", "Timeline", "times"),
    ("memory", "Memory", "design"),
)


def render(document: Mapping[str, Any]) -> bytes:
    """Return the HTML page that shows the sections of ``document``, as UTF-8 bytes.

    Parameters
    ----------
    document : mapping
        ``title``; any of ``design`` (`design.document`), ``times``, ``verification``, ``accuracy``, ``synthesis``,
        ``vivado``, ``routing`` and ``fronts``; and ``remarks``, the lines at the top. All values are plain.
    """
    document = _printable(document)
    page = _environment().get_template("page.html.j2")
    scripts = [Markup(_asset(name)) for name in _SCRIPTS]
    defaults = {"remarks": [], **{key: document.get(key) for _, _, key in _SECTIONS}}
    return page.render(
        document={**defaults, **document, "sections": sections(document)},
        design=document.get("design"),
        data=_embedded({"format": _FORMAT, **document}),
        scripts=scripts,
        style=Markup(_asset("page.css")),
        version=metadata.version("hwgen") if _installed() else "",
    ).encode(errors="backslashreplace")


def _printable(value: Any) -> Any:
    """Return a JSON-like value whose strings have escapes for unprintable characters."""
    if isinstance(value, str):
        return printable.text(value)
    if isinstance(value, Mapping):
        return {_printable(key): _printable(entry) for key, entry in value.items()}
    return [_printable(entry) for entry in value] if isinstance(value, list | tuple) else value


def sections(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return, as a list, (name, title) of each section that the HTML page of a document shows, in order."""
    return [(name, title) for name, title, key in _SECTIONS if document.get(key)]


def read(text: str, path: str) -> dict[str, Any]:
    """Return, as a dict, the document (section values by name) that the text of an HTML report page contains as JSON.

    Raises
    ------
    InputError
        If the text is not a page of this version of hwgen. The message names ``path``.
    """
    match = _DATA.search(text)
    try:
        document = json.loads(match[1]) if match else None
    except ValueError:
        document = None
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise InputError(f"{path} is not a report of this version of hwgen: build the design again")
    return document


def merged(document: Mapping[str, Any], path: str | Path) -> dict[str, Any]:
    """Return a dict by section: a document's values, plus sections only an older page of the same design has.

    Two pages are of the same design if their ``of`` agree. If one page has a plan but no weights, their ``plan`` must
    agree. A file that is not a page, or a page of another design, adds nothing.
    """
    try:
        before = read(Path(path).read_text(encoding="utf-8"), str(path))
    except (OSError, ValueError, InputError):
        return dict(document)
    shared = [key for key in ("of", "plan") if key in before and key in document]
    same = bool(shared) and all(before[key] == document[key] for key in shared)
    return {**(before if same else {}), **document}


def digest(plan_json: str, network: Network | None = None) -> str:
    """Return the hexadecimal SHA-256 of a plan and, if given, of a network's integers, which identifies a design."""
    hash_of_design = hashlib.sha256(plan_json.encode())
    for layer in () if network is None else network.layers:
        _add(hash_of_design, layer)
    return hash_of_design.hexdigest()


def _add(hash_of_design: Any, value: Any) -> None:
    if isinstance(value, np.ndarray):
        hash_of_design.update(np.ascontiguousarray(value))
    elif isinstance(value, tuple | list):
        for entry in value:
            _add(hash_of_design, entry)
    elif is_dataclass(value):
        for field in fields(value):
            _add(hash_of_design, getattr(value, field.name))
    else:
        hash_of_design.update(repr(value).encode(errors="backslashreplace"))


def _embedded(document: Mapping[str, Any]) -> Markup:
    """Return a document as JSON for an HTML script element, with ``<`` escaped so that no text ends the element."""
    return Markup(json.dumps(document, separators=(",", ":")).replace("<", "\\u003c"))


def _installed() -> bool:
    try:
        metadata.version("hwgen")
    except metadata.PackageNotFoundError:
        return False
    return True


@cache
def _asset(name: str) -> str:
    """Return the text of a script or style file, escaped so that it can't end the HTML element it is put into."""
    text = resources.files("hwgen.report.page").joinpath(name).read_text(encoding="utf-8")
    text = re.sub(r"(?m)^//# sourceMappingURL=.*$", "", text).replace("</script", "<\\/script")
    return re.sub(r"[\x00-\x08\x0b\x0e-\x1f]", lambda found: f"\\x{ord(found[0]):02x}", text)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("hwgen.report.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": _number, "share": lambda part, whole: f"{part / whole:.0%}" if whole else "0%"}
    return environment


def _number(value: float) -> str:
    """Return a number as text with commas: integers in full, others with four digits, or one decimal above 1,000."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}" if value < 1000 else f"{value:,.1f}"
