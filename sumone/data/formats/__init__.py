"""One adapter per family of transcripts: pure functions from a record to a trajectory."""
