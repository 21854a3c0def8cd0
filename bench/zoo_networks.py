"""Networks of `export_zoo`, with random weights: those of torchvision, timm and ultralytics, some small ones, Keras."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import timm
import torch
import torchvision
import ultralytics
from torch import nn
from torch.nn import functional


class FirstMap(nn.Module):
    """Segmentation network of torchvision that returns its output map, as exporters need it."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)["out"]


def _twice(inputs: int, outputs: int) -> nn.Sequential:
    """Two 3x3 convolutions, each with BatchNorm and ReLU."""
    layers: list[nn.Module] = []
    for source in (inputs, outputs):
        layers += [nn.Conv2d(source, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """U-Net with ``levels`` halvings, and transposed convolutions or bilinear interpolation on the way up."""

    def __init__(self, width: int = 16, levels: int = 3, *, bilinear: bool = False):
        super().__init__()
        widths = [width << level for level in range(levels + 1)]
        self.first = _twice(3, width)
        self.down = nn.ModuleList(
            nn.Sequential(nn.MaxPool2d(2), _twice(fine, coarse)) for fine, coarse in pairwise(widths)
        )
        pairs = list(zip(widths[-2::-1], widths[::-1], strict=False))
        self.up = nn.ModuleList(
            nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), nn.Conv2d(coarse, fine, 1))
            if bilinear
            else nn.ConvTranspose2d(coarse, fine, 2, stride=2)
            for fine, coarse in pairs
        )
        self.join = nn.ModuleList(_twice(2 * fine, fine) for fine, _ in pairs)
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = [self.first(x)]
        for down in self.down:
            maps.append(down(maps[-1]))
        y = maps.pop()
        for up, join in zip(self.up, self.join, strict=True):
            skip = maps.pop()
            y = up(y)
            height, width = skip.shape[2] - y.shape[2], skip.shape[3] - y.shape[3]
            y = functional.pad(y, [width // 2, width - width // 2, height // 2, height - height // 2])
            y = join(torch.cat([skip, y], dim=1))
        return self.last(y)


class SpeechM5(nn.Module):
    """M5 on raw audio, as in torchaudio's tutorial: convolutions and pools in one dimension."""

    def __init__(self, width: int = 32, classes: int = 35):
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs, kernel, stride in ((1, width, 80, 16), (width, width, 3, 1), (width, 2 * width, 3, 1)):
            layers += [nn.Conv1d(inputs, outputs, kernel, stride), nn.BatchNorm1d(outputs), nn.ReLU(), nn.MaxPool1d(4)]
        self.features, self.classifier = nn.Sequential(*layers), nn.Linear(2 * width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.features(x)
        x = functional.avg_pool1d(x, x.shape[-1]).permute(0, 2, 1)
        return functional.log_softmax(self.classifier(x), dim=2)


class Recurrent(nn.Module):
    """Convolution over time, followed by an LSTM and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.lstm = nn.Conv1d(8, 16, 3, padding=1), nn.LSTM(16, 32, batch_first=True)
        self.classifier = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, _ = self.lstm(functional.relu(self.conv(x)).transpose(1, 2))
        return self.classifier(y[:, -1])


def _autoencoder() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.ConvTranspose2d(32, 16, 3, stride=2, padding=1, output_padding=1), nn.ReLU()),
        *(nn.ConvTranspose2d(16, 3, 3, stride=2, padding=1, output_padding=1), nn.Sigmoid()),
    )


def _super_resolution() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 64, 5, padding=2), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(64, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 9, 3, padding=1), nn.PixelShuffle(3)),
    )


def _vgg11() -> nn.Module:
    """VGG-11 with 256 values in place of 4,096 in its hidden linear layers, which would make files of 530 MB."""
    module = torchvision.models.vgg11()
    for place, (inputs, outputs) in {0: (25088, 256), 3: (256, 256), 6: (256, 1000)}.items():
        module.classifier[place] = nn.Linear(inputs, outputs)
    return module


def _detector(name: str) -> nn.Module:
    """Network of a detector of ultralytics, with its head as in its own export to ONNX."""
    inner = ultralytics.YOLO(f"{name}.yaml").model
    head = inner.model[-1]
    head.export, head.format, head.dynamic = True, "onnx", False
    return inner


def _keras() -> Any:
    """Small Keras CNN: separable convolutions, BatchNormalization, ReLU6, a residual sum and a global average."""
    import keras

    keras.utils.set_random_seed(0)
    x = source = keras.Input((64, 64, 3))
    x = keras.layers.Conv2D(16, 3, strides=2, padding="same", use_bias=False)(x)
    x = keras.layers.ReLU(6.0)(keras.layers.BatchNormalization()(x))
    for width in (32, 64):
        x = keras.layers.DepthwiseConv2D(3, padding="same", use_bias=False)(x)
        x = keras.layers.ReLU(6.0)(keras.layers.BatchNormalization()(x))
        skip = x = keras.layers.Conv2D(width, 1, activation="relu")(x)
        x = keras.layers.Conv2D(width, 3, padding="same", activation="relu")(x)
        x = keras.layers.MaxPooling2D(2)(keras.layers.Add()([x, skip]))
    x = keras.layers.Dropout(0.2)(keras.layers.GlobalAveragePooling2D()(x))
    return keras.Model(source, keras.layers.Dense(10, activation="softmax")(x))


@dataclass(frozen=True)
class Entry:
    """Network of the zoo: how it is made, the shape of its input's frame, and whether it is to be built whole."""

    make: Callable[[], Any]
    shape: tuple[int, ...]
    whole: bool = True
    keras: bool = False


_SIZE = (3, 96, 96)
_VISION, _MAPS = torchvision.models, torchvision.models.segmentation
NETWORKS = {
    "resnet18": Entry(_VISION.resnet18, _SIZE),
    "mobilenet_v2": Entry(_VISION.mobilenet_v2, _SIZE),
    "mobilenet_v3_small": Entry(_VISION.mobilenet_v3_small, _SIZE),
    "squeezenet1_1": Entry(_VISION.squeezenet1_1, _SIZE),
    "shufflenet_v2": Entry(_VISION.shufflenet_v2_x1_0, _SIZE),
    "efficientnet_b0": Entry(lambda: timm.create_model("efficientnet_b0"), _SIZE),
    "regnet_y_400mf": Entry(_VISION.regnet_y_400mf, _SIZE),
    "densenet121": Entry(_VISION.densenet121, _SIZE),
    "googlenet": Entry(lambda: _VISION.googlenet(weights=None, aux_logits=False, init_weights=True), _SIZE),
    "vgg11": Entry(_vgg11, (3, 64, 64)),
    "lraspp_mobilenet_v3": Entry(
        lambda: FirstMap(_MAPS.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None)), _SIZE
    ),
    "deeplabv3": Entry(
        lambda: FirstMap(_MAPS.deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None)), _SIZE
    ),
    "yolov8n": Entry(lambda: _detector("yolov8n"), (3, 160, 160)),
    "unet": Entry(UNet, _SIZE),
    "autoencoder": Entry(_autoencoder, (3, 64, 64)),
    "m5_1d": Entry(SpeechM5, (1, 8000)),
    "super_resolution": Entry(_super_resolution, (1, 64, 64)),
    "keras_cnn": Entry(_keras, (64, 64, 3), keras=True),
    "unet_bilinear": Entry(lambda: UNet(bilinear=True), _SIZE),
    "convnext_tiny": Entry(lambda: timm.create_model("convnext_tiny"), _SIZE, whole=False),
    "vit": Entry(lambda: timm.create_model("vit_tiny_patch16_224", img_size=96), _SIZE, whole=False),
    "yolo11n": Entry(lambda: _detector("yolo11n"), (3, 160, 160), whole=False),
    "lstm": Entry(Recurrent, (8, 32), whole=False),
}
"""Networks by name; unet_bilinear is an extra one."""
