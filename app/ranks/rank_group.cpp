// Makes the group in a thread and hands it out when it is ready.
#include "app/ranks/rank_group.h"

#include <c10/core/InferenceMode.h>

#include "models/parallel/nccl_group.h"
#include "models/parallel/share.h"
#include "models/store/weights/device.h"

namespace sparsereel::app {

RankGroup::~RankGroup() {
  group_.reset();
  if (begun_.valid()) begun_.wait();
}

std::string RankGroup::new_id() const {
  const bool is_nccls = device_.starts_with("cuda") && !only_sockets_;
  return is_nccls && !begun_.valid() ? models::NcclGroup::new_id() : "";
}

void RankGroup::begin(const std::string& id, int64_t passes) {
  if (id.empty()) return;
  models::NcclGroup::set_environment();
  const auto make = [control = control_, device = models::resolve_device(device_), id, passes] {
    const c10::InferenceMode guard;
    auto group = models::NcclGroup::connect(control, device, id);
    group->prepare(models::splits_of_shares(control->size(), passes));
    return std::shared_ptr<models::Group>(std::move(group));
  };
  begun_ = std::async(std::launch::async, make).share();
}

models::Group& RankGroup::get() {
  if (!group_) {
    group_ = begun_.valid() ? begun_.get() : control_;
    if (meter_ != nullptr) group_ = std::make_shared<models::MeteredGroup>(std::move(group_), *meter_);
  }
  return *group_;
}

}  // namespace sparsereel::app
