"""CONTRIBUTING.md: the usual changes each have a HOWTO, and every file and folder that it names exists."""
import re
import unittest

from support import ROOT

PAGE = ROOT / '.github' / 'CONTRIBUTING.md'
CHANGES = ('an option', 'a model family', 'a packed weight type', 'an attention kernel', 'an output format', 'a prompt-set column')


def paths_of(text):
    """What stands between backquotes and begins with a folder of the tree; DIR and NAME stand for others."""
    return [path for path in re.findall(r'`((?:app|models|attention|hilbert|configs|assets|tests)/[^`\s]*)`', text) if not re.search('[A-Z]{2}', path.replace('README', ''))]


class Contributing(unittest.TestCase):
    def test_names_what_exists(self):
        paths = paths_of(PAGE.read_text())
        self.assertGreater(len(paths), 50)
        self.assertEqual([path for path in paths if not (ROOT / path).exists()], [])

    def test_has_a_howto_for_each_usual_change_that_names_its_files(self):
        howtos = dict(re.findall(r'^## HOWTO: ([^\n]*)\n(.*?)(?=^## |\Z)', PAGE.read_text(), re.M | re.S))
        self.assertEqual(tuple(howtos), CHANGES)
        for change, text in howtos.items():
            with self.subTest(change):
                self.assertGreater(len([path for path in paths_of(text) if (ROOT / path).is_file()]), 3)

    def test_says_what_is_in_a_row_of_the_map(self):
        for folder in ('app', 'models', 'attention', 'hilbert'):
            self.assertIn(f'\n| `{folder}/` |', PAGE.read_text())


if __name__ == '__main__':
    unittest.main()
