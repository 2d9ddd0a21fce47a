#!/usr/bin/env python3
"""`make demo` to its end: it says itself whether it proved what it shows; here, that nothing of it is left behind.

Usage: demo_test.py BIN_FOLDER. Exit code 77 where there is no sshd."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from hosts import command_of, processes

PATIENCE = 480


def speaks_of(pid, path):
    """Whether the path is in its words or its environment."""
    try:
        return any(path in pathlib.Path(f"/proc/{pid}/{name}").read_text(errors="replace") for name in ("cmdline", "environ"))
    except OSError:
        return False


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    if shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin") is None:
        print("SKIPPED: sshd is not installed (scripts/setup.sh test)", file=sys.stderr)
        sys.exit(77)
    demo = pathlib.Path(__file__).parents[2] / "scripts/demo.sh"
    # A short path: sockets lie below it.
    with tempfile.TemporaryDirectory(prefix="lo.", dir="/tmp") as folder:
        picture = pathlib.Path(folder) / "demo.svg"
        work = pathlib.Path(folder) / "work"
        work.mkdir()
        done = subprocess.run([demo, sys.argv[1], picture], env={**os.environ, "TMPDIR": str(work)}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=PATIENCE)
        print(done.stdout, done.stderr, sep="\n")
        if done.returncode != 0:
            raise SystemExit(f"the demo failed ({done.returncode})")
        for words in ("(kill -9 of the worker on ", "(word for word what it says undisturbed)", " seconds)"):
            if words not in done.stdout:
                raise SystemExit(f"the demo did not say {words!r}")
        if "word for word" not in picture.read_text():
            raise SystemExit("the picture lacks what it is for")
        left = [str(path) for path in work.iterdir()]
        left += [" ".join(command_of(pid)) for pid in processes() if speaks_of(pid, str(work))]
        if left:
            raise SystemExit(f"left behind: {left}")


if __name__ == "__main__":
    main()
