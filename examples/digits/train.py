"""Train, quantise and write the digits network, its held-out images and its calibration images.

Usage: python train.py [DIRECTORY]   (default: the folder of this script)

Everything is seeded: the split by scikit-learn's random_state, the training by torch. The held-out images are
touched once, at the end, to state the accuracy.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

HELD_OUT = 450  # of 1797, stratified by class
CALIBRATION = 128  # of the training images
SPLIT_SEED = 0
TRAINING_SEED = 1
EPOCHS = 60


def split() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images, held-out images (both (n, 1, 8, 8) float32 in [0, 1]), and their labels."""
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[:, None]
    return train_test_split(images, digits.target, test_size=HELD_OUT, stratify=digits.target, random_state=SPLIT_SEED)


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(128, 10),
    )


def shifted(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each image moved by -1, 0 or 1 pixel either way."""
    padded = nn.functional.pad(images, (1, 1, 1, 1))
    corners = torch.randint(0, 3, (len(images), 2), generator=generator).tolist()
    return torch.stack([image[:, y : y + 8, x : x + 8] for image, (y, x) in zip(padded, corners, strict=True)])


def train(images: np.ndarray, labels: np.ndarray) -> nn.Sequential:
    torch.manual_seed(TRAINING_SEED)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(TRAINING_SEED)
    model = network()
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x), generator=generator).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(shifted(x[batch], generator)), y[batch], label_smoothing=0.05).backward()
            optimiser.step()
        schedule.step()
    return model.eval()


def to_onnx(model: nn.Sequential) -> onnx.ModelProto:
    """The float model, with a symbolic batch and a name for every node."""
    weights = []
    nodes = []
    tensor = "image"

    def add(operator: str, name: str, *parameters: str, **attributes: object) -> None:
        nonlocal tensor
        output = "logits" if name == "fc" else f"{name}_out"
        nodes.append(helper.make_node(operator, [tensor, *parameters], [output], name=name, **attributes))
        tensor = output

    counts = dict.fromkeys(("conv", "relu", "pool"), 0)

    def numbered(kind: str) -> str:
        counts[kind] += 1
        return f"{kind}{counts[kind]}"

    for layer in model:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            name = numbered("conv") if isinstance(layer, nn.Conv2d) else "fc"
            weights.append(numpy_helper.from_array(layer.weight.detach().numpy(), f"{name}_weight"))
            weights.append(numpy_helper.from_array(layer.bias.detach().numpy(), f"{name}_bias"))
            parameters = (f"{name}_weight", f"{name}_bias")
            if isinstance(layer, nn.Conv2d):
                add("Conv", name, *parameters, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
            else:
                add("Gemm", name, *parameters, transB=1)
        elif isinstance(layer, nn.ReLU):
            add("Relu", numbered("relu"))
        elif isinstance(layer, nn.MaxPool2d):
            add("MaxPool", numbered("pool"), kernel_shape=[2, 2], strides=[2, 2])
        elif isinstance(layer, nn.Flatten):
            add("Flatten", "flatten")
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])],
        weights,
    )
    model_proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], producer_name="digits/train.py")
    model_proto.ir_version = 10
    onnx.checker.check_model(model_proto, full_check=True)
    return model_proto


class Images(CalibrationDataReader):
    def __init__(self, images: np.ndarray) -> None:
        self._batches = iter([{"image": image[None]} for image in images])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._batches, None)


def accuracy(model: Path, images: np.ndarray, labels: np.ndarray) -> float:
    session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {"image": images})
    return float(np.mean(logits.argmax(axis=1) == labels))


def main() -> None:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    directory.mkdir(parents=True, exist_ok=True)
    train_images, test_images, train_labels, test_labels = split()
    model = train(train_images, train_labels)
    onnx.save(to_onnx(model), directory / "digits-float.onnx")
    calibration = train_images[:CALIBRATION]
    with tempfile.TemporaryDirectory() as folder:
        quantised = Path(folder) / "digits.onnx"
        quantize_static(
            directory / "digits-float.onnx",
            quantised,
            Images(calibration),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            # 7-bit weights: ONNX Runtime's 16-bit intermediate sums then can't saturate on any processor
            reduce_range=True,
        )
        (directory / "digits.onnx").write_bytes(quantised.read_bytes())
    np.save(directory / "images.npy", test_images)
    np.save(directory / "labels.npy", test_labels.astype(np.uint8))
    np.save(directory / "calibration.npy", calibration)
    print(f"{len(train_images)} training images, {len(test_images)} held out")
    for name in ("digits-float.onnx", "digits.onnx"):
        print(f"{name}: {accuracy(directory / name, test_images, test_labels):.2%} of the held-out images right")


if __name__ == "__main__":
    main()
