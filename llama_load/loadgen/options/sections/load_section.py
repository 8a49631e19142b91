"""How many requests, and when."""

from __future__ import annotations

from llama_load.loadgen.options.flag import ADVANCED, LOAD, TRAFFIC, Flag, Kind, Role
from llama_load.loadgen.options.flag_limits import DEFAULT_NUM_PROMPTS
from llama_load.loadgen.schedule.segments import ARRIVALS, ON_LIMITS, QUEUE, RAMPS
from llama_load.loadgen.schedule.stages import EXAMPLES
from llama_load.loadgen.workloads.line_fields import UNITS

FRESH = "fresh"
SAME = "same"
PROMPTS = (FRESH, SAME)

LOAD_FLAGS = (
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
        "another table of times and lengths, or a run folder of llama-load",
        role=Role.SHAPE | Role.LOAD | Role.AMOUNT,
    ),
    Flag(
        "--trace-unit",
        Kind.CHOICE,
        LOAD,
        "",
        "unit of a trace's times, where its layout and the names of its columns do not say it",
        ("", *UNITS),
        role=Role.SHAPE,
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
)
