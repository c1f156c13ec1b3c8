"""Tests that CONTRIBUTING.md has a HOWTO for each common kind of change, and that the files and folders that it names exist. Also tests what tests/words refuses."""
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from support import ROOT

PAGE = ROOT / '.github' / 'CONTRIBUTING.md'
CHANGES = ('an option', 'a model family', 'a packed weight type', 'an attention kernel', 'an output format', 'a prompt-set column')


def paths_of(text):
    """Returns the paths between backquotes that begin with a folder of this tree. Leaves out paths with placeholders such as DIR or NAME."""
    return [path for path in re.findall(r'`((?:app|models|attention|hilbert|configs|assets|tests)/[^`\s]*)`', text) if not re.search('[A-Z]{2}', path.replace('README', ''))]


class Contributing(unittest.TestCase):
    def test_names_only_paths_that_exist(self):
        paths = paths_of(PAGE.read_text())
        self.assertGreater(len(paths), 50)
        self.assertEqual([path for path in paths if not (ROOT / path).exists()], [])

    def test_has_a_howto_with_file_names_for_each_usual_change(self):
        howtos = dict(re.findall(r'^## HOWTO: ([^\n]*)\n(.*?)(?=^## |\Z)', PAGE.read_text(), re.M | re.S))
        self.assertEqual(tuple(howtos), CHANGES)
        for change, text in howtos.items():
            with self.subTest(change):
                self.assertGreater(len([path for path in paths_of(text) if (ROOT / path).is_file()]), 3)

    def test_maps_each_folder_in_a_row_of_the_table(self):
        for folder in ('app', 'models', 'attention', 'hilbert'):
            self.assertIn(f'\n| `{folder}/` |', PAGE.read_text())


class Words(unittest.TestCase):
    def refused(self, page, text):
        """Copies the pages, adds the text at the end of the file `page` (a new file if there is none), and returns the output of tests/words on the copy."""
        listed = re.search(r"^caps='(.*?)'$", (ROOT / 'tests' / 'words').read_text(), re.M | re.S)[1]
        with tempfile.TemporaryDirectory() as folder:
            for name in ('tests/words', *(line.split()[0] for line in listed.splitlines())):
                copy = Path(folder, name)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, copy)
            Path(folder, page).parent.mkdir(parents=True, exist_ok=True)
            with open(Path(folder, page), 'a') as file:
                file.write(text)
            result = subprocess.run(['bash', 'tests/words'], cwd=folder, capture_output=True, text=True)
        self.assertEqual(result.returncode, 1 if result.stdout else 0, result.stderr)
        return result.stdout

    def test_accepts_the_present_pages(self):
        self.assertEqual(self.refused('README.md', ''), '')

    def test_refuses_a_page_above_its_cap(self):
        self.assertRegex(self.refused('app/docs/glossary.md', '\nword' * 300), r'above its cap.*\napp/docs/glossary.md: \d+ words')

    def test_does_not_count_tables_code_and_pictures(self):
        for text in ('\n| word | word |' * 300, '\n```' + '\nword' * 600 + '\n```\n', '\n![' + 'word ' * 600 + '](README.md)\n', ' `' + 'word ' * 600 + '`'):
            self.assertEqual(self.refused('app/docs/glossary.md', text), '')

    def test_refuses_a_page_without_a_cap(self):
        self.assertIn('without a cap', self.refused('app/docs/new.md', 'word'))

    def test_refuses_a_second_word_for_a_term(self):
        for text, word in (('two cards', 'GPU'), ('| the denoiser |', 'transformer'), ('a rival', 'baseline'), ('Neighbours', 'neighbor'), ('quantised', 'quantize')):
            with self.subTest(text):
                self.assertIn(f'another word for {word}', self.refused('README.md', f'\n{text}\n'))

    def test_leaves_code_alone(self):
        self.assertEqual(self.refused('README.md', '\n`--judge rival.json`, ![](judge.png), [it](a/rival.md)\n```\ndenoiser\n```\n'), '')

    def test_refuses_comments_without_a_subject(self):
        for comment in ('/// Of the transformer.', 'int a = 0;  // What it takes, in bytes', '// Whether it runs'):
            with self.subTest(comment):
                self.assertIn('hilbert/a.h:1: ', self.refused('hilbert/a.h', f'{comment}\n'))
        self.assertIn('tests/a.py:1: ', self.refused('tests/a.py', '# Of all files\n'))

    def test_refuses_a_second_word_for_a_term_in_a_comment(self):
        self.assertIn('another word for GPU', self.refused('app/a.cpp', '// Counts the cards.\n'))

    def test_takes_comments_that_are_sentences_and_code_as_it_is(self):
        for text in ('// Offers of what it holds, whether it runs or not', '// See `card` and "denoiser".', 'const char* kUrl = "https://example.org/card";', 'int judge = 0;'):
            self.assertEqual(self.refused('app/a.cpp', f'{text}\n'), '')


if __name__ == '__main__':
    unittest.main()
