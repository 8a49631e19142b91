"""Our command line flags, as Locust gets to know them. All are text: that is what environment variables and the web UI deliver."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from llama_load.foreign_text import MASK, masked, redacted, secrets_in
from llama_load.load.segments import ARRIVALS, ON_LIMITS, QUEUE, RAMPS
from llama_load.load.stages import EXAMPLES
from llama_load.options.flag import ADVANCED, LOAD, SERVER, TRAFFIC, Flag, Kind
from llama_load.options.result_flags import RESULT_FLAGS
from llama_load.targets.balance import BALANCES, ROUND_ROBIN
from llama_load.targets.body import CHAT
from llama_load.targets.target import BACKENDS
from llama_load.workloads.documents import DOCUMENT_TOKENS
from llama_load.workloads.embeddings import PASSAGE_TOKENS
from llama_load.workloads.images import FORMATS
from llama_load.workloads.prompt import ANSWER_TOKENS, CACHES, Traffic
from llama_load.workloads.synthetic import INPUT_TOKENS
from llama_load.workloads.think_time import EXAMPLES as EXAMPLES_OF_THINKING

# Same as `vllm bench serve`: the requests of a headless run without --num-prompts and without -t.
DEFAULT_NUM_PROMPTS = 1000
# Default address of the web UI.
LOOPBACK = "127.0.0.1"
EXTRA_BODY = "--extra-body"
GENERATED, RECORDED = HISTORIES = ("generated", "recorded")
FRESH, SAME = PROMPTS = ("fresh", "same")
ALL = "all"
_TRAFFIC = Traffic()
_AGENT = _TRAFFIC.agent
DEFAULT_SIZE = "{}x{}".format(*_TRAFFIC.image_size)
# With --at-end wait: requests still in flight after the longest timeout are cut.
LONGEST_WAIT_S = 900.0
# Larger values are typos: no machine has the memory or the time for them.
MOST_REQUESTS = 10**7  # ten hours at 300 a second; their plan takes some GB
MOST_USERS = 10**6
MOST_TOKENS = 10**7  # of a prompt or an answer: ten times the longest contexts
MOST_PARTS = 10**4  # images or texts in a request, turns of a conversation
MOST = 10**9


FLAGS = (
    Flag(
        "--num-prompts",
        Kind.NUMBER,
        LOAD,
        "",
        "number of measured requests, per stage if there are stages; then the run ends "
        f"(default {DEFAULT_NUM_PROMPTS} when headless without -t, else no limit)",
    ),
    Flag("--stages", Kind.EXPRESSION, LOAD, "", f"run several loads in a row, such as {EXAMPLES}"),
    Flag(
        "--max-concurrency",
        Kind.NUMBER,
        LOAD,
        "",
        "maximum requests in flight (default: -u in a closed loop, no limit in an open loop)",
    ),
    Flag(
        "--request-rate",
        Kind.EXPRESSION,
        LOAD,
        "",
        "open loop: requests per second, regardless of the server's speed (default inf: a closed loop)",
    ),
    Flag(
        "--arrival",
        Kind.CHOICE,
        LOAD,
        "",
        "arrival process of an open loop (default poisson, or gamma if --burstiness is not 1)",
        ("", *ARRIVALS),
    ),
    Flag(
        "--burstiness",
        Kind.NUMBER,
        LOAD,
        "1",
        "shape of gamma arrivals: below 1 is burstier than Poisson, 1 is Poisson, above 1 is more even",
    ),
    Flag(
        "--ramp",
        Kind.CHOICE,
        ADVANCED,
        "",
        "change the request rate from --ramp-start-rps to --request-rate (default: no ramp)",
        ("", *RAMPS),
    ),
    Flag("--ramp-start-rps", Kind.NUMBER, ADVANCED, "", "requests per second at which --ramp starts"),
    Flag(
        "--on-limit",
        Kind.CHOICE,
        ADVANCED,
        QUEUE,
        "queue or drop arrivals while --max-concurrency requests are in flight",
        ON_LIMITS,
    ),
    Flag(
        "--trace",
        Kind.INPUT,
        LOAD,
        "",
        "take arrival times from a trace: Mooncake JSONL, BurstGPT CSV or a run folder of llama-load",
    ),
    Flag("--speed", Kind.NUMBER, LOAD, "1", "replay speed of --trace as a factor: 2 takes half the time"),
    Flag(
        "--stage-prompts",
        Kind.CHOICE,
        ADVANCED,
        FRESH,
        "prompts of each stage: fresh ones, or the same (needs the prompt cache off)",
        PROMPTS,
    ),
    Flag(
        "--warmup",
        Kind.NUMBER,
        LOAD,
        "1",
        "number of warm-up requests before the measurement (before each stage); they have separate prompts",
    ),
    Flag(
        "--hand-over",
        Kind.SWITCH,
        LOAD,
        "",
        "closed loop: the warm-up (at least a request per user) hands its slots over to the measured requests one by one, and "
        "further unmeasured requests keep up the load until the last one has ended: neither a start cohort nor a falling load is "
        "measured",
    ),
    Flag("--max-tokens", Kind.NUMBER, TRAFFIC, "", "maximum answer length in tokens, for every request (default: the workload's)"),
    Flag(
        "--dataset-path",
        Kind.DATA_SET,
        TRAFFIC,
        "",
        "conversations: a ShareGPT or messages file (.json, .jsonl, .parquet) or hf:REPO[:split] (default: the bundled sample)",
    ),
    Flag(
        "--sharegpt-output-len", Kind.NUMBER, ADVANCED, "", "same as --output-len, in tokens (the name that vllm bench serve uses)"
    ),
    Flag(
        "--turns",
        Kind.NUMBER,
        TRAFFIC,
        "",
        "number of turns to send of each conversation, or all (default: 1 of sharegpt_chat.py, all of conversations.py)",
    ),
    Flag(
        "--history",
        Kind.CHOICE,
        TRAFFIC,
        GENERATED,
        "history sent with later turns: the model's own answers, or those in the data set",
        HISTORIES,
    ),
    Flag(
        "--think-time",
        Kind.EXPRESSION,
        TRAFFIC,
        "",
        f"seconds that a user waits before a later question, such as {EXAMPLES_OF_THINKING} "
        "(default: as recorded in the data set, else 0)",
    ),
    Flag("--rounds", Kind.NUMBER, TRAFFIC, str(_AGENT.rounds), "synthetic agents: rounds of a tool call and its output"),
    Flag("--system-tokens", Kind.NUMBER, TRAFFIC, str(_AGENT.system_tokens), "synthetic agents: length of the system prompt"),
    Flag("--tools", Kind.NUMBER, TRAFFIC, str(_AGENT.tools), "synthetic agents: number of tools, 0 to 8"),
    Flag(
        "--tool-output-tokens", Kind.NUMBER, TRAFFIC, str(_AGENT.tool_output_tokens), "synthetic agents: tokens of a tool's output"
    ),
    Flag("--tool-time", Kind.EXPRESSION, TRAFFIC, "", "synthetic agents: seconds that a tool runs, as in --think-time (default 0)"),
    Flag(
        "--sub-agents",
        Kind.NUMBER,
        TRAFFIC,
        "0",
        "synthetic agents: sub-agents that each one starts in its first round, with half as many rounds, and waits for",
    ),
    Flag("--system-prompt", Kind.TEXT, TRAFFIC, "", "text of a system message at the start of every conversation (default: none)"),
    Flag("--document", Kind.INPUT, TRAFFIC, "", "a file or folder of documents (default: the bundled sample)"),
    Flag(
        "--document-tokens",
        Kind.NUMBER,
        TRAFFIC,
        str(DOCUMENT_TOKENS),
        "length of a document in tokens: documents are cut or repeated to it",
    ),
    Flag(
        "--document-cache",
        Kind.CHOICE,
        TRAFFIC,
        _TRAFFIC.document_cache,
        "make every prompt different, share one document between all questions, or send documents as they are",
        CACHES,
    ),
    Flag("--question", Kind.TEXT, TRAFFIC, "", "question about the document or the images (default: several bundled ones)"),
    Flag("--images", Kind.DATA_SET, TRAFFIC, "", "images: a file, a folder or hf:REPO[:split] (default: generated, no two alike)"),
    Flag("--image-size", Kind.EXPRESSION, TRAFFIC, DEFAULT_SIZE, "size of generated images in pixels, WIDTHxHEIGHT"),
    Flag("--image-format", Kind.CHOICE, TRAFFIC, _TRAFFIC.image_format, "encoding of generated images", FORMATS),
    Flag("--images-per-request", Kind.NUMBER, TRAFFIC, "1", "number of images per request"),
    Flag(
        "--weights", Kind.EXPRESSION, TRAFFIC, "", "shares of the tasks of a mixture, such as document=3,vision=1 (default: equal)"
    ),
    Flag(
        "--category",
        Kind.TEXT,
        TRAFFIC,
        "",
        "of your own prompts send only these categories, such as code,prose (default: all)",
    ),
    Flag("--batch-size", Kind.NUMBER, TRAFFIC, "1", "number of texts per embeddings request, documents per rerank request"),
    Flag(
        "--input-len",
        Kind.NUMBER,
        TRAFFIC,
        "",
        "prompt length in tokens, BOS included, chat template not "
        f"(default: synthetic {INPUT_TOKENS}, embeddings and rerank {PASSAGE_TOKENS})",
    ),
    Flag(
        "--output-len",
        Kind.NUMBER,
        TRAFFIC,
        "",
        f"answer length to ask for in tokens (default: the data set's; synthetic prompts, documents and images {ANSWER_TOKENS})",
    ),
    Flag("--range-ratio", Kind.NUMBER, TRAFFIC, "0", "synthetic prompts: vary lengths by up to this fraction, from 0 to below 1"),
    Flag("--prefix-len", Kind.NUMBER, TRAFFIC, "0", "synthetic prompts: length of a shared prefix in tokens"),
    Flag("--num-prefixes", Kind.NUMBER, TRAFFIC, "1", "synthetic prompts: number of different shared prefixes, used in turn"),
    Flag(
        "--tokenizer",
        Kind.INPUT,
        ADVANCED,
        "",
        "a tokenizer.json (or its folder) that counts prompt tokens (default: the server, else an estimate)",
    ),
    Flag("--keep-long-prompts", Kind.SWITCH, ADVANCED, "", "send prompts that do not fit a slot instead of replacing them"),
    Flag(
        "--seed",
        Kind.NUMBER,
        ADVANCED,
        "",
        "random seed: the same seed gives the same prompts and arrivals, to the letter (default: 0, with prompts made new for each "
        "run, so that no server has them cached)",
    ),
    Flag(
        "--model",
        Kind.TEXT,
        SERVER,
        "",
        "model name in the requests; a,b spreads them over several (default: the first that the server lists)",
    ),
    Flag("--backend", Kind.CHOICE, SERVER, "", "type of the server (default: detected)", ("", *BACKENDS)),
    Flag("--balance", Kind.CHOICE, SERVER, ROUND_ROBIN, "how requests are spread over several servers in --host", BALANCES),
    Flag(
        "--connection-reuse",
        Kind.CHOICE,
        ADVANCED,
        "",
        "send several requests over one connection (default: on; off for llama-server, which closes it after a stream)",
        ("", "on", "off"),
    ),
    Flag("--no-stream", Kind.SWITCH, ADVANCED, "", "request whole answers instead of streams: only E2EL is measured"),
    Flag(
        "--endpoint",
        Kind.EXPRESSION,
        SERVER,
        CHAT,
        "API to use: chat, completions, messages (Anthropic's), responses (OpenAI's), completion or infill (llama-server's), "
        "or rerank (with -f locustfiles/rerank.py)",
    ),
    Flag("--temperature", Kind.NUMBER, TRAFFIC, "", "sampling temperature (default: the server's)"),
    Flag("--ignore-eos", Kind.SWITCH, TRAFFIC, "", "generate until max_tokens: end-of-sequence tokens do not end the answer"),
    Flag(
        "--cache-prompt",
        Kind.CHOICE,
        TRAFFIC,
        "",
        "llama-server's prompt cache for these requests (default: the server's setting)",
        ("", "on", "off"),
    ),
    Flag(
        "--kv-pool",
        Kind.NUMBER,
        ADVANCED,
        "",
        "size in tokens of the KV cache that llama-server's slots share (its -c, if started with --kv-unified or without -np)",
    ),
    Flag("--bust-prefix-cache", Kind.SWITCH, TRAFFIC, "", "start every prompt with random text, so that no prefix cache has it"),
    Flag("--extra-body", Kind.EXPRESSION, ADVANCED, "", "a JSON object to merge into every request body, such as '{\"top_k\": 1}'"),
    Flag(
        "--header",
        Kind.SERVER_KEY,
        ADVANCED,
        "",
        "a header for every request, 'Name: value', with the fields {conversation}, {user}, {prompt} and {worker}; its value is "
        "treated as a key unless it is that of Accept, Content-Type, User-Agent or the like; can be repeated",
        repeated=True,
    ),
    Flag(
        "--swarm-key",
        Kind.SECRET,
        None,
        "",
        "shared key of master and workers, at least 16 characters; safer in the environment as LLAMA_LOAD_SWARM_KEY (default: "
        "--processes generates one)",
    ),
    Flag(
        "--ui-folder",
        Kind.FOLDER,
        None,
        "",
        "folder that must contain the paths given in the web UI (default: the working directory)",
        reports_only=True,
    ),
    Flag(
        "--api-key", Kind.SERVER_KEY, SERVER, "", "API key, sent as a Bearer token; safer in the environment as LLAMA_LOAD_API_KEY"
    ),
    Flag("--ca-file", Kind.INPUT, ADVANCED, "", "PEM file of the CA certificates to trust for https:// (default: the system's)"),
    Flag("--insecure", Kind.SWITCH, ADVANCED, "", "do not verify the server's certificate for https://"),
    *RESULT_FLAGS,
)

_USER_IN_URL = re.compile(r"(://)[^/?#\s]*@")
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
        in_web_ui = flag.on_page and not flag.secret  # Locust writes defaults into the page
        parser.add_argument(flag.name, include_in_web_ui=in_web_ui, **settings)
    parser.set_defaults(web_host=LOOPBACK)  # Locust's own default is every interface


def without_secrets(command: list[str]) -> list[str]:
    """A command line with *** for keys, headers, users of URLs, and values in --extra-body that look like secrets."""
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
            shown.append(_USER_IN_URL.sub(rf"\1{MASK}@", redacted(word)))
    return shown


def without_keys(options: Mapping[str, Any]) -> dict[str, Any]:
    """Parsed options as sent to workers: without keys; each worker needs its own."""
    kept = {name: value for name, value in options.items() if name not in _SECRET_DESTS}
    body = kept.get("extra_body")
    if body and without_secret_values(body) != body:
        del kept["extra_body"]
    if _USER_IN_URL.search(str(kept.get("upload"))):
        del kept["upload"]
    return kept


def without_secret_values(text: str) -> str:
    """The JSON text of --extra-body, with *** for the values of keys with names of secrets; unchanged without any."""
    try:
        value = json.loads(text)
    except ValueError:
        return MASK
    return json.dumps(masked(value)) if secrets_in(value) else redacted(text)
