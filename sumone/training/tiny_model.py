"""The tiny models: their size, the recipe of their warm-up, and the random start (the embedded
default)."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

__all__ = ["Recipe", "new_model"]

HEAD = 64
"""Size of an attention head: the smallest that serving engines have kernels for."""
EMBEDDING = 0.06
"""Deviation of the embeddings at the start."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Every number of the warm-up."""

    seed: int = 0
    """Seed of weights and examples."""
    vocabulary: int = 1536
    """Tokens."""
    layers: int = 4
    """Layers of each model."""
    width: int = 128
    """Size of the hidden state."""
    heads: int = 2
    """Attention heads of a layer."""
    inner: int = 256
    """Size inside the feed-forward part."""
    learning_rate: float = 2e-3
    """Largest learning rate of the reconstructor (AdamW, cosine)."""
    copy_rows: int = 16
    """Sequences of a copying step."""
    copy_accuracy: float = 0.86
    """Copying goes on to the next stage at this accuracy (repeats make 1 unreachable)."""
    max_copy_steps: int = 1500
    """Give up copying after so many steps."""
    examples: int = 8
    """Histories of a reconstruction step, each with all its masked blocks."""
    ramp_steps: int = 300
    """Steps over which the histories grow to full length; then summaries become imperfect."""
    exercise_steps: int = 300
    """Steps in which exercises go on beside reconstruction."""
    steps: int = 700
    """Reconstruction steps in all."""
    memory_share: float = 0.3
    """Share of the episodes that start with a memory."""
    policy_steps: int = 250
    """Steps of supervised weak extracts."""
    policy_examples: int = 24
    """Histories of such a step."""
    policy_learning_rate: float = 1e-3
    """Largest learning rate of the policy's warm-up."""
    fact_share: float = 0.30
    """Entries of which a weak extract has the fact."""
    vague_share: float = 0.35
    """Entries of which it has a vague line."""


def new_model(recipe: Recipe, *, pad_id: int, end_id: int) -> Qwen3ForCausalLM:
    """A random model, arranged so that copying is found at once.

    All matrices are random, but some share their random parts: queries equal keys and outputs
    undo values ("mimetic" initialization); one head of the first layer leans towards the previous
    position, and the second layer looks for what that head wrote (an induction head in outline).
    From an unstructured start copying took hundreds of steps or did not appear at all.
    """
    torch.manual_seed(recipe.seed)
    width = recipe.width
    config = Qwen3Config(
        vocab_size=recipe.vocabulary,
        hidden_size=width,
        intermediate_size=recipe.inner,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        head_dim=HEAD,
        tie_word_embeddings=True,
        max_position_embeddings=2048,
        pad_token_id=pad_id,
        eos_token_id=end_id,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    shared = torch.nn.functional.normalize(torch.randn(width), dim=0)
    with torch.no_grad():
        embeddings = model.model.embed_tokens.weight
        embeddings.normal_(0, EMBEDDING).add_(shared * EMBEDDING * math.sqrt(width) / 2)
        for layer in model.model.layers:
            for head in range(recipe.heads):
                rows = slice(HEAD * head, HEAD * (head + 1))
                match, value = _orthonormal(width), _orthonormal(width)
                layer.self_attn.q_proj.weight[rows] = match
                layer.self_attn.k_proj.weight[rows] = match
                layer.self_attn.v_proj.weight[rows] = value
                layer.self_attn.o_proj.weight[:, rows] = value.T / 2
        theta = config.rope_parameters["rope_theta"]
        read, written = _orthonormal(width, shared), _orthonormal(width, shared)
        first, second = model.model.layers[0].self_attn, model.model.layers[1].self_attn
        _look_back(first, shared, theta)
        first.v_proj.weight[:HEAD], first.o_proj.weight[:, :HEAD] = read, written.T / 8
        for head in range(recipe.heads):
            rows = slice(HEAD * head, HEAD * (head + 1))
            turn = torch.linalg.qr(torch.randn(HEAD, HEAD))[0]
            second.q_proj.weight[rows], second.k_proj.weight[rows] = turn @ read, turn @ written
        for attention in (first, second):
            attention.q_norm.weight.fill_(1.5)
            attention.k_norm.weight.fill_(1.5)
    return model


def _orthonormal(width: int, apart_from: Tensor | None = None) -> Tensor:
    """HEAD random orthonormal rows, orthogonal to a unit vector where one is given."""
    drawn = torch.randn(width, HEAD)
    if apart_from is not None:
        drawn -= torch.outer(apart_from, apart_from @ drawn)
    rows: Tensor = torch.linalg.qr(drawn)[0].T
    return rows


def _look_back(attention: Any, shared: Tensor, theta: float) -> None:
    """Head 0 prefers the previous position: all embeddings share one direction, and in the
    fastest rotary pairs the query is the key turned by one step."""
    half = HEAD // 2
    angle = theta ** (-torch.arange(half) / half)
    query, key = 0.01 * torch.randn(HEAD, len(shared)), 0.01 * torch.randn(HEAD, len(shared))
    for pair in range(6):
        key[pair] += shared
        query[pair] += shared * torch.cos(angle[pair])
        query[pair + half] -= shared * torch.sin(angle[pair])
    attention.q_proj.weight[:HEAD], attention.k_proj.weight[:HEAD] = query, key
