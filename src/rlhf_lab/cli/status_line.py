"""One line on a terminal while a command loads, so that Enter is never followed by silence."""

from __future__ import annotations

import sys

CLEAR = "\r\x1b[K"
_shown = False


def show(text: str) -> None:
    """Show a text until `clear`, or until another one. Nothing where nobody looks on."""
    global _shown
    if sys.stderr.isatty():
        sys.stderr.write(f"{CLEAR}{text}")
        sys.stderr.flush()
        _shown = True


def clear() -> None:
    """Remove the text, if one is shown."""
    global _shown
    if _shown:
        sys.stderr.write(CLEAR)
        sys.stderr.flush()
        _shown = False


def load_libraries(quiet: bool) -> None:
    """Load the libraries that every run needs, seconds on their own."""
    clear()
    if "torch" in sys.modules and "transformers.modeling_utils" in sys.modules:
        return
    if not quiet:
        show("loading torch and transformers ...")
    import torch  # noqa: F401
    import transformers.modeling_utils  # noqa: F401

    clear()
