// Reads /proc of the user's own processes, and asks the interpreter that it finds there.
#include "worker/program/environment_probe.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/processes.h"

namespace trainyard::program {
namespace {

// A shell may do much before it starts Python. After this time it is no program in Python.
constexpr absl::Duration kSearchFor = absl::Seconds(60);
constexpr absl::Duration kAskFor = absl::Seconds(30);
constexpr absl::Duration kFinishFor = absl::Seconds(1);
constexpr absl::Duration kFinishPoll = absl::Milliseconds(20);
constexpr size_t kAnswerBytesMax = size_t{4} << 20;
constexpr int64_t kProcBytesMax = int64_t{4} << 20;
constexpr size_t kProcessesMax = 64;
constexpr int kLowPriority = 15;
// The names of packages come from importlib.metadata, as those of `pip freeze` do; pip itself
// takes ten times as long, and need not be there.
constexpr char kQuestion[] = R"(
import sys
print(sys.version.split()[0])
try:
    from importlib.metadata import distributions
except ImportError:
    sys.exit()
found = {}
for one in distributions():
    try:
        name = one.metadata['Name']
        if name:
            found.setdefault(name.lower(), '%s==%s' % (name, one.version))
    except Exception:
        pass
print('\n'.join(found[name] for name in sorted(found)))
)";

std::string ProcPath(pid_t pid, absl::string_view name) {
  return absl::StrCat("/proc/", pid, "/", name);
}

// Returns the target of a link in /proc, or an empty text.
std::string LinkOf(pid_t pid, absl::string_view name) {
  std::string target(4096, '\0');
  const ssize_t size = readlink(ProcPath(pid, name).c_str(), target.data(), target.size());
  return size <= 0 ? "" : target.substr(0, static_cast<size_t>(size));
}

// In a container a path means another file than here.
bool SharesOurRoot(pid_t pid) {
  struct stat here {};
  struct stat there {};
  return stat("/", &here) == 0 && stat(ProcPath(pid, "root/").c_str(), &there) == 0 &&
         here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

std::optional<std::string> InPath(const std::string& name, absl::string_view path) {
  for (const absl::string_view folder : absl::StrSplit(path, ':')) {
    std::string candidate = JoinPath(folder, name);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return std::nullopt;
}

// Returns the Python that the process runs, by the name under which it was called: the packages of
// a virtual environment belong to that name, and not to the file to which it leads.
std::optional<std::string> PythonOf(pid_t pid) {
  const auto words = ReadFile(ProcPath(pid, "cmdline"), kProcBytesMax);
  if (!words.ok()) return std::nullopt;
  const std::string name = words->substr(0, words->find('\0'));
  const size_t slash = name.rfind('/');
  const std::string base = slash == name.npos ? name : name.substr(slash + 1);
  if (!absl::StartsWith(base, "python") || !SharesOurRoot(pid)) return std::nullopt;
  if (slash == name.npos) return InPath(name, ProcessVariable(pid, "PATH"));
  return name[0] == '/' ? name : JoinPath(LinkOf(pid, "cwd"), name);
}

// Adds the processes that a process has started. A look at all processes of the host would take
// longer.
void AddChildren(pid_t pid, std::vector<pid_t>& processes) {
  const auto threads = ListDirectory(ProcPath(pid, "task"));
  if (!threads.ok()) return;
  for (const std::string& thread : *threads) {
    const auto text =
        ReadFile(ProcPath(pid, absl::StrCat("task/", thread, "/children")), kProcBytesMax);
    if (!text.ok()) continue;
    for (const absl::string_view word : absl::StrSplit(*text, ' ', absl::SkipWhitespace())) {
      pid_t child = 0;
      if (absl::SimpleAtoi(word, &child)) processes.push_back(child);
    }
  }
}

// Starts the question with the variables of the program. Returns its pid, or 0.
pid_t StartQuestion(const std::string& python, const std::string& environment, int output) {
  std::string words[] = {python, "-c", kQuestion};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  std::vector<std::string> variables = absl::StrSplit(environment, '\0', absl::SkipEmpty());
  std::vector<char*> envp;
  for (std::string& variable : variables) envp.push_back(variable.data());
  envp.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  const auto destroy = absl::MakeCleanup([&] {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  });
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  // What lies in the folder of the program must not stand in for a module of Python.
  posix_spawn_file_actions_addchdir_np(&actions, "/");
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  posix_spawnattr_setflags(&attributes, static_cast<short>(POSIX_SPAWN_SETSIGMASK));
  pid_t pid = 0;
  if (posix_spawn(&pid, argv[0], &actions, &attributes, argv, envp.data()) != 0) return 0;
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(pid), kLowPriority);
  return pid;
}

// Returns the first line of a file of the system, or an empty text.
std::string FirstLine(const std::string& path) {
  const auto text = ReadFile(path, kProcBytesMax);
  if (!text.ok()) return "";
  return std::string(absl::StripAsciiWhitespace(text->substr(0, text->find('\n'))));
}

}  // namespace

std::string EnvironmentJson(const FoundEnvironment& found) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  const auto add = [&json](const char* name, const std::string& text) {
    if (!text.empty()) json[name] = text;
  };
  add("interpreter", found.interpreter);
  add("packages", found.packages);
  add("driver", found.driver);
  add("system", found.system);
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void TakeAnswer(absl::string_view python, absl::string_view answer, FoundEnvironment& found) {
  const absl::string_view version = answer.substr(0, answer.find('\n'));
  if (version.empty() || !absl::ascii_isdigit(static_cast<unsigned char>(version[0]))) return;
  found.interpreter = absl::StrCat(python, " (Python ", version, ")");
  absl::string_view packages = answer.substr(std::min(version.size() + 1, answer.size()));
  if (packages.size() > kPackagesBytesMax) {
    packages = packages.substr(0, packages.rfind('\n', kPackagesBytesMax - 1) + 1);
  }
  found.packages = std::string(absl::StripTrailingAsciiWhitespace(packages));
}

std::string SystemName(absl::string_view os_release) {
  for (absl::string_view line : absl::StrSplit(os_release, '\n')) {
    if (!absl::ConsumePrefix(&line, "PRETTY_NAME=")) continue;
    return std::string(absl::StripPrefix(absl::StripSuffix(line, "\""), "\""));
  }
  return "";
}

EnvironmentProbe::EnvironmentProbe(std::string path, Clock& clock)
    : path_(std::move(path)), clock_(clock), start_(clock.Uptime()) {
  found_.system = SystemName(ReadFile("/etc/os-release", kProcBytesMax).value_or(""));
  found_.driver = FirstLine("/sys/module/nvidia/version");
}

EnvironmentProbe::~EnvironmentProbe() {
  EndQuestion();
}

void EnvironmentProbe::Look(pid_t program) {
  if (is_done_) return;
  const absl::Duration now = clock_.Uptime() - start_;
  if (question_ != 0) {
    if (TakeOutput() || now > kAskFor) Write();
  } else if (now > kSearchFor) {
    Write();
  } else {
    Search(program);
  }
}

void EnvironmentProbe::Search(pid_t program) {
  if (found_.interpreter.empty()) found_.interpreter = LinkOf(program, "exe");
  std::vector<pid_t> processes = {program};
  for (size_t i = 0; i < processes.size() && i < kProcessesMax; ++i) {
    const pid_t pid = processes[i];
    AddChildren(pid, processes);
    const auto python = PythonOf(pid);
    const auto environment = ReadFile(ProcPath(pid, "environ"), kProcBytesMax);
    if (!python.has_value() || !environment.ok()) continue;
    return Ask(*python, *environment);
  }
}

void EnvironmentProbe::Ask(const std::string& python, const std::string& environment) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  output_ = UniqueFd(ends[0]);
  const UniqueFd writer(ends[1]);
  (void)fcntl(output_.get(), F_SETFL, O_NONBLOCK);
  python_ = python;
  found_.interpreter = python;
  question_ = StartQuestion(python, environment, writer.get());
  if (question_ == 0) Write();
}

bool EnvironmentProbe::TakeOutput() {
  char block[4096];
  while (true) {
    const ssize_t got = read(output_.get(), block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno != EAGAIN;
    if (got == 0) return true;
    answer_.append(block, static_cast<size_t>(got));
    if (answer_.size() > kAnswerBytesMax) return true;
  }
}

void EnvironmentProbe::Finish() {
  if (is_done_) return;
  const absl::Duration end = clock_.Uptime() + kFinishFor;
  while (question_ != 0 && !TakeOutput() && clock_.Uptime() < end) {
    pollfd fds[] = {{output_.get(), POLLIN, 0}};
    (void)poll(fds, 1, static_cast<int>(absl::ToInt64Milliseconds(kFinishPoll)));
  }
  Write();
}

void EnvironmentProbe::EndQuestion() {
  if (question_ == 0) return;
  (void)kill(question_, SIGKILL);
  while (waitpid(question_, nullptr, 0) < 0 && errno == EINTR) {
  }
  question_ = 0;
}

void EnvironmentProbe::Write() {
  is_done_ = true;
  EndQuestion();
  if (!python_.empty()) TakeAnswer(python_, answer_, found_);
  (void)ReplaceFile(path_, EnvironmentJson(found_), 0600);
}

}  // namespace trainyard::program
