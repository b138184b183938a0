// Knows which frame may come from whom.
#include "server/rpc/tunnel_frames.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/strings.h"
#include "common/base/tunnel_errors.h"
#include "server/rpc/limits.h"
#include "server/rpc/tunnel_limits.h"

namespace trainyard::rpc {
namespace {

using Frame = v1::TunnelFrame;

absl::Status BadFrame(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, error::kBadTunnelFrame, what);
}

absl::Status CheckBytes(const Frame& frame) {
  const size_t size = frame.ByteSizeLong();
  if (size <= kTunnelFrameBytesMax) return absl::OkStatus();
  return BadFrame(
      absl::StrCat("a frame has ", size, " bytes; expected at most ", kTunnelFrameBytesMax));
}

void CheckSize(const v1::TerminalSize& size, const std::string& field, RequestCheck& check) {
  for (const auto& [name, value] :
       {std::pair{".columns", size.columns()}, {".rows", size.rows()}}) {
    if (value >= 1 && value <= kTerminalSizeMax) continue;
    check.Add(field + name, absl::StrCat(value, "; expected 1 to ", kTerminalSizeMax));
  }
}

void CheckCommand(const v1::ExecCommand& command, RequestCheck& check) {
  check.MaxCount("open.command.words", command.words_size(), kCommandWordsMax);
  size_t bytes = 0;
  bool has_zero = false;
  for (const std::string& word : command.words()) {
    bytes += word.size() + 1;
    has_zero = has_zero || word.find('\0') != std::string::npos;
  }
  // It is said once, for a message may have a million such words.
  if (has_zero) {
    check.Add("open.command.words", "a word has a zero byte, which no command can have");
  }
  if (bytes > kCommandBytesMax) {
    check.Add("open.command.words", absl::StrCat("have ", bytes, " bytes; expected at most ",
                                                 kCommandBytesMax, ". Put them into a file"));
  }
  if (command.words_size() > 0 && command.words(0).empty()) {
    check.Add("open.command.words", "the first word is empty; expected a program");
  }
  check.MaxBytes("open.command.term", command.term(), kTermBytesMax);
  if (!std::all_of(command.term().begin(), command.term().end(),
                   [](unsigned char c) { return absl::ascii_isgraph(c) != 0; })) {
    check.Add("open.command.term", "expected the name of a terminal, such as xterm-256color");
  }
  if (command.has_terminal()) CheckSize(command.terminal(), "open.command.terminal", check);
}

}  // namespace

void CheckOpen(const v1::TunnelOpen& open, RequestCheck& check) {
  (void)check.Job("open.job", open.job());
  check.NotNegative("open.rank", open.rank());
  switch (open.what_case()) {
    case v1::TunnelOpen::kCommand:
      CheckCommand(open.command(), check);
      return;
    case v1::TunnelOpen::kPort:
      if (open.port() >= 1 && open.port() <= 65535) return;
      check.Add("open.port", absl::StrCat(open.port(), "; expected 1 to 65535"));
      return;
    case v1::TunnelOpen::WHAT_NOT_SET:
      check.Add("open", "has neither a command nor a port");
  }
}

std::string DescribeOpen(const v1::TunnelOpen& open) {
  std::string text = absl::StrCat(open.job(), " rank ", open.rank());
  if (open.has_port()) return absl::StrCat(text, " forward: port ", open.port());
  absl::StrAppend(&text, " exec:");
  if (open.command().words().empty()) absl::StrAppend(&text, " (shell)");
  for (const std::string& word : open.command().words()) absl::StrAppend(&text, " ", word);
  return text;
}

absl::Status CheckFrameOfUser(const Frame& frame) {
  switch (frame.frame_case()) {
    case Frame::kInput:
    case Frame::kInputEnd:
    case Frame::kPing:
      return CheckBytes(frame);
    case Frame::kSize: {
      RequestCheck check;
      CheckSize(frame.size(), "size", check);
      return check.ok() ? CheckBytes(frame) : check.Take();
    }
    case Frame::kSignal:
      if (frame.signal() >= 1 && frame.signal() <= kSignalMax) return CheckBytes(frame);
      return BadFrame(absl::StrCat("signal ", frame.signal(), "; expected 1 to ", kSignalMax));
    case Frame::FRAME_NOT_SET:
      return BadFrame("a frame is empty, or of a kind that this server does not know");
    default:
      return BadFrame("a client may send no frame of this kind after the first");
  }
}

absl::Status CheckFrameOfWorker(const Frame& frame) {
  switch (frame.frame_case()) {
    case Frame::kOpened:
    case Frame::kOutput:
    case Frame::kErrorOutput:
    case Frame::kOutputEnd:
    case Frame::kExit:
    case Frame::kFailure:
    case Frame::kPing:
      return CheckBytes(frame);
    case Frame::kGrant:
      if (frame.grant() > 0) return CheckBytes(frame);
      return BadFrame(absl::StrCat("a grant of ", frame.grant(), " bytes; expected more than 0"));
    default:
      return BadFrame("a worker may send no frame of this kind after the first");
  }
}

absl::Status StatusOf(const v1::TunnelFailure& failure) {
  const std::string& reason = failure.reason();
  const bool is_word =
      !reason.empty() && reason.size() <= 64 &&
      std::all_of(reason.begin(), reason.end(), [](unsigned char c) {
        return absl::ascii_isupper(c) != 0 || absl::ascii_isdigit(c) != 0 || c == '_';
      });
  return MakeError(absl::StatusCode::kFailedPrecondition, is_word ? reason : error::kTunnelFailed,
                   PlainText(failure.message(), kReasonBytesMax));
}

}  // namespace trainyard::rpc
