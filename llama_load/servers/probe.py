"""Find out what a server is from its control endpoints, without generating tokens.

/v1/models, /props (llama-server), /version (vLLM), /tokenize or /extras/tokenize/count,
/apply-template, and an empty body to the API where nothing else is available. /health only where
no models are listed: a gateway may send a request to each of its models for it. Not for
measurements, so it uses `plain_http`.
"""

from __future__ import annotations

import hashlib
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec

from llama_load.ground.errors import UsageError
from llama_load.outside.bound_headers import AUTHORIZATION, NO_HEADERS, BoundHeaders
from llama_load.outside.foreign_text import printable
from llama_load.outside.plain_http import (
    Answer,
    LateError,
    NoAnswerError,
    Session,
    request,
    tls_context,
)
from llama_load.servers.address import Address, parse_server_url
from llama_load.servers.api_location import MODELS, located
from llama_load.servers.apis import CHAT
from llama_load.servers.apis.api import Api
from llama_load.servers.counters import read_counters
from llama_load.servers.counts import TEMPLATE_ALLOWANCE
from llama_load.servers.empty_body import (
    NO_REQUEST,
    EmptyBodyAnswer,
    answer_to_nothing,
    json_or_none,
    own_words,
)
from llama_load.servers.json_fields import (
    abilities,
    count,
    fields,
    objects,
    settings,
    text,
)
from llama_load.servers.kinds import KINDS, kind_named
from llama_load.servers.kinds.server_kind import Signs
from llama_load.servers.model_list import (
    ListedModel,
    candidates,
    is_of_another_api,
    listed_models,
    lists_models,
)
from llama_load.servers.router import LOADED, RouterModels, chosen, is_router, of_model
from llama_load.servers.server_errors import describe_error, page_status
from llama_load.servers.side_by_side import side_by_side
from llama_load.servers.target import ServerFacts, Target
from llama_load.servers.template_tokens import script_counts, template_tokens
from llama_load.servers.tls import TlsOptions
from llama_load.servers.tokenize import (
    SAMPLE,
    NotCounted,
    ServerCounter,
    Tokenization,
    tokenization,
)
from llama_load.servers.wire_failure import tls_text

TIMEOUT_S = 10
# Of a model list, settings or a state. As JSON objects it can take 40 times as much memory.
MOST_BYTES = 4 << 20
OTHER_SCHEME_WITHIN_S = 5
# llama-cpp-python loads a model on its first request.
GENERATE_TIMEOUT_S = 120
# With these a path is there, though it lists nothing: a key is missing, or a model is loading.
ANSWERED = (401, 403, 500, 502, 503, 504)
# Of a longer list of models the person chooses: it is a catalogue, and each request may be paid.
MOST_LISTED = 8
# llama-server's sampling defaults that affect the length or the speed of answers.
# fmt: off
SAMPLING = (
    "temperature", "top_k", "top_p", "min_p", "repeat_penalty", "n_predict", "ignore_eos",
    "samplers", "reasoning_format", "speculative.types", "backend_sampling",
)
# fmt: on
# How a TLS port answers plain HTTP: with an alert, or by closing the connection.
_TLS_PERHAPS = (
    "it sends no HTTP answer",
    "it closed the connection without an answer",
    "connection reset by peer",
    "broken pipe",
)


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """The target as the user configured it; None where the server's own value is used."""

    url: str
    headers: BoundHeaders = NO_HEADERS
    backend: str | None = None
    models: tuple[str, ...] = ()
    reuse: bool | None = None
    # texts are generated; False: embedded, or ranked
    generates: bool = True
    tls: TlsOptions = field(default_factory=TlsOptions)


class Probe:
    """A control connection to one server."""

    def __init__(self, settings: ProbeSettings) -> None:
        """Raises UsageError when the URL is invalid or its name does not resolve."""
        try:
            address = parse_server_url(settings.url)
        except ValueError as error:
            raise UsageError(f"--host: {error}") from None
        try:
            self.location = located(address.resolved())
        except (socket.gaierror, UnicodeError) as error:
            raise UsageError(
                f"--host: the name {address.host!r} cannot be resolved: {error}"
            ) from None
        self.address = self.location.address
        self.settings = settings
        self.session = Session(settings.headers, settings.tls.context)
        self._tokens: Tokenization | None = None

    def get(
        self, path: str, *, needed: bool = True, place: Address | None = None
    ) -> tuple[int, Any]:
        """Status and JSON value (None if it is not JSON) of a GET, at the server's address or
        another place of it.

        Raises UsageError when the server cannot be reached, and for a redirect if the path is
        `needed`.
        """
        url = (place or self.address).url_of(path)
        try:
            response = self.session.get(url, within_s=TIMEOUT_S, most_bytes=MOST_BYTES)
        except LateError:
            # llama-server takes a TLS handshake for a request line and waits for its end.
            if self.address.scheme == "https":
                self._refuse_scheme("http")
            raise UsageError(f"{url} did not answer within {TIMEOUT_S} s") from None
        except NoAnswerError as error:
            if isinstance(error.__cause__, ssl.SSLError):
                raise UsageError(
                    f"{self.address.url}: {tls_text(error.__cause__)}"
                ) from None
            reason = _reason_of_silence(error)
            if reason in _TLS_PERHAPS:
                self._refuse_scheme("https")
            raise UsageError(
                f"cannot reach {self.address.url}: {reason}; is the server running there?"
            ) from None
        if response.status == 400 and needed:  # as nginx answers
            self._refuse_scheme("https")
        if 300 <= response.status < 400 and "location" in response.headers and needed:
            where = printable(response.headers["location"])
            raise UsageError(
                f"{url} redirects to {where}; set --host to the server's real address"
            )
        value = json_or_none(response)
        return page_status(response.status, value), value

    def _refuse_scheme(self, other: str) -> None:
        """Raises UsageError if the port answers by this scheme, and --host has not given it."""
        url = replace(self.address, scheme=other).url
        if other == self.address.scheme:
            return
        with suppress(NoAnswerError):
            request(
                "GET",
                f"{url}{MODELS}",
                within_s=OTHER_SCHEME_WITHIN_S,
                tls=partial(tls_context, insecure=True),
            )
            if other == "https":
                raise UsageError(
                    f"{self.address.url} speaks TLS; write {url}"
                ) from None
            raise UsageError(
                f"{self.address.url} does not answer the TLS handshake; does it speak plain "
                f"HTTP? Try {url}"
            ) from None

    def ask(self) -> Target:
        """Find out what the server is. Raises UsageError: unreachable, still loading, wrong key,
        unknown model."""
        signs = self._control_answers()
        listed = signs.listed
        load_s = self._loaded(listed) if is_router(signs.props) else {}
        all_props = [self._props_of(name) for name in load_s] or [dict(signs.props)]
        props = all_props[0]

        models = tuple(load_s) or self._models(listed)
        model = models[0] if models else None
        own = _entry_of(model, listed)
        self._tokens = tokenization(self.session, self.address.url, model)
        head, template = template_tokens(self._tokens)

        defaults = fields(props.get("default_generation_settings"))
        facts = ServerFacts(
            build=text(props.get("build_info"))
            or text((signs.version or signs.info).get("version")),
            model_path=text(props.get("model_path")),
            model_bytes=own.bytes,
            n_params=own.n_params,
            quantization=own.quantization or text(props.get("model_ftype")),
            modalities=abilities(props.get("modalities")),
            chat_template_sha256=_digest_or_none(props.get("chat_template")),
            sampling=settings(defaults.get("params"), SAMPLING),
            head_tokens=head,
            round_trip_ms=self.session.connected_in_ms,
        )
        signs = replace(
            signs, props=props, form=self._tokens.form if self._tokens else None
        )
        backend = self.settings.backend or next(
            name for name, kind in KINDS.items() if kind.is_shown_by(signs)
        )
        context = kind_named(backend).context(signs) or own.context
        slots = [count(each.get("total_slots")) or 0 for each in all_props]
        target = Target(
            address=self.address,
            backend=backend,
            model=model,
            models=models if len(models) > 1 else (),
            alternatives=self._alternatives(listed),
            other_counts=self._other_counts(models),
            headers=self.settings.headers,
            takes_tools=(abilities(props.get("chat_template_caps")) or {}).get(
                "supports_tools"
            ),
            slots=sum(slots) or None,
            slots_by_model=dict(zip(load_s, slots, strict=False)),
            ctx_per_slot=min(filter(None, map(_context, all_props)), default=context),
            template_tokens=template,
            can_sleep=any("is_sleeping" in each for each in all_props),
            load_s=load_s,
            facts=facts,
        )
        reuse = self.settings.reuse
        if reuse is None:
            reuse = target.kind.keeps_connections
        target = replace(target, reuse=reuse)

        counters = read_counters(target, self.settings.tls)
        if counters is None:
            return target
        facts = replace(facts, started_s=counters.started_s, uptime_s=counters.uptime_s)
        return replace(target, has_counters=True, facts=facts)

    def _props_of(self, model: str) -> dict[str, Any]:
        """The settings of a router's model."""
        _, props = self.get(of_model("/props", model))
        return fields(props)

    def _loaded(self, listed: list[ListedModel]) -> dict[str, float]:
        """Have a router load the models to test: seconds by name.

        UsageError: it is the user's choice which, or it cannot.
        """
        models = RouterModels(self.session, self.address.url)
        return models.load(
            chosen(self.address.url, self._named(listed), models.statuses())
        )

    def unloaded(self, before: Target) -> list[str]:
        """The models of a router that were loaded for the run and no longer are.

        UsageError: it does not answer.
        """
        if not before.load_s:
            return []
        statuses = RouterModels(self.session, self.address.url).statuses()
        return [name for name in before.load_s if statuses.get(name) not in LOADED]

    def _control_answers(self) -> Signs:
        """The answers of the server's control endpoints. Raises UsageError: not ready, wrong key,
        not an LLM server."""
        needs = {MODELS: True, "/props": False, "/version": False, "/info": False}
        answered = side_by_side(
            [partial(self.get, path, needed=needed) for path, needed in needs.items()]
        )
        (models_status, models), (props_status, props), version, info = answered
        is_elsewhere = not lists_models(models) and models_status not in ANSWERED
        if is_elsewhere or (
            is_of_another_api(models) and not self._answer_to_nothing().is_there
        ):
            models_status, models = self._find_apis(models_status, models)
        listed = listed_models(models) if models_status < 300 else []
        is_llama_server = any(model.owner == "llamacpp" for model in listed)
        for status, said in ((models_status, models), (props_status, props)):
            # llama-server lists its models while it loads them
            if status == 503 and (said is models or is_llama_server or not listed):
                self._refuse_unready(said)

        props_refused = props_status in (401, 403) and is_llama_server
        if models_status in (401, 403) or (
            props_refused and not self._takes_requests()
        ):
            # llama-server lists its models without a key; a gateway in front of it may hide
            # everything but the API.
            path = "/props"
            status = props_status
            words = own_words(props_status, props)
            if models_status in (401, 403):
                path = MODELS
                status = models_status
                words = own_words(models_status, models)
            said = f" (HTTP {status}{_in_words(words)})"
            raise self._without_access(self.address.url_of(path), said)
        signs = Signs(
            _fields_of(props_status, props),
            _fields_of(*version),
            _fields_of(*info),
            listed,
        )
        is_known = bool(signs.props) or bool(signs.info)
        if models_status >= 300 or not lists_models(models):
            self._refuse_unlisted(models_status, models, known=is_known)
        elif (
            not (listed or self.settings.models or is_known)
            and self._answer_to_nothing().needs_a_model
        ):
            raise UsageError(
                f"{self.address.url} lists no model; load one there, or name it with --model"
            )
        return signs

    def _find_apis(self, status: int, models: object) -> tuple[int, object]:
        """Look for the APIs where the URL does not say where they are, and use them from there.

        Status and value of their list of models; those given where there is none.
        """
        places = list(self.location.places())
        for place in places[1:]:
            its_status, its_models = self.get(MODELS, needed=False, place=place)
            if lists_models(its_models) or its_status in (401, 403):
                self.address = place
                return its_status, its_models
        for place in places:
            if self._answer_to_nothing(place).is_there:
                self.address = place
                return status, models

        others = list(self.location.elsewhere())
        lists = side_by_side([partial(self._listed_at, place) for place in others])
        for place, found in zip(others, lists, strict=True):
            if found is not None:
                self.address = place
                return 200, found
        return status, models

    def _listed_at(self, place: Address) -> object:
        """The list of models there; None: there is none."""
        with suppress(UsageError):
            _, models = self.get(MODELS, needed=False, place=place)
            return models if lists_models(models) else None
        return None

    def _refuse_unready(self, said: object) -> None:
        words = ""
        if said:
            words = describe_error(msgspec.json.encode(said))
            words = f" ({words})"
        raise UsageError(
            f"{self.address.url} is not ready{words}; wait until it has loaded its model"
        )

    def counter(self) -> ServerCounter:
        """The server's token counting, if `ask` has found any, else an estimate."""
        return ServerCounter(self._tokens)

    def with_learned_template(self, target: Target) -> Target:
        """The target with the tokens of its chat template.

        Prompt tokens of a one-token answer - tokens of the text. For llama-cpp-python, which
        reports neither its template nor usage in streams. Unchanged where that fails, or with
        several models, whose templates may differ.
        """
        tokens = self._tokens
        if target.template_tokens is not None or tokens is None or target.models:
            return target
        message = {"role": "user", "content": SAMPLE}
        body = {
            "model": target.model,
            "messages": [message],
            "max_tokens": 1,
            "stream": False,
        }
        try:
            url = self.address.url_of(CHAT.path)
            answer = self.session.post(url, body, within_s=GENERATE_TIMEOUT_S)
            usage = fields(fields(answer.json()).get("usage"))
            whole = count(usage.get("prompt_tokens"))
            (bare,) = tokens.count([SAMPLE])
        except (NoAnswerError, ValueError, NotCounted):
            return target
        if whole is None or not bare <= whole <= bare + TEMPLATE_ALLOWANCE:
            return target
        return replace(target, template_tokens=whole - bare)

    def _answer_to_nothing(self, place: Address | None = None) -> EmptyBodyAnswer:
        """Of the APIs at the server's address, or at another place of it."""
        return answer_to_nothing(self.session, place or self.address, TIMEOUT_S)

    def _takes_requests(self) -> bool:
        said = self._answer_to_nothing()
        return said.is_there and not said.refuses_the_key

    def doubt_about_texts(self, api: Api, body: Mapping[str, Any]) -> str:
        """Why the server cannot embed or rank the texts of this body as they are meant; "" where
        it can, or does not answer in time. UsageError: it was started without this API.

        llama-server answers HTTP 501 and names the flag.
        """
        url = self.address.url_of(api.path)
        try:
            answer = self.session.post(url, body, within_s=TIMEOUT_S)
        except NoAnswerError:
            return ""
        words = describe_error(answer.content)
        if answer.status == 501:
            raise UsageError(f"{self.address.url}: {words}")
        if not answer.ok:
            return f"refused: {words}"
        if _has_vectors_of_tokens(answer):
            return "embedded by a vector for each of its tokens: the model does not pool them"
        return ""

    def _without_access(self, url: str, said: str) -> UsageError:
        """That this URL wants a key, or another one. `said`: the server's own words."""
        names = [name.lower() for name, _ in self.settings.headers.fields]
        what = "wants a key, and none was given"
        if AUTHORIZATION.lower() in names:
            what = "refuses the key"
        return UsageError(f"{url} {what}{said}; set --api-key or LLAMA_LOAD_API_KEY")

    def _refuse_unlisted(self, status: int, listed: object, *, known: bool) -> None:
        """Raises UsageError where /v1/models is missing, or says this, and nothing else shows a
        model."""
        if known and status == 404:
            return
        url = self.address.url
        said = self._answer_to_nothing()
        if said.refuses_the_key:
            raise self._without_access(url, _in_words(said.words))
        words = own_words(status, listed)
        answers = f"answers HTTP {status}{_in_words(words)}"
        models_path = self.address.path_of(MODELS)
        lists = f"{models_path} {answers}"
        api_path = self.address.path_of(CHAT.path)
        asks = f"{api_path} answers HTTP {said.status}"
        asks += _in_words(said.words)
        if said.needs_a_model and not self.settings.models:
            both = lists if said.status in NO_REQUEST else f"{lists}, {asks}"
            raise UsageError(
                f"{url} does not list its models ({both}); name one with --model"
            )
        if said.is_there or (status == 404 and self._is_healthy()):
            return
        if status in (200, 404):
            raise UsageError(
                f"no API of an LLM server is found at {url} ({lists}, {asks}); give the URL at "
                "which its API is"
            )
        raise UsageError(
            f"{self.address.url_of(MODELS)} {answers}; is this an OpenAI-compatible server?"
        )

    def _is_healthy(self) -> bool:
        """Whether /health says so, where nothing else is known. UsageError: it says that the
        server is not ready."""
        status, said = self.get("/health", needed=False)
        if status == 503:
            self._refuse_unready(said)
        return status == 200

    def _models(self, listed: list[ListedModel]) -> tuple[str, ...]:
        """The models to request: those of --model, else the first of those that may be meant, if
        any. UsageError: those are many, so that the person has to choose."""
        named = self._named(listed)
        if named:
            return named
        meant = candidates(listed, generates=self.settings.generates)
        if len(meant) > MOST_LISTED:
            names = ", ".join(each.name for each in meant[:MOST_LISTED])
            raise UsageError(
                f"{self.address.url} lists {len(meant)} models; name the one to test with "
                f"--model, such as {names}"
            )
        return tuple(each.name for each in meant[:1])

    def _alternatives(self, listed: list[ListedModel]) -> int:
        """How many other models it lists that may be meant; 0 where --model says which."""
        if self.settings.models:
            return 0
        return len(candidates(listed, generates=self.settings.generates)[1:])

    def _named(self, listed: list[ListedModel]) -> tuple[str, ...]:
        """The models of --model. UsageError: the server does not list one of them."""
        known = [
            name
            for each in listed
            for name in dict.fromkeys((each.name, *each.aliases))
        ]
        for name in self.settings.models:
            if known and name not in known:
                raise UsageError(
                    f"{self.address.url} does not serve a model {name!r}; it has {', '.join(known)}"
                )
        for each in listed:
            same = [
                name
                for name in self.settings.models
                if name in (each.name, *each.aliases)
            ]
            if len(same) > 1:
                raise UsageError(
                    f"--model names one model of {self.address.url} twice: {' and '.join(same)}"
                )
        return self.settings.models

    def _other_counts(self, models: Sequence[str]) -> tuple[str, ...]:
        """The models that count a text or its chat template differently from the first one.

        Or of which that is not known.
        """
        tokens = self._tokens
        if tokens is None or len(models) < 2:
            return ()

        first = script_counts(tokens)
        others = []
        for name in models[1:]:
            its_tokens = Tokenization(self.session, self.address.url, tokens.form, name)
            if first is None or script_counts(its_tokens) != first:
                others.append(name)
        return tuple(others)


def _in_words(said: str) -> str:
    """What a server says, behind its status; nothing where it says nothing."""
    return f": {said}" if said else ""


def _fields_of(status: int, answer: object) -> dict[str, Any]:
    """The fields of a page's answer; none where the server has no such page."""
    return fields(answer) if status == 200 else {}


def _entry_of(model: str | None, listed: list[ListedModel]) -> ListedModel:
    """The entry of this model; one without facts if it is not listed."""
    for each in listed:
        if model in (each.name, *each.aliases):
            return each
    return ListedModel("", (), None, None)


def _context(props: dict[str, Any]) -> int | None:
    return count(fields(props.get("default_generation_settings")).get("n_ctx"))


def _digest_or_none(value: object) -> str | None:
    if not isinstance(value, str) or not value:
        return None
    return hashlib.sha256(value.encode()).hexdigest()


def _reason_of_silence(error: NoAnswerError) -> str:
    """Why there is no answer: the system's words, else ours."""
    cause = error.__cause__
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror.lower()
    return f"it {error}"


def _has_vectors_of_tokens(answer: Answer) -> bool:
    """Whether an answer has a list of vectors, one for each token, in place of a text's vector, as
    llama-cpp-python's has for models that do not pool."""
    try:
        entries = objects(fields(answer.json()).get("data"))
    except ValueError:
        return False
    vector = entries[0].get("embedding") if entries else None
    return isinstance(vector, list) and bool(vector) and isinstance(vector[0], list)
