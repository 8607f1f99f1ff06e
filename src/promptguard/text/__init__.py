"""What the text really says."""
