"""Drawing who worked when: what is read, how idle time is counted, and what is drawn."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rlhf_lab.cli import timeline
from rlhf_lab.cli.timeline import figure, html
from rlhf_lab.runs.timeline import LaneSpan, idle, idle_shares, lanes
from rlhf_lab.runs.timeline_svg import SHADES, colour, tooltip
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

BACKGROUND = [
    LaneSpan("trainer", "take", 0.0, 4.0, 0, 0),
    LaneSpan("trainer", "update", 4.0, 7.0, 0, 0),
    LaneSpan("trainer", "take", 7.0, 8.0, 1, 1),
    LaneSpan("trainer", "update", 8.0, 10.0, 1, 1),
    LaneSpan("generator-0", "generate", 0.0, 3.0, 0, 0, 0),
    LaneSpan("generator-0", "score", 3.0, 4.0, 0, 0, 0),
    LaneSpan("generator-0", "generate", 5.0, 7.5, 1, 0, 0),
    LaneSpan("generator-10", "generate", 1.0, 2.0, 0, 0, 1),
    LaneSpan("generator-2", "generate", 0.0, 10.0, 0, 0, 2),
]
ALONE = [
    LaneSpan("trainer", "take", 0.0, 5.0, 0, 0),
    LaneSpan("trainer", "generate", 0.0, 4.0, 0, 0, 0),
    LaneSpan("trainer", "score", 3.5, 4.5, 0, 0, 0),
    LaneSpan("trainer", "reference", 5.0, 6.0, 0, 0),
    LaneSpan("trainer", "update", 6.0, 10.0, 0, 0),
]


def write(folder: Path, spans: Sequence[LaneSpan]) -> Path:
    folder.mkdir(exist_ok=True)
    text = "".join(json.dumps(asdict(span)) + "\n" for span in spans)
    (folder / "timeline.jsonl").write_text(text, encoding="utf-8")
    return folder


def long_run(num_rounds: int) -> list[LaneSpan]:
    """Six seconds a round, seven spans; generation works a round ahead."""
    found = []
    for n in range(num_rounds):
        found += [
            LaneSpan("trainer", phase, 6 * n + at, 6 * n + at + 1, n, n)
            for at, phase in enumerate(["take", "reference", "update", "update", "sync", "track"])
        ]
        found.append(LaneSpan("generator-0", "generate", 6 * n, 6 * n + 4, n + 1, n))
    return found


def titles(page: str) -> list[str]:
    """What the rectangles of the spans say; the SVG must be well-formed XML."""
    (text,) = re.findall("<svg.*</svg>", page, re.DOTALL)
    name = "{http://www.w3.org/2000/svg}"
    found = [r for r in ElementTree.fromstring(text).iter(f"{name}rect") if r.get("class")]
    return [r.findtext(f"{name}title") or "" for r in found if r.get("class") == "span"]


def test_what_a_run_wrote_is_read_again(tmp_path: Path) -> None:
    assert timeline.drawable_spans(write(tmp_path, BACKGROUND)) == BACKGROUND


def test_a_cut_last_line_is_left_out(tmp_path: Path) -> None:
    with (write(tmp_path, ALONE) / "timeline.jsonl").open("a") as file:
        file.write('{"lane": "trai')
    assert timeline.drawable_spans(tmp_path) == ALONE


def test_waiting_and_gaps_are_idle() -> None:
    assert idle_shares(BACKGROUND) == pytest.approx(
        {"trainer": 0.5, "generator-0": 0.35, "generator-2": 0.0, "generator-10": 0.9}
    )


def test_a_trainer_that_generates_is_idle_only_where_nothing_is_recorded() -> None:
    assert idle_shares(ALONE) == pytest.approx({"trainer": 0.05})


def test_the_trainer_comes_first_and_generators_in_order() -> None:
    order = ["trainer", "generator-0", "generator-2", "generator-10"]
    assert lanes(BACKGROUND) == order


def test_idle_time_is_cut_at_the_window() -> None:
    gaps = idle(BACKGROUND, (3.5, 8.0))
    assert gaps["trainer"] == [(3.5, 4.0), (7.0, 8.0)]
    assert gaps["generator-0"] == [(4.0, 5.0), (7.5, 8.0)]
    assert gaps["generator-10"] == [(3.5, 8.0)]


@pytest.mark.parametrize("spans", [BACKGROUND, ALONE])
def test_every_span_is_one_rectangle_that_tells_what_it_is(spans: list[LaneSpan]) -> None:
    found = titles(html(spans, "run"))
    assert len(found) == len(spans)
    assert sorted(found) == sorted(map(tooltip, spans))


def test_a_rectangle_tells_round_version_chunk_start_and_milliseconds() -> None:
    text = tooltip(LaneSpan("generator-0", "generate", 1.5, 1.75, 3, 2, 1))
    assert text.split("\n") == [
        "generate",
        "round 3",
        "version 2",
        "chunk 1",
        "start 1.500 s",
        "250.0 ms",
    ]


def test_the_page_escapes_all_text_and_asks_for_nothing() -> None:
    hostile = replace(ALONE[0], lane="<b>&", phase='"><script>')
    page = html([hostile], "<i>&\n</style>")
    tags: list[str] = []
    links: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            tags.append(tag)
            links.extend(name for name, _ in attributes if name in ("src", "href"))

    Reader().feed(page)
    assert tags.count("script") == 1 and not {"b", "link"} & set(tags)
    assert links == []
    assert "<h1>&lt;i&gt;&amp;</h1>" in page and "<p>&lt;/style&gt;</p>" in page
    assert titles(page)[0].startswith('"><script>')


def test_shades_tell_phases_and_versions_apart() -> None:
    def brightness(phase: str) -> int:
        text = colour(LaneSpan("trainer", phase, 0, 1, 0, 0))
        return sum(int(text[at : at + 2], 16) for at in (1, 3, 5))

    order = sorted(SHADES, key=brightness)
    assert order == ["update", "reference", "generate", "score"]
    seen = [LaneSpan("trainer", phase, 0, 1, 0, v) for v in range(10) for phase in SHADES]
    assert len(set(map(colour, seen))) == 40


def test_both_files_are_written_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path / "a $ru_n$", BACKGROUND)
    assert timeline.TIMELINE.run([str(folder)], Console(quiet=False, is_terminal=False)) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == [f"wrote {folder / name}" for name in ("timeline.html", "timeline.png")]
    assert (folder / "timeline.png").stat().st_size > 1000
    page = (folder / "timeline.html").read_text(encoding="utf-8")
    assert "<h1>a $ru_n$: 10.0 s of wall-clock; idle: trainer 50%, generator-0 35%" in page


def test_a_long_run_is_shown_from_its_middle_which_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert timeline.middle(long_run(33)) is None
    folder = write(tmp_path, long_run(40))
    timeline.TIMELINE.run([str(folder)], Console(quiet=False, is_terminal=False))
    assert "shown: rounds 14 to 25 of 41, the middle of the run" in capsys.readouterr().out
    page = (folder / "timeline.html").read_text(encoding="utf-8")
    assert "rounds 14 to 25" in page
    seen = {int(re.findall(r"round (\d+)", text)[0]) for text in titles(page)}
    assert {*range(14, 26)} <= seen <= {*range(13, 28)}


def test_chosen_rounds_are_shown_with_what_others_did_meanwhile(tmp_path: Path) -> None:
    folder = write(tmp_path, long_run(4))
    timeline.TIMELINE.run([str(folder), "--rounds=1:2"], Console(quiet=True))
    page = (folder / "timeline.html").read_text(encoding="utf-8")
    assert "shown: rounds 1 to 2 of 5;" in page
    assert sum(text.startswith("generate\nround 3") for text in titles(page)) == 1


@pytest.mark.parametrize(
    "arguments",
    [[], ["--rounds", "1:2"], ["a", "b"], ["RUN", "--rounds"], ["RUN", "--seed", "1"], ["-x"]],
)
def test_wrong_arguments_are_answered_with_the_right_ones(arguments: list[str]) -> None:
    with pytest.raises(UserError, match=r"rlhf-lab timeline RUN \[--rounds A:B\]"):
        timeline.TIMELINE.run(arguments, Console(quiet=True))


@pytest.mark.parametrize("text", ["", "3", "a:b", "5:2", "-1:2", "1:2:3"])
def test_wrong_rounds_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="--rounds 8:15"):
        timeline.TIMELINE.run(["RUN", f"--rounds={text}"], Console(quiet=True))


def test_rounds_that_the_run_has_not_are_refused(tmp_path: Path) -> None:
    write(tmp_path, BACKGROUND)
    with pytest.raises(UserError, match="choose within 0:1"):
        timeline.TIMELINE.run(["--rounds", "2:9", str(tmp_path)], Console(quiet=True))


def test_a_folder_without_spans_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no timeline.jsonl: name a run"):
        timeline.drawable_spans(tmp_path)
    for text in ("", '{"lane"', json.dumps(asdict(replace(ALONE[0], end=0.0)))):
        (tmp_path / "timeline.jsonl").write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match="holds no time yet"):
            timeline.drawable_spans(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("lane", ""),
        ("phase", 3),
        ("start", None),
        ("start", True),
        ("end", -1.0),
        ("end", float("nan")),
        ("round", 1.5),
        ("version", -1),
        ("chunk", "0"),
    ],
)
def test_a_line_that_is_no_span_is_named(tmp_path: Path, key: str, value: object) -> None:
    rows = [asdict(ALONE[0]), asdict(ALONE[1]) | {key: value}]
    text = "\n".join(json.dumps(row) for row in rows)
    (tmp_path / "timeline.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=rf"line 2 key {key}: .*delete the line"):
        timeline.drawable_spans(tmp_path)


def test_lines_that_are_no_object_or_no_json_are_named(tmp_path: Path) -> None:
    for text, message in (
        ("[1]\n", "line 1: Input should be an object"),
        ("{\n[]\n", "line 1: it is not JSON"),
    ):
        (tmp_path / "timeline.jsonl").write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match=message):
            timeline.drawable_spans(tmp_path)


def test_without_matplotlib_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UserError, match=r"needs the package matplotlib: pip install 'rlhf-lab\["):
        figure(ALONE, "run")
