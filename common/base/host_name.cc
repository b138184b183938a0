// How a host is named. The domain is no part of a worker's name, so that a host that gets one keeps
// its worker.
#include "common/base/host_name.h"

#include <unistd.h>

#include <array>

#include "absl/strings/ascii.h"

namespace trainyard {
namespace {

// The limit of worker names.
constexpr size_t kWorkerNameMax = 63;

}  // namespace

std::string HostName() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "";
  return name.data();
}

std::string WorkerNameOfHost(absl::string_view host_name) {
  std::string name;
  for (const char c : host_name.substr(0, host_name.find('.')).substr(0, kWorkerNameMax)) {
    const bool is_fine = absl::ascii_isalnum(static_cast<unsigned char>(c));
    name.push_back(is_fine ? absl::ascii_tolower(static_cast<unsigned char>(c)) : '-');
  }
  return name.empty() ? "worker" : name;
}

}  // namespace trainyard
