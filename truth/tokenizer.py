"""A tokenizer for which a word is a token, so that every client counts the tokens that the server
sent, whether it reads the usage or counts the answer's text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# As many as Llama 3 has. Of few words a client that makes prompts of neighbours sends one twice.
WORDS = 128_000
# the unknown word is no special token, else decoding would drop it
UNKNOWN, BEGIN, END = "word", "<bos>", "<eos>"
# Clients that cut their prompts out of English text would otherwise send nothing but unknown words,
# and so the same prompt again and again.
ENGLISH = (
    "the and of to a in that is my thy it with not for his be your this but as have me so thou "
    "what him will all do no shall if are by we her on our more now or from they at she them you "
    "let was their good O which lord would was here than come may there then how am man sir love "
    "like one say well must I upon know make when did give their make were had some who out up "
    "such yet where should most tell an he us go can too hath these into see think think never"
)
TEMPLATE = "{% for message in messages %}{{ message.content }} {% endfor %}"


def make_tokenizer(folder: Path) -> Path:
    """Write it, in the layout of Hugging Face, unless it is there with as many words. Returns
    `folder`."""
    names = (UNKNOWN, BEGIN, END, "tok", *(f"w{number}" for number in range(WORDS)))
    names = tuple(dict.fromkeys((*names, *ENGLISH.split())))
    config = {"model_type": "llama", "vocab_size": len(names)}
    written = folder / "config.json"
    if written.exists() and json.loads(written.read_text("utf-8")) == config:
        return folder

    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {name: number for number, name in enumerate(names)}
    _write(folder / "tokenizer.json", _tokenizer(vocabulary))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BEGIN,
        "eos_token": END,
        "model_max_length": 32768,
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
    }
    _write(folder / "tokenizer_config.json", settings)
    _write(written, config)
    return folder


def _tokenizer(vocabulary: dict[str, int]) -> dict[str, Any]:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": UNKNOWN},
    }


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")
