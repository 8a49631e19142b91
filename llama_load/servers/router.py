"""llama-server's router mode: one port, several models, each in a process of its own.

A process is started on demand.

Its control endpoints (/props, /slots, /metrics, /tokenize) need the name of a model. A model that
is not loaded would be loaded by the first request, within that request's TTFT, so it is loaded
before the run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from llama_load.ground.errors import UsageError
from llama_load.outside.foreign_text import printable
from llama_load.outside.plain_http import NoAnswerError, Session
from llama_load.servers.json_fields import fields, objects, text

# A large model is read from a disk at 200 MB/s: 60 GB take five minutes.
LOADED_WITHIN_S = 600.0
LOOK_S = 0.05
TIMEOUT_S = 10
LOADED = ("loaded", "sleeping")
_FAILED = "unloaded"


def is_router(props: Mapping[str, Any]) -> bool:
    """Whether /props is that of a router."""
    return props.get("role") == "router"


def of_model(path: str, model: str) -> str:
    """A control path for one model of a router: `/slots?model=small`."""
    return f"{path}?{urlencode({'model': model})}"


class RouterModels:
    """The models of one router, by their names in /v1/models."""

    def __init__(self, session: Session, url: str) -> None:
        self._session = session
        self._url = url

    def statuses(self) -> dict[str, str]:
        """`loaded`, `loading`, `unloaded`, … by name. UsageError: the router does not answer."""
        try:
            answer = self._session.get(self._url + "/v1/models", within_s=TIMEOUT_S)
            document = fields(answer.json())
        except (NoAnswerError, ValueError) as error:
            raise UsageError(
                f"{self._url}/v1/models did not answer while a model was loading: "
                f"{printable(str(error))}"
            ) from None

        statuses = {}
        for model in objects(document.get("data")):
            name = text(model.get("id"))
            if name is not None:
                status = fields(model.get("status"))
                statuses[name] = text(status.get("value")) or ""
        return statuses

    def load(self, names: Sequence[str]) -> dict[str, float]:
        """Load those that are not loaded yet: seconds by name, 0 for one that was loaded.

        UsageError: a load fails, or one evicts another of them.
        """
        seconds = {name: self._load(name) for name in names}
        statuses = self.statuses()
        gone = [name for name in names if statuses.get(name) not in LOADED]
        if gone:
            raise UsageError(
                f"{self._url} cannot keep {', '.join(names)} loaded together: {', '.join(gone)} "
                "was evicted; start the router with --models-max "
                f"{len(names)} or more, or test fewer models (--model)"
            )
        return seconds

    def _load(self, name: str) -> float:
        started_s = time.monotonic()
        if self.statuses().get(name) in LOADED:
            return 0.0
        try:
            # An error is no end: the model may be loading already. Its status decides.
            self._session.post(
                self._url + "/models/load", {"model": name}, within_s=TIMEOUT_S
            )
        except NoAnswerError as error:
            raise UsageError(
                f"{self._url} cannot load the model {name!r}: {printable(str(error))}"
            ) from None
        was_loading = False
        while (waited_s := time.monotonic() - started_s) < LOADED_WITHIN_S:
            status = self.statuses().get(name)
            if status in LOADED:
                return waited_s
            if status == _FAILED and (was_loading or waited_s > TIMEOUT_S):
                raise UsageError(
                    f"{self._url} could not load the model {name!r}; see the router's log"
                )
            was_loading = was_loading or status != _FAILED
            time.sleep(LOOK_S)
        raise UsageError(
            f"{self._url} did not load the model {name!r} within {LOADED_WITHIN_S:.0f} s; see "
            "the router's log"
        )


def chosen(
    url: str, wanted: Sequence[str], statuses: Mapping[str, str]
) -> tuple[str, ...]:
    """The models to test: those of --model, else the only one, or the only one that is loaded.

    UsageError: several are left.
    """
    loaded = [name for name, status in statuses.items() if status in LOADED]
    candidates = tuple(wanted) or tuple(loaded if len(loaded) == 1 else statuses)
    if not candidates:
        raise UsageError(
            f"{url} is a router without models; start it with --models-dir DIR"
        )
    if not wanted and len(candidates) > 1:
        raise UsageError(
            f"{url} is a router with several models: name those to test, --model "
            f"{','.join(candidates)}"
        )
    return candidates
