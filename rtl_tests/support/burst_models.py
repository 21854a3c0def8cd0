"""Small random ONNX models, most of whose blocks make a reader take its input in bursts; reproducible from a seed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
from random_models import RandomModel, Tensor

#: Blocks of a model, the commoner ones more often.
BLOCKS = ("conv", "concat", "concat", "upsample", "upsample", "pool", "residual", "long", "activation")


class BurstModel(RandomModel):
    """A model of concatenations, upsamplings, pools, shortcuts and convolutions of few channels on small maps."""

    def block(self, source: Tensor, *, first: bool) -> Tensor:
        rng, outputs = self.rng, int(self.rng.choice([2, 3, 4, 6]))
        is_small = min(source.height, source.width) < 4
        kind = "conv" if first else str(rng.choice(BLOCKS))
        if kind == "conv":
            stride = 1 if is_small else int(rng.choice([1, 1, 2]))
            return self.conv(source, outputs, int(rng.choice([1, 3])), strides=(stride, stride))
        if kind == "concat":
            branches = [self.same(source, outputs), source if rng.random() < 0.5 else self.same(source, 3)]
            return self.concatenated(*(branches if rng.random() < 0.5 else branches[::-1]))
        if kind == "upsample":
            return source if source.height * source.width > 60 else self.upsample(source)
        if kind == "pool":
            return source if is_small else self.halved(source)
        if kind == "residual":
            return self.residual(source)
        if kind == "long":
            return source if is_small or source.height % 2 or source.width % 2 else self.long(source, outputs)
        return self.activation(source, "LeakyRelu")

    def whole(self, source: Tensor) -> Tensor:
        """Return the map as it is: no model ends with a global average pool."""
        return source

    def concatenated(self, *branches: Tensor) -> Tensor:
        name = self.node("Concat", *branches, axis=1)
        return self.quantise(name, branches[0], channels=sum(branch.channels for branch in branches))

    def halved(self, source: Tensor) -> Tensor:
        """Add a maximum pool of 2x2 pixels."""
        rows, columns = source.height // 2, source.width // 2
        name = self.node("MaxPool", source, kernel_shape=[2, 2], strides=[2, 2])
        return self.labelled(name, replace(source, height=rows, width=columns))

    def long(self, source: Tensor, outputs: int) -> Tensor:
        """Add a level of a U-Net: a pool, a convolution, an upsampling, and a concatenation with what came in."""
        inner = self.same(self.halved(source), outputs)
        scales = self.constant(np.array([1, 1, 2, 2], np.float32))
        rounding = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        name = self.node("Resize", inner, "", scales, **rounding)
        return self.concatenated(source, self.labelled(name, replace(inner, height=source.height, width=source.width)))


def burst_model(seed: int) -> onnx.ModelProto:
    """Return the model of a seed."""
    return BurstModel(seed, blocks=4, most_side=9).model()
