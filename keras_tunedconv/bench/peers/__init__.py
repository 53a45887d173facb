"""The same convolutions through this package, torch and XLA, in time of the device alone."""
