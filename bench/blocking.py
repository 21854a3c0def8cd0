"""Blockings: CPU time and proven gap of each search, and our optimum beside zigzag-dse's own.

Usage: python bench/blocking.py [--common] [--no-zigzag]

--common adds one hierarchy for all layers of VGG-16 (a minute and a half). Prints tables in Markdown.
zigzag-dse comes with the test extra.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from collections.abc import Callable

from hwgen.blocking import cecconi, peemen, yang
from hwgen.blocking.energy import MemoryLevel, Private
from hwgen.blocking.priced import PricedBlocking
from hwgen.blocking.problem import OPERANDS, Problem
from hwgen.blocking.search import search
from hwgen.network import shapes


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--common", action="store_true", help="with VGG-16's common hierarchy")
    parser.add_argument("--no-zigzag", action="store_true", help="without the referee")
    arguments = parser.parse_args()
    print("| search | CPU s | pJ/MAC | proven gap |\n|---|--:|--:|--:|")
    _timed("Peemen, Table I", lambda: peemen.optimise(peemen.layer(), peemen.MEMORIES))
    flownets = [Problem.of(layer) for layer in shapes.load("flownets").layers]
    _timed("Cecconi, FlowNetS", lambda: [cecconi.optimise(problem, 32_768) for problem in flownets])
    for name in yang.LAYERS:
        problem = yang.layer(name)
        for pair in (True, False):
            text = "pair" if pair else "apart"
            _timed(f"{name}, DianNao, {text}", lambda: search(problem, yang.diannao(), base=yang.CORE, pair=pair))  # noqa: B023
            _timed(f"{name}, DianNao, {text}, ragged", lambda: _ragged(problem, pair))  # noqa: B023
            for limit in (8, 1):
                _timed(f"{name}, {limit} MB, {text}", lambda: yang.codesign(problem, limit << 20, pair=pair))  # noqa: B023
    if arguments.common:
        layers = [Problem.of(layer) for layer in shapes.load("vgg16", dense=True).layers]
        begin = time.process_time()
        found = yang.common([layer.padded(**yang.datapath_block(layer)) for layer in layers], 8 << 20)
        macs = sum(one.nest.problem.macs for one in found.blockings)
        print(f"| VGG-16, common | {time.process_time() - begin:.1f} | {found.energy / macs:.3f} | {found.gap:.2%} |")
    if not arguments.no_zigzag and importlib.util.find_spec("zigzag") is not None:
        _zigzag()


def _ragged(problem: Problem, pair: bool) -> PricedBlocking:
    """Return the best blocking, where blocks need not divide the problem."""
    return search(problem, yang.diannao(), base=yang.CORE, pair=pair, ragged=True)


def _timed(name: str, run: Callable[[], object]) -> None:
    begin = time.process_time()
    found = run()
    taken = time.process_time() - begin
    figures = f"{found.per_mac:.3f} | {found.gap:.2%}" if isinstance(found, PricedBlocking) else "- | -"
    print(f"| {name} | {taken:.2f} | {figures} |", flush=True)


def _zigzag() -> None:
    """Print the energy of our best blocking and of zigzag-dse's own best, for three layers with DianNao's buffers.

    Our hierarchy has free registers for the operands of one cycle as well, because zigzag assumes that the last word
    stays at a memory's pins. zigzag also reads partial sums before there are any. Our energy includes these reads.
    """
    warnings.simplefilter("ignore")
    from zigzag_referee import judge

    print("\n| layer | ours, pJ/MAC | zigzag's own | ratio |\n|---|--:|--:|--:|")
    for name in ("Conv3", "Conv4", "Conv5"):
        problem, buffers = yang.layer(name), yang.diannao()
        pins = {"input": 16, "weights": 256, "output": 16}
        memories = {
            operand: [MemoryLevel(name="pins", size=2 * pins[operand], energy=0.0), *buffers.memories[operand]]
            for operand in OPERANDS
        }
        found = search(problem, Private(memories=memories), base=yang.CORE)
        ours = found.energy + 320 * problem.output_words
        theirs, _ = judge(problem, {operand: own[0] for operand, own in buffers.memories.items()})
        print(f"| {name} | {ours / problem.macs:.3f} | {theirs / problem.macs:.3f} | {theirs / ours:.2f} |", flush=True)


if __name__ == "__main__":
    main()
