"""Feeds hwgen with damaged input of every kind that it reads: models, programs, weights, plans, manifests, arguments.

Usage: python bench/fuzz [--count N] [--seed S] [--jobs N] [TARGET ...]     (in the checkout)

Of every case the exit status must be 0, 1 or 2, its processor time at most 20 s, its memory at most 1 GB; there is no
traceback, and no refusal quotes Python. A failure is printed with its target and its seed, and
``--seed S --count 1 TARGET`` makes that case again. Cases run in processes that are forked once and end with the case
that breaks a rule. The status is 1 if any case failed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import multiprocessing
import os
import random
import re
import resource
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fuzz import corpus
from fuzz.targets import TARGETS

LIMIT_S, LIMIT_BYTES = 20, 1 << 30
#: Seconds on the clock, for what waits and doesn't compute; a busy machine takes longer than the processor's seconds.
_LIMIT_CLOCK_S = 120
#: Address space of a case, which ends it before the machine suffers.
_ADDRESSES = 8 << 30
#: Texts of Python's own errors.
PYTHON = re.compile(
    r"Traceback|not supported between|has no attribute|NoneType|unexpected keyword|positional argument|unhashable|"
    r"not subscriptable|not iterable|indices must be|object is not|takes no arguments|invalid literal|object at 0x|"
    r"(Key|Type|Value|Attribute|Index|Assertion)Error"
)


@dataclass
class Worker:
    """A process that runs cases, and the one that it is at."""

    process: multiprocessing.process.BaseProcess
    pipe: Connection
    seed: int | None = None
    begun: float = 0.0
    worked: float = 0.0
    """Processor seconds before the case."""

    def seconds(self) -> float:
        """Return the processor seconds of the process; 0 where the system doesn't tell, or the process has ended."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def begin(self, seed: int | None) -> None:
        """Note that a case begins now."""
        self.seed, self.begun, self.worked = seed, time.monotonic(), self.seconds()

    @property
    def is_late(self) -> bool:
        """Whether the case takes too long."""
        return self.seconds() - self.worked > LIMIT_S or time.monotonic() - self.begun > _LIMIT_CLOCK_S


def outcome(run, seed: int) -> str:
    """Return ``status N`` of a case, or what is wrong with it."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            status = run(random.Random(seed))
    except SystemExit as error:  # argparse's
        status = error.code
    except TypeError as error:
        if re.match(r"[\w.]+: (missing a required argument|got an unexpected)", str(error)):
            return "status 2"
        return f"traceback: {''.join(traceback.format_exc().splitlines(True)[-7:])}"
    except BaseException:
        return f"traceback: {''.join(traceback.format_exc().splitlines(True)[-7:])}"
    if status not in (0, 1, 2):
        return f"exit status {status}"
    if found := PYTHON.search(said.getvalue()):
        line = next(line for line in said.getvalue().splitlines() if found[0] in line)
        return f"quotes Python: {line[:300]}"
    return f"status {status}"


def work(name: str, folder: Path, pipe: Connection) -> None:
    """Run the cases whose seeds come through the pipe, in a folder of their own."""
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))
    with tempfile.TemporaryDirectory(dir=folder) as here:
        os.chdir(here)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            target = TARGETS[name](folder, Path(here))
        pipe.send(("ready", 0))
        while (seed := pipe.recv()) is not None:
            found = outcome(target.run, seed)
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
            pipe.send((found, most))
            if most > LIMIT_BYTES:
                return


def fuzz(name: str, folder: Path, seeds: Sequence[int], jobs: int) -> Counter[str]:
    """Run the cases of a target; prints failures and returns how many there are of each outcome."""
    context = multiprocessing.get_context("fork")
    waiting, counts = list(reversed(seeds)), Counter[str]()

    def start() -> Worker:
        here, there = context.Pipe()
        process = context.Process(target=work, args=(name, folder, there), daemon=True)
        process.start()
        there.close()
        return Worker(process, here)

    def end(worker: Worker, what: str) -> None:
        worker.process.kill()
        worker.process.join()
        note(worker.seed, what)

    def note(seed: int | None, what: str) -> None:
        counts[what if what.startswith("status") else what.partition(":")[0]] += 1
        if not what.startswith("status"):
            print(f"{name} --seed {seed}: {what}", flush=True)

    workers = [start() for _ in range(jobs)]
    while workers:
        ready = wait([worker.pipe for worker in workers], timeout=1)
        for worker in list(workers):
            if worker.pipe in ready:
                try:
                    what, most = worker.pipe.recv()
                except (EOFError, ConnectionResetError):
                    end(worker, f"ended by itself: {worker.process.exitcode}")
                    workers.remove(worker)
                    if waiting:
                        workers.append(start())
                    continue
                if worker.seed is not None:
                    note(worker.seed, f"memory: {most >> 20:,} MiB, {what}" if most > LIMIT_BYTES else what)
                if most > LIMIT_BYTES:
                    worker.process.join()
                    workers.remove(worker)
                    if waiting:
                        workers.append(start())
                    continue
                worker.begin(waiting.pop() if waiting else None)
                with contextlib.suppress(BrokenPipeError):
                    worker.pipe.send(worker.seed)
                if worker.seed is None:
                    worker.process.join()
                    workers.remove(worker)
            elif worker.seed is not None and worker.is_late:
                end(worker, f"hangs: longer than {LIMIT_S} s of work, or {_LIMIT_CLOCK_S} s on the clock")
                workers.remove(worker)
                if waiting:
                    workers.append(start())
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", metavar="TARGET", nargs="*", help=f"of {', '.join(TARGETS)}; all if not given")
    parser.add_argument("--count", type=int, help="cases of each target; 2,000 models and 5,000 of the others")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first case; the others have the next ones")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes side by side")
    asked = parser.parse_args()
    if unknown := set(asked.targets) - set(TARGETS):
        parser.error(f"no target is called {' or '.join(sorted(unknown))}: there are {', '.join(TARGETS)}")
    failed = False
    with tempfile.TemporaryDirectory(prefix="hwgen-fuzz-") as name:
        folder = Path(name)
        os.environ["HWGEN_CACHE"] = str(folder / "cache")
        # In a process of its own, so that no thread of a library is there when workers are forked.
        made = multiprocessing.get_context("spawn").Process(target=corpus.write, args=(folder,))
        made.start()
        made.join()
        if made.exitcode:
            return 2
        for target in asked.targets or TARGETS:
            count = asked.count or TARGETS[target].count
            begun = time.monotonic()
            counts = fuzz(target, folder, range(asked.seed, asked.seed + count), min(asked.jobs, count))
            shown = ", ".join(f"{number:,} {what}" for what, number in sorted(counts.items()))
            seeds = f"seeds {asked.seed} to {asked.seed + count - 1}"
            print(
                f"{target}: {sum(counts.values()):,} cases ({seeds}), {time.monotonic() - begun:.0f} s: {shown}",
                flush=True,
            )
            failed |= any(not what.startswith("status") for what in counts)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
