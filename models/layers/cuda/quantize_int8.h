// Does quantize_rows()'s work if the result is int8. No torch, no CUDA header.
#pragma once

#include "models/layers/cuda/launch.h"

namespace sparsereel::models::cuda {

const char* quantize_rows_to_int8(const QuantizeRows& p, Stream stream);

}  // namespace sparsereel::models::cuda
