"""The same commands by two processes here and by two workers of a Dask cluster here: time, and what they write.

The cluster is one that is there already, as of several machines, and one that the command starts for itself.

Usage: python bench/cluster.py [--rounds N] [simulate | simulate-again | sweep | synth MODEL --board BOARD ..]

Whole commands are timed, one after the other, the three kinds in turn; ``simulate`` and ``sweep`` are of the digits
network with products in DSP slices, from an empty cache, and ``simulate-again`` with the simulator and the plan kept.
What ``synth`` takes is given as to ``hwgen synth``. Exit status 1 where what is written differs.
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
IN_SLICES = ["--multipliers", "dsp"]
IMAGES = ["--board", "zedboard", "--input", str(DIGITS / "images.npy")]
PROCESSES, THERE, STARTED = "processes", "cluster that is there", "cluster of the command"


@contextmanager
def options(mode: str, cache: Path) -> Iterator[list[str]]:
    """Yield the options of hwgen that select processes or a cluster. An existing cluster starts and ends untimed."""
    if mode == PROCESSES:
        yield ["--jobs", "2"]
    elif mode == STARTED:
        yield ["--cluster", "local:2"]
    else:
        page = {"dashboard_address": None, "scheduler_kwargs": {"dashboard_address": "127.0.0.1:0"}}
        workers = {"n_workers": 2, "threads_per_worker": 1, "env": {"HWGEN_CACHE": str(cache)}, "silence_logs": 50}
        cluster = distributed.LocalCluster(**workers, **page)
        with cluster:
            yield ["--cluster", cluster.scheduler_address]


def command(name: str, others: Sequence[str], written: Path) -> list[str]:
    """Return the arguments of the hwgen command that writes the file ``written``."""
    model = str(DIGITS / "digits.onnx")
    if name == "synth":
        return ["synth", *others, "--json", str(written)]
    if name == "sweep":
        dsp = ["--dsp", "30:219:10,215", "--macs-per-dsp", "1,2,auto"]
        return ["sweep", model, "--board", "zedboard", *IN_SLICES, *dsp, "-o", str(written)]
    return ["simulate", model, *IN_SLICES, *IMAGES, "--output", str(written)]


def timed(call: Sequence[str], cache: Path) -> float:
    """Run one hwgen command, and return its duration in seconds. End the bench if hwgen fails."""
    environment = {**os.environ, "HWGEN_CACHE": str(cache)}
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "hwgen.cli", *call], env=environment, capture_output=True, text=True)
    seconds = time.monotonic() - begin
    if done.returncode:
        sys.exit(f"{' '.join(call)}: exit status {done.returncode}\n{done.stderr}")
    return seconds


def round_of(name: str, others: Sequence[str], mode: str, run_folder: Path) -> tuple[float, bytes]:
    """Run one timed command with an empty cache, and return its seconds and the contents of the file that it wrote."""
    cache, written = run_folder / "cache", run_folder / f"found.{'csv' if name == 'sweep' else 'npy'}"
    cache.mkdir(parents=True)
    with options(mode, cache) as more:
        call = [*command(name, others, written), *more]
        if name == "simulate-again":
            timed(call, cache)
        return timed(call, cache), written.read_bytes()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("name", choices=["simulate", "simulate-again", "sweep", "synth"])
    arguments, others = parser.parse_known_args()
    times: dict[str, list[float]] = {mode: [] for mode in (PROCESSES, THERE, STARTED)}
    wrote: set[bytes] = set()
    with tempfile.TemporaryDirectory() as folder:
        for round_index in range(arguments.rounds):
            for mode in times:
                run_folder = Path(folder) / f"{mode.replace(' ', '-')}-{round_index}"
                seconds, data = round_of(arguments.name, others, mode, run_folder)
                times[mode].append(seconds)
                wrote.add(data)
                print(f"{mode}: {seconds:.1f} s", flush=True)
    medians = {mode: statistics.median(seconds) for mode, seconds in times.items()}
    for mode in (THERE, STARTED):
        print(f"{mode} / processes, of medians: {medians[mode] / medians[PROCESSES]:.2f}")
    same = len(wrote) == 1
    print(f"they write {'the same' if same else 'something else'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
