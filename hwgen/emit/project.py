"""Writer of ``project.tcl``, the script that makes a Vivado project for a board with a processing system."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources

from hwgen.boards import Board
from hwgen.emit import package, wrapper
from hwgen.emit.package import word
from hwgen.gateware.bus.base import BusShellConfig, BusStream

__all__ = ["NAME", "files"]

#: Name of the Vivado project script in a result folder.
NAME = "project.tcl"

#: Largest width, in bits, of an AXI DMA's length register (PG021). Packets of many frames need it.
_LENGTH_BITS = 26
#: Endings of the files that a PYNQ board does not need beside the bitstream.
_NOT_ON_BOARD = (".v", ".mem", ".h", ".c", ".tcl")


def files(shell: BusShellConfig, top: str, board: Board | None, names: Iterable[str]) -> dict[str, bytes]:
    """Return the Vivado script ``project.tcl`` by its file name, or nothing if the board does not support a project.

    The board must have a processing system and board files in Vivado. Each stream needs one interrupt of the
    processing system, and the accelerator another one. A DMA must be able to count the bytes of each frame.

    Parameters
    ----------
    shell : BusShellConfig
        Shell of the bus wrapper.
    top : str
        Name of the circuit's module, which the wrapper instantiates.
    board : Board, optional
        Board of the plan.
    names : iterable of str
        Names of the files of the IP: Verilog, memory files, and the files that drivers need.
    """
    ends = (*shell.inputs, *shell.outputs)
    processor = None if board is None else board.family.processor_of(board.part)
    if board is None or processor is None or not board.board_parts:
        return {}
    if len(ends) >= processor.interrupts or any(end.frame_bytes >> _LENGTH_BITS for end in ends):
        return {}
    parts = [_head(shell, top, board, sorted(names)), _script(processor.project_script), _script(NAME)]
    return {NAME: "\n\n".join(part.rstrip("\n") for part in parts).encode() + b"\n"}


def _script(name: str) -> str:
    """Return the Tcl commands of a file in ``hwgen/emit``."""
    return resources.files("hwgen.emit").joinpath(name).read_text(encoding="utf-8")


def _head(shell: BusShellConfig, top: str, board: Board, names: Iterable[str]) -> str:
    """Return the first part of ``project.tcl``, which describes the design: a comment and Tcl variables."""
    module = wrapper.module(top)
    streams = (*shell.inputs, *shell.outputs)
    between = "a DMA for each stream, and " if streams else "and "
    values = {
        "name": top,
        "module": module,
        "inner": shell.circuit,
        "board": board.name,
        "board_part": board.part,
        "mhz": f"{board.clock_mhz:.12g}",
        "build_hash": f"0x{shell.build_hash:016x}",
        "length_bits": str(_LENGTH_BITS),
    }
    lists = {
        "board_files": ("Vivado's names of the board files, as patterns", [[name] for name in board.board_parts]),
        "senders": ("input streams of the accelerator: name, width in bits", map(_stream, shell.inputs)),
        "receivers": ("output streams of the accelerator: name, width in bits", map(_stream, shell.outputs)),
        "masters": ("AXI masters of the IP to memory", [[space.name] for space in shell.spaces]),
        "beside": (
            "files that a PYNQ board needs beside the bitstream",
            [[name] for name in names if not name.endswith(_NOT_ON_BOARD)],
        ),
    }
    lines = [
        f"# {NAME}: written by hwgen. Do not edit: every build writes it together with {top}.v.",
        f"# Makes a Vivado project of {module} on {word(board.name)} in the folder project beside this file, with",
        f"# the processing system, {between}the IP of {package.NAME}. Then makes the bitstream.",
        "#",
        f"#     vivado -mode batch -source {NAME} [-tclargs [--jobs N] [--to design|bitstream]]",
        "",
        *(f"set {key} {word(value)}" for key, value in values.items()),
    ]
    for key, (about, rows) in lists.items():
        lines += ["", f"# {about}", f"set {key} {{", *(f"    {' '.join(map(word, row))}" for row in rows), "}"]
    return "\n".join(lines)


def _stream(stream: BusStream) -> list[str]:
    """Return the name and the width in bits of an AXI4-Stream, for ``project.tcl``."""
    return [stream.name, str(8 * stream.width)]
