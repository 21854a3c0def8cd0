"""A network, resolved to integers, and its exact outputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwgen.api.arrays import Inputs, Values, read_inputs
from hwgen.arguments import checked, shown
from hwgen.errors import InputError
from hwgen.printable import counted

if TYPE_CHECKING:
    from hwgen.network.graph import Network
    from hwgen.network.maps import FeatureMap
    from hwgen.network.onnx.layers import RuntimeLayers

__all__ = ["GoldenModel"]

_MOST_VALUES = 1 << 32
"""Largest number of values in random frames."""


@dataclass(frozen=True, repr=False)
class GoldenModel:
    """A network, resolved to integers: its inputs, its outputs, and the golden model that computes them."""

    network: Network

    def __repr__(self) -> str:
        taken, given = (" and ".join(map(str, maps)) for maps in (self.network.input_maps, self.network.output_maps))
        return f"<Model {self.name}: {taken} to {given}, {counted(len(self.network.layers), 'layer')}>"

    @property
    def name(self) -> str:
        return self.network.name

    @property
    def input(self) -> FeatureMap:
        """Shape, integer type, zero point and scale of the hardware's input.

        Raises
        ------
        InputError
            If there are several inputs, see ``inputs``.
        """
        if len(self.network.inputs) > 1:
            raise InputError(f"{self.name} has {len(self.network.inputs)} inputs: ask for inputs")
        return self.network.input

    @property
    def inputs(self) -> dict[str, FeatureMap]:
        """The same of all inputs, by the model's names of them, in its order."""
        return dict(zip(self.network.input_names, self.network.input_maps, strict=True))

    @property
    def output(self) -> FeatureMap:
        """Shape, integer type, zero point and scale of the hardware's output, the last integer tensor.

        Raises
        ------
        InputError
            If there are several outputs, see ``outputs``.
        """
        if len(self.network.output_names) > 1:
            raise InputError(f"{self.name} has {len(self.network.output_names)} outputs: ask for outputs")
        return self.network.output

    @property
    def outputs(self) -> dict[str, FeatureMap]:
        """The same of all outputs, by the model's names of them, in its order."""
        return dict(zip(self.network.output_names, self.network.output_maps, strict=True))

    @property
    def host(self) -> dict[str, Any]:
        """``input``, ``output`` (``inputs``, ``outputs``, where there are several) and ``host``, as in ``plan.json``.

        Both ends of the hardware by name, shape, type, scale and zero point, and the operators on the host around them.
        """
        from hwgen.network import host

        return host.describe(self.network)

    @checked
    def prepare(self, x: Inputs) -> Values:
        """Frames ``(n, C, H, W)`` of the model's integer type: float32 is quantised, integers pass.

        Frames have the shape that the model gives them: ``(n, C, H, W)``, ``(n, H, W, C)``, ``(n, features)`` ... Of a
        model with several inputs they are a sequence of arrays in the inputs' order, or a dict by their names. What is
        given back lies as the hardware takes it, of several inputs a dict; ``golden`` and ``simulate`` take frames as
        this function does.

        Raises
        ------
        InputError
            If shape or type do not fit, or a value is not a number.
        """
        from hwgen.network import quantise

        made = quantise.prepare_inputs(self.network, x)
        return made[0] if len(made) == 1 else dict(zip(self.network.input_names, made, strict=True))

    @checked
    def random_frames(self, count: int, seed: int = 0) -> Values:
        """``count`` random frames of the model's integer type, over its whole range: the same for the same ``seed``.

        Returns
        -------
        ndarray, or dict of str to ndarray
            In the model's shape, such as ``(count, C, H, W)`` or ``(count, features)``; of several inputs by name.

        Raises
        ------
        InputError
            If ``count`` is no positive integer, or there would be more than 2**32 values.
        """
        from hwgen.network import host

        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            raise InputError(f"count of random frames must be a positive integer, not {shown(count)}")
        values = sum(math.prod(end.shape) for end in host.inputs(self.network))
        if count * values > _MOST_VALUES:
            raise InputError(
                f"{count:,} random frames of {values:,} values are too many: "
                f"at most {_MOST_VALUES // values:,} of this model"
            )
        generator, taken, found = np.random.default_rng(seed), host.taken(self.network), {}
        for end in host.inputs(self.network):
            shape = (count, *end.shape)
            if end.name in taken:
                kind = taken[end.name][1].type
                found[end.name] = generator.integers(kind.minimum, kind.maximum, shape, kind.dtype, endpoint=True)
            else:  # only the host takes it
                found[end.name] = generator.normal(size=shape).astype(np.float32)
        return found if len(found) > 1 else next(iter(found.values()))

    @checked
    def golden(self, x: Inputs, *, integers: bool = False) -> Values:
        """Outputs of the golden model.

        Parameters
        ----------
        x : ndarray, or sequence or dict of ndarray
            Frames as for ``prepare``.
        integers : bool
            Give the last integer tensor, at which the hardware ends, instead of the model's own output.

        Returns
        -------
        ndarray, or dict of str to ndarray
            ``(n, ...)``, in the type and shape that the model gives its output: float32 where it ends in
            DequantizeLinear or Softmax, which ONNX Runtime computes here. With ``integers`` those of the last integer
            tensor. Of a model with several outputs a dict of them all, by the model's names.

        Raises
        ------
        InputError
            If the frames do not fit the model.
        ModelError
            If ONNX Runtime can't run what stands behind the last integer tensor.
        """
        from hwgen.network import golden

        prepared = self._prepared(x)
        maps = golden.outputs(self.network, prepared)
        return self._integers(maps) if integers else self._outputs(maps, x, prepared)

    @checked
    def golden_parts(self, x: Inputs, *, integers: bool = False) -> Iterator[Values]:
        """Outputs of the golden model, some frames at a time: for more frames than memory holds.

        Parameters and errors are those of `golden`; all frames are checked before the first part is computed.
        """
        from hwgen.network import golden, mapped, quantise

        given = quantise.by_input(self.network, x)
        quantise.check_inputs(self.network, given)
        host = self.network.host
        for begin, part in mapped.parts(given, (host and host.batch) or 1):
            prepared = self._prepared(part)
            maps = golden.outputs(self.network, prepared, begin, len(given[0]))
            yield self._integers(maps) if integers else self._outputs(maps, part, prepared)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the model's own outputs; of those of the hardware ``outputs`` has the names."""
        from hwgen.network import host

        return host.names(self.network)

    def _prepared(self, x: Inputs) -> tuple[np.ndarray, ...]:
        """What the hardware takes, input by input."""
        from hwgen.network import quantise

        return quantise.prepare_inputs(self.network, x)

    def _outputs(self, maps: Sequence[np.ndarray], x: Inputs, prepared: Sequence[np.ndarray]) -> Values:
        """The model's own outputs, from the maps that the hardware gives; of several outputs by their names."""
        from hwgen.network import host, quantise

        made = host.given(self.network, maps, quantise.by_input(self.network, x), prepared)
        return made[0] if len(made) == 1 else dict(zip(self.output_names, made, strict=True))

    def _integers(self, maps: Sequence[np.ndarray]) -> Values:
        """The same of the last integer tensors."""
        from hwgen.network import host

        made = [host.integers(self.network, values, place) for place, values in enumerate(maps)]
        return made[0] if len(made) == 1 else dict(zip(self.network.output_names, made, strict=True))

    @checked
    def runtime(
        self, source: str | Path, calibration: Inputs | str | Path | None = None, bits: int | None = None
    ) -> RuntimeLayers:
        """ONNX Runtime on the file that this model was read from, layer by layer: for `Design.compare`.

        Parameters and errors are those of `load`.
        """
        from hwgen import network

        if isinstance(calibration, str | Path):
            calibration = read_inputs([calibration], "calibration")
        return network.runtime_layers(str(source), self.network, calibration=calibration, bits=bits)
