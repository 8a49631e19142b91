"""The routes of searches and sweeps: /llm/searches."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from flask import Response, abort, redirect

from llama_load.loadgen.run.in_thread import in_page_thread
from llama_load.outside.foreign_files import TooLarge, read_foreign
from llama_load.outside.foreign_text import printable
from llama_load.page.experiments import found, found_result
from llama_load.page.responses import (
    VIEW_POLICY,
    Route,
    done,
    foreign_file,
    is_in_frame,
    json,
    page,
    posted,
)
from llama_load.page.run_control import RunControl


def add_experiments(route: Route, control: RunControl) -> None:
    """The pages of searches and sweeps."""
    experiments = control.experiments

    @route("/searches")
    def searches() -> Response:
        folder = printable(str(experiments.folder))
        host = control.environment.host or ""
        return page(
            "searches",
            "searches",
            plans=experiments.plans(),
            found=found(),
            folder=folder,
            host=host,
        )

    @route("/searches/found/<kind>/<name>")
    def found_page(kind: str, name: str) -> Response:
        return page(
            "result",
            "searches",
            VIEW_POLICY,
            has_result=found_result(kind, name) is not None,
            name=printable(name),
            address=f"found/{quote(kind)}/{quote(name)}/result.html",
        )

    @route("/searches/found/<kind>/<name>/result.html")
    def found_file(kind: str, name: str) -> Any:
        return _framed(found_result(kind, name), f"../{quote(name)}")

    @route("/searches/result")
    def result() -> Response:
        return page(
            "result",
            "searches",
            VIEW_POLICY,
            has_result=experiments.result() is not None,
            name="Result",
            address="result.html",
        )

    @route("/searches/result.html")
    def result_file() -> Any:
        return _framed(experiments.result(), "result")

    @route("/api/experiment")
    def experiment() -> Response:
        return json(experiments.status())

    @route("/api/experiment/start", "POST")
    def start_experiment() -> Response:
        typed = posted()
        return done(lambda: experiments.start(typed))

    @route("/api/experiment/stop", "POST")
    def stop_experiment() -> Response:
        posted()
        return done(experiments.stop)


def _framed(path: Path | None, around: str) -> Any:
    """The page of a result, in its frame alone. `around`: the page with the frame."""
    if path is None:
        abort(404, "there is no result")
    if not is_in_frame():
        return redirect(around)

    try:
        return foreign_file(in_page_thread(lambda: read_foreign(path)))
    except (OSError, TooLarge) as error:
        abort(404, printable(str(error)))
