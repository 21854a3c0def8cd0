"""Description of a bus wrapper's register map, the source of the hardware, the software files and the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hwgen.errors import ConfigError
from hwgen.gateware.guard import PACKET_BITS

#: Size of a register in bytes; register offsets are multiples of it.
REGISTER_BYTES = 4
#: Size of a wrapper's register address space in bytes: the minimum that Vivado assigns to a slave.
SPACE_BYTES = 4096

#: Value of the register ``IDENTITY`` of an accelerator: "HWGN" in ASCII.
IDENTITY = 0x4857_474E
#: Version of an accelerator's register map: the upper 16 bits grow when software must change, the lower 16 with
#: additions.
VERSION = 0x0001_0002
#: Maximum number of input streams, and of output streams, in an accelerator's register map.
MAX_STREAMS = 16
#: Index of the bit in an accelerator's register ``ERRORS`` that reports a failed load of weights.
WEIGHTS_ERROR_BIT = 31

#: Type of software's access to a register: read, read and write, clear or trigger by writing ones, write only. ``r``:
#: read only. ``rw``: a write is stored. ``w1c``: writing a 1 clears a bit. ``w1s``: writing a 1 triggers an action
#: once. ``w``: each write is passed on.
Access = Literal["r", "rw", "w1c", "w1s", "w"]


@dataclass(frozen=True, kw_only=True)
class Field:
    """Description of a field of a hardware register: consecutive bits with a name.

    Parameters
    ----------
    name : str
        Name in capitals; ``VALUE`` for the only field of a register.
    low, bits : int
        Index of the lowest bit, and number of bits.
    about : str
        Description for people.
    reset : int
        Value after a reset.
    """

    name: str
    low: int
    bits: int
    about: str
    reset: int = 0

    @property
    def mask(self) -> int:
        """Mask of the field's bits in the register, an integer with these bits set."""
        return ((1 << self.bits) - 1) << self.low


@dataclass(frozen=True, kw_only=True)
class Register:
    """Description of a register of a bus wrapper: a 32-bit word of the AXI4-Lite address space.

    Parameters
    ----------
    name : str
        Name in capitals.
    offset : int
        Offset in bytes, a multiple of 4.
    access : str
        Effect of reads and writes, see `Access`.
    about : str
        Description for people.
    fields : tuple of Field
        Fields, starting at the lowest bit. Bits between them are 0.

    Raises
    ------
    ConfigError
        If the offset is not a multiple of 4 or out of range, or fields overlap.
    """

    name: str
    offset: int
    access: Access
    about: str
    fields: tuple[Field, ...] = field(default=())

    def __post_init__(self) -> None:
        if not 0 <= self.offset < SPACE_BYTES or self.offset % REGISTER_BYTES:
            raise ConfigError(f"{self.name}: offset must be a multiple of 4 below {SPACE_BYTES}, not {self.offset!r}")
        end = 0
        for part in self.fields:
            if part.low < end or part.low + part.bits > 8 * REGISTER_BYTES:
                raise ConfigError(f"{self.name}.{part.name}: bits must lie above {end} and below 32, not at {part.low}")
            end = part.low + part.bits

    @property
    def reset(self) -> int:
        """Integer value of the whole 32-bit register after a reset, composed of its fields' reset values."""
        return sum(part.reset << part.low for part in self.fields)

    def __getitem__(self, name: str) -> Field:
        return next(part for part in self.fields if part.name == name)


def interrupt_registers(events: tuple[Field, ...]) -> tuple[Register, Register]:
    """Return a pair: the `Register` ``INTERRUPT_ENABLE`` and ``INTERRUPT_STATUS``, with one bit for each event."""
    return (
        Register(
            name="INTERRUPT_ENABLE",
            offset=0x01C,
            access="rw",
            about="bits of INTERRUPT_STATUS that raise the interrupt",
            fields=events,
        ),
        Register(
            name="INTERRUPT_STATUS",
            offset=0x020,
            access="w1c",
            about="events that occurred; the interrupt is high while an enabled bit is 1",
            fields=events,
        ),
    )


def read_only(name: str, offset: int, about: str, *, reset: int = 0) -> Register:
    """Return a `Register`: the description of a read-only register whose only field is ``VALUE``, 32 bits."""
    value = Field(name="VALUE", low=0, bits=32, about=about, reset=reset)
    return Register(name=name, offset=offset, access="r", about=about, fields=(value,))


def identity_registers(identity: int, version: int, build_hash: int) -> tuple[Register, ...]:
    """Return a tuple of a wrapper's first four `Register` objects: ``IDENTITY``, ``VERSION`` and the build hash.

    Parameters
    ----------
    identity : int
        Four ASCII letters, 32 bits.
    version : int
        Version of the map: the upper 16 bits grow when software must change, the lower 16 with additions.
    build_hash : int
        Identity of the design, 64 bits.
    """
    letters = identity.to_bytes(4, "big").decode()
    return (
        read_only("IDENTITY", 0x000, f'always 0x{identity:08X}, "{letters}"', reset=identity),
        Register(
            name="VERSION",
            offset=0x004,
            access="r",
            about="version of the register map",
            fields=(
                Field(name="MINOR", low=0, bits=16, about="incremented for additions", reset=version & 0xFFFF),
                Field(name="MAJOR", low=16, bits=16, about="incremented for breaking changes", reset=version >> 16),
            ),
        ),
        read_only("BUILD_HASH_LOW", 0x008, "hash of the design's files, bits 31:0", reset=build_hash & 0xFFFF_FFFF),
        read_only("BUILD_HASH_HIGH", 0x00C, "hash of the design's files, bits 63:32", reset=build_hash >> 32),
    )


def registers_of(
    inputs: Sequence[str], outputs: Sequence[str], build_hash: int, *, weights: bool = False
) -> tuple[Register, ...]:
    """Return a tuple of each `Register` of a streaming accelerator's bus wrapper, sorted by byte offset.

    Parameters
    ----------
    inputs, outputs : sequence of str
        Names of the bus streams: ``s_axis``, ``m_axis``, or several of each.
    build_hash : int
        Identity of the design, 64 bits.
    weights : bool
        Whether weights are loaded at run time.

    Raises
    ------
    ConfigError
        If there are more than `MAX_STREAMS` inputs or outputs; with ``weights``, one input less is possible.
    """
    for side, names, maximum in (("inputs", inputs, MAX_STREAMS - weights), ("outputs", outputs, MAX_STREAMS)):
        if len(names) > maximum:
            raise ConfigError(f"{side} must be at most {maximum} for a bus wrapper, not {len(names)}")
    wrong = [
        Field(name=f"{name.upper()}_{error}", low=2 * stream + bit, bits=1, about=about)
        for stream, name in enumerate(inputs)
        for bit, (error, about) in enumerate(
            (
                ("SHORT", f"a frame on {name} ended too early, and was completed with zeros"),
                ("LONG", f"a frame on {name} was too long; the surplus beats were dropped"),
            )
        )
    ]
    state: list[Field] = []
    if weights:
        about = "a packet of weights was wrong: see STATUS.WEIGHTS_GOOD"
        wrong.append(Field(name="WEIGHTS", low=WEIGHTS_ERROR_BIT, bits=1, about=about))
        state = [
            Field(name="WEIGHTS_GOOD", low=3, bits=1, about="the weights are complete; while it is 0, no frame starts"),
            Field(name="WEIGHTS_WAIT", low=4, bits=1, about="a word of weights waits until no frame is in flight"),
        ]
    events = (
        Field(name="FRAME", low=0, bits=1, about="a frame has left, on all outputs"),
        Field(name="ERROR", low=1, bits=1, about="a bit of ERRORS was raised"),
    )
    registers = [
        *identity_registers(IDENTITY, VERSION, build_hash),
        Register(
            name="CONTROL",
            offset=0x010,
            access="rw",
            about="starts and stops the inputs",
            fields=(
                Field(
                    name="ENABLE",
                    low=0,
                    bits=1,
                    about="1: the inputs accept data; 0: they accept none, not even within a frame",
                    reset=1,
                ),
            ),
        ),
        Register(
            name="RESET",
            offset=0x014,
            access="w1s",
            about="drops all frames in flight; clears the counters, ERRORS and INTERRUPT_STATUS",
            fields=(Field(name="RESET", low=0, bits=1, about="1: reset now"),),
        ),
        Register(
            name="STATUS",
            offset=0x018,
            access="r",
            about="state of the accelerator",
            fields=(
                Field(name="BUSY", low=0, bits=1, about="a frame is in flight"),
                Field(name="ERROR", low=1, bits=1, about="ERRORS is not 0"),
                Field(name="INTERRUPT", low=2, bits=1, about="the interrupt is raised"),
                *state,
            ),
        ),
        *interrupt_registers(events),
        Register(name="ERRORS", offset=0x024, access="w1c", about="errors of received frames", fields=tuple(wrong)),
        read_only("FRAMES", 0x028, "frames that have left, on all outputs"),
        read_only("INTERVAL", 0x02C, "cycles between the ends of the last two frames"),
        read_only("CYCLES_LOW", 0x030, "cycles while STATUS.BUSY, bits 31:0; a read latches CYCLES_HIGH"),
        read_only("CYCLES_HIGH", 0x034, "bits 63:32, latched when CYCLES_LOW was last read"),
    ]
    frames = Field(name="FRAMES", low=0, bits=PACKET_BITS, about="frames per packet; 0 counts as 1", reset=1)
    about = "frames per packet (tlast ends a packet), on all streams; takes effect while no frame is in flight"
    registers.append(Register(name="PACKET_FRAMES", offset=0x038, access="rw", about=about, fields=(frames,)))
    if weights:
        for offset, name, about in (
            (0x040, "WEIGHTS", "writes the next word of a packet of weights"),
            (0x044, "WEIGHTS_LAST", "writes the last word of a packet of weights"),
        ):
            value = Field(name="VALUE", low=0, bits=32, about=about)
            registers.append(Register(name=name, offset=offset, access="w", about=about, fields=(value,)))
    for stream, name in enumerate(inputs):
        offset, port = 0x100 + 16 * stream, name.upper()
        registers += [
            read_only(f"{port}_FRAMES", offset, f"frames received on {name}, wrong ones included"),
            read_only(f"{port}_STALLED", offset + 4, f"cycles with {name}_tvalid high and {name}_tready low"),
            read_only(f"{port}_STARVED", offset + 8, f"cycles while STATUS.BUSY with {name}_tvalid low"),
            read_only(f"{port}_PACKETS", offset + 12, f"packets received on {name}, wrong ones included"),
        ]
    for stream, name in enumerate(outputs):
        offset, port = 0x200 + 16 * stream, name.upper()
        registers += [
            read_only(f"{port}_FRAMES", offset, f"frames sent on {name}"),
            read_only(f"{port}_STALLED", offset + 4, f"cycles with {name}_tvalid high and {name}_tready low"),
            read_only(f"{port}_PACKETS", offset + 8, f"packets sent on {name}"),
        ]
    return tuple(registers)


def to_json(registers: Sequence[Register]) -> list[dict[str, Any]]:
    """Return a list of dicts for ``registers.json``, one per register: name, offset, access, reset, about, fields."""
    return [
        {
            "name": register.name,
            "offset": register.offset,
            "access": register.access,
            "reset": register.reset,
            "about": register.about,
            "fields": [
                {"name": part.name, "low": part.low, "bits": part.bits, "reset": part.reset, "about": part.about}
                for part in register.fields
            ],
        }
        for register in registers
    ]
