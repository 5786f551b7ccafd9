"""The subcommands of `platform`, one module each, imported only when used."""
