#!/usr/bin/env bash
# Trains one part of the small model on a GPU:
#   run_gpu.sh vae [SECONDS]           the VAE
#   run_gpu.sh stage N FROM [SECONDS]  stage N of the transformer, from the files in FROM (vae/ and, after stage 1, the weights of the stage before)
# SECONDS (default 540) includes loading and measuring. Results and a log are written into $OUT (default: work), in files below 16 MiB.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${OUT:-work}
export PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false
# NVLink multicast fails on some hosts.
export NCCL_NVLS_ENABLE=0
export PYTORCH_CUDA_ALLOC_CONF=${PYTORCH_CUDA_ALLOC_CONF:-expandable_segments:True}
# Keeps compiled kernels, so that the next run on this machine need not compile them.
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-/tmp/inductor-cache}
mkdir -p "$out"

run() {  # run SECONDS NAME COMMAND...: runs a command that limits its own time; stops it if it exceeds SECONDS by far
  local seconds=$1 name=$2
  shift 2
  timeout --signal=INT --kill-after=10 "$((seconds + 25))" "$@" 2>&1 | tee "$out/$name.log"
}

phase=${1:?vae or stage}
case $phase in
  vae) run "${2:-540}" vae python3 "$here/train_vae.py" --seconds "${2:-540}" --out "$out" "${@:3}" ;;
  stage) run "${4:-540}" "stage$2" python3 "$here/train.py" --stage "$2" --from "${3:?folder}" --seconds "${4:-540}" --out "$out" "${@:5}" ;;
  *) sed -n '2,5p' "$0" >&2; exit 2 ;;
esac
find "$out" -type f -size +16M -print | sed 's/^/above 16 MiB: /'
ls -l "$out" "$out"/*/ 2> /dev/null || true
