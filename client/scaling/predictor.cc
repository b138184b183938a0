// Implements the model of docs/cli.md: the computation is divided among the devices, and
// communication hides behind the backward pass.
#include "client/scaling/predictor.h"

#include <algorithm>

namespace trainyard::scaling {
namespace {

// Backward computes two matrix products for each one of forward.
constexpr double kBackwardShare = 2.0 / 3.0;

// Returns how many bytes a device sends for one byte of gradients.
double SentShare(int devices) {
  return 2.0 * (devices - 1) / devices;
}

}  // namespace

std::optional<Costs> CostsOf(const std::vector<Measurement>& measured, int replicas) {
  const Measurement* one = nullptr;
  const Measurement* several = nullptr;
  for (const Measurement& point : measured) {
    if (point.devices == 1) one = &point;
    const bool has_line = point.devices > 1 && point.comm_bytes > 0 && point.link_bytes_per_s > 0;
    if (has_line && (several == nullptr || point.devices < several->devices)) several = &point;
  }
  if (one == nullptr || one->step_seconds <= 0) return std::nullopt;
  Costs costs;
  costs.replicas = replicas;
  const bool is_split = one->compute_seconds > 0 && one->compute_seconds <= one->step_seconds;
  costs.compute_seconds = is_split ? one->compute_seconds : one->step_seconds;
  costs.fixed_seconds = one->step_seconds - costs.compute_seconds;
  if (several != nullptr) {
    costs.gradient_bytes = several->comm_bytes / SentShare(several->devices);
    costs.link_bytes_per_s = several->link_bytes_per_s;
    // The time that ranks waited beyond the time that the bytes take.
    if (const auto bytes_alone = Predict(costs, several->devices)) {
      const double waited = several->exposed_seconds - bytes_alone->exposed_seconds;
      costs.wait_share = std::max(0.0, waited) / bytes_alone->compute_seconds;
    }
  }
  return costs;
}

std::optional<Prediction> Predict(const Costs& costs, int devices) {
  if (devices < 1 || devices > costs.replicas) return std::nullopt;
  Prediction prediction;
  prediction.devices = devices;
  const int most = (costs.replicas + devices - 1) / devices;
  prediction.compute_seconds = costs.compute_seconds * most / costs.replicas;
  if (devices > 1 && costs.link_bytes_per_s > 0) {
    prediction.comm_seconds = SentShare(devices) * costs.gradient_bytes / costs.link_bytes_per_s;
    prediction.exposed_seconds =
        std::max(costs.wait_share * prediction.compute_seconds,
                 prediction.comm_seconds - kBackwardShare * prediction.compute_seconds);
  }
  prediction.step_seconds =
      costs.fixed_seconds + prediction.compute_seconds + prediction.exposed_seconds;
  return prediction;
}

}  // namespace trainyard::scaling
