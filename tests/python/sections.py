"""Replaces the parts of a page of documentation that programs write."""


def replace_section(path, name, text):
    """Puts the text between `<!-- NAME begin -->` and `<!-- NAME end -->`."""
    with open(path) as file:
        page = file.read()
    begin, end = f"<!-- {name} begin -->\n", f"<!-- {name} end -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise RuntimeError(f"{path} has no section {name}")
    with open(path, "w") as file:
        file.write(before + begin + text.rstrip("\n") + "\n" + end + after)
