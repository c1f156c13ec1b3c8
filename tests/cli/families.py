"""What differs between the models that the command-line tests run on: the one place that knows their families."""
import json
from collections import namedtuple
from pathlib import Path

Family = namedtuple('Family', [
    'frames',         # of a video, unless asked for otherwise; its size is 64x64, its steps are the tests' own
    'latents',        # shape of its latents
    'even_latents',   # frames whose latents are even in number, and frames that come out
    'multiples',      # what widths are multiples of
    'samplers',       # two names; the first is the checkpoint's
    'decoders_last',  # the bias that is added last by the decoder
])
FAMILIES = {
    'CogVideoXPipeline': Family(frames=9, latents=[1, 3, 4, 8, 8], even_latents=(5, 8), multiples=16, samplers=('ddim', 'dpm'),
                                decoders_last='decoder.conv_out.conv.bias'),
    'ToyPipeline': Family(frames=7, latents=[1, 4, 4, 16, 16], even_latents=(3, 3), multiples=8, samplers=('euler', 'unipc'),
                          decoders_last='decoder.block.bias'),
}


def family_of(model):
    return FAMILIES[json.loads((Path(model) / 'model_index.json').read_text())['_class_name']]
