#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Record files as https://github.com/HFAiLab/ffrecord describes them, by the standard library alone.

  ffrecord.py write FILE SEED COUNT   a file of COUNT records of random sizes and bytes
  ffrecord.py read FILE               checks every checksum; prints "SIZE CRC32" of each record
  ffrecord.py digest SEED COUNT       what `read` prints of the file that `write` writes
"""
import random
import struct
import sys
import zlib


def records(seed, count):
    generator = random.Random(seed)
    return [generator.randbytes(generator.choice([0, 1, 7, 100, 4096, 70000])) for _ in range(count)]


def write(path, samples):
    sums = [zlib.crc32(sample) for sample in samples]
    at = 4 + 8 + 4 * len(samples) + 8 * len(samples)
    offsets = []
    for sample in samples:
        offsets.append(at)
        at += len(sample)
    meta = struct.pack("<q", len(samples))
    meta += struct.pack(f"<{len(sums)}I", *sums) + struct.pack(f"<{len(offsets)}q", *offsets)
    with open(path, "wb") as file:
        file.write(struct.pack("<I", zlib.crc32(meta)) + meta + b"".join(samples))


def read(path):
    with open(path, "rb") as file:
        content = file.read()
    (meta_sum, count) = struct.unpack_from("<Iq", content, 0)
    end_of_meta = 12 + 12 * count
    if zlib.crc32(content[4:end_of_meta]) != meta_sum:
        sys.exit(f"{path}: the header does not fit its checksum")
    sums = struct.unpack_from(f"<{count}I", content, 12)
    offsets = list(struct.unpack_from(f"<{count}q", content, 12 + 4 * count)) + [len(content)]
    samples = [content[offsets[i]:offsets[i + 1]] for i in range(count)]
    for i, sample in enumerate(samples):
        if zlib.crc32(sample) != sums[i]:
            sys.exit(f"{path}: record {i} does not fit its checksum")
    return samples


def show(samples):
    for sample in samples:
        print(len(sample), zlib.crc32(sample))


if __name__ == "__main__":
    what, rest = sys.argv[1], sys.argv[2:]
    if what == "write":
        write(rest[0], records(int(rest[1]), int(rest[2])))
    elif what == "read":
        show(read(rest[0]))
    else:
        show(records(int(rest[0]), int(rest[1])))
