"""Dot products in LUTs: the model for simulators equals the circuit, by proof where small and by simulation."""

from __future__ import annotations

from dataclasses import replace

import lint
import numpy as np
import pytest
import two_state
from amaranth import Shape, signed
from amaranth.hdl import Fragment
from dot_products import constant_dot_products, stored_dot_products
from two_state import BINARY, BOOTH, CONSTANT, NARROW, SELECTED, constants, random_products

from hwgen.devices import DEFAULT
from hwgen.gateware.lut_products import LutProducts, LutProductsConfig
from hwgen.gateware.multipliers import LUT_MULTIPLIERS, DotProducts, LutMultiplier
from hwgen.tools.synthesis import SideBySide
from hwgen.verilog import convert
from hwgen.verilog.primitives import PrimitivePlatform


def products(multiplier: LutMultiplier, dots: DotProducts) -> LutProducts:
    return LutProductsConfig(multiplier, dots).component()


@pytest.mark.long
def test_proofs(tmp_path):
    """Terms of several positions, sums that wrap, biases, signed and unsigned operands; a sum without terms."""
    rng = np.random.default_rng(1)
    no_terms = np.array([[[0], [0]], [[3], [0]]])
    two_state.prove(
        [
            products(CONSTANT, constant_dot_products(constants(rng, (2, 3, 1), 4), bits=3, terms=(2, 0, 1))),
            products(CONSTANT, constant_dot_products(no_terms, bits=3, terms=(1, 1), bias=(5, -2))),
            products(SELECTED, constant_dot_products(constants(rng, (2, 2, 3), 3), bits=2, terms=(1, 1), sum_bits=4)),
            products(BINARY, stored_dot_products((2, 1), operand=Shape(2), weight_bits=1, weight_range=(-1, 1))),
            products(NARROW, stored_dot_products((1, 1), operand=signed(2), weight_bits=2, bias=(3,))),
            products(BOOTH, stored_dot_products((1, 1), operand=signed(2), weight_bits=4, sum_bits=6)),
            products(BOOTH, stored_dot_products((2,), operand=signed(2), weight_bits=3, bias=(-9,))),
        ],
        tmp_path,
    )


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_random_models(seed, tmp_path):
    """Wide and long dot products of all multipliers, under random inputs in Verilator."""
    rng = np.random.default_rng(seed)
    components = [random_products(rng, multiplier).component() for multiplier in LUT_MULTIPLIERS for _ in range(6)]
    outcomes = two_state.simulate(components, tmp_path)
    for component, (wrong, moves) in zip(components, outcomes, strict=True):
        assert wrong == 0, component.config
        assert moves > 500, component.config


@pytest.mark.long
def test_a_wrong_model_is_found(tmp_path, monkeypatch):
    """One product more in the model: the proof fails, and the simulation shows it."""
    component = products(BOOTH, stored_dot_products((2,), operand=signed(2), weight_bits=3))
    right = LutProducts.model

    def wrong(self):
        m = right(self)
        m.d.comb += self.sums[0].eq(1)
        return m

    monkeypatch.setattr(LutProducts, "model", wrong)
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path / "cache"))
    with pytest.raises(AssertionError):
        two_state.prove([component], tmp_path)
    ((different, _),) = two_state.simulate([component], tmp_path)
    assert different > 500


def test_equal_products_share_a_module():
    """Both forms are in one module, which channels and pixels with equal parameters share; other parameters differ."""
    platform = PrimitivePlatform(DEFAULT)
    dots = stored_dot_products((3,))
    for each in (dots, dots, replace(dots, sum_bits=(9,))):
        Fragment.get(products(BOOTH, each), platform)
    texts = [text for name, text in platform.primitives.items() if "products" in name]
    assert len(texts) == 2
    assert all(text.startswith("`ifdef SYNTHESIS") for text in texts)


def test_lint(tmp_path):
    rng = np.random.default_rng(3)
    components = [random_products(rng, multiplier).component() for multiplier in LUT_MULTIPLIERS]
    lint.check([lint.written(convert(SideBySide(components), "products"), tmp_path)], with_yosys=tmp_path)
