"""Registry of the simulators: their names, modules and abilities.

The module imports no simulator, so that the command line and the checks of options start fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from hwgen.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Entry of a simulator in the registry: its module, and what it can do (read Verilog, run in parallel, ..).

    Parameters
    ----------
    module : str
        Module whose ``SIMULATOR`` is the simulator (`hwgen.simulate.simulator.Simulator`).
    wave_endings : tuple of str
        Endings of the waveform files that the simulator writes. The last one is the default.
    reads_verilog : bool
        Whether the simulator reads emitted Verilog. Otherwise it runs the component itself.
    is_parallel : bool
        Whether simulations of one design run side by side, on this machine or on a cluster.
    selects_waves : bool
        Whether waveforms can be restricted to some frames and layers, and show the values of the layers' streams.
    """

    module: str
    wave_endings: tuple[str, ...]
    reads_verilog: bool = True
    is_parallel: bool = False
    selects_waves: bool = False


_ENTRIES: Mapping[str, Entry] = MappingProxyType(
    {
        "verilator": Entry(
            module="hwgen.simulate.verilator", wave_endings=(".vcd", ".fst"), is_parallel=True, selects_waves=True
        ),
        "icarus": Entry(module="hwgen.simulate.icarus", wave_endings=(".vcd", ".fst")),
        "amaranth": Entry(module="hwgen.simulate.amaranth_sim", wave_endings=(".vcd",), reads_verilog=False),
    }
)
SIMULATORS = tuple(_ENTRIES)
"""Tuple of names of all simulators that hwgen can run, the default first."""
DEFAULT = "verilator"
"""Name of the default simulator, the fastest one."""


def entry(name: str) -> Entry:
    """Return the registry's `Entry` of the simulator called ``name``.

    Raises
    ------
    InputError
        If no simulator has this name.
    """
    if name not in _ENTRIES:
        raise InputError(f"simulator must be one of {', '.join(SIMULATORS)}, not {name!r}")
    return _ENTRIES[name]


def names(able: Callable[[Entry], bool]) -> str:
    """Return, as text for a message, the simulators whose entry satisfies ``able``, joined by "or"."""
    return " or ".join(name for name, simulator in _ENTRIES.items() if able(simulator))
