"""The version of llama-load. It is stored in run folders, and must be the same on master and workers."""

from importlib.metadata import version

__version__ = version("llama-load")
