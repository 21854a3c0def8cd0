"""The Tcl that makes a Vivado project and its bitstream, run by tclsh with stand-ins; no Vivado has run it."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from refusals import refusals_in
from register_maps import shell
from report_pages import MEASURED, PLANNED, check_page
from vivado import (
    CATALOGUE,
    LIST,
    Packaged,
    addresses,
    cells,
    folder_of,
    made_of,
    needs_tcl,
    packaged,
    refused_project,
    rows,
    run,
    streams_folder,
    verilog_ports,
)

import hwgen
from hwgen import boards
from hwgen.cli.main import main
from hwgen.devices import family_of
from hwgen.emit import vivado_files
from hwgen.gateware.bus.shell import ShellConfig, ends_of
from hwgen.gateware.stream import BeatFormat, Port
from hwgen.report.page import vivado


@dataclass(frozen=True)
class Processor:
    """Names and addresses of a processing system in a project, by the vendor's pages.

    Parameters
    ----------
    cell : str
        Cell in the block design.
    pins : tuple of str
        Pins of the clock, the reset and the interrupts.
    port : str
        Memory port, with its number for ``{}``.
    settings : dict of str to str
        Settings of the cell that do not depend on the design.
    clock : str
        Setting of the clock in MHz.
    memory : tuple of (str, str)
        Segment of the memory behind a port, with the port's number for ``{0}`` and 2 more for ``{1}``; its addresses.
    registers : tuple of int
        Addresses of the registers of the accelerator and of the first DMA.
    """

    cell: str
    pins: tuple[str, str, str]
    port: str
    settings: dict[str, str]
    clock: str
    memory: tuple[str, str]
    registers: tuple[int, int]

    def pin(self, index: int) -> str:
        return f"{self.cell}/{self.pins[index]}"

    def segment(self, port: int) -> str:
        return f"{self.cell}/{self.memory[0].format(port, port + 2)}"


ZYNQ = Processor(
    cell="processing_system7_0",
    pins=("FCLK_CLK0", "FCLK_RESET0_N", "IRQ_F2P"),
    port="S_AXI_HP{}",
    settings={"PCW_USE_M_AXI_GP0": "1", "PCW_USE_FABRIC_INTERRUPT": "1", "PCW_IRQ_F2P_INTR": "1"},
    clock="PCW_FPGA0_PERIPHERAL_FREQMHZ",
    memory=("S_AXI_HP{0}/HP{0}_DDR_LOWOCM", "0x0+0x20000000"),
    registers=(0x43C00000, 0x40400000),
)
ZYNQ_ULTRASCALE_PLUS = Processor(
    cell="zynq_ultra_ps_e_0",
    pins=("pl_clk0", "pl_resetn0", "pl_ps_irq0"),
    port="S_AXI_HP{}_FPD",
    settings={
        **{f"PSU__USE__M_AXI_GP{number}": str(int(number == 0)) for number in range(3)},
        "PSU__MAXIGP0__DATA_WIDTH": "128",
        "PSU__FPGA_PL0_ENABLE": "1",
        "PSU__CRL_APB__PL0_REF_CTRL__SRCSEL": "IOPLL",
        "PSU__USE__IRQ0": "1",
    },
    clock="PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ",
    memory=("SAXIGP{1}/HP{0}_DDR_LOW", "0x0+0x80000000"),
    registers=(0xA0000000, 0xA0010000),
)


def ports_of(processor: Processor, ports: int) -> dict[str, str]:
    """Settings of a processing system with so many memory ports."""
    if processor is ZYNQ:
        return {f"PCW_USE_S_AXI_HP{port}": "1" for port in range(ports)}
    used = {f"PSU__USE__S_AXI_GP{port + 2}": "1" for port in range(ports)}
    return used | {f"PSU__SAXIGP{port + 2}__DATA_WIDTH": "128" for port in range(ports)}


def processor_of(made: Packaged) -> Processor:
    (processor,) = (each for each in (ZYNQ, ZYNQ_ULTRASCALE_PLUS) if each.cell in made.of("bd_cell"))
    return processor


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
    wires, processor = rows(made, "wire"), processor_of(made)
    clocks = {pin for pin in wires if re.search(r"(?i)a?clk$", pin)}
    assert {wires[pin] for pin in clocks} == {processor.pin(0)}
    resets = {pin for pin in wires if re.search(r"(?i)reset(n|_in)$", pin)}
    assert {wires[pin] for pin in resets} == {
        "reset_0/peripheral_aresetn", "reset_0/interconnect_aresetn", processor.pin(1)
    }  # fmt: skip
    interrupts = [wires[f"interrupts_0/In{number}"] for number in range(len(wires.keys() - clocks - resets) - 1)]
    expected = [f"{document['module']}_0/interrupt"]
    for number in range(max(len(document["inputs"]), len(document["outputs"]))):
        for side, way in (("inputs", "mm2s"), ("outputs", "s2mm")):
            expected += [f"axi_dma_{number}/{way}_introut"] * (number < len(document[side]))
    assert interrupts == expected
    assert wires[processor.pin(2)] == "interrupts_0/dout"


def check_processor(made: Packaged, mhz: str, ports: int) -> None:
    """The processing system has the settings of its family, the clock, and so many memory ports."""
    processor = processor_of(made)
    settings = {name: value for name, value in made.get("bd_cell", processor.cell).items() if name != "VLNV"}
    expected = processor.settings | {processor.clock: mhz} | ports_of(processor, ports)
    assert settings == {f"CONFIG.{name}": value for name, value in expected.items()}


def check_memory(made: Packaged, ports: dict[str, int]) -> None:
    """The masters, by their address spaces, reach the memory through their ports, and nothing else."""
    processor = processor_of(made)
    spaces = {key: place for key, place in addresses(made).items() if key[1] != f"{processor.cell}/Data"}
    assert spaces == {(processor.segment(port), space): processor.memory[1] for space, port in ports.items()}
    excluded = {(path, space) for each, path, space, _ in made.rows if each == "excluded"}
    if processor is ZYNQ:
        assert not excluded
    else:
        others = ("DDR_HIGH", "QSPI", "LPS_OCM")
        assert excluded == {
            (processor.segment(port).replace("DDR_LOW", other), space)
            for space, port in ports.items()
            for other in others
        }


def check(folder: Path, made: Packaged, mhz: str) -> None:
    """The project against what lies in the folder."""
    document = json.loads((folder / "registers.json").read_text())
    cell = f"{document['module']}_0"
    dmas = max(len(document["inputs"]), len(document["outputs"]))
    kinds = cells(made)
    assert kinds[cell] == f"hwgen:user:{document['module']}:1.0"
    assert {name for name, vlnv in kinds.items() if "axi_dma" in vlnv} == {f"axi_dma_{each}" for each in range(dmas)}
    check_processor(made, mhz, min(dmas, 4))
    check_streams(made, folder, document)
    check_wires(made, document)
    processor, spaces = processor_of(made), addresses(made)
    assert spaces[f"{cell}/s_axi_control/reg0", f"{processor.cell}/Data"] == f"{processor.registers[0]:#x}+0x1000"
    assert document["bytes"] == 0x1000
    for number in range(dmas):
        register = spaces[f"axi_dma_{number}/S_AXI_LITE/Reg", f"{processor.cell}/Data"]
        assert register == f"{processor.registers[1] + 0x10000 * number:#x}+0x10000"
    reached = {
        f"axi_dma_{number}/Data_{way}": number % 4
        for side, way in (("inputs", "MM2S"), ("outputs", "S2MM"))
        for number in range(len(document[side]))
    }
    check_memory(made, reached)
    assert made.of("drawn") == {"1"}


def check_engine(folder: Path, made: Packaged, mhz: str, ports: int = 1) -> None:
    """The engine's project: it reaches the memory itself through each of its ports, without a DMA."""
    document = json.loads((folder / "registers.json").read_text())
    kinds, links, processor = cells(made), rows(made, "link"), processor_of(made)
    assert kinds["engine_axi_0"] == "hwgen:user:engine_axi:1.0"
    assert not [vlnv for vlnv in kinds.values() if "dma" in vlnv]
    check_processor(made, mhz, ports)
    masters = [f"engine_axi_0/m_axi_mem_{port}" for port in range(ports)] if ports > 1 else ["engine_axi_0/m_axi_mem"]
    for port, master in enumerate(masters):
        assert links[master] == f"memory_{port}/S00_AXI"
        assert links[f"{processor.cell}/{processor.port.format(port)}"] == f"memory_{port}/M00_AXI"
    assert links["engine_axi_0/s_axi_control"] == "control_0/M00_AXI"
    check_wires(made, document | {"inputs": [], "outputs": []})
    registers = {key: place for key, place in addresses(made).items() if key[1] == f"{processor.cell}/Data"}
    assert registers == {
        ("engine_axi_0/s_axi_control/reg0", f"{processor.cell}/Data"): f"{processor.registers[0]:#x}+0x1000"
    }
    check_memory(made, {master: port for port, master in enumerate(masters)})
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
    script = folder / vivado_files.PROJECT
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


@needs_tcl
def test_a_kria_module(tmp_path):
    """A whole build for UltraScale+: its project, its utilisation, and the families of its IP."""
    folder = hwgen.load("decoilfnet-example").plan("kv260", dsp=20, multipliers="dsp").build(tmp_path / "built")
    made = made_of(folder, frequency="199998000")
    check(folder, made, "200")
    assert cells(made)[ZYNQ_ULTRASCALE_PLUS.cell] == "xilinx.com:ip:zynq_ultra_ps_e:3.5"
    assert made.get("project", "current")["board_part"] == "xilinx.com:kv260_som:part0:1.4"
    assert "timing is met: 0.312 ns are left at 199.998 MHz" in "".join(made.of("said"))
    measured = json.loads((folder / vivado.MEASURED).read_text())
    assert measured["accelerator"] == {"lut": 1000, "ff": 1001, "bram36": 1.5, "dsp": 10}
    assert measured["clock_mhz"] == 199.998
    family = family_of("xck26-sfvc784-2LV-c")
    assert family is not None
    assert family.vivado is not None
    component = (folder / vivado_files.COMPONENT).read_text()
    assert re.findall(r"<xilinx:family [^>]*>(\w+)<", component) == list(family.vivado.ip_families)


@needs_tcl
def test_the_newest_processing_system(tmp_path):
    """Its version differs between releases of Vivado."""
    name = "xilinx.com:ip:zynq_ultra_ps_e"
    catalogue = CATALOGUE | {f"{name}:{version}": CATALOGUE[f"{name}:3.5"] for version in ("3.3", "3.10")}
    made = made_of(folder_of(tmp_path, 16, "kv260"), catalogue=catalogue)
    assert cells(made)[ZYNQ_ULTRASCALE_PLUS.cell] == f"{name}:3.10"


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
    ("board", "mhz", "inputs", "outputs"),
    [
        ("pynq-z2", "125", 2, 3),
        ("pynq-z2", "125", 3, 1),
        ("kv260", "200", 2, 5),
        ("ultra96-v2", "150", 3, 1),
        *(pytest.param("pynq-z2", "125", *each, marks=pytest.mark.long) for each in ((1, 14), (8, 7))),
        *(pytest.param("kv260", "200", *each, marks=pytest.mark.long) for each in ((1, 6), (4, 3))),
    ],
)
def test_several_streams(tmp_path, board, mhz, inputs, outputs):
    """A wrapper alone: its accelerator is an empty file."""
    folder = streams_folder(tmp_path, inputs, outputs, board)
    check(folder, made_of(folder), mhz)


@needs_tcl
@pytest.mark.parametrize(
    ("board", "mhz", "bus_bytes"),
    [
        ("pynq-z2", "125", 4),
        ("zedboard", "100", 16),
        ("zedboard", "100", 64),
        ("kv260", "200", 16),
        ("ultra96-v2", "150", 64),
    ],
)
def test_an_engine(tmp_path, board, mhz, bus_bytes):
    """It reaches the memory itself, without a DMA."""
    folder = folder_of(tmp_path, bus_bytes, board)
    made = made_of(folder)
    check_engine(folder, made, mhz)
    assert made.get("address_space", "hwgen:user/m_axi_mem")["width"] == str(8 * bus_bytes)
    assert (
        json.loads((folder / vivado.MEASURED).read_text())["accelerator"]["lut"] == 1000
    )  # of engine_axi_0/inst/engine
    assert re.search(r"^    engine engine \($", (folder / "engine_axi.v").read_text(), re.MULTILINE)
    there = {path.name for path in (folder / "pynq").iterdir()}
    assert there == {
        "engine.bit", "engine.hwh", "engine_driver.py", "engine_linux.py", "engine_registers.py", "registers.json",
        "net.program",
    }  # fmt: skip


@needs_tcl
@pytest.mark.parametrize(("board", "mhz", "bus_bytes", "ports"), [("zedboard", "100", 32, 4), ("kv260", "200", 32, 2)])
def test_an_engine_of_several_ports(tmp_path, board, mhz, bus_bytes, ports):
    folder = folder_of(tmp_path, bus_bytes, board, ports)
    made = made_of(folder)
    check_engine(folder, made, mhz, ports)
    for port in range(ports):
        width = made.get("address_space", f"hwgen:user/m_axi_mem_{port}")["width"]
        assert width == str(8 * bus_bytes // ports)


def test_who_has_a_project(tmp_path):
    """Boards with a processing system that Vivado has files of, with no more streams than there are interrupts."""
    own, artix, kintex = (tmp_path / f"{name}.toml" for name in ("own", "artix", "kintex"))
    text = (Path(boards.__file__).parent / "pynq-z1.toml").read_text()
    own.write_text(text.replace("*:pynq-z1:", "*:own:"))
    for path, part in ((artix, "xcau15p-ffvb676-2-e"), (kintex, "xcku5p-ffvb676-2-e")):
        path.write_text(text.replace('"xc7z020clg400-1"', f'"{part}"'))
    for name, there in [
        ("zedboard", True), ("pynq-z1", True), ("pynq-z2", True), ("arty-z7-20", True), ("zc706", True),
        ("kv260", True), ("ultra96-v2", True), ("aup-zu3", True), ("zcu104", True), ("zcu102", True),
        ("vc707", True), ("vc709", True), ("xc7z020clg400-1", False), (str(own), True),
        ("xczu3eg-sbva484-1-e", False), (str(artix), False), (str(kintex), False),
    ]:  # fmt: skip
        assert bool(vivado_files.project(shell(1, 1), "net", boards.load(name), [])) == there, name
    assert vivado_files.project(shell(1, 1), "net", None, []) == {}
    for name, most in (("zedboard", 15), ("kv260", 7)):
        assert vivado_files.project(shell(most // 2, most - most // 2), "net", boards.load(name), [])
        assert vivado_files.project(shell(most // 2, most - most // 2 + 1), "net", boards.load(name), []) == {}


def test_an_odd_name_of_a_board():
    """That of a file may hold anything; in a comment of Tcl it ends no line."""
    board = dataclasses.replace(boards.load("pynq-z2"), name="a\nexit \\")
    made = vivado_files.project(shell(1, 1), "net", board, [])[vivado_files.PROJECT].decode()
    assert "\nexit" not in made
    assert "net_axi on a\\u000aexit\\ \\\\ in the folder" in made


@pytest.mark.parametrize(("height", "width", "bits"), [(1, 16_383, "26"), (8_191, 8_192, "26"), (8_192, 8_192, None)])
def test_length_of_frames(height, width, bits):
    """A DMA counts the bytes of packets with 26 bits (PG021), and no frame may be longer."""
    beat = BeatFormat(channels=1, height=height, width=width, lanes=1, bits=8, signed=False)
    ends = ends_of([Port("i", beat, beat.raster)], "s_axis"), ends_of([Port("o", beat, beat.raster)], "m_axis")
    made = vivado_files.project(ShellConfig(inputs=ends[0], outputs=ends[1]), "net", boards.load("zedboard"), [])
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
    assert "this Vivado has no files of the board pynq-z2 (*:pynq-z2:part0:*); get them by" in refused_project(
        folder, boards={}
    )
    other = {"tul.com.tw:pynq-z2:part0:1.0": "xc7z010clg400-1"}
    assert "is for the part xc7z010clg400-1, but the design for xc7z020clg400-1" in refused_project(
        folder, boards=other
    )
    assert "accepts --jobs N and --to design|bitstream after -tclargs, not --part x" in refused_project(
        folder, "--part", "x"
    )
    assert "--jobs must be a positive number, not 0" in refused_project(folder, "--jobs", "0")
    assert "--to must be design or bitstream, not synthesis" in refused_project(folder, "--to", "synthesis")
    assert not (folder / "ip").exists()
    (folder / "project").mkdir()
    (folder / "project" / "notes").write_text("mine")
    assert "project exists and is not a project of decoilfnet_example; move it away" in refused_project(folder)
    assert (folder / "project" / "notes").read_text() == "mine"


@needs_tcl
def test_what_goes_wrong(folder):
    assert "no bitstream: write_bitstream ERROR; the project says more" in refused_project(folder, progress="80%")
    assert "the run says nothing of timing" in refused_project(folder, slack="")
    assert not (folder / vivado.MEASURED).exists()
    said = "".join(made_of(folder, slack="-1.5", frequency="125000000").of("said"))
    assert "timing is not met by -1.5 ns at 125.0 MHz; plan with --clock 105" in said  # 1000 / 9.5
    edit(folder, "set mhz 125", "set mhz 300")
    assert "makes clocks of up to 250 MHz, not 300: plan with --clock 250 or less" in refused_project(folder)


@needs_tcl
@pytest.mark.parametrize(("old", "new", "reason"), refusals_in("project_zynq.txt"))
def test_the_stand_ins_refuse(folder, old, new, reason):
    """What is wrong in a script is seen."""
    edit(folder, old, new)
    assert re.search(reason, refused_project(folder))


@needs_tcl
@pytest.mark.parametrize(("old", "new", "reason"), refusals_in("project_ultrascale_plus.txt"))
def test_the_stand_ins_refuse_for_ultrascale_plus(tmp_path, old, new, reason):
    """What is wrong in a script is seen."""
    folder = folder_of(tmp_path, 16, "kv260")
    edit(folder, old, new)
    assert re.search(reason, refused_project(folder))


@needs_tcl
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("FREQMHZ $mhz", "FREQMHZ 100"),
        ("SRCSEL IOPLL", "SRCSEL RPLL"),
        ("{number}__DATA_WIDTH 128", "{number}__DATA_WIDTH 64"),
        ("set accelerator_address 0xA0000000", "set accelerator_address 0xA0001000"),
        ("{$port < $memories}", "{$port <= $memories}"),
    ],
)
def test_the_checks_see_for_ultrascale_plus(tmp_path, old, new):
    """What is wrong in the project is seen, here or by the stand-ins."""
    folder = folder_of(tmp_path, 16, "kv260")
    script = folder / vivado_files.PROJECT
    text = script.read_text()
    assert old in text
    script.write_text(text.replace(old, new))
    done = run(folder, script=vivado_files.PROJECT)
    if done.returncode == 0:
        with pytest.raises((AssertionError, KeyError)):
            check_engine(folder, made_of(folder), "200")


@needs_tcl
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    s_axis 32\n", "    s_axis 64\n"),
        ("set mhz 125", "set mhz 100"),
        ("set interrupts ${module}_0/interrupt", "set interrupts {}"),
        ("-offset $accelerator_address -range 4K", "-offset $accelerator_address -range 64K"),
        ("\n    assign_bd_address\n", "\n"),
        ("wire $pin interrupts_0/In$index", "wire $pin interrupts_0/In[expr {[llength $pins] - 1 - $index}]"),
    ],
)
def test_the_checks_see(folder, old, new):
    """What is wrong in the project is seen, here or by the stand-ins."""
    edit(folder, old, new)
    done = run(folder, script=vivado_files.PROJECT)
    if done.returncode == 0:
        with pytest.raises((AssertionError, KeyError)):
            check(folder, made_of(folder), "125")


@needs_tcl
def test_the_lists_are_what_is_used(folder, tmp_path):
    """All that is on the lists, with its page, and no more."""
    for name in ("engine", "kria", "pcie", "streams"):
        (tmp_path / name).mkdir()
    engine = packaged(folder_of(tmp_path / "engine"), inference="nothing")
    made = [made_of(folder), made_of(folder_of(tmp_path / "kria", 16, "kv260"))]
    made += [
        made_of(folder_of(tmp_path / "pcie", 64, "vc709")),
        made_of(streams_folder(tmp_path / "streams", 1, 1, "vc707")),
    ]
    found = [*(packaged(folder, inference=each) for each in ("other", "nothing")), engine, *made]
    used = {(path, option) for made in found for kind, path, option, _ in made.rows if kind == "used"}
    listed = {(name, "") for name in LIST["commands"]}
    listed |= {(name, option) for name, each in LIST["commands"].items() for option in each.get("options", {})}
    assert used == listed
    pages = [each["page"] for each in (*LIST["commands"].values(), *CATALOGUE.values())]
    assert all(page.startswith(("https://docs.amd.com/r/", "https://docs.amd.com/v/")) for page in pages)
    vlnvs = {vlnv for each in made for vlnv in cells(each).values()}
    assert {vlnv for vlnv in vlnvs if not vlnv.startswith("hwgen")} == CATALOGUE.keys()
