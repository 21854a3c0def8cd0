"""Folders that are packaged as IP by tclsh, with stand-ins for Vivado's commands."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from programs import behind
from register_maps import shell

from hwgen import boards
from hwgen.devices.xilinx7 import VIVADO
from hwgen.emit import vivado_files, wrapper
from hwgen.emit.engine import EnginePackage
from hwgen.emit.vivado_files import ip_of
from hwgen.gateware.bus.engine_shell import EngineShellConfig
from hwgen.gateware.bus.wrapper import Wrapper
from hwgen.verilog import convert

HERE = Path(__file__).resolve().parent
TCLSH = shutil.which("tclsh")
LIST = tomllib.loads((HERE / "vivado.toml").read_text(encoding="utf-8"))
PARTS = sorted({boards.load(name).part for name in boards.names()})
needs_tcl = pytest.mark.skipif(TCLSH is None, reason="tclsh is missing: apt-get install tcl")


def braced(entry: Any) -> str:
    """Return a value of TOML as a word of Tcl in braces, which is enough for all values on the list."""
    if isinstance(entry, dict):
        entry = [each for pair in entry.items() for each in pair]
    if isinstance(entry, list):
        entry = " ".join(braced(each) for each in entry)
    return f"{{{entry}}}"


CATALOGUE = tomllib.loads((HERE / "vivado_ip.toml").read_text(encoding="utf-8"))
#: Contents and results of the simulated Vivado: its IP catalogue, boards, and figures of a run. Tests change them.
WORLD: dict[str, Any] = {
    "catalogue": CATALOGUE,
    "boards": {
        "tul.com.tw:pynq-z2:part0:1.0": "xc7z020clg400-1",
        "digilentinc.com:zedboard:part0:1.0": "xc7z020clg484-1",
        "digilentinc.com:zedboard:part0:1.1": "xc7z020clg484-1",
        "xilinx.com:kv260_som:part0:1.3": "xck26-sfvc784-2LV-c",
        "xilinx.com:kv260_som:part0:1.4": "xck26-sfvc784-2LV-c",
        "avnet.com:ultra96v2:part0:1.2": "xczu3eg-sbva484-1-i",
        "xilinx.com:vc707:part0:1.4": "xc7vx485tffg1761-2",
        "xilinx.com:vc709:part0:1.8": "xc7vx690tffg1761-2",
    },
    # Interfaces of the memory in the board files (XilinxBoardStore).
    "board_interfaces": {
        "xilinx.com:vc707:part0:1.4": ["ddr3_sdram"],
        "xilinx.com:vc709:part0:1.8": ["ddr3_sdram_socket_j1", "ddr3_sdram_socket_j1_j3", "ddr3_sdram_socket_j3"],
    },
    "progress": "100%",
    "slack": "0.312",
    "frequency": "100000000",
}


def rules(inference: str, **world: Any) -> str:
    commands = {
        name: [*each["arguments"], each.get("options", {})] for name, each in LIST["commands"].items()
    }  # fmt: skip
    return (
        f"set commands {braced(commands)}\nset properties {braced(LIST['properties'])}\n"
        f"set parts {braced(PARTS)}\nset inference {inference}\n"
        + "".join(f"set {name} {braced(value)}\n" for name, value in {**WORLD, **world}.items())
    )


@dataclass
class Packaged:
    """Record of the packaged IP, as rows of an object's kind, path, property and value."""

    rows: list[list[str]]

    def of(self, kind: str) -> set[str]:
        return {path for each, path, *_ in self.rows if each == kind}

    def get(self, kind: str, path: str) -> dict[str, str]:
        return {name: value for each, where, name, value in self.rows if (each, where) == (kind, path) and name}


def run(
    folder: Path,
    arguments: Sequence[str] = (),
    inference: str = "names",
    script: str = vivado_files.PACKAGING,
    **world: Any,
) -> subprocess.CompletedProcess[str]:
    assert TCLSH
    made, dump = folder.parent / "rules.tcl", folder.parent / "dump"
    made.write_text(rules(inference, **world))
    command = [TCLSH, str(HERE / "vivado.tcl"), str(made), str(dump), str(folder / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def packaged(folder: Path, *arguments: str, inference: str = "names") -> Packaged:
    done = run(folder, arguments, inference)
    assert done.returncode == 0, done.stderr
    return Packaged([line.split("\t") for line in (folder.parent / "dump").read_text().splitlines()])


def refused(folder: Path, *arguments: str) -> str:
    done = run(folder, arguments)
    assert done.returncode == 1, done.stdout
    return done.stderr.strip()


def made_of(folder: Path, *arguments: str, **world: Any) -> Packaged:
    """Run a folder's project script, and return what it made."""
    done = run(folder, arguments, script=vivado_files.PROJECT, **world)
    assert done.returncode == 0, done.stderr
    rows = (folder.parent / "dump").read_text().splitlines()
    return Packaged([*(line.split("\t") for line in rows), ["said", done.stdout, "", ""]])


def refused_project(folder: Path, *arguments: str, **world: Any) -> str:
    """Run a folder's project script, which must fail, and return its message."""
    done = run(folder, arguments, script=vivado_files.PROJECT, **world)
    assert done.returncode == 1, done.stdout
    return done.stderr.strip()


def rows(made: Packaged, kind: str) -> dict[str, str]:
    return {path: value for each, path, _, value in made.rows if each == kind}


def cells(made: Packaged) -> dict[str, str]:
    return {name: made.get("bd_cell", name)["VLNV"] for name in made.of("bd_cell")}


def addresses(made: Packaged) -> dict[tuple[str, str], str]:
    """First address and size of each segment in each address space."""
    return {(path, space): place for each, path, space, place in made.rows if each == "address"}


def verilog_ports(folder: Path, top: str) -> dict[str, tuple[str, int]]:
    """Direction and width of each port of a module."""
    text = (folder / f"{top}.v").read_text()
    (ports,) = re.findall(rf"^module {top} \((.*?)^\);", text, re.MULTILINE | re.DOTALL)
    found = re.findall(r"^ *(input|output) +\w+ +(?:\[(\d+):0\] )?(\w+),?$", ports, re.MULTILINE)
    return {name: (direction, int(high or 0) + 1) for direction, high, name in found}


def check_interfaces(made: Packaged, folder: Path, root: str, top: str) -> None:
    """Each port of the module is in one interface, as a signal of its type that goes the same way."""
    ports = verilog_ports(folder, top)
    used: list[str] = []
    for path in made.of("bus_interface"):
        bus = made.get("bus_interface", path)
        kind = bus["bus_type_vlnv"].split(":")[2]
        assert bus["abstraction_type_vlnv"] == bus["bus_type_vlnv"].replace(f"{kind}:", f"{kind}_rtl:")
        signals = {each.rpartition("/")[2]: each for each in made.of("port_map") if each.startswith(f"{path}/")}
        known = {way: [*LIST["signals"][kind][way]] for way in ("out", "in")}
        if kind == "aximm" and bus["interface_mode"] == "master":
            known = {way: [*known[way], *LIST["signals"]["bursts"][way]] for way in known}
        assert signals.keys() == {*known["out"], *known["in"]}
        parameters = {each.rpartition("/")[2] for each in made.of("bus_parameter") if each.startswith(f"{path}/")}
        assert {LIST["parameters"][each] for each in parameters} <= {kind}
        for signal, each in signals.items():
            port = made.get("port_map", each)["physical_name"]
            used.append(port)
            drives = (signal in known["out"]) == (bus["interface_mode"] == "master")
            assert ports[port][0] == ("output" if drives else "input")
            if kind in ("axis", "aximm"):
                assert port == f"{path.removeprefix(f'{root}/')}_{signal.lower()}"
        if kind == "axis":
            widths = {each: ports[made.get("port_map", signals[each])["physical_name"]][1] for each in signals}
            assert widths["TDATA"] == 8 * widths["TKEEP"]
    assert sorted(used) == sorted(ports)


def check_registers(made: Packaged, root: str, document: dict[str, Any]) -> None:
    """Check that the IP has the registers of ``registers.json``, with their offsets and fields."""
    block = f"{root}/s_axi_control/reg0"
    assert made.of("address_block") == {block}
    assert int(made.get("address_block", block)["range"]) == document["bytes"]
    assert made.of("register") == {f"{block}/{each['name']}" for each in document["registers"]}
    fields = set()
    for each in document["registers"]:
        path = f"{block}/{each['name']}"
        found = made.get("register", path)
        assert int(found["address_offset"], 16) == each["offset"]
        assert found["description"] == each["about"]
        access = {"r": "read-only", "rw": "read-write", "w1c": "read-write", "w1s": "write-only"}[each["access"]]
        assert found["access"] == access
        for field in each["fields"]:
            if field["name"] != "VALUE":
                fields.add(f"{path}/{field['name']}")
                got = made.get("field", f"{path}/{field['name']}")
                assert (int(got["bit_offset"]), int(got["bit_width"])) == (field["low"], field["bits"])
                assert (got["description"], got["access"]) == (field["about"], access)
    assert made.of("field") == fields


def edit(folder: Path, old: str, new: str) -> None:
    script = folder / vivado_files.PACKAGING
    text = script.read_text()
    assert text.count(old) == 1
    script.write_text(text.replace(old, new))


def folder_of(tmp_path: Path, bus_bytes: int = 8, board: str = "zedboard", ports: int = 1) -> Path:
    """Write the files of a build that Vivado's scripts read, and return their folder. Engine and program are empty."""
    shell = EngineShellConfig(engine=replace(behind(bus_bytes), ports=ports), build_hash=0x0123_4567_89AB_CDEF)
    files = {"engine.v": b"", "net.program": b"", **EnginePackage(shell=shell, top="engine").files(boards.load(board))}
    scripts = {vivado_files.COMPONENT: vivado_files.component(ip_of(shell, "engine", files), VIVADO.ip_families)}
    scripts[vivado_files.PACKAGING] = vivado_files.packaging(ip_of(shell, "engine", files), PARTS[0])
    files |= scripts | vivado_files.project(shell, "engine", boards.load(board), files)
    folder = tmp_path / "a folder"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def streams_folder(tmp_path: Path, inputs: int, outputs: int, board: str) -> Path:
    """Write the files of an accelerator's wrapper that Vivado's scripts read, and return their folder."""
    config, folder = shell(inputs, outputs), tmp_path / "built"
    files = convert(Wrapper(config, "net"), "net_axi")
    files |= dict.fromkeys(("net.v", "net_driver.py", "net_registers.h", "net_registers.py"), b"")
    files["registers.json"] = json.dumps(wrapper.to_json(config, "net_axi")).encode()
    files[vivado_files.PACKAGING] = vivado_files.packaging(ip_of(config, "net", files), "")
    files |= vivado_files.project(config, "net", boards.load(board), files)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder
