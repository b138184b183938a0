#!/usr/bin/python3
# Writes event files as TensorBoard's writers do, by a CRC and messages of its own, so that the reader has another judge.
import os
import struct


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(number):
    data = b""
    while number > 127:
        data += bytes([number & 127 | 128])
        number >>= 7
    return data + bytes([number])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def record(event):
    length = struct.pack("<Q", len(event))
    return length + masked(length) + event + masked(event)


def event(step, tag, value, is_tensor=False):
    tensor = b"\x08\x01\x12\x00" + field(5, struct.pack("<f", value))  # DT_FLOAT, a shape without dimensions
    number = field(8, tensor) if is_tensor else b"\x15" + struct.pack("<f", value)
    summary = field(1, field(1, tag.encode()) + number)
    return b"\x09" + struct.pack("<d", 1790000000.5 + step) + b"\x10" + varint(step) + field(5, summary)


os.makedirs("runs/now/test")
with open("runs/now/events.out.tfevents.1790000000.host.1.0", "wb", buffering=0) as file:
    file.write(record(b"\x09" + struct.pack("<d", 1790000000.0) + field(3, b"brain.Event:2")))
    for step in range(1, 101):
        data = record(event(step, "loss", 1 / step, is_tensor=step % 2 == 0))
        file.write(data[:7])
        file.write(data[7:])
with open("runs/now/test/events.out.tfevents.1790000001.host.1.1", "wb") as file:
    for step in range(10, 101, 10):
        file.write(record(event(step, "accuracy", step / 100)))
