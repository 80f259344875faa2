"""Puts the npm package standardwebhooks, and the two that it needs, into .venv/node_modules.

npm fetches them by name, and none is unpacked unless it is, to the byte, what stands here. Nothing of theirs is run.
"""

import base64
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path

NODE_MODULES = Path(__file__).parents[3] / ".venv/node_modules"
# Each with its version and with what `npm view <name>@<version> dist.integrity` says of it.
PACKAGES = {
    "@stablelib/base64": (
        "1.0.1",
        "sha512-1bnPQqSxSuc3Ii6MhBysoWCg58j97aUjuCSZrGSmDxNqtytIi0k8utUenAwTZN4V5mXXYGsVUI9zeBqy+jBOSQ==",
    ),
    "fast-sha256": (
        "1.3.0",
        "sha512-n11RGP/lrWEFI/bWdygLxhI+pVeo1ZYIVwvvPkW7azl/rOy+F3HYRZ2K5zeE9mmkhQppyv9sQFx0JM9UabnpPQ==",
    ),
    "standardwebhooks": (
        "1.1.1",
        "sha512-bCbX9ZEyFkWPsRz7Bl3NuQUJohmwGSev/yhr7vhaGPlc4AfIrspIRa6cPTBuI1ItmrTDJ4d/S2hCsfe4+vQGnQ==",
    ),
}


def main() -> None:
    missing = [name for name, (version, _) in PACKAGES.items() if _present(name) != version]
    try:
        for name in missing:
            _fetch(name)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"Tests that need the npm package standardwebhooks will fail: {error}\n")


def _present(name: str) -> str | None:
    with suppress(OSError, ValueError):
        return json.loads((NODE_MODULES / name / "package.json").read_text())["version"]
    return None


def _fetch(name: str) -> None:
    version, integrity = PACKAGES[name]
    with tempfile.TemporaryDirectory() as scratch:
        # It is asked from an empty directory, so that no project's settings count.
        command = ["npm", "pack", "--silent", f"{name}@{version}"]
        subprocess.run(command, cwd=scratch, check=True, capture_output=True, timeout=120)
        (packed,) = Path(scratch).glob("*.tgz")
        digest = base64.b64encode(hashlib.sha512(packed.read_bytes()).digest()).decode()
        if f"sha512-{digest}" != integrity:
            raise ValueError(f"{name} {version} is not what it was when it was chosen")
        with tarfile.open(packed) as archive:
            archive.extractall(scratch, filter="data")
        shutil.rmtree(NODE_MODULES / name, ignore_errors=True)
        shutil.copytree(Path(scratch) / "package", NODE_MODULES / name)


if __name__ == "__main__":
    main()
