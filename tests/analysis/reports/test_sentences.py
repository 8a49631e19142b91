"""The sentences of a report: what was measured, what most of a request's time was, which load is
carried."""

from __future__ import annotations

import base64
import gzip
import re
from pathlib import Path

import numpy as np
import pytest

from llama_load.analysis.reports.first_screen import first_screen
from llama_load.analysis.reports.sentences import carries, diagnosis, sentences, subject
from llama_load.analysis.reports.translations import translator
from llama_load.analysis.reports.write import markdown
from llama_load.run_folder import PreflightRow
from llama_load.run_folder.observed.server_description import ServerDescription
from tests.analysis.reports.test_html import page_of, results, staged_results
from tests.make_records import manifest, record

SERVER = {
    "url": "http://127.0.0.1:1",
    "backend": "llama-server",
    "build": "b11434",
    "model": "qwen",
    "slots": 4,
    "ctx_per_slot": 4096,
}


def test_a_stranger_reads_what_was_measured() -> None:
    described = ServerDescription(
        url="http://127.0.0.1:1",
        threads=8,
        batch=2048,
        micro_batch=512,
        kv_types="K f16, V f16",
    )
    about = manifest(
        targets=[{**SERVER, "quantization": "Q4_K_M", "model_bytes": 5 << 30}],
        servers=[described],
        preflight=[
            PreflightRow(
                "prompts",
                "9 prompts from /home/ann/data/x.json, tokens counted by server",
            )
        ],
    )
    found = dict(subject(results(record(0), about=about), str))
    assert found == {
        "Server": "llama-server b11434 · qwen Q4_K_M 5.00 GiB · 4 slots × 4096",
        "Its settings": "threads 8 · batch 2048 · micro-batch 512 · KV K f16, V f16",
        "Prompts": "9 prompts from …/x.json, tokens counted by server",
    }
    whole = results(record(0), about=about)
    for text in (page_of(whole).text, markdown(whole, "the block\n")):
        assert "4 slots × 4096" in text and "micro-batch 512" in text
    assert "/home/ann" not in page_of(whole).text


@pytest.mark.parametrize(
    ("users", "prefill_ms", "expected"),
    [
        (
            16,
            50,
            "For 6. % of its time a request waited for one of the server's slots .4.: more slots or fewer users.",
        ),
        (
            1,
            550,
            "For 9. % of a request's time the server read its prompt: shorter prompts, or a larger batch.",
        ),
        (
            1,
            50,
            "For 9. % of a request's time the server generated its answer, so the speed of decoding decides.",
        ),
    ],
)
def test_the_largest_part_of_the_time_is_named(
    users: int, prefill_ms: float, expected: str
) -> None:
    """Users at once on four slots; an answer takes 600 ms of a slot, whatever part of that is the
    prompt's."""
    answer_ms = 600 - prefill_ms
    rows = [
        record(
            n,
            first_ms=600 * (n // 4) + prefill_ms,
            gaps_ms=(answer_ms / 2,) * 2,
            host=SERVER["url"],
            server_prompt_ms=prefill_ms,
            server_predict_ms=answer_ms,
        )
        for n in range(users)
    ]
    found = diagnosis(results(*rows, about=manifest(targets=[SERVER])), str)
    assert found is not None and re.fullmatch(expected, found), found


def test_a_mixture_of_loads_has_no_diagnosis_and_no_median(tmp_path: Path) -> None:
    found = staged_results(tmp_path)
    assert diagnosis(found, str) is None and carries(found, str) is None
    text = page_of(found).text
    assert text.index(
        "Latencies of all stages together, a mixture of loads"
    ) > text.index("Concurrency")
    assert "c=4" in text and "TTFT median\n" not in text


def test_stages_with_objectives_say_what_is_carried(tmp_path: Path) -> None:
    """TPOT is 10, 12 and 40 ms at 1, 4 and 8 users."""
    for objective, expected in (("tpot:20", "Carries c=4 with 90 % of the requests within tpot:20."),
                                ("tpot:5", "Not even c=1 carries tpot:5: fewer than 90 % of the requests met them.")):  # fmt: skip
        found = staged_results(tmp_path, goodput=[objective])
        assert sentences(found, str) == [expected]
        assert expected in [line.text for line in first_screen(found)]
        assert expected in page_of(found).text and expected in markdown(
            found, "the block\n"
        )
    assert sentences(found, translator("zh")) == [
        "即使在 c=1 下，满足 tpot:5 的请求也不到 90 %。"
    ]


def test_no_line_crosses_the_begin_of_a_stage(tmp_path: Path) -> None:
    """Curves over time are broken where a stage begins."""
    page = page_of(staged_results(tmp_path))
    (charts,) = (
        text for attributes, text in page.scripts if attributes.get("id") == "charts"
    )
    arrays = (
        np.frombuffer(gzip.decompress(base64.b64decode(data)), np.float32)
        for data in re.findall(r'"data":"([^"]*)"},"shape"', charts)
    )
    assert sum(np.isnan(array).any() for array in arrays) >= 4
