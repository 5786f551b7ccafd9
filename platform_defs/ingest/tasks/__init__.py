"""The queue: which task is next, who works on it and for how long, what it waits for, and which ones nobody takes."""
