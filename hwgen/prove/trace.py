"""Trace of a refuted property: a waveform (VCD), and a test bench that replays it on the emitted Verilog."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hwgen.errors import ToolError
from hwgen.obligations.obligation import Obligation
from hwgen.prove import tools
from hwgen.prove.methods.translation import to_formulas
from hwgen.prove.wrapper import PROOF, Wrapped

WAVEFORM, BENCH = "trace.vcd", "replay.v"
"""Names of a trace's files: the waveform, and the test bench with the wrapper and its modules."""
_WITNESS = "trace.yw"
#: Pattern of a signal whose value the solver chooses, in each cycle or once.
_FREE = re.compile(r"(\w+) = \$any(?:seq|const);")
_SECONDS = 120.0
"""Time limit in seconds of Yices' search for a trace of a refutation."""


@dataclass(frozen=True)
class _Signal:
    """Values, one per cycle, that a counterexample gives an input, a cut signal, or a register's first value."""

    path: tuple[str, ...]
    width: int
    is_initial: bool
    values: tuple[int, ...]

    @property
    def name(self) -> str:
        """Hierarchical Verilog name of the signal in the wrapper."""
        return ".".join(step.removeprefix("\\") for step in self.path)

    @property
    def is_named(self) -> bool:
        """Whether Verilog can refer to the signal by a hierarchical name."""
        return all(re.fullmatch(r"\\\w+", step) for step in self.path)


def files(
    obligation: Obligation, wrapped: Wrapped, folder: Path, cycles: int, seconds: float = _SECONDS
) -> dict[str, bytes]:
    """Return a dict of bytes by file name: a refutation's waveform and test bench, within ``cycles`` cycles.

    Yices searches the run again, because ABC doesn't know the names of registers. The result is empty if Yosys
    or Yices needs more than ``seconds``, or if one fails.
    """
    options = ["-t", str(cycles), "--dump-vcd", WAVEFORM, "--dump-yw", _WITNESS, f"{PROOF}.smt2"]
    try:
        to_formulas(obligation, wrapped, folder, seconds)
        if "Status: FAILED" not in tools.smtbmc(options, folder, seconds):
            return {}
    except (subprocess.TimeoutExpired, ToolError):  # the refutation stands without its trace
        return {}
    signals = [_at_path(signal, obligation) for signal in _signals(json.loads((folder / _WITNESS).read_text("utf-8")))]
    return {
        WAVEFORM: (folder / WAVEFORM).read_bytes(),
        BENCH: _bench(obligation, wrapped, signals).encode(),
    }


def _signals(witness: Mapping[str, Any]) -> list[_Signal]:
    """Return a list of each free `_Signal` of a refutation, from Yosys' witness: inputs, first values, cut signals."""
    signals, position = [], 0
    rows = [step["bits"] for step in witness["steps"]]
    for entry in witness["signals"]:
        width = entry["width"]
        words = (row[len(row) - position - width : len(row) - position] for row in rows)
        values = tuple(int(re.sub("[^1]", "0", word) or "0", 2) << entry["offset"] for word in words)
        signals.append(_Signal(tuple(entry["path"]), width + entry["offset"], entry["init_only"], values))
        position += width
    return [signal for signal in signals if signal.path != ("\\clk",)]


def _at_path(signal: _Signal, obligation: Obligation) -> _Signal:
    """Return a free `_Signal` under its path in the emitted modules, if the obligation sees it by that name."""
    path = obligation.sees.get(signal.name)
    return signal if path is None else replace(signal, path=tuple(f"\\{step}" for step in f"dut.{path}".split(".")))


def _bench(obligation: Obligation, wrapped: Wrapped, signals: list[_Signal]) -> str:
    """Return a Verilog test bench that drives the wrapper with a refutation's values and prints which fact fails."""
    chosen = [signal for signal in signals if signal.name in _FREE.findall(wrapped.replayed)]
    others = [signal for signal in signals if signal.is_named and signal not in chosen]
    ports = [signal for signal in others if len(signal.path) == 1 and not signal.is_initial]
    forced = [*chosen, *(signal for signal in others if len(signal.path) > 1 and not signal.is_initial)]
    first = [signal for signal in others if signal.is_initial]
    known = {signal.name for signal in ports}
    lines = [
        f"// Replays a run that refutes: {obligation.statement}",
        f"// Module {obligation.module}. With Icarus: iverilog -g2012 -o replay {BENCH} && vvp replay",
        "`timescale 1ns / 1ns",
        "module replay;",
        "    reg clk = 0;",
        *(f"    reg [{signal.width - 1}:0] {signal.name};" for signal in ports),
        f"    {PROOF} {PROOF} (",
        ",\n".join(f"        .{name}({name})" for name in ("clk", *sorted(known))),
        "    );",
        "    initial begin",
        '        $dumpfile("replay.vcd");',
        "        $dumpvars(0, replay);",
        *(f"        {PROOF}.{signal.name} = {signal.width}'d{signal.values[0]};" for signal in first),
    ]
    for step in range(len(signals[0].values) if signals else 0):
        lines.append(f"        // cycle {step}")
        lines += [f"        {signal.name} = {signal.width}'d{signal.values[step]};" for signal in ports]
        values = [(signal.name, signal.width, signal.values[0 if signal.is_initial else step]) for signal in forced]
        lines += [f"        force {PROOF}.{name} = {width}'d{value};" for name, width, value in values]
        lines.append("        #5 clk = 1; #5 clk = 0;")
    lines += [
        f'        if (!{PROOF}.has_failed) $display("nothing failed");',
        "        $finish;",
        "    end",
        "endmodule",
        "",
    ]
    return "\n".join([*lines, *(_FREE.sub(r"\1;", text) for text in (wrapped.replayed, wrapped.modules))])
