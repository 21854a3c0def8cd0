"""The registers of a bus wrapper: one description, of which the hardware, files for software and documents are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hwgen.errors import ConfigError

#: What a register holds is 32 bits, so offsets are multiples of 4.
REGISTER_BYTES = 4
#: Bytes of the address space, the least that Vivado gives to a slave.
SPACE_BYTES = 4096

#: "HWGN" in ASCII.
IDENTITY = 0x4857_474E
#: Of this list of registers: 16 bits that grow when software must change, 16 for what is only added.
VERSION = 0x0001_0001
#: Inputs and outputs that there are registers for.
MOST_STREAMS = 16
#: Of ``ERRORS``, that a load of weights was wrong.
WEIGHTS_ERROR_BIT = 31

#: ``r``: read only; ``rw``: what was written stays; ``w1c``: writing a 1 clears a bit; ``w1s``: a 1 does it once;
#: ``w``: each write is taken as it is.
Access = Literal["r", "rw", "w1c", "w1s", "w"]


@dataclass(frozen=True, kw_only=True)
class Field:
    """Some bits of a register.

    Parameters
    ----------
    name : str
        In capitals; of the only field of a register ``VALUE``.
    low, bits : int
        The lowest bit, and how many.
    about : str
        What it is, for people.
    reset : int
        After a reset.
    """

    name: str
    low: int
    bits: int
    about: str
    reset: int = 0

    @property
    def mask(self) -> int:
        """Its bits in the register."""
        return ((1 << self.bits) - 1) << self.low


@dataclass(frozen=True, kw_only=True)
class Register:
    """A word of the address space.

    Parameters
    ----------
    name : str
        In capitals.
    offset : int
        In bytes.
    access : str
        What reading and writing do, see `Access`.
    about : str
        What it is, for people.
    fields : tuple of Field
        From the lowest bit on; bits between them are 0.

    Raises
    ------
    ConfigError
        If the offset is not a word's, or fields overlap.
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
        for each in self.fields:
            if each.low < end or each.low + each.bits > 8 * REGISTER_BYTES:
                raise ConfigError(f"{self.name}.{each.name}: bits must lie above {end} and below 32, not at {each.low}")
            end = each.low + each.bits

    @property
    def reset(self) -> int:
        """What it holds after a reset."""
        return sum(each.reset << each.low for each in self.fields)

    def __getitem__(self, name: str) -> Field:
        return next(each for each in self.fields if each.name == name)


def interrupts(events: tuple[Field, ...]) -> tuple[Register, Register]:
    """Which of some events raise the interrupt, and which have happened."""
    return (
        Register(
            name="INTERRUPT_ENABLE",
            offset=0x01C,
            access="rw",
            about="which bits of INTERRUPT_STATUS raise the interrupt",
            fields=events,
        ),
        Register(
            name="INTERRUPT_STATUS",
            offset=0x020,
            access="w1c",
            about="what has happened; the interrupt is high while an enabled bit is",
            fields=events,
        ),
    )


def whole(name: str, offset: int, about: str, *, reset: int = 0) -> Register:
    """A register of 32 bits that can only be read."""
    value = Field(name="VALUE", low=0, bits=32, about=about, reset=reset)
    return Register(name=name, offset=offset, access="r", about=about, fields=(value,))


def identifying(identity: int, version: int, build_hash: int) -> tuple[Register, ...]:
    """The first four registers of every list: what hardware it is, for which software.

    Parameters
    ----------
    identity : int
        Four letters in ASCII.
    version : int
        Of the list: 16 bits that grow when software must change, above 16 for what is only added.
    build_hash : int
        64 bits.
    """
    letters = identity.to_bytes(4, "big").decode()
    return (
        whole("IDENTITY", 0x000, f'always 0x{identity:08X}, "{letters}"', reset=identity),
        Register(
            name="VERSION",
            offset=0x004,
            access="r",
            about="of this list of registers",
            fields=(
                Field(name="MINOR", low=0, bits=16, about="grows with what is added", reset=version & 0xFFFF),
                Field(name="MAJOR", low=16, bits=16, about="grows when software must change", reset=version >> 16),
            ),
        ),
        whole("BUILD_HASH_LOW", 0x008, "of the design's files, bits 0 to 31", reset=build_hash & 0xFFFF_FFFF),
        whole("BUILD_HASH_HIGH", 0x00C, "of the design's files, bits 32 to 63", reset=build_hash >> 32),
    )


def registers_of(
    inputs: Sequence[str], outputs: Sequence[str], build_hash: int, *, weights: bool = False
) -> tuple[Register, ...]:
    """The registers of a wrapper with these streams, by offset.

    Parameters
    ----------
    inputs, outputs : sequence of str
        Names of the bus's streams: ``s_axis``, ``m_axis``, or several of each.
    build_hash : int
        64 bits.
    weights : bool
        Weights are loaded at run time.

    Raises
    ------
    ConfigError
        If there are more than `MOST_STREAMS` of either, or where weights are loaded one input less.
    """
    for kind, names, most in (("inputs", inputs, MOST_STREAMS - weights), ("outputs", outputs, MOST_STREAMS)):
        if len(names) > most:
            raise ConfigError(f"{kind} must be at most {most} for a bus wrapper, not {len(names)}")
    wrong = [
        Field(name=f"{name.upper()}_{kind}", low=2 * number + place, bits=1, about=about)
        for number, name in enumerate(inputs)
        for place, (kind, about) in enumerate(
            (
                ("SHORT", f"a frame on {name} ended too early, and was completed with zeros"),
                ("LONG", f"a frame on {name} had more than it should, which was dropped"),
            )
        )
    ]
    state: list[Field] = []
    if weights:
        about = "a load of weights was wrong: see STATUS.WEIGHTS_GOOD"
        wrong.append(Field(name="WEIGHTS", low=WEIGHTS_ERROR_BIT, bits=1, about=about))
        state = [
            Field(name="WEIGHTS_GOOD", low=3, bits=1, about="weights are whole; while it is 0 no frame begins"),
            Field(name="WEIGHTS_WAIT", low=4, bits=1, about="a word of a load waits: frames are on their way yet"),
        ]
    events = (
        Field(name="FRAME", low=0, bits=1, about="a frame has left, on all outputs"),
        Field(name="ERROR", low=1, bits=1, about="a bit of ERRORS was raised"),
    )
    found = [
        *identifying(IDENTITY, VERSION, build_hash),
        Register(
            name="CONTROL",
            offset=0x010,
            access="rw",
            about="what software asks for",
            fields=(
                Field(
                    name="ENABLE",
                    low=0,
                    bits=1,
                    about="inputs are taken; 0 holds them back, even within a frame",
                    reset=1,
                ),
            ),
        ),
        Register(
            name="RESET",
            offset=0x014,
            access="w1s",
            about="drops all frames on their way; counters, ERRORS and INTERRUPT_STATUS become 0",
            fields=(Field(name="RESET", low=0, bits=1, about="1: reset now"),),
        ),
        Register(
            name="STATUS",
            offset=0x018,
            access="r",
            about="what goes on",
            fields=(
                Field(name="BUSY", low=0, bits=1, about="a frame has begun to come in and has not left"),
                Field(name="ERROR", low=1, bits=1, about="ERRORS is not 0"),
                Field(name="INTERRUPT", low=2, bits=1, about="the interrupt is raised"),
                *state,
            ),
        ),
        *interrupts(events),
        Register(name="ERRORS", offset=0x024, access="w1c", about="wrong frames that came in", fields=tuple(wrong)),
        whole("FRAMES", 0x028, "frames that have left, on all outputs"),
        whole("INTERVAL", 0x02C, "cycles between the ends of the last two frames"),
        whole("CYCLES_LOW", 0x030, "cycles with STATUS.BUSY, bits 0 to 31; reading it holds CYCLES_HIGH"),
        whole("CYCLES_HIGH", 0x034, "bits 32 to 63, as CYCLES_LOW was read last"),
    ]
    if weights:
        for offset, name, about in (
            (0x040, "WEIGHTS", "takes the next word of a load of weights"),
            (0x044, "WEIGHTS_LAST", "takes the last word of a load of weights"),
        ):
            value = Field(name="VALUE", low=0, bits=32, about=about)
            found.append(Register(name=name, offset=offset, access="w", about=about, fields=(value,)))
    for number, name in enumerate(inputs):
        offset, port = 0x100 + 16 * number, name.upper()
        found += [
            whole(f"{port}_FRAMES", offset, f"frames that came on {name}, wrong ones too"),
            whole(f"{port}_STALLED", offset + 4, f"cycles in which {name} offered a word that was not taken"),
            whole(f"{port}_STARVED", offset + 8, f"cycles with STATUS.BUSY in which {name} offered none"),
        ]
    for number, name in enumerate(outputs):
        offset, port = 0x200 + 16 * number, name.upper()
        found += [
            whole(f"{port}_FRAMES", offset, f"frames that left on {name}"),
            whole(f"{port}_STALLED", offset + 4, f"cycles in which {name} offered a word that was not taken"),
        ]
    return tuple(found)


def to_json(registers: Sequence[Register]) -> list[dict[str, Any]]:
    """The description as ``registers.json`` has it."""
    return [
        {
            "name": register.name,
            "offset": register.offset,
            "access": register.access,
            "reset": register.reset,
            "about": register.about,
            "fields": [
                {"name": each.name, "low": each.low, "bits": each.bits, "reset": each.reset, "about": each.about}
                for each in register.fields
            ],
        }
        for register in registers
    ]
