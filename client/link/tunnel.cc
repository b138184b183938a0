// Keeps the credit, and a thread that waits for input and credit.
#include "client/link/tunnel.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <utility>

#include "common/base/check.h"

namespace trainyard::link {
namespace {

constexpr size_t kChunkBytes = size_t{64} << 10;
constexpr int kTickMs = 200;
// A tunnel that is silent for long is kept open by gateways on its way.
constexpr int kTicksPerPing = 150;

}  // namespace

Tunnel::Tunnel(ServerLink& link, const v1::TunnelOpen& open)
    : link_(link), wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  TY_CHECK(wake_.valid());
  stream_ = link.tunnels().OpenTunnel(&context_);
  v1::TunnelFrame frame;
  *frame.mutable_open() = open;
  (void)Write(frame);
}

Tunnel::~Tunnel() {
  if (is_finished_) return;
  context_.TryCancel();
  v1::TunnelFrame frame;
  while (stream_->Read(&frame)) {
  }
  (void)stream_->Finish();
}

bool Tunnel::Read(v1::TunnelFrame& frame) {
  while (stream_->Read(&frame)) {
    if (frame.has_ping()) continue;
    if (!frame.has_grant()) return true;
    {
      const absl::MutexLock lock(&mutex_);
      credit_ += frame.grant();
    }
    Wake();
  }
  return false;
}

bool Tunnel::Write(const v1::TunnelFrame& frame) {
  const absl::MutexLock lock(&write_mutex_);
  return stream_->Write(frame);
}

int64_t Tunnel::credit() const {
  const absl::MutexLock lock(&mutex_);
  return credit_;
}

void Tunnel::Spend(int64_t bytes) {
  const absl::MutexLock lock(&mutex_);
  credit_ -= bytes;
}

absl::Status Tunnel::Finish() {
  is_finished_ = true;
  const grpc::Status status = stream_->Finish();
  return status.ok() ? absl::OkStatus() : link_.Error(status);
}

void Tunnel::Wake() {
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
}

InputPump::InputPump(Tunnel& tunnel, int descriptor, std::function<void()> on_tick)
    : tunnel_(tunnel), descriptor_(descriptor), on_tick_(std::move(on_tick)) {
  thread_ = std::thread([this] { Run(); });
}

InputPump::~InputPump() {
  {
    const absl::MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  tunnel_.Wake();
  thread_.join();
}

void InputPump::Run() {
  bool is_open = true;
  for (int ticks = 1;; ++ticks) {
    {
      const absl::MutexLock lock(&mutex_);
      if (is_stopping_) return;
    }
    const bool may_send = is_open && tunnel_.credit() > 0;
    pollfd fds[] = {{tunnel_.wake_fd(), POLLIN, 0}, {may_send ? descriptor_ : -1, POLLIN, 0}};
    const int ready = poll(fds, 2, kTickMs);
    uint64_t count = 0;
    if (fds[0].revents != 0) (void)!read(tunnel_.wake_fd(), &count, sizeof count);
    if (on_tick_) on_tick_();
    if (ready == 0 && ticks % kTicksPerPing == 0) {
      v1::TunnelFrame ping;
      ping.mutable_ping();
      (void)tunnel_.Write(ping);
    }
    if (fds[1].revents != 0) is_open = Pass();
  }
}

bool InputPump::Pass() {
  std::array<char, kChunkBytes> buffer{};
  const auto most = std::min<int64_t>(tunnel_.credit(), static_cast<int64_t>(buffer.size()));
  const ssize_t got = read(descriptor_, buffer.data(), static_cast<size_t>(most));
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  v1::TunnelFrame frame;
  if (got <= 0) {
    frame.mutable_input_end();
    (void)tunnel_.Write(frame);
    return false;
  }
  tunnel_.Spend(got);
  frame.set_input(std::string(buffer.data(), static_cast<size_t>(got)));
  return tunnel_.Write(frame);
}

bool WriteAll(int descriptor, const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t put = write(descriptor, bytes.data() + done, bytes.size() - done);
    if (put >= 0) {
      done += static_cast<size_t>(put);
    } else if (errno == EAGAIN) {
      pollfd ready{descriptor, POLLOUT, 0};
      (void)poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace trainyard::link
