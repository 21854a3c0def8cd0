"""Modules of PyTorch as models: with a stand-in for PyTorch, and with PyTorch itself where it is installed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hwgen
from hwgen.errors import HwgenError, InputError, ModelError, ToolError

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
CALIBRATION = np.load(DIGITS / "calibration.npy")[:40]
IMAGES = np.load(DIGITS / "images.npy")[:20]


class Tensor:
    """The part of a tensor that hwgen uses."""

    def __init__(self, values: np.ndarray):
        self.values = values

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def numpy(self) -> np.ndarray:
        return self.values


class Digits:
    """The part of a module that hwgen uses: its parts' modes, one of which stays in evaluation mode in training."""

    def __init__(self) -> None:
        self.part = SimpleNamespace(training=False)
        self.training = True

    def state_dict(self) -> dict[str, Any]:
        return {}

    def modules(self) -> list[Any]:
        return [self, self.part]

    def eval(self) -> None:
        self.training = self.part.training = False


def install(monkeypatch: pytest.MonkeyPatch, export: Callable[..., None]) -> None:
    """Install a stand-in for PyTorch whose exporter is ``export``."""
    torch: Any = ModuleType("torch")
    torch.onnx = SimpleNamespace(export=export)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "onnxscript", ModuleType("onnxscript"))


def export_digits(module: Digits, example: tuple[Any, ...], path: str, **options: Any) -> None:
    """Write the float digits network, as PyTorch's exporter would."""
    assert isinstance(example, tuple)
    assert not any(part.training for part in module.modules())
    shutil.copyfile(DIGITS / "digits-float.onnx", path)


@pytest.mark.parametrize("calibration", [CALIBRATION, Tensor(CALIBRATION), [Tensor(CALIBRATION)]])
def test_the_model_is_that_of_the_exported_file(
    calibration: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, export_digits)
    module, path = Digits(), tmp_path / "digits.onnx"
    model = hwgen.from_torch(module, Tensor(CALIBRATION[:1]), calibration, path)
    expected = hwgen.load(DIGITS / "digits-float.onnx", calibration=CALIBRATION).golden(IMAGES)
    np.testing.assert_array_equal(model.golden(IMAGES), expected)
    np.testing.assert_array_equal(hwgen.load(path).golden(IMAGES), expected)
    assert (module.training, module.part.training) == (True, False)
    assert model.name == "digits"


def test_without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, export_digits)
    model = hwgen.from_torch(Digits(), Tensor(CALIBRATION[:1]), CALIBRATION, bits=16)
    assert model.name == "Digits"
    assert {layer.input.type.bits for layer in model.network.layers} == {16}


def test_an_export_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("a loop\nthat depends on values")

    install(monkeypatch, fail)
    module = Digits()
    with pytest.raises(ModelError, match=r"^Digits: PyTorch could not export it: a loop that depends on values$"):
        hwgen.from_torch(module, Tensor(CALIBRATION[:1]), CALIBRATION)
    assert module.training


@pytest.mark.parametrize("missing", ["torch", "onnxscript"])
def test_without_pytorch(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, export_digits)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ToolError, match=rf"^from_torch needs {missing}, which is not installed: .* install torch onnx"):
        hwgen.from_torch(Digits(), Tensor(CALIBRATION[:1]), CALIBRATION)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"calibration": CALIBRATION[:0]}, InputError, "Digits: calibration must have one frame at least, not none"),
        (
            {"calibration": CALIBRATION[:, :, :4]},
            InputError,
            r"Digits: calibration must have shape \(frames, 1, 8, 8\)",
        ),
        ({"calibration": 3}, InputError, "calibration must be an array, several of them, or the path"),
        ({"module": 3}, InputError, "module must be a torch.nn.Module, not 3"),
        ({"example": CALIBRATION}, InputError, "example must be a tensor, or a tuple of tensors, the inputs of one"),
        ({"output": "missing/q.onnx"}, InputError, "output missing/q.onnx can't be written: No such file"),
        ({"bits": 4}, InputError, "bits must be 8 or 16, not 4"),
    ],
)
def test_refusals(
    changes: dict[str, Any], error: type[HwgenError], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, export_digits)
    given = {"module": Digits(), "example": Tensor(CALIBRATION[:1]), "calibration": CALIBRATION, **changes}
    with pytest.raises(error, match=f"^{message}") as caught:
        hwgen.from_torch(**given)
    assert len(caught.value.lines) == 1


@pytest.mark.long
def test_by_pytorch(tmp_path: Path) -> None:
    """A residual network: the integers' classes are those of PyTorch's floats, and their values are near."""
    torch = pytest.importorskip("torch", reason="PyTorch is optional")
    pytest.importorskip("onnxscript", reason="PyTorch is optional")
    nn = torch.nn

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
            self.second, self.pool = nn.Conv2d(8, 8, 3, padding=1), nn.AdaptiveAvgPool2d(1)
            self.classifier = nn.Linear(8, 10)

        def forward(self, x: Any) -> Any:
            x = self.first(x)
            return self.classifier(self.pool(nn.functional.relu(x + self.second(x))).flatten(1))

    torch.manual_seed(0)
    module = Residual()
    model = hwgen.from_torch(module, torch.zeros(1, 1, 8, 8), torch.from_numpy(CALIBRATION), tmp_path / "q.onnx")
    assert module.training
    with torch.no_grad():
        expected = module.eval()(torch.from_numpy(IMAGES)).numpy()
    assert np.abs(model.golden(IMAGES) - expected).max() < 0.05 * np.abs(expected).max()
    comparison = model.plan("zedboard").compare(IMAGES[:2], model.runtime(tmp_path / "q.onnx"))
    assert comparison.ok
    assert comparison.as_runtime
