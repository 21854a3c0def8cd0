"""Count the proof obligations of some designs, by class of component and kind, and write or compare the counts.

Usage: python bench/obligations.py [DESIGN ...]        print what differs from the counts in rtl_tests/prove/designs
       python bench/obligations.py [DESIGN ...] --write       write the counts there, after a change that is intended

A count is "OBLIGATIONS/PARTS DIGEST": how many obligations of the kind the instances of the class have, how many parts
their properties have (assertions, and wires or other facts about the netlist), and a digest of the instances' paths and
of the words of these parts. It does not change when an observer or an invariant is written in another way.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from unchanged import DIGITS_8, Case, differences

import hwgen
from hwgen.emit import wrapper
from hwgen.emit.engine import shell_of
from hwgen.gateware.bus.wrapper_proof import WrapperUnit
from hwgen.gateware.engine.engine import EngineDesign
from hwgen.obligations.modules import modules_of
from hwgen.obligations.obligation import Obligation
from hwgen.prove import catalogue
from hwgen.prove.coverage import coverage
from hwgen.schedule.engine import MemoryTiming
from hwgen.verilog import convert
from hwgen.verilog.emitted import ENGINE, engine_files, files

KEPT = Path(__file__).resolve().parent.parent / "rtl_tests" / "prove" / "designs"
DESIGNS = {
    "digits": Case(DIGITS_8, "zedboard"),
    "digits-weights-at-run-time": Case(DIGITS_8, "zedboard", {"weights": "runtime"}),
    "resnet8": Case("resnet8", "zedboard"),
    "resnet8-engine": Case("resnet8", "zedboard", {"template": "engine"}),
    "vgg16-pyramid": Case(
        "vgg16:4@32x32", "vc709", {"template": "pyramid", "dsp": 300, "tile": (4, 8), "overlap": "reuse"}
    ),
}


def circuits(design: hwgen.Design) -> Iterator[tuple[Any, str, str]]:
    """Yield configuration, top module and Verilog of a design's circuit, and of its bus wrapper."""
    (circuit,) = design.plan.circuits()
    if design.plan.engine:
        contents, top = engine_files(circuit.engine, design.board.family), ENGINE
        circuit, shell = (
            EngineDesign(engine=circuit.engine),
            shell_of(circuit.engine, MemoryTiming(), contents),
        )
    else:
        top = "dut"
        contents = files(circuit, top=top, device=design.board.family)
        shell = wrapper.shell_of(circuit, contents)
    verilog, around = contents[f"{top}.v"].decode(), f"{top}_axi"
    yield circuit, top, verilog
    yield WrapperUnit(shell), around, f"{verilog}\n{convert(shell.wrapper(top), around)[f'{around}.v'].decode()}"


def parts(obligation: Obligation) -> list[str]:
    """Return the words of the parts of a property: what is asserted, or stated of the netlist."""
    return [*obligation.asserts, *_leaves("", obligation.structure)]


def _leaves(path: str, value: Any) -> Iterator[str]:
    """Yield a line for each value in nested mappings and lists."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(f"{path} {key}", inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(path, inner)
    else:
        yield f"{path} {value}"


def counts(case: Case) -> dict[str, dict[str, str]]:
    """Return the counts of a design by class of component and kind, and of reasons why there is no property."""
    found: dict[str, dict[str, list[Obligation]]] = defaultdict(lambda: defaultdict(list))
    without: Counter[str] = Counter()
    for config, top, verilog in circuits(case.load().plan(case.board, **case.steering)):
        modules, obligations, reasons = modules_of(verilog), [], {}
        for part, site in catalogue.sites(config, top, modules):
            of_part = catalogue.of_component(part, site)
            for obligation in of_part:
                found[type(part).__name__][obligation.kind].append(obligation)
            obligations += of_part
            reasons |= catalogue.reasons_of(part, site)
        if not isinstance(config, WrapperUnit):  # its obligations leave the circuit inside to the circuit's
            covered = coverage(top, modules, obligations, reasons)
            without.update(reason for each in covered for reason in (each.reason, *each.ports.values()) if reason)
    counted = {
        name: {kind: _count(each) for kind, each in sorted(kinds.items())} for name, kinds in sorted(found.items())
    }
    return {**counted, "without a property": {reason: str(count) for reason, count in sorted(without.items())}}


def _count(obligations: list[Obligation]) -> str:
    lines = sorted(f"{each.path}: {part}" for each in obligations for part in parts(each))
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:8]
    return f"{len(obligations)}/{len(lines)} {digest}"


def kept(name: str) -> dict[str, dict[str, str]]:
    """Return the counts of a design that are kept in rtl_tests/prove/designs."""
    return json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("design", nargs="*", choices=[[], *DESIGNS])
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    lines = []
    for name in arguments.design or DESIGNS:
        counted = counts(DESIGNS[name])
        if arguments.write:
            KEPT.mkdir(exist_ok=True)
            (KEPT / f"{name}.json").write_text(json.dumps(counted, indent=1) + "\n", encoding="utf-8")
        else:
            lines += [f"{name}: {line}" for line in differences(kept(name), counted)]
    sys.exit("\n".join(lines) or 0)


if __name__ == "__main__":
    main()
