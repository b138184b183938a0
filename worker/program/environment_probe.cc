// Reads /proc of the user's own processes, and asks the interpreter that it finds there.
#include "worker/program/environment_probe.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/base/processes.h"

namespace trainyard::program {
namespace {

// A shell may do much before it starts Python. After this time it is no program in Python.
constexpr absl::Duration kSearchFor = absl::Seconds(60);
constexpr absl::Duration kAskFor = absl::Seconds(30);
constexpr absl::Duration kFinishFor = absl::Seconds(1);
constexpr absl::Duration kFinishPoll = absl::Milliseconds(20);
constexpr int64_t kProcBytesMax = int64_t{4} << 20;
constexpr size_t kProcessesMax = 64;
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
  add("image_digest", found.image_digest);
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

EnvironmentProbe::EnvironmentProbe(std::string path, Clock& clock, ImageQuestion image)
    : path_(std::move(path)),
      clock_(clock),
      start_(clock.Uptime()),
      image_(std::move(image), clock) {
  found_.system = SystemName(ReadFile("/etc/os-release", kProcBytesMax).value_or(""));
  found_.driver = FirstLine("/sys/module/nvidia/version");
}

void EnvironmentProbe::Look(pid_t program) {
  if (is_done_) return;
  image_.Look();
  LookForPython(program);
  if (is_python_done_ && image_.is_done()) Write();
}

void EnvironmentProbe::LookForPython(pid_t program) {
  if (is_python_done_) return;
  const absl::Duration now = clock_.Uptime();
  if (question_.is_running()) {
    is_python_done_ = question_.Take() || now - asked_at_ > kAskFor;
    if (is_python_done_) question_.End();
  } else if (now - start_ > kSearchFor) {
    is_python_done_ = true;
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
    python_ = *python;
    found_.interpreter = python_;
    asked_at_ = clock_.Uptime();
    is_python_done_ =
        !question_.Start({python_, "-c", kQuestion},
                         absl::StrSplit(*environment, '\0', absl::SkipEmpty()), "/dev/null");
    return;
  }
}

void EnvironmentProbe::Finish() {
  if (is_done_) return;
  const absl::Duration end = clock_.Uptime() + kFinishFor;
  image_.Finish();
  while (clock_.Uptime() < end) {
    image_.Look();
    if (question_.is_running() && question_.Take()) question_.End();
    if (image_.is_done() && !question_.is_running()) break;
    pollfd fds[] = {{question_.fd(), POLLIN, 0}, {image_.fd(), POLLIN, 0}};
    (void)poll(fds, 2, static_cast<int>(absl::ToInt64Milliseconds(kFinishPoll)));
  }
  Write();
}

void EnvironmentProbe::Write() {
  is_done_ = true;
  question_.End();
  if (!python_.empty()) TakeAnswer(python_, question_.answer(), found_);
  found_.image_digest = image_.digest();
  (void)ReplaceFile(path_, EnvironmentJson(found_), 0600);
}

}  // namespace trainyard::program
