// Checks what an operator says of a provider, and makes names.
#include "server/provision/core/provider.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/device_type.h"
#include "common/base/errors.h"
#include "common/base/strings.h"

namespace trainyard::provision {
namespace {

constexpr size_t kNumberDigitsMax = 12;
constexpr int64_t kTimeLimitUsMax = 366 * 24 * kHourUs;
constexpr double kCostPerHourMax = 1e9;
constexpr size_t kDatasetBytesMax = 200;
constexpr size_t kShownBytesMax = 64;

bool IsLowerOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool IsProviderName(absl::string_view name) {
  if (name.empty() || name.size() > kProviderNameBytesMax) return false;
  if (name.front() == '-' || name.back() == '-') return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return IsLowerOrDigit(c) || c == '-'; });
}

// Tells whether a data set may have this name, which may end with a folder: images:flowers/small.
bool IsDatasetName(absl::string_view name) {
  return !name.empty() && name.size() <= kDatasetBytesMax &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)); });
}

// Collects violations.
class Violations {
 public:
  void Range(const char* field, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return;
    Add(field, absl::StrCat(value, " is not in the range from ", least, " to ", most));
  }
  void Add(const char* field, std::string description) {
    all_.push_back({field, std::move(description)});
  }
  absl::Status Result() const { return all_.empty() ? absl::OkStatus() : InvalidFields(all_); }

 private:
  std::vector<FieldViolation> all_;
};

bool AreDigits(absl::string_view text) {
  return !text.empty() && text.size() <= kNumberDigitsMax &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

absl::Status CheckProviderSpec(const ProviderSpec& spec) {
  Violations violations;
  if (!IsProviderName(spec.name)) {
    violations.Add("name",
                   absl::StrCat("'", spec.name, "' is no name of a provider; use 1 to ",
                                kProviderNameBytesMax, " of [a-z0-9-], with no dash at its ends"));
  }
  // A pod has no accounts and may run the jobs of everybody. An allocation of Slurm is somebody's.
  if (spec.owner.empty() && spec.kind == ProviderKind::kSlurm) {
    violations.Add("owner", "is empty; name the user whose jobs may run");
  }
  if (!IsDeviceType(spec.node.device_type)) {
    violations.Add("node.device_type",
                   absl::StrCat("'", PlainText(spec.node.device_type, kShownBytesMax),
                                "' is no device type, such as cpu or h200"));
  }
  violations.Range("node.devices", spec.node.devices, 1, 1024);
  violations.Range("node.cpus", spec.node.cpus, 1, 1 << 16);
  violations.Range("node.memory_bytes", spec.node.memory_bytes, 0, int64_t{1} << 50);
  violations.Range("nodes", spec.nodes, 1, kNodesMax);
  violations.Range("time_limit_us", spec.time_limit_us, kMinuteUs, kTimeLimitUsMax);
  violations.Range("max_pilots", spec.max_pilots, 1, kPilotsMax);
  violations.Range("min_pilots", spec.min_pilots, 0, std::max(spec.max_pilots, 0));
  violations.Range("backlog", spec.backlog, 1, kPilotsMax);
  violations.Range("idle_us", spec.idle_us, 0, kTimeLimitUsMax);
  violations.Range("submit_interval_us", spec.submit_interval_us, 0, 24 * kHourUs);
  violations.Range("start_timeout_us", spec.start_timeout_us, kSecondUs, 24 * kHourUs);
  violations.Range("overflow_us", spec.overflow_us, 0, kTimeLimitUsMax);
  // A comparison with what is no number is false.
  if (!(spec.cost_per_hour >= 0 && spec.cost_per_hour <= kCostPerHourMax)) {
    violations.Add("cost_per_hour",
                   absl::StrCat("is no number from 0 to ", static_cast<int64_t>(kCostPerHourMax)));
  }
  if (spec.datasets.size() > kDatasetsMax) {
    violations.Add("datasets", absl::StrCat("has ", spec.datasets.size(), " names; at most ",
                                            kDatasetsMax, " are accepted"));
  }
  for (const std::string& name : spec.datasets) {
    if (IsDatasetName(name)) continue;
    violations.Add("datasets", absl::StrCat("'", PlainText(name, kShownBytesMax),
                                            "' is no name of a data set; `trainyard data ls` has "
                                            "those that workers find"));
    break;
  }
  return violations.Result();
}

bool IsServerId(absl::string_view text) {
  return !text.empty() && text.size() <= kServerIdBytesMax &&
         std::all_of(text.begin(), text.end(), IsLowerOrDigit);
}

std::string PilotName(absl::string_view server_id, absl::string_view provider, int64_t number) {
  return absl::StrCat("ty-", server_id, "-", provider, "-", number);
}

std::optional<int64_t> PilotNumber(absl::string_view server_id, absl::string_view provider,
                                   absl::string_view name) {
  const std::string prefix = absl::StrCat("ty-", server_id, "-", provider, "-");
  if (!absl::ConsumePrefix(&name, prefix) || !AreDigits(name)) return std::nullopt;
  int64_t number = 0;
  if (!absl::SimpleAtoi(name, &number) || number < 1) return std::nullopt;
  // Only the form that PilotName writes is a name of ours.
  if (absl::StrCat(number) != name) return std::nullopt;
  return number;
}

std::string PilotWorkerName(absl::string_view pilot, int32_t nodes, int32_t node) {
  return nodes == 1 ? std::string(pilot) : absl::StrCat(pilot, "-n", node);
}

absl::string_view PilotOfWorker(absl::string_view worker) {
  const size_t dash = worker.rfind('-');
  if (dash == absl::string_view::npos) return worker;
  absl::string_view suffix = worker.substr(dash + 1);
  return absl::ConsumePrefix(&suffix, "n") && AreDigits(suffix) ? worker.substr(0, dash) : worker;
}

}  // namespace trainyard::provision

namespace trainyard::error {

absl::Status ProviderRefuses(const std::string& provider, const std::string& reason) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "PROVIDER_REFUSES",
                   absl::StrCat("provider '", provider, "' refuses such pilots: ", reason));
}

}  // namespace trainyard::error
