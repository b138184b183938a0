// Holds at most one buffer of bytes for each way, so that a slow reader slows the writer down.
#include "client/link/relay.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace trainyard::link {
namespace {

// This is as much as a pipe holds.
constexpr size_t kBufferBytes = size_t{64} << 10;

bool IsTransient(int error_number) {
  return error_number == EINTR || error_number == EAGAIN || error_number == EWOULDBLOCK;
}

}  // namespace

OneWay::OneWay(int from, int to, absl::string_view first)
    : from_(from), to_(to), buffer_(std::max(kBufferBytes, first.size())), end_(first.size()) {
  std::copy(first.begin(), first.end(), buffer_.begin());
}

pollfd OneWay::ToRead() const {
  const bool has_room = end_ < buffer_.size();
  return {is_open() && !has_ended_ && has_room ? from_ : -1, POLLIN, 0};
}

pollfd OneWay::ToWrite() const {
  return {is_open() && begin_ < end_ ? to_ : -1, POLLOUT, 0};
}

void OneWay::Move() {
  if (!is_open()) return;
  if (!has_ended_ && end_ < buffer_.size()) {
    const ssize_t got = read(from_, buffer_.data() + end_, buffer_.size() - end_);
    if (got > 0) end_ += static_cast<size_t>(got);
    if (got == 0 || (got < 0 && !IsTransient(errno))) has_ended_ = true;
  }
  if (begin_ < end_) {
    const ssize_t put = write(to_, buffer_.data() + begin_, end_ - begin_);
    if (put > 0) begin_ += static_cast<size_t>(put);
    if (put < 0 && !IsTransient(errno)) is_broken_ = true;
  }
  if (begin_ == end_) begin_ = end_ = 0;
}

bool OneWay::is_open() const {
  return !is_broken_ && !(has_ended_ && begin_ == end_);
}

void SetNonBlocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags >= 0) fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

}  // namespace trainyard::link
