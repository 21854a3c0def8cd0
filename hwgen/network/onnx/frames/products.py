"""Axis that holds a batch's frames after matrix products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from hwgen.network.onnx.file import attribute, text
from hwgen.network.onnx.frames.operands import HELP, FrameOperands, Frames, MixedError
from hwgen.network.onnx.frames.rule import Rule

_GREEK = "".join(map(chr, range(0x3B1, 0x3CA)))
"""Greek letters, for dimensions that an Einsum equation does not name."""


def _product(first: int, second: int) -> Rule:
    """Return the rule of a matrix product of the inputs ``first`` and ``second``; others must be constants.

    ``transA`` and ``transB`` of a node transpose the matrices.
    """

    def rule(operands: FrameOperands) -> Frames:
        operands.check_constants([first, second])
        transposed = _transposed(operands, first, second)
        ranks = operands.rank(first), operands.rank(second)
        rank = max(*ranks, 2)
        summed = -2 if transposed[0] else -1, -1 if transposed[1] or ranks[1] == 1 else -2
        positions, alike = [], []
        for index, axis, kept, other in ((first, summed[0], -2, second), (second, summed[1], -1, first)):
            if operands.frames(index) is None:
                continue
            position = operands.check_axes([axis], index)
            from_end = position.axis - operands.rank(index)
            from_end = from_end if from_end < -2 else kept
            positions.append(replace(position, axis=rank + from_end))
            alike.append((other, from_end, positions[-1]))
        position = operands.common(positions)
        for other, from_end, here in alike:
            axis = operands.rank(other) + from_end
            if operands.frames(other) is None and from_end < -2:
                operands.check_alike(other, axis, here)
            elif operands.frames(other) is None:
                operands.check_constant(other)
            elif from_end >= -2:
                raise MixedError(f"multiplies frames by other frames; move them to an outer axis{HELP}")
        return _without_vectors(position, rank, ranks)

    return rule


def _transposed(operands: FrameOperands, first: int, second: int) -> tuple[bool, bool]:
    """Return, for each of the inputs ``first`` and ``second``, whether a matrix product transposes it."""
    node = operands.node
    if attribute(node, "transBatchA", 0) or attribute(node, "transBatchB", 0):
        raise MixedError(f"transposes the batch; use a Transpose{HELP}")
    first_is, second_is = bool(attribute(node, "transA", 0)), bool(attribute(node, "transB", 0))
    if (first_is or second_is) and min(operands.rank(first), operands.rank(second)) < 2:
        raise MixedError(f"transposes a vector; leave transA and transB out{HELP}")
    return first_is, second_is


def _without_vectors(position: Frames, rank: int, ranks: tuple[int, int]) -> Frames:
    """Return the axis of the batch's frames after a product, whose result lacks a dimension for each vector operand."""
    dropped = [rank - 2] * (ranks[0] == 1) + [rank - 1] * (ranks[1] == 1)
    return replace(position, axis=position.axis - sum(axis < position.axis for axis in dropped))


def _general_product(first: int, second: int, *, addend: int) -> Rule:
    """Return the rule of a Gemm or QGemm of the inputs ``first`` and ``second``, which adds the input ``addend``."""

    def rule(operands: FrameOperands) -> Frames:
        operands.check_constants([first, second, addend])
        turned = attribute(operands.node, "transA", 0), attribute(operands.node, "transB", 0)
        positions = []
        if operands.frames(first) is not None:
            positions.append(replace(operands.check_axes([0 if turned[0] else 1], first), axis=0))
        if operands.frames(second) is not None:
            positions.append(replace(operands.check_axes([1 if turned[1] else 0], second), axis=1))
        if len(positions) == 1:
            operands.check_constant(second if operands.frames(first) else first)
        if operands.name(addend):
            gap = 2 - operands.rank(addend)
            if (here := operands.frames(addend)) is not None:
                positions.append(replace(here, axis=here.axis + gap))
                operands.common(positions)
            else:
                operands.check_alike(addend, operands.common(positions).axis - gap, positions[0])
        return operands.common(positions)

    return rule


def _explicit(equation: str, ranks: Callable[[int], int]) -> tuple[list[str], str]:
    """Return the terms and the result of an Einsum equation with a letter for each dimension, also for ``...``.

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


def _einsum(operands: FrameOperands) -> Frames:
    """Return the axis of the batch's frames after an Einsum, if one letter stands for them in all operands."""
    equation = text(operands.node, "equation", "")
    terms, right = _explicit(equation, operands.rank)
    positions = []
    for index, term in enumerate(terms):
        if len(term) != operands.rank(index):
            letters = f"{len(term)} letters for input {index + 1} of {operands.rank(index)} dimensions"
            raise MixedError(f"its equation {equation!r} has {letters}; give a letter for each")
        if (here := operands.frames(index)) is not None:
            letter = term[here.axis]
            if letter not in right or term.count(letter) > 1:
                raise MixedError(f"works along {letter!r} of {equation!r}, which holds the frames; keep it{HELP}")
            positions.append(replace(here, axis=right.index(letter)))
    position = operands.common(positions)
    letter = right[position.axis]
    for index, term in enumerate(terms):
        here = operands.frames(index)
        if here is None and letter in term:
            operands.check_alike(index, term.index(letter), position)
        elif here is None:
            operands.check_constant(index)
        elif term[here.axis] != letter or term.count(letter) > 1:
            raise MixedError(f"multiplies frames by other frames in {equation!r}; give them one letter{HELP}")
    return position


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("FusedMatMul", "MatMul", "MatMulInteger"), _product(0, 1)),
    "QLinearMatMul": _product(0, 3),
    **dict.fromkeys(("FusedGemm", "Gemm"), _general_product(0, 1, addend=2)),
    "QGemm": _general_product(0, 3, addend=6),
    "Einsum": _einsum,
}
"""Rules for the axis of a batch's frames after matrix products, by ONNX operator."""
