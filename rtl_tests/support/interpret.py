"""Interpreter of an engine's program: runs its jobs on bytes, field by field as documented, and checks its accesses.

The units of an engine walk the jobs each at its own pace, held back by the waits alone. The interpreter goes through
them job by job, which is one of many orders in time, and refuses whatever another order could change: a place that is
loaded while a job that reads it may not have been computed, a map that is read before it must have been stored, a
place in the output buffer that is drained into before it must have been stored, parameters that are loaded while a
job that needs them may not have been drained. It also refuses words that were never loaded or stored, sums beyond
their bits, and groups without a slot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import fixed_programs
import numpy as np

from hwgen.errors import CheckError
from hwgen.gateware.arithmetic.shares import FRACTION
from hwgen.gateware.engine.config import CHAIN, LANES, TABLE_WORDS, EngineConfig, Variant
from hwgen.gateware.engine.finish import ACTIVATION
from hwgen.gateware.engine.fixed_unit import LOOKUP_TABLE, PROGRAM_TABLE, Arrival
from hwgen.gateware.engine.job import PARTS, Compute, Drain, Job, Load, Store
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.network.maps import Requantisation, requantise
from hwgen.program.compile import schedule
from hwgen.program.file import Program
from hwgen.program.jobs import ADDRESSES
from hwgen.program.layout import WORD, unpack_map
from hwgen.program.tiles import MAX_PIXELS
from hwgen.schedule.engine import EngineSchedule

_NEVER = -1
#: Number of look-up tables: the tables of additions, and one table of outputs.
TABLES = ACTIVATION + 1
_BOUND = 1 << 33
"""Integer larger than any sum with its bias."""


def unpack_parameters(words: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unpack 64-bit parameter words of output channels to bias, significand and shift, int64 each."""
    bias = (words & np.uint64(0xFFFFFFFF)).astype(np.uint32).astype(np.int32).astype(np.int64)
    significand = (words >> np.uint64(32) & np.uint64(0xFFFFFF)).astype(np.int64)
    return bias, significand, (words >> np.uint64(56)).astype(np.int64)


def outputs(program: Program, *frame: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the network's outputs, each ``(C, H, W)``, for one frame of each input; errors as of `run_outputs`."""
    return tuple(each[0] for each in run_outputs(program, *(values[None] for values in frame)))


def run_outputs(program: Program, *frames: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the outputs of a run, each ``(n, C, H, W)``, for as many frames of each input as the program has.

    Raises
    ------
    CheckError
        If a job asks for what an engine may not have then.
    """
    memory, written = np.zeros(program.size, np.uint8), np.zeros(program.size // WORD, bool)
    regions = [(slice(0, len(program.image)), program.image)]
    regions += [
        (region.at(number), region.pack(frame))
        for region, values in zip(program.inputs, frames, strict=True)
        for number, frame in enumerate(values)
    ]
    for place, data in regions:
        memory[place] = np.frombuffer(data, np.uint8)
        written[place.start // WORD : place.stop // WORD] = True
    (Cores if program.engine.has_cores else Interpreter)(program.engine, memory, written).run()
    return tuple(
        np.stack([unpack_map(memory[each.at(number)].tobytes(), each.map) for number in range(program.batch)])
        for each in program.outputs
    )


def jobs(memory: np.ndarray, base: int, variant: Variant = Variant.ONE_CORE) -> Iterator[Job]:
    """Yield the jobs of the program at an address, up to its last job.

    Raises
    ------
    CheckError
        If it has none.
    """
    size = sum(part.num_words(variant) for part in PARTS.values()) * WORD + WORD
    for address in range(base, len(memory) - size + 1, size):
        job = Job.unpack(memory[address : address + size].tobytes(), variant)
        yield job
        if job.load.end:
            return
    raise CheckError(f"the program at {base:#x} must end within the memory's {len(memory):,} bytes")


def is_fixed(job: Job) -> bool:
    """Return whether a job's sums go to the fixed unit."""
    return bool(job.drain.blocks and job.drain.add and job.drain.multiply)


class Interpreter:
    """An engine and its memory.

    Parameters
    ----------
    engine : EngineConfig
    memory : ndarray
        uint8, from address 0 on; changed in place.
    written : ndarray of bool
        Which words of 8 bytes of the memory hold something.

    Places in the engine's buffers count modulo their depths.
    """

    def __init__(self, engine: EngineConfig, memory: np.ndarray, written: np.ndarray) -> None:
        self.engine, self.memory, self.written = engine, memory, written
        banks = engine.pixels, engine.map_words
        self._maps, self._map_readers = np.zeros((*banks, LANES), np.int8), np.full(banks, _NEVER)
        self._map_known = np.zeros(banks, bool)
        self._weights = np.zeros((engine.weight_steps, CHAIN, engine.maps), np.int64)
        self._weight_readers = np.full(engine.weight_steps, _NEVER)
        self._weight_known = np.zeros(engine.weight_steps, bool)
        self._parameters = np.zeros((engine.parameter_words, LANES), np.uint64)
        self._parameter_readers = np.full(engine.parameter_words, _NEVER)
        self._parameter_known = np.zeros((engine.parameter_words, LANES), bool)
        num_tables = 2 * LOOKUP_TABLE if engine.has_fixed_unit else TABLES
        self._tables = np.zeros(num_tables * TABLE_WORDS, np.int64)
        self._table_readers = np.full(num_tables, _NEVER)
        self._table_known = np.zeros(num_tables * TABLE_WORDS, bool)
        self._slots: dict[int, np.ndarray] = {}  # of the fixed unit's register file
        self._addends = np.zeros((engine.addend_words, LANES), np.int8)
        self._addend_readers = np.full(engine.addend_words, _NEVER)
        self._addend_known = np.zeros(engine.addend_words, bool)
        self._output = np.zeros((engine.output_words, LANES), np.int8)
        self._output_readers = np.full(engine.output_words, _NEVER)
        self._output_known = np.zeros(engine.output_words, bool)
        self._writers = np.full(len(memory) // WORD, _NEVER)
        # Of the map memory: its bytes, which words hold something, and which job wrote each.
        kept = engine.kept_words
        self._kept = np.zeros(kept * WORD, np.uint8), np.zeros(kept, bool), np.full(kept, _NEVER)
        self._sums = np.zeros((0, 0, engine.maps), np.int64)  # by fold, pixel and map
        self._now = self._computed = self._stored = self._drain_stored = 0
        self._last_drains = [0]  # of so many stored jobs, how many have been computed for sure
        self._walked: tuple[int, ...] | None = None
        self._open = False
        self.needed = MAX_PIXELS  # pixels of a tile from here on may read anything

    def run(self, base: int = 0) -> int:
        """Do all jobs of the program at an address; how many there were.

        Raises
        ------
        CheckError
            If a job asks for what an engine may not have then; it says which, and what.
        """
        count = 0
        for count, job in enumerate(list(jobs(self.memory, base, self.engine.variant)), start=1):
            self.begin(count - 1, job.drain)
            self.load(job.load)
            self.needed = job.drain.pixels if is_fixed(job) else MAX_PIXELS
            self.compute(job.compute, job.drain)
            self.store(job.drain, job.store)
        self.end()
        return count

    def begin(self, number: int, drain: Drain) -> None:
        self._now = number
        self._last_drains.append(number + 1 if drain.blocks else self._last_drains[-1])

    def compute(self, compute: Compute, drain: Drain) -> None:
        self._compute(compute)
        self._drain(compute, drain)

    def pass_by(self, compute: Compute, drain: Drain) -> None:
        """Leave a job out, whose results nobody needs. Later drains follow its drain, and what it waits for."""
        if drain.blocks:
            self._drain_stored = max(self._drain_stored, drain.wait_stored, self._stored)
        if compute.groups and compute.walk:
            self._walked = compute.stride, compute.columns, compute.wrap_words

    def forget(self) -> None:
        """Leave the outputs that are not stored."""
        self._output_known[:] = False

    def end(self) -> None:
        if self._open:
            raise self._wrong("sums are left that no job completes")

    def _wrong(self, what: str) -> CheckError:
        return CheckError(f"job {self._now}: {what}")

    def _fetch(self, addresses: np.ndarray, what: str, *, kept: int = 0) -> np.ndarray:
        """Return the words at these addresses, uint8 ``(..., 8)``. Refuse words that might not have been stored yet.

        With ``kept``, the addresses are in the map memory.
        """
        memory, written, writers = self._kept if kept else (self.memory, self.written, self._writers)
        addresses = addresses % ADDRESSES
        if (addresses % WORD).any() or addresses.min() < 0 or addresses.max() + WORD > len(memory):
            raise self._wrong(f"{what}: addresses must be multiples of {WORD} within the memory")
        words = addresses // WORD
        if not written[words].all():
            raise self._wrong(f"{what}: the word at {int(addresses[~written[words]].min()):#x} was never written")
        if (writers[words] >= self._stored).any():
            late = int(writers[words].max())
            raise self._wrong(f"{what}: job {late} may not have stored it; only {self._stored} jobs must have been")
        return memory.reshape(-1, WORD)[words]

    def _replace(self, readers: np.ndarray, done: int, what: str) -> None:
        """Refuse to overwrite what a job reads that may not have come so far."""
        if readers.size and readers.max() >= done:
            raise self._wrong(f"{what}: job {int(readers.max())} may still read what lies there; {done} must be done")

    def load(self, load: Load) -> None:
        if load.wait_computed > self._now or load.wait_stored > self._now:
            raise self._wrong("it waits for itself or for a later job")
        self._computed = max(self._computed, load.wait_computed, self._last_drains[load.wait_stored])
        self._stored = max(self._stored, load.wait_stored)
        if load.x_blocks and load.addend:
            self._load_addend(load)
        elif load.x_blocks:
            self._load_box(load)
        if load.w_steps:
            self._load_weights(load)
        if load.p_words:
            self._load_parameters(load)

    def _load_box(self, load: Load) -> None:
        pixels = self.engine.pixels
        rows, columns = np.arange(load.x_rows)[:, None], np.arange(load.x_words)
        position = load.x_first + rows * (load.x_pitch_words * pixels + load.x_pitch_rest) + columns
        if (load.x_blocks - 1) * load.x_plane + position.max() // pixels >= self.engine.map_words:
            raise self._wrong(f"its map must fit {self.engine.map_words} words of each bank")
        for block in range(load.x_blocks):
            start = load.x_address + block * load.x_block_stride
            words = self._fetch(start + rows * load.x_row_stride + columns * WORD, "its map", kept=load.x_kept)
            bank = position % pixels
            place = (load.x_base + block * load.x_plane + position // pixels) % self.engine.map_words
            self._replace(self._map_readers[bank, place], self._computed, "its map")
            self._maps[bank, place] = words.view(np.int8)
            self._map_known[bank, place] = True

    def _load_addend(self, load: Load) -> None:
        rows, columns = np.arange(load.x_rows)[:, None], np.arange(load.x_words)
        if load.x_first or load.x_pitch_rest:
            raise self._wrong("the buffer of what is added has one bank")
        for block in range(load.x_blocks):
            start = load.x_address + block * load.x_block_stride
            words = self._fetch(start + rows * load.x_row_stride + columns * WORD, "what is added", kept=load.x_kept)
            places = load.x_base + block * load.x_plane + rows * load.x_pitch_words + columns
            places = places % self.engine.addend_words
            self._replace(self._addend_readers[places], self._stored, "what is added")
            self._addends[places], self._addend_known[places] = words.view(np.int8), True

    def _load_weights(self, load: Load) -> None:
        if load.w_steps > self.engine.weight_steps:
            raise self._wrong(f"its {load.w_steps} steps of weights must fit {self.engine.weight_steps}")
        places = (load.w_base + np.arange(load.w_steps)) % self.engine.weight_steps
        count = load.w_steps * self.engine.maps * CHAIN // WORD
        words = self._fetch(load.w_address + np.arange(count) * WORD, "its weights")
        self._replace(self._weight_readers[places], self._computed, "its weights")
        fields = words.view(np.int8).reshape(load.w_steps, CHAIN, self.engine.maps).astype(np.int64)
        fields[:, :, 1::2] += fields[:, :, ::2] < 0  # a negative lower field borrows from the upper one
        self._weights[places], self._weight_known[places] = fields, True

    def _load_parameters(self, load: Load) -> None:
        number = np.arange(load.p_words)
        if load.tables:
            self._load_tables(load, number)
            return
        if load.p_words > self.engine.parameter_words * LANES:
            raise self._wrong(f"its parameters must fit {self.engine.parameter_words} blocks")
        places = (load.p_base + number // LANES) % self.engine.parameter_words
        words = self._fetch(load.p_address + number * WORD, "its parameters")
        self._replace(self._parameter_readers[places], self._stored, "its parameters")
        self._parameters[places, number % LANES] = words.view("<u8")[:, 0]
        self._parameter_known[places, number % LANES] = True

    def _load_tables(self, load: Load, number: np.ndarray) -> None:
        places = load.p_base * TABLE_WORDS + number
        if places[-1] >= len(self._tables):
            raise self._wrong(f"its tables reach entry {places[-1]} of {len(self._tables)}")
        words = self._fetch(load.p_address + number * WORD, "its tables")
        self._replace(self._table_readers[places // TABLE_WORDS], self._stored, "its tables")
        self._tables[places], self._table_known[places] = words.view("<i8")[:, 0], True

    def _look_up(self, number: int, index: np.ndarray) -> np.ndarray:
        """Entries of a table, by the 8 lowest bits."""
        places = number * TABLE_WORDS + (index & TABLE_WORDS - 1)
        if not self._table_known[places].all():
            raise self._wrong(f"table {number} must have been loaded")
        self._table_readers[number] = self._now
        return self._tables[places]

    def _places(self, compute: Compute) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, columns and words of all lanes, each ``(groups, pixels)``, walked as the circuit does."""
        pixels, stride = self.engine.pixels, compute.stride
        rows, columns, words = (np.zeros((compute.groups, pixels), np.int64) for _ in range(3))
        row = column = word = rest = 0
        for lane in range(pixels):
            rows[0, lane], columns[0, lane], words[0, lane] = row, column, word
            column, rest = column + stride, rest + stride
            if rest >= pixels:
                rest, word = rest - pixels, word + 1
            if column >= compute.columns:
                column, row, word = column - compute.columns, row + stride, word + compute.wrap_words
        for group in range(1, compute.groups):
            column = columns[group - 1] + compute.group_columns
            wraps = column >= compute.columns
            columns[group] = column - wraps * compute.columns
            rows[group] = rows[group - 1] + compute.group_rows + wraps * stride
            words[group] = words[group - 1] + compute.group_words + wraps * compute.wrap_words
        return rows + compute.origin_row, columns + compute.origin_column, words

    def _compute(self, compute: Compute) -> None:
        if not compute.groups:
            return
        self._check_compute(compute)
        folds = [self._fold_values(compute, fold) for fold in range(compute.folds if compute.channelwise else 1)]
        count = folds[0].shape[1] if compute.channelwise else folds[0].shape[1] // CHAIN
        places = (compute.w_base + np.arange(compute.folds * count)) % self.engine.weight_steps
        if len(places) > self.engine.weight_steps or not self._weight_known[places].all():
            raise self._wrong(f"{len(places)} steps of weights from {compute.w_base} on must have been loaded")
        self._weight_readers[places] = self._now
        weights = self._weights[places].reshape(compute.folds, count, CHAIN, -1)
        if (weights[..., ::2] == -128).all(axis=2).any():
            raise self._wrong("a lower field of the array's sums must not have four products by -128")
        if compute.channelwise:
            sums = np.array([self._channelwise(compute, *each) for each in zip(folds, weights, strict=True)])
        else:
            matrix = weights.reshape(compute.folds, -1, self.engine.maps).astype(np.float64)
            sums = (folds[0].astype(np.float64) @ matrix).astype(np.int64)
        if not compute.first:
            sums = sums + self._sums
        half = 1 << self.engine.sum_bits - 1
        if sums.min() < -half or sums.max() >= half:
            raise self._wrong(f"its sums, from {sums.min()} to {sums.max()}, must fit {self.engine.sum_bits} bits")
        self._sums, self._open = sums, not compute.last

    def _check_compute(self, compute: Compute) -> None:
        pixels = self.engine.pixels
        if compute.first == self._open:
            raise self._wrong("sums must begin where those before are complete, and nowhere else")
        if not compute.first and self._sums.shape[:2] != (compute.folds, compute.groups * pixels):
            raise self._wrong(f"its sums must be those of the job before, {self._sums.shape[1] // pixels} groups")
        groups = compute.groups * compute.folds
        if groups > self.engine.slots and not (compute.first and compute.last):
            raise self._wrong(f"its {groups} groups must fit {self.engine.slots} slots")
        if compute.maximum and not (compute.channelwise and compute.first):
            raise self._wrong("a maximum must be channelwise, and in one job")
        walked = compute.stride, compute.columns, compute.wrap_words
        if not compute.walk and walked != self._walked:
            raise self._wrong("lanes must be walked anew where the geometry differs")
        self._walked = walked

    def _fold_values(self, compute: Compute, fold: int) -> np.ndarray:
        """Return values that the lanes read, int8 ``(groups * pixels, 4 * steps)``; ``(.., steps, 8)`` if channelwise.

        All folds read the same values, unless the job is channelwise.
        """
        pixels, rows, columns, words = self.engine.pixels, *self._places(compute)
        lane_rest = compute.stride * np.arange(pixels) % pixels
        count = -(-compute.channels // LANES)
        values = np.empty((*rows.shape, count, compute.kernel_rows, compute.kernel_columns, LANES), np.int8)
        for block in range(count):
            for y in range(compute.kernel_rows):
                for x in range(compute.kernel_columns):
                    tap = (compute.start_words + (fold + block) * compute.plane) * pixels + compute.start_rest
                    tap += y * (compute.row_words * pixels + compute.row_rest)
                    tap += x * (compute.column_words * pixels + compute.column_rest)
                    position = lane_rest + tap
                    bank, place = position % pixels, words + position // pixels
                    row, column = rows + y * compute.dilation_rows, columns + x * compute.dilation_columns
                    inside = (row >= 0) & (row < compute.in_rows) & (column >= 0) & (column < compute.in_columns)
                    values[:, :, block, y, x] = self._read(compute, bank, place, inside)
        flat = values.reshape(rows.size, -1, LANES)
        if compute.channelwise:
            return flat
        steps = values.reshape(rows.size, count, -1, LANES)
        whole, rest = divmod(-(-compute.channels // CHAIN), LANES // CHAIN)
        parts = [steps[:, :whole].reshape(rows.size, -1), steps[:, whole:, :, : rest * CHAIN].reshape(rows.size, -1)]
        return np.concatenate(parts, axis=1)

    def _read(self, compute: Compute, bank: np.ndarray, place: np.ndarray, inside: np.ndarray) -> np.ndarray:
        """Words ``(groups, pixels, 8)``, or ``pad`` where a tap lies outside the box."""
        words = place % self.engine.map_words
        bank = np.broadcast_to(bank, words.shape)
        inside = inside & (np.arange(inside.size).reshape(inside.shape) < self.needed)
        if not self._map_known[bank[inside], words[inside]].all():
            raise self._wrong("a lane reads a word of the map buffer that was never loaded")
        self._map_readers[bank[inside], words[inside]] = self._now
        return np.where(inside[..., None], self._maps[bank, words], np.int8(compute.pad))

    def _channelwise(self, compute: Compute, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return sums ``(groups * pixels, maps)`` of values ``(groups * pixels, steps, 8)``.

        The first four maps add products of channels 0 to 3, the next four those of channels 4 to 7.
        """
        sums = np.zeros((len(values), self.engine.maps), np.int64)
        for first in range(0, LANES, CHAIN):
            own = slice(first, first + CHAIN)
            products = np.einsum("psk,skm->psm", values[..., own].astype(np.int64), weights[..., own])
            sums[:, own] = products.max(axis=1) if compute.maximum else products.sum(axis=1)
        return sums

    def _drain(self, compute: Compute, drain: Drain) -> None:
        if bool(drain.blocks) != bool(compute.groups and compute.last):
            raise self._wrong("complete sums must be drained, and no others")
        if not drain.blocks:
            return
        if drain.wait_stored > self._now:
            raise self._wrong("its drain waits for itself or for a later job")
        self._drain_stored = max(self._drain_stored, drain.wait_stored, self._stored)
        if not (compute.groups - 1) * self.engine.pixels < drain.pixels <= compute.groups * self.engine.pixels:
            raise self._wrong(f"{drain.pixels} pixels must be those of {compute.groups} groups")
        size = 1 if compute.channelwise else self.engine.blocks
        if drain.channelwise != compute.channelwise or -(-drain.blocks // size) != compute.folds:
            raise self._wrong(f"it drains {drain.blocks} blocks of {compute.folds} folds of {size}")
        if drain.add and drain.multiply:
            self._drain_to_fixed_unit(drain)
            return
        for block in range(drain.blocks):
            fold, own = divmod(block, size)
            words = self._requantised(drain, block, self._sums[fold, : drain.pixels, own * LANES : (own + 1) * LANES])
            words = self._added(drain, block, words) if drain.add else words
            if drain.table:
                words = self._look_up(ACTIVATION, words)
            words = self._pooled(drain, words) if drain.pool else words
            places = drain.o_base + block * drain.o_plane + np.arange(len(words))
            places = places % self.engine.output_words
            if self._output_known[places].any():
                raise self._wrong("it drains into words of the output buffer that no job has stored")
            self._write_outputs(places, words)

    def _write_outputs(self, places: np.ndarray, words: np.ndarray) -> None:
        self._replace(self._output_readers[places], self._drain_stored, "its outputs")
        self._output[places] = words
        self._output_known[places] = True

    def _drain_to_fixed_unit(self, drain: Drain) -> None:
        """Put a job's sums into a slot of the fixed unit, and execute the program if the job has instructions."""
        pixels, pitch = drain.pixels, 1 << drain.low
        if pixels > pitch or (drain.columns + 1) * pitch > self.engine.fixed_words or drain.high != drain.blocks - 1:
            raise self._wrong("a slot of the fixed unit must hold its sums")
        arriving = self._sums[: drain.blocks, :pixels, :LANES].astype(object)
        values = np.zeros(arriving.shape[1:], object)
        for place, of_byte in enumerate(arriving):
            inverted = place > 0 or drain.zero_point == Arrival.UNSIGNED_BYTES
            byte = np.vectorize(lambda value, inverted=inverted: value + 128 if inverted else value, otypes=[object])
            values = of_byte if drain.zero_point == Arrival.SUMS else values * 256 + byte(of_byte)
        self._slots[drain.columns] = values
        if not drain.a_zero_point:
            return
        words = self._tables[PROGRAM_TABLE * TABLE_WORDS :][: drain.a_zero_point].tolist()
        self._table_readers[PROGRAM_TABLE] = self._now
        if fixed_programs.looks_up(words):
            self._table_readers[LOOKUP_TABLE:] = self._now
        places = (drain.p_base + np.arange(fixed_programs.num_constants(words))) % self.engine.parameter_words
        if not self._parameter_known[places].all():
            raise self._wrong("the constants of its program must have been loaded")
        self._parameter_readers[places] = self._now
        lookups = self._tables[LOOKUP_TABLE * TABLE_WORDS :][: self.engine.lookup_words].tolist()
        written = fixed_programs.run(words, self._slots, self._parameters[places].astype(object), lookups, drain.a_base)
        places = np.array(sorted({place for place, _ in written}))
        outputs = [[written[place, lane] for lane in range(LANES)] for place in places.tolist()]
        self._write_outputs((drain.o_base + places) % self.engine.output_words, np.array(outputs))
        self._slots.clear()

    def _added(self, drain: Drain, block: int, values: np.ndarray) -> np.ndarray:
        """Return sums of values and addends, int64 ``(pixels, 8)``.

        Tables give the share of each operand, and the fraction from which a sum is rounded up.
        """
        total = self._look_up(0, values) + self._look_up(1, self._operands(drain, block))
        whole, fraction = total >> FRACTION, total & (1 << FRACTION) - 1
        rounded = whole + (fraction >= self._look_up(2, whole))
        return np.clip(rounded + drain.a_zero_point, drain.a_low, drain.a_high)

    def _operands(self, drain: Drain, block: int) -> np.ndarray:
        """Return the values of the map that is added or multiplied, int64 ``(pixels, 8)``; ``(1, 8)`` of one pixel."""
        pixels = 1 if drain.one_pixel else drain.pixels
        places = (drain.a_base + block * pixels + np.arange(pixels)) % self.engine.addend_words
        if not self._addend_known[places[: self.needed]].all():
            raise self._wrong("what is added must have been loaded")
        self._addend_readers[places] = self._now
        return self._addends[places].astype(np.int64)

    def _pooled(self, drain: Drain, words: np.ndarray) -> np.ndarray:
        """Return the maximum of each 2 x 2 pixels. A last odd row or column is dropped."""
        rows, columns = len(words) // max(drain.columns, 1), drain.columns
        if rows * columns != len(words) or min(rows, columns) < 2:
            raise self._wrong(f"{len(words)} pixels must be rows of {columns}, two or more of two or more")
        fold_blocks = 1 if drain.channelwise else min(self.engine.blocks, drain.blocks)
        if columns // 2 * fold_blocks > self.engine.pool_words:
            raise self._wrong(f"{columns // 2} pixels of {fold_blocks} blocks must fit the pool's memory")
        even = words.reshape(rows, columns, -1)[: rows // 2 * 2, : columns // 2 * 2]
        return even.reshape(rows // 2, 2, columns // 2, 2, -1).max(axis=(1, 3)).reshape(-1, even.shape[-1])

    def _requantised(self, drain: Drain, block: int, sums: np.ndarray) -> np.ndarray:
        place = (drain.p_base + block) % self.engine.parameter_words
        if not self._parameter_known[place].all():
            raise self._wrong(f"block {place} of the parameters must have been loaded")
        self._parameter_readers[place] = self._now
        bias, significand, shift = unpack_parameters(self._parameters[place])
        rule = Requantisation(
            significand=significand,
            shift=shift,
            zero_point=drain.zero_point,
            low=drain.low,
            high=drain.high,
            float32=True,
        )
        if drain.multiply:
            if drain.add:
                raise self._wrong("a map must be added or multiplied, not both")
            if sums.min() < -128 or sums.max() > 127:
                raise self._wrong(f"sums to be multiplied must fit 8 bits, not be {sums.min()} to {sums.max()}")
            sums = (sums - drain.a_low) * (self._operands(drain, block) - drain.a_zero_point)
        return requantise(sums.T + bias[:, None], rule, _BOUND).T

    def store(self, drain: Drain, store: Store) -> None:
        if not store.blocks:
            return
        rows, columns = np.arange(store.rows)[:, None], np.arange(store.words)
        for block in range(store.blocks):
            places = store.o_base + block * store.o_plane + rows * store.words + columns
            places = places % self.engine.output_words
            if not self._output_known[places].all():
                raise self._wrong("it stores words that were never drained")
            self._output_readers[places] = self._now
            self._output_known[places] = False
            addresses = store.address + block * store.block_stride + rows * store.row_stride + columns * WORD
            memory, written, writers = self._kept if store.kept else (self.memory, self.written, self._writers)
            if (addresses % WORD).any() or addresses.max() + WORD > len(memory):
                raise self._wrong("its outputs must lie within the memory, at multiples of 8")
            words = addresses // WORD
            memory.reshape(-1, WORD)[words] = self._output[places].view(np.uint8)
            written[words], writers[words] = True, self._now


def _drained(drain: Drain, blocks: int) -> Drain:
    """Return the drain of a core that stores ``blocks`` blocks at most."""
    return replace(drain, blocks=min(drain.blocks, blocks))


class Cores:
    """An engine of several cores, each an interpreter that sees its own share of every job, and their memory.

    A core computes only tiles of which it stores something. Pixels that it does not store may read anything. Parameters
    are those of `Interpreter`.
    """

    def __init__(self, engine: EngineConfig, memory: np.ndarray, written: np.ndarray) -> None:
        self.engine, self.memory = engine, memory
        one = replace(engine, cores=1)
        self._cores = [Interpreter(one, memory, written) for _ in range(engine.cores)]
        for core in self._cores[1:]:
            core._writers = self._cores[0]._writers  # as the memory, one for all

    def run(self, base: int = 0) -> int:
        """Do all jobs of the program at an address; how many there were. Errors are those of `Interpreter.run`."""
        found = list(jobs(self.memory, base, Variant.CORES))
        tile_ends, end = [0] * len(found), len(found) - 1
        for number in reversed(range(len(found))):
            end = number if found[number].store.blocks else end
            tile_ends[number] = end
        for number, (job, end) in enumerate(zip(found, tile_ends, strict=True)):
            for index, core in enumerate(self._cores):
                self._check(number, job)
                core.begin(number, job.drain)
                for load in self._loads(job.load, index):
                    core.load(load)
                stores, whole = self._stores(found[end].store, index), found[end].store.rows
                if not stores:
                    core.pass_by(job.compute, job.drain)
                    continue
                core.needed = found[end].drain.pixels * stores[0].rows // whole
                if is_fixed(job):
                    core.needed = min(core.needed, job.drain.pixels)
                team = index >> job.compute.members
                own = replace(job.compute, origin_row=job.compute.origin_row + team * job.compute.row_advance)
                # Of other folds it stores nothing. For the fixed unit, folds are bytes of values.
                folds = own.folds if is_fixed(job) else min(own.folds, stores[0].blocks)
                core.compute(replace(own, folds=folds), _drained(job.drain, folds))
            for index, core in enumerate(self._cores):
                for store in self._stores(job.store, index):
                    core.store(_drained(job.drain, store.blocks), store)
                core.forget()  # rows beyond the map
        for core in self._cores:
            core.end()
        return len(found)

    def _check(self, number: int, job: Job) -> None:
        """Refuse teams of cores that the engine doesn't have, and parts that are divided in other ways."""
        for teams, members in ((job.load.x_teams, job.load.members), (job.store.teams, job.store.members)):
            if max(teams, 1) << members > self.engine.cores:
                raise CheckError(f"job {number}: {teams} teams of {1 << members} cores must be an engine's")
        if job.store.blocks and job.compute.groups and job.store.members != job.compute.members:
            raise CheckError(f"job {number}: it stores {job.store.members} and computes {job.compute.members}")
        if is_fixed(job):
            return
        if job.store.blocks and -(-job.store.blocks >> job.store.members) != job.drain.blocks:
            raise CheckError(f"job {number}: {job.drain.blocks} blocks of each core must be {job.store.blocks} in all")

    def _loads(self, load: Load, core: int) -> list[Load]:
        """Return the loads of a single core that do what ``load`` does for core ``core``."""
        team, member, members = core >> load.members, core % (1 << load.members), 1 << load.members
        waits = Load(wait_computed=load.wait_computed, wait_stored=load.wait_stored)
        found = [waits]
        if load.x_blocks and team < (load.x_teams or self.engine.cores):
            found += self._box(load, waits, team, *((member, members) if load.x_dealt else (0, 1)))
        if load.w_steps:
            size = load.w_steps * self.engine.weight_words * WORD
            blocks = range(member, load.w_blocks, members) if load.w_blocks else range(1)
            for place, block in enumerate(blocks):
                base = (load.w_base + place * load.w_steps) % (1 << 16)
                address = load.w_address + block * size
                found.append(replace(waits, w_address=address, w_steps=load.w_steps, w_base=base))
        if load.p_words:
            words = LANES if load.p_dealt else load.p_words
            blocks = range(member, load.p_words // LANES, members) if load.p_dealt else range(1)
            for place, block in enumerate(blocks):
                own = {"p_address": load.p_address + block * LANES * WORD, "p_base": (load.p_base + place) % (1 << 8)}
                found.append(replace(waits, p_words=words, tables=load.tables, **own))
        return found

    def _box(self, load: Load, waits: Load, team: int, first: int, step: int) -> list[Load]:
        """Return the load of a team's box: every ``step``-th block from ``first`` on, and the rows in the map."""
        blocks, pixels = len(range(first, load.x_blocks, step)), self.engine.pixels
        top = load.x_top + team * load.x_advance
        begin, end = (max(-top, 0), min(load.x_height - top, load.x_rows)) if load.x_height else (0, load.x_rows)
        if not blocks or end <= begin:
            return []
        position = load.x_base * pixels + load.x_first + begin * (load.x_pitch_words * pixels + load.x_pitch_rest)
        place = {"x_base": position // pixels % (1 << 15), "x_first": position % pixels}
        if load.addend:
            place = {"x_base": (load.x_base + begin * load.x_pitch_words) % (1 << 15), "x_first": 0}
        names = ("addend", "x_row_stride", "x_words", "x_pitch_words", "x_pitch_rest", "x_plane")
        address = load.x_address + (team * load.x_team_stride if load.x_teams else 0)
        address += first * load.x_block_stride + begin * load.x_row_stride
        own = {name: getattr(load, name) for name in names} | place
        own |= {"x_blocks": blocks, "x_rows": end - begin, "x_block_stride": step * load.x_block_stride}
        return [replace(waits, x_address=address % ADDRESSES, **own)]

    def _stores(self, store: Store, core: int) -> list[Store]:
        """Return the stores of a single core that do what ``store`` does for core ``core``: one, or none."""
        team, member, members = core >> store.members, core % (1 << store.members), 1 << store.members
        blocks, top = len(range(member, store.blocks, members)), store.top + team * store.advance
        rows = min(store.rows, store.height - top) if store.height else store.rows
        if team >= max(store.teams, 1) or not blocks or rows <= 0:
            return []
        address = store.address + team * store.team_stride + member * store.block_stride
        own = {"blocks": blocks, "rows": rows, "address": address, "block_stride": members * store.block_stride}
        own |= {name: getattr(store, name) for name in ("o_base", "o_plane", "row_stride", "words")}
        return [Store(**own)]


def check_network(network: Network, engine: EngineConfig, seed: int = 0, frames: int = 1) -> None:
    """Check that a program's outputs equal the golden model's, and that its jobs come to an end."""
    made = schedule(network, engine, side_by_side=False, frames=frames)
    rng = np.random.default_rng(seed)
    given_frames = [
        rng.integers(each.type.minimum, each.type.maximum, (frames, *each.shape), endpoint=True).astype(each.type.dtype)
        for each in network.input_maps
    ]
    found = run_outputs(made.program, *given_frames)
    for values, expected in zip(found, golden.outputs(network, given_frames), strict=True):
        np.testing.assert_array_equal(values, expected)
    assert EngineSchedule(engine, made.jobs).run().cycles > 0
