"""The questions of a page: verdict, reason, and every number with its interval drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from analysis.comparison.questions.answers import Answer, Number, Unit
from analysis.comparison.questions.every_question import Answers
from analysis.report.bars import Scale, bar, scale_of
from analysis.report.markup import Markup, element, joined
from analysis.statistics.decisions import Verdict

CLASSES = {
    Verdict.holds: "holds",
    Verdict.negligible: "holds",
    Verdict.does_not_hold: "fails",
    Verdict.cannot_tell: "unsure",
}
# Told beside the colour, so that nothing hangs on that alone.
SIGNS = {
    Verdict.holds: "✓",
    Verdict.negligible: "≈",
    Verdict.does_not_hold: "✗",
    Verdict.cannot_tell: "?",
}
# What would be no difference.
ORIGINS = {Unit.points: 0.0, Unit.nats: 0.0, Unit.times: 1.0}


def verdicts(answers: Answers) -> Markup:
    """Every question with its claims, then those that these runs leave open."""
    parts = [part for question, given in answers.given for part in section(question, given)]
    return joined([counted(answers.every), *parts, *lacking(answers)])


def counted(every: Sequence[Answer]) -> Markup:
    """How many verdicts there are of each kind."""
    if not every:
        return element("p", "These runs answer none of the questions.")
    found = Counter(answer.verdict for answer in every)
    told = [
        element("span", f"{SIGNS[verdict]} {verdict}: {found[verdict]}", class_=CLASSES[verdict])
        for verdict in Verdict
    ]
    return element("p", *told, class_="counted")


def section(question: str, given: Sequence[Answer]) -> list[Markup]:
    """A question and a card for each claim, with all conditions that it was tested in."""
    claims: dict[tuple[str, str], list[Answer]] = {}
    for answer in given:
        claims.setdefault((answer.claim, answer.where), []).append(answer)
    cards = [card(same) for same in claims.values()]
    return [element("h3", question, class_="question"), element("div", *cards, class_="answers")]


def card(answers: Sequence[Answer]) -> Markup:
    """One claim with the verdict in each condition; those numbers share a scale."""
    first = answers[0]
    warned = dict.fromkeys(text for answer in answers for text in answer.warnings)
    numbers = [number for answer in answers for number in answer.numbers]
    scales = {unit: scale_for(numbers, unit, first.margin) for unit in {n.unit for n in numbers}}
    verdict = {answer.verdict for answer in answers}
    return element(
        "article",
        element("p", first.claim, class_="claim"),
        *(tested(answer, scales) for answer in answers),
        *([warning_box(list(warned))] if warned else []),
        element("p", f"Claimed by {first.where}.", class_="note"),
        class_=f"answer {CLASSES[verdict.pop()] if len(verdict) == 1 else 'mixed'}",
    )


def tested(answer: Answer, scales: Mapping[Unit, Scale]) -> Markup:
    """The verdict in one condition, why, and its numbers."""
    chip = element("strong", f"{SIGNS[answer.verdict]} {answer.verdict}", class_="verdict")
    rows = [part for number in answer.numbers for part in row(number, scales[number.unit])]
    return element(
        "div",
        element("p", chip, f" {answer.scale}"),
        element("div", *rows, class_="intervals"),
        element("p", f"{answer.reason}. {answer.basis}", class_="note basis"),
        class_=f"tested {CLASSES[answer.verdict]}",
    )


def warning_box(warned: Sequence[str]) -> Markup:
    items = [element("li", text) for text in warned]
    title = "1 warning" if len(items) == 1 else f"{len(items)} warnings"
    return element("details", element("summary", title), element("ul", *items), class_="note")


def row(number: Number, scale: Scale) -> tuple[Markup, Markup]:
    value = element("span", number.text, class_="value")
    label = element("div", number.label, value)
    drawing = bar(number.estimate, scale, f"{number.label}, {number.text}")
    return label, element("div", drawing, class_="bar-cell")


def scale_for(numbers: Sequence[Number], unit: Unit, margin: float) -> Scale:
    """The margin is of win-rates, which are told in points."""
    estimates = [number.estimate for number in numbers if number.unit is unit]
    return scale_of(estimates, ORIGINS[unit], margin if unit is Unit.points else None)


def lacking(answers: Answers) -> list[Markup]:
    """What these runs do not answer, and which would."""
    if not answers.unanswered:
        return []
    items = [
        element("li", element("strong", one.question), f" It takes {one.needs}")
        for one in answers.unanswered
    ]
    title = f"Not answered by these runs ({len(items)})"
    box = element("details", element("summary", title), element("ul", *items))
    return [element("div", box, class_="answers-lacking")]
