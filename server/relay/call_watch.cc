// Reads the heads of frames as RFC 9113 has them. Whether they are right is for gRPC to judge, and
// what gRPC ignores is ignored here too.
#include "server/relay/call_watch.h"

#include <algorithm>

namespace trainyard::relay {
namespace {

constexpr unsigned char kData = 0;
constexpr unsigned char kHeaders = 1;
constexpr unsigned char kResetStream = 3;
constexpr unsigned char kContinuation = 9;
constexpr unsigned char kEndStream = 1;
constexpr unsigned char kEndHeaders = 4;
constexpr uint32_t kStreamBits = 0x7fffffff;

}  // namespace

std::optional<FrameHeads::Head> FrameHeads::Next(absl::string_view& bytes) {
  while (!bytes.empty()) {
    if (to_skip_ > 0) {
      const size_t skipped = std::min<uint64_t>(to_skip_, bytes.size());
      bytes.remove_prefix(skipped);
      to_skip_ -= skipped;
      continue;
    }
    head_[head_size_++] = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    if (head_size_ < kHeadBytes) continue;
    head_size_ = 0;
    Head head;
    head.size = uint64_t{head_[0]} << 16 | uint64_t{head_[1]} << 8 | head_[2];
    head.type = head_[3];
    head.flags = head_[4];
    for (size_t i = 5; i < kHeadBytes; ++i) head.stream = head.stream << 8 | head_[i];
    head.stream &= kStreamBits;
    to_skip_ = head.size;
    return head;
  }
  return std::nullopt;
}

CallWatch::~CallWatch() {
  calls_.TakeBack(under_way_.size(), now_);
}

bool CallWatch::TakeRequests(absl::string_view bytes, absl::Duration now) {
  now_ = now;
  while (const auto head = from_client_.Next(bytes)) {
    if (head->type == kHeaders || head->type == kContinuation) {
      if (!TakeHeaders(*head)) return false;
    } else if (head->type == kResetStream && under_way_.erase(head->stream) > 0) {
      calls_.TakeBack(1, now_);
    }
  }
  return true;
}

bool CallWatch::TakeHeaders(const FrameHeads::Head& head) {
  header_bytes_ += FrameHeads::kHeadBytes + head.size;
  if (header_bytes_ > kHeaderBytesMax) return false;
  if ((head.flags & kEndHeaders) != 0) header_bytes_ = 0;
  if (head.type != kHeaders) return true;
  ++requests_;
  // Each call has a larger odd number than those before. Others begin none.
  if (head.stream <= last_stream_ || head.stream % 2 == 0) return true;
  last_stream_ = head.stream;
  under_way_.insert(head.stream);
  return calls_.Begin(now_);
}

void CallWatch::TakeAnswers(absl::string_view bytes) {
  while (const auto head = from_server_.Next(bytes)) {
    const bool ends_stream =
        (head->type == kData || head->type == kHeaders) && (head->flags & kEndStream) != 0;
    if (!ends_stream && head->type != kResetStream) continue;
    if (under_way_.erase(head->stream) > 0) calls_.End();
  }
}

}  // namespace trainyard::relay
