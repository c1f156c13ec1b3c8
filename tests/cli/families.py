"""The facts about the models of the command-line tests in which model families differ, from tests/families.json."""
import json
from collections import namedtuple
from pathlib import Path

TABLE = json.loads((Path(__file__).parents[1] / 'families.json').read_text())
Family = namedtuple('Family', [
    'name',           # as `inspect` prints it
    'classes',        # of the transformer and of the scheduler
    'video',          # width, height and frames that the checkpoint names
    'size',           # options that make videos of 64x64, if the model's own are larger
    'frames',         # default number of frames; the tests set the steps
    'latents',        # shape of a video's latents
    'even_latents',   # frames with an even number of latents, and frames that come out
    'multiples',      # divisor of widths
    'samplers',       # names; the first is the checkpoint's
    'draws',          # true if its first sampler draws noise at its steps: then a seed counts beside given latents
    'decoders_last',  # the bias that the decoder adds last
])


def family_of(model):
    index = json.loads((Path(model) / 'model_index.json').read_text())
    row = TABLE[index['_class_name']]
    differs = {name: tuple(value) if isinstance(value, list) and name != 'size' and name != 'latents' else value for name, value in row['command_line'].items()}
    return Family(name=row['name'], classes=(index['transformer'][1], index['scheduler'][1]), **{'draws': False, **differs})
