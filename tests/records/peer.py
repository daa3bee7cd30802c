# SPDX-License-Identifier: Apache-2.0
"""What the peers of formats share: the program, which is the first argument, trainings, and images."""
import json
import pathlib
import struct
import subprocess
import sys
import zlib

hearth_program = sys.argv[1]


def png(height, width, seed):
    rows = b"".join(b"\0" + bytes((seed * 31 + y * 5 + x) % 256 for x in range(3 * width)) for y in range(height))
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    header = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def hearth(*words, code=0):
    done = subprocess.run([hearth_program, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr if code else done.stdout


def expect(text, *parts):
    for part in parts:
        assert part in text, (part, text)


def train(name, data, steps=3, code=0):
    config = {"name": name, "device": "cpu", "model": {"type": "mlp", "hidden": [4]}, "data": data,
              "optimizer": {"type": "sgd", "lr": 0.1}, "log": {"report": False},
              "train": {"batch_size": 4, "steps": steps}}
    pathlib.Path(f"{name}.json").write_text(json.dumps(config))
    return hearth("train", f"{name}.json", code=code)


def weights(name):
    files = sorted(pathlib.Path("runs", name).rglob("*.safetensors"))
    assert files, name
    return [file.read_bytes() for file in files]
