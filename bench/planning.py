"""The time that loading and planning every built-in network takes, at full size, and what the plan is.

Usage: python bench/planning.py [--board B] [--json FILE] [NAME ...]     (default: all of 'hwgen models', for vc709)

Prints a table in Markdown. A network that does not fit says what runs out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

from hwgen import boards, network, plan
from hwgen.errors import PlanError
from hwgen.network import builtin

COLUMNS = {
    "network": "---",
    "layers": "---:",
    "load_s": "---:",
    "plan_s": "---:",
    "interval": "---:",
    "latency": "---:",
    "dsp": "---:",
    "bram36": "---:",
    "problem": "---",
}


def measure(name: str, board: boards.Board) -> dict[str, Any]:
    begin = time.perf_counter()
    loaded = network.load(name)
    planning = time.perf_counter()
    found: dict[str, Any] = {"network": name, "layers": len(loaded.layers), "load_s": round(planning - begin, 2)}
    try:
        made = plan.make(loaded, board)
        found |= {"interval": made.interval, "latency": made.latency, "problem": None}
        found |= {kind: made.resources.as_dict()[kind] for kind in ("dsp", "bram36")}
    except PlanError as error:
        found["problem"] = str(error)
    return {**found, "plan_s": round(time.perf_counter() - planning, 2)}


def cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}".removesuffix(".00")
    return f"{value:,}" if isinstance(value, int) else str(value or "")


def main() -> None:
    known = [name for name, _ in builtin.names()]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="a built-in network, perhaps with prefix and size")
    parser.add_argument("--board", default="vc709")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    board = boards.load(arguments.board)
    network.load("decoilfnet-example")  # imports ONNX Runtime, which is not the first network's fault
    print("| " + " | ".join(name.replace("_s", " (s)") for name in COLUMNS) + " |")
    print("| " + " | ".join(COLUMNS.values()) + " |")
    results = []
    for name in arguments.names or known:
        results.append(measure(name, board))
        print("| " + " | ".join(cell(results[-1].get(key)) for key in COLUMNS) + " |", flush=True)
    print(
        f"{board.name}; {os.cpu_count()} processors, {platform.machine()}, Python {platform.python_version()}",
        file=sys.stderr,
    )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
