"""The check and the default plan give the reason of each template that can't compute a network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from foreign import begun, by, conv
from onnx import numpy_helper

import hwgen
from hwgen.cli import main as cli
from hwgen.errors import PlanError
from hwgen.plan.alternatives import without_other_template

TIE = "lies so near a tie that the order of additions in ONNX Runtime decides"


def average(folder: Path, scale: float, *, wide: bool = False) -> str:
    """Write a model whose average pool has one scale for input and output, so that a quarter of the sums are ties.

    With ``wide`` it has 1.6 million weights of 6 bits, more than the ZedBoard's 8.6 million bits of memory.

    ONNX Runtime adds floats. Products of whole numbers and a power of two are not rounded, those with 0.1 are.
    """
    writer = begun(frame=(1024, 4, 4)) if wide else begun()
    writer.constants[0].CopyFrom(numpy_helper.from_array(np.float32(scale), writer.scale))
    writer.layer(lambda writer, tensor: writer.conv(tensor, outputs=1600, kernel=1) if wide else conv(writer, tensor))
    writer.layer(by("AveragePool", kernel_shape=[2, 2], strides=[2, 2]))
    onnx.save(writer.model(), folder / "model.onnx")
    return str(folder / "model.onnx")


def test_the_default_plan_gives_the_reason_of_each_template(tmp_path: Path) -> None:
    """The engine's reason is not hidden, and does not send the user back to the template that has just refused."""
    model = hwgen.load(average(tmp_path, 0.1, wide=True))
    with pytest.raises(PlanError) as error:
        model.plan("zedboard")
    (line,) = error.value.lines
    stream, engine = line.split("; the template engine does not compute it either: ")
    assert "BRAM36" in stream
    assert TIE in engine
    assert "--template stream" not in engine
    assert "a scale of the output that is not the input's would work" in engine


@pytest.mark.parametrize(("scale", "refused"), [(0.1, True), (0.125, False)])
def test_the_check_tests_the_engine(scale: float, refused: bool, tmp_path: Path) -> None:
    found = hwgen.check(average(tmp_path, scale), board="zedboard")
    assert found.template == "stream"
    assert bool(found.engine_refusals) == refused
    assert found.to_json()["engine_refusals"] == list(found.engine_refusals)
    assert ("an engine could compute the network" in found.table()) != refused
    assert (
        f"the engine can't compute the network: {found.engine_refusals[0] if refused else '-'}" in found.table()
    ) == refused


def test_rounded_averages_suit_the_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The refusal names the option as it is typed; with it the check says how far results are from ONNX Runtime's."""
    path = average(tmp_path, 0.1)
    assert cli.main(["check", path, "--board", "zedboard"]) == 0
    assert "; --averages rounded would work, with averages that differ from ONNX" in capsys.readouterr().out
    assert cli.main(["check", path, "--board", "zedboard", "--averages", "rounded"]) == 0
    text = capsys.readouterr().out
    assert "an engine could compute the network" in text
    assert "ONNX Runtime computes 1 of 2 layers in float32 (" in text
    assert "): from equal inputs its values differ by at most 1, and only where" in text
    assert cli.main(["check", path, "--averages", "half"]) == 2
    assert "--averages: invalid choice: 'half' (choose from 'exact', 'rounded')" in capsys.readouterr().err
    model = hwgen.load(path, averages="rounded")
    assert model.plan("zedboard", template="engine", cores=1, array=(8, 13)).plan.engine is not None
    with pytest.raises(PlanError, match="--averages rounded would work"):
        hwgen.load(path, averages="exact").plan("zedboard", template="engine", cores=1)


def test_what_the_check_says_of_an_engine_is_so(tmp_path: Path) -> None:
    """Of both models the planner says the same."""
    for scale in (0.1, 0.125):
        path = average(tmp_path, scale)
        model = hwgen.load(path)
        if hwgen.check(path, board="zedboard").engine_refusals:
            with pytest.raises(PlanError, match=TIE):
                model.plan("zedboard", template="engine", cores=1)
        else:
            assert model.plan("zedboard", template="engine", cores=1, array=(8, 13)).plan.engine is not None


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("why; use --template stream", "why"),
        ("why; a smaller alpha, or --template stream, would work", "why; a smaller alpha would work"),
        ("why; another scale would do", "why; another scale would do"),
    ],
)
def test_advice_of_the_other_template_is_left_out(reason: str, expected: str) -> None:
    assert without_other_template(reason) == expected
