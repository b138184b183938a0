// Reads and writes the lease and control/, by which the worker tells supervisor and ranks what to
// do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker/run_dir/paths.h"

namespace trainyard::run_dir {

// The time until which the ranks may run, as time since boot (Clock::Uptime). Zero means no limit.
struct Lease {
  absl::Duration expire_uptime;

  bool unlimited() const { return expire_uptime == absl::ZeroDuration(); }
  bool ExpiredAt(absl::Duration uptime) const { return !unlimited() && uptime >= expire_uptime; }
  friend bool operator==(const Lease&, const Lease&) = default;
};

std::string EncodeLease(const Lease& lease);
absl::StatusOr<Lease> DecodeLease(absl::string_view text, absl::string_view file);
// Writes the lease without fsync: after a power loss the boot has ended, and every lease with it.
absl::Status WriteLease(const RunDir& dir, const Lease& lease);
// Reads the lease. There is no limit if the file does not exist, as when a trainer is run by hand.
absl::StatusOr<Lease> ReadLease(const RunDir& dir);

// Returns the number of the newest request for a checkpoint, or 0 if none was
// made.
absl::StatusOr<int64_t> ReadCheckpointRequest(const RunDir& dir);
// Makes a request. Numbers grow, and a trainer ignores one that it has answered. It is written
// without fsync, since after a power loss nobody is left to answer it.
absl::Status RequestCheckpoint(const RunDir& dir, int64_t number);

// The worker's own reason for a stop: a device has failed under its rank, and the attempt with it.
inline constexpr char kStopDeviceLost[] = "device_lost";
// The reason with which such an attempt fails, of the class `hardware`.
inline constexpr char kReasonDeviceLost[] = "DEVICE_LOST";

// A request to stop the ranks: SIGTERM, `grace`, SIGKILL.
struct StopRequest {
  std::string reason = {};  // cancelled, preempted, suspended, drained
  absl::Duration grace = absl::Seconds(10);
  // For kStopDeviceLost: what is wrong with the device, and which rank has it.
  std::string message = {};
  int rank = 0;

  friend bool operator==(const StopRequest&, const StopRequest&) = default;
};

std::string EncodeStopRequest(const StopRequest& request);
absl::StatusOr<StopRequest> DecodeStopRequest(absl::string_view text, absl::string_view file);
// Makes a request, which replaces an earlier one: a later one may shorten the grace.
absl::Status RequestStop(const RunDir& dir, const StopRequest& request);
// Returns nothing if no request was made.
absl::StatusOr<std::optional<StopRequest>> ReadStopRequest(const RunDir& dir);

}  // namespace trainyard::run_dir
