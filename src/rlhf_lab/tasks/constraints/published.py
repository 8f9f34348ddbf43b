"""The published constraints of IFEval (arXiv:2311.07911) and IFBench (arXiv:2507.02833) that are
checked here, and those that are not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlhf_lab.tasks.constraints.ifbench_checks import IFBENCH
from rlhf_lab.tasks.constraints.ifeval_checks import IFEVAL
from rlhf_lab.tasks.constraints.published_check import RELATIONS
from rlhf_lab.types.errors import UserError

CHECKS = IFEVAL | IFBENCH
# Many need parts of speech, syllables, names, other alphabets or facts of the world.
MISSING = tuple(
    "language:response_language count:conjunctions count:person_names count:pronouns "
    "count:words_japanese custom:character_reverse custom:csv_city custom:csv_quotes "
    "custom:csv_special_character custom:date_format_list custom:european_capitals_sort "
    "custom:mcq_count_length custom:multiples custom:reverse_newline custom:sentence_alphabet "
    "custom:word_reverse format:emoji format:line_indent format:list format:no_bullets_bullets "
    "format:output_template format:parentheses format:quote_unquote format:quotes "
    "format:sub-bullets format:thesis format:title_case ratio:overlap ratio:sentence_balance "
    "ratio:sentence_type ratio:sentence_words ratio:stop_words sentence:alliteration_increment "
    "sentence:increment words:odd_even_syllables words:start_verb".split()
)


@dataclass(frozen=True)
class PublishedConstraint:
    """A constraint of a row: its published name and the arguments of its check."""

    name: str
    arguments: Mapping[str, Any]

    def holds(self, text: str) -> bool:
        """Whether the text satisfies it. An empty text satisfies nothing."""
        return bool(text.strip()) and CHECKS[self.name].check(text, **self.arguments)


def published_constraint(name: str, given: Mapping[str, Any], place: str) -> PublishedConstraint:
    """The constraint of a row. given: its arguments, of which null ones are absent; place: of the
    row, for errors. Raises UserError if an argument is absent or a relation is unknown."""
    present = {key: value for key, value in given.items() if value is not None}
    needed = CHECKS[name].arguments
    if absent := [key for key in needed if key not in present]:
        raise UserError(f"{place}: {name} has no {absent[0]!r} in 'kwargs': add it")
    arguments = {key: present[key] for key in needed}
    for key, value in arguments.items():
        if key.endswith("relation") and value not in RELATIONS:
            raise UserError(
                f"{place}: {name} has {key}={value!r} in 'kwargs': write one of "
                f"{', '.join(map(repr, RELATIONS))}"
            )
    return PublishedConstraint(name, arguments)
