"""Worst logic delays: what they are by hand, what ``synth --paths`` says of them, and that none is too long."""

from __future__ import annotations

import json
import random
import subprocess
from contextlib import nullcontext
from dataclasses import replace

import pytest
from amaranth import Module, Signal, signed
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from resource_layers import DILATED, SHAPES, TILED, config_of, network_of
from texts import read_text

from hwgen import work
from hwgen.cli import main as cli
from hwgen.devices.xilinx7 import MEMORIES
from hwgen.errors import ToolError
from hwgen.gateware.bias import AddBiasConfig
from hwgen.gateware.cost import Resources
from hwgen.gateware.fifo import FifoConfig
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.gateware.pyramid.pyramid_layer import PyramidLayerConfig
from hwgen.gateware.requantise import RequantiseConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.whole_map import RunningSumConfig, WholeMapConfig
from hwgen.tools import paths, synthesis

#: Nanoseconds of logic between registers at most.
LIMIT = 3.3

# What cells take, in ns: delays of Artix-7 as Project X-Ray publishes them.
CLOCK_TO_Q, LUT_FIRST_OF_TWO, SHIFT_REGISTER = 0.303, 0.238, 1.472
BLOCK_RAM, SLICE_INPUT_REGISTER = 2.454, {"A": 0.254, "B": 0.324}


class Gate(wiring.Component):
    """Register, gate, register."""

    def __init__(self):
        super().__init__({"a": In(1), "b": In(1), "o": Out(1)})

    def elaborate(self, platform):
        m = Module()
        left = Signal()
        right = Signal()
        both = Signal()
        m.d.sync += [left.eq(self.a), right.eq(self.b), both.eq(left ^ right)]
        m.d.comb += self.o.eq(both)
        return m


class Shifted(wiring.Component):
    """A shift register in LUTs, and its output."""

    def __init__(self):
        super().__init__({"a": In(1), "o": Out(1)})

    def elaborate(self, platform):
        m = Module()
        stage = self.a
        for number in range(8):
            register = Signal(name=f"stage_{number}", reset_less=True)
            m.d.sync += register.eq(stage)
            stage = register
        m.d.comb += self.o.eq(stage)
        return m


class Table(wiring.Component):
    """A table in block RAM, the register behind it, and a product: a slice takes the register."""

    def __init__(self):
        super().__init__({"address": In(9), "factor": In(signed(8)), "o": Out(signed(16))})

    def elaborate(self, platform):
        m = Module()
        rng = random.Random(1)
        table = memory.Memory(
            shape=signed(8),
            depth=512,
            init=[rng.randrange(-128, 128) for _ in range(512)],
            attrs=MEMORIES.rom_style(512),
        )
        m.submodules.table = table
        read = table.read_port()
        word, factor, product = (
            Signal(signed(8), reset_less=True),
            Signal(signed(8), reset_less=True),
            Signal(signed(16)),
        )
        m.d.comb += [read.addr.eq(self.address), self.o.eq(product)]
        m.d.sync += [word.eq(read.data), factor.eq(self.factor), product.eq(word * factor)]
        return m


class Wire(wiring.Component):
    """No logic at all."""

    def __init__(self):
        super().__init__({"a": In(1), "o": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(self.a)
        return m


@pytest.mark.long
def test_delays_by_hand():
    counted, (gate, shifted, table, wire) = synthesis.cells_and_paths([Gate(), Shifted(), Table(), Wire()])
    assert gate is not None
    assert shifted is not None
    assert table is not None
    assert gate.delay == pytest.approx(CLOCK_TO_Q + LUT_FIRST_OF_TWO)
    assert gate.start in ("left", "right")
    assert gate.end == "o", "the register, which is the output"
    assert shifted.delay == pytest.approx(SHIFT_REGISTER)
    assert "SRL16E" in shifted.start
    assert table.delay == pytest.approx(BLOCK_RAM + SLICE_INPUT_REGISTER[table.end.removeprefix("DSP48E1.")[0]])
    assert table.start.startswith("table")
    assert "RAMB18E1" in table.start
    assert table.end.startswith("DSP48E1.")
    assert wire is None
    assert counted[2]["DSP48E1"] == counted[2]["RAMB18E1"] == 1
    assert counted[2]["FDRE"] == 0, "the slice takes the registers"


def half_a_beat() -> LineBufferConfig:
    """Seven taps of a 7 x 7 window over 30 x 17 pixels, two a beat: the last one of a row has one."""
    shape = replace(
        SHAPES[0], name="odd", kernel=(7, 7), padding=(3, 3, 3, 3), channels=2, outputs=4, size=(30, 17), tk=7, tp=2,
        pixels=2,
    )  # fmt: skip
    window = config_of(shape).layers[0].window
    assert window.input.pixels == 2
    return window


def layers() -> dict[str, object]:
    """A window whose rows end in half a beat, and what reads block RAM: weights, windows, tiles, tables, a FIFO."""
    shapes = {shape.name: shape for shape in SHAPES + TILED}
    parts: dict[str, object] = {"half a beat": half_a_beat()}
    beat = BeatFormat(channels=4, height=15, width=16, lanes=1, bits=8, signed=True, pixels=16)
    for name in ("conv3x3-deep", "packed3x3-deep"):
        (layer,) = config_of(replace(shapes[name], outputs=16, tm=2)).layers
        assert isinstance(layer.compute, MultiplyConfig)
        assert layer.compute.weight_memory == "block"
        parts[f"{name} weights"] = layer.compute
    (layer,) = config_of(replace(shapes["conv3x3-deep"], tn=2, tk=9, tm=2)).layers
    # So deep that a bank is stacked of several memories, which takes a choice of its own behind them.
    window = replace(layer.window, input=replace(layer.window.input, width=224))
    assert window.banks.rows > 1
    assert window.banks.depth > 2048
    parts["window"] = window
    (tiled,) = config_of(shapes["tile-pool3x3"]).layers
    assert isinstance(tiled, PyramidLayerConfig)
    assert min(tiled.reuse.right_depth, tiled.reuse.bottom_depth) > 0
    parts["reuse"] = tiled.reuse
    parts["tiles"] = tiled.tiles
    (layer,) = config_of(replace(shapes["conv3x3-deep"], outputs=70, tm=1)).layers
    assert isinstance(layer.finish, RequantiseConfig)
    assert layer.finish.tables_in_block_ram
    parts["sixteen values"] = RunningSumConfig(window=WholeMapConfig(input=beat))
    parts["factors"] = layer.finish
    biases = tuple(range(-9000, 9000, 200))
    parts["biases"] = AddBiasConfig(
        lanes=1, accumulator_bits=24, bias=biases, beats=tuple((channel,) for channel in range(len(biases)))
    )
    parts["fifo"] = FifoConfig(lanes=4, bits=8, signed=False, beats=4000, depth=700)
    # The deepest that LUT RAM may hold.
    parts["fifo in LUT RAM"] = FifoConfig(
        lanes=8, bits=8, signed=False, beats=4000, depth=MEMORIES.deepest_lut_ram, memory_in="lut"
    )
    (layer,) = config_of(shapes["conv3x3-deep"]).layers
    assert MEMORIES.deepest_lut_ram - 64 < layer.window.banks.depth <= MEMORIES.deepest_lut_ram
    parts["window in LUT RAM"] = replace(layer.window, memory_in="lut")
    return parts


@pytest.mark.long
@pytest.mark.parametrize(
    "some",
    [
        slice(0, None, 8),
        *(pytest.param(slice(*some), marks=pytest.mark.long) for some in ((2, None, 2), (1, None, 2))),
    ],
)
def test_paths_are_short(some):
    parts = dict([*layers().items()][some])
    _, worst = synthesis.measure_paths(list(parts.values()))
    delays = {name: path.delay for name, path in zip(parts, worst, strict=True) if path is not None}
    assert set(delays) == set(parts)
    assert max(delays.values()) <= LIMIT, delays


def rows_of_part_beats() -> list[LineBufferConfig]:
    """Line buffers of layers of docs/figures/resources.md, with two pixels a beat or more and rows that end in fewer.

    Those of more than 1,500 LUTs and flip-flops are left out: Yosys takes minutes for them.
    """
    windows = []
    for shape in (shape for shape in SHAPES + DILATED if shape.tip is None):
        pixels, (height, width) = max(shape.tp, 2), shape.size
        wide = replace(shape, size=(height, width + (width % pixels == 0)), tp=pixels, pixels=pixels)
        if network_of(wide).layers[0].output.width >= pixels:
            windows.append(config_of(wide).layers[0].window)
    assert all(window.input.width % window.input.pixels for window in windows)
    return [window for window in windows if window.resources.lut + window.resources.ff <= 1500]


@pytest.mark.long
@pytest.mark.parametrize("part", range(3))
def test_rows_of_part_beats(part):
    windows = rows_of_part_beats()[part::3]
    assert len(windows) >= 6
    _, worst = synthesis.measure_paths(windows)
    wrong = [(window, path) for window, path in zip(windows, worst, strict=True) if path and path.delay > LIMIT]
    assert not wrong


SAMPLE = read_text("paths_of_yosys.txt")


def test_what_sta_prints():
    assert paths.parse(SAMPLE) == {
        "top_part_0": paths.LogicPath(delay=2.616, start="left[3]", end="_080_[9], which is unused"),
        "top_part_1": paths.LogicPath(delay=1.0, start="input go", end="b (CE)"),
        "top_part_2": paths.LogicPath(
            delay=3.739, start="a.weights.memory.0.0 (RAMB18E1)", end="DSP48E1.B after a.weights.r0_data[0]"
        ),
    }
    assert paths.parse("") == {}


def test_command(tmp_path, monkeypatch, capsys):
    """Two tables, and the JSON with the path of each component; without ``--paths`` there is no such key."""
    monkeypatch.setattr(synthesis, "measure", lambda parts, device: [Resources(lut=1)] * len(parts))
    found = paths.LogicPath(delay=2.5, start="here[1]", end="there")

    def measure_paths(parts, device):
        return [Resources(lut=1)] * len(parts), [found if isinstance(part, FifoConfig) else None for part in parts]

    monkeypatch.setattr(synthesis, "measure_paths", measure_paths)
    monkeypatch.setattr(synthesis, "require", lambda *_, **__: None)
    monkeypatch.setattr(work, "pool", lambda *_: nullcontext())  # in this process
    arguments = ["synth", "decoilfnet-example", "--board", "zedboard", "--json", str(tmp_path / "synth.json")]
    assert cli.main(arguments) == 0
    assert all("path" not in part for part in json.loads((tmp_path / "synth.json").read_text())["components"])
    assert "logic [ns]" not in capsys.readouterr().out
    assert cli.main([*arguments, "--paths"]) == 0
    components = json.loads((tmp_path / "synth.json").read_text())["components"]
    for part in components:
        expected = {"delay_ns": 2.5, "from": "here[1]", "to": "there"} if part["name"].endswith(".fifo") else None
        assert part["path"] == expected
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == ("Delays are the cells' only, without wires, so they do not give a clock period or frequency.")
    table = [line.split() for line in lines[lines.index("") + 1 :]]
    fifos = [line for line in table if line and line[0].endswith(".fifo")][-1]
    assert fifos[1:] == ["2.50", "here[1]", "there"]


def test_yosys_without_timing_analysis(monkeypatch, capsys):
    def refuses(script, folder=None):
        return subprocess.CompletedProcess([], 1, "", "ERROR: No such command or cell type: sta\n")

    monkeypatch.setattr(synthesis, "_yosys", refuses)
    assert cli.main(["synth", "decoilfnet-example", "--board", "zedboard", "--paths"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "hwgen: synth --paths needs a Yosys that has the command sta, which this one has not: "
        "pip install --upgrade 'hwgen[synth]'\n"
    )


def test_time_limit(monkeypatch):
    monkeypatch.setattr(synthesis, "TIME_LIMIT", 0.05)
    with pytest.raises(ToolError, match=r"^Yosys was stopped after 0\.05 s: take fewer DSP slices, or fewer layers$"):
        synthesis.measure([FifoConfig(lanes=1, bits=8, signed=False, beats=5, depth=3)])
