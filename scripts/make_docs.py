"""Generate docs/flags.md, metrics.md, sweep-plans.md and api.md, and benchmarks/limits.md, from the
code. tests/repository/test_docs.py compares them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llama_load.analysis.figures.check_limits import LIMITS
from llama_load.analysis.figures.telemetry_figures import FIGURES as TELEMETRY
from llama_load.lab.sweep.grammar import (
    COLUMN,
    KINDS,
    LOAD,
    PLAN,
    SERVER,
    TABLE,
    WORKLOAD,
    json_schema,
)
from llama_load.lab.sweep.shapes import Key, Object
from llama_load.lab.sweep.values import FACTS, OF_REQUESTS
from llama_load.lab.sweep.values import FIGURES as OWN
from llama_load.loadgen.options.flags import grouped
from llama_load.loadgen.options.load_programs import PROGRAMS
from llama_load.loadgen.options.others_flags import SYNONYMS
from llama_load.loadgen.options.vllm_options import (
    DATA_SETS,
    OPTIONS,
    OTHER_DATA_SETS,
    VERSION,
)
from llama_load.run_folder.vocabulary.definitions import (
    DETAILS,
    EVERY,
    FIGURES,
    LATENCIES,
    Latency,
)
from llama_load.run_folder.vocabulary.threshold_keys import threshold_keys
from llama_load.run_folder.vocabulary.verdict_words import WORDS
from scripts.api_page import api_page

REPOSITORY = Path(__file__).resolve().parent.parent
LOCUSTS = """\
## Locust's own flags

| flag | meaning here |
|---|---|
| `--host URL` | base URL of the server, such as `http://127.0.0.1:8080`; several with commas between them |
| `-u N` | number of users: in a closed loop the number of requests in flight |
| `-r N` | users started per second (default: all start at once) |
| `-t TIME` | length of the measurement (`90s`, `5m`), counted from the end of the warm-up |
| `--headless` | run without the web UI: print the report and exit |
| `--csv PREFIX`, `--html FILE` | Locust's own statistics, with rows for TTFT, TPOT and ITL |
"""
OTHERS = """
## Flags of other tools

`llama-load run` takes these, too, with or without `=`; with a rate a concurrency is `--max-concurrency`. The URL may be
that of the server, of its APIs (`…/v1`) or of one API (`…/v1/completions`, which then is the run's).

"""
VLLM = """
## vllm bench serve

`llama-load run -- vllm bench serve …` (or `benchmark_serving.py …`) runs the same load, with the options of version
{version}, and prints the command that it became. An option of a data set that is not chosen has no effect, as in vLLM;
one that has no equal is refused before any request, with what to write. Names are not completed from their beginnings.

"""
PROGRAMS_HEAD = """
## Other load generators

`llama-load run -- aiperf profile …` does the same with the lines of these programs, of genai-perf and of llmperf. Words
before them do not matter (`docker run …`, `python3 -m …`). A flag that changes a request and is in no table is
refused by name.

"""


def flags_page() -> str:
    """docs/flags.md."""
    lines = []
    for title, flags in grouped().items():
        lines += [f"## {title}", "", "| flag | meaning |", "|---|---|"]
        for flag in flags:
            default = f" (default {flag.default})" if flag.default else ""
            lines.append(f"| `{flag.name}` | {flag.help_with_choices}{default} |")
        lines.append("")
    tables = "\n".join(lines)
    return (
        "# Flags\n\nWhat does a flag of `locust` mean, and what is its default? In the "
        "environment `--num-prompts` is\n"
        "`LLAMA_LOAD_NUM_PROMPTS`, and so on. In the web UI a flag that can be repeated takes "
        "several lines.\n"
        "`llama-load flags --all` prints this list.\n\n"
        "Flags that `vllm bench serve` also has use its names. Three differ: `--backend` is the "
        "type of the server, and\n"
        "`--goodput` and `--header` take one text each (`--goodput 'ttft:500 tpot:50'`).\n\n"
        f"{tables}\n{LOCUSTS}{_others_flags()}"
    )


def _others_flags() -> str:
    """Three tables: names of other tools, the options of vLLM's benchmark, and those of others."""
    synonyms: dict[str, list[str]] = {}
    for name, ours in SYNONYMS.items():
        synonyms.setdefault(ours, []).append(f"`{name}`")
    lines = [OTHERS.rstrip("\n"), "", "| there | here |", "|---|---|"]
    for ours, names in synonyms.items():
        lines.append(f"| {', '.join(names)} | `{ours}` |")

    lines += [VLLM.format(version=VERSION).rstrip("\n"), ""]
    lines += ["| there | here |", "|---|---|"]
    for option in sorted(OPTIONS.values(), key=lambda option: option.name):
        lines.append(f"| `{option.name}` | {_code(option.instead)} |")
    for name, workload in DATA_SETS.items():
        lines.append(f"| `--dataset-name {name}` | `-f {workload}` |")
    for name, instead in OTHER_DATA_SETS.items():
        lines.append(f"| `--dataset-name {name}` | refused: {instead} |")
    lines += [
        PROGRAMS_HEAD.rstrip("\n"),
        "",
        "| program | there | here |",
        "|---|---|---|",
    ]
    for program in PROGRAMS:
        there: dict[str, list[str]] = {}
        for name, ours in {
            **program.equal,
            **program.switches,
            **program.instead,
        }.items():
            there.setdefault(ours, []).append(f"`{name}`")
        for ours, names in there.items():
            lines.append(f"| {program.name} | {', '.join(names)} | {_code(ours)} |")
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    """What stands for a flag, as code; a sentence as it is."""
    return f"`{text}`" if text.startswith("-") and "," not in text else text


METRICS = """\
# Metrics

Definitions of all figures, under their names in the block and in summary.json. [The verdict](verdict.md) explains the
checks, the [glossary](glossary.md) the words.

## Latencies

Each request has these, in ms; requests.parquet has them as columns. *Token* means token event: an event of the stream
that carries generated content. *Started* is when the request began to connect, or to be sent on an open connection.
*Use* lists the flags that accept the key. `KEY` in summary.json: `mean_KEY_ms`, `median_KEY_ms`, `std_KEY_ms`,
`p99_KEY_ms` and `count_KEY`, which are also the names in thresholds (`--fail-if`); details have an object of that name
under `llama_load`.

"""
FIGURES_HEAD = """
## Figures of a set of requests

These figures exist for the whole run and for each stage, workload, model, host and turn. All can be used in thresholds
(`--fail-if`).

"""
TELEMETRY_HEAD = """
## Telemetry

These figures cover the measured time, without warm-ups; in a run with stages, the times of all stages.
[Telemetry](telemetry.md) explains their sources. In summary.json they are under `llama_load.telemetry`, for each stage
under `by_stage` there.

"""
LIMITS_HEAD = """\
# Reasons of the limits

A check of [the verdict](../docs/verdict.md) fails when its value is above its limit. Why the limit is what it is:

"""


def metrics_page() -> str:
    """docs/metrics.md."""
    latencies = [
        f"| {each.name} | `{each.key}` | {_formula(each)} | {_use(each)} |"
        for each in LATENCIES
    ]
    figures = [
        f"| {each.line.partition(' (')[0]} | `{each.key}` | {each.unit} | {each.definition} |"
        for each in FIGURES
    ]
    telemetry = [
        f"| {each.line} | `{each.key}` | {each.definition} |" for each in TELEMETRY
    ]
    return "".join((
        METRICS,
        "\n".join(["| name | key | definition | use |", "|---|---|---|---|", *latencies, ""]),
        FIGURES_HEAD,
        "\n".join(["| name | key | unit | definition |", "|---|---|---|---|", *figures, ""]),
        TELEMETRY_HEAD,
        "\n".join(["| name | key | definition |", "|---|---|---|", *telemetry, ""]),
    ))  # fmt: skip


def limits_page() -> str:
    """benchmarks/limits.md."""
    limits = [
        f"| {word} | `{name}` | {limit.limit:g} | {limit.reason} |"
        for word in WORDS
        for name, limit in LIMITS.items()
        if limit.word == word
    ]
    head = ["| verdict | check | limit | reason |", "|---|---|---:|---|"]
    return LIMITS_HEAD + "\n".join([*head, *limits, ""])


def _formula(latency: Latency) -> str:
    """The first paragraph of the function's docstring, on one line."""
    return " ".join((latency.function.__doc__ or "").partition("\n\n")[0].split())


def _use(latency: Latency) -> str:
    if latency.group in DETAILS:
        return "block, summary.json"
    flags = [
        *(["--percentile-metrics"] if latency.group == EVERY else []),
        *(["--goodput"] if latency.is_objective else []),
    ]
    return ", ".join(f"`{flag}`" for flag in (*flags, "--fail-if"))


PLAN_HEAD = """\
# Keys of sweep plans

What can a plan for [`llama-load sweep`](sweeps.md) contain? Editors check it against the schema that its first line
names: `# yaml-language-server: $schema=…` with the path that `llama-load path sweep-plan.schema.json` prints.

"""


def plan_schema() -> dict[str, Any]:
    """plans/sweep-plan.schema.json."""
    found: dict[str, Any] = json.loads(json.dumps(json_schema()))
    return found


def plan_page() -> str:
    """docs/sweep-plans.md."""
    parts = [PLAN_HEAD]
    sections: dict[str, Mapping[str, Key]] = {
        "The plan": PLAN.keys,
        "A server": SERVER.keys,
        "A server that the sweep starts (llama-server, vllm, llama-cpp-python, embedded)": _started(),
        "A workload": WORKLOAD.keys,
        "A load": LOAD.keys,
        "A table": TABLE.keys,
        "A column": COLUMN.keys,
    }
    for title, keys in sections.items():
        rows = "".join(
            f"| `{name}` | {_cell(key.help)} |\n" for name, key in keys.items()
        )
        parts.append(f"## {title}\n\n| key | meaning |\n|---|---|\n{rows}\n")
    parts.append(
        "## Values of columns\n\nBesides these: the name of a varied setting; every key of "
        "summary.json ([metrics](metrics.md)),\n"
        "such as `p99_ttft_ms`, also below `llama_load.`; `=text` for a constant; `arg:-ngl` for "
        "a flag of the server,\n"
        "`env:NAME` for its environment.\n\n"
        "| value | meaning |\n|---|---|\n"
    )
    of_summary = threshold_keys(())
    rows = (
        f"| `{each.key}` | {_cell(each.help)} |"
        for each in (*FACTS, *OWN, *OF_REQUESTS)
        if each.key not in of_summary
    )
    return "".join(parts) + "\n".join(rows) + "\n"


def _started() -> Mapping[str, Key]:
    shape = KINDS["llama-server"].shape
    assert isinstance(shape, Object)
    return shape.keys


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    (REPOSITORY / "docs" / "sweep-plans.md").write_text(plan_page(), encoding="utf-8")
    schema = json.dumps(plan_schema(), indent=1, ensure_ascii=False) + "\n"
    (REPOSITORY / "plans" / "sweep-plan.schema.json").write_text(
        schema, encoding="utf-8"
    )
    (REPOSITORY / "docs" / "metrics.md").write_text(metrics_page(), encoding="utf-8")
    limits = REPOSITORY / "benchmarks" / "limits.md"
    limits.write_text(limits_page(), encoding="utf-8")
    (REPOSITORY / "docs" / "flags.md").write_text(flags_page(), encoding="utf-8")
    (REPOSITORY / "docs" / "api.md").write_text(api_page(), encoding="utf-8")
