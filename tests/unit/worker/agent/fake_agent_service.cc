// Implements a server in memory that keeps what it receives and gives the answers that a test
// wants.
#include "fake_agent_service.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/hash.h"
#include "common/base/report_limits.h"
#include "common/rpc/status.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "worker/checkpoint/checkpoint.h"

namespace trainyard::agent {

bool FakeServerState::Wait(const std::function<bool()>& condition) {
  absl::MutexLock lock(&mutex);
  return mutex.AwaitWithTimeout(absl::Condition(&condition), absl::Seconds(30));
}

void FakeServerState::Want(const v1::DesiredAttempt& attempt) {
  absl::MutexLock lock(&mutex);
  desired[attempt.attempt()] = attempt;
  ++revision;
}

class FakeAgentServer::Service : public v1::AgentService::Service {
 public:
  explicit Service(FakeServerState& state) : state_(state) {}

  void Stop() {
    absl::MutexLock lock(&state_.mutex);
    stopping_ = true;
  }

  grpc::Status RegisterWorker(grpc::ServerContext*, const v1::RegisterWorkerRequest* request,
                              v1::RegisterWorkerResponse* response) override {
    absl::MutexLock lock(&state_.mutex);
    state_.session = absl::StrCat(request->worker(), "-", ++state_.registrations);
    state_.registered = *request;
    response->set_session(state_.session);
    response->mutable_lease_duration()->set_seconds(15);
    response->mutable_sync_interval()->set_seconds(5);
    return grpc::Status::OK;
  }

  grpc::Status SyncWorker(grpc::ServerContext* context, const v1::SyncWorkerRequest* request,
                          v1::SyncWorkerResponse* response) override {
    absl::MutexLock lock(&state_.mutex);
    if (request->session() != state_.session) {
      return rpc::ToGrpcStatus(error::UnknownSession(request->session()));
    }
    state_.observed.assign(request->attempts().begin(), request->attempts().end());
    state_.leave_within = request->leave_within();
    state_.devices.assign(request->devices().begin(), request->devices().end());
    const auto ready = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex) {
      return stopping_ || request->desired_revision() != state_.revision;
    };
    const absl::Duration deadline = Clock::Real()->Uptime() +
                                    absl::Seconds(request->max_wait().seconds()) +
                                    absl::Nanoseconds(request->max_wait().nanos());
    while (!ready() && Clock::Real()->Uptime() < deadline && !context->IsCancelled()) {
      state_.mutex.AwaitWithTimeout(absl::Condition(&ready), absl::Milliseconds(20));
    }
    response->set_desired_revision(state_.revision);
    for (const auto& [name, attempt] : state_.desired) *response->add_attempts() = attempt;
    return grpc::Status::OK;
  }

  grpc::Status AppendLog(grpc::ServerContext*, const v1::AppendLogRequest* request,
                         v1::AppendResponse* response) override {
    absl::MutexLock lock(&state_.mutex);
    if (absl::Status status = Check(*request); !status.ok()) return rpc::ToGrpcStatus(status);
    auto& streams = request->stream() == v1::RANK_STREAM_TRACE ? state_.traces : state_.logs;
    std::string& log = streams[{request->attempt(), request->rank()}];
    if (log.size() >= state_.log_bytes_max) {
      return rpc::ToGrpcStatus(
          MakeError(absl::StatusCode::kFailedPrecondition, kStreamFull, "the log is full"));
    }
    return Append(log, request->offset(), request->data(), response);
  }

  grpc::Status AppendMetrics(grpc::ServerContext*, const v1::AppendMetricsRequest* request,
                             v1::AppendResponse* response) override {
    absl::MutexLock lock(&state_.mutex);
    if (absl::Status status = Check(*request); !status.ok()) return rpc::ToGrpcStatus(status);
    const int stream = request->of_device() ? DeviceStreamOf(request->rank()) : request->rank();
    const std::pair<std::string, int> key(request->attempt(), stream);
    int64_t& have = state_.metric_offsets[key];
    if (request->end_offset() > have) {
      if (request->offset() != have) {
        return rpc::ToGrpcStatus(error::OffsetMismatch("metrics", request->offset(), have));
      }
      auto& points = state_.points[key];
      points.insert(points.end(), request->points().begin(), request->points().end());
      have = request->end_offset();
    }
    response->set_next_offset(have);
    return grpc::Status::OK;
  }

  grpc::Status AppendCheckpointFile(grpc::ServerContext*,
                                    const v1::AppendCheckpointFileRequest* request,
                                    v1::AppendResponse* response) override {
    absl::MutexLock lock(&state_.mutex);
    if (absl::Status status = Check(*request); !status.ok()) return rpc::ToGrpcStatus(status);
    const std::pair<int64_t, std::string> key(request->step(), request->file().name());
    std::string& file = state_.files[key];
    std::string& hash = state_.hashes[key];
    // Another content under the same name begins a new upload.
    if (!hash.empty() && hash != request->file().hash()) file.clear();
    hash = request->file().hash();
    return Append(file, request->offset(), request->data(), response);
  }

  grpc::Status CommitCheckpoint(grpc::ServerContext*, const v1::CommitCheckpointRequest* request,
                                v1::CommitCheckpointResponse*) override {
    absl::MutexLock lock(&state_.mutex);
    if (absl::Status status = Check(*request); !status.ok()) return rpc::ToGrpcStatus(status);
    for (const v1::CheckpointFile& file : request->files()) {
      std::string& content = state_.files[{request->step(), file.name()}];
      if (ContentHash(content) != file.hash()) {
        content.clear();
        return rpc::ToGrpcStatus(error::CorruptFile(file.name(), "its hash is another"));
      }
    }
    ++state_.commits[request->step()];
    state_.committed = *request;
    return grpc::Status::OK;
  }

  grpc::Status FetchCheckpoint(
      grpc::ServerContext*, const v1::DownloadCheckpointRequest* request,
      grpc::ServerWriter<v1::DownloadCheckpointResponse>* writer) override {
    std::string content;
    int64_t limit = 0;
    {
      absl::MutexLock lock(&state_.mutex);
      if (state_.unavailable > 0) {
        --state_.unavailable;
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "planted");
      }
      if (state_.busy > 0) {
        --state_.busy;
        return rpc::ToGrpcStatus(MakeError(absl::StatusCode::kResourceExhausted, "SERVER_BUSY",
                                           "2000 streams are open; try again"));
      }
      for (const auto& [key, file] : state_.files) {
        if (absl::StrCat("jobs/12/checkpoints/", key.first) == request->name() &&
            key.second == request->file()) {
          content = file;
        }
      }
      limit = std::exchange(state_.take_at_most, 1 << 30);
    }
    if (content.empty()) return rpc::ToGrpcStatus(error::CheckpointNotFound(request->name()));
    v1::DownloadCheckpointResponse response;
    response.set_offset(request->offset());
    content = content.substr(static_cast<size_t>(request->offset()));
    const bool broken = static_cast<int64_t>(content.size()) > limit;
    response.set_data(content.substr(0, static_cast<size_t>(limit)));
    writer->Write(response);
    return broken ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "broken off") : grpc::Status::OK;
  }

  grpc::Status FetchCode(grpc::ServerContext* context, const v1::DownloadCodeRequest* request,
                         grpc::ServerWriter<v1::DownloadCodeResponse>* writer) override {
    std::vector<std::string> pieces;
    absl::Duration pause;
    {
      absl::MutexLock lock(&state_.mutex);
      pieces = state_.code[request->name()];
      pause = state_.code_pause;
    }
    v1::DownloadCodeResponse response;
    for (const std::string& piece : pieces) {
      response.set_data(piece);
      if (!writer->Write(response)) break;
      absl::MutexLock lock(&state_.mutex);
      const absl::Duration end = Clock::Real()->Uptime() + pause;
      while (!stopping_ && Clock::Real()->Uptime() < end && !context->IsCancelled()) {
        state_.mutex.AwaitWithTimeout(absl::Condition(&stopping_), absl::Milliseconds(5));
      }
    }
    return context->IsCancelled() ? grpc::Status::CANCELLED : grpc::Status::OK;
  }

  grpc::Status VerifyCheckpoint(grpc::ServerContext*, const v1::VerifyCheckpointRequest* request,
                                v1::Checkpoint* response) override {
    absl::MutexLock lock(&state_.mutex);
    ++state_.verifications;
    response->set_name(request->name());
    response->set_damage(state_.damage);
    return grpc::Status::OK;
  }

 private:
  template <typename Request>
  absl::Status Check(const Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex) {
    if (request.session().empty()) return InvalidFields({{"session", "must be given"}});
    ++state_.calls;
    if (state_.on_call != nullptr) state_.on_call();
    if (state_.unavailable > 0) {
      --state_.unavailable;
      return absl::UnavailableError("planted");
    }
    if (request.session() != state_.session) return error::UnknownSession(request.session());
    if (request.fencing_token() != state_.fencing_token) {
      return error::StaleFencingToken(request.attempt(), request.fencing_token(),
                                      state_.fencing_token);
    }
    return absl::OkStatus();
  }

  grpc::Status Append(std::string& content, int64_t offset, absl::string_view data,
                      v1::AppendResponse* response) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex) {
    const auto have = static_cast<int64_t>(content.size());
    if (offset > have) {
      return rpc::ToGrpcStatus(error::OffsetMismatch("stream", offset, have));
    }
    const int64_t known = std::min<int64_t>(have - offset, static_cast<int64_t>(data.size()));
    data.remove_prefix(static_cast<size_t>(known));
    content += std::string(data.substr(0, static_cast<size_t>(state_.take_at_most)));
    response->set_next_offset(static_cast<int64_t>(content.size()));
    return grpc::Status::OK;
  }

  FakeServerState& state_;
  bool stopping_ ABSL_GUARDED_BY(state_.mutex) = false;
};

FakeAgentServer::FakeAgentServer(FakeServerState& state, const std::string& socket)
    : state_(state), service_(std::make_unique<Service>(state)) {
  {
    // A new server knows no session of the old one.
    absl::MutexLock lock(&state.mutex);
    state.session.clear();
  }
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
  builder.RegisterService(service_.get());
  server_ = builder.BuildAndStart();
  TY_CHECK(server_ != nullptr);
}

FakeAgentServer::~FakeAgentServer() {
  service_->Stop();
  server_->Shutdown(gpr_inf_past(GPR_CLOCK_REALTIME));
}

}  // namespace trainyard::agent
