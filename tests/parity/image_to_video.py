"""Code that the scripts for image-to-video pipelines share: it makes pictures and a text encoder, and writes the files of the cases."""
import json

import torch
from make_clip import picture
from make_pipeline import randomize
from PIL import Image
from safetensors.torch import save_file


def save_text_encoder(folder, config, encoder, vocab_size, generator):
    """Saves a small text encoder with random weights. `config` and `encoder` are the classes of T5 or UMT5."""
    small = config(vocab_size=vocab_size, d_model=32, d_kv=16, d_ff=32, num_layers=1, num_heads=2, feed_forward_proj="gated-gelu", dropout_rate=0.0, pad_token_id=0, eos_token_id=1,
                   decoder_start_token_id=0, is_encoder_decoder=False, use_cache=False)
    randomize(encoder(small), generator).save_pretrained(folder / "text_encoder")


def latents_of(pipeline, pictures, arguments):
    """Runs the pipeline and returns its latents. `arguments` are the pipeline's arguments, with names of pictures in place of pictures, and the seed of the noise."""
    arguments = dict(arguments)
    seed = arguments.pop("seed")
    for name in ("image", "last_image"):
        if name in arguments:
            arguments[name] = Image.fromarray(pictures[arguments[name]].numpy())
    return pipeline(**arguments, output_type="latent", generator=torch.Generator().manual_seed(seed)).frames


def some_pixels(video):
    """Returns every fourth frame and every second pixel of a video, in 0..1."""
    return (video[0] / 2 + 0.5).clamp(0, 1).permute(1, 2, 3, 0)[::4, ::2, ::2]


def save_cases(file, common, cases):
    file.write_text(json.dumps({name: {**common, **options} for name, options in cases.items()}, indent=1) + "\n")


def write_pipeline_cases(folder, common, cases, sizes, run):
    """Makes pictures of the given sizes, {name: (height, width)}, and runs the cases. run(pictures, **options) returns the latents and frames of a case. Writes
    pipeline_cases.json and pipeline_golden.safetensors. Returns the pictures."""
    pictures = {name: picture(*size, seed) for seed, (name, size) in enumerate(sizes.items())}
    golden = {name: pixels / 255 for name, pixels in pictures.items()}
    for name, options in cases.items():
        golden[f"{name}.latents"], golden[f"{name}.frames"] = run(pictures, **options)
    save_cases(folder / "pipeline_cases.json", common, cases)
    save_file({key: value.float().contiguous() for key, value in golden.items()}, folder / "pipeline_golden.safetensors")
    for key, value in golden.items():
        print(key, tuple(value.shape), f"std {value.float().std():.3f} min {value.min():.3f} max {value.max():.3f}")
    return pictures
