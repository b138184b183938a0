// Converts the parts of a bundle from and to the messages of the API.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::commands {

// Reads the parts that are JSON, and collects the fields of newer versions, which it leaves out.
class PartReader {
 public:
  // `bundle` is the name of the file in messages.
  explicit PartReader(std::string bundle) : bundle_(std::move(bundle)) {}

  // Reads a message. `part` is the name of the entry. Returns INVALID_ARGUMENT (BUNDLE_REFUSED)
  // for what is no such message.
  absl::Status Read(absl::string_view part, absl::string_view json,
                    google::protobuf::Message& message);
  // Reads a line of metrics.jsonl.
  absl::StatusOr<v1::MetricPoint> ReadPoint(absl::string_view line) const;
  // Returns a sentence that names what was left out, or an empty text.
  std::string Warning() const;

 private:
  const std::string bundle_;
  std::set<std::string> unknown_;
};

// Returns a message as a part has it: protobuf's JSON, with a newline.
std::string PartText(const google::protobuf::Message& message);
// Returns a line of metrics.jsonl.
std::string PointLine(const v1::MetricPoint& point);

// Takes out of a spec what points to things of the server on which it ran: checkpoints of other
// jobs, secrets, addresses. Returns a sentence for each that whoever runs it should know of.
std::vector<std::string> DropForeign(v1::JobSpec& spec);

}  // namespace trainyard::commands
