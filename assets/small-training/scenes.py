"""Draws scenes of the synthetic world from a seed: numbers for the renderer in data.py, and captions in varied wording. Run as a program, it writes captions to a file."""
import argparse
import math
import random

import torch

OBJECTS = 4                         # largest number of objects in a scene
SPAN = 48                           # unit of time, in frames: speeds are distances in this time. A distance of 1 is half of the frame's height
COLORS = {
    'red': (0.82, 0.10, 0.10), 'orange': (0.95, 0.48, 0.06), 'yellow': (0.96, 0.82, 0.12), 'green': (0.13, 0.55, 0.20),
    'blue': (0.12, 0.26, 0.80), 'purple': (0.48, 0.16, 0.66), 'pink': (0.95, 0.52, 0.66), 'brown': (0.42, 0.24, 0.12),
    'white': (0.93, 0.93, 0.91), 'black': (0.09, 0.09, 0.10), 'gray': (0.50, 0.51, 0.53), 'teal': (0.08, 0.58, 0.60),
}
SHAPES = {
    'ball': ['ball', 'ball', 'sphere'], 'cube': ['cube', 'cube', 'box'], 'brick': ['brick', 'block'], 'pyramid': ['pyramid'],
    'diamond': ['diamond', 'gem'], 'drum': ['drum', 'cylinder'], 'pillar': ['pillar', 'column'], 'coin': ['coin', 'disc'],
}
# {texture: (words for it, its smallest period, its largest period)}; periods are in pixels.
TEXTURES = {
    'plain': (['plain', 'smooth'], 16, 32), 'striped': (['striped'], 9, 26), 'checked': (['checked', 'checkered'], 9, 24),
    'dotted': (['dotted', 'spotted'], 12, 30), 'wavy': (['wavy', 'rippled'], 10, 26), 'zigzag': (['zigzag'], 10, 26),
    'speckled': (['speckled', 'grainy'], 5, 9), 'marbled': (['marbled', 'marble'], 12, 30), 'cloudy': (['cloudy', 'mottled'], 16, 32),
    'bricked': (['bricked'], 14, 30), 'cobbled': (['cobbled', 'pebbled'], 14, 34), 'woven': (['woven', 'plaid'], 10, 26),
    'wooden': (['wooden', 'wood'], 8, 18), 'tiled': (['tiled'], 18, 44),
}
MOTIONS = {
    'right': ['moves to the right', 'moves right', 'slides to the right', 'drifts to the right', 'goes from left to right'],
    'left': ['moves to the left', 'moves left', 'slides to the left', 'drifts to the left', 'goes from right to left'],
    'up': ['rises', 'moves up', 'floats up', 'moves upwards'], 'down': ['falls', 'sinks', 'moves down', 'moves downwards'],
    'near': ['comes closer', 'grows', 'approaches', 'gets bigger'], 'far': ['moves away', 'shrinks', 'recedes', 'gets smaller'],
    'spin': ['spins', 'rotates', 'turns around'], 'tumble': ['tumbles', 'rolls over', 'turns over and over'],
    'circle': ['circles', 'moves in a circle', 'goes round in a circle'], 'sway': ['sways', 'swings from side to side', 'sways left and right'],
    'bounce': ['bounces', 'bounces up and down', 'hops up and down'], 'still': ['stands still', 'does not move', 'stays where it is', 'rests'],
}
CAMERA = {
    'still': ['the camera stands still', 'the camera does not move', 'a still camera', 'a fixed view'],
    'right': ['the camera pans right', 'the camera moves to the right', 'a pan to the right'],
    'left': ['the camera pans left', 'the camera moves to the left', 'a pan to the left'],
    'up': ['the camera pans up', 'the camera moves up', 'the camera rises'], 'down': ['the camera pans down', 'the camera moves down', 'the camera sinks'],
    'in': ['the camera zooms in', 'the camera moves closer', 'a slow zoom in'], 'out': ['the camera zooms out', 'the camera moves back', 'a slow zoom out'],
    'roll': ['the camera tilts', 'the camera rolls', 'a rolling camera'],
}
DIRECTIONS = {'right': (1, 0), 'left': (-1, 0), 'up': (0, -1), 'down': (0, 1)}
SHAPE_NAMES, TEXTURE_NAMES = list(SHAPES), list(TEXTURES)
OFTEN = TEXTURE_NAMES + ['plain', 'plain', 'striped', 'checked', 'cloudy']


def _rotation(rng):
    """Returns a random unit quaternion."""
    q = [rng.gauss(0, 1) for _ in range(4)]
    length = math.sqrt(sum(x * x for x in q))
    return [x / length for x in q]


def _texture(rng, kinds=OFTEN, avoid=()):
    """Draws a texture and two colors at random. Returns numbers for the renderer and words for the caption."""
    kind = rng.choice(kinds)
    first = rng.choice([c for c in COLORS if c not in avoid])
    words, least, most = TEXTURES[kind]
    shade = rng.uniform(0.85, 1.1)
    a = [min(1, x * shade) for x in COLORS[first]]
    named = kind not in ('plain', 'wooden', 'cloudy') and rng.random() < 0.5
    if named:
        second = rng.choice([c for c in COLORS if c != first])
        b = list(COLORS[second])
    else:                           # the second color is a lighter or darker shade of the first
        light = rng.random() < (0.85 if first in ('black', 'brown', 'blue', 'purple') else 0.3)
        b = [x + (1 - x) * 0.45 for x in a] if light else [x * 0.5 for x in a]
    color = f'{first} and {second}' if named else first
    word = '' if kind == 'plain' and rng.random() < 0.5 else rng.choice(words)
    numbers = [TEXTURE_NAMES.index(kind), rng.uniform(least, most), rng.choice([0, 0, 0.25, 0.5, -0.25, rng.uniform(-0.5, 0.5)]) * math.pi,
               rng.uniform(0.2, 0.9), rng.uniform(0.5, 1.2), *a, *b]
    order = [word, color] if rng.random() < 0.6 else [color, word]
    return numbers, ' '.join(w for w in order if w), first


def _object(rng, place, avoid, few):
    shape, motion = rng.choice(SHAPE_NAMES), rng.choice(list(MOTIONS))
    texture, words, color = _texture(rng, avoid=avoid)
    size = rng.choice(['', '', '', '', 'small', 'large'])
    radius = {'': rng.uniform(0.24, 0.34), 'small': rng.uniform(0.15, 0.20), 'large': rng.uniform(0.42, 0.52)}[size] * (1.15 if few else 1)
    pace = rng.choice(['', '', '', 'slowly', 'quickly'])
    speed = {'': rng.uniform(0.45, 0.7), 'slowly': rng.uniform(0.2, 0.3), 'quickly': rng.uniform(0.9, 1.2)}[pace]
    x, y = place
    vx = vy = sway_x = sway_y = rate = growth = 0.0
    axis, spun = [rng.uniform(-1, 1) for _ in range(3)], ''
    if motion in DIRECTIONS:
        dx, dy = DIRECTIONS[motion]
        vx, vy = speed * dx, speed * dy
        if shape == 'ball' and rng.random() < 0.6:
            spun, axis, rate = 'rolls', [-dy, dx, 0.0], speed / radius
        elif rng.random() < 0.4:
            spun, rate = rng.choice(['spinning', 'turning']), rng.choice([-1, 1]) * rng.uniform(1.5, 3)
    elif motion in ('near', 'far'):
        growth = speed * (1 if motion == 'near' else -1)
    elif motion == 'spin':
        axis, rate = [0.15 * axis[0], rng.choice([-1, 1]), 0.15 * axis[2]], speed * 6
    elif motion == 'tumble':
        axis, rate = [rng.choice([-1, 1]), 0.3 * axis[1], 0.8 * axis[2]], speed * 6
    elif motion in ('circle', 'sway', 'bounce'):
        sway_x = 0 if motion == 'bounce' else rng.uniform(0.2, 0.35)
        sway_y = {'circle': sway_x, 'sway': 0, 'bounce': rng.uniform(0.2, 0.35)}[motion]
    verb = rng.choice(MOTIONS[motion])
    if spun == 'rolls':
        verb = f'rolls {motion}' if motion in ('up', 'down') else rng.choice([f'rolls to the {motion}', f'rolls {motion}'])
    if pace and motion != 'still':
        verb = f'{verb} {pace}' if rng.random() < 0.7 else f'{pace} {verb}'
    if spun.endswith('ing'):
        verb += rng.choice([', ', ' and keeps ', ' while ']) + spun
    shiny = rng.random() < 0.25
    noun = ' '.join(w for w in (size, 'shiny' if shiny else '', words, rng.choice(SHAPES[shape])) if w)
    numbers = [SHAPE_NAMES.index(shape), radius, x, y, vx, vy, sway_x, sway_y, speed * 1.5, rng.uniform(0, 1), growth, *axis, rate,
               *(_rotation(rng) if motion != 'spin' else [math.cos(0.2), math.sin(0.2), 0.0, 0.0]), 1.0 if shiny else 0.0]
    return numbers, texture, noun, verb, color


def _article(noun):
    return ('an ' if noun[0] in 'aeiou' else 'a ') + noun


def _caption(rng, things, ground, camera):
    """Joins phrases to a caption. Leaves out the background or the camera at random."""
    nouns, verbs = zip(*((_article(n), v) for n, v in things))
    parts = [f'{n} {v}' for n, v in zip(nouns, verbs)]
    where = '' if rng.random() < 0.05 else ground
    if len(parts) == 1:
        form = rng.random()
        text = f'{parts[0]} {where}' if form < 0.6 else f'{where}, {parts[0]}' if where and form < 0.85 else f'{nouns[0]} {where}. it {verbs[0]}'
    else:
        text = ', '.join(parts[:-1]) + rng.choice([' and ', ' while ', ', and ']) + parts[-1]
        text = f'{text} {where}' if rng.random() < 0.6 else f'{where}, {text}' if where else text
    if camera:
        form = rng.random()
        text = f'{text}. {camera}' if form < 0.5 else f'{text}, {camera}' if form < 0.8 else f'{camera}: {text}'
    if rng.random() < 0.1:
        text = 'a video of ' + text
    text = ' '.join(text.replace(' ,', ',').replace(' .', '.').split())
    return text + ('.' if rng.random() < 0.4 else '')


def _scene(rng, aspect):
    floor = rng.random() < 0.45
    wall_kinds = ['plain', 'plain', 'speckled', 'marbled', 'cloudy', 'cloudy', 'wooden'] if floor else OFTEN
    wall, wall_words, wall_color = _texture(rng, wall_kinds)
    ground, ground_words, ground_color = _texture(rng, [k for k in TEXTURE_NAMES if k != 'plain'], avoid=(wall_color,))
    count = rng.choice([1, 1, 1, 2, 2, 2, 3, 3, 4])
    places = []
    for _ in range(count):          # of six random places, takes the one farthest from other objects
        tries = [(rng.uniform(-0.72, 0.72) * aspect, rng.uniform(-0.45, 0.5)) for _ in range(6)]
        places.append(max(tries, key=lambda p: min((math.dist(p, q) for q in places), default=0) - 0.1 * math.dist(p, (0, 0))))
    objects, textures, things = [], [], []
    for place in places:
        numbers, texture, noun, verb, _ = _object(rng, place, (wall_color, ground_color) if floor else (wall_color,), count <= 2)
        objects.append(numbers)
        textures.append(texture)
        things.append((noun, verb))
    camera = rng.choice(['still', 'still'] + list(CAMERA))
    speed = rng.uniform(0.25, 0.6)
    pan = [d * speed for d in DIRECTIONS.get(camera, (0, 0))]
    zoom = {'in': speed, 'out': -speed}.get(camera, 0.0)
    roll = rng.choice([-1, 1]) * speed * 0.7 if camera == 'roll' else 0.0
    if floor:
        where = rng.choice(['over a {} floor', 'on a {} floor', 'above a {} ground']).format(ground_words)
        where += rng.choice([', in front of a {} wall', ' before a {} wall', ' with a {} wall behind']).format(wall_words) if rng.random() < 0.85 else ''
    else:
        where = rng.choice(['over a {} background', 'in front of a {} wall', 'on a {} background', 'against a {} wall']).format(wall_words)
    words = '' if camera == 'still' and rng.random() < 0.6 or rng.random() < 0.06 else rng.choice(CAMERA[camera])
    for word in ('a o', 'a e', 'a i', 'a u'):
        where = where.replace(f' {word}', f' an {word[-1]}')
    angle = rng.uniform(0, 2 * math.pi)
    light = [0.6 * math.cos(angle), -abs(0.6 * math.sin(angle)) - 0.15, -0.75]
    view = [float(floor), rng.uniform(-0.05, 0.3), *pan, zoom, roll, *light, rng.uniform(0.38, 0.55)]
    missing = OBJECTS - count
    objects += [[-1.0] + [1.0] * (len(objects[0]) - 1)] * missing
    textures += [[0.0] * len(wall)] * missing
    return objects, textures + [wall, ground], view, _caption(rng, things, where, words)


def sample(seed, n, aspect=1.0):
    """Returns n scenes for frames whose width is `aspect` times their height. Their tensors are on the CPU.

    A scene has objects [n, OBJECTS, 20], textures [n, OBJECTS + 2, 11] (the last two are those of wall and floor), views [n, 10] (the camera), seeds [n] and a caption."""
    rng = random.Random(seed)
    rows = [_scene(rng, aspect) for _ in range(n)]
    objects, textures, views, captions = zip(*rows)
    seeds = torch.tensor([rng.getrandbits(31) for _ in range(n)])
    return {'objects': torch.tensor(objects), 'textures': torch.tensor(textures), 'views': torch.tensor(views), 'seeds': seeds, 'caption': list(captions)}


def take(scenes, index):
    """Returns the scenes of a slice, or of a list of indices."""
    if isinstance(index, slice):
        return {k: v[index] for k, v in scenes.items()}
    return {k: [v[i] for i in index] if k == 'caption' else v[index] for k, v in scenes.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('out', help='a text file, with a caption in each line')
    parser.add_argument('--count', type=int, default=120)
    parser.add_argument('--seed', type=int, default=881_000_001, help='seeds of training clips are below 880000000')
    args = parser.parse_args()
    with open(args.out, 'w') as f:
        f.writelines(caption + '\n' for caption in sample(args.seed, args.count)['caption'])


if __name__ == '__main__':
    main()
