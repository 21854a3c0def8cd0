"""The Python driver of an accelerator on a model of the hardware, under faults: no frame is lost, swapped or stale."""

from __future__ import annotations

import itertools
import json
import time
import zlib
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from driver_runs import Bench, Clock, still_dma
from program_mutations import change_fields
from pynq_model import PynqDma

from hwgen.emit import driver, linux


@pytest.fixture(params=[PynqDma, pytest.param(linux.Dma, marks=pytest.mark.long)], ids=["pynq", "linux"])
def bench(request, tmp_path, monkeypatch):
    """A function that makes a `Bench`, with either access to DMAs; time passes with its accesses."""

    def make(seed: int = 0, inputs: int = 1, outputs: int = 1, *, weights: bool = False) -> Bench:
        folder = tmp_path / f"{seed}_{inputs}_{outputs}_{weights}"
        folder.mkdir()
        made = Bench(folder, seed, inputs, outputs, weights=weights, dma=request.param)
        monkeypatch.setattr(driver, "time", Clock(made.hardware))
        return made

    return make


def test_a_nan_in_a_later_frame(bench):
    """No frame moves before all are checked; the next run has its own results."""
    made, rng = bench(), np.random.default_rng(1)
    accelerator = made.open()
    x = rng.random((8, *made.shapes["input"][0])).astype(np.float32)
    x[5, 0, 0, 0] = np.nan
    before = made.hardware.accesses
    with pytest.raises(driver.DriverError, match=r"^input0 must be finite numbers: frame 5 has others$"):
        accelerator.run(x)
    big = np.zeros((8, *made.shapes["input"][0]), np.int32)
    big[6] = 256
    with pytest.raises(driver.DriverError, match=r"^input0 must lie in 0 \.\. 255: frame 6 does not$"):
        accelerator.run(big)
    assert made.hardware.accesses == before
    made.check(accelerator, made.frames(rng, 3))


@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (2, 1), (1, 2)])
def test_an_interrupt_at_any_access(bench, inputs, outputs):
    """Ctrl-C at each access of a run in turn, before it acts or behind it: the same driver's next run is right."""
    made, rng = bench(2, inputs, outputs), np.random.default_rng(2)
    accelerator, interrupted = made.open(), 0
    for access in itertools.count(1):
        made.hardware.interrupts = {made.hardware.accesses + access: ("before", "behind")[access % 2]}
        try:
            made.check(accelerator, made.frames(rng, 5))  # in packets of 3 and 2
        except KeyboardInterrupt:
            interrupted += 1
            made.check(accelerator, made.frames(rng, 2))
        else:
            break
    assert interrupted == access - 1 > 50
    assert not made.memory.stray


def test_a_restart_at_any_access(bench):
    """As when a notebook's kernel is restarted: nobody cleans up, and a new driver begins on what is left."""
    made, rng, interrupted = bench(3), np.random.default_rng(3), 0
    for access in itertools.count(1, 3):
        accelerator, begun = made.open(), made.hardware.accesses
        made.hardware.interrupts = {begun + access + later: "before" for later in range(20_000)}
        try:
            made.check(accelerator, made.frames(rng, 5))
        except KeyboardInterrupt:
            interrupted += 1
        else:
            break
        finally:
            made.hardware.interrupts = {}
        accelerator, made.memory.stray = made.open(), 0  # the old program's buffers were written until then
        made.check(accelerator, made.frames(rng, 2))
        assert not made.memory.stray
    assert interrupted > 20


@pytest.mark.parametrize("side", ["whole", "send", "receive"])
def test_a_time_out(bench, side):
    """The driver can be used when the hardware moves again, also when the time-out came in the middle of a frame."""
    made, rng = bench(4), np.random.default_rng(4)
    accelerator = made.open()
    for _ in range(10):
        made.check(accelerator, made.frames(rng, 2))
        made.hardware.is_stuck = side == "whole"
        made.hardware._values["CONTROL"] = int(side != "send")
        made.hardware.missing = made.sizes[0] if side == "receive" else 0  # then no frame ends
        with pytest.raises(driver.DriverError, match=r"^nothing moved for 0\.5 s: STATUS \d+, FRAMES "):
            accelerator.run(*made.frames(rng, 3))
        made.hardware.is_stuck, made.hardware._values["CONTROL"], made.hardware.missing = False, 1, 0
    made.check(accelerator, made.frames(rng, 5))
    assert not made.memory.stray


def test_a_dma_that_stays_in_its_reset(bench):
    """It is said, and the driver can be used when it ends."""
    made, rng = bench(5), np.random.default_rng(5)
    accelerator = made.open()
    made.hardware.dmas[0].is_stuck = made.hardware.is_stuck = True
    for _ in range(2):
        with pytest.raises(driver.DriverError, match=r"^the DMA of s_axis does not end its reset: load the overlay"):
            accelerator.run(*made.frames(rng, 3))
    made.hardware.dmas[0].is_stuck = made.hardware.is_stuck = False
    made.check(accelerator, made.frames(rng, 3))


@pytest.mark.parametrize(
    ("error", "message"),
    [(1, "a frame longer than its buffer came, or the DMA failed inside"),
     (2, "memory answered with an error"), (4, "there is no memory at the buffer's address")],
)  # fmt: skip
@pytest.mark.parametrize("side", ["sends", "receives"])
def test_a_dma_that_fails(bench, side, error, message):
    """By its meaning and at once, not by a time-out."""
    made, rng = bench(6), np.random.default_rng(6)
    accelerator = made.open()
    (channel,) = getattr(made.hardware, side)
    step = channel.step if side == "receives" else channel.offered

    def fail() -> Any:
        if channel.busy and channel.done:
            channel.fail(error)
        return step()

    setattr(channel, "step" if side == "receives" else "offered", fail)
    with pytest.raises(driver.DriverError, match=rf"^the DMA of \w_axis failed: {message}$"):
        accelerator.run(*made.frames(rng, 3))
    setattr(channel, "step" if side == "receives" else "offered", step)
    made.check(accelerator, made.frames(rng, 3))


def test_frames_of_other_sizes(bench):
    """Short ones that go in, or come out: no output is returned that is partly another frame's."""
    made, rng = bench(7), np.random.default_rng(7)
    accelerator = made.open()
    made.check(accelerator, made.frames(rng, 3))
    made.hardware.missing = 3
    with pytest.raises(
        driver.DriverError, match=r"^a packet of 3 frames of 23 bytes came on m_axis, where one has 34$"
    ):
        accelerator.run(*made.frames(rng, 3))
    with pytest.raises(driver.DriverError, match=r"^a frame of 7 bytes came on m_axis, where one has 10$"):
        accelerator.run(*made.frames(rng, 1))
    made.hardware.missing = 0
    made.hardware.sends[0].cut = 2
    with pytest.raises(driver.DriverError, match=r"^a frame on s_axis ended too early, and was completed with zeros$"):
        accelerator.run(*made.frames(rng, 3))
    made.hardware.sends[0].cut = 0
    made.check(accelerator, made.frames(rng, 3))


def test_packets(bench):
    """Packets are as large as the DMAs can move, or smaller and equal, or a rest follows; then frames are single."""
    made, rng = bench(10), np.random.default_rng(10)
    sizes: list[int] = []
    write = made.hardware._write

    def note(name: str, value: int) -> None:
        if name == "PACKET_FRAMES":
            sizes.append(value)
        write(name, value)

    made.hardware._write = note
    for limit, count, expected in [(64, 8, [2, 1]), (64, 5, [3, 2, 1]), (64, 6, [3, 1]), (64, 2, [2, 1]),
                                   (19, 3, [1, 1]), (1 << 26, 50, [50, 1])]:  # fmt: skip
        accelerator = made.open(limit=limit)
        sizes.clear()
        made.check(accelerator, made.frames(rng, count))
        assert sizes == expected
        assert not made.memory.stray


def test_a_register_map_without_packets(bench):
    """A design that an earlier version built: frames move one by one."""
    made, rng = bench(11), np.random.default_rng(11)
    path = made.folder / "registers.json"
    described = json.loads(path.read_text())
    described["registers"] = [each for each in described["registers"] if each["name"] != "PACKET_FRAMES"]
    path.write_text(json.dumps(described))
    made.check(made.open(), made.frames(rng, 5))


def test_another_program_left_a_frame(bench):
    """Also one that came while this driver was open."""
    made, rng = bench(8), np.random.default_rng(8)
    accelerator = made.open()
    for accesses in (0, 1, 5, 50):  # behind many the frame has left the accelerator, and waits in the DMA
        made.hardware._put(0, rng.bytes(18), is_last=True)
        for _ in range(accesses):
            accelerator.read("STATUS")
        made.check(accelerator, made.frames(rng, 3))
    made.hardware._values["CONTROL"] = 0
    made.check(made.open(), made.frames(rng, 3))


def test_what_dmas_refuse(bench):
    """Their errors are of other classes, and there may be no channel in one direction."""
    made, rng = bench(9), np.random.default_rng(9)
    accelerator = made.open()
    (channel,) = accelerator._sends
    channel._dma.buffer_max_size = 15
    with pytest.raises(driver.DriverError, match=r"^the DMA of s_axis refused: .* 18 bytes"):
        accelerator.run(*made.frames(rng, 3))
    channel._dma.buffer_max_size = 64
    made.check(accelerator, made.frames(rng, 3))
    made.hardware.dmas[0].receive = None
    with pytest.raises(driver.DriverError, match=r"^the DMA for m_axis must receive: it has no such channel$"):
        made.open()


def test_a_load_of_weights_that_is_interrupted(bench):
    """At any access: then frames are computed with weights whose scales the driver knows, or not at all."""
    made, rng = bench(10, weights=True), np.random.default_rng(10)
    accelerator, said = made.open(), Counter[str]()
    for access in itertools.count(1):
        weights, scale = rng.integers(0, 1 << 32, 2).tolist(), float(rng.integers(1, 100))
        path = made.weights_file(weights, scale)
        made.hardware.interrupts = {made.hardware.accesses + access: ("before", "behind")[access % 2]}
        try:
            accelerator.load_weights(path)
        except KeyboardInterrupt:
            made.hardware.interrupts = {}
            try:
                made.check(accelerator, made.frames(rng, 2), integers=False)
                said["as before"] += 1
            except driver.DriverError as error:
                said[str(error).split(":")[0]] += 1
                accelerator.load_weights(path)
                made.weights, made.scale = weights, scale
                made.check(accelerator, made.frames(rng, 2), integers=False)
        else:
            break
    made.hardware.interrupts = {}
    made.weights, made.scale = weights, scale
    made.check(accelerator, made.frames(rng, 2), integers=False)
    assert set(said) == {
        "as before", "the hardware holds no weights, or a part of some", "a load of weights was broken off",
    }  # fmt: skip


FAULTS = ["none"] * 6 + [
    "nan", "interrupt", "two interrupts", "restart", "time-out", "disabled", "short", "missing", "left", "weights",
]  # fmt: skip


def test_damaged_files(bench, monkeypatch):
    """Any field of a folder's files, and of a file of weights, that is changed: nothing but a `DriverError`."""
    made, rng, said = bench(11, weights=True), np.random.default_rng(11), Counter[str]()
    monkeypatch.setattr(driver, "time", time)
    names = ("registers.json", "plan.json", "weights.json", "new.weights")
    made.weights_file([1, 2], 0.5)
    right = {name: (made.folder / name).read_bytes() for name in names}
    values = {each["offset"]: each["reset"] for each in made.document["registers"]}
    still = SimpleNamespace(read=lambda offset: values.get(offset, 0), write=lambda offset, value: None)
    for number in range(160):
        name = names[number % 4]
        head = right[name][:16] if name == "new.weights" else b""
        size = int.from_bytes(head[8:12], "little") if head else len(right[name])
        document = json.loads(right[name][len(head) :][:size])
        change_fields(document, rng)
        text = json.dumps(document).encode()
        sums = len(text).to_bytes(4, "little") + zlib.crc32(text).to_bytes(4, "little")
        (made.folder / name).write_bytes((head and head[:8] + sums) + text + right[name][len(head) + size :])
        try:
            accelerator = driver.Accelerator(still, still_dma(), folder=made.folder, timeout=0.0)
            accelerator.load_weights(made.folder / "new.weights")
            said["taken"] += 1
        except driver.DriverError as error:
            said["one line" if "\n" not in str(error) else "several lines"] += 1
        (made.folder / name).write_bytes(right[name])
    assert said["one line"] > 60
    assert not said["several lines"]


def random_runs(bench, seed: int, runs: int) -> Counter[str]:
    """Any runs and faults one after the other; returns how many there were, and how many frames were compared."""
    rng, counts = np.random.default_rng(seed), Counter[str]()
    inputs, outputs = (int(each) for each in rng.integers(1, 4, 2))
    made = bench(seed, inputs, outputs, weights=bool(rng.integers(2)))
    accelerator, hardware = made.open(), made.hardware

    def refused(frames: list[np.ndarray]) -> None:
        with pytest.raises(driver.DriverError):
            accelerator.run(*frames)

    for _ in range(runs):
        count = int(rng.integers(1, 9))
        frames, fault = made.frames(rng, count), FAULTS[int(rng.integers(len(FAULTS)))]
        counts[fault] += 1
        if fault == "none":
            made.check(accelerator, frames, integers=bool(rng.integers(2)))
            counts["frames"] += count
        elif fault == "nan":
            x = [each.astype(np.float32) for each in frames]
            x[int(rng.integers(inputs))][int(rng.integers(count))].flat[0] = [np.nan, np.inf][int(rng.integers(2))]
            refused(x)
        elif fault in ("interrupt", "two interrupts"):
            first = int(rng.integers(1, 60 * count))
            last = first + (int(rng.integers(1, 15)) if fault == "two interrupts" else 0)
            when = ("before", "behind")[int(rng.integers(2))]
            hardware.interrupts = {hardware.accesses + first: when, hardware.accesses + last: when}
            try:
                made.check(accelerator, frames)
                counts["frames"] += count
            except KeyboardInterrupt:
                counts["interrupted"] += 1
            hardware.interrupts = {}
        elif fault == "restart":
            hardware.interrupts = {hardware.accesses + int(rng.integers(1, 40 * count)) + n: "before" for n in range(9)}
            try:
                made.check(accelerator, frames)
            except KeyboardInterrupt:
                counts["interrupted"] += 1
            hardware.interrupts = {}
            accelerator = made.open()
            made.memory.stray = 0
        elif fault == "time-out":
            hardware.is_stuck = True
            refused(frames)
            hardware.is_stuck = False
        elif fault == "disabled":
            hardware._values["CONTROL"] = 0
            refused(frames)
            hardware._values["CONTROL"] = 1
        elif fault == "short":
            hardware.sends[int(rng.integers(inputs))].cut = int(rng.integers(1, 12))
            refused(frames)
            for send in hardware.sends:
                send.cut = 0
        elif fault == "missing":
            hardware.missing = int(rng.integers(1, min(made.sizes)))
            refused(frames)
            hardware.missing = 0
        elif fault == "left":
            index = int(rng.integers(inputs))
            hardware._put(index, rng.bytes(int(rng.integers(1, 30))), is_last=bool(rng.integers(2)))
        elif made.shell.weights:
            weights, scale = rng.integers(0, 1 << 32, 2).tolist(), float(rng.integers(1, 100))
            accelerator.load_weights(made.weights_file(weights, scale))
            made.weights, made.scale = weights, scale
        assert not made.memory.stray
    return counts


@pytest.mark.parametrize("seed", range(6))
def test_random_faults(bench, seed):
    counts = random_runs(bench, seed, 60)
    assert counts["frames"] > 40
    assert counts["interrupted"] > 3


@pytest.mark.long
def test_many_random_faults(bench):
    """Thousands of frames."""
    counts = sum((random_runs(bench, seed, 100) for seed in range(100, 140)), Counter[str]())
    assert counts["frames"] > 5000
    assert all(counts[fault] > 20 for fault in FAULTS)
