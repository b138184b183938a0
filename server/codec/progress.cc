// Packs reports of progress for their way through the core and the store, and unpacks them.
#include "server/codec/progress.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "server/codec/time.h"

namespace trainyard::codec {
namespace {

constexpr int64_t kEtaSecondsMax = int64_t{100} * 365 * 86'400;

int64_t EtaOf(const v1::Progress& report) {
  const google::protobuf::Duration& eta = report.eta();
  if (eta.seconds() < 0 || eta.seconds() > kEtaSecondsMax) return 0;
  return FromDuration(eta);
}

}  // namespace

core::Progress EncodeProgress(v1::Progress report) {
  core::Progress progress;
  progress.step = report.step();
  progress.eta_us = EtaOf(report);
  progress.disk_full = report.disk_full();
  report.clear_checkpoint_step();
  report.clear_eta();
  if (progress.eta_us > 0) *report.mutable_eta() = ToDuration(progress.eta_us);
  if (report.hosting().empty()) report.clear_hosting_reason();
  report.DiscardUnknownFields();
  std::string bytes = report.SerializeAsString();
  if (!bytes.empty()) progress.report = std::make_shared<const std::string>(std::move(bytes));
  return progress;
}

v1::Progress DecodeProgress(const core::Progress& progress) {
  v1::Progress report;
  // Bytes that cannot be read count as no report, because no decision depends on them.
  if (progress.report != nullptr && !report.ParseFromString(*progress.report)) report.Clear();
  return report;
}

core::Progress ProgressOf(std::string report) {
  if (report.empty()) return {};
  core::Progress progress;
  progress.report = std::make_shared<const std::string>(std::move(report));
  const v1::Progress decoded = DecodeProgress(progress);
  progress.step = decoded.step();
  progress.eta_us = EtaOf(decoded);
  progress.disk_full = decoded.disk_full();
  return progress;
}

v1::DeviceUsage DecodeUsage(absl::string_view usage) {
  v1::DeviceUsage decoded;
  if (!decoded.ParseFromArray(usage.data(), static_cast<int>(usage.size()))) decoded.Clear();
  return decoded;
}

}  // namespace trainyard::codec
