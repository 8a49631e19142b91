"""Ask a server what it is, over its control endpoints. Asks, never generates.

/health, /v1/models, /props (llama-server), /version (vLLM), /tokenize and /apply-template. Speed does not matter here,
so this is plain `requests`.
"""

from __future__ import annotations

import hashlib
import socket
import ssl
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import requests

from llama_load.errors import UsageError
from llama_load.targets.control import control_session, json_of
from llama_load.targets.counters import read_counters
from llama_load.targets.documents import ListedModel, count, fields, listed_models, text
from llama_load.targets.failures import describe_error
from llama_load.targets.target import LLAMA_CPP_PYTHON, LLAMA_SERVER, OPENAI, VLLM, Target
from llama_load.targets.tokenize import ServerCounter
from llama_load.wire.address import Address, parse_url
from llama_load.wire.errors import tls_text
from llama_load.wire.tls import TlsOptions

TIMEOUT_S = 10
TLS_TIMEOUT_S = 5
# Of llama-server's sampling defaults those that change how long or how fast it answers.
SAMPLING = (
    *("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "n_predict", "ignore_eos", "samplers"),
    *("reasoning_format", "speculative.types", "backend_sampling"),
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user said about the target; None where the server is to be asked."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    backend: str | None = None
    models: tuple[str, ...] = ()
    reuse: bool | None = None
    tls: TlsOptions = field(default_factory=TlsOptions)


class Probe:
    """A control connection to one server."""

    def __init__(self, wanted: Wanted) -> None:
        """Raises UsageError when the URL is none or its name does not resolve."""
        try:
            address = parse_url(wanted.url)
        except ValueError as error:
            raise UsageError(f"--host: {error}") from None
        # Many tools want the base URL with /v1; every path of ours brings it.
        address = replace(address, base_path=address.base_path.removesuffix("/v1"))
        try:
            self.address = address.resolved()
        except (socket.gaierror, UnicodeError) as error:
            raise UsageError(f"--host: the name {address.host!r} cannot be resolved: {error}") from None
        if address.scheme == "https":
            _handshake(address, wanted.tls)
        self.wanted = wanted
        self.session = control_session(wanted.headers, wanted.tls)

    def get(self, path: str, *, needed: bool = True) -> tuple[int, Any]:
        """Status and JSON value (None if it is no JSON) of a GET. Raises UsageError when the server cannot be reached, and
        for a redirect if the path is `needed`."""
        url = self.address.url + path
        try:
            response = self.session.get(url, timeout=TIMEOUT_S)
        except requests.Timeout:
            raise UsageError(f"{url} did not answer within {TIMEOUT_S} s") from None
        except requests.RequestException as error:
            raise UsageError(f"cannot reach {self.address.url}: {_reason(error)}; is the server running there?") from None
        if response.is_redirect and needed:
            where = response.headers["location"]
            raise UsageError(f"{url} redirects to {where}; point --host at where the server really is")
        try:
            return response.status_code, json_of(response)
        except ValueError:
            return response.status_code, None

    def ask(self) -> Target:
        """Find out what the server is. Raises UsageError: unreachable, still loading, wrong key, unknown model."""
        status, health = self.get("/health", needed=False)
        if status == 503:
            said = f" ({describe_error(msgspec.json.encode(health))})" if health else ""
            raise UsageError(f"{self.address.url} is not ready{said}; wait until it has loaded its model")
        models_status, models = self.get("/v1/models")
        props_status, props = self.get("/props", needed=False)
        version_status, version = self.get("/version", needed=False)
        listed = listed_models(models)
        # llama-server lets everybody list its models; a gateway may hide everything else.
        asked = {"/v1/models": models_status} | ({"/props": props_status} if _is_llama_server(listed) else {})
        for path, answer in asked.items():
            if answer in (401, 403):
                raise UsageError(f"{self.address.url}{path} refuses the key (HTTP {answer}); set --api-key or LLAMA_LOAD_API_KEY")
        if models_status >= 300 and models_status != 404:
            raise UsageError(f"{self.address.url}/v1/models answers HTTP {models_status}; is this an OpenAI-compatible server?")
        props = fields(props) if props_status == 200 else {}
        version = fields(version) if version_status == 200 else {}
        if models_status == 404 and status != 200 and not props:
            raise UsageError(f"nothing at {self.address.url} looks like an LLM server: /v1/models and /health are not found there")
        backend = self.wanted.backend or _backend(props, version, listed)
        models = self._models(listed)
        model = models[0] if models else None
        settings = fields(props.get("default_generation_settings"))
        context = count(settings.get("n_ctx")) or next((each.context for each in listed if each.name == model), None)
        head, template = self._template_tokens(backend, model)
        chat_template = text(props.get("chat_template"))
        sampling = {name: value for name, value in fields(settings.get("params")).items() if name in SAMPLING}
        about = {
            "url": self.address.url,
            "backend": backend,
            "build": text(props.get("build_info")) or text(version.get("version")),
            "model": model,
            "models": fields(models).get("data"),
            "model_path": text(props.get("model_path")),
            "slots": count(props.get("total_slots")),
            "ctx_per_slot": context,
            "modalities": props.get("modalities"),
            "chat_template_sha256": hashlib.sha256(chat_template.encode()).hexdigest() if chat_template else None,
            "sampling": sampling or None,
            "head_tokens": head,
            "template_tokens": template,
        }
        target = Target(
            address=self.address,
            backend=backend,
            model=model,
            models=models if len(models) > 1 else (),
            headers=self.wanted.headers,
            slots=count(props.get("total_slots")),
            ctx_per_slot=context,
            template_tokens=template,
            about=about,
        )
        counters = read_counters(target, self.wanted.tls)
        if counters is not None:
            about |= {"started_s": counters.started_s, "uptime_s": counters.uptime_s}
        return replace(
            target,
            reuse=target.keeps_connections if self.wanted.reuse is None else self.wanted.reuse,
            has_counters=counters is not None,
        )

    def counter(self, target: Target) -> ServerCounter | None:
        """The server's own token counting, if servers of this kind have one."""
        if not ServerCounter.offered_by(target.backend):
            return None
        return ServerCounter(self.session, self.address.url, target.backend, target.model)

    def _models(self, listed: list[ListedModel]) -> tuple[str, ...]:
        """The models to ask for: those that the user named, else the first that the server lists, if it lists any."""
        known = [name for each in listed for name in dict.fromkeys((each.name, *each.aliases))]
        for name in self.wanted.models:
            if known and name not in known:
                raise UsageError(f"{self.address.url} does not serve a model {name!r}; it has {', '.join(known)}")
        return self.wanted.models or tuple(known[:1])

    def _template_tokens(self, backend: str, model: str | None) -> tuple[int | None, int | None]:
        """What the server's chat template puts before a question, and in all around it, in tokens; None where it does not tell."""
        question = "question"
        messages = [{"role": "user", "content": question}]
        counter = ServerCounter(self.session, self.address.url, backend, model)
        try:
            if backend == VLLM:
                return None, max(0, counter.count_messages(messages) - counter.count([question])[0])
            if backend == LLAMA_SERVER:
                url = self.address.url + "/apply-template"
                prompt = json_of(self.session.post(url, json={"messages": messages}, timeout=TIMEOUT_S))["prompt"]
                head, whole, bare = counter.count([prompt.rpartition(question)[0], prompt, question])
                return head, max(0, whole - bare)
        except (requests.RequestException, ValueError, KeyError, TypeError, AttributeError, UsageError):
            pass
        return None, None


def _is_llama_server(listed: list[ListedModel]) -> bool:
    return any(each.owner == "llamacpp" for each in listed)


def _backend(props: dict[str, Any], version: dict[str, Any], listed: list[ListedModel]) -> str:
    owners = {each.owner for each in listed}
    if "total_slots" in props or _is_llama_server(listed):
        return LLAMA_SERVER
    if "vllm" in owners or ("version" in version and any(each.context for each in listed)):
        return VLLM
    return LLAMA_CPP_PYTHON if owners == {"me"} else OPENAI


def _handshake(address: Address, tls: TlsOptions) -> None:
    """Shake hands once, so that what is wrong with TLS is told in a sentence of its own."""
    try:
        with (
            socket.create_connection((address.host, address.port), TLS_TIMEOUT_S) as plain,
            tls.context().wrap_socket(plain, server_hostname=address.host),
        ):
            return
    except ssl.SSLError as error:
        raise UsageError(f"{address.url}: {tls_text(error)}") from None
    except TimeoutError:
        # llama-server waits for the end of what it takes for a request line.
        plain_url = address.url.replace("https://", "http://", 1)
        raise UsageError(f"{address.url} does not answer the TLS handshake; does it speak plain HTTP? Try {plain_url}") from None
    except OSError as error:
        raise UsageError(
            f"cannot reach {address.url}: {(error.strerror or str(error)).lower()}; is the server running there?"
        ) from None


def _reason(error: Exception) -> str:
    """The innermost cause in words: requests wraps it in three layers of repr."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror and not isinstance(cause, requests.RequestException):
            return cause.strerror.lower()
        cause = cause.__cause__ or cause.__context__
    text = str(error)
    if "Connection refused" in text:
        return "connection refused"
    if "BadStatusLine" in text:
        return "what answers there speaks no HTTP"
    return text if len(text) < 160 else text[:160] + "…"
