// A run observer whose events call functions that a test sets.
#pragma once

#include <functional>
#include <string>

#include "models/request/attention_run.h"
#include "models/request/denoising_state.h"
#include "models/request/frame_sink.h"
#include "models/request/run.h"

namespace sparsereel::test {

/// Passes each event of a run to the function of that event. Ignores the event if the function is not set.
struct CallbackObserver final : models::RunObserver {
  std::function<void(const std::string& name)> on_stage;
  std::function<void(const models::StepDone&)> on_step;
  std::function<void(const models::WithinStep&)> on_within_step;
  std::function<void(const models::PieceProgress&)> on_decoded;
  std::function<void(const models::AttentionCall&)> on_attention_call;
  std::function<void(const models::DenoisingState&)> on_checkpoint;
  std::function<void(const std::string& text)> on_warning;
  std::function<void()> on_others_released;
  models::FrameSink* sink = nullptr;

  void stage(const std::string& name) override { tell(on_stage, name); }
  void step(const models::StepDone& step) override { tell(on_step, step); }
  void within_step(const models::WithinStep& step) override { tell(on_within_step, step); }
  void decoded(const models::PieceProgress& pieces) override { tell(on_decoded, pieces); }
  bool wants_attention_calls() const override { return on_attention_call != nullptr; }
  void attention_call(const models::AttentionCall& call) override { tell(on_attention_call, call); }
  void checkpoint(const models::DenoisingState& state) override { tell(on_checkpoint, state); }
  void warning(const std::string& text) override { tell(on_warning, text); }
  void others_released() override { tell(on_others_released); }
  models::FrameSink* frames() override { return sink; }

 private:
  template <typename Function, typename... Event>
  static void tell(const Function& function, const Event&... event) {
    if (function) function(event...);
  }
};

}  // namespace sparsereel::test
