"""Proof obligations ``elementwise`` of the engine's output pipeline: products and sums of two maps, for all values.

A sum is made by tables that jobs load. The words that are read from tables are free. Which words are written and read
is not proved.
"""

from __future__ import annotations

from typing import Any

from hwgen.gateware.arithmetic.shares import FRACTION, SHARE_BITS, WHOLE_BITS
from hwgen.gateware.engine.add import TableAddConfig
from hwgen.gateware.engine.config import LANES
from hwgen.gateware.engine.finish import FinishConfig
from hwgen.gateware.engine.map_product import PRODUCT_BITS, VALUE_BITS, MapProductConfig
from hwgen.gateware.engine.output_words import OutputWords
from hwgen.gateware.engine.pool import Pool
from hwgen.obligations.obligation import Obligation, Proofs, Site, part
from hwgen.obligations.observers import delayed, is_old, pipeline

_VALUE_BITS = 8


def finish_parts(config: FinishConfig) -> dict[str, Any]:
    """Return, as a dict by instance name, the configurations of the output pipeline's components that have proofs."""
    lanes = range(config.engine.requantisers)
    return {
        **{f"scale_{lane}": config.scale for lane in lanes},
        **{f"bound_{lane}": config.bound for lane in lanes},
        **{f"sum_bound_{lane}": config.sum_bound for lane in range(LANES)},
        "product": config.product,
        "add": config.add,
        **dict(zip(["fixed_unit"], config.fixed, strict=False)),
    }


def of_map_product(config: MapProductConfig, site: Site) -> list[Obligation]:
    """Return a list of obligations of the multiplier of two maps: values minus zero points, and their products."""
    circuit, cycles = site.circuit, config.latency - 1
    lines, differences, products = [], {}, {}
    for name in ("first", "second"):
        width = config.lanes * _VALUE_BITS
        lines += [*delayed(name, width, name, 1), *delayed(f"{name}_zero", _VALUE_BITS, f"{name}_zero", 1)]
    for lane in range(config.lanes):
        factors = {name: f"{name}_{lane}" for name in ("first", "second")}
        for name, factor in factors.items():
            lines += delayed(factor, VALUE_BITS, factor, cycles)
            value = f"$signed({part(f'{name}_was', lane * _VALUE_BITS, _VALUE_BITS)}) - $signed({name}_zero_was)"
            differences[f"{name} value of lane {lane} is less its zero point"] = (
                f"(age == 0) | ($signed({factor}) == {value})"
            )
        product = " * ".join(f"$signed({factor}_was)" for factor in factors.values())
        lines.append(f"wire signed [{PRODUCT_BITS - 1}:0] product_{lane} = {product};")
        output = part("o", lane * PRODUCT_BITS, PRODUCT_BITS)
        products[f"the product of lane {lane} is exact"] = f"{output} == product_{lane}"
    less_zero = "Each value of both maps is less its zero point a cycle later."
    multiplied = f"The outputs are the products of both maps' values, {cycles} cycles later."
    fields: dict[str, Any] = {"observer": lines, "keeps": circuit.all_instances}
    return [
        pipeline(
            circuit,
            "elementwise",
            less_zero,
            cycles,
            {},
            methods=("induction", "exhaustive", "pdr"),
            asserts=differences,
            cover="(age != 0) & (o != 0)",
            **fields,
        ),
        pipeline(circuit, "elementwise", multiplied, cycles, products, cover="", **fields),
    ]


def of_table_add(config: TableAddConfig, site: Site) -> list[Obligation]:
    """Return a list with the obligation of the adder by tables of two maps: it sums the table entries that it reads."""
    total_bits, cycles = SHARE_BITS + 1, config.latency - 1
    lines, facts = [], {}
    for lane in range(config.lanes):
        lines += [
            # Each table has an output register. The limit is read with the sum.
            *delayed(f"one_{lane}", SHARE_BITS, f"share_{lane}_0__r0_data", cycles),
            *delayed(f"other_{lane}", SHARE_BITS, f"share_{lane}_1__r0_data", cycles),
            *delayed(f"limit_{lane}", FRACTION + 1, f"rounding_{lane}__r0_data", 2),
            f"wire signed [{total_bits - 1}:0] sum_{lane} = $signed(one_{lane}_was) + $signed(other_{lane}_was);",
            f"wire [{FRACTION}:0] fraction_{lane} = sum_{lane}[{FRACTION - 1}:0];",
        ]
        whole = f"$signed({part('whole', lane * WHOLE_BITS, WHOLE_BITS)})"
        facts |= {
            f"the whole part of lane {lane} is the sum's": f"{whole} == (sum_{lane} >>> {FRACTION})",
            f"lane {lane} is rounded up at its limit": f"carry[{lane}] == (fraction_{lane} >= limit_{lane}_was)",
        }
    return [
        pipeline(
            site,
            "elementwise",
            f"The sum of both operands' entries is rounded up at its limit, {cycles} cycles after their reads.",
            cycles,
            facts,
            methods=("induction", "exhaustive", "pdr"),
            observer=lines,
            cover=f"{is_old(cycles)} & (carry != 0)",
        )
    ]


_TABLES = "what is written to its tables, and when, is simulated"

PROOFS = {
    FinishConfig: Proofs(
        components=finish_parts,
        reasons={"": "parameters of channels, activation tables, pool and output buffer are simulated"},
        others=(Pool, OutputWords),
    ),
    MapProductConfig: Proofs((of_map_product,)),
    TableAddConfig: Proofs((of_table_add,), reasons={"share_*": _TABLES, "rounding_*": _TABLES}),
}
