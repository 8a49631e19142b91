"""Known vulnerabilities of what an environment has installed, by pip-audit, which gets an
environment of its own.

    python scripts/audit.py .venv/bin

Exit code 0: every package was looked up, and none has a known vulnerability. 1: some have. 3, with
a line NOT AUDITED: pip-audit could not be installed, its database could not be reached, or packages
are not in it. Where that is known and accepted, as on a machine without access to the database,
AUDIT=optional makes 0 of that 3; the line NOT AUDITED stays. A release needs a 0 without it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CLEAN, VULNERABLE, NOT_AUDITED = 0, 1, 3
PIP = ("-m", "pip", "--disable-pip-version-check")
WITHIN_S = 300.0


def judged(
    report: Mapping[str, Any] | None, installed: Sequence[str]
) -> tuple[int, list[str]]:
    """The exit code and lines for a report of `pip-audit --format json` (None: there is none).
    `installed`: name==version."""
    if report is None:
        return NOT_AUDITED, [
            f"NOT AUDITED: pip-audit gave no report; none of {len(installed)} packages was "
            "looked up"
        ]
    found = {
        str(each["name"]).lower().replace("_", "-"): each
        for each in report.get("dependencies", ())
    }
    names = [each.partition("==")[0] for each in installed]
    looked_up = {name for name, each in found.items() if "skip_reason" not in each}
    missing = [
        name for name in names if name.lower().replace("_", "-") not in looked_up
    ]
    lines = [
        f"{each['name']} {each.get('version')}: {fault['id']}, fixed in "
        f"{', '.join(fault.get('fix_versions', ())) or 'none yet'}"
        for each in found.values()
        for fault in each.get("vulns", ())
    ]
    code = VULNERABLE if lines else CLEAN
    if missing:
        shown = ", ".join(missing[:10]) + (", …" if len(missing) > 10 else "")
        lines.append(
            f"NOT AUDITED: the database of pip-audit does not have {len(missing)} of "
            f"{len(names)} packages: {shown}"
        )
        code = code or NOT_AUDITED
    return code, lines or [f"{len(names)} packages have no known vulnerability"]


def installed_in(python: str) -> list[str]:
    """What an environment has, as name==version; packages in development are left out."""
    command = [python, *PIP, "list", "--format=json", "--exclude-editable"]
    listed = json.loads(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
    )
    return [f"{each['name']}=={each['version']}" for each in listed]


def report_on(installed: Sequence[str]) -> dict[str, Any] | None:
    """pip-audit's report on these packages, from an environment that is removed afterwards; None if
    it gave none."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder, "bin", "python"))
        requirements = Path(folder, "requirements.txt")
        requirements.write_text("\n".join(installed), encoding="utf-8")
        audit = [
            python,
            "-m",
            "pip_audit",
            "--no-deps",
            "--disable-pip",
            "--format",
            "json",
            "--progress-spinner",
            "off",
        ]
        try:
            subprocess.run(
                [python, *PIP, "install", "--quiet", "pip-audit"],
                check=True,
                timeout=WITHIN_S,
            )
            done = subprocess.run(
                [*audit, "--requirement", str(requirements)],
                stdout=subprocess.PIPE,
                check=False,
                timeout=WITHIN_S,
            )
            report = json.loads(done.stdout)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            print(error, file=sys.stderr)
            return None
    return report if isinstance(report, dict) else None


def main(bin_folder: str) -> int:
    """Audit the environment of this folder."""
    installed = installed_in(str(Path(bin_folder, "python")))
    code, lines = judged(report_on(installed), installed)
    print("\n".join(lines))
    return (
        CLEAN if code == NOT_AUDITED and os.environ.get("AUDIT") == "optional" else code
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
