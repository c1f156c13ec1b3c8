// Lists all published families.
#include "models/families/cogvideox/family.h"
#include "models/families/minimax_h3/family.h"
#include "models/families/mochi/family.h"
#include "models/families/open_sora_plan/family.h"
#include "models/families/wan/family.h"

namespace sparsereel::models {

std::vector<Family> published_families() {
  return {cogvideox_family(), minimax_h3_family(), mochi_family(), open_sora_plan_family(), wan_family()};
}

}  // namespace sparsereel::models
