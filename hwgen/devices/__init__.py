"""Device families: resources and synthesis rules of each FPGA family, in one folder per family.

A `Device` describes everything that all devices of its family share. A new family needs a folder in this package and an
entry in `FAMILIES`.
"""

from __future__ import annotations

import re

from hwgen.devices.device import Capacity, Device, Logic, MultiplierSlice, SliceChains, SliceOperand, SliceTerm
from hwgen.devices.ecp5 import ECP5
from hwgen.devices.generic import GENERIC
from hwgen.devices.memory import LutRow, Memories
from hwgen.devices.ultrascale_plus import ULTRASCALE_PLUS
from hwgen.devices.xilinx7 import XILINX7

__all__ = [
    "DEFAULT",
    "FAMILIES",
    "GENERIC",
    "Capacity",
    "Device",
    "Logic",
    "LutRow",
    "Memories",
    "MultiplierSlice",
    "SliceChains",
    "SliceOperand",
    "SliceTerm",
    "capacity_error",
    "family_of",
    "spelling_error",
    "unsupported_error",
]

FAMILIES: dict[str, Device] = {family.name: family for family in (XILINX7, ULTRASCALE_PLUS, ECP5)}
"""Dictionary by name of each `Device` family that hwgen knows."""

DEFAULT = XILINX7
"""Device family that circuits are made for if no board is given."""


#: Beginnings, in small letters, of part numbers of families that hwgen does not support, by the family's name.
_UNSUPPORTED = {
    "UltraScale": re.compile(r"x[cq][kv]u\d+(?!\d*p)"),
    "Spartan UltraScale+": re.compile(r"x[ca]su\d"),
    "Versal": re.compile(r"x[cq]v[cehmp]\d"),
    "Virtex-6 or Spartan-6": re.compile(r"x[caq]6"),
    "Virtex-5 or older": re.compile(r"x[caq][2-5]"),
    "iCE40": re.compile(r"ice40"),
    "MachXO": re.compile(r"lcmxo"),
    "Nexus": re.compile(r"l(?:ifcl|fcpnx|fd2nx|fmxo5)-"),
}


def family_of(part: str) -> Device | None:
    """Return the `Device` family of a part number such as ``xc7z020clg400-1`` (any case), or ``None`` if unknown.

    The number's spelling tells the family. The family's table of capacities can lack the device.
    """
    return next((family for family in FAMILIES.values() if family.device_of(part)), None)


def spelling_error(part: str) -> str:
    """Return an error clause for a part number that begins like a family's but is malformed; empty for other texts."""
    families = (family for family in FAMILIES.values() if family.part_beginning.match(part.lower()))
    family = next(families, None)
    if family is None or family.device_of(part):
        return ""
    form = f"{family.part_form}, such as {family.part_example}"
    return f"{part!r} is not spelled as {family.title} parts are: {form}"


def capacity_error(part: str) -> str:
    """Return an error clause for a part of a known family with unknown resources; empty for other texts."""
    family = family_of(part)
    device = None if family is None else family.device_of(part)
    if family is None or device is None or device in family.capacities:
        return ""
    return (
        f"the resources of {device} ({family.title}) are not known: state them in a board's file "
        f"(--board FILE.toml), or name another device's part, such as {family.part_example}"
    )


def unsupported_error(part: str) -> str:
    """Return an error clause for a part of a known maker's unsupported family; empty for other texts."""
    title = next((title for title, beginning in _UNSUPPORTED.items() if beginning.match(part.lower())), None)
    if title is None:
        return ""
    *titles, last = [family.title for family in FAMILIES.values()]
    return (
        f"{part!r} is of the family {title}, which hwgen does not support "
        f"(supported: {', '.join(titles)} and {last}); a board's file can state its resources (--board FILE.toml)"
    )
