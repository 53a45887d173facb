"""The cost model: what recorded searches tell about convolutions that were never measured."""
