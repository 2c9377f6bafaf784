"""The last things that a program did, in a file that survives the death of its interpreter."""

from __future__ import annotations

import mmap
from pathlib import Path

SIZE = 1 << 16


class Trail:
    """A ring of lines in shared memory backed by a file; a note costs a copy."""

    def __init__(self, path: str | None) -> None:
        self.memory: mmap.mmap | None = None
        self.at = 0
        if path is not None:
            with open(path, "w+b") as file:
                file.truncate(SIZE)
                self.memory = mmap.mmap(file.fileno(), SIZE)

    def note(self, text: str) -> None:
        """Adds a line; older ones give way."""
        if self.memory is None:
            return
        line = text.replace("\n", " ").replace("\0", " ")[:400].encode(errors="replace") + b"\n\0"
        if self.at + len(line) > SIZE:
            self.memory[self.at :] = bytes(SIZE - self.at)
            self.at = 0
        self.memory[self.at : self.at + len(line)] = line
        # The 0 byte marks where the newest line ends; the next one overwrites it.
        self.at += len(line) - 1


def read(path: str | Path, lines: int = 40) -> list[str]:
    """The last lines of a trail, the oldest first."""
    content = Path(path).read_bytes()
    newest, _, older = content.partition(b"\0")
    every = (older.strip(b"\0").split(b"\n", 1)[-1] + newest).decode(errors="replace")
    return every.split("\n")[-lines - 1 : -1]
