"""Elementwise function that differs by channel: a lookup memory per lane and pixel, addressed by channel and value."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import memory

from hwgen.errors import ConfigError
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.layer import Elementwise
from hwgen.gateware.lookup import by_bits, delayed, read_port
from hwgen.gateware.value_tables import ValueTables
from hwgen.gateware.weights import Weights


@dataclass(frozen=True, kw_only=True)
class ChannelTableConfig(ValueTables):
    """Configuration of an elementwise function that differs by channel, computed by one lookup table per channel.

    Parameters
    ----------
    window : JoinConfig
        Source of the steps: one input.
    tables : Weights
        Outputs of all input values, from the smallest to the largest, one channel after the other.
    bits, signed : int, bool
        Type of the output.
    tables_in : str, optional
        Memory of the tables, ``lut`` or ``block`` RAM. By default, LUTs if a lane has one channel.

    Raises
    ------
    ConfigError
        If there is not exactly one input, a table does not have one entry per value, or ``tables_in`` is invalid.
    """

    window: JoinConfig
    tables: Weights
    bits: int
    signed: bool
    tables_in: str | None = None

    def __post_init__(self) -> None:
        if not self.window.in_turn or len(self.window.inputs) != 1:
            raise ConfigError(f"window must accept one input, not {len(self.window.inputs)}, and have in_turn set")
        beat = self.window.input
        if len(self.tables) != beat.channels << beat.bits:
            raise ConfigError(
                f"tables must have {beat.channels << beat.bits} entries, {1 << beat.bits} for each of "
                f"{beat.channels} channels, not {len(self.tables)}"
            )
        if self.tables_in not in (None, "lut", "block"):
            raise ConfigError(f"tables_in must be 'lut', 'block' or None, not {self.tables_in!r}")

    @property
    def depth(self) -> int:
        """Number of words in the lookup memory of one lane: an output per channel of the lane and input value."""
        return self.window.input.folds << self.window.input.bits

    @property
    def in_block_ram(self) -> bool:
        """Whether block RAM stores the tables: as ``tables_in`` says, or if too deep for LUTs, or several per lane."""
        if self.tables_in == "lut":
            return self.depth > self.memories.deepest_lut_rom
        return self.tables_in == "block" or self.window.input.folds > 1

    @property
    def latency(self) -> int:
        """Cycles from an input value at ``i`` to its table entry at ``o``. Block RAM uses its output register."""
        return 1 + self.in_block_ram

    def words(self, lane: int) -> list[int]:
        """Return a list of words of one lane's lookup memory: outputs by channel, then by the input's bits.

        If the last beat of a pixel has no channel in the lane, the words are 0.
        """
        beat = self.window.input
        size = 1 << beat.bits
        words: list[int] = []
        for channels in beat.fold_channels:
            first = channels[lane] * size if lane < len(channels) else None
            table = [0] * size if first is None else self.tables.values[first : first + size].tolist()
            words += by_bits(table, signed=beat.signed)
        return words

    @cached_property
    def resources(self) -> Resources:
        cost, beat = Cost(self.device), self.window.input
        for lane in range(self.lanes):
            cost.table(self.words(lane), self.bits, copies=self.window.pixels, block=self.in_block_ram)
        cost.counter(beat.folds)
        cost.ff += self.latency
        if self.in_block_ram:
            cost.ff += self.lanes * self.window.pixels * self.bits
        return cost.resources

    def component(self) -> ChannelTable:
        return ChannelTable(self)


class ChannelTable(Elementwise[ChannelTableConfig]):
    """Component that replaces each value of a feature map by its entry in the lookup table of its channel.

    Parameters
    ----------
    config : ChannelTableConfig

    Members
    -------
    i : In(stream, always ready)
        Steps of a `Join`.
    o : Out(stream, always ready)
        ``Tn x Tp`` values, ``[lane][pixel]``.

    Latency and throughput
        One step per cycle. Values leave ``config.latency`` cycles later. Never stalls.
    """

    def elaborate_shared(self, m: Module) -> None:
        folds = self.config.window.input.folds
        # Each fold of a pixel is one step. Frames consist of whole pixels.
        self._fold = fold = Signal(range(folds), name="fold_index")
        with m.If(self.i.valid):
            m.d.sync += fold.eq(Mux(fold == folds - 1, 0, fold + 1))

    def elaborate_value(self, m: Module, name: str, lane: int, pixel: int) -> Value:
        config = self.config
        style = config.memories.rom_style(config.depth, "block" if config.in_block_ram else "lut")
        m.submodules[f"{name}_table"] = table = memory.Memory(
            shape=config.result, depth=config.depth, init=config.words(lane), attrs=style
        )
        port = read_port(table)
        m.d.comb += port.addr.eq(Cat(self.i.payload.operand[lane][pixel], self._fold))
        return delayed(m, f"{name}_value", port.data, config.latency - 1)
