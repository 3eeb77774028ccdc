"""What the hook says on stderr: each finding once a process tree, each notice once a process.

A process whose stderr is lost (torch's compile workers have /dev/null) leaves its text in the relay folder, which
the nearest ancestor with a stderr of its own names in ``TRITON_KCONTRACT_RELAY``; that owner prints it at its next
compile or when it ends. The folder holds one file a specialisation: its name is the key, its content what remains to
be said. Forked children speak for themselves and leave an empty file, so that their siblings don't say it again.
The folder is made by the first child that needs it and removed by its owner. Nothing here raises an ``Exception``.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import suppress

from kcontract._boot import RELAY, is_mute

_PAUSE = 1.0  # seconds between two looks into the relay folder


class Console:
    """``color`` is ``auto``, ``always`` or ``never``."""

    def __init__(self, color: str) -> None:
        self.color = color
        self.folder = os.environ.get(RELAY, "")
        self.owner = _owner(self.folder)
        self.said: set[str] = set()
        self.looked = 0.0

    def notice(self, sentence: str) -> None:
        """Say a sentence, once a process."""
        if sentence not in self.said:
            self.said.add(sentence)
            _write(f"kcontract: {sentence}\n")

    def publish(self, key: str, text: str) -> None:
        """Say what was found in the specialisation ``key``; an empty text only marks it as looked at."""
        if self.owner == os.getpid():
            if not os.path.isdir(self.folder) or self._leave(key, ""):
                _write(text)
        elif _is_lost():
            self._leave(key, text)
        elif self._leave(key, ""):
            _write(text)

    def looked_at(self, key: str) -> bool:
        """Whether a child of this process, the owner, has reported on that specialisation."""
        return self.owner == os.getpid() and os.path.exists(os.path.join(self.folder, key))

    def wants_color(self) -> bool:
        """Whether what ``publish`` gets should be coloured."""
        if self.color != "auto":
            return self.color == "always"
        try:
            return not os.environ.get("NO_COLOR") and sys.stderr.isatty()
        except (AttributeError, ValueError, OSError):
            return False

    def relay(self) -> None:
        """Print what children have left, when this process is the owner and some time has passed."""
        if self.owner == os.getpid() and time.monotonic() - self.looked > _PAUSE:
            self.looked = time.monotonic()
            drain(self.folder)

    def _leave(self, key: str, text: str) -> bool:
        """Whether this process is the first to leave that key. Without a folder or an owner it always is."""
        if self.owner < 0:
            return True
        partial = os.path.join(self.folder, f".{key}.{os.getpid()}")
        try:
            os.kill(self.owner, 0)
            with suppress(FileExistsError):
                os.mkdir(self.folder, 0o700)
            with open(partial, "w", encoding="utf-8", errors="replace") as file:
                file.write(text)
            os.link(partial, os.path.join(self.folder, key))
        except FileExistsError:
            return False
        except OSError:
            return True  # better said twice than never
        finally:
            with suppress(OSError):
                os.unlink(partial)
        return True


def drain(folder: str) -> None:
    """Print what children have left in the relay folder, and empty the files."""
    with suppress(OSError):  # no child needed the folder
        for entry in os.scandir(folder):
            if not entry.name.startswith(".") and entry.stat().st_size:
                with open(entry.path, encoding="utf-8", errors="replace") as file:
                    text = file.read()
                os.truncate(entry.path, 0)
                _write(text)


def finish(folder: str) -> None:
    """Print the rest and remove the folder; called when its owner ends."""
    drain(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _owner(folder: str) -> int:
    """The process that made the name; -1 where that is unknown."""
    parts = os.path.basename(folder).split("-")
    return int(parts[1]) if len(parts) == 3 and parts[1].isdigit() else -1


def _is_lost() -> bool:
    if sys.stderr is None:
        return True
    try:
        return is_mute(sys.stderr.fileno())
    except (AttributeError, ValueError, OSError):
        return False  # replaced by an object that keeps the text


def _write(text: str) -> None:
    try:
        if text and sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()
    except (OSError, ValueError):
        pass  # a closed or full stderr must not stop a compile
