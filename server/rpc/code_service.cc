// Checks what users ask for; the code store keeps the bytes.
#include "server/rpc/code_service.h"

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/rpc/status.h"
#include "common/tls/digest.h"
#include "server/core/scheduling/quota.h"
#include "server/rpc/answers.h"
#include "server/rpc/code_download.h"
#include "server/rpc/code_use.h"
#include "server/rpc/limits.h"
#include "server/rpc/request.h"
#include "server/rpc/saved_specs.h"

namespace trainyard::rpc {
namespace {

// Returns what the user stores in all: its code counts once, however many jobs have it, and if no
// job has it yet.
int64_t StoredBytes(const std::string& user, const Services& services) {
  int64_t bytes = 0;
  for (const auto& [project_and_user, tally] : services.board.Tallies()) {
    if (project_and_user.second == user) bytes += tally.checkpoint_bytes + tally.streams.sum();
  }
  const std::set<std::string> digests = services.board.CodeOf(user);
  for (const std::string& digest : digests) {
    bytes += std::max<int64_t>(services.code.SizeOf(digest), 0);
  }
  return bytes + services.code.HeldBytes(user, digests);
}

absl::Status CheckStorage(const core::Yard& yard, const std::string& user, const Services& services,
                          int64_t size) {
  const core::QuotaRecord* quota = core::QuotaFor(yard.snapshot().quotas, "user", user);
  if (quota == nullptr || quota->stored_bytes == 0) return absl::OkStatus();
  const int64_t wanted = StoredBytes(user, services) + size;
  if (wanted <= quota->stored_bytes) return absl::OkStatus();
  return error::QuotaExceeded(UserActor(user), "stored bytes", wanted, quota->stored_bytes);
}

}  // namespace

CodeServiceImpl::CodeServiceImpl(Services& services) : services_(services) {}

grpc::ServerUnaryReactor* CodeServiceImpl::FindCode(const access::Caller& caller,
                                                    grpc::CallbackServerContext* context,
                                                    const v1::FindCodeRequest* request,
                                                    v1::FindCodeResponse* response) {
  RequestCheck check;
  check.MaxCount("digests", request->digests_size(), kDigestsMax);
  if (!check.ok()) return Refused(context, check);
  for (const std::string& digest : request->digests()) {
    if (MayUseCode(caller, services_, digest)) response->add_digests(digest);
  }
  return Finished(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* CodeServiceImpl::UploadCode(const access::Caller& caller,
                                                      grpc::CallbackServerContext* context,
                                                      const v1::UploadCodeRequest* request,
                                                      v1::UploadCodeResponse* response) {
  RequestCheck check;
  if (const auto digits = tls::Sha256Digits(request->digest()); !digits.ok()) {
    check.Add("digest", digits.status().message());
  }
  check.NotNegative("size", request->size());
  check.NotNegative("offset", request->offset());
  check.MaxBytes("data", request->data(), kChunkBytesMax);
  if (!check.ok()) return Refused(context, check);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const auto append = [this, user = caller.user, request, response, reactor] {
    const auto end = services_.code.Append(user, request->digest(), request->size(),
                                           request->offset(), request->data());
    if (end.ok()) response->set_next_offset(*end);
    reactor->Finish(ToGrpcStatus(end.status()));
  };
  services_.runtime.Read(
      [this, append, user = caller.user, request, reactor](absl::StatusOr<const core::Yard*> yard) {
        absl::Status status = yard.status();
        // The size is what this call says, so each call is looked at.
        if (status.ok()) {
          status = CheckStorage(**yard, user, services_, request->size());
        }
        if (status.ok()) status = services_.executor.TryPost(append);
        if (!status.ok()) reactor->Finish(ToGrpcStatus(status));
      });
  return reactor;
}

grpc::ServerWriteReactor<v1::DownloadCodeResponse>* CodeServiceImpl::DownloadCode(
    const access::Caller& caller, const v1::DownloadCodeRequest* request) {
  if (!absl::StartsWith(request->name(), "specs/")) {
    return StartCodeDownload(services_, OwnerOf(caller), *request);
  }
  const auto saved = FindSavedSpec(request->name(), caller, services_);
  if (!saved.ok()) return FailedStream<v1::DownloadCodeResponse>(saved.status());
  return StartCodeDownload(services_, OwnerOf(caller), *request, saved->get());
}

}  // namespace trainyard::rpc
