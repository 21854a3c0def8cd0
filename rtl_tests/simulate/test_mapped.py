"""Frames of a ``.npy`` file are mapped: what `hwgen golden` takes of memory doesn't grow with them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import hwgen
from hwgen import api
from hwgen.cli import main as cli
from hwgen.network import golden

ROOT = Path(__file__).resolve().parents[2]
SIDE = 256


@pytest.fixture(scope="module")
def pool(tmp_path_factory) -> Path:
    """A max pool between QuantizeLinear and DequantizeLinear: large frames, little work."""

    def quantise(kind: str, source: str, target: str) -> onnx.NodeProto:
        return helper.make_node(kind, [source, "scale", "zero"], [target])

    nodes = [
        quantise("QuantizeLinear", "x", "integers"),
        quantise("DequantizeLinear", "integers", "reals"),
        helper.make_node("MaxPool", ["reals"], ["pooled"], kernel_shape=[4, 4], strides=[4, 4]),
        quantise("QuantizeLinear", "pooled", "less"),
        quantise("DequantizeLinear", "less", "y"),
    ]
    constants = [
        numpy_helper.from_array(np.float32(0.5), "scale"),
        numpy_helper.from_array(np.uint8(3), "zero"),
    ]
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 1, side, side])]
        for name, side in (("x", SIDE), ("y", SIDE // 4))
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "pool", *ends, constants), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    path = tmp_path_factory.mktemp("pool") / "pool.onnx"
    onnx.save(model, path)
    return path


def save(path: Path, count: int) -> np.ndarray:
    """Write so many frames, no two alike, and return them."""
    steps = np.arange(count * SIDE * SIDE, dtype=np.uint32).reshape(count, 1, SIDE, SIDE) * np.uint32(2654435761)
    frames = (steps >> np.uint32(25)).astype(np.float32)
    np.save(path, frames)
    return frames


def test_values_of_parts(pool, tmp_path, monkeypatch, capfd):
    """Part by part they are ONNX Runtime's, and the file is as `numpy.save` writes it."""
    monkeypatch.chdir(tmp_path)
    frames = save(tmp_path / "x.npy", 7)
    monkeypatch.setattr(golden, "PART_VALUES", 2 * SIDE * SIDE)
    assert cli.main(["golden", str(pool), "--input", "x.npy", "--output", "y.npy"]) == 0
    assert capfd.readouterr().out == f"7 frames, {7 * (SIDE // 4) ** 2:,} values of float32: y.npy\n"
    session = onnxruntime.InferenceSession(pool, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": frames})
    np.save("z.npy", np.asarray(expected))
    assert Path("y.npy").read_bytes() == Path("z.npy").read_bytes()
    np.testing.assert_array_equal(hwgen.load(pool).golden(frames), expected)
    frames[5, 0, 2, 1] = np.nan
    frames[6, 0, 0, 0] = np.inf
    np.save("x.npy", frames)
    Path("y.npy").unlink()
    assert cli.main(["golden", str(pool), "--input", "x.npy", "--output", "y.npy"]) == 2
    assert "not 2 NaN or infinite (first at (5, 0, 2, 1))" in capfd.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npy", "z.npy"]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(4, dtype=">f4"),
        np.empty((0, 3)),
        np.float32(3),
    ],
)
def test_what_is_mapped_is_what_was_saved(tmp_path, array):
    np.save(tmp_path / "x.npy", array)
    found = api.read_array(tmp_path / "x.npy")
    np.testing.assert_array_equal(found, array)
    assert found.shape == np.shape(array)
    assert found.dtype.isnative
    assert type(found) is np.ndarray
    golden.release(found)
    np.testing.assert_array_equal(found, array)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_memory_does_not_grow_with_the_frames(pool, tmp_path):
    """40 MB of frames, in parts of 4 MB: beside 4 MB of them no more than some 20 MB are taken."""
    program = (
        "import sys; from pathlib import Path\n"
        "from hwgen.network import golden\n"
        "golden.PART_VALUES = 1 << 20\n"
        "from hwgen.cli.main import main\n"
        f"status = main(['golden', {str(pool)!r}, '--input', sys.argv[1], '--output', sys.argv[2]])\n"
        "print(status, Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])\n"
    )
    most = []
    for count in (16, 160):
        path = tmp_path / f"{count}.npy"
        save(path, count)
        command = [sys.executable, "-c", program, str(path), str(tmp_path / "y.npy")]
        run = subprocess.run(
            command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        status, kilobytes = run.stdout.split()[-2:]
        assert status == "0"
        most.append(int(kilobytes))
    assert np.load(tmp_path / "y.npy", mmap_mode="r").shape == (160, 1, SIDE // 4, SIDE // 4)
    assert most[1] - most[0] < 20_000
