"""Random faults in emitted Verilog of five designs: which of those that change behaviour does ``hwgen prove`` find?

Each fault is one small change in one module of a folder that ``hwgen build`` wrote: an operator, a constant, a bit
slice, two swapped operands or ports, a negation, or an assignment that is left out. Modules are drawn first, so that a
large one has no more faults than a small one. Two judges say whether the fault changes behaviour:

1. a miter of the sound and the changed module: random inputs in Icarus, then Yosys and ABC;
2. if neither shows a difference nor proves that there is none, the folder's own test bench, which takes minutes.

A fault that neither finds to change anything is counted apart, and so is one that they cannot decide. For all of them,
the obligations whose modules changed are proved, those of few modules first, until one is refuted that the sound design
fulfils. A fault that none refutes is ``refused`` if the folder cannot be read any more, ``named`` if an instance of the
module is among those that ``hwgen prove`` names as not covered, ``undecided`` if an obligation is, and otherwise
``proved``: nothing has found it.

Usage: python bench/verilog_faults.py --seed 49 --count 20 --json FILE [DESIGN ..]

An interrupted run goes on from the file. Designs are built in ``--folder``, if they are not there.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from mutant_miters import compared, miter

from hwgen.errors import InputError
from hwgen.obligations.modules import SYNTHESIS, VerilogModule
from hwgen.obligations.obligation import Obligation
from hwgen.prove import discharge, lists, trace
from hwgen.prove.wrapper import Wrapped

ROOT = Path(__file__).resolve().parents[1]
#: Arguments of ``hwgen build`` by design. ``MODEL`` is a model with a concatenation and an upsampling.
DESIGNS = {
    "digits": ("examples/digits/digits.onnx", "--board", "zedboard"),
    "resnet8": ("resnet8", "--board", "zedboard", "--template", "stream"),
    "engine": ("lenet5", "--board", "zedboard", "--template", "engine", "--array", "8x5", "--cores", "1"),
    "pyramid": (
        *("decoilfnet-example", "--board", "zedboard", "--template", "pyramid", "--tile", "1x1"),
        *("--overlap", "reuse", "--multipliers", "dsp"),
    ),
    "concat": ("MODEL", "--board", "zedboard"),
}
#: Binary operators and the faulty ones in their place.
OPERATORS = {"&": "|", "|": "&", "+": "-", "-": "+", "==": "!=", "!=": "==", ">": ">=", ">=": ">", "<": ">=", "^": "&"}
_OPERATOR = re.compile(r"(?<= )(?:==|!=|>=|[&|+\-><^])(?= )")
_NUMBER = re.compile(r"\b(\d+)'d(\d+)\b")
_SLICE = re.compile(r"(?<=\w)\[(\d+)(?::(\d+))?\]")
_CHOICE = re.compile(r"\? ([\w\[\]:']+) : ([\w\[\]:']+)(?=[;,)}])")
_DIFFERENCE = re.compile(r"(?<=[( ])([\w\[\]:']+) - ([\w\[\]:']+)(?=[;,)}])")
_NEGATION = re.compile(r"!(?=\w)")
_PORT = re.compile(r"^ {8}\.\w+\((.+?)\),?$")
_ASSIGNMENT = re.compile(r"^ {8,}[\w\[\]:]+ <= .*;$")
_ASSERTION = re.compile(r"always @\* assert\((.*)\);")
_MITER_INPUT = re.compile(r"input wire \[(\d+):0\] (\w+)")
#: Longest time of a test bench, and of a miter at random inputs; solvers have a half of the latter for each search.
BENCH_SECONDS, MITER_SECONDS = 600.0, 120.0
#: Cycles of a run of random inputs.
CYCLES = 3000
#: Verdicts that count as found.
FOUND = ("refuted", "refused", "named")


@dataclass(frozen=True)
class Fault:
    """Change of one module's text.

    Parameters
    ----------
    design, file, module : str
        Name of the design, of the Verilog file and of the module.
    kind : str
        Kind of change.
    line : int
        Number of the line in the module.
    old, new : str
        The line, without and with the change. A line that is left out is empty.
    """

    design: str
    file: str
    module: str
    kind: str
    line: int
    old: str
    new: str


def changes(text: str) -> Iterator[tuple[str, int, str, str]]:
    """Yield the possible changes of a module's text: kind, number of the line, the line and the changed line.

    Text that only synthesis reads is left out, because no simulation would show its changes.
    """
    lines = text.splitlines()
    start = next(index for index, line in enumerate(lines) if line == ");") + 1
    is_simulated = True
    for number, line in enumerate(lines[start:], start):
        if line.startswith("`"):
            is_simulated = line != "`ifdef SYNTHESIS"
            continue
        if not is_simulated:
            continue
        code, comment = line.partition("//")[::2]
        if comment or line.startswith(("    reg ", "    integer", "    initial", "    (*", "`")) or "for (" in line:
            continue
        for kind, begin, end, new in _in_line(code):
            yield kind, number, line, code[:begin] + new + code[end:]
        if _ASSIGNMENT.match(line):
            yield "assignment", number, line, ""
        port, following = _PORT.match(line), _PORT.match(lines[number + 1]) if number + 1 < len(lines) else None
        if port and following and port[1] != following[1]:
            yield "port", number, line, line.replace(f"({port[1]})", f"({following[1]})")


def _in_line(code: str) -> Iterator[tuple[str, int, int, str]]:
    """Yield the possible changes within a line of code: kind, begin and end of the old text, and the new text."""
    for match in _OPERATOR.finditer(code):
        yield "operator", *match.span(), OPERATORS[match[0]]
    for match in _NUMBER.finditer(code):
        width, value = int(match[1]), int(match[2])
        yield "constant", *match.span(), f"{width}'d{(value + 1) % (1 << width)}"
    for match in _SLICE.finditer(code):
        high, low = int(match[1]), int(match[2] or match[1])
        if low:
            yield "slice", *match.span(), f"[{high - 1}:{low - 1}]" if match[2] else f"[{high - 1}]"
    for name, pattern, between in (("operands", _CHOICE, "? {1} : {0}"), ("operands", _DIFFERENCE, "{1} - {0}")):
        for match in pattern.finditer(code):
            if match[1] != match[2]:
                yield name, *match.span(), between.format(match[1], match[2])
    for match in _NEGATION.finditer(code):
        yield "negation", *match.span(), ""


class Folder:
    """Folder that ``hwgen build`` wrote, and faults of its modules.

    Parameters
    ----------
    name : str
        Name of the design.
    path : Path
        The folder.
    """

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path
        self.lists = lists.read_lists(path)

    @cached_property
    def modules(self) -> dict[str, tuple[str, VerilogModule]]:
        """Verilog file and module, by the name of the module; those for synthesis are left out."""
        return {
            name: (listed.verilog, module)
            for listed in self.lists
            for name, module in listed.modules.items()
            if not name.endswith(SYNTHESIS)
        }

    def with_module(self, name: str) -> set[str]:
        """Return the names of the modules that have an instance of a module inside, in either text, and its own."""
        inside = [
            (other.removesuffix(SYNTHESIS), {*module.instances.values()})
            for listed in self.lists
            for other, module in listed.modules.items()
        ]
        found = {name}
        while more := {other for other, kinds in inside if found & kinds} - found:
            found |= more
        return found

    def drawn(self, seed: int, index: int) -> Fault:
        """Return fault ``index`` of a seed."""
        rng = random.Random(f"{self.name} {seed} {index}")
        while True:
            name = rng.choice(sorted(self.modules))
            file, module = self.modules[name]
            kinds: dict[str, list[Any]] = {}
            for kind, *change in changes(module.text):
                kinds.setdefault(kind, []).append(change)
            if kinds:
                kind = rng.choice(sorted(kinds))
                return Fault(self.name, file, name, kind, *rng.choice(kinds[kind]))

    def changed(self, fault: Fault) -> str:
        """Return the text of the module with a fault."""
        lines = self.modules[fault.module][1].text.splitlines()
        lines[fault.line] = fault.new
        return "\n".join(lines)

    def copy_with(self, fault: Fault, target: Path) -> None:
        """Write a copy of the folder with a fault into the folder ``target``; unchanged files are links."""
        for path in self.path.iterdir():
            if path.is_file() and path.name != fault.file:
                (target / path.name).symlink_to(path.resolve())
        text, module = (self.path / fault.file).read_text(encoding="utf-8"), self.modules[fault.module][1].text
        # Of two texts, that for simulation is the one that `modules` has.
        assert text.count(module) == 1, fault.module
        (target / fault.file).write_text(text.replace(module, self.changed(fault)), encoding="utf-8")


def affected(listed: list[lists.ObligationList], modules: set[str]) -> dict[str, tuple[Obligation, Wrapped]]:
    """Return the obligations of some modules with their wrappers, by kind, path and statement.

    Of equal ones, the later ones have a mark at the end.

    Raises
    ------
    InputError
        If the Verilog does not fit the obligations.
    """
    chosen = [
        replace(each, obligations=[one for one in each.obligations if one.module.removesuffix(SYNTHESIS) in modules])
        for each in listed
    ]
    named: dict[str, tuple[Obligation, Wrapped]] = {}
    for obligation, wrapper in lists.obligations_of(chosen):
        name = f"{obligation.kind} of {obligation.path or 'top'}: {obligation.statement}"
        while name in named:
            name += "'"
        named[name] = obligation, wrapper
    return named


def behaviour(folder: Folder, fault: Fault, target: Path) -> str:
    """Return who finds that a fault changes behaviour: ``miter`` or ``bench``.

    Otherwise it is ``none`` if the modules are proved equal, ``unreadable`` if no simulator reads the changed one, and
    ``unknown``.
    """
    effect = "unknown"
    if not folder.modules[fault.module][1].has_parameters:  # a miter needs the widths of the ports
        sides = _sides(folder, fault)
        try:
            if differs_by_chance(*sides, target):
                return "miter"
            text = compared(*sides, MITER_SECONDS / 2)
            if text != "undecided":
                return "miter" if text.startswith("differs") else "none"
        except subprocess.CalledProcessError:
            effect = "unreadable"
    bench = next(target.glob("*_tb.v"), None)
    if bench is None or fault.file.endswith("_axi.v"):
        return effect
    command = ["iverilog", "-g2005", "-Wno-timescale", "-o", "bench.vvp", bench.name, fault.file]
    if subprocess.run(command, cwd=target, check=False, capture_output=True).returncode:
        return "unreadable"
    command = ["vvp", "-N", "bench.vvp"]
    try:
        run = subprocess.run(command, cwd=target, check=False, capture_output=True, text=True, timeout=BENCH_SECONDS)
    except subprocess.TimeoutExpired:  # the machine is slow: a bench ends by itself where nothing moves
        return "unknown"
    return "bench" if run.returncode or "PASS" not in run.stdout else "unknown"


def differs_by_chance(gold: Mapping[str, bytes], gate: Mapping[str, bytes], folder: Path) -> bool:
    """Return whether a run of random inputs shows a difference of two circuits, which take a miter's inputs."""
    texts = gold["gold.v"].decode(), gate["gate.v"].decode()
    differs = 'always @(posedge chance.clk) if ((\\1) === 1\'b0) begin $display("differs"); $finish; end'
    compares = _ASSERTION.sub(differs, miter(*texts))
    inputs = {name: int(high) + 1 for high, name in _MITER_INPUT.findall(compares)}
    names = list(inputs)
    values = {
        name: f"{{{', '.join(['$random'] * -(-width // 32))}}}" for name, width in inputs.items() if name != "clk"
    }
    if "rst" in values:
        values["rst"] = "(cycle < 2) | (($random & 255) == 0)"
    if "aresetn" in values:
        values["aresetn"] = "(cycle >= 2) & (($random & 255) != 0)"
    inputs["clk"] = 1
    lines = [
        "module chance;",
        *(f"    reg [{width - 1}:0] {name} = 0;" for name, width in inputs.items()),
        "    integer cycle;",
        f"    miter both ({', '.join(f'.{name}({name})' for name in names)});",
        f"    initial for (cycle = 0; cycle < {CYCLES}; cycle = cycle + 1) begin",
        *(f"        {name} = {value};" for name, value in values.items()),
        "        #1 clk = 1; #1 clk = 0;",
        "    end",
        "endmodule",
    ]
    (folder / "chance.v").write_text("\n".join([*texts, compares, *lines, ""]), encoding="utf-8")
    command = ["iverilog", "-g2012", "-Wno-timescale", "-s", "chance", "-o", "chance.vvp", "chance.v"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    command = ["vvp", "-N", "chance.vvp"]
    try:
        run = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=MITER_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return "differs" in run.stdout


def _sides(folder: Folder, fault: Fault) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return the files of the sound and of the changed module, as `mutant_miters` compares them.

    The clock of a bus wrapper is called ``clk`` as well.
    """
    needed, names = [], [fault.module]
    modules = {name: module for name, (_, module) in folder.modules.items()}
    for name in names:
        kinds = dict.fromkeys(modules[name].instances.values())
        names += [kind for kind in kinds if kind in modules and kind not in names]
        needed += [modules[name].text] if name != fault.module else []
    head = re.compile(rf"^module {fault.module}\b")
    sides = [
        head.sub(f"module {side}", text)
        for side, text in (("gold", modules[fault.module].text), ("gate", folder.changed(fault)))
    ]
    *sides, inner = (re.sub(r"\baclk\b", "clk", text) for text in (*sides, "\n".join(needed)))
    files = {path.name: path.read_bytes() for path in folder.path.glob("*.mem")}
    return (
        {"gold.v": f"{sides[0]}\n{inner}\n".encode(), **files},
        {"gate.v": f"{sides[1]}\n".encode()},
    )


def judged(folder: Folder, fault: Fault, target: Path, seconds: float) -> dict[str, Any]:
    """Return the verdict of ``hwgen prove`` on a folder with a fault, and the obligation that refutes it."""
    changed_lists, modules = lists.read_lists(target), folder.with_module(fault.module)
    sound_pairs = affected(folder.lists, modules)
    try:
        pairs = affected(changed_lists, modules)
    except InputError as error:
        return {"verdict": "refused", "detail": str(error)}
    tasks = []
    for name, (obligation, wrapper) in pairs.items():
        key = discharge._cache_key(obligation, wrapper)
        if key != discharge._cache_key(*sound_pairs[name]):
            tasks.append((len(wrapper.modules), name, (key, obligation, wrapper)))
    undecided = []
    for _, name, task in sorted(tasks, key=lambda entry: entry[:2]):
        verdict = discharge.discharge_one(seconds, task).verdict
        if verdict.result in ("refuted", "vacuous"):
            obligation, wrapper = sound_pairs[name]
            key = discharge._cache_key(obligation, wrapper)
            sound = discharge.discharge_one(seconds, (key, obligation, wrapper)).verdict
            if sound.result == "proved":
                return {"verdict": "refuted", "detail": name, "result": verdict.result}
            undecided.append(f"{name} (sound: {sound.result})")
        elif verdict.result != "proved":
            undecided.append(f"{name} ({verdict.detail})")
    uncovered = [each.path for each in lists.coverage_of(changed_lists) if each.reason and each.module == fault.module]
    if uncovered:
        return {"verdict": "named", "detail": uncovered[0]}
    return {"verdict": "undecided" if undecided else "proved", "detail": undecided, "obligations": len(tasks)}


def judge(folder: Folder, fault: Fault, seconds: float) -> dict[str, Any]:
    """Return a fault with both judgements."""
    with tempfile.TemporaryDirectory() as name:
        target = Path(name)
        folder.copy_with(fault, target)
        effect = behaviour(folder, fault, target)
        said = {"verdict": ""} if effect == "unreadable" else judged(folder, fault, target, seconds)
    return asdict(fault) | {"behaviour": effect} | said


def build(name: str, folder: Path) -> Folder:
    """Return the folder of a design, which is built if it is not there."""
    path = folder / name
    if not (path / "manifest.json").is_file():
        model, *options = DESIGNS[name]
        if model == "MODEL":
            model = str(folder / "concat.onnx")
            folder.mkdir(parents=True, exist_ok=True)
            _write_model(Path(model))
        elif model.endswith(".onnx"):
            model = str(ROOT / model)
        command = [
            sys.executable,
            "-c",
            "import sys; from hwgen.cli.main import main; sys.exit(main())",
            "build",
            model,
            *options,
            "-o",
            str(path),
        ]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return Folder(name, path)


def _write_model(path: Path) -> None:
    """Write a small U-Net with a concatenation and an upsampling, quantised."""
    import numpy as np
    import onnx
    from engine_planning import UNet

    from hwgen.network.quantise import quantise

    frames = np.random.default_rng(1).uniform(-1, 1, (2, 3, 8, 8)).astype(np.float32)
    onnx.save(quantise(UNet(2, maps=2, size=8).model, frames, "concat"), path)


def summary(found: list[Mapping[str, Any]]) -> str:
    """Return the table of verdicts by design, and the share of faults with an effect that are found."""
    effective = [each for each in found if each["behaviour"] in ("bench", "miter")]
    rows = ["design     changes  refuted  refused  named  undecided  proved  no change  unknown  unreadable"]
    for design in [*dict.fromkeys(each["design"] for each in found), ""]:
        own = [each for each in found if design in ("", each["design"])]
        verdicts = Counter(each["verdict"] for each in own if each["behaviour"] in ("bench", "miter"))
        effects = Counter(each["behaviour"] for each in own)
        counts = [verdicts[name] for name in (*FOUND, "undecided", "proved")]
        numbers = [sum(counts), *counts, effects["none"], effects["unknown"], effects["unreadable"]]
        widths = (7, 7, 7, 5, 9, 6, 9, 7, 10)
        rows.append(
            "  ".join([f"{design or 'all':9}", *(f"{n:{width}}" for n, width in zip(numbers, widths, strict=True))])
        )
    good = sum(each["verdict"] in FOUND for each in effective)
    return "\n".join([*rows, f"{good} of {len(effective)} faults that change behaviour are refuted, refused or named"])


def main() -> int:
    """Judge the drawn faults, and return 1 if one that changes behaviour is proved."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("designs", nargs="*", help=f"of {', '.join(DESIGNS)} (default: all)")
    parser.add_argument("--seed", type=int, default=49)
    parser.add_argument("--count", type=int, default=20, help="faults of each design that change behaviour")
    parser.add_argument("--seconds", type=float, default=60.0, help="time limit of each proof")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "faults.json")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "faults")
    arguments = parser.parse_args()
    trace.files = lambda *arguments, **options: {}  # nobody reads them
    known = json.loads(arguments.json.read_text()) if arguments.json.is_file() else []
    print(f"seed {arguments.seed}")
    for design in arguments.designs or DESIGNS:
        folder = build(design, arguments.folder)
        index = effective = 0
        while effective < arguments.count:
            fault = folder.drawn(arguments.seed, index)
            entry = next((each for each in known if (each["design"], each["index"]) == (design, index)), None)
            if entry is None:
                entry = {"index": index} | judge(folder, fault, arguments.seconds)
                known.append(entry)
                arguments.json.parent.mkdir(parents=True, exist_ok=True)
                arguments.json.write_text(json.dumps(known, indent=1) + "\n")
                print(
                    f"{design} {index} {entry['module']} {entry['kind']}: {entry['behaviour']}, {entry['verdict']}",
                    flush=True,
                )
            index += 1
            effective += entry["behaviour"] in ("bench", "miter")
    print(summary(known))
    return int(any(each["verdict"] == "proved" and each["behaviour"] in ("bench", "miter") for each in known))


if __name__ == "__main__":
    if not shutil.which("iverilog"):
        sys.exit("needs iverilog")
    sys.exit(main())
