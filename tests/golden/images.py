"""Writes images/ and images.json: small PNG and JPEG files, and what Pillow makes of them.

    python images.py

Each case has a file, how it is read, the bytes in rows (channels of a pixel together) as hexadecimal digits, and by how much they may
differ. Sixteen bits become eight by v / 257, rounded, since Pillow clips them. JPEG decoders differ by a little.
"""

import json
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

FOLDER = Path(__file__).parent
IMAGES = FOLDER / "images"
random = np.random.default_rng(5)


def scene(height, width, channels=3):
    """Smooth, with an edge and a little noise."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [128 + 100 * np.sin(x / (3 + c) + c) * np.cos(y / (4 - c)) + 20 * (x > y) for c in range(channels)]
    noise = random.normal(0, 6, (height, width, channels))
    return np.clip(np.stack(planes, -1) + noise, 0, 255).astype(np.uint8)


def save16(name, values):
    """A PNG of 16 bits for each channel, which Pillow does not write in color."""
    import struct
    import zlib

    height, width = values.shape[:2]
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[values.shape[2]]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)

    def chunk(tag, data):
        return struct.pack(">I", len(data)) + tag + data + struct.pack(">I", zlib.crc32(tag + data))

    header = struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
    (IMAGES / name).write_bytes(png)


def main():
    IMAGES.mkdir(exist_ok=True)
    cases = []

    def case(file, image, channels=3, size=None, resize="stretch", tolerance=0):
        bytes = np.asarray(image, np.uint8)
        shape = list(bytes.shape[:2])
        options = {"size": size and list(size), "channels": channels, "resize": resize}
        cases.append({"file": file, **options, "shape": shape, "tolerance": tolerance, "bytes": bytes.tobytes().hex()})

    color = Image.fromarray(scene(9, 13))
    grey = Image.fromarray(scene(9, 13)[..., 1])
    alpha = random.integers(0, 256, (9, 13), dtype=np.uint8)
    with_alpha, grey_alpha = color.copy(), Image.merge("LA", [grey, Image.fromarray(alpha)])
    with_alpha.putalpha(Image.fromarray(alpha))
    palette = color.quantize(12)
    palette.info["transparency"] = 3
    bilevel = grey.point(lambda v: 255 * (v > 128)).convert("1")
    kinds = {
        "color": color, "grey": grey, "color-alpha": with_alpha, "grey-alpha": grey_alpha, "palette": palette, "bilevel": bilevel,
    }
    for name, image in kinds.items():
        image.save(IMAGES / f"{name}.png", optimize=True)
        found = Image.open(IMAGES / f"{name}.png")
        case(f"{name}.png", found.convert("RGB"))
        case(f"{name}.png", found.convert("L"), channels=1)
    for name, channels in [("grey-16", 1), ("color-16", 3), ("color-alpha-16", 4)]:
        values = random.integers(0, 65536, (5, 7, channels))
        values[0, 0], values[0, 1], values[0, 2] = 0, 65535, 128 * 257 + 128
        save16(f"{name}.png", values)
        eight = np.floor(values[..., :3] / 257 + 0.5).astype(np.uint8)
        case(f"{name}.png", np.broadcast_to(eight, (5, 7, 3)))

    photo = Image.fromarray(scene(30, 41))
    photo.save(IMAGES / "photo.png", optimize=True)
    tall = Image.fromarray(scene(37, 20))
    tall.save(IMAGES / "tall.png", optimize=True)
    for name, image in [("photo", photo), ("tall", tall)]:
        for size in [(16, 16), (12, 24), (7, 13), (30, 10), (1, 1), (33, 45)][: 6 if name == "photo" else 5]:
            height, width = size
            for channels, mode in [(3, "RGB"), (1, "L")] if size == (12, 24) else [(3, "RGB")]:
                of_mode, to = image.convert(mode), (width, height)
                fill = (114,) * 3 if mode == "RGB" else 114
                made = {
                    "stretch": of_mode.resize(to, Image.BILINEAR),
                    "pad:114": ImageOps.pad(of_mode, to, Image.BILINEAR, color=fill),
                    "crop": ImageOps.fit(of_mode, to, Image.BILINEAR),
                }
                for resize, expected in made.items():
                    case(f"{name}.png", expected, channels, size, resize, tolerance=1)

    photo.save(IMAGES / "baseline.jpg", quality=90)
    photo.save(IMAGES / "progressive.jpg", quality=90, progressive=True, subsampling=0)
    photo.convert("L").save(IMAGES / "grey.jpg", quality=90)
    photo.convert("CMYK").save(IMAGES / "cmyk.jpg", quality=90)
    for name in ["baseline", "progressive", "grey", "cmyk"]:
        case(f"{name}.jpg", Image.open(IMAGES / f"{name}.jpg").convert("RGB"), tolerance=6)

    # One gradient, stored as each orientation says, so that all look the same.
    y, x = np.mgrid[0:16, 0:24]
    upright = np.stack([x * 10, y * 15, 255 - x * 5 - y * 5], -1).clip(0, 255).astype(np.uint8)
    stored = {
        1: upright, 2: upright[:, ::-1], 3: upright[::-1, ::-1], 4: upright[::-1],
        5: upright.transpose(1, 0, 2), 6: np.rot90(upright, 1), 7: np.rot90(upright, 1)[:, ::-1], 8: np.rot90(upright, -1),
    }
    stored[7] = upright[::-1, ::-1].transpose(1, 0, 2)
    for orientation, pixels in stored.items():
        exif = Image.Exif()
        exif[0x0112] = orientation
        name = f"turned-{orientation}.jpg"
        Image.fromarray(np.ascontiguousarray(pixels)).save(IMAGES / name, quality=95, subsampling=0, exif=exif)
        seen = ImageOps.exif_transpose(Image.open(IMAGES / name)).convert("RGB")
        assert np.abs(np.asarray(seen, int) - upright).max() < 12, orientation
        case(name, seen, tolerance=6)
    png = Image.fromarray(np.ascontiguousarray(stored[6]))
    exif = Image.Exif()
    exif[0x0112] = 6
    png.save(IMAGES / "turned-6.png", optimize=True, exif=exif)
    case("turned-6.png", upright)

    # Masks: labels, resized by the nearest pixel.
    labels = (np.add.outer(np.arange(30) // 5, np.arange(41) // 7) % 4).astype(np.uint8)
    mask = Image.fromarray(labels)
    indexed = mask.copy()
    indexed.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255])
    indexed.save(IMAGES / "mask-palette.png", bits=2)
    mask.save(IMAGES / "mask-grey.png", optimize=True)
    masks = []
    for size in [(16, 16), (7, 13), (45, 60)]:
        to = size[::-1]
        made = {
            "stretch": mask.resize(to, Image.NEAREST),
            "pad": ImageOps.pad(mask, to, Image.NEAREST, color=0),
            "crop": ImageOps.fit(mask, to, Image.NEAREST),
        }
        for resize, expected in made.items():
            bytes = np.asarray(expected).tobytes().hex()
            masks.append({"size": list(size), "resize": resize, "bytes": bytes})
    text = json.dumps({"images": cases, "masks": masks}, indent=None, separators=(",", ":"))
    (FOLDER / "images.json").write_text(text.replace('{"file"', '\n{"file"').replace('{"size"', '\n{"size"') + "\n")


if __name__ == "__main__":
    main()
