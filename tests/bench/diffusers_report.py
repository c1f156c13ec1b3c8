#!/usr/bin/env python3
"""python tests/bench/diffusers_report.py REPORT.json -o RIVAL.json [--modes eager,compiled] [--device cuda] [--video FILE | --save DIR]
Measures diffusers on the configuration of a `bench pipeline --report`: same architecture, size, dtype and guidance, random weights; text encoder, denoising steps with
their split, VAE decode. `bench pipeline --against` and `bench plot` read RIVAL.json. With --video the script measures nothing and makes a whole video, so that the
caller can time the process. With --save it writes the models as a checkpoint folder (with the test tokenizer). Needs torch, diffusers, transformers."""
import argparse
import gc
import importlib.metadata
import json
import pathlib
import shutil
import statistics
import time

import diffusers
import torch
import transformers
from diffusers.pipelines.mochi.pipeline_mochi import linear_quadratic_schedule

GIB = 2**30
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
ATTENTION = ("scaled_dot_product", "_flash_attention", "_efficient_attention", "_cudnn_attention")
MATMUL = ("aten::mm", "aten::bmm", "aten::addmm", "aten::linear", "aten::baddbmm", "aten::matmul")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=pathlib.Path, help="the report that `sparsereel bench pipeline --report` wrote")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("diffusers-report.json"))
    parser.add_argument("--modes", default="eager,compiled")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--no-decode", action="store_true")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--video", type=pathlib.Path, help="write a video of as many steps as the report's, as RGB bytes, and stop")
    instead.add_argument("--save", type=pathlib.Path, help="write a checkpoint folder and stop")
    return parser.parse_args()


class Bench:
    def __init__(self, options):
        content = json.loads(options.report.read_text())
        self.options, self.settings, self.architecture = options, content["settings"], content["architecture"]
        self.dtype, self.device = DTYPES[self.settings["dtype"]], torch.device(options.device)
        self.rows = []

    def build(self, make):
        """Returns a model with random weights, made on the device."""
        torch.manual_seed(0)
        torch.set_default_dtype(self.dtype)
        with self.device:
            model = make()
        torch.set_default_dtype(torch.float32)
        return model.to(self.dtype).eval()

    def transformer(self):
        return self.build(lambda: diffusers.CogVideoXTransformer3DModel.from_config(self.architecture["transformer"]))

    def vae(self):
        return self.build(lambda: diffusers.AutoencoderKLCogVideoX.from_config(self.architecture["vae"]))

    def text_encoder(self):
        return self.build(lambda: transformers.T5EncoderModel(transformers.T5Config(**self.architecture["text_encoder"])))

    def scheduler(self):
        return getattr(diffusers, self.settings["scheduler"]).from_config(self.architecture["scheduler"])

    def synchronize(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def times(self, call, warmup=2):
        """Times call() after some calls that warm up. Returns the milliseconds of each repetition, and the peak memory in GiB."""
        for _ in range(warmup):
            call()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        taken = []
        for _ in range(self.options.repetitions):
            self.synchronize()
            start = time.perf_counter()
            call()
            self.synchronize()
            taken.append((time.perf_counter() - start) * 1e3)
        peak = torch.cuda.max_memory_allocated() / GIB if self.device.type == "cuda" else None
        return taken, peak

    def add(self, mode, stage, measured, **more):
        taken, peak = measured
        quartiles = statistics.quantiles(taken, n=4, method="inclusive") if len(taken) > 1 else taken * 3
        row = {"mode": mode, "stage": stage, "ms": quartiles[1], "ms_lower_quartile": quartiles[0], "ms_upper_quartile": quartiles[2],
               "ms_min": min(taken), "ms_max": max(taken), "sparsity": None, "psnr": None, "ssim": None, "peak_gib": peak, **more}
        self.rows.append(row)
        print(f"{mode}, {stage}: {quartiles[1]:.1f} ms", flush=True)

    def free(self):
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def measure_text(self):
        encoder = self.text_encoder()
        ids = torch.randint(encoder.config.vocab_size, (self.settings["batch"], self.settings["text_tokens"]), device=self.device)
        self.add("diffusers eager", "text", self.times(lambda: encoder(ids)))
        del encoder
        self.free()

    def latents(self):
        config, settings = self.architecture["transformer"], self.settings
        group = config.get("patch_size_t") or 1
        frames = (settings["frames"] - 1) // config.get("temporal_compression_ratio", 4) + 1
        frames = -(-frames // group) * group
        scale = 2 ** (len(self.architecture["vae"]["block_out_channels"]) - 1)
        shape = (1, frames, config.get("in_channels", 16), settings["height"] // scale, settings["width"] // scale)
        return torch.randn(shape, device=self.device, dtype=self.dtype)

    def step(self, transformer, latents):
        """Returns a call that does the work of one denoising step of diffusers' CogVideoXPipeline."""
        scheduler = self.scheduler()
        scheduler.set_timesteps(50, device=self.device)
        batch = self.settings["batch"]
        text = torch.randn(batch, self.settings["text_tokens"], transformer.config.text_embed_dim, device=self.device, dtype=self.dtype)
        rotary = None
        if transformer.config.use_rotary_positional_embeddings:
            pipeline = diffusers.CogVideoXPipeline(tokenizer=None, text_encoder=None, vae=self.small_vae(), transformer=transformer, scheduler=scheduler)
            rotary = pipeline._prepare_rotary_positional_embeddings(self.settings["height"], self.settings["width"], latents.size(1), self.device)
        timestep, previous = scheduler.timesteps[1], scheduler.timesteps[0]

        def call():
            noise = transformer(hidden_states=torch.cat([latents] * batch), encoder_hidden_states=text, timestep=timestep.expand(batch),
                                image_rotary_emb=rotary, return_dict=False)[0].float()
            if batch == 2:
                unconditional, conditional = noise.chunk(2)
                noise = unconditional + self.settings["cfg_scale"] * (conditional - unconditional)
            if isinstance(scheduler, diffusers.CogVideoXDPMScheduler):
                return scheduler.step(noise, None, timestep, previous, latents, return_dict=False)[0]
            return scheduler.step(noise, timestep, latents, return_dict=False)[0]
        return call

    def small_vae(self):
        """Returns a VAE without weights. The pipeline reads only its scale factors."""
        config = {**self.architecture["vae"], "layers_per_block": 1}
        with torch.device("meta"):
            return diffusers.AutoencoderKLCogVideoX.from_config(config)

    def split(self, call):
        """Profiles one call with torch's profiler. Returns the device milliseconds of matrix products, attention, and the rest."""
        activities = [torch.profiler.ProfilerActivity.CPU] + ([torch.profiler.ProfilerActivity.CUDA] if self.device.type == "cuda" else [])
        with torch.profiler.profile(activities=activities) as profile:
            call()
            self.synchronize()
        cuda = self.device.type == "cuda"
        sums = {"matmul_ms": 0.0, "attention_ms": 0.0}
        total = 0.0
        for event in profile.events():
            own = (event.self_device_time_total if cuda else event.self_cpu_time_total) / 1e3
            total += own if not cuda or event.device_type == torch.autograd.DeviceType.CUDA else 0
            taken = (event.device_time_total if cuda else event.cpu_time_total) / 1e3
            if event.device_type == torch.autograd.DeviceType.CUDA:
                continue
            names = []
            parent = event.cpu_parent
            while parent is not None:
                names.append(parent.name)
                parent = parent.cpu_parent
            section = self.section(event.name)
            if section and not any(self.section(name) for name in names):
                sums[section] += taken
        return {**sums, "rest_ms": max(total - sum(sums.values()), 0.0)}

    @staticmethod
    def section(name):
        if any(part in name for part in ATTENTION):
            return "attention_ms"
        return "matmul_ms" if name in MATMUL else None

    def measure_steps(self, mode):
        transformer = self.transformer()
        latents = self.latents()
        name = "diffusers eager"
        more = {}
        if mode == "compiled":
            name = "diffusers torch.compile"
            # Compile one block for all repeated blocks. diffusers advises this, because compiling all 40 blocks of a model takes minutes.
            transformer.compile_repeated_blocks() if transformer._repeated_blocks else transformer.compile()
        call = self.step(transformer, latents)
        start = time.perf_counter()
        call()
        self.synchronize()
        if mode == "compiled":
            more["note"] = f"{time.perf_counter() - start:.0f} s of compilation before the first step"
        measured = self.times(call, warmup=1)
        self.add(name, "step", measured, **self.split(call), **more)
        del call, transformer
        torch.compiler.reset()
        self.free()

    def measure_decode(self):
        vae = self.vae()
        latents = self.decode_latents()
        for name, tiled in (("decode", False), ("decode in tiles", True)):
            (vae.enable_tiling if tiled else vae.disable_tiling)()
            try:
                self.add("diffusers eager", name, self.times(lambda: vae.decode(latents).sample, warmup=1))
            except torch.OutOfMemoryError:
                print(f"{name}: out of memory", flush=True)
            self.free()

    def decode_latents(self):
        return self.latents().permute(0, 2, 1, 3, 4)

    def pipeline(self):
        return diffusers.CogVideoXPipeline(tokenizer=None, text_encoder=None, vae=self.vae(), transformer=self.transformer(), scheduler=self.scheduler())

    def video(self, path):
        """Makes a video with diffusers' own pipeline, which runs all steps and guidance passes and decodes the frames."""
        ids = torch.randint(self.architecture["text_encoder"]["vocab_size"], (2, self.settings["text_tokens"]), device=self.device)
        prompt, negative = self.text_encoder()(ids)[0].split(1)
        self.free()
        size = {"width": self.settings["width"], "height": self.settings["height"], "num_frames": self.settings["frames"]}
        pipeline = self.pipeline()
        pipeline.set_progress_bar_config(disable=True)
        frames = pipeline(prompt_embeds=prompt, negative_prompt_embeds=negative, guidance_scale=self.settings["cfg_scale"],
                          num_inference_steps=self.settings["video_steps"], output_type="np", **size, **self.masks(prompt)).frames[0]
        path.write_bytes((frames * 255).round().astype("uint8").tobytes())

    def masks(self, prompt):
        """Returns further arguments for the pipeline, in addition to the embedded prompts."""
        return {}

    tokenizer_folder = "pipeline/tokenizer"
    index = {"_class_name": "CogVideoXPipeline", "text_encoder": ["transformers", "T5EncoderModel"], "tokenizer": ["transformers", "T5Tokenizer"],
             "transformer": ["diffusers", "CogVideoXTransformer3DModel"], "vae": ["diffusers", "AutoencoderKLCogVideoX"]}

    def save(self, folder):
        folder.mkdir(parents=True)
        data = pathlib.Path(__file__).resolve().parents[1] / "parity" / "data"
        shutil.copytree(data / self.tokenizer_folder, folder / "tokenizer")
        for name in ("text_encoder", "transformer", "vae"):
            getattr(self, name)().save_pretrained(folder / name)
            self.free()
        self.scheduler().save_pretrained(folder / "scheduler")
        index = {**self.index, "scheduler": ["diffusers", self.settings["scheduler"]]}
        (folder / "model_index.json").write_text(json.dumps(index, indent=2))

    def write(self):
        versions = {name: importlib.metadata.version(name) for name in ("torch", "diffusers", "transformers")}
        machine = {"name": torch.cuda.get_device_name() if self.device.type == "cuda" else "cpu", **versions}
        self.options.output.write_text(json.dumps({"command": "diffusers_report", "machine": machine, "settings": self.settings, "rows": self.rows}, indent=2))


class WanBench(Bench):
    """Benchmarks Wan. diffusers runs its guidance passes one after the other."""
    tokenizer_folder = "wan/pipeline/tokenizer"
    index = {"_class_name": "WanPipeline", "text_encoder": ["transformers", "UMT5EncoderModel"], "tokenizer": ["transformers", "T5Tokenizer"],
             "transformer": ["diffusers", "WanTransformer3DModel"], "transformer_2": [None, None], "vae": ["diffusers", "AutoencoderKLWan"]}

    def transformer(self):
        return self.build(lambda: diffusers.WanTransformer3DModel.from_config(self.architecture["transformer"]))

    def vae(self):
        return self.build(lambda: diffusers.AutoencoderKLWan.from_config(self.architecture["vae"]))

    def text_encoder(self):
        return self.build(lambda: transformers.UMT5EncoderModel(transformers.UMT5Config(**self.architecture["text_encoder"])))

    def latents(self):
        vae, settings = self.architecture["vae"], self.settings
        scale = 2 ** (len(vae["dim_mult"]) - 1) * vae.get("patch_size", 1)
        shape = (1, vae["z_dim"], (settings["frames"] - 1) // 4 + 1, settings["height"] // scale, settings["width"] // scale)
        return torch.randn(shape, device=self.device)

    def step(self, transformer, latents):
        scheduler = self.scheduler()
        scheduler.set_timesteps(50, device=self.device)
        batch = self.settings["batch"]
        text = torch.randn(batch, self.settings["text_tokens"], transformer.config.text_dim, device=self.device, dtype=self.dtype)
        timestep = scheduler.timesteps[0]

        def call():
            passes = [transformer(hidden_states=latents.to(self.dtype), encoder_hidden_states=text[i : i + 1], timestep=timestep.expand(1), return_dict=False)[0]
                      for i in range(batch)]
            noise = passes[0] if batch == 1 else passes[0] + self.settings["cfg_scale"] * (passes[1] - passes[0])
            scheduler._step_index, scheduler.model_outputs, scheduler.lower_order_nums, scheduler.last_sample = None, [None] * 2, 0, None  # starts the sampler anew
            return scheduler.step(noise, timestep, latents, return_dict=False)[0]
        return call

    def decode_latents(self):
        return self.latents().to(self.dtype)

    def pipeline(self):
        boundary = self.architecture.get("boundary_ratio")
        return diffusers.WanPipeline(tokenizer=None, text_encoder=None, vae=self.vae(), transformer=self.transformer(), scheduler=self.scheduler(),
                                     transformer_2=None if boundary is None else self.transformer(), boundary_ratio=boundary,
                                     expand_timesteps=self.architecture.get("expand_timesteps", False))

    def save(self, folder):
        """Saves the models. The folder of the second expert is a link to the folder of the first one, to save disk space."""
        boundary = self.architecture.get("boundary_ratio")
        self.index = {**self.index, "boundary_ratio": boundary, "expand_timesteps": self.architecture.get("expand_timesteps", False)}
        if boundary is not None:
            self.index["transformer_2"] = self.index["transformer"]
        super().save(folder)
        if boundary is not None:
            (folder / "transformer_2").symlink_to("transformer")


class MochiBench(Bench):
    """Benchmarks Mochi. diffusers runs its guidance passes as one batch. Texts have full length here, so the mask over padding hides nothing."""
    tokenizer_folder = "mochi/pipeline/tokenizer"
    index = {"_class_name": "MochiPipeline", "force_zeros_for_empty_prompt": True, "text_encoder": ["transformers", "T5EncoderModel"],
             "tokenizer": ["transformers", "T5TokenizerFast"], "transformer": ["diffusers", "MochiTransformer3DModel"], "vae": ["diffusers", "AutoencoderKLMochi"]}

    def transformer(self):
        return self.build(lambda: diffusers.MochiTransformer3DModel.from_config(self.architecture["transformer"]))

    def vae(self):
        return self.build(lambda: diffusers.AutoencoderKLMochi.from_config(self.architecture["vae"]))

    def latents(self):
        settings = self.settings
        shape = (1, self.architecture["vae"]["latent_channels"], (settings["frames"] - 1) // 6 + 1, settings["height"] // 8, settings["width"] // 8)
        return torch.randn(shape, device=self.device, dtype=self.dtype)

    def step(self, transformer, latents):
        scheduler = self.scheduler()
        scheduler.set_timesteps(sigmas=linear_quadratic_schedule(64, 0.025), device=self.device)
        batch = self.settings["batch"]
        text = torch.randn(batch, self.settings["text_tokens"], transformer.config.text_embed_dim, device=self.device, dtype=self.dtype)
        mask = torch.ones(text.shape[:2], dtype=torch.bool, device=self.device)
        timestep = scheduler.timesteps[1]

        def call():
            noise = transformer(hidden_states=torch.cat([latents] * batch), encoder_hidden_states=text, timestep=timestep.expand(batch).to(self.dtype),
                                encoder_attention_mask=mask, return_dict=False)[0].float()
            if batch == 2:
                unconditional, conditional = noise.chunk(2)
                noise = unconditional + self.settings["cfg_scale"] * (conditional - unconditional)
            scheduler._step_index = 1
            return scheduler.step(noise, timestep, latents.float(), return_dict=False)[0].to(self.dtype)
        return call

    def decode_latents(self):
        return self.latents()

    def pipeline(self):
        return diffusers.MochiPipeline(tokenizer=None, text_encoder=None, vae=self.vae(), transformer=self.transformer(), scheduler=self.scheduler())

    def masks(self, prompt):
        mask = torch.ones(prompt.shape[:2], dtype=torch.bool, device=self.device)
        return {"prompt_attention_mask": mask, "negative_prompt_attention_mask": mask}


@torch.inference_mode()
def main():
    options = parse()
    architecture = json.loads(options.report.read_text())["architecture"]
    vae = architecture["vae"]
    bench = (WanBench if "z_dim" in vae else MochiBench if "decoder_block_out_channels" in vae else Bench)(options)
    if options.save:
        return bench.save(options.save)
    if options.video:
        return bench.video(options.video)
    bench.measure_text()
    for mode in bench.options.modes.split(","):
        bench.measure_steps(mode)
    if not bench.options.no_decode:
        bench.measure_decode()
    bench.write()


if __name__ == "__main__":
    main()
