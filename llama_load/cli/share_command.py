"""`llama-load share`: a run to show to others, without anything private, shown before it is
written."""

from __future__ import annotations

import argparse
from pathlib import Path

from llama_load.cli.ask import agrees, is_there
from llama_load.cli.parser import Parser
from llama_load.ground.errors import UsageError

# The files that are written: for people, for `llama-load compare`, a card to post.
TEXTS = ("md", "json")
SVG = "svg"
PNG = "png"  # the card once more, for sites that show no SVG


def add_share(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the subcommand."""
    share = commands.add_parser(
        "share",
        help="write a run as Markdown and JSON to show to others: figures, verdict, hardware, "
        "nothing private, and a card to post",
        description="Print what would be shared, ask, and write share.md, share.json, and a card "
        "of it as share.svg and, with the package pillow, share.png. There "
        "are figures, the verdict, the load, "
        "the server's kind, build, public model and sizes, and the hardware; no names of hosts, "
        "files, labels and stages, no addresses, "
        "prompts, messages or keys. 'llama-load compare' reads the JSON.",
        examples={
            "Look at it and decide": "llama-load share runs/20261121-203500-demo",
            "In a script": "llama-load share runs/20261121-203500-demo --yes --output shared/h200",
        },
    )
    share.add_argument("run_folder", type=Path, metavar="RUN", help="a run folder")
    share.add_argument(
        "--output",
        type=Path,
        default=Path("share"),
        metavar="NAME",
        help="write NAME.md, NAME.json, NAME.svg and NAME.png (default share)",
    )
    share.add_argument(
        "--yes", action="store_true", help="write without asking, after it was printed"
    )
    share.set_defaults(run=_share_run)


def _share_run(arguments: argparse.Namespace) -> int:
    import msgspec

    from llama_load.analysis.reports.share_card import card_png, card_svg, has_figures
    from llama_load.analysis.reports.shared_run import shared_markdown, shared_run
    from llama_load.analysis.results.results import analyze
    from llama_load.ground.image_package import has_pillow
    from llama_load.outside.foreign_text import redacted
    from llama_load.run_folder import load_run, write_whole

    shared = shared_run(analyze(load_run(arguments.run_folder)))
    text = redacted(shared_markdown(shared))
    json = (
        redacted(msgspec.json.format(msgspec.json.encode(shared), indent=1).decode())
        + "\n"
    )
    print(f"{text}\n{json}", end="")
    output = arguments.output
    is_drawn = has_figures(shared)
    endings = [*TEXTS, SVG] if is_drawn else [*TEXTS]
    if is_drawn and has_pillow():
        endings.append(PNG)
    names = ", ".join(f"{output}.{ending}" for ending in endings)
    if not arguments.yes and not _agreed(names):
        print("Nothing was written.")
        return 0

    contents = [text.encode(), json.encode()]
    if is_drawn:
        contents.append(redacted(card_svg(shared)).encode())
    if PNG in endings:
        contents.append(card_png(shared))
    output.parent.mkdir(parents=True, exist_ok=True)
    for ending, content in zip(endings, contents, strict=True):
        write_whole(output.with_name(f"{output.name}.{ending}"), content)
    print(f"Written to {names}")
    if not is_drawn:
        print("There is no card: no figure of this run can be used.")
    elif PNG not in endings:
        print(f"For {output}.{PNG}, too: pip install pillow")
    return 0


def _agreed(names: str) -> bool:
    """Whether the person at the terminal wants these files. UsageError: there is none."""
    if not is_there():
        raise UsageError(
            "this is all that would be shared; to write it without being asked add --yes"
        )
    return agrees(f"Write this to {names}? (The pictures have a part of it.)")
