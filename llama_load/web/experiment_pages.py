"""The routes of searches and sweeps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from llama_load.errors import UsageError
from llama_load.foreign_text import printable
from llama_load.web.experiments import Experiments

Route = Callable[..., Callable[[Any], Any]]


def add_experiment_routes(
    route: Route,
    *,
    page: Callable[..., Any],
    json: Callable[..., Any],
    posted: Callable[[], dict[str, Any]],
    framed: Callable[[Path], Any],
    experiments: Experiments,
    host: Callable[[], str],
    view_policy: str,
) -> None:
    """`route`, `page`, `json` and `posted` are those of the other pages; `framed` sends a file that is shown in a frame."""

    @route("/searches")
    def searches() -> Any:
        return page("searches", "searches", plans=experiments.plans(), folder=printable(str(experiments.folder)), host=host())

    @route("/searches/result")
    def result() -> Any:
        return page("result", "searches", view_policy, has_result=experiments.result() is not None)

    @route("/searches/result.html")
    def result_file() -> Any:
        from flask import abort

        path = experiments.result()
        if path is None:
            abort(404, "there is no result")
        return framed(path)

    @route("/api/experiment")
    def experiment() -> Any:
        return json(experiments.status())

    @route("/api/experiment/start", "POST")
    def start_experiment() -> Any:
        try:
            experiments.start(posted())
        except UsageError as error:
            return json({"fault": printable(str(error), None)}, 422)
        return json({"fault": None})

    @route("/api/experiment/stop", "POST")
    def stop_experiment() -> Any:
        posted()
        experiments.stop()
        return json({"fault": None})
