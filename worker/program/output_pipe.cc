// Polls a pipe that does not block, and an event for the end.
#include "worker/program/output_pipe.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace trainyard::program {
namespace {

constexpr size_t kBlock = size_t{64} << 10;
constexpr size_t kLastBytes = 4096;

}  // namespace

absl::StatusOr<std::unique_ptr<OutputPipe>> OutputPipe::Start(int log, int64_t bytes_max) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "cannot make", "a pipe");
  UniqueFd read(ends[0]);
  UniqueFd write(ends[1]);
  // The end of the program blocks, as programs expect.
  (void)fcntl(read.get(), F_SETFL, O_NONBLOCK);
  (void)fcntl(write.get(), F_SETPIPE_SZ, 1 << 20);
  UniqueFd end(eventfd(0, EFD_CLOEXEC));
  if (!end.valid()) return ErrnoStatus(errno, "cannot make", "an event");
  std::unique_ptr<OutputPipe> pipe(
      new OutputPipe(std::move(read), std::move(write), std::move(end), log, bytes_max));
  pipe->thread_ = std::thread([borrowed = pipe.get()] { borrowed->Copy(); });
  return pipe;
}

OutputPipe::~OutputPipe() {
  (void)Finish();
}

int64_t OutputPipe::Finish() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    (void)!write(end_.get(), &one, sizeof one);
    thread_.join();
    (void)WriteFully(log_, last_, "the log");
  }
  return lost_;
}

bool OutputPipe::CopyBlock() {
  char block[kBlock];
  const ssize_t got = read(read_.get(), block, sizeof block);
  if (got <= 0) return got < 0 && errno == EINTR;
  const int64_t wanted = std::min<int64_t>(got, room_);
  room_ -= wanted;
  const absl::string_view text(block, static_cast<size_t>(wanted));
  if (!WriteFully(log_, text, "the log").ok()) lost_ += wanted;
  last_.append(block + wanted, static_cast<size_t>(got - wanted));
  if (last_.size() > kLastBytes) last_.erase(0, last_.size() - kLastBytes);
  return true;
}

void OutputPipe::Copy() {
  while (true) {
    pollfd fds[] = {{read_.get(), POLLIN, 0}, {end_.get(), POLLIN, 0}};
    (void)poll(fds, 2, -1);
    const bool is_last = fds[1].revents != 0;
    // At the end the pipe holds at most what was printed before, and what is printed meanwhile by
    // processes that the program has left behind, which may be without end.
    for (size_t blocks = 0; CopyBlock(); ++blocks) {
      if (is_last && blocks == (size_t{1} << 20) / kBlock) break;
    }
    if (is_last) return;
  }
}

}  // namespace trainyard::program
