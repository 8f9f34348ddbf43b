"""Escape texts such as names of runs for LaTeX, Markdown and HTML."""

from __future__ import annotations

import re

LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    # After the end of a row these would be its options.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
}
IN_MARKDOWN = str.maketrans({sign: f"\\{sign}" for sign in r"\`*_[]|~$#"})
IN_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def one_line(text: str) -> str:
    """A text without line breaks, with what cannot be printed written out."""
    spaced = " ".join(text.split())
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in spaced)


def latex(text: str) -> str:
    """A text that LaTeX sets as it is; dashes beside each other are not joined."""
    signs = [LATEX.get(sign, sign) for sign in one_line(text)]
    return re.sub("-(?=-)", "-{}", "".join(signs))


def markdown(text: str) -> str:
    """A text that Markdown shows as it is, in a cell of a table too."""
    return one_line(text).translate(IN_HTML).translate(IN_MARKDOWN)
