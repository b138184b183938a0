// Asks the server until it has the checkpoint, since it may be large and the way to the bucket
// long.
#include "client/commands/bucket_start.h"

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/commands/call_persistently.h"
#include "client/commands/selector.h"
#include "client/commands/transfer_bar.h"
#include "common/base/status_macros.h"
#include "trainyard/v1/bundle.pb.h"

namespace trainyard::commands {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(300);

}  // namespace

bool IsInBucket(absl::string_view checkpoint) {
  return absl::StartsWith(checkpoint, "s3://");
}

absl::StatusOr<std::string> ResolveStart(const Context& context, link::ServerLink& link,
                                         const std::string& text, const std::string& project) {
  if (!IsInBucket(text)) return ResolveCheckpoint(link, text);
  v1::ImportCheckpointRequest request;
  request.set_place(text);
  request.set_project(project.empty() ? "none" : project);
  std::optional<TransferBar> bar;
  int64_t shown = 0;
  while (true) {
    TY_ASSIGN_OR_RETURN(
        const v1::ImportCheckpointResponse response,
        CallPersistently(context, link, &v1::BundleService::Stub::ImportCheckpoint, request));
    if (response.has_checkpoint()) {
      bar.reset();
      const std::string& name = response.checkpoint().name();
      context.Say(absl::StrCat("took ", text, " in as ", name));
      return name;
    }
    if (!bar.has_value() && response.total_bytes() > 0) {
      bar.emplace(context, text, response.total_bytes());
    }
    if (bar.has_value()) bar->Add(response.bytes() - shown);
    shown = response.bytes();
    if (context.interrupt.WaitFor(kPause)) {
      return absl::CancelledError(
          "interrupted; the server goes on to take the checkpoint in, and the same command finds "
          "it");
    }
  }
}

absl::Status TakeStart(const Context& context, link::ServerLink& link, const std::string& from,
                       v1::CreateJobRequest& request) {
  if (from.empty()) return absl::OkStatus();
  if (IsInBucket(from) && request.validate_only()) {
    context.Say("nothing is taken from the bucket for a trial, so it shows a job that begins anew");
    return absl::OkStatus();
  }
  TY_ASSIGN_OR_RETURN(*request.mutable_from_checkpoint(),
                      ResolveStart(context, link, from, request.spec().project()));
  return absl::OkStatus();
}

}  // namespace trainyard::commands
