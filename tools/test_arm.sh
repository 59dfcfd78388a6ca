#!/usr/bin/env bash
# Run tests of the native kernels on an emulated ARM processor (NEON).
#
#   tools/test_arm.sh FOLDER [argument of pytest ...]
#
# Needs Debian 12 as root with the packages qemu-user-static, gcc-aarch64-linux-gnu, debootstrap and
# unzip, and 2 GB in FOLDER, where Python 3.11, torch and pytest for ARM are kept for the next call.
# Tests that start a program for ARM are left out. Emulated, everything takes about twenty times as
# long as on a processor.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
mkdir -p "$1"
folder="$(cd "$1" && pwd)"
shift
torch=torch==2.10.0 # its wheel for ARM comes without CUDA
tests=("$@")
if [ ${#tests[@]} = 0 ]; then
  programs="child or wheel or inside_its_memory or states_never_touch or address_sanitizer"
  tests=(tests/native tests/test_update.py tests/test_control.py
    tests/bench/models/test_native_eegnet.py -k "not ($programs)")
fi

if [ ! -e "$folder/ready" ]; then
  debootstrap --arch=arm64 --foreign --variant=minbase --include=python3.11 bookworm \
    "$folder/system"
  for package in "$folder"/system/var/cache/apt/archives/*.deb; do
    dpkg-deb --extract "$package" "$folder/system"
  done
  python3 -m pip download --quiet --dest "$folder/wheels" --only-binary=:all: \
    --python-version 3.11 --platform manylinux_2_28_aarch64 --platform manylinux_2_17_aarch64 \
    "$torch" numpy scipy matplotlib mne typer rich pydantic tomlkit \
    pytest pytest-timeout hypothesis filelock psutil
  for wheel in "$folder"/wheels/*.whl; do unzip -q -o "$wheel" -d "$folder/site"; done
  mkdir -p "$folder/bin"
  for name in cc gcc; do ln -sf "$(command -v aarch64-linux-gnu-gcc)" "$folder/bin/$name"; done
  touch "$folder/ready"
fi

rm -rf "$folder/tree"
mkdir "$folder/tree"
cd "$root"
cp -r src tests setup.py pyproject.toml "$folder/tree"
cd "$folder/tree"
find . -name '*.so' -delete
# Compiled with the flags of setup.py, under the names that Python on ARM looks for.
python3 - <<'PYTHON' | sh -ex
import runpy
from unittest.mock import patch

with patch("setuptools.setup") as setup:
    runpy.run_path("setup.py")
for extension in setup.call_args.kwargs["ext_modules"]:
    output = "src/" + extension.name.replace(".", "/") + ".cpython-311-aarch64-linux-gnu.so"
    words = [*extension.extra_compile_args, "-shared", "-fPIC", *extension.sources, "-lm"]
    print("aarch64-linux-gnu-gcc", *words, "-o", output)
PYTHON
export PATH="$folder/bin:$PATH" PYTHONPATH="$folder/tree/src:$folder/site"
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 QEMU_LD_PREFIX="$folder/system"
exec qemu-aarch64-static -L "$folder/system" "$folder/system/usr/bin/python3.11" \
  -m pytest -p no:cacheprovider --timeout 1800 "${tests[@]}"
