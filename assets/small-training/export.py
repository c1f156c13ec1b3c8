"""Writes the trained parts as a Wan pipeline folder of diffusers, in fp16, in files below 16 MiB. python export.py FROM OUT [--vae FOLDER] [--flow-shift 5]"""
import argparse
import glob
import json
import os
import shutil

from safetensors.torch import save_file

from model import TEXT_LENGTH
from train import in_files, load_weights, part_of

SPECIAL = {'eos_token': '</s>', 'unk_token': '<unk>', 'pad_token': '<pad>'}
TOKENIZER = {'tokenizer_class': 'T5Tokenizer', **SPECIAL, 'extra_ids': 0, 'additional_special_tokens': [], 'model_max_length': TEXT_LENGTH,
             'clean_up_tokenization_spaces': False}
SCHEDULER = {'_class_name': 'UniPCMultistepScheduler', '_diffusers_version': '0.42.1', 'num_train_timesteps': 1000, 'beta_start': 0.0001, 'beta_end': 0.02,
             'beta_schedule': 'linear', 'solver_order': 2, 'prediction_type': 'flow_prediction', 'thresholding': False, 'predict_x0': True, 'solver_type': 'bh2',
             'lower_order_final': True, 'disable_corrector': [], 'use_flow_sigmas': True, 'timestep_spacing': 'linspace', 'steps_offset': 0,
             'final_sigmas_type': 'zero', 'rescale_betas_zero_snr': False}
INDEX = {'_class_name': 'WanPipeline', '_diffusers_version': '0.42.1', 'boundary_ratio': None, 'expand_timesteps': True,
         'scheduler': ['diffusers', 'UniPCMultistepScheduler'], 'text_encoder': ['transformers', 'UMT5EncoderModel'], 'tokenizer': ['transformers', 'T5Tokenizer'],
         'transformer': ['diffusers', 'WanTransformer3DModel'], 'transformer_2': [None, None], 'vae': ['diffusers', 'AutoencoderKLWan']}


def write_json(path, value):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w') as f:
        json.dump(value, f, indent=1)
        f.write('\n')


def write_weights(weights, folder, stem):
    """Writes weights with diffusers' file names, and an index if several files are needed."""
    parts = in_files(weights)
    os.makedirs(folder, exist_ok=True)
    names = [f'{stem}-{k:05}-of-{len(parts):05}.safetensors' for k in range(1, len(parts) + 1)] if len(parts) > 1 else [f'{stem}.safetensors']
    for name, part in zip(names, parts):
        save_file(part, os.path.join(folder, name), metadata={'format': 'pt'})
    if len(parts) > 1:
        write_json(os.path.join(folder, f'{stem}.safetensors.index.json'),
                   {'metadata': {'total_size': sum(2 * w.numel() for w in weights.values())}, 'weight_map': {k: name for name, part in zip(names, parts) for k in part}})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('source', help='folder that train.py wrote')
    parser.add_argument('out')
    parser.add_argument('--vae', default='', help='folder of the VAE (default: vae in the source)')
    parser.add_argument('--flow-shift', type=float, default=5.0)
    args = parser.parse_args()
    with open(max(glob.glob(os.path.join(args.source, 'report-*.json')), key=os.path.getmtime)) as f:
        configs = json.load(f)['configs']
    weights = load_weights(args.source)
    shutil.copytree(args.vae or os.path.join(args.source, 'vae'), os.path.join(args.out, 'vae'), dirs_exist_ok=True)
    write_weights(part_of(weights, 'transformer'), os.path.join(args.out, 'transformer'), 'diffusion_pytorch_model')
    write_weights(part_of(weights, 'text_encoder'), os.path.join(args.out, 'text_encoder'), 'model')
    write_json(os.path.join(args.out, 'transformer', 'config.json'), configs['transformer'])
    write_json(os.path.join(args.out, 'text_encoder', 'config.json'), configs['text_encoder'])
    write_json(os.path.join(args.out, 'tokenizer', 'tokenizer_config.json'), TOKENIZER)
    write_json(os.path.join(args.out, 'tokenizer', 'special_tokens_map.json'), SPECIAL)
    shutil.copyfile(os.path.join(args.source, 'spiece.model'), os.path.join(args.out, 'tokenizer', 'spiece.model'))
    write_json(os.path.join(args.out, 'scheduler', 'scheduler_config.json'), {**SCHEDULER, 'flow_shift': args.flow_shift})
    write_json(os.path.join(args.out, 'model_index.json'), INDEX)
    print(f'{args.out}: {sum(w.numel() for w in weights.values()) / 1e6:.2f} M parameters, without the VAE')


if __name__ == '__main__':
    main()
