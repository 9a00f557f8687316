#!/usr/bin/env bash
# Everything that only a CUDA machine can tell, in at most 8 minutes, into one JSON.
#
#   scripts/gpu_check.sh [OUTPUT.json]
#
# PYTHON names the interpreter (default .venv/bin/python, else python3); it needs torch with CUDA,
# triton, and this repository installed or on the path. tinycudann is compared where it is installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python="${PYTHON:-.venv/bin/python}"
[ -x "$(command -v "$python")" ] || python=python3
unset TRITON_INTERPRET  # kernels are compiled here, not interpreted
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"

exec timeout 480 "$python" -m benchmarks.gpu_check --output "${1:-gpu_check.json}" --seconds 450
