"""Multipliers in LUTs: sums against NumPy, cells against their behaviour, latency, and resources against Yosys."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import equivalence
import lint
import numpy as np
import pytest
import two_state
from amaranth import Module, Shape, Signal, signed
from amaranth.hdl import Fragment
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator
from counted import cases_in_the_long_run, counted
from dot_products import DotProductsConfig, check, constant_dot_products, measured, stored_dot_products
from dot_products import check as check_dot_products
from hypothesis import given, settings
from hypothesis import strategies as st
from lint import check as lint_check
from lint import written
from two_state import BINARY, BOOTH, CONSTANT, NARROW, SELECTED, constants, random_products

from hwgen.devices import DEFAULT, FAMILIES
from hwgen.errors import ConfigError
from hwgen.gateware.arithmetic.booth_row import BoothRowConfig
from hwgen.gateware.arithmetic.ternary_adder import TernaryAdderConfig
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.lut_products import LutProducts, LutProductsConfig
from hwgen.gateware.multipliers import LUT_MULTIPLIERS, DotProducts, LutMultiplier, lut_multiplier_of
from hwgen.gateware.multipliers.multiplier import Operands
from hwgen.gateware.multipliers.narrow import BinaryMultiplier, NarrowMultiplier
from hwgen.tools import synthesis
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


def bounds(bits: int) -> tuple[int, int]:
    return -1 << (bits - 1), (1 << (bits - 1)) - 1


def config_of(terms, channels: int = 1, *, bits: int = 8, **more) -> DotProductsConfig:
    """Booth multiplier of signed operands of ``bits`` bits."""
    return DotProductsConfig(BOOTH, stored_dot_products(terms, channels, operand=signed(bits), **more))


def drawn(rng: np.random.Generator, low: int, high: int, shape: tuple[int, ...]) -> np.ndarray:
    """Values of a number of cases: all smallest, all largest, each of them either, and any."""
    cases = [np.full((1, *shape), low), np.full((1, *shape), high), rng.choice([low, high], (6, *shape))]
    return rng.permutation(np.concatenate([*cases, rng.integers(low, high + 1, (8, *shape))]))


@st.composite
def cases(draw) -> tuple[DotProductsConfig, np.random.Generator]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    weight_bits, bits = draw(st.integers(2, 16)), draw(st.integers(2, 16))
    channels, positions = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    terms = rng.multinomial(draw(st.integers(positions, 14)) - positions, [1 / positions] * positions) + 1
    bias_bits = draw(st.sampled_from([0, 0, 4, 20]))
    low, high = bounds(weight_bits)
    if draw(st.booleans()):
        low, high = sorted(int(end) for end in rng.integers(low, high + 1, 2))
    config = config_of(
        terms.tolist(),
        channels,
        bits=bits,
        weight_bits=weight_bits,
        weight_range=(low, high),
        sum_bits=draw(st.sampled_from([None, None, 1, 7, 12, 36])),
        bias=rng.integers(-1 << bias_bits, 1 << bias_bits, channels).tolist() if bias_bits else (),
    )
    return config, rng


@cases_in_the_long_run(25, share=0.24)
@given(case=cases())
def check_sums(case):
    config, rng = case
    dots, terms = config.dots, sum(config.dots.terms)
    operands = drawn(rng, *bounds(dots.operand.width), (terms,))
    check(config, operands, weights=drawn(rng, *dots.weight_range, (dots.channels, terms)))


@pytest.mark.more_cases
def test_sums():
    with counted(check_sums):
        check_sums()


@pytest.mark.parametrize(("bits", "weight_bits"), [(4, 4), (3, 5), (6, 2), pytest.param(8, 8, marks=pytest.mark.long)])
def test_all_products(bits, weight_bits):
    """One term: every operand times every weight, the most negative ones among them."""
    ranges = [np.arange(low, high + 1) for low, high in (bounds(bits), bounds(weight_bits))]
    operands, weights = (values.ravel() for values in np.meshgrid(*ranges))
    assert len(operands) == 1 << (bits + weight_bits)
    check(config_of((1,), bits=bits, weight_bits=weight_bits), operands[:, None], weights=weights[:, None, None])


@pytest.mark.long
def test_resources():
    """Check 27 terms of 8 x 8 bits, and several positions with sums that lack the highest bits of products.

    A multiply-add of 8 x 8 bits takes at most 55 LUTs, with registers and its share of the adder tree.
    """
    first, _ = measured([config_of((27,)), config_of((5, 4), 3, bits=3, weight_bits=11, sum_bits=14)])
    assert first.lut <= 55 * 27


@pytest.mark.long
def test_resources_of_sixteen_bits():
    """Check 16 x 16 bits over several positions, with a bias."""
    measured([config_of((2, 1, 1, 1), 2, bits=16, weight_bits=16, bias=(-5, 1 << 30))])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_random_resources(seed):
    rng = np.random.default_rng(seed)
    configs = []
    for _ in range(10):
        bits, weight_bits, channels = (int(rng.integers(*ends)) for ends in ((2, 17), (2, 17), (1, 4)))
        positions = int(rng.integers(1, 8))
        terms = (rng.multinomial(int(rng.integers(0, 24)), [1 / positions] * positions) + 1).tolist()
        bias = rng.integers(-1 << 16, 1 << 16, channels).tolist() if rng.integers(2) else ()
        configs.append(config_of(terms, channels, bits=bits, weight_bits=weight_bits, bias=bias))
    measured(configs)


@pytest.mark.long
def test_verilog(tmp_path):
    """As parts of a design: no complaint of a linter, and Yosys proves each equal to its Amaranth circuit."""
    configs = [config_of((4, 3), 2, bias=(5, -9)), config_of((3,), bits=4, weight_bits=12)]
    units = [config.component() for config in (*configs, configs[0])]
    lint.check([lint.written(convert(SideBySide(units), "booth"), tmp_path)], with_yosys=tmp_path)
    equal = {*equivalence.check(SideBySide([config.component() for config in configs]), "booth", tmp_path)}
    assert {f"booth_part_{index}" for index, _ in enumerate(configs)} <= equal, equal


def wrapped(value: int, bits: int) -> int:
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def test_sums_of_a_row():
    for bits, multiplicand_bits in ((1, 1), (4, 3), (3, 4), (5, 2)):
        row = BoothRowConfig(bits=bits, multiplicand_bits=multiplicand_bits).component()
        numbers, addends = ((range(-1 << width - 1, 1 << width - 1)) for width in (multiplicand_bits, bits))

        async def bench(ctx, row=row, cases=(range(8), numbers, addends), bits=bits):
            for digit, number, addend in product(*cases):
                ctx.set(row.digit, digit)
                ctx.set(row.multiplicand, number)
                ctx.set(row.addend, addend)
                multiple = ((digit & 1) + (digit >> 1 & 1) - 2 * (digit >> 2)) * number
                assert ctx.get(row.sum) == wrapped(addend + multiple, bits)

        simulator = Simulator(row)
        simulator.add_testbench(bench)
        simulator.run()


@pytest.mark.parametrize("device", [device for device in FAMILIES.values() if device.adders], ids=str)
def test_cells_are_equal_to_the_behavioural_form(tmp_path, device):
    sizes = [(1, 1), (2, 1), (4, 3), (5, 5), (3, 6), (10, 8), (11, 8), (18, 16)]
    configs = [BoothRowConfig(bits=bits, multiplicand_bits=width) for bits, width in sizes]
    equivalence.check_primitives([config.component() for config in configs], tmp_path, device)


def random_weights(rng: np.random.Generator, shape: tuple[int, ...], bits: int, zeros: float = 0.0) -> np.ndarray:
    """Weights of ``bits`` bits, of which a share are 0 in all steps."""
    weights = rng.integers(-1 << (bits - 1), 1 << (bits - 1), shape)
    return weights * (rng.random((*shape[:-1], 1)) >= zeros)


@st.composite
def constant_cases(draw, max_steps: int) -> tuple[np.random.Generator, np.ndarray, dict]:
    """A source of random numbers, weights, and other parameters of dot products."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    channels, terms = draw(st.integers(1, 5)), draw(st.integers(1, 12))
    steps, bits, weight_bits = draw(st.integers(1, max_steps)), draw(st.integers(1, 16)), draw(st.integers(1, 9))
    positions = draw(st.integers(1, 3))
    bias_bits = draw(st.sampled_from([0, 0, 4, 20]))
    more = {
        "bits": bits,
        "terms": np.bincount(np.sort(rng.integers(0, positions, terms)), minlength=positions).tolist(),
        "sum_bits": draw(st.sampled_from([None, None, 1, 7, 12, 32])),
        "bias": rng.integers(-1 << bias_bits, 1 << bias_bits, channels).tolist() if bias_bits else (),
    }
    weights = random_weights(rng, (channels, terms, steps), weight_bits, draw(st.sampled_from([0, 0.3, 0.9])))
    if draw(st.booleans()):
        weights[-1] = -weights[0]
    return rng, weights, more


def check_constant(multiplier, weights: np.ndarray, operands: np.ndarray, steps: np.ndarray, **more) -> None:
    """All sums equal NumPy's, in the cycle that the latency says."""
    check_dot_products(DotProductsConfig(multiplier, constant_dot_products(weights, **more)), operands, steps=steps)


@settings(max_examples=40)
@given(case=constant_cases(max_steps=1))
def test_constant_sums(case):
    rng, weights, more = case
    operands = drawn(rng, *bounds(more["bits"]), (weights.shape[1],))
    check_constant(CONSTANT, weights, operands, np.zeros(len(operands), int), **more)


@cases_in_the_long_run(40)
@given(case=constant_cases(max_steps=4))
def test_selected_sums(case):
    rng, weights, more = case
    operands = drawn(rng, *bounds(more["bits"]), (weights.shape[1],))
    check_constant(SELECTED, weights, operands, rng.integers(0, weights.shape[2], len(operands)), **more)


@pytest.mark.parametrize("multiplier", [CONSTANT, SELECTED])
@pytest.mark.parametrize("bits", [1, 8, 16])
def test_extremes(multiplier, bits):
    """The largest sums there are, in the fewest bits that hold them, with a bias of the same sign."""
    low, high = -1 << (bits - 1), (1 << (bits - 1)) - 1
    weights = np.array([[[-128]] * 27, [[127]] * 27, [[-128], [127], [-1]] * 9])
    operands = np.array([[value] * 27 for value in (low, high, 0, -1)] + [[low, high, low] * 9, [high, low, high] * 9])
    check_constant(multiplier, weights, operands, np.zeros(len(operands), int), bits=bits, bias=(9, -7, 1 << 20))


@pytest.mark.parametrize("multiplier", [CONSTANT, SELECTED])
def test_weights_that_cost_nothing(multiplier):
    """Sums of zero weights are constants without a register."""
    config = DotProductsConfig(
        multiplier, constant_dot_products(np.zeros((3, 4, 1), int), sum_bits=12, bias=(5, 0, -3))
    )
    assert config.resources == Resources()
    assert multiplier.latency(config.dots) == 1
    check_constant(
        multiplier, np.zeros((3, 4, 1), int), np.ones((5, 4), int), np.zeros(5, int), sum_bits=12, bias=(5, 0, -3)
    )


def test_powers_of_two_are_wires():
    """A sum of one operand has only a register: no LUT, and one register for all its multiples."""
    weights = np.array([[[64], [0]], [[1], [0]], [[0], [-128]]])
    config = DotProductsConfig(CONSTANT, constant_dot_products(weights[:2]))
    assert config.resources == Resources(ff=8)
    # A negative multiple is subtracted from 0; one LUT serves both highest bits, which extend the operand's sign.
    config = DotProductsConfig(CONSTANT, constant_dot_products(weights[2:]))
    assert config.resources == Resources(lut=8, ff=9)


def test_sums_share_terms():
    """5 a + 3 b, its double, and c less four times the sum: an adder of three terms, one of two, and one for c.

    The last sum has 14 bits. Two bits of c pass by, and the two highest bits share a LUT.
    """
    weights = np.array([[[5], [3], [0]], [[10], [6], [0]], [[-20], [-12], [1]]])
    (one, two, three) = (DotProductsConfig(CONSTANT, constant_dot_products(weights[:n])).resources for n in (1, 2, 3))
    assert two.lut <= one.lut
    assert three.lut == two.lut + 14 - 2 - 1


@pytest.mark.parametrize(
    ("steps", "bits", "weight_bits", "constant", "selected"),
    [
        (1, 8, 8, True, True), (1, 2, 5, True, True), (1, 2, 6, False, True), (1, 1, 2, False, True),
        (4, 8, 8, False, True), (5, 8, 8, False, False), (None, 8, 8, False, False),
    ],
)  # fmt: skip
def test_weights_that_each_computes(steps, bits, weight_bits, constant, selected):
    operands = Operands(activation=Shape(bits, signed=True), weight_bits=weight_bits, weight_range=(-1, 1), positions=1)
    assert CONSTANT.computes(operands, steps) == constant
    assert SELECTED.computes(operands, steps) == selected


#: Bits of operands and of weights, channels, terms at each position, steps, and more; the first has 27 terms of 8 bits.
CONSTANTS_BESIDE_YOSYS = {
    CONSTANT: [
        (8, 8, 4, (27,), 1, {}),
        (8, 4, 4, (9, 9), 1, {"bias": (1000, -1000, 0, 7)}),
        (4, 2, 8, (16,), 1, {}),
        (1, 2, 4, (20,), 1, {}),
        (16, 8, 2, (5, 4), 1, {"sum_bits": 32}),
    ],
    SELECTED: [
        (8, 8, 1, (27,), 4, {}),
        (8, 4, 3, (5, 4), 3, {"bias": (1000, -1000, 0)}),
        (4, 2, 4, (9,), 2, {}),
        (2, 8, 2, (9,), 4, {}),
        (16, 8, 1, (5, 4), 4, {"sum_bits": 32}),
    ],
}


@pytest.mark.long
@pytest.mark.parametrize(("multiplier", "seed", "max_luts"), [(CONSTANT, 1, 22 * 4 * 27), (SELECTED, 2, 40 * 27)])
def test_resources_of_constants(multiplier, seed, max_luts):
    rng = np.random.default_rng(seed)
    configs = []
    for bits, weight_bits, channels, terms, steps, more in CONSTANTS_BESIDE_YOSYS[multiplier]:
        weights = random_weights(rng, (channels, sum(terms), steps), weight_bits, 0.1)
        configs.append(DotProductsConfig(multiplier, constant_dot_products(weights, bits=bits, terms=terms, **more)))
    assert measured(configs)[0].lut <= max_luts


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("multiplier", [CONSTANT, SELECTED])
def test_random_resources_of_constants(multiplier, seed):
    rng = np.random.default_rng(seed)
    configs = []
    for _ in range(10):
        bits, weight_bits = int(rng.integers(1, 17)), int(rng.integers(2, 9))
        channels, terms = int(rng.integers(1, 9)), int(rng.integers(4, 40))
        steps = 1 if multiplier is CONSTANT else int(rng.integers(2, 5))
        bias = rng.integers(-1 << 16, 1 << 16, channels).tolist() if rng.integers(2) else ()
        weights = random_weights(rng, (channels, terms, steps), weight_bits, float(rng.choice([0, 0.5])))
        configs.append(DotProductsConfig(multiplier, constant_dot_products(weights, bits=bits, bias=bias)))
    measured(configs)


@pytest.mark.long
@pytest.mark.parametrize(("channels", "terms"), [(16, 27), (16, 144)])
def test_luts_of_a_multiply_add(channels, terms):
    """Random 8-bit weights, all of which are multiplied in each cycle, share most of their additions."""
    weights = random_weights(np.random.default_rng(0), (channels, terms, 1), 8)
    (found,) = measured([DotProductsConfig(CONSTANT, constant_dot_products(weights))])
    assert found.lut <= 22 * weights.size


def narrow_config(weight_bits: int, operand: Shape, terms, channels: int = 2, **more) -> DotProductsConfig:
    """Multiplier of any weights of ``weight_bits`` bits, -1 and 1 for one bit."""
    multiplier, weight_range = (BINARY, (-1, 1)) if weight_bits == 1 else (NARROW, None)
    dots = stored_dot_products(
        terms, channels, operand=operand, weight_bits=max(weight_bits, 2), weight_range=weight_range, **more
    )
    return DotProductsConfig(multiplier, dots)


def check_narrow(config: DotProductsConfig, rng: np.random.Generator, cases: int = 12) -> None:
    """All sums equal NumPy's, in the cycle that the latency says: of extremes and of any operands and weights."""
    dots = config.dots
    low = -1 << dots.operand.width - 1 if dots.operand.signed else 0
    ends, weight_ends = [low, low + (1 << dots.operand.width) - 1], list(dots.weight_range)
    shape = (cases, dots.channels, sum(dots.terms))
    operands = rng.integers(ends[0], ends[1] + 1, (cases, shape[2]))
    weights = rng.integers(weight_ends[0], weight_ends[1] + 1, shape)
    for case in range(4):
        operands[case], weights[case] = ends[case % 2], weight_ends[case // 2]
    operands[4:6] = rng.choice(ends, (2, shape[2]))
    weights[5:7] = rng.choice(weight_ends, (2, *shape[1:]))
    if config.multiplier is BINARY:
        weights = np.where(weights < 0, -1, 1)
    check_dot_products(config, operands, weights=weights)


@st.composite
def configs(draw, weight_bits: int) -> tuple[DotProductsConfig, np.random.Generator]:
    """Dot products of activations of 1 to 8 bits at one to six positions, and a source of random numbers."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    terms = draw(st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any))
    channels = draw(st.integers(1, 3))
    bias_bits = draw(st.sampled_from([0, 0, 4, 20]))
    config = narrow_config(
        weight_bits,
        Shape(draw(st.integers(1, 8)), draw(st.booleans())),
        terms,
        channels,
        sum_bits=draw(st.sampled_from([None, None, 1, 7, 32])),
        bias=rng.integers(-1 << bias_bits, 1 << bias_bits, channels).tolist() if bias_bits else (),
    )
    return config, rng


@cases_in_the_long_run(25)
@given(case=st.integers(2, 5).flatmap(configs))
def test_sums_of_narrow_weights(case):
    check_narrow(*case)


@cases_in_the_long_run(20)
@given(case=configs(1))
def test_sums_of_one_bit(case):
    """Weights of -1 and 1, stored in one bit."""
    check_narrow(*case)


def test_widths():
    """Weights of at most four bits, in the registry; one bit in memory for weights of -1 and 1, if none is 0."""

    def operands(bits: int, smallest: int, largest: int, nonzero: bool = False) -> Operands:
        return Operands(
            activation=Shape(3),
            weight_bits=bits,
            weight_range=(smallest, largest),
            positions=1,
            weights_nonzero=nonzero,
        )

    assert isinstance(lut_multiplier_of(operands(4, -8, 7), None), NarrowMultiplier)
    assert NARROW.unit_bits(operands(4, -8, 7)) == 4
    assert not NARROW.computes(operands(5, -16, 15), None)
    plus_minus_one = operands(2, -1, 1, nonzero=True)
    assert isinstance(lut_multiplier_of(plus_minus_one, None), BinaryMultiplier)
    assert BINARY.unit_bits(plus_minus_one) == 1
    assert BINARY.stored(np.array([[-1, 1, 1]]), plus_minus_one).tolist() == [0, 1, 1]
    assert not BINARY.computes(operands(2, -1, 1), None)
    assert not BINARY.computes(operands(2, -2, 1, nonzero=True), None)
    for kind, expected in ((NARROW, (-8, 7)), (BINARY, (-1, 1))):
        assert kind.weight_range(4) == expected
        assert kind.operand(Shape(3)) == Shape(3)
        assert kind.offset(Shape(3)) == 0


@pytest.mark.long
def test_resources_of_narrow_weights():
    """Check weights of 1, 2 and 4 bits, activations of 2 to 8, several positions, and a bias."""
    measured(
        [
            narrow_config(4, Shape(4, signed=True), (1, 2, 2, 2, 2), channels=3),
            narrow_config(2, Shape(2), (9, 9), channels=4, bias=(100, -100, 0, 7)),
            narrow_config(1, Shape(8, signed=True), (18,), channels=4),
        ]
    )


@pytest.mark.long
def test_resources_of_other_widths():
    """Check weights of 1, 3 and 4 bits, and at most 16 LUTs for a 4x4 multiply-add."""
    units = [
        narrow_config(4, Shape(4), (27,)),
        narrow_config(3, Shape(8), (9,)),
        narrow_config(1, Shape(1), (27,), channels=8),
    ]
    first, *_ = measured(units)
    assert first.lut <= 16 * units[0].dots.products


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_random_resources_of_narrow_weights(seed):
    rng = np.random.default_rng(seed)
    units = []
    for _ in range(10):
        operand = Shape(int(rng.integers(1, 9)), bool(rng.integers(2)))
        terms = np.bincount(np.sort(rng.integers(0, rng.integers(1, 6), rng.integers(8, 40)))).tolist()
        channels = int(rng.integers(1, 9))
        bias = rng.integers(-1 << 10, 1 << 10, channels).tolist() if rng.integers(2) else ()
        units.append(narrow_config(int(rng.integers(1, 5)), operand, terms, channels, bias=bias))
    measured(units)


SIGNS: list[tuple[bool, bool, bool]] = [
    signs for signs in product((False, True), (False, True), (False, True)) if not all(signs)
]


class Registered(wiring.Component):
    """A ternary adder of numbers of three widths between registers."""

    o: Signal

    def __init__(self, config: TernaryAdderConfig, widths: tuple[int, int, int]):
        self.config = config
        self.widths = widths
        ports = {f"i{index}": In(signed(width)) for index, width in enumerate(widths)}
        super().__init__({**ports, "o": Out(signed(config.bits))})

    @property
    def inputs(self) -> list[Signal]:
        return [getattr(self, f"i{index}") for index in range(3)]

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.o.eq(self.config.add_to(m, self.inputs, "adder"))
        return m


@pytest.mark.parametrize("negative", SIGNS)
def test_ternary_sums(negative):
    rng = np.random.default_rng(sum(negative))
    for bits, widths in ((1, (1, 1, 1)), (7, (5, 7, 6)), (12, (9, 3, 12))):
        design = Registered(TernaryAdderConfig(bits=bits, negative=negative), widths)
        cases = [[int(rng.integers(-1 << w - 1, 1 << w - 1)) for w in widths] for _ in range(100)]
        cases += [[-1 << w - 1 for w in widths], [(1 << w - 1) - 1 for w in widths]]

        async def bench(ctx, design=design, cases=cases, bits=bits):
            for case in cases:
                for port, value in zip(design.inputs, case, strict=True):
                    ctx.set(port, value)
                await ctx.tick()
                total = sum(-value if flag else value for value, flag in zip(case, negative, strict=True))
                assert ctx.get(design.o) == wrapped(total, bits)

        simulator = Simulator(design)
        simulator.add_clock(1e-6)
        simulator.add_testbench(bench)
        simulator.run()


def test_no_three_numbers_are_subtracted():
    with pytest.raises(ConfigError, match=r"^negative must be true for at most two of three numbers"):
        TernaryAdderConfig(bits=4, negative=(True, True, True))
    with pytest.raises(ConfigError, match=r"^bits must be a positive integer, not 0$"):
        TernaryAdderConfig(bits=0)


@pytest.mark.parametrize("device", [device for device in FAMILIES.values() if device.adders], ids=str)
def test_cells_of_a_ternary_adder_are_equal_to_the_behavioural_form(tmp_path, device):
    """Both forms of each module, for several widths and all signs."""
    configs = [TernaryAdderConfig(bits=b, negative=signs) for b, signs in product((1, 2, 4, 5, 9, 18), SIGNS)]
    equivalence.check_primitives([config.component() for config in configs], tmp_path, device)


@pytest.mark.long
def test_resources_and_delay():
    designs = [
        Registered(TernaryAdderConfig(bits=bits, negative=negative), (bits, bits, bits))
        for bits, negative in ((8, (False, False, False)), (21, (False, True, False)), (36, (True, False, True)))
    ]
    counted, paths = synthesis.cells_and_paths(designs)
    for design, cells, path in zip(designs, counted, paths, strict=True):
        cost = Cost(DEFAULT, ff=design.config.bits)
        design.config.count(cost)
        assert synthesis.count(cells) == cost.resources
        assert path is not None
        assert path.delay <= 3.3


def test_lint_of_a_ternary_adder(tmp_path):
    designs = [Registered(TernaryAdderConfig(bits=bits), (bits, 3, bits)) for bits in (5, 5, 16)]
    lint_check([written(convert(SideBySide(designs), "adders"), tmp_path)], with_yosys=tmp_path)
