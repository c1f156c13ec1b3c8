"""Lets the classifier of judge.py read generated clips, and compares with their prompts. diffusers makes the clips with a pipeline folder, or another program made them.

python evaluate.py --model ../tiny                      200 random prompts, seed 1000 + k for the k-th, the pipeline's default guidance
python evaluate.py --write-prompts prompts.txt          the same prompts, one a line
python evaluate.py --clips DIR --prompts prompts.txt    DIR/*.safetensors in name order, key "frames": float [F, H, W, 3] in 0..1"""
import argparse
import glob
import os
import re
import time

import torch
from safetensors.torch import load_file

import judge as judging
import shapes
from png import write_png

HERE = os.path.dirname(os.path.abspath(__file__))


def labels(prompt):
    """Returns the four attributes that a prompt names, as indices, with -1 for an attribute that it does not name."""
    text = ' ' + re.sub(r'[.,]', ' ', prompt.lower()) + ' '
    text = re.sub(r' +', ' ', text)
    found = dict.fromkeys(shapes.ATTRIBUTES, -1)
    for background in shapes.BACKGROUND_NAMES:
        phrase = re.search(rf' (on|against|in front of)( an?)? {background}( background| wall)? ', text)
        if phrase:
            found['background'] = shapes.BACKGROUND_NAMES.index(background)
            text = text.replace(phrase.group(), ' ')
    for name, words in shapes.SHAPES.items():
        if any(f' {w} ' in text for w in words):
            found['shape'] = shapes.SHAPE_NAMES.index(name)
    for name in shapes.COLOUR_NAMES:
        if f' {name} ' in text:
            found['colour'] = shapes.COLOUR_NAMES.index(name)
    for name, forms in shapes.MOTIONS.items():
        if any(f' {w} ' in text for pair in forms for w in pair):
            found['motion'] = shapes.MOTION_NAMES.index(name)
    return found


def sheet(videos, path, tile=160):
    """Saves a contact sheet: a row of five frames for each clip [3, F, H, W] in -1..1."""
    rows = []
    for video in videos:
        frames = video[:, torch.linspace(0, video.shape[1] - 1, 5).round().long()].transpose(0, 1)
        frames = torch.nn.functional.interpolate(frames, size=(tile, tile), mode='area')
        rows.append(frames.permute(2, 0, 3, 1).reshape(tile, 5 * tile, 3))
    write_png(path, torch.cat(rows).permute(2, 0, 1))


def generate(args, prompts):
    """Yields the clips of a pipeline folder one by one, [3, F, H, W] in -1..1."""
    from diffusers import CogVideoXPipeline
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    dtype = getattr(torch, args.dtype)
    pipe = CogVideoXPipeline.from_pretrained(args.model, torch_dtype=dtype).to(device)
    pipe.set_progress_bar_config(disable=True)
    extra = {} if args.guidance is None else {'guidance_scale': args.guidance}
    for first in range(0, len(prompts), args.batch):
        some = prompts[first:first + args.batch]
        generators = [torch.Generator().manual_seed(args.seed + first + k) for k in range(len(some))]
        latents = pipe(prompt=some, num_frames=33, height=256, width=256, num_inference_steps=args.steps,
                       max_sequence_length=32, generator=generators, output_type='latent', **extra).frames
        for z in latents:
            with torch.no_grad():
                yield pipe.decode_latents(z.unsqueeze(0))[0].float().cpu().clamp(-1, 1)


def read_clips(folder):
    for path in sorted(glob.glob(os.path.join(folder, '*.safetensors'))):
        yield load_file(path)['frames'].float().permute(3, 0, 1, 2) * 2 - 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--model', default='')
    parser.add_argument('--clips', default='')
    parser.add_argument('--prompts', default='', help='file with one prompt a line (default: random ones)')
    parser.add_argument('--write-prompts', default='')
    parser.add_argument('--count', type=int, default=200)
    parser.add_argument('--steps', type=int, default=25)
    parser.add_argument('--seed', type=int, default=1000)
    parser.add_argument('--guidance', type=float, default=None)
    parser.add_argument('--dtype', default='float32')
    parser.add_argument('--batch', type=int, default=10)
    parser.add_argument('--sheets', default='', help='folder for contact sheets of ten clips each')
    parser.add_argument('--max-sheets', type=int, default=12)
    parser.add_argument('--judge', default=os.path.join(HERE, 'judge.safetensors'))
    args = parser.parse_args()
    if args.prompts:
        prompts = [line.strip() for line in open(args.prompts) if line.strip()]
    else:
        prompts = shapes.sample(880088, args.count, complete=True)['caption']
    if args.write_prompts:
        open(args.write_prompts, 'w').write('\n'.join(prompts) + '\n')
        return
    judge, start = judging.load_judge(args.judge), time.time()
    right, told, pending, n = dict.fromkeys(shapes.ATTRIBUTES, 0), dict.fromkeys(shapes.ATTRIBUTES, 0), [], 0
    everything = 0
    for prompt, video in zip(prompts, generate(args, prompts) if args.model else read_clips(args.clips)):
        want = labels(prompt)
        seen = {name: int(v) for name, v in judging.read(judge, video.unsqueeze(0)).items()}
        wrong = [name for name in want if want[name] >= 0 and seen[name] != want[name]]
        everything += not wrong
        for name in want:
            told[name] += want[name] >= 0
            right[name] += want[name] >= 0 and name not in wrong
        if wrong:
            print(f'{n}: {prompt!r}:', ', '.join(f'{name} seen as {shapes.ATTRIBUTES[name][seen[name]]}' for name in wrong), flush=True)
        n += 1
        if args.sheets and (n - 1) // 10 < args.max_sheets:
            pending.append(video)
            if len(pending) == 10 or n == len(prompts):
                sheet(pending, os.path.join(args.sheets, f'sheet-{(n - 1) // 10:02d}.png'))
                pending = []
    print(f'{n} clips in {time.time() - start:.0f} s:', ', '.join(f'{name} {right[name]} of {told[name]}' for name in right), f'- all right: {everything}')


if __name__ == '__main__':
    main()
