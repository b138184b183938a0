// Declares the flags besides the spec of the verbs that submit one, such as --array, --after and
// --begin.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/commands/context.h"
#include "client/commands/spec_changes.h"
#include "client/flags.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::commands {

// These flags belong to verbs that submit a spec, or that say what would happen if it were
// submitted.
struct SubmitFlags {
  SpecFlags spec;
  std::string from;
  std::string request_id;
  bool dry_run = false;
  std::string array;  // such as "100%8"
  std::vector<std::string> after;
  std::vector<std::string> after_ok;
  std::string begin;
  std::string reservation;
  bool wait_for_devices = false;
};

void DeclareSubmitFlags(client::Flags& flags, SubmitFlags& options);
// Declare some of the same flags: those that change the spec, and those that say when and on which
// devices its jobs start.
void DeclareSpecFlags(client::Flags& flags, SpecFlags& options);
void DeclareStartFlags(client::Flags& flags, SubmitFlags& options);

// Turns the flags into options of a submission. Asks the server for the jobs that --after names by
// `last`. Returns INVALID_ARGUMENT if a flag cannot be read.
absl::StatusOr<v1::SubmitOptions> SubmitOptionsOf(const Context& context, link::ServerLink& link,
                                                  const SubmitFlags& given);

// Reads a moment as people write it: "18:00" (the next one, in the local time zone), "+2h" (from
// `base`), or RFC 3339 ("2026-11-21T18:00:00Z", "2026-11-21 18:00" in the local time zone).
absl::StatusOr<absl::Time> ParseMoment(absl::string_view text, absl::Time now, absl::Time base);

google::protobuf::Timestamp ToTimestamp(absl::Time time);

}  // namespace trainyard::commands
