"""Write what the documentation quotes from the code: docs/flags.md. (tests/test_docs.py holds it to that.)"""

from __future__ import annotations

from pathlib import Path

from llama_load.options.flags import FLAGS

REPOSITORY = Path(__file__).resolve().parent.parent
LOCUSTS = """\
| Locust's own | meaning here |
|---|---|
| `--host URL` | base URL of the server, such as `http://127.0.0.1:8080` |
| `-u N` | users, which in a closed loop is the number of requests in flight |
| `-r N` | users started per second; without it all start at once |
| `-t TIME` | length of the measurement (`90s`, `5m`), counted from the end of the warm-up |
| `--headless` | no web UI: run, print, exit |
| `--csv PREFIX`, `--html FILE` | Locust's own statistics, with rows for TTFT, TPOT and ITL |
"""


def flags_page() -> str:
    """docs/flags.md."""
    rows = []
    for flag in FLAGS:
        choices = f" ({', '.join(choice for choice in flag.choices if choice)})" if flag.choices else ""
        default = "off" if flag.switch else f"`{flag.default}`" if flag.default else ""
        rows.append(f"| `{flag.name}` | {flag.help}{choices} | {default} | `LLAMA_LOAD_{flag.dest.upper()}` |")
    table = "\n".join(["| flag | meaning | default | environment |", "|---|---|---|---|", *rows])
    return (
        "# Flags\n\nAll of these work on the command line of `locust`, as environment variables, and in the form of the web UI.\n"
        "Flags that may be given several times take several lines there.\n"
        "Names are those of `vllm bench serve` where it has the like; `--backend` differs (here: what the server is), and\n"
        "`--goodput` and `--header` take one text each (`--goodput 'ttft:500 tpot:50'`).\n\n"
        f"{table}\n\n{LOCUSTS}"
    )


if __name__ == "__main__":
    (REPOSITORY / "docs" / "flags.md").write_text(flags_page(), encoding="utf-8")
