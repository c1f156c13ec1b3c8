// Checks, then the text stage; see whole_videos.h.
#include "app/measure/whole_videos.h"

#include <ATen/ATen.h>

#include "attention/attention.h"
#include "hilbert/error.h"
#include "models/request.h"

namespace sparsereel::app {

void check_sparse_runs(const models::Pipeline& pipeline) {
  const std::string reason =
      attention::unsupported_reason(attention::Mode::sparse, pipeline.device(), pipeline.dtype());
  if (!reason.empty())
    throw bad_input("sparse attention cannot run on " + pipeline.device().str() + ": " + reason,
                    "choose another --dtype or --device");
}

std::vector<at::Tensor> encode_texts(models::Pipeline& pipeline, const std::vector<models::GenerateRequest>& requests,
                                     RunProgress& progress, const std::function<void(int64_t done)>& before) {
  progress.stage("text");
  if (!pipeline.streams_text_encoder()) pipeline.load_text_encoder();
  std::vector<at::Tensor> texts;
  for (const models::GenerateRequest& request : requests) {
    before(static_cast<int64_t>(texts.size()));
    texts.push_back(pipeline.encode_text(request, models::resolve_request(request, pipeline.spec())).to(at::kCPU));
  }
  pipeline.release_text_encoder();
  progress.stage("load transformer");
  pipeline.load_transformer();
  return texts;
}

}  // namespace sparsereel::app
