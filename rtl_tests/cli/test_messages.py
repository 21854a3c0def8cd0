"""Messages: closed standard streams, the environment, names of options and files, and names with control characters."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import onnx
import pytest
from refusals import refusals_in

import hwgen
from hwgen import printable, progress
from hwgen.cli import main as cli
from hwgen.errors import InputError, PlanError
from hwgen.plan.document import write
from hwgen.report import notebook, picture
from hwgen.report.page import html
from hwgen.tools import doctor

HWGEN = f"'{sys.executable}' -m hwgen.cli"


def by_shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, shell=True, capture_output=True, text=True, env=os.environ | environment)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main([*arguments]) == 2
    return capsys.readouterr().err.splitlines()[-1]


# Standard streams.


CLOSED = (">&-", "2>&-", ">&- 2>&- <&-", "2>/dev/full")
COMMANDS = ("boards", "models", "--version", "check lenet5")


@pytest.mark.parametrize(
    ("command", "streams"),
    [
        pytest.param(command, streams, marks=() if one == other else pytest.mark.long)  # each of both once
        for one, command in enumerate(COMMANDS)
        for other, streams in enumerate(CLOSED)
    ],
)
def test_streams_that_are_closed(command: str, streams: str) -> None:
    """The command does what it does otherwise, and has the same exit status."""
    run = by_shell(f"{HWGEN} {command} {streams}")
    assert (run.returncode, run.stderr) == (0, "")
    assert bool(run.stdout) == (">&-" not in streams.replace("2>&-", ""))


def test_a_refusal_goes_nowhere_else() -> None:
    """With stderr closed, it is not printed on stdout."""
    run = by_shell(f"{HWGEN} check nothing 2>&-")
    assert (run.returncode, run.stdout, run.stderr) == (2, "", "")


def test_closed_descriptors_get_no_other_file(tmp_path: Path) -> None:
    """A program that hwgen starts writes to the null device, not into a file that took the descriptor."""
    program = (
        "import os, subprocess, sys; from hwgen.cli import main; main._open_closed_streams();"
        f"file = open({str(tmp_path / 'file')!r}, 'w'); subprocess.run(['echo', 'lost']); file.write('kept')"
    )
    assert by_shell(f"'{sys.executable}' -c \"{program}\" >&- 2>&- <&-").returncode == 0
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["boards", "--help", "plan --help", "--version"])
def test_a_full_disk_is_named(command: str, unbuffered: str) -> None:
    """It is named once, whether Python writes at once or when it ends."""
    run = by_shell(f"{HWGEN} {command} > /dev/full", PYTHONUNBUFFERED=unbuffered)
    assert (run.returncode, run.stderr) == (2, "hwgen: standard output: No space left on device\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["--help", "check nothing"])
def test_a_full_stderr_keeps_the_status(command: str, unbuffered: str) -> None:
    expected = by_shell(f"{HWGEN} {command}")
    run = by_shell(f"{HWGEN} {command} 2> /dev/full", PYTHONUNBUFFERED=unbuffered)
    assert (run.returncode, run.stdout, run.stderr) == (expected.returncode, expected.stdout, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away(unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "hwgen.cli", "--help"]
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    run = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=environment)
    os.close(writer)
    assert (run.returncode, run.stderr) == (141, b"")


# The environment.


@pytest.mark.parametrize("limit", ["abc", "-1", "1.5", "10MB"])
def test_a_cache_limit_that_is_no_number(
    limit: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HWGEN_CACHE_LIMIT", limit)
    expected = f"hwgen: HWGEN_CACHE_LIMIT must be a number of MiB, as in 2000, not {limit!r}"
    assert refused(capsys, "cache") == expected
    assert refused(capsys, "plan", "lenet5", "--board", "zedboard") == expected


@pytest.mark.parametrize("compiler", ["", " "])
def test_an_empty_compiler_is_the_default(compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", compiler)
    assert any(tool.name == "g++" for tool in doctor.examine())


# Names of options and files.


@pytest.mark.parametrize(("options", "message"), refusals_in("messages_options.txt"))
def test_options_are_called_as_they_were_typed(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, "plan", "lenet5", "--board", "zedboard", *options)
    name, value = options[0].removeprefix("--").replace("-", "_"), options[1]
    given = {name: True if name == "in_turn" else value}
    if name == "in_turn":
        given |= {options[1].removeprefix("--"): options[2]}
    elif len(options) > 2:
        given |= {options[2].removeprefix("--"): options[3]}
    with pytest.raises((PlanError, InputError)) as error:
        hwgen.load("lenet5").plan("zedboard", **given)
    assert "--" not in str(error.value)


def test_python_takes_the_texts_of_the_command_line() -> None:
    """Each text means what it means there."""
    model = hwgen.load("decoilfnet-example")
    texts = model.plan("zedboard", tile="1x1", dsp="100", clock="50", macs_per_dsp="1")
    values = model.plan("zedboard", tile=(1, 1), dsp=100, clock=50.0, macs_per_dsp=1)
    assert write(texts.plan) == write(values.plan)
    with pytest.raises(PlanError, match="tile must be two positive integers, rows and columns, not '1by3'"):
        model.plan("zedboard", tile="1by3")


def test_a_wrong_plan_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.json"
    path.write_text("{}")
    arguments = ("simulate", "lenet5", "--board", "zedboard", "--plan", str(path), "--random", "1")
    assert refused(capsys, *arguments) == f"hwgen: {path}: plan lacks 'groups'"


def test_a_plan_of_another_board_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, model = tmp_path / "plan.json", "decoilfnet-example"
    steered = ["--board", "zedboard", "--multipliers", "dsp", "--dsp", "20"]
    assert cli.main(["plan", model, *steered, "-o", str(path)]) == 0
    said = f"{path} was made for zedboard, and is used for zc706"
    assert said not in capsys.readouterr().out
    for board in ("zedboard", "zc706"):
        assert cli.main(["build", model, "--board", board, "--plan", str(path), "-o", str(tmp_path / board)]) == 0
        assert (said in capsys.readouterr().out) == (board == "zc706")
    assert json.loads((tmp_path / "zc706" / "plan.json").read_text())["board"] == "zc706"


def test_a_folder_that_is_no_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "compile", "lenet5", "--engine", str(tmp_path))
    assert said.startswith(
        f"hwgen: {tmp_path} is not an engine that 'hwgen build --template engine' wrote: engine.json "
    )


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
