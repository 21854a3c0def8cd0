"""Access to a design by Linux without PYNQ: devices in a file system, buffers, and `connect`."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from driver_runs import Bench, shell_of
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.emit import driver, linux, wrapper

PHYSICAL, SIZE = 0x3000_0000, 1 << 16


class Machine:
    """A file system with UIO devices and a u-dma-buf device, all of plain files."""

    def __init__(self, root: Path):
        self.root = root
        (root / "dev").mkdir(parents=True)

    def uio(self, number: int, name: str, words: dict[int, int], size: int = 0x1000) -> None:
        folder = self.root / f"sys/class/uio/uio{number}"
        (folder / "maps/map0").mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "maps/map0/size").write_text(f"{size:#018x}\n")
        content = np.zeros(size // 4, np.uint32)
        for offset, value in words.items():
            content[offset // 4] = value
        (self.root / f"dev/uio{number}").write_bytes(content.tobytes())

    def buffers(self, name: str = "udmabuf0", kind: str = "u-dma-buf", size: int = SIZE) -> Path:
        folder = self.root / "sys/class" / kind / name
        folder.mkdir(parents=True)
        (folder / "size").write_text(f"{size}\n")
        (folder / "phys_addr").write_text(f"{PHYSICAL:#x}\n")
        (self.root / "dev" / name).write_bytes(bytes(size))
        return folder

    def words(self, number: int) -> np.ndarray:
        return np.frombuffer((self.root / f"dev/uio{number}").read_bytes(), np.uint32)


@pytest.fixture
def machine(tmp_path) -> Machine:
    return Machine(tmp_path / "root")


def test_registers(machine):
    machine.uio(0, "other_0", {0x10: 7})
    machine.uio(1, "net_axi_0", {0: 0x4857_474E, 0x14: 0xFFFF_FFFF})
    registers = linux.Registers("net_axi_0", root=machine.root)
    assert [registers.read(offset) for offset in (0, 4, 0x14)] == [0x4857_474E, 0, 0xFFFF_FFFF]
    registers.write(0x8, 0x1_2345_6789)
    assert machine.words(1)[2] == 0x2345_6789
    assert machine.words(0)[4] == 7
    with pytest.raises(
        linux.LinuxError, match=r"^there is no UIO device dma \(there are: net_axi_0, other_0\); load a"
    ):
        linux.Registers("dma", root=machine.root)
    (machine.root / "dev/uio1").unlink()
    with pytest.raises(linux.LinuxError, match=r"uio1 can't be mapped: .*; run as root, or give your user the device$"):
        linux.Registers("net_axi_0", root=machine.root)


def test_buffers_are_synchronised(machine):
    """A flush covers the buffer for the device, an invalidation for the processor."""
    folder = machine.buffers(kind="udmabuf")
    buffers = linux.Buffers(root=machine.root)
    first, second = buffers.allocate((3, 5), np.uint8), buffers.allocate(shape=(2,), dtype="<i4")
    assert (first.physical_address, second.physical_address) == (PHYSICAL, PHYSICAL + 4096)
    second[:] = 1, -1
    second.flush()
    names = ("sync_offset", "sync_size", "sync_direction", "sync_for_device")
    assert [(folder / name).read_text() for name in names] == ["4096", "8", "1", "1"]
    assert (machine.root / "dev/udmabuf0").read_bytes()[4096:4104] == second.tobytes()
    first.invalidate()
    names = ("sync_offset", "sync_size", "sync_direction", "sync_for_cpu")
    assert [(folder / name).read_text() for name in names] == ["0", "15", "2", "1"]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12_000), st.booleans()), min_size=5, max_size=40))
def test_arrays_never_overlap(tmp_path_factory, steps):
    """Whatever is allocated and freed: arrays are apart, in pages of their own, and their memory comes back."""
    machine = Machine(tmp_path_factory.mktemp("machine") / "root")
    machine.buffers()
    buffers, arrays = linux.Buffers(root=machine.root), []
    for size, frees in steps:
        if frees and arrays:
            arrays.pop(size % len(arrays))
        try:
            array = buffers.allocate((size,), np.uint8)
        except linux.LinuxError:
            continue
        begin = array.physical_address - PHYSICAL
        assert begin % 4096 == 0
        assert begin + size <= SIZE
        spans = [(other.physical_address - PHYSICAL, len(other)) for other in arrays if len(other)]
        assert all(begin + size <= other or other + length <= begin for other, length in spans) or not size
        arrays.append(array)
    array, view = None, arrays[-1][:1]
    arrays.clear()
    with pytest.raises(linux.LinuxError):
        buffers.allocate((SIZE,), np.uint8)
    del view
    assert len(buffers.allocate((SIZE,), np.uint8)) == SIZE


@pytest.mark.parametrize(
    ("names", "wanted", "message"),
    [
        ((), None, r"^there is no u-dma-buf device \(there are: none\); load the module u-dma-buf"),
        (("a", "b"), None, r"^name one of several u-dma-buf devices \(there are: a, b\)"),
        (("a", "b"), "c", r"^no u-dma-buf c \(there are: a, b\)"),
    ],
)
def test_missing_buffers(machine, names, wanted, message):
    for name in names:
        machine.buffers(name)
    with pytest.raises(linux.LinuxError, match=message):
        linux.Buffers(wanted, root=machine.root)


def test_a_dma_that_does_not_start(machine, monkeypatch):
    """It is said after a second, and a transfer that it can't count is refused."""
    machine.uio(0, "axi_dma_0", {0x04: 1})
    registers = linux.Registers("axi_dma_0", root=machine.root)
    monkeypatch.setattr(linux, "_TIMEOUT", 0.01)
    with pytest.raises(linux.LinuxError, match=r"^the DMA does not start"):
        linux.Dma(registers, receives=False)
    registers.write(0x04, 0)
    dma = linux.Dma(registers, receives=False, length_bits=14)
    machine.buffers()
    buffer = linux.Buffers(root=machine.root).allocate((1 << 14,), np.uint8)
    with pytest.raises(ValueError, match=r"^a transfer of 16,384 bytes is too long: it must have less than 16,384$"):
        dma.sendchannel.transfer(buffer)
    dma.sendchannel.transfer(buffer, 8, 100)
    assert list(machine.words(0)[[0, 6, 7, 10]]) == [1, PHYSICAL + 8, 0, 100]


def test_devices_of_a_design(tmp_path, machine):
    """The driver reaches the design's registers and its DMAs: it resets the first one, whose file never answers."""
    bench = Bench(tmp_path, 0, 2, 1)
    registers = {each["offset"]: each["reset"] for each in bench.document["registers"]}
    machine.uio(0, "axi_dma_1", {}, 0x10000)
    machine.uio(3, "net_axi_0", registers)
    machine.uio(2, "axi_dma_0", {}, 0x10000)
    machine.buffers()
    opened, dmas, allocate = linux.devices("net_axi", 2, 1, root=machine.root)
    channels = [(dma.sendchannel is not None, dma.recvchannel is not None) for dma in dmas]
    assert channels == [(True, True), (True, False)]
    with pytest.raises(driver.DriverError, match=r"^the DMA of s_axis_0 does not end its reset"):
        driver.Accelerator(opened, dmas, allocate=allocate, folder=tmp_path, timeout=0.01)
    offsets = {each["name"]: each["offset"] for each in bench.document["registers"]}
    assert machine.words(3)[offsets["CONTROL"] // 4] == 1
    assert machine.words(2)[0] == 4


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder with a design's registers and both files of its driver."""
    made = tmp_path / "design"
    made.mkdir()
    (made / "registers.json").write_text(json.dumps(wrapper.to_json(shell_of(1, 1), "net_axi")))
    for name, content in wrapper.python_drivers("net").items():
        (made / name).write_bytes(content)
    return made


def opened(folder: Path):
    spec = importlib.util.spec_from_file_location("net_driver", folder / "net_driver.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_connect_without_devices(folder, caplog):
    """Without PYNQ it is Linux' turn, which is said; what is missing is named."""
    module = opened(folder)
    caplog.set_level("INFO", "hwgen")
    with pytest.raises(module.DriverError, match=r"^there is no UIO device axi_dma_0 \(there are: "):
        module.connect()
    assert caplog.messages == ["net_axi is reached through linux"]
    with pytest.raises(module.DriverError, match=r"^through must be pynq or linux, not 'usb'$"):
        module.connect(through="usb")
    (folder / "net_linux.py").unlink()
    with pytest.raises(module.DriverError, match=r"net_linux\.py can't be read: .*; copy it beside this file$"):
        module.connect()
    shutil.rmtree(folder)
    with pytest.raises(module.DriverError, match=r"registers\.json can't be read"):
        module.connect()
