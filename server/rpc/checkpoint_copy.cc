// Gathers what an import needs of a job: docs/adr/0029-checkpoints-in-a-bucket.md.
#include "server/rpc/checkpoint_copy.h"

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"
#include "server/rpc/convert.h"
#include "trainyard/v1/bundle.pb.h"

namespace trainyard::rpc {

absl::StatusOr<std::string> DescribeCopy(const core::CheckpointRecord& checkpoint,
                                         const std::map<std::string, std::string>& digests,
                                         const Services& services) {
  v1::CopiedCheckpoint copy;
  copy.set_format(kCopyFormat);
  copy.set_server_version(services.version);
  *copy.mutable_checkpoint() = ToProto(checkpoint);
  copy.mutable_checkpoint()->clear_copy();
  copy.mutable_checkpoint()->clear_copy_failure();
  if (checkpoint.evaluation.has_value()) {
    auto& metrics = *copy.mutable_checkpoint()->mutable_metrics();
    metrics["test.loss"] = checkpoint.evaluation->loss;
    metrics["test.accuracy"] = checkpoint.evaluation->accuracy;
  }
  copy.mutable_digests()->insert(digests.begin(), digests.end());
  if (const auto view = services.board.FindJob(checkpoint.id.job)) {
    v1::Job& job = *copy.mutable_job();
    job = ToProto(*view);
    // These mean something on this server only, or change all the time.
    job.clear_stored();
    job.clear_etag();
    job.clear_queue_reasons();
    job.clear_placement();
    job.clear_warnings();
    job.clear_explanation();
  }
  const AttemptId id{checkpoint.id.job, checkpoint.attempt};
  if (const auto attempt = services.board.FindAttempt(id)) {
    *copy.mutable_attempt() = ToProto(*attempt);
    copy.mutable_attempt()->clear_environment();
  }
  std::string text;
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  const auto written = google::protobuf::util::MessageToJsonString(copy, &text, options);
  if (written.ok()) return text;
  return absl::InternalError(
      absl::StrCat("the manifest of a copy cannot be written: ",
                   absl::string_view(written.message().data(), written.message().size())));
}

}  // namespace trainyard::rpc
