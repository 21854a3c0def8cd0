"""The example of a detector: photographs in, boxes out, on the engine.

Reference: ONNX Runtime on ``detector.onnx``, and on the same model with a low bound of scores, which has many boxes.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import hwgen
from hwgen.network import host

pytest.importorskip("skimage", reason="scikit-image has the photographs")

DETECTOR = Path(__file__).resolve().parents[2] / "examples" / "detector"


@pytest.fixture(scope="module")
def example():
    """The example's scripts, by their names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DETECTOR)
        for name in ("run", "photographs"):
            patch.delitem(sys.modules, name, raising=False)
        import photographs
        import run

        yield {"run": run, "photographs": photographs}
        for name in ("run", "photographs"):
            del sys.modules[name]


@pytest.fixture(scope="module")
def eager(tmp_path_factory) -> Path:
    """The model with a box for all that scores 0.02 and more."""
    model = onnx.load(DETECTOR / "detector.onnx")
    bounds = {"selected_2": np.array([200]), "selected_4": np.float32([0.02])}
    for tensor in model.graph.initializer:
        if tensor.name in bounds:
            tensor.CopyFrom(numpy_helper.from_array(bounds.pop(tensor.name), tensor.name))
    assert not bounds
    path = tmp_path_factory.mktemp("eager") / "eager.onnx"
    onnx.save(model, path)
    return path


def by_runtime(path: Path, tensors: list[np.ndarray]) -> list[np.ndarray]:
    """Boxes of each image in a session with default settings."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return [np.asarray(session.run(None, {"image": tensor})[0]) for tensor in tensors]


def same(boxes: np.ndarray, expected: list[np.ndarray]) -> int:
    """Check the boxes of each image, and return the number of all boxes."""
    assert len(boxes) == len(expected)
    for values, wanted in zip(boxes, expected, strict=True):
        assert (values.dtype, values.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_array_equal(values, wanted)
    return sum(map(len, expected))


def test_photographs(example) -> None:
    """Twenty different ones, none of which calibrates."""
    photographs = example["photographs"]
    assert len(set(photographs.PHOTOGRAPHS)) == 20
    assert not set(photographs.PHOTOGRAPHS) & set(photographs.CALIBRATION)
    tensors = [example["run"].tensor(photograph.image()) for photograph in photographs.PHOTOGRAPHS]
    assert len({tensor.tobytes() for tensor in tensors}) == 20
    assert {(tensor.shape, tensor.dtype) for tensor in tensors} == {((1, 3, 128, 128), np.dtype(np.float32))}


def test_boxes_of_the_golden_model(example, eager) -> None:
    """Two photographs, by the integers of both models' heads."""
    chosen = [example["photographs"].PHOTOGRAPHS[index] for index in (3, 10)]
    tensors = [example["run"].tensor(photograph.image()) for photograph in chosen]
    model = hwgen.load(DETECTOR / "detector.onnx")
    heads = model.golden(np.concatenate(tensors), integers=True)
    maps = host.output_maps(model.network, [*heads.values()])
    assert same(model.complete(maps, np.concatenate(tensors)), by_runtime(DETECTOR / "detector.onnx", tensors)) == 9
    assert same(hwgen.load(eager).complete(maps, np.concatenate(tensors)), by_runtime(eager, tensors)) > 30


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None or shutil.which("make") is None, reason="Verilator needs g++ and make")
def test_every_box_in_hardware(example, eager, tmp_path, monkeypatch, capsys) -> None:
    """The example's own command on its twenty photographs, then many more boxes from the heads that it computed."""
    sessions = []

    class Recorded(hwgen.Session):
        def __init__(self, *arguments, **options) -> None:
            super().__init__(*arguments, **options)
            sessions.append(self)

    monkeypatch.setattr(hwgen, "Session", Recorded)
    monkeypatch.chdir(tmp_path)
    assert example["run"].main([]) == 0
    result = sessions[0].device.result
    readme = capsys.readouterr().out.splitlines()[-2:]
    assert readme == [result.summary(), "20 of 20 images have ONNX Runtime's boxes, 39 in all"]
    assert "\n".join(readme) in (DETECTOR.parents[1] / "docs" / "howto" / "detector.md").read_text()
    assert (tmp_path / "build" / "detector" / "boxes.png").stat().st_size > 10_000
    tensors = [example["run"].tensor(photograph.image()) for photograph in example["photographs"].PHOTOGRAPHS]
    model = hwgen.load(eager)
    maps = host.output_maps(model.network, [*result.integers.values()])
    assert same(model.complete(maps, np.concatenate(tensors)), by_runtime(eager, tensors)) > 300
