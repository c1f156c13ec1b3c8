"""Starts the program sparsereel of this package with the libtorch of the installed torch, and with the kernels of the installed sparsereel-attention."""
import importlib.util
import json
import os
import re
import shutil
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def fail(cause, remedy):
    sys.exit(f'error: {cause}\n  remedy: {remedy}')


def folder_of(module):
    """Returns the folder of an installed package without importing it, or None."""
    spec = importlib.util.find_spec(module)
    places = spec.submodule_search_locations if spec else None
    return Path(next(iter(places))).resolve() if places else None


def minor(version):
    return re.match(r'[0-9]+\.[0-9]+', version).group()


def torch_libraries(built):
    """Returns the folder of libtorch. Ends the program if there is none, or one that the program was not built for."""
    built_for = minor(built['torch'])
    remedy = f"python3 -m pip install 'torch=={built_for}.*'"
    torch = folder_of('torch')
    if torch is None or not (torch / 'lib/libtorch_cpu.so').exists():
        fail(f'sparsereel needs torch {built_for}, which is not installed for {sys.executable}', remedy)
    version = re.search(r"^__version__ = '(.*)'", (torch / 'version.py').read_text(), re.MULTILINE).group(1)
    if minor(version) != built_for:
        fail(f'sparsereel was built for torch {built_for}, but torch {version} is installed in {torch}', remedy)
    return torch / 'lib'


def kernel_libraries(built):
    """Returns the folder of the library of kernels, or None if the program was built without kernels. Ends the program if the library is missing or another."""
    name = built['kernels']
    if not name:
        return None
    wanted = f'sparsereel-attention {built["version"]}'
    remedy = f'python3 -m pip install --force-reinstall --no-deps WHEEL, with the wheel of {wanted} that was built together with this sparsereel'
    package = folder_of('sparsereel')
    if package is None:
        fail(f'sparsereel needs the kernels of {wanted}, which is not installed for {sys.executable}', remedy)
    if not (package / 'lib' / name).exists():
        others = ', '.join(path.name for path in sorted(package.glob('lib/libsparsereel_kernels-*.so'))) or 'none'
        fail(f'sparsereel needs the kernels {name} of {wanted}, but {package / "lib"} has {others}', remedy)
    return package / 'lib'


def bundled_ffmpeg():
    """Returns the ffmpeg of the package imageio-ffmpeg, or None."""
    package = folder_of('imageio_ffmpeg')
    return next((path for path in sorted(package.glob('binaries/ffmpeg-*')) if os.access(path, os.X_OK)), None) if package else None


def environment():
    variables = dict(os.environ)
    built = json.loads((FOLDER / 'share/sparsereel/package.json').read_text())
    site = FOLDER.parent
    # The program itself looks in the folders of its own site-packages.
    elsewhere = [str(folder) for folder in (torch_libraries(built), kernel_libraries(built)) if folder not in (None, site / 'torch/lib', site / 'sparsereel/lib')]
    if elsewhere:
        variables['LD_LIBRARY_PATH'] = ':'.join([*elsewhere, *filter(None, [os.environ.get('LD_LIBRARY_PATH')])])
    if not os.environ.get('SPARSEREEL_FFMPEG') and not shutil.which('ffmpeg') and (ffmpeg := bundled_ffmpeg()):
        variables['SPARSEREEL_FFMPEG'] = str(ffmpeg)
    return variables


def called_name():
    """Returns the name that the user typed, as far as it can be known: messages repeat it."""
    found = shutil.which('sparsereel')
    return 'sparsereel' if found and os.path.samefile(found, sys.argv[0]) else sys.argv[0]


def main():
    os.execve(FOLDER / 'bin/sparsereel', [called_name(), *sys.argv[1:]], environment())
