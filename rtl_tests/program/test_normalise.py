"""Local response normalisation on the engine: squares, thresholds and signs by digits, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from counted import cases_in_the_long_run
from hypothesis import given
from hypothesis import strategies as st
from programs import SMALL, alone, check, engines, normalised, scheduled

from hwgen.errors import ModelError
from hwgen.network.maps import INT8, UINT8
from hwgen.network.ops import LRN
from hwgen.program.compile import schedule


@cases_in_the_long_run(16)
@given(
    shape=st.tuples(st.integers(1, 20), st.integers(1, 6), st.integers(1, 9)),
    kind=st.sampled_from([INT8, UINT8]),
    size=st.sampled_from([1, 3, 5]),
    most=st.sampled_from([5, 300, 20_000, 100_000]),
    engine=engines(),
    cores=st.sampled_from([1, 1, 2]),
    seed=st.integers(0, 99),
)
def test_random_normalisations(shape, kind, size, most, engine, cores, seed):
    check(scheduled(normalised(shape, kind, size, most, seed), replace(engine, maps=8, cores=cores)), seed)


def test_normalisations_that_are_refused():
    network = normalised((4, 2, 2), INT8, 3, 300, thresholds=2)
    with pytest.raises(ModelError, match="lrn: the engine takes one sum of squares at which the output of a value"):
        schedule(network, SMALL)
    (layer,) = network.layers
    assert isinstance(layer, LRN)
    scale = replace(layer.scale, terms=layer.scale.terms + np.float32(2.0**-24))
    with pytest.raises(ModelError, match="lrn: the order in which ONNX Runtime adds squares in float32 decides"):
        schedule(alone(replace(layer, scale=scale)), SMALL)
