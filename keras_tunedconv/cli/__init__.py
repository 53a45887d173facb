"""The command line: `keras-tunedconv COMMAND`."""
