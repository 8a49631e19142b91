"""The version of llama-load, recorded in run folders and compared between master and workers."""

from importlib.metadata import version

__version__ = version("llama-load")
