"""Weights: what follows from all of them, and equality by content."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwgen.gateware.weights import Weights


@given(
    st.integers(1, 5).flatmap(
        lambda channels: st.lists(
            st.lists(st.integers(-(1 << 16), (1 << 16) - 1), min_size=channels, max_size=channels),
            min_size=1,
            max_size=9,
        )
    )
)
def test_facts(rows):
    """``rows`` are the output channels."""
    flat = [weight for row in rows for weight in row]
    weights = Weights(flat)
    assert weights.values.tolist() == flat
    assert len(weights) == len(flat)
    assert weights.extremes == (min(flat), max(flat))
    expected = tuple((sum(w for w in row if w < 0), sum(w for w in row if w > 0)) for row in rows)
    assert weights.sums(len(rows)) == expected
    assert weights.sums(1) == ((sum(low for low, _ in expected), sum(high for _, high in expected)),)


def test_equality_is_by_content():
    weights = Weights([1, -2, 3])
    same = Weights(array("i", [1, -2, 3]).tobytes())
    assert weights == same
    assert hash(weights) == hash(same)
    assert weights != Weights([1, -2, 4])
    assert weights != Weights([1, -2])
    assert weights != [1, -2, 3]


def test_nothing_changes():
    given = [1, -2, 3]
    weights = Weights(given)
    given[0] = 5
    assert weights.values[0] == 1
    with pytest.raises(TypeError, match="read-only"):
        weights.values[0] = 5


def test_repr_is_short():
    assert len(repr(Weights(range(1000)))) < 50
