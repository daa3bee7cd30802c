# SPDX-License-Identifier: Apache-2.0
"""Runs of `hearth train` that a table in docs/ is made of: each is trained once, and known again by its settings."""

import json
import os
import re
import subprocess
from dataclasses import dataclass


@dataclass
class Run:
    name: str
    program: object  # a path, or a function that makes it when it is needed
    config: str
    settings: dict
    ranks: int = 1

    def words(self, command, config, settings):
        program = self.program() if callable(self.program) else self.program
        launched = ["launch", "-n", str(self.ranks), "--"] if command == "train" and self.ranks > 1 else []
        sets = [word for path, value in settings.items() for word in ("--set", f"{path}={json.dumps(value)}")]
        return [program, *launched, command, config, *sets]

    def resolved(self, config, settings):
        done = subprocess.run(self.words("config", config, settings) + ["--json"], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{self.name}: {config}: {done.stderr}")
        return json.loads(done.stdout)

    def finished(self, out):
        """The record of this run in `out`, or None; ends the script where that folder holds a run of other settings."""
        folder = os.path.join(out, self.name)
        path = os.path.join(folder, "run.json")
        if not os.path.exists(path) or not os.path.exists(os.path.join(folder, "config.json")):
            return None
        # Both with the defaults of this program, which may know more keys than the one that trained.
        there, wanted = (self.resolved(os.path.join(folder, "config.json"), {}),
                         self.resolved(self.config, self.settings))
        other = [key for key in wanted if wanted[key] != there.get(key)]
        if other:
            raise SystemExit(f"{folder} holds a run with another {', '.join(other)}; remove it, or use another --out")
        with open(path) as file:
            record = json.load(file)
        return record if record["status"] == "finished" else None

    def train(self, out):
        folder = os.path.join(out, self.name)
        code = subprocess.run(self.words("train", self.config, self.settings) + ["--out", folder]).returncode
        # 5: it diverged, which is a result as well.
        if code not in (0, 5):
            raise SystemExit(f"{self.name}: the run failed with code {code}")
        with open(os.path.join(folder, "run.json")) as file:
            return json.load(file)


def model_type(config):
    with open(config) as file:
        return json.load(file)["model"]["type"]


def add_arguments(parser, root, out):
    parser.add_argument("--program", default=os.path.join(root, "build/release/hearth"))
    parser.add_argument("--out", default=out)
    parser.add_argument("--only", default=".", help="regular expression of the names of the runs to be trained")
    parser.add_argument("--table", help="a page; the results replace what stands between its marks")


def records_of(runs, arguments):
    """(run, record) of those that --only picks, which are trained unless they are finished; for a table, of all."""
    found = []
    for run in runs:
        picked = re.search(arguments.only, run.name) is not None
        record = run.finished(arguments.out) if picked or arguments.table else None
        if not picked and arguments.table and record is None:
            raise SystemExit(f"--table needs every run, and {run.name} is not finished in {arguments.out}; let --only "
                             "pick it too, or leave --table out")
        if picked or record:
            found.append((run, record))
    for run, record in found:
        yield run, record or run.train(arguments.out)


def accuracy_of(record):
    return f"{100 * record['metrics'].get('test_accuracy', record['metrics']['accuracy']):.2f} %" if record["status"] == "finished" else "diverged"


def write_table(page, mark, text):
    with open(page) as file:
        before = file.read()
    marked = re.compile(rf"(<!-- {mark} begin -->\n).*?(<!-- {mark} end -->)", re.S)
    if not marked.search(before):
        raise SystemExit(f"{page}: there are no marks <!-- {mark} begin --> and <!-- {mark} end -->")
    with open(page, "w") as file:
        file.write(marked.sub(lambda match: match.group(1) + text + match.group(2), before))
