"""The subcommands of `platform`: a module each, imported only when used; those of a system have a folder."""
