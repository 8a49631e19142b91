"""A tokenizer for which a word is a token, so that every client counts the tokens that the server sent, whether it reads the usage
or counts the answer's text."""

from __future__ import annotations

import json
from pathlib import Path

WORDS = 4000
UNKNOWN, BEGIN, END = "word", "<bos>", "<eos>"  # the unknown word is no special token, else decoding would drop it
TEMPLATE = "{% for message in messages %}{{ message.content }} {% endfor %}"


def make_tokenizer(folder: Path) -> Path:
    """Write it, in the layout of Hugging Face, unless it is there. Returns `folder`."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    if (folder / "config.json").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    names = (UNKNOWN, BEGIN, END, "tok", *(f"w{number}" for number in range(WORDS)))
    tokenizer = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BEGIN,
        "eos_token": END,
        "model_max_length": 32768,
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": len(names)}), encoding="utf-8")
    return folder
