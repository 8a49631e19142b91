"""The routes of searches and sweeps: /llm/searches."""

from __future__ import annotations

from typing import Any

from flask import Response, abort, redirect

from llama_load.foreign_files import TooLarge, read_foreign
from llama_load.foreign_text import printable
from llama_load.run.in_thread import in_page_thread
from llama_load.web.responses import (
    VIEW_POLICY,
    Route,
    done,
    foreign_file,
    is_in_frame,
    json,
    page,
    posted,
)
from llama_load.web.run_control import RunControl


def add_experiments(route: Route, control: RunControl) -> None:
    """The pages of searches and sweeps."""
    experiments = control.experiments

    @route("/searches")
    def searches() -> Response:
        folder = printable(str(experiments.folder))
        host = control.environment.host or ""
        return page(
            "searches", "searches", plans=experiments.plans(), folder=folder, host=host
        )

    @route("/searches/result")
    def result() -> Response:
        return page(
            "result",
            "searches",
            VIEW_POLICY,
            has_result=experiments.result() is not None,
        )

    @route("/searches/result.html")
    def result_file() -> Any:
        path = experiments.result()
        if path is None:
            abort(404, "there is no result")
        if not is_in_frame():
            return redirect("result")

        try:
            return foreign_file(in_page_thread(lambda: read_foreign(path)))
        except (OSError, TooLarge) as error:
            abort(404, printable(str(error)))

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
