#!/usr/bin/env python3
"""Makes sheets of videos for somebody who must not know which setting made a video, and counts their answers.

tests/bench/blind_sheet.py make OUT SEED FOLDER FOLDER..    each folder holds the videos of one setting, which `batch --format y4m` made
tests/bench/blind_sheet.py count OUT ANSWERS                each line of ANSWERS is a number and `right` or `wrong`

`make` shuffles the videos of all folders. It writes sheet-1.png and so on with one video in each row, prompts.txt with the numbers and prompts of the rows, and
the hidden file .key.json with their folders.
"""
import json
import random
import sys
from collections import Counter
from pathlib import Path

from sheets import frames_of, grid, reduced, write_png

PLACES = (0, 1 / 3, 2 / 3, 1)       # of the frames in the video
WIDTH, GAP, ROWS = 320, 4, 6        # width of a frame and distance between frames, in pixels; rows of a sheet


def make(out, seed, *folders):
    videos = [path for folder in folders for path in sorted(Path(folder).glob('*.y4m'))]
    if not videos:
        sys.exit('the folders hold no .y4m videos')
    random.Random(int(seed)).shuffle(videos)
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    rows, lines = [], []
    for i, path in enumerate(videos):
        frames = frames_of(path, PLACES)
        height, width, _ = frames[0].shape
        scale = min(1, WIDTH / width)
        rows.append([reduced(frame, round(height * scale), round(width * scale)) for frame in frames])
        prompt = json.loads(path.with_name(path.name + '.json').read_text())['prompt']
        lines.append(f'{i + 1} (sheet {i // ROWS + 1}, row {i % ROWS + 1}): {prompt}\n')
    if len({frame.shape for row in rows for frame in row}) > 1:
        sys.exit('the videos have different sizes')
    for i in range(0, len(rows), ROWS):
        write_png(out / f'sheet-{i // ROWS + 1}.png', grid(rows[i:i + ROWS], GAP))
    (out / 'prompts.txt').write_text(''.join(lines))
    (out / '.key.json').write_text(json.dumps({str(i + 1): str(path) for i, path in enumerate(videos)}, indent=1))


def count(out, answers):
    key, right, shown = json.loads((Path(out) / '.key.json').read_text()), Counter(), Counter()
    answered = dict((line.split() + [''])[:2] for line in Path(answers).read_text().splitlines() if line.strip())
    if answered.keys() != key.keys() or not set(answered.values()) <= {'right', 'wrong'}:
        sys.exit(f'{answers} needs a line with right or wrong for each of the {len(key)} numbers')
    for number, path in key.items():
        shown[str(Path(path).parent)] += 1
        right[str(Path(path).parent)] += answered[number] == 'right'
    for folder in sorted(shown):
        print(f'{folder}: {right[folder]} of {shown[folder]} right')


def main():
    command, *given = sys.argv[1:] or ['']
    if command == 'make' and len(given) >= 3:
        make(*given)
    elif command == 'count' and len(given) == 2:
        count(*given)
    else:
        sys.exit(__doc__)


if __name__ == '__main__':
    main()
