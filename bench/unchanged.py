"""Shows that a change of the code changes nothing else: plans, cycles, outputs, resources and Verilog of many designs.

Usage: python bench/unchanged.py measure FILE [CASE ...]      measure all cases (or some), and write what was found
       python bench/unchanged.py compare BEFORE AFTER [--plans]

``compare`` prints what differs between two files, by case, and fails if anything does. With ``--plans`` it also reads
each plan of BEFORE, and fails if one is refused, or says something else than when it was written.

Verilog is compared with identifiers numbered in the order in which they first stand there, without comments and without
the attributes that name lines of source code. Outputs are those of the hardware in Verilator, equal to the golden
model's. Needs pip install '.[test]'.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import hwgen

ROOT = Path(__file__).resolve().parent.parent
DIGITS = ROOT / "examples" / "digits"
FRAMES = 3


@dataclass(frozen=True)
class Case:
    """A model, a board, and what steers loading and planning."""

    source: str
    board: str
    steering: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)

    def load(self) -> hwgen.Model:
        return hwgen.load(self.source, **self.model)


DIGITS_8, DIGITS_FLOAT = str(DIGITS / "digits.onnx"), str(DIGITS / "digits-float.onnx")
CALIBRATION = {"calibration": str(DIGITS / "calibration.npy")}
PYRAMID = {"template": "pyramid", "dsp": 300}
CASES = {
    "digits": Case(DIGITS_8, "zedboard"),
    "digits, two MACs": Case(DIGITS_8, "zedboard", {"macs_per_dsp": 2}),
    "digits, latency": Case(DIGITS_8, "zedboard", {"objective": "latency"}),
    "digits, traffic": Case(DIGITS_8, "zedboard", {"objective": "traffic", "dsp": 60}),
    "digits, fewest slices": Case(DIGITS_8, "zedboard", {"objective": "dsp", "interval": 20_000}),
    "digits, groups in turn": Case(DIGITS_8, "zedboard", {"groups": "conv1-pool1,conv3-fc", "in_turn": True}),
    "digits, groups side by side": Case(DIGITS_8, "zedboard", {"groups": "conv1-pool1,conv3-fc"}),
    "digits quantised here": Case(DIGITS_FLOAT, "zedboard", {}, CALIBRATION),
    "digits, 16 bits": Case(DIGITS_FLOAT, "zedboard", {}, {**CALIBRATION, "bits": 16}),
    "lenet5": Case("lenet5", "zedboard", {"macs_per_dsp": "auto"}),
    "lenet5, latency": Case("lenet5", "vc709", {"objective": "latency", "dsp": 400}),
    "decoilfnet-example": Case("decoilfnet-example", "zedboard"),
    "decoilfnet-four": Case("decoilfnet-four@24x24", "vc709", {"dsp": 900}),
    "alexnet-set": Case("alexnet-set@67x67", "vc709", {"dsp": 300}),
    "alexnet in groups": Case("alexnet@67x67", "vc709", {"in_turn": True, "dsp": 100}),
    "alexnet, pyramids": Case("alexnet-set@67x67", "vc709", {**PYRAMID, "overlap": "reuse"}),
    "alexnet, recomputed": Case("alexnet-set@67x67", "vc709", {**PYRAMID, "overlap": "recompute"}),
    "vgg16, one MAC": Case("vgg16:7@32x32", "vc709"),
    "vgg16, two MACs": Case("vgg16:7@32x32", "vc709", {"macs_per_dsp": 2, "dsp": 900}),
    "vgg16, few slices": Case("vgg16:6@32x32", "zedboard", {"macs_per_dsp": 2}),
    "vgg16, pyramids reused": Case("vgg16:4@32x32", "vc709", {**PYRAMID, "tile": (4, 8), "overlap": "reuse"}),
    "vgg16, pyramids reloaded": Case("vgg16:4@32x32", "vc709", {**PYRAMID, "tile": (4, 4), "overlap": "reload"}),
    "vgg16, pyramids recomputed": Case("vgg16:4@32x32", "vc709", {**PYRAMID, "tile": (5, 6), "overlap": "recompute"}),
    "vgg16, 16 bits": Case("vgg16:4@32x32,int16", "vc709", {"dsp": 600}),
    "flownets": Case("flownets:4@32x24", "vc709", {"dsp": 500}),
    "speed-sign": Case("speed-sign@64x64", "zedboard"),
}

#: Strings, numbers with their bases, and identifiers, plain or escaped; keywords count as identifiers.
TOKENS = re.compile(r'"[^"]*"|\d*\'s?[bodhBODH][0-9a-fA-FxzXZ_?]+|\b\d[\d_]*\b|\\\S+|[A-Za-z_$][\w$]*')
LEFT_OUT = re.compile(r'//[^\n]*|/\*.*?\*/|\(\*\s*(?:src|generator)\s*=\s*"[^"]*"\s*\*\)', re.DOTALL)


def canonical(verilog: str) -> str:
    """Verilog with identifiers as numbers and spaces made one.

    >>> canonical('assign sum = left + 8\\'h0f; // both') == canonical('assign a  = b + 8\\'h0f;')
    True
    """
    numbers: dict[str, str] = {}

    def named(match: re.Match[str]) -> str:
        token = match[0]
        if token[0] in "\"'" or token[0].isdigit():
            return token
        return numbers.setdefault(token.removeprefix("\\"), f"n{len(numbers)}")

    return " ".join(TOKENS.sub(named, LEFT_OUT.sub("", verilog)).split())


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def files(folder: Path) -> dict[str, str]:
    """SHA-256 of the design's Verilog, canonical, and of its memories' words."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.suffix in (".v", ".sv"):
            found[name] = sha256(canonical(path.read_text()).encode())
        elif path.suffix in (".hex", ".mem"):
            found[name] = sha256(path.read_bytes())
    return found


def measure(case: Case) -> dict[str, Any]:
    """What a case comes to; of a plan whose groups share the board, which can't be built, what is planned."""
    model = case.load()
    design = model.plan(case.board, **case.steering)
    planned = {"plan": json.loads(design.to_json()), "resources": design.resources}
    return planned | (_built(case, model, design) if design.plan.obstacle is None else {})


def _built(case: Case, model: hwgen.Model, design: hwgen.Design) -> dict[str, Any]:
    """Its cycles, traffic, outputs and Verilog."""
    frames = model.random_frames(FRAMES)
    with tempfile.TemporaryDirectory() as folder:
        verilog = files(design.build(Path(folder) / "design", frames))
    result = design.simulate(frames)
    if not result.ok:
        raise SystemExit(f"{case.source}: {result.summary()}")
    return {
        "cycles": {"latency": result.latency, "interval": result.interval, "all": result.cycles},
        "traffic": {"read": result.read_bytes, "written": result.written_bytes},
        "outputs": sha256(np.ascontiguousarray(result.integers).tobytes()),
        "verilog": verilog,
    }


def differences(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """Each place at which two JSON values differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            place = f"{where}.{key}" if where else str(key)
            if key not in after or key not in before:
                yield f"{place}: only {'before' if key in before else 'after'}"
            else:
                yield from differences(before[key], after[key], place)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, pair in enumerate(zip(before, after, strict=True)):
            yield from differences(*pair, f"{where}[{number}]")
    elif before != after:
        yield f"{where}: {str(before)[:60]} before, {str(after)[:60]} after"


def reread(case: Case, kept: dict[str, Any]) -> Iterator[str]:
    """What a plan that was written before says now, where that is something else."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        path.write_text(json.dumps(kept["plan"]))
        try:
            design = case.load().plan(case.board, plan=path)
        except hwgen.HwgenError as error:
            yield f"the plan is refused: {error}"
            return
    yield from differences(kept["plan"], json.loads(design.to_json()), "plan read again")


def chosen(names: list[str], parser: argparse.ArgumentParser) -> dict[str, Case]:
    if unknown := set(names) - set(CASES):
        parser.error(f"unknown case {', '.join(sorted(unknown))}; known: {', '.join(CASES)}")
    return {name: CASES[name] for name in names or CASES}


def write(path: Path, cases: dict[str, Case]) -> None:
    found = {}
    for name, case in cases.items():
        begin = time.perf_counter()
        found[name] = measure(case)
        print(f"{name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
        path.write_text(json.dumps(found, indent=1) + "\n")


def compare(before: dict[str, Any], after: dict[str, Any], plans: bool) -> int:
    """How many differences there are; each is printed."""
    count = 0
    for name in [*before, *(name for name in after if name not in before)]:
        found = list(differences(before.get(name), after.get(name)))
        if plans and name in before and name in CASES:
            found += reread(CASES[name], before[name])
        for difference in found:
            print(f"{name}: {difference}")
        count += len(found)
    print(f"{len(before)} cases, {count} differences")
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("measure")
    one.add_argument("file", type=Path)
    one.add_argument("case", nargs="*", help=f"of {', '.join(CASES)}")
    two = commands.add_parser("compare")
    two.add_argument("before", type=Path)
    two.add_argument("after", type=Path)
    two.add_argument("--plans", action="store_true", help="read the plans of before once more")
    arguments = parser.parse_args()
    if arguments.command == "measure":
        write(arguments.file, chosen(arguments.case, parser))
    elif compare(*(json.loads(path.read_text()) for path in (arguments.before, arguments.after)), arguments.plans):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
