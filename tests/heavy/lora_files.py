"""LoRA adapters with random weights: for a GGUF model of `llama_load.servers.serving.model_maker`, and for
a folder in Hugging Face's layout."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np

from llama_load.servers.serving.model_maker import ModelSize


def gguf_adapter(file: Path, size: ModelSize, seed: int, rank: int = 4) -> Path:
    """An adapter of the query matrices, strong enough to change answers."""
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(rank))
    for layer in range(size.layers):
        name = f"blk.{layer}.attn_q.weight"
        writer.add_tensor(
            f"{name}.lora_a", rng.standard_normal((rank, size.dim), dtype=np.float32)
        )
        writer.add_tensor(
            f"{name}.lora_b", rng.standard_normal((size.dim, rank), dtype=np.float32)
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def hf_adapter(folder: Path, model: Path, seed: int, rank: int = 8) -> Path:
    """An adapter of the query and value matrices in PEFT's layout, for the model in this folder."""
    config = json.loads((model / "config.json").read_text())
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    rng = np.random.default_rng(seed)
    folder.mkdir()
    about = {
        "peft_type": "LORA",
        "base_model_name_or_path": str(model),
        "r": rank,
        "lora_alpha": 16,
        "target_modules": ["q_proj", "v_proj"],
        "bias": "none",
        "task_type": "CAUSAL_LM",
    }
    (folder / "adapter_config.json").write_text(json.dumps(about))
    tensors = {}
    for layer in range(layers):
        for matrix in about["target_modules"]:
            name = f"base_model.model.model.layers.{layer}.self_attn.{matrix}.lora_"
            tensors[f"{name}A.weight"] = rng.standard_normal(
                (rank, hidden), dtype=np.float32
            )
            tensors[f"{name}B.weight"] = rng.standard_normal(
                (hidden, rank), dtype=np.float32
            )
    _write_safetensors(folder / "adapter_model.safetensors", tensors)
    return folder


def _write_safetensors(file: Path, tensors: dict[str, np.ndarray]) -> None:
    """The format is a length, a header in JSON, and the bytes of the tensors one after the
    other."""
    header, offset = {}, 0
    for name, tensor in tensors.items():
        header[name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor.nbytes],
        }
        offset += tensor.nbytes
    text = json.dumps(header).encode()
    file.write_bytes(
        len(text).to_bytes(8, "little")
        + text
        + b"".join(tensor.tobytes() for tensor in tensors.values())
    )
