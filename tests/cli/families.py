"""What differs between the models that the command-line tests run on: the one place that knows their families."""
import json
from collections import namedtuple
from pathlib import Path

Family = namedtuple('Family', [
    'name',           # as `inspect` says it
    'classes',        # of the transformer and of the scheduler
    'video',          # width, height and frames that the checkpoint names
    'size',           # options that make videos of 64x64, where the model's own are larger
    'frames',         # of a video, unless asked for otherwise; its steps are the tests' own
    'latents',        # shape of its latents
    'even_latents',   # frames whose latents are even in number, and frames that come out
    'multiples',      # what widths are multiples of
    'samplers',       # two names; the first is the checkpoint's
    'decoders_last',  # the bias that is added last by the decoder
])
FAMILIES = {
    'CogVideoXPipeline': Family(name='CogVideoX', classes=('CogVideoXTransformer3DModel', 'CogVideoXDDIMScheduler'), video=(64, 64, 9), size=[], frames=9, latents=[1, 3, 4, 8, 8], even_latents=(5, 8), multiples=16, samplers=('ddim', 'dpm'),
                                decoders_last='decoder.conv_out.conv.bias'),
    'ToyPipeline': Family(name='Toy', classes=('ToyTransformer3DModel', 'FlowMatchEulerDiscreteScheduler'), video=(64, 64, 7), size=[], frames=7, latents=[1, 4, 4, 16, 16], even_latents=(3, 3), multiples=8, samplers=('euler', 'unipc'),
                          decoders_last='decoder.block.bias'),
    'WanPipeline': Family(name='Wan', classes=('WanTransformer3DModel', 'UniPCMultistepScheduler'), video=(832, 480, 81), size=['--size', '64x64', '--frames', 9], frames=9, latents=[1, 4, 3, 8, 8], even_latents=(5, 5), multiples=16,
                          samplers=('unipc', 'euler'), decoders_last='decoder.conv_out.bias'),
}


def family_of(model):
    return FAMILIES[json.loads((Path(model) / 'model_index.json').read_text())['_class_name']]
