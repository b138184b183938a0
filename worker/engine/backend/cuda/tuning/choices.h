// Carries the choices that a rank has measured to other ranks with a device of the same type.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::engine::cuda {

struct Choices {
  std::vector<std::string> plans;       // of cuDNN, each as dnn::Planner writes it
  std::map<std::string, int> products;  // of cuBLASLt, as blas::MatmulPlanner counts them
};

// Returns JSON with the fields `plans` and `products`.
std::string EncodeChoices(const Choices& choices);
// Returns INVALID_ARGUMENT for any other text.
absl::StatusOr<Choices> DecodeChoices(absl::string_view text);

}  // namespace trainyard::engine::cuda
