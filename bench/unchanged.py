"""Measure plans, cycles, outputs, resources and Verilog of many designs, and compare two such measurements.

Usage: python bench/unchanged.py measure FILE [CASE ...] [--yosys]      measure all cases (or some) into FILE
       python bench/unchanged.py compare BEFORE AFTER [--plans] [--tolerance 0.005]

``measure --yosys`` also synthesises every component of each case. ``compare`` prints each difference, by case, and
fails if there is one. LUTs and flip-flops may differ by the tolerance, a fraction. With ``--plans`` it also reads each
plan of BEFORE, and fails if one is refused, or differs from what was written.

Verilog is compared without comments and without attributes that name lines of source code. Identifiers are numbered
in the order of their first appearance, and the build hash is masked. Outputs are those of the hardware in Verilator,
equal to the golden model's. Needs pip install '.[test]'.
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
import small_models

import hwgen
from hwgen.tools import synthesis

ROOT = Path(__file__).resolve().parent.parent
DIGITS = ROOT / "examples" / "digits"
FRAMES = 3
RENAMED_KEYS: dict[str, str] = {}
"""Keys of plan.json that a change renames, old to new. ``compare`` renames them in BEFORE."""
RENAMED_VALUES = {("template", "tile"): "engine"}
"""New values that a change gives to keys of plan.json, by key and old value. ``compare`` replaces them in BEFORE."""
TOLERATED = ("lut", "ff")
"""Keys of figures that may differ by the tolerance."""


@dataclass(frozen=True)
class Case:
    """A model, a board, and the options of loading and planning.

    ``programs`` are further models, which are compiled for the engine that the case builds.
    """

    source: str
    board: str
    steering: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    programs: tuple[str, ...] = ()

    def load(self) -> hwgen.Model:
        return hwgen.load(self.source, **self.model)


@dataclass(frozen=True)
class SmallModel(Case):
    """A case whose source is a name in `small_models`."""

    def load(self) -> hwgen.Model:
        with tempfile.TemporaryDirectory() as folder:
            path, frames = small_models.write(self.source, Path(folder))
            calibration = frames if len(frames) > 1 else next(iter(frames.values()))
            return hwgen.load(path, calibration=calibration, **self.model)


DIGITS_8, DIGITS_FLOAT = str(DIGITS / "digits.onnx"), str(DIGITS / "digits-float.onnx")
CALIBRATION = {"calibration": str(DIGITS / "calibration.npy")}
PYRAMID = {"template": "pyramid", "dsp": 300}
ENGINE = {"template": "engine", "cores": 1, "bus_bits": 64}
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
    "resnet8": Case("resnet8", "zedboard"),
    "two inputs": SmallModel("two-inputs", "zedboard"),
    "LRN": SmallModel("lrn", "zedboard", {"dsp": 120}),
    "digits, weights at run time": Case(DIGITS_8, "zedboard", {"weights": "runtime"}),
    "engine, two programs": Case(DIGITS_8, "zedboard", {**ENGINE, "array": (16, 5)}, programs=("lenet5",)),
    "engine, batch": Case("lenet5", "zedboard", {**ENGINE, "array": (16, 5), "batch": 2}),
}

#: Strings, numbers with their bases, and identifiers, plain or escaped; keywords count as identifiers.
TOKENS = re.compile(r'"[^"]*"|\d*\'s?[bodhBODH][0-9a-fA-FxzXZ_?]+|\b\d[\d_]*\b|\\\S+|[A-Za-z_$][\w$]*')
LEFT_OUT = re.compile(r'//[^\n]*|/\*.*?\*/|\(\*\s*(?:src|generator)\s*=\s*"[^"]*"\s*\*\)', re.DOTALL)


def canonical(verilog: str, build_hash: int | None = None) -> str:
    """Return Verilog with numbered identifiers, single spaces, and the halves of its build hash masked.

    >>> canonical('assign sum = left + 8\\'h0f; // both') == canonical('assign a  = b + 8\\'h0f;')
    True
    >>> canonical("x = 32'h1a;", 0x1A_0000_001B) == canonical("x = 32'h2b;", 0x2B_0000_001C)
    True
    """
    identifiers: dict[str, str] = {}
    halves = () if build_hash is None else (build_hash >> 32, build_hash & 0xFFFF_FFFF)
    masked = {f"32'h{half:x}": f"BUILD_HASH_{index}" for index, half in enumerate(halves)}

    def numbered(match: re.Match[str]) -> str:
        token = match[0]
        if token[0] in "\"'" or token[0].isdigit():
            return masked.get(token, token)
        return identifiers.setdefault(token.removeprefix("\\"), f"n{len(identifiers)}")

    return " ".join(TOKENS.sub(numbered, LEFT_OUT.sub("", verilog)).split())


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 digests of a design's Verilog in canonical form, of its memories' words and its programs."""
    digests = {}
    registers = folder / "registers.json"
    build_hash = int(json.loads(registers.read_text())["build_hash"], 16) if registers.exists() else None
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.suffix in (".v", ".sv"):
            digests[name] = sha256(canonical(path.read_text(), build_hash).encode())
        elif path.suffix in (".hex", ".mem", ".program"):
            digests[name] = sha256(path.read_bytes())
    return digests


def measure(case: Case, yosys: bool = False) -> dict[str, Any]:
    """Return the plan and resources of a case and, of a plan that can be built, everything that is built and run."""
    model = case.load()
    design = model.plan(case.board, multipliers="dsp", **case.steering)
    measured = {"plan": json.loads(design.to_json()), "resources": design.resources}
    if design.plan.obstacle is not None:
        return measured
    with tempfile.TemporaryDirectory() as temporary:
        frames = model.random_frames(FRAMES)
        folder = Path(temporary) / "design"
        design.build(folder, None if design.plan.engine else frames)
        measured |= {"verilog": files(folder), **_run(design, frames)}
        for source in case.programs:
            other = hwgen.load(source)
            program = other.compile(folder)
            measured[f"program of {source}"] = {
                "bytes": sha256(bytes(program.program)),
                **_run(program, other.random_frames(FRAMES)),
            }
    return measured | ({"yosys": _synthesised(design)} if yosys else {})


def _run(design: hwgen.Design, frames: Any) -> dict[str, Any]:
    """Return the cycles, traffic and outputs of a simulation; exit if it differs from the golden model."""
    result = design.simulate(frames)
    if not result.ok:
        raise SystemExit(f"{design.network.name}: {result.summary()}")
    integers = result.integers if isinstance(result.integers, dict) else {"": result.integers}
    return {
        "cycles": {"latency": result.latency, "interval": result.interval, "all": result.cycles},
        "traffic": {"read": result.read_bytes, "written": result.written_bytes},
        "outputs": {name: sha256(np.ascontiguousarray(values).tobytes()) for name, values in integers.items()},
    }


def _synthesised(design: hwgen.Design) -> dict[str, Any]:
    """Return what Yosys makes of all components of a design together."""
    total = sum((synthesis.synthesise(circuit).measured for circuit in design.plan.circuits()), synthesis.Resources())
    return total.as_dict()


def renamed(document: Any) -> Any:
    """Return a JSON value with the keys and values of `RENAMED_KEYS` and `RENAMED_VALUES` renamed at every depth."""
    if isinstance(document, dict):
        values = {key: RENAMED_VALUES.get((key, str(value)), value) for key, value in document.items()}
        return {RENAMED_KEYS.get(key, key): renamed(value) for key, value in values.items()}
    return [renamed(value) for value in document] if isinstance(document, list) else document


def differences(before: Any, after: Any, tolerance: float = 0.0, path: str = "") -> Iterator[str]:
    """Yield a line for each path at which two JSON values differ.

    >>> list(differences({"lut": 1000, "dsp": 4}, {"lut": 1004, "dsp": 5}, 0.005))
    ['dsp: 4 before, 5 after']
    """
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            below = f"{path}.{key}" if path else str(key)
            if key not in after or key not in before:
                yield f"{below}: only {'before' if key in before else 'after'}"
            else:
                yield from differences(before[key], after[key], tolerance, below)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, pair in enumerate(zip(before, after, strict=True)):
            yield from differences(*pair, tolerance, f"{path}[{index}]")
    elif before != after and not _is_tolerated(before, after, tolerance, path):
        yield f"{path}: {str(before)[:60]} before, {str(after)[:60]} after"


def _is_tolerated(before: Any, after: Any, tolerance: float, path: str) -> bool:
    """Whether two figures of LUTs or flip-flops differ by no more than the tolerance, a fraction of the first."""
    if path.rpartition(".")[2] not in TOLERATED or not all(isinstance(value, int | float) for value in (before, after)):
        return False
    return abs(after - before) <= tolerance * before


def reread(case: Case, kept: dict[str, Any]) -> Iterator[str]:
    """Yield the differences between a plan that was written before and the same plan as it is read now."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        path.write_text(json.dumps(kept["plan"]))
        try:
            design = case.load().plan(case.board, plan=path)
        except hwgen.HwgenError as error:
            yield f"the plan is refused: {error}"
            return
    yield from differences(renamed(kept["plan"]), json.loads(design.to_json()), path="plan read again")


def chosen(names: list[str], parser: argparse.ArgumentParser) -> dict[str, Case]:
    if unknown := set(names) - set(CASES):
        parser.error(f"unknown case {', '.join(sorted(unknown))}; known: {', '.join(CASES)}")
    return {name: CASES[name] for name in names or CASES}


def write(path: Path, cases: dict[str, Case], yosys: bool) -> None:
    """Measure cases; the file is written anew after each, so that an interrupted run leaves those before."""
    measured = {}
    for name, case in cases.items():
        begin = time.perf_counter()
        measured[name] = measure(case, yosys)
        print(f"{name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
        path.write_text(json.dumps(measured, indent=1) + "\n")


def compare(before: dict[str, Any], after: dict[str, Any], plans: bool, tolerance: float) -> int:
    """Print each difference between two measurements, and return their number."""
    count = 0
    for name in [*before, *(name for name in after if name not in before)]:
        lines = list(differences(renamed(before.get(name)), after.get(name), tolerance))
        if plans and name in before and name in CASES:
            lines += reread(CASES[name], before[name])
        for line in lines:
            print(f"{name}: {line}")
        count += len(lines)
    print(f"{len(before)} cases, {count} differences")
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("measure")
    one.add_argument("file", type=Path)
    one.add_argument("case", nargs="*", help=f"of {', '.join(CASES)}")
    one.add_argument("--yosys", action="store_true", help="also synthesise each case's components")
    two = commands.add_parser("compare")
    two.add_argument("before", type=Path)
    two.add_argument("after", type=Path)
    two.add_argument("--plans", action="store_true", help="read the plans of before once more")
    two.add_argument("--tolerance", type=float, default=0.0, help="of LUTs and flip-flops, as a fraction (default 0)")
    arguments = parser.parse_args()
    if arguments.command == "measure":
        write(arguments.file, chosen(arguments.case, parser), arguments.yosys)
        return
    before, after = (json.loads(path.read_text()) for path in (arguments.before, arguments.after))
    if compare(before, after, arguments.plans, arguments.tolerance):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
