"""Random input against the parsers and decoders: `python -m fuzz.run`."""
