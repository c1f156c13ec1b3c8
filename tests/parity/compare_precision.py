#!/usr/bin/env python3
"""python tests/parity/compare_precision.py CAPTURE_OUTPUT: prints how far bf16 is from fp32 in diffusers and in our program, and how far our program is with 8-bit
weights, at the published widths and sizes with random weights. Fails if our error in bf16 is more than 1.1 times that of diffusers, or if our error in 8 bits is above FP8_MOST.
CAPTURE_OUTPUT is the built tests/bench/capture_output. Needs torch, diffusers, safetensors, and a GPU for the published sizes."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from diffusers import AutoencoderKLCogVideoX, AutoencoderKLMochi, CogVideoXTransformer3DModel, MochiTransformer3DModel, WanTransformer3DModel
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from make_dit import rotary_of  # noqa: E402
from make_wan_dit import in_bfloat16  # noqa: E402

FP8_MOST = 0.05
TWO_B = dict(num_attention_heads=30)
FIVE_B = dict(num_attention_heads=48, use_rotary_positional_embeddings=True)
WAN_1_3B = dict(num_attention_heads=12, ffn_dim=8960)
# {name: (class of the model, config, shape of the latents)}
CASES = {
    "2b, one block": (CogVideoXTransformer3DModel, dict(TWO_B, num_layers=1), (2, 13, 16, 60, 90)),
    "2b, four blocks": (CogVideoXTransformer3DModel, dict(TWO_B, num_layers=4), (2, 13, 16, 60, 90)),
    "5b, one block": (CogVideoXTransformer3DModel, dict(FIVE_B, num_layers=1), (2, 13, 16, 60, 90)),
    "5b, four blocks": (CogVideoXTransformer3DModel, dict(FIVE_B, num_layers=4), (2, 13, 16, 60, 90)),
    "Wan 1.3b, one block": (WanTransformer3DModel, dict(WAN_1_3B, num_layers=1), (2, 16, 21, 60, 104)),
    "Wan 1.3b, four blocks": (WanTransformer3DModel, dict(WAN_1_3B, num_layers=4), (2, 16, 21, 60, 104)),
    "Wan 14b, one block": (WanTransformer3DModel, dict(num_layers=1), (1, 16, 21, 60, 104)),
    "Mochi, two blocks": (MochiTransformer3DModel, dict(num_layers=2), (1, 12, 28, 60, 106)),
    "Mochi's VAE, 3 latent frames": (AutoencoderKLMochi, dict(), (1, 12, 3, 60, 106)),
    "VAE, 5 latent frames": (AutoencoderKLCogVideoX,
                             dict(latent_channels=16, norm_num_groups=32, block_out_channels=(128, 256, 256, 512), layers_per_block=3, sample_height=480,
                                  sample_width=720, down_block_types=("CogVideoXDownBlock3D",) * 4, up_block_types=("CogVideoXUpBlock3D",) * 4),
                             (1, 16, 5, 60, 90)),
}


def randomize(model):
    """Sets every parameter to random bf16 numbers of a scale at which activations neither vanish nor explode."""
    for name, value in model.state_dict().items():
        noise = torch.randn(value.shape)
        noise = noise * (0.8 / value[0].numel() ** 0.5) if value.ndim > 1 else 0.3 * noise + float(name.endswith("weight"))
        value.copy_(noise.bfloat16())


def make_inputs(model, shape):
    inputs = {"latents": torch.randn(shape).bfloat16().float()}
    text = {CogVideoXTransformer3DModel: (226, "text_embed_dim"), MochiTransformer3DModel: (256, "text_embed_dim"), WanTransformer3DModel: (512, "text_dim")}.get(type(model))
    if text:
        inputs |= {"text": torch.randn(shape[0], text[0], model.config[text[1]]).bfloat16().float(), "timesteps": torch.full((shape[0],), 500)}
    return inputs


@torch.inference_mode()
def run_diffusers(model, inputs, device, dtype):
    model = model.to(device)
    latents, timesteps = inputs["latents"].to(device, dtype), inputs.get("timesteps", torch.tensor(0)).to(device)
    if isinstance(model, AutoencoderKLMochi):
        mean, std = (torch.tensor(values, device=device).view(1, -1, 1, 1, 1) for values in (model.config.latents_mean, model.config.latents_std))
        latents = (latents.float() * std + mean).to(dtype)  # our VAE does this scaling in decode()
    if "text" not in inputs:
        return model.decode(latents).sample.float().cpu()
    text = inputs["text"].to(device, dtype)
    if isinstance(model, WanTransformer3DModel):
        return model(latents, timesteps, text, return_dict=False)[0].float().cpu()
    if isinstance(model, MochiTransformer3DModel):
        return model(latents, text, timesteps.to(dtype), torch.ones(text.shape[:2], device=device, dtype=torch.bool), return_dict=False)[0].float().cpu()
    rotary = rotary_of(model, latents)
    rotary = rotary and tuple(table.to(device) for table in rotary)
    return model(latents, text, timesteps, image_rotary_emb=rotary, return_dict=False)[0].float().cpu()


def index_of(class_name):
    """Returns the content of model_index.json for a pipeline that has a component of this class."""
    tests = pathlib.Path(__file__).parents[1]
    for row in json.loads((tests / "families.json").read_text()).values():
        index = tests / "parity/data" / row.get("data", "none") / "pipeline/model_index.json"
        if index.exists() and class_name in index.read_text():
            return index.read_text()
    raise ValueError(f"no family of tests/families.json has a {class_name}")


def run_ours(program, component, folder, device, how):
    subprocess.run([program, component, folder, folder / "inputs.safetensors", folder / "output.safetensors", device, how], check=True)
    return load_file(folder / "output.safetensors")["output"]


def compare(program, name, device):
    kind, settings, shape = CASES[name]
    torch.manual_seed(0)
    model = kind(**settings).eval()
    randomize(model)
    inputs = make_inputs(model, shape)
    component = "transformer" if "text" in inputs else "vae"
    half = in_bfloat16(model)
    exact = run_diffusers(model, inputs, device, torch.float32)
    error = lambda x: ((x - exact).square().mean() / exact.square().mean()).sqrt().item()
    del model
    theirs = error(run_diffusers(half, inputs, device, torch.bfloat16))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "model_index.json").write_text(index_of(kind.__name__))
        half.cpu().to(torch.bfloat16).save_pretrained(folder / component)
        del half
        save_file(inputs, folder / "inputs.safetensors")
        ours = error(run_ours(program, component, folder, device, "bf16"))
        fp8 = error(run_ours(program, component, folder, device, "fp8")) if component == "transformer" else 0
    print(f"{name:24} relative error of bf16: diffusers {theirs:.3e}, ours {ours:.3e}, ratio {ours / theirs:.3f}" + f"; with 8-bit weights {fp8:.3e}" * (fp8 > 0), flush=True)
    return ours <= 1.1 * theirs and fp8 <= FP8_MOST


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
