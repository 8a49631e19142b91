"""Equivalents of `vllm bench serve` flags, for the message about an unknown flag."""

from __future__ import annotations

from typing import Any

_SAMPLING = "--extra-body '{{\"{}\": …}}'"
# Flags with another name here, and their equivalents. (Others have the same name.)
EQUIVALENTS = {
    "--dataset-name": "the locustfile: -f locustfiles/sharegpt_chat.py (sharegpt), synthetic.py "
    "(random), custom.py or replay.py",
    "--random-input-len": "--input-len, with -f locustfiles/synthetic.py",
    "--random-output-len": "--output-len, with -f locustfiles/synthetic.py",
    "--random-range-ratio": "--range-ratio, with -f locustfiles/synthetic.py",
    "--random-prefix-len": "--prefix-len, with -f locustfiles/synthetic.py",
    "--random-batch-size": "--batch-size, with -f locustfiles/embeddings.py or rerank.py",
    "--prefix-repetition-prefix-len": "--prefix-len, with -f locustfiles/synthetic.py",
    "--prefix-repetition-suffix-len": "--input-len, with -f locustfiles/synthetic.py",
    "--prefix-repetition-num-prefixes": "--num-prefixes, with -f locustfiles/synthetic.py",
    "--prefix-repetition-output-len": "--output-len, with -f locustfiles/synthetic.py",
    "--custom-output-len": "--output-len, with -f locustfiles/custom.py",
    "--hf-output-len": "--output-len",
    "--hf-split": "--dataset-path hf:OWNER/NAME:SPLIT",
    "--base-url": "--host",
    "--port": "--host http://ADDRESS:PORT",
    "--num-warmups": "--warmup",
    "--ramp-up-strategy": "--ramp",
    "--ramp-up-start-rps": "--ramp-start-rps",
    "--ramp-up-end-rps": "--request-rate",
    "--endpoint-type": "--endpoint chat or --endpoint completions",
    "--served-model-name": "--model",
    "--lora-modules": "--model a,b",
    "--result-dir": "--run-dir",
    "--result-filename": "--run-dir",
    "--save-result": "nothing: every run writes summary.json, with the keys of vLLM's result file",
    "--save-detailed": "nothing: every run writes requests.parquet",
    "--append-result": "nothing: every run has a folder",
    "--top-p": _SAMPLING.format("top_p"),
    "--top-k": _SAMPLING.format("top_k"),
    "--min-p": _SAMPLING.format("min_p"),
    "--frequency-penalty": _SAMPLING.format("frequency_penalty"),
    "--presence-penalty": _SAMPLING.format("presence_penalty"),
    "--repetition-penalty": _SAMPLING.format("repetition_penalty"),
}
# Values of vLLM's --backend, and the equivalent here.
_BACKENDS = {
    "openai": "--endpoint completions",
    "openai-chat": "--endpoint chat",
    "openai-embeddings": "-f locustfiles/embeddings.py",
    "vllm-rerank": "-f locustfiles/rerank.py",
}


def in_our_words(message: str) -> str | None:
    """The equivalents of flags of `vllm bench serve` that argparse refused; None if there is no
    such flag."""
    known = []
    _, _, words = message.partition("unrecognized arguments: ")
    for word in words.split():
        flag, _, _ = word.partition("=")
        if flag in EQUIVALENTS:
            known.append(f"{flag} of vllm bench serve: write {EQUIVALENTS[flag]}")

    for name, ours in _BACKENDS.items():
        if f"argument --backend: invalid choice: '{name}'" in message:
            verb = "write" if ours.startswith("--") else "use"
            known.append(f"--backend {name} of vllm bench serve: {verb} {ours}")
    return "; ".join(known) or None


def explain(parser: Any) -> None:
    """Make this parser print the equivalents instead of its own message."""
    error = parser.error

    def explained(message: str) -> None:
        ours = in_our_words(message)
        if ours is None:
            error(message)
        parser.exit(2, f"{parser.prog}: error: {ours}\n")

    parser.error = explained
