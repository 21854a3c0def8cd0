"""Number of multiply-accumulates of an ONNX operator, from the shapes of its tensors, whether it can be built or not.

Convolutions, matrix products, recurrent layers and attention count, each with the products of its definition. Padding,
causal masks and other zeros count as any values. Functions of one value, sums, means, normalisations and interpolations
count nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import NoReturn

import onnx
from onnx import TensorProto

from hwgen.network.onnx.file import DOMAINS, attribute, subgraphs, text
from hwgen.network.onnx.index import GraphIndex
from hwgen.network.onnx.infer import Shape
from hwgen.network.onnx.operator_traits import PRODUCTS, TRAITS, Effect, traits_of, with_effect

_GREEK = "".join(map(chr, range(0x3B1, 0x3CA)))
"""Greek letters, for dimensions that an Einsum equation does not name."""


class UnknownSizeError(Exception):
    """Error of a multiplying node whose multiply-accumulates depend on a size that is not known."""


@dataclass(frozen=True)
class _Node:
    """ONNX node with the known shapes of its tensors, for counting multiply-accumulates."""

    node: onnx.NodeProto
    shape: Callable[[str], Shape | None]
    """Function that returns a tensor's shape, ``None`` if it is not known."""

    def has(self, index: int) -> bool:
        """Return whether the node has an input with the index ``index``."""
        return len(self.node.input) > index and bool(self.node.input[index])

    def input(self, index: int) -> Shape:
        """Return the shape of the node's input ``index``, a tuple, or raise UnknownSizeError."""
        return self._shape_of(self.node.input[index]) if self.has(index) else _refuse_unknown()

    @property
    def output(self) -> Shape:
        """Shape of the node's first output, a tuple; raises UnknownSizeError if it is not known."""
        return self._shape_of(self.node.output[0])

    def _shape_of(self, name: str) -> Shape:
        shape = self.shape(name)
        return _refuse_unknown() if shape is None else shape

    def number(self, name: str) -> int:
        """Return the node's integer attribute ``name``; 0 if it has none."""
        return int(attribute(self.node, name, 0))


def _refuse_unknown() -> NoReturn:
    raise UnknownSizeError


def _convolution(weights: int) -> Callable[[_Node], int]:
    """Return a function that counts a convolution's MACs; input ``weights`` holds its weights (M, C / groups, taps)."""
    return lambda node: prod(node.output) * prod(node.input(weights)[1:])


def _transposed(node: _Node) -> int:
    """Return the MACs of a transposed convolution: each input value meets (M / groups, taps) weights."""
    return prod(node.input(0)) * prod(node.input(1)[1:])


def _product(other: int) -> Callable[[_Node], int]:
    """Return a function that counts the MACs of a product of the matrices (or stacks) in inputs 0 and ``other``."""

    def count(node: _Node) -> int:
        first, second = node.input(0), node.input(other)
        if not first or not second:
            _refuse_unknown()
        return prod(node.output) * first[-2 if node.number("transA") and len(first) > 1 else -1]

    return count


def _packed(node: _Node) -> int:
    """Return the MACs of a product with a matrix stored in blocks of few bits."""
    return prod(node.output) * (node.number("K") or node.input(0)[-1])


def _distances(node: _Node) -> int:
    """Return the MACs of a CDist: each distance between two rows is a sum over their values."""
    return prod(node.input(0)) * node.input(1)[0]


def _recurrence(node: _Node) -> int:
    """Return the MACs of an LSTM, GRU or RNN: in each step each gate multiplies the input and the last state.

    The weights (directions, gates x hidden, input) and (directions, gates x hidden, hidden) hold one number for each
    product of a step. Products of single values (gates, peepholes) do not count.
    """
    steps = prod(node.input(0)[:2])
    return steps * (prod(node.input(1)) + prod(node.input(2)))


def einsum_terms(equation: str, ranks: Callable[[int], int]) -> tuple[list[str], str]:
    """Return a pair: the terms and the result of an Einsum equation with a letter for each dimension, also for ``...``.

    Dimensions that ``...`` stands for get Greek letters, beginning with the last dimension. Without ``->``, the result
    has these dimensions, and then the letters that occur once, in alphabetical order.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms, max_hidden = left.split(","), 0
    for index, term in enumerate(terms):
        if "..." in term:
            hidden = ranks(index) - len(term) + 3
            terms[index] = term.replace("...", _GREEK[:hidden][::-1])
            max_hidden = max(max_hidden, hidden)
    if not arrow:
        letters = "".join(terms)
        right = "..." + "".join(sorted(letter for letter in {*letters} - {*_GREEK} if letters.count(letter) == 1))
    return terms, right.replace("...", _GREEK[:max_hidden][::-1])


def _einsum(node: _Node) -> int:
    """Return the MACs of an Einsum that is computed as products of two operands at a time, from left to right.

    A label that only one operand has, and not the output, is summed before. Products of more than two operands keep the
    labels that are still needed.
    """
    terms, right = einsum_terms(text(node.node, "equation", ""), lambda index: len(node.input(index)))
    if len(terms) != len(node.node.input):
        _refuse_unknown()
    sizes: dict[str, int] = {}
    for index, term in enumerate(terms):
        for label, size in zip(term, node.input(index), strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    total, here = 0, {*terms[0]}
    for index, term in enumerate(terms[1:], start=1):
        later = {*right}.union(*terms[index + 1 :])
        here = (here & (later | {*term})) | ({*term} & (later | here))
        total += prod(sizes[label] for label in here)
        here &= later
    return total


def _attention(node: _Node) -> int:
    """Return the MACs of ONNX's Attention: queries by keys, and these weights by values, for each head of queries."""
    query, key, value = (node.input(index) for index in range(3))
    if len(query) == 4:
        batch, heads, tokens, size = query
        others, value_size = key[2], value[3]
    else:
        batch, tokens, channels = query
        heads = node.number("q_num_heads") or _refuse_unknown()
        size, others = channels // heads, key[1]
        value_size = value[2] // (node.number("kv_num_heads") or _refuse_unknown())
    past = node.input(4)[2] if node.has(4) else 0
    return batch * heads * tokens * (others + past) * (size + value_size)


def _projected_attention(past: int) -> Callable[[_Node], int]:
    """Return a function that counts an ONNX Runtime Attention's MACs: projections, queries by keys, weights by values.

    ``past``: number of the input with past keys and values (2, batch, heads, tokens, channels).
    """

    def count(node: _Node) -> int:
        batch, tokens, channels = node.input(0)
        columns = node.input(1)[-1]
        sizes = attribute(node.node, "qkv_hidden_sizes", ()) or [columns // 3] * 3
        others = tokens + (node.input(past)[3] if node.has(past) else 0)
        return batch * tokens * (channels * columns + others * (sizes[0] + sizes[2]))

    return count


def _attention_of_domain(node: _Node) -> int:
    """Return the MACs of an Attention, of ONNX's own or of ONNX Runtime's, which also has projections."""
    return (_projected_attention(4) if node.node.domain == "com.microsoft" else _attention)(node)


def _multi_head_attention(node: _Node) -> int:
    """Return the MACs of ONNX Runtime's MultiHeadAttention: queries by keys, and weights by values."""
    query = node.input(0)
    if len(query) == 5:  # (batch, tokens, heads, 3, channels)
        batch, tokens, heads, _, size = query
        others, channels, value_channels = tokens, heads * size, heads * size
    else:
        key = node.input(1)
        batch, tokens, channels = query
        others = key[2] if len(key) == 4 else key[1]
        value_channels = node.output[-1]
    past = node.input(6)[2] if node.has(6) else 0
    return batch * tokens * (others + past) * (channels + value_channels)


_COUNTS: Mapping[str, Callable[[_Node], int]] = {
    **{name: _convolution(TRAITS[name].operands[1]) for name in with_effect(Effect.CONVOLUTION)},
    **dict.fromkeys(("ConvTranspose", "ConvTransposeWithDynamicPads"), _transposed),
    **{name: _product(other) for name, other in PRODUCTS.items()},
    **dict.fromkeys(("MatMulBnb4", "MatMulNBits"), _packed),
    **dict.fromkeys(("DynamicQuantizeLSTM", "GRU", "LSTM", "RNN"), _recurrence),
    "Attention": _attention_of_domain,
    "CDist": _distances,
    "Einsum": _einsum,
    "MultiHeadAttention": _multi_head_attention,
    "QAttention": _projected_attention(8),
}
"""Dictionary of functions that count the multiply-accumulates of a node, by the name of its ONNX operator."""
_MULTIPLYING = with_effect(Effect.CONVOLUTION, Effect.PRODUCT, Effect.RECURRENCE, Effect.UNCOUNTED) | _COUNTS.keys()
"""Set of names of ONNX operators that multiply values by weights or by other values, counted or not."""
_WEIGHT_STEPS = {"DequantizeLinear", "Identity", "QuantizeLinear", "Transpose"}
"""Set of names of ONNX operators that may stand between constant weights and the operator that multiplies by them."""


def constant_weights(graph: GraphIndex, node: onnx.NodeProto) -> list[tuple[str, int]]:
    """Return a list of (name, bits) of each constant weight tensor of a multiplying node; a float counts 8 bits."""
    constants, producers, found = graph.initialisers, graph.producers, []
    for index in range(len(node.input)) if node.op_type == "Einsum" else traits_of(node).operands[1:] or (1,):
        name = node.input[index] if index < len(node.input) else ""
        while name in producers and producers[name].op_type in _WEIGHT_STEPS:
            name = producers[name].input[0]
        if name in constants:
            bits = 16 if constants[name].data_type in (TensorProto.INT16, TensorProto.UINT16) else 8
            found.append((name, bits * prod(constants[name].dims)))
    return found


def macs_of(node: onnx.NodeProto, shape: Callable[[str], Shape | None]) -> int | None:
    """Return the multiply-accumulates of an ONNX node for one batch; ``None`` if they are not known.

    A node that does not multiply has 0. ``shape`` returns the shape of a tensor, or ``None`` if it is not known.
    """
    if node.domain not in DOMAINS:
        return 0
    counts = _COUNTS.get(node.op_type)
    if (counts is None and node.op_type in _MULTIPLYING) or any(map(_multiplies, subgraphs(node))):
        return None
    if counts is None or not node.input or not node.output:
        return 0
    try:
        return counts(_Node(node, shape))
    except (UnknownSizeError, IndexError, ValueError, ZeroDivisionError):  # also shapes that contradict themselves
        return None


def _multiplies(graph: onnx.GraphProto) -> bool:
    """Return whether a subgraph of a node (a branch or a loop's body) contains a node that multiplies."""
    return any(node.op_type in _MULTIPLYING or any(map(_multiplies, subgraphs(node))) for node in graph.node)
