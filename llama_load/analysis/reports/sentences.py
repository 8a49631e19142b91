"""The sentences of a report for somebody who was not there.

What was measured, where the time went, which load is carried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from llama_load.analysis.checks.small_print import small_print
from llama_load.analysis.figures.knee import carried
from llama_load.analysis.reports.about_run import server_parts
from llama_load.analysis.reports.private_paths import without_paths
from llama_load.analysis.reports.stage_table import stage_name
from llama_load.analysis.results.results import Results
from llama_load.analysis.statistics.carried_share import CARRIED_SHARE
from llama_load.ground.languages import Translate
from llama_load.outside.foreign_text import printable
from llama_load.run_folder.vocabulary.slo import parse_slo
from llama_load.run_folder.vocabulary.verdict_words import VALID
from llama_load.tables.numbers import percent

MOST_WHY = 160
# A diagnosis names the largest part of the requests' time if it is at least this share, and at most
# so much is not attributed.
LEAST_PART = 0.3
MOST_UNKNOWN = 0.2
DIAGNOSES = {
    "client_queue": "For {share} of its time a request waited in the client for its turn "
    "(--max-concurrency)",
    "earlier_tries": "{share} of a request's time went to tries that the server refused: "
    "fewer users, or a longer queue there",
    "slot_wait": "For {share} of its time a request waited for one of the server's slots "
    "({slots}): more slots or fewer users",
    "batch_wait": "For {share} of its time a request waited while the server worked on the "
    "prompts of others",
    "image_prefill": "For {share} of a request's time the server read its images: "
    "smaller images, or a faster server",
    "prefill": "For {share} of a request's time the server read its prompt: "
    "shorter prompts, or a larger batch",
    "decode_alone": "For {share} of a request's time the server generated its answer, "
    "so the speed of decoding decides",
    "decode_shared": "For {share} of a request's time the server generated its answer "
    "beside the prompts of others",
    "network": "{share} of a request's time went to the network between client and server",
}


def subject(results: Results, t: Translate) -> list[tuple[str, str]]:
    """What was measured, by name: the server, its GPUs, its settings, the prompts."""
    manifest = results.run.manifest
    texts = [
        (t("Server"), " · ".join(server_parts(manifest.targets))),
        (t("GPUs"), _gpus(results)),
    ]
    for settings in _settings(results):
        texts.append((t("Its settings"), settings))

    prompts = next(
        (row.value for row in manifest.preflight if row.name == "prompts"), ""
    )
    texts.append((t("Prompts"), prompts))

    return [(name, without_paths(text)) for name, text in texts if text]


def _gpus(results: Results) -> str:
    """`2 × NVIDIA H200, NVIDIA L4`."""
    names = Counter(gpu.name or gpu.gpu for gpu in results.telemetry.gpus)
    texts = []
    for name, count in names.items():
        texts.append(f"{count} × {name}" if count > 1 else name)
    return ", ".join(texts)


def _settings(results: Results) -> Iterator[str]:
    """The settings of the first server, as its log or command line names them."""
    for server in results.run.manifest.servers[:1]:
        named: dict[str, object] = {
            "GPU layers": server.n_gpu_layers,
            "threads": server.threads,
            "batch": server.batch,
            "micro-batch": server.micro_batch,
            "flash attention": server.flash_attention,
            "KV": server.kv_types,
        }
        texts = []
        for name, value in named.items():
            if value:
                texts.append(f"{name} {value}")
        yield printable(" · ".join(texts), 200)


def unseen(results: Results, t: Translate) -> list[str]:
    """What a valid run could not have seen, a sentence each; none of other runs."""
    verdict = results.verdict
    if verdict.word != VALID:
        return []

    _, texts = small_print(verdict.checks, results.total.completed, t)
    return texts


def diagnosis(results: Results, t: Translate) -> str | None:
    """What most of a request's time was, with what would change it.

    None where no part stands out, where too much time is not attributed, or where the run mixes
    several loads.
    """
    total = results.time_parts.total
    if total is None or results.stages:
        return None

    shares = {key: part.share for key, part in total.parts.items() if part is not None}
    unknown = shares.pop("unattributed", 0.0)
    if unknown > MOST_UNKNOWN or not shares:
        return None

    largest = max(shares, key=lambda key: shares[key])
    if shares[largest] < LEAST_PART or largest not in DIAGNOSES:
        return None

    # Where the server reports no times, this part holds others' waits too.
    includes_queueing = total.decode is not None and total.decode.includes_queueing
    if largest == "decode_shared" and includes_queueing:
        return None

    slots = sum(
        int(target.get("slots") or 0) for target in results.run.manifest.targets
    )
    share = f"{100 * shares[largest]:.0f} %"
    text = t(DIAGNOSES[largest]).format(share=share, slots=slots or t("unknown"))

    return f"{text}."


def carries(results: Results, t: Translate) -> str | None:
    """Up to which load the stages met the objectives of --goodput; None without both."""
    goodput = results.run.manifest.goodput
    if not goodput or not results.stages:
        return None

    found = carried(results.stages, [parse_slo(text).metric for text in goodput])
    if found.best is None and found.why is None:
        text = "Not even {next} carries {objectives}: fewer than {share} of the requests met them."
    elif found.best is None:
        text = "Which load is within {objectives} is not known: {next} was not judged ({why})."
    elif found.why is not None:
        text = (
            "Carries at least {load} with {share} of the requests within {objectives}; "
            "{next} was not judged ({why})."
        )
    elif found.next is None:
        text = "Carries {load}, the largest load, with {share} of the requests within {objectives}."
    else:
        text = "Carries {load} with {share} of the requests within {objectives}."

    return t(text).format(
        load="" if found.best is None else stage_name(found.best),
        next="" if found.next is None else stage_name(found.next),
        why=printable(found.why or "", MOST_WHY),
        objectives=printable(" ".join(goodput)),
        share=percent(CARRIED_SHARE, 0, gap=" "),
    )


def sentences(results: Results, t: Translate) -> list[str]:
    """All of them that apply."""
    texts = []
    for text in (diagnosis(results, t), carries(results, t)):
        if text is not None:
            texts.append(text)
    return texts
