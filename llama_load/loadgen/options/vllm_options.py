"""The options of `vllm bench serve` 0.33, each with its equal here, or with what to do instead.

Source: its parser in the released package (vllm/benchmarks/serve.py and datasets/datasets.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

VERSION = "0.33"
# How many values an option takes.
NO_VALUE = ""
ONE_VALUE = "1"
SEVERAL_VALUES = "*"
# Data sets whose options have their name in front, and for some a shorter one.
PREFIXES = {
    "--custom-": ("custom", "custom_image", "custom_audio"),
    "--sharegpt-": ("sharegpt",),
    "--random-mm-": ("random-mm",),
    "--random-": ("random", "random-mm", "random-rerank"),
    "--no-reranker": ("random-rerank",),
    "--prefix-repetition-": ("prefix_repetition",),
    "--spec-bench-": ("spec_bench",),
    "--speed-bench-": ("speed_bench",),
    "--timed-trace-": ("timed_trace",),
    "--self-timed": ("timed_trace",),
    "--no-self-timed": ("timed_trace",),
    "--hf-": ("hf",),
    "--asr-": ("hf",),
    "--bfcl-": ("hf",),
    "--blazedit-": ("hf",),
    "--skip-chat-template": ("custom",),
    "--chat-template-kwargs": ("custom",),
}
# With one value, of the same meaning here.
EQUAL = {
    "--num-prompts": "--num-prompts",
    "--burstiness": "--burstiness",
    "--seed": "--seed",
    "--temperature": "--temperature",
    "--label": "--label",
    "--metric-percentiles": "--metric-percentiles",
    "--ramp-up-strategy": "--ramp",
    "--ramp-up-start-rps": "--ramp-start-rps",
    "--probe-request-rate": "--probe-rate",
    "--sharegpt-output-len": "--sharegpt-output-len",
    "--random-input-len": "--input-len",
    "--random-output-len": "--output-len",
    "--random-range-ratio": "--range-ratio",
    "--random-prefix-len": "--prefix-len",
    "--random-batch-size": "--batch-size",
    "--prefix-repetition-prefix-len": "--prefix-len",
    "--prefix-repetition-suffix-len": "--input-len",
    "--prefix-repetition-num-prefixes": "--num-prefixes",
    "--prefix-repetition-output-len": "--output-len",
    "--spec-bench-output-len": "--output-len",
    "--spec-bench-category": "--category",
    "--custom-output-len": "--output-len",
}
SWITCHES = {
    "--ignore-eos": "--ignore-eos",
    "--insecure": "--insecure",
    "--profile": "--profile-server",
}
# Fields of the body, with their types.
SAMPLING: Mapping[str, type[int] | type[float]] = {
    "--top-p": float,
    "--top-k": int,
    "--min-p": float,
    "--frequency-penalty": float,
    "--presence-penalty": float,
    "--repetition-penalty": float,
    "--logprobs": int,
}
# Those that the conversion reads: the values that they take, and what is written here instead.
READ = {
    "--model": (ONE_VALUE, "--model"),
    "--served-model-name": (ONE_VALUE, "--model"),
    "--lora-modules": (SEVERAL_VALUES, "--model a,b"),
    "--tokenizer": (ONE_VALUE, "--tokenizer FILE"),
    "--base-url": (ONE_VALUE, "--host"),
    "--host": (ONE_VALUE, "--host http://ADDRESS:PORT"),
    "--port": (ONE_VALUE, "--host http://ADDRESS:PORT"),
    "--backend": (ONE_VALUE, "--endpoint"),
    "--endpoint": (ONE_VALUE, "--endpoint"),
    "--dataset-name": (ONE_VALUE, "-f sharegpt_chat, synthetic, custom or replay"),
    "--dataset-path": (ONE_VALUE, "--dataset-path"),
    "--input-len": (ONE_VALUE, "--input-len"),
    "--output-len": (ONE_VALUE, "--output-len"),
    "--request-rate": (ONE_VALUE, "--request-rate"),
    "--max-concurrency": (ONE_VALUE, "--max-concurrency"),
    "--ramp-up-end-rps": (ONE_VALUE, "--request-rate"),
    "--num-warmups": (ONE_VALUE, "--warmup"),
    "--percentile-metrics": (ONE_VALUE, "--percentile-metrics"),
    "--extra-body": (ONE_VALUE, "--extra-body"),
    "--header": (SEVERAL_VALUES, "--header"),
    "--goodput": (SEVERAL_VALUES, "--goodput"),
    "--skip-chat-template": (NO_VALUE, "--endpoint completions"),
}
# They change no request. What takes their place.
_FOLDER = "nothing: every run has a folder (--run-dir)"
_CLIENT = "nothing: the server counts tokens and applies its template"
WITHOUT_EFFECT = {
    "--save-result": (
        NO_VALUE,
        "nothing: every run writes summary.json, with the keys of vLLM's result file",
    ),
    "--save-detailed": (NO_VALUE, "nothing: every run writes requests.parquet"),
    "--append-result": (NO_VALUE, _FOLDER),
    "--result-dir": (ONE_VALUE, "--run-dir"),
    "--result-filename": (ONE_VALUE, "--run-dir"),
    "--metadata": (SEVERAL_VALUES, "--label"),
    "--plot-timeline": (NO_VALUE, "nothing: report.html has charts"),
    "--timeline-itl-thresholds": (ONE_VALUE, "nothing: report.html has charts"),
    "--plot-dataset-stats": (NO_VALUE, "nothing: report.html has charts"),
    "--disable-tqdm": (NO_VALUE, "nothing: progress is shown on a terminal alone"),
    "--trust-remote-code": (NO_VALUE, _CLIENT),
    "--tokenizer-mode": (ONE_VALUE, _CLIENT),
    "--skip-tokenizer-init": (NO_VALUE, _CLIENT),
    "--enable-multimodal-chat": (NO_VALUE, _CLIENT),
    "--request-id-prefix": (ONE_VALUE, "nothing: every request has an X-Request-Id"),
    "--ready-check-timeout-sec": (ONE_VALUE, "nothing: the preflight asks the server"),
    "--no-stream": (NO_VALUE, "nothing: data sets are read as a whole"),
    "--use-beam-search": (NO_VALUE, "nothing: vLLM's benchmark does not send it"),
    "--no-self-timed": (NO_VALUE, "-f replay without --trace"),
    "--self-timed": (NO_VALUE, "-f replay --trace FILE"),
}
_MODELS = "--model a,b deals the models out in equal shares, in a random order"
_HUB = "--dataset-path hf:OWNER/NAME:SPLIT, with -f sharegpt_chat for conversations"
_TRACE = "-f replay --trace FILE, with the names and units of Mooncake's traces"
_IMAGES = "-f vision, with --image-size WIDTHxHEIGHT and --images-per-request"
# Another load, or none: what to do.
REFUSED = {
    "--lora-assignment": (ONE_VALUE, _MODELS),
    "--disable-shuffle": (
        NO_VALUE,
        "-f custom with a JSON Lines file, whose prompts are sent in their order",
    ),
    "--no-oversample": (
        NO_VALUE,
        "--num-prompts with at most as many as the data set has",
    ),
    "--chat-template-kwargs": (
        ONE_VALUE,
        "--backend openai-chat with --extra-body '{\"chat_template_kwargs\": …}'",
    ),
    "--custom-ensure-client-side-data": (NO_VALUE, "-f vision --images FOLDER"),
    "--no-reranker": (NO_VALUE, "-f embeddings"),
    "--hf-subset": (ONE_VALUE, _HUB),
    "--hf-split": (ONE_VALUE, _HUB),
    "--hf-name": (ONE_VALUE, _HUB),
    "--hf-output-len": (ONE_VALUE, "--output-len"),
    "--asr-max-audio-len-sec": (ONE_VALUE, "nothing: audio is not sent"),
    "--asr-min-audio-len-sec": (ONE_VALUE, "nothing: audio is not sent"),
    "--bfcl-categories": (ONE_VALUE, "-f custom with tools in its messages"),
    "--blazedit-min-distance": (ONE_VALUE, _HUB),
    "--blazedit-max-distance": (ONE_VALUE, _HUB),
    "--speed-bench-dataset-subset": (ONE_VALUE, "-f custom --dataset-path FILE"),
    "--speed-bench-output-len": (ONE_VALUE, "--output-len, with -f custom"),
    "--speed-bench-category": (ONE_VALUE, "--category, with -f custom"),
    "--timed-trace-chunk-hash-size": (ONE_VALUE, _TRACE),
    "--timed-trace-sec-multiplier": (ONE_VALUE, _TRACE),
    "--timed-trace-label-timestamp": (ONE_VALUE, _TRACE),
    "--timed-trace-label-input-length": (ONE_VALUE, _TRACE),
    "--timed-trace-label-output-length": (ONE_VALUE, _TRACE),
    "--timed-trace-label-hash-ids": (ONE_VALUE, _TRACE),
    "--random-mm-base-items-per-request": (ONE_VALUE, _IMAGES),
    "--random-mm-num-mm-items-range-ratio": (ONE_VALUE, _IMAGES),
    "--random-mm-limit-mm-per-prompt": (ONE_VALUE, _IMAGES),
    "--random-mm-bucket-config": (ONE_VALUE, _IMAGES),
}
# Names that options had in earlier versions.
EARLIER = {
    "--endpoint-type": "--backend",
    "--dataset": "--dataset-path",
    "--custom-skip-chat-template": "--skip-chat-template",
}
# Its data sets, with our locustfiles.
DATA_SETS = {
    "random": "synthetic",
    "prefix_repetition": "synthetic",
    "sharegpt": "sharegpt_chat",
    "custom": "custom",
    "spec_bench": "custom",
    "random-rerank": "rerank",
}
# Its other data sets, and what to do.
OTHER_DATA_SETS = {
    "hf": f"give the Hugging Face data set as {_HUB}",
    "burstgpt": "write -f replay --trace FILE, which sends at the times of the trace as well",
    "timed_trace": f"write {_TRACE}",
    "random-mm": f"write {_IMAGES}",
    "custom_image": "write -f vision --images FOLDER",
    "custom_audio": "audio is not sent",
    "speed_bench": "write -f custom --dataset-path FILE, with a JSON Lines file of it",
    "sonnet": "write -f custom --dataset-path FILE, or --dataset-name prefix_repetition",
}
# Its backends, with the names of APIs here; "" where the locustfile says it.
BACKENDS = {
    "vllm": "completions",
    "openai": "completions",
    "openai-chat": "chat",
    "openai-responses": "responses",
    "openai-embeddings": "",
    "vllm-rerank": "",
}


@dataclass(frozen=True, slots=True)
class VllmOption:
    """An option: its name, how many values it takes, and what is written here instead."""

    name: str
    takes: str
    ours: str

    @property
    def data_sets(self) -> tuple[str, ...]:
        """Those whose requests depend on it; empty: all."""
        for prefix, data_sets in PREFIXES.items():
            if self.name.startswith(prefix):
                return data_sets
        return ()

    @property
    def instead(self) -> str:
        """What is written here, with the locustfile of its data set."""
        workloads = [DATA_SETS[name] for name in self.data_sets if name in DATA_SETS]
        if not workloads or not self.ours.startswith("--") or " " in self.ours:
            return self.ours
        return f"{self.ours}, with -f {workloads[0]}"

    def is_used_by(self, data_set: str) -> bool:
        """Whether requests of this data set depend on it."""
        return not self.data_sets or data_set in self.data_sets


def _options() -> Iterator[VllmOption]:
    for name, ours in EQUAL.items():
        yield VllmOption(name, ONE_VALUE, ours)
    for name, ours in SWITCHES.items():
        yield VllmOption(name, NO_VALUE, ours)
    for name in SAMPLING:
        field = name.removeprefix("--").replace("-", "_")
        yield VllmOption(name, ONE_VALUE, f"--extra-body '{{\"{field}\": …}}'")
    for table in (READ, WITHOUT_EFFECT, REFUSED):
        for name, (takes, ours) in table.items():
            yield VllmOption(name, takes, ours)


OPTIONS = {option.name: option for option in _options()}
