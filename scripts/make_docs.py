"""Write what the documentation quotes from the code: docs/flags.md. (tests/test_docs.py holds it to that.)"""

from __future__ import annotations

from pathlib import Path

from llama_load.options.flags import FLAGS

REPOSITORY = Path(__file__).resolve().parent.parent
LOCUSTS = """\
## Locust's own flags

| flag | meaning here |
|---|---|
| `--host URL` | base URL of the server, such as `http://127.0.0.1:8080`; several with commas between them |
| `-u N` | number of users: in a closed loop the number of requests in flight |
| `-r N` | users started per second (default: all start at once) |
| `-t TIME` | length of the measurement (`90s`, `5m`), counted from the end of the warm-up |
| `--headless` | run without the web UI: print the report and exit |
| `--csv PREFIX`, `--html FILE` | Locust's own statistics, with rows for TTFT, TPOT and ITL |
"""


def flags_page() -> str:
    """docs/flags.md."""
    rows = []
    for flag in FLAGS:
        default = "off" if flag.switch else f"`{flag.default}`" if flag.default else ""
        rows.append(f"| `{flag.name}` | {flag.help_with_choices} | {default} | `LLAMA_LOAD_{flag.dest.upper()}` |")
    table = "\n".join(["| flag | meaning | default | environment |", "|---|---|---|---|", *rows])
    return (
        "# Flags\n\nEvery flag can be given on the command line of `locust`, in the environment, or in the form of the web UI.\n"
        "A flag that can be repeated takes several lines in the web UI. `llama-load flags` prints this list.\n\n"
        "Flags that `vllm bench serve` also has use its names. Three differ: `--backend` is the type of the server, and\n"
        "`--goodput` and `--header` take one text each (`--goodput 'ttft:500 tpot:50'`).\n\n"
        f"{table}\n\n{LOCUSTS}"
    )


if __name__ == "__main__":
    (REPOSITORY / "docs" / "flags.md").write_text(flags_page(), encoding="utf-8")
