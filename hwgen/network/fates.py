"""Survey of an ONNX model: for every operator, a verdict (built, folded, host, unsupported) and the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hwgen.network.floats import FloatLayer
from hwgen.network.ops import Op

_MIN_SHARE = 0.5
"""Minimum share (0 to 1) of a model's MACs in the part that hardware can compute, for it to be built by default."""
VERDICTS = ("built", "folded", "host", "unsupported")


@dataclass(frozen=True, kw_only=True)
class Operator:
    """Node of an ONNX model, with a verdict: built in hardware, folded, run on the host, or unsupported.

    Parameters
    ----------
    node, op : str
        Name of the node (or of its output, if it has no name), and its operator, with a domain other than ONNX's.
    verdict : str
        ``built``: the node is a layer. ``folded``: the node is a constant or a part of a layer, or nothing depends on
        it. ``host``: the node runs on the host. ``unsupported``: the node can't be built.
    reason : str
        Layer that contains the node, or the reason for the verdict.
    help : str
        Alternative that would work, if one is known.
    layers : tuple of str
        Names of the layers that the node became.
    macs : int or None
        Number of multiply-accumulates per frame (`hwgen.network.onnx.macs`): 0 for an operator that does not multiply,
        ``None`` if unknown.
    obstacle : bool
        Whether the node itself is unsupported, independently of the nodes around it.
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
class ModelPart:
    """Part of an ONNX model that hardware can compute: names of its last tensors, and its share of the model's MACs.

    Parameters
    ----------
    tensors : tuple of str
        Last tensors of the part.
    macs_covered : float
        Share (0 to 1) of the model's known multiply-accumulates.
    is_known : bool
        Whether the multiply-accumulates of all operators are known.
    """

    tensors: tuple[str, ...]
    macs_covered: float
    is_known: bool

    @property
    def is_default(self) -> bool:
        """Whether this part of the model is built without the option ``until``: it has half of the MACs or more."""
        return self.is_known and self.macs_covered >= _MIN_SHARE


@dataclass(frozen=True, kw_only=True, eq=False)
class Survey:
    """Survey of an ONNX model: a verdict for each operator, in the graph's order, and the layers that can be built.

    Parameters
    ----------
    name : str
        Name of the model.
    operators : tuple of Operator
        Nodes with their verdicts.
    obstacles : tuple of str
        Messages of all obstacles, one line each. An obstacle can also concern an input or output of the model.
    layers : tuple of Op
        Layers that can be built, even if other operators can't.
    chain : bool
        Whether all operators can be built, and each layer reads only the previous layer.
    other_weights : tuple of (str, int)
        Name and total bits of the weights of each unsupported convolution and matrix product; 8 bits per float.
    part : ModelPart or None
        Part of the model that ``--until auto`` builds, if not all operators can be built.
    rest_refused : str
        Reason why ONNX Runtime can't run the remainder, so that there is no such part.
    in_floats : tuple of FloatLayer
        Layers that ONNX Runtime computes in float32.
    """

    name: str
    operators: tuple[Operator, ...]
    obstacles: tuple[str, ...]
    layers: tuple[Op, ...]
    chain: bool
    other_weights: tuple[tuple[str, int], ...] = ()
    part: ModelPart | None = None
    rest_refused: str = ""
    in_floats: tuple[FloatLayer, ...] = ()

    @property
    def macs_covered(self) -> float:
        """Share (0 to 1) of the model's known MACs in operators that can be built, whatever is around them.

        These operators have the verdict ``built``.
        """
        return share(self.operators, [operator for operator in self.operators if operator.verdict == "built"])

    @property
    def macs_built(self) -> float:
        """Share (0 to 1) of the model's known MACs that is built without further options: 0 for a refused model."""
        if not self.obstacles:
            return self.macs_covered
        return self.part.macs_covered if self.part is not None and self.part.is_default else 0.0


def share(operators: Sequence[Operator], built: Sequence[Operator]) -> float:
    """Return the share (0 to 1) of the known MACs of ``operators`` that is in ``built``; 1 if none are known."""
    total = sum(operator.macs or 0 for operator in operators)
    return sum(operator.macs or 0 for operator in built) / total if total else 1.0
