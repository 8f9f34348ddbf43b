"""A story of tldr_nano, known by hand."""

from __future__ import annotations

FACTS = {
    "who": "sister",
    "event": "broke",
    "object": "bike",
    "place": "park",
    "time": "monday",
    "feeling": "sad",
    "ask": "forgive",
}
# The summary of all of them.
PERFECT = "my sister broke my bike in the park monday . i am sad . should i forgive ?"
