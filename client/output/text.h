// Turns the values of the API into words.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"
#include "trainyard/v1/fleet.pb.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::output {

// Returns a name such as "RUNNING".
std::string StateText(v1::JobState state);
std::string StateText(v1::AttemptState state);
std::string StateText(v1::WorkerState state);
// Returns true if the worker should have reported long ago, though its lease lasts. The server
// gives all workers time to come back when it starts.
bool IsSilent(const v1::Worker& worker, absl::Time now);
std::string SchedulingText(v1::WorkerScheduling scheduling);
std::string HealthText(v1::DeviceHealth health);
std::string FailureClassText(v1::FailureClass failure_class);
// Returns "bf16", as a spec has it, or an empty text if there is none.
std::string PrecisionText(v1::Precision precision);
// Returns the ANSI style of a state: green while it runs or if it succeeded, red if it failed.
absl::string_view StateStyle(v1::JobState state);

bool IsFinal(v1::JobState state);
// Returns true if the server has suspended the job because of a failure, until a person decides.
bool IsHeld(const v1::Job& job);
// Returns what to say in place of logs or metrics that were deleted, or an empty text if this part
// of the job was not.
std::string DeletedText(const v1::Job& job, v1::JobPart part);
// Returns the sum of checkpoints, logs and metrics.
int64_t TotalBytes(const v1::StoredBytes& stored);
// Returns true if nothing more happens to the job by itself: it is final, or held.
bool HasEnded(const v1::Job& job);
// Returns "8 cpus, 64 GiB", without the parts that are 0.
std::string HostAmountText(int64_t cpus, int64_t memory_bytes);
// Returns the device of a rank or, if it has none, what it holds of its host.
std::string RankPlaceText(const v1::RankPlacement& rank);
// Returns the devices that a job asks for: "4", or "2-8" if it is elastic.
std::string DevicesText(const v1::JobSpec& resolved);
// Returns `line` cut to `width` columns, with its colours ended.
std::string Fitted(absl::string_view line, int width);
// Returns at most `width` columns of the text. A longer text is cut and ends with "...".
std::string Shortened(absl::string_view text, int width);

// Returns an age in one unit, for columns: "12s", "5m", "3h", "2d".
std::string AgeText(absl::Duration age);
// Returns a time to come in the same form. An age is cut, and this is rounded: what was to last 90
// days has "90d" left right after its begin.
std::string TimeLeftText(absl::Duration left);
// Returns a time in the local time zone, which it names: "2026-11-20 22:57:55 CET". Returns an
// empty text if it is unset.
std::string TimeText(const google::protobuf::Timestamp& time);
absl::Time ToTime(const google::protobuf::Timestamp& time);
absl::Duration ToDuration(const google::protobuf::Duration& duration);

// Returns a number with four significant digits: "0.4313", "12.5", "1.2e-05", "nan".
std::string NumberText(double value);
// Returns a percentage such as "86.2%".
std::string PercentText(double fraction);
// Returns a time such as "1.24 ms", "530 us" or "12.5 s".
std::string SecondsText(double seconds);
// Returns a rate such as "5,412".
std::string RateText(double per_second);

// Returns "12" for "jobs/12" or "sweeps/12", and other names unchanged.
std::string ShortName(absl::string_view name);

// Returns text as it stands between the tags of XML, and in its attributes.
std::string XmlEscaped(absl::string_view text);

}  // namespace trainyard::output
