"""Helpers that the tests of `batch` share: they write prompt sets, run them, and read manifests and videos."""
import hashlib
import json
import os

from support import FAMILY, MODEL, CommandLineTest

ROWS = int(os.environ.get('SPARSEREEL_BATCH_ROWS', '6'))
KILLS = int(os.environ.get('SPARSEREEL_BATCH_KILLS', '4'))
OPTIONS = os.environ.get('SPARSEREEL_BATCH_OPTIONS', '--steps 6').split()
COLORS = ('red', 'green', 'blue', 'yellow', 'orange', 'white')
SHAPES = ('circle', 'square', 'star', 'ring')


class BatchTest(CommandLineTest):
    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def prompts(self, count=ROWS):
        """Writes a prompt set of `count` rows. Up to 24 rows, all prompts differ. The last row gives a seed."""
        rows = [{'prompt': f'a {COLORS[i % 6]} {SHAPES[i // 2 % 4]} moving'} for i in range(count)]
        rows[-1]['seed'] = 1234
        return self.write('set.jsonl', ''.join(json.dumps(row) + '\n' for row in rows))

    def arguments(self, file, folder, *more):
        return ['batch', file, '-o', folder, '-m', MODEL, '--device', 'cpu', '--threads', '1', '--quiet', *self.unless(more, *FAMILY.size), *more]

    def batch(self, file, folder='out', *more, **options):
        return self.run_program(*self.arguments(file, folder, *more), **options)

    def set_report(self, *arguments, **options):
        return json.loads(self.succeed(self.batch(*arguments, '--json', **options)).stdout)['set']

    def manifest(self, folder='out'):
        """Returns the lines of all manifests in the folder. Fails if a line is incomplete."""
        lines = []
        for path in sorted((self.folder / folder).glob('manifest.*.jsonl')):
            text = path.read_text()
            self.assertTrue(text == '' or text.endswith('\n'), path)
            lines += [json.loads(line) for line in text.splitlines()]
        return lines

    def videos(self, folder='out'):
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                for path in (self.folder / folder).iterdir() if not path.name.startswith('manifest.')}

    def check_consistent(self, rows, folder='out'):
        """Checks that the folder has one video per row and nothing else, and that each row's last manifest line holds the hash of its video."""
        videos, last = self.videos(folder), {}
        for line in self.manifest(folder):
            last[line['row']] = line
        self.assertEqual(sorted(last), list(range(rows)))
        self.assertEqual({line['output']: line['sha256'] for line in last.values()}, videos)
        self.assertTrue(all(line['state'] == 'done' for line in last.values()))
