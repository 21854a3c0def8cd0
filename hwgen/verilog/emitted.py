"""Verilog and memory files of an accelerator or an engine, from the cache if they were written before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

from amaranth.lib import wiring

from hwgen.devices import DEFAULT, Device
from hwgen.errors import InputError
from hwgen.gateware.circuit_ports import Config, input_ports, output_ports
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.engine import Engine
from hwgen.gateware.names import identifier
from hwgen.gateware.stream import Port
from hwgen.verilog import convert, kept

#: Name of an engine's Verilog module.
ENGINE = "engine"


Factory = Callable[..., wiring.Component]
"""Type of a function that makes an accelerator's Amaranth component: ``factory(config)``, or with ``taps=True``."""


def accelerator(config: Config, *, component: Factory | None = None, taps: bool = False) -> wiring.Component:
    """Return the Amaranth component of an accelerator's configuration: an `Accelerator`, or what ``component`` makes.

    With ``taps`` the component has an output for each layer.
    """
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
    device: Device = DEFAULT,
    say: Callable[[str], None] = lambda step: None,
) -> dict[str, bytes]:
    """Return, as a dict, an accelerator's Verilog and memory files as bytes by file name, from the cache if possible.

    Parameters
    ----------
    config : AcceleratorConfig
        Configuration of the accelerator, or of ``component``.
    component : callable, optional
        Factory of another component with the same ports, whose files are not cached.
    taps : bool
        Whether the component has an output for each layer.
    top : str, optional
        Name of the top module, an identifier. The default is ``identifier(config.name)``.
    device : Device
        Device family whose cells the Verilog has for synthesis.
    say : callable
        Receiver of a line of text if the files are not in the cache.

    Returns
    -------
    dict of str to bytes
        Contents of ``TOP.v``, then of the memory files, by name.

    Raises
    ------
    ToolError
        If one of the component's operators can't be written as Verilog.
    """
    top = top or identifier(config.name)
    head = [
        f"Accelerator of {_on_one_line(config.name)}, written by hwgen. Do not edit: every build writes it from the "
        "model and the plan.",
        "All ports are plain vectors. Values of a signed stream are in two's complement. Vectors are stated as lanes "
        "x pixels x bits, and windows (taps) as pixels x taps x lanes x bits, with index 0 in the lowest bits.",
        *(line for port in (*input_ports(config), *output_ports(config)) for line in _describe(port)),
    ]

    def write() -> dict[str, bytes]:
        return convert(accelerator(config, component=component, taps=taps), top, head="\n".join(head), device=device)

    if component is not None:  # the cache can't know whether another component changed
        say(kept.STEP)
        return write()
    return kept.written((config, taps, top, device.name), write, say=say)


def engine_files(config: EngineConfig, device: Device = DEFAULT) -> dict[str, bytes]:
    """Return, as a dictionary, an engine's Verilog and memory files as bytes by file name, ``engine.v`` first.

    They are for one device family, and come from the cache if they were written before.

    Raises
    ------
    ToolError
        If one of the engine's operators can't be written as Verilog.
    """
    head = "The programmable engine: written by hwgen. Do not edit."
    return kept.written((config, device.name), lambda: convert(Engine(config), ENGINE, head=head, device=device))


def write(config: Config, directory: str | Path, *, component: Factory | None = None, taps: bool = False) -> list[Path]:
    """Write an accelerator's Verilog and memory files into a folder, created if missing; return a list of paths.

    The parameters are the same as for `files`. Unchanged files keep their time.

    Returns
    -------
    list of Path
        Paths of all files.

    Raises
    ------
    InputError
        If the folder can't be written.
    ToolError
        If one of the component's operators can't be written as Verilog.
    """
    return write_files(files(config, component=component, taps=taps), directory)


def write_files(contents: Mapping[str, bytes], directory: str | Path) -> list[Path]:
    """Write files, given as contents by name, into a folder, and return a list of their paths.

    Files with equal contents keep their modification time.

    Raises
    ------
    InputError
        If the folder can't be written.
    """
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
    """Return a network's name on one line, with escape sequences for characters that can't be printed.

    A line break in the name would end the Verilog comment that contains the name.
    """
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in name)


def _describe(port: Port) -> list[str]:
    """Return a list of comment lines for the Verilog header that describe the beats of a stream port."""
    beat, order = port.beat, port.order
    values = f"{'signed' if beat.signed else 'unsigned'} {beat.bits}-bit values"
    travels = "row-major" if order == beat.raster else "rectangle by rectangle, each row-major"
    return [
        f"{port.name}: {beat.channels} x {beat.height} x {beat.width} (channels, rows, columns), {values}, {travels}; "
        f"{beat.lanes} {'channels' if beat.lanes > 1 else 'channel'} per beat",
        f"   (lowest channel in the lowest bits, zeros past the last channel), {beat.folds} "
        f"{'beats' if beat.folds > 1 else 'beat'} per pixel; top bit of {port.name}__payload: last beat of the frame.",
    ]
