"""Linux that looks like macOS to Python code, for processes that have this folder first in
PYTHONPATH and LIKE_MAC=1 in their environment. Python imports this module when it starts.

Modules of the project see the platform darwin. What os, signal, select, socket, resource, fcntl and
time of macOS lack is absent from these modules. For code of the project there is no /proc and no
/dev/shm; other packages know their system and see it as it is. torch shares memory by names, the
one way on macOS, and the path of a socket ends at 103 bytes.

It cannot show Apple's rules about fork, the numbers of Accelerate, or Metal.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import importlib.abc
import importlib.machinery
import os
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

ABSENT = {
    "os": "sched_getaffinity sched_setaffinity sched_getparam sched_setparam sched_getscheduler "
    "sched_setscheduler sched_rr_get_interval pidfd_open memfd_create eventfd eventfd_read "
    "eventfd_write posix_fadvise posix_fallocate splice copy_file_range setns unshare getrandom "
    "pipe2 fdatasync getresuid getresgid setresuid setresgid getxattr setxattr listxattr "
    "removexattr waitid O_TMPFILE O_PATH O_DIRECT O_NOATIME P_PIDFD MFD_CLOEXEC EFD_CLOEXEC "
    "EFD_NONBLOCK RWF_APPEND preadv2",
    "select": "epoll",
    "signal": "sigtimedwait sigwaitinfo pidfd_send_signal SIGRTMIN SIGRTMAX SIGPWR SIGPOLL "
    "SIGSTKFLT SIGCLD",
    "socket": "SO_PEERCRED SO_BINDTODEVICE AF_ALG AF_VSOCK SOCK_CLOEXEC SOCK_NONBLOCK "
    "TCP_USER_TIMEOUT TCP_QUICKACK TCP_KEEPIDLE",
    "resource": "prlimit RUSAGE_THREAD RLIMIT_NICE RLIMIT_RTPRIO RLIMIT_OFILE RLIMIT_SIGPENDING "
    "RLIMIT_MSGQUEUE",
    "fcntl": "F_OFD_GETLK F_OFD_SETLK F_OFD_SETLKW F_SETPIPE_SZ F_GETPIPE_SZ F_ADD_SEALS "
    "F_GET_SEALS F_NOTIFY F_SETLEASE",
    "time": "CLOCK_BOOTTIME CLOCK_TAI CLOCK_PROF CLOCK_HIGHRES",
}
HIDDEN = ("/proc", "/dev/shm")
ABSENT_FROM_C = {"prctl", "mallopt", "sched_setaffinity", "memfd_create", "gnu_get_libc_version"}
SOCKET_BYTES = 103
# Of sysctl. The boot's identifier is any constant one: LIKE_MAC_BOOT names another boot.
VALUES = {
    "machdep.cpu.brand_string": "Apple M1",
    "kern.bootsessionuuid": os.environ.get("LIKE_MAC_BOOT", "11111111"),
}
PROJECT = ("rlhf_lab", "rlhf_lab_analysis", "benchmarks")
STDLIB = os.path.dirname(os.__file__)
CAN_FOLLOW = (
    os.supports_fd,
    os.supports_dir_fd,
    os.supports_follow_symlinks,
    os.supports_effective_ids,
)


def remove_names() -> None:
    for module, names in ABSENT.items():
        known = vars(importlib.import_module(module))
        for name in names.split():
            known.pop(name, None)
    # A .pth file may have imported these already, with what Linux has.
    import selectors
    import tempfile

    vars(tempfile)["_O_TMPFILE_WORKS"] = False
    vars(selectors).pop("EpollSelector", None)
    selectors.DefaultSelector = selectors.PollSelector  # type: ignore[misc, assignment]


def hide_folders() -> None:
    sys.addaudithook(audit)
    for name in ("stat", "lstat", "access", "readlink"):
        real = getattr(os, name)

        def hidden(path: Any, *args: Any, _real: Any = real, **options: Any) -> Any:
            refuse_hidden(path)
            return _real(path, *args, **options)

        for known in CAN_FOLLOW:
            if real in known:
                known.add(hidden)
        setattr(os, name, hidden)


def audit(event: str, args: Sequence[Any]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and args:
        refuse_hidden(args[0])


def refuse_hidden(path: object) -> None:
    """Raises FileNotFoundError for a hidden path that code of the project asks for."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        return
    text = os.fsdecode(path)
    if any(text == at or text.startswith(f"{at}/") for at in HIDDEN) and is_for_project():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), text)


def is_for_project() -> bool:
    """Whether the innermost code outside the standard library is no installed package's."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if "site-packages" in name:
            return False
        if not name.startswith((STDLIB, "<frozen", __file__)):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


class CLibrary(ctypes.CDLL):
    """libc has no functions of Linux, and sysctlbyname."""

    def __getattr__(self, name: str) -> Any:
        if self._name is None and name in ABSENT_FROM_C:
            raise AttributeError(f"dlsym(RTLD_DEFAULT, {name}): symbol not found")
        return sysctlbyname if name == "sysctlbyname" else super().__getattr__(name)


def sysctlbyname(name: bytes, value: Any, size: object, new: None, length: int) -> int:
    known = VALUES.get(name.decode())
    if known is None:
        return -1
    value.value = known.encode()
    return 0


class Seen(types.ModuleType):
    """A module with some other values."""

    def __init__(self, module: types.ModuleType, **values: object) -> None:
        super().__init__(module.__name__)
        self.__dict__.update(_module=module, **values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._module, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._module, name)


class Usage:
    """What getrusage found; macOS counts memory in bytes."""

    def __init__(self, found: Any) -> None:
        self._found, self.ru_maxrss = found, found.ru_maxrss * 1024

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)


def modules_of_mac() -> dict[str, types.ModuleType]:
    import platform
    import resource

    return {
        "sys": Seen(sys, platform="darwin"),
        "platform": Seen(
            platform,
            system=lambda: "Darwin",
            machine=lambda: "arm64",
            processor=lambda: "arm",
            platform=lambda: "macOS-15.6-arm64-arm-64bit",
        ),
        "resource": Seen(resource, getrusage=lambda who: Usage(resource.getrusage(who))),
    }


class Finder(importlib.abc.MetaPathFinder):
    """Gives the project's modules an `import` that finds the modules of a Mac."""

    def __init__(self) -> None:
        mac = modules_of_mac()

        def import_(name: str, *args: Any, **options: Any) -> types.ModuleType:
            return mac[name] if name in mac else builtins.__import__(name, *args, **options)

        self.builtins = {**vars(builtins), "__import__": import_}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        is_project = name.split(".")[0] in PROJECT
        if not is_project and name != "torch.multiprocessing":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            change = self.before if is_project else self.after_torch
            vars(spec.loader)["exec_module"] = change(spec.loader.exec_module)
        return spec

    def before(self, run: Callable[[Any], None]) -> Callable[[Any], None]:
        def execute(module: Any) -> None:
            vars(module)["__builtins__"] = self.builtins
            run(module)

        return execute

    def after_torch(self, run: Callable[[Any], None]) -> Callable[[Any], None]:
        def execute(module: Any) -> None:
            run(module)
            module._all_sharing_strategies = {"file_system"}
            module.set_sharing_strategy("file_system")

        return execute


def shorten_sockets() -> None:
    import socket

    bind = socket.socket.bind

    def short(self: socket.socket, address: Any) -> None:
        if self.family == socket.AF_UNIX and len(os.fsencode(address)) > SOCKET_BYTES:
            raise OSError("AF_UNIX path too long")
        bind(self, address)

    socket.socket.bind = short  # type: ignore[method-assign, assignment]


if os.environ.get("LIKE_MAC"):
    remove_names()
    hide_folders()
    ctypes.CDLL = CLibrary  # type: ignore[misc]
    shorten_sockets()
    sys.meta_path.insert(0, Finder())
