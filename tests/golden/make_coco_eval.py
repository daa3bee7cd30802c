# SPDX-License-Identifier: Apache-2.0
"""Writes coco_eval.json: made sets of detections and labelled boxes, and pycocotools' figures of them.

  make_coco_eval.py                            writes the file of the tree: 200 sets
  make_coco_eval.py --seed 7 --sets 2000 FILE  writes other sets; with HEARTH_COCO_SETS=FILE the test reads these

Needs pycocotools 2.0.11 and NumPy. Boxes are corners; pycocotools takes x0, y0, x1 - x0, y1 - y0. A set is of the kinds
that the bits of its number choose, see made_set().
"""

import argparse
import contextlib
import io
import json
import pathlib
import random

import numpy
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

DIGITS = 12
CROWD, IGNORED = 1, 2
# A box of 20 x 20 and its part of this height have an IoU that is a threshold, or just below.
HEIGHTS = [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 10 - 1e-10, 15 - 1e-10]


def rounded(numbers):
    short = [round(float(number), DIGITS) for number in numbers]
    return [int(number) if number.is_integer() else number for number in short]


class Evaluation(COCOeval):
    """With labelled boxes that are ignored and no crowds, which COCOeval itself overwrites by `iscrowd`."""

    def _prepare(self):
        super()._prepare()
        for boxes in self._gts.values():
            for box in boxes:
                box["ignore"] = int(box["iscrowd"] or box["left_out"])


def indexed(images, classes, annotations):
    coco = COCO()
    coco.dataset = {
        "images": [{"id": image["id"]} for image in images],
        "categories": [{"id": label} for label in range(classes)],
        "annotations": annotations,
    }
    coco.createIndex()
    return coco


def evaluated(images, classes):
    """COCOeval's figures, AP by class, and precisions [10, 101, classes]."""
    truth, detected = [], []
    for image in images:
        for x0, y0, x1, y1, label, area, flags in image["truth"]:
            width, height = x1 - x0, y1 - y0
            truth.append(
                {
                    "id": len(truth) + 1,
                    "image_id": image["id"],
                    "category_id": label,
                    "bbox": [x0, y0, width, height],
                    "area": width * height if area is None else area,
                    "iscrowd": int(flags & CROWD != 0),
                    "left_out": int(flags & IGNORED != 0),
                }
            )
        for x0, y0, x1, y1, score, label in image["detected"]:
            detected.append(
                {
                    "image_id": image["id"],
                    "category_id": label,
                    "bbox": [x0, y0, x1 - x0, y1 - y0],
                    "score": score,
                }
            )
    coco = indexed(images, classes, truth)
    evaluation = Evaluation(coco, coco.loadRes(detected) if detected else indexed(images, classes, []), "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    precision = evaluation.eval["precision"][:, :, :, 0, 2]
    by_class = [p.mean() if (p > -1).any() else -1 for p in numpy.moveaxis(precision, 2, 0)]
    return evaluation.stats, by_class, precision


class Maker:
    def __init__(self, seed, number):
        self.random = random.Random(f"{seed} {number}")
        self.number = number
        self.classes = self.random.choice([1, 1, 2, 3, 5])
        self.side = self.random.choice([40, 150, 500])
        # Whole pixels, quarters, or hundredths, whose widths are rounded.
        self.step = [1, 1, 0.25, 0.01][number % 4]
        self.few_scores = number % 3 != 0
        self.unused = self.random.randrange(self.classes) if number % 5 == 0 else None

    def at(self, number):
        return round(number) if self.step == 1 else round(round(number / self.step) * self.step, 2)

    def label(self):
        return self.random.randrange(self.classes)

    def score(self):
        return self.random.randrange(1, 8) / 8 if self.few_scores else self.random.randrange(1024) / 1024

    def box(self):
        size = self.random.choice([0.1, 0.3, 0.7]) * self.side
        x, y = self.random.uniform(0, self.side - size), self.random.uniform(0, self.side - size)
        width, height = size * self.random.uniform(0.5, 1), size * self.random.uniform(0.5, 1)
        return [self.at(x), self.at(y), self.at(x + width), self.at(y + height)]

    def moved(self, box):
        most = self.random.choice([0, 0.02, 0.1, 0.3]) * max(box[2] - box[0], box[3] - box[1], 1)
        moved = [self.at(corner + self.random.uniform(-most, most)) for corner in box]
        return [min(moved[0], moved[2]), min(moved[1], moved[3]), max(moved[0], moved[2]), max(moved[1], moved[3])]

    def labelled(self, box, label, flags=0):
        """A labelled box; odd sets have areas that are not those of the boxes."""
        area = None
        if self.number % 2:
            part = self.random.choice([1, 1, 0.5, 0.75])
            area = round(part * (box[2] - box[0]) * (box[3] - box[1]), 3)
        return [*box, label, area, flags]

    def truth(self):
        kind = self.random.random()
        if kind < 0.1:  # areas that are bounds
            x, y = self.random.randrange(self.side), self.random.randrange(self.side)
            side = self.random.choice([32, 96])
            box = [x, y, x + side, y + side]
        elif kind < 0.2:
            x, y = 20 * self.random.randrange(4), 20 * self.random.randrange(4)
            box = [x, y, x + 20, y + 20]
        else:
            box = self.box()
        label = self.label()
        if label == self.unused:
            label = (label + 1) % self.classes
        flags = self.random.choice([0, 0, 0, 0, CROWD, IGNORED]) if self.number % 7 < 3 else 0
        return self.labelled(box, label, flags)

    def detected(self, truth):
        detected = []
        for *box, label, _, flags in truth:
            for _ in range(self.random.choice([0, 1, 1, 2])):
                other = self.moved(box)
                if box[2] - box[0] == 20 and box[3] - box[1] == 20:
                    other = [box[0], box[1], box[2], box[1] + self.random.choice(HEIGHTS)]
                detected.append(other + [self.score(), label if self.random.random() < 0.9 else self.label()])
            if flags & CROWD:
                for _ in range(2):
                    x, y = self.random.uniform(box[0], box[2]), self.random.uniform(box[1], box[3])
                    detected.append([self.at(x), self.at(y), self.at(x + 6), self.at(y + 5), self.score(), label])
        for _ in range(self.random.choice([0, 1, 3])):
            detected.append(self.box() + [self.score(), self.label()])
        self.random.shuffle(detected)
        return detected

    def image(self, identity):
        truth = [self.truth() for _ in range(self.random.choice([0, 1, 2, 4, 6]))]
        if truth and self.random.random() < 0.3:  # two boxes that any detection overlaps alike
            truth.append(list(self.random.choice(truth)))
        detected = self.detected(truth)
        if self.random.random() < 0.2:
            self.add_equal_overlaps(truth, detected)
        kind = self.random.random()
        if kind < 0.1:
            detected = []
        elif kind < 0.15:
            truth = []
        return {"id": identity, "detected": detected, "truth": truth}

    def add_equal_overlaps(self, truth, detected):
        """A detection between two labelled boxes, and one of lower score that overlaps only the first or the second."""
        x, y, label = 100 * self.random.randrange(1, 5), 700, self.label()
        truth += [self.labelled([left, y, left + 20, y + 20], label) for left in (x, x + 10)]
        other = self.random.choice([x, x + 10])
        detected += [[x + 5, y, x + 25, y + 20, 0.75, label], [other, y, other + 20, y + 20, 0.25, label]]

    def crowded(self, identity):
        """More than 100 detections of a class."""
        truth = [self.truth() for _ in range(12)]
        for box in truth:
            box[4] = 0
        detected = [self.moved(self.random.choice(truth)[:4]) + [self.score(), 0] for _ in range(115)]
        # The last detection that counts finds a box, and the next would find another.
        order = sorted(range(115), key=lambda i: -detected[i][4])
        for place, x in ((99, 800), (100, 900)):
            truth.append(self.labelled([x, x, x + 50, x + 50], 0))
            detected[order[place]][:4] = [x, x, x + 50, x + 50]
        return {"id": identity, "detected": detected, "truth": truth}


def made_set(seed, number):
    maker = Maker(seed, number)
    ids = maker.random.sample(range(100), 0 if number % 50 == 49 else maker.random.choice([1, 2, 4]))
    images = [maker.image(identity) for identity in ids]
    if number % 25 == 13:
        images.append(maker.crowded(100))
    return {"classes": maker.classes, "images": images}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("file", nargs="?", default=pathlib.Path(__file__).parent / "coco_eval.json")
    arguments = parser.parse_args()
    lines = []
    for number in range(arguments.sets):
        made = made_set(arguments.seed, number)
        with contextlib.redirect_stdout(io.StringIO()):
            figures, by_class, precision = evaluated(made["images"], made["classes"])
        made["figures"] = rounded(figures)
        made["ap_by_class"] = rounded(by_class)
        if number % 10 == 1:
            made["precision_75"] = [rounded(curve) for curve in precision[5].T]
        lines.append(json.dumps(made, separators=(",", ":")))
    pathlib.Path(arguments.file).write_text('{"sets":[\n' + ",\n".join(lines) + "\n]}\n")


if __name__ == "__main__":
    main()
