"""Our command line flags, as Locust gets to know them.

All are text: that is what environment variables and the web UI deliver.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_load.load.segments import ARRIVALS, ON_LIMITS, QUEUE, RAMPS
from llama_load.load.stages import EXAMPLES
from llama_load.options.flag import (
    ADVANCED,
    AGENT,
    CONVERSATIONS,
    CUSTOM,
    DOCUMENTS,
    LOAD,
    MIXED,
    REPLAY,
    SERVER,
    SHAREGPT,
    SYNTHETIC,
    TEXTS,
    TRAFFIC,
    VISION,
    Flag,
    Kind,
    Role,
)
from llama_load.options.result_flags import RESULT_FLAGS
from llama_load.targets.apis import CHAT
from llama_load.targets.balance import BALANCES, ROUND_ROBIN
from llama_load.targets.servers import KINDS
from llama_load.users.hang_ups import FIRST_TOKEN
from llama_load.workloads.documents import DOCUMENT_TOKENS
from llama_load.workloads.embeddings import PASSAGE_TOKENS
from llama_load.workloads.images import FORMATS
from llama_load.workloads.prompt import (
    ANSWER_TOKENS,
    CACHES,
    ROUNDS,
    SYSTEM_TOKENS,
    TOOL_OUTPUT_TOKENS,
    Traffic,
)
from llama_load.workloads.synthetic import INPUT_TOKENS
from llama_load.workloads.think_time import EXAMPLES as EXAMPLES_OF_THINKING

# Same as `vllm bench serve`: the requests of a headless run without --num-prompts and without -t.
DEFAULT_NUM_PROMPTS = 1000
# Default address of the web UI.
LOOPBACK = "127.0.0.1"
GENERATED = "generated"
RECORDED = "recorded"
HISTORIES = (GENERATED, RECORDED)
FRESH = "fresh"
SAME = "same"
PROMPTS = (FRESH, SAME)
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
MOST_PROBES_RPS = 10.0  # more is a load, not a probe
LONGEST_PROBE_GAP_S = 3600.0


# The flags that are used most: `llama-load flags` lists these.
USUAL = (
    "--num-prompts",
    "--stages",
    "--max-concurrency",
    "--request-rate",
    "--warmup",
    "--max-tokens",
    "--dataset-path",
    "--turns",
    "--input-len",
    "--output-len",
    "--seed",
    "--model",
    "--endpoint",
    "--ignore-eos",
    "--cache-prompt",
    "--extra-body",
    "--api-key",
    "--run-dir",
    "--label",
    "--goodput",
    "--fail-if",
)


# Locust's own flags that the page has, and which depend on ours.
OF_LOCUST = (
    Flag(
        "--host",
        Kind.SERVERS,
        SERVER,
        "",
        "base URL of the server, such as http://127.0.0.1:8080; several for replicas, separated "
        "by spaces",
        title="Server",
        first=1,
        role=Role.CONNECTION,
        also=("-H",),
    ),
    Flag(
        "-u",
        Kind.NUMBER,
        LOAD,
        "",
        "users, each with one request at a time: the maximum request concurrency of a closed loop",
        title="Users",
        page_help="each sends its next request when the previous one is answered",
        first=2,
        role=Role.LOAD,
        also=("--users",),
        attribute="num_users",
    ),
    Flag(
        "-r",
        Kind.NUMBER,
        ADVANCED,
        "",
        "users to start per second (default: all at once)",
        title="Users to start per second",
        also=("--spawn-rate",),
        attribute="spawn_rate",
    ),
    Flag(
        "-t",
        Kind.EXPRESSION,
        LOAD,
        "",
        "time limit, counted from the end of the warm-up, such as 90s, 10m or 1h30m (default: "
        "none)",
        title="Time limit",
        page_help="such as 90s, 10m or 1h30m, counted from the end of the warm-up",
        first=6,
        role=Role.AMOUNT,
        also=("--run-time",),
        attribute="run_time",
    ),
)

FLAGS = (
    Flag(
        "--num-prompts",
        Kind.NUMBER,
        LOAD,
        "",
        "number of measured requests, per stage if there are stages; then the run ends "
        f"(default {DEFAULT_NUM_PROMPTS} when headless without -t, else no limit)",
        begins="Load: how many requests, and when",
        title="Requests",
        page_help="then the run ends; in stages this many in each",
        first=5,
        role=Role.REPORTED | Role.AMOUNT,
        also=("-n",),
    ),
    Flag(
        "--stages",
        Kind.EXPRESSION,
        LOAD,
        "",
        f"run several loads in a row, such as {EXAMPLES}",
        title="Stages",
        first=4,
        role=Role.LOAD | Role.AMOUNT,
    ),
    Flag(
        "--max-concurrency",
        Kind.NUMBER,
        LOAD,
        "",
        "maximum requests in flight (default: -u in a closed loop, no limit in an open loop)",
        title="Most requests in flight",
        role=Role.REPORTED | Role.LOAD,
    ),
    Flag(
        "--request-rate",
        Kind.EXPRESSION,
        LOAD,
        "",
        "open loop: requests per second, regardless of the server's speed (default inf: a closed "
        "loop)",
        title="Requests per second",
        page_help="requests per second, regardless of the server's speed, such as 2 or 0.5",
        first=3,
        role=Role.REPORTED | Role.LOAD,
    ),
    Flag(
        "--conversations",
        Kind.NUMBER,
        LOAD,
        "",
        "closed loop: conversations alive at a time, their waits included; a new one begins when "
        "one has ended (the same as -u)",
        title="Conversations at a time",
        role=Role.LOAD,
    ),
    Flag(
        "--conversation-rate",
        Kind.NUMBER,
        LOAD,
        "",
        "open loop: conversations that arrive per minute; their later turns follow their own waits",
        title="Conversations per minute",
        role=Role.LOAD,
    ),
    Flag(
        "--arrival",
        Kind.CHOICE,
        LOAD,
        "",
        "arrival process of an open loop (default poisson, or gamma if --burstiness is not 1)",
        ("", *ARRIVALS),
        title="Arrivals",
    ),
    Flag(
        "--burstiness",
        Kind.NUMBER,
        LOAD,
        "1",
        "shape of gamma arrivals: below 1 is burstier than Poisson, 1 is Poisson, above 1 is "
        "more even",
        title="Shape of gamma arrivals",
        role=Role.REPORTED,
    ),
    Flag(
        "--ramp",
        Kind.CHOICE,
        ADVANCED,
        "",
        "change the request rate from --ramp-start-rps to --request-rate (default: no ramp)",
        ("", *RAMPS),
        role=Role.SHAPE,
    ),
    Flag(
        "--ramp-start-rps",
        Kind.NUMBER,
        ADVANCED,
        "",
        "requests per second at which --ramp starts",
        title="Ramp: requests per second at its start",
        role=Role.SHAPE,
    ),
    Flag(
        "--on-limit",
        Kind.CHOICE,
        ADVANCED,
        QUEUE,
        "queue or drop arrivals while --max-concurrency requests are in flight",
        ON_LIMITS,
        title="At the limit of requests in flight",
        role=Role.SHAPE,
    ),
    Flag(
        "--trace",
        Kind.INPUT,
        LOAD,
        "",
        "take arrival times from a trace: Mooncake or Qwen-Bailian JSONL, BurstGPT or Azure CSV, "
        "or a run folder of llama-load",
        role=Role.SHAPE | Role.LOAD | Role.AMOUNT,
    ),
    Flag(
        "--speed",
        Kind.NUMBER,
        LOAD,
        "1",
        "replay speed as a factor: with 2 the arrivals of --trace and the recorded waits of "
        "conversations take half the time",
        role=Role.SHAPE,
    ),
    Flag(
        "--stage-prompts",
        Kind.CHOICE,
        ADVANCED,
        FRESH,
        "prompts of each stage: fresh ones, or the same (needs the prompt cache off)",
        PROMPTS,
        role=Role.PROMPTS,
    ),
    Flag(
        "--warmup",
        Kind.NUMBER,
        LOAD,
        "1",
        "number of warm-up requests before the measurement (before each stage); they have "
        "separate prompts",
        title="Warm-up requests",
    ),
    Flag(
        "--hand-over",
        Kind.SWITCH,
        LOAD,
        "",
        "closed loop: the warm-up (at least a request per user) hands its slots over to the "
        "measured requests one by one, and further unmeasured requests keep up the load until "
        "the last one has ended",
    ),
    Flag(
        "--max-tokens",
        Kind.NUMBER,
        TRAFFIC,
        "",
        "maximum answer length in tokens, for every request (default: the workload's)",
        title="Most answer tokens",
        role=Role.ANSWERS,
    ),
    Flag(
        "--dataset-path",
        Kind.DATA_SET,
        TRAFFIC,
        "",
        "conversations: a ShareGPT or messages file (.json, .jsonl, .parquet) or hf:REPO[:split] "
        "(default: the bundled sample)",
        begins="Prompts and data",
        title="Data set",
        workloads=(SHAREGPT, CUSTOM, CONVERSATIONS),
        role=Role.REPORTED,
    ),
    Flag(
        "--sharegpt-output-len",
        Kind.NUMBER,
        ADVANCED,
        "",
        "same as --output-len, in tokens (the name that vllm bench serve uses)",
        title="Answer length (vLLM's name)",
        workloads=(SHAREGPT,),
    ),
    Flag(
        "--turns",
        Kind.NUMBER,
        TRAFFIC,
        "",
        "number of turns to send of each conversation, or all (default: 1 of sharegpt_chat.py, "
        "all of conversations.py)",
        title="Turns of each conversation",
        workloads=(SHAREGPT, CONVERSATIONS),
        role=Role.PROMPTS,
    ),
    Flag(
        "--history",
        Kind.CHOICE,
        TRAFFIC,
        GENERATED,
        "history sent with later turns: the model's own answers, or those in the data set",
        HISTORIES,
        workloads=(SHAREGPT, CONVERSATIONS),
        role=Role.PROMPTS,
    ),
    Flag(
        "--think-time",
        Kind.TIMES,
        TRAFFIC,
        "",
        f"seconds that a user waits before a later question, such as {EXAMPLES_OF_THINKING} "
        "(default: as recorded in the data set, else 0)",
        workloads=(SHAREGPT, CONVERSATIONS),
        role=Role.SHAPE,
    ),
    Flag(
        "--rounds",
        Kind.NUMBER,
        TRAFFIC,
        "",
        f"synthetic agents: rounds of a tool call and its output (default {ROUNDS}, fewer where "
        "a slot is very small)",
        workloads=(AGENT,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--system-tokens",
        Kind.NUMBER,
        TRAFFIC,
        "",
        f"synthetic agents: length of the system prompt (default {SYSTEM_TOKENS}, less where a "
        "slot is small)",
        workloads=(AGENT,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--tools",
        Kind.NUMBER,
        TRAFFIC,
        str(_AGENT.tools),
        "synthetic agents: number of tools, 0 to 8",
        workloads=(AGENT,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--tool-output-tokens",
        Kind.NUMBER,
        TRAFFIC,
        "",
        f"synthetic agents: length of a tool's output in tokens (default {TOOL_OUTPUT_TOKENS}, "
        "less where a slot is small)",
        workloads=(AGENT,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--tool-time",
        Kind.TIMES,
        TRAFFIC,
        "",
        "synthetic agents: seconds that a tool runs, as in --think-time (default 0)",
        workloads=(AGENT,),
        role=Role.SHAPE,
    ),
    Flag(
        "--sub-agents",
        Kind.NUMBER,
        TRAFFIC,
        "0",
        "synthetic agents: sub-agents that each one starts in its first round, with half as many "
        "rounds, and waits for",
        workloads=(AGENT,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--system-prompt",
        Kind.TEXT,
        TRAFFIC,
        "",
        "text of a system message at the start of every conversation (default: none)",
        workloads=(SHAREGPT, CUSTOM, CONVERSATIONS),
        role=Role.PROMPTS,
    ),
    Flag(
        "--document",
        Kind.INPUT,
        TRAFFIC,
        "",
        "a file or folder of documents (default: the bundled sample)",
        workloads=(DOCUMENTS, *TEXTS),
    ),
    Flag(
        "--document-tokens",
        Kind.NUMBER,
        TRAFFIC,
        str(DOCUMENT_TOKENS),
        "length of a document in tokens: documents are cut or repeated to it",
        workloads=(DOCUMENTS,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--document-cache",
        Kind.CHOICE,
        TRAFFIC,
        _TRAFFIC.document_cache,
        "make every prompt different, share one document between all questions, or send "
        "documents as they are",
        CACHES,
        workloads=(DOCUMENTS,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--question",
        Kind.TEXT,
        TRAFFIC,
        "",
        "question about the document or the images (default: several bundled ones)",
        workloads=(DOCUMENTS, VISION),
        role=Role.PROMPTS,
    ),
    Flag(
        "--images",
        Kind.DATA_SET,
        TRAFFIC,
        "",
        "images: a file, a folder or hf:REPO[:split] (default: generated, no two alike)",
        workloads=(VISION,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--image-size",
        Kind.EXPRESSION,
        TRAFFIC,
        DEFAULT_SIZE,
        "size of generated images in pixels, WIDTHxHEIGHT",
        workloads=(VISION,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--image-format",
        Kind.CHOICE,
        TRAFFIC,
        _TRAFFIC.image_format,
        "encoding of generated images",
        FORMATS,
        workloads=(VISION,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--images-per-request",
        Kind.NUMBER,
        TRAFFIC,
        "1",
        "number of images per request",
        workloads=(VISION,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--weights",
        Kind.EXPRESSION,
        TRAFFIC,
        "",
        "shares of the tasks of a mixture, such as document=3,vision=1 (default: equal)",
        title="Shares of the tasks",
        workloads=(MIXED,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--category",
        Kind.NAME,
        TRAFFIC,
        "",
        "of your own prompts send only these categories, such as code,prose (default: all)",
        workloads=(CUSTOM,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--batch-size",
        Kind.NUMBER,
        TRAFFIC,
        "1",
        "number of texts per embeddings request, documents per rerank request",
        workloads=TEXTS,
        role=Role.PROMPTS,
    ),
    Flag(
        "--input-len",
        Kind.NUMBER,
        TRAFFIC,
        "",
        "prompt length in tokens, BOS included, chat template not "
        f"(default: synthetic {INPUT_TOKENS}, embeddings and rerank {PASSAGE_TOKENS})",
        title="Prompt length",
        workloads=(*TEXTS, SYNTHETIC, REPLAY, AGENT),
        role=Role.PROMPTS,
    ),
    Flag(
        "--output-len",
        Kind.NUMBER,
        TRAFFIC,
        "",
        "answer length to ask for in tokens (default: the data set's; synthetic prompts, "
        f"documents and images {ANSWER_TOKENS})",
        title="Answer length",
        workloads=(
            SHAREGPT,
            CUSTOM,
            CONVERSATIONS,
            AGENT,
            DOCUMENTS,
            VISION,
            SYNTHETIC,
            REPLAY,
        ),
    ),
    Flag(
        "--range-ratio",
        Kind.NUMBER,
        TRAFFIC,
        "0",
        "synthetic prompts: vary lengths by up to this fraction, from 0 to below 1",
        title="Variation of lengths",
        workloads=(SYNTHETIC,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--prefix-len",
        Kind.NUMBER,
        TRAFFIC,
        "0",
        "synthetic prompts: length of a shared prefix in tokens",
        title="Length of a shared prefix",
        workloads=(SYNTHETIC,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--num-prefixes",
        Kind.NUMBER,
        TRAFFIC,
        "1",
        "synthetic prompts: number of different shared prefixes, used in turn",
        title="Number of shared prefixes",
        workloads=(SYNTHETIC,),
        role=Role.PROMPTS,
    ),
    Flag(
        "--tokenizer",
        Kind.INPUT,
        ADVANCED,
        "",
        "a tokenizer.json (or its folder) that counts prompt tokens (default: the server, else "
        "an estimate)",
    ),
    Flag(
        "--prompt-token-ids",
        Kind.SWITCH,
        ADVANCED,
        "",
        "send prompts as token ids, made with --tokenizer (about 1 ms per 1000 tokens), to "
        "--endpoint completions or completion",
        role=Role.PROMPTS,
    ),
    Flag(
        "--keep-long-prompts",
        Kind.SWITCH,
        ADVANCED,
        "",
        "send prompts that do not fit a slot instead of replacing them",
        role=Role.PROMPTS,
    ),
    Flag(
        "--seed",
        Kind.NUMBER,
        ADVANCED,
        "",
        "random seed: the same seed gives the same prompts and arrivals, to the letter (default: "
        "0, with prompts made new for "
        "each run, so that no server has them cached)",
    ),
    Flag(
        "--model",
        Kind.NAME,
        SERVER,
        "",
        "model name in the requests; a,b spreads requests and whole conversations over several, "
        "a=3,b=1 with these weights "
        "(default: the first that the server lists)",
        begins="Server and requests",
        role=Role.CONNECTION,
    ),
    Flag(
        "--adapter",
        Kind.NAME,
        SERVER,
        "",
        "llama-server's LoRA adapters by their ids, for requests and whole conversations, with "
        "weights: 0=3,1=1,none=2 "
        "(default: the server's own scales)",
        title="LoRA adapters",
        role=Role.CONNECTION,
    ),
    Flag(
        "--backend",
        Kind.CHOICE,
        SERVER,
        "",
        "type of the server (default: detected)",
        ("", *KINDS),
        title="Type of server",
        role=Role.CONNECTION,
    ),
    Flag(
        "--balance",
        Kind.CHOICE,
        SERVER,
        ROUND_ROBIN,
        "how requests are spread over several servers in --host; a conversation stays with its "
        "server, but for every-turn",
        BALANCES,
        title="Balance between servers",
    ),
    Flag(
        "--connection-reuse",
        Kind.CHOICE,
        ADVANCED,
        "",
        "send several requests over one connection (default: on; off for llama-server, which "
        "closes it after a stream)",
        ("", "on", "off"),
        role=Role.CONNECTION,
    ),
    Flag(
        "--no-stream",
        Kind.SWITCH,
        ADVANCED,
        "",
        "request whole answers instead of streams: only E2EL is measured",
        title="Whole answers instead of streams",
        role=Role.ANSWERS,
    ),
    Flag(
        "--endpoint",
        Kind.EXPRESSION,
        SERVER,
        CHAT.name,
        "API to use: chat, completions, messages (Anthropic's), responses (OpenAI's), completion "
        "or infill (llama-server's), "
        "or rerank (with -f locustfiles/rerank.py)",
        title="API",
        role=Role.CONNECTION,
    ),
    Flag(
        "--abort-rate",
        Kind.NUMBER,
        TRAFFIC,
        "0",
        "share of the requests that their users give up in the middle, from 0 to 1",
        title="Share of requests given up",
        role=Role.ANSWERS,
    ),
    Flag(
        "--abort-after",
        Kind.EXPRESSION,
        TRAFFIC,
        FIRST_TOKEN,
        "with --abort-rate: when users give up, 'first-token', '20 tokens', '2.5 s' or "
        "'lognormal:MEDIAN,SIGMA' (median in s)",
        title="Given up after",
        role=Role.ANSWERS,
    ),
    Flag(
        "--probe-rate",
        Kind.NUMBER,
        LOAD,
        "0",
        "small requests of fixed size per second, beside the load and in none of its figures: "
        "what a bystander feels, such as 0.5",
        title="Probes per second",
        role=Role.SHAPE | Role.ANSWERS,
    ),
    Flag(
        "--temperature",
        Kind.NUMBER,
        TRAFFIC,
        "",
        "sampling temperature (default: the server's)",
        role=Role.ANSWERS,
    ),
    Flag(
        "--json-schema",
        Kind.INPUT,
        TRAFFIC,
        "",
        "file with a JSON schema that answers are forced to follow; the share of valid answers "
        "is reported",
        title="JSON schema of answers",
        role=Role.ANSWERS,
    ),
    Flag(
        "--grammar",
        Kind.INPUT,
        TRAFFIC,
        "",
        "file with a grammar that answers are forced to follow, in the server's language "
        "(llama-server: GBNF)",
        title="Grammar of answers",
        role=Role.ANSWERS,
    ),
    Flag(
        "--structured-output-ratio",
        Kind.NUMBER,
        ADVANCED,
        "1",
        "share of the requests with --json-schema or --grammar, from 0 to 1; the others are free "
        "text, for comparison",
        title="Share of structured answers",
        role=Role.ANSWERS,
    ),
    Flag(
        "--same-answer",
        Kind.SWITCH,
        ADVANCED,
        "",
        "with --stages 1,8 or the like: send the same prompts alone and under load at "
        "temperature 0, and report how many answers "
        "differ",
        title="Same answers under load",
        role=Role.ANSWERS,
    ),
    Flag(
        "--ignore-eos",
        Kind.SWITCH,
        TRAFFIC,
        "",
        "generate until max_tokens: end-of-sequence tokens do not end the answer",
        title="Ignore the end of sequence",
        role=Role.ANSWERS,
    ),
    Flag(
        "--cache-prompt",
        Kind.CHOICE,
        TRAFFIC,
        "",
        "llama-server's prompt cache for these requests (default: the server's setting)",
        ("", "on", "off"),
        role=Role.CACHE,
    ),
    Flag(
        "--kv-pool",
        Kind.NUMBER,
        ADVANCED,
        "",
        "size in tokens of the KV cache that llama-server's slots share (its -c, if started with "
        "--kv-unified or without -np)",
        title="Size of the shared KV cache",
    ),
    Flag(
        "--bust-prefix-cache",
        Kind.SWITCH,
        TRAFFIC,
        "",
        "start every prompt with random text, so that no prefix cache has it",
        role=Role.PROMPTS | Role.CACHE,
    ),
    Flag(
        "--reset-prefix-cache",
        Kind.SWITCH,
        ADVANCED,
        "",
        "empty the server's prompt cache before each measurement: vLLM with "
        "VLLM_SERVER_DEV_MODE=1, llama-server with --slot-save-path, SGLang; "
        "a server that refuses ends the run",
        role=Role.CACHE,
    ),
    Flag(
        "--profile-server",
        Kind.SWITCH,
        ADVANCED,
        "",
        "start the server's profiler before each measurement and stop it after: vLLM with "
        "--profiler-config, SGLang; the figures are those of a profiled server, and writing the "
        "trace may take minutes",
    ),
    Flag(
        "--extra-body",
        Kind.JSON,
        ADVANCED,
        "",
        "a JSON object to merge into every request body, such as '{\"top_k\": 1}'",
        title="Extra fields of the body",
    ),
    Flag(
        "--header",
        Kind.HEADER,
        ADVANCED,
        "",
        "a header for every request, 'Name: value', with the fields {conversation}, {user}, "
        "{prompt} and {worker}; its value is "
        "treated as a key unless it is that of Accept, Content-Type, User-Agent or the like; can "
        "be repeated",
        repeated=True,
        title="Headers",
        role=Role.CONNECTION,
    ),
    Flag(
        "--session-header",
        Kind.NAME,
        ADVANCED,
        "",
        "a header in which the server hands out a session: its value in the first answer of a "
        "conversation is sent back with the "
        "later turns, such as X-Session-Id; of Set-Cookie as Cookie",
        title="Header of the server's session",
        role=Role.CACHE,
    ),
    Flag(
        "--replica-header",
        Kind.NAME,
        ADVANCED,
        "",
        "a header of the answers that names the replica behind a gateway, to report which share "
        "of the later turns went to the "
        "replica of the turn before",
        title="Header that names the replica",
    ),
    Flag(
        "--swarm-key",
        Kind.SECRET,
        None,
        "",
        "shared key of master and workers, at least 16 characters; safer in the environment as "
        "LLAMA_LOAD_SWARM_KEY (default: "
        "--processes generates one)",
        begins="Keys and access",
    ),
    Flag(
        "--web-token",
        Kind.SECRET,
        None,
        "",
        "token that the web page, /metrics there and --metrics-port ask for, at least 16 "
        "characters; safer in the environment as "
        "LLAMA_LOAD_WEB_TOKEN (default: a new one, printed in the page's URL)",
    ),
    Flag(
        "--ui-folder",
        Kind.FOLDER,
        None,
        "",
        "folder that must contain the paths given in the web UI (default: the working directory)",
        role=Role.REPORT,
    ),
    Flag(
        "--api-key",
        Kind.SERVER_KEY,
        SERVER,
        "",
        "API key, sent as a Bearer token; safer in the environment as LLAMA_LOAD_API_KEY",
        title="API key",
        role=Role.CONNECTION,
    ),
    Flag(
        "--ca-file",
        Kind.INPUT,
        ADVANCED,
        "",
        "PEM file of the CA certificates to trust for https:// (default: the system's)",
        title="CA certificates",
        role=Role.CONNECTION,
    ),
    Flag(
        "--insecure",
        Kind.SWITCH,
        ADVANCED,
        "",
        "do not verify the server's certificate for https://",
        title="Do not verify certificates",
        role=Role.CONNECTION,
    ),
    *RESULT_FLAGS,
)


def flags_with(role: Role) -> list[Flag]:
    """The flags with this role, Locust's own among them."""
    return [flag for flag in (*OF_LOCUST, *FLAGS) if role in flag.role]


def grouped() -> Mapping[str, list[Flag]]:
    """The flags in sections by their titles: `llama-load flags` and docs/flags.md."""
    sections: dict[str, list[Flag]] = {}
    title = ""
    for flag in FLAGS:
        title = flag.begins or title
        sections.setdefault(title, []).append(flag)
    return sections


def declare(parser: Any) -> None:
    """Add our flags to Locust's parser. (Not in an argument group, because the web UI shows no
    groups.)"""
    for flag in FLAGS:
        settings: dict[str, Any] = {"help": flag.help, "env_var": flag.environment}
        if flag.switch:
            settings |= {"action": "store_true", "default": False}
        else:
            settings |= {"type": str, "default": flag.default, "metavar": "<text>"}
            if flag.choices:
                settings["choices"] = list(flag.choices)
                del settings["metavar"]
            if flag.repeated:
                settings |= {"action": "append", "default": None}
        in_web_ui = (
            flag.on_page and not flag.secret
        )  # Locust writes defaults into the page
        parser.add_argument(
            flag.name, *flag.also, include_in_web_ui=in_web_ui, **settings
        )
    parser.set_defaults(web_host=LOOPBACK)  # Locust's own default is every interface
