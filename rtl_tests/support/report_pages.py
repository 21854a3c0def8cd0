"""Plans to report on, and the checks of every page of ``report.html``."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import html5lib
import numpy as np

from hwgen.api import Result
from hwgen.report.page import html

MEASURED = {
    "vivado": "2023.1", "board_files": "b", "clock_mhz": 125.0, "wns_ns": -2.0, "whs_ns": 0.05, "accelerator": None,
    "ip": {"lut": 2000, "ff": 2001, "bram36": 2.5, "dsp": 20}, "design": {"lut": 3, "ff": 4, "bram36": 5, "dsp": 6},
}  # fmt: skip
#: Attributes by which a browser may be made to load something.
LOADING = ("src", "href", "action", "formaction", "data", "poster", "srcset", "background", "xlink:href")
MAX_BYTES = 6_000_000


class Elements(HTMLParser):
    """Every element's name and attributes, and the text of those that are asked for."""

    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)


def check_page(page: bytes, sections: set[str]) -> dict:
    """Check that a page is valid, complete, small, loads nothing and has these sections. Return its document."""
    text = page.decode()
    assert len(page) <= MAX_BYTES
    html5lib.HTMLParser(strict=True).parse(text)
    elements = Elements(text)
    for tag, attributes in elements.found:
        for name in LOADING:
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:,")), f"<{tag} {name}={value!r}> leaves the file"
        assert tag not in ("iframe", "object", "embed", "base", "img"), tag
        assert not any(name.startswith("on") for name in attributes), "a script outside the scripts"
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style
    assert "@import" not in style[1]
    assert "url(" not in style[1]
    ids = [attributes["id"] for _, attributes in elements.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {attributes["id"] for tag, attributes in elements.found if tag == "section"} == sections
    links = {attributes["href"] for tag, attributes in elements.found if tag == "a"}
    assert {f"#{section}" for section in sections} <= links
    return html.read(text, "page")


PLANNED = {"network", "table", "resources", "times", "memory"}


def result(outputs: np.ndarray, **changes) -> Result:
    """Return the result of a simulation with these outputs, all right, with the fields ``changes`` replaced."""
    figures = {"latency": 7, "interval": 3, "predicted_latency": 7, "predicted_interval": 3, "cycles": 20}
    rest = {"read_bytes": 1, "written_bytes": 2, "wall_s": 1.0, "cycles_per_s": 20.0, "simulator": "verilator"}
    given = {"outputs": outputs, "expected": outputs, "integers": outputs, "mismatches": 0, "first_mismatch": None}
    return Result(**{**given, **figures, **rest, "stalled": False, **changes})


def a_plan(*groups: list[str], **changes) -> str:
    found = {"groups": [{"layers": [{"name": name} for name in group]} for group in groups]}
    return json.dumps({**found, "resources": {"dsp": 50}, "cycles": {"latency": 9, "interval": None}, **changes})
