"""Top of a board without a processor: PLL, serial link and accelerator, with pins, and the driver on the host."""

from __future__ import annotations

from importlib import resources
from math import gcd
from typing import Any

from hwgen.boards import Board
from hwgen.emit.verilog import Config, error_ports, input_ports, output_ports
from hwgen.gateware.serial.link import SerialLinkConfig
from hwgen.verilog import convert

__all__ = ["BAUDS", "files", "link_of"]

#: Bit rates of the serial port, in the order of preference. The board's USB bridge divides 3 MHz.
BAUDS = (3_000_000, 2_000_000, 1_500_000, 1_000_000, 500_000, 250_000)
#: Range of the PLL's oscillator, in MHz (Lattice FPGA-DS-02012, section 3.20), and largest dividers.
VCO_MHZ, MOST_DIVIDER = (400, 800), 128


def link_of(config: Config, top: str, board: Board, build_hash: int) -> SerialLinkConfig | None:
    """Return the serial link of an accelerator on a board; ``None`` if the board or the accelerator can't have one.

    A link needs a board with an open flow and pins, one input and one output, and values of at most 8 bits.
    """
    inputs, outputs = input_ports(config), output_ports(config)
    if board.family.nextpnr is None or not board.platform or len(inputs) != 1 or len(outputs) != 1:
        return None
    baud = baud_of(board.clock_mhz)
    widest = max(port.beat.bits for port in (*inputs, *outputs))
    if baud is None or dividers(board) is None or widest > 8 or getattr(config, "loader", None) is not None:
        return None
    return SerialLinkConfig(
        top=top,
        source=inputs[0],
        sink=outputs[0],
        divisor=round(board.clock_mhz * 1e6 / baud),
        build_hash=build_hash,
        ties=tuple(error_ports(config)),
    )


def baud_of(clock_mhz: float) -> int | None:
    """Return the highest bit rate that is a whole fraction of the clock, to 1 %; ``None`` if there is none."""
    hertz = clock_mhz * 1e6
    return next(
        (baud for baud in BAUDS if hertz >= 4 * baud and abs(hertz / baud / round(hertz / baud) - 1) < 0.01), None
    )


def dividers(board: Board) -> tuple[int, int, int] | None:
    """Return the PLL's dividers of input, feedback and output for the board's clock; ``None`` if none make it.

    The output is fed back, so that the clock is the oscillator's times the feedback's divider, over the input's.
    """
    source, wanted = round(board.platform_class().default_clk_frequency), round(board.clock_mhz * 1e6)
    common = gcd(source, wanted)
    feedback, divider = wanted // common, source // common
    output = next((count for count in range(1, MOST_DIVIDER) if VCO_MHZ[0] <= count * board.clock_mhz <= VCO_MHZ[1]), 0)
    return (divider, feedback, output) if output and max(divider, feedback) <= 80 else None


def files(config: Config, top: str, board: Board, build_hash: int) -> dict[str, bytes]:
    """Return the top ``TOP_serial.v`` with its pins, the link, and the host's driver; empty if there is no link."""
    link = link_of(config, top, board, build_hash)
    clock = dividers(board) if link is not None else None
    if link is None or clock is None:
        return {}
    head = f"Serial link of {top}, written by hwgen. Do not edit: every build writes it."
    contents = convert(link.component(), f"{top}_link", head=head, device=board.family)
    platform, texts = board.platform_class(), resources.files("hwgen.emit")
    names = {"top": top, "input_divider": clock[0], "feedback_divider": clock[1], "output_divider": clock[2]}
    text = texts.joinpath("ecp5_serial.v").read_text(encoding="utf-8")
    for name, value in names.items():
        text = text.replace(f"@{name}@", str(value))
    contents[f"{top}_serial.v"] = text.encode()
    contents[f"{top}_serial.lpf"] = _pins(platform).encode()
    driver = texts.joinpath("serial_driver.py").read_text(encoding="utf-8")
    baud = round(board.clock_mhz * 1e6 / link.divisor)
    contents[f"{top}_serial.py"] = driver.replace("BAUD = 0", f"BAUD = {baud}").encode()
    return contents


def _pins(platform: Any) -> str:
    """Return nextpnr's file of pins for the oscillator and the serial port of an Amaranth platform."""
    clock, uart = platform.resources[platform.default_clk, 0], platform.resources["uart", 0]
    lines = {line.name: line.ios[0].names[0] for line in uart.ios if getattr(line, "name", None) in ("rx", "tx")}
    text = [f'FREQUENCY PORT "clk" {platform.default_clk_frequency / 1e6:g} MHZ;']
    for name, pin in {"clk": clock.ios[0].names[0], **lines}.items():
        text += [f'LOCATE COMP "{name}" SITE "{pin}";', f'IOBUF PORT "{name}" IO_TYPE=LVCMOS33;']
    return "\n".join(text) + "\n"
