"""Miters of mutants that survive: the circuits of a component with and without the change, compared by ABC.

The components are those that the judging tests build. Each is written as Verilog twice, by the sound function and by
the changed one. Yosys joins both to a circuit with one output, which is high when an output of the two differs, and
ABC proves that the output is never high, or finds inputs with which it is. All inputs are free: a difference can need
inputs that a component's neighbours never send.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Commands of Yosys that read one of the two circuits.
_READ = (
    "read_verilog -nosynthesis {name}.v; hierarchy -top {name}; proc; flatten; opt_clean; memory -nomap; "
    "memory_map -formal; opt_clean; async2sync; setundef -undriven -zero -init; design -stash {name}; design -reset; "
)
#: Commands of Yosys that join both, and write AND gates.
_JOIN = (
    "design -copy-from gold -as gold gold; design -copy-from gate -as gate gate; "
    "miter -equiv -flatten gold gate miter; hierarchy -top miter; formalff -clk2ff -hierarchy; dffunmap; "
    "techmap; opt -fast; aigmap; opt_clean; write_aiger -zinit miter.aig"
)


@contextmanager
def recorded_components(codes: set[types.CodeType], components: dict[str, Any], count: int) -> Iterator[None]:
    """Record the components whose circuits functions with these codes build, at most ``count`` different ones."""
    from amaranth.lib import wiring

    def of_event(frame: types.FrameType | None, event: str, value: Any) -> None:
        if event != "call" or frame is None or frame.f_code not in codes or len(components) == count:
            return
        while frame is not None:
            owner = frame.f_locals.get("self")
            if isinstance(owner, wiring.Component):
                name = re.sub(r"\s+", " ", f"{type(owner).__name__}: {getattr(owner, 'config', '')!r}")
                components.setdefault(name, owner)
                return
            frame = frame.f_back

    sys.setprofile(of_event)
    try:
        yield
    finally:
        sys.setprofile(None)


def written(component: Any, name: str) -> dict[str, bytes]:
    """Return the Verilog and memory files of a component."""
    from hwgen.emit.synthesis import SideBySide
    from hwgen.verilog import convert

    return convert(SideBySide([component]), name)


def compared(gold: dict[str, bytes], gate: dict[str, bytes], seconds: float) -> str:
    """Return how two circuits, in files ``gold.v`` and ``gate.v``, compare.

    Returns
    -------
    verdict : str
        ``same text``, ``proved``, ``differs in cycle N`` or ``undecided``.
    """
    from hwgen.prove import tools

    if [text.replace(b"gate", b"gold") for text in gate.values()] == list(gold.values()):
        return "same text"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in {**gold, **gate}.items():
            (folder / file).write_bytes(content)
        try:
            tools.yosys(_READ.format(name="gold") + _READ.format(name="gate") + _JOIN, folder, seconds)
            script = f"read_aiger miter.aig; bmc3 -F 60 -T {seconds / 3:.0f}; scorr; pdr -T {seconds:.0f}"
            text = tools.abc(script, folder, 3 * seconds)
        except subprocess.TimeoutExpired:
            return "undecided"
    if match := re.search(r"was asserted in frame (\d+)", text):
        return f"differs in cycle {match[1]}"
    return "proved" if "Property proved" in text or "Networks are equivalent" in text else "undecided"
