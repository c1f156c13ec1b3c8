#!/usr/bin/env bash
# Trains a LoRA for the tiny model on a GPU:
#   run_gpu.sh distill|image [SECONDS] [OPTIONS of distill.py or image.py]
# SECONDS (default 560) includes loading and judging. Results and a log are written into $OUT (default: work), in files below 16 MiB.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${OUT:-work}
script=${1:?give distill or image}
seconds=${2:-560}
export PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false
export PYTORCH_CUDA_ALLOC_CONF=${PYTORCH_CUDA_ALLOC_CONF:-expandable_segments:True}
# Keeps compiled kernels, so that the next run on this machine need not compile them.
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-/tmp/inductor-cache}
mkdir -p "$out"
timeout --signal=INT --kill-after=5 "$((seconds + 20))" python3 "$here/$script.py" --seconds "$seconds" --out "$out" "${@:3}" 2>&1 | tee "$out/$script.log"
ls -l "$out"
