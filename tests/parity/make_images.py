#!/usr/bin/env python3
"""python tests/parity/make_images.py: writes data/images, which holds a small picture in many common formats. Also writes data/images_golden.safetensors, which holds
these pictures as Pillow reads them: as RGB, and rotated as their EXIF data say. Needs numpy, pillow, safetensors, torch."""
import pathlib
import shutil
import struct
import zlib

import numpy
import torch
from PIL import Image, ImageOps
from safetensors.torch import save_file

DATA = pathlib.Path(__file__).parent / "data"
FOLDER = DATA / "images"
HEIGHT, WIDTH = 12, 20


def smooth():
    """Returns a picture with four different corners. It is so smooth that lossy formats change it little."""
    y, x = numpy.mgrid[0:HEIGHT, 0:WIDTH]
    return numpy.stack([40 + 9 * x, 30 + 15 * y, 220 - 4 * x - 8 * y], 2).astype(numpy.uint8)


def png(name, depth, color, rows):
    """Writes a PNG with a bit depth and color type that Pillow cannot write. `rows` are the picture's numbers."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    data = b"".join(b"\0" + row.astype(">u2").tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, depth, color, 0, 0, 0)
    (FOLDER / name).write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b""))


def exif(orientation):
    tags = Image.Exif()
    tags[0x112] = orientation
    return tags


def with_alpha(image):
    alpha = numpy.linspace(0, 255, HEIGHT * WIDTH).reshape(HEIGHT, WIDTH, 1).astype(numpy.uint8)
    return Image.fromarray(numpy.concatenate([numpy.array(image), alpha], 2))


def write():
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    pixels = smooth()
    image = Image.fromarray(pixels)
    for orientation in range(1, 9):
        image.save(FOLDER / f"turned{orientation}.png", exif=exif(orientation))
    image.save(FOLDER / "turned.jpg", quality=98, subsampling=0, exif=exif(6))
    for orientation in range(1, 9):
        image.save(FOLDER / f"turned{orientation}.avif", quality=100, subsampling="4:4:4", exif=exif(orientation))
    for orientation in (3, 5, 6):
        image.save(FOLDER / f"turned{orientation}.tiff", exif=exif(orientation))
    image.save(FOLDER / "turned.webp", lossless=True, exif=exif(8))
    image.save(FOLDER / "half-colour.jpg", quality=95, subsampling=2)
    image.save(FOLDER / "progressive.jpg", quality=95, progressive=True)
    image.save(FOLDER / "lossy.webp", quality=98)
    image.convert("L").save(FOLDER / "grey.png")
    image.convert("L").save(FOLDER / "grey.jpg", quality=98)
    image.convert("1").save(FOLDER / "one-bit.png")
    image.convert("LA").save(FOLDER / "grey-alpha.png")
    with_alpha(image).save(FOLDER / "alpha.png")
    with_alpha(image).save(FOLDER / "alpha.webp", lossless=True, exact=True)
    image.quantize(14).save(FOLDER / "palette.png", transparency=3)
    image.convert("CMYK").save(FOLDER / "cmyk.jpg")
    image.save(FOLDER / "animated.webp", save_all=True, append_images=[image.transpose(Image.Transpose.ROTATE_180)])
    image.save(FOLDER / "animated.png", save_all=True, append_images=[image.transpose(Image.Transpose.ROTATE_180)])
    image.save(FOLDER / "picture.ppm")
    image.save(FOLDER / "picture.bmp")
    save_file({"image": torch.from_numpy(pixels.copy())}, FOLDER / "bytes.safetensors")
    save_file({"image": torch.from_numpy(pixels / numpy.float32(255))}, FOLDER / "floats.safetensors")
    deep = pixels.astype(numpy.uint16) * 256 + 200  # 16 bits: rounding x / 256 would give the next number, but readers drop the lower byte
    png("deep.png", 16, 2, deep)
    png("deep-grey.png", 16, 0, deep[:, :, 0])
    return pixels


def seen(name, pixels):
    if name.endswith(".safetensors"):
        return pixels
    if name == "deep-grey.png":  # Pillow would read this picture as all white
        return numpy.repeat(pixels[:, :, :1], 3, 2)
    image = Image.open(FOLDER / name)
    image.seek(getattr(image, "n_frames", 1) - 1)
    return numpy.array(ImageOps.exif_transpose(image).convert("RGB"))


if __name__ == "__main__":
    pixels = write()
    names = sorted(path.name for path in FOLDER.iterdir() if path.name not in ("cmyk.jpg", "animated.webp"))
    save_file({name: torch.from_numpy(seen(name, pixels).copy()) for name in names}, DATA / "images_golden.safetensors")
