"""Tests MiniMax-H3 in a folder of ComfyUI's files. The frames must equal those of the diffusers folder with the same weights, with and without images."""
import shutil
import unittest
from pathlib import Path

import single_files
from published import DIFFUSION_MODEL, prefixed, renamed
from support import MODEL, PROMPT

TRANSFORMER = {r'^transformer_blocks\.': 'blocks.', r'^token_refiner\.refiner_blocks\.': 'token_refiner.blocks.', r'^proj_in\.': 'video_patch_proj.', r'^audio_proj_in\.': 'audio_patch_proj.',
               r'^context_embedder\.': 'condition_proj.', r'^time_embedder\.linear_1': 'time_embedder.proj_in', r'^time_embedder\.linear_2': 'time_embedder.proj_out',
               r'^norm_out\.norm': 'final_layer.norm', r'^norm_out\.linear': 'final_layer.adaln_proj.linear', r'^proj_out\.': 'final_layer.video_out.',
               r'^audio_proj_out\.': 'final_layer.audio_out.', r'attn\.norm_(q|k)': r'attn.\1_norm', r'attn\.to_out\.0': 'attn.out_proj', r'attn\.to_q': 'attn.qkv_proj',
               r'ff\.net\.0\.proj': 'mlp.fc1', r'ff\.net\.2': 'mlp.fc2'}
TEXT = {r'^model\.language_model\.': 'model.', r'^model\.visual\.': 'visual.'}
VAE = {r'^encoder\.down_blocks\.(\d+)\.downsamplers\.0': r'encoder.down.\1.downsample', r'^encoder\.down_blocks\.(\d+)\.resnets\.': r'encoder.down.\1.block.', 'conv_shortcut': 'nin_shortcut',
       r'^decoder\.proj_in': 'decoder.x_embedder', r'attn\.to_out\.0': 'attn.to_out', r'ff\.net\.0\.proj': 'ff.w1', r'ff\.net\.2': 'ff.w2'}


def together(tensors):
    """Returns one tensor that holds the rows of all tensors, one tensor below the other."""
    dtype, shape, _ = tensors[0]
    return dtype, [sum(each[1][0] for each in tensors), *shape[1:]], b''.join(each[2] for each in tensors)


def halves_swapped(tensor):
    dtype, shape, data = tensor
    return dtype, shape, data[len(data) // 2:] + data[:len(data) // 2]


def as_comfyui(tensors, names):
    """Returns the tensors as ComfyUI's files hold them: one matrix for the transformer's queries, keys and values, in this order, and feed-forward layers with their
    gates before their values."""
    result = {}
    for name, tensor in tensors.items():
        fuses = names is TRANSFORMER
        if fuses and ('.to_k.' in name or '.to_v.' in name):
            continue
        if fuses and '.to_q.' in name:
            tensor = together([tensors[name.replace('.to_q.', f'.to_{kind}.')] for kind in 'qkv'])
        elif 'ff.net.0.proj' in name:
            tensor = halves_swapped(tensor)
        result[renamed(name, names)] = tensor
    return result


class ComfyUI(single_files.Models):
    sources = {'h3': MODEL}
    small = ['-p', PROMPT, '--device', 'cpu', '--dtype', 'fp32', '--steps', 3, '--size', '64x64', '--frames', 22, '--attention', 'full']

    def folder_of(self, source, name='model'):
        return Path(shutil.copytree(source, self.folder / name))

    def setUp(self):
        super().setUp()
        self.write('comfy/diffusion_models/minimax_h3_fl2va_bf16.safetensors', prefixed(DIFFUSION_MODEL, as_comfyui(self.weights('h3', 'transformer'), TRANSFORMER)))
        self.text = {name: tensor for name, tensor in as_comfyui(self.weights('h3', 'text_encoder'), TEXT).items() if name != 'lm_head.weight'}
        self.write('comfy/text_encoders/qwen3vl.safetensors', self.text)
        self.write('comfy/vae/minimax_h3_video_vae_fp16.safetensors', as_comfyui(self.weights('h3', 'vae'), VAE))
        self.write('comfy/vae/minimax_h3_audio_vae_fp32.safetensors', self.weights('h3', 'audio_vae'))
        self.tokenizer('h3', 'comfy/text_encoders/tokenizer')
        (self.folder / 'first.ppm').write_bytes(b'P6 30 20 255\n' + b'\xfa\x80\x20' * 300 + b'\x20\x80\xfa' * 300)

    def test_makes_the_frames_of_the_folder(self):
        for images in ([], ['--image', 'first.ppm'], ['--last-image', 'first.ppm']):
            with self.subTest(images):
                self.assertEqual(self.video('-m', 'comfy', *images), self.video('-m', self.models['h3'], *images))

    def test_text_encoder_without_a_vision_model_is_enough_for_text(self):
        self.write('comfy/text_encoders/qwen3vl.safetensors', {name: tensor for name, tensor in self.text.items() if not name.startswith('visual.')})
        self.assertEqual(self.video('-m', 'comfy'), self.video('-m', self.models['h3']))
        result = self.run_program('generate', '-m', 'comfy', '--image', 'first.ppm', *self.small, '-o', 'clip.mp4')
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r'error: .*qwen3vl\.safetensors: has no tensors .* looks at the images.*\n.*leave the images out\n$')


if __name__ == '__main__':
    unittest.main()
