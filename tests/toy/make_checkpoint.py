"""Writes the toy family's checkpoint, with two transformers of random weights. Needs only the standard library.

    python3 tests/toy/make_checkpoint.py FOLDER
"""
import json
import random
import shutil
import struct
import sys
from pathlib import Path

PIPELINE = Path(__file__).resolve().parents[1] / 'parity' / 'data' / 'pipeline'  # the toy's tokenizer and text encoder are copies of this folder's
TRANSFORMER = {'_class_name': 'ToyTransformer3DModel', 'num_layers': 2, 'num_attention_heads': 2, 'attention_head_dim': 16, 'in_channels': 4,
               'text_dim': 32, 'text_width': 24, 'patch_size': [2, 2, 2]}
VAE = {'_class_name': 'AutoencoderKLToy', 'latent_channels': 4, 'stride': [2, 4, 4]}
SCHEDULER = {'_class_name': 'FlowMatchEulerDiscreteScheduler', 'shift': 3.0}
INDEX = {'_class_name': 'ToyPipeline', 'boundary_ratio': 0.9, 'scheduler': ['diffusers', 'FlowMatchEulerDiscreteScheduler'],
         'text_encoder': ['transformers', 'T5EncoderModel'], 'tokenizer': ['transformers', 'T5Tokenizer'],
         'transformer': ['diffusers', 'ToyTransformer3DModel'], 'transformer_2': ['diffusers', 'ToyTransformer3DModel'],
         'vae': ['diffusers', 'AutoencoderKLToy']}


def linear(name, out, into, bias=True):
    return {f'{name}.weight': [out, into], **({f'{name}.bias': [out]} if bias else {})}


def transformer_shapes():
    width, patch = 32, 4 * 2 * 2 * 2
    text = TRANSFORMER['text_width']
    shapes = {**linear('embed', width, patch), **linear('text', text, 32), **linear('head', patch, width)}
    for layer in range(TRANSFORMER['num_layers']):
        name, inner = f'layer.{layer}', 8 * (layer + 1)
        for part in 'qkv':
            shapes |= linear(f'{name}.{part}', width, text, False)
        shapes |= linear(name + '.text', text, width)
        shapes |= linear(name + '.in', inner, width, layer != 1) | linear(name + '.out', width, inner)
    return shapes


def write_weights(path, shapes, seed):
    """Writes normally distributed weights. Their standard deviation is n^-0.5, where n is the number of inputs of an output."""
    draw, header, body = random.Random(seed), {}, b''
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        data = struct.pack(f'<{count}f', *(draw.gauss(0, shape[-1] ** -0.5) for _ in range(count)))
        header[name] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack('<Q', len(text)) + text + body)


def main():
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    for name in ('tokenizer', 'text_encoder'):
        shutil.copytree(PIPELINE / name, folder / name)
    for name in ('scheduler', 'transformer', 'transformer_2', 'vae'):
        (folder / name).mkdir()
    (folder / 'model_index.json').write_text(json.dumps(INDEX, indent=1))
    (folder / 'scheduler' / 'scheduler_config.json').write_text(json.dumps(SCHEDULER))
    (folder / 'vae' / 'config.json').write_text(json.dumps(VAE))
    pixels = 3 * 2 * 4 * 4  # number of values that a latent decodes to
    write_weights(folder / 'vae' / 'diffusion_pytorch_model.safetensors', linear('decoder.block', pixels, 4) | linear('encoder.block', 4, pixels), 0)
    for seed, name in enumerate(('transformer', 'transformer_2'), 1):
        (folder / name / 'config.json').write_text(json.dumps(TRANSFORMER))
        write_weights(folder / name / 'diffusion_pytorch_model.safetensors', transformer_shapes(), seed)


main()
