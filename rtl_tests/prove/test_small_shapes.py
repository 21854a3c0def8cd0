"""One small shape of each class of component that emits obligations, all of them proved; `.ci/run` runs them."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from proofs import ALONE, emitted, of_component, proved
from small_circuits import COMPONENTS, DESIGNS

from hwgen.obligations.modules import modules_of
from hwgen.obligations.obligation import Obligation
from hwgen.prove import catalogue

#: Classes of configuration with obligations.
CLASSES = [each for each, proofs in catalogue.CATALOGUE.items() if proofs.kinds]

pytestmark = ALONE


def owner(config: Any) -> type | None:
    """Return the class of the catalogue whose obligations a configuration emits."""
    return next((base for base in type(config).__mro__ if base in CLASSES), None)


@cache
def small_shapes() -> dict[str, tuple[list[Obligation], str]]:
    """Return the obligations of one component of each class, the first that emits any, and the Verilog, by class."""
    shapes: dict[str, tuple[list[Obligation], str]] = {}
    for config in COMPONENTS:
        verilog = emitted(config)
        shapes.setdefault(type(config).__name__, (of_component(config, verilog), verilog))
    for design in DESIGNS.values():
        config, top, verilog = design()
        for part, site in catalogue.sites(config, top, modules_of(verilog)):
            base = owner(part)
            if base is not None and (obligations := catalogue.of_component(part, site)):
                shapes.setdefault(base.__name__, (obligations, verilog))
    return shapes


@pytest.mark.long  # .ci/run runs all tests of this file
def test_each_class_has_a_small_shape():
    assert small_shapes().keys() == {base.__name__ for base in CLASSES}
    assert all(obligations for obligations, _ in small_shapes().values())


@pytest.mark.long
@pytest.mark.parametrize("name", [base.__name__ for base in CLASSES])
def test_small_shapes_are_proved(name):
    obligations, verilog = small_shapes()[name]
    proofs = proved(obligations, verilog)
    assert {key: proof.verdict for key, proof in proofs.items() if proof.verdict.result != "proved"} == {}
