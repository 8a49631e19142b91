"""The server, and what requests ask of it."""

from __future__ import annotations

from llama_load.loadgen.options.flag import (
    ADVANCED,
    LOAD,
    SERVER,
    TRAFFIC,
    Flag,
    Kind,
    Role,
)
from llama_load.loadgen.users.hang_ups import FIRST_TOKEN
from llama_load.servers.apis import CHAT
from llama_load.servers.balance import BALANCES, ROUND_ROBIN
from llama_load.servers.kinds import KINDS

SERVER_FLAGS = (
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
)
