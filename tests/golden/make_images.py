# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/images: small images of every kind the decoders meet, and what Pillow makes of them.

Needs Pillow, numpy and jpegtran of libjpeg-turbo. NAME.png/.jpg is the input, NAME.rgb the expected RGB bytes, sizes.txt the sizes.
"""
import io
import os
import struct
import subprocess
import zlib

import numpy as np
from PIL import Image, ImageOps

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "images")
sizes = []


def picture(height, width):
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    red = 127 + 120 * np.sin(x / 5 + y / 11)
    green = 127 + 120 * np.cos(x / 9 - y / 4)
    blue = 255 * (x + y) / (height + width)
    return np.stack([red, green, blue], axis=-1).round().clip(0, 255).astype(np.uint8)


def keep(name, data, rgb):
    with open(os.path.join(HERE, name), "wb") as out:
        out.write(data)
    rgb = np.ascontiguousarray(rgb, dtype=np.uint8)
    with open(os.path.join(HERE, name + ".rgb"), "wb") as out:
        out.write(rgb.tobytes())
    sizes.append(f"{name} {rgb.shape[0]} {rgb.shape[1]}")


def encoded(image, **options):
    out = io.BytesIO()
    image.save(out, **options)
    return out.getvalue()


def on_white(rgba):
    rgba = rgba.astype(np.int64)
    alpha = rgba[..., 3:]
    return (rgba[..., :3] * alpha + 255 * (255 - alpha) + 127) // 255


def raw_png(width, height, depth, color, rows, extra=b"", interlace=0):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra
            + chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows))) + chunk(b"IEND", b""))


def raw_bmp(width, height, bits, rows, palette=b"", masks=(), header=40):
    pad = lambda row: row + b"\0" * (-len(row) % 4)
    pixels = b"".join(pad(row) for row in (rows if height < 0 else rows[::-1]))
    if header == 12:
        info = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        header = 56 if len(masks) == 4 else 40
        info = struct.pack("<IiiHHIIiiII", header, width, height, 1, bits, 3 if masks else 0, len(pixels), 0, 0,
                           len(palette) // 4, 0) + b"".join(struct.pack("<I", mask) for mask in masks)
    start = 14 + len(info) + len(palette)
    return struct.pack("<2sIHHI", b"BM", start + len(pixels), 0, 0, start) + info + palette + pixels


def main():
    os.makedirs(HERE, exist_ok=True)
    rgb = picture(23, 37)
    image = Image.fromarray(rgb)
    grey = image.convert("L")
    three = lambda a: np.repeat(np.asarray(a)[..., None], 3, axis=-1)

    keep("rgb.png", encoded(image, format="PNG"), rgb)
    keep("grey.png", encoded(grey, format="PNG"), three(grey))
    palette = image.quantize(16)
    keep("palette.png", encoded(palette, format="PNG", bits=4), np.asarray(palette.convert("RGB")))
    rgba = np.dstack([rgb, (np.mgrid[0:23, 0:37][1] * 7 % 256).astype(np.uint8)])
    keep("alpha.png", encoded(Image.fromarray(rgba), format="PNG"), on_white(rgba))
    grey_alpha = np.dstack([np.asarray(grey), rgba[..., 3]])
    keep("grey_alpha.png", encoded(Image.fromarray(grey_alpha, "LA"), format="PNG"),
         on_white(np.dstack([three(grey), rgba[..., 3]])))
    bits = np.asarray(grey) > 127
    keep("one_bit.png", encoded(Image.fromarray(bits), format="PNG"), three(bits * np.uint8(255)))
    wide = (np.arange(5 * 7 * 3).reshape(5, 7, 3) * 619 % 65536).astype(">u2")
    keep("rgb16.png", raw_png(7, 5, 16, 2, [row.tobytes() for row in wide]),
         (wide.astype(np.int64) * 255 + 32895 >> 16))
    # tRNS: the grey value 3 of 0..15 is transparent, hence white.
    nibbles = np.arange(24).reshape(4, 6) % 16
    rows = [bytes(row[i] << 4 | row[i + 1] for i in (0, 2, 4)) for row in nibbles.tolist()]
    trns = struct.pack(">I", 2) + b"tRNS" + b"\0\3" + struct.pack(">I", zlib.crc32(b"tRNS\0\3"))
    keep("transparent_grey4.png", raw_png(6, 4, 4, 0, rows, trns), three(np.where(nibbles == 3, 255, nibbles * 17)))
    # One pixel, interlaced, is the shortest Adam7 stream; four need two passes.
    keep("interlaced.png", raw_png(2, 2, 8, 0, [b"\x10", b"\x20", b"\x30\x40"], interlace=1),
         three(np.array([[0x10, 0x20], [0x30, 0x40]], dtype=np.uint8)))

    def jpeg(name, source, **options):
        data = encoded(source, format="JPEG", **options)
        keep(name, data, np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))

    jpeg("rgb.jpg", image, quality=90, subsampling=0)
    jpeg("subsampled.jpg", image, quality=75, subsampling=2)
    jpeg("progressive.jpg", image, quality=80, progressive=True)
    jpeg("grey.jpg", grey, quality=85)
    jpeg("restarts.jpg", image, quality=80, restart_marker_blocks=2)
    jpeg("cmyk.jpg", image.convert("CMYK"), quality=95)
    lossless = subprocess.run(["jpegtran", "-arithmetic", "-copy", "none", os.path.join(HERE, "rgb.jpg")],
                              check=True, capture_output=True)
    keep("arithmetic.jpg", lossless.stdout, np.asarray(Image.open(os.path.join(HERE, "rgb.jpg"))))

    def webp(name, source, **options):
        data = encoded(source, format="WEBP", **options)
        made = np.asarray(Image.open(io.BytesIO(data)).convert("RGBA"))
        keep(name, data, on_white(made))

    webp("lossy.webp", image, quality=80)
    webp("lossless.webp", image, lossless=True)
    webp("lossy_alpha.webp", Image.fromarray(rgba), quality=80)
    webp("lossless_alpha.webp", Image.fromarray(rgba), lossless=True, exact=True)

    keep("rgb.bmp", encoded(image, format="BMP"), rgb)
    keep("palette.bmp", encoded(palette, format="BMP"), np.asarray(palette.convert("RGB")))
    keep("one_bit.bmp", encoded(Image.fromarray(bits), format="BMP"), three(bits * np.uint8(255)))
    # What Pillow does not write: 4 bits, 16 bits in fields, 32 bits with alpha from the top down, and the header of OS/2.
    keep("four_bits.bmp", raw_bmp(6, 4, 4, rows,
                                  palette=b"".join(bytes((v * 17, v * 5, 255 - v * 17, 0)) for v in range(16))),
         np.stack([255 - nibbles * 17, nibbles * 5, nibbles * 17], axis=-1))
    fields = (np.arange(35).reshape(5, 7) * 1871 % 65536).astype("<u2")
    scaled = lambda v, most: (v.astype(np.int64) * 255 + most // 2) // most
    keep("fields16.bmp", raw_bmp(7, 5, 16, [row.tobytes() for row in fields], masks=(0xf800, 0x7e0, 0x1f)),
         np.stack([scaled(fields >> 11, 31), scaled(fields >> 5 & 63, 63), scaled(fields & 31, 31)], axis=-1))
    bgra = rgba[..., [2, 1, 0, 3]]
    keep("alpha32.bmp", raw_bmp(37, -23, 32, [row.tobytes() for row in bgra],
                                masks=(0xff0000, 0xff00, 0xff, 0xff000000)), on_white(rgba))
    keep("plain32.bmp", raw_bmp(37, 23, 32, [row.tobytes() for row in bgra]), rgb)
    keep("os2.bmp", raw_bmp(37, 23, 24, [row.tobytes() for row in rgb[..., ::-1]], header=12), rgb)

    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        for kind, options in {"jpg": {"format": "JPEG", "quality": 95, "subsampling": 0}, "png": {"format": "PNG"},
                              "webp": {"format": "WEBP", "lossless": True}}.items():
            if kind != "jpg" and orientation != 6:
                continue
            data = encoded(image, exif=exif.tobytes(), **options)
            upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
            keep(f"orientation_{orientation}.{kind}", data, np.asarray(upright))

    for name, (side_h, side_w, filter) in {"down": (9, 16, Image.BILINEAR), "up": (41, 50, Image.BILINEAR),
                                           "mixed": (40, 30, Image.BILINEAR), "same_width": (10, 37, Image.BILINEAR),
                                           "cubic_down": (9, 16, Image.BICUBIC),
                                           "cubic_up": (41, 50, Image.BICUBIC)}.items():
        made = np.asarray(image.resize((side_w, side_h), filter))
        with open(os.path.join(HERE, f"resize_{name}.rgb"), "wb") as out:
            out.write(made.tobytes())
    with open(os.path.join(HERE, "sizes.txt"), "w") as out:
        out.write("\n".join(sizes) + "\n")


main()
