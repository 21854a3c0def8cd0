"""Proofs that a reset gives registers their values at power-up, and resets that miss a register."""

import re

import pytest
from proofs import ALONE, MODULE, emitted, of_component, proved
from small_circuits import (
    BANK,
    DEEP_FIFO,
    FIFO,
    GRID,
    GUARD,
    JOIN,
    REGROUP,
    REPACK,
    REUSE_BUFFERS,
    SHELL,
    TILES,
    UNLOAD,
    line_buffer,
    reuse_buffer,
    tile_buffer,
)
from texts import read_text

from hwgen.obligations.modules import VerilogModule, modules_of

pytestmark = ALONE

COMPONENTS = {
    "fifo": FIFO,
    "deep fifo": DEEP_FIFO,
    "regroup": REGROUP,
    "guard": GUARD,
    "unload": UNLOAD,
    "join": JOIN,
    "line buffer": line_buffer(**GRID["plain"]),
    "tile buffer": tile_buffer(**TILES["plain"]),
    "reuse buffer": reuse_buffer(**REUSE_BUFFERS["plain"]),
    "repack": REPACK,
    "bank": BANK,
    "shell": SHELL,
}
#: Faults in the first reset of a module, by name: a pattern, and what replaces it.
FAULTS = {
    "another value": (r"( {8}if \(rst\) begin\n {12}\w+ <= )(\S+);", r"\1~\2;"),
    "not always": (r"( {8}if \(rst)(\) begin)", r"\1 & chance\2"),
}
_MODULE = read_text("resets.v")


def test_registers_without_a_reset_begin_with_any_value():
    module = VerilogModule("m", _MODULE)
    assert module.reset_values == {"o": "4'd9", "level": "1'b0"}
    begun = module.uninitialised
    for line in ("[3:0] o = 4'd9,  // 4 bits", "output reg  last\n", "[1:0] data;", "level = 1'b0;", "table [0:2];"):
        assert line in begun
    assert "initial for" not in begun


def _faulty(verilog, fault):
    """Return the Verilog with a fault in the reset of `MODULE`."""
    pattern, text = FAULTS[fault]
    module = modules_of(verilog)[MODULE].text
    changed, count = re.subn(pattern, text, module, count=1)
    assert count == 1
    declared = changed.replace("    always @", "    wire chance = $anyseq;\n\n    always @", 1)
    return verilog.replace(module, declared)


@pytest.mark.long
@pytest.mark.parametrize("name", COMPONENTS)
@pytest.mark.parametrize("fault", [None, *FAULTS], ids=str)
def test_resets_of_components(name, fault):
    sound = emitted(COMPONENTS[name])
    verilog = _faulty(sound, fault) if fault else sound
    (obligation,) = (found for found in of_component(COMPONENTS[name], sound) if found.kind == "reset")
    (proof,) = proved([obligation], verilog).values()
    assert proof.verdict.result == ("refuted" if fault else "proved")
