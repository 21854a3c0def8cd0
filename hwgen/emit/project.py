"""The script that makes a Vivado project of a result for a Zynq-7000 board: ``project.tcl``."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources

from hwgen.boards import Board, is_zynq
from hwgen.emit import package, wrapper
from hwgen.emit.package import word
from hwgen.gateware.bus.engine_shell import EngineShellConfig
from hwgen.gateware.bus.engine_wrapper import MEMORY
from hwgen.gateware.bus.shell import EndConfig, ShellConfig

__all__ = ["NAME", "files"]

#: The script in a result folder.
NAME = "project.tcl"

#: Interrupts that the processing system takes from the programmable logic (UG585, IRQ_F2P).
_MOST_INTERRUPTS = 16
#: Bits of the length that a DMA counts at most, and those that it has by itself (PG021).
_LENGTH_BITS = (14, 26)
#: What is not needed beside the bitstream on a PYNQ board.
_NOT_THERE = (".v", ".mem", ".h", ".c", ".tcl")


def files(
    shell: ShellConfig | EngineShellConfig, top: str, board: Board | None, names: Iterable[str]
) -> dict[str, bytes]:
    """``project.tcl``, if the board can have one.

    That is a Zynq-7000 board that Vivado has files of, and a design with no more interrupts than its processing
    system takes, one for each stream and one for the accelerator, and frames that a DMA can count.

    Parameters
    ----------
    shell : ShellConfig or EngineShellConfig
        Of the bus wrapper.
    top : str
        The module of the accelerator, or of the engine.
    board : Board, optional
    names : iterable of str
        Files of the module, its wrapper and what software needs.
    """
    ends = (*shell.inputs, *shell.outputs)
    if board is None or not board.board_parts or not is_zynq(board.part):
        return {}
    if len(ends) >= _MOST_INTERRUPTS or any(end.frame_bytes >> _LENGTH_BITS[1] for end in ends):
        return {}
    return {NAME: _script(shell, top, board, sorted(names))}


def _script(shell: ShellConfig | EngineShellConfig, top: str, board: Board, names: Iterable[str]) -> bytes:
    module = wrapper.module(top)
    longest = max((end.frame_bytes for end in (*shell.inputs, *shell.outputs)), default=0)
    engine = isinstance(shell, EngineShellConfig)
    between = "and " if engine else "a DMA for each stream in and out, and "
    values = {
        "name": top,
        "module": module,
        "inner": "engine" if engine else "accelerator",
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
        "masters": ("buses to memory, beside those of DMAs", [[MEMORY]] if engine else []),
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
    body = resources.files("hwgen.emit").joinpath(NAME).read_text(encoding="utf-8")
    return ("\n".join(lines) + "\n\n" + body).encode()


def _stream(end: EndConfig) -> list[str]:
    return [end.name, str(8 * end.width)]
