"""What pyproject.toml cannot say: the two compiled artefacts.

Run by the backend in build_backend/; `pip install .` is the way to call it.
"""

from setuptools import setup

from goloop_build.commands import setup_arguments

setup(**setup_arguments())
