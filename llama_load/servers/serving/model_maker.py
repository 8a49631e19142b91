"""Generates the demo's model: a small llama with random weights.

Its answers are real words in random order.

The vocabulary is a byte-level BPE trained on the sample conversations, so that token counts
resemble a real model's, in English and in Chinese. With random weights the text is nonsense, but
the speed is that of a real model of this size.

End-of-text is never sampled, so an answer runs until max_tokens. How: every token embedding holds
the same constant in dimension 0 and no layer writes to that dimension, so after the final norm the
hidden state has a positive entry there; a negative weight in that column of the output matrix then
acts as a bias on a token's logit.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from llama_load.ground.cache_folder import cache_folder
from llama_load.ground.errors import UsageError

FORMAT = 5  # increment when older models must not be reused
SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
# What /infill puts before, between and after the code around a gap. They come last, so that they
# move no other token's id.
INFILL = {
    "FIM_PRE_ID": "<|fim_prefix|>",
    "FIM_SUF_ID": "<|fim_suffix|>",
    "FIM_MID_ID": "<|fim_middle|>",
}
# ChatML. Tools, calls and results are only rendered where a request has them: other prompts have
# the same tokens as without.
CHAT_TEMPLATE = (
    "{% if tools %}"
    "{{ '<|im_start|>system\n# Tools\n' }}"
    "{% for tool in tools %}{{ tool | tojson }}{{ '\n' }}{% endfor %}"
    '{{ \'<tool_call>\n{"name": NAME, "arguments": OBJECT}\n</tool_call><|im_end|>\n\' }}'
    "{% endif %}"
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m['role'] + '\n' }}"
    "{% if m['content'] %}{{ m['content'] }}{% endif %}"
    "{% if m['tool_calls'] %}"
    "{% for call in m['tool_calls'] %}"
    "{{ '<tool_call>\n{\"name\": \"' + call['function']['name'] + '\", \"arguments\": ' }}"
    "{{ call['function']['arguments'] | tojson }}"
    "{{ '}\n</tool_call>' }}"
    "{% endfor %}"
    "{% endif %}"
    "{{ '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Shape of the model. The default decodes four sequences in about 6 ms on one core."""

    layers: int = 2
    dim: int = 256
    heads: int = 4
    kv_heads: int = 4
    ff: int = 1024
    vocab: int = 6000
    ctx: int = 32768
    seed: int = 0


def cached_model(size: ModelSize, corpus: Path) -> Path:
    """The model file of this size, kept in the user's cache folder.

    It is generated on first use, which takes about a second. Next to it is `tokenizer.json`, the
    same tokenizer for local counting.
    """
    what = json.dumps([FORMAT, asdict(size)]).encode() + corpus.read_bytes()

    def make(model: Path, folder: Path) -> None:
        tokenizer = folder / f"tokenizer.json.{os.getpid()}"
        make_model(model, tokenizer, size, corpus)
        tokenizer.rename(folder / "tokenizer.json")

    return cached_file("model", what, "model.gguf", make)


def cached_file(
    kind: str, what: bytes, name: str, make: Callable[[Path, Path], None]
) -> Path:
    """The file of this name in the cache.

    If there is none for `what`, `make` writes it: it is given a path and its folder.
    """
    digest = hashlib.sha256(what).hexdigest()[:12]
    folder = cache_folder() / f"{kind}-{digest}"
    if not (folder / name).exists():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / f"{name}.{os.getpid()}"
        make(unfinished, folder)
        unfinished.rename(folder / name)
    return folder / name


def make_model(
    model: Path, tokenizer_file: Path, size: ModelSize, corpus: Path
) -> None:
    """Write `model` (GGUF, float32) and `tokenizer_file` (Hugging Face format)."""
    try:
        import gguf
        import numpy as np
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    except ImportError as error:
        raise UsageError(
            f"making a model needs the extra 'demo' ({error}): pip install xllamacpp gguf "
            "tokenizers"
        ) from None

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=True
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size.vocab,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(corpus), trainer)
    tokenizer.add_special_tokens(list(INFILL.values()))
    tokenizer.save(str(tokenizer_file))

    number_of = tokenizer.get_vocab(with_added_tokens=True)
    pieces = sorted(number_of, key=lambda piece: number_of[piece])
    types = [gguf.TokenType.NORMAL] * len(pieces)
    for piece in (*SPECIAL, *INFILL.values()):
        types[number_of[piece]] = gguf.TokenType.CONTROL

    n_vocab = len(pieces)
    head_dim = size.dim // size.heads
    writer = gguf.GGUFWriter(str(model), "llama")
    writer.add_name("llama-load-demo")
    writer.add_block_count(size.layers)
    writer.add_context_length(size.ctx)
    writer.add_embedding_length(size.dim)
    writer.add_feed_forward_length(size.ff)
    writer.add_head_count(size.heads)
    writer.add_head_count_kv(size.kv_heads)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(n_vocab)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(pieces)
    writer.add_token_types(types)
    writer.add_token_merges(_merges(tokenizer))
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_eot_token_id(pieces.index("<|im_end|>"))
    for key, piece in INFILL.items():
        writer.add_uint32(getattr(gguf.Keys.Tokenizer, key), pieces.index(piece))
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)

    rng = np.random.default_rng(size.seed)

    def rand(rows: int, columns: int, *, spare_dim0: bool = False) -> np.ndarray:
        matrix = rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(
            columns**-0.5
        )
        if spare_dim0:
            matrix[0, :] = 0.0
        return matrix

    embedding = rng.standard_normal((n_vocab, size.dim), dtype=np.float32)
    embedding[:, 0] = 4.0
    output = rand(n_vocab, size.dim) * 3.0
    for number in range(n_vocab):
        output[number, 0] = 0.0 if _is_speakable(tokenizer, number) else -100.0
    ones = np.ones(size.dim, np.float32)
    kv_dim = head_dim * size.kv_heads
    writer.add_tensor("token_embd.weight", embedding)
    for layer in range(size.layers):
        block = f"blk.{layer}."
        writer.add_tensor(block + "attn_norm.weight", ones)
        writer.add_tensor(block + "attn_q.weight", rand(size.dim, size.dim))
        writer.add_tensor(block + "attn_k.weight", rand(kv_dim, size.dim))
        writer.add_tensor(block + "attn_v.weight", rand(kv_dim, size.dim))
        writer.add_tensor(
            block + "attn_output.weight", rand(size.dim, size.dim, spare_dim0=True)
        )
        writer.add_tensor(block + "ffn_norm.weight", ones)
        writer.add_tensor(block + "ffn_gate.weight", rand(size.ff, size.dim))
        writer.add_tensor(block + "ffn_up.weight", rand(size.ff, size.dim))
        writer.add_tensor(
            block + "ffn_down.weight", rand(size.dim, size.ff, spare_dim0=True)
        )
    writer.add_tensor("output_norm.weight", ones)
    writer.add_tensor("output.weight", output)

    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _texts(corpus: Path) -> list[str]:
    entries = json.loads(corpus.read_text(encoding="utf-8"))
    texts = []
    for entry in entries:
        texts += [turn["value"] for turn in entry["conversations"]]
    return texts


def _merges(tokenizer: Any) -> list[str]:
    """The pairs of pieces that the tokenizer merges, as `left right`, in order."""
    merges = []
    for merge in json.loads(tokenizer.to_str())["model"]["merges"]:
        # Older tokenizers have a string, newer ones a pair.
        merges.append(merge if isinstance(merge, str) else " ".join(merge))
    return merges


def _is_speakable(tokenizer: Any, index: int) -> bool:
    """Whether a token may be sampled: printable whole characters, no special token."""
    if index < len(SPECIAL):
        return False
    text: str = tokenizer.decode([index])
    return (
        bool(text) and "\ufffd" not in text and (text.isprintable() or text.isspace())
    )
