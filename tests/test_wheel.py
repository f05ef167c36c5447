"""What is published: an sdist with what a build needs and nothing else, and a wheel that runs without a compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "faultlines"
# A Python without a global lock has no stable interface to build against.
TAG = (
    "cp311-abi3" if not sysconfig.get_config_var("Py_GIL_DISABLED") else f"cp{sys.version_info[0]}{sys.version_info[1]}"
)
SHIPPED = {".py", ".pyi", ".typed", ".html", ".css", ".js"}


@dataclass(frozen=True)
class Built:
    """An sdist and the wheel that was built from it."""

    sdist: Path
    wheel: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Both, from a copy of the tree with all that lies about in it: no test shall change what others import."""
    folder = tmp_path_factory.mktemp("wheel")
    left_out = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, folder / "tree", ignore=left_out)
    (folder / "tree" / "src" / "faultlines" / "core" / "kernels.c").write_text("#error left by a build\n")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(folder / "tree")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (sdist,), (wheel,) = ((folder / "dist").glob(kind) for kind in ("*.tar.gz", "*.whl"))
    return Built(sdist, wheel)


def shipped() -> set[str]:
    """Files of the package that users need, by their paths below `src`."""
    files = (path.relative_to(PACKAGE.parent) for path in PACKAGE.rglob("*") if path.suffix in SHIPPED)
    return {path.as_posix() for path in files}


def test_the_sdist_holds_what_a_build_needs_and_nothing_else(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        paths = (PurePosixPath(member.name) for member in archive.getmembers() if member.isfile())
        names = {str(PurePosixPath(*path.parts[1:])) for path in paths}
    generated = {
        name for name in names if name in {"PKG-INFO", "setup.cfg"} or name.startswith("src/faultlines.egg-info/")
    }
    expected = {"pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"}
    source = {f"src/{name}" for name in shipped()} | {"src/faultlines/core/kernels.pyx"}
    assert names - generated == expected | source


def test_the_wheel_holds_the_package_and_one_compiled_file(built: Built) -> None:
    assert f"-{TAG}" in built.wheel.name
    with zipfile.ZipFile(built.wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    compiled = names - shipped()
    assert shipped() <= names
    assert len(compiled) == 1, compiled
    assert compiled.pop().startswith("faultlines/core/kernels.")


def test_the_wheel_runs_where_there_is_no_compiler(built: Built, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    scripts = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin")
    # What faultlines depends on is lent by this environment: nothing is downloaded.
    (packages,) = (tmp_path / "env").rglob("site-packages")
    lent = [path for path in sys.path if path.rstrip("/").endswith("site-packages")]
    (packages / "lent.pth").write_text("\n".join(lent), encoding="utf-8")
    bare = {"PATH": str(scripts), "CC": "false", "CXX": "false", "HOME": str(tmp_path), "PYTHONUTF8": "1"}
    assert shutil.which("cc", path=bare["PATH"]) is None
    install = ["-m", "pip", "--python", str(scripts / "python"), "install", "--no-deps", "--no-index", "--quiet"]
    subprocess.run([sys.executable, *install, str(built.wheel)], check=True, env=bare, cwd=tmp_path)

    def run(*words: str) -> str:
        command = [str(scripts / words[0]), *words[1:]]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=bare, cwd=tmp_path, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    probe = "import faultlines.core.kernels as k, faultlines as fl; print(fl.__file__, k.__file__, sep='\\n')"
    for path in run("python", "-c", probe).splitlines():
        assert packages in Path(path).parents
    run("faultlines", "demo")
    result = json.loads((tmp_path / "faultlines-demo.json").read_text(encoding="utf-8"))
    assert (result["verdict"], result["n_clusters"]) == ("differ", 3)
    assert (tmp_path / "faultlines-demo.html").stat().st_size > 10_000
