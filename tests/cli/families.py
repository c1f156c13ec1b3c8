"""What differs between the models that the command-line tests run on, as tests/families.json says it of each family."""
import json
from collections import namedtuple
from pathlib import Path

TABLE = json.loads((Path(__file__).parents[1] / 'families.json').read_text())
Family = namedtuple('Family', [
    'name',           # as `inspect` says it
    'classes',        # of the transformer and of the scheduler
    'video',          # width, height and frames that the checkpoint names
    'size',           # options that make videos of 64x64, where the model's own are larger
    'frames',         # of a video, unless asked for otherwise; its steps are the tests' own
    'latents',        # shape of its latents
    'even_latents',   # frames whose latents are even in number, and frames that come out
    'multiples',      # what widths are multiples of
    'samplers',       # their names; the first is the checkpoint's
    'draws',          # whether its first sampler draws noise at its steps: then a seed counts beside given latents
    'decoders_last',  # the bias that is added last by the decoder
])


def family_of(model):
    index = json.loads((Path(model) / 'model_index.json').read_text())
    row = TABLE[index['_class_name']]
    differs = {name: tuple(value) if isinstance(value, list) and name != 'size' and name != 'latents' else value for name, value in row['command_line'].items()}
    return Family(name=row['name'], classes=(index['transformer'][1], index['scheduler'][1]), **{'draws': False, **differs})
