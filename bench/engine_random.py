"""Runs random networks on small engines in Verilator: compares values, cycles and bytes with golden model and schedule.

Usage: python bench/engine_random.py [--minutes M] [--seed S] [--cores 1,2,3,4] [--bus 8,16,32] [--least N]

Draws random quantised models (`rtl_tests/support/random_models.py`), one per seed, on engines with all given numbers
of cores and widths of the bus in bytes, in turn. The bus has as many memory ports of 8 bytes as possible. Every second
draw has map buffers in UltraRAM, and every second one of one core a map memory. Each run has a random latency and pace
of the memory, down to half a cycle per beat, and one or two frames. Models that the importer or the compiler refuses
are counted apart; `bench/engine_refusals.py` says why. Fails if a value, a number of cycles or a number of bytes
differs, or if fewer than ``--least`` networks were checked.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import count, product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "rtl_tests" / "support"))

from programs import image
from random_models import random_model

from hwgen.devices import FAMILIES
from hwgen.errors import HwgenError
from hwgen.gateware.engine.config import LANES, MAP_MEMORY_ROWS, EngineConfig
from hwgen.gateware.engine.engine import DONE_CYCLES, START_CYCLES
from hwgen.network import golden
from hwgen.network.onnx.importer import to_network
from hwgen.program.compile import ProgramSchedule, schedule
from hwgen.program.layout import unpack_map
from hwgen.schedule.engine import EngineSchedule, MemoryTiming
from hwgen.simulate import engine
from hwgen.simulate.engine import EngineMemory
from hwgen.verilog.emitted import engine_files

#: Engine that a simulation compiles in seconds, and whose layers take several tiles.
SMALL = EngineConfig(
    maps=8,
    pixels=5,
    map_words=512,
    weight_steps=512,
    parameter_words=16,
    output_words=256,
    addend_words=256,
    slots=8,
    queue=4,
)
#: Cycles after which a run counts as stuck.
LIMIT = 50_000_000

circuit = cache(engine_files)


def engine_of(cores: int, bus_bytes: int, *, map_ram: str, map_memory: bool) -> EngineConfig:
    """Return the small engine with a number of cores, a bus, a RAM of its map buffers and perhaps a map memory bank."""
    device = FAMILIES["ultrascale+"]
    config = replace(SMALL, device=device, cores=cores, bus_bytes=bus_bytes, ports=bus_bytes // LANES, map_ram=map_ram)
    return replace(config, kept_words=MAP_MEMORY_ROWS * config.row_words) if map_memory else config


def memory_timing(rnd: random.Random) -> MemoryTiming:
    """Return random latencies, and a random pace from half a cycle to nine cycles per beat."""
    cycles = rnd.randint(1, 9)
    beats = rnd.randint(1, 2 * cycles)
    return MemoryTiming(latency=rnd.randint(0, 99), write_latency=rnd.randint(0, 50), pace=cycles, pace_beats=beats)


def differences(made: ProgramSchedule, timing: MemoryTiming, seed: int) -> list[str]:
    """Simulate a program with random frames, and return what differs from the golden model or the schedule."""
    content, frames = image(made, seed)
    run = engine.run(circuit(made.engine), content, memory=EngineMemory(timing=timing), limit=LIMIT)
    counted = EngineSchedule(made.engine, made.jobs, timing).run()
    values = sum(
        int((unpack_map(run.image[region.at(number)], region.map) != wanted[number]).sum())
        for region, wanted in zip(made.program.outputs, golden.outputs(made.network, frames), strict=True)
        for number in range(made.frames)
    )
    pairs = {
        "cycles": (run.cycles[0], START_CYCLES + counted.cycles + DONE_CYCLES),
        "bytes read": (run.read, sum(counted.read) + counted.fetched),
        "bytes written": (run.written, sum(counted.written)),
    }
    found = [f"{name}: {got} simulated, {planned} planned" for name, (got, planned) in pairs.items() if got != planned]
    return [f"{values} values differ", *found] if values else found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10, help="time after which no further network is drawn")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--cores", default="1,2,3,4", help="numbers of cores")
    parser.add_argument("--bus", default="8,16,32", help="widths of the bus in bytes")
    parser.add_argument("--least", type=int, default=20, help="checked networks at least")
    options = parser.parse_args()
    numbers = [[int(number) for number in text.split(",")] for text in (options.cores, options.bus)]
    combinations, end = list(product(*numbers)), time.monotonic() + 60 * options.minutes
    results: dict[str, Counter[str]] = {}
    for seed in count(options.seed):
        if time.monotonic() > end:
            break
        rnd = random.Random(seed)
        cores, bus_bytes = combinations[seed % len(combinations)]
        map_ram = rnd.choice(("block", "ultra"))
        config = engine_of(cores, bus_bytes, map_ram=map_ram, map_memory=cores == 1 and rnd.random() < 0.5)
        name = f"{cores} cores, {config.ports} ports, maps in {map_ram} RAM" + ", map memory" * bool(config.kept_words)
        result = results.setdefault(name, Counter())
        try:
            network = to_network(random_model(seed), f"random{seed}")
            made = schedule(network, config, side_by_side=False, frames=rnd.randint(1, 2))
        except HwgenError:
            result["refused"] += 1
            continue
        found = differences(made, memory_timing(rnd), seed)
        result["wrong" if found else "exact"] += 1
        print(*(f"seed {seed}, {name}: {text}" for text in found), sep="\n", end="\n" * bool(found), flush=True)
    print("| engine | exact | wrong | refused |\n|---|---:|---:|---:|")
    for name, result in sorted(results.items()):
        print(f"| {name} | {result['exact']} | {result['wrong']} | {result['refused']} |")
    exact, wrong = (sum(result[key] for result in results.values()) for key in ("exact", "wrong"))
    print(f"{exact} of {exact + wrong} networks exact in every value, cycle and byte")
    return int(bool(wrong) or exact < options.least)


if __name__ == "__main__":
    sys.exit(main())
