// port-forward carries connections from this machine to a port of a running rank.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "client/commands/selector.h"
#include "client/commands/verbs.h"
#include "client/link/loopback.h"
#include "client/link/tunnel.h"
#include "client/output/text.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/base/tunnel_errors.h"

namespace trainyard::commands {
namespace {

struct ForwardOptions {
  std::string job;
  int rank = 0;
  std::vector<std::string> ports;
};

// Each takes two threads. The server permits a user twice as many.
constexpr size_t kConnectionsMax = 64;
// Without a connection, the end of the job is noticed this late.
constexpr int kLookMs = 2000;

struct Listener {
  UniqueFd socket;
  int local = 0;
  int remote = 0;
};

absl::StatusOr<Listener> ParsePorts(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  Listener listener;
  const bool is_right = parts.size() <= 2 && absl::SimpleAtoi(parts.back(), &listener.remote) &&
                        absl::SimpleAtoi(parts.front(), &listener.local) && listener.local >= 0 &&
                        listener.local <= 65535 && listener.remote >= 1 && listener.remote <= 65535;
  if (is_right) return listener;
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is no port; expected PORT or LOCAL:PORT, such as 8888 or 9000:8888"));
}

absl::Status Listen(Listener& listener) {
  const std::string advice = absl::StrCat("choose another port, such as 0:", listener.remote);
  TY_ASSIGN_OR_RETURN(link::LoopbackListener opened,
                      link::ListenOnLoopback(listener.local, advice));
  listener.socket = std::move(opened.socket);
  listener.local = opened.port;
  return absl::OkStatus();
}

// One connection, with its threads.
class Connection {
 public:
  Connection(link::ServerLink& link, const v1::TunnelOpen& open, UniqueFd socket)
      : socket_(std::move(socket)), tunnel_(link, open), thread_([this] { Run(); }) {}
  ~Connection() { thread_.join(); }

  void Cancel() { tunnel_.Cancel(); }
  bool is_done() const { return is_done_; }
  // Returns how it has ended, once it is done.
  const absl::Status& status() const { return status_; }

 private:
  void Run() {
    {
      const link::InputPump pump(tunnel_, socket_.get());
      v1::TunnelFrame frame;
      while (tunnel_.Read(frame)) {
        if (frame.has_output() && !link::WriteAll(socket_.get(), frame.output())) tunnel_.Cancel();
        if (frame.has_output_end()) (void)shutdown(socket_.get(), SHUT_WR);
      }
    }
    status_ = tunnel_.Finish();
    socket_ = UniqueFd();
    is_done_ = true;
  }

  UniqueFd socket_;
  link::Tunnel tunnel_;
  absl::Status status_;
  std::atomic<bool> is_done_{false};
  std::thread thread_;
};

class Forwarder {
 public:
  Forwarder(const Context& context, link::ServerLink& link, v1::TunnelOpen open,
            std::vector<Listener> listeners)
      : context_(context), link_(link), open_(std::move(open)), listeners_(std::move(listeners)) {}
  ~Forwarder() {
    for (const auto& connection : connections_) connection->Cancel();
  }

  Result Run() {
    const UniqueFd wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    const link::Interrupt::Scope scope(context_.interrupt, [&wake] {
      const uint64_t one = 1;
      (void)!write(wake.get(), &one, sizeof one);
    });
    while (!context_.interrupt.triggered()) {
      TY_RETURN_IF_ERROR(Reap());
      std::vector<pollfd> fds = {{wake.get(), POLLIN, 0}};
      const bool is_full = connections_.size() >= kConnectionsMax;
      for (const Listener& listener : listeners_) {
        fds.push_back({is_full ? -1 : listener.socket.get(), POLLIN, 0});
      }
      const int ready = poll(fds.data(), fds.size(), is_full ? 10 : kLookMs);
      if (ready == 0 && !is_full) TY_RETURN_IF_ERROR(CheckRuns());
      for (size_t i = 0; i < listeners_.size(); ++i) {
        if (ready > 0 && fds[i + 1].revents != 0) Accept(listeners_[i]);
      }
    }
    return link::kInterrupted;
  }

 private:
  void Accept(const Listener& listener) {
    UniqueFd socket(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.valid()) return;
    open_.set_port(listener.remote);
    connections_.push_back(std::make_unique<Connection>(link_, open_, std::move(socket)));
  }

  // Forgets connections that have ended. Returns an error if no other one can be made.
  absl::Status Reap() {
    absl::Status over;
    connections_.remove_if([&](const auto& connection) {
      if (!connection->is_done()) return false;
      const absl::Status& status = connection->status();
      const std::string reason = ErrorReason(status);
      if (reason == error::kRankEnded || reason == "JOB_STATE_CONFLICT" || reason == "NOT_OWNER" ||
          reason == error::kRankNotFound) {
        over = status;
      } else if (!status.ok() && status.message() != last_error_) {
        last_error_ = std::string(status.message());
        context_.Say(last_error_);
      }
      return true;
    });
    return over;
  }

  absl::Status CheckRuns() {
    v1::GetJobRequest request;
    request.set_name(open_.job());
    TY_ASSIGN_OR_RETURN(const v1::Job job, link_.Call(&v1::JobService::Stub::GetJob, request));
    if (!output::HasEnded(job)) return absl::OkStatus();
    return MakeError(absl::StatusCode::kFailedPrecondition, error::kRankEnded,
                     absl::StrCat(job.name(), " has ended"));
  }

  const Context& context_;
  link::ServerLink& link_;
  v1::TunnelOpen open_;
  const std::vector<Listener> listeners_;
  std::list<std::unique_ptr<Connection>> connections_;
  std::string last_error_;
};

Result PortForward(const Context& context, const ForwardOptions& options) {
  std::vector<Listener> listeners;
  for (const std::string& port : options.ports) {
    TY_ASSIGN_OR_RETURN(Listener listener, ParsePorts(port));
    listeners.push_back(std::move(listener));
  }
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::TunnelOpen open;
  TY_ASSIGN_OR_RETURN(*open.mutable_job(), ResolveOne(*link, options.job));
  open.set_rank(options.rank);
  v1::GetJobRequest request;
  request.set_name(open.job());
  TY_ASSIGN_OR_RETURN(const v1::Job job, link->Call(&v1::JobService::Stub::GetJob, request));
  if (job.state() != v1::JOB_STATE_RUNNING) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "JOB_STATE_CONFLICT",
                     absl::StrCat(job.name(), " is ", output::StateText(job.state()),
                                  "; its ports can be reached while it runs"));
  }
  for (Listener& listener : listeners) TY_RETURN_IF_ERROR(Listen(listener));
  for (const Listener& listener : listeners) {
    context.Say(absl::StrCat("port ", listener.remote, " of rank ", options.rank, " of ",
                             open.job(), " is here; Ctrl-C ends this"));
    context.out << "http://127.0.0.1:" << listener.local << "/\n" << std::flush;
  }
  return Forwarder(context, *link, open, std::move(listeners)).Run();
}

}  // namespace

void AddPortForward(VerbTable& verbs) {
  verbs.Add<ForwardOptions>(
      "port-forward", "Reach a port of a running job from here", "12 8888",
      [](client::Flags& flags, ForwardOptions& options) {
        flags.Word("JOB", options.job, kSelectorHelp).Required();
        flags
            .Words("PORT", options.ports,
                   "The port of the rank, or LOCAL:PORT to listen on another one here; LOCAL 0 "
                   "takes a free one")
            .Required();
        flags.Value("--rank", options.rank, "The rank on whose host the port is; 0 by default")
            .Range(0, 4095);
      },
      PortForward);
}

}  // namespace trainyard::commands
