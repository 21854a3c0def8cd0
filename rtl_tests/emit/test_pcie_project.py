"""The Tcl that makes a Vivado project with PCI Express, run by tclsh with stand-ins; no Vivado has run it."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from register_maps import shell
from vivado import (
    Packaged,
    addresses,
    cells,
    folder_of,
    made_of,
    needs_tcl,
    refused_project,
    rows,
    run,
    streams_folder,
    verilog_ports,
)

import hwgen
from hwgen import boards
from hwgen.emit import vivado_files
from hwgen.gateware.bus.shell import ShellConfig, ends_of
from hwgen.gateware.stream import BeatFormat, Port

#: XDMA's settings by board: its block (XilinxBoardStore, and public designs), and speed and width of x8 (PG195).
BOARDS = {"vc707": ("X1Y0", "5.0_GT/s", 128), "vc709": ("X0Y1", "8.0_GT/s", 256)}
#: Pins of both boards: part0_pins.xml of vc709 1.8 in XilinxBoardStore, and the platform xilinx_vc707 of litex-boards.
PINS = {
    "pcie_reset_n": "AV35", "pcie_clock_clk_p": "AB8", "pcie_clock_clk_n": "AB7",
    **{f"pcie_rxp[{lane}]": pin for lane, pin in enumerate(["Y4", "AA6", "AB4", "AC6", "AD4", "AE6", "AF4", "AG6"])},
    **{f"pcie_rxn[{lane}]": pin for lane, pin in enumerate(["Y3", "AA5", "AB3", "AC5", "AD3", "AE5", "AF3", "AG5"])},
    **{f"pcie_txp[{lane}]": pin for lane, pin in enumerate(["W2", "AA2", "AC2", "AE2", "AG2", "AH4", "AJ2", "AK4"])},
    **{f"pcie_txn[{lane}]": pin for lane, pin in enumerate(["W1", "AA1", "AC1", "AE1", "AG1", "AH3", "AJ1", "AK3"])},
}  # fmt: skip
#: Clock and reset of the cells that have others than the design.
DOMAINS = {
    "xdma_0": ("xdma_0/axi_aclk", "xdma_0/axi_aresetn"),
    "mig_7series_0": ("mig_7series_0/ui_clk", "reset_1/peripheral_aresetn"),
}
#: Those of the sides of a stream's converters: towards XDMA, and towards the accelerator.
SIDES = ("xdma_0/axi_aclk", "reset_2/peripheral_aresetn"), ("clock_0/clk_out1", "reset_3/peripheral_aresetn")
DESIGN = ("clock_0/clk_out1", "reset_0/peripheral_aresetn")


def check_host(made: Packaged, board: str, mode: str, inputs: int, outputs: int, mhz: str) -> None:
    """XDMA has the board's settings and a channel for each stream, its pins, and makes the design's clock and reset."""
    block, speed, bits = BOARDS[board]
    settings = made.get("bd_cell", "xdma_0")
    assert settings == {
        "VLNV": "xilinx.com:ip:xdma:4.1",
        "CONFIG.pcie_blk_locn": block, "CONFIG.pl_link_cap_max_link_speed": speed,
        "CONFIG.pl_link_cap_max_link_width": "X8", "CONFIG.axi_data_width": f"{bits}_bit", "CONFIG.axisten_freq": "250",
        "CONFIG.xdma_axi_intf_mm": mode, "CONFIG.xdma_rnum_chnl": str(inputs), "CONFIG.xdma_wnum_chnl": str(outputs),
        "CONFIG.axilite_master_en": "true", "CONFIG.axilite_master_size": "1",
        "CONFIG.axilite_master_scale": "Megabytes", "CONFIG.pciebar2axibar_axil_master": "0x00000000",
        "CONFIG.cfg_mgmt_if": "false",
    }  # fmt: skip
    clock = made.get("bd_cell", "clock_0")
    assert (clock["CONFIG.PRIM_IN_FREQ"], clock["CONFIG.CLKOUT1_REQUESTED_OUT_FREQ"]) == ("250", mhz)
    wires, links = rows(made, "wire"), rows(made, "link")
    expected = {
        "xdma_0/sys_clk": "reference_0/IBUF_OUT", "xdma_0/sys_rst_n": "pcie_reset_n",
        "xdma_0/usr_irq_req": "no_interrupt_0/dout", "clock_0/clk_in1": "xdma_0/axi_aclk",
    }  # fmt: skip
    assert {pin: wires[pin] for pin in expected} == expected
    assert (links["pcie"], links["pcie_clock"]) == ("xdma_0/pcie_mgt", "reference_0/CLK_IN_D")
    assert made.get("bd_port", "pcie_reset_n")["CONFIG.POLARITY"] == "ACTIVE_LOW"
    assert made.get("bd_intf_port", "pcie_clock")["CONFIG.FREQ_HZ"] == "100000000"
    assert wires["reset_0/slowest_sync_clk"] == DESIGN[0]
    assert (wires["reset_0/ext_reset_in"], wires["reset_0/dcm_locked"]) == ("xdma_0/axi_aresetn", "clock_0/locked")


def check_domains(made: Packaged) -> None:
    """Each side of an interconnect has the clock and reset of what it is connected with; the IP has the design's."""
    wires, links = rows(made, "wire"), rows(made, "link")
    for bus, other in links.items():
        cell, _, port = bus.partition("/")
        if cell in ("control_0", "memory_0"):
            pins = [f"{cell}/{port.removesuffix('_AXI')}_{name}" for name in ("ACLK", "ARESETN")]
            assert tuple(wires[pin] for pin in pins) == DOMAINS.get(other.partition("/")[0], DESIGN), bus
    (cell,) = (name for name in cells(made) if name.endswith("_axi_0"))
    assert (wires[f"{cell}/aclk"], wires[f"{cell}/aresetn"]) == DESIGN


def check_streams(folder: Path, made: Packaged, bits: int) -> None:
    """Each stream has the channel of its number, through converters of the clock and, if it is narrower, the width."""
    document, links = json.loads((folder / "registers.json").read_text()), rows(made, "link")
    ports = verilog_ports(folder, "net_axi")
    for side, way in (("inputs", "h2c"), ("outputs", "c2h")):
        for number, stream in enumerate(document[side]):
            width = ports[f"{stream['name']}_tdata"][1]
            ends = f"xdma_0/M_AXIS_H2C_{number}", f"net_axi_0/{stream['name']}"
            if side == "outputs":
                ends = ends[1], f"xdma_0/S_AXIS_C2H_{number}"
            converters = [f"clock_{way}_{number}"] + [f"width_{way}_{number}"] * (width != bits)
            path = [ends[0]]
            for cell in converters if side == "inputs" else converters[::-1]:
                path += [f"{cell}/S_AXIS", f"{cell}/M_AXIS"]
            path.append(ends[1])
            assert all(links[one] == other for one, other in zip(path[::2], path[1::2], strict=True))
            assert made.get("bd_cell", converters[0])["CONFIG.TDATA_NUM_BYTES"] == str(bits // 8)
            wires = rows(made, "wire")
            names = [[f"{converters[0]}/{end}_axis_{pin}" for pin in ("aclk", "aresetn")] for end in "sm"]
            found = tuple((wires[clock], wires[reset]) for clock, reset in names)
            assert found == SIDES[:: 1 if side == "inputs" else -1]
            if width != bits:
                assert (wires[f"{converters[1]}/aclk"], wires[f"{converters[1]}/aresetn"]) == SIDES[1]
                widths = [str(bits // 8), str(width // 8)][:: 1 if side == "inputs" else -1]
                settings = made.get("bd_cell", converters[1])
                assert [settings[f"CONFIG.{end}_TDATA_NUM_BYTES"] for end in "SM"] == widths
                assert (settings["CONFIG.HAS_TKEEP"], settings["CONFIG.HAS_TLAST"]) == ("1", "1")


def check(folder: Path, made: Packaged, board: str, inputs: int, outputs: int) -> None:
    """The project of an accelerator against what lies in the folder."""
    check_host(made, board, "AXI_Stream", inputs, outputs, "200")
    check_domains(made)
    check_streams(folder, made, BOARDS[board][2])
    assert rows(made, "link")["xdma_0/M_AXI_LITE"] == "control_0/S00_AXI"
    assert addresses(made) == {
        ("net_axi_0/s_axi_control/reg0", "xdma_0/M_AXI_LITE"): "0x0+0x1000",
        ("clear_0/S_AXI/Reg", "xdma_0/M_AXI_LITE"): "0x1000+0x1000",
    }
    wires = rows(made, "wire")
    for reset, (clock, _) in zip(("reset_2", "reset_3"), SIDES, strict=True):
        assert wires[f"{reset}/aux_reset_in"] == "clear_0/gpio_io_o"
        assert (wires[f"{reset}/slowest_sync_clk"], wires[f"{reset}/ext_reset_in"]) == (clock, "xdma_0/axi_aresetn")
        assert made.get("bd_cell", reset)["CONFIG.C_AUX_RESET_HIGH"] == "1"
    assert made.of("constraints") == {"net_pcie.xdc"}
    assert "mig_7series_0" not in cells(made)


@needs_tcl
@pytest.mark.parametrize(("board", "inputs", "outputs"), [("vc709", 1, 1), ("vc709", 2, 4), ("vc707", 2, 1)])
def test_streams(tmp_path, board, inputs, outputs):
    folder = streams_folder(tmp_path, inputs, outputs, board)
    check(folder, made_of(folder), board, inputs, outputs)


@needs_tcl
@pytest.mark.parametrize(("board", "bus_bytes", "ports"), [("vc709", 64, 1), ("vc707", 64, 1), ("vc709", 32, 2)])
def test_an_engine(tmp_path, board, bus_bytes, ports):
    """XDMA and each of its masters reach all of the board's memory, at address 0."""
    folder = folder_of(tmp_path, bus_bytes, board, ports)
    made = made_of(folder)
    check_host(made, board, "AXI_Memory_Mapped", 1, 1, "200")
    check_domains(made)
    links, wires = rows(made, "link"), rows(made, "wire")
    masters = [f"m_axi_mem_{port}" for port in range(ports)] if ports > 1 else ["m_axi_mem"]
    spaces = ["xdma_0/M_AXI", *(f"engine_axi_0/{master}" for master in masters)]
    assert [links[space] for space in spaces] == [f"memory_0/S{number:02d}_AXI" for number in range(ports + 1)]
    assert links["mig_7series_0/S_AXI"] == "memory_0/M00_AXI"
    memory = {("mig_7series_0/memmap/memaddr", space): "0x0+0x40000000" for space in spaces}
    registers = {("engine_axi_0/s_axi_control/reg0", "xdma_0/M_AXI_LITE"): "0x0+0x1000"}
    assert addresses(made) == memory | registers
    assert wires["reset_1/ext_reset_in"] == "mig_7series_0/ui_clk_sync_rst"
    assert wires["reset_1/slowest_sync_clk"] == "mig_7series_0/ui_clk"
    assert (wires["mig_7series_0/aresetn"], wires["mig_7series_0/sys_rst"]) == (
        "reset_1/peripheral_aresetn", "reset_0/peripheral_reset"
    )  # fmt: skip
    there = {path.name for path in (folder / "xdma").iterdir()}
    assert there == {
        "engine.bit", "engine_driver.py", "engine_xdma.py", "engine_registers.py", "registers.json", "net.program"
    }  # fmt: skip
    assert "wrote vivado.json and the folder xdma in" in "".join(made.of("said"))


@pytest.mark.parametrize("board", sorted(BOARDS))
def test_pins(board):
    """Each pin is the board's. The reset is pulled up, and the reference clock has 100 MHz."""
    text = vivado_files.project(shell(1, 1), "net", boards.load(board), [])["net_pcie.xdc"].decode()
    found = re.findall(r"^set_property PACKAGE_PIN (\w+) \[get_ports \{(.*?)\*?\}\]$", text, re.MULTILINE)
    assert {port: pin for pin, port in found} == PINS
    assert len(found) == len(PINS)
    assert "set_property IOSTANDARD LVCMOS18 [get_ports {pcie_reset_n*}]\n" in text
    assert "set_property PULLUP true [get_ports {pcie_reset_n*}]\n" in text
    assert "create_clock -name pcie_clock -period 10 [get_ports {pcie_clock_clk_p*}]\n" in text


def test_who_has_a_project():
    """Boards with pins, a block, and a channel for each stream; an engine needs memory."""
    board = boards.load("vc709")

    def made(inputs: int, outputs: int, **changes: Any) -> bool:
        changed = dataclasses.replace(board, **changes)
        return bool(vivado_files.project(shell(inputs, outputs), "net", changed, []))

    assert made(4, 4)
    assert not made(5, 1)
    assert not made(1, 5)
    assert made(1, 1, memory_interface="")
    for changes in ({"pcie_block": ""}, {"platform": ""}, {"board_parts": ()}):
        if "platform" in changes:
            with pytest.raises(hwgen.BoardError, match="board vc709 has no platform class"):
                made(1, 1, **changes)
        else:
            assert not made(1, 1, **changes)
    smaller = boards.load("vc707")
    assert vivado_files.project(shell(2, 2), "net", smaller, [])
    assert not vivado_files.project(shell(3, 1), "net", smaller, [])


@pytest.mark.parametrize(("width", "there"), [(8191, True), (8192, False)])
def test_length_of_frames(width, there):
    """The kernel module ends a packet after 2,048 pages, and a frame is at most one packet."""
    beat = BeatFormat(channels=1, height=1024, width=width, lanes=1, bits=8, signed=False)
    ends = ends_of([Port("i", beat, beat.raster)], "s_axis"), ends_of([Port("o", beat, beat.raster)], "m_axis")
    made = vivado_files.project(ShellConfig(inputs=ends[0], outputs=ends[1]), "net", boards.load("vc709"), [])
    assert bool(made) == there


@needs_tcl
def test_an_engine_without_memory(tmp_path, monkeypatch):
    board = dataclasses.replace(boards.load("vc709"), memory_interface="")
    monkeypatch.setattr(boards, "load", lambda _name: board)
    assert not (folder_of(tmp_path, 64, "vc709") / vivado_files.PROJECT).exists()


@needs_tcl
@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("set memory_interface ddr3_sdram_socket_j1", "set memory_interface ddr3_sdram", "has no interface ddr3_sdram"),
        ("-mode Master -vlnv xilinx.com:interface:pcie", "-mode Slave -vlnv xilinx.com:interface:pcie", "does not fit"),
        ("    wire no_interrupt_0/dout $host/usr_irq_req\n", "", "usr_irq_req is not connected"),
        ("set data_bits 256", "set data_bits 512", "must not be \"512_bit\""),
        ("set pcie_block X0Y1", "set pcie_block X9Y1", "must not be \"X9Y1\""),
        ("connect_bd_net [get_bd_ports pcie_reset_n] [get_bd_pins $host/sys_rst_n]", "", "sys_rst_n is not connected"),
        ("constrs_1", "sources_1", "does not belong to sources_1"),
    ],
)  # fmt: skip
def test_the_stand_ins_refuse(tmp_path, old, new, reason):
    """What is wrong in a script is seen."""
    folder = folder_of(tmp_path, 64, "vc709")
    script = folder / vivado_files.PROJECT
    text = script.read_text()
    assert old in text
    script.write_text(text.replace(old, new))
    assert reason in refused_project(folder)


@needs_tcl
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("set domains($host) [list $host/axi_aclk", "set domains($host) [list $clock_pin"),
        ("set host_mhz 250", "set host_mhz 125"),
        ("$sends ? \"clock_$name width_$name\"", "!$sends ? \"clock_$name width_$name\""),
        ("s host_side m design_side", "m host_side s design_side"),
        ("C_AUX_RESET_HIGH 1", "C_AUX_RESET_HIGH 0"),
        ("M_AXIS_H2C_$index", "M_AXIS_H2C_[expr {1 - $index}]"),
        ("set offset 0\n", "set offset 0x1000\n"),
    ],
)  # fmt: skip
def test_the_checks_see(tmp_path, old, new):
    """What is wrong in the project is seen, here or by the stand-ins."""
    folder = streams_folder(tmp_path, 2, 2, "vc709")
    script = folder / vivado_files.PROJECT
    text = script.read_text()
    assert old in text
    script.write_text(text.replace(old, new))
    if run(folder, script=vivado_files.PROJECT).returncode == 0:
        with pytest.raises((AssertionError, KeyError)):
            check(folder, made_of(folder), "vc709", 2, 2)


def test_timing_out_of_context(tmp_path):
    """Each design has a clock of the plan's period, and delays of its other ports: a quarter of the period."""
    folder = hwgen.load("decoilfnet-example").plan("vc709", dsp=20, multipliers="dsp").build(tmp_path / "built")
    (path,) = folder.glob("*_ooc.xdc")
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    others = "[get_ports -filter {DIRECTION == %s && NAME != aclk && NAME != clk}]"
    assert lines == [
        "create_clock -name clock -period 5.000 [get_ports -quiet {aclk clk}]",
        f"set_input_delay -clock clock 1.250 {others % 'IN'}",
        f"set_output_delay -clock clock 1.250 {others % 'OUT'}",
    ]
    name = path.name.removesuffix("_ooc.xdc")
    assert "aclk" in verilog_ports(folder, f"{name}_axi")
    assert "clk" in verilog_ports(folder, name)
    assert {f"{name}_xdma.py", f"{name}_pcie.xdc", "project.tcl"} <= {each.name for each in folder.iterdir()}
    assert not list(folder.glob("*_linux.py"))
