"""report.html: complete, self-contained, and safe whatever servers, data sets and people wrote."""

from __future__ import annotations

import ast
import base64
import hashlib
import html.parser
import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from llama_load.analysis.checks.verdict import Verdict
from llama_load.analysis.figures.summary import summarize
from llama_load.analysis.figures.time_parts import KEYS, PARTS
from llama_load.analysis.reports.first_screen import TIME_PARTS
from llama_load.analysis.reports.html.chart_series import (
    bars,
    in_flight,
    output_tokens_per_s,
    percentiles_by_bin,
    time_axis,
)
from llama_load.analysis.reports.html.charts import bokeh_script
from llama_load.analysis.reports.html.charts_latency import (
    ecdf_chart,
    over_time_chart,
    values_of,
)
from llama_load.analysis.reports.html.charts_telemetry import CHARTS, telemetry_charts
from llama_load.analysis.reports.html.charts_time import shared_range
from llama_load.analysis.reports.html.page import html_page
from llama_load.analysis.reports.html.time_bars import COLOURS
from llama_load.analysis.reports.translations import chinese_words, translator
from llama_load.analysis.reports.write import markdown, write_html, write_reports
from llama_load.analysis.results.results import Results, analyze
from llama_load.analysis.statistics.ecdf import ecdf
from llama_load.analysis.topics import Topic, topics
from llama_load.ground.languages import CHINESE, IN_ENGLISH
from llama_load.run_folder import Manifest, PreflightRow, Run, StageRecord
from llama_load.run_folder.observed.record import RequestRecord
from llama_load.run_folder.observed.telemetry_series import Series, Telemetry
from llama_load.run_folder.vocabulary.definitions import EVERY, TTFT, of_group
from tests.conftest import REPOSITORY
from tests.make_records import MS, failed, manifest, record, table

if TYPE_CHECKING:
    from bokeh.document import Document

# Ends a script, an attribute, a comment, a template; begins a tag, a formula of MathJax; and
# characters that end a line of JavaScript.
HOSTILE = "</script><script>window.pwned=1</script><img src=x onerror='window.pwned=2'>\"'`{{7*7}}${1}$$x$$ \\(y\\) <!-- --> &amp; @host"


def results(
    *records: RequestRecord, about: Manifest | None = None, path: Path = Path("run")
) -> Results:
    return analyze(
        Run(
            path,
            about or manifest(num_prompts=len(records)),
            table(*records),
            recovered=False,
        )
    )


def hostile_results(path: Path) -> Results:
    """Every text from outside is hostile."""
    about = manifest(
        label=HOSTILE,
        model=HOSTILE,
        workload=HOSTILE,
        backend=HOSTILE,
        version=HOSTILE,
        date=HOSTILE,
        command=["locust", HOSTILE],
        lang=HOSTILE,
        targets=[{"url": HOSTILE, "backend": HOSTILE}],
        preflight=[PreflightRow(HOSTILE, f"{HOSTILE}\u2028\u202e{HOSTILE}", "warning")],
        server_changes=[HOSTILE],
    )
    names = {"workload": HOSTILE, "host": HOSTILE, "model": HOSTILE}
    good = [
        record(
            n,
            start_ms=50 * n,
            prompt_tokens=n + 1,
            request_id=f"{HOSTILE}{n}",
            **(names if n % 2 else {}),
        )
        for n in range(60)
    ]
    bad = [failed(60 + n, start_ms=50 * n, kind=HOSTILE) for n in range(3)]
    return results(*good, *bad, about=about, path=path)


def staged_results(path: Path, **about: Any) -> Results:
    """Three stages, the middle one of which is the knee."""
    records, stages = [], []
    for number, (users, tpot) in enumerate(((1, 10), (4, 12), (8, 40))):
        begin = 10_000 * number
        for n in range(30):
            start = begin + (n // users) * 400
            records.append(
                record(
                    30 * number + n,
                    start_ms=start,
                    first_ms=50 + n,
                    gaps_ms=(tpot,) * 8,
                    stage=number,
                    prompt_tokens=9 + n,
                )
            )
        stages.append(
            StageRecord(
                str(users),
                users,
                begun_mono_ns=begin * MS,
                ended_mono_ns=(begin + 14_000) * MS,
            )
        )
    return results(
        *records,
        about=manifest(stages=stages, users=8, num_prompts=30, **about),
        path=path,
    )


class Parsed(html.parser.HTMLParser):
    """The tags of a page, its scripts and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text = ""
        self._script: dict[str, str | None] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self._script = dict(attrs) if tag == "script" else None

    def handle_data(self, data: str) -> None:
        if self._script is not None:
            self.scripts.append((self._script, data))
            self._script = None
        else:
            self.text += data


def page_of(found: Results, language: str = "en") -> Parsed:
    return Parsed(html_page(found, "the block\n", language))


def test_the_page_is_one_file_that_loads_nothing() -> None:
    page = page_of(staged_results(Path("run")))
    assert not {"link", "img", "iframe", "object", "base", "form"} & set(page.tags)
    links = [
        value
        for _, name, value in page.attributes
        if name in ("src", "href", "action", "srcset")
    ]
    assert not [link for link in links if ":" in link or link.startswith("/")]


def test_only_its_own_scripts_may_run() -> None:
    """The policy has the hash of each script, and nothing else runs or loads."""
    page = page_of(results(record(0), record(1, start_ms=100)))
    (policy,) = [
        value
        for tag, name, value in page.attributes
        if tag == "meta" and name == "content" and "default-src" in value
    ]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe-eval" not in policy
    running = [
        text
        for attributes, text in page.scripts
        if attributes.get("type") != "application/json"
    ]
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in running
    ]
    assert f"script-src {' '.join(hashes)};" in policy


def test_hostile_texts_add_no_tag_no_attribute_and_no_script() -> None:
    page = page_of(hostile_results(Path("run")))
    assert len(page.scripts) == 3
    assert "img" not in page.tags
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert f"{HOSTILE}" in page.text
    (charts,) = [
        text
        for attributes, text in page.scripts
        if attributes.get("type") == "application/json"
    ]
    assert "<" not in charts
    assert json.loads(charts)["roots"]
    assert not re.search("[\u2028\u2029\u202e]", page.text + charts)


@pytest.mark.parametrize(
    "records",
    [
        [],
        [record(0)],
        [record(0), record(1, start_ms=300), record(2, start_ms=310)],
        [failed(0)],
        [record(0, first_token_mono_ns=None, ttft_ms=None, tpot_ms=None, itl_ms=[])],
        [record(0, status="cancelled", finish_reason=None, tpot_ms=None, e2el_ms=None)],
    ],
    ids=["none", "one", "three", "a failure", "not streamed", "cut"],
)
def test_few_requests_make_a_page(records: list[RequestRecord]) -> None:
    page = page_of(results(*records))
    (charts,) = [
        text
        for attributes, text in page.scripts
        if attributes.get("type") == "application/json"
    ] or ["{}"]
    drawings = [value for _, name, value in page.attributes if name == "data-chart"]
    assert drawings == [
        str(number) for number in range(len(json.loads(charts).get("roots", [])))
    ]
    assert ("Slowest requests" in page.text) == (len(records) > 1)


def test_a_large_run_has_a_page_of_bounded_size() -> None:
    """5000 requests: dots and rows are chosen, as their notes say, so that twice as many would add
    little."""
    many = [
        record(n, start_ms=10 * n, first_ms=50 + n % 97, prompt_tokens=n % 89)
        for n in range(5000)
    ]
    text = html_page(results(*many), "", "en")
    assert len(text) < 2_000_000
    assert "of 5,000 requests, evenly chosen" in text


def test_a_page_that_cannot_be_made_spoils_no_other_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = results(record(0), path=tmp_path)
    written = write_reports(found)
    monkeypatch.setattr(
        "llama_load.analysis.reports.html.page.html_page", lambda *_: 1 / 0
    )
    assert "report.html could not be written: ZeroDivisionError" in (
        write_html(written) or ""
    )
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "report.md",
        "summary.json",
        "summary.txt",
    ]


def test_without_bokehs_scripts_a_sentence_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = write_reports(results(record(0), path=tmp_path))
    monkeypatch.setattr("llama_load.ground.bundled.BOKEH", tmp_path / "none")
    bokeh_script.cache_clear()
    assert "no copy of Bokeh's scripts (run 'make install' in it" in (
        write_html(written) or ""
    )


def test_the_page_sent_alone_has_no_dead_link(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "a b#<i>.log").touch()
    found = results(record(0), path=tmp_path)
    write_html(write_reports(found))
    page = Parsed((tmp_path / "report.html").read_text(encoding="utf-8"))
    links = [
        value for tag, name, value in page.attributes if (tag, name) == ("a", "href")
    ]
    ids = {value for _, name, value in page.attributes if name == "id"}
    assert {link[1:] for link in links if link.startswith("#")} <= ids
    assert all(link.startswith("#") for link in links)
    assert "summary.json · summary.txt · report.md · server/a b#<i>.log" in page.text


def test_the_page_has_no_path_and_no_user_name_of_this_machine(tmp_path: Path) -> None:
    """In the command, the data set, the table before the run, the servers and the block; addresses
    and ratios stay."""
    home = "/home/jane.doe/models"
    about = manifest(
        command=[
            "locust",
            "-f",
            f"{home}/chat.py",
            f"--run-dir={home}/runs/1",
            "--host",
            "http://10.0.0.1:8080/v1",
        ],
        prompts={"dataset": {"path": f"{home}/data/x.json", "sha256": "f" * 64}},
        targets=[{"url": "http://10.0.0.1:8080", "model_path": f"{home}/a.gguf"}],
        preflight=[
            PreflightRow(
                "model", f"the file {home}/a.gguf, 5/6 tok/s, POST /v1/chat/completions"
            )
        ],
    )
    found = results(record(0), about=about, path=tmp_path)
    written = write_reports(found)
    write_html(
        replace(written, text=written.text + f"Run folder: {home}/runs/1\n~jane/x/y\n")
    )
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "jane" not in page and str(tmp_path) not in page
    for kept in (
        "…/chat.py",
        "--run-dir=…/1",
        "http://10.0.0.1:8080/v1",
        "…/a.gguf, 5/6 tok/s, POST /v1/chat/completions",
        "…/x.json",
    ):
        assert kept in page, kept


def test_a_report_is_read_in_one_look_under_a_banner_of_its_colour() -> None:
    """Banner, tiles, the bar of time, a table and four charts; the rest opens. At most 500 words."""
    found = replace(
        results(record(0), record(1, start_ms=300)),
        verdict=Verdict("VALID", [], ["VALID"], "VALID"),
    )
    page = html_page(found, "", "en")
    assert 'class="verdict valid"' in page
    unfolded = page[page.index("<body>") : page.index("<details")]
    assert unfolded.count("data-chart=") == 4
    assert len(re.sub(r"<[^>]*>", " ", unfolded).split()) < 500
    for title in ("Checks of the verdict", "How it was run", "Distributions"):
        assert f"<h2>{title}</h2></summary>" in page


def test_words_are_explained_where_they_stand(tmp_path: Path) -> None:
    """The latencies, and the verdict of this run, in a part that opens and that is printed."""
    found = results(record(0), path=tmp_path)
    text = write_reports(found).text
    page = html_page(found, text, "en")
    for word in ("TTFT", "TPOT", "ITL", "E2EL", "VALID"):
        assert f"<dt>{word}</dt>" in page
    assert "<dt>BLURRED</dt>" not in page and 'id="words"' in page
    assert "<dt>TTFT</dt><dd>首 token 延迟" in html_page(found, text, "zh")


def test_the_gaps_between_tokens_have_a_log_axis() -> None:
    """Also where all are within a factor of 20, or some tokens arrived together; a latency of
    requests then has a linear one."""
    records = table(*(record(number, gaps_ms=(20, 25, 30, 0)) for number in range(30)))
    total = summarize(records)
    scales = {}
    for latency in of_group(EVERY):
        curve = ecdf(values_of(latency, records))
        assert curve is not None
        chart = ecdf_chart(
            latency, {"all": curve}, total.distributions[latency.key], translator("en")
        )
        assert chart is not None
        scales[latency.key] = chart.figure.properties["x_scale"].name
        if latency.key == "itl":
            begin = chart.figure.x_range.properties["start"]
            renderer = chart.figure.properties["renderers"][0].properties
            assert renderer["glyph"].properties["x"].column == "x"
            drawn = renderer["data_source"].properties["data"]
            assert min(drawn["x"]) >= begin > 0 and max(drawn["y"]) == 1
    assert scales == {
        "ttft": "LinearScale",
        "tpot": "LinearScale",
        "itl": "LogScale",
        "e2el": "LinearScale",
        "e2el_per_token": "LinearScale",
    }


@pytest.mark.heavy
def test_bokehs_own_models_read_every_chart(tmp_path: Path) -> None:
    """They know each model and each property that is written, and accept its value; data arrive as
    they were. Catches a property that bokeh's script passes over in silence, in all charts."""
    from bokeh.models import GlyphRenderer, Scatter  # half a second of every collection

    t_ns = np.arange(0, 3000, 500) * MS
    telemetry = Telemetry(
        [Series("host", "host_cpu_seconds_total", {}, t_ns, 2.0 * t_ns / 1e9)]
    )
    staged = staged_results(tmp_path)
    wide = [
        record(
            n,
            start_ms=50 * n,
            first_ms=30 if n % 9 else 3000,
            prompt_tokens=9 if n % 9 else 5000,
        )
        for n in range(70)
    ]
    pages = [
        html_page(
            replace(staged, run=replace(staged.run, telemetry=telemetry)), "", "en"
        ),
        html_page(hostile_results(tmp_path), "", "en"),
        html_page(results(*wide), "", "en"),
        html_page(results(*wide[:4]), "", "en"),
    ]
    documents = [charts_of(page) for page in pages]
    assert len(documents[0].roots) == 17
    drawn = [
        each.data_source.data["y"]
        for each in documents[2].select({"type": GlyphRenderer})
        if isinstance(each.glyph, Scatter)
    ]
    assert any(
        sorted(set(values)) == [30.0, 3000.0] and len(values) == 70 for values in drawn
    )


def charts_of(page: str) -> Document:
    """The charts of a page, read by Bokeh. Raises where something in them is no model or property
    of Bokeh's, or not its value."""
    (charts,) = [
        text
        for attributes, text in Parsed(page).scripts
        if attributes.get("type") == "application/json"
    ]
    from bokeh.document import Document

    found = json.loads(charts)
    document = Document.from_json(found["docs"]["charts"])
    assert [root.id for root in document.roots] == found["roots"]
    return document


def test_the_only_step_of_a_stage_is_drawn_as_a_dash() -> None:
    """60 requests in 30 s are steps of 10 s: with a stage in each, a line of one point would be
    invisible, while the legend names it."""
    measured = table(*[record(n, start_ms=500 * n) for n in range(60)])
    axis = time_axis(measured)
    assert axis is not None

    def markers(*breaks_s: float) -> list[str]:
        chart = over_time_chart(
            TTFT, measured, axis, shared_range(axis), str, breaks_s=breaks_s
        )
        assert chart is not None
        shapes = []
        for drawn in chart.figure.properties["renderers"][1:]:
            glyph = drawn.properties["glyph"]
            is_dash = glyph.name == "Scatter"
            shapes.append(glyph.properties["marker"].value if is_dash else glyph.name)
        return shapes

    assert markers() == ["Line", "Line"]
    assert markers(10.0) == ["Line", "dash", "Line", "dash"]
    assert markers(10.0, 20.0) == ["dash", "dash"]


def test_the_label_of_an_axis_fits_beside_it() -> None:
    """A chart of telemetry is 200 pixels high; a character of the label takes six."""
    for chart in CHARTS:
        assert len(chart.axis_label or chart.title) <= 25


def test_telemetry_is_drawn_on_the_time_axis_of_the_run() -> None:
    """Memory and power of two GPUs, of which the server uses both, CPU as the growth of its
    counter; hostile names stay text."""
    t_ns = np.arange(0, 3000, 500) * MS
    gpus = [
        Series("gpus", metric, {"gpu": gpu, "name": HOSTILE}, t_ns, np.full(6, value))
        for gpu in "01"
        for metric, value in (
            ("gpu_info", 1.0),
            ("gpu_memory_used_bytes", 8e9),
            ("gpu_power_watts", 100.0),
            ("gpu_utilization_ratio", 0.5),
        )
    ]
    server = [
        Series(HOSTILE, "vllm:num_requests_running", {}, t_ns, np.arange(6.0)),
        Series("b", "vllm:num_requests_running", {}, t_ns, t_ns * 0.0),
    ]
    cpu = Series("host", "host_cpu_seconds_total", {}, t_ns, 2.0 * t_ns / 1e9)
    axis = time_axis(table(record(0), record(1, start_ms=2000)))
    assert axis is not None
    charts = {
        chart.title: chart
        for chart in telemetry_charts(
            Telemetry([*gpus, *server, cpu]), axis, shared_range(axis), str
        )
    }
    assert set(charts) == {
        "GPU utilization (%)",
        "GPU memory (GiB)",
        "Power (W)",
        "CPU (cores)",
        "Requests in the server",
    }
    assert [key.text for key in charts["Power (W)"].keys] == ["GPU 0", "GPU 1"]
    assert (
        charts["GPU utilization (%)"].summary
        == "GPU utilization (%) over time: at most 50.0."
    )
    assert charts["CPU (cores)"].summary == "CPU (cores) over time: at most 2.00."
    assert "processing · b" in [
        key.text for key in charts["Requests in the server"].keys
    ]


# ---------------------------------------------------------------------- languages


def test_chinese_reports_have_chinese_headings() -> None:
    about = manifest(num_prompts=3, preflight=[PreflightRow("server", "ready")])
    found = results(record(0), record(1, start_ms=100), failed(2), about=about)
    text = markdown(found, "the block\n", "zh")
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        f"## {heading}"
        for heading in (
            "结论的各项检查",
            "时间花在哪里",
            "请求",
            "失败的请求",
            "测试前检查",
            "运行方式",
        )
    ]
    page = page_of(found, "zh")
    assert ("html", "lang", "zh") in page.attributes
    assert "延迟分布" in page.text
    assert "Distributions" not in page.text


def test_every_heading_has_a_translation() -> None:
    """What the templates and the charts give to t(…)."""
    words = chinese_words()
    folder = REPOSITORY / "llama_load" / "analysis/reports"
    for file in folder.glob("templates/report.*"):
        for single, double in re.findall(
            r"""\bt\(\s*(?:'([^']+)'|"([^"]+)")""", file.read_text(encoding="utf-8")
        ):
            assert (single or double) in words, file.name
    for file in (*folder.glob("*.py"), *folder.glob("html/*.py")):
        for text in given_to_t(file.read_text(encoding="utf-8")):
            assert text in words, file.name


@pytest.mark.parametrize("topic", topics(), ids=lambda topic: topic.key)
def test_every_heading_of_a_topic_has_a_translation(topic: Topic[Any]) -> None:
    """Among its own words, or those of the reports, which it does not repeat."""
    words = chinese_words()
    assert not topic.chinese.items() & words.items()
    folder = Path(inspect.getfile(topic.figures)).parent
    for file in folder.glob("*.py"):
        for text in given_to_t(file.read_text(encoding="utf-8")):
            assert text in {**words, **topic.chinese}, file.name


def test_the_words_of_a_topic_change_no_heading_outside_it() -> None:
    t = translator(CHINESE)
    own = t.with_words({"Requests": "提问"})
    assert (own("Requests"), own("Failed"), own("no such")) == (
        "提问",
        t("Failed"),
        "no such",
    )
    assert t("Requests") != "提问"
    assert IN_ENGLISH.with_words({"Requests": "提问"})("Requests") == "Requests"


def given_to_t(source: str) -> Iterator[str]:
    """The texts that a module gives to t(…), also those of several literals."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "t"
        ):
            text = node.args[0]
            if isinstance(text, ast.Constant) and text.value:
                yield text.value


def test_every_part_of_the_time_has_a_colour_and_a_translation() -> None:
    page = page_of(results(record(0, retry_ms=60.0, tries=2), record(1)), "zh")
    assert "被拒绝的尝试与等待" in page.text
    assert list(COLOURS) == list(TIME_PARTS) == list(KEYS)
    assert {part.name for part in PARTS} <= set(chinese_words())


def test_translations_keep_the_placeholders() -> None:
    pairs = [*chinese_words().items()]
    for topic in topics():
        pairs += topic.chinese.items()
    for english, chinese in pairs:
        assert sorted(re.findall(r"{\w+}", english)) == sorted(
            re.findall(r"{\w+}", chinese)
        ), english


# ---------------------------------------------------------------------- series


def test_series_over_time_count_what_was_there() -> None:
    """Two requests of 1 s that overlap for half a second; 11 tokens each, evenly."""
    two = table(
        *(
            record(
                n,
                start_ms=500 * n,
                first_ms=0,
                gaps_ms=(100,) * 10,
                ended_mono_ns=(500 * n + 1000) * MS,
            )
            for n in (0, 1)
        )
    )
    axis = time_axis(two)
    assert axis is not None
    assert axis.seconds == 1.5
    instants, level = in_flight(two, axis)
    assert list(zip(instants, level, strict=True)) == [
        (0, 1),
        (0.5, 2),
        (1, 1),
        (1.5, 0),
    ]
    tokens = output_tokens_per_s(two, axis)
    widths = axis.edges[1:] - axis.edges[:-1]
    assert (tokens * widths).sum() == pytest.approx(22)


def test_percentiles_of_bins_are_at_their_middles() -> None:
    """Ten requests in bins of 1 s, value 2 a second; the last bin is longer and has two."""
    axis = time_axis(table(*(record(n, start_ms=1000 * n) for n in range(10))))
    assert axis is not None
    at_s = axis.at(
        table(*(record(n, start_ms=1000 * n) for n in range(10))).instants(
            "started_mono_ns"
        )
    )
    middles, (medians,) = percentiles_by_bin(at_s, at_s * 2, axis, (50.0,))
    assert list(middles[:8]) == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5]
    assert list(medians) == [0, 2, 4, 6, 8, 10, 12, 14, 17]


def test_rows_of_the_gantt_chart_hold_one_request_at_a_time() -> None:
    """Three requests, the third begins when the first has ended: it takes the first row."""
    three = table(
        record(0, start_ms=0, ended_mono_ns=1000 * MS),
        record(1, start_ms=100, ended_mono_ns=3000 * MS),
        record(2, start_ms=1000, ended_mono_ns=2000 * MS),
    )
    axis = time_axis(three)
    assert axis is not None
    found = bars(three, axis, 10, 10)
    assert (list(found.row), found.rows) == ([0, 1, 0], 2)
