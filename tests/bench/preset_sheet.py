#!/usr/bin/env python3
"""Makes a picture of presets side by side: a row for each prompt, a column for each preset, one frame of each video.

tests/bench/preset_sheet.py PROGRAM PROMPTS SHEET.png [options of `batch`], such as assets/prompts/tiny.txt --device cuda --size 512x512 --steps 50
"""
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np

PRESETS = ('exact', 'near', 'balanced', 'fast')
WHICH = 2 / 3  # place of the chosen frame in the video, where moving objects have already moved
SIDE, GAP = 160, 4  # size of a frame on the sheet and distance between frames, in pixels


def frame_of(path):
    """Returns a frame as RGB uint8 [height, width, 3] from a .y4m that `batch` wrote: three planes of the frame's size, BT.601 in limited range."""
    head, _, body = path.read_bytes().partition(b'\n')
    fields = {word[:1]: word[1:] for word in head.split()[1:]}
    shape, mark = (3, int(fields[b'H']), int(fields[b'W'])), b'FRAME\n'
    size = int(np.prod(shape)) + len(mark)
    start = int(len(body) // size * WHICH) * size + len(mark)
    luma, blue, red = np.frombuffer(body, np.uint8, size - len(mark), start).astype(np.float32).reshape(shape)
    luma, blue, red = (luma - 16) / 219, (blue - 128) / 224, (red - 128) / 224
    rgb = np.stack([luma + 1.402 * red, luma - 0.344136 * blue - 0.714136 * red, luma + 1.772 * blue], axis=-1)
    return (rgb.clip(0, 1) * 255 + 0.5).astype(np.uint8)


def reduced(frame):
    step = frame.shape[0] / SIDE
    edges = [round(i * step) for i in range(SIDE + 1)]
    rows = np.add.reduceat(frame.astype(np.float32), edges[:-1], axis=0)
    cells = np.add.reduceat(rows, edges[:-1], axis=1)
    sizes = np.diff(edges)
    return (cells / (sizes[:, None] * sizes)[..., None] + 0.5).astype(np.uint8)


def write_png(path, pixels):
    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
    height, width, _ = pixels.shape
    lines = b''.join(b'\0' + line.tobytes() for line in pixels)
    path.write_bytes(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', width, height, 8, 2, 0, 0, 0)) + chunk(b'IDAT', zlib.compress(lines, 9)) + chunk(b'IEND', b''))


def main():
    program, prompts, sheet, *options = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        jobs = [subprocess.Popen([program, 'batch', prompts, '-o', f'{folder}/{preset}', '--preset', preset, '--format', 'y4m', '--quiet', *options]) for preset in PRESETS]
        if any(job.wait() != 0 for job in jobs):
            sys.exit(1)
        columns = [[reduced(frame_of(video)) for video in sorted(Path(folder, preset).glob('*.y4m'))] for preset in PRESETS]
    rows = len(columns[0])
    pixels = np.full((rows * (SIDE + GAP) - GAP, len(PRESETS) * (SIDE + GAP) - GAP, 3), 255, np.uint8)
    for x, column in enumerate(columns):
        for y, frame in enumerate(column):
            pixels[y * (SIDE + GAP):, x * (SIDE + GAP):][:SIDE, :SIDE] = frame
    write_png(Path(sheet), pixels)


if __name__ == '__main__':
    main()
