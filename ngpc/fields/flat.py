"""``Encoding``, ``Network``, ``NetworkWithInputEncoding``: tiny-cuda-nn's modules, on every device.

Constructors, attributes and the layout of ``params`` are those of the ``tinycudann`` package, so
that a code base changes one import::

    import ngpc as tcnn

What differs, on purpose: the output is in the precision of ``params`` (float32) unless ``dtype``
asks for another, nothing is padded to a multiple of 256 points, second derivatives exist for
networks too, and the first random weights are other ones.

Layout of ``params``, one vector: the matrices of the network row by row, first layer first, inputs
and outputs padded to multiples of 16; then the tables of the encoding. In a composite the parts
follow each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from ngpc.backends.registry import AUTO
from ngpc.config import (
    EncodingConfig,
    IdentityConfig,
    MlpConfig,
    encoding_from_json,
    network_from_json,
)
from ngpc.encodings import PaddedEncoding, make_encoding
from ngpc.errors import CheckpointError, ShapeError, explain
from ngpc.networks.fused_mlp import FusedMLP
from ngpc.shapes import LAYER_MULTIPLE, round_up

HALF_LOSS_SCALE = 128.0  # gradients of half-precision numbers would vanish without it


class FlatModule(nn.Module):
    """A module whose parameters are one vector, ``params``; state dictionaries hold only that."""

    encoding: EncodingConfig | None = None
    network: MlpConfig | None = None

    def __init__(
        self,
        inner: nn.Module,
        *,
        num_inputs: int,
        num_outputs: int,
        seed: int,
        dtype: torch.dtype | None,
    ) -> None:
        """Take over the parameters of ``inner``, which keeps only their shapes."""
        super().__init__()
        self.n_input_dims = num_inputs
        self.n_output_dims = num_outputs
        self.seed = seed
        self._dtype = dtype
        shapes = {name: tuple(p.shape) for name, p in inner.named_parameters()}
        flat = [parameter.detach().flatten() for parameter in inner.parameters()]
        self.params = nn.Parameter(torch.cat(flat) if flat else torch.zeros(0))
        # In a tuple, so that it is no submodule: its parameters are shapes without numbers.
        self._inner = (inner.to("meta"),)
        self._shapes = shapes

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the output."""
        return self.params.dtype if self._dtype is None else self._dtype

    @property
    def loss_scale(self) -> float:
        """What gradients are multiplied by within the module; the caller never sees it."""
        return HALF_LOSS_SCALE if self.dtype is torch.float16 else 1.0

    def forward(self, x: Float[Tensor, "*_shape"]) -> Float[Tensor, "p o"]:
        """Evaluate at any number of points, one row each.

        Raises:
            ShapeError: not a list of points with ``n_input_dims`` columns.
        """
        if x.ndim != 2 or x.shape[1] != self.n_input_dims:
            raise ShapeError(
                explain(
                    type(self).__name__,
                    expected=f"shape (points, {self.n_input_dims})",
                    got=f"{tuple(x.shape)}",
                    do="Flatten leading axes.",
                )
            )
        # Positions need more digits than half precision has.
        precision = torch.float64 if self.dtype is torch.float64 else torch.float32
        x = _scale_gradient(x.to(precision), 1.0 / self.loss_scale)
        params = _scale_gradient(self.params, 1.0 / self.loss_scale).to(self.dtype)
        outputs = functional_call(self._inner[0], self.split(params), (x,)).to(self.dtype)
        return _scale_gradient(outputs, self.loss_scale)

    def split(self, params: Float[Tensor, " n"]) -> dict[str, Tensor]:
        """The matrices and tables in a parameter vector, by name; views of it."""
        sizes = [torch.Size(shape).numel() for shape in self._shapes.values()]
        pieces = params.split(sizes)
        return {
            name: piece.view(shape)
            for (name, shape), piece in zip(self._shapes.items(), pieces, strict=True)
        }

    def load_params(self, params: Float[Tensor, "*_shape"]) -> None:
        """Copy a parameter vector of tiny-cuda-nn into this module.

        Raises:
            CheckpointError: it has another length.
        """
        if params.ndim != 1 or params.numel() != self.params.numel():
            raise CheckpointError(
                explain(
                    f"{type(self).__name__} params",
                    expected=f"a vector of {self.params.numel():,} numbers",
                    got=f"shape {tuple(params.shape)}",
                    do="Build the module from the configuration the vector was trained with.",
                )
            )
        with torch.no_grad():
            self.params.copy_(params)

    def extra_repr(self) -> str:
        """Sizes and precision."""
        return (
            f"n_input_dims={self.n_input_dims}, n_output_dims={self.n_output_dims}, "
            f"n_params={self.params.numel()}, seed={self.seed}, dtype={self.dtype}"
        )


class Encoding(FlatModule):
    """An encoding alone; its output is not padded."""

    def __init__(
        self,
        n_input_dims: int,
        encoding_config: Mapping[str, Any] | EncodingConfig,
        seed: int = 1337,
        dtype: torch.dtype | None = None,
        *,
        backend: str = AUTO,
    ) -> None:
        """Build an encoding from tiny-cuda-nn's JSON or a typed configuration."""
        encoding = make_encoding(
            _encoding_config(encoding_config),
            num_dims=n_input_dims,
            generator=torch.Generator().manual_seed(seed),
            backend=backend,
        )
        super().__init__(
            encoding,
            num_inputs=n_input_dims,
            num_outputs=encoding.num_outputs,
            seed=seed,
            dtype=dtype,
        )
        self.encoding_config = encoding_config
        self.encoding = encoding.config


class NetworkWithInputEncoding(FlatModule):
    """An encoding and the perceptron that reads it."""

    def __init__(
        self,
        n_input_dims: int,
        n_output_dims: int,
        encoding_config: Mapping[str, Any] | EncodingConfig,
        network_config: Mapping[str, Any] | MlpConfig,
        seed: int = 1337,
        *,
        dtype: torch.dtype | None = None,
        backend: str = AUTO,
    ) -> None:
        """Build both from tiny-cuda-nn's JSON or typed configurations."""
        inner = EncodedPerceptron(
            _encoding_config(encoding_config),
            _network_config(network_config),
            num_inputs=n_input_dims,
            num_outputs=n_output_dims,
            generator=torch.Generator().manual_seed(seed),
            backend=backend,
        )
        super().__init__(
            inner, num_inputs=n_input_dims, num_outputs=n_output_dims, seed=seed, dtype=dtype
        )
        self.encoding_config = encoding_config
        self.network_config = network_config
        self.encoding = inner.encoding.config
        self.network = inner.network.config


class Network(NetworkWithInputEncoding):
    """A perceptron alone. Inputs are padded with ones, whose weights act as a bias."""

    def __init__(
        self,
        n_input_dims: int,
        n_output_dims: int,
        network_config: Mapping[str, Any] | MlpConfig,
        seed: int = 1337,
        *,
        dtype: torch.dtype | None = None,
        backend: str = AUTO,
    ) -> None:
        """Build a perceptron from tiny-cuda-nn's JSON or a typed configuration."""
        super().__init__(
            n_input_dims,
            n_output_dims,
            IdentityConfig(),
            network_config,
            seed,
            dtype=dtype,
            backend=backend,
        )


class EncodedPerceptron(nn.Module):
    """An encoding padded to the inputs of a perceptron; parameters in tiny-cuda-nn's order."""

    def __init__(
        self,
        encoding: EncodingConfig,
        network: MlpConfig,
        *,
        num_inputs: int,
        num_outputs: int,
        generator: torch.Generator | None = None,
        backend: str = AUTO,
    ) -> None:
        """Draw first weights: the matrices, then the tables."""
        super().__init__()
        with torch.device("meta"):  # for its width; the table is drawn after the matrices
            width = make_encoding(encoding, num_dims=num_inputs, backend=backend).num_outputs
        self.padded_width = round_up(width, LAYER_MULTIPLE)
        self.network = FusedMLP(
            network,
            num_inputs=self.padded_width,
            num_outputs=num_outputs,
            generator=generator,
            backend=backend,
        )
        self.encoding: PaddedEncoding = make_encoding(
            encoding, num_dims=num_inputs, generator=generator, backend=backend
        )

    def forward(self, x: Float[Tensor, "p i"]) -> Float[Tensor, "p o"]:
        """Encode, pad, run the perceptron."""
        return self.network(self.encoding.encode_padded(x, self.padded_width))


def free_temporary_memory() -> None:
    """Give unused GPU memory back. There is no pool of our own; PyTorch's is emptied."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def supports_jit_fusion() -> bool:
    """Whether kernels are fused at run time by tiny-cuda-nn's compiler; never here."""
    return False


def _encoding_config(config: Mapping[str, Any] | EncodingConfig) -> EncodingConfig:
    return encoding_from_json(config) if isinstance(config, Mapping) else config


def _network_config(config: Mapping[str, Any] | MlpConfig) -> MlpConfig:
    return network_from_json(config) if isinstance(config, Mapping) else config


class _ScaledGradient(torch.autograd.Function):
    """The same values; gradients times a number. Scaling back is exact: it is a power of two."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *upstreams: Tensor) -> tuple[Tensor, None]:
        return upstreams[0] * ctx.scale, None


def _scale_gradient(values: Tensor, scale: float) -> Tensor:
    scaled: Tensor = values if scale == 1.0 else _ScaledGradient.apply(values, scale)
    return scaled
