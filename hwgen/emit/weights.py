"""Reading and writing of weights files, for designs that load weights at run time, and of their ``weights.json``.

A file has the letters ``hwgenwts``, the size in bytes of a JSON object, the object's CRC-32 (32 bits each, lowest byte
first), the object, and the packet of words for the hardware (`hwgen.gateware.load.loader`).
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from struct import pack, unpack_from
from typing import Any

from hwgen.emit import manifest
from hwgen.errors import InputError
from hwgen.fields import Entries, content_of, shown
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.names import file_name

#: Name of the file in a design's folder that describes the hardware without its weights.
NAME = "weights.json"
#: Ending of a weights file.
SUFFIX = ".weights"
#: First bytes of a weights file.
MAGIC = b"hwgenwts"
#: Number of bytes before the JSON object in a weights file.
_HEAD = len(MAGIC) + 8
#: Field of a layer's hardware that gives the width of its weights in bits, and the largest width.
_BITS, _MAX_BITS = "compute.weight_bits", 17

#: Meanings of fields of a layer's hardware, for error messages.
_MEANINGS = {
    "compute.window.pad_value": "the zero point of its input, which padding takes",
    _BITS: "bits of a weight",
    "compute.weights": "its weights, which are constant",
    "compute.sum_bits": "bits of its sums",
    "compute.window.kernel": "its kernel",
    "compute.window.stride": "its stride",
    "compute.window.padding": "its padding",
    "compute.window.dilation": "its dilation",
    "finish.fraction": "bits of its bias below the products' lowest one",
    "finish.signed": "whether its outputs are signed",
    "finish.bits": "bits of its outputs",
}


@dataclass(frozen=True)
class Loadable:
    """Built design whose weights load at run time, read from its folder: digest, layers' fields, weight widths.

    Parameters
    ----------
    folder : Path
        Folder of the design.
    top : str
        Name of the accelerator's module.
    digest : str
        Digest of the hardware without its weights. A weights file for this design has the same digest.
    layers : mapping
        Fields of each layer's hardware, by the layer's name.
    weight_bits : mapping
        Width of a weight in bits, by the name of each layer with weights.
    inputs, outputs : tuple of str
        Names of the inputs and outputs in the Verilog. A retrained model can use other names.
    """

    folder: Path
    top: str
    digest: str
    layers: Mapping[str, Mapping[str, str]]
    weight_bits: Mapping[str, int]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def verilog(self) -> dict[str, bytes]:
        """Return the built design's Verilog and memory files, as a dictionary from file name to bytes.

        Raises
        ------
        InputError
            If a file is missing, or was changed since the build.
        """
        contents = {}
        for name, digest in manifest.read(self.folder).items():
            if name == f"{self.top}.v" or name.endswith(".mem"):
                path = self.folder / name
                content = path.read_bytes() if path.is_file() else b""
                if hashlib.sha256(content).hexdigest() != digest:
                    raise InputError(f"{path} is missing or was changed: build the design again")
                contents[name] = content
        if f"{self.top}.v" not in contents:
            raise InputError(f"there is no {self.top}.v in {self.folder}: build the design again")
        return contents

    def refuse(self, config: AcceleratorConfig, model: str) -> None:
        """Raise InputError if a retrained model's hardware would differ from this built design, weights aside.

        Parameters
        ----------
        config : AcceleratorConfig
            Hardware of the model.
        model : str
            Name of the model, for the refusal.

        Raises
        ------
        InputError
            If the hardware differs. The message names the first layer and field that differ.
        """
        description = config.description
        for layer in dict.fromkeys((*description, *self.layers)):
            ours, theirs = self.layers.get(layer, {}), description.get(layer, {})
            for field in dict.fromkeys((*theirs, *ours)):
                if ours.get(field) != theirs.get(field):
                    what = f"{_MEANINGS[field]} ({field})" if field in _MEANINGS else field
                    raise InputError(
                        f"{model} does not fit the design in {self.folder}: {layer or 'its graph'}: {what} must be "
                        f"{ours.get(field)}, as it was built, not {theirs.get(field)}"
                    )
        if self.digest != _digest(config):
            raise InputError(f"{model} does not fit the design in {self.folder}: it was built by another hwgen")


def file_name_of(model: str) -> str:
    """Return the default file name of a retrained model's weights, such as ``MODEL.weights``."""
    return f"{file_name(model)}{SUFFIX}"


def describe(config: AcceleratorConfig, top: str) -> bytes:
    """Return ``weights.json`` as bytes: the hardware of the module ``top``, without weights."""
    assert config.loader is not None
    document = {
        "module": top,
        "digest": _digest(config),
        "words": config.loader.packet_words,
        "inputs": config.input_names,
        "outputs": config.output_names,
        "layers": config.description,
        "memories": [
            {"layer": layer.name, "name": store.name, "width": store.width, "depth": store.depth}
            for layer in config.layers
            for store in layer.stores
        ],
    }
    return (json.dumps(document, indent=1) + "\n").encode()


def read_design(folder: str | Path) -> Loadable:
    """Return a `Loadable`: the description of a built design that loads weights at run time, read from its folder.

    Raises
    ------
    InputError
        If the folder has no design, or if the design's weights are constants.
    """
    path = Path(folder) / NAME
    if not (Path(folder) / "plan.json").is_file():
        raise InputError(f"there is no design in {folder}: 'hwgen build --weights runtime' writes one")
    if not path.is_file():
        raise InputError(f"the weights of the design in {folder} are constants: build it with --weights runtime")
    help = "build the design again"
    document = Entries.parsed(content_of(path, help), str(path), help=help)
    layers = document.value("layers", dict[str, dict[str, str]])
    bits = {name: _weight_bits(fields, f"{path}: {name}") for name, fields in layers.items() if _BITS in fields}
    inputs, outputs = (document.value(side, tuple[str, ...]) for side in ("inputs", "outputs"))
    return Loadable(Path(folder), document.text("module"), document.text("digest"), layers, bits, inputs, outputs)


def _weight_bits(described: Mapping[str, str], where: str) -> int:
    """Return a layer's weight width in bits from ``weights.json``; refuse one outside 1 to 17."""
    text = described[_BITS]
    if not text.isascii() or not text.isdigit() or not 0 < len(text) < 3 or not 0 < int(text) <= _MAX_BITS:
        raise InputError(f"{where}: {_BITS} must be 1 to {_MAX_BITS}, not {shown(text)}; build the design again")
    return int(text)


def write(config: AcceleratorConfig, host: Mapping[str, Any], model: str) -> bytes:
    """Return a weights file as bytes, which lets a built design compute a retrained model.

    Parameters
    ----------
    config : AcceleratorConfig
        Accelerator with the weights of the model.
    host : mapping
        Scales and zero points of the accelerator's inputs and outputs, as in ``plan.json``.
    model : str
        Name of the model.
    """
    load = config.weight_packet
    document = {"model": model, "design": _digest(config), "words": len(load) // 4, **host}
    text = json.dumps(document).encode()
    text += b" " * (-len(text) % 4)
    return MAGIC + pack("<II", len(text), zlib.crc32(text)) + text + load


def read(content: bytes, name: str) -> tuple[dict[str, Any], bytes]:
    """Return, as a pair, a weights file's JSON object, and the bytes of 32-bit words for the hardware, after checks.

    Parameters
    ----------
    content : bytes
        Contents of the file.
    name : str
        Name of the file, for refusals.

    Raises
    ------
    InputError
        If the contents are not a weights file, are cut off, or were changed.
    """
    if not content.startswith(MAGIC) or len(content) < _HEAD:
        raise InputError(f"{name} is not a weights file: give one that 'hwgen weights' wrote")
    size, check = unpack_from("<II", content, len(MAGIC))
    text, load = content[_HEAD : _HEAD + size], content[_HEAD + size :]
    if len(text) < size:
        raise InputError(f"{name} is cut off: it has {len(content):,} bytes; make it again")
    if zlib.crc32(text) != check:
        raise InputError(f"{name} was changed: the CRC-32 of its head is wrong; make it again")
    document = Entries.parsed(text, f"{name}: its head", help="make it again")
    words = document.integer("words", 1)
    if len(load) != 4 * words:
        raise InputError(f"{name} must have {_HEAD + size + 4 * words:,} bytes, not {len(content):,}; make it again")
    if zlib.crc32(load[:-4]) != unpack_from("<I", load, len(load) - 4)[0]:
        raise InputError(f"{name} was changed: the CRC-32 of its weights is wrong; make it again")
    return dict(document.values), load


def _digest(config: AcceleratorConfig) -> str:
    assert config.loader is not None
    return f"0x{config.loader.digest:016x}"
