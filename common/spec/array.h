// Arrays: jobs that share one spec and differ by their index.
#pragma once

#include <cstdint>

#include "trainyard/v1/spec.pb.h"

namespace trainyard::spec {

// The spec that the element `index` of an array of `resolved` runs: its name is NAME-{index}, and
// its seed is `index` more, so that no two elements train alike.
v1::JobSpec ArrayElement(const v1::JobSpec& resolved, int32_t index);

}  // namespace trainyard::spec
