// Reads what the API server answers, and trusts none of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/curl/caller.h"
#include "server/provision/core/inputs.h"

namespace trainyard::provision::kubernetes {

// The reason of whatever is deleted for no reason that the cluster tells.
inline constexpr char kDeleted[] = "somebody deletes it";

// A pod or a Job of ours. Times are in microseconds since 1970, and 0 if the thing has not
// happened.
struct Found {
  std::string name;
  std::string uid;
  std::string pilot;  // by its label
  int32_t nodes = 1;  // of the pilot, by its label
  ForeignState state = ForeignState::kWaiting;
  std::string reason;  // in the cluster's words
  int64_t create_us = 0;
  int64_t start_us = 0;
  int64_t expire_us = 0;  // when its time limit ends
  int64_t end_us = 0;
  int64_t delete_us = 0;  // when it has to be gone, since somebody deletes it
  // These are for pods.
  bool is_of_job = false;
  bool has_node = false;
  bool cannot_begin = false;  // its image or a setting is not there; this may pass
  bool worker_ended = false;  // and other containers still run

  friend bool operator==(const Found&, const Found&) = default;
};

// A part of a list.
struct Page {
  std::vector<Found> found;
  std::string next;  // asks for the next part; empty if this is the last one
};

// Read a PodList and a JobList. They return DATA_LOSS for anything else, and for an entry without
// a name, an id or our labels: what is missing in a list looks as if it had ended.
absl::StatusOr<Page> ParsePods(absl::string_view text);
absl::StatusOr<Page> ParseJobs(absl::string_view text);

// An object that was made, or that was asked for by its name.
struct Made {
  std::string uid;
  std::string server;  // the labels that say whose it is
  std::string provider;
  std::string pilot;
};
// Returns DATA_LOSS for what is no object.
absl::StatusOr<Made> ParseMade(absl::string_view text);

// Returns what an answer says for people: the message of a Status, or the number of the answer.
std::string MessageOf(const curl::Response& response);
// Returns the word of a Status for programs, such as AlreadyExists, or "".
std::string ReasonOf(const curl::Response& response);

}  // namespace trainyard::provision::kubernetes
