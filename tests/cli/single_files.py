"""Code that the tests of models in single files share. It writes small models, and an installation of the program whose configs/ describe these models."""
import json
import math
import shutil
from pathlib import Path

from model_files import install
from published import authors_name, authors_vae_name, authors_vae_name_5b
from support import ROOT, CommandLineTest, read_safetensors, read_weights, write_safetensors

DATA = ROOT / 'tests' / 'parity' / 'data'
WAN, WAN_5B, TWO, COGVIDEOX, I2V, WAN_I2V = (DATA / name for name in ('wan/pipeline', 'wan/pipeline_5b', 'wan/pipeline_two_experts', 'pipeline', 'cogvideox_i2v/pipeline', 'wan_i2v/pipeline'))


class SingleFiles(CommandLineTest):
    def folder_of(self, source, name='model'):
        """Returns a copy of the model. Wan's VAE gets as many layers per level as published VAEs have, because its authors number the layers and names depend on the number."""
        folder = Path(shutil.copytree(source, self.folder / name))
        if source == COGVIDEOX:
            return folder
        config = json.loads((folder / 'vae' / 'config.json').read_text()) | {'num_res_blocks': 2}
        (folder / 'vae' / 'config.json').write_text(json.dumps(config))
        file = folder / 'vae' / 'diffusion_pytorch_model.safetensors'
        tensors = read_weights(folder / 'vae')
        tensors |= {name.replace('.resnets.1.', '.resnets.2.'): tensor for name, tensor in tensors.items() if name.startswith('decoder.up_blocks')}
        tensors = self.with_second_blocks(tensors)
        write_safetensors(file, tensors)
        return folder

    @staticmethod
    def with_second_blocks(tensors):
        """Adds a second residual block, whose output is its input, after each residual block of an encoder. Changes nothing if the encoder does not number its layers in
        one list."""
        row = 'encoder.down_blocks.'
        if f'{row}0.conv1.weight' not in tensors:
            return tensors
        numbers = sorted({int(name[len(row):].split('.')[0]) for name in tensors if name.startswith(row)})
        longer, place = {name: tensor for name, tensor in tensors.items() if not name.startswith(row)}, 0
        for number in numbers:
            longer |= {name.replace(f'{row}{number}.', f'{row}{place}.'): tensor for name, tensor in tensors.items() if name.startswith(f'{row}{number}.')}
            place += 1
            if f'{row}{number}.conv1.weight' in tensors:
                dtype, (channels, *_), data = tensors[f'{row}{number}.conv1.bias']
                size = len(data) // channels
                shapes = {'norm1.gamma': [channels, 1, 1, 1], 'norm2.gamma': [channels, 1, 1, 1]}
                shapes |= {f'{layer}.{kind}': shape for layer in ('conv1', 'conv2') for kind, shape in (('weight', [channels, channels, 3, 3, 3]), ('bias', [channels]))}
                longer |= {f'{row}{place}.{name}': (dtype, shape, bytes(math.prod(shape) * size)) for name, shape in shapes.items()}
                place += 1
        return longer

    @staticmethod
    def other(tensors):
        """Returns a VAE's tensors with another bias in the decoder's last layer, so that videos differ."""
        name = 'decoder.conv_out.bias' if 'decoder.conv_out.bias' in tensors else 'decoder.conv_out.conv.bias'
        dtype, shape, data = tensors[name]
        return tensors | {name: (dtype, shape, b'\0\x30' * (len(data) // 2))}

    def write(self, name, tensors, spell=str):
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        return write_safetensors(self.folder / name, {spell(each): tensor for each, tensor in tensors.items()})

    def video(self, *arguments):
        """Runs `generate` for a video of 64x64 and returns its frames."""
        self.succeed(self.run_program('generate', *self.small, *arguments, '--quiet', '-o', 'a.safetensors'))
        return read_safetensors(self.folder / 'a.safetensors')['frames']

    small = ['-p', 'a red circle', '--device', 'cpu', '--dtype', 'fp32', '--steps', 2, '--size', '64x64', '--frames', 9]

    def refused(self, words, *arguments):
        self.fail_with(self.run_program('generate', '-p', 'a red circle', '--device', 'cpu', *arguments, '-o', 'clip.mp4'), 2, *words)
        self.assertFalse((self.folder / 'clip.mp4').exists())


class Models(SingleFiles):
    """Base of tests that use an installation of the program whose configs/ describe the small models."""
    sources = {'one': WAN, 'two': TWO, 'cog': COGVIDEOX}

    def setUp(self):
        super().setUp()
        self.models = {name: self.folder_of(source, name) for name, source in self.sources.items()}
        self.program = install(self.folder / 'installed', self.models)

    def run_program(self, *arguments, **options):
        return super().run_program(*arguments, program=self.program, **options)

    def weights(self, model, role):
        return read_weights(self.models[model] / role)

    def tokenizer(self, model, folder):
        shutil.copytree(self.models[model] / 'tokenizer', self.folder / folder)

    def comfy(self, model, folder, names={'transformer': 'one'}, spell=authors_name):
        """Writes a model as ComfyUI's folders. `names` gives a file name to each transformer. `spell` renames the transformers' tensors. The tokenizer lies beside the text
        encoder, as in the authors' folders."""
        vae_name = authors_vae_name_5b if model == 'large' else str if model == 'cog' else authors_vae_name
        for role, name in names.items():
            self.write(f'{folder}/diffusion_models/{name}.safetensors', self.weights(model, role), str if model == 'cog' else spell)
        self.write(f'{folder}/vae/wan_vae.safetensors', self.weights(model, 'vae'), vae_name)
        self.write(f'{folder}/text_encoders/t5.safetensors', self.weights(model, 'text_encoder'))
        self.tokenizer(model, f'{folder}/text_encoders/tokenizer')
        return self.folder / folder
