"""What the hook says on stderr: each finding once a process tree, each notice once a process.

A process whose stderr is lost (torch's compile workers have /dev/null) leaves its text in the relay folder, which
the nearest ancestor with a stderr of its own names in ``TRITON_KCONTRACT_RELAY``; that owner prints it at its next
compile or when it ends. The folder holds one file a specialisation: its name is the key, its content what remains to
be said. Forked children speak for themselves and leave an empty file, so that their siblings don't say it again.
The folder is made by the first child that needs it and removed by its owner. Nothing here raises an ``Exception``.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

from kcontract._boot import RELAY, is_mute

_PAUSE = 1.0  # seconds between two looks into the relay folder


class Console:
    """``color`` is ``auto``, ``always`` or ``never``."""

    def __init__(self, color: str) -> None:
        self.color = color
        folder = os.environ.get(RELAY)
        self.folder = Path(folder) if folder else None
        self.owner = _owner(folder)
        self.said: set[str] = set()
        self.printed: set[str] = set()
        self.looked = 0.0
        if self.owner == os.getpid():
            atexit.register(self.close)

    def notice(self, sentence: str) -> None:
        """Say a sentence, once a process."""
        if sentence not in self.said:
            self.said.add(sentence)
            _write(f"kcontract: {sentence}\n")

    def publish(self, key: str, text: str) -> None:
        """Say what was found in the specialisation ``key``; an empty text only marks it as looked at."""
        if self.folder is None or (self.owner == os.getpid() and not self.folder.is_dir()):
            _write(text)
        elif _is_lost():
            self._leave(key, text)
        elif self._leave(key, ""):
            _write(text)

    def looked_at(self, key: str) -> bool:
        """Whether a child of this process, the owner, has reported on that specialisation."""
        return self.folder is not None and self.owner == os.getpid() and os.path.exists(self.folder / key)

    def wants_color(self) -> bool:
        """Whether what ``publish`` gets should be coloured."""
        if self.color != "auto":
            return self.color == "always"
        try:
            return not os.environ.get("NO_COLOR") and sys.stderr.isatty()
        except (AttributeError, ValueError, OSError):
            return False

    def relay(self, *, now: bool = False) -> None:
        """Print what children have left, when this process is the owner and some time has passed."""
        if self.folder is None or self.owner != os.getpid():
            return
        if not now and time.monotonic() - self.looked < _PAUSE:
            return
        self.looked = time.monotonic()
        try:
            for name in sorted(set(os.listdir(self.folder)) - self.printed):
                if not name.startswith("."):
                    self.printed.add(name)
                    _write((self.folder / name).read_text("utf-8", "replace"))
        except OSError:
            pass  # no child needed the folder

    def close(self) -> None:
        """Print the rest and remove the folder."""
        self.relay(now=True)
        if self.folder is not None and self.owner == os.getpid():
            shutil.rmtree(self.folder, ignore_errors=True)

    def _leave(self, key: str, text: str) -> bool:
        """Whether this process is the first to leave that key."""
        assert self.folder is not None
        partial = self.folder / f".{key}.{os.getpid()}"
        try:
            self.folder.mkdir(0o700, exist_ok=True)
            partial.write_text(text, "utf-8", "replace")
            os.link(partial, self.folder / key)
        except FileExistsError:
            return False
        except OSError:
            return True  # no relay: better said twice than never
        finally:
            with suppress(OSError):
                partial.unlink()
        return True


def _owner(folder: str | None) -> int:
    parts = os.path.basename(folder or "").split("-")
    return int(parts[1]) if len(parts) == 3 and parts[1].isdigit() else 0


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
