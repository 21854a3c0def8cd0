"""Counts the random networks that the engine refuses, by reason.

Usage: python bench/engine_refusals.py [--count N] [--seed S] [--most M] [--list] [--passes] [--run]

Imports N random quantised models (`rtl_tests/support/random_models.py`), compiles each for the engine, and prints the
reasons of the refusals, the most frequent first. A network counts once for each of its reasons. Models that the
importer refuses, so that no template can build them, are drawn again. ``--passes`` only translates layers into passes,
and searches no tilings. ``--run`` interprets each program, and compares every value with the golden model. Fails if
more than ``--most`` networks are refused, or a value differs.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "rtl_tests" / "support"))

import interpret
from random_models import random_model

from hwgen.errors import HwgenError
from hwgen.gateware.engine.config import EngineConfig
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.network.onnx.importer import to_network
from hwgen.program.compile import schedule
from hwgen.program.maps import fused_layers
from hwgen.program.passes import passes

#: Numbers and names of layers in a message, which are left out of its reason.
_DETAILS = re.compile(r"-?\d[\d.,e+-]*")


@dataclass(frozen=True)
class Verdict:
    """Result of one seed: why the importer or the engine refuses its model, and how many output values differ."""

    seed: int
    imported: bool
    refusals: tuple[str, ...] = ()
    differing: int = 0


def verdict(seed: int, *, only_passes: bool, run: bool) -> Verdict:
    """Import the random model of a seed, compile it for the engine, and perhaps run its program."""
    try:
        network = to_network(random_model(seed), f"random{seed}")
    except HwgenError as error:
        return Verdict(seed, False, (str(error),))
    refusals = tuple(_refusals(network))
    if refusals or only_passes:
        return Verdict(seed, True, refusals)
    try:
        made = schedule(network, EngineConfig(), side_by_side=False)
    except HwgenError as error:
        return Verdict(seed, True, (str(error),))
    return Verdict(seed, True, differing=_differing(network, made) if run else 0)


def _refusals(network: Network) -> Iterator[str]:
    """Yield the reasons why the engine has no passes for a network's layers: one per layer."""
    for step in fused_layers(network):
        try:
            passes(step.ops, step.takes, step.inside)
        except HwgenError as error:
            yield str(error)


def _differing(network: Network, made) -> int:
    random = np.random.default_rng(0)
    frames = [
        random.integers(source.type.minimum, source.type.maximum + 1, source.shape).astype(source.type.dtype)
        for source in network.input_maps
    ]
    expected = golden.outputs(network, [frame[None] for frame in frames])
    return sum(
        int((got != wanted[0]).sum())
        for got, wanted in zip(interpret.outputs(made.program, *frames), expected, strict=True)
    )


def reason(refusal: str) -> str:
    """Return a refusal without the layer and the numbers."""
    return _DETAILS.sub("N", refusal.partition(": ")[2] or refusal)[:150]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--most", type=int, default=20, help="refused networks at most")
    parser.add_argument("--list", action="store_true", help="print each refusal with its seed")
    parser.add_argument("--passes", action="store_true", help="translate layers into passes only")
    parser.add_argument("--run", action="store_true", help="run each program, and compare every value")
    options = parser.parse_args()
    judge = partial(verdict, only_passes=options.passes, run=options.run)
    verdicts: list[Verdict] = []
    not_imported = 0
    with ProcessPoolExecutor(2) as pool:
        for first in count(options.seed, 40):
            for found in pool.map(judge, range(first, first + 40), chunksize=4):
                if not found.imported:
                    not_imported += 1
                    if options.list:
                        print(f"not imported: seed {found.seed}: {found.refusals[0][:200]}")
                elif len(verdicts) < options.count:
                    verdicts.append(found)
            if len(verdicts) >= options.count:
                break
    refused = [found for found in verdicts if found.refusals]
    wrong = [found for found in verdicts if found.differing]
    seeds = defaultdict(list)
    for found in refused:
        for text in dict.fromkeys(map(reason, found.refusals)):
            seeds[text].append(found.seed)
        if options.list:
            print(*(f"seed {found.seed}: {refusal}" for refusal in found.refusals), sep="\n")
    print("| networks | reason | seeds |\n|---:|---|---|")
    for text, owners in sorted(seeds.items(), key=lambda item: -len(item[1])):
        print(f"| {len(owners)} | {text} | {', '.join(map(str, owners[:3]))} |")
    print(f"{len(refused)} of {len(verdicts)} random networks refused; {not_imported} others were not imported")
    for found in wrong:
        print(f"seed {found.seed}: {found.differing} values differ", file=sys.stderr)
    return int(len(refused) > options.most or bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
