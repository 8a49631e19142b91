"""Flags, environment variables and form fields are all texts; they become values in one place,
faults all at once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from llama_load.ground.errors import UsageError
from llama_load.loadgen.options.flags import FLAGS
from llama_load.loadgen.options.locust_flags import with_first_load
from llama_load.loadgen.options.options import read_options
from llama_load.loadgen.options.others_flags import SYNONYMS, in_our_words
from llama_load.loadgen.options.secret_flags import redact_command, redact_options
from llama_load.loadgen.preflight.make_manifest import _typed_command
from llama_load.outside.foreign_text import redacted
from llama_load.outside.terminal import STARTED_AS
from llama_load.run_folder.vocabulary.slo import Slo


def options(**given: object) -> object:
    return read_options(SimpleNamespace(**given))


def thresholds(*given: str) -> list[str]:
    """As run.json has them."""
    return [
        threshold.text for threshold in options(fail_if=list(given)).goals.thresholds
    ]


def test_defaults() -> None:
    found = options()
    assert (found.num_prompts, found.warmup, found.seed, found.endpoint) == (
        None,
        1,
        0,
        "chat",
    )
    assert (found.goals.percentiles, found.goals.percentile_metrics) == (
        [99.0],
        ["ttft", "tpot", "itl"],
    )
    assert thresholds() == ["failure_ratio>0.01"]
    assert (
        found.timeouts.connect_s,
        found.timeouts.first_token_s,
        found.timeouts.token_s,
    ) == (10.0, 600.0, 120.0)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (8, 100, 100, 20)),
        ({"num_users": 3}, (3, 100, 100, 20)),
        ({"max_concurrency": "3"}, (None, 100, 100, 20)),
        ({"run_time": 60}, (8, None, 60, 0)),
        ({"num_prompts": "7"}, (8, 7, None, 0)),
        ({"request_rate": "2"}, (None, 100, 100, 20)),
        ({"request_rate": "2", "at_end": "wait"}, (None, 100, 100, 900)),
        ({"conversation_rate": "2"}, (None, 100, None, 0)),
        ({"stages": "1,2"}, (None, 100, 100, 20)),
        ({"stages": "1:9,2:4s"}, (None, None, None, 0)),
    ],
)
def test_a_first_run_has_a_load_and_an_end(
    given: dict[str, object], expected: tuple[int | None, ...]
) -> None:
    """Users, requests, the time of sending and the wait after it, in seconds."""
    flags = SimpleNamespace(**{"num_users": None, "run_time": None} | given)
    found = with_first_load(flags, read_options(flags), has_shape=False)
    assert (
        flags.num_users,
        found.num_prompts,
        flags.run_time,
        found.wait_at_end_s,
    ) == expected


def test_texts_from_anywhere_become_values() -> None:
    """From the command line (lists), from the environment or the web form (one text)."""
    found = options(
        num_prompts="64",
        temperature="0",
        cache_prompt="off",
        extra_body='{"top_k": 1}',
        ignore_eos=True,
        header=["A: b"],
    )
    assert (
        found.num_prompts,
        found.temperature,
        found.cache_prompt,
        found.extra_body,
    ) == (64, 0.0, False, {"top_k": 1})
    assert found.ignore_eos
    assert found.headers == (("A", "b"),)
    assert options(header="A: b\nC: d", api_key="k").headers == (
        ("A", "b"),
        ("C", "d"),
        ("Authorization", "Bearer k"),
    )
    for goodput in ("ttft:500 tpot:50.0", ["ttft:500", "tpot:50.0"]):
        slos = options(goodput=goodput).goals.slos
        assert slos == (Slo("ttft", 500.0), Slo("tpot", 50.0))
        assert [slo.text for slo in slos] == ["ttft:500", "tpot:50.0"]  # for run.json
    assert options(metric_percentiles="50, 99.9").goals.percentiles == [50.0, 99.9]


def test_emptied_fields_of_the_web_form_mean_the_default() -> None:
    names = (
        "turns",
        "batch_size",
        "range_ratio",
        "num_prefixes",
        "images_per_request",
        "prefix_len",
        "image_size",
        "think_time",
    )
    found = options(**dict.fromkeys(names, ""))
    assert found.traffic == options().traffic
    assert found.traffic.turns == 1


def test_a_percentile_that_is_judged_is_reported() -> None:
    assert options(fail_if=["p90_ttft_ms>1"]).goals.percentiles == [99.0, 90.0]


def test_what_users_of_vllm_type_is_understood() -> None:
    assert options(endpoint="/v1/completions").endpoint == "completions"
    assert options(header=["X-A=b:c"]).headers == (("X-A", "b:c"),)


def test_whole_answers_refuse_thresholds_by_their_key() -> None:
    found = options(
        no_stream=True, fail_if=["failed{workload=low_ttft_ms}>1"]
    ).goals.thresholds
    assert found[0].member == "low_ttft_ms"
    with pytest.raises(UsageError, match="have only E2EL"):
        options(no_stream=True, fail_if=["p99_ttft_ms{workload=low}>1"])


def test_a_latency_threshold_does_not_switch_off_the_one_on_failures() -> None:
    assert thresholds("p99_ttft_ms>500") == ["p99_ttft_ms>500", "failure_ratio>0.01"]
    assert thresholds("failure_ratio > 0.5") == ["failure_ratio > 0.5"]
    assert thresholds("failure_ratio{turn=2}>0.5") == [
        "failure_ratio{turn=2}>0.5",
        "failure_ratio>0.01",
    ]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"num_prompts": "0"},
            "--num-prompts must be a whole number of at least 1, got '0'",
        ),
        ({"num_prompts": "many"}, "--num-prompts must be a whole number"),
        ({"warmup": "-1"}, "--warmup"),
        ({"extra_body": "{top_k: 1}"}, "--extra-body must be a JSON object"),
        ({"extra_body": "[1]"}, "--extra-body must be a JSON object"),
        ({"header": ["no colon"]}, "--header must look like"),
        ({"header": ["A: b\r\nEvil: c"]}, "--header must look like"),
        ({"api_key": "schlüssel"}, "--api-key"),
        ({"endpoint": "talk"}, "--endpoint must be one of chat, completions"),
        ({"backend": "gpt"}, "--backend must be one of"),
        ({"goodput": "speed:1"}, "--goodput"),
        ({"fail_if": ["slow"]}, "--fail-if"),
        ({"percentile_metrics": "ttft,bogus"}, "--percentile-metrics"),
        ({"metric_percentiles": "99,101"}, "--metric-percentiles"),
        (
            {"first_token_timeout": "0"},
            "--first-token-timeout must be a number above 0",
        ),
        ({"temperature": "hot"}, "--temperature"),
        ({"turns": "some"}, "--turns must be a whole number"),
        ({"think_time": "inf"}, "--think-time must look like"),
        ({"image_size": "huge"}, "--image-size must be WIDTHxHEIGHT"),
        ({"image_size": "20000x1"}, "16 to 8192 pixels each"),
        ({"weights": "document"}, "--weights must look like document=3,vision=1"),
        (
            {"weights": "document=0"},
            "--weights must give at least one task more than 0",
        ),
        (
            {"document_cache": "warm"},
            "--document-cache must be one of different, shared, as-is",
        ),
        ({"model": "a,,b"}, "--model must be one or more names"),
        (
            {"fail_if": ["ttft>500"]},
            "there is no key 'ttft'; did you mean p99_ttft_ms, median_ttft_ms or mean_ttft_ms?",
        ),
        (
            {"fail_if": ["p99_tftt_ms>500"]},
            "there is no key 'p99_tftt_ms'; did you mean p99_ttft_ms",
        ),
        (
            {"fail_if": ["throughput>5"]},
            "did you mean request_throughput, output_throughput or total_token_throughput?",
        ),
        ({"fail_if": ["zzz>5"]}, "there is no key 'zzz'; docs/metrics.md has all keys"),
        (
            {"fail_if": ["p99_ttft_ms>1"], "num_prompts": "64"},
            "needs 100 requests, got --num-prompts 64: raise --num-prompts, or write p95_ttft_ms",
        ),
        (
            {"fail_if": ["p99_ttft_ms>1"], "num_prompts": "3"},
            "raise --num-prompts, or write median_ttft_ms",
        ),
    ],
)
def test_nonsense_is_refused_in_a_sentence(given: dict, sentence: str) -> None:
    with pytest.raises(UsageError) as raised:
        options(**given)
    assert sentence in str(raised.value)


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(UsageError) as raised:
        options(num_prompts="0", extra_body="x", seed="y")
    assert len(str(raised.value).splitlines()) == 3


def test_the_password_of_an_upload_goes_nowhere_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not into run.json, messages or what is sent to workers. And `llama-load demo` writes its
    typed command into run.json, too."""
    url = "sftp://me:geheim%2Fcanary@host/results"
    for command in (["locust", "--upload", url], ["locust", f"--upload={url}"]):
        assert "geheim" not in " ".join(redact_command(command))
    assert "upload" not in redact_options({"upload": url})
    assert redact_options({"upload": "s3://bucket/a@b"}) == {
        "upload": "s3://bucket/a@b"
    }
    options(upload=url)
    assert (
        redacted("cannot log in with geheim%2Fcanary or geheim/canary")
        == "cannot log in with *** or ***"
    )
    monkeypatch.setenv(STARTED_AS, "llama-load demo --api-key canary-of-demo -u 3")
    assert _typed_command() == ["llama-load", "demo", "--api-key", "***", "-u", "3"]


def test_keys_and_headers_are_hidden_from_the_manifest() -> None:
    command = [
        "locust",
        "--api-key",
        "secret",
        "--header=X: secret",
        "--header",
        "Y: secret",
        "-u",
        "8",
        "--api-key=secret",
    ]
    assert "secret" not in " ".join(redact_command(command))
    assert redact_command(command)[-3:] == ["-u", "8", "--api-key=***"]
    assert "secret" not in " ".join(
        redact_command(["locust", "--api-k", "secret", "--hea=X: secret"])
    )
    given = options(api_key="secret", header=["X: secret"]).given_flags
    assert "secret" not in str(given)


def test_flags_of_other_tools_are_explained() -> None:
    """By the name that they have here; others keep argparse's message."""
    refused = "unrecognized arguments: "
    assert in_our_words(f"{refused}--random-input-len 512") == (
        "--random-input-len of vllm bench serve: write --input-len, with -f synthetic"
    )
    assert "-f sharegpt_chat" in str(
        in_our_words(f"{refused}--dataset-name=sharegpt --foo")
    )
    assert (
        in_our_words(f"{refused}--duration 60") == "--duration of other tools: write -t"
    )
    backend = "argument --backend: invalid choice: 'openai-chat' (choose from 'vllm')"
    assert (
        in_our_words(backend)
        == "--backend openai-chat of vllm bench serve: write --endpoint chat"
    )
    assert in_our_words(backend.replace("openai-chat", "vllm-rerank")) == (
        "--backend vllm-rerank of vllm bench serve: write -f embeddings or rerank"
    )
    assert in_our_words(f"{refused}--foo") is None
    ours = {flag.name for flag in FLAGS}
    assert not ours & set(SYNONYMS), "what has the same name needs no explanation"
    assert set(SYNONYMS.values()) <= ours | {"--host", "-u", "-t"}
