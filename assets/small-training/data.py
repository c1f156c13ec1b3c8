"""Renders clips of a synthetic world: textured solids with shading and shadows over textured walls and floors, seen by
a moving camera. `sample` draws scenes and captions from a seed, `render` draws their frames on any device."""
import argparse
import math
import os
import sys

import torch
import torch.nn.functional as F

from scenes import OBJECTS, SHAPE_NAMES, SPAN, sample, take
from textures import make_textures

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'tiny-training'))
from png import write_png  # noqa: E402

FACES = 12                          # largest number of faces of a solid


def _solids():
    """Returns the outward normals and distances [shapes, FACES, 4] of the solids, whose radius is about 1."""
    box = lambda x, y, z: [(1, 0, 0, x), (-1, 0, 0, x), (0, 1, 0, y), (0, -1, 0, y), (0, 0, 1, z), (0, 0, -1, z)]
    prism = lambda sides, r, h: [(math.cos(2 * math.pi * k / sides), 0, math.sin(2 * math.pi * k / sides), r) for k in range(sides)] + \
        [(0, 1, 0, h), (0, -1, 0, h)]
    third, side = 1 / math.sqrt(3), 1 / math.hypot(1, 0.5)
    faces = {
        'ball': box(1, 1, 1), 'cube': box(0.72, 0.72, 0.72), 'brick': box(1.05, 0.5, 0.6), 'drum': prism(10, 0.78, 0.72),
        'pillar': prism(6, 0.5, 1.1), 'coin': prism(10, 0.95, 0.2),
        'diamond': [(x * third, y * third, z * third, 0.62) for x in (1, -1) for y in (1, -1) for z in (1, -1)],
        'pyramid': [(0, 1, 0, 0.6)] + [(x * side, -0.5 * side, z * side, 0.45 * side) for x, z in ((1, 0), (-1, 0), (0, 1), (0, -1))],
    }
    return torch.tensor([(faces[name] * FACES)[:FACES] for name in SHAPE_NAMES])


def _quaternion_matrix(q):
    """Returns the rotation matrices [..., 3, 3] of unit quaternions [..., 4]."""
    w, x, y, z = q.unbind(-1)
    rows = [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y), 2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
            2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]
    return torch.stack(rows, -1).unflatten(-1, (3, 3))


def _tracks(o, t):
    """Returns the positions x and y [m, F], sizes [m, F] and rotations [m, F, 3, 3] of objects at times t [F]. Objects are rows [m, 20] of numbers (scenes.py). The
    unit of time is SPAN frames."""
    col = lambda k: o[:, k:k + 1]
    phase = 2 * math.pi * (col(8) * t + col(9))
    x = col(2) + col(4) * t + col(6) * torch.cos(phase)
    y = col(3) + col(5) * t + col(7) * torch.sin(phase)
    size = col(1) * torch.exp(col(10) * t)
    axis = F.normalize(o[:, 11:14], dim=1)
    half = 0.5 * col(14) * t
    turn = torch.cat([torch.cos(half)[..., None], torch.sin(half)[..., None] * axis[:, None]], -1)
    return x, y, size, _quaternion_matrix(turn) @ _quaternion_matrix(o[:, 15:19])[:, None]


def _sample(texture, u, v):
    """Samples textures [m, C, S, S] at places u, v [m, F, H, W], in pixels. Beyond its ends a texture is mirrored. Returns [m, C, F, H, W]."""
    m, f, h, w = u.shape
    grid = (torch.stack([u, v], -1) * (2 / texture.shape[-1]) - 1).view(m, f * h, w, 2)
    return F.grid_sample(texture, grid, padding_mode='reflection', align_corners=False).view(m, -1, f, h, w)


def _paint(texture, numbers):
    """Returns the colors [m, 3, F, H, W] of a sampled texture: its first channel mixes the two colors in `numbers`, its second one is their brightness."""
    a, b = numbers[:, 5:8].view(-1, 3, 1, 1, 1), numbers[:, 8:11].view(-1, 3, 1, 1, 1)
    return torch.lerp(a, b, texture[:, :1]) * texture[:, 1:]


def _ball(x, y, turn, light):
    """Renders unit balls at screen coordinates x, y [m, F, H, W]. Returns five tensors of this shape: a value that is positive inside the ball, texture coordinates u and
    v, diffuse light and specular light."""
    r2 = x * x + y * y
    z = -(1 - r2).clamp_min(1e-4).sqrt()
    r = turn.mT[..., None, None]                                            # [m, F, 3, 3, 1, 1]
    px, py, pz = (r[:, :, k, 0] * x + r[:, :, k, 1] * y + r[:, :, k, 2] * z for k in range(3))
    u, v = torch.atan2(px, pz), torch.asin(py.clamp(-0.999, 0.999))
    lx, ly, lz = (light[:, k].view(-1, 1, 1, 1) for k in range(3))
    diffuse = (lx * x + ly * y + lz * z).clamp_min(0)
    return 1 - r2.sqrt(), u, v, diffuse, (2 * diffuse * -z + lz).clamp_min(0) ** 24


def _meet_faces(ca, cb, cc, front, x, y):
    """Returns the lengths of rays at x, y [m, F, H, W] inside convex solids (negative if a ray misses), and the face that each ray meets first.

    A ray meets the plane of face k at the depth ca x + cb y + cc; ca, cb and cc are [m, F, FACES]. `front` is true for faces that look at the camera."""
    part = lambda c, k: c[:, :, k, None, None]
    near, far, which = None, None, None
    for k in range(FACES):
        t = torch.addcmul(torch.addcmul(part(cc, k), part(ca, k), x), part(cb, k), y)
        n, f = torch.where(part(front, k), t, -99.0), torch.where(part(front, k), 99.0, t)
        if near is None:
            near, far, which = n, f, torch.zeros_like(n, dtype=torch.uint8)
        else:
            which = torch.where(n > near, k, which)
            near, far = torch.maximum(near, n), torch.minimum(far, f)
    return far - near, which


meet_faces = _meet_faces


def compile_faces(device):
    """Compiles meet_faces(), the slowest loop, and returns True. If compiling fails or gives other results, keeps the plain function and returns False."""
    global meet_faces
    draw = lambda *shape: torch.randn(*shape, device=device)
    try:
        compiled = torch.compile(_meet_faces, dynamic=True)
        for m in (3, 2):
            given = [draw(m, 5, FACES) for _ in range(3)] + [draw(m, 5, FACES) > 0, draw(m, 5, 24, 16), draw(m, 5, 24, 16)]
            (depth, which), (plain_depth, plain_which) = compiled(*given), _meet_faces(*given)
            if (depth - plain_depth).abs().max() > 1e-3 or (which != plain_which).float().mean() > 0.01:
                return False
        meet_faces = compiled
        return True
    except Exception as error:      # a missing compiler, for example
        print('faces: not compiled:', str(error)[:200], flush=True)
        return False


def _solid(faces, x, y, turn, light):
    """Returns the same as _ball for convex solids with faces [m, FACES, 4]: rays along z meet linear functions of x, y."""
    normal = torch.einsum('mfij,mpj->mfpi', turn, faces[..., :3])           # [m, F, P, 3], in the camera's frame
    nz = torch.where(normal[..., 2].abs() < 0.02, torch.where(normal[..., 2] < 0, -0.02, 0.02), normal[..., 2])
    front = nz < 0
    ca, cb, cc = -normal[..., 0] / nz, -normal[..., 1] / nz, faces[:, None, :, 3] / nz
    depth, which = meet_faces(ca, cb, cc, front, x, y)
    slope = torch.hypot(depth.diff(dim=-1, append=2 * depth[..., -1:] - depth[..., -2:-1]), depth.diff(dim=-2, append=2 * depth[..., -1:, :] - depth[..., -2:-1, :]))
    step = (x[..., :1, 1:2] - x[..., :1, :1]).abs() + (x[..., 1:2, :1] - x[..., :1, :1]).abs()
    inside = depth / slope.clamp_min(1e-4) * step
    # Two tangents of each face, in the solid's own frame.
    n = faces[..., :3]
    up = torch.where(n[..., 1:2].abs() > 0.9, torch.tensor([1.0, 0, 0], device=n.device), torch.tensor([0, 1.0, 0], device=n.device))
    right = F.normalize(torch.cross(up, n, dim=-1), dim=-1)
    below = torch.cross(n, right, dim=-1)
    back = turn.mT                                                          # rotates into the solid's frame
    rows = []
    for tangent in (right, below):
        q = torch.einsum('mpi,mfij->mfpj', tangent, back)                   # dot(tangent, back @ (x, y, t))
        rows += [q[..., 0] + q[..., 2] * ca, q[..., 1] + q[..., 2] * cb, q[..., 2] * cc]
    diffuse = (normal * light[:, None, None, :3]).sum(-1).clamp_min(0)
    rows.append(diffuse)
    rows.append((2 * diffuse * -normal[..., 2] + light[:, 2, None, None]).clamp_min(0) ** 24)
    table = torch.stack(rows)                                               # [8, m, F, P]
    m, frames, p = diffuse.shape
    flat = (which.long() + (torch.arange(m * frames, device=x.device) * p).view(m, frames, 1, 1)).flatten()
    got = table.flatten(1)[:, flat].view(8, *which.shape)
    return inside, got[0] * x + got[1] * y + got[2], got[3] * x + got[4] * y + got[5], got[6], got[7]


def _shade(canvas, rows, inside, offset, squeeze, below, strength):
    """Darkens the clips `rows` of the canvas [n, 3, F, H, W] in place where their objects cast shadows.

    inside [m, F, H, W]: signed distance from the object's border, in widths of the shadow's soft edge. offset [m, F, 2]: shift of the shadow. squeeze [m, F, 2]: the
    factor by which the shadow is squeezed vertically, and the y that stays in place. Coordinates are in -1..1 of the frame.
    below [m, F, 1, 1]: first row that gets a shadow."""
    m, f, h, w = inside.shape
    small = F.avg_pool2d(inside.flatten(0, 1)[:, None], 4) if min(h, w) >= 16 else inside.flatten(0, 1)[:, None]
    x = ((torch.arange(w, device=inside.device) + 0.5) * (2 / w) - 1).view(1, 1, 1, w) - offset[..., 0, None, None]
    y = ((torch.arange(h, device=inside.device) + 0.5) * (2 / h) - 1).view(1, 1, h, 1)
    grid_y = (y - squeeze[..., 1, None, None]) / squeeze[..., 0, None, None] + squeeze[..., 1, None, None] - offset[..., 1, None, None]
    grid = torch.stack(torch.broadcast_tensors(x, grid_y), -1).flatten(0, 1)
    dark = (0.5 + F.grid_sample(small, grid, padding_mode='border', align_corners=False).view(m, f, h, w)).clamp(0, 1)
    dark = dark * dark * (3 - 2 * dark) * strength * (y >= below)
    canvas[rows] = canvas[rows] * (1 - dark[:, None])


@torch.no_grad()
def render(scenes, size, frames, device='cpu', window=None, first=0, of=None, texture=512):
    """Renders scenes as [n, 3, frames, h, w] in -1..1.

    size: (height, width) of the whole frame. window: renders only a part of the frame; it is a pair of the top left corners, [n, 2], and the part's (h, w).
    first, of: the first frame to render, and the number of frames of the whole clip (default: `frames`). In the middle of the clip, objects are at their places."""
    height, width = size
    corner, (h, w) = window if window is not None else (torch.zeros(len(scenes['seeds']), 2), size)
    n, unit = len(scenes['seeds']), height / 2                              # a distance of 1 in pixels
    move = lambda t: t.to(device, non_blocking=True)
    views, objects, numbers, corner = (move(t) for t in (scenes['views'], scenes['objects'], scenes['textures'], corner.float()))
    t = (torch.arange(frames, device=device) + first - ((of or frames) - 1) / 2) / SPAN
    view = lambda k: views[:, k].view(n, 1, 1, 1)
    time = t.view(1, -1, 1, 1)
    # Coordinates on the screen, to which the camera's zoom and roll are then applied.
    sx = ((torch.arange(w, device=device) + 0.5).view(1, 1, 1, w) + corner[:, 1].view(n, 1, 1, 1) - width / 2) / unit
    sy = ((torch.arange(h, device=device) + 0.5).view(1, 1, h, 1) + corner[:, 0].view(n, 1, 1, 1) - height / 2) / unit
    zoom, roll = torch.exp(view(4) * time), view(5) * time
    c, s = torch.cos(roll) / zoom, torch.sin(roll) / zoom
    x, y = sx * c + sy * s, sy * c - sx * s
    pan_x, pan_y = view(2) * time, view(3) * time
    floors = scenes['views'][:, 0].nonzero().flatten()
    is_floor = view(0)
    # When the camera moves, walls move less on the screen than near things, and the walls behind floors move least.
    share = 0.75 - 0.35 * is_floor
    # One call for the textures of all walls and floors, and one for those of all objects.
    numbers_of, seeds_of = scenes['textures'], scenes['seeds'] * 8
    grounds = make_textures(torch.cat([numbers_of[:, OBJECTS], numbers_of[floors, OBJECTS + 1]]), torch.cat([seeds_of + 7, seeds_of[floors] + 6]), texture, device)
    wall_texture, floor_texture = grounds[:n], grounds[n:]
    half, side = texture / 2, min(256, texture // 2)
    kinds = scenes['objects'][:, :, 0].long()
    there = kinds >= 0
    place = (there.flatten().cumsum(0) - 1).view_as(there)                  # index of each object's texture in object_textures
    scene, slot = there.nonzero().unbind(1)
    object_textures = make_textures(numbers_of[scene, slot], seeds_of[scene] + slot, side, device)
    canvas = _paint(_sample(wall_texture, (x + share * pan_x) * unit + half, (y + share * pan_y) * unit + half), numbers[:, OBJECTS])
    light = views[:, 6:9]
    canvas *= (1 + 0.30 * (sx * light[:, 0].view(n, 1, 1, 1) + sy * light[:, 1].view(n, 1, 1, 1)) - 0.08 * (sx * sx + sy * sy))[:, None]
    horizon = view(1) - 0.4 * pan_y
    if len(floors):
        rows = move(floors)
        picked = lambda v: v[rows] if v.shape[0] == n else v
        line = picked(horizon)
        drop = picked(y) - line
        z = 0.85 / drop.clamp_min(0.06)
        u = (picked(x) * z + picked(pan_x)) * unit + half
        v = (-z * 1.3 + 0.6 * picked(view(4)) * time) * unit + half
        near, far = _sample(floor_texture, u, v), _sample(F.avg_pool2d(floor_texture, 4), u / 4, v / 4)
        mean = floor_texture.mean((2, 3)).view(len(rows), 2, 1, 1, 1)
        blend, fade = ((z - 1.3) / 1.2).clamp(0, 1)[:, None], ((z - 3) / 4).clamp(0, 1)[:, None]
        floor = _paint(torch.lerp(torch.lerp(near, far, blend), mean, fade), numbers[rows, OBJECTS + 1])
        floor = floor * (1.05 - 0.35 * (z / 8).clamp(0, 1) + 0.12 * picked(sx * light[:, 0].view(n, 1, 1, 1)))[:, None]
        canvas[rows] = torch.lerp(canvas[rows] * (1 - 0.35 * torch.exp(-8 * drop.abs()))[:, None], floor, (0.5 + drop * unit).clamp(0, 1)[:, None])
    solids = _solids().to(device)
    for k in range(OBJECTS):
        for is_ball in (True, False):
            index = ((kinds[:, k] == 0) if is_ball else (kinds[:, k] > 0)).nonzero().flatten()
            if not len(index):
                continue
            rows = move(index)
            o, words = objects[rows, k], numbers[rows, k]
            ox, oy, radius, turn = _tracks(o, t)
            pick = lambda v: v[rows] if v.shape[0] == n else v
            depth = 0.9 + 0.12 * k                                          # larger for nearer objects, which move more on the screen
            wide = lambda v: v[..., None, None]
            lx = (pick(x) + depth * pick(pan_x) - wide(ox)) / wide(radius)
            ly = (pick(y) + depth * pick(pan_y) - wide(oy)) / wide(radius)
            pixels = wide(radius) * unit * pick(zoom)                       # radius on the screen, in pixels
            if is_ball:
                inside, u, v, diffuse, shine = _ball(lx, ly, turn, light[rows])
            else:
                inside, u, v, diffuse, shine = _solid(solids[move(kinds[index, k])], lx, ly, turn, light[rows])
            inside = inside * pixels
            tilt = pick(is_floor)[:, :, 0, 0]                               # 1 if the shadow lies on a floor, 0 if it lies on a wall
            center_y = (oy - depth * pick(pan_y)[:, :, 0, 0]) * pick(zoom)[:, :, 0, 0] * (height / h) - ((corner[rows, 0] - (height - h) / 2) * 2 / h)[:, None]
            reach = radius * pick(zoom)[:, :, 0, 0]
            shift_x, shift_y = (-(0.30 * (1 - tilt) + 0.2 * tilt) * light[rows, j, None] * reach for j in (0, 1))
            offset = torch.stack([shift_x * (height / w), torch.where(tilt > 0, 0.0, shift_y * (height / h)).expand_as(shift_x)], -1)
            squeeze = torch.stack([torch.where(tilt > 0, 0.3, 1.0).expand_as(reach), torch.where(tilt > 0, center_y + 1.25 * reach * (height / h), 0.0)], -1)
            # Squeezing leaves the fixed y in place, so first move the object's center there.
            offset[..., 1] = torch.where(tilt > 0, squeeze[..., 1] - center_y, offset[..., 1])
            below = torch.where(tilt > 0, ((pick(horizon)[:, :, 0, 0] * pick(zoom)[:, :, 0, 0]) * (height / h)
                                           - ((corner[rows, 0] - (height - h) / 2) * 2 / h)[:, None]), -9.0)
            _shade(canvas, rows, inside / (0.05 * height), offset, squeeze, wide(below.expand_as(reach)), 0.55)
            scale = o[:, 1].view(-1, 1, 1, 1) * unit                        # radius in pixels of the texture
            object_texture = object_textures[move(place[index, k])]
            paint = _paint(_sample(object_texture, u * scale + side / 2, v * scale + side / 2), words)
            ambient = views[rows, 9].view(-1, 1, 1, 1)
            gloss = 0.10 + 0.55 * o[:, 19].view(-1, 1, 1, 1)
            paint = paint * (ambient + (1.1 - ambient) * diffuse)[:, None] + (gloss * shine)[:, None]
            canvas[rows] = torch.lerp(canvas[rows], paint, (0.5 + inside).clamp(0, 1)[:, None])
    return canvas.clamp_(0, 1).mul_(2).sub_(1)


# ---- a sheet of examples ------------------------------------------------------------------------------------------

def sheet(videos, columns, frames=4):
    """Returns a picture [3, H, W] of videos [3, F, H, W]. It shows `frames` frames of each video side by side, and `columns` videos in a row."""
    strips = [torch.cat(list(v[:, torch.linspace(0, v.shape[1] - 1, frames).long()].unbind(1)), 2) for v in videos]
    return torch.cat([torch.cat(strips[i:i + columns], 2) for i in range(0, len(strips) // columns * columns, columns)], 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--show', metavar='PNG', help='write a sheet of frames')
    parser.add_argument('--seed', type=int, default=7)
    parser.add_argument('--clips', type=int, default=8)
    parser.add_argument('--size', type=int, nargs=2, default=(256, 256), help='height and width')
    parser.add_argument('--frames', type=int, default=33)
    parser.add_argument('--columns', type=int, default=2)
    args = parser.parse_args()
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    height, width = args.size
    scenes = sample(args.seed, args.clips, width / height)
    print('\n'.join(scenes['caption']))
    if args.show:
        picks = [render(take(scenes, slice(i, i + 1)), (height, width), args.frames, device)[0] for i in range(args.clips)]
        write_png(args.show, sheet(picks, args.columns))


if __name__ == '__main__':
    main()
