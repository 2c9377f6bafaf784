"""What pyproject.toml cannot say: the two compiled artefacts.

Run by the backend in build_backend/; `pip install .` is the way to call it.
"""

from goloop_build.commands import COMMANDS, core_extension
from setuptools import setup

setup(cmdclass=COMMANDS, ext_modules=[core_extension()])
