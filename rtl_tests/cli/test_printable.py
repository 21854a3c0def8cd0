"""Names with control characters and marks of direction: nothing that is printed, or written as text, has them raw."""

from __future__ import annotations

import io
import json
import sys
import unicodedata
from pathlib import Path

import onnx
import pytest

import hwgen
from hwgen import printable, progress
from hwgen.cli import main as cli
from hwgen.report import notebook, picture
from hwgen.report.page import html

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"
HOSTILE = "\x1b]0;owned\x07\x00\x7f\x9b2J\u202e\u2066\nevery one is right\t"
"""A title for the terminal's window, C0, DEL and C1 characters, marks of direction, and a line of its own."""


def unprintable(text: str) -> set[str]:
    """Return the characters of Unicode's control, format and separator classes, but for ends of lines and tabs."""
    return {each for each in text if unicodedata.category(each) in ("Cc", "Cf", "Zl", "Zp") and each not in "\n\t"}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Path:
    """The digits network, whose nodes and tensors are all called so."""
    model = onnx.load(DIGITS)
    for node in model.graph.node:
        node.name += HOSTILE
        for names in (node.input, node.output):
            names[:] = [name + HOSTILE if name else name for name in names]
    for each in (*model.graph.initializer, *model.graph.input, *model.graph.output, *model.graph.value_info):
        each.name += HOSTILE
    path = tmp_path_factory.mktemp("hostile") / "net\x1b[2J\x9b\u202e.onnx"
    onnx.save(model, path)
    return path


def test_escapes():
    assert unprintable(HOSTILE) == {"\x1b", "\x07", "\x00", "\x7f", "\x9b", "\u202e", "\u2066"}
    assert printable.text(HOSTILE) == "\\x1b]0;owned\\x07\\x00\\x7f\\x9b2J\\u202e\\u2066\nevery one is right\t"
    assert printable.line("a\nb\tc\r\u2028") == "a\\nb\\tc\\r\\u2028"
    assert printable.text("Größe 10 µs, 数 \U0001f600\n") == "Größe 10 µs, 数 \U0001f600\n"
    stream = io.StringIO()
    print("\x1b[31m", "plain", file=printable.Escaped(stream))  # type: ignore[arg-type]
    assert stream.getvalue() == "\\x1b[31m plain\n"
    assert str(hwgen.InputError("\x1b[2J")) == "\\x1b[2J"


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "--json", "found.json"],
        ["plan", "--board", "zedboard", "-o", "plan.json"],
        ["plan", "--board", "zedboard", "--groups", "\x1b[2J"],
        ["plan", "--board", "\x1b[2J"],
        ["check", "--\x9b"],
    ],
)
def test_what_verbs_print(hostile, tmp_path, monkeypatch, capfd, arguments):
    """Nothing of it reaches the terminal; JSON has the true names, and is valid."""
    monkeypatch.chdir(tmp_path)
    cli.main([arguments[0], str(hostile), *arguments[1:]])
    said = capfd.readouterr()
    assert "\\x1b" in said.out + said.err or "\\x9b" in said.err
    assert unprintable(said.out + said.err) == set()
    assert "\nevery one" not in said.out + said.err
    for path in tmp_path.iterdir():
        assert HOSTILE in "".join(texts(json.loads(path.read_text())))


def texts(value) -> list[str]:
    """Return all texts of a JSON value."""
    if isinstance(value, dict):
        return [text for each in (*value, *value.values()) for text in texts(each)]
    return [text for each in value for text in texts(each)] if isinstance(value, list) else [str(value)]


@pytest.mark.long
def test_what_a_build_writes(hostile, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["build", str(hostile), "--board", "zedboard", "-o", "result"]) == 0
    said = capfd.readouterr()
    assert unprintable(said.out + said.err) == set()
    files = [path for path in Path("result").iterdir() if path.suffix not in (".mem", ".hex")]
    assert len(files) > 15
    for path in files:
        found = unprintable(path.read_text(encoding="utf-8").replace(html._asset(html._SCRIPTS[0]), ""))
        assert found == set(), path


def test_notebooks_pages_and_pictures(hostile):
    design = hwgen.load(hostile).plan("zedboard")
    for text in (design._repr_html_(), design.page().decode(), design.table(), design.report()):
        assert unprintable(text) == set()
        assert "\\x1b" in text
    assert notebook.lines(["\x07"]) == "<p>\\x07</p>"
    pytest.importorskip("matplotlib")
    drawn = picture.picture("\x1b", lambda figure: figure.text(0, 0, "\x9b"), "svg").decode()
    assert unprintable(drawn) == set()
    assert "\\x1b" in drawn


def test_what_progress_says(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv(progress.VARIABLE, "0")
    with progress.shown():
        progress.tell(f"reading {HOSTILE}")
    assert unprintable(stream.getvalue()) == set()
    assert stream.getvalue().count("\n") == 1
