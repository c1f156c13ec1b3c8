"""Tests models that do not exist or that only other programs support. The error says what the name or file is, or gives the command that downloads the model."""
import json
import shlex
import unittest

from support import MODEL, PROGRAM, ROOT, CommandLineTest, write_safetensors

CONFIGS = ROOT / 'configs'
WAN = ROOT / 'tests' / 'parity' / 'data' / 'wan'
SDXL = {'model.diffusion_model.input_blocks.4.1.transformer_blocks.0.attn2.to_k.weight': (1, 2048), 'first_stage_model.decoder.conv_in.weight': (1, 4, 1, 1),
        'conditioner.embedders.0.transformer.text_model.encoder.layers.0.self_attn.q_proj.weight': (768, 1)}
FLUX_LORA = {'lora_unet_double_blocks_0_img_attn_proj.lora_down.weight': (2, 4), 'lora_unet_double_blocks_0_img_attn_proj.lora_up.weight': (4, 2),
             'lora_te1_text_model_encoder_layers_0_mlp_fc1.lora_down.weight': (2, 4), 'lora_te1_text_model_encoder_layers_0_mlp_fc1.lora_up.weight': (4, 2)}


class ForeignFiles(CommandLineTest):
    def write(self, name, shapes):
        tensors = {}
        for tensor, shape in shapes.items():
            size = 2
            for axis in shape:
                size *= axis
            tensors[tensor] = ('F16', list(shape), bytes(size))
        return write_safetensors(self.folder / name, tensors)

    def test_inspect_describes_a_foreign_file_in_one_line(self):
        many = {f'model.diffusion_model.output_blocks.{i}.0.weight': (1,) for i in range(300)}
        lines = self.succeed(self.run_program('inspect', self.write('sdxl.safetensors', SDXL | many))).stdout.splitlines()
        self.assertEqual(len(lines), 1)
        self.assertIn('an SDXL checkpoint (303 tensors, ', lines[0])
        self.assertIn('does not run', lines[0])
        lines = self.succeed(self.run_program('inspect', self.write('style.safetensors', FLUX_LORA))).stdout.splitlines()
        self.assertEqual(len(lines), 1)
        self.assertIn('a Flux LoRA', lines[0])
        shown = self.succeed(self.run_program('inspect', 'sdxl.safetensors', '--tensors')).stdout
        self.assertEqual(len(shown.splitlines()), 304)
        self.assertEqual(json.loads(self.succeed(self.run_program('inspect', 'sdxl.safetensors', '--json')).stdout)['other_model'], 'an SDXL checkpoint')

    def test_inspect_lists_tensors_on_request(self):
        file = WAN / 'pipeline' / 'vae' / 'diffusion_pytorch_model.safetensors'
        text = self.succeed(self.run_program('inspect', file)).stdout
        self.assertIn('--tensors lists its tensors', text)
        self.assertNotIn('decoder.conv_in.weight', text)
        self.assertIn('decoder.conv_in.weight  F', self.succeed(self.run_program('inspect', file, '--tensors')).stdout)

    def test_inspect_shortens_metadata(self):
        header = json.dumps({'__metadata__': {'workflow': 'x' * 5000}, 'latents': {'dtype': 'F32', 'shape': [1], 'data_offsets': [0, 4]}}).encode()
        (self.folder / 'a.safetensors').write_bytes(len(header).to_bytes(8, 'little') + header + bytes(4))
        text = self.succeed(self.run_program('inspect', 'a.safetensors')).stdout
        self.assertIn('workflow: ' + 'x' * 100 + '... (5000 bytes)', text)
        self.assertIn('latents  F32 [1]', text)

    def test_errors_say_what_a_foreign_file_is(self):
        sdxl, lora = self.write('sdxl.safetensors', SDXL), self.write('flux.safetensors', FLUX_LORA)
        generate = ['generate', '-p', 'x', '--device', 'cpu', '-o', 'a.gif']
        for arguments in (['-m', sdxl], ['-m', MODEL, '--transformer', sdxl], ['-m', MODEL, '--vae', sdxl], ['-m', MODEL, '--text-encoder', sdxl], ['--transformer', sdxl],
                          ['-m', MODEL, '--lora', sdxl]):
            self.fail_with(self.run_program(*generate, *arguments), 2, 'sdxl.safetensors: is an SDXL checkpoint', 'Wan')
        for arguments in (['-m', lora], ['-m', MODEL, '--lora', lora], ['-m', WAN / 'pipeline', '--lora', lora]):
            self.fail_with(self.run_program(*generate, *arguments), 2, 'flux.safetensors: is a Flux LoRA', 'Wan')


class ModelNames(CommandLineTest):
    def commands(self, model):
        """Runs `generate` with a model that it cannot open. Returns the commands that the error shows for users to copy."""
        result = self.run_program('generate', '-p', 'x', '-m', model)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn(f'error: {model}: there is no file or folder', result.stderr)
        return result.stderr, [line.strip() for line in result.stderr.splitlines() if line.startswith('    ')]

    def test_published_name_prints_the_commands_that_download_and_use_it(self):
        text, commands = self.commands('THUDM/CogVideoX-2b')
        self.assertEqual(commands, ['hf download THUDM/CogVideoX-2b --local-dir CogVideoX-2b', f'{PROGRAM} generate -p x -m CogVideoX-2b'])
        result = self.run_program('generate', '-m', 'THUDM/CogVideoX-2b', '-p', 'two words', '--steps', 9)
        self.assertIn(f"{PROGRAM} generate -m CogVideoX-2b -p 'two words' --steps 9\n", result.stderr)
        self.assertRegex(text, r'\(at least 13\.\d GB\)')
        text, commands = self.commands('Wan-AI/Wan2.2-T2V-A14B-Diffusers')
        self.assertIn('(126.3 GB)', text)
        self.assertEqual(commands[0], 'hf download Wan-AI/Wan2.2-T2V-A14B-Diffusers --local-dir Wan2.2-T2V-A14B-Diffusers')
        self.assertIn('hf download zai-org/CogVideoX-2b --local-dir CogVideoX-2b', self.commands('zai-org/CogVideoX-2b')[1])

    def test_downloads_only_needed_files_of_a_repository(self):
        text, commands = self.commands('Comfy-Org/Wan_2.1_ComfyUI_repackaged')
        self.assertIn('# transformer of 14B and text encoder in fp8, 21.3 GB', commands)
        self.assertEqual(sum(line.startswith('hf download') for line in commands), 2)
        command = shlex.split(commands[1])
        self.assertEqual(command[:3], ['hf', 'download', 'Comfy-Org/Wan_2.1_ComfyUI_repackaged'])
        self.assertEqual(sum(word.endswith('.safetensors') for word in command), 3)
        self.assertIn("hf download LanguageBind/Open-Sora-Plan-v1.2.0 --include '93x720p/*' --local-dir Open-Sora-Plan-v1.2.0", self.commands('LanguageBind/Open-Sora-Plan-v1.2.0')[1])

    def test_suggests_near_names_and_accepts_unknown_ones(self):
        text, commands = self.commands('THUDM/CogVideoX-2B')
        self.assertIn('hf download THUDM/CogVideoX-2b --local-dir CogVideoX-2b', commands)
        text, commands = self.commands('THUDM/CogVideo-2b')
        self.assertIn('did you mean THUDM/CogVideoX-2b?', text)
        self.assertIn('hf download THUDM/CogVideoX-2b --local-dir CogVideoX-2b', commands)
        self.assertIn('hf download THUDM/CogVideoX-2b --local-dir CogVideoX-2b', self.commands('CogVideoX-2b')[1])
        self.assertEqual(self.commands('somebody/video-of-cats')[1][0], 'hf download somebody/video-of-cats --local-dir video-of-cats')
        for path in ('nowhere', 'no/such/folder', './models/a'):
            self.assertEqual(self.commands(path)[1], [])

    def test_suggests_a_folder_of_that_name(self):
        (self.folder / 'CogVideoX-2b').mkdir()
        self.fail_with(self.run_program('generate', '-p', 'x', '-m', 'THUDM/CogVideoX-2b'), 2, 'name it with -m CogVideoX-2b')


class Requirements(CommandLineTest):
    def test_inspect_estimates_what_a_model_needs(self):
        text = self.succeed(self.run_program('inspect', CONFIGS / 'wan-2.2-a14b.yaml')).stdout
        for words in ('transformer_2', '14288491584 parameters, 26.6 GiB in 16 bits', 'needs about', 'with --weights fp8', 'made for 1280x720, 81 frames', '--steps 40',
                      'hf download Wan-AI/Wan2.2-T2V-A14B-Diffusers', '126.3 GB', f'{PROGRAM} generate -m Wan2.2-T2V-A14B-Diffusers'):
            self.assertIn(words, text)
        summary = json.loads(self.succeed(self.run_program('inspect', CONFIGS / 'wan-2.2-a14b.yaml', '--json')).stdout)
        parts = {part['name']: part for part in summary['components']}
        self.assertEqual(parts['transformer']['bytes'], 2 * parts['transformer']['parameters'])
        self.assertGreater(parts['vae']['parameters'], 1e8)
        self.assertEqual(summary['defaults']['steps'], '40')
        self.assertEqual(summary['published'][0]['repository'], 'Wan-AI/Wan2.2-T2V-A14B-Diffusers')

    def test_inspect_estimates_the_needs_of_every_model(self):
        for config in sorted(CONFIGS.glob('*.yaml')):
            text = self.succeed(self.run_program('inspect', config)).stdout
            self.assertIn('needs about', text, config)
            self.assertEqual('hf download' in text, config.stem != 'tiny', config)

    def test_inspect_refuses_other_yaml(self):
        (self.folder / 'my.yaml').write_text('steps: 12\n')
        self.fail_with(self.run_program('inspect', 'my.yaml'), 2, 'my.yaml')


if __name__ == '__main__':
    unittest.main()
