// Converts submissions from and to messages. The store keeps the two specs and the options as
// bytes. Everything that the server bases decisions on is read from them, here, so that no fact is
// stored twice.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/core/lifecycle/submission.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::codec {

// Sets the fields that the server bases decisions on, and leaves alone what was given beside the
// spec. A field of the spec that the scheduler must read gets its line here.
void TakeSpec(const v1::JobSpec& resolved, core::Submission& submission);

// Notes from where the code of the submission came.
void TakeCodeOrigin(const v1::CodeOrigin& origin, core::Submission& submission);

// Sets what was given beside the spec in the fields in which a job shows it: the user, where the
// job came from, its array, its dependencies, its begin time and its reservation.
void SetOptions(const core::Submission& submission, v1::Job& job);

// Returns the bytes of a job in which only the fields of SetOptions are set.
std::string EncodeOptions(const core::Submission& submission);

// Returns the submission whose parts were kept as bytes, or DATA_LOSS if the resolved spec or the
// options are no such messages.
absl::StatusOr<core::Submission> DecodeSubmission(std::string uid, std::string spec,
                                                  std::string resolved_spec,
                                                  absl::string_view options);

// Stands for a submission whose bytes cannot be read any more, so that one damaged row does not
// keep the server from serving all others. Its jobs are shown under a name that says so. They ask
// for a type of devices that nobody has, so none of them is placed, and what runs ends as it would
// have.
core::Submission DamagedSubmission(std::string uid);

}  // namespace trainyard::codec
