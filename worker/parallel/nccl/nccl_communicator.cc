// Connects a gang over NCCL, enqueues its collectives, and bounds every wait.
#include "worker/parallel/nccl/nccl_communicator.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/status_macros.h"
#include "worker/run_dir/rendezvous.h"

namespace trainyard::parallel {
namespace {

// Rank 0 of a group writes NCCL's unique id here, in hexadecimal digits.
std::string IdKey(const Membership& membership) {
  return absl::StrCat("nccl.", membership.key_prefix, membership.Global(0));
}

// The host first looks again at once, since most collectives end within microseconds, and then
// sleeps between looks.
constexpr int kBusyLooks = 1000;
constexpr absl::Duration kPause = absl::Microseconds(50);
// The time that a communicator waits, when it is destroyed, for those of the other ranks to be
// destroyed, too.
constexpr absl::Duration kFinalizeTimeout = absl::Seconds(5);

// Returns true if what is enqueued on the stream becomes part of a graph.
absl::StatusOr<bool> IsCaptured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  TY_RETURN_IF_ERROR(FromCuda(cudaStreamIsCapturing(stream, &status), "stream of a collective"));
  return status != cudaStreamCaptureStatusNone;
}

absl::Status StoppedBy(int rank) {
  return absl::CancelledError(
      absl::StrCat("rank ", rank, ": stopped while it waited for the other ranks"));
}

absl::StatusOr<ncclUniqueId> PublishId(const NcclOptions& options, const Membership& membership) {
  ncclUniqueId id = {};
  if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess) {
    return PeerLost({options.rank, "connect", 0}, options.rank, ncclGetErrorString(result));
  }
  const std::string text =
      absl::BytesToHexString(absl::string_view(id.internal, sizeof(id.internal)));
  const absl::Status set = run_dir::SetRendezvousKey(options.run_dir, IdKey(membership), text);
  if (absl::IsAlreadyExists(set)) {
    return absl::FailedPreconditionError(absl::StrCat("'", options.run_dir.RendezvousDir(),
                                                      "' holds keys of an earlier run; remove "
                                                      "the folder"));
  }
  TY_RETURN_IF_ERROR(set);
  return id;
}

absl::StatusOr<ncclUniqueId> AwaitId(const NcclOptions& options, const Membership& membership,
                                     absl::Duration deadline) {
  constexpr absl::Duration kPoll = absl::Milliseconds(1);
  Clock* clock = Clock::Real();
  const Collective connect{options.rank, "connect", 0};
  while (true) {
    const auto text = run_dir::GetRendezvousKey(options.run_dir, IdKey(membership));
    if (text.ok()) {
      ncclUniqueId id = {};
      const std::string bytes = absl::HexStringToBytes(*text);
      if (text->size() != 2 * sizeof(id.internal)) {
        return PeerLost(connect, membership.Global(0),
                        absl::StrCat("its id has ", text->size(), " digits"));
      }
      std::memcpy(id.internal, bytes.data(), sizeof(id.internal));
      return id;
    }
    if (options.cancelled != nullptr && options.cancelled->load()) return StoppedBy(options.rank);
    if (clock->Uptime() >= deadline) {
      return CollectiveTimedOut(connect, membership.Global(0), options.connect_timeout);
    }
    clock->SleepFor(kPoll);
  }
}

}  // namespace

NcclCommunicator::NcclCommunicator(const NcclOptions& options)
    : membership_(MembershipOf(options.group, options.rank, options.world_size)),
      cancelled_(options.cancelled),
      timeout_(options.connect_timeout),
      last_collective_{options.rank, "connect", 0},
      awaited_(last_collective_) {}

NcclCommunicator::~NcclCommunicator() {
  (void)cudaSetDevice(device_);
  if (communicator_ == nullptr) return;
  timeout_ = std::min(timeout_, kFinalizeTimeout);
  const absl::Duration deadline = Clock::Real()->Uptime() + timeout_;
  // After a failure, the connection is aborted, too.
  if (Settle(ncclCommFinalize(communicator_), deadline).ok()) {
    (void)ncclCommDestroy(communicator_);
  }
}

absl::Status NcclCommunicator::Connect(const NcclOptions& options) {
  const absl::Duration deadline = Clock::Real()->Uptime() + timeout_;
  TY_RETURN_IF_ERROR(FromCuda(cudaGetDevice(&device_), "device of a communicator"));
  TY_RETURN_IF_ERROR(last_.Create());
  ncclUniqueId id = {};
  if (rank() == 0) {
    TY_ASSIGN_OR_RETURN(id, PublishId(options, membership_));
  } else {
    TY_ASSIGN_OR_RETURN(id, AwaitId(options, membership_, deadline));
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (options.blocks_max > 0) config.maxCTAs = options.blocks_max;
  const ncclResult_t result =
      ncclCommInitRankConfig(&communicator_, world_size(), id, rank(), &config);
  if (result != ncclSuccess && result != ncclInProgress) {
    // If the connection has not begun, there is nothing to abort.
    communicator_ = nullptr;
    return PeerLost(awaited_, me(), ncclGetErrorString(result));
  }
  return Settle(result, deadline);
}

// NCCL sums in an order of its own, which is the same on all ranks, so that all get the same bits.
absl::Status NcclCommunicator::EnqueueAllReduce(absl::Span<float> values, cudaStream_t stream) {
  return Enqueue("all_reduce", stream, [&] {
    if (values.empty()) return ncclSuccess;
    return ncclAllReduce(values.data(), values.data(), values.size(), ncclFloat32, ncclSum,
                         communicator_, stream);
  });
}

absl::Status NcclCommunicator::EnqueueAllReduceBf16(void* values, int64_t count,
                                                    cudaStream_t stream) {
  return Enqueue("all_reduce", stream, [&] {
    if (count == 0) return ncclSuccess;
    return ncclAllReduce(values, values, static_cast<size_t>(count), ncclBfloat16, ncclSum,
                         communicator_, stream);
  });
}

absl::Status NcclCommunicator::EnqueueMessages(absl::string_view operation,
                                               absl::Span<const Message> sends,
                                               absl::Span<const Message> receives,
                                               cudaStream_t stream) {
  return Enqueue(operation, stream, [&] {
    ncclResult_t result = ncclGroupStart();
    for (const Message& out : sends) {
      if (out.count == 0 || result != ncclSuccess) continue;
      result = ncclSend(out.values, static_cast<size_t>(out.count), ncclFloat32, out.peer,
                        communicator_, stream);
    }
    for (const Message& in : receives) {
      if (in.count == 0 || result != ncclSuccess) continue;
      result = ncclRecv(in.values, static_cast<size_t>(in.count), ncclFloat32, in.peer,
                        communicator_, stream);
    }
    // The group must be ended in any case.
    const ncclResult_t ended = ncclGroupEnd();
    return result == ncclSuccess ? ended : result;
  });
}

absl::Status NcclCommunicator::Await(cudaEvent_t event, const Collective& awaited) {
  if (!broken_.ok()) return broken_;
  awaited_ = awaited;
  TY_RETURN_IF_ERROR(FromCuda(cudaSetDevice(device_), "device of a communicator"));
  return Poll([this, event] { return LookAt(event); }, Clock::Real()->Uptime() + timeout_);
}

absl::Status NcclCommunicator::Enqueue(absl::string_view operation, cudaStream_t stream,
                                       const std::function<ncclResult_t()>& enqueue) {
  last_collective_ = awaited_ = {me(), operation, ++sequence_};
  const absl::Duration deadline = Clock::Real()->Uptime() + timeout_;
  if (!broken_.ok()) return broken_;
  if (const cudaError_t error = cudaSetDevice(device_); error != cudaSuccess) {
    return Break(FromCuda(error, awaited_.operation));
  }
  TY_ASSIGN_OR_RETURN(const bool is_captured, IsCaptured(stream));
  if (!is_captured) {
    TY_RETURN_IF_ERROR(
        FromCuda(cudaStreamWaitEvent(stream, last_.get(), 0), "order of collectives"));
  }
  // A call in progress may still be about to launch its kernel, so nothing may follow on the stream
  // before the call has ended.
  TY_RETURN_IF_ERROR(Settle(enqueue(), deadline));
  if (is_captured) return absl::OkStatus();
  return FromCuda(cudaEventRecord(last_.get(), stream), "order of collectives");
}

absl::Status NcclCommunicator::Settle(ncclResult_t result, absl::Duration deadline) {
  if (!broken_.ok()) return broken_;
  if (result == ncclSuccess) return absl::OkStatus();
  if (result != ncclInProgress) {
    return Break(absl::InternalError(
        absl::StrCat("rank ", me(), ": ", awaited_.operation, " ", awaited_.sequence, ": ",
                     ncclGetErrorString(result), ": ", ncclGetLastError(communicator_))));
  }
  return Poll([this] { return State(); }, deadline);
}

absl::Status NcclCommunicator::Poll(const Look& look, absl::Duration deadline) {
  Clock* clock = Clock::Real();
  for (int looks = 0; true; ++looks) {
    if (const std::optional<absl::Status> status = look(); status.has_value()) {
      return status->ok() ? *status : Break(*status);
    }
    TY_RETURN_IF_ERROR(CheckDeadline(deadline));
    if (looks >= kBusyLooks) clock->SleepFor(kPause);
  }
}

absl::Status NcclCommunicator::CheckDeadline(absl::Duration deadline) {
  if (cancelled_ != nullptr && cancelled_->load()) return Break(StoppedBy(me()));
  if (Clock::Real()->Uptime() < deadline) return absl::OkStatus();
  return Break(CollectiveTimedOut(awaited_, -1, timeout_));
}

absl::Status NcclCommunicator::Watch(absl::Duration waited, const Collective& awaited) {
  if (!broken_.ok()) return broken_;
  awaited_ = awaited;
  const std::optional<absl::Status> state = State();
  if (state.has_value() && !state->ok()) return Break(*state);
  return CheckDeadline(Clock::Real()->Uptime() - waited + timeout_);
}

std::optional<absl::Status> NcclCommunicator::LookAt(cudaEvent_t event) const {
  const cudaError_t happened = cudaEventQuery(event);
  // "Not ready" stays as the thread's last error, where the next kernel launch would find it.
  if (happened != cudaSuccess) (void)cudaGetLastError();
  if (happened != cudaSuccess && happened != cudaErrorNotReady) {
    return FromCuda(happened,
                    absl::StrCat("rank ", me(), ": ", awaited_.operation, " ", awaited_.sequence));
  }
  // Kernels that NCCL gives up end as if they were done, so NCCL is asked last.
  std::optional<absl::Status> state = State();
  if (state.has_value() && !state->ok()) return state;
  return happened == cudaSuccess ? state : std::nullopt;
}

std::optional<absl::Status> NcclCommunicator::State() const {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(communicator_, &state);
  if (asked != ncclSuccess) return PeerLost(awaited_, -1, ncclGetErrorString(asked));
  if (state == ncclSuccess) return absl::OkStatus();
  if (state == ncclInProgress) return std::nullopt;
  return PeerLost(awaited_, -1,
                  absl::StrCat(ncclGetErrorString(state), ": ", ncclGetLastError(communicator_)));
}

absl::Status NcclCommunicator::Break(absl::Status status) {
  broken_ = std::move(status);
  if (communicator_ != nullptr) (void)ncclCommAbort(std::exchange(communicator_, nullptr));
  return broken_;
}

void NcclCommunicator::Abort(absl::Status status) {
  if (broken_.ok()) Break(std::move(status)).IgnoreError();
}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> ConnectNccl(const NcclOptions& options) {
  TY_CHECK(options.rank >= 0 && options.rank < options.world_size);
  auto communicator = std::unique_ptr<NcclCommunicator>(new NcclCommunicator(options));
  TY_RETURN_IF_ERROR(communicator->Connect(options));
  communicator->set_timeout(options.timeout);
  return communicator;
}

}  // namespace trainyard::parallel
