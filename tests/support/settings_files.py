"""Files for `--settings`."""


def settings_file(folder, *lines):
    """Options that name a new file with these lines of TOML; none without lines."""
    path = folder / "settings.toml"
    path.write_text("".join(f"{line}\n" for line in lines))
    return "--settings", str(path)
