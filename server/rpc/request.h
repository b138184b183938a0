// Reads requests. All mistakes of a request are collected, each with its field path, and the
// request is refused once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/errors.h"
#include "common/base/ids.h"
#include "server/rpc/services.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::rpc {

class RequestCheck {
 public:
  void Add(absl::string_view field, absl::string_view description);
  void Add(std::vector<FieldViolation> violations);

  // These read resource names. They return a default value and add a violation if the name has
  // another form.
  JobId Job(absl::string_view field, absl::string_view name);
  AttemptId Attempt(absl::string_view field, absl::string_view name);
  CheckpointId Checkpoint(absl::string_view field, absl::string_view name);
  std::string Worker(absl::string_view field, absl::string_view name);

  // Reads the kind of a stream. If it is unset, the stream is the log.
  runtime::RankStream Stream(absl::string_view field, v1::RankStream stream);

  // Checks a name that people choose: 1 to 63 letters, digits, '-', '_' and '.'.
  void Name(absl::string_view field, absl::string_view name, bool may_be_empty = false);
  // Checks a subject of a quota or a reservation: "user:anna", "project:vision", or "user:*" if
  // `may_be_all`.
  void Subject(absl::string_view field, absl::string_view subject, bool may_be_all);
  void MaxBytes(absl::string_view field, absl::string_view text, size_t max_bytes);
  void MaxCount(absl::string_view field, int count, int max_count);
  void NotEmpty(absl::string_view field, absl::string_view text);
  void NotNegative(absl::string_view field, int64_t value);
  // Returns a page size: the default for 0, and never more than the maximum.
  int PageSize(absl::string_view field, int value, int default_size, int max_size);
  // Reads a token of ours, which is a number. An empty token means 0.
  int64_t PageToken(absl::string_view field, absl::string_view token);

  bool ok() const { return violations_.empty(); }
  // Returns INVALID_ARGUMENT with all violations, or OK.
  absl::Status Take();

 private:
  std::vector<FieldViolation> violations_;
};

// Returns true if the text has the form of a user name: 1 to 64 letters, digits, and some signs.
bool IsUserName(absl::string_view name);
// Returns how events name the user who did something.
std::string UserActor(absl::string_view user);

}  // namespace trainyard::rpc
