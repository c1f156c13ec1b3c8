"""Tests single files that the program refuses: models in which a component is missing, VAEs and transformers that do not fit each other, and files of other models."""
import unittest

from published import authors_name, authors_vae_name, authors_vae_name_5b
from single_files import COGVIDEOX, I2V, WAN, WAN_5B, WAN_I2V, Models, SingleFiles
from support import read_safetensors, read_weights


class LargerLatents(Models):
    """Tests the small model like Wan 2.2 5B. Its transformer has the same layers and width as the tests' model like Wan 2.1."""
    sources = {'large': WAN_5B}

    def test_reads_a_comfyui_folder(self):
        folder = self.comfy('large', 'comfy')
        self.assertEqual(self.video('-m', folder), self.video('-m', self.models['large']))

    def test_refuses_the_decoder_of_the_older_model(self):
        folder = self.comfy('large', 'comfy')
        (folder / 'vae' / 'wan_vae.safetensors').unlink()
        older = read_weights(self.folder_of(WAN) / 'vae')
        self.write('comfy/vae/older.safetensors', older, authors_vae_name)
        self.refused(["is the transformer of large, but the model's vae is missing; of another model: ", 'older.safetensors (decoder_base_dim x dim_mult 8'], '-m', folder)
        self.refused(['older.safetensors: does not fit', 'decoder_base_dim x dim_mult is 8, not 16'], '-m', folder, '--vae', folder / 'vae' / 'older.safetensors')


class Refusals(Models):
    def test_refuses_a_transformer_without_the_other_parts(self):
        file = self.write('one.safetensors', self.weights('one', 'transformer'), authors_name)
        words = ["one.safetensors: is the transformer of one, but the model's text_encoder and vae are missing", 'give files for text_encoder and vae']
        self.refused(words, '-m', file)
        self.refused(words, '--transformer', file)

    def test_refuses_one_expert_without_the_other(self):
        folder = self.comfy('two', 'comfy', {'transformer': 'wan_high_noise'})
        self.refused(['wan_high_noise.safetensors: is the transformer for high noise, but the other transformer is missing', 'name it by transformer_2'], '-m', folder)
        (folder / 'diffusion_models' / 'wan_high_noise.safetensors').rename(folder / 'diffusion_models' / 'wan-low.safetensors')
        self.refused(['wan-low.safetensors: is the transformer for low noise', 'name it by transformer'], '-m', folder)

    def test_refuses_several_files_for_one_part(self):
        folder = self.comfy('one', 'comfy', {'transformer': 'a'})
        other = self.write('comfy/diffusion_models/b.safetensors', self.weights('one', 'transformer'))
        several = self.run_program('generate', '-p', 'a red circle', '--device', 'cpu', '-m', folder, '-o', 'clip.mp4')
        self.assertEqual(several.returncode, 2)
        self.assertRegex(several.stderr, r'(?s)comfy: could be run in 2 ways\n  remedy: run one of these commands\n.*/a\.safetensors.*/b\.safetensors')
        self.assertEqual(self.video('-m', folder, '--transformer', other), self.video('-m', self.models['one']))
        other.unlink()
        vae = self.write('comfy/vae/second.safetensors', self.weights('one', 'vae'))
        self.assertEqual(self.video('-m', folder), self.video('-m', self.models['one']))
        self.assertEqual(self.video('-m', folder, '--vae', vae), self.video('-m', self.models['one']))

    def test_refuses_equal_or_swapped_experts(self):
        folder = self.comfy('two', 'comfy', {'transformer': 'a_high', 'transformer_2': 'a_low'})
        high, low = (folder / 'diffusion_models' / f'a_{name}.safetensors' for name in ('high', 'low'))
        self.refused(['by its name, this file or', '--transformer'], '-m', folder, '--transformer', low, '--transformer-2', high)
        low.unlink()
        low.symlink_to(high)
        self.refused(['a_low.safetensors: is also the file of transformer'], '-m', folder)

    def test_refuses_a_folder_without_a_transformer(self):
        folder = self.comfy('one', 'comfy')
        (folder / 'diffusion_models' / 'one.safetensors').unlink()
        self.refused(['holds no transformer of a known model'], '-m', folder)
        edits = self.weights('one', 'transformer') | {'vace_patch_embedding.bias': ('F16', [1], bytes(2))}
        self.write('comfy/diffusion_models/vace.safetensors', edits, authors_name)
        self.refused(['vace.safetensors: is a transformer of VACE'], '-m', folder)
        (folder / 'diffusion_models' / 'vace.safetensors').write_bytes(b'x' * 100)
        self.refused(['holds no transformer of a known model', 'not read: ', 'vace.safetensors'], '-m', folder)

    def test_refuses_an_empty_folder(self):
        (self.folder / 'empty').mkdir()
        self.refused(['model_index.json: no such file'], '-m', 'empty')


class Decoders(SingleFiles):
    def test_vae_file_makes_the_same_frames_as_the_folder(self):
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

    def test_refuses_the_vae_of_another_model_by_its_sizes(self):
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

    def test_decode_accepts_a_vae_file(self):
        model = self.folder_of(WAN)
        usual = self.video('-m', model, '--save-latents', 'latents.safetensors')
        file = self.write('vae.safetensors', read_weights(model / 'vae'), authors_vae_name)
        self.succeed(self.run_program('decode', 'latents.safetensors', '-m', model, '--vae', file, '--device', 'cpu', '-o', 'b.safetensors'))
        self.assertEqual(read_safetensors(self.folder / 'b.safetensors')['frames'], usual)


class OtherTransformers(SingleFiles):
    def test_are_refused_with_the_name_of_their_task(self):
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
                (WAN, wan | {'vace_blocks.0.after_proj.bias': small}, authors_name, 'VACE'), (WAN, wan | {'face_adapter.fuser_blocks.0.q.bias': small}, authors_name, 'Animate'),
                (COGVIDEOX, with_channels(cogvideox, 'patch_embed.proj.weight', 32), str, 'pose to video'), (COGVIDEOX, with_channels(cogvideox, 'patch_embed.proj.weight', 33), str, 'Fun')):
            with self.subTest(words):
                self.refused(['one.safetensors: is a transformer of ' + words if words[0] != '3' else words, 'text to video'], '-m', model, '--transformer',
                             self.write('one.safetensors', tensors, spell))

    def test_are_refused_if_their_sizes_differ(self):
        tensors = read_weights(COGVIDEOX / 'transformer')
        deep = tensors | {name.replace('.1.', '.2.', 1): tensor for name, tensor in tensors.items() if name.startswith('transformer_blocks.1.')}
        self.refused(['one.safetensors: does not fit', 'num_layers is 3, not 2'], '-m', COGVIDEOX, '--transformer', self.write('one.safetensors', deep))
        of_pictures = read_weights(WAN_I2V / 'transformer')
        for spell in (str, authors_name):
            self.refused(['one.safetensors: does not fit', 'image_dim is 32, not 0, in_channels is 12, not 4'], '-m', WAN, '--transformer', self.write('one.safetensors', of_pictures, spell))
        of_images = read_weights(I2V / 'transformer')
        self.refused(['one.safetensors: does not fit', 'in_channels is 8, not 4'], '-m', COGVIDEOX, '--transformer', self.write('one.safetensors', of_images))
        self.assertEqual(self.video('-m', COGVIDEOX, '--transformer', self.write('one.safetensors', tensors)), self.video('-m', COGVIDEOX))

if __name__ == '__main__':
    unittest.main()
