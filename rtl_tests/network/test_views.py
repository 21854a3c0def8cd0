"""Views: how tensors lie on feature maps, against NumPy's reshape and transpose of the map's own indices."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.errors import ConfigError
from hwgen.network.onnx.views import Atom, View


def indices(sizes: tuple[int, ...]) -> np.ndarray:
    """A map that holds where each of its values lies, as a batch of one."""
    return np.arange(prod(sizes)).reshape(1, *sizes)


@st.composite
def shapes(draw, size: int) -> list[int]:
    """One to five sizes whose product is ``size``."""
    found = []
    for _ in range(draw(st.integers(0, 4))):
        found.append(draw(st.sampled_from([factor for factor in range(1, size + 1) if size % factor == 0])))
        size //= found[-1]
    return draw(st.permutations([*found, size]))


@settings(max_examples=150)
@given(sizes=st.tuples(*[st.integers(1, 12)] * 3), data=st.data())
def test_moves(sizes, data):
    """Whatever is expressed is right, in both directions; a reshape is refused only where it cuts across an axis.

    The batch, of one frame, is moved like the other dimensions, and can share the first one with others.
    """
    view, tensor = View.channels_first(sizes), indices(sizes)
    for _ in range(data.draw(st.integers(1, 5))):
        rank = view.rank
        kind = data.draw(st.sampled_from(["reshape", "transpose", "flatten", "squeeze", "unsqueeze"]))
        if kind == "reshape":
            shape = data.draw(shapes(view.size))
            after = tensor.reshape(shape)
            try:
                view = view.reshape(shape)
            except ConfigError:
                assert not separable(sizes, after)
                continue
        elif kind == "transpose":
            order = data.draw(st.permutations(range(rank)))
            view, after = view.transpose(order), tensor.transpose(order)
        elif kind == "flatten":
            view, after = view.flatten(), tensor.reshape(1, -1)
        elif kind == "squeeze":
            places = [place for place, size in enumerate(tensor.shape) if size == 1 and data.draw(st.booleans())]
            if len(places) == rank:
                continue
            view, after = view.squeeze(places), tensor.squeeze(tuple(places))
        else:
            place = data.draw(st.integers(0, rank))
            view, after = view.unsqueeze([place]), np.expand_dims(tensor, place)
        tensor = after
        assert view.all_sizes == tensor.shape
        assert view.holds_batch == (tensor.shape[0] > 1)
        frame = tensor.reshape(1, *view.shape)
        np.testing.assert_array_equal(view.layout.to_frames(indices(sizes)), frame)
        np.testing.assert_array_equal(view.layout.to_maps(frame), indices(sizes))
        assert view.in_order == (tensor.ravel() == np.arange(tensor.size)).all()


def separable(sizes: tuple[int, ...], tensor: np.ndarray) -> bool:
    """Whether each dimension moves by itself through each axis of the map: what a view can say."""
    places = np.stack(np.unravel_index(tensor, sizes))
    total = np.zeros_like(places)
    for axis in range(1, places.ndim):
        first = [slice(None)] + [slice(0, 1) if other != axis else slice(None) for other in range(1, places.ndim)]
        total = total + places[tuple(first)]
    return bool((total == places).all())


@settings(max_examples=60)
@given(factors=st.lists(st.integers(1, 4), min_size=2, max_size=3), data=st.data())
def test_shuffled_channels(factors, data):
    """Reshape, Transpose, Reshape: the order of the channels, as NumPy has it."""
    sizes = (prod(factors), 3, 2)
    order = data.draw(st.permutations(range(len(factors))))
    apart = View.channels_first(sizes).reshape([1, *factors, 3, 2])
    behind = [1 + place for place in [*order, len(factors), len(factors) + 1]]
    view = apart.transpose([0, *behind]).reshape([1, *sizes])
    expected = np.arange(sizes[0]).reshape(factors).transpose(order).ravel()
    np.testing.assert_array_equal(view.channel_order(), expected)
    assert view.plain == (expected == np.arange(sizes[0])).all()
    assert view.spatial_axes() == (1, 2)


def test_channels_elsewhere():
    """No order of channels, where the first dimension holds something else, or not all of them."""
    view = View.channels_first((4, 3, 2))
    for other in (
        view.transpose([0, 2, 3, 1]),
        view.flatten(),
        view.reshape([1, 2, 2, 3, 2]),
        view.reshape([1, 4 * 3, 2]),
    ):
        assert other.channel_order() is None
    np.testing.assert_array_equal(view.transpose([0, 1, 3, 2]).channel_order(), range(4))


def test_spatial_axes():
    """A dimension of size 1 is an axis of size 1, columns first where there is one dimension only."""
    pixel = View.channels_first((4, 1, 1))
    assert pixel.spatial_axes() == (1, 2)
    assert pixel.squeeze([2]).spatial_axes() == (2,)
    line = View.channels_first((4, 1, 7), [2])
    assert line.spatial_axes() == (2,)
    assert line.unsqueeze([2]).spatial_axes() == (1, 2)
    assert line.unsqueeze([3]).spatial_axes() == (2, 1)
    assert line.unsqueeze([2, 2]).spatial_axes() is None
    assert View.channels_first((4, 3, 7)).reshape([1, 4, 21]).spatial_axes() is None


@settings(max_examples=60)
@given(factors=st.lists(st.integers(1, 4), min_size=1, max_size=3), data=st.data())
def test_constants_by_channel(factors, data):
    """Against NumPy's broadcasting: what each channel gets of a constant, if all of its pixels get the same."""
    sizes = (prod(factors), 2, 3)
    view = View.channels_first(sizes).reshape([1, *factors, 2, 3])
    view = view.transpose([0, *data.draw(st.permutations(range(1, view.rank)))])
    if data.draw(st.booleans()):
        view = view.flatten()
    shape = [size if data.draw(st.booleans()) else 1 for size in (1, *view.shape)]
    shape = shape[data.draw(st.integers(0, len(shape) - 1)) :]
    if data.draw(st.booleans()):  # one a channel, as an exporter may spread it
        maps = np.broadcast_to(np.arange(sizes[0])[:, None, None], sizes)[None]
        values = view.layout.to_frames(maps)
    else:
        values = np.arange(prod(shape)).reshape(shape) // data.draw(st.sampled_from([1, 2, 100]))
    maps = view.layout.to_maps(np.broadcast_to(values, (1, *view.shape)))[0]
    same = (maps == maps[:, :1, :1]).all()
    found = view.by_channel(values)
    assert (found is not None) == same
    if found is not None:
        np.testing.assert_array_equal(found, maps[:, 0, 0])


def test_constants_that_go_with_another_map():
    view = View.channels_first((4, 3, 2))
    assert view.by_channel(np.zeros((4, 3, 3))) is None
    assert view.by_channel(np.zeros((1, 1, 4, 1, 1))) is None
    assert view.by_channel(np.zeros((2, 4, 1, 1))) is None


def test_constants_beside_the_batch():
    """A constant broadcasts to (N * H, C) as to (N, H, C), unless it would add a dimension."""
    rows = View.of((4, 3, 1), [[1], [0]]).reshape([3, 4])
    np.testing.assert_array_equal(rows.by_channel(np.arange(4)), range(4))
    np.testing.assert_array_equal(rows.by_channel(np.arange(4)[None]), range(4))
    assert rows.by_channel(np.arange(3)[:, None]) is None
    assert rows.by_channel(np.arange(4)[None, None]) is None


def test_names():
    view = View.channels_first((4, 3, 2))
    assert str(view.transpose([0, 2, 3, 1])) == "(N, H, W, C)"
    assert str(view.flatten()) == "(N, C * H * W)"
    assert str(view.reshape([1, 2, 1, 2, 6])) == "(N, 2 of C, 1, 2 of C, H * W)"
    assert str(view.reshape([12, 2])) == "(N * C * H, W)"


@pytest.mark.parametrize(
    "dims",
    [
        ((Atom(0, 4),), (Atom(1, 3),)),
        ((Atom(0, 4),), (Atom(1, 3),), (Atom(2, 2),), (Atom(0, 4),)),
        ((Atom(0, 2),), (Atom(1, 3),), (Atom(2, 2),)),
        ((Atom(0, 2, 2),), (Atom(0, 2, 2),), (Atom(1, 3),), (Atom(2, 2),)),
    ],
)
def test_each_index_once(dims):
    with pytest.raises(ConfigError, match=r"^dims must hold each of \d indices of [CHW] once"):
        View((4, 3, 2), dims)


def test_refused():
    view = View.channels_first((6, 5, 2))
    with pytest.raises(ConfigError, match=r"cuts across dimensions: its input, \(6, 5, 2\), is laid out as \(N, C, H"):
        view.reshape([1, 4, 15])
    with pytest.raises(ConfigError, match=r"^its 60 values don't fit the shape \(4, 4\)"):
        view.reshape([1, 4, 4])
    with pytest.raises(ConfigError, match=r"^axis \d must have size 1 to be squeezed out, not 5, in \(N, C, H, W\)"):
        view.squeeze([2])
    with pytest.raises(ConfigError, match=r"^must leave a dimension of \(N, C, H, W\) for the batch"):
        view.with_dims([])


@settings(max_examples=60)
@given(frame=st.lists(st.integers(1, 5), min_size=3, max_size=3), order=st.permutations(range(3)), last=st.booleans())
def test_onto(frame, order, last):
    """The input's view over the map that a tensor behind it becomes: that tensor is the map, axis by axis."""
    given_view = View.of(tuple(frame), [[0], [1], [2]])
    axes = (1, 2, 0) if last else (0, 1, 2)
    view = given_view.transpose([0, *(1 + place for place in order)]).onto(axes)
    array = np.arange(prod(frame)).reshape(1, *frame)
    tensor = array.transpose(0, *(1 + place for place in order))
    expected = tensor.transpose(0, *(1 + axes.index(axis) for axis in range(3)))
    np.testing.assert_array_equal(view.layout.to_maps(array), expected)
