"""The IP of a result in IP-XACT: ``component.xml``, by which Vivado's catalogue takes the folder in as it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from hwgen.emit.ip import ACCESS, LIBRARY, VENDOR, VERSION, Interface, Ip, fields_of, ip_of
from hwgen.gateware.bus.base import BusShellConfig
from hwgen.gateware.bus.registers import REGISTER_BYTES, Access, Register

__all__ = ["NAME", "description"]

#: The description in a result folder: Vivado looks for files of this name.
NAME = "component.xml"

#: IEEE 1685-2009, which Vivado reads and writes, and what Vivado adds to it.
_SPIRIT = "http://www.spiritconsortium.org/XMLSchema/SPIRIT/1685-2009"
_XILINX = "http://www.xilinx.com"
_HEAD = f'<?xml version="1.0" encoding="UTF-8"?>\n<!-- {NAME}: written by hwgen. Do not edit. -->\n'
#: The one block of addresses, by the name that package_ip.tcl gives it.
_BLOCK = "reg0"
#: What writing ones does, beyond storing them.
_WRITTEN: Mapping[Access, str] = {"w1c": "oneToClear", "w1s": "oneToSet"}
#: Name, environment and language of each way in which Vivado takes the files, and whether these are the sources.
_VIEWS = (
    ("xilinx_anylanguagesynthesis", ":vivado.xilinx.com:synthesis", True),
    ("xilinx_anylanguagebehavioralsimulation", ":vivado.xilinx.com:simulation", True),
    ("xilinx_miscfiles", ":vivado.xilinx.com:misc.files", False),
)
#: What there is a word for among the types of files (IEEE 1685-2009, fileType); of others their ending says it.
_FILE_TYPES = {"v": "verilogSource", "c": "cSource", "h": "cSource"}


def description(shell: BusShellConfig, top: str, names: Iterable[str], families: Iterable[str]) -> bytes:
    """Return ``component.xml``: the IP as `hwgen.emit.package.script` makes it, of the files where they are.

    ``families`` are those that Vivado offers the IP for. The other parameters are those of `hwgen.emit.ip.ip_of`.
    """
    root = _component(ip_of(shell, top, names), families)
    ElementTree.register_namespace("spirit", _SPIRIT)
    ElementTree.register_namespace("xilinx", _XILINX)
    ElementTree.indent(root)
    return (_HEAD + ElementTree.tostring(root, encoding="unicode") + "\n").encode()


def _component(ip: Ip, families: Iterable[str]) -> Element:
    """The order of all elements is that of the schema, which Vivado wants."""
    spaces = [
        _node("addressSpace", *_texts(name=each.name), _long("range", each.bytes), _long("width", each.bits))
        for each in ip.spaces
    ]
    component_name = _parameter("Component_Name", f"{ip.name}_v{VERSION.replace('.', '_')}", "PARAM_VALUE", "user")
    return _node(
        "component",
        *_texts(vendor=VENDOR, library=LIBRARY, name=ip.name, version=VERSION),
        _node("busInterfaces", *(_interface(each, ip) for each in ip.interfaces)),
        *([_node("addressSpaces", *spaces)] if spaces else []),
        _node("memoryMaps", _memory_map(ip)),
        _node("model", _node("views", *_views(ip)), _node("ports", *(_port(*each) for each in ip.ports.items()))),
        _node("fileSets", *_file_sets(ip)),
        *_texts(description=ip.description),
        _node("parameters", component_name),
        _node("vendorExtensions", _extensions(ip, families)),
    )


def _interface(interface: Interface, ip: Ip) -> Element:
    library, name = interface.kind.split(":")
    mode = _node(interface.mode)
    if interface.name == ip.control:
        mode.append(_node("memoryMapRef", memoryMapRef=ip.control))
    if interface.name in (each.name for each in ip.spaces):
        mode.append(_node("addressSpaceRef", addressSpaceRef=interface.name))
    maps = (
        _node("portMap", _node("logicalPort", *_texts(name=signal)), _node("physicalPort", *_texts(name=port)))
        for signal, port in interface.ports.items()
    )
    owner = f"BUSIFPARAM_VALUE.{interface.name.upper()}"
    parameters = [_parameter(key, value, owner) for key, value in interface.parameters.items()]
    return _node(
        "busInterface",
        *_texts(name=interface.name),
        _node("busType", vendor="xilinx.com", library=library, name=name, version="1.0"),
        _node("abstractionType", vendor="xilinx.com", library=library, name=f"{name}_rtl", version="1.0"),
        mode,
        _node("portMaps", *maps),
        *([_node("parameters", *parameters)] if parameters else []),
    )


def _memory_map(ip: Ip) -> Element:
    block = _node(
        "addressBlock",
        *_texts(name=_BLOCK, baseAddress="0"),
        _long("range", ip.bytes),
        _long("width", 8 * REGISTER_BYTES),
        *_texts(usage="register"),
        *map(_register, ip.registers),
    )
    return _node("memoryMap", *_texts(name=ip.control), block)


def _register(register: Register) -> Element:
    access, written = ACCESS[register.access], _WRITTEN.get(register.access)
    fields = (
        _node(
            "field",
            *_texts(name=each.name, description=each.about, bitOffset=str(each.low), bitWidth=str(each.bits)),
            *_texts(access=access, **({"modifiedWriteValue": written} if written else {})),
        )
        for each in fields_of(register)
    )
    return _node(
        "register",
        *_texts(name=register.name, description=register.about, addressOffset=f"0x{register.offset:03x}"),
        *_texts(size=str(8 * REGISTER_BYTES), access=access),
        _node("reset", *_texts(value=f"0x{register.reset:08x}")),
        *fields,
    )


def _views(ip: Ip) -> Iterable[Element]:
    for name, environment, of_sources in _VIEWS:
        what = _texts(language="Verilog", modelName=ip.name) if of_sources else []
        files = _node("fileSetRef", *_texts(localName=_file_set(name)))
        yield _node("view", *_texts(name=name, envIdentifier=environment), *what, files)


def _port(name: str, member: wiring.Member) -> Element:
    bits = int(member.shape)  # type: ignore[arg-type]  # a bus has plain bits
    kind = _node(
        "wireTypeDef",
        *_texts(typeName="wire"),
        *chain.from_iterable(_texts(viewNameRef=view) for view, _, of_sources in _VIEWS if of_sources),
    )
    wire = _node(
        "wire",
        *_texts(direction="out" if member.flow is Out else "in"),
        *([_node("vector", _long("left", bits - 1), _long("right", 0))] if bits > 1 else []),
        _node("wireTypeDefs", kind),
    )
    return _node("port", *_texts(name=name), wire)


def _file_sets(ip: Ip) -> Iterable[Element]:
    for name, _, of_sources in _VIEWS:
        files = (
            _node("file", *_texts(name=each), *_file_type(each)) for each in (ip.sources if of_sources else ip.software)
        )
        yield _node("fileSet", *_texts(name=_file_set(name)), *files)


def _file_set(view: str) -> str:
    return f"{view}_view_fileset"


def _file_type(name: str) -> list[Element]:
    ending = name.rpartition(".")[2]
    return _texts(fileType=_FILE_TYPES[ending]) if ending in _FILE_TYPES else _texts(userFileType=ending)


def _extensions(ip: Ip, families: Iterable[str]) -> Element:
    return _vendors(
        "coreExtensions",
        _vendors("supportedFamilies", *(_vendors("family", family, lifeCycle="Production") for family in families)),
        _vendors("taxonomies", _vendors("taxonomy", "/UserIP")),
        _vendors("displayName", ip.name),
        _vendors("vendorDisplayName", VENDOR),
        _vendors("coreRevision", str(ip.revision)),
    )


def _parameter(name: str, value: str, owner: str, resolve: str = "immediate") -> Element:
    entry = _node("value", value, resolve=resolve, id=f"{owner}.{name}")
    return _node("parameter", *_texts(name=name), entry)


def _long(tag: str, value: int) -> Element:
    return _node(tag, str(value), format="long")


def _texts(**texts: str) -> list[Element]:
    return [_node(tag, text) for tag, text in texts.items()]


def _node(tag: str, *inside: Element | str, **attributes: str) -> Element:
    return _element(_SPIRIT, tag, inside, attributes)


def _vendors(tag: str, *inside: Element | str, **attributes: str) -> Element:
    return _element(_XILINX, tag, inside, attributes)


def _element(space: str, tag: str, inside: Iterable[Element | str], attributes: Mapping[str, str]) -> Element:
    made = Element(f"{{{space}}}{tag}", {f"{{{space}}}{key}": value for key, value in attributes.items()})
    for each in inside:
        if isinstance(each, str):
            made.text = each
        else:
            made.append(each)
    return made
