"""Which models of a folder hwgen builds, and the causes of refusal by the number of models that each of them stops.

Usage: python bench/zoo_survey.py FOLDER [TEXT ..] [--page FILE]

The folder is one that `bench/export_zoo.py` wrote, or any other with ``.onnx`` files. With texts, only the files whose
names contain one of them are read. Float models are left out. For each model the table has: whole or refused, the
number of obstacles, the share of the multiply-accumulates that ``--until auto`` would build, seconds of CPU, and the
first obstacle. A cause is the message of an obstacle without the names and numbers of the model.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import hwgen
from hwgen.errors import HwgenError
from hwgen.network.graph import Network
from hwgen.network.onnx import file

HEAD = "| model | verdict | obstacles | part | CPU s | what |\n|---|---|---|---|---|---|"


@dataclass(frozen=True)
class Verdict:
    """What hwgen says of a model: ``text`` describes a model that is built whole, ``obstacles`` one that is refused."""

    name: str
    seconds: float
    share: float = 1.0
    text: str = ""
    obstacles: tuple[str, ...] = ()

    def row(self) -> str:
        """Return the model's row of the table."""
        what = (self.obstacles[0] if self.obstacles else self.text).replace("|", "/")[:400]
        verdict = "refused" if self.obstacles else "whole"
        cells = (self.name, verdict, len(self.obstacles), f"{self.share:.1%}", f"{self.seconds:.1f}", what)
        return f"| {' | '.join(map(str, cells))} |"


def verdict(path: Path) -> Verdict:
    """Load a model, and check it if it is refused."""
    begin = time.process_time()

    def seconds() -> float:
        return time.process_time() - begin

    try:
        network = hwgen.load(path).network
        host = ", ".join(on_host(network))
        return Verdict(path.stem, seconds(), text=f"{len(network.layers)} layers; host: {host or 'nothing'}")
    except HwgenError as error:
        lines = error.lines[1:] or error.lines
    except Exception as error:  # a defect of hwgen, which counts as a refusal
        return Verdict(path.stem, seconds(), 0, obstacles=(f"{type(error).__name__}: {error}",))
    try:
        survey = hwgen.check(path).survey
    except HwgenError:
        return Verdict(path.stem, seconds(), 0, obstacles=tuple(lines))
    share = survey.part.macs_covered if survey.part else 0
    return Verdict(path.stem, seconds(), share, obstacles=survey.obstacles or tuple(lines))


def on_host(network: Network) -> Iterator[str]:
    """Yield the operators that the host runs."""
    if network.host is not None:
        yield from network.host.head.operators if network.host.head else ()
        yield from (name for end in network.host.outputs for name in end.behind)
        yield from network.host.remainder.operators if network.host.remainder else ()


def cause(obstacle: str) -> str:
    """Return the message of an obstacle without what is particular to the model: paths, names of nodes and numbers."""
    text = re.sub(r"^\S*\.onnx: ", "", obstacle.strip())
    text = re.sub(r"^\S+ \((\w+)\)", r"\1", text)
    text = re.sub(r"[\w/.:-]*(?:/|_|::)[\w/.:-]*", "NAME", text)
    return re.sub(r"\d[\d,.]*", "N", text.split("; ")[0])


def page(verdicts: Sequence[Verdict]) -> str:
    """Return the survey in Markdown: a row for each model, then the causes."""
    reasons: dict[str, set[str]] = defaultdict(set)
    for found in verdicts:
        for obstacle in found.obstacles:
            reasons[cause(obstacle)].add(found.name)
    causes = sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0]))
    rows = [f"| {len(names)} | {text.replace('|', '/')[:400]} | {', '.join(sorted(names))} |" for text, names in causes]
    whole = sum(not found.obstacles for found in verdicts)
    title = f"# Survey of {len(verdicts)} models at {_commit()}\n\n{whole} whole, {len(verdicts) - whole} refused."
    table = "\n".join([HEAD, *(found.row() for found in verdicts)])
    return f"{title}\n\n{table}\n\n## Causes\n\n" + "\n".join(["| models | cause | which |\n|---|---|---|", *rows, ""])


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description="Which models of a folder hwgen builds, and why it refuses others.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="files whose names contain one of these texts")
    parser.add_argument("--page", type=Path, help="write the survey there, after each model")
    options = parser.parse_args()
    verdicts: list[Verdict] = []
    for path in sorted(options.folder.glob("*.onnx")):
        if options.texts and not any(text in path.name for text in options.texts):
            continue
        if file.is_float(file.read(path)):
            continue
        verdicts.append(verdict(path))
        print(verdicts[-1].row(), flush=True)
        if options.page is not None:
            options.page.write_text(page(verdicts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
