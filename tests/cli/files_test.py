"""Models whose parts are single files, as other programs have them: the frames are those of the diffusers folder of the same weights."""
import json
import re
import shutil
import unittest
from pathlib import Path

from support import ROOT, CommandLineTest, read_safetensors, read_weights, write_safetensors
from wan_test import authors_name

DATA = ROOT / 'tests' / 'parity' / 'data'
WAN, WAN_5B, COGVIDEOX = DATA / 'wan' / 'pipeline', DATA / 'wan' / 'pipeline_5b', DATA / 'pipeline'
# diffusers' names of layers of Wan's VAEs and their authors', as convert_wan_to_diffusers.py has them.
VAE_LAYERS = {r'^quant_conv': 'conv1', r'^post_quant_conv': 'conv2', r'coder\.conv_in': 'coder.conv1', r'coder\.norm_out': 'coder.head.0', r'coder\.conv_out': 'coder.head.2',
              r'mid_block\.resnets\.0': 'middle.0', r'mid_block\.attentions\.0': 'middle.1', r'mid_block\.resnets\.1': 'middle.2', r'\.norm1\.': '.residual.0.',
              r'(\.\d+|middle\.\d)\.conv1\.': r'\1.residual.2.', r'\.norm2\.': '.residual.3.', r'(\.\d+|middle\.\d)\.conv2\.': r'\1.residual.6.', r'\.conv_shortcut': '.shortcut'}


def authors_vae_name(name):
    for pattern, theirs in VAE_LAYERS.items():
        name = re.sub(pattern, theirs, name)
    name = re.sub(r'up_blocks\.(\d)\.resnets\.(\d)', lambda found: f'upsamples.{4 * int(found[1]) + int(found[2])}', name)
    name = re.sub(r'up_blocks\.(\d)\.upsamplers\.0', lambda found: f'upsamples.{4 * int(found[1]) + 3}', name)
    return re.sub(r'down_blocks\.(\d+)', r'downsamples.\1', name)


def authors_vae_name_5b(name):
    name = re.sub(r'down_blocks\.(\d)\.resnets\.(\d)', r'downsamples.\1.downsamples.\2', re.sub(r'up_blocks\.(\d)\.resnets\.(\d)', r'upsamples.\1.upsamples.\2', name))
    name = re.sub(r'down_blocks\.(\d)\.downsampler', r'downsamples.\1.downsamples.2', re.sub(r'up_blocks\.(\d)\.upsampler', r'upsamples.\1.upsamples.3', name))
    return authors_vae_name(name)


class SingleFiles(CommandLineTest):
    def folder_of(self, source, name='model'):
        """A copy of a Wan whose VAE has as many layers a level as published ones: their authors count them, so that names depend on it."""
        folder = Path(shutil.copytree(source, self.folder / name))
        if source == COGVIDEOX:
            return folder
        config = json.loads((folder / 'vae' / 'config.json').read_text()) | {'num_res_blocks': 2}
        (folder / 'vae' / 'config.json').write_text(json.dumps(config))
        file = folder / 'vae' / 'diffusion_pytorch_model.safetensors'
        tensors = read_weights(folder / 'vae')
        tensors |= {name.replace('.resnets.1.', '.resnets.2.'): tensor for name, tensor in tensors.items() if name.startswith('decoder.up_blocks')}
        write_safetensors(file, tensors)
        return folder

    @staticmethod
    def other(tensors):
        """The same with the last bias of a decoder changed."""
        name = 'decoder.conv_out.bias' if 'decoder.conv_out.bias' in tensors else 'decoder.conv_out.conv.bias'
        dtype, shape, data = tensors[name]
        return tensors | {name: (dtype, shape, b'\0\x30' * (len(data) // 2))}

    def write(self, name, tensors, spell=str):
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        return write_safetensors(self.folder / name, {spell(each): tensor for each, tensor in tensors.items()})

    def video(self, *arguments):
        """Frames of 64x64."""
        size = [] if COGVIDEOX in arguments else ['--size', '64x64', '--frames', 9]
        result = self.run_program('generate', '-p', 'a red circle', '--device', 'cpu', '--steps', 2, '--quiet', *size, *arguments, '-o', 'a.safetensors')
        self.succeed(result)
        return read_safetensors(self.folder / 'a.safetensors')['frames']

    def refused(self, words, *arguments):
        self.fail_with(self.run_program('generate', '-p', 'a red circle', '--device', 'cpu', *arguments, '-o', 'clip.mp4'), 2, *words)
        self.assertFalse((self.folder / 'clip.mp4').exists())


class Decoders(SingleFiles):
    def test_makes_the_same_frames_as_the_folders(self):
        for source, spell in ((WAN, authors_vae_name), (WAN_5B, authors_vae_name_5b), (COGVIDEOX, str)):
            model = source if source == COGVIDEOX else self.folder_of(source, source.name)
            usual, tensors = self.video('-m', model), read_weights(model / 'vae')
            without_encoder = {name: tensor for name, tensor in tensors.items() if not name.startswith(('encoder', 'quant_conv'))}
            for name, part, spelled in (('bare', tensors, spell), ('prefixed', tensors, lambda each: 'vae.' + spell(each)), ('diffusers', tensors, str),
                                        ('decoder alone', without_encoder, spell)):
                with self.subTest(source=source.name, names=name):
                    file = self.write('vae.safetensors', part, spelled)
                    self.assertEqual(self.video('-m', model, '--vae', file), usual)
            self.assertNotEqual(self.video('-m', model, '--vae', self.write('vae.safetensors', self.other(tensors), spell)), usual)

    def test_of_another_model_is_refused_by_its_sizes(self):
        small, large = self.folder_of(WAN, 'small'), self.folder_of(WAN_5B, 'large')
        file = self.write('Wan2.1_VAE.safetensors', read_weights(small / 'vae'), authors_vae_name)
        self.refused(['Wan2.1_VAE.safetensors: does not fit', 'large/vae/config.json: decoder_base_dim x dim_mult is 8, not 16, out_channels is 3, not 12'], '-m', large, '--vae', file)
        pruned = {name: (dtype, [shape[0] // 2, *shape[1:]], data[:len(data) // 2]) if name == 'decoder.conv_in.weight' else (dtype, shape, data)
                  for name, (dtype, shape, data) in read_weights(small / 'vae').items()}
        self.refused(['decoder_base_dim x dim_mult is 4, not 8'], '-m', small, '--vae', self.write('lightvae.safetensors', pruned, authors_vae_name))
        self.refused(['holds no AutoencoderKLCogVideoX'], '-m', COGVIDEOX, '--vae', file)
        self.refused(['holds no AutoencoderKLWan'], '-m', WAN, '--vae', COGVIDEOX / 'vae' / 'diffusion_pytorch_model.safetensors')
        missing = read_weights(large / 'vae')
        for name in ('decoder.up_blocks.0.upsampler.time_conv.weight', 'decoder.up_blocks.2.resnets.2.conv2.bias'):
            del missing[name]
        self.refused(['2 missing', '"decoder.upsamples.0.upsamples.3.time_conv.weight"', '"decoder.upsamples.2.upsamples.2.residual.6.bias"'], '-m', large, '--vae',
                     self.write('damaged.safetensors', missing, authors_vae_name_5b))

    def test_decode_takes_it(self):
        model = self.folder_of(WAN)
        usual = self.video('-m', model, '--save-latents', 'latents.safetensors')
        file = self.write('vae.safetensors', read_weights(model / 'vae'), authors_vae_name)
        self.succeed(self.run_program('decode', 'latents.safetensors', '-m', model, '--vae', file, '--device', 'cpu', '-o', 'b.safetensors'))
        self.assertEqual(read_safetensors(self.folder / 'b.safetensors')['frames'], usual)


class OtherTransformers(SingleFiles):
    def test_of_another_task_are_refused_by_its_name(self):
        wan, cogvideox = read_weights(WAN / 'transformer'), read_weights(COGVIDEOX / 'transformer')

        def with_channels(tensors, name, channels, axes=None):
            dtype, (rows, _, *rest), _ = tensors[name]
            shape = [rows, channels, *(rest if axes is None else [])]
            size = 1
            for each in shape:
                size *= each
            return tensors | {name: (dtype, shape, bytes(2 * size))}
        small = ('F16', [1], bytes(2))
        for model, tensors, spell, words in (
                (WAN, wan | {'img_emb.proj.0.bias': small}, authors_name, 'image to video'), (WAN, with_channels(wan, 'patch_embedding.weight', 36), authors_name, '36 input channels'),
                (WAN, wan | {'condition_embedder.image_embedder.norm1.bias': small}, str, 'image to video'), (WAN, wan | {'vace_blocks.0.after_proj.bias': small}, authors_name, 'VACE'),
                (COGVIDEOX, with_channels(cogvideox, 'patch_embed.proj.weight', 32), str, 'image or pose to video'), (COGVIDEOX, with_channels(cogvideox, 'patch_embed.proj.weight', 33), str, 'Fun'),
                (COGVIDEOX, with_channels(cogvideox, 'patch_embed.proj.weight', 256, 2), str, '1.5 image to video')):
            with self.subTest(words):
                self.refused(['one.safetensors: is a transformer of ' + words if words[0] != '3' else words, 'text to video'], '-m', model, '--transformer',
                             self.write('one.safetensors', tensors, spell))

    def test_of_other_sizes_are_refused(self):
        tensors = read_weights(COGVIDEOX / 'transformer')
        deep = tensors | {name.replace('.1.', '.2.', 1): tensor for name, tensor in tensors.items() if name.startswith('transformer_blocks.1.')}
        self.refused(['one.safetensors: does not fit', 'num_layers is 3, not 2'], '-m', COGVIDEOX, '--transformer', self.write('one.safetensors', deep))
        self.assertEqual(self.video('-m', COGVIDEOX, '--transformer', self.write('one.safetensors', tensors)), self.video('-m', COGVIDEOX))


if __name__ == '__main__':
    unittest.main()
