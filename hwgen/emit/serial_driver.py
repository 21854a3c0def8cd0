"""Host driver of an accelerator on a serial port, written by hwgen: sends frames, receives outputs, checks CRC-32.

    from NAME_serial import connect

    with connect("/dev/ttyUSB0") as accelerator:
        y = accelerator.run(x)

Needs numpy and pyserial, and NAME_driver.py, registers.json and plan.json of the same folder. Lost or changed bytes are
detected by CRC-32 and sequence numbers, and raise SerialError.
"""

from __future__ import annotations

import importlib.util
import json
import time
import zlib
from pathlib import Path
from random import randrange

import numpy as np

#: Bits per second of the link.
BAUD = 0
END, ESCAPE, END_CODE, ESCAPE_CODE = 0xC0, 0xDB, 0xDC, 0xDD
HELLO, FRAME, ERROR = 0, 1, 2
#: Number of frames that are sent before the outputs of the first of them are received.
AHEAD = 2


class SerialError(Exception):
    """Error of the serial link: bytes were lost or changed, or the hardware does not answer or is another design."""


def packet(packet_type, frame_index, values=b""):
    """Return a packet for the serial link as bytes: type, frame number, values and CRC-32, between two END bytes."""
    body = bytes([packet_type, frame_index % 256]) + values
    body += zlib.crc32(body).to_bytes(4, "little")
    escaped = body.replace(b"\xdb", b"\xdb\xdd").replace(b"\xc0", b"\xdb\xdc")
    return bytes([END]) + escaped + bytes([END])


def parsed(text):
    """Return (type, frame number modulo 256, values) of a packet without its END bytes; ``None`` if damaged."""
    body, escaped = bytearray(), False
    for byte in text:
        if escaped:
            if byte not in (END_CODE, ESCAPE_CODE):
                return None
            body.append(END if byte == END_CODE else ESCAPE)
            escaped = False
        elif byte == ESCAPE:
            escaped = True
        else:
            body.append(byte)
    if escaped or len(body) < 6 or zlib.crc32(body[:-4]) != int.from_bytes(body[-4:], "little"):
        return None
    return body[0], body[1], bytes(body[2:-4])


class SerialAccelerator:
    """Host driver of an accelerator that is connected by a serial port.

    Parameters
    ----------
    port : object
        Port with ``read(size)``, ``write(data)`` and ``close()``, such as ``serial.Serial`` with a short timeout.
    folder : Path, optional
        Folder of the design; by default the folder of this file.
    timeout : float
        Longest time between two bytes of the hardware, in seconds.
    """

    def __init__(self, port, *, folder=None, timeout=5.0):
        folder = Path(__file__).resolve().parent if folder is None else Path(folder)
        self._port, self._timeout, self._buffer = port, timeout, bytearray()
        self._hello_number = randrange(256)  # at random, because replies to an earlier program can still arrive
        registers = json.loads((folder / "registers.json").read_text(encoding="utf-8"))
        plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
        driver = _driver(folder, registers["module"].removesuffix("_axi"))
        self._error = driver.DriverError
        self.input, self.output = (
            driver.Tensor(plan[name], driver.Stream(registers[f"{name}s"][0])) for name in ("input", "output")
        )
        self._hash = int(registers["build_hash"], 16).to_bytes(8, "little")
        self.reset()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._port.close()

    def reset(self):
        """Reset the accelerator, dropping all frames in it, and check that it is the design of this folder.

        Packets from before the reset are skipped, also replies to an earlier HELLO, whose numbers differ.
        """
        self._buffer.clear()
        self._hello_number = (self._hello_number + 1) % 256
        self._port.write(bytes([END]) + packet(HELLO, self._hello_number))
        while True:
            packet_type, number, values = self._receive(skip_damaged=True)
            if packet_type == HELLO and number == self._hello_number:
                break
        if values != self._hash:
            raise SerialError("the hardware is another design: load the bitstream of this folder")

    def run(self, x, *, integers=False):
        """Compute frames ``(n, ...)``, integers or floats, on the accelerator, and return the model's outputs.

        Raises
        ------
        SerialError
            If bytes were lost or changed, or the hardware does not answer. The accelerator is then reset.
        """
        frames = np.asarray(x)
        self.input.check(frames)
        maps = self.input.to_maps(frames)
        stream = self.input.stream
        memory = stream.memory(np.zeros, len(maps))
        stream.pack(maps, memory)
        sources = [row.tobytes()[: stream.frame_bytes] for row in memory]
        sink = self.output.stream
        results = sink.memory(np.zeros, len(maps))
        # Outputs that are longer than frames hold frames up, and the serial line can't wait.
        ahead = AHEAD if sink.frame_bytes <= stream.frame_bytes else 1
        try:
            self.reset()  # sequence numbers start again
            sent = 0
            for index in range(len(sources)):
                while sent < min(index + ahead, len(sources)):
                    self._port.write(packet(FRAME, sent, sources[sent]))
                    sent += 1
                packet_type, number, values = self._receive()
                if packet_type == ERROR:
                    raise SerialError(f"frame {index}: bytes to the hardware were lost or changed")
                if packet_type != FRAME or number != index % 256 or len(values) != sink.frame_bytes:
                    raise SerialError(f"frame {index}: the hardware sent the packet of another frame")
                received = np.frombuffer(values, sink.dtype)
                results[index, : len(received)] = received
        except BaseException:
            self._drain()
            raise
        outputs = self.output.from_maps(sink.unpack(results))
        return outputs if integers else self.output.to_floats(outputs)

    def _receive(self, *, skip_damaged=False):
        """Return type, frame number and values of the next packet from the hardware; wait up to the timeout."""
        end = time.monotonic() + self._timeout
        while True:
            if END in self._buffer:
                text, _, rest = bytes(self._buffer).partition(bytes([END]))
                self._buffer = bytearray(rest)
                if not text:
                    continue
                found = parsed(text)
                if found is not None:
                    return found
                if not skip_damaged:
                    raise SerialError("bytes from the hardware were lost or changed")
            data = self._port.read(4096)
            if data:
                end = time.monotonic() + self._timeout
                self._buffer += data
            elif time.monotonic() > end:
                raise SerialError(f"the hardware sent nothing for {self._timeout:g} s")

    def _drain(self):
        """Read and drop the bytes that the hardware still sends."""
        self._buffer.clear()
        while self._port.read(4096):
            pass


def connect(port, *, timeout=5.0, baud=BAUD):
    """Open a serial port such as /dev/ttyUSB0 or COM3, and return the driver of the accelerator connected to it."""
    import serial

    return SerialAccelerator(serial.Serial(port, baud, timeout=0.05), timeout=timeout)


def _driver(folder, top):
    """Import the folder's ``NAME_driver.py``, whose `Tensor` and `Stream` convert frames, and return the module."""
    path = folder / f"{top}_driver.py"
    spec = importlib.util.spec_from_file_location(f"{top}_driver", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SerialError(f"{folder} has no {top}_driver.py: copy the whole folder")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
