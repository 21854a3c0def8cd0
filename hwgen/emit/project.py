"""The script that makes a Vivado project of a result for a board with a processing system: ``project.tcl``."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources

from hwgen.boards import Board
from hwgen.emit import package, wrapper
from hwgen.emit.package import word
from hwgen.gateware.bus.base import BusShellConfig, BusStream

__all__ = ["NAME", "files"]

#: The script in a result folder.
NAME = "project.tcl"

#: Bits of the length that a DMA counts at most, and those that it has by itself (PG021).
_LENGTH_BITS = (14, 26)
#: What is not needed beside the bitstream on a PYNQ board.
_NOT_THERE = (".v", ".mem", ".h", ".c", ".tcl")


def files(shell: BusShellConfig, top: str, board: Board | None, names: Iterable[str]) -> dict[str, bytes]:
    """``project.tcl``, if the board can have one.

    The board must have a processing system and files in Vivado. The design must need no more interrupts than the
    processing system takes, one for each stream and one for the accelerator, and frames that a DMA can count.

    Parameters
    ----------
    shell : BusShellConfig
        Shell of the bus wrapper.
    top : str
        The module of the circuit in it.
    board : Board, optional
    names : iterable of str
        Files of the module, its wrapper and what software needs.
    """
    ends = (*shell.inputs, *shell.outputs)
    processor = None if board is None else board.family.processor_of(board.part)
    if board is None or processor is None or not board.board_parts:
        return {}
    if len(ends) >= processor.interrupts or any(end.frame_bytes >> _LENGTH_BITS[1] for end in ends):
        return {}
    head = _head(shell, top, board, sorted(names))
    body = resources.files("hwgen.emit").joinpath(processor.project_script).read_text(encoding="utf-8")
    return {NAME: f"{head}\n\n{body}".encode()}


def _head(shell: BusShellConfig, top: str, board: Board, names: Iterable[str]) -> str:
    """Return the part of the script that states the design."""
    module = wrapper.module(top)
    streams = (*shell.inputs, *shell.outputs)
    longest = max((stream.frame_bytes for stream in streams), default=0)
    between = "a DMA for each stream in and out, and " if streams else "and "
    values = {
        "name": top,
        "module": module,
        "inner": shell.circuit,
        "board": board.name,
        "board_part": board.part,
        "mhz": f"{board.clock_mhz:.12g}",
        "build_hash": f"0x{shell.build_hash:016x}",
        "length_bits": str(max(_LENGTH_BITS[0], longest.bit_length())),
    }
    lists = {
        "board_files": ("what Vivado may call its files of the board", [[each] for each in board.board_parts]),
        "senders": ("streams that go into the accelerator: name, bits", map(_stream, shell.inputs)),
        "receivers": ("streams that come out of it", map(_stream, shell.outputs)),
        "masters": ("buses to memory, beside those of DMAs", [[space.name] for space in shell.spaces]),
        "beside": (
            "what lies beside the bitstream on a PYNQ board",
            [[each] for each in names if not each.endswith(_NOT_THERE)],
        ),
    }
    lines = [
        f"# {NAME}: written by hwgen. Do not edit: it is written anew with {top}.v, which it goes with.",
        f"# Makes a Vivado project of {module} on {word(board.name)} in the folder project beside this file:",
        f"# the processing system, {between}the IP of {package.NAME}; then its bitstream.",
        "#",
        f"#     vivado -mode batch -source {NAME} [-tclargs [--jobs N] [--to design|bitstream]]",
        "",
        *(f"set {key} {word(value)}" for key, value in values.items()),
    ]
    for key, (about, rows) in lists.items():
        lines += ["", f"# {about}", f"set {key} {{", *(f"    {' '.join(map(word, row))}" for row in rows), "}"]
    return "\n".join(lines)


def _stream(stream: BusStream) -> list[str]:
    return [stream.name, str(8 * stream.width)]
