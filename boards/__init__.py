"""Boards: what a device holds, how fast its clock is, and where its pins are.

One TOML file a board states the budgets; a module here or in amaranth-boards holds its Amaranth platform class.
A board of one's own is such a TOML file, given by its path. A part alone, by its name, stands for a board, too.
"""

from __future__ import annotations

import difflib
import importlib
import tomllib
from dataclasses import MISSING, asdict, dataclass, fields
from importlib import resources
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwgen.devices import DEFAULT, Device, family_of
from hwgen.errors import BoardError

if TYPE_CHECKING:
    from amaranth.vendor import XilinxPlatform

__all__ = ["Board", "load", "names"]


MOST = {"lut": 100_000_000, "ff": 100_000_000, "dsp": 1_000_000, "bram36": 1_000_000}
"""Budgets beyond those of any device, tenfold and more."""

PART_MHZ, PART_GB_S = 100.0, 1.0
"""Of a part without a board, which has neither a clock nor a memory of its own: taken unless others are asked for."""


@dataclass(frozen=True, kw_only=True)
class Board:
    """A board and the budget of its device.

    Parameters
    ----------
    name : str
        Name on the command line, lower case.
    device : str
        Device as its maker calls it (``XC7Z020``).
    part : str
        Full part number, as Vivado takes it; capitals become small letters.
    lut, ff, dsp, bram36 : int
        6-input LUTs, flip-flops, DSP48E1 slices and 36 kbit block RAMs (Xilinx DS180, DS190).
    clock_mhz : float
        Frequency of the clock of the programmable logic, in MHz: the board's own, if no other is asked for.
    memory_gb_s : float
        Peak rate of the off-chip memory, in 1e9 bytes a second.
    description : str
        One line for people.
    platform : str
        Where the Amaranth platform class is, ``module:class``; empty where there is none.
    dma_call_ns, dma_jump_ns : float
        What a transfer to or from the off-chip memory costs besides its data: to start it, and for each run of
        neighbouring addresses (`hwgen.blocking.cecconi`).
    board_parts : tuple of str
        What Vivado may call its files for the board, the first that it has: patterns such as ``*:pynq-z2:part0:*``.
        Without them there is no project, only an IP.

    Raises
    ------
    BoardError
        If a budget, the clock or the memory's rate is not positive, or beyond reason, or a cost of transfers negative.
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

    def __post_init__(self) -> None:
        for name in ("name", "device", "part", "description", "platform"):
            if not isinstance(getattr(self, name), str):
                raise BoardError(f"board {self.name}: {name} must be a string, not {getattr(self, name)!r}")
        for name, most in MOST.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BoardError(f"board {self.name}: {name} must be a positive integer, not {value!r}")
            if value > most:
                raise BoardError(f"board {self.name}: {name} must be at most {most:,}, not {value:,}")
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

        object.__setattr__(self, "part", self.part.lower())  # as Vivado has all parts
        if isinstance(self.board_parts, list):  # as TOML and JSON have it
            object.__setattr__(self, "board_parts", tuple(self.board_parts))
        if not isinstance(self.board_parts, tuple) or not all(isinstance(each, str) for each in self.board_parts):
            raise BoardError(f"board {self.name}: board_parts must be a list of strings, not {self.board_parts!r}")

    @property
    def family(self) -> Device:
        """Device family of the board's part; `hwgen.devices.DEFAULT` if no family knows the part."""
        return family_of(self.part) or DEFAULT

    def transfer_cycles(self, size: int) -> int:
        """Clock cycles that ``size`` bytes take over the off-chip memory's port, at its peak rate."""
        return ceil(size * self.clock_mhz / (1000 * self.memory_gb_s))

    @property
    def platform_class(self) -> type[XilinxPlatform]:
        """The board's Amaranth platform: clock, LEDs, buttons, switches.

        Raises
        ------
        BoardError
            If the board states no platform, or one that is not there.
        """
        if not self.platform:
            raise BoardError(f"board {self.name} has no platform class; set platform = 'module:class' in its file")
        module, _, name = self.platform.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise BoardError(f"board {self.name} has no platform class {self.platform!r}: {error}") from error


def names() -> list[str]:
    """Names of the boards that come with hwgen, sorted."""
    return sorted(Path(file.name).stem for file in resources.files(__name__).iterdir() if file.name.endswith(".toml"))


def load(name: str) -> Board:
    """Read a board by its name (in any case), or from a TOML file of one's own (a path ending in ``.toml``).

    The name of a part stands for a board that has `PART_MHZ` and `PART_GB_S`.

    Raises
    ------
    BoardError
        If the board is unknown, or its file unreadable or incomplete.
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
    if (family := family_of(key)) is not None:
        return _of_part(key, family)
    near = difflib.get_close_matches(key, names(), n=1, cutoff=0.0)
    raise BoardError(f"unknown board {name!r}; did you mean {near[0]!r}? (known: {', '.join(names())})")


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
