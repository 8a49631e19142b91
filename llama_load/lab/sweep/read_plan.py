"""From a plan's file to a `Plan`.

Everything is checked before anything runs, and all faults are reported at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from llama_load.ground.bundled import bundled
from llama_load.ground.errors import UsageError
from llama_load.lab.sweep.grammar import PLAIN_NAME, PLAN
from llama_load.lab.sweep.located import Faults, Node, read_yaml, substituted
from llama_load.lab.sweep.plan import Plan
from llama_load.lab.sweep.plan_builder import PlanBuilder
from llama_load.loadgen.options.known_secrets import secrets_of_document
from llama_load.outside.foreign_text import keep_secret


def plan_file(name: str) -> Path:
    """The path of a plan: a file, or a bundled plan by its name."""
    path = Path(name)
    if path.exists() or "/" in name:
        return path
    packed = bundled("plans") / f"{path.stem}.yaml"
    if packed.exists():
        return packed

    known = ", ".join(sorted(file.stem for file in bundled("plans").glob("*.yaml")))
    raise UsageError(
        f"there is no plan {name}; "
        f"give the path of a .yaml file, or one of the bundled plans: {known}"
    )


def read_plan(path: Path, sets: Mapping[str, str] | None = None) -> Plan:
    """Read and check a plan; `sets` replaces values of its `set`.

    UsageError, with every fault and its line.
    """
    faults = Faults(str(path))
    return plan_of(read_yaml(path, faults), sets or {}, faults)


def plan_of(root: Node, sets: Mapping[str, str], faults: Faults) -> Plan:
    """The plan of a document."""
    root = _with_sets(root, sets, faults)
    keep_secret(
        secrets_of_document(root.plain())
    )  # its text and its commands are stored and shown

    raw = PLAN.check(root, "", faults)
    for part in ("servers", "vary"):
        for name, node in root.keys().get(part, Node(None)).keys().items():
            if not PLAIN_NAME.fullmatch(name):
                faults.add(node, f"the name {part}.{name}: must be a plain name")

    # Where shapes are wrong, the rest is checked as far as that goes, so that all faults are
    # reported at once.
    wrong = (KeyError, TypeError, ValueError, AttributeError) if faults.lines else ()
    plan = None
    with suppress(*wrong):
        plan = PlanBuilder(root, raw or {}, faults).plan(wrong)
    faults.raise_if_any()
    assert plan is not None
    return plan


def _with_sets(root: Node, sets: Mapping[str, str], faults: Faults) -> Node:
    """The document with every ${name} replaced by a value of its `set`, or of `sets`."""
    if not isinstance(root.value, dict):
        return root

    own = root.value.get("set")
    values = {}
    if own is not None:
        values = {name: _as_yaml(node) for name, node in own.keys().items()}
    for name in sets:
        if name not in values:
            known = ", ".join(sorted(values)) or "none"
            faults.add(
                root, f"--set {name}: the plan has no such value; it has {known}"
            )
    values |= sets

    members = {}
    for key, node in root.value.items():
        if key != "set":
            members[key] = substituted(node, values, faults)
    if own is not None:
        members["set"] = own
    return Node(members, root.line)


def _as_yaml(node: Node) -> str:
    """A value as YAML on one line."""
    import yaml

    text: str = yaml.safe_dump(
        node.plain(), default_flow_style=True, allow_unicode=True, width=10**9
    )
    return text.removesuffix("\n").removesuffix("\n...")
