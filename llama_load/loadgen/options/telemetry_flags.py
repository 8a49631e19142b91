"""The flags of telemetry as values."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from llama_load.loadgen.options.flag_reader import FlagReader
from llama_load.loadgen.options.sections.result_section import DEFAULT_INTERVAL_S
from llama_load.loadgen.schedule.segments import LONGEST_S
from llama_load.servers.address import parse_url

# Shorter intervals cost more than they show: NVML averages power and utilisation over 0.1 s to 1 s.
LEAST_INTERVAL_S = 0.1
METRICS_PATH = "/metrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryOptions:
    """`interval_s`: 0 for no telemetry; `scrape`: whole URLs of pages of metrics; `power_command`:
    an argument list."""

    interval_s: float
    scrape: tuple[str, ...]
    scrape_token: str | None
    power_command: tuple[str, ...]


def read_telemetry(flags: FlagReader) -> TelemetryOptions:
    """The options; faults go to the reader."""
    given = flags.number("telemetry_interval", float, 0, most=LONGEST_S)
    if given is not None and 0 < given < LEAST_INTERVAL_S:
        flags.faults.append(
            f"--telemetry-interval must be 0 or at least {LEAST_INTERVAL_S:g} s, got {given:g}"
        )
    token = flags.text("scrape_token")
    if token is not None and not (token.isascii() and token.isprintable()):
        flags.faults.append(
            "--scrape-token contains characters that cannot be sent in a header"
        )
    return TelemetryOptions(
        interval_s=DEFAULT_INTERVAL_S if given is None else given,
        scrape=tuple(dict.fromkeys(flags.parsed("scrape", metrics_url, words=True))),
        scrape_token=token,
        power_command=power_command(flags.text("power_command"), flags.faults),
    )


def metrics_url(text: str) -> str:
    """The URL of a page of metrics; without a path that is /metrics. Raises ValueError with a
    message for users."""
    try:
        address = parse_url(text)
    except ValueError as error:
        fault = str(error).replace("--api-key or --header", "--scrape-token")
        raise ValueError(f"--scrape: {fault}") from None
    return address.url if address.base_path else address.url + METRICS_PATH


def power_command(text: str | None, faults: list[str]) -> tuple[str, ...]:
    """The words of a command, as a shell would split it."""
    try:
        return tuple(shlex.split(text or ""))
    except ValueError as error:
        faults.append(
            f"--power-command cannot be split into words ({error}): check its quotes"
        )
        return ()
