"""A self-checking Verilog test bench (`bench.v.j2`), for Icarus and Verilator.

The same bench serves ``hwgen.simulate.icarus``; what it does in a cycle is written there (``simulate.job.Job``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from hwgen.emit.rendering import render
from hwgen.emit.stimuli import Stalls
from hwgen.emit.verilog import Config, input_ports, output_ports
from hwgen.gateware.stream import BeatFormat, Port

DRAIN = 64
"""Cycles simulated after the last expected beat, in which none may follow."""


def stimulus(index: int, count: int) -> str:
    """Return the file with what goes into one of so many inputs."""
    return "stimulus.hex" if count == 1 else f"stimulus_{index}.hex"


def expected(index: int, count: int) -> str:
    """Return the file with what must come out of one of so many outputs."""
    return "expected.hex" if count == 1 else f"expected_{index}.hex"


def module(top: str) -> str:
    """Name of the test bench of a module: without two underscores side by side, which Verilator writes otherwise."""
    return f"{top.rstrip('_')}_tb"


def bench(
    top: str,
    *,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    frames: int,
    idle: int,
    stalls: Stalls,
    memory: tuple[int, int, int] = (0, 0, 16),
    one_by_one: bool = False,
    reset_at: int = 0,
    taps: Sequence[BeatFormat] = (),
    errors: Sequence[str] = (),
    ties: Mapping[str, int] = MappingProxyType({}),
    check: bool = True,
) -> str:
    """Verilog of the module that ``module`` names.

    Parameters
    ----------
    top : str
        The module to test.
    inputs, outputs : sequence of Port
    frames : int
        Frames in the files that ``stimulus`` and ``expected`` name: one payload a line.
    idle : int
        Cycles without a transfer after which the design is stuck.
    stalls : Stalls
        Of as many sources and sinks as there are inputs and outputs.
    memory : tuple of int
        Latency, rate and queue of the off-chip memory (``simulate.memory.Memory``).
    one_by_one : bool
        Read a frame when the one before is written.
    reset_at : int
        Cycles of a first attempt, before a reset; 0: no such attempt.
    taps : sequence of BeatFormat
        Streams to write into the results.
    errors : sequence of str
        Ports on which wrong frames are told of; there must be none.
    ties : mapping of str to int
        Inputs that stay 0, and their bits.
    check : bool
        Compare with what is expected.
    """
    return render(
        "bench.v",
        top=top,
        module=module(top),
        inputs=_ends("i", "input", inputs, stimulus, stalls.sources),
        outputs=_ends("o", "output", outputs, expected, stalls.sinks),
        frames=frames,
        idle=idle,
        drain=DRAIN,
        memory=memory,
        one_by_one=one_by_one,
        reset_at=reset_at,
        taps=taps,
        errors=errors,
        ties=ties,
        check=check,
    )


def results_key(index: int, count: int) -> str:
    """Return what the beats of one of so many outputs are called in the results; its variables begin with it, too."""
    return _key("o", index, count)


def _key(letter: str, index: int, count: int) -> str:
    return letter if count == 1 else f"{letter}{index}"


@dataclass(frozen=True)
class _End:
    """An input or output as the test bench sees it."""

    port: Port
    index: int
    key: str
    """What its variables begin with."""
    label: str
    """Name in messages."""
    file: str
    """File with its payloads."""
    seed: str
    stall: int
    """Random numbers of 24 bits below this are stalls."""
    stall_prefix: str

    @property
    def name(self) -> str:
        return self.port.name

    @property
    def beat(self) -> BeatFormat:
        return self.port.beat

    @property
    def prefix(self) -> str:
        """What its constants begin with."""
        return self.key.upper()

    @property
    def width(self) -> int:
        """Bits of a payload."""
        return self.beat.data_bits + 1

    @property
    def signed(self) -> str:
        return "$signed" if self.beat.signed else ""

    @property
    def group_channels(self) -> int:
        return self.beat.channels // self.beat.groups

    @property
    def steps(self) -> int:
        """Beats of every fold in a frame."""
        return self.port.order.steps(self.beat)

    @property
    def row_spans(self) -> int:
        return len(self.port.order.rows)

    @property
    def rows(self) -> str:
        return _spans([(end, begin) for begin, end in self.port.order.rows])

    @property
    def column_spans(self) -> int:
        return len(self.port.order.columns)

    @property
    def columns(self) -> str:
        order = self.port.order
        firsts = [firsts.start for firsts in order.beat_columns(self.beat.pixels)]
        return _spans([(end, begin, first) for (begin, end), first in zip(order.columns, firsts, strict=True)])


def _ends(
    letter: str,
    label: str,
    ports: Sequence[Port],
    file: Callable[[int, int], str],
    stalls: Sequence[tuple[int, int]],
) -> list[_End]:
    """Return all inputs or all outputs; names of a single one are shorter."""
    count = len(ports)
    keys = [_key(letter, index, count) for index in range(count)]
    return [
        _End(
            port=port,
            index=index,
            key=key,
            label=label if count == 1 else f"{label} {port.name}",
            file=file(index, count),
            seed=f"32'h{seed:08x}",
            stall=stall,
            stall_prefix="" if count == 1 else f"{key.upper()}_",
        )
        for index, (key, port, (seed, stall)) in enumerate(zip(keys, ports, stalls, strict=True))
    ]


def _spans(spans: Sequence[tuple[int, ...]]) -> str:
    """Return spans as the parts of a vector, the first in its lowest bits."""
    words = (", ".join(f"{'-' * (value < 0)}32'sd{abs(value)}" for value in span) for span in reversed(spans))
    return "{\n" + ",\n".join(f"        {span}" for span in words) + "}"


def patience(config: Config, stalls: Sequence[float] | None = None, waits: int = 0) -> int:
    """Cycles without a transfer that no working design needs: those of a frame in all layers, one after the other.

    A layer with a shallow FIFO takes longer than its steps: each beat waits for the credit of one before.

    Parameters
    ----------
    config : AcceleratorConfig
    stalls : tuple of float, optional
        Probabilities that source and sinks stall in a cycle.
    waits : int
        Cycles that the off-chip memory may take on top.
    """
    layers = getattr(config, "layers", ())
    ends = (*input_ports(config), *output_ports(config))
    cycles = sum(layer.cycles + layer.credit_cycles for layer in layers)
    cycles = cycles or 2 * sum(port.beats for port in ends)
    slow = 1.0
    for probability in stalls or ():
        slow /= 1 - probability
    return round((2 * (cycles + waits) + 2000) * slow)
