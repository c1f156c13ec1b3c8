#!/usr/bin/env python3
"""python tests/parity/compare_precision.py CAPTURE_OUTPUT: at the published widths and sizes, on random weights, how far bf16 is from fp32 in
diffusers and in ours; fails where ours errs more than 1.1 times as much. CAPTURE_OUTPUT is the built tests/bench/capture_output. Needs torch,
diffusers, safetensors, and for the sizes it has a GPU."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from diffusers import AutoencoderKLCogVideoX, CogVideoXTransformer3DModel
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from make_dit import rotary_of  # noqa: E402

PAIRS = {"scheduler": ["diffusers", "CogVideoXDDIMScheduler"], "text_encoder": ["transformers", "T5EncoderModel"], "tokenizer": ["transformers", "T5Tokenizer"],
         "transformer": ["diffusers", "CogVideoXTransformer3DModel"], "vae": ["diffusers", "AutoencoderKLCogVideoX"]}
TWO_B = dict(num_attention_heads=30)
FIVE_B = dict(num_attention_heads=48, use_rotary_positional_embeddings=True)
# name: (component, config, latents)
CASES = {
    "2b, one block": ("transformer", dict(TWO_B, num_layers=1), (2, 13, 16, 60, 90)),
    "2b, four blocks": ("transformer", dict(TWO_B, num_layers=4), (2, 13, 16, 60, 90)),
    "5b, one block": ("transformer", dict(FIVE_B, num_layers=1), (2, 13, 16, 60, 90)),
    "5b, four blocks": ("transformer", dict(FIVE_B, num_layers=4), (2, 13, 16, 60, 90)),
    "VAE, 5 latent frames": ("vae", dict(latent_channels=16, norm_num_groups=32, block_out_channels=(128, 256, 256, 512), layers_per_block=3, sample_height=480,
                                         sample_width=720, down_block_types=("CogVideoXDownBlock3D",) * 4, up_block_types=("CogVideoXUpBlock3D",) * 4),
                             (1, 16, 5, 60, 90)),
}


def randomise(model):
    """bf16 numbers in every parameter; scales at which activations neither vanish nor explode."""
    for name, value in model.state_dict().items():
        noise = torch.randn(value.shape)
        noise = noise * (0.8 / value[0].numel() ** 0.5) if value.ndim > 1 else 0.3 * noise + float(name.endswith("weight"))
        value.copy_(noise.bfloat16())


def make_inputs(component, config, shape):
    inputs = {"latents": torch.randn(shape).bfloat16().float()}
    if component == "transformer":
        inputs |= {"text": torch.randn(shape[0], 226, config.text_embed_dim).bfloat16().float(), "timesteps": torch.full((shape[0],), 499)}
    return inputs


@torch.inference_mode()
def run_diffusers(model, inputs, device, dtype):
    model = model.to(device, dtype)
    latents = inputs["latents"].to(device, dtype)
    if "text" not in inputs:
        return model.decode(latents).sample.float().cpu()
    rotary = rotary_of(model, latents)
    rotary = rotary and tuple(table.to(device) for table in rotary)
    return model(latents, inputs["text"].to(device, dtype), inputs["timesteps"].to(device), image_rotary_emb=rotary, return_dict=False)[0].float().cpu()


def run_ours(program, component, folder, inputs, device):
    save_file(inputs, folder / "inputs.safetensors")
    subprocess.run([program, component, folder, folder / "inputs.safetensors", folder / "output.safetensors", device, "bf16"], check=True)
    return load_file(folder / "output.safetensors")["output"]


def compare(program, name, device):
    component, settings, shape = CASES[name]
    torch.manual_seed(0)
    kind = CogVideoXTransformer3DModel if component == "transformer" else AutoencoderKLCogVideoX
    model = kind(**settings).eval()
    randomise(model)
    inputs = make_inputs(component, model.config, shape)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "model_index.json").write_text(json.dumps({"_class_name": "CogVideoXPipeline"} | PAIRS))
        model.to(torch.bfloat16).save_pretrained(folder / component)
        ours = run_ours(program, component, folder, inputs, device)
    exact = run_diffusers(model, inputs, device, torch.float32)
    theirs = run_diffusers(model, inputs, device, torch.bfloat16)
    error = lambda x: ((x - exact).square().mean() / exact.square().mean()).sqrt().item()
    print(f"{name:24} relative error of bf16: diffusers {error(theirs):.3e}, ours {error(ours):.3e}, ratio {error(ours) / error(theirs):.3f}", flush=True)
    return error(ours) <= 1.1 * error(theirs)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="the built capture_output")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES), metavar="NAME")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    sys.exit(0 if all([compare(options.program, name, options.device) for name in options.cases]) else 1)


if __name__ == "__main__":
    main()
