"""How the tensors of a model lie on the feature maps that the hardware streams.

A feature map has three axes, channels, rows and columns (C, H, W). A tensor of the model may hold the same values in
another order, in more dimensions or in fewer: (N, H, W, C) as Keras has it, (N, C * H * W) behind Flatten, (N, C, L)
in front of a one-dimensional convolution. Operators that only rename or reorder dimensions change its `View` of the
map, and nothing else. Views leave the batch out, which is the first dimension of every tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from hwgen.errors import ConfigError
from hwgen.network.ends import Layout

CHANNELS, ROWS, COLUMNS = range(3)
"""The axes of a map."""
_LETTERS = "CHW"


@dataclass(frozen=True)
class Atom:
    """A factor of an axis of a map: of an index ``i`` along ``axis`` the part ``i // step % size``."""

    axis: int
    size: int
    step: int = 1

    def split(self, inner: int) -> tuple[Atom, Atom]:
        """The same as two, of which the second one has the size ``inner``, a divisor."""
        return Atom(self.axis, self.size // inner, self.step * inner), Atom(self.axis, inner, self.step)


Atoms = tuple[Atom, ...]


@dataclass(frozen=True)
class View:
    """A tensor of the model as it lies on a feature map; two that lie alike are equal.

    Parameters
    ----------
    sizes : tuple of int
        Channels, rows and columns of the map.
    dims : tuple of tuple of Atom
        For each dimension of the tensor behind the batch what it is made of, the outermost first; a dimension of size
        1 is made of nothing. Neighbours that are one are joined.

    Raises
    ------
    ConfigError
        If the dimensions don't hold each index of each axis once.
    """

    sizes: tuple[int, int, int]
    dims: tuple[Atoms, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "dims", tuple(_joined(atoms) for atoms in self.dims))
        for axis, (size, factors) in enumerate(zip(self.sizes, self._factors, strict=True)):
            # The innermost factor counts by one, each other one by all indices of those behind it.
            counts = [prod(atom.size for atom in factors[place:]) for place in range(len(factors) + 1)]
            if counts != [size, *(atom.step for atom in factors)]:
                raise ConfigError(f"dims must hold each of {size} indices of {_LETTERS[axis]} once, not {self.dims}")

    @classmethod
    def of(cls, sizes: tuple[int, int, int], axes: Sequence[Sequence[int]]) -> View:
        """A tensor whose dimensions are made of whole ``axes``: ``[[1], [2], [0]]`` is (N, H, W, C)."""
        return cls(sizes, tuple(tuple(Atom(axis, sizes[axis]) for axis in dim) for dim in axes))

    @classmethod
    def channels_first(cls, sizes: tuple[int, int, int], axes: Sequence[int] = (ROWS, COLUMNS)) -> View:
        """A tensor whose first dimension are the channels, and the others these ``axes``."""
        return cls.of(sizes, [[CHANNELS], *([axis] for axis in axes)])

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a frame of the tensor."""
        return tuple(_size(atoms) for atoms in self.dims)

    @property
    def size(self) -> int:
        """Values of a frame."""
        return prod(self.sizes)

    def __str__(self) -> str:
        """``(N, H, W, C)``; a factor of an axis as ``4 of C``."""
        return f"({', '.join(['N', *map(self._described, self.dims)])})"

    def _described(self, atoms: Atoms) -> str:
        whole = [atom.size == self.sizes[atom.axis] for atom in atoms]
        names = [_LETTERS[atom.axis] for atom in atoms]
        said = [
            name if all_ else f"{atom.size} of {name}" for atom, all_, name in zip(atoms, whole, names, strict=True)
        ]
        return " * ".join(said) or "1"

    @property
    def plain(self) -> bool:
        """Whether it is (N, C, H, W)."""
        return self == View.channels_first(self.sizes)

    @property
    def in_order(self) -> bool:
        """Whether the tensor holds its values in the map's order, whatever its dimensions."""
        return self.flatten() == View.of(self.sizes, [[CHANNELS, ROWS, COLUMNS]])

    # Operators that rename or reorder dimensions.

    def reshape(self, shape: Sequence[int]) -> View:
        """The view of the same values in ``shape``, row by row.

        Raises ConfigError where its dimensions don't begin and end with factors of the map's axes.
        """
        if prod(shape) != self.size:
            raise ConfigError(f"its {self.size} values don't fit the shape ({', '.join(map(str, shape))})")
        left = [atom for atoms in self.dims for atom in atoms][::-1]  # the next one last
        dims = []
        for size in shape:
            dim: list[Atom] = []
            while size > 1:
                atom = left.pop()
                if atom.size % size and size % atom.size:
                    raise ConfigError(
                        f"the shape ({', '.join(map(str, shape))}) cuts across dimensions: its input, "
                        f"({', '.join(map(str, self.shape))}), is laid out as {self}"
                    )
                if size < atom.size:
                    atom, rest = atom.split(atom.size // size)
                    left.append(rest)
                dim.append(atom)
                size //= atom.size
            dims.append(tuple(dim))
        return View(self.sizes, tuple(dims))

    def transpose(self, order: Sequence[int]) -> View:
        """The view with its dimensions in another ``order``: that of NumPy's transpose, the batch aside."""
        return View(self.sizes, tuple(self.dims[place] for place in order))

    def squeeze(self, places: Sequence[int]) -> View:
        """The view without the dimensions at ``places``; raises ConfigError unless their sizes are 1."""
        for place in places:
            if self.dims[place]:
                raise ConfigError(f"a dimension of {self.shape[place]} values can't be squeezed out of {self}")
        return View(self.sizes, tuple(dim for place, dim in enumerate(self.dims) if place not in places))

    def unsqueeze(self, places: Sequence[int]) -> View:
        """The view with dimensions of size 1 added, so that they are at ``places``."""
        dims = list(self.dims)
        for place in sorted(places):
            dims.insert(place, ())
        return View(self.sizes, tuple(dims))

    def flatten(self) -> View:
        """The view of all values in one dimension."""
        return View(self.sizes, (tuple(atom for atoms in self.dims for atom in atoms),))

    # What layers ask for.

    @cached_property
    def layout(self) -> Layout:
        """The same for arrays."""
        factors = [atom for atoms in self._factors for atom in atoms]
        order = tuple(factors.index(atom) for atoms in self.dims for atom in atoms)
        return Layout(map=self.sizes, parts=tuple(atom.size for atom in factors), order=order, shape=self.shape)

    def channel_order(self) -> np.ndarray | None:
        """The channel of the map, int64, for each index of the first dimension; ``None`` if that is not made of
        all channels and of nothing else. A view that is plain but for this order has it changed by a channel shuffle.
        """
        if any((atom.axis == CHANNELS) != (place == 0) for place, dim in enumerate(self.dims) for atom in dim):
            return None
        channels = self.sizes[CHANNELS]
        return View((channels, 1, 1), self.dims[:1]).layout.to_frames(np.arange(channels)[None, :, None, None])[0]

    def by_channel(self, values: np.ndarray) -> np.ndarray | None:
        """Constants that go with the tensor, one or as many along each dimension as it has, as one a channel, (C,).

        ``None`` if they don't go with it, or differ between pixels of a channel.
        """
        shape = (1,) * (1 + len(self.dims) - values.ndim) + values.shape
        sizes = (1, *self.shape)
        if len(shape) > len(sizes) or any(size not in (1, here) for size, here in zip(shape, sizes, strict=True)):
            return None
        atoms = [atom for dim in self.dims for atom in dim]
        spread = [size == 1 for size, dim in zip(shape[1:], self.dims, strict=True) for _ in dim]
        parts = values.reshape([1 if one else atom.size for one, atom in zip(spread, atoms, strict=True)])
        for place, atom in enumerate(atoms):
            if atom.axis != CHANNELS:
                first = parts.take([0], place)
                if (parts != first).any():
                    return None
                parts = first
        parts = np.broadcast_to(parts, [atom.size if atom.axis == CHANNELS else 1 for atom in atoms])
        outermost_first = sorted(range(len(atoms)), key=lambda place: -atoms[place].step)
        return parts.transpose(outermost_first).reshape(self.sizes[CHANNELS])

    def spatial_axes(self) -> tuple[int, ...] | None:
        """The axis of the map, rows or columns, for each dimension behind the first one; ``None`` if these are no
        whole axes, or leave one out. One of size 1 may be any axis of size 1.
        """
        left = [axis for axis in (ROWS, COLUMNS) if not any(atom.axis == axis for dim in self.dims for atom in dim)]
        spare = len(self.dims) - 1 - sum(map(bool, self.dims[1:]))
        left = left[len(left) - spare :] if spare < len(left) else left
        found = []
        for dim in self.dims[1:]:
            if not dim and left:
                found.append(left.pop(0))
            elif len(dim) == 1 and dim[0].axis != CHANNELS and dim[0].size == self.sizes[dim[0].axis]:
                found.append(dim[0].axis)
            else:
                return None
        return tuple(found)

    def averaged(self) -> View | None:
        """What is left of each channel's average, if channels are the first dimension; else ``None``."""
        if self.channel_order() is None:
            return None
        return View((self.sizes[CHANNELS], 1, 1), (self.dims[0], *[()] * (len(self.dims) - 1)))

    def product(self) -> View | None:
        """The part of the map that a product along the last dimension takes at once, as a map of its own that this
        dimension covers; ``None`` if that isn't made of all channels and of whole axes.
        """
        covered = [prod(atom.size for atom in self.dims[-1] if atom.axis == axis) for axis in range(3)]
        if covered[CHANNELS] != self.sizes[CHANNELS] or any(
            part not in (1, size) for part, size in zip(covered, self.sizes, strict=True)
        ):
            return None
        return View((covered[0], covered[1], covered[2]), self.dims[-1:])

    def multiplied(self, outputs: int) -> View:
        """What that product gives: ``outputs`` channels in the last dimension."""
        taken = {atom.axis for atom in self.dims[-1]}
        rows, columns = (1 if axis in taken else self.sizes[axis] for axis in (ROWS, COLUMNS))
        return View((outputs, rows, columns), (*self.dims[:-1], (Atom(CHANNELS, outputs),)))

    def pixel(self) -> View:
        """The view of a map of one pixel that goes with all pixels of this one."""
        dims = tuple(tuple(atom for atom in dim if atom.axis == CHANNELS) for dim in self.dims)
        return View((self.sizes[CHANNELS], 1, 1), dims)

    def with_channels(self, channels: int, place: int) -> View | None:
        """What a concatenation along dimension ``place`` gives, of ``channels`` altogether; ``None`` if channels
        aren't what lies outermost there.
        """
        first, rest = self.dims[place][:1], self.dims[place]
        if self.sizes[CHANNELS] > 1:
            if first != (Atom(CHANNELS, self.sizes[CHANNELS]),):
                return None
            rest = rest[1:]
        dims = list(self.dims)
        dims[place] = (Atom(CHANNELS, channels), *rest)
        return View((channels, *self.sizes[1:]), tuple(dims))

    def onto(self, axes: Sequence[int]) -> View:
        """How the tensor (N, C, H, W) of this map lies on another map, whose ``axes`` are this view's dimensions."""
        sizes = [1, 1, 1]
        places: list[list[tuple[int, Atom]]] = [[], [], []]
        for axis, dim in zip(axes, self.dims, strict=True):
            for atom in reversed(dim):
                places[atom.axis].append((atom.step, Atom(axis, atom.size, sizes[axis])))
                sizes[axis] *= atom.size
        dims = tuple(tuple(atom for _, atom in sorted(dim, key=lambda each: -each[0])) for dim in places)
        return View((sizes[0], sizes[1], sizes[2]), dims)

    @cached_property
    def _factors(self) -> tuple[Atoms, ...]:
        """All factors of each axis, the outermost first."""
        every = [atom for atoms in self.dims for atom in atoms]
        return tuple(
            tuple(sorted((atom for atom in every if atom.axis == axis), key=lambda atom: -atom.step))
            for axis in range(3)
        )


def _size(atoms: Atoms) -> int:
    return prod(atom.size for atom in atoms)


def _joined(atoms: Atoms) -> Atoms:
    """The same with neighbours that are one joined, and without what has one index."""
    found: list[Atom] = []
    for atom in atoms:
        if atom.size == 1:
            continue
        if found and found[-1].axis == atom.axis and found[-1].step == atom.step * atom.size:
            atom = Atom(atom.axis, found.pop().size * atom.size, atom.step)
        found.append(atom)
    return tuple(found)
