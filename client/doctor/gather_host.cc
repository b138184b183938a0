// Reads what the kernel tells of itself, mostly in /proc and /sys.
#include <arpa/inet.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/doctor/gather.h"
#include "common/base/container_runtime.h"
#include "common/base/files.h"
#include "common/base/memory_limit.h"
#include "common/base/strings.h"
#include "common/base/worker_name.h"

namespace trainyard::doctor {
namespace {

constexpr int64_t kKernelFileMax = 1 << 16;
constexpr size_t kMessageMax = 300;
constexpr char kGroups[] = "/sys/fs/cgroup";
constexpr char kJobsUnit[] = "trainyard-jobs.service";

// Returns the content of a file of the kernel, which says that these files are empty, or "".
std::string ReadKernelFile(const std::string& path) {
  return ReadFileRange(path, 0, kKernelFileMax).value_or("");
}

int64_t ReadNumber(const std::string& path) {
  int64_t number = 0;
  return absl::SimpleAtoi(absl::StripAsciiWhitespace(ReadKernelFile(path)), &number) ? number : 0;
}

// Returns the group of this process in the tree of version 2, such as "/user.slice/...".
std::string OwnGroup(const std::string& root) {
  const std::string text = ReadKernelFile(absl::StrCat(root, "/proc/self/cgroup"));
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, "0::")) return std::string(line);
  }
  return "";
}

// systemd marks groups so that it has left to others.
bool IsDelegated(const std::string& path) {
  for (const char* name : {"user.delegate", "trusted.delegate"}) {
    char value[2] = {};
    if (getxattr(path.c_str(), name, value, sizeof value) == 1 && value[0] == '1') return true;
  }
  return false;
}

bool HasUnit(const std::string& root, const char* unit) {
  for (const char* folder : {"/etc/systemd/system", "/usr/local/lib/systemd/system",
                             "/usr/lib/systemd/system", "/lib/systemd/system"}) {
    if (FileExists(absl::StrCat(root, folder, "/", unit))) return true;
  }
  return false;
}

}  // namespace

CgroupFacts LookAtCgroups(const std::string& root) {
  CgroupFacts cgroup;
  const std::string mount = absl::StrCat(root, kGroups);
  cgroup.has_v2 = FileExists(absl::StrCat(mount, "/cgroup.controllers"));
  cgroup.has_jobs_unit = HasUnit(root, kJobsUnit);
  if (!cgroup.has_v2) return cgroup;
  const std::string own = OwnGroup(root);
  // The worker of the system is in system.slice; one of `trainyard up` is where this process is.
  const std::string jobs = absl::StrCat("/system.slice/", kJobsUnit);
  if (FileExists(absl::StrCat(mount, jobs))) {
    cgroup.group = jobs;
  } else if (!own.empty() && IsDelegated(absl::StrCat(mount, own))) {
    cgroup.group = own;
  }
  if (cgroup.group.empty()) return cgroup;
  const std::string text = ReadKernelFile(absl::StrCat(mount, cgroup.group, "/cgroup.controllers"));
  cgroup.controllers = absl::StrSplit(absl::StripAsciiWhitespace(text), ' ', absl::SkipEmpty());
  return cgroup;
}

SandboxFacts LookAtSandboxes(const std::string& root, bool runs_as_owners, const RunProgram& run) {
  SandboxFacts sandbox;
  const auto find = [&root](const std::string& name) { return FindSystemProgram(name, root); };
  sandbox.runtime = FindContainerRuntime(runs_as_owners, find).name;
  sandbox.bubblewrap = find("bwrap");
  if (sandbox.bubblewrap.empty()) return sandbox;
  const auto result = run({sandbox.bubblewrap, "--ro-bind", "/", "/", "--unshare-pid",
                           "--unshare-ipc", "--proc", "/proc", "--die-with-parent", "/bin/true"});
  if (!result.ok()) {
    sandbox.error = std::string(result.status().message());
  } else if (result->exit_code != 0) {
    sandbox.error = PlainText(std::string(absl::StripAsciiWhitespace(result->err)), kMessageMax);
    if (sandbox.error.empty()) sandbox.error = absl::StrCat("exit code ", result->exit_code);
  }
  return sandbox;
}

LimitFacts LookAtLimits(const std::string& root) {
  LimitFacts limits;
  struct rlimit files {};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    constexpr rlim_t kMost = int64_t{1} << 40;
    limits.open_files = static_cast<int64_t>(std::min(files.rlim_max, kMost));
  }
  const std::string inotify = absl::StrCat(root, "/proc/sys/fs/inotify/");
  limits.watchers = ReadNumber(absl::StrCat(inotify, "max_user_instances"));
  limits.watches = ReadNumber(absl::StrCat(inotify, "max_user_watches"));
  struct statvfs memory {};
  if (statvfs(absl::StrCat(root, "/dev/shm").c_str(), &memory) == 0) {
    limits.shared_memory_bytes = static_cast<int64_t>(memory.f_blocks * memory.f_frsize);
  }
  return limits;
}

MemoryFacts LookAtMemory(const std::string& root) {
  std::map<std::string, int64_t> lines;
  const std::string text = ReadKernelFile(absl::StrCat(root, "/proc/meminfo"));
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    // "MemTotal:       24576000 kB"
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(": "), absl::SkipEmpty());
    int64_t kibibytes = 0;
    if (words.size() >= 2 && absl::SimpleAtoi(words[1], &kibibytes)) {
      lines[std::string(words[0])] = kibibytes << 10;
    }
  }
  MemoryFacts memory;
  memory.total_bytes = lines["MemTotal"];
  memory.available_bytes = lines["MemAvailable"];
  memory.swap_bytes = lines["SwapTotal"];
  memory.allowed_bytes = memory.total_bytes;
  const auto limit = CgroupMemoryLimit(ReadKernelFile(absl::StrCat(root, "/proc/self/cgroup")),
                                       absl::StrCat(root, kGroups));
  if (limit.has_value()) memory.allowed_bytes = std::min(*limit, memory.total_bytes);
  return memory;
}

ClockFacts LookAtClock(absl::Time now) {
  ClockFacts clock;
  clock.now = now;
  struct timex kernel {};
  const int state = adjtimex(&kernel);
  if (state < 0) return clock;
  clock.is_known = true;
  clock.is_synchronized = state != TIME_ERROR && (kernel.status & STA_UNSYNC) == 0;
  clock.error_max = absl::Microseconds(kernel.maxerror);
  return clock;
}

NetworkFacts LookAtNetwork(const std::string& address_flag) {
  NetworkFacts network;
  network.address_flag = address_flag;
  network.interfaces = ListInterfaces().value_or(std::vector<InterfaceAddress>());
  network.hostname = Hostname();
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(network.hostname.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    network.hostname_error = gai_strerror(error);
    return network;
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (getnameinfo(each->ai_addr, each->ai_addrlen, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      network.hostname_addresses.emplace_back(text.data());
    }
  }
  return network;
}

}  // namespace trainyard::doctor
