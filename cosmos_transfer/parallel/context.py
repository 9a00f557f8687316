"""Context parallelism: the tokens of a clip on several processes.

For diffusers' Cosmos networks, base and branches alike. Their inputs are split where the blocks
begin and gathered where they end, by diffusers' own hooks and the plans below; in between every
process holds its share of the tokens, of the residuals and of the weight maps, and only
self-attention exchanges anything:

``ulysses``  tokens are exchanged for heads, each process attends with its heads to all tokens, and
             heads are exchanged for tokens again
``ring``     keys and values go round; each process merges what its queries found in each part by
             the logarithm of the sums (as flash attention does within a card)

Numbers of tokens and heads that do not divide are padded; padded keys are cut off before attention,
so nothing attends to them. Cross-attention stays local: every process has the whole text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from diffusers.hooks import apply_context_parallel
from diffusers.models._modeling_parallel import (
    ContextParallelConfig,
    ContextParallelInput,
    ContextParallelOutput,
)
from diffusers.models.attention_dispatch import dispatch_attention_fn
from diffusers.models.embeddings import apply_rotary_emb
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from cosmos_transfer.errors import ConfigError, explain
from cosmos_transfer.model.controlled import ControlledModel
from cosmos_transfer.parallel.job import Job

_TOKENS = ContextParallelInput(split_dim=1, expected_dims=3)
_ANGLES = ContextParallelInput(split_dim=0, expected_dims=2, split_output=True)


def divide_tokens(model: ControlledModel, job: Job) -> None:
    """Let every process work on its share of the tokens; once, after loading.

    Raises:
        ConfigError: A network that is not diffusers' Cosmos.
    """
    networks = {"base": model.transformer, **dict(model.branches.items())}
    for name, network in networks.items():
        blocks = getattr(network, "transformer_blocks", None) or getattr(
            network, "control_blocks", None
        )
        if blocks is None or getattr(network, "learnable_pos_embed", None) is not None:
            raise ConfigError(
                explain(
                    "parallel",
                    expected="networks of diffusers' Cosmos-Transfer2.5 classes",
                    got=f"{name}: {type(network).__name__}",
                    do="Use parallel.guidance and parallel.control.",
                )
            )
        _set_processors(blocks, job)
        apply_plan(network, job, per_frame_time=model.clean_sigma is not None)
    shares = _Shares(job)
    model.local_tokens = shares.of_this_process


def apply_plan(network: nn.Module, job: Job, *, per_frame_time: bool) -> None:
    """Split a network's tokens at its first block and gather them behind its last.

    Args:
        network: With its attention processors set.
        job: Its ``ring`` and ``ulysses`` axes divide the tokens.
        per_frame_time: Whether the time embedding differs from token to token.

    Raises:
        ConfigError: A block whose self-attention sees only the tokens of this process.
    """
    network_: Any = network
    is_base = hasattr(network_, "transformer_blocks")
    blocks = network_.transformer_blocks if is_base else network_.control_blocks
    for index, block in enumerate(blocks):
        if not isinstance(block.attn1.processor, ContextAttention):
            raise ConfigError(
                explain(
                    "parallel",
                    expected="self-attention that exchanges tokens in every block",
                    got=f"{type(block.attn1.processor).__name__} in block {index}, which would see"
                    " this process' tokens only",
                    do="Set the processors first: divide_tokens does.",
                )
            )
    time = {"embedded_timestep": _TOKENS, "temb": _TOKENS} if per_frame_time else {}
    name = "transformer_blocks" if is_base else "control_blocks"
    plan: dict[str, Any] = {
        "rope": {0: _ANGLES, 1: _ANGLES},
        f"{name}.0": {"hidden_states": _TOKENS},
    }
    if not is_base:
        plan[f"{name}.*"] = time | {"latents": _TOKENS}
    elif time:
        plan[f"{name}.*"] = time
        plan["norm_out"] = time
    if is_base:
        plan["proj_out"] = ContextParallelOutput(gather_dim=1, expected_dims=3)
    _pad_before(network_, blocks, _Shares(job), per_frame_time=per_frame_time, is_base=is_base)
    apply_context_parallel(network, _config(job), plan)


def _config(job: Job) -> ContextParallelConfig:
    """The mesh as diffusers' hooks want it; its own set-up asks for an accelerator."""
    config = ContextParallelConfig(ring_degree=job.size("ring"), ulysses_degree=job.size("ulysses"))
    device = torch.device(job.mesh.device_type)
    config.setup(job.rank, job.shape.size, device, job.mesh["ring", "ulysses"])
    return config


@dataclass(slots=True)
class _Shares:
    """Tokens in equal shares; remembers how many there were before padding."""

    job: Job
    num_tokens: int = 0

    def padded(self, tokens: Tensor, dim: int) -> Tensor:
        """Zeros behind the last token, up to a multiple of the processes."""
        self.num_tokens = tokens.shape[dim]
        missing = -self.num_tokens % self.job.shape.context
        if missing == 0:
            return tokens
        return torch.cat([tokens, torch.zeros_like(tokens.narrow(dim, 0, missing))], dim)

    def of_this_process(self, weights: Float[Tensor, "b n"]) -> Float[Tensor, "b n2"]:
        """The token weights of this process' tokens."""
        place = self.job.place("ring") * self.job.size("ulysses") + self.job.place("ulysses")
        return self.padded(weights, 1).chunk(self.job.shape.context, 1)[place]


def _pad_before(
    network: Any,
    blocks: Sequence[Any],
    shares: _Shares,
    *,
    per_frame_time: bool,
    is_base: bool,
) -> None:
    """Pad what the hooks will split, and cut the padding off what they gather.

    PyTorch's own hooks run outside diffusers', which replace ``forward``.
    """
    of_time = ("embedded_timestep", "temb") if per_frame_time else ()
    of_all = (*of_time, *(() if is_base else ("latents",)))

    def angles(module: Any, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        return tuple(shares.padded(each, 0) for each in plain_angles(*args, **kwargs))

    plain_angles = network.rope.forward
    network.rope.forward = angles.__get__(network.rope)
    for index, block in enumerate(blocks):
        names = ("hidden_states", *of_all) if index == 0 else of_all
        if names:
            block.register_forward_pre_hook(_Padding(names, shares, _BLOCK), with_kwargs=True)
    if is_base:
        if of_time:
            network.norm_out.register_forward_pre_hook(
                _Padding(of_time, shares, _NORM), with_kwargs=True
            )
        network.proj_out.register_forward_hook(
            lambda _module, _args, output: output[:, : shares.num_tokens]
        )
    for block in blocks:
        block.attn1.processor.shares = shares


# Places of the arguments that are padded, as diffusers' networks pass them.
_BLOCK = {"hidden_states": 0, "embedded_timestep": 2, "temb": 3, "latents": 8}
_NORM = {"embedded_timestep": 1, "temb": 2}


@dataclass(frozen=True, slots=True)
class _Padding:
    """A hook that pads some arguments of a call."""

    names: tuple[str, ...]
    shares: _Shares
    places: Mapping[str, int]

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        changed, named = list(args), dict(kwargs)
        for name in self.names:
            place = self.places[name]
            if name in named:
                if named[name] is not None:
                    named[name] = self.shares.padded(named[name], 1)
            elif place < len(changed) and changed[place] is not None:
                changed[place] = self.shares.padded(changed[place], 1)
        return tuple(changed), named


def _set_processors(blocks: Sequence[Any], job: Job) -> None:
    for block in blocks:
        block.attn1.set_processor(ContextAttention(job))


class ContextAttention:
    """Cosmos' self-attention over the tokens of all processes."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.shares = _Shares(job)

    def __call__(
        self,
        attn: Any,
        hidden_states: Float[Tensor, "b n d"],
        encoder_hidden_states: None = None,
        attention_mask: None = None,
        image_rotary_emb: tuple[Tensor, Tensor] | None = None,
    ) -> Float[Tensor, "b n d"]:
        """Attend, with this process' tokens as queries and all tokens as keys."""
        query, key, value = (
            project(hidden_states).unflatten(2, (attn.heads, -1))
            for project in (attn.to_q, attn.to_k, attn.to_v)
        )
        query, key = attn.norm_q(query), attn.norm_k(key)
        if image_rotary_emb is not None:
            query, key = (
                apply_rotary_emb(
                    each.transpose(1, 2),
                    image_rotary_emb,
                    use_real=True,
                    use_real_unbind_dim=-2,
                ).transpose(1, 2)
                for each in (query, key)
            )
        found = attend(query, key, value, self.job, self.shares.num_tokens)
        found = found.flatten(2, 3).type_as(query)
        found = attn.to_out[0](found)
        return attn.to_out[1](found)


def attend(
    query: Float[Tensor, "b n a e"],
    key: Float[Tensor, "b n a e"],
    value: Float[Tensor, "b n a e"],
    job: Job,
    num_tokens: int,
) -> Float[Tensor, "b n a e"]:
    """Attention of this process' tokens to those of all.

    Args:
        query: Of this process' share; ranks hold consecutive shares, ``ulysses`` fastest.
        key: As ``query``.
        value: As ``query``.
        job: Its ``ring`` and ``ulysses`` axes.
        num_tokens: Of all processes, without the padding at the end.
    """
    heads = query.shape[2]
    query, key, value = (_to_heads(each, job) for each in (query, key, value))
    if job.size("ring") == 1:
        found = dispatch_attention_fn(query, key[:, :num_tokens], value[:, :num_tokens])
    else:
        found = _ring(query, key, value, job, num_tokens)
    return _to_tokens(found, job)[:, :, :heads]


def _to_heads(x: Float[Tensor, "b n a e"], job: Job) -> Float[Tensor, "b n2 a2 e"]:
    """A share of the tokens with all heads, for all tokens of the group with a share of them."""
    count = job.size("ulysses")
    if count == 1:
        return x
    x = functional.pad(x, (0, 0, 0, -x.shape[2] % count))
    sent = torch.stack(x.chunk(count, dim=2))
    return torch.cat(_exchange(sent, job).unbind(0), dim=1)


def _to_tokens(x: Float[Tensor, "b n a e"], job: Job) -> Float[Tensor, "b n2 a2 e"]:
    """The inverse of :func:`_to_heads`; padded heads stay."""
    count = job.size("ulysses")
    if count == 1:
        return x
    sent = torch.stack(x.chunk(count, dim=1))
    return torch.cat(_exchange(sent, job).unbind(0), dim=2)


def _exchange(sent: Float[Tensor, "parts b n a e"], job: Job) -> Float[Tensor, "parts b n a e"]:
    sent = sent.contiguous()
    received = torch.empty_like(sent)
    job.count(sent[0], copies=job.size("ulysses") - 1)
    dist.all_to_all_single(received, sent, group=job.group("ulysses"))
    return received


def _ring(
    query: Float[Tensor, "b n a e"],
    key: Float[Tensor, "b n a e"],
    value: Float[Tensor, "b n a e"],
    job: Job,
    num_tokens: int,
) -> Float[Tensor, "b n a e"]:
    """Keys and values go round; results are merged in float32."""
    count, place, share = job.size("ring"), job.place("ring"), key.shape[1]
    found: Tensor | None = None
    total: Tensor | None = None
    pair = torch.stack([key, value])
    for step in range(count):
        begin = (place - step) % count * share
        real = min(max(num_tokens - begin, 0), share)
        passing = None if step + 1 == count else _pass_on(pair, job)
        if real > 0:
            part, logsum = _attention_with_sums(query, pair[0, :, :real], pair[1, :, :real])
            if found is None or total is None:
                found, total = part, logsum
            else:
                larger = torch.logaddexp(total, logsum)
                found = found * (total - larger).exp() + part * (logsum - larger).exp()
                total = larger
        if passing is not None:
            received, requests = passing
            for request in requests:
                request.wait()
            pair = received
    assert found is not None
    return found.to(query.dtype)


def _pass_on(pair: Tensor, job: Job) -> tuple[Tensor, list[Any]]:
    """Send keys and values to the next process of the ring, and receive the previous one's."""
    group, place, count = job.group("ring"), job.place("ring"), job.size("ring")
    pair = pair.contiguous()
    received = torch.empty_like(pair)
    job.count(pair, copies=1)
    following = dist.get_global_rank(group, (place + 1) % count)
    previous = dist.get_global_rank(group, (place - 1) % count)
    operations = [
        dist.P2POp(dist.isend, pair, following, group),
        dist.P2POp(dist.irecv, received, previous, group),
    ]
    return received, dist.batch_isend_irecv(operations)


def _attention_with_sums(
    query: Float[Tensor, "b n a e"], key: Float[Tensor, "b m a e"], value: Float[Tensor, "b m a e"]
) -> tuple[Float[Tensor, "b n a e"], Float[Tensor, "b n a 1"]]:
    """Attention and the logarithm of its sums, in float32, by PyTorch's own kernels."""
    by_head = [each.transpose(1, 2).contiguous() for each in (query, key, value)]
    if query.device.type == "cuda":
        found, sums = torch.ops.aten._scaled_dot_product_efficient_attention(*by_head, None, True)[
            :2
        ]
    else:
        found, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            *by_head, scale=1.0 / math.sqrt(query.shape[-1])
        )
    sums = sums[:, :, : query.shape[1]].transpose(1, 2)[..., None]
    return found.transpose(1, 2).float(), sums.float()
