"""Every component of a design knows the device family of the plan's board, and costs are those of the family."""

from __future__ import annotations

import pytest
from amaranth import Module
from amaranth.hdl import Fragment
from amaranth.lib.wiring import Component, In, Out

import hwgen
from hwgen.devices.ecp5 import ECP5
from hwgen.devices.ultrascale_plus import ULTRASCALE_PLUS
from hwgen.devices.xilinx7 import XILINX7
from hwgen.gateware.accelerator import Accelerator
from hwgen.gateware.circuit_forms import Primitive
from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Cost
from hwgen.gateware.engine.engine import EngineDesign
from hwgen.gateware.lookup import ram, read_port, write_port
from hwgen.tools import synthesis

#: Model, board and options of designs with many kinds of components.
DESIGNS = {
    "ECP5, residuals": ("resnet8", "ulx3s", {"multipliers": "dsp"}),
    "UltraScale+, weights at run time": ("resnet8", "kv260", {"multipliers": "dsp", "weights": "runtime", "dsp": 200}),
    "UltraScale+, pyramids in LUTs": ("vgg16:4@32x32", "kv260", {"template": "pyramid", "tile": (4, 8), "dsp": 40}),
    "UltraScale+, engine": ("lenet5", "kv260", {"template": "engine", "cores": 1, "array": (16, 5)}),
}


@pytest.mark.parametrize("name", DESIGNS)
def test_components_are_for_the_board(name, monkeypatch):
    model, board, options = DESIGNS[name]
    families, initialise = {}, ConfiguredComponent.__init__

    def note(component, config, ports):
        if not isinstance(component, Primitive):  # the writer asks primitives for the cells of each family
            holders = (config, *(getattr(config, name, None) for name in ("engine", "dots")))
            families[type(config).__name__] = next(each.device for each in holders if hasattr(each, "device"))
        initialise(component, config, ports)

    monkeypatch.setattr(ConfiguredComponent, "__init__", note)
    plan = hwgen.load(model).plan(board, **options).plan
    for circuit in plan.circuits():
        made = circuit.component() if isinstance(circuit, EngineDesign) else Accelerator(circuit)
        Fragment.get(made, None)
    assert {name: family for name, family in families.items() if family != plan.board.family} == {}
    assert len(families) > 5


#: Families, bits and depth of memories in LUT RAM, and the LUTs that Yosys 0.66 takes.
LUT_RAMS = [
    (XILINX7, 64, 24, 44),
    (ULTRASCALE_PLUS, 6, 24, 8),
    (ULTRASCALE_PLUS, 64, 24, 40),
    (ULTRASCALE_PLUS, 8, 64, 16),
    (ULTRASCALE_PLUS, 64, 200, 388),
    (ECP5, 14, 16, 16),
    (ECP5, 64, 24, 194),
    (ECP5, 64, 64, 516),
    (ECP5, 32, 128, 456),
]


class Memory(Component):
    """Memory in LUT RAM, with registers behind its read port."""

    def __init__(self, device, bits, depth):
        self._memory = device, bits, depth
        addresses = {"write_address": In(range(depth)), "read_address": In(range(depth))}
        super().__init__({**addresses, "written": In(bits), "writes": In(1), "word": Out(bits)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = ram(*self._memory, "lut")
        write, read = write_port(words), read_port(words)
        m.d.comb += [write.addr.eq(self.write_address), write.data.eq(self.written), write.en.eq(self.writes)]
        m.d.comb += [read.addr.eq(self.read_address), self.word.eq(read.data)]
        return m


@pytest.mark.parametrize(("device", "bits", "depth", "luts"), LUT_RAMS)
def test_luts_of_lut_ram(device, bits, depth, luts):
    cost = Cost(device)
    cost.lut_ram(bits, depth)
    assert cost.resources.lut == luts


@pytest.mark.long
@pytest.mark.parametrize("device", [XILINX7, ULTRASCALE_PLUS, ECP5], ids=str)
def test_yosys_takes_as_many_luts(device):
    shapes = {(bits, depth): luts for family, bits, depth, luts in LUT_RAMS if family == device}
    counted = synthesis.cells([Memory(device, *shape) for shape in shapes], device)
    assert [synthesis.count(cells, device).lut for cells in counted] == list(shapes.values())
