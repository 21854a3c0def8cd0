"""Proofs that dot products in LUTs are sums of products, for each multiplier; faults that they must refute."""

from __future__ import annotations

import numpy as np
import pytest
from amaranth import Shape
from proofs import emitted, faults_in, marked, proved

from hwgen.gateware import lut_products_proof
from hwgen.gateware.lut_products import LutProductsConfig
from hwgen.gateware.multipliers import DotProducts, LutMultiplier
from hwgen.gateware.multipliers.booth import BoothMultiplier
from hwgen.gateware.multipliers.constant import ConstantMultiplier
from hwgen.gateware.multipliers.narrow import BinaryMultiplier, NarrowMultiplier
from hwgen.gateware.multipliers.selected import SelectedMultiplier
from hwgen.obligations.modules import modules_of
from hwgen.obligations.site import Site

pytestmark = pytest.mark.usefixtures("own_cache")


def products(
    multiplier: LutMultiplier, bits: int = 8, *, signed: bool = True, weight_bits: int = 8, steps: int = 0, bias=(),
    terms: tuple[int, ...] = (2, 1), sum_bits: tuple[int, ...] = (19, 12),
) -> LutProductsConfig:  # fmt: skip
    """Return dot products of two output channels, the second of which wraps; ``steps`` is the number of constants."""
    low, high = multiplier.weight_range(weight_bits)
    rng = np.random.default_rng(3)
    constants = rng.integers(low, high + 1, (2, sum(terms), steps)).tolist()
    return LutProductsConfig(
        multiplier,
        DotProducts(
            operand=Shape(bits, signed=signed),
            weight_bits=weight_bits,
            weight_range=(low, high),
            terms=terms,
            sum_bits=sum_bits,
            constants=tuple(tuple(map(tuple, channel)) for channel in constants) if steps else None,
            bias=bias,
        ),
    )


CONFIGS = {
    "booth": products(BoothMultiplier()),
    "booth, seven terms": products(BoothMultiplier(), 5, weight_bits=5, terms=(3, 3, 1), sum_bits=(19, 9)),
    "narrow, signed": products(NarrowMultiplier(), weight_bits=4),
    "narrow, unsigned": products(NarrowMultiplier(), 4, signed=False, weight_bits=3, terms=(3, 2)),
    "binary": products(BinaryMultiplier(), signed=False, terms=(3, 2)),
    "binary, signed": products(BinaryMultiplier(), 5),
    "constant": products(ConstantMultiplier(), steps=1, bias=(77, -5)),
    "constant, unsigned": products(ConstantMultiplier(), 4, signed=False, weight_bits=4, steps=1),
    "selected": products(SelectedMultiplier(), 5, weight_bits=5, steps=3, sum_bits=(19, 9)),
    "selected, unsigned": products(SelectedMultiplier(), 4, signed=False, weight_bits=5, steps=4),
}
WIDE = {
    "booth, seven terms of 8 bits": products(BoothMultiplier(), terms=(3, 3, 1)),
    "selected, 8 bits": products(SelectedMultiplier(), steps=3),
}


def obligation_of(config, verilog):
    modules = modules_of(verilog)
    (name,) = (name for name in modules if name.endswith(f"_{config.module_name}"))
    return lut_products_proof.of_products(config, Site("", modules[name], modules))


#: Faults by what they are: name of the configuration, text of the emitted Verilog, and faulty text.
FAULTS = faults_in("dots.txt")


def result(config, verilog, **options):
    (proof,) = proved([obligation_of(config, verilog)], verilog, **options).values()
    return proof.verdict


@pytest.mark.parametrize("name", [*CONFIGS, *(pytest.param(name, marks=pytest.mark.long) for name in WIDE)])
def test_dot_products_are_sums_of_products(name):
    config = (CONFIGS | WIDE)[name]
    verdict = result(config, emitted(config))
    assert (verdict.result, verdict.engine) == ("proved", "polynomials"), verdict


@pytest.mark.parametrize("name", marked(FAULTS, "the sign's row is added"))
def test_faults_of_dot_products_are_refuted(name):
    chosen, old, new = FAULTS[name]
    config = (CONFIGS | WIDE)[chosen]
    verilog = emitted(config)
    modules = modules_of(verilog)
    obligation = obligation_of(config, verilog)
    circuit = Site("", modules[obligation.module], modules)
    texts = [circuit.module.text, *(modules[kind].text for kind in circuit.module.instances.values())]
    assert any(old in text for text in texts)
    assert result(config, verilog.replace(old, new)).result == "refuted"
