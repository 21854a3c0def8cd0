"""The IP of a result in IP-XACT: ``component.xml``, by which Vivado's catalogue takes the folder in as it is.

IEEE 1685-2009, which Vivado reads and writes, and what Vivado adds to it. The template beside this file has the
elements in the order of the schema, which Vivado needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from amaranth.lib.wiring import Out

from hwgen.emit.ip import ACCESS, LIBRARY, VENDOR, VERSION, fields_of, ip_of
from hwgen.emit.rendering import render
from hwgen.gateware.bus.base import BusShellConfig
from hwgen.gateware.bus.registers import REGISTER_BYTES, Access

__all__ = ["NAME", "description"]

#: The description in a result folder: Vivado looks for files of this name.
NAME = "component.xml"

#: What writing ones does, beyond storing them.
_MODIFIED_WRITE: Mapping[Access, str] = {"w1c": "oneToClear", "w1s": "oneToSet"}
#: What there is a word for among the types of files (IEEE 1685-2009, fileType); of others their ending says it.
_FILE_TYPES = {"v": "verilogSource", "c": "cSource", "h": "cSource"}


@dataclass(frozen=True)
class _View:
    """A way in which Vivado takes the files: the sources, or what software needs."""

    name: str
    environment: str
    has_sources: bool


_VIEWS = (
    _View("xilinx_anylanguagesynthesis", ":vivado.xilinx.com:synthesis", has_sources=True),
    _View("xilinx_anylanguagebehavioralsimulation", ":vivado.xilinx.com:simulation", has_sources=True),
    _View("xilinx_miscfiles", ":vivado.xilinx.com:misc.files", has_sources=False),
)


def description(shell: BusShellConfig, top: str, names: Iterable[str], families: Iterable[str]) -> bytes:
    """Return ``component.xml``: the IP as `hwgen.emit.package.script` makes it, of the files where they are.

    ``families`` are those that Vivado offers the IP for. The other parameters are those of `hwgen.emit.ip.ip_of`.
    """
    return render(
        NAME,
        ip=ip_of(shell, top, names),
        vendor=VENDOR,
        library=LIBRARY,
        version=VERSION,
        families=families,
        views=_VIEWS,
        access=ACCESS,
        modified_write=_MODIFIED_WRITE,
        file_types=_FILE_TYPES,
        fields_of=fields_of,
        register_bits=8 * REGISTER_BYTES,
        Out=Out,
    ).encode()
