"""The wheel contains everything that the service needs at run time."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("web", "workers", "shared", "deploy")
# Only a checkout has these.
LEFT_OUT = {".md", ".txt", ".yaml", ".yml", ".conf", ".dockerignore", ".example", ".pyc"}


def test_the_wheel_holds_every_file_of_the_packages(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", source)
    if (ROOT / "README.md").exists():
        shutil.copy(ROOT / "README.md", source)
    expected = {
        str(path.relative_to(source))
        for name in PACKAGES
        for path in (source / name).rglob("*")
        if path.is_file() and path.suffix not in LEFT_OUT and path.suffix
    }
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(tmp_path), str(source)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("quartermaster-*.whl")
    assert expected <= set(zipfile.ZipFile(wheel).namelist())
