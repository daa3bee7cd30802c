# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/augment: what Pillow makes of an image by each change of RandAugment.

Needs Pillow and numpy. NAME.png holds the image and below it one result after another, in the order of the names and
strengths of the cases here and in tests/data/images/transforms/rand_augment_test.cpp. The image: rgb.png of tests/golden/images, values
drawn together so that there is something to stretch.
"""
import os

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

HERE = os.path.dirname(os.path.abspath(__file__))
FILL = (120, 60, 200)


def moved(image, a, b, c, d, e, f):
    fill = FILL if image.mode == "RGB" else FILL[0]
    return image.transform(image.size, Image.AFFINE, (a, b, c, d, e, f), resample=Image.BILINEAR, fillcolor=fill)


def turned(image, degrees):
    fill = FILL if image.mode == "RGB" else FILL[0]
    return image.rotate(degrees, resample=Image.BILINEAR, fillcolor=fill)


def results(image):
    width, height = image.size
    yield ImageOps.autocontrast(image)
    yield ImageOps.equalize(image)
    yield turned(image, 27)
    yield turned(image, -13.5)
    yield ImageOps.solarize(image, 100)
    yield ImageEnhance.Color(image).enhance(1.81)
    yield ImageEnhance.Color(image).enhance(0.3)
    yield ImageOps.posterize(image, 3)
    yield ImageEnhance.Contrast(image).enhance(0.4)
    yield ImageEnhance.Contrast(image).enhance(1.7)
    yield ImageEnhance.Brightness(image).enhance(1.6)
    yield ImageEnhance.Sharpness(image).enhance(1.9)
    yield ImageEnhance.Sharpness(image).enhance(0.1)
    yield moved(image, 1, 0.27, 0, 0, 1, 0)
    yield moved(image, 1, 0, 0, -0.3, 1, 0)
    yield moved(image, 1, 0, 0.405 * width, 0, 1, 0)
    yield moved(image, 1, 0, 0, 0, 1, -0.2 * height)


def main():
    folder = os.path.join(HERE, "augment")
    os.makedirs(folder, exist_ok=True)
    whole = np.asarray(Image.open(os.path.join(HERE, "images", "rgb.png")))
    color = Image.fromarray((40 + whole * 0.6).astype(np.uint8))
    for name, image in {"color": color, "grey": color.convert("L")}.items():
        rows = [np.asarray(image)] + [np.asarray(result) for result in results(image)]
        Image.fromarray(np.concatenate(rows)).convert("RGB").save(os.path.join(folder, name + ".png"), optimize=True)


main()
