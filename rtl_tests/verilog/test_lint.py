"""Result folders of many networks, and of models with any name, before four linters (`lint`)."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import lint
import onnx
import pytest
from accelerators import Case
from exporters import MODELS, quantised
from graphs import graph_cases
from hypothesis import Phase, given, settings
from needs import needs_icarus
from pieces import Piece
from simple import Simple, SimpleConfig

import hwgen
from hwgen import emit
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.recode import RecodeConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.network.zoo import builtin
from hwgen.tools.synthesis import SideBySide
from hwgen.verilog import convert

pytestmark = [
    needs_icarus,
    pytest.mark.skipif(not importlib.util.find_spec("pyslang"), reason="pyslang is missing: pip install pyslang"),
]

# Selections


@pytest.mark.parametrize("signed", [False, True])
def test_a_table_beside_values_that_stay(signed, tmp_path):
    """A Concat whose inputs have different scales: one is looked up, the other one stays."""
    beat = BeatFormat(channels=4, height=2, width=2, lanes=2, bits=8, signed=signed)
    table = tuple(range(-128, 128)) if signed else tuple(range(256))
    window = JoinConfig(inputs=(beat, beat), in_turn=True)
    config = RecodeConfig(window=window, tables=((), table[::-1]), bits=8, signed=signed)
    lint.check([lint.written(convert(SideBySide([config.component()]), "recode"), tmp_path)])


# Networks

#: Sizes at which the larger built-in networks are planned, so that each layer has a circuit of its own.
SIZES = {
    "alexnet": "67x67", "alexnet-set": "67x67", "vgg11": "32x32", "vgg16": "32x32",
    "vgg19": "32x32", "zfnet": "64x64", "decoilfnet-four": "24x24", "flownets:9": "64x64", "speed-sign": "64x64",
    "resnet18": "32x32", "resnet50": "32x32", "mobilenetv1": "32x32", "mobilenetv2": "32x32", "unet": "32x32",
    "yolov3-tiny": "64x64", "squeezenet": "64x64",
}  # fmt: skip


#: Built-in networks of which a layer has more weights than the board's memory, and what is built of them.
LARGE = {"flownets": "flownets:9", "vgg16-dense": None}


def networks() -> list[str]:
    """Return the built-in networks, without the linear parts of the onnx package's models (``light_*``)."""
    names = [LARGE.get(name, name) for name, _ in builtin.names() if not name.startswith("light_")]
    return [f"{name}@{SIZES[name]}" if name in SIZES else name for name in names if name is not None]


@pytest.mark.long
@pytest.mark.parametrize("name", networks())
def test_builtin_networks(name, tmp_path):
    """One accelerator, or one for each group of the plan, whether or not the board can hold all groups in turn."""
    design = hwgen.load(name).plan("vc709", dsp=400, multipliers="dsp", template="stream")
    # Yosys as WebAssembly runs out of stack on the Verilog of these two.
    with_yosys = None if name.startswith(("alexnet@", "zfnet@")) else tmp_path
    lint.check(lint.built([group.config for group in design.plan.groups], tmp_path), with_yosys=with_yosys)


@pytest.mark.long
@pytest.mark.parametrize("block", range(4))
def test_exporters(block, tmp_path):
    """Those that `test_exporters` doesn't run in hardware: with the other sign."""
    configs = []
    for name in sorted(MODELS)[block::4]:
        onnx.save(quantised(name, "QDQ", signed=len(name) % 2 == 0)[0], tmp_path / f"{name}.onnx")
        configs += hwgen.load(str(tmp_path / f"{name}.onnx")).plan("vc709", dsp=80, multipliers="dsp").plan.configs()
    lint.check(lint.built(configs, tmp_path), with_yosys=tmp_path)


@pytest.mark.long
def test_random_graphs(tmp_path):
    """Layers and joins of any unroll factors, most of their maps of signed or of unsigned bytes."""
    configs: list[AcceleratorConfig] = []

    @settings(max_examples=100, database=None, phases=[Phase.generate])
    @given(case=graph_cases())
    def draw(case: Case) -> None:
        configs.append(case.config)

    draw()
    signed = [layer.output.signed for config in configs for layer in config.layers if layer.output.bits == 8]
    assert len(configs) >= 100
    assert min(signed.count(True), signed.count(False)) >= 100
    lint.check(lint.built(configs, tmp_path), with_yosys=tmp_path)


# Names

#: Tools take a comment for theirs that begins with one of these words.
TOOLS = [
    "verilator", "synopsys", "synthesis", "pragma", "cadence", "ambit", "exemplar", "rtl_synthesis", "altera", "xilinx",
    "vcs", "psl", "spyglass", "verilint", "lint_off", "lint_on", "translate_off", "translate_on", "coverage", "tessent",
    "leda", "0in", "sv_pragma", "synopsys_net", "verilator_lib",
]  # fmt: skip
#: Names that end a comment or a string, begin another one, or are directives as soon as they begin a line.
ENDS = [
    "*/", "/*", "//", '"', "`include", "a */ endmodule /*", "endmodule", "module", "a\nendmodule", "a\rendmodule",
    "a\x0bsynopsys translate_off", "a\x85synopsys translate_off", "a\u2028// verilator lint_off WIDTH", "a\\",
    "\x1b[2J",
    "net\nsynopsys translate_off\n", "net\n// synthesis translate_off\n", "net\nverilator public", "verilator lint_off",
    "a name of many words " * 5 + "verilator lint_off", "a name of many words " * 6 + "synopsys translate_off",
]  # fmt: skip


def check_comments(folder: Path) -> None:
    """No comment of the Verilog begins with what a tool minds."""
    for path in folder.rglob("*.v"):
        for comment in re.findall(r"//\s*([^\n]*)|/\*\s*(.*?)\*/", path.read_text(), re.DOTALL):
            text = "".join(comment).lower()
            assert not text.startswith(tuple(TOOLS)), f"{path}: {text}"


def folder_of(name: str, folder: Path) -> Path:
    """A result folder of a model with that name."""
    beat = BeatFormat(channels=3, height=4, width=5, lanes=2, bits=8, signed=True)
    config = SimpleConfig(name=name, input=beat)
    frames = config.random_frames(1)
    return emit.build("{}", config, frames, config.golden(frames), folder, "# A report", component=Simple)


def check_names(names: list[str], folder: Path) -> None:
    for number, name in enumerate(names):
        written = folder_of(name, folder / str(number))
        for path in written.glob("*.py"):
            compile(path.read_text(), str(path), "exec")
        for path in written.glob("*.c"):
            command = ["gcc", "-std=c99", "-Wall", "-Wextra", "-fsyntax-only", path.name]
            said = subprocess.run(command, cwd=written, capture_output=True, text=True, check=False)
            assert not said.stderr, said.stderr[:1000]
    check_comments(folder)
    found = lint.designs(folder)
    assert len(found) == 2 * len(names)
    lint.check(found, with_yosys=folder if len(names) > 4 else None)


def test_a_model_called_like_a_tool(tmp_path):
    check_names(["verilator", "net\nsynopsys translate_off\n*/"], tmp_path)


@pytest.mark.long
def test_models_called_like_tools(tmp_path):
    check_names([*TOOLS, *ENDS], tmp_path)


@pytest.mark.long
def test_layers_called_like_tools(tmp_path):
    names = [*TOOLS, *ENDS]
    piece = Piece((2, 4, 4))
    tensor = piece.real()
    for _ in names:
        tensor = piece.requantise(piece.conv(tensor, 2, 2, pads=[1, 1, 1, 1]), 0.5)
    model = piece.model(tensor)
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    for node, name in zip(convolutions, names, strict=True):
        node.name = name
    onnx.save(model, tmp_path / "layers.onnx")
    design = hwgen.load(str(tmp_path / "layers.onnx")).plan("vc709")
    # PyTorch's exporters begin every name with a slash, which a layer's name has not.
    assert [layer.name for layer in design.network.layers] == [name.lstrip("/") or "Conv" for name in names]
    design.build(tmp_path / "built")
    check_comments(tmp_path)
    lint.check(lint.designs(tmp_path), with_yosys=tmp_path)
