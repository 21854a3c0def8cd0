"""The Python drivers on a PCI Express card: device files with an accelerator or a memory behind them."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from driver_runs import Bench
from engine_verdict import Running
from program_mutations import parts
from programs import SMALL, alone, conv
from wrapper_model import compute
from xdma_model import Card, Streams, opened

from hwgen.emit import driver, engine_driver, linux, xdma
from hwgen.emit.drivers import python_driver, python_file
from hwgen.emit.engine import registers_json
from hwgen.gateware.bus.engine_shell import EngineShellConfig
from hwgen.program.compile import schedule


@pytest.fixture(params=[(1, 1), (2, 1), (1, 3)], ids=str)
def bench(request, tmp_path) -> Bench:
    """A design's folder with the files of its driver, whose devices are in the folder ``system``."""
    folder = tmp_path / "design"
    folder.mkdir()
    made = Bench(folder, 0, *request.param)
    (folder / "net_driver.py").write_bytes(python_driver("driver.py"))
    text = python_file("buffers.py", "xdma.py").decode()
    assert text.count('root="/"') == 1
    (folder / "net_xdma.py").write_text(text.replace('root="/"', f"root={str(tmp_path / 'system')!r}"))
    return made


@pytest.fixture
def card(bench, tmp_path):
    made = Card(tmp_path / "system", bench.document, lambda frame: compute(bench.sizes, frame, bench.weights))
    yield made
    made.close()


def driver_of(bench: Bench) -> ModuleType:
    spec: Any = importlib.util.spec_from_file_location("net_driver", bench.folder / "net_driver.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_frames_through_files(bench, card, caplog):
    """Each output is the one of its frame, in batches of one packet and of several; a program can begin again."""
    module, rng = driver_of(bench), np.random.default_rng(1)
    caplog.set_level("INFO", "hwgen")
    for _ in range(2):
        accelerator = module.connect()
        assert accelerator.through == "xdma"
        for count in (1, 7, 5000):
            before = card.packets
            bench.check(accelerator, bench.frames(rng, count))
            assert card.packets - before > (count == 5000)
    assert accelerator.read("FRAMES") == 5008
    assert caplog.messages == ["net_axi is reached through xdma"] * 2


def test_missing_devices(bench, tmp_path):
    """One line says what is missing and what helps."""
    module = driver_of(bench)
    helps = r": load this folder's bitstream into the card, let the PC find the card \(.*\), and load the kernel"
    with pytest.raises(module.DriverError, match=r"^there is no \S*/system/dev/xdma0_user" + helps):
        module.connect()
    (tmp_path / "system/dev").mkdir(parents=True)
    (tmp_path / "system/dev/xdma0_user").write_bytes(bytes(0x2000))
    with pytest.raises(module.DriverError, match=r"^there is no \S*xdma0_h2c_0" + helps):
        module.connect()
    (bench.folder / "net_xdma.py").unlink()
    with pytest.raises(module.DriverError, match=r"net_xdma\.py can't be read: .*; copy it into this file's folder$"):
        module.connect(through="xdma")


def test_devices_that_can_t_be_opened(tmp_path):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/xdma1_user").write_bytes(bytes(0x2000))
    (tmp_path / "dev/xdma1_h2c_0").mkdir()
    with pytest.raises(xdma.AccessError, match=r"xdma1_h2c_0 can't be opened: Is a directory; run as root, or give "):
        xdma.devices("net_axi", 1, 1, card=1, root=tmp_path)
    (tmp_path / "dev/xdma1_user").write_bytes(b"")
    with pytest.raises(xdma.AccessError, match=r"xdma1_user can't be mapped: "):
        xdma.devices("net_axi", 1, 1, card=1, root=tmp_path)


def channels(monkeypatch, streams: Streams, clear: Callable[[], None]) -> Any:
    """A pair of channels in front of streams that fail."""
    monkeypatch.setattr(xdma, "_Device", lambda _path: streams)
    sends, receives = (xdma.StreamChannel(Path(f"/dev/xdma0_{way}_0"), receives=way == "c2h") for way in ("h2c", "c2h"))
    return xdma.ChannelPair(sends, receives, clear)


def test_a_channel_s_transfers(monkeypatch):
    """A transfer goes on while the program does; its status, errors and length are those of an AXI DMA."""
    cleared = []
    dma = channels(monkeypatch, Streams(lambda packet: packet[::-1], 0.1), lambda: cleared.append(1))
    source, result = xdma._allocate((4,), np.uint16), xdma._allocate(shape=(2, 5), dtype="<u1")
    assert source.ctypes.data % 4096 == 0
    assert not result.any()
    source[:] = range(4)
    dma.recvchannel.transfer(result, 1, 8)
    assert not dma.recvchannel.idle
    assert (dma.read(0x34), dma.read(0x04), cleared) == (0, 2, [])
    dma.sendchannel.transfer(source)
    dma.sendchannel.wait()
    dma.recvchannel.wait()
    assert (dma.sendchannel.transferred, dma.recvchannel.transferred) == (8, 8)
    assert result.reshape(-1).tolist() == [0, *source.tobytes()[::-1], 0]
    dma.write(0x30, 4)
    assert (dma.read(0x34), dma.read(0x30), cleared) == (2, 0, [1])
    begun = time.monotonic()
    dma.recvchannel.transfer(result)
    with pytest.raises(RuntimeError, match=r"^/dev/xdma0_c2h_0: Connection timed out$"):
        dma.recvchannel.wait()
    assert time.monotonic() - begun >= 0.1
    assert dma.recvchannel.idle
    with pytest.raises(
        ValueError, match=r"^a transfer of 8,388,608 bytes is too long: it must have less than 8,388,608$"
    ):
        dma.sendchannel.transfer(xdma._allocate((1 << 23,), np.uint8))


class Blocked(Streams):
    """Channels of a card whose reads begin and wait until the event ``ends``."""

    def __init__(self) -> None:
        super().__init__(bytes, timeout=0)
        self.ends = threading.Event()

    def receive(self, view: memoryview, address: int | None = None) -> int:
        signal.raise_signal(signal.SIGINT)
        assert self.ends.wait(60)
        return len(view)


def test_interrupts(monkeypatch):
    """The program can be interrupted anywhere while it waits for a transfer; the transfer still ends."""
    result = xdma._allocate((4,), np.uint8)
    for _ in range(100):
        streams = Blocked()
        dma = channels(monkeypatch, streams, lambda: None)
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012
            dma.recvchannel.transfer(result)
            while not dma.read(0x34):
                pass
        assert not dma.recvchannel.idle
        streams.ends.set()
        begun = time.monotonic()
        while not dma.recvchannel.idle:
            assert time.monotonic() < begun + 60


@pytest.mark.parametrize("begins", [False, True])
def test_an_interrupted_start(monkeypatch, begins):
    """A reset waits for a transfer whose start was interrupted, which may go on or never have begun."""
    streams = Blocked()
    monkeypatch.setattr(signal, "raise_signal", lambda _: None)
    dma = channels(monkeypatch, streams, lambda: None)

    def interrupted(request: Any) -> None:
        if begins:
            requests.put(request)
        raise KeyboardInterrupt

    requests, dma.recvchannel._requests = dma.recvchannel._requests, SimpleNamespace(put=interrupted)
    with pytest.raises(KeyboardInterrupt):
        dma.recvchannel.transfer(xdma._allocate((4,), np.uint8))
    dma.recvchannel._requests = requests
    if begins:
        threading.Timer(0.2, streams.ends.set).start()
    dma.write(0x30, 4)
    assert streams.ends.is_set() == begins


def accelerated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timeout: float, **options: Any) -> Any:
    """A small design, its driver with that timeout, and the streams to its card."""
    bench = Bench(tmp_path, 0)
    source, sink = (driver.Stream(bench.document[side][0]) for side in ("inputs", "outputs"))

    def computed(packet: bytes) -> bytes:
        frames = [packet[begin:][: source.frame_bytes] for begin in range(0, len(packet), source.memory_bytes)]
        made = [compute(bench.sizes, [frame], bench.weights)[0].ljust(sink.memory_bytes, b"\0") for frame in frames]
        return b"".join(made)[: sink.bytes_of(len(frames))]

    streams = Streams(computed, timeout=60, **options)
    registers, pairs, allocate = opened(tmp_path / "system", bench.document, streams, monkeypatch)
    return bench, driver.Accelerator(registers, pairs, allocate=allocate, folder=tmp_path, timeout=timeout), streams


def test_faults(tmp_path, monkeypatch):
    """Each fault is an error or an interrupt, and the next runs have the outputs of their own frames."""
    rng = np.random.default_rng(32)
    bench, accelerator, streams = accelerated(tmp_path, monkeypatch, timeout=60)
    for fault in ("error", "lost", "late", "short", "interrupt") * 3:
        frames = bench.frames(rng, int(rng.integers(1, 120)))
        streams.fault = fault
        with pytest.raises(KeyboardInterrupt if fault == "interrupt" else driver.DriverError):
            accelerator.run(*frames)
        for _ in range(2):
            bench.check(accelerator, bench.frames(rng, len(frames[0])))


def test_a_shorter_timeout_than_the_kernel_module_s(tmp_path, monkeypatch):
    """A run that is given up waits for its read, however long that takes, and says why it was given up."""
    bench, accelerator, streams = accelerated(tmp_path, monkeypatch, timeout=0.01, left=0.5)
    streams.fault = "lost"
    with pytest.raises(driver.DriverError, match=r"^nothing moved for 0\.01 s: |: Connection timed out$"):
        accelerator.run(*bench.frames(np.random.default_rng(33), 3))
    assert accelerator._receives[0]._channel.idle


def test_words_on_their_way_are_dropped(tmp_path, monkeypatch):
    """The register that clears the converters is written once all channels are idle, and not before."""
    root = tmp_path
    (root / "dev").mkdir()
    (root / "dev/xdma0_user").write_bytes(bytes(0x2000))
    for name in ("h2c_0", "c2h_0"):
        os.mkfifo(root / f"dev/xdma0_{name}")
    registers, (dma,), _ = xdma.devices("net_axi", 1, 1, root=root)
    written = []
    write = registers.write
    monkeypatch.setattr(registers, "write", lambda *word: (written.append(word), write(*word)))
    buffer = xdma._allocate((4,), np.uint8)
    dma.recvchannel.transfer(buffer)
    dma.write(0x00, 4)
    assert (dma.read(0x00), dma.read(0x34), written) == (0, 0, [])
    with (root / "dev/xdma0_c2h_0").open("wb", buffering=0) as pipe:
        pipe.write(b"\1\2\3\4")
    dma.write(0x30, 4)
    assert dma.recvchannel.idle
    assert written == [(0x1000, 1), (0x1000, 0)]
    assert registers.read(0x1000) == 0
    assert buffer.tolist() == [1, 2, 3, 4]


@pytest.fixture
def memory(tmp_path) -> Path:
    """A card's memory, which both channels reach, and registers."""
    (tmp_path / "dev").mkdir()
    path = tmp_path / "dev/memory"
    path.touch()
    os.truncate(path, 1 << 20)
    for way in ("h2c", "c2h"):
        (tmp_path / f"dev/xdma0_{way}_0").symlink_to(path)
    (tmp_path / "dev/xdma0_user").write_bytes(bytes(0x2000))
    return path


def test_memory_on_the_card(memory):
    """An array moves to its place when it is flushed, and from it when it is invalidated; so does a part of it."""
    registers, dmas, allocate = xdma.devices("engine_axi", 0, 0, root=memory.parents[1])
    assert dmas == []
    registers.write(0x10, 7)
    first, second = allocate((100,), np.uint8), allocate(shape=(3, 4), dtype="<i4")
    assert (first.physical_address, second.physical_address) == (0, 4096)
    second[:] = np.arange(12).reshape(3, 4)
    second[1:].flush()
    assert memory.read_bytes()[4096:][:48] == bytes(16) + second[1:].tobytes()
    assert second[1:, :].physical_address == 4096 + 16
    with memory.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 48)
    second[:2].invalidate()
    assert second.tolist() == [[-1] * 4, [-1] * 4, [8, 9, 10, 11]]
    assert (second + 1)._pool is None
    with pytest.raises(
        xdma.AccessError, match=r"^the card's memory has 1,073,733,632 of 1,073,741,824 bytes free at its "
    ):
        allocate((1 << 30,), np.uint8)
    os.truncate(memory, 4096)
    with pytest.raises(xdma.AccessError, match=r"^the card's memory ends before 0x1030$"):
        second.invalidate()


@pytest.mark.parametrize("overlap", [False, True])
def test_an_engine(memory, tmp_path, overlap):
    """The program and the frames reach the card's memory, and the outputs come from it; a lost card is one line."""
    document = registers_json(EngineShellConfig(engine=SMALL, build_hash=0xABCD << 40), "engine_axi")
    (tmp_path / "registers.json").write_text(json.dumps(document))
    program = bytes(schedule(alone(conv(channels=9, size=(3, 3))), SMALL).program)
    (tmp_path / "conv.program").write_bytes(program)
    told, _ = parts(program)
    source, result = told["inputs"][0], told["outputs"][0]
    size = result["map"]["height"] * result["map"]["width"] * 8 * -(-result["map"]["channels"] // 8)

    def compute() -> None:
        """Write 3 more than the largest value of the input into the whole output, in the card's memory."""
        base = running.still.values[running.still.offsets["PROGRAM_BASE"]]
        content = np.memmap(memory, np.uint8)
        largest = content[base + source["address"] :][: engine_driver.Region(source).size].max()
        content[base + result["address"] :][:size] = largest + 3
        content.flush()

    running = Running(document, compute)
    _, _, allocate = xdma.devices("engine_axi", 0, 0, root=tmp_path)
    engine = engine_driver.Engine(running, allocate=allocate, folder=tmp_path, timeout=10, overlap=overlap)
    engine.load("conv.program")
    values = np.arange(20, 25)  # above the zero point, which lies around an unfolded map
    frames = values.astype(np.uint8)[:, None, None, None] + np.zeros((5, 9, 3, 3), np.uint8)
    outputs = np.asarray(engine.run(frames, integers=True))
    # Bytes in memory differ from unsigned values in the highest bit, both ways.
    assert (outputs == (values + 3)[:, None, None, None]).all()
    assert len(engine._memories) == 1 + overlap
    os.truncate(memory, 16)
    with pytest.raises(engine_driver.DriverError, match=r"^memory can't be reached: the card's memory ends before 0x"):
        engine.run(frames[:1])


def test_parts_of_arrays_are_synchronised_without_pynq(tmp_path):
    """A view of a part of a u-dma-buf array synchronises this part, with its own address."""
    folder = tmp_path / "sys/class/u-dma-buf/udmabuf0"
    folder.mkdir(parents=True)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/udmabuf0").write_bytes(bytes(1 << 16))
    (folder / "size").write_text("65536")
    (folder / "phys_addr").write_text("0x30000000")
    array = linux.Buffers(root=tmp_path).allocate((10_000,), np.uint8)
    array[5000:6000].flush()
    assert [(folder / name).read_text() for name in ("sync_offset", "sync_size", "sync_direction")] == [
        "5000",
        "1000",
        "1",
    ]
