#!/usr/bin/env bash
# Tests and measures arrays on the GPU of this machine, which needs no network:
#
#     benches/gpu/device.sh WHEEL RESULTS
#
# WHEEL is what `make wheel` built, on any machine (Python 3.11 or newer). CuPy, NumPy, PyArrow,
# pytest and rich are those of `python3`; wheels of packages that it lacks may lie beside WHEEL.
# RESULTS gets one log and one JSON file of figures. On an H200 it takes five minutes.
set -euo pipefail
wheel=$(realpath "$1")
results=$(mkdir -p "$2" && realpath "$2")
cd "$(dirname "$0")/../.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
exec > >(tee "$results/device.log") 2>&1

run() { # SECONDS COMMAND...: later steps run also where one fails
    echo "==> $(date -u +%H:%M:%S) ${*:2}"
    timeout "$@" || echo "==> failed: exit status $?"
}

missing=()
for package in pytest pytest-timeout pytest-xdist hypothesis rich; do
    python3 -m pip show --quiet "$package" 2>/dev/null || missing+=("$package")
done
python3 -m pip install --quiet --no-index --find-links "$(dirname "$wheel")" \
    --target "$work/packages" "$wheel" "${missing[@]}"
export PYTHONPATH=$work/packages PYTHONUNBUFFERED=1 TMPDIR=$work

nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.memory --format=csv,noheader
run 60 python3 -c 'import sys, cupy, numpy, pyarrow
print("Python", sys.version.split()[0], "NumPy", numpy.__version__, "PyArrow", pyarrow.__version__)
cupy.show_config()'

# The slowest last: its processes each bring up CUDA.
tests=(array_states chunk_reuse device_kernels device_state device_streams device_memory
    device_processes)
tests=("${tests[@]/#/tests/gpu/test_}")
run 150 python3 -m pytest -p no:cacheprovider --numprocesses=4 --durations=10 -q -rfE \
    "${tests[@]/%/.py}"

touch "$work/begun"
run 270 python3 benches/run.py gpu --rounds 2 --folder "$work"
find benches/results -name 'gpu-state-*.json' -newer "$work/begun" -exec cp {} "$results/gpu.json" \;
