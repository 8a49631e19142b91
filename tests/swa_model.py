"""A small model with a sliding window, for llama-server: the demo's model as a Cohere2, three of
whose four layers see the last tokens alone."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

LAYERS = 4
_LAYER = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")  # fmt: skip


def make_swa_model(source: Path, model: Path, window: int = 64) -> Path:
    """Write `model`, with the weights and the tokenizer of `source`, a llama of two layers."""
    reader = gguf.GGUFReader(str(source))
    tensors = {tensor.name: np.array(tensor.data) for tensor in reader.tensors}

    def fact(name: str) -> object:
        return reader.fields[name].contents()

    def size(name: str) -> int:
        return int(fact(f"llama.{name}"))

    writer = gguf.GGUFWriter(str(model), "cohere2")
    writer.add_block_count(LAYERS)
    writer.add_context_length(size("context_length"))
    writer.add_embedding_length(size("embedding_length"))
    writer.add_feed_forward_length(size("feed_forward_length"))
    writer.add_head_count(size("attention.head_count"))
    writer.add_head_count_kv(size("attention.head_count_kv"))
    writer.add_rope_dimension_count(size("rope.dimension_count"))
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_eps(1e-5)
    writer.add_logit_scale(0.1)
    writer.add_sliding_window(window)
    writer.add_vocab_size(size("vocab_size"))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model(fact("tokenizer.ggml.model"))
    writer.add_tokenizer_pre(fact("tokenizer.ggml.pre"))
    writer.add_token_list(fact("tokenizer.ggml.tokens"))
    writer.add_token_types(fact("tokenizer.ggml.token_type"))
    writer.add_token_merges(fact("tokenizer.ggml.merges"))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_eot_token_id(int(fact("tokenizer.ggml.eot_token_id")))
    writer.add_add_bos_token(True)
    writer.add_chat_template(fact("tokenizer.chat_template"))
    writer.add_tensor("token_embd.weight", tensors["token_embd.weight"])
    for layer in range(LAYERS):
        for name in _LAYER:
            weights = tensors[f"blk.{layer % 2}.{name}.weight"]
            writer.add_tensor(f"blk.{layer}.{name}.weight", weights)
    writer.add_tensor("output_norm.weight", tensors["output_norm.weight"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model
