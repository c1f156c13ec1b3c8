# shellcheck shell=bash
limited_to() {  # GIB command: libtorch sees no more of the GPU's memory
  local share
  share=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | awk -v gib="$1" 'NR == 1 { print gib * 1024 / $1 < 1 ? gib * 1024 / $1 : 1 }')
  shift
  PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:$share "$@"
}
