# shellcheck shell=bash
# limited_to GIB command: runs the command, in which libtorch may use at most GIB GiB of the GPU's memory. Sets expandable segments, too, because the program
# sets them only if PYTORCH_ALLOC_CONF is unset.
limited_to() {
  local share
  share=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | awk -v gib="$1" 'NR == 1 { print gib * 1024 / $1 < 1 ? gib * 1024 / $1 : 1 }')
  shift
  PYTORCH_ALLOC_CONF=expandable_segments:True,per_process_memory_fraction:$share "$@"
}
