"""Figures while a run goes on, in bounded memory: for the web page and for Prometheus."""

from llama_load.loadgen.live.figures import LiveFigures

__all__ = ["LiveFigures"]
