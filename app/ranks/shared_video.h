// What rank 0 tells the others of a model and of a video to be made of it, and what they make of that.
#pragma once

#include <exception>

#include "app/job/video.h"
#include "app/ranks/world.h"

namespace sparsereel::app {

/// By rank 0: the others open the model and begin to load it, while texts are encoded here. `threads`: of each rank on
/// a CPU.
void tell_model(World& world, const GenerateOptions& options, int threads);
/// By rank 0, before Pipeline::generate() with these inputs; `run` is what that gets. Where the inputs go on from a
/// state, the video's checkpoint has it.
void tell_video(World& world, const Video& video, const models::Inputs& inputs, const models::Run& run);

/// `run` of rank 0 as one over the ranks: its group, and the question after each wait whether all are still there.
void make_over_ranks(models::Run& run, World& world);

/// Another rank's life: makes what rank 0 tells until that says that it was all. Returns the exit code. `failure`: what
/// has kept it from that, for rank 0 to hear.
int follow(World& world, std::exception_ptr failure = nullptr);

}  // namespace sparsereel::app
