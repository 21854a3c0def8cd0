"""The table of ONNX operators against ONNX's definitions, and against the functions that the import has for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import defs, helper
from onnx.reference import ReferenceEvaluator

from hwgen.network.onnx import macs
from hwgen.network.onnx.frames.search import RULES
from hwgen.network.onnx.operator_traits import (
    CONVOLUTIONS,
    MOVES,
    PASSED,
    PRODUCTS,
    TRAITS,
    Effect,
    traits_of,
    with_effect,
)
from hwgen.network.onnx.operators import OPERATORS

#: Constant operands and attributes with which the moving operators are run on a map of (1, 4, 2, 6).
OPERANDS: dict[str, tuple[list[np.ndarray], dict[str, Any]]] = {
    "DepthToSpace": ([], {"blocksize": 2}),
    "Expand": ([np.array([3, 4, 2, 6])], {}),
    "Gather": ([np.array([1, 0])], {"axis": 1}),
    "Reshape": ([np.array([1, 48])], {}),
    "Slice": ([np.array([1]), np.array([3]), np.array([1])], {}),
    "SpaceToDepth": ([], {"blocksize": 2}),
    "Squeeze": ([np.array([0])], {}),
    "Tile": ([np.array([1, 2, 1, 1])], {}),
    "Unsqueeze": ([np.array([0])], {}),
}


def schema(operator: str) -> defs.OpSchema | None:
    return defs.get_schema(operator) if defs.has(operator) else None


def test_every_operator_with_a_function_has_an_entry() -> None:
    named = OPERATORS.keys() | RULES.keys() | macs._COUNTS.keys()
    assert named - TRAITS.keys() <= {"Attention", "CDist", "Col2Im", "Det", "Einsum", "GlobalLpPool", "GridSample"} | {
        *("MultiHeadAttention", "QAttention"),
    }


@pytest.mark.parametrize("operator", sorted(with_effect(*MOVES)))
def test_moving_operators_make_no_value(operator: str) -> None:
    """ONNX's reference implementation gives values of the input only, and each of them unless it selects or cuts."""
    operands, attributes = OPERANDS.get(operator, ([], {}))
    names = ["x", *(f"operand{index}" for index in range(len(operands)))]
    node = helper.make_node(operator, names, ["y"], **attributes)
    x = np.arange(48, dtype=np.float32).reshape(1, 4, 2, 6)
    (made,) = ReferenceEvaluator(node).run(None, dict(zip(names, [x, *operands], strict=True)))
    y = np.asarray(made)
    assert {*y.ravel()} <= {*x.ravel()}
    if operator not in ("Gather", "Slice"):
        assert {*y.ravel()} == {*x.ravel()}


def test_functions_need_one_input() -> None:
    for operator in with_effect(Effect.FUNCTION):
        found = schema(operator)
        assert found is None or found.min_input == 1, operator


def test_operands_are_inputs_of_the_operator() -> None:
    for operator, traits in TRAITS.items():
        found = schema(operator)
        if found is not None and traits.operands:
            assert max(traits.operands) < found.max_input, operator


def test_products_and_convolutions_take_weights_where_onnx_names_them() -> None:
    weights = {"B", "b", "W", "w"}
    for operator, index in (CONVOLUTIONS | PRODUCTS).items():
        if (found := schema(operator)) is not None:
            name = found.inputs[index].name
            assert name in weights or name == "weight", (operator, name)


def test_operators_of_onnx_runtime_are_like_one_of_onnx() -> None:
    for operator, traits in TRAITS.items():
        assert not traits.like or defs.has(traits.like), operator


def test_random_operators_are_those_that_onnx_calls_not_deterministic() -> None:
    theirs = {one.name for one in defs.get_all_schemas() if one.domain == "" and "seed" in one.attributes}
    assert theirs - {"Dropout"} == with_effect(Effect.RANDOM)


def test_nothing_is_known_of_an_operator_without_entry() -> None:
    traits = traits_of(helper.make_node("Unheard", ["x"], ["y"]))
    assert traits.effect is Effect.OTHER
    assert not traits.on_host
    assert "Unheard" not in PASSED
