"""Tests folders with several models, several formats of a model, or several files of one name: which file the program takes, and when it asks the user to choose.
Each command that the program prints must work."""
import json
import os
import re
import shlex
import shutil
import unittest

import quantized
from single_files import DATA, TWO, WAN, Models
from published import authors_name, authors_vae_name
from support import read_safetensors

IMAGES = DATA / 'wan_i2v' / 'pipeline'


class ModelTrees(Models):
    sources = {'one': WAN, 'two': TWO}

    def setUp(self):
        super().setUp()
        self.known = {}

    def transformer(self, file, model, role='transformer', dtype='F16'):
        """Writes a transformer as ComfyUI's file, or as GGUF if the name ends in .gguf. `dtype` is F16, or F8_E4M3 with a scale for each matrix."""
        tensors = {authors_name(name): tensor for name, tensor in self.weights(model, role).items()}
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if dtype == 'F8_E4M3':
            for name, (_, shape, data) in list(tensors.items()):
                if len(shape) == 2 and 'modulation' not in name:
                    tensors[name] = (dtype, shape, bytes(data[1::2]))
                    tensors[name.replace('.weight', '.scale_weight')] = ('F32', [], b'\0\0\x80?')
        if path.suffix == '.gguf':
            return quantized.write_gguf(path, tensors) or path
        return self.write(file, tensors)

    def rest(self, folder, model='one'):
        self.write(f'{folder}/vae/wan_2.1_vae.safetensors', self.weights(model, 'vae'), authors_vae_name)
        self.write(f'{folder}/text_encoders/umt5.safetensors', self.weights(model, 'text_encoder'))
        self.tokenizer(model, f'{folder}/text_encoders/tokenizer')
        return self.folder / folder

    def run_words(self, words):
        """Runs a command that an error or `inspect` printed. Returns the frames of its video."""
        words = [word for word in words if word != 'clip.mp4']
        self.assertEqual(words[0], self.program)
        self.succeed(self.run_program(*words[1:], '-o', 'a.safetensors', *self.small[2:]))
        return read_safetensors(self.folder / 'a.safetensors')['frames']

    def refused_with_choices(self, result, *words):
        """Checks that the run failed and asked the user to choose. Returns the commands that the error prints."""
        self.assertEqual(result.returncode, 2, result.stderr)
        lines = result.stderr.splitlines()
        self.assertTrue(lines[0].startswith('error: ') and lines[1] == '  remedy: run one of these commands', result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)
        return self.commands(result.stderr)

    def of_diffusers(self, prompt, model, rest):
        """Returns the frames that the transformer of the diffusers folder `model` makes with the VAE and text encoder of the folder `rest`."""
        others = ['--vae', f'{rest}/vae', '--text-encoder', f'{rest}/text_encoders']
        return self.run_words([self.program, 'generate', '-p', prompt, '-m', self.models[model], *others])

    def commands(self, text):
        return [shlex.split(line) for line in text.splitlines() if line.startswith('    ' + shlex.quote(self.program))]


class Choices(ModelTrees):
    def tree(self, folder):
        self.rest(folder)
        self.transformer(f'{folder}/diffusion_models/WAN/wan2.1 t2v/wan2.1_fp16.safetensors', 'one')
        self.transformer(f'{folder}/diffusion_models/WAN/wan2.1 t2v/wan2.1_fp8_scaled.safetensors', 'one', dtype='F8_E4M3')
        for expert, role in (('high', 'transformer'), ('low', 'transformer_2')):
            self.transformer(f'{folder}/diffusion_models/wan2.2_{expert}_noise_fp16.safetensors', 'two', role)
            self.transformer(f'{folder}/diffusion_models/wan2.2_{expert}_noise_fp8_scaled.safetensors', 'two', role, 'F8_E4M3')
        return folder

    def test_each_printed_command_works(self):
        folder = self.tree('my models')
        result = self.run_program('generate', '-p', "it's a dog", '-m', folder, '--steps', 2, '--device', 'cpu')
        commands = self.refused_with_choices(result, 'my models: could be run in 4 ways')
        titles = [line for line in result.stderr.splitlines()[2:] if not line.startswith('    ')]
        self.assertEqual([re.sub(r', [\d.]+ MB', '', title) for title in titles], ['one', '  fp16', '  fp8_scaled', 'two', '  fp16', '  fp8_scaled'])
        self.assertEqual(len(commands), 4)
        self.assertEqual([words[:6] for words in commands], [[self.program, 'generate', '-p', "it's a dog", '-m', folder]] * 4)
        made = [self.run_words(words) for words in commands]
        self.assertEqual(len({frames[2] for frames in made}), 4)
        for place, model in ((0, 'one'), (2, 'two')):
            self.assertEqual(made[place], self.of_diffusers("it's a dog", model, folder))

    def test_asks_first_for_a_tokenizer_that_no_model_has(self):
        folder = self.tree('all')
        shutil.rmtree(self.folder / folder / 'text_encoders' / 'tokenizer')
        self.fail_with(self.run_program('generate', '-p', 'a dog', '-m', folder, '--device', 'cpu'), 2, '--tokenizer is needed: there is none in all',
                       "give google/umt5-xxl's spiece.model; 'hf download google/umt5-xxl spiece.model --local-dir google/umt5-xxl' downloads it")
        self.tokenizer('one', 'here')
        self.refused_with_choices(self.run_program('generate', '-p', 'a dog', '-m', folder, '--device', 'cpu', '--tokenizer', 'here'), 'all: could be run in 4 ways')

    def test_report_lists_the_commands(self):
        folder = self.tree('my models')
        result = self.run_program('generate', '-p', 'a dog', '-m', folder, '--device', 'cpu', '--json')
        choices = json.loads(result.stdout)['choices']
        self.assertEqual([(choice['group'], choice['title'].split(',')[0]) for choice in choices], [('one', 'fp16'), ('one', 'fp8_scaled'), ('two', 'fp16'), ('two', 'fp8_scaled')])
        self.assertIn("--transformer-2 'my models/diffusion_models/", '\n'.join(choice['command'] for choice in choices).replace('\\', ''))

    def test_diffusers_folder_in_the_tree_is_one_of_the_choices(self):
        self.rest('all')
        self.transformer('all/one.safetensors', 'one')
        shutil.copytree(self.models['two'], self.folder / 'all' / 'Wan2.2-Diffusers')
        result = self.run_program('generate', '-p', 'a dog', '-m', 'all', '--device', 'cpu')
        commands = self.commands(result.stderr)
        self.assertEqual([words[4:] for words in commands], [['-m', 'all', '--device', 'cpu', '--transformer', 'all/one.safetensors'], ['-m', 'all/Wan2.2-Diffusers', '--device', 'cpu']])
        self.assertEqual(self.run_words(commands[1]), self.run_words([self.program, 'generate', '-p', 'a dog', '-m', self.models['two']]))
        (self.folder / 'all' / 'one.safetensors').unlink()
        self.assertEqual(self.video('-m', 'all'), self.video('-m', self.models['two']))

    def test_commands_replace_the_named_model_in_place(self):
        folder = self.tree('models')
        result = self.run_program('generate', f'--model={folder}', '-p', 'a dog', '--transformer', f'{folder}/diffusion_models')
        self.assertEqual(self.commands(result.stderr)[0][2:], [f'--model={folder}', '-p', 'a dog', '--transformer', f'{folder}/diffusion_models/WAN/wan2.1 t2v/wan2.1_fp16.safetensors'])


class FolderNames(ModelTrees):
    """Tests models whose files lie in folders of any name, where several files may have the same name."""
    def test_finds_models_in_subfolders_and_links_of_any_name(self):
        usual = self.video('-m', self.models['one'])
        root = self.rest('ComfyUI/models')
        file = self.transformer('ComfyUI/models/diffusion_models/WAN/WAN2.1/x/wan.safetensors', 'one')
        (root / 'unet').symlink_to('diffusion_models')
        (root / 'clip').symlink_to('text_encoders')
        (root / 'diffusion_models' / 'again').symlink_to('..')
        (root / 'checkpoints').mkdir()
        os.link(file, root / 'checkpoints' / 'wan.safetensors')
        (root / 'checkpoints' / 'third.safetensors').symlink_to(file)
        for folder in ('ComfyUI/models', 'ComfyUI', 'ComfyUI/models/'):
            with self.subTest(folder):
                self.assertEqual(self.video('-m', folder), usual)

    def test_ignores_other_folders(self):
        self.rest('ComfyUI/models')
        self.transformer('ComfyUI/models/unet/wan.safetensors', 'one')
        for other in ('.cache', 'custom_nodes/x', 'output'):
            self.transformer(f'ComfyUI/{other}/other.safetensors', 'one', dtype='F8_E4M3')
        self.assertEqual(self.video('-m', 'ComfyUI'), self.video('-m', self.models['one']))

    def test_counts_equal_tokenizers_once(self):
        root = self.rest('all')
        self.transformer('all/wan.safetensors', 'one')
        shutil.move(root / 'text_encoders' / 'tokenizer', root / 'tokenizer')
        shutil.copytree(root / 'tokenizer', root / 'google' / 'umt5-xxl')
        (root / 'other').mkdir()
        (root / 'other' / 'tokenizer.json').write_text('{"model": {"type": "BPE"}}')
        self.assertEqual(self.video('-m', 'all'), self.video('-m', self.models['one']))


class ExpertPairs(ModelTrees):
    def setUp(self):
        super().setUp()
        self.rest('rest', 'two')
        self.others = ['--vae', 'rest/vae', '--text-encoder', 'rest/text_encoders/umt5.safetensors']
        self.usual = self.video('-m', self.models['two'])

    def pair(self, high, low):
        return str(self.transformer(high, 'two')), str(self.transformer(low, 'two', 'transformer_2'))

    def shown(self, *arguments):
        result = self.run_program('generate', *self.small, *arguments, '-o', 'a.safetensors')
        self.succeed(result)
        return read_safetensors(self.folder / 'a.safetensors')['frames'], result.stderr

    def test_finds_the_second_expert_beside_the_named_one(self):
        for high, low in (('a/Wan_HIGH_fp16.safetensors', 'a/Wan-LOW_fp16.safetensors'), ('b/HighNoise/wan-HighNoise-Q4_0.gguf', 'b/LowNoise/wan-LowNoise-Q4_0.gguf'),
                          ('c/HighNoise/a.gguf', 'c/LowNoise/a.gguf')):
            high, low = self.pair(high, low)
            for option, own, other in (('--transformer', high, low), ('--transformer', low, high), ('-m', high, low), ('-m', low, high), ('--transformer-2', low, high)):
                with self.subTest(own=own, option=option):
                    frames, told = self.shown(option, own, *self.others)
                    self.assertEqual(frames, self.usual)
                    self.assertRegex(told, rf'Uses .*{re.escape(os.path.basename(other))} \(its partner; --transformer(-2)? names another\)')

    def test_chooses_the_second_expert_of_the_same_name(self):
        high, _ = self.pair('a/wan_high_noise_Q8_0.gguf', 'a/wan_low_noise_Q8_0.gguf')
        self.transformer('a/wan_low_noise_Q4_0.gguf', 'one')
        self.assertEqual(self.shown('--transformer', high, *self.others)[0], self.usual)
        os.rename(self.folder / 'a/wan_low_noise_Q8_0.gguf', self.folder / 'a/other_low.gguf')
        result = self.run_program('generate', *self.small, '--transformer', high, *self.others, '-o', 'a.safetensors')
        commands = self.refused_with_choices(result, 'could be run in 2 ways', 'fp16, 0.3 MB, wan_high_noise_Q8_0.gguf and other_low.gguf\n')
        right = [words for words in commands if words[-1].endswith('other_low.gguf')]
        self.assertEqual(self.run_words([word for word in right[0] if word not in ('-o', 'a.safetensors')]), self.usual)

    def test_finds_the_second_expert_in_a_relative_folder(self):
        self.pair('a/HighNoise/wan-HighNoise.gguf', 'a/LowNoise/wan-LowNoise.gguf')
        os.symlink(self.folder / 'rest', self.folder / 'a' / 'HighNoise' / 'rest')
        result = self.run_program('generate', *self.small, '--transformer', 'wan-HighNoise.gguf', *self.others, '-o', '../../a.safetensors', cwd=self.folder / 'a' / 'HighNoise')
        self.assertIn('../LowNoise/wan-LowNoise.gguf', self.succeed(result).stderr)
        self.assertEqual(read_safetensors(self.folder / 'a.safetensors')['frames'], self.usual)


class UsedFiles(ModelTrees):
    def test_names_the_used_files_if_several_are_possible(self):
        root = self.rest('all')
        self.transformer('all/wan.safetensors', 'one')
        quiet = self.run_program('generate', *self.small, '-m', 'all', '-o', 'a.mp4')
        self.assertNotIn('Uses', self.succeed(quiet).stderr)
        shutil.copy(root / 'text_encoders' / 'umt5.safetensors', root / 'text_encoders' / 'umt5_again.safetensors')
        shutil.copy(root / 'vae' / 'wan_2.1_vae.safetensors', root / 'vae' / 'again.safetensors')
        told = self.run_program('generate', *self.small, '-m', 'all', '-o', 'a.mp4')
        self.assertIn('Uses wan.safetensors; text_encoders/umt5.safetensors (2 text encoders were found; --text-encoder names another); '
                      'vae/again.safetensors (2 VAEs were found; --vae names another)\n', self.succeed(told).stderr)
        named = ['--vae', 'all/vae/again.safetensors', '--text-encoder', 'all/text_encoders/umt5.safetensors']
        self.assertNotIn('Uses', self.succeed(self.run_program('generate', *self.small, '-m', 'all', *named, '-o', 'a.mp4')).stderr)
        self.assertEqual(self.succeed(self.run_program('generate', *self.small, '-m', 'all', '-o', 'a.mp4', '--quiet')).stderr, '')

    def test_chooses_the_complete_model_if_others_lack_parts(self):
        self.rest('all')
        self.transformer('all/wan.safetensors', 'one')
        self.transformer('all/wan_high.safetensors', 'two')
        frames, told = self.video('-m', 'all'), self.run_program('generate', *self.small, '-m', 'all', '-o', 'a.mp4').stderr
        self.assertEqual(frames, self.video('-m', self.models['one']))
        self.assertIn('Uses wan.safetensors (2 models or formats were found; --transformer names another)', told)


class Images(ModelTrees):
    sources = {'one': WAN, 'image': IMAGES}

    def test_image_decides_which_model_is_used(self):
        (self.folder / 'a.ppm').write_bytes(b'P6 40 30 255\n' + bytes(range(256)) * 14 + bytes(16))
        self.rest('all')
        self.transformer('all/text.safetensors', 'one')
        self.transformer('all/image.safetensors', 'image')
        self.write('all/clip_vision/clip.safetensors', self.weights('image', 'image_encoder'))
        self.write('all/text_encoders/of_images.safetensors', self.weights('image', 'text_encoder'))
        self.assertEqual(self.video('-m', 'all'), self.video('-m', self.models['one']))
        self.assertEqual(self.video('-m', 'all', '--image', 'a.ppm'), self.video('-m', self.models['image'], '--image', 'a.ppm', '--vae', 'all/vae'))


class Inventories(ModelTrees):
    def test_inspect_lists_the_models_of_a_tree_with_their_commands(self):
        self.rest('all')
        self.transformer('all/models/wan2.1_fp8_scaled.safetensors', 'one', dtype='F8_E4M3')
        for expert, role in (('HIGH', 'transformer'), ('LOW', 'transformer_2')):
            self.transformer(f'all/models/Wan-{expert}-Q8_0.gguf', 'two', role)
        self.write('all/loras/style.safetensors', {'blocks.0.self_attn.q.lora_A.weight': ('F16', [1, 1], bytes(2))})
        self.write('all/checkpoints/sd.safetensors', {'conditioner.embedders.1.model.transformer.resblocks.0.ln_1.bias': ('F16', [1], bytes(2))})
        (self.folder / 'all' / 'broken.safetensors').write_bytes(b'x' * 100)
        shown = self.succeed(self.run_program('inspect', 'all')).stdout
        self.assertIn('all: 2 ways to run a model\none\n  fp8_scaled, ', shown)
        self.assertRegex(shown, r'(?m)^    transformer: models/wan2.1_fp8_scaled.safetensors, fp8_scaled, ')
        self.assertRegex(shown, r'(?m)^    transformer_2: models/Wan-LOW-Q8_0.gguf, ')
        self.assertRegex(shown, r'(?m)^1 LoRA: loras/style.safetensors$')
        self.assertRegex(shown, r'(?m)^1 other file: checkpoints/sd.safetensors \(an SDXL checkpoint\)$')
        self.assertRegex(shown, r'(?m)^not read: .*broken.safetensors')
        report = json.loads(self.succeed(self.run_program('inspect', 'all', '--json')).stdout)
        self.assertEqual([(model['model'], model['format'], model['missing']) for model in report['models']], [('one', 'fp8_scaled', []), ('two', 'fp16', [])])
        self.assertEqual(report['models'][1]['parts']['transformer_2']['path'], 'all/models/Wan-LOW-Q8_0.gguf')
        self.assertEqual((report['loras'], report['other_files'], len(report['unread'])), (['all/loras/style.safetensors'], ['all/checkpoints/sd.safetensors'], 1))
        self.assertEqual(self.commands(shown), [shlex.split(model['command']) for model in report['models']])
        made = [self.run_words(words) for words in self.commands(shown)]
        self.assertEqual(made[1], self.of_diffusers('a panda', 'two', 'all'))

    def test_inspect_names_missing_parts(self):
        self.transformer('all/wan2.1.safetensors', 'one')
        self.write('all/vae.safetensors', self.weights('one', 'vae'), authors_vae_name)
        shown = self.succeed(self.run_program('inspect', 'all')).stdout
        self.assertIn('all: 0 ways to run a model\none\n', shown)
        self.assertRegex(shown, r'(?m)^    no text_encoder: .*umt5')
        self.assertEqual(self.commands(shown), [])
        report = json.loads(self.succeed(self.run_program('inspect', 'all', '--json')).stdout)
        self.assertEqual(report['models'][0]['missing'], ['text_encoder'])
        self.assertNotIn('command', report['models'][0])

    def test_inspect_describes_a_single_model_and_prints_its_command(self):
        self.rest('all')
        self.transformer('all/wan2.1.safetensors', 'one')
        shown = self.succeed(self.run_program('inspect', 'all')).stdout
        self.assertIn('  made for ', shown)
        words = shlex.split(shown.split('run it: ')[1].splitlines()[0])
        self.assertEqual(words[1:], ['generate', '-p', 'a panda', '-m', 'all'])
        self.assertEqual(self.run_words(words), self.run_words([self.program, 'generate', '-p', 'a panda', '-m', self.models['one']]))


if __name__ == '__main__':
    unittest.main()
