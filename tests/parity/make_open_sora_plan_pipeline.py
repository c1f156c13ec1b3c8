#!/usr/bin/env python3
"""python tests/parity/make_open_sora_plan_pipeline.py CHECKOUT: writes into data/open_sora_plan
  pipeline/                                          a random-weights Open-Sora-Plan pipeline (64x64, 13 frames)
  pipeline_golden.safetensors, pipeline_cases.json   the results of the authors' own pipeline, with its scripts' words around the prompt
                                                     and its cleaning of captions
Needs torch, safetensors, sentencepiece, beautifulsoup4, ftfy, and what open_sora_plan.py needs."""
import json
import re
import shutil

import torch
from diffusers import EulerAncestralDiscreteScheduler
from safetensors.torch import save_file
from transformers import MT5Config, MT5EncoderModel, T5Tokenizer

from open_sora_plan import CODE, CausalVAEModel, OpenSoraPipeline, OpenSoraT2V, in_tiles, plain  # must come first, because make_pipeline imports diffusers
from make_open_sora_plan_dit import SMALL
from make_open_sora_plan_vae import CONFIGS
from make_pipeline import DATA, NEGATIVE, PROMPT, make_tokenizer, randomize

PLAN = DATA / "open_sora_plan"
FOLDER = PLAN / "pipeline"
# COMMON holds the options of all cases, CASES the further options of each case. They have diffusers' names.
COMMON = {"prompt": PROMPT, "negative_prompt": NEGATIVE, "seed": 7, "num_inference_steps": 4, "max_sequence_length": 256, "width": 64, "height": 64, "num_frames": 13}
CASES = {
    "plain": {},
    "scripts_negative_prompt": {"negative_prompt": None},
    "long_negative_prompt": {"negative_prompt": " ".join([PROMPT] * 9), "prompt": "A Star"},
    "no_negative_prompt": {"negative_prompt": ""},
    "cut": {"max_sequence_length": 64},
    "no_guidance": {"guidance_scale": 1.0},
    "wide": {"width": 96, "height": 48, "num_frames": 17},
    "full_stop": {"prompt": PROMPT + "."},
    "one_frame": {"num_frames": 1},
    "two_chunks": {"num_inference_steps": 7, "num_frames": 37, "width": 32, "height": 16},
}
WORDS = [re.search(rf'{name} = """(.*?)"""', (CODE / "opensora/sample/sample_t2v_ddp.py").read_text(), re.DOTALL).group(1) for name in ("positive_prompt", "negative_prompt")]


class Vae(torch.nn.Module):
    """Replaces the class that wraps the VAE in the authors' pipeline."""
    vae_scale_factor, device = [4, 8, 8], torch.device("cpu")  # the pipeline may read the device from any of its components

    def __init__(self, vae):
        super().__init__()
        self.vae = vae


def make_folder():
    shutil.rmtree(FOLDER, ignore_errors=True)
    vocab_size = make_tokenizer(FOLDER / "tokenizer")
    generator = torch.Generator().manual_seed(0)
    text_encoder = MT5EncoderModel(MT5Config(
        vocab_size=vocab_size, d_model=32, d_kv=16, d_ff=48, num_layers=2, num_heads=2, feed_forward_proj="gated-gelu", dropout_rate=0.0, pad_token_id=0, eos_token_id=1,
        decoder_start_token_id=0, is_encoder_decoder=False, use_cache=False))
    transformer = OpenSoraT2V(**dict(SMALL, caption_channels=32, out_channels=4, sample_size=(8, 8), sample_size_t=4))
    vae = CausalVAEModel(**CONFIGS["small"])
    randomize(text_encoder, generator).save_pretrained(FOLDER / "text_encoder")
    randomize(transformer, generator)
    randomize(vae, generator)
    for name, model in (("transformer", transformer), ("vae", vae)):
        (FOLDER / name).mkdir()
        kept = plain(model.config) | {"_class_name": type(model).__name__}
        (FOLDER / name / "config.json").write_text(json.dumps(kept, indent=1))
        tensors = {key: tensor.contiguous() for key, tensor in model.state_dict().items() if not key.startswith(("encoder.", "quant_conv."))}
        save_file(tensors, FOLDER / name / "diffusion_pytorch_model.safetensors", metadata={"format": "pt"})
    EulerAncestralDiscreteScheduler().save_pretrained(FOLDER / "scheduler")
    index = {"_class_name": "OpenSoraPipeline", "_diffusers_version": "0.28.0", "scheduler": ["diffusers", "EulerAncestralDiscreteScheduler"],
             "text_encoder": ["transformers", "MT5EncoderModel"], "tokenizer": ["transformers", "T5Tokenizer"], "transformer": ["opensora", "OpenSoraT2V"],
             "vae": ["opensora", "CausalVAEModel"]}
    (FOLDER / "model_index.json").write_text(json.dumps(index, indent=1))
    return OpenSoraPipeline(tokenizer=T5Tokenizer.from_pretrained(FOLDER / "tokenizer", legacy=True), text_encoder=text_encoder.float(), vae=Vae(in_tiles(vae.float().eval())),
                            transformer=transformer.float().eval(), scheduler=EulerAncestralDiscreteScheduler())


@torch.no_grad()
def run(pipeline, **options):
    arguments = {**COMMON, "guidance_scale": 7.5, **options}
    generator = torch.Generator().manual_seed(arguments.pop("seed"))
    prompt, negative = arguments.pop("prompt"), arguments.pop("negative_prompt")
    latents = pipeline(WORDS[0].format(prompt), negative_prompt=WORDS[1] if negative is None else negative, **arguments, generator=generator, output_type="latent").images
    video = pipeline.vae.vae.decode(latents / 0.18215)
    return latents, (video[0] / 2 + 0.5).clamp(0, 1).permute(1, 2, 3, 0)[::4, ::2, ::2]  # every fourth frame, every second pixel


def main():
    pipeline = make_folder()
    pipeline.set_progress_bar_config(disable=True)
    golden = {}
    for name, options in CASES.items():
        golden[f"{name}.latents"], golden[f"{name}.frames"] = run(pipeline, **options)
    listed = {name: {key: value for key, value in {**COMMON, **options}.items() if value is not None} for name, options in CASES.items()}
    (PLAN / "pipeline_cases.json").write_text(json.dumps(listed, indent=1) + "\n")
    save_file({key: value.float().contiguous() for key, value in golden.items()}, PLAN / "pipeline_golden.safetensors")
    for key, value in golden.items():
        print(key, tuple(value.shape), f"std {value.std():.3f} min {value.min():.3f} max {value.max():.3f}")


if __name__ == "__main__":
    main()
