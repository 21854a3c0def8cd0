"""Joins of maps with random parameters, for random networks of tests and benches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hwgen.network.float32 import Label
from hwgen.network.maps import FeatureMap, Window
from hwgen.network.ops import Add, Join


def random_join(
    kind: type[Join], name: str, inputs: Sequence[FeatureMap], output: FeatureMap, rng: np.random.Generator
) -> Join:
    """Return a join of ``inputs`` whose lower clamp, and rounding for an Add, are drawn."""
    parameters = {"fused": bool(rng.integers(2))} if kind is Add else {}
    return kind(
        name=name,
        input=inputs[0],
        more=tuple(inputs[1:]),
        output=output,
        window=Window(kernel=(1, 1)),
        labels=tuple(Label(source.scale, source.zero_point) for source in (*inputs, output)),
        low=output.zero_point if rng.integers(2) else output.type.minimum,
        high=output.type.maximum,
        **parameters,
    )
