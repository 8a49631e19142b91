"""Perplexity and bits per byte of a fixed text: how well a model, or its quantization, predicts it."""
