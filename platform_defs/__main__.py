"""Lets `python -m platform_defs` be the `platform` command."""

from platform_defs.cli import main

main()
