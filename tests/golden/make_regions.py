# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/regions: images large enough to decode a part of, of every kind that decoders treat differently.

Needs Pillow, numpy and jpegtran of libjpeg-turbo. NAME.2.rgb, NAME.4.rgb and NAME.8.rgb are what Pillow's draft() gives at
1/2, 1/4 and 1/8 of the size.
"""
import io
import os
import subprocess

import numpy as np
from PIL import Image

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "regions")


def picture(height, width):
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    texture = np.random.default_rng(7).normal(0, 12, (height, width))
    red = 127 + 110 * np.sin(x / 7 + y / 15) + texture
    green = 127 + 110 * np.cos(x / 13 - y / 6) + texture
    blue = 255 * (x + y) / (height + width) - texture
    return np.stack([red, green, blue], axis=-1).round().clip(0, 255).astype(np.uint8)


def write(name, data):
    with open(os.path.join(HERE, name), "wb") as out:
        out.write(data)
    return data


def main():
    os.makedirs(HERE, exist_ok=True)
    image = Image.fromarray(picture(117, 149))

    def keep(name, source, **options):
        out = io.BytesIO()
        source.save(out, **options)
        return write(name, out.getvalue())

    def jpeg(name, source, **options):
        data = keep(name, source, format="JPEG", quality=85, **options)
        if source.mode != "RGB":
            return
        for times in (2, 4, 8):
            small = Image.open(io.BytesIO(data))
            small.draft("RGB", (149 // times, 117 // times))
            write(f"{name}.{times}.rgb", np.asarray(small.convert("RGB")).tobytes())

    for name, subsampling in {"444": 0, "422": 1, "420": 2}.items():
        jpeg(name + ".jpg", image, subsampling=subsampling)
    jpeg("progressive.jpg", image, subsampling=2, progressive=True)
    jpeg("restarts.jpg", image, subsampling=2, restart_marker_blocks=3)
    jpeg("grey.jpg", image.convert("L"))
    jpeg("cmyk.jpg", image.convert("CMYK"))
    for name, options in {"440": ["-rotate", "90"], "arithmetic": ["-arithmetic"]}.items():
        source = os.path.join(HERE, "422.jpg" if name == "440" else "420.jpg")
        made = subprocess.run(["jpegtran", *options, "-copy", "none", source], check=True, capture_output=True)
        write(name + ".jpg", made.stdout)
    for orientation in range(2, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        keep(f"orientation_{orientation}.jpg", image, format="JPEG", quality=85, subsampling=2, exif=exif.tobytes())

    alpha = (np.mgrid[0:117, 0:149][1] * 7 % 256).astype(np.uint8)
    rgba = Image.fromarray(np.dstack([np.asarray(image), alpha]))
    keep("lossy.webp", image, format="WEBP", quality=80)
    keep("lossy_alpha.webp", rgba, format="WEBP", quality=80)
    small = image.resize((61, 47), Image.BILINEAR)
    keep("lossless.webp", small, format="WEBP", lossless=True)
    keep("rgb.png", small, format="PNG")
    keep("alpha.png", rgba.crop((0, 0, 61, 47)), format="PNG")
    keep("rgb.bmp", small, format="BMP")
    keep("palette.bmp", small.quantize(16), format="BMP")


main()
