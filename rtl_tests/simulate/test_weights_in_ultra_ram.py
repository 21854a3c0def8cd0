"""Weights in UltraRAM, which begins with zeros: plans, simulations that load first, built folders, Yosys' counts."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from needs import needs_compiler, needs_icarus
from vcd.reader import TokenKind, tokenize

import hwgen
from hwgen import boards
from hwgen.cli.main import main
from hwgen.emit import weights
from hwgen.errors import InputError, PlanError
from hwgen.tools import synthesis

MODEL = str(Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx")
OPTIONS = {"weights": "runtime", "dsp": 40}


@pytest.fixture(scope="module")
def model() -> hwgen.Model:
    return hwgen.load(MODEL)


def with_weights_in_ultra_ram(text: str, *, joined: str = "") -> str:
    """The plan with all weights of block RAM in UltraRAM; those of the layer ``joined`` side by side in one memory."""
    plan = json.loads(text)
    for layer in plan["groups"][0]["layers"]:
        if layer["weights"] == "block":
            layer |= {"weights": "ultra", **({"weights_joined": True} if layer["name"] == joined else {})}
    return json.dumps(plan)


@pytest.fixture(scope="module")
def design(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    path.write_text(with_weights_in_ultra_ram(model.plan("kv260", **OPTIONS).to_json(), joined="conv3"))
    return model.plan("kv260", plan=path)


@pytest.fixture(scope="module")
def short() -> hwgen.Model:
    """The first three layers of the model, two of which have weights: what is simulated."""
    return hwgen.load(MODEL, until="pool1_out")


@pytest.fixture(scope="module")
def short_design(short, tmp_path_factory):
    path = tmp_path_factory.mktemp("short") / "plan.json"
    path.write_text(with_weights_in_ultra_ram(short.plan("kv260", weights="runtime", dsp=20).to_json(), joined="conv2"))
    made = short.plan("kv260", plan=path)
    assert list(memories(made).values()) == ["ultra", "ultra"]
    return made


def memories(design) -> dict[str, str]:
    return {layer.name: layer.compute.weight_memory for layer in design.config.layers if layer.compute.weight_memory}


def test_plans_say_which_weights_are_in_ultra_ram(model, design, tmp_path):
    """A plan is written again as it was read, with the block RAM, the cycles and the slices that follow."""
    plain = model.plan("kv260", **OPTIONS)
    moved = [name for name, memory in memories(design).items() if memory == "ultra"]
    assert moved == [name for name, memory in memories(plain).items() if memory == "block"]
    assert len(moved) > 2
    assert f"weights {', '.join(moved)}\n" in design.table()
    assert "\nUltraRAM has no initial contents: load the weights before the first frame\n" in design.table()
    path = tmp_path / "plan.json"
    path.write_text(design.to_json())
    assert model.plan("kv260", plan=path).to_json() == design.to_json()
    assert (design.latency, design.interval) == (plain.latency, plain.interval)
    used, before = design.resources, plain.resources
    assert used["dsp"] == before["dsp"]
    assert used["bram36"] < before["bram36"]
    widths = [
        width
        for layer in design.config.layers
        if layer.compute.weight_memory == "ultra"
        for width in layer.compute.weight_words.widths
    ]
    assert used["uram"] == sum(-(-width // 72) for width in widths)  # no memory is deeper than 4,096 words


@pytest.mark.parametrize(
    ("board", "options", "why"),
    [
        ("zedboard", OPTIONS, "zedboard has no UltraRAM"),
        (
            "kv260",
            {"dsp": 40, "multipliers": "dsp"},
            r"UltraRAM begins with zeros, so that its weights must be loaded at run time \(--weights runtime\)",
        ),
    ],
    ids=["board-without-ultra-ram", "constant-weights"],
)
def test_refused(model, tmp_path, board, options, why):
    path = tmp_path / "plan.json"
    path.write_text(with_weights_in_ultra_ram(model.plan(board, **options).to_json()))
    with pytest.raises(
        PlanError,
        match=rf'^{path}: plan layer \w+: weights must be "lut", "block" or "stream" \({why}\), not "ultra"$',
    ):
        model.plan(board, plan=path)


@pytest.mark.parametrize("dsp", [8, pytest.param(12, marks=pytest.mark.long)])
def test_words_of_memories_of_different_widths_are_wired(short, tmp_path, dsp):
    """Narrower memories read the upper part of the loaded word, which has a port of its own."""
    path = tmp_path / "plan.json"
    text = short.plan("kv260", weights="runtime", dsp=dsp).to_json()
    path.write_text(with_weights_in_ultra_ram(text, joined="conv2"))
    folder = short.plan("kv260", plan=path).build(tmp_path / "out")
    assert "loaded_word[" in (folder / "digits.proofs.json").read_text()
    assert main(["prove", str(folder), "--only", "wires"]) == 0


@pytest.mark.parametrize("simulator", [pytest.param("verilator", marks=pytest.mark.long), "icarus"])
def test_simulations_load_first(short, short_design, simulator):
    """Values are those of the golden model, and cycles those of the plan, which count from the first beat."""
    if simulator == "icarus" and shutil.which("iverilog") is None:
        pytest.skip("Icarus is not installed")
    result = short_design.simulate(short.random_frames(3, seed=4), simulator=simulator)
    assert (result.mismatches, result.as_predicted) == (0, True)


@pytest.mark.long
@needs_compiler
def test_waves_of_layers_that_load_first(short, short_design, tmp_path):
    """Waves can be of some layers, which are within the module that loads, as the save file's decoders are."""
    path = tmp_path / "conv2.vcd"
    assert short_design.simulate(short.random_frames(1, seed=8), waves=path, wave_layers=["conv2"]).ok
    scope, recorded = [], set()
    with path.open("rb") as file:
        for token in tokenize(file):
            if token.kind is TokenKind.SCOPE:
                scope.append(token.scope.ident)
            elif token.kind is TokenKind.UPSCOPE:
                scope.pop()
            elif token.kind is TokenKind.VAR:
                recorded.add(".".join(scope))
    top = "TOP.digits_loading"
    own = {name for name in recorded if name.startswith(top)}
    assert {f"{top}.accelerator.conv2", f"{top}.stream_conv2"} <= own
    assert all(name.startswith((f"{top}.accelerator.conv2", f"{top}.stream_conv2")) for name in own)
    assert f"{top}.stream_conv2.lane_0" in path.with_suffix(".gtkw").read_text()


@pytest.mark.long
def test_layers_are_compared(model, design):
    """A comparison layer by layer sees the layers of hardware that loads its weights first."""
    comparison = design.compare(model.random_frames(2, seed=5), model.runtime(MODEL))
    assert comparison.ok


@needs_icarus
def test_built_folders_bring_their_weights(short, short_design, tmp_path):
    """The test bench loads the weights: it passes, and fails with any other word. The file for drivers has the same."""
    folder = short_design.build(tmp_path / "out", short.random_frames(1, seed=6))
    top = json.loads((folder / "weights.json").read_text())["module"]
    document, load = weights.read((folder / f"{top}.weights").read_bytes(), "the file")
    assert load == short_design.config.weight_packet
    assert document["words"] == len(load) // 4
    words = (folder / "weights.hex").read_text().split()
    assert b"".join(int(word, 16).to_bytes(4, "little") for word in words) == load
    assert f"`{top}.weights`" in (folder / "report.md").read_text()
    assert verdict(folder) == "PASS"
    words[len(words) // 2] = f"{int(words[len(words) // 2], 16) ^ 1:08x}"
    (folder / "weights.hex").write_text("\n".join(words) + "\n")
    assert verdict(folder) == "FAIL"  # the CRC is wrong, so that the frame waits for weights


def verdict(folder: Path) -> str:
    """The first word that the built test bench prints in Icarus."""
    run = subprocess.run(["make", "icarus"], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    said = [line for line in run.stdout.splitlines() if line.startswith(("PASS", "FAIL"))]
    return said[0][:4]


@pytest.mark.long
def test_resources(design):
    """Slices, block RAM and UltraRAM of each component are those that Yosys finds; LUTs of the whole within 5 %."""
    result = synthesis.Synthesis(synthesis.synthesise(design.config, device=design.board.family).rows)
    for row in result.rows:
        stated, counted = row.estimate, row.measured
        assert (stated.dsp, stated.bram36, stated.uram) == (counted.dsp, counted.bram36, counted.uram), row.name
        if stated.uram:  # a compute unit with its weights
            assert abs(stated.lut - counted.lut) <= 4, row.name
            assert abs(stated.ff - counted.ff) <= 1, row.name
    assert result.measured.uram == design.resources["uram"]
    assert result.measured.lut == pytest.approx(result.estimate.lut, rel=0.05)
    assert result.measured.ff == pytest.approx(result.estimate.ff, rel=0.05)


@pytest.mark.long
def test_the_planner_moves_weights_to_ultra_ram():
    """Where block RAM lacks, weights move, alone or side by side, within the UltraRAM that there is: exact."""
    model = hwgen.load("resnet8")
    plain = model.plan("kv260", dsp=300, weights="runtime")
    design = model.plan("kv260", dsp=300, weights="runtime", bram=20)
    assert "ultra" in memories(design).values()
    assert (design.interval, design.resources["dsp"]) == (plain.interval, plain.resources["dsp"])
    assert design.resources["bram36"] <= 20 < plain.resources["bram36"]
    result = design.simulate(model.random_frames(2, seed=7), simulator="verilator")
    assert (result.mismatches, result.as_predicted) == (0, True)


@pytest.fixture(scope="module")
def small_vgg() -> hwgen.Model:
    """Three convolutions, of 1,728, 36,864 and 73,728 weights of 8 bits."""
    return hwgen.load("vgg16:4@8x8")


@pytest.fixture(scope="module")
def partly_loaded(small_vgg):
    """The model on a board whose block RAM and LUTs lack room for 6 kbit of 899 kbit of weights."""
    board = replace(boards.load("kv260"), bram36=12, lut=7_000)
    return small_vgg.plan(board, weights="auto", dsp=64)


def test_only_the_layers_that_need_ultra_ram_load_weights(small_vgg, partly_loaded, tmp_path):
    text = partly_loaded.to_json()
    document = json.loads(text)
    assert (document["weights"], document["loaded"]) == ("auto", ["conv1_2", "conv2_1"])
    assert memories(partly_loaded)["conv2_1"] == "ultra"
    assert "\nweights of conv1_2, conv2_1 are loaded at run time: " in partly_loaded.table()
    assert partly_loaded.resources["bram36"] <= 12
    hardware = partly_loaded.config.description  # what a retrained model must have, too
    constant, loaded = (layer for layer in partly_loaded.config.layers if layer.name.startswith("conv1"))
    assert hardware["conv1_1"]["compute.weights"] == repr(constant.compute.weights)
    assert hardware["conv1_2"]["compute.weights"] != repr(loaded.compute.weights)
    path = tmp_path / "plan.json"
    path.write_text(text)
    assert small_vgg.plan(partly_loaded.board, plan=path).to_json() == text
    path.write_text(json.dumps(document | {"loaded": ["conv1_2", "pool1"]}))
    with pytest.raises(PlanError, match='loaded must name layers whose weights can be loaded, not "pool1"'):
        small_vgg.plan(partly_loaded.board, plan=path)


@pytest.mark.long
@needs_compiler
def test_constant_and_loaded_layers_together(small_vgg, partly_loaded):
    result = partly_loaded.simulate(small_vgg.random_frames(2, seed=7), simulator="verilator")
    assert (result.mismatches, result.as_predicted) == (0, True)


def with_turned_kernels(model: hwgen.Model, name: str) -> hwgen.Model:
    """The model with the kernels of the layer ``name`` upside down."""
    layers = tuple(
        replace(layer, weights=np.ascontiguousarray(layer.weights[:, :, ::-1])) if layer.name == name else layer
        for layer in model.network.layers
    )
    return replace(model, network=replace(model.network, layers=layers))


@pytest.mark.long
@needs_compiler
def test_a_retrained_model_keeps_the_constant_layers(small_vgg, partly_loaded, tmp_path):
    folder = tmp_path / "design"
    partly_loaded.build(folder)
    constant = (
        "conv1_1: its weights, which are constant .* must be <1728 weights, .* as it was built, not <1728 weights"
    )
    with pytest.raises(InputError, match=constant):
        with_turned_kernels(small_vgg, "conv1_1").retrained(folder)
    retrained = with_turned_kernels(small_vgg, "conv2_1")
    frames = small_vgg.random_frames(2, seed=3)
    result = retrained.retrained(folder).simulate(frames, simulator="verilator")
    assert (result.mismatches, result.as_predicted) == (0, True)
