"""How long a media file says that it is, from its own headers; decoding alone does not tell.

A video that was cut short often decodes without a fault into a shorter clip. MP4 and MOV are boxes
with a length each (ISO/IEC 14496-12; a ``sidx`` box also lists the lengths of the fragments that
follow it), Matroska and WebM hold one segment with a length (RFC 8794, RFC 9559), AVI is RIFF
chunks. A length of zero or "unknown" says nothing. A fragmented MP4 that ends exactly between two
fragments is a whole file as far as anybody can tell, unless it has a ``sidx`` at its start or a
``mfra`` at its end; :func:`is_open_ended` tells of those without.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_BOXES = frozenset(
    {b"ftyp", b"styp", b"moov", b"moof", b"mdat", b"mfra", b"sidx", b"free", b"skip", b"wide"}
)
_EBML, _SEGMENT = 0x1A45DFA3, 0x18538067
# More headers than any real file has; keeps a damaged one from being walked for ever.
_MAX_HEADERS = 1_000_000


def declared_end(path: Path) -> int | None:
    """The byte where the file's own headers say that it ends; None where they do not say."""
    with path.open("rb") as file:
        head = file.read(12)
        file.seek(0)
        if head[4:8] in _BOXES:
            return _end_of_boxes(file, path.stat().st_size)
        if head[:4] == _EBML.to_bytes(4, "big"):
            return _end_of_segment(file)
        if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
            return _end_of_riff(file, path.stat().st_size)
    return None


def is_open_ended(path: Path) -> bool:
    """Whether this is a fragmented MP4 in which nothing tells that its last fragment is there."""
    with path.open("rb") as file:
        if file.read(8)[4:] not in _BOXES:
            return False
        kinds = {kind for _, _, kind in _boxes(file, path.stat().st_size)}
    return b"moof" in kinds and not kinds & {b"sidx", b"mfra"}


def _boxes(file: BinaryIO, size: int) -> Iterator[tuple[int, int, bytes]]:
    """Where each box starts and ends, and its kind; a length that says nothing ends the walk."""
    at = 0
    for _ in range(_MAX_HEADERS):
        if at >= size:
            return
        file.seek(at)
        head = file.read(16)
        length, kind = int.from_bytes(head[:4], "big"), head[4:8]
        if kind not in _BOXES and not (len(head) < 8 and any(head)):
            return  # padding, or something that is no box
        if length == 1:
            length = int.from_bytes(head[8:16], "big")
        if len(head) < 8 or 0 < length < 8:
            yield at, at + 8, b""
            return
        if length == 0:  # to the end of the file, wherever that is
            return
        yield at, at + length, kind
        at += length


def _end_of_boxes(file: BinaryIO, size: int) -> int:
    end = 0
    for start, stop, kind in _boxes(file, size):
        end = max(end, stop)
        if kind == b"sidx":
            end = max(end, _end_of_fragments(file, start, stop - start))
    return end


def _end_of_fragments(file: BinaryIO, at: int, length: int) -> int:
    """Where the last fragment of a segment index ends."""
    file.seek(at + 8)
    body = file.read(min(length - 8, 1 << 20))
    wide = bool(body[:1] != b"\0")
    counts = 4 + 8 + (16 if wide else 8)
    field = 8 if wide else 4
    first_offset = int.from_bytes(body[12 + field : 12 + 2 * field], "big")
    num_references = int.from_bytes(body[counts + 2 : counts + 4], "big")
    references = body[counts + 4 : counts + 4 + 12 * num_references]
    sizes = (
        int.from_bytes(references[i : i + 4], "big") & 0x7FFFFFFF
        for i in range(0, len(references), 12)
    )
    return at + length + first_offset + sum(sizes)


def _end_of_segment(file: BinaryIO) -> int | None:
    at = 0
    for _ in range(4):
        file.seek(at)
        head = file.read(12)
        if len(head) < 5:
            return None
        mark = int.from_bytes(head[:4], "big")
        width = 9 - head[4].bit_length() if head[4] else 0
        if mark not in (_EBML, _SEGMENT) or not width or len(head) < 4 + width:
            return None
        length = int.from_bytes(head[4 : 4 + width], "big") & ((1 << 7 * width) - 1)
        if mark == _SEGMENT:
            is_unknown = length == (1 << 7 * width) - 1
            return None if is_unknown else at + 4 + width + length
        at += 4 + width + length
    return None


def _end_of_riff(file: BinaryIO, size: int) -> int:
    """The end of the last RIFF chunk; a long AVI holds several."""
    at = end = 0
    for _ in range(_MAX_HEADERS):
        file.seek(at)
        head = file.read(8)
        if at >= size or len(head) < 8 or head[:4] != b"RIFF":
            break
        length = int.from_bytes(head[4:8], "little")
        end = at + 8 + length
        at = end + length % 2
    return end
