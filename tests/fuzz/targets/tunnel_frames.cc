// Reads what the ends of a tunnel send: frames of users and of workers, as the server checks them,
// and messages of trainyard-enter, as the worker's daemon reads them.
#include "server/rpc/tunnel_frames.h"
#include "common/base/check.h"
#include "server/rpc/limits.h"
#include "server/rpc/request.h"
#include "server/rpc/tunnel_limits.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"
#include "trainyard/v1/tunnel.pb.h"
#include "worker/enter/protocol.h"

namespace trainyard::fuzz::tunnel_frames {
namespace {

bool IsTerminal(const v1::TerminalSize& size) {
  return size.columns() >= 1 && size.columns() <= rpc::kTerminalSizeMax && size.rows() >= 1 &&
         size.rows() <= rpc::kTerminalSizeMax;
}

void CheckFailure(const v1::TunnelFailure& failure) {
  const absl::Status status = rpc::StatusOf(failure);
  TY_CHECK(absl::IsFailedPrecondition(status));
  TY_CHECK(status.message().size() <= rpc::kReasonBytesMax);
  TY_CHECK(status.message().find('\x1b') == absl::string_view::npos);
}

void CheckFrame(const v1::TunnelFrame& frame) {
  const absl::Status of_user = rpc::CheckFrameOfUser(frame);
  const absl::Status of_worker = rpc::CheckFrameOfWorker(frame);
  for (const absl::Status& status : {of_user, of_worker}) {
    TY_CHECK(status.ok() || absl::IsInvalidArgument(status));
    TY_CHECK(!status.ok() || frame.ByteSizeLong() <= rpc::kTunnelFrameBytesMax);
    // These come first, and are checked in other ways.
    TY_CHECK(!status.ok() || (!frame.has_open() && !frame.has_claim()));
  }
  TY_CHECK(!of_user.ok() || !of_worker.ok() || frame.has_ping());
  if (of_user.ok() && frame.has_size()) TY_CHECK(IsTerminal(frame.size()));
  if (of_user.ok() && frame.has_signal()) {
    TY_CHECK(frame.signal() >= 1 && frame.signal() <= rpc::kSignalMax);
  }
  if (of_worker.ok() && frame.has_grant()) TY_CHECK(frame.grant() > 0);
  if (frame.has_failure()) CheckFailure(frame.failure());
}

void CheckRequest(const v1::TunnelOpen& open) {
  rpc::RequestCheck check;
  rpc::CheckOpen(open, check);
  if (!check.ok()) {
    TY_CHECK(absl::IsInvalidArgument(check.Take()));
    return;
  }
  TY_CHECK(rpc::DescribeOpen(open).find(open.job()) == 0);
  TY_CHECK(open.rank() >= 0);
  if (open.has_port()) {
    TY_CHECK(open.port() >= 1 && open.port() <= 65535);
    return;
  }
  TY_CHECK(open.has_command());
  TY_CHECK(open.command().words_size() <= rpc::kCommandWordsMax);
  if (open.command().has_terminal()) TY_CHECK(IsTerminal(open.command().terminal()));
  for (const std::string& word : open.command().words()) {
    TY_CHECK(word.find('\0') == std::string::npos);
  }
}

void CheckMessage(absl::string_view text) {
  const auto message = enter::ParseMessage(text.substr(0, enter::kMessageBytesMax));
  if (!message.ok()) return;
  const std::string said = enter::MessageText(*message);
  TY_CHECK(said.size() <= enter::kMessageBytesMax);
  const auto again = enter::ParseMessage(said);
  TY_CHECK_OK(again.status());
  TY_CHECK(enter::MessageText(*again) == said);
}

// The first byte chooses between a frame, and a message between the worker and its helper.
void Run(absl::string_view bytes) {
  Input input(bytes);
  const bool is_frame = input.Below(2) == 0;
  const absl::string_view rest = input.Rest();
  if (!is_frame) return CheckMessage(rest);
  v1::TunnelFrame frame;
  if (!frame.ParseFromArray(rest.data(), static_cast<int>(rest.size()))) return;
  CheckFrame(frame);
  if (frame.has_open()) CheckRequest(frame.open());
}

const Registration kTarget({.name = "tunnel_frames", .run = Run, .fixed_bytes = kMessageBytes});

}  // namespace
}  // namespace trainyard::fuzz::tunnel_frames
