"""Reads from tests/families.json how model families differ in what the command-line tests check."""
import json
from collections import namedtuple
from pathlib import Path

TABLE = json.loads((Path(__file__).parents[1] / 'families.json').read_text())
Family = namedtuple('Family', [
    'name',           # as `inspect` prints it
    'classes',        # of the transformer and of the scheduler
    'video',          # default width, height and number of frames by the checkpoint
    'size',           # options that make videos of 64x64, if the default is larger
    'frames',         # default number of frames; the tests set the steps
    'latents',        # shape of a video's latents
    'even_latents',   # a number of frames that gives an even number of latents, and the number of frames that the video then has
    'multiples',      # divisor of widths
    'samplers',       # names; the first is the checkpoint's
    'draws',          # true if the first sampler draws noise in its steps: the seed then matters even if latents are given
    'fewest_steps',   # 1 unless the model counts the clean end as a step
    'decoders_last',  # the bias that the decoder adds last
])


def family_of(model):
    index = json.loads((Path(model) / 'model_index.json').read_text())
    row = TABLE[index['_class_name']]
    differs = {name: tuple(value) if isinstance(value, list) and name != 'size' and name != 'latents' else value for name, value in row['command_line'].items()}
    return Family(name=row['name'], classes=(index['transformer'][1], index['scheduler'][1]), **{'draws': False, 'fewest_steps': 1, **differs})
