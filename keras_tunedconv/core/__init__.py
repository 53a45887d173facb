"""The Python face of the C core: one module a concept, no Keras and no framework imported."""
