"""Sums of three maps that are rounded once: digits in scratch maps, carries, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import SMALL, check, engines, scheduled, summed, tasks_of

from hwgen.errors import ModelError
from hwgen.gateware.engine.config import EngineConfig
from hwgen.network.maps import INT8, UINT8
from hwgen.network.ops import Sum
from hwgen.program.compile import schedule
from hwgen.program.sums import FRACTION, find_contributions

SCALES = st.lists(st.floats(0.01, 0.1), min_size=3, max_size=3).flatmap(
    lambda inputs: st.floats(0.4, 1.2).map(lambda part: [*inputs, sum(inputs) * part])
)


@pytest.mark.long
@settings(max_examples=12)
@given(
    scales=SCALES,
    shape=st.tuples(st.integers(1, 20), st.integers(1, 6), st.integers(1, 9)),
    kind=st.sampled_from([INT8, UINT8]),
    engine=engines(),
    cores=st.sampled_from([1, 1, 2]),
    seed=st.integers(0, 99),
)
def test_random_sums(scales, shape, kind, engine, cores, seed):
    check(scheduled(summed(scales, shape, kind, seed), replace(engine, maps=8, cores=cores)), seed)


@pytest.mark.parametrize("kind", [INT8, UINT8])
def test_every_triple_of_values_is_rounded_alike(kind):
    """Float32 decides some of 2**24 sums: real sums that are rounded once differ there; contributions never do."""
    (layer,) = summed([0.035364024, 0.037543587, 0.045234438, 0.081569485], (1, 1, 1), kind).layers
    assert isinstance(layer, Sum)
    found = find_contributions(layer)
    assert found is not None
    values = np.arange(kind.minimum, kind.maximum + 1).astype(kind.dtype)
    differing = 0
    reals = [terms.astype(np.float64) / layer.labels[-1].scale for terms in layer.terms]
    for value, third in enumerate(values):
        expected = layer.compute(values[:, None], values[None], np.full((1, 1), third))
        whole = found.tables[0][:, None] + found.tables[1] + found.tables[2][value] >> FRACTION
        np.testing.assert_array_equal(np.clip(whole, layer.low, layer.high), expected)
        exact = np.rint(reals[0][:, None] + reals[1] + reals[2][value]) + layer.labels[-1].zero
        differing += int((np.clip(exact, layer.low, layer.high) != expected).sum())
    assert differing


def test_wide_contributions_have_more_digits():
    """A scale above the output's takes a third digit below the highest one."""
    network = summed([0.02, 0.0223891, 0.0239913, 0.0155], (4, 3, 5))
    assert len(tasks_of(network)) == 3 * 4 + 2
    check(schedule(network, EngineConfig()))


def test_sums_that_are_refused():
    with pytest.raises(ModelError, match="sum: the engine adds 3 maps at most before it rounds, not 4"):
        schedule(summed([0.1, 0.2, 0.15, 0.12, 0.5], (2, 2, 2)), SMALL)
    with pytest.raises(ModelError, match="sum: no tables of 28 bits give the sums of 3 maps at scales"):
        schedule(summed([0.25, 0.5, 0.125, 1.0], (2, 2, 2)), SMALL)
