"""The cases of this folder: what each command prints is what its case says, character by character."""

from __future__ import annotations

import copy
import functools
import io
import json
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_writing import as_model

import hwgen
from hwgen import boards
from hwgen.cli import main as cli

CASES = Path(__file__).resolve().parents[1] / "cases"
DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
INDENT = "    "
PYTHON, COMMAND, BLANK = f"{INDENT}>>> ", f"{INDENT}$ hwgen", f"{INDENT}<BLANKLINE>"


def save_model(
    name: str, operator: str | None = None, attributes: dict[str, Any] | None = None, height: int | str = 8
) -> None:
    """Save a QDQ model of one 3x3 convolution, ``first``, and of an ``operator`` behind it, ``second``."""
    rng = np.random.default_rng(0)
    scalars = {"s": np.float32(0.05), "z": np.uint8(0), "ws": np.float32(0.02), "wz": np.int8(0)}
    initializers = [numpy_helper.from_array(np.array(value), tensor) for tensor, value in scalars.items()]
    initializers.append(numpy_helper.from_array(rng.integers(-100, 100, (4, 1, 3, 3), dtype=np.int8), "w"))
    nodes = [helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"])]

    def requantised(tensor: str) -> str:
        nodes.append(helper.make_node("QuantizeLinear", [tensor, "s", "z"], [f"{tensor}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{tensor}_q", "s", "z"], [f"{tensor}_dq"]))
        return f"{tensor}_dq"

    tensor = requantised("x")
    nodes.append(helper.make_node("Conv", [tensor, "wd"], ["c"], name="first", **(attributes or {})))
    output = requantised("c")
    if operator is not None:
        nodes.append(helper.make_node(operator, [output], ["o"], name="second"))
        output = requantised("o")
    onnx.save(
        as_model(
            nodes,
            {"x": (TensorProto.FLOAT, ["batch", 1, height, 8])},
            {output: (TensorProto.FLOAT, ["batch", 4, "h", "w"])},
            initializers,
            opset=21,
            ir_version=10,
        ),
        name,
    )


@functools.cache
def _plan(board: str) -> dict[str, Any]:
    return json.loads(hwgen.load(DIGITS / "digits.onnx").plan(board=board, multipliers="dsp").to_json())


def save_plan(name: str, path: str = "", value: object = None, *, board: str = "zedboard") -> None:
    """Save the plan of the digits network, with the ``value`` at a ``path`` such as ``groups/0/layers/1/chain``."""
    plan = copy.deepcopy(_plan(board))
    *parents, last = [int(key) if key.isdecimal() else key for key in path.split("/")]
    if path:
        functools.reduce(lambda place, key: place[key], parents, plan)[last] = value
    Path(name).write_text(json.dumps(plan), encoding="utf-8")


def save_board(name: str, drop: str = "", add: str = "") -> None:
    """Save the ZedBoard's file without the line of the key ``drop``, and with the line ``add``."""
    text = (Path(boards.__file__).parent / "zedboard.toml").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not drop or not re.match(rf"{drop}\s*=", line)]
    Path(name).write_text("\n".join([*lines, add, ""]), encoding="utf-8")


#: Names that the lines of Python in a transcript can use.
NAMES = {
    "np": np,
    "Path": Path,
    "hwgen": hwgen,
    "save_model": save_model,
    "save_plan": save_plan,
    "save_board": save_board,
}


def _tree() -> dict[str, int]:
    """Return the time of the last change of each file in the current folder."""
    return {str(path): path.stat().st_mtime_ns for path in Path().rglob("*")}


def _printed(command: str) -> Iterator[str]:
    """Run a command in the current folder, and yield the lines that it prints and its exit status."""
    before, printed = _tree(), io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        status = cli.main(shlex.split(command))
    assert status != 2 or _tree() == before, f"hwgen {command}: refused, but the folder has changed"
    yield from (f"{INDENT}{line}" if line else BLANK for line in printed.getvalue().splitlines())
    if status:
        yield f"{INDENT}[{status}]"


def _abridged(line: str, expected: str) -> str:
    """Return the ``expected`` line if it is the ``line`` with ``...`` for some of its text, the ``line`` if not."""
    return expected if re.fullmatch(re.escape(expected).replace(r"\.\.\.", ".*"), line) else line


def _lines(text: str) -> Iterator[str]:
    """Run the lines of a case in the current folder, and yield them with what the commands print."""
    names = dict(NAMES)
    lines = text.splitlines()
    while lines:
        line = lines.pop(0)
        yield line
        if line.startswith(PYTHON):
            exec(line.removeprefix(PYTHON), names)
        elif line.startswith(COMMAND):
            expected = []
            while lines and lines[0].startswith(INDENT) and not lines[0].startswith((PYTHON, COMMAND)):
                expected.append(lines.pop(0))
            for printed, wanted in zip_longest(_printed(line.removeprefix(COMMAND)), expected, fillvalue=""):
                if printed:
                    yield _abridged(printed, wanted)


def case_today(case: Path, folder: Path) -> str:
    """Return the text of a case with what its commands print today, run in an empty ``folder``."""
    shutil.copytree(case, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("case.md"))
    for name in ("digits.onnx", "digits-float.onnx", "images.npy"):
        shutil.copyfile(DIGITS / name, folder / name)
    with chdir(folder):
        return "".join(f"{line}\n" for line in _lines((case / "case.md").read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", sorted(path.parent.name for path in CASES.glob("*/case.md")))
def test_case(name, tmp_path):
    assert case_today(CASES / name, tmp_path) == (CASES / name / "case.md").read_text(encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            (CASES / name / "case.md").write_text(case_today(CASES / name, Path(folder)), encoding="utf-8")
