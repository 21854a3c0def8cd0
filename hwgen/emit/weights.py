"""Files of weights that are loaded at run time, and what a design's folder says of those that it takes.

A file is ``hwgenwts``, the bytes of a JSON object and their CRC-32 (32 bits each, lowest byte first), that object, and
what the hardware takes, word by word (`hwgen.gateware.load.loader`).
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
from hwgen.fields import Entries, shown
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.names import file_name

#: In a design's folder: what it is apart from its weights.
NAME = "weights.json"
#: What files of weights are called.
SUFFIX = ".weights"
MAGIC = b"hwgenwts"
#: Bytes in front of the JSON.
_HEAD = len(MAGIC) + 8
#: The field of a layer's hardware that says how wide weights are, and the widest that there are.
_BITS, _MOST_BITS = "compute.weight_bits", 17

#: What differs, for people, where a field's name says too little.
_MEANINGS = {
    "compute.window.pad_value": "the zero point of its input, which padding takes",
    _BITS: "bits of a weight",
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
    """A design whose weights are loaded, as its folder has it.

    Parameters
    ----------
    folder : Path
    top : str
        The accelerator's module.
    digest : str
        Of the hardware without its weights, as in files for it.
    layers : mapping
        By layer, the fields of its hardware.
    weight_bits : mapping
        By layer with weights, bits of each of them.
    inputs, outputs : tuple of str
        What they are called in its Verilog; a retrained model may call its tensors otherwise.
    """

    folder: Path
    top: str
    digest: str
    layers: Mapping[str, Mapping[str, str]]
    weight_bits: Mapping[str, int]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def verilog(self) -> dict[str, bytes]:
        """The accelerator's Verilog and its memory files, by name.

        Raises
        ------
        InputError
            If one is missing, or was changed.
        """
        found = {}
        for name, digest in manifest.read(self.folder).items():
            if name == f"{self.top}.v" or name.endswith(".mem"):
                path = self.folder / name
                content = path.read_bytes() if path.is_file() else b""
                if hashlib.sha256(content).hexdigest() != digest:
                    raise InputError(f"{path} is missing or was changed: build the design again")
                found[name] = content
        if f"{self.top}.v" not in found:
            raise InputError(f"there is no {self.top}.v in {self.folder}: build the design again")
        return found

    def refuse(self, config: AcceleratorConfig, model: str) -> None:
        """Raise InputError if ``config``, the hardware of a model, is another than this; names layer and field."""
        found = config.description
        for layer in dict.fromkeys((*found, *self.layers)):
            ours, theirs = self.layers.get(layer, {}), found.get(layer, {})
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
    """What the file of a model's weights is called if nobody says otherwise."""
    return f"{file_name(model)}{SUFFIX}"


def describe(config: AcceleratorConfig, top: str) -> bytes:
    """The contents of ``weights.json``."""
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
    """What a design's folder says of the weights that it takes.

    Raises
    ------
    InputError
        If there is none in the folder, or its weights are constants.
    """
    place = Path(folder) / NAME
    if not (Path(folder) / "plan.json").is_file():
        raise InputError(f"there is no design in {folder}: 'hwgen build --weights runtime' writes one")
    if not place.is_file():
        raise InputError(f"the weights of the design in {folder} are constants: build it with --weights runtime")
    help = "build the design again"
    try:
        document = Entries.parsed(place.read_bytes(), str(place), help=help)
    except OSError as error:
        raise InputError(f"{place} can't be read: {error.strerror or error}; {help}") from None
    layers = {name: _described(document.entries("layers"), name) for name in document.entries("layers").values}
    bits = {name: _weight_bits(fields, f"{place}: {name}") for name, fields in layers.items() if _BITS in fields}
    inputs, outputs = document.texts("inputs"), document.texts("outputs")
    return Loadable(Path(folder), document.text("module"), document.text("digest"), layers, bits, inputs, outputs)


def _described(layers: Entries, name: str) -> dict[str, str]:
    """Return the fields of a layer's hardware, which are texts."""
    fields = layers.entries(name)
    return {key: fields.text(key) for key in fields.values}


def _weight_bits(described: Mapping[str, str], where: str) -> int:
    """Return the bits of a layer's weights."""
    text = described[_BITS]
    if not text.isascii() or not text.isdigit() or not 0 < len(text) < 3 or not 0 < int(text) <= _MOST_BITS:
        raise InputError(f"{where}: {_BITS} must be 1 to {_MOST_BITS}, not {shown(text)}; build the design again")
    return int(text)


def write(config: AcceleratorConfig, host: Mapping[str, Any], model: str) -> bytes:
    """A file of the weights that a configuration holds.

    Parameters
    ----------
    host : mapping
        What stands for reals at the hardware's ends, as in ``plan.json``.
    model : str
        Whose weights they are.
    """
    load = config.load
    document = {"model": model, "design": _digest(config), "words": len(load) // 4, **host}
    text = json.dumps(document).encode()
    text += b" " * (-len(text) % 4)
    return MAGIC + pack("<II", len(text), zlib.crc32(text)) + text + load


def read(content: bytes, name: str) -> tuple[dict[str, Any], bytes]:
    """What a file says of itself, and what the hardware takes.

    Raises
    ------
    InputError
        If it is not such a file, is cut off, or was changed.
    """
    if not content.startswith(MAGIC) or len(content) < _HEAD:
        raise InputError(f"{name} is no file of weights: 'hwgen weights' makes one")
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
