// Runs, times and guards the calls of a program.
#include "worker/engine/backend/cuda/program.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/runtime/range.h"
#include "worker/engine/backend/cuda/runtime/runtime.h"

namespace trainyard::engine::cuda {

BufferId Program::AddArenaBuffer(int64_t bytes) {
  return buffers_.AddArena(AlignUpDevice(std::max<int64_t>(bytes, 1)));
}

void Program::Emit(Call call, const Accesses& accesses) {
  const bool is_side = call.is_side;
  if (branch_.EndsBefore(is_side, accesses)) EndBranch();
  if (is_side && !branch_.is_open()) branch_begin_ = calls_.size();
  call.ends_branch = ends_branch_;
  ends_branch_ = false;
  branch_.Add(is_side, accesses);
  std::vector<BufferId> buffers = accesses.reads;
  buffers.insert(buffers.end(), accesses.writes.begin(), accesses.writes.end());
  CallList::Emit(std::move(call), buffers);
}

// No memory of the branch may be given to a call beside it, so its buffers live until here.
void Program::EndBranch() {
  if (branch_.has_company()) {
    buffers_.Touch(static_cast<int>(calls_.size()) - 1, branch_.Buffers());
    ends_branch_ = true;
  } else if (branch_.is_open()) {
    for (size_t i = branch_begin_; i < calls_.size(); ++i) calls_[i].is_side = false;
  }
  branch_ = Branch();
}

void Program::Plan(bool is_guarded, const Program* larger) {
  EndBranch();
  CallList::Plan(is_guarded, larger);
}

absl::Status Program::FillGuards(int call, cudaStream_t stream) const {
  for (std::byte* guard : buffers_.NewGuards(call)) {
    TY_RETURN_IF_ERROR(
        CudaStatus(cudaMemsetAsync(guard, kGuardByte, kGuardBytes, stream), "filling a guard"));
  }
  return absl::OkStatus();
}

absl::Status Program::CheckGuards(int call, cudaStream_t stream) const {
  TY_RETURN_IF_ERROR(
      CudaStatus(cudaStreamSynchronize(stream), calls_[static_cast<size_t>(call)].name));
  for (const std::byte* guard : buffers_.LiveGuards(call)) {
    std::array<uint8_t, kGuardBytes> seen{};
    TY_RETURN_IF_ERROR(CudaStatus(
        cudaMemcpy(seen.data(), guard, seen.size(), cudaMemcpyDeviceToHost), "reading a guard"));
    if (std::any_of(seen.begin(), seen.end(), [](uint8_t byte) { return byte != kGuardByte; })) {
      return absl::InternalError(absl::StrCat("'", calls_[static_cast<size_t>(call)].name,
                                              "' wrote beyond a buffer, or into another's"));
    }
  }
  return absl::OkStatus();
}

absl::Status Program::RunCall(size_t i, const Enqueue& enqueue) const {
  const Call& call = calls_[i];
  if (buffers_.is_guarded()) {
    TY_RETURN_IF_ERROR(FillGuards(static_cast<int>(i), enqueue.stream));
  }
  const ProfilerRange range(call.name);
  TY_RETURN_IF_ERROR(Annotate(call.enqueue(enqueue), call.name));
  TY_RETURN_IF_ERROR(LaunchStatus(call.name));
  if (!buffers_.is_guarded()) return absl::OkStatus();
  return CheckGuards(static_cast<int>(i), enqueue.stream);
}

absl::Status Program::RunCalls(size_t begin, size_t end, const Enqueue& enqueue,
                               bool& is_forked) const {
  Enqueue beside = enqueue;
  if (enqueue.side != nullptr) {
    beside.stream = enqueue.side->stream();
    beside.tickets = enqueue.side->tickets();
  }
  for (size_t i = begin; i < end; ++i) {
    const Call& call = calls_[i];
    if (!enqueue.has_rows && !call.is_of_all_ranks) continue;
    if (is_forked && call.ends_branch) {
      TY_RETURN_IF_ERROR(enqueue.side->Join(enqueue.stream));
      is_forked = false;
    }
    const bool is_side = call.is_side && enqueue.side != nullptr;
    if (is_side && !is_forked) {
      TY_RETURN_IF_ERROR(enqueue.side->Fork(enqueue.stream));
      is_forked = true;
    }
    TY_RETURN_IF_ERROR(RunCall(i, is_side ? beside : enqueue));
  }
  return absl::OkStatus();
}

absl::Status Program::Run(size_t begin, size_t end, const Enqueue& enqueue) const {
  bool is_forked = false;
  absl::Status ran = RunCalls(begin, end, enqueue, is_forked);
  // After an error, too, nobody may find the stream idle while a branch still runs.
  if (is_forked) ran.Update(enqueue.side->Join(enqueue.stream));
  return ran;
}

std::vector<Program::Segment> Program::Segments(size_t begin, size_t end,
                                                absl::Span<const int64_t> ready_ends) const {
  std::vector<Segment> segments;
  Segment open = {.begin = begin, .end = begin};
  const auto close = [&] {
    if (open.begin < open.end) segments.push_back(open);
    open.begin = open.end;
  };
  int64_t told = 0;
  size_t reached = 0;
  for (size_t i = begin; i < end; ++i) {
    if (calls_[i].is_sum_of_ranks) close();
    open.end = i + 1;
    open.ready = std::max(open.ready, calls_[i].ready);
    open.is_sum_of_ranks = calls_[i].is_sum_of_ranks;
    const size_t before = reached;
    while (reached < ready_ends.size() && ready_ends[reached] <= open.ready) ++reached;
    const bool tells = ready_ends.empty() ? open.ready > told : reached > before;
    if (!tells && !open.is_sum_of_ranks) continue;
    told = open.ready;
    close();
  }
  close();
  return segments;
}

std::vector<CallWork> Program::Work() const {
  return {calls_.begin(), calls_.end()};
}

absl::StatusOr<std::vector<CallTime>> Program::Time(const Enqueue& enqueue) const {
  std::vector<Event> marks;
  const auto mark = [&]() -> absl::Status {
    TY_ASSIGN_OR_RETURN(Event event, CreateEvent(/*has_time=*/true));
    TY_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(event.get(), enqueue.stream), "marking a call"));
    marks.push_back(std::move(event));
    return absl::OkStatus();
  };
  TY_RETURN_IF_ERROR(mark());
  for (const Call& call : calls_) {
    const ProfilerRange range(call.name);
    TY_RETURN_IF_ERROR(call.enqueue(enqueue));
    TY_RETURN_IF_ERROR(mark());
  }
  TY_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(enqueue.stream), "timing calls"));
  std::vector<CallTime> times;
  for (size_t i = 0; i < calls_.size(); ++i) {
    float milliseconds = 0;
    TY_RETURN_IF_ERROR(CudaStatus(
        cudaEventElapsedTime(&milliseconds, marks[i].get(), marks[i + 1].get()), "timing calls"));
    times.push_back(
        {calls_[i].name, calls_[i].op, 1e-3 * static_cast<double>(milliseconds), calls_[i].flops});
  }
  return times;
}

}  // namespace trainyard::engine::cuda
