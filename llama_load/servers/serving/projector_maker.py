"""Generates a vision projector for the demo's model, as llama-server's mmproj.

It is a small image encoder with random weights.

Two kinds, with different prompt tokens per image. Pixtral's number grows with the resolution: one
per patch and one per row of patches. LLaVA's is constant, because it scales every image to one
size.

The text model uses dimension 0 of every embedding as a constant (see
`llama_load.servers.serving.model_maker`), so the last layer writes only that constant there.
Otherwise an image could end the answer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from llama_load.ground.errors import UsageError
from llama_load.servers.serving.model_maker import cached_file

FORMAT = 1  # increment when older projectors must not be reused
IMAGE_SIDE = 56  # LLaVA: (56 / 14) ** 2 = 16 tokens per image
PATCH_SIDE = 14
DIM = 32
FEED_FORWARD = 64
LAYERS = 2
HEADS = 2
CONSTANT = 4.0  # dimension 0 of the text model's embeddings


def cached_projector(text_dim: int, *, dynamic: bool = True, seed: int = 0) -> Path:
    """The projector for text models of this dimension, kept in the user's cache folder.

    It is generated on first use.
    """
    what = json.dumps([FORMAT, text_dim, dynamic, seed]).encode()

    def make(file: Path, _: Path) -> None:
        make_projector(file, text_dim, dynamic=dynamic, seed=seed)

    return cached_file("projector", what, "mmproj.gguf", make)


def make_projector(
    path: Path, text_dim: int, *, dynamic: bool = True, seed: int = 0
) -> None:
    """Write a projector (GGUF, float32) for text models of dimension `text_dim`.

    Pixtral's kind if `dynamic`, else LLaVA's.
    """
    try:
        import gguf
        import numpy as np
    except ImportError as error:
        raise UsageError(
            f"making a projector needs the extra 'demo' ({error}): pip install xllamacpp gguf "
            "tokenizers"
        ) from None

    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(str(path), "clip")
    writer.add_type(gguf.GGUFType.MMPROJ)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type("pixtral" if dynamic else "mlp")
    writer.add_vision_projection_dim(text_dim)
    writer.add_vision_image_size(IMAGE_SIDE)
    writer.add_vision_patch_size(PATCH_SIDE)
    writer.add_vision_embedding_length(DIM)
    writer.add_vision_feed_forward_length(FEED_FORWARD)
    writer.add_vision_block_count(LAYERS)
    writer.add_vision_head_count(HEADS)
    writer.add_vision_attention_layernorm_eps(1e-5)
    writer.add_vision_image_mean([0.5, 0.5, 0.5])
    writer.add_vision_image_std([0.5, 0.5, 0.5])
    writer.add_vision_use_gelu(True)

    def rand(*shape: int) -> Any:
        return rng.standard_normal(shape, dtype=np.float32) * np.float32(
            shape[-1] ** -0.5
        )

    def zeros(size: int) -> Any:
        return np.zeros(size, np.float32)

    def add(name: str, rows: int, columns: int) -> None:
        writer.add_tensor(name + ".weight", rand(rows, columns))
        writer.add_tensor(name + ".bias", zeros(rows))

    writer.add_tensor("v.patch_embd.weight", rand(DIM, 3, PATCH_SIDE, PATCH_SIDE))
    if not dynamic:  # Pixtral's positions are rotary
        patches = (IMAGE_SIDE // PATCH_SIDE) ** 2
        writer.add_tensor("v.position_embd.weight", rand(patches, DIM))

    for layer in range(LAYERS):
        block = f"v.blk.{layer}."
        for norm in ("ln1", "ln2"):
            writer.add_tensor(f"{block}{norm}.weight", np.ones(DIM, np.float32))
            if not dynamic:  # Pixtral's norms are RMS norms
                writer.add_tensor(f"{block}{norm}.bias", zeros(DIM))
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            add(block + name, DIM, DIM)
        add(block + "ffn_up", FEED_FORWARD, DIM)
        add(block + "ffn_down", DIM, FEED_FORWARD)
    add("mm.1" if dynamic else "mm.0", text_dim, DIM)
    last = rand(text_dim, text_dim)
    last[0, :] = 0.0
    constant = zeros(text_dim)
    constant[0] = CONSTANT
    writer.add_tensor("mm.2.weight", last)
    writer.add_tensor("mm.2.bias", constant)
    if dynamic:
        writer.add_tensor("v.token_embd.img_break", constant)

    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
