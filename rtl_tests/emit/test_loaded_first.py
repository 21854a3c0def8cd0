"""Hardware that begins without weights (UltraRAM), behind its bus wrapper: the emitted drivers load, run and refuse."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import cocotb_bench
import numpy as np
import pytest
from c_driver import compiled, described, needs_gcc
from cocotb_bench import needs_cocotb
from driver_runs import packed
from loadable import model, runtime, verilog_of
from vivado import needs_tcl, run

import hwgen
from hwgen.emit import driver, project, weights

EMPTY = (
    "the hardware holds no weights, or a part of some: call load_weights with a file of weights, such as NAME.weights "
    "beside the design"
)


@pytest.fixture(scope="module")
def design(tmp_path_factory) -> Path:
    """Folder of the first model's design on a Kria board, with the weights of both convolutions in UltraRAM."""
    folder = tmp_path_factory.mktemp("built")
    first = hwgen.load(model(folder, 0))
    plan = json.loads(first.plan("kv260", dsp=8, weights="runtime").to_json())
    for layer in plan["groups"][0]["layers"]:
        if layer["weights"]:
            layer["weights"] = "ultra"
    (folder / "plan.json").write_text(json.dumps(plan))
    made = first.plan("kv260", plan=folder / "plan.json")
    assert made.resources["uram"] == 3
    return made.build(folder / "design")


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> list[Path]:
    """The model that the design was built of, and a retrained one."""
    folder = tmp_path_factory.mktemp("models")
    return [model(folder, seed) for seed in (0, 1)]


@pytest.fixture(scope="module")
def files(design, models, tmp_path_factory) -> list[Path]:
    """Weights of both models: the file in the result folder, and one of the retrained model."""
    other = tmp_path_factory.mktemp("weights") / "other.weights"
    other.write_bytes(hwgen.load(models[1]).retrained(design).weights)
    return [design / "twoconv.weights", other]


def random_frames(count: int) -> np.ndarray:
    return np.random.default_rng(2).integers(0, 256, (count, 2, 6, 4)).astype(np.uint8)


@pytest.mark.long
@needs_cocotb
@pytest.mark.parametrize("through_linux", [False, True])
def test_python_driver(design, models, files, tmp_path, through_linux):
    """Frames are refused before the first load and behind loads that Ctrl-C ends; a load gives its model's values."""
    frames = random_frames(3)
    np.save(tmp_path / "x.npy", frames)
    own, other = map(str, files)
    steps: list[tuple[dict[str, Any], int | None]] = [
        ({"error": EMPTY}, None),
        ({"weights": own, "interrupted": 20, "error": "interrupted"}, None),
        ({"error": EMPTY}, None),
        ({"error": EMPTY, "restarts": True}, None),
        ({"weights": own}, 0),
        ({"restarts": True}, 0),  # another program finds the weights of the one before
        ({}, 0),
        ({"weights": other}, 1),
        ({"weights": own, "interrupted": 40, "error": "interrupted", "restarts": True}, None),
        ({"error": EMPTY}, None),
        ({"weights": own}, 0),
    ]
    common = {"x": [str(tmp_path / "x.npy")], "frames": 3, "integers": True, "cut": 0, "error": ""}
    runs = [common | {"y": str(tmp_path / f"y{index}.npz")} | step for index, (step, _) in enumerate(steps)]
    registers = described(design)
    (script,) = design.glob("*_driver.py")
    cocotb_bench.run(
        verilog_of(design), registers["module"], "cocotb_driver", tmp_path,
        driver=str(script), design=str(design), registers=registers, runs=runs, linux=through_linux,
    )  # fmt: skip
    for index, (_, seed) in enumerate(steps):
        if seed is not None:
            with np.load(tmp_path / f"y{index}.npz") as outputs:
                np.testing.assert_array_equal(outputs["arr_0"], runtime(models[seed], frames))


@needs_gcc
@needs_cocotb
def test_c_driver(design, models, files, tmp_path):
    """One status says that there are no weights: before the first load, behind wrong loads and a reset in one."""
    frames = random_frames(2)
    np.save(tmp_path / "x.npy", frames)
    registers = described(design)
    cocotb_bench.run(
        verilog_of(design), registers["module"], "cocotb_c_driver", tmp_path,
        library=str(compiled(design, tmp_path)), registers=registers, x=[str(tmp_path / "x.npy")],
        y=str(tmp_path / "y0.npz"), weights=str(files[0]), begins_empty=True, cut=False,
        reloaded=[[str(files[1]), str(tmp_path / "y1.npz")], [str(files[0]), str(tmp_path / "y2.npz")]],
    )  # fmt: skip
    for index, seed in enumerate((0, 1, 0)):
        with np.load(tmp_path / f"y{index}.npz") as outputs:
            np.testing.assert_array_equal(outputs["arr_0"], runtime(models[seed], frames))


@pytest.mark.long
@needs_cocotb
def test_registers(design, models, files, tmp_path):
    """STATUS.WEIGHTS_GOOD is 0 and frames wait before the first load; then all is as with weights in block RAM."""
    registers = described(design)
    (source,), (sink,) = (list(map(driver.Stream, registers[side])) for side in ("inputs", "outputs"))
    (frame,) = random_frames(1)
    outputs = [packed(sink, runtime(path, frame[None])[0]).tobytes().hex() for path in models]
    assert outputs[0] != outputs[1]
    loads = [np.frombuffer(weights.read(path.read_bytes(), path.name)[1], "<u4").tolist() for path in files]
    cocotb_bench.run(
        verilog_of(design), registers["module"], "cocotb_weights", tmp_path, registers=registers,
        loads=loads, frame=packed(source, frame).tobytes().hex(), outputs=outputs, begins_empty=True,
    )  # fmt: skip


@needs_tcl
def test_projects_bring_the_weights(design, tmp_path):
    """The files for a PYNQ board and the IP contain the weights that a driver has to load, and what describes them."""
    folder = shutil.copytree(design, tmp_path / "built")
    done = run(folder, (), script=project.NAME)
    assert done.returncode == 0, done.stderr
    for copies in ("pynq", "ip/software"):
        for name in ("weights.json", "twoconv.weights"):
            assert (folder / copies / name).read_bytes() == (folder / name).read_bytes()


def test_the_header_shows_the_load(design):
    """Its example loads weights before the first frame."""
    example = (design / "twoconv_driver.h").read_text().split("*/")[0]
    calls = [line.split("twoconv_")[-1].split("(")[0] for line in example.splitlines() if "(&device" in line]
    assert calls == ["open", "load_weights", "run"]
