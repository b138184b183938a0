// Checks the fields that many requests have in common.
#include "server/rpc/request.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/rpc/limits.h"

namespace trainyard::rpc {

bool IsUserName(absl::string_view name) {
  return !name.empty() && name.size() <= kUserBytesMax &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' ||
                  c == '-' || c == '@' || c == '$' || c == '\\';
         });
}

void RequestCheck::Add(absl::string_view field, absl::string_view description) {
  violations_.push_back({std::string(field), std::string(description)});
}

void RequestCheck::Add(std::vector<FieldViolation> violations) {
  for (FieldViolation& violation : violations) violations_.push_back(std::move(violation));
}

JobId RequestCheck::Job(absl::string_view field, absl::string_view name) {
  const auto job = ParseJobName(name);
  if (!job.ok()) Add(field, job.status().message());
  return job.value_or(JobId());
}

AttemptId RequestCheck::Attempt(absl::string_view field, absl::string_view name) {
  const auto attempt = ParseAttemptName(name);
  if (!attempt.ok()) Add(field, attempt.status().message());
  return attempt.value_or(AttemptId());
}

CheckpointId RequestCheck::Checkpoint(absl::string_view field, absl::string_view name) {
  const auto checkpoint = ParseCheckpointName(name);
  if (!checkpoint.ok()) Add(field, checkpoint.status().message());
  return checkpoint.value_or(CheckpointId());
}

std::string RequestCheck::Worker(absl::string_view field, absl::string_view name) {
  const auto worker = ParseWorkerName(name);
  if (!worker.ok()) Add(field, worker.status().message());
  return worker.value_or("");
}

runtime::RankStream RequestCheck::Stream(absl::string_view field, v1::RankStream stream) {
  switch (stream) {
    case v1::RANK_STREAM_UNSPECIFIED:
    case v1::RANK_STREAM_LOG:
      return runtime::RankStream::kLog;
    case v1::RANK_STREAM_TRACE:
      return runtime::RankStream::kTrace;
    case v1::RANK_STREAM_ENVIRONMENT:
      return runtime::RankStream::kEnvironment;
    default:
      Add(field, absl::StrCat("stream ", static_cast<int>(stream), " is not known here"));
      return runtime::RankStream::kLog;
  }
}

void RequestCheck::Name(absl::string_view field, absl::string_view name, bool may_be_empty) {
  if (name.empty() && may_be_empty) return;
  const bool has_form = !name.empty() && name.size() <= 63 && name[0] != '.' && name[0] != '-' &&
                        std::all_of(name.begin(), name.end(), [](char c) {
                          return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' ||
                                 c == '_' || c == '-';
                        });
  if (has_form) return;
  Add(field, absl::StrCat("'", name.substr(0, 64),
                          "' is no name; expected 1 to 63 letters, digits, '-', '_' and '.'"));
}

void RequestCheck::Subject(absl::string_view field, absl::string_view subject, bool may_be_all) {
  absl::string_view name = subject;
  const bool has_kind =
      absl::ConsumePrefix(&name, "user:") || absl::ConsumePrefix(&name, "project:");
  const bool has_name = IsUserName(name) || (may_be_all && name == "*");
  if (has_kind && has_name) return;
  Add(field, absl::StrCat("'", subject.substr(0, 64), "' is not accepted; expected user:NAME",
                          may_be_all ? ", project:NAME, user:* or project:*" : " or project:NAME"));
}

void RequestCheck::MaxBytes(absl::string_view field, absl::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return;
  Add(field, absl::StrCat("has ", text.size(), " bytes; expected at most ", max_bytes));
}

void RequestCheck::MaxCount(absl::string_view field, int count, int max_count) {
  if (count <= max_count) return;
  Add(field, absl::StrCat("has ", count, " elements; expected at most ", max_count));
}

void RequestCheck::NotEmpty(absl::string_view field, absl::string_view text) {
  if (text.empty()) Add(field, "must be given");
}

void RequestCheck::NotNegative(absl::string_view field, int64_t value) {
  if (value < 0) Add(field, absl::StrCat(value, " is not accepted; expected 0 or more"));
}

int RequestCheck::PageSize(absl::string_view field, int value, int default_size, int max_size) {
  NotNegative(field, value);
  return value == 0 ? default_size : std::clamp(value, 1, max_size);
}

int64_t RequestCheck::PageToken(absl::string_view field, absl::string_view token) {
  int64_t value = 0;
  if (!token.empty() && (!absl::SimpleAtoi(token, &value) || value <= 0)) {
    Add(field, absl::StrCat("'", token.substr(0, 64),
                            "' is no page token; pass next_page_token of the page before"));
  }
  return value;
}

absl::Status RequestCheck::Take() {
  return violations_.empty() ? absl::OkStatus() : InvalidFields(violations_);
}

std::string UserActor(absl::string_view user) {
  return absl::StrCat("user:", user);
}

}  // namespace trainyard::rpc
