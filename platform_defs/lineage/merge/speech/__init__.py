"""What speakers (jobs, and producers of dataset events) have said, and which of it counts: see speakers.py."""
