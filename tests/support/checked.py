"""How the scripts that check the tree end: what is wrong, line by line, or what was found in order."""


def end(problems, count, things, praise):
    """Ends the program: 1 where there are problems, or nothing was looked at."""
    print("\n".join(problems) if problems else f"{count} {praise}")
    if count == 0 and not problems:
        raise SystemExit(f"no {things} found")
    raise SystemExit(1 if problems else 0)
