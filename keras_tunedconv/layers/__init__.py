"""Keras layers whose convolutions are tuned."""
