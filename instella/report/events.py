"""TensorBoard's event files, written without TensorBoard.

A file is a row of records (TFRecord): length as 8 bytes, its masked CRC-32C, the data, the data's
masked CRC-32C, all little-endian. The data is an ``Event`` in protocol buffers' wire format, of
which a scalar needs: ``Event{double wall_time = 1; int64 step = 2; string file_version = 3; Summary
summary = 5}``, ``Summary{repeated Value value = 1}``, ``Value{string tag = 1; float simple_value =
2}``. Sources: tensorflow/core/util/event.proto, core/framework/summary.proto and
core/lib/io/record_writer.h of TensorFlow.
"""

import struct
from collections.abc import Iterator, Mapping

VERSION = "brain.Event:2"
_HEAD = struct.Struct("<QI")
_TAIL = struct.Struct("<I")


def _table() -> tuple[int, ...]:
    rows = []
    for value in range(256):
        for _ in range(8):
            # Castagnoli's polynomial, its bits reversed (RFC 3720, 12.1)
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        rows.append(value)
    return tuple(rows)


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """CRC-32C of RFC 3720."""
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def _masked(data: bytes) -> int:
    value = crc32c(data)
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(data: bytes) -> bytes:
    """One record of a file."""
    length = struct.pack("<Q", len(data))
    return length + _TAIL.pack(_masked(length)) + data + _TAIL.pack(_masked(data))


def records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The place behind each whole record, and what it holds; ends at the first that is none."""
    place = 0
    while place + _HEAD.size <= len(data):
        length, check = _HEAD.unpack_from(data, place)
        end = place + _HEAD.size + length + _TAIL.size
        if check != _masked(data[place : place + 8]) or end > len(data):
            return
        held = data[place + _HEAD.size : end - _TAIL.size]
        if _TAIL.unpack_from(data, end - _TAIL.size)[0] != _masked(held):
            return
        yield end, held
        place = end


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(found) + bytes([value])


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def first_event(seconds: float) -> bytes:
    """What every file begins with."""
    return b"\x09" + struct.pack("<d", seconds) + _field(3, VERSION.encode())


def scalars_event(seconds: float, step: int, figures: Mapping[str, float]) -> bytes:
    """The figures of one step.

    Args:
        seconds: since 1970.
        step: from 0.
        figures: tag to value; kept as 32-bit floats, infinite where one is too large.
    """
    values = b"".join(
        _field(1, _field(1, tag.encode()) + b"\x15" + _float(value))
        for tag, value in sorted(figures.items())
    )
    return b"\x09" + struct.pack("<d", seconds) + b"\x10" + _varint(step) + _field(5, values)


def _float(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))


def step_of(event: bytes) -> int:
    """The step of an event written by this module; 0 of the first one."""
    if event[9:10] != b"\x10":
        return 0
    step = shift = 0
    for byte in event[10:20]:
        step |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return step
