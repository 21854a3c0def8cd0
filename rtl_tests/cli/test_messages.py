"""Closed and full standard streams, variables of the environment, and names of options and files in messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import hwgen
from hwgen.cli import main as cli
from hwgen.errors import InputError, PlanError
from hwgen.plan.document import write
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
    expected = f"hwgen: HWGEN_CACHE_LIMIT must be a number of MB, as in 2000, not {limit!r}"
    assert refused(capsys, "cache") == expected
    assert refused(capsys, "plan", "lenet5", "--board", "zedboard") == expected


@pytest.mark.parametrize("compiler", ["", " "])
def test_an_empty_compiler_is_the_default(compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", compiler)
    assert any(tool.name == "g++" for tool in doctor.examine())


# Names of options and files.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--in-turn", "--weights", "runtime"], "not with --groups or --in-turn"),
        (
            ["--in-turn", "--multipliers", "lut"],
            "--multipliers lut goes with one group of all layers, not with --in-turn",
        ),
        (["--interval", "5"], "--interval, a bound in cycles, goes with"),
        (["--fps", "5", "--objective", "latency"], "--fps, a bound of frames a second, goes with"),
        (["--lut-pixels", "2", "--template", "stream"], "--lut-pixels goes with the template engine"),
        (["--tile", "4x4", "--template", "stream"], "--tile and --overlap go with pyramids"),
        (["--dsp", "100000"], "--dsp must be between 1 and the 220 slices"),
        (["--bram", "100000"], "--bram must be between 1 and the 140 block RAMs"),
    ],
)
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
    assert cli.main(["plan", model, "--board", "zedboard", "-o", str(path)]) == 0
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
