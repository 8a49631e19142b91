"""The flags of results, objectives, time limits and telemetry."""

from __future__ import annotations

from llama_load.ground.languages import ENGLISH, LANGUAGES
from llama_load.loadgen.options.flag import ADVANCED, LIMITS, Flag, Kind, Role
from llama_load.loadgen.wire.request import Timeouts
from llama_load.run_folder.vocabulary.definitions import OBJECTIVE_KEYS, SECTION_KEYS
from llama_load.run_folder.vocabulary.thresholds import DEFAULT, GROUPS

CANCEL = "cancel"
WAIT = "wait"
AUTO = "auto"
NORMAL = "normal"
CLIENT_PRIORITIES = (AUTO, NORMAL)
DEFAULT_INTERVAL_S = 1.0  # of telemetry
_TIMEOUTS = Timeouts()

RESULT_FLAGS = (
    Flag(
        "--run-dir",
        Kind.RUN_FOLDER,
        ADVANCED,
        "",
        "folder for the results (default: runs/<time>-<label or workload>)",
        begins="Results, objectives, thresholds",
        title="Run folder",
        role=Role.NAME,
    ),
    Flag(
        "--label",
        Kind.NAME,
        LIMITS,
        "",
        "name of this run in reports; also compares the settings with the last run of that name",
        role=Role.NAME,
    ),
    Flag(
        "--goodput",
        Kind.EXPRESSION,
        LIMITS,
        "",
        f"objectives in ms, such as 'ttft:500 tpot:50' ({', '.join(OBJECTIVE_KEYS)}): goodput "
        "counts requests that meet all",
        repeated=True,
        title="Objectives (goodput)",
        role=Role.ANSWERS,
    ),
    Flag(
        "--percentile-metrics",
        Kind.EXPRESSION,
        ADVANCED,
        "ttft,tpot,itl",
        f"latencies in the block: {','.join(SECTION_KEYS)}",
        role=Role.REPORT,
    ),
    Flag(
        "--metric-percentiles",
        Kind.EXPRESSION,
        ADVANCED,
        "99",
        "percentiles to report, such as 50,90,99.9",
        role=Role.REPORT,
    ),
    Flag(
        "--fail-if",
        Kind.EXPRESSION,
        LIMITS,
        "",
        "exit with code 1 if KEY>NUMBER (>=, <, <=) holds; KEY is one of summary.json, such as "
        "p99_ttft_ms>500, or of a part "
        f"of the run, such as p99_ttft_ms{{stage=8}}>500 ({', '.join(GROUPS)}), or "
        f"verdict!=VALID; can be repeated; {DEFAULT} "
        "applies unless changed",
        repeated=True,
        role=Role.REPORT,
    ),
    Flag(
        "--abort-if",
        Kind.EXPRESSION,
        LIMITS,
        "",
        "end the run with exit code 1 as soon as KEY>NUMBER holds for the requests so far: "
        "failure_ratio, failed, or mean_, "
        "median_ and pN_ of ttft_ms, tpot_ms and e2el_ms; can be repeated",
        repeated=True,
    ),
    Flag(
        "--end-below",
        Kind.NUMBER,
        LIMITS,
        "",
        "end the run as soon as this share of the --num-prompts requests can no longer meet the "
        "--goodput objectives, "
        "such as 0.9",
    ),
    Flag(
        "--until",
        Kind.EXPRESSION,
        LIMITS,
        "",
        "end the run as soon as a figure is known to a precision, such as p99_ttft:5% or "
        "throughput:2%: mean, median or "
        "percentile of ttft, tpot or e2el; needs -t or --num-prompts as a limit",
    ),
    Flag(
        "--metrics-port",
        Kind.ADDRESS,
        None,
        "",
        "serve live figures to Prometheus at http://127.0.0.1:PORT/metrics; ADDRESS:PORT, such as "
        "0.0.0.0:9646, opens it to other machines (the web UI has /metrics already)",
        role=Role.REPORT,
    ),
    Flag(
        "--upload",
        Kind.DESTINATION,
        None,
        "",
        "copy the run folder to this URL after the run: s3://BUCKET/PATH (needs s3fs), "
        "gs://BUCKET/PATH (gcsfs), file:///PATH, or "
        "any other place that fsspec knows",
        role=Role.REPORT,
    ),
    Flag(
        "--no-report-html",
        Kind.SWITCH,
        ADVANCED,
        "",
        "do not write report.html, which takes about 2 s after the run and 1.4 MB",
        title="No report.html",
        role=Role.REPORT,
    ),
    Flag(
        "--block",
        Kind.SWITCH,
        None,
        "",
        "on a terminal, print all checks and the block of vllm bench serve with all sections, as "
        "for a pipe or a file",
        role=Role.REPORT,
    ),
    Flag(
        "--lang",
        Kind.CHOICE,
        ADVANCED,
        ENGLISH,
        "language of the headings in report.md and report.html",
        LANGUAGES,
        role=Role.REPORT,
    ),
    Flag(
        "--junit",
        Kind.XML_FILE,
        ADVANCED,
        "",
        "write the thresholds' results to this JUnit XML file, for CI",
        title="JUnit file",
        role=Role.REPORT,
    ),
    Flag(
        "--save-texts",
        Kind.SWITCH,
        ADVANCED,
        "",
        "store prompts and answers in the results (otherwise only their hashes)",
    ),
    Flag(
        "--at-end",
        Kind.CHOICE,
        ADVANCED,
        CANCEL,
        "cancel requests in flight when -t, Ctrl-C or a stop ends the run, or wait for them",
        (CANCEL, WAIT),
        begins="End of the run, timeouts, retries",
        title="At the end",
    ),
    Flag(
        "--client-priority",
        Kind.CHOICE,
        ADVANCED,
        AUTO,
        "priority of the thread that receives: real-time where the system allows it (to send: "
        "the best nice value), or normal; "
        "real-time keeps timestamps exact when the server uses all cores of this machine",
        CLIENT_PRIORITIES,
    ),
    Flag(
        "--shared-machine",
        Kind.SWITCH,
        ADVANCED,
        "",
        "other programs on the server's machine belong to what is measured: the verdict names "
        "their share instead of "
        "NOT COMPARABLE (the default on runners of CI, where CI=true)",
        title="Shared machine",
    ),
    Flag(
        "--server-grace",
        Kind.NUMBER,
        ADVANCED,
        "10",
        "seconds that a run goes on after its last server on this machine has ended, in case it "
        "is started again",
    ),
    Flag(
        "--connect-timeout",
        Kind.NUMBER,
        ADVANCED,
        f"{_TIMEOUTS.connect_s:g}",
        "seconds to wait for a connection",
    ),
    Flag(
        "--first-token-timeout",
        Kind.NUMBER,
        ADVANCED,
        f"{_TIMEOUTS.first_token_s:g}",
        "seconds to wait for the first token",
        role=Role.ANSWERS,
    ),
    Flag(
        "--token-timeout",
        Kind.NUMBER,
        ADVANCED,
        f"{_TIMEOUTS.token_s:g}",
        "seconds to wait for the next token",
        role=Role.ANSWERS,
    ),
    Flag(
        "--request-timeout",
        Kind.NUMBER,
        ADVANCED,
        "",
        "seconds for a whole request, all its tries included (default: no limit)",
    ),
    Flag(
        "--retry",
        Kind.NUMBER,
        ADVANCED,
        "0",
        "send a request up to N more times while the server answers 429 or 503, with growing "
        "pauses; its latency counts from "
        "the first try",
    ),
    Flag(
        "--telemetry-interval",
        Kind.NUMBER,
        ADVANCED,
        f"{DEFAULT_INTERVAL_S:g}",
        "seconds between samples of GPUs, host, server processes and servers' metrics; 0: no "
        "telemetry",
        begins="Telemetry, energy, cost",
    ),
    Flag(
        "--scrape",
        Kind.ADDRESS,
        None,
        "",
        "URL of another page of metrics in Prometheus' format: llama-load telemetry on a GPU "
        "machine, DCGM, node exporter; "
        "can be repeated",
        repeated=True,
    ),
    Flag(
        "--scrape-token",
        Kind.SECRET,
        None,
        "",
        "token for the pages of --scrape, sent as a Bearer token; safer in the environment as "
        "LLAMA_LOAD_SCRAPE_TOKEN",
    ),
    Flag(
        "--power-command",
        Kind.COMMAND,
        None,
        "",
        'a command (without a shell) that prints a line of JSON a sample, {"watts": 312.5} or '
        '{"joules": 81234}: any power meter',
    ),
    Flag(
        "--gpus",
        Kind.NUMBER,
        ADVANCED,
        "",
        "number of GPUs of the whole set-up, for output tokens/s of each (default: those in use "
        "that telemetry sees)",
    ),
    Flag(
        "--price-per-hour",
        Kind.NUMBER,
        ADVANCED,
        "",
        "price of the whole set-up per hour, in any currency: adds the cost of a million tokens",
    ),
)
