"""The tokenizer in which a word is a token."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from truth.tokenizer import make_tokenizer


def test_every_word_is_a_token(tmp_path: Path) -> None:
    file = make_tokenizer(tmp_path) / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(file))
    assert len(tokenizer.encode(" 17" + " tok" * 99).ids) == 100
    words = tokenizer.decode([9, 8, 7])
    assert tokenizer.encode(words).ids == [9, 8, 7]


def test_a_tokenizer_of_other_words_is_made_anew(tmp_path: Path) -> None:
    """A cache may have one of an earlier version."""
    whole = (make_tokenizer(tmp_path) / "tokenizer.json").read_text()
    (tmp_path / "tokenizer.json").write_text("kept")
    assert (make_tokenizer(tmp_path) / "tokenizer.json").read_text() == "kept"
    (tmp_path / "config.json").write_text('{"model_type": "llama", "vocab_size": 4000}')
    assert (make_tokenizer(tmp_path) / "tokenizer.json").read_text() == whole
