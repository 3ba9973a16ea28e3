"""Writes augment.json: augmented images, masks, boxes and batches from torchvision and SciPy.

    python augment.py

Images are small arrays of bytes with fixed parameters. `affine`, crops, colours, erasing, mixup and cutmix are torchvision's functions on
tensors; fill modes, which it has not, are those of scipy.ndimage.affine_transform, with the matrix composed here by NumPy.
"""

import json
from pathlib import Path

import numpy as np
import scipy.ndimage
import torch
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional as F

from common import check_version

FOLDER = Path(__file__).parent
BOXES = [[1.0, 1.0, 4.0, 5.0], [0.0, 2.0, 9.0, 3.0], [6.5, 0.5, 8.5, 6.0]]


def image(channels, height, width, seed):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (channels, height, width), dtype=np.uint8))


def mask(height, width, seed):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 5, (height, width), dtype=np.int64))


def flat(array):
    return {"shape": list(array.shape), "values": array.flatten().tolist()}


def boxes(size):
    return tv_tensors.BoundingBoxes(torch.tensor(BOXES), format="XYXY", canvas_size=size)


def clamped(moved):
    return F.clamp_bounding_boxes(moved, clamping_mode="hard").tolist()


AFFINE = {
    "nothing": {},
    "rotation": {"rotation": 33.0},
    "quarter": {"rotation": 90.0},
    "zoom_in": {"zoom": 1.7},
    "zoom_out": {"zoom": 0.55},
    "shift": {"shift": [2 / 9, -1 / 7]},
    "shear": {"shear": [20.0, 0.0]},
    "shear_both": {"shear": [-15.0, 10.0]},
    "all": {"rotation": -25.0, "shear": [12.0, -8.0], "zoom": 1.2, "shift": [1 / 9, 2 / 7]},
}
NOTHING = {"rotation": 0.0, "shear": [0.0, 0.0], "zoom": 1.0, "shift": [0.0, 0.0]}


def affine_cases():
    for seed, (name, changed) in enumerate(AFFINE.items()):
        settings = NOTHING | changed
        pixels, labels = image(3, 7, 9, seed), mask(7, 9, seed)
        how = {
            "angle": settings["rotation"],
            "translate": [round(settings["shift"][0] * 9), round(settings["shift"][1] * 7)],
            "scale": settings["zoom"],
            "shear": settings["shear"],
        }
        yield {
            "case": f"affine_{name}",
            "kind": "affine",
            "settings": settings | {"fill_mode": "constant", "fill_value": 0.0, "interpolation": "bilinear"},
            "image": flat(pixels),
            "expected": flat(F.affine(pixels, interpolation=InterpolationMode.BILINEAR, **how)),
            "mask": flat(labels),
            "expected_mask": flat(F.affine(tv_tensors.Mask(labels), **how)),
            "boxes": BOXES,
            "expected_boxes": clamped(F.affine(boxes((7, 9)), **how)),
        }
        yield {
            "case": f"affine_nearest_{name}",
            "kind": "affine",
            "settings": settings | {"fill_mode": "constant", "fill_value": 7.0, "interpolation": "nearest"},
            "image": flat(pixels),
            "expected": flat(F.affine(pixels, interpolation=InterpolationMode.NEAREST, fill=[7.0] * 3, **how)),
        }


def fill_cases():
    settings = NOTHING | {"rotation": 40.0, "shear": [10.0, 5.0], "zoom": 0.4, "shift": [0.3, -0.2]}
    turn, x, y = np.deg2rad([settings["rotation"], *settings["shear"]])
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    forward = settings["zoom"] * rotation @ np.array([[1, 0], [-np.tan(y), 1]]) @ np.array([[1, -np.tan(x)], [0, 1]])
    for seed, (mode, scipys) in enumerate(
        [("constant", "grid-constant"), ("nearest", "nearest"), ("reflect", "reflect"), ("wrap", "grid-wrap")]
    ):
        pixels = image(2, 6, 5, 100 + seed).numpy()
        height, width = pixels.shape[1:]
        # SciPy's coordinates are rows and columns, from the centre of the first pixel.
        backward = np.linalg.inv(forward)[::-1, ::-1]
        center = np.array([(height - 1) / 2, (width - 1) / 2])
        shift = np.array([settings["shift"][1] * height, settings["shift"][0] * width])
        offset = center - backward @ (center + shift)
        planes = [
            scipy.ndimage.affine_transform(plane.astype(np.float64), backward, offset, order=1, mode=scipys, cval=30.0)
            for plane in pixels
        ]
        yield {
            "case": f"fill_{mode}",
            "kind": "affine",
            "settings": settings | {"fill_mode": mode, "fill_value": 30.0, "interpolation": "bilinear"},
            "image": flat(pixels),
            "expected": flat(np.round(np.stack(planes)).astype(np.uint8)),
        }


def flip_cases():
    pixels, labels = image(3, 7, 9, 200), mask(7, 9, 200)
    for horizontal, vertical in [(True, False), (False, True), (True, True)]:
        def flip(inpt):
            inpt = F.horizontal_flip(inpt) if horizontal else inpt
            return F.vertical_flip(inpt) if vertical else inpt

        yield {
            "case": f"flip_{horizontal}_{vertical}",
            "kind": "flip",
            "settings": {"horizontal": horizontal, "vertical": vertical},
            "image": flat(pixels),
            "expected": flat(flip(pixels)),
            "mask": flat(labels),
            "expected_mask": flat(flip(tv_tensors.Mask(labels))),
            "boxes": BOXES,
            "expected_boxes": clamped(flip(boxes((7, 9)))),
        }


def crop_cases():
    for seed, (name, top, left, height, width, size) in enumerate(
        [
            ("same", 0, 0, 7, 9, [7, 9]),
            ("larger", 1, 2, 4, 5, [7, 9]),
            ("smaller", 0, 1, 7, 7, [3, 4]),
            ("both", 2, 0, 3, 9, [5, 4]),
            ("row", 6, 0, 1, 9, [2, 3]),
        ]
    ):
        pixels, labels = image(3, 7, 9, 300 + seed), mask(7, 9, 300 + seed)
        part = (top, left, height, width, size)
        yield {
            "case": f"crop_{name}",
            "kind": "crop",
            "settings": {"top": top, "left": left, "height": height, "width": width, "size": size},
            "image": flat(pixels),
            "expected": flat(F.resized_crop(pixels, *part, antialias=True)),
            "mask": flat(labels),
            "expected_mask": flat(
                F.resized_crop(labels[None], *part, interpolation=InterpolationMode.NEAREST_EXACT)[0]
            ),
            "boxes": BOXES,
            "expected_boxes": clamped(F.resized_crop(boxes((7, 9)), *part)),
        }


def color_cases():
    functions = {
        "brightness": (F.adjust_brightness, [0.0, 0.6, 1.0, 1.7]),
        "contrast": (F.adjust_contrast, [0.0, 0.5, 1.0, 1.6]),
        "saturation": (F.adjust_saturation, [0.0, 0.4, 1.0, 2.0]),
        "hue": (F.adjust_hue, [-0.5, -0.13, 0.0, 0.3]),
    }
    for seed, (name, (function, factors)) in enumerate(functions.items()):
        for channels in [1, 3]:
            for factor in factors:
                pixels = image(channels, 5, 6, 400 + seed)
                pixels[:, 0, :3] = torch.tensor([0, 128, 255], dtype=torch.uint8)
                yield {
                    "case": f"{name}_{channels}_{factor}",
                    "kind": name,
                    "settings": {"factor": factor},
                    "image": flat(pixels),
                    "expected": flat(function(pixels, factor)),
                }


def erase_cases():
    pixels = image(3, 7, 9, 500)
    yield {
        "case": "erase",
        "kind": "erase",
        "settings": {"corner": [2, 3], "size": [4, 5], "value": 77.0},
        "image": flat(pixels),
        "expected": flat(F.erase(pixels, 2, 3, 4, 5, torch.full((3, 1, 1), 77, dtype=torch.uint8))),
    }


def mix_cases():
    pixels = torch.stack([image(3, 4, 5, 600 + seed) for seed in range(4)])
    labels = torch.tensor([2, 0, 3, 3])
    params = {"labels": labels, "batch_size": 4, "num_classes": 5}
    shared = {"image": flat(pixels), "labels": labels.tolist()}
    mixup, cutmix = v2.MixUp(num_classes=5), v2.CutMix(num_classes=5)
    params |= {"lam": 0.3}
    yield shared | {
        "case": "mixup",
        "kind": "mixup",
        "settings": {"lambda": 0.3},
        "expected": flat(mixup.transform(pixels.float(), params).round().to(torch.uint8)),
        "probabilities": mixup.transform(labels, params).flatten().tolist(),
    }
    top, left, height, width = 1, 2, 2, 3
    params |= {"box": (left, top, left + width, top + height), "lam_adjusted": 1.0 - height * width / 20}
    yield shared | {
        "case": "cutmix",
        "kind": "cutmix",
        "settings": {"corner": [top, left], "size": [height, width]},
        "expected": flat(cutmix.transform(pixels, params)),
        "probabilities": cutmix.transform(labels, params).flatten().tolist(),
    }


def main():
    check_version()
    makers = [affine_cases, fill_cases, flip_cases, crop_cases, color_cases, erase_cases, mix_cases]
    cases = [case for maker in makers for case in maker()]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (FOLDER / "augment.json").write_text(f"[\n{lines}\n]\n")
    print(f"{len(cases)} cases")


if __name__ == "__main__":
    main()
