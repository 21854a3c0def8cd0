"""Photographs of scikit-image and scikit-learn: twenty to detect faces in, and others to calibrate with.

All are squares of pictures that the packages carry, so that nothing is downloaded. Squares of 25 to 512 pixels become
the detector's 128; some are mirrored.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import skimage.data
from PIL import Image
from sklearn.datasets import load_sample_image


@dataclass(frozen=True)
class Photograph:
    """A square of a picture that a package carries."""

    picture: str
    left: int
    top: int
    side: int
    mirrored: bool = False

    def __str__(self) -> str:
        mirrored = ", mirrored" if self.mirrored else ""
        return f"{self.picture} ({self.left}, {self.top}) {self.side}x{self.side}{mirrored}"

    def image(self) -> Image.Image:
        picture = _picture(self.picture)
        image = picture.crop((self.left, self.top, self.left + self.side, self.top + self.side))
        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if self.mirrored else image


@cache
def _picture(name: str) -> Image.Image:
    if name in ("china", "flower"):
        return Image.fromarray(load_sample_image(f"{name}.jpg"))
    if name == "faces":
        faces = np.round(skimage.data.lfw_subset()[:100] * 255).astype(np.uint8)  # grey, 25x25; the others are no faces
        return Image.fromarray(faces.reshape(10, 10, 25, 25).transpose(0, 2, 1, 3).reshape(250, 250))
    pixels = getattr(skimage.data, name)()
    return Image.fromarray(pixels[0] if isinstance(pixels, tuple) else pixels)  # the left one of a stereo pair


PHOTOGRAPHS = (
    Photograph("astronaut", 0, 0, 512),
    Photograph("astronaut", 0, 0, 512, mirrored=True),
    Photograph("astronaut", 100, 0, 260),
    Photograph("astronaut", 60, 0, 360, mirrored=True),
    Photograph("astronaut", 150, 20, 180),
    Photograph("astronaut", 0, 0, 300),
    Photograph("astronaut", 180, 0, 320),
    Photograph("faces", 0, 0, 25),
    Photograph("faces", 50, 0, 50),
    Photograph("faces", 100, 50, 50, mirrored=True),
    Photograph("faces", 0, 50, 75),
    Photograph("faces", 150, 25, 100),
    Photograph("faces", 112, 62, 50),
    Photograph("camera", 0, 0, 512),
    Photograph("camera", 130, 30, 220),
    Photograph("chelsea", 75, 0, 300),
    Photograph("coffee", 100, 0, 400),
    Photograph("stereo_motorcycle", 120, 0, 500),
    Photograph("china", 100, 0, 427),
    Photograph("flower", 100, 0, 427),
)
"""The photographs in which boxes are searched."""

CALIBRATION = (
    *(Photograph("faces", 25 * (index % 8), 125 + 25 * (index // 8), 25 + 25 * (index % 2)) for index in range(32)),
    *(Photograph("astronaut", 40 * index, 0, 272, mirrored=index % 2 == 1) for index in range(7)),
    *(Photograph("rocket", 30 * index, 0, 427) for index in range(8)),
    *(Photograph("china", 30 * index, 0, 427, mirrored=True) for index in range(8)),
    *(Photograph("flower", 30 * index, 0, 427, mirrored=True) for index in range(8)),
)
"""Photographs on which the activations' ranges are measured; none is one of the twenty."""
