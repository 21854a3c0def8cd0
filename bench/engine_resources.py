"""What Yosys makes of the engine, component by component, beside what is estimated, and the worst logic of each.

Usage: python bench/engine_resources.py [--maps N] [--pixels N] [--bus-bits N] [--no-paths] [--json FILE]

The default engine takes some minutes, most of them for the array.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from hwgen import progress
from hwgen.emit import synthesis
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.engine import EngineDesign


def main() -> None:
    default = EngineConfig()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--maps", type=int, default=default.maps)
    parser.add_argument("--pixels", type=int, default=default.pixels)
    parser.add_argument("--bus-bits", type=int, default=8 * default.bus_bytes)
    parser.add_argument("--no-paths", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sizes = {"maps": arguments.maps, "pixels": arguments.pixels, "bus_bytes": arguments.bus_bits // 8}
    design = EngineDesign(engine=EngineConfig(**sizes))
    with progress.told(lambda step: print(step, flush=True)):
        found = synthesis.synthesise(design, with_paths=not arguments.no_paths)
    print(found.table())
    whole = design.resources
    print(f"with what joins them, as estimated: LUT {whole.lut:,}, FF {whole.ff:,}")
    if not arguments.no_paths:
        print(found.path_table())
    if arguments.json:
        arguments.json.write_text(json.dumps(found.to_json(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
