"""Our command line flags, as Locust gets to know them. All are text: that is what environment variables and the web UI deliver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llama_load.load.segments import ARRIVALS, ON_LIMITS, QUEUE, RAMPS
from llama_load.load.stages import EXAMPLES
from llama_load.metrics.thresholds import DEFAULT, GROUPS
from llama_load.reports.block import SECTIONS
from llama_load.targets.balance import BALANCES, ROUND_ROBIN
from llama_load.targets.body import CHAT
from llama_load.targets.target import BACKENDS

# As `vllm bench serve`: what a headless run without --num-prompts and without -t does.
DEFAULT_NUM_PROMPTS = 1000
CANCEL, WAIT = "cancel", "wait"
GENERATED, RECORDED = HISTORIES = ("generated", "recorded")
CACHES = ("different", "shared", "as-is")
FORMATS = ("jpeg", "png")
FRESH, SAME = PROMPTS = ("fresh", "same")
ALL = "all"
DEFAULT_SIZE = "512x512"
# With --at-end wait: what takes longer than the longest answer that anybody waits for is cut all the same.
LONGEST_WAIT_S = 900.0


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

    @property
    def dest(self) -> str:
        """Its name on the parsed options."""
        return self.name.removeprefix("--").replace("-", "_")


FLAGS = (
    Flag(
        "--num-prompts",
        "",
        f"measured requests (of every stage); the run ends after them (headless without -t: {DEFAULT_NUM_PROMPTS})",
    ),
    Flag("--max-concurrency", "", "requests in flight at most; without a request rate the same as -u"),
    Flag("--request-rate", "", "open loop: so many requests a second, however slow the server is (default inf: a closed loop)"),
    Flag("--arrival", "", "when requests of an open loop come (default poisson; gamma with --burstiness)", ("", *ARRIVALS)),
    Flag("--burstiness", "1", "shape of gamma arrivals: below 1 in bursts, above 1 more evenly, 1 is Poisson"),
    Flag("--ramp", "", "let the request rate rise (or fall) from --ramp-start-rps to --request-rate", ("", *RAMPS)),
    Flag("--ramp-start-rps", "", "the rate at which a ramp begins"),
    Flag("--on-limit", QUEUE, "what comes while --max-concurrency requests are in flight: queue it, or drop it", ON_LIMITS),
    Flag("--trace", "", "send when a trace says: Mooncake's JSONL, BurstGPT's CSV, or a run folder of ours"),
    Flag("--speed", "1", "play the trace faster (2: in half the time) or slower"),
    Flag("--stages", "", f"loads one after the other, such as {EXAMPLES}"),
    Flag("--stage-prompts", FRESH, "prompts of a stage: fresh ones, or the same in every stage (no cache may know them)", PROMPTS),
    Flag("--warmup", "1", "requests before the measurement (of every stage), with prompts of their own"),
    Flag(
        "--dataset-path",
        "",
        "conversations: a ShareGPT or messages file (.json, .jsonl, .parquet) or hf:REPO[:split] (default: a sample)",
    ),
    Flag("--sharegpt-output-len", "", "the same as --output-len, by the name that vllm bench serve has for it"),
    Flag("--turns", "1", "turns of a conversation: a number, or all"),
    Flag("--history", GENERATED, "what goes before a later turn: the model's own answers, or the recorded ones", HISTORIES),
    Flag("--think-time", "0", "seconds that a user thinks before a later turn"),
    Flag("--system-prompt", "", "a system message before every conversation"),
    Flag("--document", "", "a file or folder of documents (default: a sample)"),
    Flag("--document-tokens", "11000", "cut or repeat documents to so many tokens"),
    Flag(
        "--document-cache",
        CACHES[0],
        "every prompt different, one shared document with different questions, or documents as they are",
        CACHES,
    ),
    Flag("--question", "", "what is asked about documents and images (default: several of ours)"),
    Flag("--images", "", "images: a file, a folder or hf:REPO[:split] (default: made up, no two alike)"),
    Flag("--image-size", DEFAULT_SIZE, "WIDTHxHEIGHT of made-up images"),
    Flag("--image-format", FORMATS[0], "how made-up images are encoded", FORMATS),
    Flag("--images-per-request", "1", "images in one request"),
    Flag("--weights", "", "shares of a mixture, such as document=3,vision=1 (default: all alike)"),
    Flag("--batch-size", "1", "texts in one embeddings request"),
    Flag(
        "--input-len",
        "",
        "synthetic prompts: length in tokens with BOS, without chat template (default 1024); embeddings: of a text (default 128)",
    ),
    Flag(
        "--output-len",
        "",
        "answer length to ask for, whatever the data says (synthetic prompts, documents, images: 128)",
    ),
    Flag("--range-ratio", "0", "synthetic prompts: lengths vary by up to this share, from 0 to below 1"),
    Flag("--prefix-len", "0", "synthetic prompts: tokens of a shared beginning"),
    Flag("--num-prefixes", "1", "synthetic prompts: different shared beginnings, taken in turn"),
    Flag("--tokenizer", "", "a tokenizer.json (or its folder) that counts prompt tokens; default: the server, else an estimate"),
    Flag("--keep-long-prompts", "", "send prompts that do not fit a slot, instead of replacing them by others", switch=True),
    Flag("--seed", "0", "seed of everything random: the same seed samples the same prompts"),
    Flag("--model", "", "model name for the requests, or several (a,b) to spread over (default: the first that the server lists)"),
    Flag("--backend", "", "what the server is, if it is not recognised", choices=("", *BACKENDS)),
    Flag("--balance", ROUND_ROBIN, "who of several servers in --host gets the next request", choices=BALANCES),
    Flag(
        "--connection-reuse",
        "",
        "requests share connections (default: on, but off for llama-server, which closes them)",
        ("", "on", "off"),
    ),
    Flag("--no-stream", "", "ask for whole answers instead of streams: E2EL is all that can be seen", switch=True),
    Flag("--endpoint", CHAT, "chat (/v1/chat/completions) or completions (/v1/completions)"),
    Flag("--max-tokens", "", "length of every answer in tokens (default: as the workload says)"),
    Flag("--temperature", "", "sampling temperature (default: the server's)"),
    Flag("--ignore-eos", "", "answers run to their full length, whatever the model says", switch=True),
    Flag("--cache-prompt", "", "llama-server's prompt cache for our requests (default: as the server does)", ("", "on", "off")),
    Flag(
        "--kv-pool",
        "",
        "tokens of the KV pool that llama-server's slots share (its -c, if started with --kv-unified or without -np)",
    ),
    Flag("--bust-prefix-cache", "", "begin every prompt with random text, so that no cache knows it", switch=True),
    Flag("--extra-body", "", "a JSON object that is merged into every request body"),
    Flag("--header", "", "a header 'Name: value' for every request; may be given several times", repeated=True, secret=True),
    Flag("--api-key", "", "key for 'Authorization: Bearer'; better in the environment as LLAMA_LOAD_API_KEY", secret=True),
    Flag("--ca-file", "", "a PEM file with the authorities to trust for https:// (default: the system's)"),
    Flag("--insecure", "", "trust any certificate for https://", switch=True),
    Flag("--run-dir", "", "folder for this run's results (default: runs/<time>-<label or workload>)"),
    Flag("--label", "", "a name for this run in reports and comparisons"),
    Flag("--goodput", "", "objectives in ms, such as 'ttft:500 tpot:50': counts requests that meet them all", repeated=True),
    Flag("--percentile-metrics", "ttft,tpot,itl", f"sections of the block, out of {','.join(SECTIONS)}"),
    Flag("--metric-percentiles", "99", "percentiles to report, such as 50,90,99.9"),
    Flag(
        "--fail-if",
        "",
        "exit with 1 if this holds: KEY>NUMBER with a key of summary.json, such as 'p99_ttft_ms>500', or of a part of the run, "
        f"such as 'p99_ttft_ms{{stage=8}}>500' ({', '.join(GROUPS)}); {DEFAULT} always does unless changed",
        repeated=True,
    ),
    Flag("--junit", "", "write the thresholds as a JUnit XML file, for CI"),
    Flag(
        "--at-end",
        CANCEL,
        "what is in flight when -t, Ctrl-C or a stop ends the run: cancel it, or wait for it",
        choices=(CANCEL, WAIT),
    ),
    Flag("--connect-timeout", "10", "seconds to wait for a connection"),
    Flag("--first-token-timeout", "600", "seconds to wait for the first token"),
    Flag("--token-timeout", "120", "seconds to wait between tokens"),
    Flag("--save-texts", "", "keep prompts and answers in the results (they are only hashed otherwise)", switch=True),
)

_SECRET_FLAGS = {flag.name for flag in FLAGS if flag.secret}


def declare(parser: Any) -> None:
    """Add our flags to Locust's parser. (Not in an argument group: the web UI does not see into those.)"""
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
        parser.add_argument(flag.name, is_secret=flag.secret, **settings)


def without_secrets(command: list[str]) -> list[str]:
    """A command line whose keys and headers are replaced by asterisks."""
    shown, hide = [], False
    for word in command:
        name, equals, _ = word.partition("=")
        # argparse takes any beginning of a flag for the flag.
        secret = len(name) > len("--") and any(flag.startswith(name) for flag in _SECRET_FLAGS)
        if hide:
            shown.append("***")
            hide = False
        elif secret and equals:
            shown.append(f"{name}=***")
        else:
            hide = secret
            shown.append(word)
    return shown
