"""Locust's own flags that the page has, and which depend on ours."""

from __future__ import annotations

from llama_load.loadgen.options.flag import ADVANCED, LOAD, SERVER, Flag, Kind, Role

OF_LOCUST = (
    Flag(
        "--host",
        Kind.SERVERS,
        SERVER,
        "",
        "base URL of the server, such as http://127.0.0.1:8080; several for replicas, separated "
        "by spaces",
        title="Server",
        first=1,
        role=Role.CONNECTION,
        also=("-H",),
    ),
    Flag(
        "-u",
        Kind.NUMBER,
        LOAD,
        "",
        "users, each with one request at a time: the maximum request concurrency of a closed loop",
        title="Users",
        page_help="each sends its next request when the previous one is answered",
        first=2,
        role=Role.LOAD,
        also=("--users",),
        attribute="num_users",
    ),
    Flag(
        "-r",
        Kind.NUMBER,
        ADVANCED,
        "",
        "users to start per second (default: all at once)",
        title="Users to start per second",
        also=("--spawn-rate",),
        attribute="spawn_rate",
    ),
    Flag(
        "-t",
        Kind.EXPRESSION,
        LOAD,
        "",
        "time limit, counted from the end of the warm-up, such as 90s, 10m or 1h30m (default: "
        "none)",
        title="Time limit",
        page_help="such as 90s, 10m or 1h30m, counted from the end of the warm-up",
        first=6,
        role=Role.AMOUNT,
        also=("--run-time",),
        attribute="run_time",
    ),
)
