"""LUT estimates of random networks beside what Yosys makes of them, network by network and component by component.

Usage: python bench/estimates.py [--seeds A:B]     (default: 1:31; needs pip install '.[test]')

A seed gives a network and its plan (`random_networks.py`). Measurements are kept in build/estimates by the component's
Verilog, so that a change of an estimate measures nothing again. The marks: the median network's error, the worst
network's, and that of the worst component of more than `LARGE` LUTs. Worst logic delays are measured, too. Exit status
1 if a mark, or the limit of delays, is missed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from random_networks import random_plan

from hwgen.gateware.layer import ComponentConfig
from hwgen.plan.plan import Plan
from hwgen.tools import synthesis
from hwgen.verilog import convert

KEPT = Path(__file__).resolve().parent.parent / "build" / "estimates"
#: Errors at most: of the median network, of the worst one, and of the worst component of more than `LARGE` LUTs.
MEDIAN, WORST, COMPONENT = 0.02, 0.05, 0.10
LARGE = 500
LOGIC_NS = 3.3
#: LUTs and flip-flops that go through Yosys in one run.
RUN_SIZE = 4000


@dataclass(frozen=True)
class Row:
    """A component: LUTs as estimated and as measured, and its worst logic delay in ns."""

    name: str
    estimate: int
    luts: int
    delay: float

    @property
    def error(self) -> float:
        return self.estimate / self.luts - 1 if self.luts else 0.0


def components(plan: Plan) -> Iterator[tuple[str, ComponentConfig]]:
    """Yield all components of a plan with their names."""
    for config in plan.configs():
        yield from (
            (f"{port.name}.guard", guard) for port, guard in zip(config.input_ports, config.guards, strict=True)
        )
        yield from (
            (f"{layer.name}.{name}", part) for layer in config.layers for name, part in layer.components.items()
        )


def digest(part: ComponentConfig) -> str:
    """Return the SHA-256 digest of a component's Verilog."""
    files = convert(synthesis.SideBySide([part.component()]), "top")
    return hashlib.sha256(b"".join(name.encode() + content for name, content in sorted(files.items()))).hexdigest()


def runs(parts: Iterable[tuple[str, ComponentConfig]]) -> Iterator[list[tuple[str, ComponentConfig]]]:
    """Yield the parts in groups that go through Yosys together."""
    run: list[tuple[str, ComponentConfig]] = []
    room = RUN_SIZE
    for key, part in parts:
        size = part.resources.lut + part.resources.ff
        if run and size > room:
            yield run
            run, room = [], RUN_SIZE
        run.append((key, part))
        room -= size
    if run:
        yield run


def measured(parts: list[ComponentConfig]) -> list[dict[str, Any]]:
    """Return LUTs and the worst delay of each part, kept ones without Yosys."""
    KEPT.mkdir(parents=True, exist_ok=True)
    keys = {part: digest(part) for part in dict.fromkeys(parts)}
    missing = {key: part for part, key in keys.items() if not (KEPT / f"{key}.json").exists()}
    for run in runs(missing.items()):
        used, paths = synthesis.measure_paths([part for _, part in run])
        for (key, _), resources, path in zip(run, used, paths, strict=True):
            found = {"lut": resources.lut, "delay": path.delay if path else 0.0}
            (KEPT / f"{key}.json").write_text(json.dumps(found), encoding="utf-8")
    return [json.loads((KEPT / f"{keys[part]}.json").read_text(encoding="utf-8")) for part in parts]


def rows_of(plan: Plan) -> list[Row]:
    """Return all components of a plan, estimated and measured."""
    names, parts = zip(*components(plan), strict=True)
    found = measured(list(parts))
    return [
        Row(name, part.resources.lut, one["lut"], one["delay"])
        for name, part, one in zip(names, parts, found, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", default="1:31", metavar="A:B", help="seeds from A to B - 1 (default: %(default)s)")
    first, last = map(int, parser.parse_args().seeds.split(":"))
    networks: list[float] = []
    everything: list[Row] = []
    for seed in range(first, last):
        made = random_plan(seed)
        rows = rows_of(made.plan)
        luts, estimate = sum(row.luts for row in rows), sum(row.estimate for row in rows)
        networks.append(estimate / luts - 1)
        everything += rows
        layers = " ".join(layer.kind for layer in made.plan.network.layers)
        print(f"seed {seed}: {luts:,} LUTs, estimated {estimate:,} ({networks[-1]:+.1%}); {made.options}; {layers}")
        for row in rows:
            if row.luts > LARGE or abs(row.estimate - row.luts) > LARGE // 20:
                print(f"    {row.name}: {row.luts:,}, estimated {row.estimate:,} ({row.error:+.1%})", flush=True)
    errors = [abs(error) for error in networks]
    large = max((abs(row.error) for row in everything if row.luts > LARGE), default=0.0)
    slowest = max(everything, key=lambda row: row.delay)
    print(
        f"networks: median {statistics.median(errors):.1%} (mark {MEDIAN:.0%}), worst {max(errors):.1%} ({WORST:.0%})"
    )
    print(f"worst component of more than {LARGE} LUTs: {large:.1%} ({COMPONENT:.0%})")
    print(f"worst logic: {slowest.delay:.2f} ns ({LOGIC_NS}), {slowest.name}")
    missed = statistics.median(errors) > MEDIAN or max(errors) > WORST or large > COMPONENT
    raise SystemExit(int(missed or slowest.delay > LOGIC_NS))


if __name__ == "__main__":
    main()
