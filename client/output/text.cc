// Turns words and numbers of messages into text for people.
#include "client/output/text.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/output/terminal.h"
#include "common/base/escape.h"
#include "common/base/strings.h"

namespace trainyard::output {
namespace {

// Returns the name of an enum value without the enum's prefix.
std::string Word(const std::string& name, absl::string_view prefix, int number) {
  if (name.empty()) return absl::StrCat("UNKNOWN_", number);
  return name.substr(prefix.size());
}

// Returns the unit of an age, in seconds, and its letter.
std::pair<int64_t, const char*> UnitOf(int64_t seconds) {
  if (seconds < 120) return {1, "s"};
  if (seconds < 7'200) return {60, "m"};
  if (seconds < 172'800) return {3'600, "h"};
  return {86'400, "d"};
}

}  // namespace

std::string StateText(v1::JobState state) {
  return Word(v1::JobState_Name(state), "JOB_STATE_", state);
}

std::string StateText(v1::AttemptState state) {
  return Word(v1::AttemptState_Name(state), "ATTEMPT_STATE_", state);
}

std::string StateText(v1::WorkerState state) {
  return Word(v1::WorkerState_Name(state), "WORKER_STATE_", state);
}

bool IsSilent(const v1::Worker& worker, absl::Time now) {
  // A worker reports every few seconds, and its lease lasts for 15 s.
  constexpr absl::Duration kSilentAfter = absl::Seconds(15);
  return worker.state() == v1::WORKER_STATE_ACTIVE && worker.has_last_seen_time() &&
         now - ToTime(worker.last_seen_time()) > kSilentAfter;
}

std::string SchedulingText(v1::WorkerScheduling scheduling) {
  return Word(v1::WorkerScheduling_Name(scheduling), "WORKER_SCHEDULING_", scheduling);
}

std::string HealthText(v1::DeviceHealth health) {
  return Word(v1::DeviceHealth_Name(health), "DEVICE_HEALTH_", health);
}

std::string FailureClassText(v1::FailureClass failure_class) {
  return Word(v1::FailureClass_Name(failure_class), "FAILURE_CLASS_", failure_class);
}

std::string PrecisionText(v1::Precision precision) {
  if (precision == v1::PRECISION_UNSPECIFIED) return "";
  return absl::AsciiStrToLower(Word(v1::Precision_Name(precision), "PRECISION_", precision));
}

absl::string_view StateStyle(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_RUNNING:
    case v1::JOB_STATE_SUCCEEDED:
      return "32";
    case v1::JOB_STATE_FAILED:
      return "31";
    case v1::JOB_STATE_QUEUED:
    case v1::JOB_STATE_STARTING:
    case v1::JOB_STATE_STOPPING:
      return "33";
    default:
      return "2";
  }
}

bool IsFinal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

std::string DeletedText(const v1::Job& job, v1::JobPart part) {
  const auto& parts = job.deleted_parts();
  if (std::find(parts.begin(), parts.end(), part) == parts.end()) return "";
  return absl::StrCat("the ", part == v1::JOB_PART_LOGS ? "logs" : "metrics", " of ", job.name(),
                      " were deleted; `trainyard show ", ShortName(job.name()),
                      " --events` says when and by whom");
}

int64_t TotalBytes(const v1::StoredBytes& stored) {
  return stored.checkpoints() + stored.logs() + stored.metrics();
}

bool IsHeld(const v1::Job& job) {
  return job.state() == v1::JOB_STATE_SUSPENDED && job.has_failure();
}

bool HasEnded(const v1::Job& job) {
  return IsFinal(job.state()) || IsHeld(job);
}

std::string HostAmountText(int64_t cpus, int64_t memory_bytes) {
  std::vector<std::string> parts;
  if (cpus > 0) parts.push_back(absl::StrCat(cpus, cpus == 1 ? " cpu" : " cpus"));
  if (memory_bytes > 0) parts.push_back(FormatBytes(memory_bytes));
  return absl::StrJoin(parts, ", ");
}

std::string RankPlaceText(const v1::RankPlacement& rank) {
  return rank.device().empty() ? HostAmountText(rank.cpus(), rank.memory_bytes()) : rank.device();
}

std::string DevicesText(const v1::JobSpec& resolved) {
  const v1::DevicesSpec& devices = resolved.devices();
  return devices.has_min() && devices.min() < devices.count()
             ? absl::StrCat(devices.min(), "-", devices.count())
             : absl::StrCat(devices.count());
}

std::string Shortened(absl::string_view text, int width) {
  if (DisplayWidth(text) <= width) return std::string(text);
  std::string cut;
  int columns = 0;
  for (const char c : text) {
    const bool begins = (static_cast<unsigned char>(c) & 0xc0u) != 0x80u;
    if (begins && ++columns > std::max(width - 3, 1)) break;
    cut += c;
  }
  while (!cut.empty() && cut.back() == ' ') cut.pop_back();
  return cut + "...";
}

std::string Fitted(absl::string_view line, int width) {
  if (DisplayWidth(line) <= width) return std::string(line);
  if (!absl::StrContains(line, kEscape)) return Shortened(line, width);
  std::string cut;
  int columns = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == kEscape) {
      const size_t end = std::min(line.find('m', i), line.size() - 1);
      absl::StrAppend(&cut, line.substr(i, end - i + 1));
      i = end;
      continue;
    }
    const bool begins = (static_cast<unsigned char>(line[i]) & 0xc0u) != 0x80u;
    if (begins && ++columns > width) break;
    cut += line[i];
  }
  return cut + "\xff[0m";
}

std::string AgeText(absl::Duration age) {
  // The clocks of two processes may differ a little, so an age may come out negative.
  const int64_t seconds = std::max<int64_t>(absl::ToInt64Seconds(age), 0);
  const auto [unit, name] = UnitOf(seconds);
  return absl::StrCat(seconds / unit, name);
}

std::string TimeLeftText(absl::Duration left) {
  const auto [unit, name] = UnitOf(absl::ToInt64Seconds(left));
  return AgeText(left + absl::Seconds(unit) / 2);
}

absl::Time ToTime(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

absl::Duration ToDuration(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

std::string TimeText(const google::protobuf::Timestamp& time) {
  if (time.seconds() == 0) return "";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S %Z", ToTime(time), absl::LocalTimeZone());
}

std::string NumberText(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  return absl::StrFormat("%.4g", value);
}

std::string PercentText(double fraction) {
  return absl::StrFormat("%.1f%%", fraction * 100);
}

std::string SecondsText(double seconds) {
  if (!std::isfinite(seconds)) return NumberText(seconds);
  const double size = std::abs(seconds);
  if (size >= 1 || size == 0) return absl::StrFormat("%.3g s", seconds);
  if (size >= 1e-3) return absl::StrFormat("%.3g ms", seconds * 1e3);
  return absl::StrFormat("%.3g us", seconds * 1e6);
}

std::string RateText(double per_second) {
  if (!std::isfinite(per_second)) return NumberText(per_second);
  return per_second < 100 ? absl::StrFormat("%.1f", per_second)
                          : FormatCount(std::llround(per_second));
}

std::string ShortName(absl::string_view name) {
  for (const absl::string_view prefix : {"jobs/", "workers/", "sweeps/"}) {
    if (absl::StartsWith(name, prefix)) return std::string(name.substr(prefix.size()));
  }
  return std::string(name);
}

std::string XmlEscaped(absl::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        // XML has no control characters, not even escaped ones.
        escaped += absl::ascii_iscntrl(static_cast<unsigned char>(c)) ? ' ' : c;
    }
  }
  return escaped;
}

}  // namespace trainyard::output
