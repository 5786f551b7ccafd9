"""What `make` does before anything of ours runs: the virtual environment and the servers of the tests."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# `python -c CODE` as another Python would execute it
OLD_PYTHON = f"""#!/bin/sh
exec {sys.executable} -c 'import sys; sys.version_info = (3, MINOR, 18); exec(sys.argv[2])' "$@"
"""
PYTHON_WITHOUT_VENV = f"""#!/bin/sh
[ "$1" = -m ] || exec {sys.executable} "$@"
mkdir -p "$3/bin" && ln -s {sys.executable} "$3/bin/python"
echo "ensurepip is not available"
exit 1
"""
# A virtual environment whose pip only says what it would do, for 25 packages
PYTHON_WITH_SLOW_PIP = f"""#!/bin/sh
[ "$1" = -m ] || exec {sys.executable} "$@"
mkdir -p "$3/bin" && ln -s {sys.executable} "$3/bin/python"
cat > "$3/bin/pip" <<'PIP'
#!/bin/sh
case "$*" in *--quiet*) exit 0 ;; esac
for number in $(seq 25); do echo "Collecting package-$number==1.0"; echo "  Downloading package-$number.whl"; done
echo "Installing collected packages: package-1"
PIP
chmod +x "$3/bin/pip"
"""
# It fails as often as the file says, and notes what it was asked.
APT_GET = """#!/bin/sh
echo "$@" >> "$SERVICES_DIR/asked"
case "$*" in *update*) exit 0 ;; esac
left=$(cat "$SERVICES_DIR/failures")
[ "$left" -gt 0 ] || exit 0
echo $((left - 1)) > "$SERVICES_DIR/failures"
echo "dpkg-deb: error: failed to read archive"
exit 1
"""


def make_runtime(folder: Path, python: str) -> subprocess.CompletedProcess[str]:
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, folder)
    command(folder / "python", python)
    asked = ["make", ".venv/runtime", f"PYTHON={folder}/python"]
    # the variables of a make that runs the tests would make this one talk of folders
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(asked, cwd=folder, env=variables, capture_output=True, text=True)


def command(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.mark.parametrize("minor", [9, 10])
def test_another_python_is_one_line_and_no_wall_of_pip(tmp_path: Path, minor: int) -> None:
    done = make_runtime(tmp_path, OLD_PYTHON.replace("MINOR", str(minor)))
    assert done.returncode == 2
    first, *rest = done.stderr.splitlines()
    assert first == f"expected Python 3.11 or later, got 3.{minor}; name another: make .venv/runtime PYTHON=python3.11"
    assert len(rest) == 1, "make's own line"
    assert done.stdout == ""
    assert not (tmp_path / ".venv").exists()


def test_a_virtual_environment_that_cannot_be_created_leaves_nothing_that_breaks_the_next_attempt(
    tmp_path: Path,
) -> None:
    (tmp_path / ".venv" / "bin").mkdir(parents=True)  # as a former attempt left it
    done = make_runtime(tmp_path, PYTHON_WITHOUT_VENV)
    assert done.returncode == 2
    assert "cannot create a virtual environment; on Debian: apt install python3-venv" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_the_minutes_of_an_install_show_how_far_it_is(tmp_path: Path) -> None:
    for package in ("platform_defs", "assets", "sensors", "resources"):
        (tmp_path / package).mkdir()
    done = make_runtime(tmp_path, PYTHON_WITH_SLOW_PIP)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "installing the packages of requirements.lock, once; this takes a minute or two",
        "  10 packages",
        "  20 packages",
        "  unpacking 25 packages",
    ]


def apt_install(folder: Path, failures: int) -> subprocess.CompletedProcess[str]:
    (folder / "failures").write_text(str(failures))
    (folder / "bin").mkdir()
    command(folder / "bin" / "apt-get", APT_GET)
    command(folder / "bin" / "id", "#!/bin/sh\n[ $1 = -u ] && echo 0 || echo root\n")
    variables = os.environ | {"SERVICES_DIR": str(folder), "PATH": f"{folder}/bin:{os.environ['PATH']}"}
    script = f". {ROOT}/tests/servers/lib.sh; apt_install mariadb-server-core"
    return subprocess.run(["bash", "-euc", script], env=variables, capture_output=True, text=True)


def test_a_download_that_is_damaged_once_is_tried_again(tmp_path: Path) -> None:
    done = apt_install(tmp_path, failures=1)
    assert done.returncode == 0, done.stderr
    assert "apt-get failed (dpkg-deb: error: failed to read archive); trying again" in done.stderr
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line.endswith("mariadb-server-core") for line in asked] == [False, True, True]
    # not the machine's folder, which another `apt-get update` may empty meanwhile
    assert all(f"Dir::Cache::Archives={tmp_path}/apt-archives" in line for line in asked[1:])


def test_a_download_that_stays_damaged_is_given_up_with_its_reason(tmp_path: Path) -> None:
    done = apt_install(tmp_path, failures=9)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "dpkg-deb: error: failed to read archive"
    assert len((tmp_path / "asked").read_text().splitlines()) == 4
