// Defines a provider as an operator described it, and the names of its pilots. A provider is a
// cluster of somebody else that Trainyard asks for workers; a pilot is what one request gives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainyard::provision {

inline constexpr int64_t kSecondUs = 1'000'000;
inline constexpr int64_t kMinuteUs = 60 * kSecondUs;
inline constexpr int64_t kHourUs = 60 * kMinuteUs;

enum class ProviderKind { kSlurm, kKubernetes };

// The resources of one node of a pilot. They are declared, so nothing has to be guessed before the
// first worker of the provider has connected.
struct PilotResources {
  int32_t devices = 1;
  std::string device_type = "cpu";
  int32_t cpus = 1;
  int64_t memory_bytes = 0;  // 0: whatever the provider gives by default

  friend bool operator==(const PilotResources&, const PilotResources&) = default;
};

// A provider as it was asked for.
struct ProviderSpec {
  std::string name;  // [a-z0-9-], at most kProviderNameBytesMax
  ProviderKind kind = ProviderKind::kSlurm;
  std::string owner;  // the user whose jobs its workers may run; empty for everybody's
  PilotResources node;
  int32_t nodes = 1;  // of one pilot; each of them runs one worker
  int64_t time_limit_us = 8 * kHourUs;
  int32_t min_pilots = 0;
  int32_t max_pilots = 1;
  // The most pilots that wait in the provider's own queue at a time.
  int32_t backlog = 1;
  // A pilot without work ends after this time, and so does a request that nobody needs any more.
  int64_t idle_us = 5 * kMinuteUs;
  // At most one pilot is asked for in this time.
  int64_t submit_interval_us = 10 * kSecondUs;
  // The workers of a pilot have this long to connect once its allocation has begun.
  int64_t start_timeout_us = 10 * kMinuteUs;
  // If a pilot has waited this long at the provider, the demand may go to another provider too.
  int64_t overflow_us = 10 * kMinuteUs;
  // Providers of a lower preference are asked first; of equal ones the cheaper, by the hour.
  int32_t preference = 0;
  double cost_per_hour = 0;
  // The data sets that its workers find. Empty: nobody has said, and any job may get a pilot.
  std::vector<std::string> datasets = {};

  friend bool operator==(const ProviderSpec&, const ProviderSpec&) = default;
};

inline constexpr size_t kProviderNameBytesMax = 24;
inline constexpr size_t kServerIdBytesMax = 12;
// A person pays for pilots, so a slip of the keyboard must not ask for a million.
inline constexpr int32_t kPilotsMax = 1000;
inline constexpr int32_t kNodesMax = 1000;
inline constexpr size_t kDatasetsMax = 200;

// Returns OK, or INVALID_ARGUMENT (INVALID_SPEC) with all violations.
absl::Status CheckProviderSpec(const ProviderSpec& spec);
// Returns true for [a-z0-9]+ of at most kServerIdBytesMax characters. There is no dash in it, so
// that the names of pilots can be taken apart.
bool IsServerId(absl::string_view text);

// Returns `ty-<server id>-<provider>-<number>`.
std::string PilotName(absl::string_view server_id, absl::string_view provider, int64_t number);
// Returns the number in a name of that server and provider, or nothing if it is another name.
std::optional<int64_t> PilotNumber(absl::string_view server_id, absl::string_view provider,
                                   absl::string_view name);
// Returns the name of the worker on a node of a pilot, which is the pilot's own for a single node,
// and else `<pilot>-n<node>`.
std::string PilotWorkerName(absl::string_view pilot, int32_t nodes, int32_t node);
// Returns the pilot's part of the name of a worker.
absl::string_view PilotOfWorker(absl::string_view worker);

}  // namespace trainyard::provision

namespace trainyard::error {

// PROVIDER_REFUSES: the message has the provider's reason; change what the provider asks for.
absl::Status ProviderRefuses(const std::string& provider, const std::string& reason);

}  // namespace trainyard::error
