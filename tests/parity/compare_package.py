#!/usr/bin/env python3
"""Compares diffusers' CogVideoX and Wan pipelines with this program on the same noise. diffusers uses the attention of the Python package (attention/python) and
our order of tokens.
  python tests/parity/compare_package.py                       writes data/package_cases.json and data/package_golden.safetensors (latents, 80 KB) for the
                                                               program's parity test
  python tests/parity/compare_package.py PROGRAM [DEVICE]      runs both on DEVICE (default: cpu), in fp32 on a CPU or bf16 on a GPU, and prints the difference
                                                               of their frames
Needs torch, diffusers, transformers, ftfy, safetensors, and SPARSEREEL_ATTENTION_LIBRARY."""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import torch
from diffusers import CogVideoXPipeline, WanPipeline
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "attention" / "python"))
import sparsereel  # noqa: E402

DATA = pathlib.Path(__file__).parent / "data"
PROMPT, NEGATIVE = "a red circle moving to the right on a blue background", "blurry, gray"
COMMON = {"prompt": PROMPT, "negative_prompt": NEGATIVE, "seed": 7, "num_inference_steps": 4, "max_sequence_length": 16, "width": 192, "height": 192, "num_frames": 9}
CASES = {"cogvideox": {"folder": "pipeline", "topk": 0.4}, "wan": {"folder": "wan/pipeline", "topk": 0.4}, "wan_error": {"folder": "wan/pipeline", "error": 0.5}}
GRID = (3, 12, 12)  # frames, rows and columns of tokens for the video size in COMMON


def rotate(x, cos, sin):
    """Applies rotary embeddings to x [.., tokens, head_dim]. Pairs are neighboring channels. cos and sin [tokens, head_dim] hold each value twice."""
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return (x.float() * cos + torch.stack([-odd, even], -1).flatten(-2) * sin).to(x.dtype)


class SparseCogVideoX:
    """Replaces CogVideoXAttnProcessor2_0 of diffusers. Moves the text behind the video, because our kernels need it there."""

    def __init__(self, order, **selection):
        self.order, self.selection = order, selection

    def __call__(self, attn, hidden_states, encoder_hidden_states, attention_mask=None, image_rotary_emb=None):
        text = encoder_hidden_states.size(1)
        x = torch.cat([hidden_states[:, self.order], encoder_hidden_states], 1)
        q, k, v = (layer(x).unflatten(2, (attn.heads, -1)).transpose(1, 2) for layer in (attn.to_q, attn.to_k, attn.to_v))
        q, k = attn.norm_q(q), attn.norm_k(k)
        cos, sin = (table[self.order].to(x.device) for table in image_rotary_emb)
        q, k = (torch.cat([rotate(each[:, :, :-text], cos, sin), each[:, :, -text:]], 2) for each in (q, k))
        out = sparsereel.attention(q, k, v, text_tokens=text, **self.selection).transpose(1, 2).flatten(2)
        out = attn.to_out[0](out)
        return out[:, :-text][:, self.order.argsort()], out[:, -text:]


class SparseWan:
    """Replaces WanAttnProcessor of diffusers in self-attention."""

    def __init__(self, order, **selection):
        self.order, self.selection = order, selection

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, rotary_emb=None):
        x = hidden_states[:, self.order]
        q, k, v = attn.norm_q(attn.to_q(x)), attn.norm_k(attn.to_k(x)), attn.to_v(x)
        q, k, v = (each.unflatten(2, (attn.heads, -1)) for each in (q, k, v))
        cos, sin = (table[0, self.order].transpose(0, 1) for table in rotary_emb)
        q, k = (rotate(each.transpose(1, 2), cos, sin) for each in (q, k))
        out = sparsereel.attention(q, k, v.transpose(1, 2), **self.selection).transpose(1, 2).flatten(2)
        return attn.to_out[0](out)[:, self.order.argsort()]


def selection_of(case):
    return {name: case[name] for name in ("topk", "error") if name in case}


def open_pipeline(case, device, dtype):
    wan = case["folder"].startswith("wan")
    pipeline = (WanPipeline if wan else CogVideoXPipeline).from_pretrained(DATA / case["folder"], torch_dtype=dtype).to(device)
    pipeline.set_progress_bar_config(disable=True)
    order = sparsereel.token_order(*GRID, device=device)
    selection = {**selection_of(case), "dense_operations": 0}  # 0: short calls use our kernels, too
    if wan:
        for block in pipeline.transformer.blocks:
            block.attn1.set_processor(SparseWan(order, **selection))
    else:
        pipeline.transformer.set_attn_processor(SparseCogVideoX(order, **selection))
    return pipeline


def theirs(case, device="cpu", dtype=torch.float32, noise=None):
    pipeline = open_pipeline(case, device, dtype)
    arguments = {**COMMON, "guidance_scale": 5.0 if case["folder"].startswith("wan") else 6.0}
    generator = torch.Generator().manual_seed(arguments.pop("seed"))
    return pipeline(**arguments, output_type="latent", generator=generator, latents=noise).frames


def ours(program, case, device, dtype, folder):
    selection = [word for name, value in selection_of(case).items() for word in ("--" + name, str(value))]
    command = [program, "generate", "--quiet", "-m", DATA / case["folder"], "-p", PROMPT, "--negative-prompt", NEGATIVE, "--seed", COMMON["seed"], "--steps", COMMON["num_inference_steps"],
               "--size", f"{COMMON['width']}x{COMMON['height']}", "--frames", COMMON["num_frames"], "--max-sequence-length", COMMON["max_sequence_length"], "--attention", "sparse", *selection,
               "--dense-steps", 0, "--cache", 0, "--device", device, "--dtype", dtype, "--save-latents", folder / "latents.safetensors", "-o", folder / "frames.y4m"]
    subprocess.run([str(word) for word in command], check=True)
    return load_file(folder / "latents.safetensors")["latents"]


def decoded(pipeline, latents):
    """Decodes latents with diffusers. Returns the frames in 0..1."""
    latents = latents.to(pipeline.device, pipeline.vae.dtype)
    if isinstance(pipeline, WanPipeline):
        mean, std = (torch.tensor(pipeline.vae.config[key]).view(1, -1, 1, 1, 1).to(latents) for key in ("latents_mean", "latents_std"))
        latents = latents * std + mean
        video = pipeline.vae.decode(latents, return_dict=False)[0]
    else:
        video = pipeline.decode_latents(latents)
    return (video.float() / 2 + 0.5).clamp(0, 1)


def psnr(frames, others):
    return -10 * math.log10(max((frames - others).square().mean().item(), 1e-12))


def compare(program, device):
    dtype = "fp32" if device == "cpu" else "bf16"
    golden = load_file(DATA / "package_golden.safetensors")  # only the shapes of the latents are used
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            latents = ours(program, case, device, dtype, pathlib.Path(folder))
            expected = theirs(case, device, torch.float32 if dtype == "fp32" else torch.bfloat16)
            pipeline = open_pipeline(case, device, torch.float32)
            drawn = torch.float32 if dtype == "fp32" or case["folder"].startswith("wan") else torch.bfloat16
            noise = torch.randn(golden[f"{name}.latents"].shape, generator=torch.Generator().manual_seed(COMMON["seed"]), dtype=drawn).float()
            mine, reference, exact = (decoded(pipeline, each) for each in (latents, expected, theirs(case, noise=noise)))
        print(f"{name}, {device}, {dtype}: largest difference {(mine - reference).abs().max() * 255:.4f}/255, PSNR {psnr(mine, reference):.1f} dB; "
              f"to fp32 on a CPU: ours {psnr(mine, exact):.1f}, theirs {psnr(reference, exact):.1f} dB")


def main():
    if len(sys.argv) > 1:
        return compare(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "cpu")
    torch.set_num_threads(1)
    cases = {name: {**COMMON, "attention": "sparse", **case} for name, case in CASES.items()}
    (DATA / "package_cases.json").write_text(json.dumps(cases, indent=1) + "\n")
    with torch.no_grad():
        save_file({f"{name}.latents": theirs(case).float().contiguous() for name, case in CASES.items()}, DATA / "package_golden.safetensors")


if __name__ == "__main__":
    main()
