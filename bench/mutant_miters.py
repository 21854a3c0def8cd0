"""Miters of mutants that survive: the circuits of a component with and without the change, compared by ABC.

The components are those that the judging tests build. Each is written as Verilog twice, by the sound function and by
the changed one. Both circuits begin in their reset state and get the same inputs. ABC proves that no run makes their
outputs differ, or finds one that does.

Inputs are free, but for the rules of streams: a beat that is offered stays as it is until it is taken. Payloads of
output streams are compared while they are valid. A difference can still need inputs that a component's neighbours
never send.
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

#: Commands of Yosys that read the circuits and their miter, and write AND gates.
_SCRIPT = (
    "read_verilog -nosynthesis -formal gold.v gate.v miter.v; hierarchy -top miter; proc; flatten; opt_clean; "
    "memory -nomap; memory_map -formal; opt_clean; chformal -lower; async2sync; setundef -undriven -zero; "
    "setundef -zero -init; opt -fast; setundef -zero; formalff -clk2ff -hierarchy; dffunmap; techmap; opt -fast; "
    "aigmap; opt_clean; write_aiger -zinit miter.aig"
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
    from hwgen.tools.synthesis import SideBySide
    from hwgen.verilog import convert

    return convert(SideBySide([component]), name)


def compared(gold: dict[str, bytes], gate: dict[str, bytes], seconds: float) -> str:
    """Return how two circuits, in files ``gold.v`` and ``gate.v``, compare.

    Returns
    -------
    verdict : str
        ``same text``, ``proved``, ``differs in cycle N`` or ``undecided``.
    """
    from hwgen.errors import ToolError
    from hwgen.prove import tools

    if [text.replace(b"gate", b"gold") for text in gate.values()] == list(gold.values()):
        return "same text"
    texts = [files[f"{name}.v"].decode() for name, files in (("gold", gold), ("gate", gate))]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in {**gold, **gate, "miter.v": miter(*texts).encode()}.items():
            (folder / file).write_bytes(content)
        try:
            tools.yosys(_SCRIPT, folder, 2 * seconds)
            # Equal registers are merged first: by induction over one cycle, then over three.
            script = (
                f"read_aiger miter.aig; orpos; scorr; scorr -F 3; bmc3 -F 60 -T {seconds / 2:.0f}; pdr -T {seconds:.0f}"
            )
            text = tools.abc(script, folder, 3 * seconds)
        except (subprocess.TimeoutExpired, ToolError):
            return "undecided"
    if match := re.search(r"was asserted in frame (\d+)", text):
        return f"differs in cycle {match[1]}"
    return "proved" if "Property proved" in text or "Networks are equivalent" in text else "undecided"


def miter(gold: str, gate: str) -> str:
    """Return the Verilog of a module that asserts that the top modules ``gold`` and ``gate`` have the same outputs.

    The top modules have all ports of the component. The module of the component itself lacks outputs that are wires.
    """
    from hwgen.obligations.modules import modules_of

    one, other = modules_of(gold)["gold"].ports, modules_of(gate)["gate"].ports
    if one != other:
        raise ValueError(f"the ports differ: {one.keys() ^ other.keys()}")
    inputs = [name for name, port in one.items() if port.direction == "input"]
    outputs = [name for name, port in one.items() if port.direction == "output"]
    ranges = {name: f"[{port.width - 1}:0]" for name, port in one.items()}
    free = {name: f"free_{name}" if _has_rules(name, inputs, outputs) else name for name in inputs}
    head = ", ".join(f"input wire {ranges[name]} {free[name]}" for name in inputs)
    lines = [f"module miter ({head});"]
    for side in ("gold", "gate"):
        lines += [f"    wire {ranges[name]} {side}_{name};" for name in outputs]
    streams = [name.removesuffix("__valid") for name in inputs if name.endswith("__valid")]
    lines += [line for name in streams for line in _rules(name, ranges, outputs)]
    for side in ("gold", "gate"):
        wires = [f".{name}({name})" for name in inputs] + [f".{name}({side}_{name})" for name in outputs]
        lines.append(f"    {side} {side}_dut ({', '.join(wires)});")
    for name in outputs:
        valid = f"{name.removesuffix('__payload')}__valid"
        counts = f"!gold_{valid} | " if name.endswith("__payload") and valid in outputs else ""
        lines.append(f"    always @* assert({counts}(gold_{name} == gate_{name}));")
    return "\n".join([*lines, "endmodule", ""])


def _has_rules(name: str, inputs: Any, outputs: Any) -> bool:
    """Return whether an input is ``valid`` or ``payload`` of a stream with ``ready``."""
    stream, _, part = name.rpartition("__")
    return part in ("valid", "payload") and f"{stream}__valid" in inputs and f"{stream}__ready" in outputs


def _rules(stream: str, ranges: dict[str, str], outputs: Any) -> list[str]:
    """Return lines of Verilog that make an input stream of free inputs, so that it keeps the rules of streams.

    A beat that was offered and not taken is offered again. So no rule is assumed, which ABC would not use to find equal
    registers.
    """
    valid, ready, payload = (f"{stream}__{part}" for part in ("valid", "ready", "payload"))
    if ready not in outputs:
        return []
    lines = [
        f"    reg {stream}_waits = 0;",
        f"    always @(posedge clk) {stream}_waits <= {valid} & !gold_{ready}{' & !rst' * ('rst' in ranges)};",
        f"    wire {valid} = free_{valid} | {stream}_waits;",
    ]
    if payload in ranges:
        lines += [
            f"    reg {ranges[payload]} {stream}_was = 0;",
            f"    always @(posedge clk) {stream}_was <= {payload};",
            f"    wire {ranges[payload]} {payload} = {stream}_waits ? {stream}_was : free_{payload};",
        ]
    return lines
