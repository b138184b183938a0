// Makes namespaces and their cables by the commands of iproute2.
#include "tests/testing/networks.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "tests/testing/process.h"
#include "tests/testing/slow_switch.h"

namespace trainyard::testing {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);
// A hardware address, locally administered, that no interface has.
constexpr char kNobody[] = "02:00:00:00:00:01";

std::string PortName(int host) {
  return absl::StrCat("port", host);
}

absl::StatusOr<UniqueFd> MakeNamespace() {
  UniqueFd made;
  int error = 0;
  // A thread has a network namespace of its own, which ends with it unless somebody holds it.
  std::thread([&made, &error] {
    if (unshare(CLONE_NEWNET) == 0) {
      made = UniqueFd(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    }
    error = errno;
  }).join();
  if (made.valid()) return made;
  return absl::UnavailableError(absl::StrCat("network namespaces cannot be made here (",
                                             ErrnoStatus(error, "unshare", "").message(),
                                             "); they need root"));
}

absl::StatusOr<std::string> FindIp() {
  for (const char* path : {"/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip", "/bin/ip"}) {
    if (access(path, X_OK) == 0) return std::string(path);
  }
  return absl::UnavailableError("there is no program `ip`; it is in the package iproute2");
}

}  // namespace

std::string Networks::Address(int host) {
  return absl::StrCat("10.71.0.", host + 2);
}

absl::StatusOr<std::unique_ptr<Networks>> Networks::Make(int hosts, absl::Duration delay) {
  std::unique_ptr<Networks> networks(new Networks());
  const bool has_bridge = delay == absl::ZeroDuration();
  TY_ASSIGN_OR_RETURN(networks->switch_, MakeNamespace());
  if (has_bridge) {
    TY_RETURN_IF_ERROR(networks->Ip(networks->switch_, "link add bridge type bridge"));
    TY_RETURN_IF_ERROR(networks->Ip(networks->switch_, "link set bridge up"));
  }
  std::vector<std::string> ports;
  for (int host = 0; host < hosts; ++host) {
    TY_RETURN_IF_ERROR(networks->AddHost(host, has_bridge));
    ports.push_back(PortName(host));
  }
  if (!has_bridge) {
    TY_ASSIGN_OR_RETURN(networks->slow_switch_,
                        SlowSwitch::Start(networks->switch_.get(), ports, delay));
  }
  return networks;
}

Networks::~Networks() = default;

absl::Status Networks::AddHost(int host, bool has_bridge) {
  TY_ASSIGN_OR_RETURN(UniqueFd made, MakeNamespace());
  const std::string port = PortName(host);
  TY_RETURN_IF_ERROR(Ip(switch_, absl::StrCat("link add ", port, " type veth peer name eth0 netns ",
                                              "/proc/", getpid(), "/fd/", made.get())));
  if (has_bridge)
    TY_RETURN_IF_ERROR(Ip(switch_, absl::StrCat("link set ", port, " master bridge")));
  TY_RETURN_IF_ERROR(Ip(switch_, absl::StrCat("link set ", port, " up")));
  TY_RETURN_IF_ERROR(Ip(made, "link set lo up"));
  TY_RETURN_IF_ERROR(Ip(made, absl::StrCat("address add ", Address(host), "/24 dev eth0")));
  TY_RETURN_IF_ERROR(Ip(made, "link set eth0 up"));
  hosts_.push_back(std::move(made));
  return absl::OkStatus();
}

absl::Status Networks::SetPlugged(int host, bool is_plugged) {
  return Ip(switch_, absl::StrCat("link set ", PortName(host), is_plugged ? " up" : " down"));
}

absl::Status Networks::SetOneWay(int from, int to, bool is_lost) {
  // The sender believes that the other has a hardware address that nobody has. Many kernels have no
  // filters, but all have this table.
  const std::string entry = absl::StrCat(Address(to), " dev eth0");
  return Ip(hosts_[static_cast<size_t>(from)],
            is_lost ? absl::StrCat("neigh replace ", entry, " lladdr ", kNobody, " nud permanent")
                    : absl::StrCat("neigh del ", entry));
}

absl::Status Networks::Ip(const UniqueFd& network_namespace, const std::string& args) {
  Process::Options options;
  TY_ASSIGN_OR_RETURN(const std::string program, FindIp());
  options.args = absl::StrSplit(absl::StrCat(program, " ", args), ' ');
  options.network_namespace = network_namespace.get();
  TY_ASSIGN_OR_RETURN(const ProcessResult result,
                      RunProcess(std::move(options), scratch_.path(), kPatience));
  if (result.exit_code == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("ip ", args, ": ", result.err));
}

}  // namespace trainyard::testing
