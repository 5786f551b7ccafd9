"""`platform up`: starts the platform's processes, keeps them running, and ends them all together."""
