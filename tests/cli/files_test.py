"""Tests models whose components are single files, as other programs store them. The frames must equal those of the diffusers folder with the same weights."""
import json
import re
import shutil
import unittest

import quantized  # must come first: it adds the folder of torch_files to sys.path
import torch_files
from model_files import write_shards
from published import authors_clip, authors_name, authors_t5_name, authors_vae_name
from quantized import write_pth
from single_files import DATA, WAN, WAN_I2V, Models, SingleFiles
from support import read_safetensors, read_weights, write_safetensors


class UnusualFiles(SingleFiles):
    """Tests unusual folders and files that downloads and training programs produce."""
    def setUp(self):
        super().setUp()
        self.model = self.folder_of(WAN)
        self.transformer = read_weights(self.model / 'transformer')
        self.write_transformer(self.transformer)

    def write_transformer(self, tensors):
        """Replaces the transformer's files by one file with these tensors."""
        for file in (self.model / 'transformer').glob('*.safetensors*'):
            file.unlink()
        write_safetensors(self.model / 'transformer' / 'diffusion_pytorch_model.safetensors', tensors)

    def warned(self, *arguments):
        """Returns the frames of the run, and the warnings about tensors that were left out."""
        result = self.run_program('generate', *self.small, *arguments, '-o', 'a.safetensors')
        self.succeed(result)
        return read_safetensors(self.folder / 'a.safetensors')['frames'], [line for line in result.stderr.splitlines() if 'left out' in line]

    def test_reads_torch_files_in_every_layout(self):
        usual = self.video('-m', self.model)
        step = torch_files.torch_tensor(torch_files.Stored('LongStorage', '0', 1), 0, (), ())
        for how in ({'beside': {'lr': 1e-4, 'epoch': 3, 'args': {'eps': 1e-8, 'betas': (0.9, 0.99)}, 'step': step}}, {'parameters': True}, {'transposed': True}):
            with self.subTest(how):
                self.assertEqual(self.video('-m', self.model, '--transformer', write_pth(self.folder / 'a.pth', self.transformer, **how)), usual)

    def test_reads_torch_files_in_a_diffusers_folder(self):
        usual = self.video('-m', self.model)
        for role, name in (('transformer', 'diffusion_pytorch_model.bin'), ('text_encoder', 'pytorch_model.bin')):
            tensors = read_weights(self.model / role)
            for file in (self.model / role).glob('*.safetensors*'):
                file.unlink()
            write_pth(self.model / role / name, tensors)
        self.assertEqual(self.video('-m', self.model), usual)
        names = sorted(tensors)
        (self.model / 'text_encoder' / 'pytorch_model.bin').unlink()
        weight_map = {}
        for i in range(2):
            shard = f'pytorch_model-{i + 1:05}-of-00002.bin'
            write_pth(self.model / 'text_encoder' / shard, {name: tensors[name] for name in names[i::2]})
            weight_map |= dict.fromkeys(names[i::2], shard)
        (self.model / 'text_encoder' / 'pytorch_model.bin.index.json').write_text(json.dumps({'weight_map': weight_map}))
        self.assertEqual(self.video('-m', self.model), usual)

    def test_warns_of_tensors_that_the_model_does_not_have(self):
        usual, none = self.warned('-m', self.model)
        self.assertEqual(none, [])
        self.write_transformer(self.transformer | {'zz_marker': ('F16', [0], b''), 'step': ('F32', [1], bytes(4)), 'extra.weight': ('F16', [3], bytes(6))})
        frames, warnings = self.warned('-m', self.model)
        self.assertEqual(frames, usual)
        self.assertEqual(len(warnings), 1, warnings)
        for word in ('transformer', '3 tensors', '"extra.weight" [3]', '"step" [1]', '"zz_marker" [0]'):
            self.assertIn(word, warnings[0])
        self.write_transformer(self.transformer | {'blocks.7.attn1.to_q.weight': ('F16', [1], bytes(2))})
        self.refused(['1 unexpected: "blocks.7.attn1.to_q.weight"'], '-m', self.model)
        self.write_transformer(dict(list(self.transformer.items())[1:]) | {'step': ('F32', [1], bytes(4))})
        self.refused(['1 missing'], '-m', self.model)

    def test_warns_of_an_index_that_disagrees_with_its_shards(self):
        usual, index = self.video('-m', self.model), self.model / 'transformer' / 'diffusion_pytorch_model.safetensors.index.json'
        (self.model / 'transformer' / 'diffusion_pytorch_model.safetensors').unlink()
        for inside, listed, warnings in ((True, False, 1), (False, True, 0), (True, True, 1)):
            with self.subTest(inside=inside, listed=listed):
                extra = {'extra.weight': ('F16', [3], bytes(6))}
                write_shards(self.model / 'transformer', self.transformer | (extra if inside else {}))
                content = json.loads(index.read_text())
                content['weight_map'].pop('extra.weight', None)
                if listed:
                    content['weight_map']['extra.weight'] = 'diffusion_pytorch_model-00001-of-00002.safetensors'
                index.write_text(json.dumps(content))
                frames, told = self.warned('-m', self.model)
                self.assertEqual(frames, usual)
                self.assertEqual(len(told), warnings, told)

    def test_accepts_other_paths_of_a_model_folder(self):
        usual = self.video('-m', self.model)
        self.assertEqual(self.video('-m', self.model / 'model_index.json'), usual)
        cache = self.folder / 'hub' / 'models--Acme--Wan'
        (cache / 'snapshots').mkdir(parents=True)
        (cache / 'refs').mkdir()
        (cache / 'refs' / 'main').write_text('0123')
        self.model.rename(cache / 'snapshots' / '0123')
        (cache / 'snapshots' / '4567').mkdir()
        self.assertEqual(self.video('-m', cache), usual)
        (cache / 'refs' / 'main').write_text('89ab')
        self.refused(['models--Acme--Wan', 'Hugging Face cache', 'refs/main'], '-m', cache)

    def test_says_what_files_without_weights_are(self):
        old = b'\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.' + bytes(200)
        for name, content, word in (('old.pth', old, 'torch.save() file in the format from before version 1.6'), ('a.safetensors', b'<!DOCTYPE html><html>404</html>', 'web page')):
            (self.folder / name).write_bytes(content)
            self.refused([name, word], '-m', self.model, '--transformer', name)
        self.refused(['config.json', 'is not an index of shards'], '-m', self.model, '--transformer', self.model / 'transformer' / 'config.json')

    def test_reads_the_parts_of_a_split_file(self):
        usual, names = self.video('-m', self.model), sorted(self.transformer)
        parts = [self.folder / f'wan-{i + 1:05}-of-00002.gguf' for i in range(2)]
        for i, part in enumerate(parts):
            quantized.write_gguf(part, {authors_name(name): self.transformer[name] for name in names[i::2]})
        for part in parts:
            self.assertEqual(self.video('-m', self.model, '--transformer', part), usual)
        parts[1].unlink()
        self.refused(['wan-00001-of-00002.gguf, part 1 of 2', 'missing parts (1): "wan-00002-of-00002.gguf"'], '-m', self.model, '--transformer', parts[0])
        alone = quantized.write_gguf(self.folder / 'alone.gguf', {authors_name(name): self.transformer[name] for name in names[::2]}, quantized.gguf_key('split.count', 2), 1)
        self.refused(['alone.gguf', 'one of 2 parts of a split GGUF'], '-m', self.model, '--transformer', alone)

    def test_reads_a_vae_whose_convolutions_have_four_dimensions(self):
        usual = self.video('-m', self.model)
        folded = {authors_vae_name(name): (dtype, [shape[0] * shape[1], *shape[2:]] if len(shape) == 5 else shape, data)
                  for name, (dtype, shape, data) in read_weights(self.model / 'vae').items()}
        self.assertTrue(any(len(shape) == 4 and shape[0] > 48 for _, shape, _ in folded.values()))
        self.assertEqual(self.video('-m', self.model, '--vae', quantized.write_gguf(self.folder / 'vae.gguf', folded)), usual)


class Folders(Models):
    def test_reads_a_comfyui_folder(self):
        for model in ('one', 'cog'):
            with self.subTest(model):
                folder = self.comfy(model, f'comfy {model}')
                style = self.write(f'comfy {model}/diffusion_models/style_lora.safetensors', {'blocks.0.self_attn.q.lora_A.weight': ('F16', [1, 1], bytes(2))})
                self.write(f'comfy {model}/checkpoints/other.safetensors', {'something.else': ('F16', [1], bytes(2))})
                self.assertEqual(self.video('-m', folder), self.video('-m', self.models[model]))
                style.unlink()

    def test_reads_the_folder_of_the_authors(self):
        folder = self.folder / 'Wan2.1-T2V'
        write_shards(folder, {authors_name(name): tensor for name, tensor in self.weights('one', 'transformer').items()}, 3)
        (folder / 'config.json').write_text(json.dumps({'_class_name': 'WanModel', 'dim': 32, 'model_type': 't2v'}))
        write_pth(folder / 'Wan2.1_VAE.pth', {authors_vae_name(name): tensor for name, tensor in self.weights('one', 'vae').items()})
        write_pth(folder / 'models_t5_umt5-xxl-enc-bf16.pth', {authors_t5_name(name): tensor for name, tensor in self.weights('one', 'text_encoder').items()})
        self.tokenizer('one', 'Wan2.1-T2V/google/umt5-xxl')
        self.assertEqual(self.video('-m', folder), self.video('-m', self.models['one']))
        (folder / 'diffusion_pytorch_model-00002-of-00003.safetensors').unlink()
        self.refused(['missing shards (1)', '00002-of-00003'], '-m', folder)

    def test_reads_the_folder_of_the_authors_with_two_experts(self):
        folder = self.folder / 'Wan2.2-T2V-A14B'
        for name, role in (('high_noise_model', 'transformer'), ('low_noise_model', 'transformer_2')):
            write_shards(folder / name, {authors_name(name): tensor for name, tensor in self.weights('two', role).items()})
        write_pth(folder / 'Wan2.1_VAE.pth', {authors_vae_name(name): tensor for name, tensor in self.weights('two', 'vae').items()})
        self.write('Wan2.2-T2V-A14B/umt5.safetensors', self.weights('two', 'text_encoder'))
        self.tokenizer('two', 'Wan2.2-T2V-A14B/google/umt5-xxl')
        self.assertEqual(self.video('-m', folder), self.video('-m', self.models['two']))

    def test_distinguishes_two_experts_by_their_names(self):
        usual = self.video('-m', self.models['two'])
        for high, low in (('wan2.2_t2v_high_noise_14B', 'wan2.2_t2v_low_noise_14B'), ('z-Wan2_2-T2V-A14B_HIGH_fp8', 'a-Wan2_2-T2V-A14B-LOW_fp8'),
                          ('HighNoise/Wan2.2-HighNoise', 'LowNoise/Wan2.2-LowNoise'), ('HighNoise/a', 'LowNoise/a')):
            with self.subTest(high):
                folder = self.comfy('two', 'comfy', {'transformer': high, 'transformer_2': low})
                self.assertEqual(self.video('-m', folder), usual)
                shutil.rmtree(folder)

    def test_reads_a_gguf_folder(self):
        folder = self.comfy('one', 'comfy')
        tensors = {authors_name(name): tensor for name, tensor in self.weights('one', 'transformer').items()}
        (folder / 'diffusion_models' / 'one.safetensors').unlink()
        quantized.write_gguf(folder / 'diffusion_models' / 'one.gguf', tensors)
        self.assertEqual(self.video('-m', folder), self.video('-m', self.models['one']))

    def test_reads_all_parts_from_one_file(self):
        parts = {'model.diffusion_model.': ('transformer', authors_name), 'text_encoders.umt5xxl.transformer.': ('text_encoder', str), 'vae.': ('vae', authors_vae_name)}
        tensors = {prefix + spell(name): tensor for prefix, (role, spell) in parts.items() for name, tensor in self.weights('one', role).items()}
        file = self.write('checkpoints/all.safetensors', tensors)
        self.tokenizer('one', 'tokenizer')
        self.refused(['--tokenizer is needed', 'all.safetensors or beside it'], '-m', file)
        self.assertEqual(self.video('-m', file, '--tokenizer', 'tokenizer'), self.video('-m', self.models['one']))
        self.tokenizer('one', 'checkpoints/tokenizer')
        self.assertEqual(self.video('-m', self.folder / 'checkpoints'), self.video('-m', self.models['one']))

    def test_reads_files_without_a_folder(self):
        self.comfy('two', 'comfy', {'transformer': 'a', 'transformer_2': 'b'})
        rest = ['--vae', 'comfy/vae/wan_vae.safetensors', '--text-encoder', 'comfy/text_encoders/t5.safetensors', '--tokenizer', 'comfy/text_encoders/tokenizer']
        high, low = (f'comfy/diffusion_models/{name}.safetensors' for name in 'ab')
        usual = self.video('-m', self.models['two'])
        self.assertEqual(self.video('--transformer', high, '--transformer-2', low, *rest), usual)
        self.assertEqual(self.video('--high-noise-diffusion-model', high, '--diffusion-model', low, *rest), usual)
        self.assertEqual(self.video('--diffusion-model', high, *rest), self.video('--transformer', high, *rest))
        self.refused(['--transformer', '--diffusion-model', 'exclude each other'], '--transformer', high, '--diffusion-model', low, *rest)

    def test_named_file_overrides_the_folder(self):
        folder = self.comfy('two', 'comfy', {'transformer': 'a_high', 'transformer_2': 'a_low'})
        usual = self.video('-m', folder)
        changed = self.write('other.safetensors', self.other(self.weights('two', 'vae')), authors_vae_name)
        self.assertNotEqual(self.video('-m', folder, '--vae', changed), usual)
        low = self.write('b_low.safetensors', self.weights('two', 'transformer_2'), str)
        self.assertEqual(self.video('-m', folder, '--transformer-2', low), usual)
        plain = self.write('plain.safetensors', self.weights('one', 'transformer'), authors_name)
        others = ['--vae', folder / 'vae' / 'wan_vae.safetensors', '--text-encoder', folder / 'text_encoders' / 't5.safetensors']
        self.assertEqual(self.video('-m', folder, '--transformer', plain), self.video('-m', self.models['one'], *others))


class Images(Models):
    """Tests image-to-video models. Other programs have different names for their transformers' and encoders' tensors."""
    sources = {'image': WAN_I2V, 'two images': DATA / 'wan_i2v' / 'pipeline_two_images', 'experts': DATA / 'wan_i2v' / 'pipeline_two_experts'}

    def setUp(self):
        super().setUp()
        (self.folder / 'a.ppm').write_bytes(b'P6 40 30 255\n' + bytes(x * 7 + y * 5 + c * 40 & 255 for y in range(30) for x in range(40) for c in range(3)))
        (self.folder / 'b.ppm').write_bytes(b'P6 30 30 255\n' + bytes(x * 3 + y * 8 & 255 for y in range(30) for x in range(30) for c in range(3)))

    def run_program(self, *arguments, **options):
        images = ['--image', 'a.ppm'] if arguments[0] == 'generate' else []
        return super().run_program(*arguments, *images, **options)

    def clip(self, model, path, spell=dict, write=write_safetensors):
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        return write(self.folder / path, spell(self.weights(model, 'image_encoder')))

    def test_reads_a_comfyui_folder(self):
        for model, last in (('image', []), ('two images', ['--last-image', 'b.ppm'])):
            with self.subTest(model):
                folder, usual = self.comfy(model, f'comfy {model}'), self.video('-m', self.models[model], *last)
                self.refused(['image_encoder is missing'], '-m', folder, *last)
                self.clip(model, f'comfy {model}/clip_vision/clip_vision_h.safetensors')
                self.assertEqual(self.video('-m', folder, *last), usual)

    def test_reads_the_folder_of_the_authors(self):
        folder = self.comfy('image', 'Wan2.1-I2V')
        self.clip('image', 'Wan2.1-I2V/models_clip_open-clip-xlm-roberta-large-vit-huge-14.pth', lambda tensors: authors_clip(tensors) | {
            'textual.head.0.weight': ('F32', [1], bytes(4)), 'log_scale': ('F32', [1], bytes(4))}, write_pth)
        self.assertEqual(self.video('-m', folder), self.video('-m', self.models['image']))

    def test_reads_a_folder_with_two_experts(self):
        folder = self.comfy('experts', 'comfy', {'transformer': 'wan2.2_i2v_high_noise_14B', 'transformer_2': 'wan2.2_i2v_low_noise_14B'})
        self.assertEqual(self.video('-m', folder), self.video('-m', self.models['experts']))

    def test_reads_a_gguf_folder(self):
        folder = self.comfy('image', 'comfy')
        self.clip('image', 'comfy/clip_vision_h.safetensors')
        (folder / 'diffusion_models' / 'one.safetensors').unlink()
        tensors = {authors_name(name): tensor for name, tensor in self.weights('image', 'transformer').items()}
        quantized.write_gguf(folder / 'diffusion_models' / 'one.gguf', tensors)
        self.assertEqual(self.video('-m', folder), self.video('-m', self.models['image']))

    def test_image_encoder_file_replaces_the_one_in_the_folder(self):
        usual = self.video('-m', self.models['image'])
        for option, spell in (('--image-encoder', dict), ('--clip_vision', authors_clip)):
            file = self.clip('image', 'clip.safetensors', spell)
            self.assertEqual(self.video('-m', self.models['image'], option, file), usual)
        self.refused(['this model has no image_encoder'], '-m', self.models['experts'], '--image-encoder', file)
        wrong = {name: tensor for name, tensor in self.weights('image', 'image_encoder').items() if 'encoder.layers.0.' not in name}
        self.refused(['missing'], '-m', self.models['image'], '--image-encoder', self.write('less.safetensors', wrong))
        self.refused(['image_encoder'], '-m', self.models['image'], '--image-encoder', self.models['image'] / 'vae' / 'diffusion_pytorch_model.safetensors')

    def test_applies_lora_layers_for_images(self):
        usual = self.video('-m', self.models['image'])
        weights = self.weights('image', 'transformer')
        for layer, name in (('blocks.0.cross_attn.k_img', 'blocks.0.attn2.add_k_proj'), ('blocks.1.cross_attn.v_img', 'blocks.1.attn2.add_v_proj'),
                            ('img_emb.proj.1', 'condition_embedder.image_embedder.ff.net.0.proj')):
            rows, columns = weights[f'{name}.weight'][1]
            half = b'\0\x38'  # 0.5 in fp16
            lora = self.write('lora.safetensors', {f'diffusion_model.{layer}.lora_A.weight': ('F16', [1, columns], half * columns),
                                                   f'diffusion_model.{layer}.lora_B.weight': ('F16', [rows, 1], half * rows)})
            with self.subTest(layer):
                self.assertNotEqual(self.video('-m', self.models['image'], '--lora', lora, '--strict-lora'), usual)


class Records(Models):
    """Tests that the program tells which file became which component, and that recipes notice other files."""
    def test_report_names_each_file_with_its_format(self):
        folder = self.comfy('one', 'comfy')
        (folder / 'diffusion_models' / 'one.safetensors').unlink()
        scale = ('F32', [], b'\0\0\x80?')
        tensors = {}
        for name, (dtype, shape, data) in self.weights('one', 'transformer').items():
            tensors[authors_name(name)] = (dtype, shape, data)
            if name.endswith('attn1.to_q.weight'):
                tensors[authors_name(name)] = ('F8_E4M3', shape, bytes(len(data) // 2))
                tensors[authors_name(name).replace('.weight', '.scale_weight')] = scale
        file = self.write('comfy/diffusion_models/wan_fp8_scaled.safetensors', tensors)
        form = f'F16 {len(tensors) - 4}, F8_E4M3 with scales 2'
        shown = self.succeed(self.run_program('inspect', folder)).stdout
        self.assertIn(f'  transformer: {file}, ', shown)
        self.assertIn(form, shown)
        self.assertEqual(json.loads(self.succeed(self.run_program('inspect', folder, '--json')).stdout)['files']['transformer'],
                         {'path': str(file), 'bytes': file.stat().st_size, 'format': form})
        config = self.succeed(self.run_program('config', 'show', '-m', folder, '-p', 'a')).stdout
        self.assertRegex(config, rf'(?m)^# transformer: {re.escape(str(file))}, .*{form}$')
        self.assertRegex(config, r'(?m)^# vae: .*wan_vae.safetensors, .*F16 \d+$')
        report = json.loads(self.succeed(self.run_program('generate', *self.small, '-m', folder, '-o', 'a.mp4', '--json', '--quiet')).stdout)
        self.assertEqual(set(report['files']), {'transformer', 'vae', 'text_encoder'})
        self.assertEqual(report['recipe']['files']['transformer'].keys(), {'name', 'bytes', 'sha256'})
        self.assertEqual(report['recipe']['files']['vae']['name'], 'wan_vae.safetensors')

    def recipe(self, *arguments):
        return json.loads(self.succeed(self.run_program('generate', *self.small, *arguments, '--steps', 1, '-o', 'a.mp4', '--json', '--quiet')).stdout)['recipe']

    def test_recipe_distinguishes_files_by_their_small_tensors(self):
        folder = self.comfy('one', 'comfy')
        first = self.recipe('-m', folder)
        vae = folder / 'vae' / 'wan_vae.safetensors'
        vae.rename(folder / 'vae' / 'renamed.safetensors')
        renamed = self.recipe('-m', folder)
        self.assertEqual((renamed['files']['vae']['sha256'], renamed['model_sha256']), (first['files']['vae']['sha256'], first['model_sha256']))
        self.write('comfy/vae/renamed.safetensors', self.other(self.weights('one', 'vae')), authors_vae_name)
        other = self.recipe('-m', folder)
        self.assertNotEqual((other['files']['vae']['sha256'], other['model_sha256']), (first['files']['vae']['sha256'], first['model_sha256']))
        self.assertEqual(other['files']['transformer'], first['files']['transformer'])

    def test_warns_which_file_differs_from_the_recipe(self):
        folder = self.comfy('one', 'comfy')
        self.succeed(self.run_program('generate', *self.small, '-m', folder, '-o', 'a.mp4', '--quiet'))
        again = self.run_program('generate', '--from', 'a.mp4', '-m', folder, '--device', 'cpu', '-o', 'b.mp4', '--quiet')
        self.assertEqual((self.succeed(again).stderr, (self.folder / 'a.mp4').read_bytes()), ('', (self.folder / 'b.mp4').read_bytes()))
        changed = self.write('other.safetensors', self.other(self.weights('one', 'vae')), authors_vae_name)
        result = self.run_program('generate', '--from', 'a.mp4', '-m', folder, '--vae', changed, '--device', 'cpu', '-o', 'c.mp4', '--quiet')
        self.assertIn('the model (vae: now other.safetensors, then wan_vae.safetensors) is not the one that a.mp4 was made with', self.succeed(result).stderr)

    def test_recipe_of_a_diffusers_folder_lists_no_files(self):
        recipe = self.recipe('-m', self.models['one'])
        self.assertNotIn('files', recipe)
        file = self.write('one.safetensors', self.weights('one', 'transformer'), authors_name)
        named = self.recipe('-m', self.models['one'], '--transformer', file)
        self.assertEqual((named['transformer'], set(named['files'])), ('one.safetensors', {'transformer'}))

    def test_output_never_replaces_a_file_of_the_model(self):
        folder = self.comfy('one', 'comfy')
        file = folder / 'vae' / 'wan_vae.safetensors'
        before = file.read_bytes()
        result = self.run_program('generate', *self.small, '-m', folder, '-o', file)
        self.fail_with(result, 2, 'is among the files from which the model is read')
        self.assertEqual(file.read_bytes(), before)

    def test_batch_decode_and_bench_accept_model_files(self):
        folder = self.comfy('one', 'comfy')
        (self.folder / 'set.txt').write_text('a dog\na cat\n')
        small = ['-m', folder, '--device', 'cpu', '--steps', 1, '--size', '64x64', '--frames', 9]
        self.succeed(self.run_program('batch', 'set.txt', *small, '-o', 'out', '--format', 'gif', '--quiet'))
        self.succeed(self.run_program('generate', *small, '-p', 'a', '-o', 'a.safetensors', '--save-latents', 'l.safetensors', '--quiet'))
        self.succeed(self.run_program('decode', 'l.safetensors', '-m', folder, '--device', 'cpu', '-o', 'b.safetensors', '--quiet'))
        self.assertEqual(*(read_safetensors(self.folder / name)['frames'] for name in ('a.safetensors', 'b.safetensors')))
        self.succeed(self.run_program('bench', 'pipeline', *small, '--modes', 'full', '--warmup', 0, '--no-decode', '--quiet', '--json'))

if __name__ == '__main__':
    unittest.main()
