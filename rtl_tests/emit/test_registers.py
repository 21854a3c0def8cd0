"""The registers' description, and all that is made of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from register_maps import check_constants, shell, told

from hwgen.emit import wrapper
from hwgen.errors import ConfigError
from hwgen.gateware.bus.registers import Field, Register, registers_of
from hwgen.gateware.bus.shell import ends_of
from hwgen.gateware.stream import BeatFormat, Port
from hwgen.tools import synthesis

DOCS = Path(__file__).resolve().parents[2] / "docs" / "reference" / "registers.md"


@pytest.mark.parametrize("streams", [(1, 1), (16, 1), (3, 16)])
def test_no_two_in_one_place(streams):
    registers = shell(*streams).registers
    offsets = [register.offset for register in registers]
    assert offsets == sorted(set(offsets))
    names = [name for name, _, _ in wrapper._constants(shell(*streams))]
    assert len(names) == len(set(names))


def test_the_docs_have_the_table():
    rows = wrapper.register_table(registers_of(["s_axis"], ["m_axis"], 0))
    assert "\n\n" + "\n".join(rows) + "\n\n" in DOCS.read_text()


def test_build_hash_is_that_of_the_circuit():
    verilog = (
        b'module top; // a comment\n    assign a = b; /* two\n lines */ initial $readmemh("a//b.mem", c);\nendmodule\n'
    )
    same = b'module top;\n  assign a = b;  // another\n  initial $readmemh("a//b.mem", c); endmodule'
    other = verilog.replace(b"a//b.mem", b"a//c.mem")
    weights = {"top.mem": b"00 // no comment of Verilog"}
    expected = wrapper.build_hash({"top.v": verilog, **weights})
    assert wrapper.build_hash({"top.v": same, **weights}) == expected
    assert wrapper.build_hash({"top.v": other, **weights}) != expected
    assert wrapper.build_hash({"top.v": verilog.replace(b"a = b", b"a = c"), **weights}) != expected
    assert wrapper.build_hash({"top.v": verilog, "top.mem": b"00"}) != expected


def test_json_python_and_c_agree(tmp_path):
    """All offsets and masks, by the three files that software reads."""
    config = shell(2, 1)
    document = json.loads(json.dumps(wrapper.to_json(config, "net_axi")))
    expected: dict[str, int] = {}
    for stream in (*document["inputs"], *document["outputs"]):
        expected[f"{stream['name'].upper()}_FRAME_BYTES"] = stream["frame_bytes"]
        expected[f"{stream['name'].upper()}_STRIDE_BYTES"] = stream["frame_words"] * stream["bytes"]
    expected |= told(document)
    expected |= {"IDENTITY_IS": 0x4857_474E, "VERSION_MAJOR_IS": 1}
    assert expected["S_AXIS_0_FRAME_BYTES"] == 3 * 5 * 7
    assert expected["M_AXIS_FRAME_BYTES"] == 20
    assert expected["ERRORS_S_AXIS_1_LONG"] == 8

    check_constants(config, expected, tmp_path)


def test_widths():
    """The fewest bits with which a frame has no more words than beats."""
    (taken,), (given,) = shell().inputs, shell().outputs
    assert (taken.width, taken.words.count, taken.beats.count, taken.is_free) == (4, 27, 35, True)
    assert (given.width, given.words.count, given.final_keep) == (8, 3, 0x0F)
    wide = BeatFormat(channels=64, height=3, width=3, lanes=64, bits=8, signed=True)
    (end,) = ends_of([Port("i", wide, wide.raster)], "s_axis")
    assert (end.width, end.words.count, end.is_free) == (16, 36, False)
    assert wrapper.bus_cycles_text(end, 40) == "none on average (36 words in 40 cycles), but a beat is more than a word"
    assert wrapper.bus_cycles_text(end, 9) == "the interval is at least 36 cycles instead of 9"


def test_refusals():
    with pytest.raises(ConfigError, match=r"^inputs must be at most 16 for a bus wrapper, not 17$"):
        shell(17)
    with pytest.raises(ConfigError, match=r"^s_axis: width must be one of \[4, 8, 16\] bytes, not 5$"):
        ends_of([shell().inputs[0].port], "s_axis", [5])
    with pytest.raises(ConfigError, match=r"^A: offset must be a multiple of 4 below 4096, not 6$"):
        Register(name="A", offset=6, access="r", about="")
    fields = Field(name="X", low=0, bits=4, about=""), Field(name="Y", low=3, bits=4, about="")
    with pytest.raises(ConfigError, match=r"^A.Y: bits must lie above 4 and below 32, not at 3$"):
        Register(name="A", offset=0, access="r", about="", fields=fields)


@pytest.mark.long
def test_resources():
    parts = [shell(), shell(2, 1), shell(1, 3)]
    for part, measured in zip(parts, synthesis.measure(parts), strict=True):
        assert abs(part.resources.ff / measured.ff - 1) <= 0.15, part
        assert abs(part.resources.lut / measured.lut - 1) <= 0.25, part
