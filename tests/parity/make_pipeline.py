#!/usr/bin/env python3
"""python tests/parity/make_pipeline.py: writes into data
  pipeline/                                          a random-weights CogVideoX pipeline of some 300 KB (64x64, 9 frames)
  pipeline_golden.safetensors, pipeline_cases.json   diffusers' results for it
Needs torch, diffusers, transformers, sentencepiece, safetensors."""
import contextlib
import json
import pathlib
import shutil

import sentencepiece
import torch
from diffusers import AutoencoderKLCogVideoX, CogVideoXDDIMScheduler, CogVideoXDPMScheduler, CogVideoXPipeline, CogVideoXTransformer3DModel
from safetensors.torch import save_file
from transformers import T5Config, T5EncoderModel

DATA = pathlib.Path(__file__).parent / "data"
FOLDER = DATA / "pipeline"
# The options of each case, in addition to the prompts, seed 7 and 4 steps. They have diffusers' names, except for the scheduler.
CASES = {"ddim": {}, "dpm": {"scheduler": "dpm", "use_dynamic_cfg": True}, "no_guidance": {"guidance_scale": 1.0}, "wide": {"width": 96, "height": 48, "num_frames": 5}}
PROMPT, NEGATIVE = "a red circle moving to the right on a blue background", "blurry, gray"


def make_tokenizer(folder):
    folder.mkdir(parents=True)
    corpus = folder / "corpus.txt"
    words = "a red green blue yellow white black gray circle square star moving to the right left up down on background blurry".split()
    corpus.write_text("\n".join(" ".join(words[i:] + words[:i]) for i in range(len(words))))
    with contextlib.chdir(folder):  # the model stores this path, which must not depend on the machine
        sentencepiece.SentencePieceTrainer.train(
            input="corpus.txt", model_prefix="spiece", model_type="unigram", vocab_size=120, hard_vocab_limit=False, character_coverage=1.0,
            normalization_rule_name="identity", required_chars="".join(map(chr, range(33, 127))), pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2, num_threads=1)
    corpus.unlink()
    (folder / "spiece.vocab").unlink()
    special = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    (folder / "special_tokens_map.json").write_text(json.dumps(special, indent=1))
    config = {"tokenizer_class": "T5Tokenizer", **special, "extra_ids": 0, "additional_special_tokens": [], "model_max_length": 16, "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1))
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model")).vocab_size()


def randomize(module, generator):
    """Sets every parameter to random values, so that each of them changes the output, also norms and biases."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                parameter.copy_(noise * (0.8 / (parameter[0].numel() ** 0.5)))
            else:
                parameter.copy_((1.0 if name.endswith("weight") else 0.0) + 0.1 * noise)
    return module.half().eval()


def make_folder():
    shutil.rmtree(FOLDER, ignore_errors=True)
    vocab_size = make_tokenizer(FOLDER / "tokenizer")
    generator = torch.Generator().manual_seed(0)
    text_encoder = T5EncoderModel(T5Config(
        vocab_size=vocab_size, d_model=32, d_kv=16, d_ff=48, num_layers=2, num_heads=2, feed_forward_proj="gated-gelu", dropout_rate=0.0, pad_token_id=0, eos_token_id=1,
        decoder_start_token_id=0, is_encoder_decoder=False, use_cache=False))
    transformer = CogVideoXTransformer3DModel(
        num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=4, time_embed_dim=16, text_embed_dim=32, num_layers=2, sample_width=8, sample_height=8,
        sample_frames=9, patch_size=2, temporal_compression_ratio=4, max_text_seq_length=16, use_rotary_positional_embeddings=True)
    vae = AutoencoderKLCogVideoX(
        block_out_channels=(8, 8, 8, 8), layers_per_block=1, latent_channels=4, norm_num_groups=4, sample_height=48, sample_width=40, scaling_factor=0.8, temporal_compression_ratio=4)
    randomize(text_encoder, generator).save_pretrained(FOLDER / "text_encoder")
    randomize(transformer, generator).save_pretrained(FOLDER / "transformer", max_shard_size="60KB")
    randomize(vae, generator).save_pretrained(FOLDER / "vae")
    CogVideoXDDIMScheduler(snr_shift_scale=3.0, rescale_betas_zero_snr=True, timestep_spacing="trailing", prediction_type="v_prediction").save_pretrained(FOLDER / "scheduler")
    index = {"_class_name": "CogVideoXPipeline", "_diffusers_version": "0.42.1", "scheduler": ["diffusers", "CogVideoXDDIMScheduler"], "text_encoder": ["transformers", "T5EncoderModel"],
             "tokenizer": ["transformers", "T5Tokenizer"], "transformer": ["diffusers", "CogVideoXTransformer3DModel"], "vae": ["diffusers", "AutoencoderKLCogVideoX"]}
    (FOLDER / "model_index.json").write_text(json.dumps(index, indent=1))


def run(pipeline, **options):
    arguments = {"prompt": PROMPT, "negative_prompt": NEGATIVE, "num_frames": 9, "height": 64, "width": 64, "num_inference_steps": 4, "guidance_scale": 6.0, "max_sequence_length": 16, **options}
    latents = pipeline(**arguments, output_type="latent", generator=torch.Generator().manual_seed(7)).frames
    return latents


def main():
    torch.set_num_threads(1)
    make_folder()
    pipeline = CogVideoXPipeline.from_pretrained(FOLDER, torch_dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    golden = {}
    ddim = pipeline.scheduler
    dpm = CogVideoXDPMScheduler.from_config(ddim.config)
    for name, options in CASES.items():
        options = dict(options)
        pipeline.scheduler = dpm if options.pop("scheduler", "ddim") == "dpm" else ddim
        latents = run(pipeline, **options)
        golden[f"{name}.latents"] = latents
        with torch.no_grad():
            video = pipeline.decode_latents(latents)
        golden[f"{name}.frames"] = (video[0] / 2 + 0.5).clamp(0, 1).permute(1, 2, 3, 0)[::4, ::2, ::2]  # every fourth frame, every second pixel
    common = {"prompt": PROMPT, "negative_prompt": NEGATIVE, "seed": 7, "num_inference_steps": 4}
    (DATA / "pipeline_cases.json").write_text(json.dumps({name: {**common, **options} for name, options in CASES.items()}, indent=1) + "\n")
    save_file({key: value.float().contiguous() for key, value in golden.items()}, DATA / "pipeline_golden.safetensors")
    for key, value in golden.items():
        print(key, tuple(value.shape), f"std {value.std():.3f} min {value.min():.3f} max {value.max():.3f}")


if __name__ == "__main__":
    main()
