"""Other load generators: how their command lines begin, and what each of their flags is here.

Sources: the parsers and references of SGLang (bench_serving), aiperf and genai-perf (profile),
guidellm (benchmark run, run), evalscope (perf) and llmperf (token_benchmark_ray).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto


class Means(Enum):
    """What a flag is, where no flag of ours is its equal."""

    URL = auto()  # of a server, or of an API
    HOST = auto()
    PORT = auto()
    PATH = auto()  # of an API
    API = auto()  # a name of one
    SERVICE = auto()  # whose API it is
    STREAM = auto()
    NO_IGNORE_EOS = auto()
    DATA_SET = auto()  # its name
    FILE = auto()
    KEYS = auto()  # key=value,… or a JSON object: parts of the command
    SPLIT = auto()  # of a data set: a JSON object
    PROFILE = auto()  # guidellm's name of a load
    RATE = auto()  # requests or streams, as the profile has it
    SPREAD = auto()  # a deviation of lengths
    RATIO = auto()  # SGLang's least length, as a share of the greatest
    LEAST = auto()  # the least length of a prompt
    BODY = auto()  # a JSON object
    FIELDS = auto()  # name:value or name=value
    FIELD = auto()  # of the body, with the flag's name
    HEADERS = auto()
    MODELS = auto()
    TOKENIZER = auto()
    TIMES = auto()  # requests are sent at those of a file
    NOTHING = auto()  # it changes no request


# What to write.
_SWEEP = "llama-load sweep, which runs several loads"
_IMAGES = "-f vision --image-size WIDTHxHEIGHT --images-per-request N"
_TALKS = "-f conversations or -f sharegpt_chat --turns N --think-time S"
_PREFIX = "-f synthetic --prefix-len TOKENS --num-prefixes N"
_SPREADS = "--range-ratio, the share by which lengths vary"
_AUDIO = "nothing: audio and video are not sent"
_SCHEDULE = "-f replay --trace FILE --speed N, with a file that has only these rows"
_TRACE = "-f replay --trace FILE"
_OBJECTIVES = "--goodput 'ttft:MS tpot:MS e2el:MS'"
_CAPACITY = (
    "llama-load capacity URL, which looks for the highest rate that meets a goal"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A load generator. `begins`: the words before its flags, the longest first.

    `equal`: flags with one value and the same meaning here; `switches`: those without a value;
    `read`: those that are looked into; `instead`: what to write for those that have no equal;
    `families`: the same by the beginning of their names, None where they change no request.
    `apis`: its names of APIs, with ours; "": the URL says it. `data_sets`: its names of data sets,
    with our locustfiles; `other_data_sets`: what to write.
    `defaults`: what its command has where it does not say so; `adds`: our flags for what it does
    always.
    """

    name: str
    begins: tuple[str, ...]
    equal: Mapping[str, str]
    read: Mapping[str, Means]
    instead: Mapping[str, str]
    switches: Mapping[str, str] = field(default_factory=dict)
    families: Mapping[str, str | None] = field(default_factory=dict)
    apis: Mapping[str, str]
    data_sets: Mapping[str, str]
    other_data_sets: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    adds: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Its flags that are known."""
        return (*self.equal, *self.switches, *self.read, *self.instead)


def _nothing(names: str) -> dict[str, Means]:
    return dict.fromkeys(names.split(), Means.NOTHING)


SGLANG = Program(
    name="sglang.bench_serving",
    begins=("sglang.bench_serving", "bench_serving.py"),
    equal={
        "--num-prompts": "--num-prompts",
        "--request-rate": "--request-rate",
        "--max-concurrency": "-u",
        "--seed": "--seed",
        "--warmup-requests": "--warmup",
        "--sharegpt-output-len": "--sharegpt-output-len",
        "--random-input-len": "--input-len",
        "--random-input": "--input-len",
        "--random-output-len": "--output-len",
        "--random-output": "--output-len",
        "--gsp-num-groups": "--num-prefixes",
        "--gsp-system-prompt-len": "--prefix-len",
        "--gsp-question-len": "--input-len",
        "--gsp-output-len": "--output-len",
        "--served-model-name": "--model",
        "--tag": "--label",
        "--mooncake-slowdown-factor": "--speed",
    },
    read={
        "--model": Means.MODELS,
        "--lora-name": Means.MODELS,
        "--base-url": Means.URL,
        "--host": Means.HOST,
        "--port": Means.PORT,
        "--backend": Means.API,
        "--dataset-name": Means.DATA_SET,
        "--dataset-path": Means.FILE,
        "--random-range-ratio": Means.RATIO,
        "--extra-request-body": Means.BODY,
        "--header": Means.HEADERS,
        "--tokenizer": Means.TOKENIZER,
        "--disable-ignore-eos": Means.NO_IGNORE_EOS,
        **_nothing(
            "--output-file --output-details --disable-tqdm --pd-separated --plot-throughput "
            "--ready-check-timeout-sec --cache-report"
        ),
    },
    instead={
        "--sharegpt-context-len": "--keep-long-prompts, or nothing: what fits no slot is left out",
        "--return-logprob": "--extra-body '{\"logprobs\": true}'",
        "--apply-chat-template": "--endpoint chat, where the server applies it",
        "--profile": "--profile-server, which vLLM's server has",
        "--prompt-suffix": "-f custom with prompts that have it",
        "--gsp-prompts-per-group": "--num-prompts, the groups times the prompts of each",
        "--use-trace-timestamps": _TRACE,
        "--goodput": _OBJECTIVES,
        "--flush-hicache-storage": "--bust-prefix-cache",
        "--return-routed-experts": "--extra-body JSON",
        "--temperature": "--temperature",
        "--num-turns": _TALKS,
    },
    families={
        "--profile-": "--profile-server, which vLLM's server has",
        "--gsp-": _PREFIX,
        "--image-": _IMAGES,
        "--random-image-": _IMAGES,
        "--mooncake-": _TRACE,
        "--lora-": "--model a,b, which deals the models out evenly",
        "--speed-bench-": "-f custom --dataset-path FILE",
        "--agentic-": _TALKS,
        "--rust-": None,
        "--plot": None,
        "--steady-state-": None,
        "--client-stream-": None,
    },
    switches={
        "--disable-stream": "--no-stream",
        "--flush-cache": "--bust-prefix-cache",
        "--tokenize-prompt": "--prompt-token-ids",
    },
    apis={
        "sglang": "completions",
        "sglang-native": "completions",
        "sglang-oai": "completions",
        "vllm": "completions",
        "lmdeploy": "completions",
        "sglang-oai-chat": "chat",
        "vllm-chat": "chat",
        "lmdeploy-chat": "chat",
        "sglang-embedding": "embeddings",
        "vllm-embedding": "embeddings",
    },
    data_sets={
        "sharegpt": "sharegpt_chat",
        "random": "synthetic",
        "random-ids": "synthetic",
        "generated-shared-prefix": "synthetic",
        "mooncake": "replay",
        "custom": "sharegpt_chat",
        "openai": "custom",
    },
    other_data_sets={
        "mmmu": "-f vision --images FOLDER",
        "image": _IMAGES,
        "random-image": _IMAGES,
        "burstgpt": _TRACE,
    },
    defaults={
        "--backend": "sglang",
        "--dataset-name": "sharegpt",
        "--num-prompts": "1000",
        "--port": "30000",
    },
    adds=("--ignore-eos", "--temperature=0"),
)

_AIPERF_LENGTHS = {
    **dict.fromkeys(
        ("--synthetic-input-tokens-mean", "--prompt-input-tokens-mean", "--isl"),
        "--input-len",
    ),
    **dict.fromkeys(
        ("--output-tokens-mean", "--prompt-output-tokens-mean", "--osl"), "--output-len"
    ),
}
_AIPERF_SPREADS = dict.fromkeys(
    (
        *("--synthetic-input-tokens-stddev", "--prompt-input-tokens-stddev"),
        *("--output-tokens-stddev", "--prompt-output-tokens-stddev"),
        *("--isl-stddev", "--osl-stddev"),
    ),
    Means.SPREAD,
)
AIPERF = Program(
    name="aiperf",
    begins=("aiperf profile", "genai-perf profile", "genai-perf"),
    equal={
        **_AIPERF_LENGTHS,
        **dict.fromkeys(
            ("--request-count", "--num-requests", "--num-prompts"), "--num-prompts"
        ),
        "--concurrency": "-u",
        "-c": "-u",
        "--request-rate": "--request-rate",
        "--request-rate-mode": "--arrival",
        "--arrival-pattern": "--arrival",
        "--arrival-smoothness": "--burstiness",
        "--vllm-burstiness": "--burstiness",
        "--benchmark-duration": "-t",
        "--warmup-request-count": "--warmup",
        "--num-warmup-requests": "--warmup",
        "--random-seed": "--seed",
        "--request-timeout-seconds": "--request-timeout",
        "--num-prefix-prompts": "--num-prefixes",
        "--prefix-prompt-length": "--prefix-len",
        "--prompt-batch-size": "--batch-size",
        "--batch-size-text": "--batch-size",
        "--api-key": "--api-key",
        "--service-bench-label": "--label",
    },
    read={
        **_AIPERF_SPREADS,
        **dict.fromkeys(("--model", "-m", "--model-names"), Means.MODELS),
        "--url": Means.URL,
        "-u": Means.URL,
        "--endpoint-type": Means.API,
        "--service-kind": Means.SERVICE,
        "--endpoint": Means.PATH,
        "--custom-endpoint": Means.PATH,
        "--streaming": Means.STREAM,
        "--extra-inputs": Means.FIELDS,
        "--header": Means.HEADERS,
        "-H": Means.HEADERS,
        "--input-file": Means.FILE,
        "--custom-dataset-type": Means.DATA_SET,
        "--public-dataset": Means.DATA_SET,
        "--fixed-schedule": Means.TIMES,
        "--tokenizer": Means.TOKENIZER,
        **_nothing(
            "--ui --ui-type --artifact-dir --output-artifact-dir "
            "--verbose -v -vv --extra-verbose --log-level "
            "--generate-plots --record-processors --workers-max --max-workers "
            "--no-gpu-telemetry --no-server-metrics "
            "--use-server-token-count --use-legacy-max-tokens "
            "--show-trace-timing "
            "--slice-duration --benchmark-grace-period --no-auto-plot --auto-plot "
            "--max-threads --async --backend --url-strategy --transport "
            "--no-progress --disable-tokenizer --failed-request-threshold --enable-checkpointing "
            "--stats-interval --transport-type --skip-endpoint-check --model-selection-strategy"
        ),
    },
    instead={
        "--measurement-interval": "-t SECONDS, or --num-prompts",
        "--stability-percentage": "--num-prompts: a run has one count or time",
        "--fixed-schedule-start-offset": _SCHEDULE,
        "--fixed-schedule-end-offset": _SCHEDULE,
        "--goodput": _OBJECTIVES,
        "--user-centric-rate": "--conversation-rate with -f conversations",
        "--num-users": "-u",
        "--num-dataset-entries": "--num-prompts with at most as many, or -f custom with a file",
        "--shared-system-prompt-length": _PREFIX,
        "--user-context-prompt-length": _PREFIX,
        "--warmup-duration": "--warmup REQUESTS",
        "--concurrency-ramp-duration": "--stages, which change the concurrency",
        "--request-rate-ramp-duration": "--ramp",
        "--request-cancellation-rate": "--abort-rate",
        "--request-cancellation-delay": "--abort-after",
        "--num-profile-runs": "llama-load bench, which repeats runs",
        "--seq-dist": "-f custom with a file that has these lengths",
        "--connection-reuse-strategy": "--connection-reuse yes or no",
        "--scenario": "-f conversations --dataset-path FILE",
        "--num-sessions": _TALKS,
        "--num-conversations": _TALKS,
        "--input-directory": "--dataset-path FILE",
        "--grpc-method": "nothing: gRPC is not spoken",
        "-p": "-t SECONDS, or --num-prompts",
        "-s": "--num-prompts: a run has one count or time",
        "-g": _OBJECTIVES,
        "--prefill-concurrency": "--max-concurrency",
        "--cache-bust": "--bust-prefix-cache",
        "--session-header": "--session-header",
        "--dataset-sampling-strategy": "-f custom, whose lines are sent in their order",
    },
    families={
        "--audio-": _AUDIO,
        "--video-": _AUDIO,
        "--batch-size-": _IMAGES,
        "--image-": _IMAGES,
        "--session-": _TALKS,
        "--conversation-": _TALKS,
        "--rankings-": "-f rerank",
        "--isl-": _SPREADS,
        "--osl-": _SPREADS,
        "--warmup-": "--warmup REQUESTS",
        "--prompt-prefix-": _PREFIX,
        "--prefix-prompt-": _PREFIX,
        "--synthesis-": _SCHEDULE,
        "--replay-": _SCHEDULE,
        "--trace-": _SCHEDULE,
        "--trajectory-": _TALKS,
        "--agentic-": _TALKS,
        "--accuracy-": "-f custom with what each answer is to be (expect)",
        "--search-": _CAPACITY,
        "--sweep": _SWEEP,
        "--parameter-sweep-": _SWEEP,
        "--profile-run-": _SWEEP,
        "--convergence-": _SWEEP,
        "--optuna-": _CAPACITY,
        "--bo-": _CAPACITY,
        "--mlflow-": None,
        "--wandb-": None,
        "--otel-": None,
        "--zmq-": None,
        "--export-": None,
        "--profile-export-": None,
        "--network-latency-": None,
        "--server-metrics": None,
        "--gpu-telemetry": None,
        "--wait-for-model-": None,
        "--tokenizer-": None,
        "--checkpoint-": None,
    },
    switches={
        "--reset-kv-cache": "--reset-prefix-cache",
        "--output-tokens-mean-deterministic": "--ignore-eos",
    },
    apis={
        "chat": "chat",
        "completions": "completions",
        "responses": "responses",
        "messages": "messages",
        "embeddings": "embeddings",
        "nim_embeddings": "embeddings",
        "rankings": "rerank",
        "nim_rankings": "rerank",
        "cohere_rankings": "rerank",
        "hf_tei_rankings": "rerank",
    },
    data_sets={
        "single_turn": "custom",
        "multi_turn": "conversations",
        "mooncake_trace": "replay",
        "bailian_trace": "replay",
        "burst_gpt_trace": "replay",
        "sharegpt": "sharegpt_chat",
        "raw_payload": "custom",
        "weka_trace": "conversations",
        "": "synthetic",
    },
    other_data_sets={
        "random_pool": "-f custom --dataset-path FILE, whose lines are sent in their order"
    },
    defaults={
        "--endpoint-type": "chat",
        "--url": "http://localhost:8000",
        "--request-count": "10",
        "--isl": "550",
    },
)

GUIDELLM = Program(
    name="guidellm",
    begins=("guidellm benchmark run", "guidellm benchmark", "guidellm run", "guidellm"),
    equal={
        "--max-seconds": "-t",
        "--max-requests": "--num-prompts",
        "--random-seed": "--seed",
        "--label": "--label",
        "--images-per-request": "--images-per-request",
        "max_duration.seconds": "-t",
        "max_duration.max_duration": "-t",
        "max_requests.count": "--num-prompts",
        "max_requests.max_num": "--num-prompts",
        "--data.prompt_tokens": "--input-len",
        "--data.output_tokens": "--output-len",
        "--data.generated_tokens": "--output-len",
        "--data.prefix_tokens": "--prefix-len",
        "--backend.api_key": "--api-key",
        "--backend-kwargs.api_key": "--api-key",
        "--profile.max_concurrency": "--max-concurrency",
        "--data.max_completion_tokens": "--max-tokens",
    },
    read={
        "--target": Means.URL,
        "--backend.target": Means.URL,
        "--model": Means.MODELS,
        "--backend.model": Means.MODELS,
        "--data": Means.KEYS,
        "--data.source": Means.FILE,
        "--data.path": Means.FILE,
        "--data.load_kwargs": Means.SPLIT,
        "--data.loader_kwargs": Means.SPLIT,
        "--data-args": Means.SPLIT,
        "--backend": Means.KEYS,
        "--backend-kwargs": Means.KEYS,
        "--backend-args": Means.KEYS,
        "--constraint": Means.KEYS,
        "--profile": Means.PROFILE,
        "--rate-type": Means.PROFILE,
        "--profile.kind": Means.PROFILE,
        "--rate": Means.RATE,
        "--profile.rate": Means.RATE,
        "--profile.streams": Means.RATE,
        "--request-type": Means.API,
        "--request-format": Means.API,
        "--backend.request_format": Means.API,
        "--backend.extras": Means.BODY,
        **dict.fromkeys(
            (
                *("--data.prompt_tokens_stdev", "--data.output_tokens_stdev"),
                *("--data.prompt_tokens_min", "--data.prompt_tokens_max"),
                *("--data.output_tokens_min", "--data.output_tokens_max"),
            ),
            Means.SPREAD,
        ),
        **dict.fromkeys(
            ("--processor", "--tokenizer", "--data.processor"), Means.TOKENIZER
        ),
        **_nothing(
            "--output-path --output-dir --outputs --output --output-extras --output-sampling "
            "--sample-requests --disable-console --disable-console-outputs --disable-progress "
            "--disable-console-interactive --display-scheduler-stats --processor-args "
            "--backend-type --backend.kind --backend-kwargs.kind --data.kind --data.samples "
            "--data-loader --data-samples --data-num-workers --data-type --data.name "
            "--max-errors --max-error-rate "
            "--max-global-error-rate --backend.timeout --data.random_seed --verbose"
        ),
    },
    instead={
        "--warmup": "--warmup REQUESTS",
        "--warmup-percent": "--warmup REQUESTS",
        "--cooldown": "nothing: figures of stages leave out their ends",
        "--cooldown-percent": "nothing: figures of stages leave out their ends",
        "--rampup": "--ramp",
        "--profile.rampup_duration": "--ramp",
        "--data-column-mapper": "--columns, which names the columns of a file",
        "--data-sampler": "-f custom, whose lines are sent in their order",
        "--over-saturation": "--abort-if, which ends a run that cannot keep up",
        "--detect-saturation": "--abort-if, which ends a run that cannot keep up",
        "over_saturation": "--abort-if, which ends a run that cannot keep up",
        "--profile.time_scale": "--speed",
        "--data.turns": _TALKS,
        "--preprocess": "-f custom with a file as it is to be sent",
        "--scenario": "the flags of the scenario",
        "--config": "the flags of the scenario",
        "--override": _SWEEP,
    },
    families={
        "--data.prefix_": _PREFIX,
        "--data.image": _IMAGES,
        "--data.video": _AUDIO,
        "--data.audio": _AUDIO,
        "--data.": "the flag of the run with its effect (llama-load flags)",
        "--backend.": "--extra-body, --header or another flag of the run",
        "--profile.": _SWEEP,
        "goodput": _CAPACITY,
        "knee": _CAPACITY,
        "min_requests": "--num-prompts",
        "max_error": None,
        "max_global_error": None,
    },
    apis={
        "chat_completions": "chat",
        "/v1/chat/completions": "chat",
        "text_completions": "completions",
        "/v1/completions": "completions",
        "/v1/responses": "responses",
        "/v1/embeddings": "embeddings",
    },
    data_sets={"": "synthetic", "replay": "replay"},
    defaults={"--profile": "sweep", "--target": "http://localhost:8000"},
)

EVALSCOPE = Program(
    name="evalscope perf",
    begins=("evalscope perf", "llmuses perf"),
    equal={
        "--parallel": "-u",
        "--number": "--num-prompts",
        "-n": "--num-prompts",
        "--rate": "--request-rate",
        "--duration": "-t",
        "--warmup-num": "--warmup",
        "--max-prompt-length": "--input-len",
        "--max-tokens": "--output-len",
        "--prefix-length": "--prefix-len",
        "--image-num": "--images-per-request",
        "--seed": "--seed",
        "--temperature": "--temperature",
        "--api-key": "--api-key",
        "--name": "--label",
        "--connect-timeout": "--connect-timeout",
        "--total-timeout": "--request-timeout",
    },
    read={
        "--model": Means.MODELS,
        "--url": Means.URL,
        "--api": Means.API,
        "--dataset": Means.DATA_SET,
        "--dataset-path": Means.FILE,
        "--extra-args": Means.BODY,
        "--headers": Means.HEADERS,
        "--tokenizer-path": Means.TOKENIZER,
        "--min-prompt-length": Means.LEAST,
        **dict.fromkeys(
            (
                *("--frequency-penalty", "--repetition-penalty", "--top-p", "--top-k"),
                *("--stop-token-ids", "--stop", "--n-choices", "--min-tokens"),
            ),
            Means.FIELD,
        ),
        **_nothing(
            "--stream --debug --log-every-n-query --visualizer "
            "--outputs-dir --no-timestamp --enable-progress-tracker --no-test-connection "
            "--db-commit-interval --queue-size-multiplier --in-flight-task-multiplier "
            "--num-workers --sleep-interval --read-timeout --data-source"
        ),
    },
    instead={
        "--prompt": "-f custom --dataset-path FILE, with the prompt on each line",
        "--query-template": "--extra-body JSON",
        "--open-loop": "--request-rate alone",
        "--logprobs": "--extra-body '{\"logprobs\": true}'",
        "--port": "--host http://ADDRESS:PORT",
    },
    families={
        "--image-": _IMAGES,
        "--sla-": _CAPACITY,
        "--multi-turn": _TALKS,
        "--min-turns": _TALKS,
        "--max-turns": _TALKS,
        "--dataset-": "-f custom with a file as it is to be sent",
        "--wandb-": None,
        "--swanlab-": None,
    },
    switches={"--no-stream": "--no-stream", "--tokenize-prompt": "--prompt-token-ids"},
    apis={
        "openai": "",
        "dashscope": "",
        "openai_embedding": "embeddings",
        "embedding": "embeddings",
        "openai_rerank": "rerank",
        "rerank": "rerank",
    },
    data_sets={
        "random": "synthetic",
        "openqa": "custom",
        "longalpaca": "custom",
        "line_by_line": "custom",
        "custom": "custom",
        "random_vl": "vision",
        "share_gpt_zh": "sharegpt_chat",
        "share_gpt_en": "sharegpt_chat",
    },
    other_data_sets={
        "flickr8k": "-f vision --images FOLDER",
        "kontext_bench": "-f vision --images FOLDER",
        "speed_benchmark": "-f synthetic with one --input-len a run",
        "random_multi_turn": _TALKS,
    },
    defaults={
        "--api": "openai",
        "--dataset": "openqa",
        "--url": "http://127.0.0.1:8877/v1/chat/completions",
        "--parallel": "1",
        "--number": "1000",
    },
)

LLMPERF = Program(
    name="llmperf",
    begins=("token_benchmark_ray.py",),
    equal={
        "--mean-input-tokens": "--input-len",
        "--mean-output-tokens": "--output-len",
        "--max-num-completed-requests": "--num-prompts",
        "--num-concurrent-requests": "-u",
    },
    read={
        "--model": Means.MODELS,
        "--stddev-input-tokens": Means.SPREAD,
        "--stddev-output-tokens": Means.SPREAD,
        "--llm-api": Means.API,
        "--additional-sampling-params": Means.BODY,
        **_nothing("--results-dir --metadata --timeout"),
    },
    instead={},
    apis={"openai": "chat"},
    data_sets={"": "synthetic"},
    defaults={"--llm-api": "openai", "--num-concurrent-requests": "10"},
)

PROGRAMS = (SGLANG, AIPERF, GUIDELLM, EVALSCOPE, LLMPERF)
# Programs whose load has no equal, or is no load on a server: what does that here.
_SERVED = "with the model behind llama-load serve"
_BATCH = "llama-load run URL -f synthetic -u BATCH -n BATCH"
OTHERS = {
    "vllm bench throughput": f"llama-load run URL, {_SERVED}",
    "vllm bench latency": f"llama-load run URL -u 1, {_SERVED}",
    "vllm bench sweep": _SWEEP,
    "vllm bench startup": "llama-load serve, which reports the time of the start",
    "sglang.bench_one_batch": _BATCH,
    "sglang.bench_one_batch_server": _BATCH,
    "sglang.bench_offline_throughput": f"llama-load run URL -f synthetic, {_SERVED}",
    "llama-bench": f"llama-load run URL -f synthetic -u 1, {_SERVED}",
    "genai-bench benchmark": "llama-load run URL -f synthetic, or a sweep",
    "inference-perf": "llama-load run URL, or a sweep of several stages",
    "k6 run": "llama-load run URL",
    "trie": "llama-load run URL -f conversations --dataset-path FILE -u N -t SECONDS",
}
