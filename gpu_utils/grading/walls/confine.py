"""What a process gives up for good before it runs an answer: memory, time, files, new processes, and system calls.

It runs as the first process of a user namespace that bubblewrap made, and has that namespace's rights still. With these
it takes a mount and an IPC namespace of its own and a fresh temporary folder, so that nothing of the answer before is
left; then it drops them. The rest holds for whatever the process starts.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpu_utils.grading.processes import bytes_held

CLONE_NEWNS, CLONE_NEWIPC = 0x00020000, 0x08000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND = 1, 2, 4, 32, 4096
_KEPT = {"nosuid": MS_NOSUID, "nodev": MS_NODEV, "noexec": 8, "noatime": 1024, "nodiratime": 2048, "relatime": 1 << 21}
"""Options of a mount, as /proc/self/mountinfo says them -> the flag that keeps them when it is mounted anew."""

PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 4, 22, 24, 38, 47
_CAPABILITY_VERSION = 0x20080522
_LAST_CAPABILITY = 40

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Limits:
    """What one answer may take.

    memory     bytes on top of what the clean process has
    scratch    bytes of its temporary folder; files: how many in it
    processor  seconds of processor time of one process
    processes  whether it may start any
    """

    memory: int = 2 << 30
    scratch: int = 64 << 20
    files: int = 4096
    processor: int = 600
    processes: bool = False


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def read_only_machine() -> None:
    """From now on nobody here changes settings of the kernel in /proc, mode and owner of device nodes, or the root.

    The first two are the machine's own, and where the grader is root they are its user's inside, too; nodes work as
    before. In the root folder one answer could leave a file for the next.
    """
    _checked(_libc.unshare(CLONE_NEWNS), "unshare")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        path, options = line.split()[4:6]
        if path in ("/", "/proc") or (path.startswith("/dev/") and path not in _OF_THE_INSIDE):
            kept = sum(flag for name, flag in _KEPT.items() if name in options.split(","))
            flags = MS_REMOUNT | MS_BIND | MS_RDONLY | kept
            _checked(_libc.mount(None, path.encode(), None, flags, None), f"read-only {path}")


_OF_THE_INSIDE = ("/dev/pts", "/dev/shm", "/dev/mqueue")


def apart(limits: Limits, scratch: Iterable[str], hidden: Iterable[str] = ()) -> None:
    """Namespaces of its own, fresh folders `scratch` of limited size, and this module in place of files `hidden`."""
    _checked(_libc.unshare(CLONE_NEWNS | CLONE_NEWIPC), "unshare")
    options = f"size={limits.scratch},nr_inodes={limits.files},mode=0700".encode()
    for folder in scratch:
        _checked(_libc.mount(b"tmpfs", folder.encode(), b"tmpfs", MS_NOSUID | MS_NODEV, options), f"mount {folder}")
    for path in hidden:
        if os.path.isdir(path):
            _checked(
                _libc.mount(b"tmpfs", path.encode(), b"tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, b"size=4096"), path
            )
        elif os.path.exists(path):
            _checked(_libc.mount(__file__.encode(), path.encode(), None, MS_BIND, None), f"hide {path}")


def give_up(limits: Limits) -> None:
    """Limits of resources, no capabilities, no new rights, and the filter of system calls: all for good."""
    held = bytes_held("VmSize")
    for what, most in (
        (resource.RLIMIT_AS, held + limits.memory),
        (resource.RLIMIT_CPU, limits.processor),
        (resource.RLIMIT_FSIZE, limits.scratch),
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_NPROC, 256),  # the system does not hold root to it
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))
    _libc.prctl(PR_CAP_AMBIENT, 4, 0, 0, 0)  # clear all
    for capability in range(_LAST_CAPABILITY + 1):
        _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = struct.pack("<Ii", _CAPABILITY_VERSION, 0)
    _checked(_libc.capset(header, bytes(24)), "capset")
    _checked(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new rights")
    refuse_calls(limits.processes)


def most_data(more: int) -> None:
    """So many bytes of memory beside what this process has, also for what it starts; maps that are shared are free."""
    most = bytes_held("VmData") + more
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def unreadable() -> None:
    """From now on no other process of the same user may read this one's memory, or trace it."""
    _checked(_libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "dumpable")


# --- the filter of system calls -----------------------------------------------------------------------------------

_NEVER = {
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "pidfd_open": 434,
    "pidfd_getfd": 438, "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "setns": 308, "unshare": 272,
    "move_mount": 429, "open_tree": 428, "fsopen": 430, "fsmount": 432, "mount_setattr": 442,
    "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "keyctl": 250, "add_key": 248, "request_key": 249,
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "memfd_create": 319, "memfd_secret": 447, "shmget": 29, "shmat": 30, "msgget": 68, "semget": 64, "mq_open": 240,
    "kexec_load": 246, "init_module": 175, "finit_module": 313, "personality": 135, "quotactl": 179, "swapon": 167,
    "setuid": 105, "setgid": 106, "name_to_handle_at": 303, "open_by_handle_at": 304, "ioperm": 173, "iopl": 172,
}  # fmt: skip
"""Calls of Linux on x86-64 that no answer needs -> their number. memfd and shared memory escape the limits above."""

_PROCESSES = {"fork": 57, "vfork": 58, "execve": 59, "execveat": 322}
_CLONE, _CLONE3 = 56, 435
_CLONE_THREAD = 0x00010000
_X86_64 = 0xC000003E
_LOAD, _JUMP_EQUAL, _JUMP_ABOVE, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS = 1, 38


def program(processes: bool) -> bytes:
    """The filter for seccomp, as instructions of BPF: refused calls fail with EPERM, and nothing else changes."""
    refused = {**_NEVER, **({} if processes else _PROCESSES)}
    code = [
        (_LOAD, 0, 0, 4),  # the architecture
        (_JUMP_EQUAL, 1, 0, _X86_64),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),  # the number of the call
        (_JUMP_ABOVE, 0, 1, 0x40000000),  # the x32 table is another one
        (_RETURN, 0, 0, _REFUSE | _EPERM),
        # the C library goes on with clone, whose flags can be seen, where there is no clone3
        (_JUMP_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _REFUSE | _ENOSYS),
    ]
    for number in refused.values():
        code += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE | _EPERM)]
    if not processes:
        code += [
            (_JUMP_EQUAL, 0, 3, _CLONE),
            (_LOAD, 0, 0, 16),  # its flags: a thread may be made
            (_JUMP_SET, 1, 0, _CLONE_THREAD),
            (_RETURN, 0, 0, _REFUSE | _EPERM),
        ]
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *line) for line in code)


def refuse_calls(processes: bool) -> None:
    """Install the filter in this process. Raises OSError where the machine is another one than x86-64."""
    if platform.machine() != "x86_64":
        raise OSError(f"the filter of system calls is for x86-64, and this is {platform.machine()}")
    code = program(processes)
    buffer = ctypes.create_string_buffer(code, len(code))
    count = len(code) // 8
    described = struct.pack("<HxxxxxxQ", count, ctypes.addressof(buffer))
    _checked(_libc.prctl(PR_SET_SECCOMP, 2, described, 0, 0), "seccomp")
