// Opens tunnels: checks who may, asks the worker to come, and joins the two streams.
#include "server/rpc/tunnel_service.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/tunnel_errors.h"
#include "grpc/support/time.h"
#include "grpcpp/alarm.h"
#include "server/access/rules.h"
#include "server/core/lifecycle/attempt_fsm.h"
#include "server/rpc/answers.h"
#include "server/rpc/decisions.h"
#include "server/rpc/gate.h"
#include "server/rpc/request.h"
#include "server/rpc/tunnel_frames.h"
#include "server/rpc/tunnels.h"

namespace trainyard::rpc {
namespace {

constexpr access::Rule kOpenRule = access::RuleOf("TunnelService/OpenTunnel");

absl::Status TunnelLost(absl::string_view why) {
  return MakeError(absl::StatusCode::kUnavailable, error::kTunnelLost, why);
}

gpr_timespec After(absl::Duration duration) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_millis(absl::ToInt64Milliseconds(duration), GPR_TIMESPAN));
}

// A command has all rights of the owner on the hosts of the workers. Operators look after the
// queue; they are not meant to read the files of others.
absl::Status CheckMayEnter(const access::Caller& caller, const Services& services,
                           const runtime::JobView& view) {
  if (!MaySee(caller, services, view.record)) return error::JobNotFound(JobName(view.record.id));
  const std::string& owner = view.record.submission->user;
  if (caller.user == owner || caller.role == access::Role::kAdmin) return absl::OkStatus();
  return MakeError(absl::StatusCode::kPermissionDenied, "NOT_OWNER",
                   absl::StrCat(JobName(view.record.id), " belongs to '", owner, "', and you are '",
                                caller.user, "'; only its owner and administrators may enter it"));
}

// Returns the tunnel to the rank of the attempt that runs.
absl::StatusOr<Tunnel> FindRank(const runtime::JobView& view, const v1::TunnelOpen& open) {
  const core::AttemptRecord* attempt = view.attempt.get();
  const std::string job = JobName(view.record.id);
  if (attempt == nullptr || core::attempt_fsm::IsFinal(attempt->state)) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "JOB_STATE_CONFLICT",
                     absl::StrCat("nothing of ", job, " runs; `trainyard show ",
                                  absl::StripPrefix(job, "jobs/"), "` tells its state"));
  }
  for (const core::RankPlacement& placed : attempt->ranks) {
    if (placed.rank != open.rank()) continue;
    const core::AttemptPart* part = core::FindPart(*attempt, placed.worker);
    if (part != nullptr && !core::HoldsDevices(part->state)) {
      return MakeError(absl::StatusCode::kFailedPrecondition, error::kRankEnded,
                       absl::StrCat("rank ", open.rank(), " of ", job, " has ended"));
    }
    if (part != nullptr && part->state == core::PartState::kAssigned) {
      return MakeError(absl::StatusCode::kFailedPrecondition, "JOB_STATE_CONFLICT",
                       absl::StrCat("rank ", open.rank(), " of ", job,
                                    " has not started yet; try again in a moment"));
    }
    return Tunnel{"", placed.worker, attempt->id, attempt->fencing_token, placed.rank, open};
  }
  return MakeError(
      absl::StatusCode::kNotFound, error::kRankNotFound,
      absl::StrCat(job, " has no rank ", open.rank(), "; it has ",
                   attempt->ranks.size() == 1 ? std::string("rank 0 alone")
                                              : absl::StrCat("0 to ", attempt->ranks.size() - 1)));
}

// The stream of a user.
class UserEnd : public TunnelStream {
 public:
  UserEnd(Services& services, access::Caller caller)
      : services_(services), caller_(std::move(caller)), id_(MakeUuid(services.rng)) {}

 protected:
  void TakeFirst(v1::TunnelFrame frame) override {
    const absl::Status opened = Open(std::move(frame));
    if (!opened.ok()) End(opened);
  }
  absl::Status Check(const v1::TunnelFrame& frame) const override {
    return CheckFrameOfUser(frame);
  }
  absl::Status EndOfOther(const absl::Status&) const override {
    return absl::CancelledError("the user has gone");
  }
  void OnEnd() override {
    alarm_.Cancel();
    services_.tunnels->Remove(id_);
  }
  void OnGone() override { services_.streams.Remove(this); }

 private:
  absl::Status Open(v1::TunnelFrame frame) {
    RequestCheck check;
    if (!frame.has_open()) check.Add("open", "must be the first frame");
    if (frame.has_open()) CheckOpen(frame.open(), check);
    if (!check.ok()) return check.Take();
    const v1::TunnelOpen& open = frame.open();
    TY_ASSIGN_OR_RETURN(const auto view, FindJob(services_.board, *ParseJobName(open.job())));
    const absl::Status may = CheckMayEnter(caller_, services_, *view);
    Note(open, may);
    TY_RETURN_IF_ERROR(may);
    TY_ASSIGN_OR_RETURN(Tunnel tunnel, FindRank(*view, open));
    tunnel.user = UserActor(caller_.user);
    const std::string worker = tunnel.worker;
    auto self = std::static_pointer_cast<UserEnd>(shared_from_this());
    TY_RETURN_IF_ERROR(services_.tunnels->Add(id_, std::move(tunnel), self));
    // The user may have gone before the tunnel was there to be removed.
    if (has_ended()) services_.tunnels->Remove(id_);
    alarm_.Set(After(services_.tunnels->wait()), [self, worker](bool is_due) {
      if (is_due) self->GiveUp(worker);
    });
    services_.runtime.Wake(worker);
    return absl::OkStatus();
  }

  // A refusal is always noted, and so is each command.
  void Note(const v1::TunnelOpen& open, const absl::Status& may) {
    const std::string about = DescribeOpen(open);
    if (may.ok() && open.has_port() &&
        !services_.tunnels->IsForwardNew(absl::StrCat(caller_.user, " ", about),
                                         Clock::Real()->Uptime())) {
      return;
    }
    WriteDecision(kOpenRule, caller_, services_, about, may);
  }

  void GiveUp(const std::string& worker) {
    if (!services_.tunnels->GiveUp(id_)) return;
    End(TunnelLost(absl::StrCat("worker '", worker, "' has not come within ",
                                absl::FormatDuration(services_.tunnels->wait()),
                                "; `trainyard workers ls` tells whether it is there")));
  }

  Services& services_;
  const access::Caller caller_;
  const std::string id_;
  grpc::Alarm alarm_;
};

// The stream of a worker.
class WorkerEnd : public TunnelStream {
 public:
  WorkerEnd(Services& services, const WorkerSessions& sessions, access::Caller caller)
      : services_(services), sessions_(sessions), caller_(std::move(caller)) {}

  // Keeps this object until gRPC is done with it.
  void Start() {
    self_ = std::static_pointer_cast<WorkerEnd>(shared_from_this());
    alarm_.Set(After(services_.tunnels->wait()), [self = self_](bool is_due) {
      if (is_due && !self->is_joined_) self->End(absl::DeadlineExceededError("no claim has come"));
    });
    Begin();
  }

 protected:
  void TakeFirst(v1::TunnelFrame frame) override {
    if (!frame.has_claim()) {
      return End(InvalidFields({{"claim", "must be the first frame"}}));
    }
    const absl::Status own = sessions_.Check(caller_, frame.claim().session());
    const auto attempt = ParseAttemptName(frame.claim().attempt());
    if (!own.ok() || !attempt.ok()) return End(own.ok() ? attempt.status() : own);
    services_.runtime.Read([self = self_, attempt = *attempt,
                            claim = frame.claim()](absl::StatusOr<const core::Yard*> yard) {
      absl::Status status = yard.status();
      if (status.ok())
        status = (*yard)->CheckStream(claim.session(), attempt, claim.fencing_token());
      if (!status.ok()) return self->End(status);
      self->Claim(*(*yard)->WorkerOfSession(claim.session()), claim);
    });
  }
  absl::Status Check(const v1::TunnelFrame& frame) const override {
    return CheckFrameOfWorker(frame);
  }
  absl::Status EndOfOther(const absl::Status&) const override {
    return TunnelLost(absl::StrCat("worker '", worker_, "' has broken the connection off"));
  }
  void PassOn(v1::TunnelFrame frame, TunnelStream& other) override {
    if (frame.has_failure()) return other.End(StatusOf(frame.failure()));
    if (frame.has_opened()) frame.mutable_opened()->set_worker(WorkerName(worker_));
    if (!frame.has_exit()) return TunnelStream::PassOn(std::move(frame), other);
    auto user = other.shared_from_this();
    other.Send(std::move(frame), [user] { user->End(absl::OkStatus()); });
  }
  void OnEnd() override {
    alarm_.Cancel();
    Uncount();
  }
  void OnGone() override { self_.reset(); }

 private:
  void Uncount() {
    if (is_counted_.exchange(false)) services_.tunnels->EndUnclaimed(PrincipalOf(caller_));
  }

  void Claim(const std::string& worker, const v1::TunnelClaim& claim) {
    worker_ = worker;
    auto claimed = services_.tunnels->Claim(worker, claim);
    if (!claimed.ok()) return End(claimed.status());
    is_joined_ = true;
    Uncount();
    v1::TunnelFrame open;
    *open.mutable_open() = std::move(claimed->tunnel.open);
    Send(std::move(open));
    Join(claimed->user, shared_from_this());
  }

  Services& services_;
  const WorkerSessions& sessions_;
  const access::Caller caller_;
  std::shared_ptr<WorkerEnd> self_;
  std::string worker_;  // is set before the ends are joined
  std::atomic<bool> is_joined_{false};
  std::atomic<bool> is_counted_{true};  // among those that nobody has claimed
  grpc::Alarm alarm_;
};

}  // namespace

TunnelServiceImpl::TunnelServiceImpl(Services& services) : services_(services) {}

TunnelReactor* TunnelServiceImpl::OpenTunnel(grpc::CallbackServerContext* context) {
  const auto caller = Admit(kOpenRule, *context, services_, {}, /*is_trial=*/false);
  if (!caller.ok()) return FailedTunnel(caller.status());
  auto stream = std::make_shared<UserEnd>(services_, *caller);
  const absl::Status added = services_.streams.Add(stream, OwnerOf(*caller));
  if (!added.ok()) return FailedTunnel(added);
  stream->Begin();
  return stream.get();
}

TunnelReactor* StartServeTunnel(Services& services, const WorkerSessions& sessions,
                                const access::Caller& caller) {
  const absl::Status may = services.tunnels->BeginUnclaimed(PrincipalOf(caller));
  if (!may.ok()) return FailedTunnel(may);
  auto stream = std::make_shared<WorkerEnd>(services, sessions, caller);
  stream->Start();
  return stream.get();
}

void AddTunnels(const Services& services, const std::string& worker,
                v1::SyncWorkerResponse& response) {
  for (const auto& [id, tunnel] : services.tunnels->WaitingFor(worker)) {
    v1::DesiredTunnel& added = *response.add_tunnels();
    added.set_tunnel(id);
    added.set_attempt(AttemptName(tunnel.attempt));
    added.set_fencing_token(tunnel.fencing_token);
    added.set_rank(tunnel.rank);
  }
}

}  // namespace trainyard::rpc
