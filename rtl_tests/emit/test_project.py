"""The Tcl that makes a Vivado project and its bitstream, run by tclsh with stand-ins; no Vivado has run it."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from register_maps import shell
from report_pages import MEASURED, PLANNED, check_page
from vivado import CATALOGUE, LIST, Packaged, folder_of, needs_tcl, packaged, run, verilog_ports

import hwgen
from hwgen import boards
from hwgen.cli.main import main
from hwgen.emit import package, project, wrapper
from hwgen.gateware.bus.shell import ShellConfig, ends_of
from hwgen.gateware.bus.wrapper import Wrapper
from hwgen.gateware.stream import BeatFormat, Port
from hwgen.report.page import vivado
from hwgen.verilog import convert

PS = "processing_system7_0"


def made_of(folder: Path, *arguments: str, **world: Any) -> Packaged:
    done = run(folder, arguments, script=project.NAME, **world)
    assert done.returncode == 0, done.stderr
    rows = (folder.parent / "dump").read_text().splitlines()
    return Packaged([*(line.split("\t") for line in rows), ["said", done.stdout, "", ""]])


def refused(folder: Path, *arguments: str, **world: Any) -> str:
    done = run(folder, arguments, script=project.NAME, **world)
    assert done.returncode == 1, done.stdout
    return done.stderr.strip()


def rows(made: Packaged, kind: str) -> dict[str, str]:
    return {path: value for each, path, _, value in made.rows if each == kind}


def cells(made: Packaged) -> dict[str, str]:
    return {name: made.get("bd_cell", name)["VLNV"] for name in made.of("bd_cell")}


def check_streams(made: Packaged, folder: Path, document: dict[str, Any]) -> None:
    """Each stream has a channel of a DMA, as wide as its port, that counts its frames; inputs and outputs in order."""
    cell, links = f"{document['module']}_0", rows(made, "link")
    ports = verilog_ports(folder, document["module"])
    for side, way, port in (("inputs", "mm2s", "M_AXIS_MM2S"), ("outputs", "s2mm", "S_AXIS_S2MM")):
        for number, stream in enumerate(document[side]):
            assert links[f"{cell}/{stream['name']}"] == f"axi_dma_{number}/{port}"
            dma = made.get("bd_cell", f"axi_dma_{number}")
            width = ports[f"{stream['name']}_tdata"][1]
            assert int(dma[f"CONFIG.c_m_axi_{way}_data_width"]) == width == 8 * stream["bytes"]
            if way == "mm2s":
                assert int(dma["CONFIG.c_m_axis_mm2s_tdata_width"]) == width
            assert dma[f"CONFIG.c_include_{way}"] == "1"
            assert dma["CONFIG.c_include_sg"] == "0"
            assert stream["frame_bytes"] < 2 ** int(dma["CONFIG.c_sg_length_width"])


def check_wires(made: Packaged, document: dict[str, Any]) -> None:
    """One clock, one reset, and each interrupt at a place of its own: the accelerator's, then those of the DMAs."""
    wires = rows(made, "wire")
    clocks = {pin for pin in wires if re.search(r"(?i)a?clk$", pin)}
    assert {wires[pin] for pin in clocks} == {f"{PS}/FCLK_CLK0"}
    resets = {pin for pin in wires if re.search(r"(?i)reset(n|_in)$", pin)}
    assert {wires[pin] for pin in resets} == {
        "reset_0/peripheral_aresetn", "reset_0/interconnect_aresetn", f"{PS}/FCLK_RESET0_N"
    }  # fmt: skip
    interrupts = [wires[f"interrupts_0/In{number}"] for number in range(len(wires.keys() - clocks - resets) - 1)]
    expected = [f"{document['module']}_0/interrupt"]
    for number in range(max(len(document["inputs"]), len(document["outputs"]))):
        for side, way in (("inputs", "mm2s"), ("outputs", "s2mm")):
            expected += [f"axi_dma_{number}/{way}_introut"] * (number < len(document[side]))
    assert interrupts == expected
    assert wires[f"{PS}/IRQ_F2P"] == "interrupts_0/dout"


def check(folder: Path, made: Packaged, mhz: str) -> None:
    """The project against what lies in the folder."""
    document = json.loads((folder / "registers.json").read_text())
    cell = f"{document['module']}_0"
    dmas = max(len(document["inputs"]), len(document["outputs"]))
    kinds = cells(made)
    assert kinds[cell] == f"hwgen:user:{document['module']}:1.0"
    assert {name for name, vlnv in kinds.items() if "axi_dma" in vlnv} == {f"axi_dma_{each}" for each in range(dmas)}
    processor = made.get("bd_cell", PS)
    assert processor["CONFIG.PCW_FPGA0_PERIPHERAL_FREQMHZ"] == mhz
    assert processor["CONFIG.PCW_USE_FABRIC_INTERRUPT"] == processor["CONFIG.PCW_IRQ_F2P_INTR"] == "1"
    check_streams(made, folder, document)
    check_wires(made, document)
    spaces = {(path, space): where for each, path, space, where in made.rows if each == "address"}
    assert spaces[f"{cell}/s_axi_control/reg0", f"{PS}/Data"] == "0x43c00000+0x1000"
    assert document["bytes"] == 0x1000
    for number in range(dmas):
        register = spaces[f"axi_dma_{number}/S_AXI_LITE/Reg", f"{PS}/Data"]
        assert register == f"{0x40400000 + 0x10000 * number:#x}+0x10000"
    reached = {space for path, space in spaces if "DDR_LOWOCM" in path}
    assert reached == {
        f"axi_dma_{number}/Data_{way}"
        for side, way in (("inputs", "MM2S"), ("outputs", "S2MM"))
        for number in range(len(document[side]))
    }
    assert made.of("drawn") == {"1"}


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    return (
        hwgen.load("decoilfnet-example")
        .plan("pynq-z2", dsp=20, multipliers="dsp")
        .build(tmp_path_factory.mktemp("p") / "built")
    )


@pytest.fixture
def folder(built, tmp_path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "a folder"))


def edit(folder: Path, old: str, new: str) -> None:
    script = folder / project.NAME
    text = script.read_text()
    assert text.count(old) == 1
    script.write_text(text.replace(old, new))


@needs_tcl
def test_the_project_is_of_the_design(folder):
    """Again over what is there; and what is read back of the run."""
    for _ in range(2):
        made = made_of(folder, frequency="125000000")
        check(folder, made, "125")
    assert made.get("project", "current")["board_part"] == "tul.com.tw:pynq-z2:part0:1.0"
    assert "timing is met: 0.312 ns are left at 125.0 MHz" in "".join(made.of("said"))
    document = json.loads((folder / "registers.json").read_text())
    assert json.loads((folder / vivado.MEASURED).read_text()) == {
        "build_hash": document["build_hash"],
        "vivado": "2023.1",
        "board_files": "tul.com.tw:pynq-z2:part0:1.0",
        "clock_mhz": 125,
        "wns_ns": 0.312,
        "whs_ns": 0.051,
        "accelerator": {"lut": 1000, "ff": 1001, "bram36": 1.5, "dsp": 10},
        "ip": {"lut": 2000, "ff": 2001, "bram36": 2.5, "dsp": 20},
        "design": {"lut": 3000, "ff": 3001, "bram36": 3.5, "dsp": 30},
    }
    name = document["module"].removesuffix("_axi")
    there = {path.name for path in (folder / "pynq").iterdir()}
    assert there == {
        f"{name}.bit", f"{name}.hwh", f"{name}_driver.py", f"{name}_linux.py", f"{name}_registers.py", "registers.json",
        "plan.json",
    }  # fmt: skip
    assert (folder / f"{name}.xsa").is_file()


@needs_tcl
def test_another_board_and_clock(tmp_path):
    """The newest of Vivado's files of a board; the design alone, without a run."""
    design = hwgen.load("decoilfnet-example").plan("zedboard", dsp=20, multipliers="dsp", clock=62.5)
    made = made_of(design.build(tmp_path / "built"), "--to", "design", "--jobs", "3")
    check(tmp_path / "built", made, "62.5")
    assert made.get("project", "current")["board_part"] == "digilentinc.com:zedboard:part0:1.1"
    assert not made.of("run")
    assert not (tmp_path / "built" / vivado.MEASURED).exists()


@pytest.mark.long
@needs_tcl
def test_weights_at_run_time(tmp_path):
    """The driver finds what it needs to load them, on the board and in the IP."""
    design = hwgen.load("decoilfnet-example").plan("pynq-z2", dsp=40, weights="runtime")
    folder = design.build(tmp_path / "built")
    check(folder, made_of(folder), "125")
    for each in ("pynq", "ip/software"):
        assert (folder / each / "weights.json").read_bytes() == (folder / "weights.json").read_bytes()


@needs_tcl
@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [(2, 3), (3, 1), *(pytest.param(*each, marks=pytest.mark.long) for each in ((1, 14), (8, 7)))],
)
def test_several_streams(tmp_path, inputs, outputs):
    """A wrapper alone: its accelerator is an empty file."""
    config, folder = shell(inputs, outputs), tmp_path / "built"
    files = convert(Wrapper(config, "net"), "net_axi")
    files |= dict.fromkeys(("net.v", "net_driver.py", "net_registers.h", "net_registers.py"), b"")
    files["registers.json"] = json.dumps(wrapper.to_json(config, "net_axi")).encode()
    files[package.NAME] = package.script(config, "net", "", files)
    files |= project.files(config, "net", boards.load("pynq-z2"), files)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    check(folder, made_of(folder), "125")


@needs_tcl
@pytest.mark.parametrize(
    ("board", "mhz", "bus_bytes"), [("pynq-z2", "125", 4), ("zedboard", "100", 16), ("zedboard", "100", 64)]
)
def test_an_engine(tmp_path, board, mhz, bus_bytes):
    """It reaches the memory itself, without a DMA."""
    folder = folder_of(tmp_path, bus_bytes, board)
    made, document = made_of(folder), json.loads((folder / "registers.json").read_text())
    kinds, processor, links = cells(made), made.get("bd_cell", PS), rows(made, "link")
    assert kinds["engine_axi_0"] == "hwgen:user:engine_axi:1.0"
    assert not [vlnv for vlnv in kinds.values() if "dma" in vlnv]
    assert processor["CONFIG.PCW_FPGA0_PERIPHERAL_FREQMHZ"] == mhz
    assert {name for name in processor if "HP" in name} == {"CONFIG.PCW_USE_S_AXI_HP0"}
    assert links["engine_axi_0/m_axi_mem"] == "memory_0/S00_AXI"
    assert links[f"{PS}/S_AXI_HP0"] == "memory_0/M00_AXI"
    assert links["engine_axi_0/s_axi_control"] == "control_0/M00_AXI"
    check_wires(made, document | {"inputs": [], "outputs": []})
    spaces = {(path, space): where for each, path, space, where in made.rows if each == "address"}
    assert spaces == {
        ("engine_axi_0/s_axi_control/reg0", f"{PS}/Data"): "0x43c00000+0x1000",
        (f"{PS}/S_AXI_HP0/HP0_DDR_LOWOCM", "engine_axi_0/m_axi_mem"): "0x0+0x20000000",
    }
    assert made.of("drawn") == {"1"}
    assert (
        json.loads((folder / vivado.MEASURED).read_text())["accelerator"]["lut"] == 1000
    )  # of engine_axi_0/inst/engine
    assert re.search(r"^    engine engine \($", (folder / "engine_axi.v").read_text(), re.MULTILINE)
    there = {path.name for path in (folder / "pynq").iterdir()}
    assert there == {
        "engine.bit", "engine.hwh", "engine_driver.py", "engine_linux.py", "engine_registers.py", "registers.json",
        "net.program",
    }  # fmt: skip


def test_who_has_a_project(tmp_path):
    """Zynq boards that Vivado has files of, with no more streams than there are interrupts."""
    own = tmp_path / "own.toml"
    text = (Path(boards.__file__).parent / "pynq-z1.toml").read_text()
    own.write_text(text.replace("*:pynq-z1:", "*:own:"))
    for name, there in [
        ("zedboard", True), ("pynq-z1", True), ("pynq-z2", True), ("arty-z7-20", True), ("zc706", True),
        ("vc707", False), ("vc709", False), ("xc7z020clg400-1", False), (str(own), True),
    ]:  # fmt: skip
        assert bool(project.files(shell(1, 1), "net", boards.load(name), [])) == there, name
    assert project.files(shell(1, 1), "net", None, []) == {}
    assert project.files(shell(8, 8), "net", boards.load("zedboard"), []) == {}


def test_an_odd_name_of_a_board():
    """That of a file may hold anything; in a comment of Tcl it ends no line."""
    board = dataclasses.replace(boards.load("pynq-z2"), name="a\nexit \\")
    made = project.files(shell(1, 1), "net", board, [])[project.NAME].decode()
    assert "\nexit" not in made
    assert "net_axi on a\\u000aexit\\ \\\\ in the folder" in made


@pytest.mark.parametrize(("height", "width", "bits"), [(1, 16_383, "26"), (8_191, 8_192, "26"), (8_192, 8_192, None)])
def test_length_of_frames(height, width, bits):
    """A DMA counts the bytes of packets with 26 bits (PG021), and no frame may be longer."""
    beat = BeatFormat(channels=1, height=height, width=width, lanes=1, bits=8, signed=False)
    ends = ends_of([Port("i", beat, beat.raster)], "s_axis"), ends_of([Port("o", beat, beat.raster)], "m_axis")
    made = project.files(ShellConfig(inputs=ends[0], outputs=ends[1]), "net", boards.load("zedboard"), [])
    found = [re.findall(r"^set length_bits (\d+)$", text.decode(), re.MULTILINE) for text in made.values()]
    assert found == ([] if bits is None else [[bits]])


def test_report_shows_what_vivado_made(folder, capsys):
    """Beside the plan's estimate; 8 ns and 2 ns are the period of 100 MHz."""
    build_hash = json.loads((folder / "registers.json").read_text())["build_hash"]
    estimate = json.loads((folder / "plan.json").read_text())["resources"]
    (folder / vivado.MEASURED).write_text(json.dumps({**MEASURED, "build_hash": build_hash}))
    assert main(["report", str(folder)]) == 0
    said = capsys.readouterr().out
    assert f"WNS -2 ns at 125 MHz; with its bus wrapper: LUT 2,000 (estimated {estimate['lut']:,}), FF 2,001 " in said
    page = (folder / "report.html").read_text()
    check_page(page.encode(), PLANNED | {"vivado"})
    assert "(not met; the highest clock is 100 MHz)" in page
    assert "with DMA, interconnects and resets" in page
    (folder / vivado.MEASURED).unlink()
    assert main(["report", str(folder)]) == 0
    assert "the highest clock" not in (folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "vivado.json is not JSON: "),
        ("[]", "vivado.json must be an object, not an array; run project.tcl again, or delete it"),
        ("{}", "vivado.json lacks 'build_hash'; run project.tcl again, or delete it"),
        (json.dumps({**MEASURED, "design": None}), "vivado.json: design must be an object, not null; run project.tcl"),
        (json.dumps({**MEASURED, "design": None, "ip": [1]}), "vivado.json: ip must be an object, not an array"),
        (json.dumps({**MEASURED, "design": None, "wns_ns": "2"}), 'vivado.json: wns_ns must be a number, not "2"'),
        (json.dumps({**MEASURED, "clock_mhz": 0, "design": None}), "vivado.json must have a clock of more than 0 MHz"),
    ],
)
def test_report_of_what_vivado_did_not_make(folder, capsys, text, reason):
    build_hash = json.loads((folder / "registers.json").read_text())["build_hash"]
    (folder / vivado.MEASURED).write_text(text.replace("null}", f'null, "build_hash": "{build_hash}"}}'))
    before = (folder / "report.html").read_bytes()
    assert main(["report", str(folder)]) == 2
    assert reason in capsys.readouterr().err
    assert (folder / "report.html").read_bytes() == before


def test_report_leaves_out_what_vivado_made_of_another_build(folder, capsys):
    """One line says so, in the page and on stderr, until it is gone."""
    build_hash = json.loads((folder / "registers.json").read_text())["build_hash"]
    (folder / vivado.MEASURED).write_text(json.dumps({**MEASURED, "build_hash": "0x1"}))
    assert main(["report", str(folder)]) == 0
    said = f"is left out: it is of another build (0x1) than the folder ({build_hash}); run project.tcl again"
    assert capsys.readouterr().err == f"hwgen: warning: vivado.json {said}\n"
    page = (folder / "report.html").read_bytes()
    check_page(page, PLANNED)
    assert f"vivado.json {said}." in page.decode()
    (folder / vivado.MEASURED).unlink()
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().err == ""
    assert said not in (folder / "report.html").read_text()


@needs_tcl
def test_what_is_missing(folder):
    assert "this Vivado has no files of the board pynq-z2 (*:pynq-z2:part0:*); get them by" in refused(
        folder, boards={}
    )
    other = {"tul.com.tw:pynq-z2:part0:1.0": "xc7z010clg400-1"}
    assert "is for the part xc7z010clg400-1, but the design for xc7z020clg400-1" in refused(folder, boards=other)
    assert "takes --jobs N and --to design|bitstream behind -tclargs, not --part x" in refused(folder, "--part", "x")
    assert "--jobs must be a positive number, not 0" in refused(folder, "--jobs", "0")
    assert "--to must be design or bitstream, not synthesis" in refused(folder, "--to", "synthesis")
    assert not (folder / "ip").exists()
    (folder / "project").mkdir()
    (folder / "project" / "notes").write_text("mine")
    assert "project is there already and is no project of decoilfnet_example; move it away" in refused(folder)
    assert (folder / "project" / "notes").read_text() == "mine"


@needs_tcl
def test_what_goes_wrong(folder):
    assert "no bitstream: write_bitstream ERROR; the project says more" in refused(folder, progress="80%")
    assert "the run says nothing of timing" in refused(folder, slack="")
    assert not (folder / vivado.MEASURED).exists()
    said = "".join(made_of(folder, slack="-1.5", frequency="125000000").of("said"))
    assert "timing is not met by -1.5 ns at 125.0 MHz; plan with --clock 105" in said  # 1000 / 9.5
    edit(folder, "set mhz 125", "set mhz 300")
    assert "makes clocks of up to 250 MHz, not 300: plan with --clock 250 or less" in refused(folder)


@needs_tcl
@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("xlconcat:2.1", "xlconcat:3.1", "the catalogue has no xilinx.com:ip:xlconcat:3.1"),
        ("c_include_sg 0", "c_scatter 0", r"property CONFIG\.c_scatter of .* is not on the list"),
        ("c_include_sg 0", "c_include_sg no", 'property CONFIG.c_include_sg of bd_cell must not be "no"'),
        ("clocked $cell $clocks axi_resetn", "clocked $cell $clocks aresetn", "axi_dma_0 has no aresetn"),
        ("wire reset_0/interconnect_aresetn", "wire reset_0/slowest_sync_clk", "can't drive"),
        ("    wire $cell/FCLK_CLK0 $cell/M_AXI_GP0_ACLK\n", "", "M_AXI_GP0_ACLK is not connected"),
        ("PCW_USE_S_AXI_HP$port 1", "PCW_USE_S_AXI_HP$port 0", "has no S_AXI_HP0_ACLK"),
        ("FIXED_IO, DDR", "FIXED_IO", "DDR does not reach the pins"),
        ("0x43C00000", "0x40400000", "overlap"),
        ("s_axi_control/reg0", "s_axi_control/reg1", "there is no decoilfnet_example_axi_0/s_axi_control/reg1"),
        ("    validate_bd_design\n", "", "the design was not validated"),
        ("-to_step write_bitstream ", "-to_step route_design ", "impl_1 can't run"),
        ("    set_property board_part $files [current_project]\n", "", "no board whose preset"),
        ('lut "Slice LUTs"', 'lut "CLB LUTs"', "Vivado's report of what is used has no CLB LUTs"),
        ("STATS.WNS", "WNS", "property WNS of .* is not on the list"),
    ],
)
def test_the_stand_ins_refuse(folder, old, new, reason):
    """What is wrong in a script is seen."""
    edit(folder, old, new)
    assert re.search(reason, refused(folder))


@needs_tcl
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    s_axis 32\n", "    s_axis 64\n"),
        ("set mhz 125", "set mhz 100"),
        ("set interrupts ${module}_0/interrupt", "set interrupts {}"),
        ("assign_bd_address -offset 0x43C00000 -range 4K", "assign_bd_address -offset 0x43C00000 -range 64K"),
        ("\n    assign_bd_address\n", "\n"),
        ("wire $pin interrupts_0/In$index", "wire $pin interrupts_0/In[expr {[llength $pins] - 1 - $index}]"),
    ],
)
def test_the_checks_see(folder, old, new):
    """What is wrong in the project is seen, here or by the stand-ins."""
    edit(folder, old, new)
    done = run(folder, script=project.NAME)
    if done.returncode == 0:
        with pytest.raises((AssertionError, KeyError)):
            check(folder, made_of(folder), "125")


@needs_tcl
def test_the_lists_are_what_is_used(folder, tmp_path):
    """All that is on the lists, with its page, and no more."""
    (tmp_path / "engine").mkdir()
    engine = packaged(folder_of(tmp_path / "engine"), inference="nothing")
    found = [*(packaged(folder, inference=each) for each in ("other", "nothing")), engine, made_of(folder)]
    used = {(path, option) for made in found for kind, path, option, _ in made.rows if kind == "used"}
    listed = {(name, "") for name in LIST["commands"]}
    listed |= {(name, option) for name, each in LIST["commands"].items() for option in each.get("options", {})}
    assert used == listed
    pages = [each["page"] for each in (*LIST["commands"].values(), *CATALOGUE.values())]
    assert all(page.startswith(("https://docs.amd.com/r/", "https://docs.amd.com/v/")) for page in pages)
    assert {vlnv for vlnv in cells(found[-1]).values() if not vlnv.startswith("hwgen")} == CATALOGUE.keys()
