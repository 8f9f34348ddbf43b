"""What a terminal shows of the text that was written to it."""

from __future__ import annotations

import re

# Control sequences, line breaks, and what stands between them.
PARTS = re.compile(r"\x1b\[\?*([\d;]*)([A-Za-z])|(\r|\n)|([^\x1b\r\n]+)")


def screen_rows(text: str) -> list[str]:
    """The rows after all was written, without colours: those that scrolled away too. Of cursor
    movements, those that rich uses are known: up, to the start, and erasing a row."""
    rows, row, column = [""], 0, 0
    for match in PARTS.finditer(text):
        number, command, control, words = match.groups()
        if words:
            shown = rows[row].ljust(column)
            rows[row] = shown[:column] + words + shown[column + len(words) :]
            column += len(words)
        elif control == "\r":
            column = 0
        elif control == "\n":
            row, column = row + 1, 0
            rows += [""] * (row + 1 - len(rows))
        elif command == "A":
            row = max(0, row - int(number or 1))
        elif command == "K":
            rows[row] = ""
        else:
            assert command in "mhl", f"an unknown control sequence {match[0]!r}"
    return [one.rstrip() for one in rows]
