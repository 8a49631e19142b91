"""The options of each client, as of the versions in scripts/requirements.

Sources: the clients' own --help, and inference-perf's docs/comparability.md, which lists where
settings have no equal.
"""

from __future__ import annotations

from truth.convert.options import Table

NO_RAMP = "the others have no ramp of this form"
NO_RANGE = "lengths that vary are drawn otherwise by each client: give 0"
NO_SAMPLING = (
    "sampling cannot be set by all clients, and changes no length with ignore_eos"
)
NO_SEED = "the words of the prompts are drawn otherwise, also with the same seed"
NO_GOODPUT = "objectives are of the report: give them to the other client yourself"

VLLM = Table(
    start=("vllm", "bench", "serve"),
    names={
        "--base-url": "url",
        "--model": "model",
        "--tokenizer": "tokenizer",
        "--random-input-len": "prompt_tokens",
        "--input-len": "prompt_tokens",
        "--random-output-len": "tokens",
        "--output-len": "tokens",
        "--num-prompts": "requests",
        "--num-warmups": "warmup",
        "--max-concurrency": "streams",
        "--request-rate": "rate",
        "--burstiness": "burstiness",
        "--seed": "seed",
        "--extra-body": "body",
    },
    flags={"--ignore-eos": "ignore_eos"},
    needed={
        "--backend": (("openai-chat",), "only the chat API has equals"),
        "--endpoint": (("/v1/chat/completions",), "only the chat API has equals"),
        "--dataset-name": (
            ("random",),
            "data sets are sampled otherwise by each client",
        ),
        "--random-range-ratio": (("0", "0.0"), NO_RANGE),
        "--random-prefix-len": (
            ("0",),
            "a shared prefix is made otherwise by each client",
        ),
    },
    refused={
        "--ramp-up-strategy": NO_RAMP,
        "--goodput": NO_GOODPUT,
        "--temperature": NO_SAMPLING,
        "--top-p": NO_SAMPLING,
        "--top-k": NO_SAMPLING,
        "--lora-modules": "adapters are chosen otherwise by each client",
    },
    ignored={
        "--disable-tqdm": 0,
        "--save-result": 0,
        "--save-detailed": 0,
        "--ready-check-timeout-sec": 1,
        "--percentile-metrics": 1,
        "--metric-percentiles": 1,
        "--result-dir": 1,
        "--result-filename": 1,
        "--label": 1,
    },
    defaults={
        "requests": "1000",
        "prompt_tokens": "1024",
        "tokens": "128",
        "rate": "inf",
        "burstiness": "1",
        "seed": "0",
        "url": "http://127.0.0.1:8000",
    },
)

AIPERF = Table(
    start=("aiperf", "profile"),
    names={
        "--model": "model",
        "-m": "model",
        "--url": "url",
        "-u": "url",
        "--tokenizer": "tokenizer",
        "--concurrency": "streams",
        "--request-rate": "rate",
        "--request-rate-mode": "arrival",
        "--arrival-pattern": "arrival",
        "--request-count": "requests",
        "--warmup-request-count": "warmup",
        "--synthetic-input-tokens-mean": "prompt_tokens",
        "--isl": "prompt_tokens",
        "--output-tokens-mean": "tokens",
        "--osl": "tokens",
        "--extra-inputs": "extra",
        "--random-seed": "seed",
    },
    flags={"--streaming": "streaming"},
    needed={
        "--endpoint-type": (("chat",), "only the chat API has equals"),
        "--synthetic-input-tokens-stddev": (("0",), NO_RANGE),
        "--isl-stddev": (("0",), NO_RANGE),
        "--output-tokens-stddev": (("0",), NO_RANGE),
        "--osl-stddev": (("0",), NO_RANGE),
    },
    refused={
        "--warmup-duration": "a time is no number: give --warmup-request-count",
        "--benchmark-duration": "a time is no number of requests: give --request-count",
        "--goodput": NO_GOODPUT,
    },
    ignored={"--use-server-token-count": 0, "--ui-type": 1, "--artifact-dir": 1},
    defaults={
        "prompt_tokens": "550",
        "arrival": "poisson",
        "url": "http://localhost:8000",
    },
)

GUIDELLM = Table(
    start=("guidellm", "run"),
    names={
        "--backend": "backend",
        "--profile": "profile",
        "--constraint": "constraint",
        "--data": "data",
        "--tokenizer": "processor",
    },
    refused={"--seed": NO_SEED},
    ignored={"--disable-console": 0, "--output": 1},
    defaults={"ignore_eos": "yes"},
)

INFERENCE_PERF = Table(
    start=("inference-perf",),
    names={
        "--server.model_name": "model",
        "--server.base_url": "url",
        "--server.ignore_eos": "ignore_eos",
        "--tokenizer.pretrained_model_name_or_path": "tokenizer",
        "--data.input_distribution.mean": "prompt_tokens",
        "--data.output_distribution.mean": "tokens",
        "--load.type": "arrival",
        "--load.stages": "stages",
    },
    needed={
        "--server.type": (("vllm",), "only the OpenAI API has equals"),
        "--api.type": (
            ("completion",),
            "its random prompts go to the completions API only",
        ),
        "--api.streaming": (("true",), "without a stream there is no first token"),
        "--data.type": (("random",), "data sets are sampled otherwise by each client"),
        "--data.input_distribution.type": (("fixed",), NO_RANGE),
        "--data.output_distribution.type": (("fixed",), NO_RANGE),
    },
    ignored={
        "--data.input_distribution.min": 1,
        "--data.input_distribution.max": 1,
        "--data.input_distribution.total_count": 1,
        "--data.output_distribution.min": 1,
        "--data.output_distribution.max": 1,
        "--data.output_distribution.total_count": 1,
        "--load.num_workers": 1,
        "--load.worker_max_concurrency": 1,
        "--load.worker_max_tcp_connections": 1,
        "--report.request_lifecycle.per_request": 1,
        "--report.request_lifecycle.use_server_output_tokens": 1,
        "--storage.local_storage.path": 1,
    },
)

LLAMA_LOAD = Table(
    start=("locust",),
    names={
        "--host": "url",
        "--model": "model",
        "--num-prompts": "requests",
        "--warmup": "warmup",
        "-u": "streams",
        "--users": "streams",
        "--request-rate": "rate",
        "--arrival": "arrival",
        "--tokenizer": "tokenizer",
        "--input-len": "prompt_tokens",
        "--output-len": "tokens",
        "--seed": "seed",
        "--extra-body": "body",
    },
    flags={"--ignore-eos": "ignore_eos"},
    needed={"--range-ratio": (("0", "0.0"), NO_RANGE)},
    refused={
        "--stages": NO_RAMP,
        "--trace": "the others take no trace of this form",
        "--goodput": NO_GOODPUT,
        "--max-concurrency": "an open loop with a limit is neither for the others",
    },
    ignored={
        "--headless": 0,
        "--loglevel": 1,
        "-f": 1,
        "--percentile-metrics": 1,
        "--metric-percentiles": 1,
        "--run-dir": 1,
    },
    defaults={"prompt_tokens": "1024", "tokens": "128", "arrival": "poisson"},
)
