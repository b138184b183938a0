// Starts the helper by posix_spawn, with nothing but the descriptors that it needs.
#include "worker/agent/tunnel_helper.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/agent/act_as.h"
#include "worker/run_dir/records.h"

namespace trainyard::agent {
namespace {

// The kernel ends a process that was killed at once, unless it waits for a device or a file system.
constexpr absl::Duration kHelperKillWait = absl::Seconds(5);

struct Pair {
  UniqueFd ours;
  UniqueFd theirs;
};

absl::StatusOr<Pair> MakePair(int number, int type) {
  int ends[2];
  if (type != 0 ? socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) != 0
                : pipe2(ends, O_CLOEXEC) != 0) {
    return ErrnoStatus(errno, "cannot create", "a pipe");
  }
  // The helper writes into all but its standard input.
  const bool is_input = type == 0 && number == STDIN_FILENO;
  return Pair{UniqueFd(ends[is_input ? 1 : 0]), UniqueFd(ends[is_input ? 0 : 1])};
}

// Waits for the end of a child, for this long. Returns true if it has ended.
bool AwaitEnd(pid_t pid, absl::Duration limit) {
  const absl::Duration end = Clock::Real()->Uptime() + limit;
  for (int pause_ms = 1;; pause_ms = std::min(2 * pause_ms, 50)) {
    const pid_t ended = waitpid(pid, nullptr, WNOHANG);
    if (ended == pid || (ended < 0 && errno == ECHILD)) return true;
    if (Clock::Real()->Uptime() >= end) return false;
    (void)poll(nullptr, 0, pause_ms);
  }
}

}  // namespace

absl::StatusOr<enter::Request> TunnelHelper::RequestFor(const TunnelTarget& target,
                                                        const v1::TunnelOpen& open) {
  enter::Request request;
  absl::StatusOr<run_dir::SupervisorRecord> record;
  {
    const ActAs as(target.owner);
    record = run_dir::ReadSupervisorRecord(target.dir);
  }
  TY_RETURN_IF_ERROR(record.status());
  for (const run_dir::SupervisorRecord::Process& process : record->ranks) {
    if (process.rank != open.rank()) continue;
    request.rank = {process.pid, process.start_ticks,
                    target.owner.is_self ? geteuid() : target.owner.uid};
  }
  if (request.rank.pid <= 0) {
    return absl::NotFoundError(absl::StrCat("rank ", open.rank(), " has not started here"));
  }
  if (!target.owner.is_self) {
    request.owner = {target.owner.uid, target.owner.gid, target.owner.groups};
  }
  request.port = open.port();
  const v1::ExecCommand& command = open.command();
  if (command.has_terminal()) {
    request.terminal = {command.terminal().columns(), command.terminal().rows()};
  }
  request.term = command.term();
  request.words.assign(command.words().begin(), command.words().end());
  return request;
}

absl::StatusOr<TunnelHelper> TunnelHelper::Start(const std::string& path,
                                                 const enter::Request& request) {
  TunnelHelper helper;
  helper.is_connection_ = request.port != 0;
  TY_ASSIGN_OR_RETURN(Pair control, MakePair(enter::kControlFd, SOCK_SEQPACKET));
  std::vector<UniqueFd> theirs(3);
  const bool has_pipes = request.port == 0 && !request.terminal.has_value();
  UniqueFd* const ours[] = {&helper.input, &helper.output, &helper.error_output};
  for (int number = 0; number < 3; ++number) {
    const auto index = static_cast<size_t>(number);
    if (has_pipes) {
      TY_ASSIGN_OR_RETURN(Pair pair, MakePair(number, 0));
      *ours[index] = std::move(pair.ours);
      theirs[index] = std::move(pair.theirs);
      (void)fcntl(ours[index]->get(), F_SETFL, O_NONBLOCK);
      // Programs open /dev/stderr and its like by name, and may open what is their user's alone.
      if (request.owner.has_value() &&
          fchown(theirs[index].get(), request.owner->uid, request.owner->gid) != 0) {
        return ErrnoStatus(errno, "cannot change the owner of", "a pipe");
      }
    } else {
      TY_ASSIGN_OR_RETURN(theirs[index], OpenFile("/dev/null", O_RDWR));
    }
  }
  std::vector<std::string> words = enter::ArgumentsOf(request);
  words.insert(words.begin(), path);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  char* const no_variables[] = {nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  const auto destroy = absl::MakeCleanup([&] {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  });
  for (int number = 0; number < 3; ++number) {
    posix_spawn_file_actions_adddup2(&actions, theirs[static_cast<size_t>(number)].get(), number);
  }
  posix_spawn_file_actions_adddup2(&actions, control.theirs.get(), enter::kControlFd);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  // Ctrl-C at the terminal of this daemon is not meant for commands of users.
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(
      &attributes,
      static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP));
  const int failed =
      posix_spawn(&helper.pid_, path.c_str(), &actions, &attributes, argv.data(), no_variables);
  if (failed != 0) {
    helper.pid_ = -1;
    return ErrnoStatus(failed, "cannot execute", path);
  }
  helper.control_ = std::move(control.ours);
  return helper;
}

TunnelHelper::TunnelHelper(TunnelHelper&& other) noexcept
    : input(std::move(other.input)),
      output(std::move(other.output)),
      error_output(std::move(other.error_output)),
      pid_(std::exchange(other.pid_, -1)),
      is_connection_(other.is_connection_),
      control_(std::move(other.control_)) {}

TunnelHelper::~TunnelHelper() {
  if (pid_ < 0) return;
  control_ = UniqueFd();
  input = UniqueFd();
  output = UniqueFd();
  error_output = UniqueFd();
  // Nobody else waits for it, so the number stays its own until it has ended here.
  if (!is_connection_) {
    (void)kill(pid_, SIGCONT);
    if (AwaitEnd(pid_, kEndWait)) return;
  }
  // This ends stopped processes, too.
  (void)kill(pid_, SIGKILL);
  if (AwaitEnd(pid_, kHelperKillWait)) return;
  LogWarning("a helper of a tunnel cannot be killed", {{"pid", absl::StrCat(pid_)}});
}

}  // namespace trainyard::agent
