"""Targets of damaged input: each target makes the input of a case and hands it to hwgen."""

from __future__ import annotations

import json
import random
import shutil
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import hwgen
from fuzz import corpus, mutate
from hwgen import boards, options
from hwgen.cli.main import main
from hwgen.emit import engine, manifest, weights
from hwgen.errors import CheckError, HwgenError
from hwgen.program.file import Program

#: Operators that mutations put in place of others, beside those of the models.
OPERATORS = [
    *("Conv", "ConvTranspose", "MatMul", "Gemm", "MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearAdd", "Add"),
    *("Mul", "Div", "Sub", "MaxPool", "AveragePool", "GlobalMaxPool", "LRN", "Relu", "Clip", "Pad", "Slice", "Split"),
    *("Gather", "Resize", "Upsample", "Concat", "Transpose", "Reshape", "Expand", "Tile", "Shape", "ConstantOfShape"),
    *(
        "DepthToSpace",
        "SpaceToDepth",
        "ReduceMax",
        "ReduceMean",
        "Softmax",
        "Einsum",
        "TopK",
        "CumSum",
        "Range",
        "Loop",
    ),
    *("DynamicQuantizeLinear", "QLinearConcat", "QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearSigmoid"),
]


class Target(ABC):
    """A kind of input. ``folder`` holds the corpus; ``here`` is the worker's own folder."""

    #: Cases that the issue asks for.
    count = 5000

    def __init__(self, folder: Path, here: Path) -> None:
        self.folder, self.here = folder, here

    @abstractmethod
    def run(self, rng: random.Random) -> int:
        """Make a case, and return hwgen's exit status: in Python, 1 and 2 of its errors."""


def _status(function: Callable[[], object]) -> int:
    """Return the exit status that the command line gives for the errors of a function."""
    try:
        function()
    except CheckError:
        return 1
    except HwgenError as error:
        print("\n".join(error.lines))
        return 2
    return 0


class Models(Target):
    """ONNX files, in the verbs that read them."""

    count = 2000

    def __init__(self, folder: Path, here: Path) -> None:
        super().__init__(folder, here)
        self.models = [onnx.load(str(folder / f"{name}.onnx")) for name in corpus.MODELS]
        self.names = [
            sorted({text for node in model.graph.node for text in (*node.input, *node.output, node.op_type)})
            for model in self.models
        ]

    def run(self, rng: random.Random) -> int:
        place = rng.randrange(len(self.models))
        model = onnx.ModelProto()
        model.CopyFrom(self.models[place])
        mutate.message(model, [*self.names[place], *OPERATORS], rng)
        content = model.SerializeToString()
        path = self.here / "model.onnx"
        path.write_bytes(mutate.raw(content, rng) if rng.random() < 0.2 else content)
        verb = rng.choice(["check", "plan", "plan", "golden", "engine", "pyramid"])
        if verb == "check":
            return main(["check", str(path)])
        if verb == "golden":
            x = str(self.folder / "x.npy")
            return main(["golden", str(path), "--input", x, "--output", str(self.here / "y.npy")])
        more = {"plan": [], "engine": [*corpus.ENGINE], "pyramid": ["--template", "pyramid"]}[verb]
        return main(["plan", str(path), "--board", corpus.BOARD, *more])


class Programs(Target):
    """Programs whose checksum is right, at times with jobs or bytes that were changed."""

    def __init__(self, folder: Path, here: Path) -> None:
        super().__init__(folder, here)
        self.content = next((folder / "engine").glob("*.program")).read_bytes()
        size, _ = struct.unpack_from("<QQ", self.content, 32)
        self.told, self.image = json.loads(self.content[48 : 48 + size]), self.content[48 + size :]
        self.engine = engine.read(folder / "engine").engine

    def run(self, rng: random.Random) -> int:
        way, image = rng.random(), self.image
        if way < 0.1:
            content = mutate.raw(self.content, rng)
        else:
            text = json.dumps(mutate.json_value(self.told, rng)).encode(errors="replace")
            if way < 0.2:
                text = mutate.raw(text, rng)
            if way > 0.9:
                image = mutate.raw(image, rng)
            body = self.content[16:32] + struct.pack("<QQ", len(text), len(image)) + text + image
            version = struct.pack("<I", rng.choice([4] * 19 + [5]))
            content = self.content[:8] + version + struct.pack("<I", zlib.crc32(body)) + body
        path = self.here / "changed.program"
        path.write_bytes(content)
        return _status(lambda: self._read(path, rng.random() < 0.5))

    def _read(self, path: Path, with_engine: bool) -> None:
        program = Program.read(path, self.engine if with_engine else None)
        assert len(program.jobs) == len(program.owners)
        assert program.size >= max(region.at(program.batch - 1).stop for region in (*program.inputs, *program.outputs))


class Weights(Target):
    """Files of weights, and what a design's folder says of those that it takes."""

    def __init__(self, folder: Path, here: Path) -> None:
        super().__init__(folder, here)
        self.content = (folder / "chain.weights").read_bytes()
        size, _ = struct.unpack_from("<II", self.content, 8)
        self.head, self.load = json.loads(self.content[16 : 16 + size]), self.content[16 + size :]
        self.described = json.loads((folder / "design" / weights.NAME).read_text())
        self.design = Path(shutil.copytree(folder / "design", here / "design"))

    def run(self, rng: random.Random) -> int:
        way = rng.random()
        if way < 0.4:
            text = json.dumps(mutate.json_value(self.head, rng)).encode(errors="replace")
            content = self.content[:8] + struct.pack("<II", len(text), zlib.crc32(text)) + text + self.load
            return _status(lambda: weights.read(content, "changed.weights"))
        if way < 0.5:
            return _status(lambda: weights.read(mutate.raw(self.content, rng), "changed.weights"))
        (self.design / weights.NAME).write_text(_text(self.described, rng), encoding="utf-8")
        if way < 0.9:
            return _status(lambda: weights.read_design(self.design))
        model, out = str(self.folder / "chain.onnx"), str(self.here / "out.weights")
        return main(["weights", model, "--design", str(self.design), "-o", out])


def _text(document: Any, rng: random.Random) -> str:
    """Return the text of a mutated document, at times damaged as a text."""
    text = json.dumps(mutate.json_value(document, rng))
    if rng.random() < 0.1:
        text = mutate.raw(text.encode(), rng).decode(errors="replace")
    return text


class Plans(Target):
    """Plans of each template."""

    def __init__(self, folder: Path, here: Path) -> None:
        super().__init__(folder, here)
        self.plans = [json.loads(path.read_text()) for path in sorted(folder.glob("*.plan.json"))]
        self.model = hwgen.load(folder / "chain.onnx")

    def run(self, rng: random.Random) -> int:
        path = self.here / "plan.json"
        path.write_text(_text(rng.choice(self.plans), rng), encoding="utf-8")
        if rng.random() < 0.01:
            model, result = str(self.folder / "chain.onnx"), str(self.here / "result")
            return main(["build", model, "--board", corpus.BOARD, "--plan", str(path), "-o", result])
        return _status(lambda: self._read(path))

    def _read(self, path: Path) -> None:
        design = self.model.plan(corpus.BOARD, plan=path)
        design.table()
        design.to_json()


class Manifests(Target):
    """Target with damaged files of the folders that hwgen writes, and boards: manifests, engines, figures, pages."""

    def __init__(self, folder: Path, here: Path) -> None:
        super().__init__(folder, here)
        self.engine = Path(shutil.copytree(folder / "engine", here / "engine"))
        self.design = Path(shutil.copytree(folder / "design", here / "design"))
        self.of_engine = json.loads((self.engine / engine.NAME).read_text())
        self.files = json.loads((self.design / manifest.NAME).read_text())
        self.registers = json.loads((self.design / "registers.json").read_text())
        self.plan = json.loads((self.design / "plan.json").read_text())
        used = {"lut": 10, "ff": 10, "bram36": 1.5, "dsp": 3}
        self.vivado = {
            **{"vivado": "2023.1", "board_files": "", "clock_mhz": 100.0, "wns_ns": 0.1, "whs_ns": 0.01},
            **{"build_hash": self.registers["build_hash"], "accelerator": None, "ip": used, "design": used},
        }
        self.board = (folder / "mine.toml").read_text()

    def run(self, rng: random.Random) -> int:
        return rng.choice([self._manifest, self._engine, self._report, self._board])(rng)

    def _manifest(self, rng: random.Random) -> int:
        """Check that a damaged manifest never deletes files elsewhere."""
        place = self.here / "result"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        (self.here / "kept").write_text("kept")
        (place / "report.md").write_text("mine")
        (place / manifest.NAME).write_text(_text(self.files, rng), encoding="utf-8")
        status = _status(lambda: manifest.remove(place, manifest.read(place)))
        assert (self.here / "kept").read_text() == "kept"
        assert (place / "report.md").read_text() == "mine"
        return status

    def _engine(self, rng: random.Random) -> int:
        (self.engine / engine.NAME).write_text(_text(self.of_engine, rng), encoding="utf-8")
        return _status(lambda: engine.read(self.engine))

    def _report(self, rng: random.Random) -> int:
        documents = {"vivado.json": self.vivado, "registers.json": self.registers, "plan.json": self.plan}
        name = rng.choice(["vivado.json", "vivado.json", "registers.json", "plan.json"])
        for each, document in documents.items():
            text = _text(document, rng) if each == name else json.dumps(document)
            (self.design / each).write_text(text, encoding="utf-8")
        return main(["report", str(self.design)])

    def _board(self, rng: random.Random) -> int:
        lines = self.board.splitlines()
        place = rng.randrange(len(lines))
        key = lines[place].partition("=")[0]
        value = rng.choice(["", "= -1", "= 0", "= nan", "= 1e400", "= true", "= []", '= ""', "= {}", f"= {'9' * 5000}"])
        lines[place] = rng.choice([f"{key}{value}", "", f"x{lines[place]}", lines[place] * 2])
        path = self.here / "mine.toml"
        content = "\n".join(lines).encode()
        path.write_bytes(mutate.raw(content, rng) if rng.random() < 0.2 else content)
        return _status(lambda: boards.load(str(path)))


class Interface(Target):
    """Functions of the Python interface with arguments of any type; at least one of a call makes no sense."""

    def __init__(self, folder: Path, here: Path) -> None:
        super().__init__(folder, here)
        self.model = hwgen.load(folder / "chain.onnx")
        self.design = self.model.plan(corpus.BOARD)
        self.x = np.load(folder / "x.npy")
        self.options = [*options.table()]

    def _values(self) -> list[Any]:
        """Return values of every kind, new ones each time."""
        arrays = [self.x, self.x[0], self.x.astype(object), np.zeros(0), np.full((1, 2, 6, 5), np.nan, np.float32)]
        others = [object(), b"x", {1, 2}, range(3), (1, 2), (0.5, "x"), lambda *given: None, int, Ellipsis, 1j]
        paths = [Path("/"), Path("/nonexistent"), self.folder, self.folder / "chain.onnx", self.folder / "x.npy"]
        return [*mutate.VALUES, *arrays, *others, *paths, np.int64(3), np.float32(2), self.model, self.design]

    def run(self, rng: random.Random) -> int:
        values = self._values()
        calls: Sequence[tuple[Callable[..., Any], list[Any], list[str]]] = [
            (hwgen.load, [rng.choice(values)], ["calibration", "bits", "until"]),
            (hwgen.load, [self.folder / "chain.onnx"], ["calibration", "bits", "until"]),
            (hwgen.check, [rng.choice(values)], ["board", "bits"]),
            (hwgen.check, [self.folder / "chain.onnx"], ["board", "bits", "calibration"]),
            (self.model.plan, [rng.choice(values)], ["plan", "progress"]),
            (self.model.plan, [corpus.BOARD], ["plan", "progress", "jobs", *rng.sample(self.options, 2)]),
            (self.model.plan, [corpus.BOARD], [rng.choice(self.options)]),
            (self.model.random_frames, [rng.choice([1, *values])], ["seed"]),
            (self.model.golden, [rng.choice(values)], ["integers"]),
            (self.model.prepare, [rng.choice(values)], []),
            (self.model.compile, [rng.choice(values)], ["plan", "batch", "jobs"]),
            (self.model.compile, [self.folder / "engine"], ["plan", "batch"]),
            (self.model.retrained, [rng.choice(values)], ["board"]),
            (self.model.retrained, [self.folder / "design"], ["board"]),
            (self.model.run, [self.folder / "engine", rng.choice(values), self.x], ["waves", "memory_latency"]),
            (self.design.simulate, [object()], ["seed", "stalls", "jobs", "simulator", "waves", "memory_latency"]),
            (self.design.build, [rng.choice([object(), 3, b"x", ""])], ["x", "say", "progress"]),
            (self.design.compare, [self.x, rng.choice([object(), 3, None])], ["labels"]),
            (
                hwgen.sweep,
                [rng.choice([self.model, [self.model], *values]), rng.choice([corpus.BOARD, *values])],
                ["jobs"],
            ),
        ]
        function, given, names = rng.choice(calls)
        named = {name: rng.choice(values) for name in names if rng.random() < 0.5}
        return _status(lambda: function(*given, **named))


TARGETS: dict[str, type[Target]] = {
    "onnx": Models,
    "programs": Programs,
    "weights": Weights,
    "plans": Plans,
    "manifests": Manifests,
    "api": Interface,
}
