"""The flags of the traffic: conversations, documents, images, mixtures, synthetic prompts."""

from __future__ import annotations

from llama_load.ground.errors import UsageError
from llama_load.loadgen.options.flag_limits import (
    MOST_PARTS,
    MOST_REQUESTS,
    MOST_TOKENS,
)
from llama_load.loadgen.options.flag_reader import FlagReader
from llama_load.loadgen.options.sections.prompt_section import (
    ALL,
    DEFAULT_SIZE,
    RECORDED,
)
from llama_load.loadgen.workloads.agent import MOST_TOOLS
from llama_load.loadgen.workloads.images import MAX_SIDE, MIN_SIDE
from llama_load.loadgen.workloads.prompt_plan import AgentShape, Traffic
from llama_load.loadgen.workloads.think_time import ThinkTime, think_time


def read_traffic(flags: FlagReader) -> Traffic:
    """The flags that describe prompts. Faults go to the reader."""
    text = flags.text
    number = flags.number
    chosen = flags.chosen
    default = Traffic()
    return Traffic(
        turns=_turns_flag(flags),
        limits_turns=text("turns") is not None,
        generated_history=chosen("history") != RECORDED,
        system_prompt=text("system_prompt"),
        think_time=_think_time(text("think_time"), flags.faults),
        speed=number("speed", float, 0, above=True) or 1.0,
        document=flags.path("document"),
        document_tokens=number("document_tokens", int, 1, most=MOST_TOKENS),
        document_cache=chosen("document_cache") or default.document_cache,
        question=text("question"),
        images=text("images"),
        image_size=_image_size(text("image_size") or "", flags.faults),
        image_format=chosen("image_format") or default.image_format,
        images_per_request=number("images_per_request", int, 1, most=MOST_PARTS) or 1,
        weights=_weights(text("weights") or "", flags.faults),
        categories=tuple(_words(text("category") or "")),
        columns=_columns(text("columns") or "", flags.faults),
        agent=_agent(flags),
        batch_size=number("batch_size", int, 1, most=MOST_PARTS) or 1,
        input_len=number("input_len", int, 1, most=MOST_TOKENS),
        range_ratio=number("range_ratio", float, 0, most=1) or 0.0,
        prefix_len=number("prefix_len", int, 0, most=MOST_TOKENS) or 0,
        num_prefixes=number("num_prefixes", int, 1, most=MOST_REQUESTS) or 1,
    )


def _turns_flag(flags: FlagReader) -> int | None:
    """None: all of each conversation."""
    if flags.text("turns") == ALL:
        return None
    return flags.number("turns", int, 1, other=ALL, most=MOST_PARTS) or 1


def _words(text: str) -> list[str]:
    """What stands between commas."""
    parts = [part.strip() for part in text.split(",")]
    return [part for part in parts if part]


def _agent(flags: FlagReader) -> AgentShape:
    number = flags.number
    default = AgentShape()
    tools = number("tools", int, 0, most=MOST_TOOLS)
    return AgentShape(
        rounds=number("rounds", int, 1, most=MOST_PARTS),
        system_tokens=number("system_tokens", int, 1, most=MOST_TOKENS),
        tools=default.tools if tools is None else tools,
        tool_output_tokens=number("tool_output_tokens", int, 1, most=MOST_TOKENS),
        tool_time=_think_time(flags.text("tool_time"), flags.faults, "--tool-time"),
        sub_agents=number("sub_agents", int, 0, most=MOST_PARTS) or 0,
    )


def _think_time(
    given: str | None, faults: list[str], flag: str = "--think-time"
) -> ThinkTime | None:
    if given is None:
        return None
    try:
        return think_time(given, flag)
    except UsageError as error:
        faults.append(str(error))
        return None


def _image_size(given: str, faults: list[str]) -> tuple[int, int]:
    width, _, height = (given or DEFAULT_SIZE).lower().partition("x")
    if width.isdecimal() and height.isdecimal():
        sides = int(width), int(height)
        if min(sides) >= MIN_SIDE and max(sides) <= MAX_SIDE:
            return sides
    faults.append(
        f"--image-size must be WIDTHxHEIGHT, such as 1280x720, {MIN_SIDE} to {MAX_SIDE} pixels "
        f"each, got {given!r}"
    )
    return MIN_SIDE, MIN_SIDE


def _weights(given: str, faults: list[str]) -> dict[str, float]:
    weights = {}
    for part in _words(given):
        name, _, share = part.replace(":", "=").partition("=")
        try:
            weight = float(share)
        except ValueError:
            weight = -1.0
        weights[name.strip()] = weight
        if not 0 <= weight < 1e9:
            faults.append(f"--weights must look like document=3,vision=1, got {part!r}")
    if weights and not any(weights.values()):
        faults.append("--weights must give at least one task more than 0")
    return weights


def _columns(given: str, faults: list[str]) -> dict[str, str]:
    """What is read, and the column that it is read from. A column may have any name without a
    comma."""
    columns = {}
    for part in _words(given):
        name, equals, column = part.partition("=")
        columns[name.strip()] = column.strip()
        if not (equals and name.strip() and column.strip()):
            faults.append(
                f"--columns must look like prompt=text,max_tokens=len, got {part!r}"
            )
    return columns
