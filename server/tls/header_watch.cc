// Reads the heads of frames as RFC 9113 has them. Whether they are right is for gRPC to judge.
#include "server/tls/header_watch.h"

#include <algorithm>

namespace trainyard::tls {
namespace {

constexpr unsigned char kHeaders = 1;
constexpr unsigned char kContinuation = 9;
constexpr unsigned char kEndHeaders = 4;

}  // namespace

bool HeaderWatch::Take(absl::string_view bytes) {
  while (!bytes.empty()) {
    if (to_skip_ > 0) {
      const size_t skipped = std::min<uint64_t>(to_skip_, bytes.size());
      bytes.remove_prefix(skipped);
      to_skip_ -= skipped;
      continue;
    }
    head_[head_size_++] = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    if (head_size_ == kHeadBytes && !TakeHead()) return false;
  }
  return true;
}

bool HeaderWatch::TakeHead() {
  head_size_ = 0;
  to_skip_ = uint64_t{head_[0]} << 16 | uint64_t{head_[1]} << 8 | head_[2];
  const unsigned char type = head_[3];
  if (type != kHeaders && type != kContinuation) return true;
  if (type == kHeaders) ++requests_;
  header_bytes_ += kHeadBytes + to_skip_;
  if (header_bytes_ > kHeaderBytesMax) return false;
  if ((head_[4] & kEndHeaders) != 0) header_bytes_ = 0;
  return true;
}

}  // namespace trainyard::tls
