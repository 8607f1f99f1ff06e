"""Rules that judge a transcript."""
