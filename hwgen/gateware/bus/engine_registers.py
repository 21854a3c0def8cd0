"""Register map of the programmable engine's bus wrapper: the 32-bit registers that software reads and writes."""

from __future__ import annotations

from hwgen.gateware.bus.registers import Field, Register, identity_registers, interrupt_registers, read_only
from hwgen.gateware.engine.axi import BORDER_BYTES
from hwgen.gateware.engine.port import PACE_BITS, Error

#: Value of the register ``IDENTITY`` of an engine: "HWGE" in ASCII.
IDENTITY = 0x4857_4745
#: Version of an engine's register map: the upper 16 bits grow when software must change, the lower 16 with additions.
VERSION = 0x0001_0001
#: Number of low bits of a program's base address that are always 0; register ``PROGRAM_BASE`` has the others. With a
#: base of this alignment, no burst crosses a 4 KiB boundary.
BASE_BITS = BORDER_BYTES.bit_length() - 1

#: Dictionary from `Error` code to text: why an engine's run ended.
ERRORS = {
    Error.NONE: "none",
    Error.READ_SLAVE: "memory answered a read with SLVERR",
    Error.READ_DECODE: "memory answered a read with DECERR",
    Error.WRITE_SLAVE: "memory answered a write with SLVERR",
    Error.WRITE_DECODE: "memory answered a write with DECERR",
    Error.DAMAGED: "a job is damaged, or PROGRAM_BASE does not point to a program",
    Error.FOREIGN: "a job was compiled for another engine",
    Error.FIELD: "a job has an invalid field",
    Error.STUCK: "deadlock: jobs wait for each other",
    Error.STOPPED: "CONTROL.STOP",
}


def engine_registers(build_hash: int, digest: int, pace: int, pace_beats: int = 1) -> tuple[Register, ...]:
    """Return a tuple of each `Register` of a programmable engine's bus wrapper, sorted by byte offset.

    Parameters
    ----------
    build_hash : int
        Identity of the design, 64 bits.
    digest : int
        Digest of the engine, 64 bits (`hwgen.gateware.engine.job.digest`).
    pace, pace_beats : int
        Cycles that ``pace_beats`` memory beats take by the plan; reset value of the register ``PACE``.
    """
    codes = ", ".join(f"{error.value} {about}" for error, about in ERRORS.items())
    events = (
        Field(name="DONE", low=0, bits=1, about="a run has ended"),
        Field(name="ERROR", low=1, bits=1, about="a run has ended with an error"),
    )
    return (
        *identity_registers(IDENTITY, VERSION, build_hash),
        Register(
            name="CONTROL",
            offset=0x010,
            access="w1s",
            about="starts and stops a run",
            fields=(
                Field(name="START", low=0, bits=1, about="1: run the program, if none is running"),
                Field(
                    name="STOP",
                    low=1,
                    bits=1,
                    about="1: end the run once memory has answered all outstanding transactions; if START is written "
                    "at the same time, START applies while no run is active, and STOP otherwise",
                ),
            ),
        ),
        Register(
            name="STATUS",
            offset=0x018,
            access="r",
            about="state of the engine",
            fields=(
                Field(name="BUSY", low=0, bits=1, about="a program runs"),
                Field(name="ERROR", low=1, bits=1, about="ERROR is not 0"),
                Field(name="INTERRUPT", low=2, bits=1, about="the interrupt is raised"),
                Field(name="DONE", low=3, bits=1, about="a run has ended, and none has started since"),
            ),
        ),
        *interrupt_registers(events),
        Register(
            name="ERROR",
            offset=0x024,
            access="r",
            about="reason for the end of the last run; 0 during a run",
            fields=(Field(name="CODE", low=0, bits=4, about=codes),),
        ),
        read_only("FRAMES", 0x028, "runs that ended without an error"),
        read_only("FRAME_CYCLES", 0x02C, "cycles of the last run"),
        read_only("CYCLES_LOW", 0x030, "cycles of all runs, bits 31:0; a read latches CYCLES_HIGH"),
        read_only("CYCLES_HIGH", 0x034, "bits 63:32, latched when CYCLES_LOW was last read"),
        read_only("FAILURES", 0x038, "runs that ended with an error"),
        Register(
            name="PROGRAM_BASE",
            offset=0x040,
            access="rw",
            about="base address of the program in memory; the program's addresses are relative to it; sampled by START",
            fields=(
                Field(
                    name="ADDRESS",
                    low=BASE_BITS,
                    bits=32 - BASE_BITS,
                    about=f"the address, a multiple of {BORDER_BYTES}",
                ),
            ),
        ),
        Register(
            name="PACE",
            offset=0x044,
            access="rw",
            about="peak bandwidth of the memory, as BEATS beats per CYCLES cycles",
            fields=(
                Field(
                    name="CYCLES",
                    low=0,
                    bits=PACE_BITS,
                    about="cycles per BEATS beats, reads and writes together; 0 counts as 1",
                    reset=pace,
                ),
                Field(
                    name="BEATS",
                    low=PACE_BITS,
                    bits=PACE_BITS,
                    about="beats per CYCLES cycles; 0 counts as 1; with more than CYCLES, reads and writes move "
                    "at the same time, each at most a beat per cycle",
                    reset=pace_beats if pace_beats > 1 else 0,
                ),
            ),
        ),
        read_only("DIGEST_LOW", 0x048, "digest of the engine's sizes, bits 31:0", reset=digest & _LOW),
        read_only("DIGEST_HIGH", 0x04C, "digest of the engine's sizes, bits 63:32", reset=digest >> 32),
        read_only("M_AXI_MEM_READ", 0x100, "beats read on m_axi_mem"),
        read_only("M_AXI_MEM_READ_STALLED", 0x104, "cycles with m_axi_mem_arvalid high and m_axi_mem_arready low"),
        read_only("M_AXI_MEM_WRITTEN", 0x108, "beats written on m_axi_mem"),
        read_only(
            "M_AXI_MEM_WRITE_STALLED",
            0x10C,
            "cycles with m_axi_mem_awvalid or m_axi_mem_wvalid high and its ready low",
        ),
    )


_LOW = 0xFFFF_FFFF
