// What rank 0 tells the others of a model and of a video to be made of it, and what they make of that.
#pragma once

#include <exception>

#include "app/jobs/video.h"
#include "app/ranks/world.h"
#include "models/request/outcome.h"
#include "models/request/run.h"

namespace sparsereel::app {

/// By rank 0: the others open the model and begin to load it, while texts are encoded here, and all make the group.
/// `threads`: of each rank on a CPU.
void tell_model(World& world, const GenerateOptions& options, int threads);
/// By rank 0: Pipeline::generate(), by all ranks. Where the inputs go on from a state, the video's checkpoint has it.
/// What this throws ends the world, but where all are cancelled.
models::Outcome generate_over_ranks(World& world, models::Pipeline& pipeline, const Video& video,
                                    const models::Inputs& inputs, const models::Run& run);

/// Another rank's life: makes what rank 0 tells until that says that it was all. Returns the exit code. `failure`: what
/// has kept it from that, for rank 0 to hear.
int follow(World& world, std::exception_ptr failure = nullptr);

}  // namespace sparsereel::app
