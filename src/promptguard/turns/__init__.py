"""One turn of a conversation: judged, recorded, replayed. Pure: no store, no network."""
