"""Ports and files of an accelerator, or of anything with its ports, as Verilog."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol, cast

from amaranth.lib import wiring

from hwgen.errors import InputError
from hwgen.gateware.load.store import PART_BITS
from hwgen.gateware.names import identifier
from hwgen.gateware.stream import BeatFormat, Order, Port
from hwgen.verilog import convert, kept


class Config(Protocol):
    """What is asked of a configuration: an accelerator's, or that of anything with its ports."""

    @property
    def name(self) -> str: ...

    @property
    def input(self) -> BeatFormat: ...

    @property
    def output(self) -> BeatFormat: ...

    @property
    def input_order(self) -> Order: ...

    @property
    def output_order(self) -> Order: ...


def output_ports(config: Config) -> tuple[Port, ...]:
    """The streams that leave: an accelerator's, or ``o`` alone."""
    return getattr(config, "output_ports", None) or (Port("o", config.output, config.output_order),)


def input_ports(config: Config) -> tuple[Port, ...]:
    """The streams that enter: an accelerator's, or ``i`` alone."""
    return getattr(config, "input_ports", None) or (Port("i", config.input, config.input_order),)


def error_ports(config: Config) -> tuple[str, ...]:
    """The ports on which wrong frames are told of: an accelerator's, one an input, or none."""
    return getattr(config, "error_ports", ())


def tied_ports(config: Config) -> dict[str, int]:
    """Inputs that stay 0 while frames go through, and their bits: those by which weights are loaded, or none."""
    if getattr(config, "loader", None) is None:
        return {}
    return {"weights__payload": PART_BITS + 1, "weights__valid": 1, "weights_state__clear": 1}


Factory = Callable[..., wiring.Component]
"""Makes the component: ``factory(config)``, or ``factory(config, taps=True)``."""


def accelerator(config: Config, *, component: Factory | None = None, taps: bool = False) -> wiring.Component:
    """The component of a configuration: ``Accelerator`` unless another factory is given."""
    factory = component
    if factory is None:
        from hwgen.gateware.accelerator import Accelerator

        factory = cast(Factory, Accelerator)
    return factory(config, taps=True) if taps else factory(config)


def files(
    config: Config,
    *,
    component: Factory | None = None,
    taps: bool = False,
    top: str | None = None,
    say: Callable[[str], None] = lambda step: None,
) -> dict[str, bytes]:
    """Verilog and memory files of an accelerator, from the cache if they were written before.

    Parameters
    ----------
    config : AcceleratorConfig
        Or the configuration of ``component``.
    component : callable, optional
        Makes another component with the same ports.
    taps : bool
        With the outputs that let every layer be watched.
    top : str, optional
        The top module, an identifier; ``identifier(config.name)`` if not given.
    say : callable
        Told if they are written now.

    Returns
    -------
    dict of str to bytes
        ``TOP.v`` first, then the memory files by name.

    Raises
    ------
    ToolError
        If Verilog can't be written of one of its operators.
    """
    top = top or identifier(config.name)
    head = [
        f"Accelerator of {_on_one_line(config.name)}, written by hwgen. Do not edit: it is written anew from the model "
        "and the plan.",
        "All ports are plain vectors; values travel as in two's complement where a stream is signed.",
        *(line for port in (*input_ports(config), *output_ports(config)) for line in _describe(port)),
    ]

    def write() -> dict[str, bytes]:
        return convert(accelerator(config, component=component, taps=taps), top, head="\n".join(head))

    if component is not None:  # not hwgen's own: nobody knows whether it changed
        say(kept.STEP)
        return write()
    return kept.written((config, taps, top), write, say=say)


def write(config: Config, directory: str | Path, *, component: Factory | None = None, taps: bool = False) -> list[Path]:
    """Write what ``files`` gives into a folder, which is made if it is missing; unchanged files keep their time.

    Raises
    ------
    InputError
        If the folder can't be written.
    ToolError
        If Verilog can't be written of one of its operators.
    """
    return write_files(files(config, component=component, taps=taps), directory)


def write_files(contents: Mapping[str, bytes], directory: str | Path) -> list[Path]:
    """Write files whose contents changed, and leave the others alone."""
    directory = Path(directory)
    paths = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            path = directory / name
            paths.append(path)
            with suppress(FileNotFoundError):
                if path.read_bytes() == content:
                    continue
            path.write_bytes(content)
    except OSError as error:
        raise InputError(f"output folder {directory} can't be written: {error.strerror or error}") from error
    return paths


def _on_one_line(name: str) -> str:
    """Return a user's name with escapes for what can't be printed: behind an end of a line a comment would end."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in name)


def _describe(of: Port) -> list[str]:
    port, beat, order = of.name, of.beat, of.order
    kind = f"{'signed' if beat.signed else 'unsigned'} {beat.bits}-bit values"
    travels = "row-major" if order == beat.raster else "rectangle by rectangle, each row-major"
    return [
        f"{port}: {beat.channels} x {beat.height} x {beat.width} (channels, rows, columns), {kind}, {travels}; "
        f"{beat.lanes} {'channels' if beat.lanes > 1 else 'channel'} a beat",
        f"   (lowest in the lowest bits, zero past the last channel), {beat.folds} "
        f"{'beats' if beat.folds > 1 else 'beat'} a pixel; top bit of {port}__payload: last beat of the frame.",
    ]
