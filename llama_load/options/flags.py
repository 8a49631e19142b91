"""Our command line flags, as Locust gets to know them. All are text: that is what environment variables and the web UI deliver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llama_load.foreign_text import MASK, masked, redacted, secrets_in
from llama_load.load.segments import ARRIVALS, ON_LIMITS, QUEUE, RAMPS
from llama_load.load.stages import EXAMPLES
from llama_load.metrics.definitions import OBJECTIVE_KEYS, SECTION_KEYS
from llama_load.metrics.thresholds import DEFAULT, GROUPS
from llama_load.reports.translations import ENGLISH, LANGUAGES
from llama_load.targets.balance import BALANCES, ROUND_ROBIN
from llama_load.targets.body import CHAT
from llama_load.targets.target import BACKENDS
from llama_load.wire.request import Timeouts
from llama_load.workloads.documents import DOCUMENT_TOKENS
from llama_load.workloads.embeddings import PASSAGE_TOKENS
from llama_load.workloads.images import FORMATS
from llama_load.workloads.prompt import ANSWER_TOKENS, CACHES, Traffic
from llama_load.workloads.synthetic import INPUT_TOKENS

# Same as `vllm bench serve`: the requests of a headless run without --num-prompts and without -t.
DEFAULT_NUM_PROMPTS = 1000
# Default address of the web UI.
LOOPBACK = "127.0.0.1"
EXTRA_BODY = "--extra-body"
CANCEL, WAIT = "cancel", "wait"
GENERATED, RECORDED = HISTORIES = ("generated", "recorded")
FRESH, SAME = PROMPTS = ("fresh", "same")
ALL = "all"
_TRAFFIC, _TIMEOUTS = Traffic(), Timeouts()
DEFAULT_SIZE = "{}x{}".format(*_TRAFFIC.image_size)
# With --at-end wait: requests still in flight after the longest timeout are cut.
LONGEST_WAIT_S = 900.0
# Larger values are typos: no machine has the memory or the time for them.
MOST_REQUESTS = 10**7  # ten hours at 300 a second; their plan takes some GB
MOST_USERS = 10**6
MOST_TOKENS = 10**7  # of a prompt or an answer: ten times the longest contexts
MOST_PARTS = 10**4  # images or texts in a request, turns of a conversation
MOST = 10**9
DEFAULT_INTERVAL_S = 1.0  # of telemetry


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: name on the command line, default as text, help; `choices` limits it, `switch` takes no value."""

    name: str
    default: str
    help: str
    choices: tuple[str, ...] | None = None
    switch: bool = False
    secret: bool = False
    repeated: bool = False
    in_web_ui: bool = True

    @property
    def dest(self) -> str:
        """Its attribute name on the parsed options."""
        return self.name.removeprefix("--").replace("-", "_")

    @property
    def help_with_choices(self) -> str:
        """Its help with the allowed values, if limited."""
        return self.help + (f"; one of {', '.join(filter(None, self.choices))}" if self.choices else "")


FLAGS = (
    Flag(
        "--num-prompts",
        "",
        "number of measured requests, per stage if there are stages; then the run ends "
        f"(default {DEFAULT_NUM_PROMPTS} when headless without -t, else no limit)",
    ),
    Flag("--max-concurrency", "", "maximum requests in flight (default: -u in a closed loop, no limit in an open loop)"),
    Flag("--request-rate", "", "open loop: requests per second, regardless of the server's speed (default inf: a closed loop)"),
    Flag("--arrival", "", "arrival process of an open loop (default poisson, or gamma if --burstiness is not 1)", ("", *ARRIVALS)),
    Flag("--burstiness", "1", "shape of gamma arrivals: below 1 is burstier than Poisson, 1 is Poisson, above 1 is more even"),
    Flag("--ramp", "", "change the request rate from --ramp-start-rps to --request-rate (default: no ramp)", ("", *RAMPS)),
    Flag("--ramp-start-rps", "", "requests per second at which --ramp starts"),
    Flag("--on-limit", QUEUE, "queue or drop arrivals while --max-concurrency requests are in flight", ON_LIMITS),
    Flag("--trace", "", "take arrival times from a trace: Mooncake JSONL, BurstGPT CSV or a run folder of llama-load"),
    Flag("--speed", "1", "replay speed of --trace as a factor: 2 takes half the time"),
    Flag("--stages", "", f"run several loads in a row, such as {EXAMPLES}"),
    Flag("--stage-prompts", FRESH, "prompts of each stage: fresh ones, or the same (needs the prompt cache off)", PROMPTS),
    Flag("--warmup", "1", "number of warm-up requests before the measurement (before each stage); they have separate prompts"),
    Flag(
        "--dataset-path",
        "",
        "conversations: a ShareGPT or messages file (.json, .jsonl, .parquet) or hf:REPO[:split] (default: the bundled sample)",
    ),
    Flag("--sharegpt-output-len", "", "same as --output-len, in tokens (the name that vllm bench serve uses)"),
    Flag("--turns", "1", "number of turns to send of each conversation, or all"),
    Flag("--history", GENERATED, "history sent with later turns: the model's own answers, or those in the data set", HISTORIES),
    Flag("--think-time", "0", "seconds that a user waits before a later turn"),
    Flag("--system-prompt", "", "text of a system message at the start of every conversation (default: none)"),
    Flag("--document", "", "a file or folder of documents (default: the bundled sample)"),
    Flag("--document-tokens", str(DOCUMENT_TOKENS), "length of a document in tokens: documents are cut or repeated to it"),
    Flag(
        "--document-cache",
        _TRAFFIC.document_cache,
        "make every prompt different, share one document between all questions, or send documents as they are",
        CACHES,
    ),
    Flag("--question", "", "question about the document or the images (default: several bundled ones)"),
    Flag("--images", "", "images: a file, a folder or hf:REPO[:split] (default: generated, no two alike)"),
    Flag("--image-size", DEFAULT_SIZE, "size of generated images in pixels, WIDTHxHEIGHT"),
    Flag("--image-format", _TRAFFIC.image_format, "encoding of generated images", FORMATS),
    Flag("--images-per-request", "1", "number of images per request"),
    Flag("--weights", "", "shares of the tasks of a mixture, such as document=3,vision=1 (default: equal)"),
    Flag("--batch-size", "1", "number of texts per embeddings request, documents per rerank request"),
    Flag(
        "--input-len",
        "",
        "prompt length in tokens, BOS included, chat template not "
        f"(default: synthetic {INPUT_TOKENS}, embeddings and rerank {PASSAGE_TOKENS})",
    ),
    Flag(
        "--output-len",
        "",
        f"answer length to ask for in tokens (default: the data set's; synthetic prompts, documents and images {ANSWER_TOKENS})",
    ),
    Flag("--range-ratio", "0", "synthetic prompts: vary lengths by up to this fraction, from 0 to below 1"),
    Flag("--prefix-len", "0", "synthetic prompts: length of a shared prefix in tokens"),
    Flag("--num-prefixes", "1", "synthetic prompts: number of different shared prefixes, used in turn"),
    Flag("--tokenizer", "", "a tokenizer.json (or its folder) that counts prompt tokens (default: the server, else an estimate)"),
    Flag("--keep-long-prompts", "", "send prompts that do not fit a slot instead of replacing them", switch=True),
    Flag("--seed", "0", "random seed: the same seed gives the same prompts and the same arrivals"),
    Flag("--model", "", "model name in the requests; a,b spreads them over several (default: the first that the server lists)"),
    Flag("--backend", "", "type of the server (default: detected)", choices=("", *BACKENDS)),
    Flag("--balance", ROUND_ROBIN, "how requests are spread over several servers in --host", choices=BALANCES),
    Flag(
        "--connection-reuse",
        "",
        "send several requests over one connection (default: on; off for llama-server, which closes it after a stream)",
        ("", "on", "off"),
    ),
    Flag("--no-stream", "", "request whole answers instead of streams: only E2EL is measured", switch=True),
    Flag(
        "--endpoint",
        CHAT,
        "API to use: chat, completions, messages (Anthropic's), responses (OpenAI's), completion or infill (llama-server's), "
        "or rerank (with -f locustfiles/rerank.py)",
    ),
    Flag("--max-tokens", "", "maximum answer length in tokens, for every request (default: the workload's)"),
    Flag("--temperature", "", "sampling temperature (default: the server's)"),
    Flag("--ignore-eos", "", "generate until max_tokens: end-of-sequence tokens do not end the answer", switch=True),
    Flag("--cache-prompt", "", "llama-server's prompt cache for these requests (default: the server's setting)", ("", "on", "off")),
    Flag(
        "--kv-pool",
        "",
        "size in tokens of the KV cache that llama-server's slots share (its -c, if started with --kv-unified or without -np)",
    ),
    Flag("--bust-prefix-cache", "", "start every prompt with random text, so that no prefix cache has it", switch=True),
    Flag("--extra-body", "", "a JSON object to merge into every request body, such as '{\"top_k\": 1}'"),
    Flag(
        "--header",
        "",
        "a header for every request, 'Name: value', with the fields {conversation}, {user}, {prompt} and {worker}; can be repeated",
        repeated=True,
        secret=True,
    ),
    Flag(
        "--swarm-key",
        "",
        "shared key of master and workers, at least 16 characters; safer in the environment as LLAMA_LOAD_SWARM_KEY (default: "
        "--processes generates one)",
        secret=True,
    ),
    Flag(
        "--ui-folder",
        "",
        "folder that must contain the paths given in the web UI (default: the working directory)",
        in_web_ui=False,
    ),
    Flag("--api-key", "", "API key, sent as a Bearer token; safer in the environment as LLAMA_LOAD_API_KEY", secret=True),
    Flag("--ca-file", "", "PEM file of the CA certificates to trust for https:// (default: the system's)"),
    Flag("--insecure", "", "do not verify the server's certificate for https://", switch=True),
    Flag("--run-dir", "", "folder for the results (default: runs/<time>-<label or workload>)"),
    Flag("--label", "", "name of this run in reports; also compares the settings with the last run of that name"),
    Flag(
        "--goodput",
        "",
        f"objectives in ms, such as 'ttft:500 tpot:50' ({', '.join(OBJECTIVE_KEYS)}): goodput counts requests that meet all",
        repeated=True,
    ),
    Flag("--percentile-metrics", "ttft,tpot,itl", f"latencies in the block: {','.join(SECTION_KEYS)}"),
    Flag("--metric-percentiles", "99", "percentiles to report, such as 50,90,99.9"),
    Flag(
        "--fail-if",
        "",
        "exit with code 1 if KEY>NUMBER (>=, <, <=) holds; KEY is one of summary.json, such as p99_ttft_ms>500, or of a part "
        f"of the run, such as p99_ttft_ms{{stage=8}}>500 ({', '.join(GROUPS)}), or verdict!=VALID; can be repeated; {DEFAULT} "
        "applies unless changed",
        repeated=True,
    ),
    Flag(
        "--abort-if",
        "",
        "end the run with exit code 1 as soon as KEY>NUMBER holds for the requests so far: failure_ratio, failed, or mean_, "
        "median_ and pN_ of ttft_ms, tpot_ms and e2el_ms; can be repeated",
        repeated=True,
    ),
    Flag(
        "--metrics-port",
        "",
        "serve live figures to Prometheus at http://127.0.0.1:PORT/metrics; ADDRESS:PORT opens it to other machines, "
        "such as 0.0.0.0:9646 (the web UI has /metrics already)",
        in_web_ui=False,
    ),
    Flag("--no-report-html", "", "do not write report.html, which takes about 2 s after the run and 1.4 MB", switch=True),
    Flag("--lang", ENGLISH, "language of the headings in report.md and report.html", LANGUAGES),
    Flag("--junit", "", "write the thresholds' results to this JUnit XML file, for CI"),
    Flag(
        "--at-end",
        CANCEL,
        "cancel requests in flight when -t, Ctrl-C or a stop ends the run, or wait for them",
        choices=(CANCEL, WAIT),
    ),
    Flag("--connect-timeout", f"{_TIMEOUTS.connect_s:g}", "seconds to wait for a connection"),
    Flag("--first-token-timeout", f"{_TIMEOUTS.first_token_s:g}", "seconds to wait for the first token"),
    Flag("--token-timeout", f"{_TIMEOUTS.token_s:g}", "seconds to wait for the next token"),
    Flag("--request-timeout", "", "seconds for a whole request, all its tries included (default: no limit)"),
    Flag(
        "--retry",
        "0",
        "send a request up to N more times while the server answers 429 or 503, with growing pauses; its latency counts from "
        "the first try",
    ),
    Flag(
        "--telemetry-interval",
        f"{DEFAULT_INTERVAL_S:g}",
        "seconds between samples of GPUs, host, server processes and servers' metrics; 0: no telemetry",
    ),
    Flag(
        "--scrape",
        "",
        "URL of another page of metrics in Prometheus' format: llama-load telemetry on a GPU machine, DCGM, node exporter; "
        "can be repeated",
        repeated=True,
        in_web_ui=False,
    ),
    Flag(
        "--scrape-token",
        "",
        "token for the pages of --scrape, sent as a Bearer token; safer in the environment as LLAMA_LOAD_SCRAPE_TOKEN",
        secret=True,
    ),
    Flag(
        "--power-command",
        "",
        'a command (without a shell) that prints a line of JSON a sample, {"watts": 312.5} or {"joules": 81234}: any power meter',
        in_web_ui=False,
    ),
    Flag("--price-per-hour", "", "price of the whole set-up per hour, in any currency: adds the cost of a million tokens"),
    Flag("--save-texts", "", "store prompts and answers in the results (otherwise only their hashes)", switch=True),
)

_SECRET_FLAGS = {flag.name for flag in FLAGS if flag.secret}
_SECRET_DESTS = {flag.dest for flag in FLAGS if flag.secret}


def declare(parser: Any) -> None:
    """Add our flags to Locust's parser. (Not in an argument group, because the web UI shows no groups.)"""
    for flag in FLAGS:
        settings: dict[str, Any] = {"help": flag.help, "env_var": f"LLAMA_LOAD_{flag.dest.upper()}"}
        if flag.switch:
            settings |= {"action": "store_true", "default": False}
        else:
            settings |= {"type": str, "default": flag.default, "metavar": "<text>"}
            if flag.choices:
                settings["choices"] = list(flag.choices)
                del settings["metavar"]
            if flag.repeated:
                settings |= {"action": "append", "default": None}
        in_web_ui = flag.in_web_ui and not flag.secret  # Locust writes defaults into the page
        parser.add_argument(flag.name, include_in_web_ui=in_web_ui, **settings)
    parser.set_defaults(web_host=LOOPBACK)  # Locust's own default is every interface


def without_secrets(command: list[str]) -> list[str]:
    """A command line with *** for keys, headers, and values in --extra-body that look like secrets."""
    shown, hide, body = [], False, False
    for word in command:
        name, equals, value = word.partition("=")
        # argparse accepts any abbreviation of a flag.
        secret = len(name) > len("--") and any(flag.startswith(name) for flag in _SECRET_FLAGS)
        if hide:
            shown.append(MASK)
            hide = False
        elif body:
            shown.append(without_secret_values(word))
            body = False
        elif secret and equals:
            shown.append(f"{name}={MASK}")
        elif len(name) > len("--") and EXTRA_BODY.startswith(name) and equals:
            shown.append(f"{name}={without_secret_values(value)}")
        else:
            hide, body = secret, len(name) > len("--") and EXTRA_BODY.startswith(name)
            shown.append(redacted(word))
    return shown


def without_keys(options: Mapping[str, Any]) -> dict[str, Any]:
    """Parsed options as sent to workers: without keys; each worker needs its own."""
    kept = {name: value for name, value in options.items() if name not in _SECRET_DESTS}
    body = kept.get("extra_body")
    if body and without_secret_values(body) != body:
        del kept["extra_body"]
    return kept


def without_secret_values(text: str) -> str:
    """The JSON text of --extra-body, with *** for the values of keys with names of secrets; unchanged without any."""
    try:
        value = json.loads(text)
    except ValueError:
        return MASK
    return json.dumps(masked(value)) if secrets_in(value) else redacted(text)
