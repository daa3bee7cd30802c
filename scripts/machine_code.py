# SPDX-License-Identifier: Apache-2.0
"""Where cuobjdump is, which reads what nvcc made."""

import glob
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WHEELS = ("nvidia-cuda-cuobjdump>=13", "nvidia-cuda-nvdisasm>=13")


def find_cuobjdump(wanted=None, bring=False):
    """The path of cuobjdump, which finds nvdisasm in its folder: the one wanted, from PATH, beside nvcc, or of NVIDIA's
    wheels in build/machine_code, to which pip brings them if asked; None if there is none."""
    if wanted:
        return wanted if os.path.exists(wanted) else None
    beside = os.path.join(os.path.dirname(shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"), "cuobjdump")
    for path in (shutil.which("cuobjdump"), beside):
        if path and os.path.exists(path):
            return path
    folder = os.path.join(ROOT, "build/machine_code")
    inside = os.path.join(folder, "nvidia/cu*/bin/cuobjdump")
    if bring and not glob.glob(inside):
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--root-user-action=ignore",
                        "--target", folder, *WHEELS], stdout=sys.stderr, check=False)
    for path in glob.glob(inside):
        for name in os.listdir(os.path.dirname(path)):
            os.chmod(os.path.join(os.path.dirname(path), name), 0o755)
        return path
    return None
