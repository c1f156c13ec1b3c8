"""Reads from tests/families.json how model families differ in what the command-line tests check."""
import json
from collections import namedtuple
from pathlib import Path

TABLE = json.loads((Path(__file__).parents[1] / 'families.json').read_text())
Family = namedtuple('Family', [
    'name',           # as `inspect` prints it
    'classes',        # class names of the transformer and the scheduler
    'video',          # width, height and number of frames that the checkpoint gives by default
    'size',           # options that make videos of 64x64; empty if that is the default
    'frames',         # number of frames of a video in the tests
    'latents',        # shape of a video's latents
    'even_latents',   # a number of frames that gives an even number of latents, and the number of frames that the video then has
    'multiples',      # widths must be a multiple of this number of pixels
    'samplers',       # names of the samplers; the checkpoint uses the first one
    'draws',          # true if the first sampler adds noise in its steps, so that the seed matters even if the first latents are given
    'fewest_steps',   # smallest number of steps: 1, or more if the model's schedule counts its end without noise as a step
    'decoders_last',  # name of the bias of the VAE decoder's last layer
])


def family_of(model):
    index = json.loads((Path(model) / 'model_index.json').read_text())
    row = TABLE[index['_class_name']]
    differs = {name: tuple(value) if isinstance(value, list) and name != 'size' and name != 'latents' else value for name, value in row['command_line'].items()}
    return Family(name=row['name'], classes=(index['transformer'][1], index['scheduler'][1]), **{'draws': False, 'fewest_steps': 1, **differs})
