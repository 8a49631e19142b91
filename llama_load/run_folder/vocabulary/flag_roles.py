"""What the flags of a run do to it, as run.json has it: whoever compares runs knows no flags."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class FlagRoles:
    """All flags with a role, whether given or not; with dashes, but for those of `options`, which
    run.json names without.

    `renewed`: each repeat of the run has its own. `caches`: they decide what a server's prompt
    cache holds. `prompts`: they choose the prompts or change them. `shapes`: they shape the load
    beside its users and its rate. `stated`: summary.json itself has their values.
    """

    renewed: list[str] = field(default_factory=list)
    caches: list[str] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    shapes: list[str] = field(default_factory=list)
    stated: list[str] = field(default_factory=list)
