"""TCP ports of this machine: checking one, and finding a free one."""

from __future__ import annotations

import errno
import socket

from rlhf_lab.types.errors import UserError

LOOPBACK = "127.0.0.1"


def require_free(
    key: str, port: int, host: str = LOOPBACK, remedy: str = "pass another one"
) -> None:
    """Raise UserError if a port is in use, or not permitted to this user. key: the option."""
    with socket.socket() as listener:
        # As servers do, so that connections of one that has just ended do not count.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except (OSError, OverflowError) as error:
            is_used = getattr(error, "errno", None) == errno.EADDRINUSE
            reason = "is in use" if is_used else f"cannot be had ({error})"
            raise UserError(
                f"{key}={port}: the port {reason} on {host}: {remedy}, or stop who listens there "
                f"(ss -ltnp 'sport = :{port}' names it)"
            ) from error


def free_port(host: str = LOOPBACK) -> int:
    """A port that is free now."""
    with socket.socket() as listener:
        listener.bind((host, 0))
        port: int = listener.getsockname()[1]
        return port
