#!/usr/bin/env python3
"""Makes a picture of presets side by side: a row for each prompt, a column for each preset, one frame of each video.

tests/bench/preset_sheet.py PROGRAM PROMPTS SHEET.png [options of `batch`], such as assets/prompts/tiny.txt --device cuda --size 512x512 --steps 50
"""
import subprocess
import sys
import tempfile
from pathlib import Path

from sheets import frames_of, grid, reduced, write_png

PRESETS = ('exact', 'near', 'balanced', 'fast')
WHICH = 2 / 3  # place of the chosen frame in the video, where moving objects have already moved
SIDE, GAP = 160, 4  # size of a frame on the sheet and distance between frames, in pixels


def main():
    program, prompts, sheet, *options = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        jobs = [subprocess.Popen([program, 'batch', prompts, '-o', f'{folder}/{preset}', '--preset', preset, '--format', 'y4m', '--quiet', *options]) for preset in PRESETS]
        if any(job.wait() != 0 for job in jobs):
            sys.exit(1)
        columns = [[reduced(frames_of(video, [WHICH])[0], SIDE, SIDE) for video in sorted(Path(folder, preset).glob('*.y4m'))] for preset in PRESETS]
    write_png(Path(sheet), grid(list(zip(*columns)), GAP))


if __name__ == '__main__':
    main()
