"""The version of llama-load, in run folders and between master and workers."""

from importlib.metadata import version

__version__ = version("llama-load")
