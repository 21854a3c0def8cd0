"""The IP of an engine: its Tcl, run by tclsh with stand-ins for Vivado's commands; no Vivado has run it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from programs import SMALL
from vivado import Packaged, check_interfaces, check_registers, edit, folder_of, needs_tcl, packaged, refused

pytestmark = needs_tcl


def check(folder: Path, made: Packaged, bus_bytes: int = 8) -> None:
    """The IP against what lies in the folder."""
    document = json.loads((folder / "registers.json").read_text())
    root = "hwgen:user"
    core = made.get("core", root)
    assert core["name"] == document["module"] == "engine_axi"
    assert core["description"] == "The programmable engine, written by hwgen; build hash 0x0123456789abcdef"
    assert made.of("source") == {"engine.v", "engine_axi.v"}
    software = {f"engine_{each}" for each in ("registers.h", "registers.py", "driver.c", "driver.h")}
    software |= {"engine_driver.py", "engine_linux.py", "registers.json", "net.program"}
    assert made.of("file") == {f"{root}/xilinx_miscfiles/software/{each}" for each in software}
    names = {"m_axi_mem", "s_axi_control", "aclk", "aresetn", "interrupt"}
    assert made.of("bus_interface") == {f"{root}/{each}" for each in names}
    check_interfaces(made, folder, root, "engine_axi")
    assert made.get("bus_interface", f"{root}/m_axi_mem")["interface_mode"] == "master"
    assert made.get("bus_interface", f"{root}/m_axi_mem")["master_address_space_ref"] == "m_axi_mem"
    assert made.get("bus_interface", f"{root}/s_axi_control")["slave_memory_map_ref"] == "s_axi_control"
    assert made.of("address_space") == {f"{root}/m_axi_mem"}
    space = made.get("address_space", f"{root}/m_axi_mem")
    assert (int(space["range"]), int(space["width"])) == (1 << 32, 8 * bus_bytes)
    given = {
        path.removeprefix(f"{root}/"): made.get("bus_parameter", path)["value"] for path in made.of("bus_parameter")
    }
    assert given == {
        "aclk/ASSOCIATED_BUSIF": "m_axi_mem:s_axi_control",
        "aclk/ASSOCIATED_RESET": "aresetn",
        "aresetn/POLARITY": "ACTIVE_LOW",
        "interrupt/SENSITIVITY": "LEVEL_HIGH",
        "m_axi_mem/MAX_BURST_LENGTH": "256",
        "m_axi_mem/NUM_READ_OUTSTANDING": str(SMALL.outstanding),
        "m_axi_mem/NUM_WRITE_OUTSTANDING": str(SMALL.outstanding),
        "m_axi_mem/SUPPORTS_NARROW_BURST": "1" if bus_bytes >= 16 else "0",
    }
    check_registers(made, root, document)
    assert not (folder / "ip_project").exists()


@pytest.mark.parametrize(("inference", "bus_bytes"), [("names", 4), ("nothing", 8), ("other", 16), ("names", 64)])
def test_the_ip_is_the_engine(tmp_path, inference, bus_bytes):
    """Whatever Vivado infers by itself; and again over what is there."""
    folder = folder_of(tmp_path, bus_bytes)
    for _ in range(2):
        check(folder, packaged(folder, inference=inference), bus_bytes)


def test_the_verilog_says_so_too(tmp_path):
    """What Vivado should know of interfaces stands before ports, for use without an IP."""
    text = (folder_of(tmp_path) / "engine_axi.v").read_text()
    found = re.findall(r'\(\* X_INTERFACE_PARAMETER = "(.*)" \*\)\n +\w+ +wire (?:\[\d+:0\] )?(\w+),?\n', text)
    assert found == [
        ("ASSOCIATED_BUSIF m_axi_mem:s_axi_control, ASSOCIATED_RESET aresetn", "aclk"),
        ("POLARITY ACTIVE_LOW", "aresetn"),
        ("XIL_INTERFACENAME m_axi_mem, SUPPORTS_NARROW_BURST 0, MAX_BURST_LENGTH 256, NUM_READ_OUTSTANDING 32, "
         "NUM_WRITE_OUTSTANDING 32", "m_axi_mem_awaddr"),
        ("SENSITIVITY LEVEL_HIGH", "interrupt"),
    ]  # fmt: skip
    assert text.count("X_INTERFACE") == len(found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("RLAST m_axi_mem_rlast", "RLAST m_axi_mem_wlast"),
        (" AWLEN m_axi_mem_awlen", ""),
        ("m_axi_mem interface:aximm master", "m_axi_mem interface:aximm slave"),
        ("m_axi_mem 4294967296 64", "m_axi_mem 4294967296 32"),
        ("SUPPORTS_NARROW_BURST 0", "SUPPORTS_NARROW_BURST 1"),
        ("PROGRAM_BASE 0x040", "PROGRAM_BASE 0x044"),
        ("    net.program\n", ""),
    ],
)
def test_the_checks_see(tmp_path, old, new):
    """What is wrong in the IP is seen."""
    folder = folder_of(tmp_path)
    edit(folder, old, new)
    made = packaged(folder, inference="nothing")
    with pytest.raises((AssertionError, KeyError)):
        check(folder, made)


def test_the_stand_ins_refuse(tmp_path):
    folder = folder_of(tmp_path)
    edit(folder, "m_axi_mem 4294967296 64", "m_axi_mem 4294967296 48")
    assert 'property width of address_space must not be "48"' in refused(folder)
