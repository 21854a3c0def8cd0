"""The Python driver of a design: on simulated hardware, and what it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import cocotb_bench
import numpy as np
import onnx
import pytest
from cocotb_bench import needs_cocotb
from driver_runs import DIGITS, Still, packed, ports, still_dma, unpacked
from hypothesis import given, settings
from hypothesis import strategies as st
from several_inputs import pictures, siamese

import hwgen
from hwgen.emit import driver, linux, wrapper
from hwgen.gateware.bus.shell import ends_of
from hwgen.network.quantise import quantise
from hwgen.simulate import stimuli


def drive(
    design: hwgen.Design, folder: Path, frames: list[np.ndarray], *, through_linux: bool = False, **more: Any
) -> list[np.ndarray]:
    """All outputs of the last of several runs: frames of the first are cut short, and Ctrl-C ends two others."""
    built = design.build(folder / "built")
    registers = json.loads((built / "registers.json").read_text())
    top = registers["module"]
    sources = [path for path in built.iterdir() if path.suffix in (".v", ".mem") and not path.name.endswith("_tb.v")]
    x = []
    for number, each in enumerate(frames):
        np.save(folder / f"x{number}.npy", each)
        x.append(str(folder / f"x{number}.npy"))
    error = f"a frame on {registers['inputs'][0]['name']} ended too early, and was completed with zeros"
    run = {
        "x": x,
        "y": str(folder / "y.npz"),
        "frames": len(frames[0]),
        "integers": False,
        "cut": 0,
        "error": "",
        **more,
    }
    (script,) = built.glob("*_driver.py")
    cocotb_bench.run(
        {path.name: path.read_bytes() for path in sources}, top, "cocotb_driver", folder,
        driver=str(script), design=str(built), registers=registers, linux=through_linux, runs=[
            run | {"cut": 1, "error": error}, run | {"interrupted": 20, "error": "interrupted"},
            run | {"interrupted": 35, "error": "interrupted", "restarts": True}, run,
        ],
    )  # fmt: skip
    with np.load(folder / "y.npz") as found:
        return [found[name] for name in found.files]


@needs_cocotb
@pytest.mark.long
@pytest.mark.parametrize("through_linux", [False, True])
def test_small(tmp_path, through_linux):
    model = hwgen.load("decoilfnet-example")
    frames = model.random_frames(4)
    assert isinstance(frames, np.ndarray)
    design = model.plan("zedboard", dsp=20, multipliers="dsp")
    (found,) = drive(design, tmp_path, [frames], integers=True, through_linux=through_linux)
    np.testing.assert_array_equal(found, model.golden(frames, integers=True))


@pytest.mark.long
@needs_cocotb
def test_digits(tmp_path):
    """The held-out digits, in float on either side."""
    model = hwgen.load(DIGITS / "digits.onnx")
    images, labels = np.load(DIGITS / "images.npy")[:40], np.load(DIGITS / "labels.npy")[:40]
    (found,) = drive(model.plan("zedboard"), tmp_path, [images])
    expected = model.golden(images)
    np.testing.assert_array_equal(found, expected)
    assert (found.argmax(1) == labels).mean() > 0.9


@pytest.mark.long
@needs_cocotb
def test_several_inputs(tmp_path):
    onnx.save(quantise(siamese(), pictures(8), "siamese"), tmp_path / "siamese.onnx")
    model = hwgen.load(tmp_path / "siamese.onnx")
    frames = pictures(5, 1)
    (found,) = drive(model.plan("zedboard", dsp=30, multipliers="dsp"), tmp_path, list(frames.values()))
    np.testing.assert_array_equal(found, model.golden(frames))


# Without hardware


@settings(max_examples=60)
@given(port=ports(), seed=st.integers(0, 2**32))
def test_memory_is_the_beats(port, seed):
    """What lies in memory is the values of the beats that the simulators send, one after the other."""
    beat = port.beat
    (end,) = ends_of([port], "s_axis", [16])
    stream = driver.Stream(json.loads(json.dumps(wrapper.stream(end))))
    assert len(stream.places) * end.value_bytes == end.frame_bytes == stream.frame_bytes
    low, high = beat.value_range
    frame = np.random.default_rng(seed).integers(low, high + 1, stream.shape).astype(stream.dtype)
    values = packed(stream, frame).tolist()
    mask, bits = (1 << beat.bits) - 1, beat.bits
    beats = stimuli.integers(stimuli.pack(frame[None], beat, port.order))
    for number, word in enumerate(beats):
        size = len(beat.fold_channels[number % beat.folds]) * beat.pixels
        mine, values = values[:size], values[size:]
        assert [value & mask for value in mine] == [word >> place * bits & mask for place in range(size)]
    assert not values
    covered = np.unique(stream.places[stream.places >= 0])
    np.testing.assert_array_equal(
        unpacked(stream, packed(stream, frame)).reshape(-1)[covered], frame.reshape(-1)[covered]
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    return (
        hwgen.load("decoilfnet-example")
        .plan("zedboard", dsp=20, multipliers="dsp")
        .build(tmp_path_factory.mktemp("built") / "out")
    )


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"IDENTITY": 0}, r"there is no accelerator of hwgen: IDENTITY is 0x00000000, not 0x4857474e"),
        ({"VERSION": 2 << 16}, r"the hardware's registers are of version 2, this driver is for 1"),
        ({"BUILD_HASH_LOW": 7}, r"the hardware is another design than \w+_axi of this folder: its build hash is "
         r"0x\w+00000007, not 0x\w{16}; load the bitstream that was made of this folder"),
    ],
)  # fmt: skip
def test_other_hardware(built, other, message):
    with pytest.raises(driver.DriverError, match=f"^{message}$"):
        driver.Accelerator(Still(built, **other), still_dma(), folder=built)


def test_frames_that_do_not_fit(built):
    accelerator = driver.Accelerator(Still(built), still_dma(), folder=built, timeout=0.01)
    (end,) = accelerator.inputs
    right = np.zeros((2, *end.shape), end.stream.dtype)
    with pytest.raises(driver.DriverError, match=r"must be numbers of shape \(n, .*\), not uint8 of \(2, 1\)$"):
        accelerator.run(np.zeros((2, 1), np.uint8))
    with pytest.raises(driver.DriverError, match=r"^1 arrays are needed, one an input, not 2$"):
        accelerator.run(right, right)
    with pytest.raises(driver.DriverError, match=r" must lie in -?\d+ \.\. \d+: frame 0 does not$"):
        accelerator.run(right.astype(np.int32) + 1000)
    with pytest.raises(driver.DriverError, match=r"^nothing moved for 0\.01 s: STATUS 0, FRAMES 0, "):
        accelerator.run(right)
    with pytest.raises(driver.DriverError, match=r"^dma must be 1 of them, not 0$"):
        driver.Accelerator(Still(built), [], folder=built)
    with pytest.raises(driver.DriverError, match=r"registers\.json can't be read: No such file or directory$"):
        driver.Accelerator(Still(built), still_dma(), folder=built / "nowhere")


@pytest.mark.parametrize("module", [driver, linux], ids=["driver", "linux"])
def test_the_driver_stands_alone(built, module):
    """As it lies in the folder it needs no hwgen."""
    (script,) = built.glob(f"*_{Path(module.__file__).name}")
    assert script.read_bytes() == Path(module.__file__).read_bytes()
    imports = [line for line in script.read_text().splitlines() if line.startswith(("import ", "from "))]
    names = {line.split()[1].split(".")[0] for line in imports}
    assert names - {"__future__", *sys.stdlib_module_names} == {"numpy"}
