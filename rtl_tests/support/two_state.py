"""The Verilog writer beside Amaranth's own back end, in one bench in Verilator, where no bit is unknown.

All components of a comparison are in one circuit, so that Yosys (in Amaranth's back end), Verilator and g++ start once.
Both sides see the same random inputs: each one changes its style of values, or how often it is high, now and then.
Resets come at random in every second stretch of 512 cycles. Ports called ``aclk`` and ``aresetn`` are the bench's
clock and reset. All outputs of each component are compared in every cycle.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from amaranth.back import verilog as verilog_of_amaranth
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hwgen.simulate import contents, cpp, verilator
from hwgen.tools.synthesis import SideBySide
from hwgen.verilog import convert, emitted

Maker = Callable[[], wiring.Component]
Writer = Callable[[wiring.Component, str], Mapping[str, bytes]]

STIMULUS = """
module stimulus #(parameter WIDTH = 1) (input wire clk, output reg [WIDTH-1:0] value);
    reg [1:0] style = 2'd0;
    reg [WIDTH+31:0] noise, more;
    integer place;
    initial value = {WIDTH{1'b0}};
    always @(posedge clk) begin
        if (($urandom & 63) == 0) style <= 2'($urandom);
        for (place = 0; place < WIDTH; place = place + 32) begin
            noise[place +: 32] = $urandom;
            more[place +: 32] = $urandom;
        end
        if (WIDTH == 1)  // high in 1, 4, 7 or 8 of 8 cycles
            value[0] <= ($urandom & 7) < (style == 0 ? 1 : style == 1 ? 4 : style == 2 ? 7 : 8);
        else case (style)
            0, 1: value <= noise[WIDTH-1:0];
            2: value <= noise[WIDTH-1:0] & more[WIDTH-1:0];
            default: if (($urandom & 7) == 0) value <= noise[WIDTH-1:0] | more[WIDTH-1:0];
        endcase
    end
endmodule
"""
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
CELLS = """
module LUT6_2 #(parameter [63:0] INIT = 64'd0) (output wire O6, output wire O5,
    input wire I0, input wire I1, input wire I2, input wire I3, input wire I4, input wire I5);
    assign O6 = INIT[{I5, I4, I3, I2, I1, I0}];
    assign O5 = INIT[{1'b0, I4, I3, I2, I1, I0}];
endmodule
module LUT6 #(parameter [63:0] INIT = 64'd0) (output wire O,
    input wire I0, input wire I1, input wire I2, input wire I3, input wire I4, input wire I5);
    assign O = INIT[{I5, I4, I3, I2, I1, I0}];
endmodule
module CARRY4 (output wire [3:0] CO, output wire [3:0] O, input wire CI, input wire CYINIT,
    input wire [3:0] DI, input wire [3:0] S);
    wire first = CI | CYINIT;
    assign CO[0] = S[0] ? first : DI[0];
    assign CO[3:1] = {S[3] ? CO[2] : DI[3], S[2] ? CO[1] : DI[2], S[1] ? CO[0] : DI[1]};
    assign O = S ^ {CO[2:0], first};
endmodule
"""
DRIVER = """
#include "Vdesign.h"
#include "design.h"
#include "verilated.h"

int main() {
    VerilatedContext context;
    context.randSeed(SEED);
    Vdesign top(&context);
    while (!context.gotFinish()) {
        top.clk = 0;
        top.eval();
        top.clk = 1;
        top.eval();
    }
}
"""


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
    modules = "".join(f'no_inline -module "{name}"\n' for name in contents.components(files["design.v"], "bench"))
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
