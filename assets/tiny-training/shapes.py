"""Makes clips of one flat shape on a plain background: draws scenes and captions from a seed, and renders the scenes on any device."""
import math
import random

import torch

FRAMES = 33                         # number of frames of a full clip. Positions are in pixels of a picture of 256x256
SHAPES = {
    'circle': ['circle', 'circle', 'circle', 'ball', 'disc'], 'square': ['square', 'square', 'square', 'box', 'block'],
    'triangle': ['triangle'], 'ring': ['ring', 'ring', 'ring', 'hoop', 'donut'], 'star': ['star'],
}
COLOURS = {
    'red': (0.90, 0.10, 0.12), 'orange': (1.00, 0.50, 0.05), 'yellow': (1.00, 0.86, 0.05), 'green': (0.05, 0.58, 0.18),
    'blue': (0.08, 0.18, 0.88), 'purple': (0.56, 0.14, 0.72), 'white': (0.98, 0.98, 0.98), 'black': (0.06, 0.06, 0.07),
}
BACKGROUNDS = {
    'white': (0.93, 0.93, 0.94), 'black': (0.09, 0.09, 0.11), 'gray': (0.52, 0.53, 0.55),
    'blue': (0.40, 0.60, 0.92), 'green': (0.52, 0.80, 0.52), 'yellow': (0.97, 0.91, 0.56),
}
MOTIONS = {                         # pairs of phrases: with the -ing form, in the third person
    'right': [('moving right', 'moves right'), ('moving to the right', 'moves to the right'), ('sliding to the right', 'slides to the right'),
              ('moving from left to right', 'moves from left to right'), ('sliding right', 'slides right')],
    'left': [('moving left', 'moves left'), ('moving to the left', 'moves to the left'), ('sliding to the left', 'slides to the left'),
             ('moving from right to left', 'moves from right to left'), ('sliding left', 'slides left')],
    'up': [('moving up', 'moves up'), ('rising', 'rises'), ('moving upwards', 'moves upwards'), ('floating up', 'floats up')],
    'down': [('moving down', 'moves down'), ('falling', 'falls'), ('moving downwards', 'moves downwards'), ('falling down', 'falls down')],
    'grow': [('growing', 'grows'), ('getting bigger', 'gets bigger'), ('growing larger', 'grows larger')],
    'shrink': [('shrinking', 'shrinks'), ('getting smaller', 'gets smaller')],
    'spin': [('spinning', 'spins'), ('rotating', 'rotates'), ('turning around', 'turns around')],
    'still': [('standing still', 'stands still'), ('not moving', 'does not move'), ('resting', 'rests')],
}
SIZES = {'': ((34, 40), ['']), 'small': ((25, 28), ['small', 'little']), 'big': ((48, 54), ['big', 'large'])}
SHAPE_NAMES, COLOUR_NAMES, BACKGROUND_NAMES, MOTION_NAMES = map(list, (SHAPES, COLOURS, BACKGROUNDS, MOTIONS))
ATTRIBUTES = {'shape': SHAPE_NAMES, 'colour': COLOUR_NAMES, 'background': BACKGROUND_NAMES, 'motion': MOTION_NAMES}


def _caption(rng, shape, colour, background, motion, size, complete):
    """Returns a caption in one of many phrasings. If `complete` is false, some captions leave out the background or the motion."""
    article = rng.choice(['a', 'a', 'a', 'a', 'the', 'one'])
    words = [w for w in (rng.choice(SIZES[size][1]), colour, rng.choice(SHAPES[shape])) if w]
    if article == 'a' and words[0][0] in 'aeiou':
        article = 'an'
    thing = ' '.join([article] + words)
    doing, does = rng.choice(MOTIONS[motion])
    where = rng.choice(['on a {} background'] * 4 + ['against a {} background', 'in front of a {} wall', 'on {}']).format(background)
    if not complete:
        drop = rng.random()
        if drop < 0.06:
            where = ''
        elif drop < 0.10:
            doing = does = ''
    form = rng.random()
    if form < 0.60:
        text = f'{thing} {doing} {where}'
    elif form < 0.78:
        text = f'{thing} {does} {where}'
    elif form < 0.86 and doing:
        text = f'{thing} is {doing} {where}'
    elif form < 0.93 and where and does:
        text = f'{where}, {thing} {does}'
    else:
        text = f'{thing} {where} {doing}'
    start = rng.random()
    if start < 0.04:
        text = 'a video of ' + text
    elif start < 0.08:
        text = 'an animation of ' + text
    if rng.random() < 0.15:
        text += '.'
    return ' '.join(text.split())


def sample(seed, n, complete=False):
    """Returns n random scenes on the CPU: the index of each attribute's value, captions, and params [n, 5]: cx, cy, radius, travel and turn."""
    rng = random.Random(seed)
    labels = {name: [] for name in ATTRIBUTES}
    captions, params = [], []
    for _ in range(n):
        background = rng.choice(BACKGROUND_NAMES)
        colour = rng.choice([c for c in COLOUR_NAMES if c != background])
        motion = rng.choice(MOTION_NAMES)
        shape = rng.choice(['square', 'triangle', 'star'] if motion == 'spin' else SHAPE_NAMES)
        size = rng.choice(['', '', '', '', '', '', 'small', 'big'])
        radius = rng.uniform(*SIZES[size][0])
        cx, cy = 128 + rng.uniform(-12, 12), 128 + rng.uniform(-12, 12)
        if motion in ('right', 'left'):
            cy = 128 + rng.uniform(-40, 40)
        elif motion in ('up', 'down'):
            cx = 128 + rng.uniform(-40, 40)
        elif motion in ('spin', 'still'):
            cx, cy = 128 + rng.uniform(-36, 36), 128 + rng.uniform(-36, 36)
        travel = min(rng.uniform(110, 140), 236 - 2 * radius)
        params.append((cx, cy, radius, travel, rng.uniform(0.42, 0.50) * 2 * math.pi))
        captions.append(_caption(rng, shape, colour, background, motion, size, complete))
        for name, value in (('shape', shape), ('colour', colour), ('background', background), ('motion', motion)):
            labels[name].append(ATTRIBUTES[name].index(value))
    scenes = {name: torch.tensor(v) for name, v in labels.items()}
    scenes['params'] = torch.tensor(params)
    scenes['caption'] = captions
    return scenes


def take(scenes, index):
    """Returns the scenes at the given indices (a list or a slice)."""
    rows = range(*index.indices(len(scenes['caption']))) if isinstance(index, slice) else index
    return {k: [v[i] for i in rows] if k == 'caption' else v[index] for k, v in scenes.items()}


def tracks(scenes, times):
    """Returns x, y, radius and angle of every scene's shape at the given times (0..1): four [n, F] tensors."""
    cx, cy, radius, travel, turn = (v.unsqueeze(1) for v in scenes['params'].unbind(1))
    u = times.unsqueeze(0)
    is_ = lambda name: (scenes['motion'] == MOTION_NAMES.index(name)).float().unsqueeze(1)
    x = cx + travel * (u - 0.5) * (is_('right') - is_('left'))
    y = cy + travel * (u - 0.5) * (is_('down') - is_('up'))
    size = is_('grow') * (0.5 + 0.9 * u) + is_('shrink') * (1.4 - 0.9 * u)
    size = size + (1 - is_('grow') - is_('shrink'))
    return x, y, radius * size, is_('spin') * turn * u


def _distance(name, x, y):
    """Returns the signed distance of x (to the right), y (down) from the border of a shape of unit size; negative inside."""
    if name == 'circle':
        return torch.sqrt(x * x + y * y + 1e-9) - 0.95
    if name == 'ring':
        return (torch.sqrt(x * x + y * y + 1e-9) - 0.74).abs() - 0.25
    if name == 'square':
        return torch.maximum(x.abs(), y.abs()) - 0.82
    if name == 'triangle':
        h = math.sqrt(3) / 2
        y = y - 0.14
        return torch.maximum(y, torch.maximum(h * x - 0.5 * y, -h * x - 0.5 * y)) - 0.60
    angle = torch.atan2(x, -y)                                              # a star: fold the plane by the star's symmetries, so that only half of one point remains
    r = torch.sqrt(x * x + y * y + 1e-9)
    angle = torch.remainder(angle + math.pi / 5, 2 * math.pi / 5) - math.pi / 5
    px, py = r * torch.cos(angle), r * torch.sin(angle).abs()
    outer, inner = 1.15, 0.50
    bx, by = inner * math.cos(math.pi / 5), inner * math.sin(math.pi / 5)
    nx, ny = by, outer - bx
    return ((px - outer) * nx + py * ny) / math.hypot(nx, ny)


def render(scenes, device='cpu', size=256, frames=None):
    """Renders scenes as [n, 3, F, size, size] in -1..1. frames: indices of the 33 (default all). Edges are two pixels soft."""
    n = len(scenes['shape'])
    frames = torch.arange(FRAMES) if frames is None else torch.as_tensor(frames)
    x, y, radius, angle = (t.to(device, non_blocking=True)[..., None, None] for t in tracks(scenes, frames / (FRAMES - 1)))
    axis = (torch.arange(size, device=device, dtype=torch.float32) + 0.5) * (256 / size)
    gx, gy = axis.view(1, 1, 1, size), axis.view(1, 1, size, 1)
    table = lambda colours, ids: torch.tensor(list(colours.values()))[ids].to(device, non_blocking=True).view(n, 3, 1, 1, 1)
    shade = (1.04 - 0.10 * axis / 256).view(1, 1, 1, size, 1)
    ground = (table(BACKGROUNDS, scenes['background']) * shade).clamp(0, 1) * 2 - 1
    paint = table(COLOURS, scenes['colour']) * 2 - 1
    mask = torch.empty(n, 1, len(frames), size, size, device=device)
    for k, name in enumerate(SHAPE_NAMES):
        rows = (scenes['shape'] == k).nonzero().flatten()
        if not len(rows):
            continue
        rows = rows.to(device, non_blocking=True)
        r, c, s = radius[rows], torch.cos(angle[rows]), torch.sin(angle[rows])
        dx, dy = (gx - x[rows]) / r, (gy - y[rows]) / r
        d = _distance(name, dx * c + dy * s, dy * c - dx * s) * r * (size / 256)
        mask[rows, 0] = (0.5 - d / 2).clamp(0, 1)
    mask = mask * mask * (3 - 2 * mask)
    return torch.lerp(ground, paint, mask)


if __name__ == '__main__':          # writes a sheet of examples: python shapes.py OUT.png
    import sys
    from png import write_png
    some = sample(7, 16)
    video = render(some, size=128, frames=[0, 8, 16, 24, 32])
    write_png(sys.argv[1], video.permute(1, 0, 3, 2, 4).reshape(3, 16 * 128, 5 * 128))
    print('\n'.join(some['caption']))
