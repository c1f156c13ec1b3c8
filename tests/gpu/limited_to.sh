# shellcheck shell=bash
limited_to() {  # GIB command: libtorch may use GIB of the GPU's memory; expandable segments are the program's own setting
  local share
  share=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | awk -v gib="$1" 'NR == 1 { print gib * 1024 / $1 < 1 ? gib * 1024 / $1 : 1 }')
  shift
  PYTORCH_ALLOC_CONF=expandable_segments:True,per_process_memory_fraction:$share "$@"
}
