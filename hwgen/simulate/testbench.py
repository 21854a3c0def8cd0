"""Writer of a self-checking Verilog test bench (`bench.v.j2`), for Icarus and Verilator.

`hwgen.simulate.icarus` runs the same test bench. `hwgen.simulate.job.SimulationJob` defines the events of each cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from jinja2 import PackageLoader

from hwgen.gateware.circuit_ports import Config, input_ports, output_ports
from hwgen.gateware.stream import BeatFormat, Port
from hwgen.rendering import render
from hwgen.simulate.stimuli import Stalls

DRAIN = 64
"""Number of cycles that a test bench simulates after the last expected beat, to detect surplus output beats."""


LOAD = "weights.hex"
"""Name of the test bench's file with the 32-bit words of the weights that are loaded at run time."""
_TEMPLATES = PackageLoader("hwgen.simulate", ".")
_LOAD_PORTS = ("weights__payload", "weights__valid")
"""Tuple of names of the input ports that carry the words of weights loaded at run time."""


def stimulus(index: int, count: int) -> str:
    """Return the name of the file with an input's beats: ``stimulus.hex``, of several ``stimulus_1.hex``."""
    return "stimulus.hex" if count == 1 else f"stimulus_{index}.hex"


def expected(index: int, count: int) -> str:
    """Return the name of the file with an output's expected beats: ``expected.hex``, of several ``expected_1.hex``."""
    return "expected.hex" if count == 1 else f"expected_{index}.hex"


def module(top: str) -> str:
    """Return the name of the test bench's Verilog module for the module ``top``, such as ``digits_tb``.

    The name has no two underscores in a row, which Verilator would replace.
    """
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
    load_words: int = 0,
    check: bool = True,
) -> str:
    """Return the Verilog of a self-checking test bench for a module with streams as inputs and outputs.

    `module` names its module.

    Parameters
    ----------
    top : str
        Name of the module under test.
    inputs, outputs : sequence of Port
        Streams of the module under test.
    frames : int
        Number of frames in the files that `stimulus` and `expected` name, which have one payload per line.
    idle : int
        Number of cycles without a transfer after which the test bench reports a deadlock.
    stalls : Stalls
        Random stalls of the sources and sinks.
    memory : tuple of int
        Latency, rate and queue of the off-chip memory (``simulate.memory.Memory``).
    one_by_one : bool
        Whether a frame is read only when the previous frame has been written.
    reset_at : int
        Number of cycles of a first attempt, which a reset ends. 0 means no first attempt.
    taps : sequence of BeatFormat
        Layer outputs that are written into the results.
    errors : sequence of str
        Names of the ports that report wrong frames. A report fails the test bench.
    ties : mapping of str to int
        Inputs that stay 0, with their widths in bits.
    load_words : int
        Number of 32-bit words in the file `LOAD`, which are loaded before the first frame; 0 for a design that begins
        with its weights.
    check : bool
        Whether outputs are compared with the expected beats.
    """
    return render(
        _TEMPLATES,
        "bench.v",
        top=top,
        module=module(top),
        inputs=_stream_values("i", "input", inputs, stimulus, stalls.sources),
        outputs=_stream_values("o", "output", outputs, expected, stalls.sinks),
        frames=frames,
        idle=idle,
        drain=DRAIN,
        memory=memory,
        one_by_one=one_by_one,
        reset_at=reset_at,
        taps=taps,
        errors=errors,
        ties={name: bits for name, bits in ties.items() if not load_words or name not in _LOAD_PORTS},
        load_words=load_words,
        load_file=LOAD,
        check=check,
    )


def results_key(index: int, count: int) -> str:
    """Return the key of an output's beats in the test bench's results file, ``o`` or ``o1``, also used in its code."""
    return _key("o", index, count)


def _key(letter: str, index: int, count: int) -> str:
    """Return the prefix of the variables of one of ``count`` inputs (``i``) or outputs (``o``) in the test bench."""
    return letter if count == 1 else f"{letter}{index}"


@dataclass(frozen=True)
class _StreamValues:
    """Names, file name, seed and stall threshold that the test bench's template reads for one data stream."""

    port: Port
    index: int
    key: str
    """Prefix of the stream's variables in the test bench, such as ``i`` or ``o1``."""
    label: str
    """Name of the stream in messages of the test bench."""
    file: str
    """Name of the test bench's file with the stream's payloads."""
    seed: str
    """Initial state of the stream's stall generator, as a Verilog constant."""
    stall: int
    """Integer threshold of the stream's stall generator: it stalls if a 24-bit random number is below."""
    stall_prefix: str
    """Prefix of the parameters of the stream's stall generator, such as ``O1_``; empty for an only stream."""

    @property
    def name(self) -> str:
        """Name of the stream's port."""
        return self.port.name

    @property
    def beat(self) -> BeatFormat:
        """Beat format (`BeatFormat`) of the stream."""
        return self.port.beat

    @property
    def prefix(self) -> str:
        """Prefix of the stream's constants in the test bench, such as ``I`` or ``O1``."""
        return self.key.upper()

    @property
    def width(self) -> int:
        """Width of a payload of the stream, in bits."""
        return self.beat.data_bits + 1

    @property
    def signed(self) -> str:
        """Verilog function that signs the stream's values for messages: ``$signed``, or empty."""
        return "$signed" if self.beat.signed else ""

    @property
    def group_channels(self) -> int:
        """Number of channels of each channel group of the stream."""
        return self.beat.channels // self.beat.groups

    @property
    def steps(self) -> int:
        """Number of the stream's beats that carry a given channel of a frame."""
        return self.port.order.steps(self.beat)

    @property
    def row_spans(self) -> int:
        """Number of row intervals in the stream's pixel order."""
        return len(self.port.order.rows)

    @property
    def rows(self) -> str:
        """Row intervals of the stream's pixel order (end, begin), as a Verilog concatenation."""
        return _spans([(end, begin) for begin, end in self.port.order.rows])

    @property
    def column_spans(self) -> int:
        """Number of column intervals in the stream's pixel order."""
        return len(self.port.order.columns)

    @property
    def columns(self) -> str:
        """Column intervals of the stream's pixel order (end, begin, first column), as a Verilog concatenation."""
        order = self.port.order
        firsts = [firsts.start for firsts in order.beat_columns(self.beat.pixels)]
        return _spans([(end, begin, first) for (begin, end), first in zip(order.columns, firsts, strict=True)])


def _stream_values(
    letter: str,
    label: str,
    ports: Sequence[Port],
    file: Callable[[int, int], str],
    stalls: Sequence[tuple[int, int]],
) -> list[_StreamValues]:
    """Return a list of `_StreamValues` (names, files, seeds for the template), one per input or per output stream.

    A single stream has shorter names.
    """
    count = len(ports)
    keys = [_key(letter, index, count) for index in range(count)]
    return [
        _StreamValues(
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
    """Return spans of rows or columns as a Verilog concatenation of 32-bit constants, first span lowest."""
    words = (", ".join(f"{'-' * (value < 0)}32'sd{abs(value)}" for value in span) for span in reversed(spans))
    return "{\n" + ",\n".join(f"        {span}" for span in words) + "}"


def patience(config: Config, stalls: Sequence[float] | None = None, waits: int = 0) -> int:
    """Return the cycles without a transfer after which a simulated accelerator must be deadlocked.

    The bound is twice the sum of the cycles that each layer needs for a frame, plus 2,000 and the words of a load of
    weights. A layer with a shallow FIFO needs more cycles than steps, because each beat waits for the credit of an
    earlier one.

    Parameters
    ----------
    config : AcceleratorConfig
        Configuration of the accelerator.
    stalls : tuple of float, optional
        Probabilities that the source and the sinks stall in a cycle.
    waits : int
        Number of additional cycles for the off-chip memory.
    """
    layers = getattr(config, "layers", ())
    ends = (*input_ports(config), *output_ports(config))
    cycles = sum(layer.cycles + layer.credit_cycles for layer in layers)
    cycles = cycles or 2 * sum(port.beats for port in ends)
    slow = 1.0
    for probability in stalls or ():
        slow /= 1 - probability
    return round((2 * (cycles + waits) + 2000) * slow) + getattr(config, "load_cycles", 0)
