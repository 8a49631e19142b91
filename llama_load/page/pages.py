"""The routes of our page in Locust's web UI: /llm to start and watch runs, /llm/runs for their
results."""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec
from flask import Blueprint, Response, abort, redirect, request

from llama_load.analysis.comparison.compare import compare
from llama_load.analysis.comparison.sources import read_groups
from llama_load.analysis.reports.about_run import about_run
from llama_load.ground.errors import LlamaLoadError
from llama_load.loadgen.run.in_thread import in_page_thread
from llama_load.loadgen.run.outcome import Outcome
from llama_load.loadgen.run.progress import Counts
from llama_load.outside.foreign_text import printable
from llama_load.page.assets import asset
from llama_load.page.experiment_pages import add_experiments
from llama_load.page.last_good_run import last_good_run
from llama_load.page.live_view import live_view
from llama_load.page.responses import (
    NO_STORE,
    VIEW_POLICY,
    Route,
    done,
    foreign_file,
    is_in_frame,
    json,
    page,
    posted,
    routes,
)
from llama_load.page.run_control import RunControl
from llama_load.page.run_files import REPORT, RunFiles
from llama_load.page.run_list_page import date_of, listed_runs, spark_svg
from llama_load.page.run_view import headline_figures, run_view
from llama_load.page.workload_choices import presets
from llama_load.run_folder import MANIFEST, last_with_label
from llama_load.run_folder.foreign_tables import TableLimits

# More sides are no comparison that a person can read.
MOST_COMPARED = 20
# Of the CSV of a run, which is made in memory: 100 000 requests with 100 gaps. `llama-load report
# --format csv` writes more.
CSV_LIMITS = TableLimits(cells=20_000_000, decoded_bytes=256 << 20)
ASSET_AGE_S = 365 * 24 * 3600
# Shown on each of Locust's pages, in a corner that its own buttons leave free.
LINK = (
    '<a href="{href}" style="position:fixed;left:12px;bottom:12px;z-index:2000;padding:8px 14px;'
    "border-radius:18px;"
    "background:#0b7a55;color:#fff;font:600 14px system-ui,sans-serif;text-decoration:none;"
    'box-shadow:0 1px 4px #0006">LLM load test →</a>'
)

logger = logging.getLogger(__name__)


def add_pages(control: RunControl) -> None:
    """Add the routes to Locust's Flask app, behind its login if it has one, and a link to Locust's
    own page."""
    web_ui = control.environment.web_ui
    base = (control.environment.parsed_options.web_base_path or "").rstrip("/")
    run_dir = control.environment.parsed_options.run_dir
    files = RunFiles(Path(run_dir).parent if run_dir else Path("runs"), control.folders)
    web_ui.app.register_blueprint(
        blueprint(control, files, web_ui.auth_required_if_enabled),
        url_prefix=f"{base}/llm",
    )

    def link(response: Response) -> Response:
        if request.endpoint == "locust.index" and not response.is_streamed:
            response.set_data(
                response.get_data().replace(
                    b"</body>", LINK.format(href="./llm/").encode() + b"</body>"
                )
            )

        return response

    web_ui.app.after_request(link)
    if web_ui.web_login:  # else it was printed with its token
        scheme = "https" if web_ui.tls_cert else "http"
        logger.info(
            "The page for LLM load tests: %s://%s:%d%s/llm",
            scheme,
            web_ui.host or "localhost",
            web_ui.port,
            base,
        )


@lru_cache(1)
def _ended(files: RunFiles, outcome: Outcome) -> dict[str, Any]:
    """How a run ended, for the page: read once, although every page asks every second."""
    ended: dict[str, Any] = {
        "run": None,
        "exit_code": outcome.exit_code,
        "error": None,
        "figures": {},
        "headline": None,
        "style": None,
    }
    if outcome.error is not None:
        ended["error"] = printable(outcome.error, None)
    if outcome.folder is None:
        return ended

    name = outcome.folder.name
    ended["run"] = name
    ended["figures"] = headline_figures(files, name)
    if outcome.error is None:
        view = run_view(files, name)
        ended["headline"] = view.headline
        ended["style"] = view.style
    return ended


@lru_cache(1)
def _before(files: RunFiles, folder: Path) -> dict[str, Any] | None:
    """The headline figures of the last run with the label of this one: read once."""
    manifest = files.json(folder.name, MANIFEST) or {}
    label = manifest.get("label")
    date = manifest.get("date")
    if not isinstance(label, str) or not isinstance(date, str):
        return None

    last = in_page_thread(lambda: last_with_label(folder.parent, label, (folder, date)))
    if last is None:
        return None

    name = last[0].name

    return {"run": name, "figures": headline_figures(files, name)}


def blueprint(
    control: RunControl, files: RunFiles, guarded: Callable[[Any], Any]
) -> Blueprint:
    """The routes. `guarded` puts Locust's login before a view."""
    pages = Blueprint("llm", __name__, template_folder="pages")
    route = routes(pages, guarded)
    _add_start(route, control, files)
    _add_results(route, control, files)
    add_experiments(route, control)
    return pages


def _add_start(route: Route, control: RunControl, files: RunFiles) -> None:
    """The page that starts and shows a run."""

    @route("/")
    def index() -> Response:
        environment = control.environment
        form = control.form
        shape = environment.shape_class
        return page(
            "index",
            "run",
            groups=form.groups(),
            choices=form.choices,
            choices_of=form.choices_of(),
            presets=presets(form.choices),
            shape=None if shape is None else type(shape).__name__,
            is_master=form.is_master,
            locustfile=environment.locustfile or "",
        )

    @route("")
    def with_slash() -> Any:
        return redirect(request.path + "/")

    @route("/assets/<name>")
    def assets(name: str) -> Response:
        file = asset(name)
        if file is None:
            abort(404)

        zipped = "gzip" in request.headers.get("Accept-Encoding", "")
        headers = {
            "Cache-Control": f"private, max-age={ASSET_AGE_S}, immutable",
            "Vary": "Accept-Encoding",
        }
        headers |= {"Content-Encoding": "gzip"} if zipped else {}
        content = file.compressed if zipped else file.content

        # Passed through: no key can be in it, so nobody need look.
        return Response(
            content,
            content_type=file.content_type,
            headers=headers,
            direct_passthrough=True,
        )

    @route("/api/form")
    def form() -> Response:
        like = request.args.get("like", "")
        values = control.form.values()
        manifest = files.json(like, MANIFEST) if like else None
        if manifest is not None:
            values |= control.form.values_like(manifest)
        return json({"values": values, "defaults": control.form.defaults()})

    @route("/api/<any(check, start):what>", "POST")
    def attempt(what: str) -> Response:
        answer = control.attempt(posted(), begin=what == "start")
        return json(answer, 422 if answer.faults else 200)

    @route("/api/stop", "POST")
    def stop() -> Response:
        posted()
        return json({"state": control.stop()})

    @route("/api/live")
    def live() -> Response:
        metrics = control.runs.metrics
        active = control.runs.active
        outcome = control.runs.outcome
        folder = metrics.folder
        version = 0
        width_s = 0
        # What the page knows of another run says nothing about this one.
        if metrics.name is not None and request.args.get("run", "") == metrics.name:
            version = request.args.get("version", 0, type=int)
            width_s = request.args.get("width_s", 0, type=int)

        about: list[tuple[str, str]] = []
        if metrics.manifest is not None:
            about = about_run(msgspec.to_builtins(metrics.manifest))

        figures = None
        if metrics.live is not None:
            figures = live_view(metrics.live, metrics.stages, version, width_s)

        workers = (
            control.environment.runner.worker_count if control.form.is_master else None
        )

        return json(
            {
                "state": control.state,
                "run": metrics.name,
                "workers": workers,
                "about": about,
                "before": None if folder is None else _before(files, folder),
                "counts": None if active is None else _progress(active.counts),
                "outcome": None if outcome is None else _ended(files, outcome),
                "live": figures,
            }
        )


def _add_results(route: Route, control: RunControl, files: RunFiles) -> None:
    """The pages of runs that have ended."""

    def folder_of(name: str) -> Path:
        return files.folder(name) or abort(404, "there is no such run")

    @route("/runs")
    def runs() -> Response:
        rows = in_page_thread(lambda: listed_runs(files))
        return page("runs", "runs", rows=rows)

    def compared() -> list[Path]:
        """The folders of the chosen runs, the oldest first: it is the base."""
        chosen = set(request.args.getlist("run"))
        names = [name for name in reversed(files.names()) if name in chosen]
        names.sort(key=lambda name: date_of(files, name))
        return [folder for name in names if (folder := files.folder(name)) is not None]

    @route("/compare")
    def comparison() -> Response:
        is_few = 2 <= len(compared()) <= MOST_COMPARED
        return page(
            "compare",
            "runs",
            VIEW_POLICY,
            error="" if is_few else f"Choose 2 to {MOST_COMPARED} runs.",
        )

    @route("/compare.html")
    def comparison_file() -> Any:
        """The page of `llama-load compare --format html`, made now; in its frame like a report."""
        is_download = "download" in request.args
        if not is_download and not is_in_frame():
            return redirect(
                "compare?" + request.query_string.decode("ascii", "replace")
            )

        folders = compared()
        if not 2 <= len(folders) <= MOST_COMPARED:
            abort(404, f"choose 2 to {MOST_COMPARED} runs")

        try:
            text = in_page_thread(lambda: _comparison_page(folders))
        except (LlamaLoadError, OSError) as fault:
            return Response(
                printable(str(fault), None),
                422,
                content_type="text/plain; charset=utf-8",
                headers=NO_STORE,
            )

        return foreign_file(text, "comparison.html", is_download=is_download)

    @route("/api/delete", "POST")
    def delete() -> Response:
        """Delete a run: its name must be sent twice, so that no other mistake does."""
        sent = posted()
        name = sent.get("run")
        if not isinstance(name, str) or sent.get("confirm") != name:
            abort(400, "confirm the name of the run")
        if control.runs.active is not None and control.runs.active.folder.name == name:
            return json({"fault": "it is running: stop it first"}, 422)

        return done(lambda: in_page_thread(lambda: files.delete(name)))

    @route("/runs/<name>/spark.svg")
    def spark(name: str) -> Response:
        folder = folder_of(name)
        headers = {
            "Content-Security-Policy": "default-src 'none'",
            "Cache-Control": "private, max-age=60",
        }
        return Response(
            in_page_thread(lambda: spark_svg(folder)),
            content_type="image/svg+xml",
            headers=headers,
        )

    @route("/runs/<name>")
    def run(name: str) -> Response:
        folder_of(name)
        return page(
            "run",
            "runs",
            VIEW_POLICY,
            run=in_page_thread(lambda: run_view(files, name)),
            good=in_page_thread(lambda: last_good_run(files, name)),
        )

    @route("/runs/<name>/report")
    def report(name: str) -> Response:
        if REPORT not in files.present(name):
            abort(404, "there is no such file")
        return page("report", "runs", VIEW_POLICY, name=name)

    @route("/runs/<name>/<file>")
    def file(name: str, file: str) -> Any:
        if file == "requests.csv":
            return _csv(folder_of(name))

        is_download = "download" in request.args or file.endswith(".parquet")
        if file == REPORT and not is_download and not is_in_frame():
            return redirect("report")

        opened = files.open(name, file)
        if opened is None:
            abort(404, "there is no such file")

        return foreign_file(_chunks(opened), file, is_download=is_download)


def _comparison_page(folders: list[Path]) -> str:
    # with Bokeh, which takes a second
    from llama_load.analysis.reports.comparison.comparison_page import comparison_page

    groups = read_groups([str(folder) for folder in folders], with_samples=True)
    return comparison_page([(group.title, compare(group.sides)) for group in groups])


def _progress(counts: Counts) -> dict[str, Any]:
    """How far a run is: a share from 0 to 1 (None: not known), and its phase in words."""
    elapsed_s = time.monotonic() - counts.since
    progress = {
        "share": counts.share,
        "phase": counts.phase,
        "line": counts.line(),
        "in_flight": counts.in_flight,
    }

    return progress | {
        "elapsed_s": elapsed_s if counts.since else None,
        "left_s": counts.left_s,
    }


def _chunks(opened: Any) -> Any:
    with opened:
        while data := in_page_thread(partial(opened.read, 1 << 18)):
            yield data


def _csv(folder: Path) -> Response:
    """The requests of a run as CSV, made now."""
    from llama_load.analysis.reports.formats import CSV, write_requests
    from llama_load.run_folder import load_run

    out = io.BytesIO()
    try:
        in_page_thread(
            lambda: write_requests(load_run(folder, CSV_LIMITS).records, CSV, out)
        )
    except (LlamaLoadError, OSError) as error:
        abort(404, printable(str(error)))

    headers = {"Content-Disposition": "attachment; filename=requests.csv", **NO_STORE}

    return Response(
        out.getvalue(),
        content_type="text/csv; charset=utf-8",
        headers=headers,
        direct_passthrough=True,
    )
