"""Reads frames of .y4m videos that `batch` wrote, reduces them, and writes PNG files. Scripts that make sheets share it."""
import struct
import zlib

import numpy as np


def frames_of(path, places):
    """Returns frames as RGB uint8 [height, width, 3] from a .y4m that `batch` wrote: three planes of the frame's size, BT.601 in limited range.

    places: where the frames are in the video, from 0 (first frame) to 1 (last frame)."""
    head, _, body = path.read_bytes().partition(b'\n')
    fields = {word[:1]: word[1:] for word in head.split()[1:]}
    shape, mark = (3, int(fields[b'H']), int(fields[b'W'])), b'FRAME\n'
    size = int(np.prod(shape)) + len(mark)
    frames = []
    for place in places:
        start = min(int(len(body) // size * place), len(body) // size - 1) * size + len(mark)
        luma, blue, red = np.frombuffer(body, np.uint8, size - len(mark), start).astype(np.float32).reshape(shape)
        luma, blue, red = (luma - 16) / 219, (blue - 128) / 224, (red - 128) / 224
        rgb = np.stack([luma + 1.402 * red, luma - 0.344136 * blue - 0.714136 * red, luma + 1.772 * blue], axis=-1)
        frames.append((rgb.clip(0, 1) * 255 + 0.5).astype(np.uint8))
    return frames


def reduced(frame, height, width):
    """Returns a frame at a smaller size. Each pixel is the mean of the pixels that it replaces."""
    edges = [[round(i * old / new) for i in range(new + 1)] for old, new in zip(frame.shape, (height, width))]
    rows = np.add.reduceat(frame.astype(np.float32), edges[0][:-1], axis=0)
    cells = np.add.reduceat(rows, edges[1][:-1], axis=1)
    areas = np.diff(edges[0])[:, None, None] * np.diff(edges[1])[:, None]
    return (cells / areas + 0.5).astype(np.uint8)


def grid(rows, gap):
    """Returns a picture of pictures of one size, rows of columns, with white gaps of `gap` pixels between them."""
    height, width, _ = rows[0][0].shape
    pixels = np.full((len(rows) * (height + gap) - gap, len(rows[0]) * (width + gap) - gap, 3), 255, np.uint8)
    for y, row in enumerate(rows):
        for x, picture in enumerate(row):
            pixels[y * (height + gap):, x * (width + gap):][:height, :width] = picture
    return pixels


def write_png(path, pixels):
    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
    height, width, _ = pixels.shape
    lines = b''.join(b'\0' + line.tobytes() for line in pixels)
    path.write_bytes(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', width, height, 8, 2, 0, 0, 0)) + chunk(b'IDAT', zlib.compress(lines, 9)) + chunk(b'IEND', b''))
