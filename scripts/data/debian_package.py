# SPDX-License-Identifier: Apache-2.0
"""Files of Debian packages for the scripts beside this one: installed, or fetched and unpacked without installing."""

import argparse
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile


def say(text):
    print(text, file=sys.stderr)


def fail(text):
    say(f"error: {text}")
    sys.exit(3)


def parser_of(text, name, archives=("ARCHIVE",)):
    """Of --out and --deb, where a user gives as many archives as there are names here; None each otherwise."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=f"data-sets/{name}", help="folder to write to (default: %(default)s)")
    parser.add_argument("--deb", nargs=len(archives), metavar=archives, default=[None] * len(archives),
                        help="archives of the packages, where these are neither installed nor to be fetched")
    return parser


def by_hash(values, key=str):
    """In the order of a hash, the same one everywhere."""
    return sorted(values, key=lambda value: hashlib.sha256(key(value).encode()).digest())


class Package:
    """The files of a package: of the one that is installed, else of its archive."""

    def __init__(self, name, archive=None):
        self.name = name
        self._temporary = None
        if archive is None and self._is_installed():
            self.root = pathlib.Path("/")
            return
        self._temporary = tempfile.TemporaryDirectory(prefix="hearth-data-")
        self.root = pathlib.Path(self._temporary.name) / "root"
        if archive is None:
            archive = self._download()
        subprocess.run(["dpkg-deb", "-x", archive, self.root], check=True)

    def _is_installed(self):
        found = subprocess.run(["dpkg-query", "-W", "-f=${Status}", self.name], capture_output=True, text=True)
        return found.stdout.endswith("install ok installed")

    def _download(self):
        say(f"{self.name} is not installed; fetching its archive with apt-get")
        folder = self._temporary.name
        for attempt in (1, 2):
            done = subprocess.run(["apt-get", "-qq", "download", self.name], cwd=folder)
            if done.returncode == 0:
                break
            if attempt == 1:
                subprocess.run(["apt-get", "-qq", "update"])
        else:
            fail(f"the Debian package {self.name} cannot be had; install it (apt-get install {self.name}) or give its "
                 "archive with --deb")
        return next(pathlib.Path(folder).glob("*.deb"))

    def path(self, inside):
        path = self.root / inside
        if not path.exists():
            fail(f"{self.name} has no {inside}; is it another version?")
        return path


def write(path, text):
    """Writes a file whole or not at all; returns its bytes."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode() if isinstance(text, str) else text
    temporary = path.with_name(path.name + ".part")
    temporary.write_bytes(data)
    os.replace(temporary, path)
    say(f"{path}: {len(data):,} bytes")
    return data


def write_verified(folder, texts, digest):
    """Writes texts by the names of their files if their bytes in a row have this SHA-256; otherwise none of them."""
    verify("SHA-256 of all files", sha256("".join(texts.values()).encode()), digest)
    for name, text in texts.items():
        write(pathlib.Path(folder) / name, text)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def verify(what, found, wanted):
    if found != wanted:
        fail(f"{what}: {found}, where {wanted} was expected: the package is another version, or damaged")
