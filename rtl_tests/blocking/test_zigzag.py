"""zigzag-dse counts the same DRAM words for the same orders."""

from __future__ import annotations

import pytest

from hwgen.blocking import yang
from hwgen.blocking.search import search

pytest.importorskip("zigzag", exc_type=ImportError)

pytestmark = [
    pytest.mark.long,  # importing it takes 6 s; the default run compares with simulations and with every nest
    pytest.mark.filterwarnings("ignore"),  # zigzag's own
]


@pytest.mark.parametrize("name", ["Conv3", "Conv4", "Conv5"])
def test_the_same_words(name: str) -> None:
    from zigzag_referee import judge

    problem, hierarchy = yang.layer(name), yang.diannao()
    found = search(problem, hierarchy, base=yang.CORE, pair=True)
    memories = {operand: own[0] for operand, own in hierarchy.memories.items()}
    _, words = judge(problem, memories, nest=found.nest)
    # it also reads partial sums before there are any
    assert words == {**found.top, "output": found.top["output"] + problem.output_words}
