"""The device of the stand-in for vLLM."""

from __future__ import annotations


class Platform:
    def is_cpu(self) -> bool:
        """False, as heads of every size are computed."""
        return False


current_platform = Platform()
