"""The same commands by two processes here and by two workers of a Dask cluster here: time, and what they write.

The cluster is one that is there already, as of several machines, and one that the command starts for itself.

Usage: python bench/cluster.py [--rounds N] [simulate | simulate-again | sweep | synth MODEL --board BOARD ..]

Whole commands are timed, one after the other, the three kinds in turn; ``simulate`` and ``sweep`` are of the digits
network, from an empty cache, and ``simulate-again`` with the simulator and the plan kept. What ``synth`` takes is given
as to ``hwgen synth``. Exit status 1 where what is written differs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import distributed

DIGITS = Path(__file__).resolve().parent.parent / "examples" / "digits"
IMAGES = ["--board", "zedboard", "--input", str(DIGITS / "images.npy")]
PROCESSES, THERE, STARTED = "processes", "cluster that is there", "cluster of the command"


@contextmanager
def options(way: str, cache: Path) -> Iterator[list[str]]:
    """What says where the work is done; a cluster that is there begins and ends outside of the time."""
    if way == PROCESSES:
        yield ["--jobs", "2"]
    elif way == STARTED:
        yield ["--cluster", "local:2"]
    else:
        page = {"dashboard_address": None, "scheduler_kwargs": {"dashboard_address": "127.0.0.1:0"}}
        workers = {"n_workers": 2, "threads_per_worker": 1, "env": {"HWGEN_CACHE": str(cache)}, "silence_logs": 50}
        cluster = distributed.LocalCluster(**workers, **page)
        with cluster:
            yield ["--cluster", cluster.scheduler_address]


def command(name: str, others: Sequence[str], written: Path) -> list[str]:
    """What hwgen is called with to write that file."""
    model = str(DIGITS / "digits.onnx")
    if name == "synth":
        return ["synth", *others, "--json", str(written)]
    if name == "sweep":
        dsp = ["--dsp", "30:219:10,215", "--macs-per-dsp", "1,2,auto"]
        return ["sweep", model, "--board", "zedboard", *dsp, "-o", str(written)]
    return ["simulate", model, *IMAGES, "--output", str(written)]


def timed(call: Sequence[str], cache: Path) -> float:
    """Seconds of one run; ends the bench where hwgen fails."""
    environment = {**os.environ, "HWGEN_CACHE": str(cache)}
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "hwgen.cli", *call], env=environment, capture_output=True, text=True)
    seconds = time.monotonic() - begin
    if done.returncode:
        sys.exit(f"{' '.join(call)}: exit status {done.returncode}\n{done.stderr}")
    return seconds


def round_of(name: str, others: Sequence[str], way: str, place: Path) -> tuple[float, bytes]:
    """Seconds, and what was written."""
    cache, written = place / "cache", place / f"found.{'csv' if name == 'sweep' else 'npy'}"
    cache.mkdir(parents=True)
    with options(way, cache) as more:
        call = [*command(name, others, written), *more]
        if name == "simulate-again":
            timed(call, cache)
        return timed(call, cache), written.read_bytes()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("name", choices=["simulate", "simulate-again", "sweep", "synth"])
    arguments, others = parser.parse_known_args()
    times: dict[str, list[float]] = {way: [] for way in (PROCESSES, THERE, STARTED)}
    wrote: set[bytes] = set()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.rounds):
            for way in times:
                place = Path(folder) / f"{way.replace(' ', '-')}-{number}"
                seconds, data = round_of(arguments.name, others, way, place)
                times[way].append(seconds)
                wrote.add(data)
                print(f"{way}: {seconds:.1f} s", flush=True)
    medians = {way: statistics.median(seconds) for way, seconds in times.items()}
    for way in (THERE, STARTED):
        print(f"{way} / processes, of medians: {medians[way] / medians[PROCESSES]:.2f}")
    same = len(wrote) == 1
    print(f"they write {'the same' if same else 'something else'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
