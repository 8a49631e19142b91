"""Where a server has its APIs: what a URL says of it, and the other places to look.

OpenAI's clients take a base URL that ends in /v1 or in another path, other tools the URL of one
API; gateways have their APIs below a path of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from llama_load.servers.address import API_ROOT, Address
from llama_load.servers.apis import APIS
from llama_load.servers.apis.api import Api

MODELS = f"{API_ROOT}/models"
# Where else APIs are found, below a URL at which there are none: KServe, TensorZero, Groq and
# Azure; OpenRouter; Open WebUI; Gemini; Ark; Qwen's cloud; DeepInfra; Fireworks; Docker's model
# runner; GLM's cloud; Cohere; Llama Stack.
ELSEWHERE = (
    "/openai/v1",
    "/api/v1",
    "/api",
    "/v1beta/openai",
    "/api/v3",
    "/compatible-mode/v1",
    "/v1/openai",
    "/inference/v1",
    "/engines/v1",
    "/api/paas/v4",
    "/compatibility/v1",
    "/v1/openai/v1",
)


@dataclass(frozen=True, slots=True)
class Location:
    """What a URL says of where the APIs are.

    `address`: the server's own, with where its APIs are if that is certain; `api`: the one whose
    URL it was.
    """

    address: Address
    is_certain: bool
    api: Api | None = None

    def places(self) -> Iterator[Address]:
        """Where the APIs may be, the likeliest first."""
        yield self.address
        if not self.is_certain and self.address.base_path:
            yield replace(self.address, api_root="")

    def elsewhere(self) -> Iterator[Address]:
        """Where they are on other servers."""
        if self.is_certain:
            return
        for path in ELSEWHERE:
            base = self.address.base_path + path.removesuffix(API_ROOT)
            root = API_ROOT if path.endswith(API_ROOT) else ""
            yield replace(self.address, base_path=base, api_root=root)


def located(address: Address) -> Location:
    """The server and its APIs, of a URL as people give it: that of the server, that of its APIs
    (…/v1), or that of one API (…/v1/chat/completions)."""
    path = address.base_path
    apis: dict[str, Api | None] = {MODELS.removeprefix(API_ROOT): None, "": None}
    for api in APIS.values():
        apis[api.path.removeprefix(API_ROOT)] = api

    ending = max(filter(path.endswith, apis), key=len)
    named = apis[ending]
    path = path.removesuffix(ending).rstrip("/")
    is_native = named is not None and not named.path.startswith(API_ROOT)
    root = API_ROOT
    is_certain = bool(ending) and not is_native
    if path.endswith(API_ROOT):
        path = path.removesuffix(API_ROOT).rstrip("/")
        is_certain = True
    elif is_certain:
        root = ""
    base = replace(address, base_path=path, api_root=root)
    return Location(base, is_certain, named)
