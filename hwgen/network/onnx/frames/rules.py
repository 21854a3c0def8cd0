"""Table of the ONNX operators that are known to compute each frame of a batch by itself, and of their conditions.

A file for each family of operators has its rules. A further operator is an entry of its family. An operator that no
family has is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from hwgen.network.onnx.frames import along, cuts, elementwise, indices, products, reshapes
from hwgen.network.onnx.frames.rule import Rule

RULES: Mapping[str, Rule] = {
    operator: rule
    for family in (elementwise, along, cuts, reshapes, indices, products)
    for operator, rule in family.RULES.items()
}
"""Rules by ONNX operator, of ONNX's own domain and com.microsoft."""
