"""Components of all templates: what the Verilog writer says is what Amaranth's own back end says, in every cycle."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import two_state
from accelerators import Case
from graphs import graph_cases
from hypothesis import Phase, given, settings
from needs import needs_compiler
from random_circuit import RandomCircuit
from resource_layers import DILATED, SHAPES, TILED, config_of
from two_state import random_products

import hwgen
from hwgen.emit import wrapper
from hwgen.gateware.accelerator import Accelerator, AcceleratorConfig
from hwgen.gateware.bus.engine_shell import EngineShell, EngineShellConfig
from hwgen.gateware.bus.shell import Shell
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.engine import Engine, EngineDesign
from hwgen.gateware.multipliers import LUT_MULTIPLIERS
from hwgen.verilog import convert, expression

pytestmark = needs_compiler

#: Cycles in which an output must change at least: components that stay idle show nothing.
MIN_MOVES = 50
SMALL = EngineConfig(maps=16, pixels=5, map_words=64, weight_steps=64, slots=4)


def check(makers: Mapping[str, two_state.Maker], folder, **options: Any) -> None:
    outcomes = two_state.compare([*makers.values()], folder, **options)["gate"]
    wrong = {name: each for name, each in zip(makers, outcomes, strict=True) if each.wrong}
    idle = {name: each for name, each in zip(makers, outcomes, strict=True) if each.moves < MIN_MOVES}
    assert not wrong
    assert not idle


def parts_of(config: AcceleratorConfig) -> Iterator[tuple[str, Any]]:
    """Configurations of an accelerator's components, by layer and name."""
    for layer in config.layers:
        for name, part in layer.components.items():
            yield f"{layer.name}.{name}", part


def shaped(names: str) -> dict[str, two_state.Maker]:
    """Components of layers of `resource_layers`."""
    shapes = {shape.name: shape for shape in (*SHAPES, *TILED, *DILATED)}
    found = {}
    for name in names.split():
        found |= {label: part.component for label, part in parts_of(config_of(shapes[name]))}
    return found


def with_minus(component, top):
    """A writer that takes one operator for another one."""
    with patch.dict(expression._BINARY, {"$add": "-"}):
        return convert(component, top)


@pytest.mark.long
def test_small_components(tmp_path):
    """Also that a wrong operator is seen."""
    makers = [part.component for _, part in parts_of(config_of(SHAPES[0]))]
    found = two_state.compare(makers, tmp_path, writers={"gate": convert, "mutant": with_minus}, cycles=3000)
    assert len(makers) >= 5
    assert all(outcome.wrong == 0 and outcome.moves >= MIN_MOVES for outcome in found["gate"])
    assert any(outcome.wrong for outcome in found["mutant"])


@pytest.mark.long
def test_products_in_luts(tmp_path):
    """The circuits for synthesis, of all multipliers in LUTs, with the family's cells."""
    rng = np.random.default_rng(2)
    products = {str(multiplier.name): random_products(rng, multiplier) for multiplier in LUT_MULTIPLIERS}
    check({name: config.component for name, config in products.items()}, tmp_path, cycles=2000)


_SHIFTS = """
module bench(input wire clk);
    reg [11:0] n = 0;
    wire [1:0] b = n[1:0], c = n[3:2];
    wire [7:0] a = n[11:4];
    wire [7:0] left = (a << b) << c;
    wire [7:0] right = (a >> b) >> c;
    always @(posedge clk) begin
        n <= n + 1;
        $display("%0d %0d %0d %0d %0d", a, b, c, left, right);
        if (n == 12'd4095) $finish;
    end
endmodule
"""


@pytest.mark.long
def test_shifts_of_shifts_in_verilator(tmp_path):
    """Verilator 5.048 adds their counts in too few bits, unless it is told not to."""
    files = {"design.v": _SHIFTS.encode(), "driver.cpp": two_state.DRIVER.encode(), "design.h": b"#define SEED 1\n"}
    run = subprocess.run(
        [two_state.compiled(files, tmp_path)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    rows = [tuple(map(int, line.split())) for line in run.stdout.splitlines() if line[:1].isdigit()]
    assert len({row[:3] for row in rows}) == 4096
    assert all(left == a << b + c & 255 and right == a >> b + c for a, b, c, left, right in rows)


@pytest.mark.long
@pytest.mark.parametrize("first", [0, 6])
def test_random_circuits(first, tmp_path):
    """Every operator, condition and memory; see `random_circuit`."""
    check({str(seed): partial(RandomCircuit, seed) for seed in range(first, first + 6)}, tmp_path)


@pytest.mark.long
def test_layers_and_joins(tmp_path):
    """Of random graphs a component of each kind and of each kind of window."""
    kinds: dict[tuple[str, str], two_state.Maker] = {}

    @settings(max_examples=60, database=None, phases=[Phase.generate])
    @given(case=graph_cases())
    def draw(case: Case) -> None:
        for _, part in parts_of(case.config):
            kinds.setdefault((type(part).__name__, type(getattr(part, "window", None)).__name__), part.component)

    draw()
    assert len(kinds) >= 20
    check({" of ".join(kind): maker for kind, maker in kinds.items()}, tmp_path)


@pytest.mark.long
def test_packed_and_wide_layers(tmp_path):
    check(shaped("packed3x3 conv3x3-pixels conv5x5 pool2x2 depthwise3x3 dilated3x3 conv3x3-int16"), tmp_path)


@pytest.mark.long
def test_pyramids(tmp_path):
    check(shaped("tile3x3 tile-pool3x3 tile3x3-again tile3x3-two tile3x3-packed tile-dilated3x3"), tmp_path)


@pytest.mark.long
def test_engine(tmp_path):
    parts = EngineDesign(engine=SMALL).components
    assert len(parts) >= 8
    check({name: part.component for name, part in parts.items()}, tmp_path, cycles=3000)


@pytest.mark.long
def test_wrapper_of_an_accelerator(tmp_path):
    """The module that a board takes in, with the accelerator inside: both writers have the same accelerator."""
    config = hwgen.load("decoilfnet-example").plan("zedboard", dsp=20, multipliers="dsp").config
    shell = wrapper.shell_of(config)
    check({"wrapper": lambda: shell.wrapper("net")}, tmp_path, beside=convert(Accelerator(config), "net"))


@pytest.mark.long
def test_small_engine(tmp_path):
    check({"engine": lambda: Engine(SMALL)}, tmp_path, cycles=3000)


@pytest.mark.long
def test_wrapper_of_an_engine(tmp_path):
    """The module that a board takes in, with a small engine inside: both writers have the same engine."""
    shell = EngineShellConfig(engine=SMALL, pace=1, build_hash=0)
    check({"wrapper": lambda: shell.wrapper("net")}, tmp_path, beside=convert(Engine(SMALL), "net"), cycles=3000)


@pytest.mark.long
def test_accelerators_and_buses(tmp_path):
    """Whole accelerators, with constants and with weights that are loaded, and what is between them and a board."""
    model = hwgen.load("decoilfnet-example")
    config, loaded = (model.plan("zedboard", dsp=20, weights=weights).config for weights in ("constant", "runtime"))
    shells = [wrapper.shell_of(each) for each in (config, loaded)]
    of_engine = EngineShellConfig(engine=EngineConfig(), pace=1, build_hash=0)
    makers = {
        "accelerator": lambda: Accelerator(config),
        "loaded": lambda: Accelerator(loaded),
        "shell": lambda: Shell(shells[0]),
        "shell of loaded": lambda: Shell(shells[1]),
        "shell of engine": lambda: EngineShell(of_engine),
    }
    check(makers, tmp_path)
