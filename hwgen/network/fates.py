"""What of a model can be built, operator by operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hwgen.network.ops import Op

VERDICTS = ("built", "folded", "host", "unsupported")


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One node of a model, and what becomes of it.

    Parameters
    ----------
    node, op : str
        Its name (that of its output, where it has none) and its operator, with the domain where that is not ONNX's.
    verdict : str
        ``built``: it is a layer; ``folded``: it became a constant or a part of a layer, or nothing depends on it;
        ``host``: it runs in front of the first or behind the last integer tensor; ``unsupported``.
    reason : str
        Which layer it is or went into, where it runs, or why it can't be built.
    help : str
        What would work instead, where that is known.
    layers : tuple of str
        Names of the layers that were made of it.
    macs : int or None
        Multiply-accumulates of a frame: 0 of what is no convolution and no matrix product, ``None`` if not known.
    obstacle : bool
        Whether it is unsupported by itself, not for what stands before or behind it.
    """

    node: str
    op: str
    verdict: str
    reason: str
    help: str = ""
    layers: tuple[str, ...] = ()
    macs: int | None = 0
    obstacle: bool = False


@dataclass(frozen=True, kw_only=True)
class Part:
    """The part of a model up to some tensors: their names, and its share of the multiply-accumulates."""

    tensors: tuple[str, ...]
    macs_covered: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Survey:
    """All operators of a model, in the graph's order.

    Parameters
    ----------
    name : str
        Of the model.
    operators : tuple of Operator
    obstacles : tuple of str
        A line for each thing that can't be built; one may concern the model's inputs or outputs, not an operator.
    layers : tuple of Op
        Those that could be made, whether or not all else can be built.
    chain : bool
        Whether all can be built, and each layer takes just the output of the one before.
    other_weights : tuple of (str, int)
        Name and bits of the weights of unsupported convolutions and matrix products; 8 bits for each float.
    part : Part or None
        What ``--until auto`` builds, if not all can be built but something.
    rest_refused : str
        Why ONNX Runtime can't run what that leaves, so that there is no such part.
    """

    name: str
    operators: tuple[Operator, ...]
    obstacles: tuple[str, ...]
    layers: tuple[Op, ...]
    chain: bool
    other_weights: tuple[tuple[str, int], ...] = ()
    part: Part | None = None
    rest_refused: str = ""

    @property
    def macs_covered(self) -> float:
        """Share of the multiply-accumulates that is built, of those that are known."""
        return share(self.operators, [operator for operator in self.operators if operator.verdict == "built"])


def share(operators: Sequence[Operator], built: Sequence[Operator]) -> float:
    """Multiply-accumulates of some operators as a share of all that are known; 1 if there are none."""
    total = sum(operator.macs or 0 for operator in operators)
    return sum(operator.macs or 0 for operator in built) / total if total else 1.0
