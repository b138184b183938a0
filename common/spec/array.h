// Makes the jobs of an array from their common spec.
#pragma once

#include <cstdint>

#include "trainyard/v1/spec.pb.h"

namespace trainyard::spec {

// The variable in which a program finds its place in an array, from 0.
inline constexpr char kArrayIndexVariable[] = "TRAINYARD_ARRAY_INDEX";

// Returns the spec of the element `index` of an array of `resolved`. Its name is NAME-{index}, and
// its seed is larger by `index`, so that no two elements train alike.
v1::JobSpec ArrayElement(const v1::JobSpec& resolved, int32_t index);

}  // namespace trainyard::spec
