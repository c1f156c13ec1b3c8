"""Writes the trained parts as a diffusers CogVideoXPipeline folder in fp16, with the transformer in two shards. python export.py WORK OUT"""
import json
import os
import shutil
import sys

import torch
from diffusers import CogVideoXPipeline
from transformers import T5Tokenizer

import models
import shapes
import unigram

PROMPTS = ['A Big RED ball?! (x2) & ~weird~ zebra_42 "quoted"', ''.join(map(chr, range(33, 127))), '', '  two  spaces ']


def write_json(path, value):
    with open(path, 'w') as f:
        json.dump(value, f, indent=1)
        f.write('\n')


def main():
    work, out = sys.argv[1:3]
    os.makedirs(f'{out}/tokenizer', exist_ok=True)
    shutil.copyfile(f'{work}/spiece.model', f'{out}/tokenizer/spiece.model')
    pieces = unigram.load(f'{work}/spiece.model')
    special = {'eos_token': '</s>', 'unk_token': '<unk>', 'pad_token': '<pad>'}
    write_json(f'{out}/tokenizer/special_tokens_map.json', special)
    write_json(f'{out}/tokenizer/tokenizer_config.json', {
        'tokenizer_class': 'T5Tokenizer', **special, 'extra_ids': 0, 'additional_special_tokens': [],
        'model_max_length': models.TEXT_TOKENS, 'clean_up_tokenization_spaces': False})
    tokenizer = T5Tokenizer.from_pretrained(f'{out}/tokenizer')
    tests = PROMPTS + shapes.sample(5, 300)['caption']
    wrong = [p for p in tests if tokenizer(p).input_ids != pieces.encode(p) + [1]]
    print(f'tokenizer: {pieces.vocab_size()} pieces; {len(wrong)} of {len(tests)} prompts differ from SentencePiece;',
          'unknown characters in ASCII:', 2 in pieces.encode(PROMPTS[1]))

    vae = models.make_vae(float(open(f'{work}/scale.txt').read()))
    vae.load_state_dict(models.load_float(f'{work}/vae.safetensors'))
    denoiser = models.make_denoiser()
    denoiser.load_state_dict(models.load_float(f'{work}/denoiser.safetensors'))
    text_encoder = models.make_text_encoder(pieces.vocab_size())
    text_encoder.load_state_dict(models.load_float(f'{work}/text_encoder.safetensors'), strict=False)
    vae.half().save_pretrained(f'{out}/vae')
    denoiser.half().save_pretrained(f'{out}/transformer', max_shard_size='6.2MB')
    text_encoder.half().save_pretrained(f'{out}/text_encoder')
    models.make_scheduler().save_pretrained(f'{out}/scheduler')
    import diffusers
    write_json(f'{out}/model_index.json', {
        '_class_name': 'CogVideoXPipeline', '_diffusers_version': diffusers.__version__, 'scheduler': ['diffusers', 'CogVideoXDDIMScheduler'],
        'text_encoder': ['transformers', 'T5EncoderModel'], 'tokenizer': ['transformers', 'T5Tokenizer'],
        'transformer': ['diffusers', 'CogVideoXTransformer3DModel'], 'vae': ['diffusers', 'AutoencoderKLCogVideoX']})
    pipe = CogVideoXPipeline.from_pretrained(out, torch_dtype=torch.float32)
    tied = torch.equal(pipe.text_encoder.shared.weight, pipe.text_encoder.encoder.embed_tokens.weight)
    same = all(torch.equal(a.float().half(), b.float().half()) for a, b in zip(text_encoder.parameters(), pipe.text_encoder.parameters()))
    print('loads as', type(pipe).__name__, '- embeddings tied:', tied, '- text encoder as saved:', same)


if __name__ == '__main__':
    main()
