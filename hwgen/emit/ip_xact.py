"""IP-XACT description of a design, ``component.xml``, with which Vivado's IP catalogue reads the result folder.

The description follows IEEE 1685-2009, with the extensions that Vivado reads. ``component.xml.j2`` has the elements in
the order of the schema, because Vivado refuses any other order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from amaranth.lib.wiring import Out

from hwgen.emit.ip import ACCESS, LIBRARY, VENDOR, VERSION, fields_of, ip_of
from hwgen.gateware.bus.base import BusShellConfig
from hwgen.gateware.bus.registers import REGISTER_BYTES, Access
from hwgen.rendering import render

__all__ = ["NAME", "description"]

#: Name of the IP-XACT description in a result folder. Vivado searches for files with this name.
NAME = "component.xml"

#: IP-XACT's modifiedWriteValue for each register access in which ones that are written are not stored.
_MODIFIED_WRITE: Mapping[Access, str] = {"w1c": "oneToClear", "w1s": "oneToSet"}
#: IP-XACT's fileType of each file ending (IEEE 1685-2009). Other files are described by their ending.
_FILE_TYPES = {"v": "verilogSource", "c": "cSource", "h": "cSource"}


@dataclass(frozen=True)
class _View:
    """Description of an IP's view in Vivado's catalogue: which files are for synthesis, simulation or software."""

    name: str
    environment: str
    has_sources: bool


_VIEWS = (
    _View("xilinx_anylanguagesynthesis", ":vivado.xilinx.com:synthesis", has_sources=True),
    _View("xilinx_anylanguagebehavioralsimulation", ":vivado.xilinx.com:simulation", has_sources=True),
    _View("xilinx_miscfiles", ":vivado.xilinx.com:misc.files", has_sources=False),
)


def description(shell: BusShellConfig, top: str, names: Iterable[str], families: Iterable[str]) -> bytes:
    """Return ``component.xml``, the IP-XACT description of a bus wrapper as an IP.

    The IP equals the IP that `hwgen.emit.package.script` makes.

    Parameters
    ----------
    shell, top, names
        Parameters of `hwgen.emit.ip.ip_of`.
    families : iterable of str
        Vivado's names of the device families for which the catalogue offers the IP.
    """
    return render(
        "hwgen.emit",
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
