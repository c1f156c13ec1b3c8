#!/usr/bin/env python3
"""python tests/parity/make_lora.py: writes LoRA files of a few KB for data/pipeline, data/mochi/pipeline and data/wan/pipeline* into data/lora, data/mochi/lora
and data/wan/lora. Beside these folders it writes lora_cases.json and lora_golden.safetensors: diffusers' latents after load_lora_weights() and fuse_lora() have
merged the files. Needs torch, diffusers, peft, transformers, safetensors and what make_pipeline.py needs."""
import json
import shutil

import torch
from diffusers import CogVideoXPipeline, MochiPipeline, WanPipeline
from safetensors.torch import save_file

from make_pipeline import DATA, PROMPT

WIDTH, FEED_FORWARD, TEXT, BLOCKS = 32, 24, 32, 2  # sizes of the small Wan transformer
COMMON = {"prompt": PROMPT, "seed": 7, "num_inference_steps": 2, "max_sequence_length": 16, "width": 64, "height": 64, "num_frames": 5}
MOCHI_COMMON = {**COMMON, "num_frames": 7}
# {case: (checkpoint, [(LoRA file, scale, transformer)])}. diffusers cannot load the LoRAs of "text_" cases, so peft merges them.
COGVIDEOX = {
    "lora_metadata": ("pipeline", [("metadata", 1.0, "")]),
    "lora_two": ("pipeline", [("metadata", 0.8, ""), ("plain", -0.5, "")]),
    "lora_kohya": ("pipeline", [("kohya", 1.0, "")]),
    "lora_text": ("pipeline", [("text", 1.5, "")]),
}
MOCHI = {
    "lora_metadata": ("pipeline", [("metadata", 1.0, "")]),
    "lora_two": ("pipeline", [("metadata", 0.8, ""), ("plain", -0.5, "")]),
}
WAN = {
    "lora_diffusers": ("pipeline", [("diffusers", 1.0, "")]),
    "lora_original": ("pipeline", [("original", 0.7, "")]),
    "lora_original_peft": ("pipeline", [("original_peft", 1.0, "")]),
    "lora_kohya": ("pipeline", [("kohya", -1.2, "")]),
    "lora_two": ("pipeline", [("kohya", 0.6, ""), ("original", -0.4, "")]),
    "lora_two_experts": ("pipeline_two_experts", [("kohya", 0.8, "high"), ("original_peft", -0.6, "low")]),
}


class Layers:
    """Makes random matrices. The same seed and calls give the same matrices."""
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape, scale=1.0):
        return (torch.randn(shape, generator=self.generator) * scale).half()

    def pair(self, out, width, rank):
        return self.normal(rank, width, scale=0.3), self.normal(out, rank, scale=0.3)


def cogvideox_files(folder):
    layers = Layers(1)
    width = 32
    names = [f"transformer_blocks.{i}.{layer}" for i in range(2) for layer in ("attn1.to_q", "attn1.to_v", "attn1.to_out.0", "ff.net.2")]
    inputs = {name: 4 * width if name.endswith("ff.net.2") else width for name in names}
    metadata = {"transformer.r": 4, "transformer.lora_alpha": 6, "transformer.alpha_pattern": {"attn1.to_v": 3}, "transformer.target_modules": ["to_q", "to_v", "to_out.0", "ff.net.2"]}
    tensors, kohya = {}, {}
    for name in names:
        down, up = layers.pair(width, inputs[name], 4)
        tensors |= {f"transformer.{name}.lora_A.weight": down, f"transformer.{name}.lora_B.weight": up}
        flat, alpha = "lora_unet__" + name.replace(".", "_"), 3 if name.endswith("to_v") else 6
        kohya |= {f"{flat}.lora_down.weight": down, f"{flat}.lora_up.weight": up, f"{flat}.alpha": torch.tensor(float(alpha))}
    save_file(tensors, folder / "metadata.safetensors", metadata={"lora_adapter_metadata": json.dumps(metadata)})
    save_file(kohya, folder / "kohya.safetensors")
    plain = {}
    for i in range(2):
        for name, rank in ((f"transformer_blocks.{i}.attn1.to_k", 2), (f"transformer_blocks.{i}.attn1.to_q", 3)):
            down, up = layers.pair(width, width, rank)
            plain |= {f"transformer.{name}.lora_A.weight": down, f"transformer.{name}.lora_B.weight": up}
    save_file(plain, folder / "plain.safetensors")
    text = {}
    for name in ("encoder.block.0.layer.0.SelfAttention.q", "encoder.block.1.layer.0.SelfAttention.v"):
        down, up = layers.pair(32, 32, 2)
        text |= {f"text_encoder.{name}.lora_A.weight": down, f"text_encoder.{name}.lora_B.weight": up}
    save_file(text, folder / "text.safetensors", metadata={"lora_adapter_metadata": json.dumps({"text_encoder.lora_alpha": 5})})


def mochi_files(folder):
    layers = Layers(3)
    width, text, inner = 32, 16, 85  # widths of the video tokens, of the text tokens, and of the video's feed-forward
    names = {"transformer_blocks.0.attn1.to_q": (width, width), "transformer_blocks.1.attn1.to_v": (width, width), "transformer_blocks.0.attn1.to_out.0": (width, width),
             "transformer_blocks.0.attn1.add_k_proj": (width, text), "transformer_blocks.1.attn1.add_v_proj": (width, text), "transformer_blocks.0.attn1.to_add_out": (text, width),
             "transformer_blocks.0.ff.net.0.proj": (2 * inner, width), "transformer_blocks.1.ff.net.2": (width, inner)}
    metadata = {"transformer.r": 4, "transformer.lora_alpha": 6, "transformer.target_modules": sorted({name.split(".", 2)[2] for name in names})}
    tensors = {}
    for name, (out, into) in names.items():
        down, up = layers.pair(out, into, 4)
        tensors |= {f"transformer.{name}.lora_A.weight": down, f"transformer.{name}.lora_B.weight": up}
    save_file(tensors, folder / "metadata.safetensors", metadata={"lora_adapter_metadata": json.dumps(metadata)})
    plain = {}
    for name, (out, into) in {"transformer_blocks.1.attn1.to_k": (width, width), "transformer_blocks.0.ff_context.net.2": (text, 8 * text // 3)}.items():
        down, up = layers.pair(out, into, 2)
        plain |= {f"transformer.{name}.lora_A.weight": down, f"transformer.{name}.lora_B.weight": up}
    save_file(plain, folder / "plain.safetensors")


def wan_files(folder):
    layers = Layers(2)
    attention = {f"{kind}.{layer}": (WIDTH, WIDTH) for kind in ("self_attn", "cross_attn") for layer in "qkvo"}
    block = attention | {"ffn.0": (FEED_FORWARD, WIDTH), "ffn.2": (WIDTH, FEED_FORWARD)}
    kohya, original, original_peft, plain = {}, {}, {}, {}
    for i in range(BLOCKS):
        for name, (out, width) in block.items():
            down, up = layers.pair(out, width, 2)
            flat = f"lora_unet_blocks_{i}_{name.replace('.', '_')}"
            # diffusers multiplies these fp16 matrices by alpha / rank, which rounds unless it is a power of two.
            kohya |= {f"{flat}.lora_down.weight": down, f"{flat}.lora_up.weight": up, f"{flat}.alpha": torch.tensor(1.0)}
        for name in ("self_attn.q", "cross_attn.k", "ffn.0", "ffn.2"):
            out, width = block[name]
            down, up = layers.pair(out, width, 4)
            key = f"diffusion_model.blocks.{i}.{name}"
            original |= {f"{key}.lora_down.weight": down, f"{key}.lora_up.weight": up, f"{key}.alpha": torch.tensor(2.0), f"{key}.diff_b": layers.normal(out, scale=0.1)}
        # diffusers does not change the norms. Published files hold zeros for them.
        original[f"diffusion_model.blocks.{i}.norm3.diff"] = torch.zeros(WIDTH, dtype=torch.half)
        original[f"diffusion_model.blocks.{i}.self_attn.norm_q.diff"] = torch.zeros(WIDTH, dtype=torch.half)
        for name in ("self_attn.v", "cross_attn.o"):
            down, up = layers.pair(WIDTH, WIDTH, 2)
            original_peft |= {f"diffusion_model.blocks.{i}.{name}.lora_A.weight": down, f"diffusion_model.blocks.{i}.{name}.lora_B.weight": up}
        for name in ("attn1.to_k", "attn2.to_v", "ffn.net.0.proj"):
            down, up = layers.pair(FEED_FORWARD if "ffn" in name else WIDTH, WIDTH, 3)
            plain |= {f"transformer.blocks.{i}.{name}.lora_A.weight": down, f"transformer.blocks.{i}.{name}.lora_B.weight": up}
    for name, (out, width) in {"text_embedding.0": (WIDTH, TEXT), "text_embedding.2": (WIDTH, WIDTH), "time_embedding.0": (WIDTH, 16), "time_embedding.2": (WIDTH, WIDTH),
                               "time_projection.1": (6 * WIDTH, WIDTH)}.items():
        down, up = layers.pair(out, width, 2)
        original |= {f"diffusion_model.{name}.lora_down.weight": down, f"diffusion_model.{name}.lora_up.weight": up, f"diffusion_model.{name}.diff_b": layers.normal(out, scale=0.1)}
    original |= {"diffusion_model.head.head.diff": layers.normal(16, WIDTH, scale=0.1), "diffusion_model.head.head.diff_b": layers.normal(16, scale=0.1)}
    for name, tensors in {"kohya": kohya, "original": original, "original_peft": original_peft, "diffusers": plain}.items():
        save_file(tensors, folder / f"{name}.safetensors")


def merge_text(pipeline, tensors, factor):
    import peft
    names = sorted({key.removeprefix("text_encoder.").rsplit(".lora_", 1)[0] for key in tensors})
    rank = tensors[f"text_encoder.{names[0]}.lora_A.weight"].shape[0]
    model = peft.get_peft_model(pipeline.text_encoder, peft.LoraConfig(r=rank, lora_alpha=factor * rank, target_modules=names))
    for name in names:
        for matrix in "AB":
            getattr(model.get_submodule(f"base_model.model.{name}"), f"lora_{matrix}")["default"].weight.data = tensors[f"text_encoder.{name}.lora_{matrix}.weight"].float()
    pipeline.text_encoder = model.merge_and_unload()


def run(make, data, folder, loras, common):
    pipeline = make.from_pretrained(data / folder, torch_dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    if loras[0][0] == "text":
        from safetensors.torch import load_file
        merge_text(pipeline, load_file(data / "lora" / "text.safetensors"), 5 / 2 * loras[0][1])
        loras = []
    scales = {"transformer": {}, "transformer_2": {}}
    for name, scale, expert in loras:
        # CogVideoX's loader cannot read kohya's names, so it gets the same matrices under diffusers' names.
        stand_in = "metadata" if make is CogVideoXPipeline and name == "kohya" else name
        second = {"load_into_transformer_2": True} if expert == "low" else {}
        pipeline.load_lora_weights(str(data / "lora"), weight_name=f"{stand_in}.safetensors", adapter_name=name, **second)
        scales["transformer_2" if second else "transformer"][name] = scale
    for component, adapters in scales.items():
        if adapters:
            transformer = getattr(pipeline, component)
            transformer.set_adapters(list(adapters), list(adapters.values()))
            transformer.fuse_lora()
    arguments = dict(common)
    seed = arguments.pop("seed")
    return pipeline(**arguments, guidance_scale=1.0, output_type="latent", generator=torch.Generator().manual_seed(seed)).frames


def make(pipeline, data, write_files, cases, common=COMMON):
    folder = data / "lora"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    write_files(folder)
    golden, listing = {}, {}
    for name, (checkpoint, loras) in cases.items():
        golden[f"{name}.latents"] = run(pipeline, data, checkpoint, loras, common)
        text = ",".join(f"lora/{file}.safetensors" + (f"@{expert}" if expert else "") + f":{scale}" for file, scale, expert in loras)
        listing[name] = {**common, "guidance_scale": 1.0, "folder": checkpoint, "lora": text}
        print(name, f"std {golden[f'{name}.latents'].std():.3f}")
    (data / "lora_cases.json").write_text(json.dumps(listing, indent=1) + "\n")
    save_file({key: value.float().contiguous() for key, value in golden.items()}, data / "lora_golden.safetensors")


def main():
    torch.set_num_threads(1)
    make(CogVideoXPipeline, DATA, cogvideox_files, COGVIDEOX)
    make(MochiPipeline, DATA / "mochi", mochi_files, MOCHI, MOCHI_COMMON)
    make(WanPipeline, DATA / "wan", wan_files, WAN)


if __name__ == "__main__":
    main()
