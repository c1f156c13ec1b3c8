"""Writes the trained parts as a diffusers CogVideoXPipeline folder in fp16, with the transformer in two shards. python export.py WORK OUT"""
import json
import os
import shutil
import sys

import torch
import diffusers
from diffusers import AutoencoderKLCogVideoX, CogVideoXDDIMScheduler, CogVideoXPipeline, CogVideoXTransformer3DModel
from transformers import T5Config, T5EncoderModel, T5Tokenizer

import cogvideox
import models
import shapes
import unigram

diffusers.logging.set_verbosity_error()
PROMPTS = ['A Big RED ball?! (x2) & ~weird~ zebra_42 "quoted"', ''.join(map(chr, range(33, 127))), '', '  two  spaces ']


def write_json(path, value):
    with open(path, 'w') as f:
        json.dump(value, f, indent=1)
        f.write('\n')


def make_vae(scaling_factor):
    # With these sample sizes, the tile lengths in diffusers are whole numbers, so its tiled decode returns frames of
    # the right size.
    return AutoencoderKLCogVideoX(
        in_channels=3, out_channels=3, block_out_channels=cogvideox.VAE_WIDTHS, layers_per_block=1, latent_channels=models.LATENT_CHANNELS,
        norm_num_groups=cogvideox.GROUPS, sample_height=192, sample_width=160, scaling_factor=scaling_factor, temporal_compression_ratio=4)


def make_text_encoder(vocabulary):
    return T5EncoderModel(T5Config(
        vocab_size=vocabulary, d_model=cogvideox.TEXT_WIDTH, d_kv=32, d_ff=256, num_layers=3, num_heads=4, feed_forward_proj='gated-gelu', dropout_rate=0.0,
        pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, tie_word_embeddings=False, is_encoder_decoder=False, use_cache=False))


def make_denoiser():
    return CogVideoXTransformer3DModel(
        num_attention_heads=cogvideox.HEADS, attention_head_dim=cogvideox.HEAD_DIM, in_channels=models.LATENT_CHANNELS, out_channels=models.LATENT_CHANNELS,
        time_embed_dim=cogvideox.TIME_WIDTH, text_embed_dim=cogvideox.TEXT_WIDTH, num_layers=cogvideox.LAYERS, sample_width=models.SIDE // 8,
        sample_height=models.SIDE // 8, sample_frames=shapes.FRAMES, patch_size=2, temporal_compression_ratio=4, max_text_seq_length=models.TEXT_TOKENS,
        use_rotary_positional_embeddings=True)


def make_scheduler():
    return CogVideoXDDIMScheduler(
        num_train_timesteps=cogvideox.TRAIN_STEPS, beta_start=0.00085, beta_end=0.012, beta_schedule='scaled_linear', clip_sample=False,
        set_alpha_to_one=True, steps_offset=0, prediction_type='v_prediction', timestep_spacing='trailing',
        rescale_betas_zero_snr=True, snr_shift_scale=3.0)


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

    vae = make_vae(float(open(f'{work}/scale.txt').read()))
    vae.load_state_dict(models.load_float(f'{work}/vae.safetensors'))
    denoiser = make_denoiser()
    denoiser.load_state_dict(models.load_float(f'{work}/denoiser.safetensors'))
    text_encoder = make_text_encoder(pieces.vocab_size())
    text_encoder.load_state_dict(models.load_float(f'{work}/text_encoder.safetensors'), strict=False)
    vae.half().save_pretrained(f'{out}/vae')
    denoiser.half().save_pretrained(f'{out}/transformer', max_shard_size='6.2MB')
    text_encoder.half().save_pretrained(f'{out}/text_encoder')
    make_scheduler().save_pretrained(f'{out}/scheduler')
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
