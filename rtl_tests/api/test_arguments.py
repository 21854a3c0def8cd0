"""Arguments of the Python interface: what is of a wrong type is refused in one sentence, before any work begins."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hwgen
from hwgen import api, arguments
from hwgen.errors import HwgenError
from hwgen.network.options import ModelOptions
from hwgen.options import table

MODEL = str(Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx")
#: Public functions of the interface that are no concern of `arguments.checked`: they take paths and texts only.
READERS = {"read_array", "read_archive", "read_inputs"}


@pytest.fixture(scope="module")
def model() -> api.Model:
    return hwgen.load(MODEL)


@pytest.fixture(scope="module")
def design(model: api.Model) -> api.Design:
    return model.plan("zedboard")


def refuse(function: Callable[..., Any], *given: Any, **named: Any) -> str:
    with pytest.raises(HwgenError) as caught:
        function(*given, **named)
    assert len(caught.value.lines) == 1
    assert "object at 0x" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("cluster", 3, "cluster must be the address of a Dask scheduler, or local:N, not 3"),
        ("cluster", ["local:2"], "cluster must be the address of a Dask scheduler, or local:N, not a list"),
        ("plan", 7, "plan must be the path of a plan.json, not 7"),
        ("plan", {"groups": []}, "plan must be the path of a plan.json, not a dict"),
        ("plan", "a\0b", r"plan must be the path of a plan.json, not 'a\x00b'"),
        ("progress", "yes", "progress must be True, False, or a function that takes a Step, not 'yes'"),
        ("jobs", 2.0, "jobs must be a positive integer, not 2.0"),
        ("jobs", 0, "jobs must be a positive integer, not 0"),
        ("plan", "\ud800", "plan must be the path of a plan.json, not "),
        ("plan", "A" * 300, "plan must be the path of a plan.json, not 'AAAA"),
        ("objective", np.zeros(2), "objective must be a number, text or a pair of numbers, not ndarray"),
        ("tile", object(), "tile must be a number, text or a pair of numbers, not object"),
        ("colour", 1, "unknown option colour: a plan has "),
    ],
)
def test_plans(model: api.Model, name: str, value: Any, message: str) -> None:
    assert refuse(model.plan, "zedboard", **{name: value}).startswith(message)


@pytest.mark.parametrize("board", [None, 3, ["zedboard"], b"zedboard", ""])
def test_boards(model: api.Model, board: Any) -> None:
    assert refuse(model.plan, board).startswith(
        "board must be the name of a board, the path of a .toml file, or a Board"
    )


@pytest.mark.parametrize("boards", [3, None, ["zedboard", 3], [], [None]])
def test_boards_of_a_sweep(model: api.Model, boards: Any) -> None:
    assert "board must be " in refuse(hwgen.sweep, model, boards)


@pytest.mark.long
def test_several_boards(model: api.Model) -> None:
    made = hwgen.sweep([model], ["zedboard", "arty-z7-20"], dsp=[100, 200])
    assert [row["board"] for row in made.rows] == ["zedboard", "zedboard", "arty-z7-20", "arty-z7-20"]


@pytest.mark.parametrize("models", [3, "vgg16", [MODEL], []])
def test_models_of_a_sweep(models: Any) -> None:
    assert refuse(hwgen.sweep, models, "zedboard").startswith("models must be a Model, or a sequence of Models, ")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("seed", "1", "seed must be an integer, 0 or more, not '1'"),
        ("seed", -1, "seed must be an integer, 0 or more, not -1"),
        ("seed", 1.5, "seed must be an integer, 0 or more, not 1.5"),
        ("stalls", 0.5, "stalls must be a sequence of probabilities, each from 0 to below 1, not 0.5"),
        ("stalls", ("0.5",), "stalls must be a sequence of probabilities, each from 0 to below 1, not a tuple"),
        ("waves", 1, "waves must be the path of a .vcd or .fst file, not 1"),
        ("wave_frames", 3, "wave_frames must be two integers, the first frame and the last one plus 1, not 3"),
        ("wave_layers", [1], "wave_layers must be a sequence of layers' names, not a list"),
        ("simulator", None, "simulator must be verilator, icarus or amaranth, not None"),
        ("memory_latency", -3, "memory_latency must be a number of cycles, 0 or more, not -3"),
        ("bandwidth", float("nan"), "bandwidth must be a positive number of GB/s, not nan"),
        ("progress", 1, "progress must be True, False, or a function that takes a Step, not 1"),
    ],
)
def test_simulations(design: api.Design, name: str, value: Any, message: str) -> None:
    x = np.zeros((1, 1, 8, 8), np.float32)
    assert refuse(design.simulate, x, **{name: value}) == message


@pytest.mark.parametrize(
    ("x", "message"),
    [
        *((x, "x must be an array of frames, or one for each input") for x in (None, 3, "x.npy", b"", {3: [1]})),
        ([1, 2], "digits: input must be a NumPy array, not int"),
        ({"x": [1]}, "digits: has one input (image), and frames must name these, not x"),
        ({"image": [1]}, "digits: input must be a NumPy array, not list"),
    ],
)
def test_frames(model: api.Model, x: Any, message: str) -> None:
    for function in (model.golden, model.prepare):
        assert refuse(function, x).startswith(message)


@pytest.mark.parametrize(
    ("function", "given", "name"),
    [
        (hwgen.load, (3,), "source"),
        (hwgen.load, ("a\0.onnx",), "source"),
        (hwgen.load, (MODEL, 3), "calibration"),
        (hwgen.load, (MODEL, None, "8"), "bits"),
        (hwgen.check, (None,), "source"),
    ],
)
def test_models(function: Callable[..., Any], given: tuple[Any, ...], name: str) -> None:
    assert refuse(function, *given).startswith(f"{name} must be ")


def test_missing_arguments(model: api.Model) -> None:
    """Those are Python's own errors, in a sentence."""
    with pytest.raises(TypeError, match=r"^Model\.plan: missing a required argument: 'board'$"):
        model.plan()  # type: ignore[call-arg]


def test_options_beside_a_plan(model: api.Model, tmp_path: Path) -> None:
    """An array has no truth value."""
    assert refuse(model.plan, "zedboard", plan=tmp_path / "p.json", tile=np.zeros(2)).startswith(
        "plan gives a finished plan, which tile"
    )


def test_counts(model: api.Model) -> None:
    assert refuse(model.random_frames, object()) == "count of random frames must be a positive integer, not an object"


def test_every_parameter_is_checked() -> None:
    """Of all public functions and methods; the options of a plan and of a model are checked by their entries."""
    others = {"self", "options", "count", "models", "boards", *table(ModelOptions)}
    functions = [getattr(hwgen, name) for name in hwgen.__all__ if inspect.isfunction(getattr(hwgen, name))]
    functions += [
        function
        for owner in (api.Model, api.Design)
        for name, function in inspect.getmembers(owner, inspect.isfunction)
        if not name.startswith("_")
    ]
    assert len(functions) > 15
    for function in functions:
        parameters = set(inspect.signature(function).parameters) - others
        assert parameters <= set(arguments._CHECKS), function
        assert not parameters or hasattr(function, "__wrapped__") or function.__name__ in READERS, function
