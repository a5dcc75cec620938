"""Using a trained summarizer (Section 3.4): no reward, no judge, no torch."""
