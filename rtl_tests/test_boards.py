"""Boards: budgets against the vendor's tables, errors, and platforms that Amaranth can prepare a project from."""

from __future__ import annotations

import re

import pytest
from amaranth import ClockSignal, Elaboratable, Module, Signal
from amaranth.lib import io

from hwgen import boards
from hwgen.errors import BoardError

# LUTs, flip-flops, DSP48E1 and RAMB36E1 as Xilinx prints them: DS190 (XC7Z020) and DS180 (XC7VX690T).
BUDGETS = {"zedboard": (53_200, 106_400, 220, 140), "vc709": (433_200, 866_400, 3_600, 1_470)}


class Blink(Elaboratable):
    """A counter from the default clock to LED 0, XORed with button 0."""

    def elaborate(self, platform):
        m = Module()
        m.submodules.led = led = io.Buffer("o", platform.request("led", 0, dir="-"))
        m.submodules.button = button = io.Buffer("i", platform.request("button", 0, dir="-"))
        count = Signal(24)
        m.d.sync += count.eq(count + 1)
        m.d.comb += led.o.eq(count[-1] ^ button.i)
        return m


def test_names():
    assert boards.names() == sorted(BUDGETS)


@pytest.mark.parametrize("name", sorted(BUDGETS))
def test_budget(name):
    board = boards.load(name)
    assert (board.lut, board.ff, board.dsp, board.bram36) == BUDGETS[name]
    assert board.name == name
    assert board == boards.load(name.upper())
    with pytest.raises(AttributeError):
        board.dsp = 1


@pytest.mark.parametrize("name", sorted(BUDGETS))
def test_platform_agrees_with_the_board_file(name):
    board = boards.load(name)
    platform = board.platform_class()
    assert f"{platform.device}{platform.package}-{platform.speed}" == board.part
    assert platform.default_clk_frequency == board.clock_mhz * 1e6


@pytest.mark.parametrize(("name", "clock", "led"), [("zedboard", ["Y9"], "T22"), ("vc709", ["H19", "G18"], "AM39")])
def test_platform_prepares_a_project(name, clock, led):
    board = boards.load(name)
    plan = board.platform_class().build(Blink(), do_build=False)
    constraints = plan.files["top.xdc"]
    constraints = constraints.decode() if isinstance(constraints, bytes) else constraints
    for pin in [*clock, led]:
        assert re.search(rf"LOC {pin} ", constraints)
    assert f"create_clock -name clk{board.clock_mhz:.0f}" in constraints
    script = plan.files["top.tcl"]
    assert board.part in (script.decode() if isinstance(script, bytes) else script)


@pytest.mark.parametrize("name", sorted(BUDGETS))
def test_platform_uses_no_pin_twice(name):
    resources = boards.load(name).platform_class.resources
    pins = [pin for resource in resources for part in resource.ios for pin in _pins(part)]
    assert len(pins) == len(set(pins))


def _pins(part):
    if hasattr(part, "p"):
        return [*part.p.names, *part.n.names]
    return getattr(part, "names", [])


@pytest.mark.parametrize(("wrong", "near"), [("zedbord", "zedboard"), ("vc707", "vc709"), ("VC-709", "vc709")])
def test_unknown_board_names_the_nearest(wrong, near):
    with pytest.raises(BoardError, match=rf"unknown board '{wrong}'; did you mean '{near}'\?"):
        boards.load(wrong)


def _file(tmp_path, **changes):
    entries = {"device": '"XC7Z010"', "part": '"xc7z010clg400-1"', "lut": "17600", "ff": "35200", "dsp": "80"}
    entries |= {"bram36": "60", "clock_mhz": "125", "memory_gb_s": "4", "description": '"mine"'}
    entries |= changes
    path = tmp_path / "mine.toml"
    path.write_text("".join(f"{key} = {value}\n" for key, value in entries.items() if value is not None))
    return str(path)


def test_own_board_file(tmp_path):
    board = boards.load(_file(tmp_path))
    assert (board.name, board.device, board.dsp, board.clock_mhz) == ("mine", "XC7Z010", 80, 125)
    assert board.transfer_cycles(3) == 1  # 32 bytes a cycle
    assert board.transfer_cycles(33) == 2
    with pytest.raises(BoardError, match="board mine has no platform class"):
        _ = board.platform_class


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dsp": None, "lut": None}, r"board file .*mine\.toml lacks dsp, lut$"),
        ({"dsp": "0"}, "board mine: dsp must be a positive integer, not 0"),
        ({"dsp": "80.5"}, "board mine: dsp must be a positive integer, not 80.5"),
        ({"dsp": "1_000_001"}, "board mine: dsp must be at most 1,000,000, not 1,000,001"),
        ({"lut": "9" * 5000}, "is not TOML: a number is too long, or it is nested too deep"),
        ({"bram36": "true"}, "board mine: bram36 must be a positive integer, not True"),
        ({"clock_mhz": '"fast"'}, "board mine: clock_mhz must be a positive number, not 'fast'"),
        ({"memory_gb_s": "0"}, "board mine: memory_gb_s must be a positive number, not 0"),
        ({"memory_gb_s": "inf"}, "board mine: memory_gb_s must be a positive number, not inf"),
        ({"memory_gb_s": None}, r"board file .*mine\.toml lacks memory_gb_s$"),
        ({"part": "7"}, "board mine: part must be a string, not 7"),
        ({"colour": '"red"'}, r"board file .* has unknown keys: colour \(known: bram36, "),
        ({"dsp": "= 3"}, r"board file .* is not TOML: "),
    ],
)
def test_bad_board_file(tmp_path, changes, message):
    with pytest.raises(BoardError, match=message):
        boards.load(_file(tmp_path, **changes))


def test_missing_board_file(tmp_path):
    with pytest.raises(BoardError, match=r"board file .*none\.toml can't be read: No such file or directory"):
        boards.load(str(tmp_path / "none.toml"))


def test_clock_reaches_the_default_domain():
    """The platforms name a default clock, so a design without a clock domain of its own gets one."""

    class Clocked(Elaboratable):
        def elaborate(self, platform):
            m = Module()
            m.submodules.led = led = io.Buffer("o", platform.request("led", 0, dir="-"))
            m.d.comb += led.o.eq(ClockSignal())
            return m

    for name in boards.names():
        assert "top.v" in boards.load(name).platform_class().build(Clocked(), do_build=False).files
