// Takes lines apart, and trusts none of them.
#include "server/provision/slurm/parse.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"

namespace trainyard::provision::slurm {
namespace {

constexpr size_t kIdDigitsMax = 18;
constexpr size_t kReasonBytesMax = 300;

bool IsId(absl::string_view text) {
  return !text.empty() && text.size() <= kIdDigitsMax &&
         std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

// Returns a part of somebody's output that may be stored and shown.
std::string Printable(absl::string_view text) {
  std::string result(absl::StripAsciiWhitespace(text.substr(0, kReasonBytesMax)));
  for (char& c : result) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  }
  return result;
}

// Slurm's word for no reason says nothing to people.
std::string Reason(absl::string_view text) {
  std::string reason = Printable(text);
  return reason == "None" ? "" : reason;
}

// Returns false for a text that is neither a time nor one of Slurm's words for none.
bool ReadTime(absl::string_view text, int64_t& us) {
  us = 0;
  for (const absl::string_view none : {"N/A", "NONE", "Unknown", "None", "INVALID", ""}) {
    if (text == none) return true;
  }
  absl::Time time;
  if (text.size() != 19 ||
      !absl::ParseTime("%Y-%m-%dT%H:%M:%S", text, absl::UTCTimeZone(), &time, nullptr)) {
    return false;
  }
  us = absl::ToUnixMicros(time);
  return true;
}

absl::Status BadLine(absl::string_view line) {
  return absl::DataLossError(
      absl::StrCat("squeue has written a line of another form than asked for: '", Printable(line),
                   "'; expected ", kSqueueFormat));
}

}  // namespace

ForeignState StateOfWord(absl::string_view word) {
  static constexpr struct {
    absl::string_view word;
    ForeignState state;
  } kWords[] = {
      {"PENDING", ForeignState::kWaiting},
      {"CONFIGURING", ForeignState::kWaiting},  // its nodes still boot
      {"REQUEUED", ForeignState::kWaiting},
      {"REQUEUE_FED", ForeignState::kWaiting},
      {"REQUEUE_HOLD", ForeignState::kWaiting},
      {"RESV_DEL_HOLD", ForeignState::kWaiting},
      {"SPECIAL_EXIT", ForeignState::kWaiting},
      {"COMPLETING", ForeignState::kLeaving},
      {"COMPLETED", ForeignState::kCompleted},
      {"CANCELLED", ForeignState::kCancelled},
      {"TIMEOUT", ForeignState::kTimedOut},
      {"DEADLINE", ForeignState::kTimedOut},
      {"FAILED", ForeignState::kFailed},
      {"NODE_FAIL", ForeignState::kFailed},
      {"BOOT_FAIL", ForeignState::kFailed},
      {"LAUNCH_FAILED", ForeignState::kFailed},
      {"OUT_OF_MEMORY", ForeignState::kFailed},
      {"PREEMPTED", ForeignState::kFailed},
      {"REVOKED", ForeignState::kFailed},
  };
  for (const auto& known : kWords) {
    if (known.word == word) return known.state;
  }
  return ForeignState::kActive;
}

absl::StatusOr<std::vector<ListedPilot>> ParseSqueue(absl::string_view text,
                                                     absl::string_view prefix) {
  std::vector<ListedPilot> pilots;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    // Our names have no bars, but reasons and names of others may have some, so the last fields are
    // counted from the end.
    const std::vector<absl::string_view> fields = absl::StrSplit(line, '|');
    if (!absl::StartsWith(fields.back(), prefix)) continue;
    const size_t count = fields.size();
    if (count < 7 || !IsId(fields[0]) || fields[1].empty()) return BadLine(line);
    ListedPilot pilot;
    pilot.name = std::string(fields.back());
    pilot.foreign_id = std::string(fields[0]);
    pilot.state = StateOfWord(fields[1]);
    pilot.reason = Reason(absl::StrJoin(fields.begin() + 2, fields.end() - 4, "|"));
    if (!ReadTime(fields[count - 4], pilot.start_us) ||
        !ReadTime(fields[count - 3], pilot.expire_us)) {
      return BadLine(line);
    }
    // While it waits, these are forecasts.
    if (pilot.state == ForeignState::kWaiting) pilot.expire_us = 0;
    pilots.push_back(std::move(pilot));
  }
  return pilots;
}

std::vector<ListedPilot> ParseSacct(absl::string_view text, absl::string_view prefix) {
  std::vector<ListedPilot> pilots;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, '|');
    if (fields.size() != 3 || !IsId(fields[0]) || !absl::StartsWith(fields[2], prefix)) continue;
    // "CANCELLED by 1000"
    const absl::string_view word = fields[1].substr(0, fields[1].find(' '));
    ListedPilot pilot;
    pilot.name = std::string(fields[2]);
    pilot.foreign_id = std::string(fields[0]);
    pilot.state = StateOfWord(word);
    pilot.reason = Printable(fields[1]);
    pilots.push_back(std::move(pilot));
  }
  return pilots;
}

std::optional<ListedPilot> ParseScontrol(absl::string_view text, absl::string_view prefix) {
  ListedPilot pilot;
  absl::string_view word;
  for (absl::string_view part :
       absl::StrSplit(text.substr(0, text.find('\n')), ' ', absl::SkipEmpty())) {
    // A comment or a command further on may look like anything.
    if (absl::ConsumePrefix(&part, "JobId=") && pilot.foreign_id.empty()) {
      pilot.foreign_id = std::string(part);
    } else if (absl::ConsumePrefix(&part, "JobName=") && pilot.name.empty()) {
      pilot.name = std::string(part);
    } else if (absl::ConsumePrefix(&part, "JobState=") && word.empty()) {
      word = part;
    } else if (absl::ConsumePrefix(&part, "Reason=") && pilot.reason.empty()) {
      pilot.reason = Reason(part);
    }
  }
  if (!IsId(pilot.foreign_id) || word.empty() || !absl::StartsWith(pilot.name, prefix)) {
    return std::nullopt;
  }
  pilot.state = StateOfWord(word);
  return pilot;
}

std::string ErrorLine(absl::string_view text) {
  std::string last;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    // The second line of a wrong option only says where the help is.
    if (absl::StartsWith(line, "Try \"")) continue;
    for (const absl::string_view program :
         {"sbatch: ", "squeue: ", "scancel: ", "sacct: ", "scontrol: ", "error: "}) {
      absl::ConsumePrefix(&line, program);
    }
    if (!absl::StripAsciiWhitespace(line).empty()) last = Printable(line);
  }
  return last;
}

SubmitResult JudgeSubmission(const std::string& pilot,
                             const absl::StatusOr<CommandResult>& result) {
  if (!result.ok()) {
    // A program that is not there has asked nobody.
    const bool was_started = !absl::IsNotFound(result.status());
    return {pilot, was_started ? SubmitResult::Kind::kUnknown : SubmitResult::Kind::kRefused, "",
            std::string(result.status().message())};
  }
  if (result->exit_code == 0) {
    // "123" or, with several clusters, "123;cluster", after whatever a plugin of the site prints.
    const std::vector<absl::string_view> lines =
        absl::StrSplit(result->out, '\n', absl::SkipWhitespace());
    absl::string_view id = lines.empty() ? "" : absl::StripAsciiWhitespace(lines.back());
    id = id.substr(0, id.find(';'));
    if (IsId(id)) return {pilot, SubmitResult::Kind::kAccepted, std::string(id), ""};
    return {pilot, SubmitResult::Kind::kUnknown, "",
            absl::StrCat("sbatch has printed no job id: '", Printable(result->out), "'")};
  }
  const std::string reason = ErrorLine(result->err);
  // sbatch ends with 255 where it does not understand its own arguments.
  bool is_refused = result->exit_code == 255;
  absl::string_view why_failed = reason;
  if (absl::ConsumePrefix(&why_failed, "Batch job submission failed: ")) {
    const std::string why = absl::AsciiStrToLower(why_failed);
    is_refused = true;
    for (const absl::string_view doubt : {"contact", "timed out", "timeout", "connection",
                                          "zero bytes", "communication", "transport", "socket"}) {
      if (absl::StrContains(why, doubt)) is_refused = false;
    }
  }
  return {pilot, is_refused ? SubmitResult::Kind::kRefused : SubmitResult::Kind::kUnknown, "",
          reason.empty() ? absl::StrCat("sbatch exited with code ", result->exit_code) : reason};
}

}  // namespace trainyard::provision::slurm
