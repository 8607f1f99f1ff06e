"""Guards conversations with language models, offline, and explains itself."""
