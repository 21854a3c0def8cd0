"""Register maps of bus wrappers, and the comparison of constants with them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hwgen.emit import wrapper
from hwgen.gateware.bus.engine_shell import EngineShellConfig
from hwgen.gateware.bus.shell import ShellConfig, ends_of
from hwgen.gateware.stream import BeatFormat, Port


def shell(inputs: int = 1, outputs: int = 1) -> ShellConfig:
    beat = BeatFormat(channels=3, height=5, width=7, lanes=3, bits=8, signed=False)
    given = BeatFormat(channels=10, height=1, width=1, lanes=4, bits=12, signed=True)
    return ShellConfig(
        inputs=ends_of([Port(f"i_{number}", beat, beat.raster) for number in range(inputs)], "s_axis"),
        outputs=ends_of([Port(f"o_{number}", given, given.raster) for number in range(outputs)], "m_axis"),
        build_hash=0x0123_4567_89AB_CDEF,
    )


def told(document: dict[str, Any]) -> dict[str, int]:
    """Offsets and masks by ``registers.json``, as software calls them."""
    found = {"BUILD_HASH": int(document["build_hash"], 16)}
    for register in document["registers"]:
        found[register["name"]] = register["offset"]
        for field in register["fields"]:
            if field["name"] != "VALUE":
                mask = sum(1 << bit for bit in range(field["low"], field["low"] + field["bits"]))
                found[f"{register['name']}_{field['name']}"] = mask
    return found


def check_constants(config: ShellConfig | EngineShellConfig, expected: dict[str, int], folder: Path) -> None:
    """Check the emitted constants of a register map, for Python and, if gcc is installed, for C."""
    constants: dict[str, Any] = {}
    exec(wrapper.python_constants(config, "net"), constants)
    assert {name: value for name, value in constants.items() if not name.startswith("__")} == expected

    if compiler := shutil.which("gcc"):
        (folder / "net_registers.h").write_text(wrapper.c_header(config, "net"))
        says = "".join(f'printf("{name} %llu\\n", (unsigned long long)NET_{name});\n' for name in expected)
        (folder / "says.c").write_text(
            f'#include <stdio.h>\n#include "net_registers.h"\nint main(void) {{\n{says}return 0;\n}}\n'
        )
        subprocess.run([compiler, "-Wall", "-Werror", "-o", "says", "says.c"], cwd=folder, check=True)
        said = subprocess.run([folder / "says"], check=True, capture_output=True, text=True).stdout
        assert {name: int(value) for name, value in map(str.split, said.splitlines())} == expected
