"""Description of FPGA boards: resource budgets, clock frequency, memory bandwidth and pins.

Each board has a TOML file with its budgets. A module here or in amaranth-boards contains its Amaranth platform class. A
user's board is also a TOML file, given by its path. A part number alone names a device without a board, with a default
clock and a default memory bandwidth.
"""

from __future__ import annotations

import difflib
import importlib
import re
import tomllib
from dataclasses import MISSING, asdict, dataclass, fields
from importlib import resources
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwgen.devices import FAMILIES, GENERIC, Device, capacity_error, family_of, spelling_error, unsupported_error
from hwgen.errors import BoardError

if TYPE_CHECKING:
    from amaranth.vendor import XilinxPlatform

    from hwgen.devices.flow import ProjectHost
    from hwgen.devices.memory import UltraRam

__all__ = ["BUS_BITS", "Board", "load", "names"]


MAX_BUDGETS = {"lut": 100_000_000, "ff": 100_000_000, "dsp": 1_000_000, "bram36": 1_000_000, "uram": 100_000}
"""Dictionary by resource (``lut``, ``ff`` ..): largest amount that a board file can state, at least ten times any
device's."""

MAY_LACK = frozenset({"uram"})
"""Names of resources that a device can be without."""

BUS_BITS = (32, 64, 128, 256, 512)
"""Permitted widths in bits for an engine's port to the off-chip memory."""

MEMORY_PORTS = (1, 2, 4)
"""Permitted numbers of ports to the off-chip memory that one engine uses together."""

PART_MHZ, PART_GB_S = 100.0, 1.0
"""Clock in MHz and memory bandwidth in GB/s of a board that is given by a part number alone."""


@dataclass(frozen=True, kw_only=True)
class Board:
    """Description of an FPGA board: resource budget of its device, clock, off-chip memory, and Amaranth platform.

    Parameters
    ----------
    name : str
        Name on the command line, in lower case.
    device : str
        Manufacturer's name of the device (``XC7Z020``).
    part : str
        Full part number of the maker, in any case.
    lut, ff, dsp, bram36 : int
        Number of 6-input LUTs, flip-flops, DSP slices and 36 kbit block RAMs.
    uram : int
        Number of 288 kbit UltraRAMs; 0 for a device without UltraRAM.
    clock_mhz : float
        Default frequency of the clock of the programmable logic, in MHz.
    memory_gb_s : float
        Peak bandwidth of the off-chip memory, in 1e9 bytes per second.
    description : str
        Description in one line.
    platform : str
        Import path of the Amaranth platform class, ``module:class``; empty without one.
    dma_call_ns, dma_jump_ns : float
        Overhead of a transfer to or from the off-chip memory, in ns: per transfer, and per run of neighbouring
        addresses (`hwgen.blocking.cecconi`).
    board_parts : tuple of str
        Patterns of the names of the board's files in Vivado, such as ``*:pynq-z2:part0:*``. The first that Vivado has
        is used. Without patterns there is an IP, but no project.
    bus_bits : int
        Width of an engine's port to the off-chip memory, in bits, where a request names neither a width nor a
        bandwidth.
    memory_ports : int
        Number of such ports that one engine can use: 1, 2 or 4.
    pcie_block : str
        Site of the device's PCI Express block that the connector's lanes belong to, such as ``X0Y1``. The platform has
        the connector's pins as the resource ``pcie``.
    memory_interface : str
        Interface of the DDR3 memory in Vivado's board files, whose preset a project without a processing system uses.

    Raises
    ------
    BoardError
        If a budget, the clock or the bandwidth is not positive or beyond its limit, an overhead is negative, or the
        port has another width than one of `BUS_BITS`. If the part begins as those of a device family and is none of
        them, or the part's family lacks UltraRAM or Vivado projects that the board has.
    """

    name: str
    device: str
    part: str
    lut: int
    ff: int
    dsp: int
    bram36: int
    clock_mhz: float
    memory_gb_s: float
    description: str
    platform: str = ""
    dma_call_ns: float = 0.0
    dma_jump_ns: float = 0.0
    board_parts: tuple[str, ...] = ()
    bus_bits: int = 64
    uram: int = 0
    memory_ports: int = 1
    pcie_block: str = ""
    memory_interface: str = ""

    def __post_init__(self) -> None:
        for name in ("name", "device", "part", "description", "platform", "pcie_block", "memory_interface"):
            if not isinstance(getattr(self, name), str):
                raise BoardError(f"board {self.name}: {name} must be a string, not {getattr(self, name)!r}")
        for name, max_value in MAX_BUDGETS.items():
            value = getattr(self, name)
            least = 0 if name in MAY_LACK else 1
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                wanted = "a positive integer" if least else "an integer that is not negative"
                raise BoardError(f"board {self.name}: {name} must be {wanted}, not {value!r}")
            if value > max_value:
                raise BoardError(f"board {self.name}: {name} must be at most {max_value:,}, not {value:,}")
        for name in ("clock_mhz", "memory_gb_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
                raise BoardError(f"board {self.name}: {name} must be a positive number, not {value!r}")
            if not 1e-6 <= value <= 1e6:
                raise BoardError(f"board {self.name}: {name} must be between 1e-6 and 1e6, not {value!r}")
        for name in ("dma_call_ns", "dma_jump_ns"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e9:
                raise BoardError(f"board {self.name}: {name} must be between 0 and 1e9, not {value!r}")
        if type(self.bus_bits) is not int or self.bus_bits not in BUS_BITS:
            widths = f"{', '.join(map(str, BUS_BITS[:-1]))} or {BUS_BITS[-1]}"
            raise BoardError(f"board {self.name}: bus_bits must be {widths}, not {self.bus_bits!r}")
        if type(self.memory_ports) is not int or self.memory_ports not in MEMORY_PORTS:
            ports = f"{', '.join(map(str, MEMORY_PORTS[:-1]))} or {MEMORY_PORTS[-1]}"
            raise BoardError(f"board {self.name}: memory_ports must be {ports}, not {self.memory_ports!r}")
        if self.part != self.part.strip():
            raise BoardError(f"board {self.name}: part must have no blanks at its ends, not {self.part!r}")
        if error := spelling_error(self.part):
            raise BoardError(f"board {self.name}: part {error}")
        object.__setattr__(self, "part", self.family.spelled(self.part))
        if isinstance(self.board_parts, list):  # TOML and JSON have lists
            object.__setattr__(self, "board_parts", tuple(self.board_parts))
        if not isinstance(self.board_parts, tuple) or not all(isinstance(pattern, str) for pattern in self.board_parts):
            raise BoardError(f"board {self.name}: board_parts must be a list of strings, not {self.board_parts!r}")
        self._check_family()

    def ports_of(self, bits: int) -> int:
        """Return how many of the board's memory ports together are a bus of ``bits`` bits; 1 if no number of them is.

        A bus of one port has the width that was asked for; an interconnect converts it.

        Parameters
        ----------
        bits : int
            Width of the bus, in bits.

        Returns
        -------
        int
            Number of ports, each of at least 64 bits if there are several.
        """
        count, rest = divmod(bits, self.bus_bits)
        return count if not rest and count in MEMORY_PORTS and count <= self.memory_ports and self.bus_bits >= 64 else 1

    def _check_family(self) -> None:
        """Raise BoardError if the board states UltraRAM or Vivado board parts that its part's family doesn't support.

        Raises
        ------
        BoardError
            If there is such an entry.
        """
        if self.uram and self.ultra_ram is None:
            titles = [family.title for family in FAMILIES.values() if family.memories.ultra]
            raise BoardError(
                f"board {self.name}: uram must be 0 for the part {self.part}, not {self.uram:,}: "
                f"hwgen uses UltraRAM of {' and '.join(titles)} only"
            )
        if self.board_parts and self.family.vivado is None:
            titles = [family.title for family in FAMILIES.values() if family.vivado]
            raise BoardError(
                f"board {self.name}: board_parts have no use for the part {self.part}: "
                f"hwgen writes Vivado projects for {' and '.join(titles)} only"
            )

    @property
    def family(self) -> Device:
        """Device family (`Device`) of the board's part, by its spelling; `hwgen.devices.GENERIC` if unknown."""
        return family_of(self.part) or GENERIC

    @property
    def host(self) -> ProjectHost | None:
        """`ProjectHost` of a Vivado project on the board; ``None`` if the board's file lacks what the project needs."""
        host = self.family.host_of(self.part)
        if host is None or not self.board_parts:
            return None
        if host.resource and not (self.pcie_block and (host.resource, 0) in self.platform_class().resources):
            return None
        return host

    @property
    def ultra_ram(self) -> UltraRam | None:
        """Description (`UltraRam`) of the device's UltraRAM blocks; ``None`` if the device has none."""
        return self.family.memories.ultra if self.uram else None

    def transfer_cycles(self, size: int) -> int:
        """Return the clock cycles that a transfer of ``size`` bytes takes at the off-chip memory's peak bandwidth.

        Returns
        -------
        int
            Number of cycles, rounded up.
        """
        return ceil(size * self.clock_mhz / (1000 * self.memory_gb_s))

    def limited(self, **limits: tuple[str, int]) -> LimitedBoard:
        """Return a copy of this board, a `LimitedBoard`, with less of some resources.

        Parameters
        ----------
        limits : tuple of (str, int)
            For each budget, by its field, the option that limits it, and the number that may be used.

        Returns
        -------
        LimitedBoard
            Board with the smaller budgets.
        """
        names = {field: option for field, (option, _) in limits.items()}
        return self._with_limits({field: budget for field, (_, budget) in limits.items()}, names)

    def _with_limits(self, budgets: dict[str, int], options: dict[str, str]) -> LimitedBoard:
        values = {field.name: getattr(self, field.name) for field in fields(Board)}
        return LimitedBoard(**{**values, **budgets}, limits=tuple(options.items()))

    def limiting_option(self, field: str) -> str:
        """Return the name of the option, such as ``--lut``, that limits a plan's use of a resource; empty if none does.

        Returns
        -------
        str
            Name of the option, or an empty string.
        """
        return ""

    def supply(self, field: str) -> str:
        """Return a clause with the amount of a resource that a plan may use: ``zedboard (XC7Z020) has 53,200``.

        Parameters
        ----------
        field : str
            Field of the resource's budget: ``lut``, ``ff``, ``dsp``, ``bram36`` or ``uram``.

        Returns
        -------
        str
            Clause for a message.
        """
        return f"{self.name} ({self.device}) has {getattr(self, field):,}"

    @property
    def platform_class(self) -> type[XilinxPlatform]:
        """Amaranth platform class of the board: clock, LEDs, buttons, switches.

        Raises
        ------
        BoardError
            If the board states no platform, or the platform can't be imported.
        """
        if not self.platform:
            raise BoardError(f"board {self.name} has no platform class; set platform = 'module:class' in its file")
        module, _, name = self.platform.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise BoardError(f"board {self.name} has no platform class {self.platform!r}: {error}") from error


@dataclass(frozen=True, kw_only=True)
class LimitedBoard(Board):
    """Board with lower limits, set by a user's options, on some resources.

    Parameters
    ----------
    limits : tuple of (str, str)
        Field of each limited budget, and the option that limits it.
    """

    limits: tuple[tuple[str, str], ...] = ()

    def _with_limits(self, budgets: dict[str, int], options: dict[str, str]) -> LimitedBoard:
        return super()._with_limits(budgets, {**dict(self.limits), **options})

    def limiting_option(self, field: str) -> str:
        return dict(self.limits).get(field, "")

    def supply(self, field: str) -> str:
        option = self.limiting_option(field)
        return f"{getattr(self, field):,} may be used on {self.name} ({option})" if option else super().supply(field)


def names() -> list[str]:
    """Return a list of the names of the boards that are part of hwgen.

    Returns
    -------
    list of str
        Names in alphabetical order, such as ``zedboard``.
    """
    return sorted(Path(file.name).stem for file in resources.files(__name__).iterdir() if file.name.endswith(".toml"))


def load(name: str) -> Board:
    """Return the `Board` that a name, a TOML file's path, or an FPGA part number stands for.

    Parameters
    ----------
    name : str
        Name of a board in any case, path that ends with ``.toml``, or part number such as ``xc7z010clg400-1``. A part
        has the clock `PART_MHZ` and the memory bandwidth `PART_GB_S`.

    Returns
    -------
    Board
        Board with its budgets.

    Raises
    ------
    BoardError
        If the board is unknown, or its file is unreadable, incomplete or wrong.
    """
    key = name.lower()
    if key in names():
        text = (resources.files(__name__) / f"{key}.toml").read_text(encoding="utf-8")
        return _parse(text, name=key, source=f"{key}.toml")
    if key.endswith(".toml"):
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not a text file"
            raise BoardError(f"board file {name} can't be read: {reason}") from error
        return _parse(text, name=Path(name).stem, source=name)
    if error := capacity_error(key):
        raise BoardError(error)
    if (family := family_of(key)) is not None:
        return _of_part(family.spelled(name), family)
    nearest = _nearest(key) if key else []
    if not nearest and (error := spelling_error(name) or unsupported_error(name)):
        raise BoardError(f"unknown board {name!r}, and as a part {error}")
    if not nearest:
        raise BoardError(f"unknown board {name!r}; known are {', '.join(names())}")
    near = " or ".join(map(repr, nearest))
    raise BoardError(f"unknown board {name!r}; did you mean {near}? (known: {', '.join(names())})")


def _nearest(key: str) -> list[str]:
    """Return a list of names of boards that a wrong name may mean: with that device or family, or the nearest name.

    Returns
    -------
    list of str
        Names of boards; none if the name is no board's and is near none.
    """
    described = {name: load(name) for name in names()}
    alike = [
        name
        for name, board in described.items()
        if re.search(rf"\b{re.escape(key)}", f"{board.part} {board.device} {board.description}".lower())
    ]
    if alike or spelling_error(key) or unsupported_error(key):
        return alike
    return difflib.get_close_matches(key, names(), n=1, cutoff=0.5)


def _of_part(part: str, family: Device) -> Board:
    device = family.device_of(part)
    assert device is not None
    return Board(
        name=part, device=device, part=part, **asdict(family.capacities[device]),
        clock_mhz=PART_MHZ, memory_gb_s=PART_GB_S, description=f"{part}, without a board",
    )  # fmt: skip


def _parse(text: str, *, name: str, source: str) -> Board:
    try:
        entries: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BoardError(f"board file {source} is not TOML: {error}") from error
    except (ValueError, RecursionError):  # Python's own limits
        raise BoardError(f"board file {source} is not TOML: a number is too long, or it is nested too deep") from None
    known = {field.name for field in fields(Board)} - {"name"}
    if unknown := sorted(entries.keys() - known):
        raise BoardError(
            f"board file {source} has unknown keys: {', '.join(unknown)} (known: {', '.join(sorted(known))})"
        )
    needed = {field.name for field in fields(Board) if field.default is MISSING} - {"name"}
    if missing := sorted(needed - entries.keys()):
        raise BoardError(f"board file {source} lacks {', '.join(missing)}")
    try:
        return Board(name=name, **entries)
    except ValueError:  # Python's own limit, which numbers in base 16 meet when they are printed
        raise BoardError(f"board file {source} has a number that is too long") from None
