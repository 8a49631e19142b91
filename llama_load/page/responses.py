"""What the routes of our page answer with, and what they take: pages with a policy, JSON, files
that may be a stranger's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from flask import Blueprint, Response, abort, render_template, request

from llama_load.ground.errors import LlamaLoadError
from llama_load.outside.foreign_json import decode_foreign
from llama_load.outside.foreign_text import printable
from llama_load.page.assets import asset
from llama_load.page.run_files import FILES, REPORT

# Our pages run our scripts and nothing else. (Bokeh writes style attributes and elements.)
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self' data:; frame-ancestors 'self'; form-action 'self'; base-uri 'none'"
)
# A report is a file with scripts, perhaps a stranger's: it runs them in a frame with a separate
# origin. The policy of the file cannot forbid `location = …`; that of the page around it can: its
# frame loads nothing from other places.
VIEW_POLICY = f"{POLICY}; frame-src 'self'"
REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads; webrtc 'block'; default-src 'none'; "
    "script-src 'unsafe-inline' 'unsafe-eval' blob:; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; frame-ancestors 'self'; form-action 'none'; "
    "base-uri 'none'"
)
NO_STORE = {"Cache-Control": "no-store"}

View = Callable[..., Any]
Route = Callable[..., Callable[[View], View]]


def routes(pages: Blueprint, guarded: Callable[[View], View]) -> Route:
    """A decorator that adds a view: `@route(path, *methods)`. `guarded` puts Locust's login before
    it."""

    def route(path: str, *methods: str) -> Callable[[View], View]:
        def add(view: View) -> View:
            pages.add_url_rule(
                path, view.__name__, guarded(view), methods=list(methods or ("GET",))
            )
            return view

        return add

    return route


def page(template: str, here: str, policy: str = POLICY, **values: Any) -> Response:
    """One of our pages. `here`: the entry of its navigation."""

    def url(name: str) -> str:
        file = asset(name)
        return f"{root}/assets/{name}?{file.version if file else ''}"

    root = request.path[: request.path.index("/llm") + len("/llm")]
    text = render_template(
        f"llm_{template}.html", root=root, here=here, asset=url, **values
    )
    headers = {
        "Content-Security-Policy": policy,
        **NO_STORE,
        "Referrer-Policy": "same-origin",
    }

    return Response(text, content_type="text/html; charset=utf-8", headers=headers)


def json(value: Any, status: int = 200) -> Response:
    """A JSON value; a dataclass is an object."""
    return Response(
        msgspec.json.encode(value),
        status,
        content_type="application/json",
        headers=NO_STORE,
    )


def done(what: Callable[[], object]) -> Response:
    """Do it: no fault, or the sentence of why it cannot be done."""
    try:
        what()
    except (LlamaLoadError, OSError) as error:
        return json({"fault": printable(str(error), None)}, 422)
    return json({"fault": None})


def posted() -> dict[str, Any]:
    """The body of a POST: JSON, which no form of another page can send."""
    if request.mimetype != "application/json":
        abort(415, "send JSON")

    try:
        body = decode_foreign(request.get_data() or b"{}")  # WebGuard limits its length
    except ValueError:
        abort(400, "that is not JSON")

    if not isinstance(body, dict):
        abort(400, "send a JSON object")

    return body


def is_in_frame() -> bool:
    """Whether a request for a report comes from the frame of our page: a tab would let its scripts
    go to other places."""
    return (
        "framed" in request.args
        and request.headers.get("Sec-Fetch-Dest", "iframe") == "iframe"
    )


def foreign_file(
    content: Any, name: str = REPORT, *, is_download: bool = False
) -> Response:
    """A file that may be a stranger's, in its frame or as a download. `content`: its bytes, or
    pieces of them."""
    headers = {
        "Content-Security-Policy": REPORT_POLICY,
        **NO_STORE,
        "X-DNS-Prefetch-Control": "off",
    }
    if is_download:
        headers["Content-Disposition"] = f"attachment; filename={name}"

    # what is passed through is not searched for keys: it is as the run wrote it
    is_whole = isinstance(content, str | bytes)

    return Response(
        content,
        content_type=FILES.get(name, FILES[REPORT]),
        headers=headers,
        direct_passthrough=not is_whole,
    )
