"""Layout of an ONNX model's tensors on the feature maps that the hardware streams.

A feature map has three axes: channels, rows and columns (C, H, W). A tensor of the model can hold the same values in
another order, in more dimensions or in fewer. Examples are (N, H, W, C) in models of Keras, (N, C * H * W) after
Flatten, and (N, C, L) before a one-dimensional convolution. An operator that only renames or reorders dimensions
changes the tensor's `View` of the map, and nothing else. Views leave out the batch, the first dimension of most
tensors. Before a Gemm the first dimension can hold the batch and other dimensions of a frame, as in (N * T, C).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from math import prod

import numpy as np

from hwgen.errors import ConfigError
from hwgen.network.ends import Layout

# Axes of a map.
CHANNELS, ROWS, COLUMNS = range(3)
"""Axes of a feature map's array ``(C, H, W)``, which has no batch axis: 0, 1 and 2."""
_LETTERS = "CHW"


@dataclass(frozen=True)
class Atom:
    """Factor of a map axis in a tensor dimension: the digit ``i // step % size`` of the index ``i`` on ``axis``."""

    axis: int
    size: int
    step: int = 1

    def split(self, inner: int) -> tuple[Atom, Atom]:
        """Return a pair of `Atom` factors, an outer and an inner one, whose product is this factor of a map axis.

        The inner one has the size ``inner``, which must divide this size.
        """
        return Atom(self.axis, self.size // inner, self.step * inner), Atom(self.axis, inner, self.step)


Atoms = tuple[Atom, ...]
"""Type of a tensor dimension: the factors of map axes that it is made of, the outermost first."""


@dataclass(frozen=True)
class View:
    """Layout of an ONNX tensor on a feature map: for each dimension, the map axes, or axis factors, it consists of.

    Layouts are compared by value.

    Parameters
    ----------
    sizes : tuple of int
        Channels, rows and columns of the map.
    dims : tuple of tuple of Atom
        Factors of each dimension of the tensor after the batch, the outermost first. A dimension of size 1 has no
        factors. Neighbouring factors that form one factor are joined.
    holds_batch : bool
        Whether the batch has no dimension of its own, but is the outermost factor of the first dimension in ``dims``.

    Raises
    ------
    ConfigError
        If the dimensions don't hold each index of each axis once.
    """

    sizes: tuple[int, int, int]
    dims: tuple[Atoms, ...]
    holds_batch: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "dims", tuple(_merge_factors(atoms) for atoms in self.dims))
        for axis, (size, factors) in enumerate(zip(self.sizes, self._factors, strict=True)):
            # The innermost factor counts by one, each other one by all indices of the factors after it.
            counts = [prod(atom.size for atom in factors[start:]) for start in range(len(factors) + 1)]
            if counts != [size, *(atom.step for atom in factors)]:
                raise ConfigError(f"dims must hold each of {size} indices of {_LETTERS[axis]} once, not {self.dims}")

    @classmethod
    def of(cls, sizes: tuple[int, int, int], axes: Sequence[Sequence[int]]) -> View:
        """Return the `View` of a tensor whose dimensions are whole map axes: ``[[1], [2], [0]]`` is (N, H, W, C)."""
        return cls(sizes, tuple(tuple(Atom(axis, sizes[axis]) for axis in dim) for dim in axes))

    @classmethod
    def channels_first(cls, sizes: tuple[int, int, int], axes: Sequence[int] = (ROWS, COLUMNS)) -> View:
        """Return the `View` of a tensor whose first dimension is the channels, followed by the map axes ``axes``."""
        return cls.of(sizes, [[CHANNELS], *([axis] for axis in axes)])

    @property
    def shape(self) -> tuple[int, ...]:
        """Tuple of sizes of the laid-out tensor's dimensions, without the batch."""
        return tuple(_size(atoms) for atoms in self.dims)

    @property
    def rank(self) -> int:
        """Number of dimensions of the laid-out tensor, including the batch."""
        return len(self.all_dims)

    @property
    def all_dims(self) -> tuple[Atoms, ...]:
        """Tuple of the axis parts (`Atom`) of each tensor dimension, first an empty one for a batch dimension."""
        return self.dims if self.holds_batch else ((), *self.dims)

    @property
    def all_sizes(self) -> tuple[int, ...]:
        """Tuple of sizes of all dimensions of the laid-out tensor, including the batch, for a batch of one frame."""
        return tuple(map(_size, self.all_dims))

    def with_dims(self, dims: Sequence[Atoms]) -> View:
        """Return a `View`: a layout on the same map for a tensor with other dimensions, given as in `all_dims`.

        Raises ConfigError if there is none for the batch.
        """
        if not dims:
            raise ConfigError(f"must leave a dimension of {self} for the batch")
        holds_batch = bool(dims[0])
        return replace(self, dims=tuple(dims[not holds_batch :]), holds_batch=holds_batch)

    @property
    def size(self) -> int:
        """Number of values per frame of the laid-out tensor."""
        return prod(self.sizes)

    def __str__(self) -> str:
        """Return the layout as text, as in ``(N, H, W, C)``; a factor of an axis is written ``4 of C``."""
        first, *others = map(self._described, self.all_dims)
        return f"({', '.join([f'N * {first}' if self.holds_batch else 'N', *others])})"

    def _described(self, atoms: Atoms) -> str:
        """Return the factors of map axes in one dimension as text, such as ``H * 4 of C``."""
        whole = [atom.size == self.sizes[atom.axis] for atom in atoms]
        names = [_LETTERS[atom.axis] for atom in atoms]
        words = [
            name if all_ else f"{atom.size} of {name}" for atom, all_, name in zip(atoms, whole, names, strict=True)
        ]
        return " * ".join(words) or "1"

    @property
    def plain(self) -> bool:
        """Whether the tensor's layout is (N, C, H, W)."""
        return self == View.channels_first(self.sizes)

    @property
    def in_order(self) -> bool:
        """Whether the tensor holds its values in the feature map's order (C, H, W), whatever its dimensions are."""
        return self.flatten() == View.of(self.sizes, [[CHANNELS, ROWS, COLUMNS]])

    # Operators that rename or reorder dimensions.

    def reshape(self, shape: Sequence[int]) -> View:
        """Return a `View`: the layout of the tensor after a row-major Reshape to ``shape``.

        ``shape``: sizes of all dimensions for a batch of one frame.

        Raises ConfigError if the new dimensions don't begin and end with factors of the map's axes.
        """
        shown = ", ".join(map(str, shape[shape[0] == 1 :]))
        if prod(shape) != self.size:
            raise ConfigError(f"its {self.size} values don't fit the shape ({shown})")
        left = [atom for atoms in self.dims for atom in atoms][::-1]  # the next one last
        dims = []
        for size in shape:
            dim: list[Atom] = []
            while size > 1:
                atom = left.pop()
                if atom.size % size and size % atom.size:
                    raise ConfigError(
                        f"the shape ({shown}) cuts across dimensions: its input, "
                        f"({', '.join(map(str, self.shape))}), is laid out as {self}"
                    )
                if size < atom.size:
                    atom, rest = atom.split(atom.size // size)
                    left.append(rest)
                dim.append(atom)
                size //= atom.size
            dims.append(tuple(dim))
        return self.with_dims(dims)

    def transpose(self, order: Sequence[int]) -> View:
        """Return the `View` with all dimensions, batch included, permuted by ``order`` as in NumPy's transpose."""
        return self.with_dims([self.all_dims[position] for position in order])

    def squeeze(self, positions: Sequence[int]) -> View:
        """Return a `View`: the tensor's layout without the dimensions at the indices ``positions``.

        Raises ConfigError unless the sizes of these dimensions are 1.
        """
        for position in positions:
            if self.all_dims[position]:
                size = self.all_sizes[position]
                raise ConfigError(f"axis {position} must have size 1 to be squeezed out, not {size}, in {self}")
        return self.with_dims([dim for position, dim in enumerate(self.all_dims) if position not in positions])

    def unsqueeze(self, positions: Sequence[int]) -> View:
        """Return a `View`: the tensor's layout with dimensions of size 1 inserted at the indices ``positions``."""
        dims = list(self.all_dims)
        for position in sorted(positions):
            dims.insert(position, ())
        return self.with_dims(dims)

    def flatten(self) -> View:
        """Return a `View`: the tensor's layout with all values of a frame in one dimension."""
        return View(self.sizes, (tuple(atom for atoms in self.dims for atom in atoms),))

    # What layers ask for.

    @cached_property
    def layout(self) -> Layout:
        """`Layout`: permutation that converts arrays of this layout to feature maps and back."""
        factors = [atom for atoms in self._factors for atom in atoms]
        order = tuple(factors.index(atom) for atoms in self.dims for atom in atoms)
        return Layout(map=self.sizes, factors=tuple(atom.size for atom in factors), order=order, shape=self.shape)

    def channel_order(self) -> np.ndarray | None:
        """Return an array: the map channel at each index of the first dimension; ``None`` unless it holds just them.

        The result is ``None`` unless the first dimension consists of all channels and of nothing else. A channel
        shuffle changes only this order of a plain view.
        """
        if any((atom.axis == CHANNELS) != (position == 0) for position, dim in enumerate(self.dims) for atom in dim):
            return None
        channels = self.sizes[CHANNELS]
        return View((channels, 1, 1), self.dims[:1]).layout.to_frames(np.arange(channels)[None, :, None, None])[0]

    def by_channel(self, values: np.ndarray) -> np.ndarray | None:
        """Return an array, a constant per map channel; ``None`` if not broadcastable, or differing within a channel.

        The constants ``values`` are broadcast over the tensor.
        """
        shape = (1,) * (1 + len(self.dims) - values.ndim) + values.shape
        sizes = (1, *self.shape)
        if values.ndim > self.rank or any(size not in (1, here) for size, here in zip(shape, sizes, strict=True)):
            return None
        atoms = [atom for dim in self.dims for atom in dim]
        spread = [size == 1 for size, dim in zip(shape[1:], self.dims, strict=True) for _ in dim]
        by_atom = values.reshape([1 if one else atom.size for one, atom in zip(spread, atoms, strict=True)])
        for axis, atom in enumerate(atoms):
            if atom.axis != CHANNELS:
                first = by_atom.take([0], axis)
                if (by_atom != first).any():
                    return None
                by_atom = first
        by_atom = np.broadcast_to(by_atom, [atom.size if atom.axis == CHANNELS else 1 for atom in atoms])
        outermost_first = sorted(range(len(atoms)), key=lambda axis: -atoms[axis].step)
        return by_atom.transpose(outermost_first).reshape(self.sizes[CHANNELS])

    def spatial_axes(self) -> tuple[int, ...] | None:
        """Return a tuple: each later dimension's map axis (row or column); ``None`` unless all are whole axes.

        The result is ``None`` if one of these dimensions is not a whole axis, or an axis is missing. A dimension of
        size 1 can be any axis of size 1.
        """
        left = [axis for axis in (ROWS, COLUMNS) if not any(atom.axis == axis for dim in self.dims for atom in dim)]
        spare = len(self.dims) - 1 - sum(map(bool, self.dims[1:]))
        left = left[len(left) - spare :] if spare < len(left) else left
        axes = []
        for dim in self.dims[1:]:
            if not dim and left:
                axes.append(left.pop(0))
            elif len(dim) == 1 and dim[0].axis != CHANNELS and dim[0].size == self.sizes[dim[0].axis]:
                axes.append(dim[0].axis)
            else:
                return None
        return tuple(axes)

    @property
    def in_blocks(self) -> bool:
        """Whether a DepthToSpace or SpaceToDepth layer can turn this layout into a plain map ``(C, H, W)``."""
        return self.depth_to_space() is not None or self.space_to_depth() is not None

    def depth_to_space(self) -> tuple[np.ndarray, tuple[int, int]] | None:
        """Return the channel order and block size of a DepthToSpace to ``(C, H, W)``; ``None`` if none has this layout.

        After the rows, and after the columns, a dimension then holds factors of the channels. The result is the map
        channel of each channel of the layer's input, and the rows and columns of a block; ``None`` if no such layer
        gives the layout.
        """
        if len(self.dims) != 3 or any(atom.axis != CHANNELS for atom in self.dims[0]):
            return None
        inner = [
            dim[1:] if dim and dim[0] == Atom(axis, self.sizes[axis]) else dim
            for axis, dim in enumerate(self.dims[1:], start=ROWS)
        ]
        if any(atom.axis != CHANNELS for dim in inner for atom in dim) or not any(inner):
            return None
        order = View((self.sizes[CHANNELS], 1, 1), ((*inner[0], *inner[1], *self.dims[0]),)).channel_order()
        return None if order is None else (order, (_size(inner[0]), _size(inner[1])))

    def space_to_depth(self) -> tuple[np.ndarray, tuple[int, int]] | None:
        """Return the channel order and block size of a SpaceToDepth to ``(C, H, W)``; ``None`` if none has this layout.

        The first dimension then holds all channels, and the inner factors of rows and columns. The result is the
        channel of the layer's output that each channel of the tensor is, and the rows and columns of a block; ``None``
        if no such layer gives the layout.
        """
        if len(self.dims) != 3 or any(atom.axis == CHANNELS for dim in self.dims[1:] for atom in dim):
            return None
        outer = [_size(dim) for dim in self.dims[1:]]
        down, right = (size // count for size, count in zip(self.sizes[1:], outer, strict=True))
        whole = tuple(
            () if count == 1 else (Atom(axis, count, block),)
            for axis, count, block in zip((ROWS, COLUMNS), outer, (down, right), strict=True)
        )
        if self.dims[1:] != whole or down * right == 1:
            return None
        channels = self.sizes[CHANNELS]
        steps = {CHANNELS: 1, ROWS: channels * right, COLUMNS: channels}
        atoms = tuple(Atom(CHANNELS, atom.size, atom.step * steps[atom.axis]) for atom in self.dims[0])
        order = View((channels * down * right, 1, 1), (atoms,)).channel_order()
        return None if order is None else (order, (down, right))

    def averaged(self) -> View | None:
        """Return a `View`: layout after averaging over pixels; ``None`` unless the channels are the first dimension."""
        if self.channel_order() is None:
            return None
        return View((self.sizes[CHANNELS], 1, 1), (self.dims[0], *[()] * (len(self.dims) - 1)))

    def reduced(self, positions: Sequence[int], *, keeps: bool) -> View | None:
        """Return the `View` after averaging over ``positions``; ``None`` unless these hold all pixels and no channel.

        The dimensions at the indices ``positions`` must hold all rows and columns, and no channel. Averaged dimensions
        stay with the size 1 if the operator ``keeps`` them.
        """
        axes = [{atom.axis for atom in dim} for dim in self.dims]
        if any((CHANNELS in axes[i]) if i in positions else axes[i] - {CHANNELS} for i in range(len(axes))):
            return None
        dims = tuple(() if i in positions else dim for i, dim in enumerate(self.dims) if keeps or i not in positions)
        return View((self.sizes[CHANNELS], 1, 1), dims)

    def summed_dimension(self) -> View | None:
        """Return the `View` of the last dimension, which a product sums; ``None`` unless all channels and whole axes.

        The view is on a new map. The last dimension may hold whole map axes besides all channels, but no frames.
        """
        if self.rank < 2:
            return None
        covered = [prod(atom.size for atom in self.dims[-1] if atom.axis == axis) for axis in range(3)]
        if covered[CHANNELS] != self.sizes[CHANNELS] or any(
            part not in (1, size) for part, size in zip(covered, self.sizes, strict=True)
        ):
            return None
        return View((covered[0], covered[1], covered[2]), self.dims[-1:])

    def multiplied(self, outputs: int) -> View:
        """Return a `View`: the layout of a matrix product's result, whose last dimension is ``outputs`` channels."""
        taken = {atom.axis for atom in self.dims[-1]}
        rows, columns = (1 if axis in taken else self.sizes[axis] for axis in (ROWS, COLUMNS))
        return replace(self, sizes=(outputs, rows, columns), dims=(*self.dims[:-1], (Atom(CHANNELS, outputs),)))

    def pixel(self) -> View:
        """Return a `View`: the layout of a one-pixel map whose values are broadcast over this layout's pixels."""
        dims = tuple(tuple(atom for atom in dim if atom.axis == CHANNELS) for dim in self.dims)
        return View((self.sizes[CHANNELS], 1, 1), dims)

    def with_channels(self, channels: int, dimension: int) -> View | None:
        """Return the `View` after concatenation along ``dimension``; ``None`` unless channels are its outermost factor.

        The result has ``channels`` channels.
        """
        first, rest = self.dims[dimension][:1], self.dims[dimension]
        if self.sizes[CHANNELS] > 1:
            if first != (Atom(CHANNELS, self.sizes[CHANNELS]),):
                return None
            rest = rest[1:]
        dims = list(self.dims)
        dims[dimension] = (Atom(CHANNELS, channels), *rest)
        return View((channels, *self.sizes[1:]), tuple(dims))

    def onto(self, axes: Sequence[int]) -> View:
        """Return the inverse `View`: this map as a tensor on a map whose axes ``axes`` are this tensor's dimensions.

        ``axes``: the axis of the other map for each dimension of this view.
        """
        sizes = [1, 1, 1]
        factors: list[list[tuple[int, Atom]]] = [[], [], []]
        for axis, dim in zip(axes, self.dims, strict=True):
            for atom in reversed(dim):
                factors[atom.axis].append((atom.step, Atom(axis, atom.size, sizes[axis])))
                sizes[axis] *= atom.size
        dims = tuple(tuple(atom for _, atom in sorted(dim, key=lambda factor: -factor[0])) for dim in factors)
        return View((sizes[0], sizes[1], sizes[2]), dims)

    @cached_property
    def _factors(self) -> tuple[Atoms, ...]:
        """Factors (`Atom`) that the layout divides each map axis into: a tuple per axis, outermost factor first."""
        atoms = list(chain.from_iterable(self.dims))
        return tuple(
            tuple(sorted((atom for atom in atoms if atom.axis == axis), key=lambda atom: -atom.step))
            for axis in range(3)
        )


def _size(atoms: Atoms) -> int:
    """Return the size of a tensor dimension: the product of its map-axis factors."""
    return prod(atom.size for atom in atoms)


def _merge_factors(atoms: Atoms) -> Atoms:
    """Return a dimension's axis parts (`Atom`) without size-1 parts, and with contiguous neighbours merged."""
    joined: list[Atom] = []
    for atom in atoms:
        if atom.size == 1:
            continue
        if joined and joined[-1].axis == atom.axis and joined[-1].step == atom.step * atom.size:
            atom = Atom(atom.axis, joined.pop().size * atom.size, atom.step)
        joined.append(atom)
    return tuple(joined)
