"""Run the sections one after another, each within its limit. Needs the standard library alone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.findings import Finding, Setting, Verdict, info, judged
from benchmarks.gpu.sections import Section

RESULTS, LOG = "gpu_check.jsonl", "gpu_check.log"
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Plan:
    """What is run. path: folders for Python to look into before those of the environment. out: gets
    RESULTS and LOG."""

    sections: Sequence[Section]
    setting: Setting
    out: Path
    path: Sequence[str] = ()

    @property
    def results(self) -> Path:
        return self.out / RESULTS

    def environment(self) -> dict[str, str]:
        """Of every child."""
        path = [str(ROOT / "src"), str(ROOT), *self.path, os.environ.get("PYTHONPATH", "")]
        hidden = {} if self.setting.is_cuda else {"CUDA_VISIBLE_DEVICES": ""}
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            **hidden,
        }


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run_all(plan: Plan) -> bool:
    """Run all sections; whether nothing failed. What OUT has of others, found on a device of the
    same kind, stays."""
    plan.out.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row) + "\n" for row in of_other_sections(plan)]
    plan.results.write_text("".join(lines), encoding="utf-8")
    (plan.out / LOG).write_text("", encoding="utf-8")
    return all([run_section(section, plan) for section in plan.sections])


def of_other_sections(plan: Plan) -> list[dict[str, Any]]:
    """The rows of sections that are not run now."""
    rows = rows_of(plan.results) if plan.results.is_file() else []
    again = {section.number for section in plan.sections}
    device = {row.get("section"): row["facts"]["device"] for row in rows if "facts" in row}
    # Facts of a file may have no section: nothing of them is kept.
    same = {number for number, kind in device.items() if kind == plan.setting.device} - {None}
    return [row for row in rows if row.get("section") in same - again]


def run_section(section: Section, plan: Plan) -> bool:
    """Run one section; whether nothing in it failed."""
    say(f"{section.number} {section.name}: {section.about}")
    begin = time.monotonic()
    end = ended(section, plan)
    seconds = round(time.monotonic() - begin, 1)
    extra = [judged("section", end, False, expected="ends by itself")] if end else []
    extra.append(
        info("section took", seconds, "s", f"at most {section.limit(plan.setting.device)} s")
    )
    for finding in extra:
        append(plan.results, section, asdict(finding))
    found = findings_of(rows_of(plan.results), section.number)
    for finding in found:
        expected = f" (expected {finding.expected})" if finding.expected else ""
        say(f"  {finding.verdict:4} {finding.name}: {finding.text}{expected}")
    return all(finding.verdict is not Verdict.failed for finding in found)


def ended(section: Section, plan: Plan) -> str:
    """Run the process of a section to its end; why it did not end well, or ""."""
    setting = json.dumps(asdict(plan.setting))
    words = [sys.executable, "-m", "benchmarks.gpu.child", section.name, str(plan.results), setting]
    limit = section.limit(plan.setting.device)
    with (plan.out / LOG).open("ab") as log:
        log.write(f"== {section.number} {section.name}\n".encode())
        log.flush()
        child = subprocess.Popen(
            words, env=plan.environment(), stdout=log, stderr=log, start_new_session=True
        )
        try:
            code = child.wait(limit)
        except subprocess.TimeoutExpired:
            return f"ended after its limit of {limit} s"
        finally:
            # Runs that it has started are of its session.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    lines = (plan.out / LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"exit code {code}: {lines[-1][:300]}" if code else ""


def append(results: Path, section: Section, row: Mapping[str, Any]) -> None:
    """Add a line to a file of results."""
    with results.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"section": section.number, **row}) + "\n")


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of results."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def findings_of(rows: Sequence[dict[str, Any]], number: int) -> list[Finding]:
    """What a section found."""
    found = []
    for row in rows:
        if row["section"] == number and "verdict" in row:
            values = {key: value for key, value in row.items() if key != "section"}
            found.append(Finding(**{**values, "verdict": Verdict(row["verdict"])}))
    return found
