"""Tests files with the names, shapes and dtypes of published files. Their contents are holes, which take no disk space."""
import shutil
import unittest

import published
from support import CommandLineTest

TRANSFORMERS = {'wan2.2_t2v_high_noise_14B_fp8_scaled.safetensors': 'wan-2.1-14b.yaml or wan-2.2-a14b.yaml', 'wan2.1_t2v_14B_fp16.safetensors': 'wan-2.1-14b.yaml or wan-2.2-a14b.yaml',
                'wan2.1_t2v_14B_fp8_scaled.safetensors': 'wan-2.1-14b.yaml or wan-2.2-a14b.yaml', 'wan2.1-t2v-14b-Q8_0.gguf': 'wan-2.1-14b.yaml or wan-2.2-a14b.yaml',
                'wan2.1-t2v-14b-Q4_K_M.gguf': 'wan-2.1-14b.yaml or wan-2.2-a14b.yaml', 'wan2.2_ti2v_5B_fp16.safetensors': 'wan-2.2-5b.yaml',
                'wan2.1_i2v_480p_14B_fp16.safetensors': 'wan-2.1-i2v-14b.yaml', 'wan2.1_flf2v_720p_14B_fp16.safetensors': 'wan-2.1-flf2v-14b-720p.yaml',
                'wan2.2_i2v_high_noise_14B_fp8_scaled.safetensors': 'wan-2.2-i2v-a14b.yaml',
                'mochi_preview_bf16.safetensors': 'mochi-1.yaml', 'mochi_preview_fp8_scaled.safetensors': 'mochi-1.yaml', 'dit.safetensors': 'mochi-1.yaml'}


class Published(CommandLineTest):
    def write(self, name):
        return published.write(self.folder / name, published.FILES[name]())

    def test_lists_match_the_sizes_of_the_published_files(self):
        for name, size in published.PUBLISHED_BYTES.items():
            with self.subTest(name):
                self.assertEqual(self.write(name).stat().st_size, size)

    def test_transformers_are_recognized_by_their_tensors(self):
        for name, model in TRANSFORMERS.items():
            with self.subTest(name):
                self.assertIn(f'transformer of {model}\n', self.succeed(self.run_program('inspect', self.write(name))).stdout)

    def write_all(self, folder, *names):
        """Writes the files of these names into the subfolders that ComfyUI's pages give for them."""
        for name in names:
            published.write(self.folder / folder / name, published.FILES[name.rsplit('/', 1)[-1]]())
        return self.folder / folder

    def known(self, folder, model, *formats, options=()):
        """Checks that `config show` finds the model's defaults, and that `inspect` tells which file became which component and in which format."""
        shown = self.succeed(self.run_program('config', 'show', '-m', folder, *options)).stdout
        self.assertIn(model, shown)
        found = self.succeed(self.run_program('inspect', folder)).stdout
        for role, file, form in formats:
            self.assertRegex(found, rf'(?m)^  {role}: .*/{file}, .*, {form}')

    text, vae = 'text_encoders/umt5_xxl_fp8_e4m3fn_scaled.safetensors', 'vae/wan_2.1_vae.safetensors'

    def test_folders_of_comfyui_hold_a_model(self):
        text_encoder, vae = ('text_encoder', self.text, 'F8_E4M3 with scales'), ('vae', self.vae, 'BF16 194$')
        one = self.write_all('one', 'diffusion_models/wan2.1_t2v_14B_fp16.safetensors', self.text, self.vae)
        self.known(one, 'wan-2.1-14b', ('transformer', 'wan2.1_t2v_14B_fp16.safetensors', 'F16'), text_encoder, vae)
        high, low = (f'diffusion_models/wan2.2_t2v_{noise}_noise_14B_fp8_scaled.safetensors' for noise in ('high', 'low'))
        two = self.write_all('two', high, low, self.text, self.vae)
        self.known(two, 'wan-2.2-a14b', ('transformer', high, 'F8_E4M3 with scales'), ('transformer_2', low, 'F8_E4M3 with scales'), text_encoder, vae)
        small = self.write_all('small', 'diffusion_models/wan2.2_ti2v_5B_fp16.safetensors', self.text, 'vae/wan2.2_vae.safetensors')
        self.known(small, 'wan-2.2-5b', ('transformer', 'wan2.2_ti2v_5B_fp16.safetensors', 'F16'), text_encoder, ('vae', 'wan2.2_vae.safetensors', 'F16'))

    def test_image_models_are_not_mistaken_for_text_models(self):
        high, low = (f'diffusion_models/wan2.2_i2v_{noise}_noise_14B_fp8_scaled.safetensors' for noise in ('high', 'low'))
        two = self.write_all('two', high, low, self.text, self.vae)
        (self.folder / 'a.ppm').write_bytes(b'P6 1 1 255\n' + bytes(3))
        self.known(two, 'wan-2.2-i2v-a14b', ('transformer', high, 'F8_E4M3 with scales'), ('transformer_2', low, 'F8_E4M3 with scales'), options=['--image', 'a.ppm'])
        self.fail_with(self.run_program('generate', '-p', 'a', '-m', two, '--device', 'cpu', '-o', 'a.mp4'), 2, 'image is missing: this model makes videos from images')
        for transformer, format in (('wan2.1_i2v_480p_14B_fp16.safetensors', 'F16'), ('wan2.1-i2v-14b-480p-Q4_K_M.gguf', 'F32 .*Q4_K')):
            for encoder in ('clip_vision_h.safetensors', 'open-clip-xlm-roberta-large-vit-huge-14_visual_fp16.safetensors'):
                with self.subTest(transformer, encoder=encoder):
                    whole = self.write_all('whole', f'diffusion_models/{transformer}', f'clip_vision/{encoder}', self.text, self.vae)
                    (self.folder / 'a.ppm').write_bytes(b'P6 1 1 255\nabc')
                    self.known(whole, 'wan-2.1-i2v-14b', ('transformer', transformer, format), ('image_encoder', encoder, 'F16'))
                    shutil.rmtree(whole)
        one = self.write_all('one', 'diffusion_models/wan2.1_i2v_480p_14B_fp16.safetensors', self.text, self.vae)
        self.fail_with(self.run_program('generate', '-p', 'a', '-m', one, '--device', 'cpu', '-o', 'a.mp4'), 2, "is the transformer of wan-2.1-i2v-14b, but the model's image_encoder is missing")

    def test_recognizes_mochi_files_of_comfyui_and_of_its_authors(self):
        t5 = 'split_files/text_encoders/t5xxl_fp8_e4m3fn_scaled.safetensors'
        for transformer, form in (('mochi_preview_bf16.safetensors', 'BF16 1071$'), ('mochi_preview_fp8_scaled.safetensors', 'F8_E4M3 with scales')):
            with self.subTest(transformer):
                whole = self.write_all('whole', f'split_files/diffusion_models/{transformer}', 'split_files/vae/mochi_vae.safetensors', t5)
                self.known(whole, 'mochi-1', ('transformer', transformer, form), ('vae', 'mochi_vae.safetensors', 'BF16'), ('text_encoder', t5, 'F8_E4M3 with scales'))
                shutil.rmtree(whole)
        authors = self.write_all('authors', 'dit.safetensors', 'decoder.safetensors', 'encoder.safetensors', 't5xxl_fp16.safetensors')
        self.known(authors, 'mochi-1', ('transformer', 'dit.safetensors', 'F32 1071$'), ('vae', 'decoder.safetensors', 'F32 162$'), ('text_encoder', 't5xxl_fp16.safetensors', 'F16 220$'))
        one = published.write(self.folder / 'all_in_one' / 'mochi.safetensors', published.FILES['all_in_one/mochi_preview_fp8_scaled.safetensors']())
        self.assertIn('mochi-1', self.succeed(self.run_program('config', 'show', '-m', one)).stdout)
        self.known(one.parent, 'mochi-1', *((role, one.name, form) for role, form in (('transformer', 'F8_E4M3 with scales'), ('vae', 'BF16'), ('text_encoder', 'F8_E4M3 with scales'))))

    def test_folders_of_gguf_ask_for_the_tokenizer_that_they_lack(self):
        folder = self.write_all('gguf', 'wan2.1-t2v-14b-Q4_K_M.gguf', 'umt5-xxl-encoder-Q4_K_M.gguf', 'wan_2.1_vae.safetensors')
        self.fail_with(self.run_program('generate', '-p', 'a', '-m', folder, '--device', 'cpu', '--size', '160x96', '--frames', 5, '--steps', 1, '-o', 'a.mp4'), 2, 'spiece.model', 'google/umt5-xxl')
        (folder / 'spiece.model').write_bytes(published.spiece(published.SPIECE_BYTES))
        self.known(folder, 'wan-2.1-14b', ('transformer', 'wan2.1-t2v-14b-Q4_K_M.gguf', 'F32 695, Q4_K 280'), ('text_encoder', 'umt5-xxl-encoder-Q4_K_M.gguf', 'Q4_K 144'))


if __name__ == '__main__':
    unittest.main()
