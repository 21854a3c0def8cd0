"""Weights loaded at run time: files made, refused and loaded, and hardware that begins without weights."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import cocotb_bench
import numpy as np
import onnx
import onnxruntime
import pytest
from c_driver import compiled, described, needs_gcc
from cocotb_bench import needs_cocotb
from driver_runs import Still, packed, still_dma
from needs import needs_compiler, needs_icarus
from onnx import TensorProto, helper, numpy_helper
from onnx_writing import as_model
from vivado import needs_tcl, run

import hwgen
from hwgen.cli import main as cli
from hwgen.emit import driver, vivado_files, weights
from hwgen.errors import InputError, PlanError
from hwgen.gateware.cost import Resources
from hwgen.network.maps import Requantisation
from hwgen.network.ops import Conv
from hwgen.report.page import engine as sections


def model(
    folder: Path,
    seed: int,
    *,
    kernel: int = 3,
    zero: int = 7,
    x_scale: float = 0.02,
    deep: int = 4,
    most: tuple[int, int] = (127, 127),
) -> Path:
    """Two QLinearConvs, a max pool and a QLinearGlobalAveragePool, with random weights, biases and scales.

    ``most``: how large weights of either QLinearConv are at most.
    """
    rng = np.random.default_rng(seed)
    nodes, constants = [], []

    def constant(name: str, value: Any) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def scale(name: str, most: float) -> str:
        return constant(name, rng.uniform(most / 2, most, ()).astype(np.float32))

    before, channels = "x", 2
    scales = [constant("x_scale", np.float32(x_scale)), constant("x_zero", np.uint8(zero))]
    for (name, outputs, size), limit in zip((("first", deep, kernel), ("second", 3, 1)), most, strict=True):
        each = rng.uniform(0.001, 0.01, outputs).astype(np.float32)
        out = [scale(f"{name}_scale", 0.1), constant(f"{name}_zero", np.uint8(3))]
        nodes.append(
            helper.make_node(
                "QLinearConv",
                [
                    *(before, *scales),
                    constant(
                        f"{name}_w", rng.integers(-limit, limit + 1, (outputs, channels, size, size)).astype(np.int8)
                    ),
                    constant(f"{name}_w_scale", each),
                    constant(f"{name}_w_zero", np.zeros(outputs, np.int8)),
                    *out,
                    constant(f"{name}_bias", rng.integers(-2000, 2000, outputs).astype(np.int32)),
                ],
                [name],
                name=name,
                pads=[size // 2] * 4,
            )
        )
        before, channels, scales = name, outputs, out
    nodes.append(helper.make_node("MaxPool", [before], ["pool"], name="pool", kernel_shape=[2, 2], strides=[2, 2]))
    mean = [scale("mean_scale", 0.1), constant("mean_zero", np.uint8(seed % 5))]
    nodes.append(
        helper.make_node(
            "QLinearGlobalAveragePool", ["pool", *scales, *mean], ["y"], name="mean", domain="com.microsoft"
        )
    )
    path = folder / f"twoconv{seed}" / "twoconv.onnx"
    path.parent.mkdir(exist_ok=True)
    onnx.save(
        as_model(
            nodes,
            {"x": (TensorProto.UINT8, (1, 2, 6, 4))},
            {"y": (TensorProto.UINT8, (1, 3, 1, 1))},
            constants,
            domains=["com.microsoft"],
            ir_version=8,
        ),
        path,
    )
    return path


def runtime(path: Path, frames: np.ndarray) -> np.ndarray:
    """What ONNX Runtime gives."""
    session: Any = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"x": frame[None]})[0] for frame in frames])


def verilog_of(design: Path) -> dict[str, bytes]:
    """What a project takes in."""
    names = [path for path in design.iterdir() if path.suffix in (".v", ".mem") and not path.name.endswith("_tb.v")]
    return {path.name: path.read_bytes() for path in names}


DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"


def joined(folder: Path, seed: int, inputs: tuple[str, str], outputs: tuple[str, str]) -> Path:
    """A QLinearConv of each of two inputs, their sum and a max pool of the first."""
    rng = np.random.default_rng(seed)
    nodes, constants, terms = [], [], []

    def constant(name: str, value: Any) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    before = [constant("scale", np.float32(0.02)), constant("zero", np.uint8(7))]
    for name, source in zip(("p", "q"), inputs, strict=True):
        weights = [
            constant(f"{name}_w", rng.integers(-127, 128, (3, 2, 1, 1)).astype(np.int8)),
            constant(f"{name}_w_scale", np.float32(0.01)),
            constant(f"{name}_w_zero", np.int8(0)),
        ]
        after = [constant(f"{name}_scale", np.float32(rng.uniform(0.04, 0.1))), constant(f"{name}_zero", np.uint8(3))]
        nodes.append(helper.make_node("QLinearConv", [source, *before, *weights, *after], [name], name=name))
        terms += [name, *after]
    total = [constant("sum_scale", np.float32(rng.uniform(0.04, 0.1))), constant("sum_zero", np.uint8(5))]
    nodes.append(helper.make_node("QLinearAdd", [*terms, *total], [outputs[0]], name="sum", domain="com.microsoft"))
    nodes.append(helper.make_node("MaxPool", ["p"], [outputs[1]], name="pool", kernel_shape=[2, 2], strides=[2, 2]))
    sides = {outputs[0]: 4, outputs[1]: 2}
    path = folder / f"joined{seed}.onnx"
    onnx.save(
        as_model(
            nodes,
            dict.fromkeys(inputs, (TensorProto.UINT8, (1, 2, 4, 4))),
            {name: (TensorProto.UINT8, (1, 3, side, side)) for name, side in sides.items()},
            constants,
            domains=["com.microsoft"],
            ir_version=8,
        ),
        path,
    )
    return path


@pytest.fixture(scope="module")
def design(tmp_path_factory) -> Path:
    """Of the first model."""
    folder = tmp_path_factory.mktemp("built")
    plan = hwgen.load(model(folder, 0)).plan("zedboard", dsp=40, weights="runtime")
    return plan.build(folder / "design")


def test_plan(tmp_path):
    """The plan says so and can be read back; its circuit is the same, and its interval that of constants."""
    first = hwgen.load(model(tmp_path, 0))
    plan = first.plan("zedboard", dsp=40, weights="runtime")
    assert json.loads(plan.to_json())["weights"] == "runtime"
    assert plan.config.loader is not None
    words = plan.config.loader.packet_words
    assert len(plan.config.weight_packet) == 4 * words
    assert f"\nweights are loaded at run time: {words:,} words of 32 bits, one per cycle\n" in plan.table()
    (group,) = plan.plan.groups
    parts = sum((used for _, used in sections.of_group(group).resources(group, plan.plan)), Resources())
    assert parts == plan.plan.resources
    (tmp_path / "plan.json").write_text(plan.to_json())
    again = first.plan("zedboard", plan=tmp_path / "plan.json")
    assert again.config == plan.config
    assert plan.interval == first.plan("zedboard", dsp=40, multipliers="dsp").interval
    assert "weights" not in json.loads(first.plan("zedboard", dsp=40, multipliers="dsp").to_json())


@needs_icarus
@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.long), 1])
def test_loaded(design, tmp_path, seed):
    """The design's own Verilog, with other weights and with its own: what ONNX Runtime makes of that model."""
    path = model(tmp_path, seed)
    frames = np.random.default_rng(2).integers(0, 256, (3, 2, 6, 4)).astype(np.uint8)
    found = hwgen.load(path).retrained(design)
    result = found.simulate(frames, simulator="icarus")
    assert result.ok
    np.testing.assert_array_equal(result.outputs, runtime(path, frames))
    if seed:  # and not what was built
        outputs: Any = result.outputs
        assert not np.array_equal(outputs, runtime(model(tmp_path, 0), frames))
    assert (result.latency, result.interval) == (result.predicted_latency, result.predicted_interval)


@needs_icarus
@pytest.mark.parametrize("most", [pytest.param((7, 127), marks=pytest.mark.long), (1, 5)])
def test_weights_of_fewer_bits(design, tmp_path, most):
    """All weights of a layer fit fewer bits than those that were built: they are loaded with sign bits in front."""
    path = model(tmp_path, 3, most=most)
    frames = np.random.default_rng(4).integers(0, 256, (2, 2, 6, 4)).astype(np.uint8)
    network = hwgen.load(path).network
    assert any(getattr(layer, "weight_bits", 8) < 8 for layer in network.layers)
    result = hwgen.load(path).retrained(design).simulate(frames, simulator="icarus")
    assert result.ok
    np.testing.assert_array_equal(result.outputs, runtime(path, frames))


@pytest.mark.long
@needs_icarus
def test_names_of_tensors(tmp_path):
    """They may be others than the design's, or the design's in another order: the first input stays the first."""
    built = joined(tmp_path, 0, ("a", "b"), ("y", "z"))
    design = hwgen.load(built).plan("zedboard", dsp=40, weights="runtime").build(tmp_path / "design")
    path = joined(tmp_path, 1, ("b", "c"), ("z", "y"))
    rng = np.random.default_rng(2)
    frames = {name: rng.integers(0, 256, (2, 2, 4, 4)).astype(np.uint8) for name in ("b", "c")}
    result = hwgen.load(path).retrained(design).simulate(frames, simulator="icarus")
    assert result.ok
    session: Any = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    each = [session.run(None, {name: values[n : n + 1] for name, values in frames.items()}) for n in range(2)]
    found: Any = result.outputs
    for name, wanted in zip(("z", "y"), zip(*each, strict=True), strict=True):
        np.testing.assert_array_equal(found[name], np.concatenate(wanted))


def test_file(design, tmp_path, monkeypatch, capfd):
    """What the command line writes: checked as it is read."""
    monkeypatch.chdir(tmp_path)
    path = model(tmp_path, 1)
    default = Path("twoconv.weights")
    default.write_text("mine")  # a name that nobody asked for is not taken from a file of another kind
    assert cli.main(["weights", str(path), "--design", str(design)]) == 2
    assert "would overwrite a file that hwgen did not write: give another file with -o" in capfd.readouterr().err
    default.unlink()
    for _ in range(2):
        assert cli.main(["weights", str(path), "--design", str(design)]) == 0
    assert "twoconv.weights: 84 weights of twoconv" in capfd.readouterr().out.replace(",", "")
    content = (tmp_path / "twoconv.weights").read_bytes()
    document, load = weights.read(content, "twoconv.weights")
    assert document["design"] == json.loads((design / "weights.json").read_text())["digest"]
    assert document["input"]["scale"] == pytest.approx(0.02)
    assert load == hwgen.load(path).retrained(design).config.weight_packet
    for wrong, said in (
        (b"", "twoconv.weights is not a weights file: give one that 'hwgen weights' wrote"),
        (content[:20], "twoconv.weights is cut off: it has 20 bytes; make it again"),
        (content[:-3], f"twoconv.weights must have {len(content):,} bytes, not {len(content) - 3:,}; make it again"),
        (
            content[:-30] + bytes([content[-30] ^ 8]) + content[-29:],
            "twoconv.weights was changed: the CRC-32 of its weights is wrong; make it again",
        ),
        (
            content.replace(b"twoconv", b"Twoconv"),
            "twoconv.weights was changed: the CRC-32 of its head is wrong; make it again",
        ),
    ):
        with pytest.raises(InputError) as caught:
            weights.read(wrong, "twoconv.weights")
        assert str(caught.value) == said


@needs_cocotb
def test_driver(design, tmp_path):
    """On simulated hardware: with the weights that were built, others, a damaged file, and with the first again."""
    paths = [model(tmp_path, seed) for seed in (0, 1)]
    frames = np.random.default_rng(2).integers(0, 256, (3, 2, 6, 4)).astype(np.uint8)
    np.save(tmp_path / "x.npy", frames)
    files = [tmp_path / f"{number}.weights" for number in (0, 1)]
    for path, file in zip(paths, files, strict=True):
        file.write_bytes(hwgen.load(path).retrained(design).weights)
    cut, foreign = tmp_path / "cut.weights", tmp_path / "foreign.weights"
    cut.write_bytes(files[0].read_bytes()[:-8])
    other = hwgen.load(model(tmp_path, 9, deep=3)).plan("zedboard", dsp=40, weights="runtime").config
    foreign.write_bytes(weights.write(other, {}, "twoconv"))
    steps: list[tuple[Path | None, int | None, str]] = [
        (None, 0, ""),
        (files[1], 1, ""),
        (cut, None, f"{cut} is cut off or was changed: make it again"),
        (
            foreign,
            None,
            f"{foreign} is for a design with the digest {weights._digest(other)}, not for this one with "
            f"{weights.read_design(design).digest}: make it with 'hwgen weights' for this folder",
        ),
        (None, 1, ""),
        (files[0], 0, ""),
    ]
    runs = [
        {"x": [str(tmp_path / "x.npy")], "y": str(tmp_path / f"y{number}.npz"), "frames": 3, "integers": True,
         "cut": 0, "error": error, **({} if file is None else {"weights": str(file)})}
        for number, (file, _, error) in enumerate(steps)
    ]  # fmt: skip
    registers = json.loads((design / "registers.json").read_text())
    (script,) = design.glob("*_driver.py")
    cocotb_bench.run(
        verilog_of(design), registers["module"], "cocotb_driver", tmp_path,
        driver=str(script), design=str(design), registers=registers, runs=runs,
    )  # fmt: skip
    for number, (_, seed, _) in enumerate(steps):
        if seed is not None:
            with np.load(tmp_path / f"y{number}.npz") as found:
                np.testing.assert_array_equal(found["arr_0"], runtime(paths[seed], frames))


@pytest.mark.long
@needs_gcc
@needs_cocotb
def test_c_driver(design, tmp_path):
    """The C driver loads the file, and says what is wrong with others."""
    path, file = model(tmp_path, 1), tmp_path / "one.weights"
    frames = np.random.default_rng(2).integers(0, 256, (2, 2, 6, 4)).astype(np.uint8)
    np.save(tmp_path / "x.npy", frames)
    file.write_bytes(hwgen.load(path).retrained(design).weights)
    registers = described(design)
    cocotb_bench.run(
        verilog_of(design), registers["module"], "cocotb_c_driver", tmp_path,
        library=str(compiled(design, tmp_path)), registers=registers, x=[str(tmp_path / "x.npy")],
        y=str(tmp_path / "y.npz"), weights=str(file), cut=False,
    )  # fmt: skip
    with np.load(tmp_path / "y.npz") as found:
        np.testing.assert_array_equal(found["arr_0"], runtime(path, frames))


class Waiting(Still):
    """Hardware that is asked twice before it takes a word, behind a run that ended in an error."""

    def __init__(self, folder: Path):
        super().__init__(folder, ERRORS=1)
        document = json.loads((folder / "registers.json").read_text())
        self.names = {each["offset"]: each["name"] for each in document["registers"]}
        self.words: list[int] = []
        self.asked = 0

    def read(self, offset: int) -> int:
        if self.names[offset] != "STATUS":
            return super().read(offset)
        self.asked += 1
        return 1 << 3 | self.asked % 2 << 4  # WEIGHTS_GOOD, WEIGHTS_WAIT

    def write(self, offset: int, value: int) -> None:
        if self.names[offset] == "ERRORS":
            self.values[offset] &= ~value
        elif self.names[offset].startswith("WEIGHTS"):
            self.words.append(value)


def test_a_load_behind_an_error(design, tmp_path):
    """What a run has left does not end the load in its middle; scales are those of what was loaded."""
    loaded = hwgen.load(model(tmp_path, 1, x_scale=0.04)).retrained(design)
    (tmp_path / "1.weights").write_bytes(loaded.weights)
    registers = Waiting(design)
    accelerator = driver.Accelerator(registers, still_dma(), folder=design)
    accelerator.load_weights(tmp_path / "1.weights")
    assert accelerator.inputs[0].scale == pytest.approx(0.04)
    assert registers.words == np.frombuffer(loaded.config.weight_packet, "<u4").tolist()


class Stuck(Waiting):
    """Hardware whose frames do not leave before it is reset."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.resets = 0

    def read(self, offset: int) -> int:
        stuck = self.names[offset] == "STATUS" and not self.resets
        return 1 << 3 | 1 << 4 if stuck else super().read(offset)

    def write(self, offset: int, value: int) -> None:
        super().write(offset, value)
        if self.names[offset] == "RESET":
            self.resets += value
            self.words = []


def test_frames_that_do_not_leave(design, tmp_path):
    """The word that waits for them is given up, or it would hold back what comes and spoil the next load."""
    loaded = hwgen.load(model(tmp_path, 1, x_scale=0.04)).retrained(design)
    (tmp_path / "1.weights").write_bytes(loaded.weights)
    registers = Stuck(design)
    accelerator = driver.Accelerator(registers, still_dma(), folder=design, timeout=0.01)
    registers.resets = 0  # there is one when a driver is opened
    said = (
        r"^frames on their way did not leave within 0\.01 s: STATUS 24, FRAMES .*; they were dropped by a reset, and "
        r"the weights are those before$"
    )
    with pytest.raises(driver.DriverError, match=said):
        accelerator.load_weights(tmp_path / "1.weights")
    assert registers.resets == 1
    assert accelerator.inputs[0].scale == pytest.approx(0.02)
    accelerator.load_weights(tmp_path / "1.weights")
    assert registers.words == np.frombuffer(loaded.config.weight_packet, "<u4").tolist()
    assert registers.resets == 1


@pytest.mark.long
@needs_cocotb
def test_registers(design, tmp_path):
    """Wrong loads through registers are flagged; frames wait, or go on, as docs/reference/weights.md has it."""
    paths = [model(tmp_path, seed) for seed in (0, 1)]
    registers = json.loads((design / "registers.json").read_text())
    (source,), (sink,) = (list(map(driver.Stream, registers[side])) for side in ("inputs", "outputs"))
    frame = np.random.default_rng(2).integers(0, 256, source.shape).astype(np.uint8)
    outputs = [packed(sink, runtime(path, frame[None])[0]).tobytes().hex() for path in paths]
    assert outputs[0] != outputs[1]
    loads = [np.frombuffer(hwgen.load(path).retrained(design).config.weight_packet, "<u4").tolist() for path in paths]
    cocotb_bench.run(
        verilog_of(design), registers["module"], "cocotb_weights", tmp_path,
        registers=registers, loads=loads, frame=packed(source, frame).tobytes().hex(), outputs=outputs,
    )  # fmt: skip


@pytest.fixture
def refuse(capfd):
    """Run a command that must be refused: status 2 and one line, which is given back."""

    def run(*arguments: object) -> str:
        assert cli.main([str(each) for each in arguments]) == 2
        line = capfd.readouterr().err
        assert line.count("\n") == 1
        return line.removeprefix("hwgen: ").strip()

    return run


@pytest.mark.long
def test_other_models(design, tmp_path, refuse):
    """Names the layer and what differs; writes nothing."""
    out = tmp_path / "out.weights"

    def said(**changes) -> str:
        return refuse("weights", model(tmp_path, 5, **changes), "--design", design, "-o", out)

    where = f"twoconv does not fit the design in {design}: "
    assert said(zero=9) == (
        f"{where}first: the zero point of its input, which padding takes (compute.window.pad_value) must be 7, as it "
        "was built, not 9"
    )
    assert said(deep=5).startswith("plan layer first is of another network: its output is [4, 6, 4] in the plan")
    assert "first" in said(kernel=5)
    small = hwgen.load(model(tmp_path, 2, most=(7, 127))).plan("zedboard", dsp=40, weights="runtime")
    small.build(tmp_path / "small")
    assert refuse("weights", model(tmp_path, 5), "--design", tmp_path / "small", "-o", out) == (
        f"twoconv does not fit the design in {tmp_path / 'small'}: first: bits of a weight (compute.weight_bits) must "
        "be 4, as it was built, not 8"
    )
    assert not out.exists()
    constant = hwgen.load(model(tmp_path, 0)).plan("zedboard", dsp=40, multipliers="dsp").build(tmp_path / "constant")
    assert refuse("weights", model(tmp_path, 1), "--design", constant) == (
        f"the weights of the design in {constant} are constants: build it with --weights runtime"
    )
    assert refuse("weights", model(tmp_path, 1), "--design", tmp_path) == (
        f"there is no design in {tmp_path}: 'hwgen build --weights runtime' writes one"
    )


def test_simulate_refusals(design, tmp_path, refuse):
    path = model(tmp_path, 1)
    assert refuse("simulate", path, "--design", design, "--random", 1, "--dsp", 4) == (
        "--dsp would change the circuit, but --design's is already built: leave one of them out"
    )
    assert refuse("simulate", path, "--design", design, "--random", 1, "--simulator", "amaranth") == (
        "--design is Verilog, which needs --simulator verilator or icarus, not amaranth"
    )
    given = ("--waves", tmp_path / "x.fst", "--wave-layers", "third")
    assert refuse("simulate", path, "--design", design, "--random", 1, *given) == (
        "waves can't record layer 'third': the layers are first, second, pool, mean"
    )
    copy = shutil.copytree(design, tmp_path / "copy")
    (copy / "twoconv.v").write_text((copy / "twoconv.v").read_text() + "//")
    assert refuse("simulate", path, "--design", copy, "--random", 1, "--simulator", "icarus") == (
        f"{copy / 'twoconv.v'} is missing or was changed: build the design again"
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[]", " must be an object, not an array"),
        ("{", " is not JSON: Expecting property name enclosed in double quotes in line 1"),
        ("[" * 100_000, " is not JSON: a number is too long, or it is nested too deep"),
        ('{"module": 1, "digest": 2, "layers": []}', ": layers must be an object, not an array"),
        (
            '{"module": 1, "digest": 2, "layers": {"first": {"compute.weight_bits": "9999"}}}',
            ': first: compute.weight_bits must be 1 to 17, not "9999"',
        ),
        ('{"layers": {"first": {"name": null}}}', ": layers: first: name must be a string, not null"),
        ('{"layers": {}, "inputs": {}}', ": inputs must be an array, not an object"),
        ('{"layers": {}, "inputs": [], "outputs": ["a", 1]}', ": outputs[1] must be a string, not 1"),
    ],
)
def test_damaged_designs(design, tmp_path, refuse, content, reason):
    copy = shutil.copytree(design, tmp_path / "copy")
    (copy / "weights.json").write_text(content)
    assert refuse("weights", model(tmp_path, 1), "--design", copy) == (
        f"{copy / 'weights.json'}{reason}; build the design again"
    )


@pytest.mark.parametrize("content", ["[]", "{", "[" * 100_000])
def test_damaged_plans_of_designs(design, tmp_path, refuse, content):
    copy = shutil.copytree(design, tmp_path / "copy")
    (copy / "plan.json").write_text(content)
    assert refuse("weights", model(tmp_path, 1), "--design", copy) == (
        f"{copy / 'plan.json'} is not as hwgen wrote it: build the design again"
    )


def test_plan_refusals(tmp_path):
    loaded = hwgen.load(model(tmp_path, 0))
    refused: list[tuple[dict[str, Any], str]] = [
        (
            {"template": "pyramid"},
            "weights runtime works only with the template stream, not with pyramid: leave one of them out",
        ),
        (
            {"tile": (2, 2)},
            "weights runtime works only with the template stream, not with pyramid: leave one of them out",
        ),
        (
            {"template": "engine"},
            "weights runtime works only with the template stream, not with engine: leave one of them out",
        ),
        ({"in_turn": True}, "weights runtime works only with one group of all layers: leave groups or in_turn out"),
        ({"requantise": "auto"}, "weights runtime works only with requantise dsp, not auto"),
    ]
    for options, said in refused:
        with pytest.raises(PlanError) as caught:
            loaded.plan("zedboard", weights="runtime", **options)
        assert str(caught.value) == said
    with pytest.raises(PlanError, match=r"^weights must be constant, runtime or auto, not 'later'$"):
        loaded.plan("zedboard", weights="later")
    wide = hwgen.load("vgg16:1@8x8,int16")
    with pytest.raises(PlanError, match=r"^conv1_1: outputs must have at most 8 bits with weights loaded"):
        wide.plan("zedboard", weights="runtime")
    narrow = hwgen.load("vgg16:1@8x8")
    (conv,) = narrow.network.layers
    assert isinstance(conv, Conv)
    assert isinstance(conv.requantisation, Requantisation)
    exact = replace(conv, requantisation=replace(conv.requantisation, float32=False))
    rounded = replace(narrow, network=replace(narrow.network, layers=(exact,)))
    with pytest.raises(PlanError, match=r"^conv1_1: outputs must be requantised in float32"):
        rounded.plan("zedboard", weights="runtime")


@pytest.mark.long
@needs_compiler
@pytest.mark.parametrize("macs_per_dsp", [1, 2])
def test_digits(tmp_path, macs_per_dsp):
    """The digits network, built with other weights, gives what the trained one does once it has loaded these."""
    trained = onnx.load(DIGITS / "digits.onnx")
    other = onnx.ModelProto()
    other.CopyFrom(trained)
    rng = np.random.default_rng(3)
    for tensor in other.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.int8 and values.ndim > 1:
            changed = rng.integers(-127, 128, values.shape).astype(np.int8)
            tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))
    onnx.save(other, tmp_path / "digits.onnx")
    plan = hwgen.load(tmp_path / "digits.onnx").plan("zedboard", weights="runtime", macs_per_dsp=macs_per_dsp)
    design = plan.build(tmp_path / "design")
    images, labels = np.load(DIGITS / "images.npy"), np.load(DIGITS / "labels.npy")
    result = hwgen.load(DIGITS / "digits.onnx").retrained(design).simulate(images)
    assert result.ok
    session: Any = onnxruntime.InferenceSession(DIGITS / "digits.onnx", providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    expected = np.concatenate([session.run(None, {name: image[None]})[0] for image in images])
    outputs: Any = result.outputs
    np.testing.assert_array_equal(outputs.argmax(axis=1), expected.argmax(axis=1))
    assert result.accuracy(labels)["right"] > 400


EMPTY = (
    "the hardware has no weights, or incomplete ones: call load_weights with a weights file, such as NAME.weights "
    "in the folder of the design"
)


@pytest.fixture(scope="module")
def loads_first(tmp_path_factory) -> Path:
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
    return made.build(folder / "loads_first")


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> list[Path]:
    """The model that the design was built of, and a retrained one."""
    folder = tmp_path_factory.mktemp("models")
    return [model(folder, seed) for seed in (0, 1)]


@pytest.fixture(scope="module")
def files(loads_first, models, tmp_path_factory) -> list[Path]:
    """Weights of both models: the file in the result folder, and one of the retrained model."""
    other = tmp_path_factory.mktemp("weights") / "other.weights"
    other.write_bytes(hwgen.load(models[1]).retrained(loads_first).weights)
    return [loads_first / "twoconv.weights", other]


def random_frames(count: int) -> np.ndarray:
    return np.random.default_rng(2).integers(0, 256, (count, 2, 6, 4)).astype(np.uint8)


@pytest.mark.long
@needs_cocotb
@pytest.mark.parametrize("through_linux", [False, True])
def test_python_driver(loads_first, models, files, tmp_path, through_linux):
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
    registers = described(loads_first)
    (script,) = loads_first.glob("*_driver.py")
    cocotb_bench.run(
        verilog_of(loads_first), registers["module"], "cocotb_driver", tmp_path,
        driver=str(script), design=str(loads_first), registers=registers, runs=runs, linux=through_linux,
    )  # fmt: skip
    for index, (_, seed) in enumerate(steps):
        if seed is not None:
            with np.load(tmp_path / f"y{index}.npz") as outputs:
                np.testing.assert_array_equal(outputs["arr_0"], runtime(models[seed], frames))


@needs_gcc
@needs_cocotb
def test_c_driver_that_loads_first(loads_first, models, files, tmp_path):
    """One status says that there are no weights: before the first load, behind wrong loads and a reset in one."""
    frames = random_frames(2)
    np.save(tmp_path / "x.npy", frames)
    registers = described(loads_first)
    cocotb_bench.run(
        verilog_of(loads_first), registers["module"], "cocotb_c_driver", tmp_path,
        library=str(compiled(loads_first, tmp_path)), registers=registers, x=[str(tmp_path / "x.npy")],
        y=str(tmp_path / "y0.npz"), weights=str(files[0]), begins_empty=True, cut=False,
        reloaded=[[str(files[1]), str(tmp_path / "y1.npz")], [str(files[0]), str(tmp_path / "y2.npz")]],
    )  # fmt: skip
    for index, seed in enumerate((0, 1, 0)):
        with np.load(tmp_path / f"y{index}.npz") as outputs:
            np.testing.assert_array_equal(outputs["arr_0"], runtime(models[seed], frames))


@pytest.mark.long
@needs_cocotb
def test_registers_of_what_loads_first(loads_first, models, files, tmp_path):
    """STATUS.WEIGHTS_GOOD is 0 and frames wait before the first load; then all is as with weights in block RAM."""
    registers = described(loads_first)
    (source,), (sink,) = (list(map(driver.Stream, registers[side])) for side in ("inputs", "outputs"))
    (frame,) = random_frames(1)
    outputs = [packed(sink, runtime(path, frame[None])[0]).tobytes().hex() for path in models]
    assert outputs[0] != outputs[1]
    loads = [np.frombuffer(weights.read(path.read_bytes(), path.name)[1], "<u4").tolist() for path in files]
    cocotb_bench.run(
        verilog_of(loads_first), registers["module"], "cocotb_weights", tmp_path, registers=registers,
        loads=loads, frame=packed(source, frame).tobytes().hex(), outputs=outputs, begins_empty=True,
    )  # fmt: skip


@needs_tcl
def test_projects_bring_the_weights(loads_first, tmp_path):
    """The files for a PYNQ board and the IP contain the weights that a driver has to load, and what describes them."""
    folder = shutil.copytree(loads_first, tmp_path / "built")
    done = run(folder, (), script=vivado_files.PROJECT)
    assert done.returncode == 0, done.stderr
    for copies in ("pynq", "ip/software"):
        for name in ("weights.json", "twoconv.weights"):
            assert (folder / copies / name).read_bytes() == (folder / name).read_bytes()


def test_the_header_shows_the_load(loads_first):
    """Its example loads weights before the first frame."""
    example = (loads_first / "twoconv_driver.h").read_text().split("*/")[0]
    calls = [line.split("twoconv_")[-1].split("(")[0] for line in example.splitlines() if "(&device" in line]
    assert calls == ["open", "load_weights", "run"]
