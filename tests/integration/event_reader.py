#!/usr/bin/python3
# Reads event files of TensorBoard by a parser of its own, so that the writer has another judge. Prints a line for each
# scalar: tag, step, value, wall time.
import struct
import sys

sys.dont_write_bytecode = True


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def check(data, masked):
    crc = crc32c(data)
    assert struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF) == masked, "a CRC is wrong"


def fields(data):
    at = 0

    def varint():
        nonlocal at
        number = shift = 0
        while True:
            byte = data[at]
            at += 1
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(kind) or varint()
        yield key >> 3, data[at : at + size]
        at += size


for path in sys.argv[1:]:
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    events = []
    while at < len(data):
        check(data[at : at + 8], data[at + 8 : at + 12])
        (size,) = struct.unpack("<Q", data[at : at + 8])
        event = data[at + 12 : at + 12 + size]
        check(event, data[at + 12 + size : at + 16 + size])
        at += 16 + size
        events.append(dict(fields(event)))
    assert events[0][3] == b"brain.Event:2"
    for event in events[1:]:
        for _, value in fields(event[5]):
            scalar = dict(fields(value))
            number = struct.unpack("<f", scalar[2])[0]
            print(scalar[1].decode(), event[2], number, struct.unpack("<d", event[1])[0])
