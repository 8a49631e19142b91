"""Before the run: does what was asked fit the server? As rows of a table, for the screen, the report and run.json."""

from __future__ import annotations

from collections.abc import Callable

from llama_load.runs import PreflightRow
from llama_load.targets.body import CHAT
from llama_load.targets.target import Target
from llama_load.workloads.prompt import Plan

# Used where the server does not tell its chat template: templates of today's models add 10 to 40 tokens.
GUESSED_TEMPLATE_TOKENS = 40


def fits_slot(
    target: Target, endpoint: str, *, max_tokens: int | None = None, prefix_tokens: int = 0
) -> Callable[[int, int], bool] | None:
    """Whether a prompt of so many tokens and its answer fit the context of a slot; None if the context is not known.

    prefix + template + prompt + answer <= context per slot. `-c` of llama-server is divided by its slots: 4096 over 16 slots
    leaves 256 tokens a request. `max_tokens` is the answer's length if a flag sets it, whatever the prompt's own.
    """
    context = target.ctx_per_slot
    if context is None:
        return None
    overhead = prefix_tokens
    if endpoint == CHAT:
        overhead += GUESSED_TEMPLATE_TOKENS if target.template_tokens is None else target.template_tokens
    return lambda prompt_tokens, output_tokens: prompt_tokens + overhead + (max_tokens or output_tokens) <= context


def target_rows(target: Target, users: int | None) -> list[PreflightRow]:
    """What the server said of itself, and whether it has slots for so many concurrent requests."""
    about = target.about
    build = about.get("props", {}).get("build_info") or about.get("version", {}).get("version")
    key = any(name.lower() == "authorization" for name, _ in target.headers)
    rows = [
        PreflightRow("server", f"{target.backend}{f' {build}' if build else ''} at {target.address.url}"),
        PreflightRow("key", "accepted" if key else "none given, none asked for"),
        PreflightRow("model", target.model or "the server names none"),
    ]
    if target.slots is not None:
        row = PreflightRow("slots", f"{target.slots}")
        if users is not None and users > target.slots:
            row = PreflightRow(
                "slots",
                f"{target.slots} for {users} concurrent requests: up to {users - target.slots} wait in its queue",
                "note",
            )
        rows.append(row)
    if target.ctx_per_slot is not None:
        rows.append(PreflightRow("context", f"{target.ctx_per_slot} tokens a request"))
    else:
        rows.append(PreflightRow("context", "not told by the server; prompts that are too long will fail", "note"))
    return rows


def plan_rows(plan: Plan, fits: Callable[[int, int], bool] | None, *, open_ended: bool) -> list[PreflightRow]:
    """What the prompts are, and whether they fit a slot."""
    if not plan.measured:
        return [PreflightRow("prompts", "written in the locustfile")]
    about = plan.about
    rows = [
        PreflightRow("prompts", f"{len(plan.measured)} from {about['dataset']['path']}, tokens counted by {about['counted_by']}")
    ]
    if about["counted_by"] == "estimate":
        rows[0].value += " (off by 20 % and more: give --tokenizer)"
        rows[0].level = "note"
    if about["repeated"]:
        rows.append(
            PreflightRow(
                "repeats",
                f"only {about['distinct']} prompts qualify, {about['repeated']} are repeated: "
                "the prompt cache will answer them (--bust-prefix-cache)",
                "warning",
            )
        )
    elif open_ended:
        rows.append(
            PreflightRow("repeats", f"after {about['distinct']} different prompts they come again, out of the prompt cache", "note")
        )
    if fits is not None:
        long = sum(not fits(p.prompt_tokens or 0, p.max_tokens or 0) for p in plan.measured)
        if long:
            rows.append(
                PreflightRow(
                    "too long", f"{long} prompts do not fit a slot and will fail or be cut (--keep-long-prompts)", "warning"
                )
            )
        elif about["replaced"]:
            rows.append(
                PreflightRow("too long", f"{about['replaced']} prompts did not fit a slot and were replaced by others", "note")
            )
        else:
            rows.append(PreflightRow("too long", "no prompt: all fit a slot with their answers"))
    return rows
