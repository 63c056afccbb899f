"""How much a Parquet file unpacks to, found without unpacking any of it.

The footer only claims sizes. What a reader allocates, and decompresses into, is what the header of
each page says, so the headers are walked: a page is a Thrift struct in the compact protocol,
followed by as many bytes as its header says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_UNPACKED, _PACKED = 2, 3
"""Fields of a page's header."""
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 0, 1, 2, 3, 7, 8, 12
_INTEGERS = (4, 5, 6)
_DEEPEST = 8
"""Structs in structs; a page's header has three."""


def unpacked_bytes(content: bytes, metadata: Any, *, max_pages: int) -> int:
    """Bytes of all pages once unpacked, by their headers.

    `metadata` is what pyarrow read of the footer. `ValueError` where a header is none, or there are
    more than `max_pages`.
    """
    total, pages = 0, 0
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            if chunk.num_values <= 0:
                continue  # Arrow reads no page of it.
            at = chunk.data_page_offset
            if chunk.has_dictionary_page and 0 < (chunk.dictionary_page_offset or 0) < at:
                at = chunk.dictionary_page_offset
            end = at + chunk.total_compressed_size
            if not 0 <= at <= end <= len(content):
                raise ValueError("a column lies outside of the file")
            while at < end:
                header = _Header(content, at)
                fields = header.struct()
                unpacked, packed = fields.get(_UNPACKED, -1), fields.get(_PACKED, -1)
                pages += 1
                if unpacked < 0 or packed < 0 or pages > max_pages:
                    raise ValueError("its pages are damaged or too many")
                total += unpacked
                at = header.at + packed
    return total


@dataclass(slots=True)
class _Header:
    """Reads one Thrift struct, and only keeps the integers directly in it."""

    content: bytes
    at: int

    def struct(self, depth: int = 0) -> dict[int, int]:
        """Field number -> value of each integer field; everything else is passed over."""
        if depth > _DEEPEST:
            raise ValueError("a page's header is too deep")
        fields: dict[int, int] = {}
        number = 0
        while (head := self._byte()) & 0x0F != _STOP:
            number = number + (head >> 4) if head >> 4 else self._integer()
            kind = head & 0x0F
            if kind in _INTEGERS:
                fields[number] = self._integer()
            else:
                self._skip(kind, depth)
        return fields

    def _skip(self, kind: int, depth: int) -> None:
        if kind in (_TRUE, _FALSE):
            return
        if kind in _INTEGERS:
            self._integer()
        elif kind == _BYTE:
            self._byte()
        elif kind == _DOUBLE:
            self.at += 8
        elif kind == _BINARY:
            length = self._varint()
            self.at += length
        elif kind == _STRUCT:
            self.struct(depth + 1)
        else:
            # No page header holds a list, a set or a map.
            raise ValueError("a page's header is damaged")

    def _integer(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _varint(self) -> int:
        number = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise ValueError("a page's header is damaged")

    def _byte(self) -> int:
        if not 0 <= self.at < len(self.content):
            raise ValueError("a page's header is cut")
        self.at += 1
        return self.content[self.at - 1]
