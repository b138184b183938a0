// Implements the fake server's part of programs: their code and environments, secrets, tunnels, and
// who gets word of jobs.
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/code_errors.h"
#include "common/base/errors.h"
#include "common/base/tunnel_errors.h"
#include "common/rpc/status.h"
#include "common/tls/digest.h"
#include "tests/unit/client/fake_server.h"

namespace trainyard::testing {
namespace {

grpc::Status MissingTarget(const std::string& name) {
  return rpc::ToGrpcStatus(MakeError(absl::StatusCode::kNotFound, "TARGET_NOT_FOUND",
                                     absl::StrCat("there is no target '", name, "'")));
}

}  // namespace

void FakeServer::SetEnvironment(const std::string& job, const v1::ProgramEnvironment& environment) {
  const std::lock_guard lock(mutex_);
  environments_[job] = environment;
}

void FakeServer::RefuseNextUpload(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  refuse_upload_ = status;
}

void FakeServer::DamageCode(const std::string& name) {
  const std::lock_guard lock(mutex_);
  v1::Job* job = nullptr;
  TY_CHECK(Find(name, job).ok());
  code_.at(job->resolved_spec().program().code())[0] ^= 1;
}

void FakeServer::FailDeliveries(const std::string& result) {
  const std::lock_guard lock(mutex_);
  delivery_failure_ = result;
}

v1::TunnelOpen FakeServer::last_tunnel() {
  const std::lock_guard lock(mutex_);
  return last_tunnel_;
}

int FakeServer::uploads() {
  const std::lock_guard lock(mutex_);
  return upload_calls_;
}

std::string FakeServer::SecretValue(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto known = secrets_.find(name);
  return known == secrets_.end() ? "" : known->second;
}

grpc::Status FakeServer::ListAttempts(grpc::ServerContext*, const v1::ListAttemptsRequest* request,
                                      v1::ListAttemptsResponse* response) {
  const std::lock_guard lock(mutex_);
  const auto known = environments_.find(request->parent());
  if (known == environments_.end()) return grpc::Status::OK;
  *response->add_attempts()->mutable_environment() = known->second;
  return grpc::Status::OK;
}

grpc::Status FakeServer::FindCode(grpc::ServerContext*, const v1::FindCodeRequest* request,
                                  v1::FindCodeResponse* response) {
  const std::lock_guard lock(mutex_);
  for (const std::string& digest : request->digests()) {
    if (code_.contains(digest)) response->add_digests(digest);
  }
  return grpc::Status::OK;
}

grpc::Status FakeServer::UploadCode(grpc::ServerContext*, const v1::UploadCodeRequest* request,
                                    v1::UploadCodeResponse* response) {
  const std::lock_guard lock(mutex_);
  ++upload_calls_;
  const absl::Status refusal = std::exchange(refuse_upload_, absl::OkStatus());
  if (!refusal.ok()) return rpc::ToGrpcStatus(refusal);
  std::string& content = uploads_[request->digest()];
  const auto expected = static_cast<int64_t>(content.size());
  if (request->offset() != expected) {
    return rpc::ToGrpcStatus(error::OffsetMismatch("the code", request->offset(), expected));
  }
  content += request->data();
  response->set_next_offset(static_cast<int64_t>(content.size()));
  if (response->next_offset() < request->size()) return grpc::Status::OK;
  if (tls::Sha256Text(content) != request->digest()) {
    return rpc::ToGrpcStatus(error::CorruptFile("the code", "it has another digest"));
  }
  code_[request->digest()] = std::move(content);
  uploads_.erase(request->digest());
  return grpc::Status::OK;
}

grpc::Status FakeServer::DownloadCode(grpc::ServerContext*, const v1::DownloadCodeRequest* request,
                                      grpc::ServerWriter<v1::DownloadCodeResponse>* writer) {
  constexpr size_t kPieceBytes = 1000;
  const std::lock_guard lock(mutex_);
  v1::Job* job = nullptr;
  grpc::Status status = Find(request->name(), job);
  if (!status.ok()) return status;
  const auto known = code_.find(job->resolved_spec().program().code());
  if (request->part() == v1::CODE_PART_DIFF || known == code_.end()) {
    return rpc::ToGrpcStatus(error::CodeNotFound(absl::StrCat(request->name(), " has none")));
  }
  for (size_t at = 0; at < known->second.size(); at += kPieceBytes) {
    v1::DownloadCodeResponse response;
    response.set_offset(static_cast<int64_t>(at));
    response.set_data(known->second.substr(at, kPieceBytes));
    writer->Write(response);
  }
  return grpc::Status::OK;
}

grpc::Status FakeServer::AddTarget(grpc::ServerContext*, const v1::AddTargetRequest* request,
                                   v1::AddTargetResponse* response) {
  const std::lock_guard lock(mutex_);
  v1::NotifyTarget& target = *response->mutable_target();
  target = request->target();
  if (target.name().empty()) target.set_name(target.webhook().empty() ? "mail" : "webhook");
  if (target.events().empty()) {
    target.add_events(v1::NOTIFY_EVENT_END);
    target.add_events(v1::NOTIFY_EVENT_FAILURE);
  }
  if (!targets_.emplace(target.name(), target).second) {
    return rpc::ToGrpcStatus(
        MakeError(absl::StatusCode::kAlreadyExists, "TARGET_EXISTS",
                  absl::StrCat("there is a target '", target.name(), "' already")));
  }
  if (!target.webhook().empty()) response->set_signing_key("whsec_key");
  return grpc::Status::OK;
}

grpc::Status FakeServer::ListTargets(grpc::ServerContext*, const v1::ListTargetsRequest*,
                                     v1::ListTargetsResponse* response) {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, target] : targets_) *response->add_targets() = target;
  return grpc::Status::OK;
}

grpc::Status FakeServer::DeleteTarget(grpc::ServerContext*, const v1::DeleteTargetRequest* request,
                                      v1::DeleteTargetResponse*) {
  const std::lock_guard lock(mutex_);
  return targets_.erase(request->name()) > 0 ? grpc::Status::OK : MissingTarget(request->name());
}

grpc::Status FakeServer::TestTarget(grpc::ServerContext*, const v1::TestTargetRequest* request,
                                    v1::Delivery* response) {
  const std::lock_guard lock(mutex_);
  const auto known = targets_.find(request->name());
  if (known == targets_.end()) return MissingTarget(request->name());
  response->set_id(absl::StrCat("delivery-", deliveries_.size() + 1));
  response->set_target(request->name());
  response->set_address(known->second.webhook().empty() ? known->second.mail()
                                                        : known->second.webhook());
  response->set_tries(1);
  response->set_state(delivery_failure_.empty() ? v1::DELIVERY_STATE_DELIVERED
                                                : v1::DELIVERY_STATE_GIVEN_UP);
  response->set_result(delivery_failure_.empty() ? "200" : delivery_failure_);
  *known->second.mutable_last_delivery() = *response;
  deliveries_.push_back(*response);
  return grpc::Status::OK;
}

grpc::Status FakeServer::ListDeliveries(grpc::ServerContext*,
                                        const v1::ListDeliveriesRequest* request,
                                        v1::ListDeliveriesResponse* response) {
  const std::lock_guard lock(mutex_);
  for (auto it = deliveries_.rbegin(); it != deliveries_.rend(); ++it) {
    const bool is_full = request->limit() > 0 && response->deliveries_size() == request->limit();
    const bool is_wanted = request->target().empty() || it->target() == request->target();
    if (is_wanted && !is_full) *response->add_deliveries() = *it;
  }
  return grpc::Status::OK;
}

grpc::Status FakeServer::SetSecret(grpc::ServerContext*, const v1::SetSecretRequest* request,
                                   v1::Secret* response) {
  const std::lock_guard lock(mutex_);
  secrets_[request->name()] = request->value();
  response->set_name(request->name());
  response->set_size(static_cast<int64_t>(request->value().size()));
  return grpc::Status::OK;
}

grpc::Status FakeServer::ListSecrets(grpc::ServerContext*, const v1::ListSecretsRequest*,
                                     v1::ListSecretsResponse* response) {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, value] : secrets_) {
    v1::Secret* secret = response->add_secrets();
    secret->set_name(name);
    secret->set_size(static_cast<int64_t>(value.size()));
  }
  return grpc::Status::OK;
}

grpc::Status FakeServer::DeleteSecret(grpc::ServerContext*, const v1::DeleteSecretRequest* request,
                                      v1::DeleteSecretResponse*) {
  const std::lock_guard lock(mutex_);
  if (secrets_.erase(request->name()) > 0) return grpc::Status::OK;
  return rpc::ToGrpcStatus(MakeError(absl::StatusCode::kNotFound, "SECRET_NOT_FOUND",
                                     absl::StrCat("there is no secret '", request->name(), "'")));
}

grpc::Status FakeServer::OpenTunnel(
    grpc::ServerContext*, grpc::ServerReaderWriter<v1::TunnelFrame, v1::TunnelFrame>* stream) {
  v1::TunnelFrame frame;
  if (!stream->Read(&frame)) return grpc::Status::OK;
  const v1::TunnelOpen open = frame.open();
  {
    const std::lock_guard lock(mutex_);
    last_tunnel_ = open;
    v1::Job* job = nullptr;
    grpc::Status status = Find(open.job(), job);
    if (!status.ok()) return status;
    if (job->state() != v1::JOB_STATE_RUNNING) {
      return rpc::ToGrpcStatus(error::JobStateConflict(job->name(), "SUCCEEDED", "entered"));
    }
  }
  const std::string words = absl::StrJoin(open.command().words(), " ");
  if (words == "missing") {
    return rpc::ToGrpcStatus(MakeError(absl::StatusCode::kFailedPrecondition, error::kCannotExecute,
                                       "cannot execute 'missing'"));
  }
  const auto send = [&](const std::function<void(v1::TunnelFrame&)>& fill) {
    v1::TunnelFrame answer;
    fill(answer);
    stream->Write(answer);
  };
  send([](v1::TunnelFrame& answer) { answer.mutable_opened()->set_worker("workers/alpha"); });
  send([](v1::TunnelFrame& answer) { answer.set_grant(int64_t{1} << 16); });
  std::string input;
  while (stream->Read(&frame) && !frame.has_input_end()) input += frame.input();
  if (open.has_port()) {
    send([&](v1::TunnelFrame& answer) { answer.set_output(input); });
    send([](v1::TunnelFrame& answer) { answer.mutable_output_end(); });
    send([](v1::TunnelFrame& answer) { answer.mutable_exit(); });
    return grpc::Status::OK;
  }
  send([&](v1::TunnelFrame& answer) { answer.set_output(absl::StrCat(words, "\n", input)); });
  send([](v1::TunnelFrame& answer) { answer.set_error_output("an error\n"); });
  send([&](v1::TunnelFrame& answer) {
    if (words == "kill") {
      answer.mutable_exit()->set_signal(SIGKILL);
    } else {
      answer.mutable_exit()->set_code(7);
    }
  });
  return grpc::Status::OK;
}

}  // namespace trainyard::testing
