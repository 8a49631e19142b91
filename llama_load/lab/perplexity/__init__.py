"""Perplexity and bits per byte: how well a model, or its quantization, predicts a fixed text."""
