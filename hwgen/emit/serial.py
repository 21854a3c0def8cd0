"""Writer of a top module for boards without a processor (PLL, UART link, accelerator), with pins and host driver."""

from __future__ import annotations

from typing import Any

from hwgen.boards import Board
from hwgen.devices.flow import Pll
from hwgen.emit.texts import text
from hwgen.gateware.circuit_ports import Config, device_of, error_ports, input_ports, output_ports
from hwgen.gateware.serial.link import SerialLinkConfig
from hwgen.verilog import convert

#: Bit rates of the serial port, in the order of preference. The board's USB bridge divides 3 MHz.
BAUDS = (3_000_000, 2_000_000, 1_500_000, 1_000_000, 500_000, 250_000)


def link_of(config: Config, top: str, board: Board, build_hash: int) -> SerialLinkConfig | None:
    """Return the `SerialLinkConfig` of the UART link from host to accelerator; ``None`` if there can't be one.

    A link needs a board with an open flow, an oscillator and a serial port, a clock that the PLL makes, one input and
    one output, and values of at most 8 bits.
    """
    baud = baud_of(board.clock_mhz)
    if not _suits_link(config, board) or baud is None or dividers(board) is None:
        return None
    inputs, outputs = input_ports(config), output_ports(config)
    return SerialLinkConfig(
        device=device_of(config),
        top=top,
        source=inputs[0],
        sink=outputs[0],
        divisor=round(board.clock_mhz * 1e6 / baud),
        build_hash=build_hash,
        ties=tuple(error_ports(config)),
    )


def clock_remark(config: Config, board: Board) -> str | None:
    """Return a text why the board's clock rules out a serial (UART) link; ``None`` if it doesn't."""
    if not _suits_link(config, board) or (dividers(board) is not None and baud_of(board.clock_mhz) is not None):
        return None
    source = board.platform_class().default_clk_frequency / 1e6
    if baud_of(board.clock_mhz) is None:
        reason = "no bit rate of the serial port is a whole fraction of it"
    else:
        reason = _pll(board).refusal(source)
    return (
        f"no top with a serial port at {board.clock_mhz:g} MHz: {reason}; give another --clock, such as {source * 2:g}"
    )


def _suits_link(config: Config, board: Board) -> bool:
    """Return whether a serial (UART) link suits the accelerator's streams and the board's pins, at a suitable clock."""
    inputs, outputs = input_ports(config), output_ports(config)
    if len(inputs) != 1 or len(outputs) != 1 or getattr(config, "loader", None) is not None:
        return False
    if max(port.beat.bits for port in (*inputs, *outputs)) > 8:
        return False
    return board.family.nextpnr is not None and bool(board.platform) and _lines(board.platform_class()) is not None


def baud_of(clock_mhz: float) -> int | None:
    """Return the highest of `BAUDS` (bits per second) that divides the clock within 1 %; ``None`` if none does."""
    hertz = clock_mhz * 1e6
    return next(
        (baud for baud in BAUDS if hertz >= 4 * baud and abs(hertz / baud / round(hertz / baud) - 1) < 0.01), None
    )


def dividers(board: Board) -> tuple[int, int, int] | None:
    """Return the PLL's dividers (input, feedback, output) for the board's clock; ``None`` if none make that clock."""
    return _pll(board).dividers(board.platform_class().default_clk_frequency / 1e6, board.clock_mhz)


def _pll(board: Board) -> Pll:
    flow = board.family.nextpnr
    assert flow is not None
    return flow.pll


def files(config: Config, top: str, board: Board, build_hash: int) -> dict[str, bytes]:
    """Return a dict of bytes by file name: a top module with UART (Verilog, pins, driver); empty if impossible."""
    link = link_of(config, top, board, build_hash)
    clock = dividers(board) if link is not None else None
    if link is None or clock is None:
        return {}
    head = f"Serial link of {top}, written by hwgen. Do not edit: every build writes it."
    contents = convert(link.component(), f"{top}_link", head=head, device=board.family)
    platform = board.platform_class()
    names = {"top": top, "input_divider": clock[0], "feedback_divider": clock[1], "output_divider": clock[2]}
    verilog = _pll(board).top()
    for name, value in names.items():
        verilog = verilog.replace(f"@{name}@", str(value))
    contents[f"{top}_serial.v"] = verilog.encode()
    contents[f"{top}_serial.lpf"] = _pins(platform).encode()
    baud = round(board.clock_mhz * 1e6 / link.divisor)
    contents[f"{top}_serial.py"] = text("serial_driver.py").replace("BAUD = 0", f"BAUD = {baud}").encode()
    return contents


def _lines(platform: Any) -> dict[str, tuple[str, str]] | None:
    """Return a dict by signal of pairs (pin, I/O standard): ``clk``, ``rx`` and ``tx``; ``None`` if one is missing.

    ``None`` if the platform lacks one of the three, or one has two pins, as a differential clock does.
    """
    resources = [platform.resources.get(key) for key in ((platform.default_clk, 0), ("uart", 0))]
    if None in resources:
        return None
    clock, uart = resources
    lines = {"clk": (clock, clock.attrs)}
    for part in uart.ios:
        if getattr(part, "name", None) in ("rx", "tx"):
            lines[part.name] = part, {**uart.attrs, **part.attrs}
    pins = {name: (line.ios[0], attributes.get("IO_TYPE", "LVCMOS33")) for name, (line, attributes) in lines.items()}
    if len(pins) < 3 or any(len(getattr(pin, "names", ())) != 1 for pin, _ in pins.values()):
        return None
    return {name: (pin.names[0], io_type) for name, (pin, io_type) in pins.items()}


def _pins(platform: Any) -> str:
    """Return the text of nextpnr's pin constraints for the clock and the UART of an Amaranth platform."""
    lines = [f'FREQUENCY PORT "clk" {platform.default_clk_frequency / 1e6:g} MHZ;']
    for name, (pin, io_type) in (_lines(platform) or {}).items():
        lines += [f'LOCATE COMP "{name}" SITE "{pin}";', f'IOBUF PORT "{name}" IO_TYPE={io_type};']
    return "\n".join(lines) + "\n"
