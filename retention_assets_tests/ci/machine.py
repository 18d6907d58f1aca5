"""A machine made of nothing but what a test puts on it, for the shell scripts in `.ci`.

Belongs here: a PATH of our own with stand-ins for java, python, apt-get and sudo. The real ones of this machine are out of
reach, so that a test says the same wherever it runs, and installs nothing.
"""

import os
import shutil
import subprocess
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / ".ci"

# What the scripts may expect on any system that has a shell.
_TOOLS = ("cat", "chmod", "dirname", "env", "mkdir", "printf", "sed")


class Machine:
    """A folder that stands for a machine: `bin` is its whole PATH, `root` what would be its file system."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a machine"
        self.bin = self.root / "bin"
        self.bin.mkdir(parents=True)
        for tool in _TOOLS:
            real = shutil.which(tool)
            assert real, f"this machine has no {tool}"
            (self.bin / tool).symlink_to(real)
        self.command("id", "echo 1000")

    def command(self, name: str, body: str, folder: Path | None = None) -> Path:
        """An executable of that name that runs some lines of shell."""
        path = (folder or self.bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    def java(self, home: str, version: str, on_path: bool = False) -> str:
        """A Java at a place below the root, that says it is of a version; returns its home."""
        place = self.root / home
        body = f'echo "Property settings:\n    java.home = {place}\n    java.specification.version = {version}" >&2'
        java = self.command("java", body, place / "bin")
        if on_path:
            (self.bin / "java").symlink_to(java)
        return str(place)

    def apt_get(self, *packages: str, installs: str = "true") -> None:
        """An apt-get that knows some packages, notes what it is asked, and installs by some lines of shell."""
        self.command(
            "apt-get",
            f"""echo "$@" >> '{self.root}/asked'
            case "$1" in update) exit ;; esac
            for package; do :; done
            case " {" ".join(packages)} " in
                *" $package "*) {installs} ;;
                *) echo "E: Unable to locate package $package" >&2; exit 100 ;;
            esac""",
        )

    @property
    def asked(self) -> list[str]:
        """What apt-get was asked, in order; the last word of each is enough to know which package."""
        notes = self.root / "asked"
        return [line.split()[-1] for line in notes.read_text().splitlines()] if notes.exists() else []

    def become_root(self) -> None:
        """Act as a user who may do anything."""
        self.command("id", "echo 0")

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a script of `.ci` on this machine."""
        return subprocess.run(
            ["/bin/sh", str(SCRIPTS / script), *arguments],
            env={"PATH": str(self.bin), "HOME": str(self.root / "home"), "JAVA_SEARCH_ROOT": str(self.root), **environment},
            cwd=self.root, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip


def readable(said: subprocess.CompletedProcess[str]) -> str:
    """Everything that a script said, for the message of a failed test."""
    return f"exit {said.returncode}{os.linesep}{said.stdout}{os.linesep}{said.stderr}"
