"""Keys and access."""

from __future__ import annotations

from llama_load.loadgen.options.flag import ADVANCED, SERVER, Flag, Kind, Role

ACCESS_FLAGS = (
    Flag(
        "--swarm-key",
        Kind.SECRET,
        None,
        "",
        "shared key of master and workers, at least 16 characters; safer in the environment as "
        "LLAMA_LOAD_SWARM_KEY (default: "
        "--processes generates one)",
        begins="Keys and access",
    ),
    Flag(
        "--web-token",
        Kind.SECRET,
        None,
        "",
        "token that the web page, /metrics there and --metrics-port ask for, at least 16 "
        "characters; safer in the environment as "
        "LLAMA_LOAD_WEB_TOKEN (default: a new one, printed in the page's URL)",
    ),
    Flag(
        "--ui-folder",
        Kind.FOLDER,
        None,
        "",
        "folder that must contain the paths given in the web UI (default: the working directory)",
        role=Role.REPORT,
    ),
    Flag(
        "--api-key",
        Kind.SERVER_KEY,
        SERVER,
        "",
        "API key, sent as a Bearer token; safer in the environment as LLAMA_LOAD_API_KEY",
        title="API key",
        role=Role.CONNECTION,
    ),
    Flag(
        "--ca-file",
        Kind.INPUT,
        ADVANCED,
        "",
        "PEM file of the CA certificates to trust for https:// (default: the system's)",
        title="CA certificates",
        role=Role.CONNECTION,
    ),
    Flag(
        "--insecure",
        Kind.SWITCH,
        ADVANCED,
        "",
        "do not verify the server's certificate for https://",
        title="Do not verify certificates",
        role=Role.CONNECTION,
    ),
)
