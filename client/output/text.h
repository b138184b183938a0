// Words for the values of the API.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"
#include "trainyard/v1/fleet.pb.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::output {

// "RUNNING".
std::string StateText(v1::JobState state);
std::string StateText(v1::AttemptState state);
std::string StateText(v1::WorkerState state);
std::string SchedulingText(v1::WorkerScheduling scheduling);
std::string HealthText(v1::DeviceHealth health);
std::string FailureClassText(v1::FailureClass failure_class);
// The ANSI style of a state: green while it runs or where it succeeded, red where it failed.
absl::string_view StateStyle(v1::JobState state);

bool IsFinal(v1::JobState state);
// Suspended by the server because of a failure, until a person decides.
bool IsHeld(const v1::Job& job);
// Nothing more happens to it by itself: it is final, or held.
bool HasEnded(const v1::Job& job);
// The devices that a job asks for: "4", or "2-8" where it is elastic.
std::string DevicesText(const v1::JobSpec& resolved);
// At most `width` columns; what was longer ends with "...".
std::string Shortened(absl::string_view text, int width);

// One unit, for columns: "12s", "5m", "3h", "2d".
std::string AgeText(absl::Duration age);
// "2026-11-20 21:57:55" in UTC; empty where unset.
std::string TimeText(const google::protobuf::Timestamp& time);
absl::Time ToTime(const google::protobuf::Timestamp& time);
absl::Duration ToDuration(const google::protobuf::Duration& duration);

// Four significant digits: "0.4313", "12.5", "1.2e-05", "nan".
std::string NumberText(double value);
// "86.2%".
std::string PercentText(double fraction);
// "1.24 ms", "530 us", "12.5 s".
std::string SecondsText(double seconds);
// "5,412".
std::string RateText(double per_second);

// "jobs/12" -> "12"; other names as they are.
std::string ShortName(absl::string_view name);

}  // namespace trainyard::output
