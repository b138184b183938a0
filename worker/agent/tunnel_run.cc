// Copies with descriptors that do not block. Only the stream to the server may: then the user does
// not read, and neither does this.
#include "worker/agent/tunnel_run.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/log.h"
#include "common/base/tunnel_errors.h"
#include "worker/agent/act_as.h"
#include "worker/run_dir/visit.h"

namespace trainyard::agent {
namespace {

constexpr char kEndOfInput = 4;  // Ctrl-D
// A visit is noted more often than any limit of idleness is short.
constexpr int kVisitMs = 1000;
constexpr absl::Duration kVisitInterval = absl::Milliseconds(kVisitMs);

v1::TunnelFrame FailureFrame(const std::string& reason, absl::string_view message) {
  v1::TunnelFrame frame;
  frame.mutable_failure()->set_reason(reason);
  frame.mutable_failure()->set_message(std::string(message));
  return frame;
}

v1::TunnelFrame ExitFrame(int code, int signal) {
  v1::TunnelFrame frame;
  frame.mutable_exit()->set_code(code);
  frame.mutable_exit()->set_signal(signal);
  return frame;
}

bool IsAgain(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

TunnelRun::TunnelRun(v1::AgentService::StubInterface& stub, std::string helper)
    : stub_(stub), helper_path_(std::move(helper)), wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  TY_CHECK(wake_.valid());
}

TunnelRun::~TunnelRun() {
  if (thread_.joinable()) thread_.join();
}

void TunnelRun::Start(const WantedTunnel& wanted, const std::string& session,
                      std::optional<TunnelTarget> target) {
  v1::TunnelClaim claim;
  claim.set_session(session);
  claim.set_tunnel(wanted.id);
  claim.set_attempt(AttemptName(wanted.attempt));
  claim.set_fencing_token(wanted.fencing_token);
  claim.set_rank(wanted.rank);
  thread_ = std::thread([this, claim, target = std::move(target)] {
    Run(claim, target);
    is_done_ = true;
  });
}

void TunnelRun::Run(const v1::TunnelClaim& claim, const std::optional<TunnelTarget>& target) {
  stream_ = stub_.ServeTunnel(&context_);
  v1::TunnelFrame frame;
  *frame.mutable_claim() = claim;
  v1::TunnelFrame open;
  if (stream_->Write(frame) && stream_->Read(&open) && open.has_open()) {
    std::thread other([this] { TakeFrames(); });
    const v1::TunnelFrame last = Serve(open.open(), target);
    if (stream_->Write(last)) stream_->WritesDone();
    // The server ends the stream when the user has the last frame.
    other.join();
  } else {
    context_.TryCancel();
  }
  (void)stream_->Finish();
}

v1::TunnelFrame TunnelRun::Serve(const v1::TunnelOpen& open,
                                 const std::optional<TunnelTarget>& target) {
  if (!target.has_value())
    return FailureFrame(error::kRankEnded, "the rank does not run on its worker");
  const auto request = TunnelHelper::RequestFor(*target, open);
  if (!request.ok()) return FailureFrame(error::kRankEnded, request.status().message());
  auto helper = TunnelHelper::Start(helper_path_, *request);
  if (!helper.ok()) {
    LogWarning("a tunnel cannot be served", {{"error", std::string(helper.status().message())}});
    return FailureFrame(error::kCannotEnter, helper.status().message());
  }
  {
    const absl::MutexLock lock(&mutex_);
    helper_ = &*helper;
  }
  const v1::TunnelFrame last = Copy(*helper, open.has_port(), *target);
  const absl::MutexLock lock(&mutex_);
  helper_ = nullptr;
  terminal_ = -1;
  return last;
}

void TunnelRun::NoteVisit(const TunnelTarget& target) {
  const absl::Duration now = Clock::Real()->Uptime();
  if (now < visit_due_) return;
  visit_due_ = now + kVisitInterval;
  const ActAs as(target.owner);
  (void)ReplaceFile(run_dir::VisitPath(target.dir), "");
}

v1::TunnelFrame TunnelRun::Copy(TunnelHelper& helper, bool is_connection,
                                const TunnelTarget& target) {
  UniqueFd input = std::move(helper.input);
  UniqueFd output = std::move(helper.output);
  UniqueFd errors = std::move(helper.error_output);
  std::optional<v1::TunnelFrame> end;
  bool is_open = false;
  bool has_control = true;
  while (true) {
    NoteVisit(target);
    bool wants_to_write = false;
    {
      const absl::MutexLock lock(&mutex_);
      if (is_broken_) return ExitFrame(0, 0);
      wants_to_write = !input_.empty() || (has_input_ended_ && !is_input_closed_);
    }
    // Input for a command that has closed its end is thrown away.
    if (wants_to_write && is_open && !input.valid() && !PassInput(input, is_connection)) {
      return ExitFrame(0, 0);
    }
    if (end.has_value() && !output.valid() && !errors.valid()) return *end;
    if (is_connection && is_open && !output.valid() && is_input_closed_) return ExitFrame(0, 0);
    pollfd fds[] = {{wake_.get(), POLLIN, 0},
                    {has_control ? helper.control() : -1, POLLIN, 0},
                    {output.get(), POLLIN, 0},
                    {errors.get(), POLLIN, 0},
                    {wants_to_write && is_open ? input.get() : -1, POLLOUT, 0}};
    // After the end, what is left to read is there already.
    if (poll(fds, 5, end.has_value() ? 0 : kVisitMs) < 0 && errno != EINTR) return ExitFrame(1, 0);
    if (end.has_value() && fds[2].revents == 0 && fds[3].revents == 0) return *end;
    uint64_t count = 0;
    if (fds[0].revents != 0) (void)!read(wake_.get(), &count, sizeof count);
    if (fds[2].revents != 0 && !PassOutput(output, false)) return ExitFrame(0, 0);
    if (fds[3].revents != 0 && !PassOutput(errors, true)) return ExitFrame(0, 0);
    if (fds[4].revents != 0 && !PassInput(input, is_connection)) return ExitFrame(0, 0);
    if (fds[1].revents == 0) continue;
    auto message = enter::ReceiveMessage(helper.control());
    if (!message.ok()) {
      has_control = false;
      if (is_connection && is_open) continue;  // its work is done
      if (!end.has_value()) {
        return FailureFrame(error::kCannotEnter, "trainyard-enter has ended without a word");
      }
      continue;
    }
    if (!message->has_value() || end.has_value()) continue;
    if (auto* opened = std::get_if<enter::Opened>(&**message)) {
      is_open = true;
      if (opened->descriptor.valid()) {
        output = std::move(opened->descriptor);
        (void)fcntl(output.get(), F_SETFL, O_NONBLOCK);
        input = UniqueFd(fcntl(output.get(), F_DUPFD_CLOEXEC, 0));
        const absl::MutexLock lock(&mutex_);
        if (!is_connection) terminal_ = output.get();
      }
      v1::TunnelFrame frame;
      frame.mutable_opened();
      if (!stream_->Write(frame) || !Grant(kWindowBytes)) return ExitFrame(0, 0);
    } else if (const auto* ended = std::get_if<enter::Ended>(&**message)) {
      end = ExitFrame(ended->code, ended->signal);
    } else if (const auto* failed = std::get_if<enter::Failed>(&**message)) {
      end = FailureFrame(failed->reason, failed->message);
    }
  }
}

bool TunnelRun::PassOutput(UniqueFd& from, bool is_error) {
  std::array<char, kChunkBytes> buffer{};
  const ssize_t got = read(from.get(), buffer.data(), buffer.size());
  if (got < 0 && IsAgain(errno)) return true;
  if (got < 0 && errno == ECONNRESET) return false;
  v1::TunnelFrame frame;
  if (got <= 0) {  // a terminal ends with an error
    {
      const absl::MutexLock lock(&mutex_);
      if (terminal_ == from.get()) terminal_ = -1;
    }
    from = UniqueFd();
    frame.mutable_output_end();
    return is_error || stream_->Write(frame);
  }
  std::string bytes(buffer.data(), static_cast<size_t>(got));
  if (is_error) {
    frame.set_error_output(std::move(bytes));
  } else {
    frame.set_output(std::move(bytes));
  }
  return stream_->Write(frame);
}

bool TunnelRun::PassInput(UniqueFd& to, bool is_connection) {
  size_t passed = 0;
  bool has_ended = false;
  {
    const absl::MutexLock lock(&mutex_);
    while (passed < input_.size() && to.valid()) {
      const ssize_t put = write(to.get(), input_.data() + passed, input_.size() - passed);
      if (put > 0) {
        passed += static_cast<size_t>(put);
      } else if (IsAgain(errno)) {
        break;
      } else {
        to = UniqueFd();  // nobody reads it
      }
    }
    if (!to.valid()) passed = input_.size();
    input_.erase(0, passed);
    has_ended = has_input_ended_ && input_.empty();
  }
  if (has_ended && !is_input_closed_) CloseInput(to, is_connection);
  to_grant_ += static_cast<int64_t>(passed);
  if (to_grant_ < kWindowBytes / 4) return true;
  return Grant(std::exchange(to_grant_, 0));
}

void TunnelRun::CloseInput(UniqueFd& to, bool is_connection) {
  is_input_closed_ = true;
  if (!to.valid()) return;
  bool is_terminal = false;
  {
    const absl::MutexLock lock(&mutex_);
    is_terminal = terminal_ >= 0;
  }
  if (is_terminal) {
    (void)!write(to.get(), &kEndOfInput, 1);
    return;
  }
  if (is_connection) (void)shutdown(to.get(), SHUT_WR);
  to = UniqueFd();
}

bool TunnelRun::Grant(int64_t bytes) {
  v1::TunnelFrame frame;
  frame.set_grant(bytes);
  return stream_->Write(frame);
}

void TunnelRun::TakeFrames() {
  v1::TunnelFrame frame;
  while (stream_->Read(&frame)) Take(std::move(frame));
  {
    const absl::MutexLock lock(&mutex_);
    is_broken_ = true;
  }
  Wake();
}

void TunnelRun::Take(v1::TunnelFrame frame) {
  {
    const absl::MutexLock lock(&mutex_);
    if (frame.has_input()) {
      if (has_input_ended_) return;
      input_ += frame.input();
      // A client that sends more than it may would fill the memory.
      if (static_cast<int64_t>(input_.size()) > kWindowBytes) {
        input_.clear();
        context_.TryCancel();
        return;
      }
    } else if (frame.has_input_end()) {
      has_input_ended_ = true;
    } else if (frame.has_size() && terminal_ >= 0) {
      const winsize window{static_cast<uint16_t>(frame.size().rows()),
                           static_cast<uint16_t>(frame.size().columns()), 0, 0};
      (void)ioctl(terminal_, TIOCSWINSZ, &window);
    } else if (frame.has_signal() && helper_ != nullptr) {
      helper_->Send(enter::Signal{frame.signal()});
    }
  }
  Wake();
}

void TunnelRun::Wake() {
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
}

}  // namespace trainyard::agent
