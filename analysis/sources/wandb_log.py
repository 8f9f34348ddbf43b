"""Read the log format of `.wandb` files: LevelDB's blocks and checksums after 7 header bytes.

A file is `:W&B`, the magic number 0xBEE1 and the version 0, then blocks of 32768 bytes, the header
being part of the first. A block holds chunks: CRC-32 of type and data (u32), length (u16), type
(u8), data, all little-endian. Where less than a chunk's head is left of a block, it is zeros. A
record is one chunk of type 1, or chunks of the types 2, 3 ..., 4. LevelDB's format has CRC-32C;
wandb's has the CRC of zlib.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

HEADER = struct.Struct("<4sHB")
CHUNK = struct.Struct("<IHB")
MAGIC = (b":W&B", 0xBEE1, 0)
BLOCK = 32768
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
# Which types may follow, without and within a record.
FOLLOWS = {False: (FULL, FIRST), True: (MIDDLE, LAST)}


@dataclass(frozen=True)
class Stop:
    """Where reading ended before the end of the file, and why. offset: bytes from its start."""

    offset: int
    why: str


class Log:
    """The records of a file, up to the first byte that cannot be trusted.

    After iteration `stop` is that place; None if everything was read.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.stop: Stop | None = None

    def __iter__(self) -> Iterator[bytes]:
        self.stop = self._refused()
        offset, parts, begun = HEADER.size, list[bytes](), HEADER.size
        while self.stop is None and offset < len(self._data):
            left = BLOCK - offset % BLOCK
            if left < CHUNK.size:
                offset += left
                continue
            if why := self._fault(offset, left, bool(parts)):
                self.stop = Stop(offset, why)
                return
            _, length, kind = CHUNK.unpack_from(self._data, offset)
            begun = begun if parts else offset
            start = offset + CHUNK.size
            parts.append(self._data[start : start + length])
            offset = start + length
            if kind in (FULL, LAST):
                yield b"".join(parts)
                parts = []
        if self.stop is None and parts:
            self.stop = Stop(begun, "the record's last part is missing")

    def _refused(self) -> Stop | None:
        """Why this is no such file, if it is none."""
        if len(self._data) < HEADER.size:
            return Stop(0, "the header is cut off")
        found = HEADER.unpack_from(self._data)
        return None if found == MAGIC else Stop(0, f"the header is {found}, not {MAGIC}")

    def _fault(self, offset: int, left: int, within: bool) -> str:
        """What is wrong with the chunk at an offset, "" if nothing is."""
        if len(self._data) - offset < CHUNK.size:
            return "a chunk's head is cut off"
        checksum, length, kind = CHUNK.unpack_from(self._data, offset)
        if length > left - CHUNK.size:
            return f"a chunk of {length} bytes does not fit its block"
        start = offset + CHUNK.size
        if start + length > len(self._data):
            return f"a chunk of {length} bytes is cut off after {len(self._data) - start}"
        data = self._data[start : start + length]
        if zlib.crc32(data, zlib.crc32(bytes([kind]))) != checksum:
            return "the checksum does not fit"
        return "" if kind in FOLLOWS[within] else f"a chunk of type {kind} where none belongs"
