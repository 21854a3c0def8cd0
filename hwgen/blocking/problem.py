"""Loop nest of a layer (sizes, stride, padding, groups), which every search for a blocking starts from.

A convolution is six loops around one multiply-add (Yang, Algorithm 1), in each group of channels:

    output[k, y, x] += weights[k, c, fh, fw] * input[c, y * S + fh - P, x * S + fw - P]

A pool has a window but no weights, and each of its channels is a group. A fully connected layer is a convolution with
one output pixel. Local response normalisation has its window along the channels. Therefore its channels take the role
of the columns, and its pixels take the role of the rows.

A blocked `Nest` of these loops has a text notation (Yang, section 3.1), from the innermost loop to the outermost:
``Fw=3 Fh=3 X0=8 Y0=8 C0=16 K0=16 X1=56 Y1=56 C1=128 K1=256``. The value of a loop is the extent that its dimension has
reached, not the number of trips: ``X1`` covers 56 columns in steps of ``X0``, 8. Extents need not divide each other;
the last block is then smaller.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hwgen.errors import ConfigError, InputError, PlanError
from hwgen.network.maps import MAX_SIDE
from hwgen.network.ops import Op

DIMS: tuple[str, ...] = ("X", "Y", "C", "K", "Fw", "Fh")
"""Names of a layer's loop dimensions: output columns and rows, input and output channels per group, window columns and
rows.
"""

OPERANDS: tuple[str, ...] = ("input", "weights", "output")

INDEXES = {
    "input": frozenset(("X", "Y", "C", "Fw", "Fh")),
    "weights": frozenset(("C", "K", "Fw", "Fh")),
    "output": frozenset(("X", "Y", "K")),
}
"""Dictionary of loop dimensions that index the elements of each operand, by the operand's name."""

_LAYER = re.compile(r"(\d+)x(\d+)x(\d+)->(\d+)((?:\s+[ks]\d+(?:x\d+)?|\s+[pg]\d+)*)\s*")

#: Maximum height, width, kernel and stride, and maximum number of channels in a layer given as text.
MAX_PIXELS, MAX_CHANNELS = 8_192, MAX_SIDE


def indexes(operand: str, dim: str) -> bool:
    """Return whether elements of ``operand`` (input, weights or output) are indexed by the loop over ``dim``."""
    return dim in INDEXES[operand]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Loop nest of a layer as a blocking problem: loop sizes, stride, padding and groups.

    Parameters
    ----------
    name : str
        Name for messages and reports.
    X, Y, C, K, Fw, Fh : int
        Trips of the loops in one group: see `DIMS`.
    width, height : int
        Size of the input map in pixels, without padding.
    stride, pad : tuple of int
        ``(rows, columns)``. ``pad`` is at the top and at the left. Pixels that a window needs below and right of the
        map are padding too. Padding is never fetched.
    groups : int
        Number of groups. Each group repeats all loops with other data and shares nothing, so the loop over groups is
        outermost.
    weighted : bool
        Whether the layer has weights.
    stored : tuple of int, optional
        Words of the input, weights and output in memory, if rounded-up sizes make the arrays of the loops larger.
    unpadded : int, optional
        Number of multiply-adds before sizes were rounded up.

    Raises
    ------
    ConfigError
        If a size is not positive, or no window reaches into the map.
    """

    name: str
    X: int
    Y: int
    C: int
    K: int
    Fw: int = 1
    Fh: int = 1
    width: int
    height: int
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int] = (0, 0)
    groups: int = 1
    weighted: bool = True
    stored: tuple[int, int, int] | None = None
    unpadded: int | None = None

    def __post_init__(self) -> None:
        sizes = (*(self.size(dim) for dim in DIMS), self.width, self.height, *self.stride, self.groups)
        if min(sizes) < 1:
            raise ConfigError(f"{self.name}: sizes, strides and groups must be positive, not {min(sizes)}")
        if min(self.pad) < 0:
            raise ConfigError(f"{self.name}: padding must not be negative, as in {self.pad}")

    def size(self, dim: str) -> int:
        """Return the number of iterations of the loop over dimension ``dim``."""
        return getattr(self, dim)

    @property
    def macs(self) -> int:
        """Number of multiply-adds of the layer's loops, padding included."""
        return self.groups * self.X * self.Y * self.C * self.K * self.Fw * self.Fh

    @property
    def input_words(self) -> int:
        """Number of words of the layer's input map, over all groups."""
        return self.groups * self.C * self.width * self.height

    @property
    def weight_words(self) -> int:
        """Number of weights of the layer, over all groups; 0 for a layer without weights."""
        return self.groups * self.C * self.K * self.Fw * self.Fh if self.weighted else 0

    @property
    def output_words(self) -> int:
        """Number of words of the layer's output map, over all groups."""
        return self.groups * self.X * self.Y * self.K

    def words(self, operand: str) -> int:
        """Return the number of elements of an operand's whole array (input, weights or output)."""
        return {"input": self.input_words, "weights": self.weight_words, "output": self.output_words}[operand]

    @property
    def compulsory(self) -> int:
        """Number of words of the layer's input, weights and output together, each moved once; without biases."""
        return sum(self.words(operand) for operand in OPERANDS)

    def home(self, operand: str) -> int:
        """Return the words that an operand's whole array occupies in memory, without the padding of loop sizes."""
        return self.words(operand) if self.stored is None else self.stored[OPERANDS.index(operand)]

    def padded(self, **multiples: int) -> Problem:
        """Return, as a `Problem`, the layer with loop sizes rounded up: ``padded(C=16, K=16)`` for a 16 x 16 core.

        The added elements are computed and moved, also from DRAM, but not stored.
        """
        sizes = {dim: -(-self.size(dim) // step) * step for dim, step in multiples.items()}
        stored = (self.home("input"), self.home("weights"), self.home("output"))
        return replace(self, stored=stored, unpadded=self.unpadded or self.macs, **sizes)

    @classmethod
    def of(cls, layer: Op) -> Problem:
        """Return a `Problem`: the loop nest (blocking problem) of a convolution or pool layer of a network.

        Raises
        ------
        PlanError
            If the layer's window is dilated, because the counts assume windows without gaps; or if the layer only moves
            values.
        """
        if not layer.weight_count and layer.taps == 1 and (not layer.channelwise or min(layer.window.padding) < 0):
            raise PlanError(f"{layer.name}: a layer of the kind {layer.kind!r} only moves values: it can't be blocked")
        if layer.window.dilation != (1, 1):
            dilation = "x".join(map(str, layer.window.dilation))
            raise PlanError(f"{layer.name}: loops over a window with dilation {dilation} can't be blocked, 1x1 can")
        top, left, _, _ = layer.window.padding
        pool = layer.channelwise
        groups = layer.channels if pool else layer.groups
        return cls(
            name=layer.name,
            X=layer.output_width,
            Y=layer.output_height,
            C=layer.channels // groups,
            K=layer.outputs // groups,
            Fw=layer.window.kernel[1],
            Fh=layer.window.kernel[0],
            width=layer.width,
            height=layer.height,
            stride=layer.window.stride,
            pad=(top, left),
            groups=groups,
            weighted=not pool,
        )

    @classmethod
    def valid(cls, name: str, X: int, Y: int, C: int, K: int, Fw: int = 1, Fh: int = 1) -> Problem:
        """Return the `Problem` of an unpadded convolution as in Yang's Table 4, with ``X * Y`` output pixels.

        Its windows exceed the border by ``Fw - 1`` columns and ``Fh - 1`` rows in all. As in the paper, these pixels
        are moved like all others, but not stored.
        """
        stored = (C * X * Y, C * K * Fw * Fh, K * X * Y)
        return cls(name=name, X=X, Y=Y, C=C, K=K, Fw=Fw, Fh=Fh, width=X + Fw - 1, height=Y + Fh - 1, stored=stored)

    @classmethod
    def lrn(cls, name: str, X: int, Y: int, C: int, window: int = 5) -> Problem:
        """Return a `Problem`: loops of a local response normalisation over ``window`` channels of ``X * Y`` pixels."""
        return cls(
            name=name, X=C, Y=X * Y, C=1, K=1, Fw=window, width=C, height=X * Y, pad=(0, window // 2), weighted=False
        )

    @classmethod
    def parse(cls, text: str) -> Problem:
        """Return the `Problem` that a text such as ``56x56x128->256 k3`` states: input, output channels, kernel.

        ``k5`` or ``k5x3`` is the window (rows, columns), 1 by default; ``s2`` the stride, ``g2`` the groups, ``p1`` the
        padding of all sides. Without ``p`` the output is as large as the input, divided by the stride and rounded up.

        Raises
        ------
        InputError
            If the text has another form, or no window fits.
        """
        match = _LAYER.fullmatch(text.strip())
        if match is None or len(text) > 100:
            text = text if len(text) <= 100 else f"{text[:97]}..."
            raise InputError(f"layer {text!r} must look like 56x56x128->256 k3 s1 p1 g1 (rows x columns x channels)")
        options: dict[str, tuple[int, int]] = {}
        for option in match[5].split():
            first, _, second = option[1:].partition("x")
            if option[0] in options:
                raise InputError(f"layer {text!r} has two {option[0]} options")
            options[option[0]] = (int(first), int(second or first))
        rows, columns, channels, outputs = (int(match[index]) for index in range(1, 5))
        kernel, stride = options.get("k", (1, 1)), options.get("s", (1, 1))
        groups = options.get("g", (1, 1))[0]
        if min(rows, columns, channels, outputs, groups, *kernel, *stride) < 1:
            raise InputError(f"layer {text!r}: sizes must be positive, not 0")
        if (side := max(rows, columns)) > MAX_PIXELS:
            raise InputError(f"layer {text!r}: rows and columns must be at most {MAX_PIXELS:,}, not {side:,}")
        if (most := max(channels, outputs)) > MAX_CHANNELS:
            raise InputError(f"layer {text!r}: channels must be at most {MAX_CHANNELS:,}, not {most:,}")
        if (side := max(*kernel, *stride)) > MAX_PIXELS:
            raise InputError(f"layer {text!r}: kernel and stride must be at most {MAX_PIXELS:,}, not {side:,}")
        pads = options.get("p", (0, 0))
        if any(p >= k for p, k in zip(pads, kernel, strict=True)):
            raise InputError(
                f"layer {text!r}: padding must be smaller than the {kernel[0]}x{kernel[1]} window, not "
                f"{pads[0]}x{pads[1]}"
            )
        if channels % groups or outputs % groups:
            raise InputError(
                f"layer {text!r}: channels must be multiples of the {groups} groups, not {channels} and {outputs}"
            )
        sizes, pad = _windows((rows, columns), kernel, stride, options.get("p"))
        if min(sizes) < 1:
            raise InputError(f"layer {text!r}: the {kernel[0]}x{kernel[1]} window does not fit into the map")
        return cls(
            name=text.strip(),
            X=sizes[1],
            Y=sizes[0],
            C=channels // groups,
            K=outputs // groups,
            Fw=kernel[1],
            Fh=kernel[0],
            width=columns,
            height=rows,
            stride=stride,
            pad=pad,
            groups=groups,
        )


def _windows(
    whole: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], pad: tuple[int, int] | None
) -> tuple[list[int], tuple[int, int]]:
    """Return, as a pair, an output map's [rows, columns], and the (top, left) padding of the input map in pixels.

    Without ``pad`` the output is as large as the input, divided by the stride and rounded up.
    """
    if pad is not None:
        return [(n + 2 * p - k) // s + 1 for n, p, k, s in zip(whole, pad, kernel, stride, strict=True)], pad
    sizes = [-(-n // s) for n, s in zip(whole, stride, strict=True)]
    needed = [(m - 1) * s + k - n for m, s, k, n in zip(sizes, stride, kernel, whole, strict=True)]
    return sizes, (max(0, needed[0]) // 2, max(0, needed[1]) // 2)


_TOKEN = re.compile(r"(Fw|Fh|[XYCK])(\d*)(?:=(\d+))?")


@dataclass(frozen=True)
class BlockedLoop:
    """One loop of a blocked nest: its dimension, and the extent in elements that its iterations cover together."""

    dim: str
    extent: int


@dataclass(frozen=True)
class Blocks:
    """Blocks (index ranges) of one loop dimension: first elements and lengths, as two int64 arrays."""

    start: np.ndarray
    length: np.ndarray

    def split(self, step: int) -> Blocks:
        """Return `Blocks`: the pieces of at most ``step`` elements that all blocks are cut into.

        The last piece of a block can be shorter.
        """
        pieces = -(-self.length // step)
        last = np.cumsum(pieces)
        offset = (np.arange(int(last[-1])) - np.repeat(last - pieces, pieces)) * step
        return Blocks(np.repeat(self.start, pieces) + offset, np.minimum(step, np.repeat(self.length, pieces) - offset))

    def first(self, steps: Sequence[int]) -> Blocks:
        """Return `Blocks`, the first piece of each block after repeated cuts into pieces of sizes ``steps``."""
        return Blocks(self.start, np.minimum(self.length, min(steps, default=1 << 62)))

    def last(self, steps: Sequence[int]) -> Blocks:
        """Return `Blocks`, the last piece (remainder) of each block after repeated cuts into sizes ``steps``."""
        length = self.length
        for step in steps:
            length = length - step * (-(-length // step) - 1)
        return Blocks(self.start + self.length - length, length)


def pairs(blocks: Blocks, other: Blocks) -> tuple[Blocks, Blocks]:
    """Return a pair: the blocks of two loop dimensions reshaped so that they broadcast to all combinations."""
    return Blocks(blocks.start[:, None], blocks.length[:, None]), other


@dataclass(frozen=True)
class Nest:
    """Blocked loop nest (loop order with tiles) of a layer, from inner to outer; a dimension can have several loops.

    Parameters
    ----------
    problem : Problem
        Loops of the layer.
    loops : tuple of BlockedLoop
        Loops from inner to outer. *Position* ``p`` is between loops ``p - 1`` and ``p``: a buffer there holds the
        elements that loops 0 to ``p - 1`` touch.

    Raises
    ------
    InputError
        If the loops of a dimension shrink outwards, or don't reach the layer's size.
    """

    problem: Problem
    loops: tuple[BlockedLoop, ...]

    def __post_init__(self) -> None:
        reached: dict[str, int] = dict.fromkeys(DIMS, 1)
        for loop in self.loops:
            if loop.dim not in reached:
                raise InputError(f"a blocking's loops must be over {', '.join(DIMS)}, not {loop.dim!r}")
            if loop.extent < reached[loop.dim]:
                raise InputError(
                    f"blocking {self}: {loop.dim} must not shrink from {reached[loop.dim]} to {loop.extent}"
                )
            reached[loop.dim] = loop.extent
        for dim, extent in reached.items():
            if extent != self.problem.size(dim):
                raise InputError(
                    f"blocking {self} does not multiply out to {self.problem.name}: {dim} must reach "
                    f"{self.problem.size(dim)}, not {extent}"
                )

    def __str__(self) -> str:
        counts = {dim: sum(loop.dim == dim for loop in self.loops) for dim in DIMS}
        seen: dict[str, int] = dict.fromkeys(DIMS, 0)
        tokens = []
        for loop in self.loops:
            index = str(seen[loop.dim]) if counts.get(loop.dim, 0) > 1 or loop.dim in "XYCK" else ""
            tokens.append(f"{loop.dim}{index}={loop.extent}")
            seen[loop.dim] = seen.get(loop.dim, 0) + 1
        return " ".join(tokens)

    @classmethod
    def parse(cls, problem: Problem, text: str) -> Nest:
        """Return the loop `Nest` that a text such as ``Fw Fh X0=8 Y0=8 C K X1 Y1`` states, innermost loop first.

        The last loop of a dimension does not need ``=N``, and a dimension of size 1 does not need a loop.

        Raises
        ------
        InputError
            If a word is not a loop, or the nest does not fit ``problem``.
        """
        words = text.split()
        matches = [_TOKEN.fullmatch(word) for word in words]
        for word, match in zip(words, matches, strict=True):
            if match is None:
                raise InputError(f"blocking {text!r}: {word!r} must be a loop such as X0=8, Fw or K1=256")
        if not words:
            raise InputError("a blocking must have at least one loop, as in 'Fw Fh X Y C K'")
        tokens = [(match[1], match[2], match[3]) for match in matches if match is not None]
        seen: dict[str, int] = dict.fromkeys(DIMS, 0)
        loops = []
        for index, (dim, level, extent) in enumerate(tokens):
            if level and int(level) != seen[dim]:
                raise InputError(f"blocking {text!r}: {dim}{level} must be {dim}{seen[dim]}, counted from inside")
            seen[dim] += 1
            if extent is None and any(later == dim for later, _, _ in tokens[index + 1 :]):
                raise InputError(f"blocking {text!r}: {words[index]} needs its extent, as in {words[index]}=8")
            if extent is not None and int(extent) < 1:
                raise InputError(f"blocking {text!r}: extents must be positive, not {extent}")
            loops.append(BlockedLoop(dim, problem.size(dim) if extent is None else int(extent)))
        return cls(problem, tuple(loops))

    @classmethod
    def tiled(cls, problem: Problem, tile: dict[str, int], order: Iterable[str]) -> Nest:
        """Return a two-level loop `Nest`: loops over the elements of one tile, then over all tiles in ``order``."""
        inner = [BlockedLoop(dim, tile[dim]) for dim in DIMS]
        return cls(problem, (*inner, *(BlockedLoop(dim, problem.size(dim)) for dim in order)))

    def tile(self, position: int) -> dict[str, int]:
        """Return, as a dict, the number of elements, by dimension, that the ``position`` innermost loops cover."""
        reached: dict[str, int] = dict.fromkeys(DIMS, 1)
        reached.update((loop.dim, loop.extent) for loop in self.loops[:position])
        return reached

    def block_sizes(self, dim: str, inner: int, outer: int) -> list[int]:
        """Return a list of ``dim`` block sizes (elements) inside positions ``inner`` to ``outer - 1``, descending."""
        extents = [self._extents[dim][position] for position in range(inner, outer + 1)]
        return sorted(set(extents[:-1]), reverse=True)

    @cached_property
    def _extents(self) -> dict[str, list[int]]:
        reached: dict[str, list[int]] = {dim: [1] for dim in DIMS}
        for loop in self.loops:
            for dim, extents in reached.items():
                extents.append(loop.extent if loop.dim == dim else extents[-1])
        return reached

    def blocks(self, dim: str, position: int) -> Blocks:
        """Return all `Blocks` of ``dim`` that the loops outside the ``position`` innermost ones iterate over."""
        size = self.problem.size(dim)
        blocks = Blocks(np.zeros(1, np.int64), np.full(1, size, np.int64))
        for step in self.block_sizes(dim, position, len(self.loops)):
            blocks = blocks.split(step)
        return blocks
