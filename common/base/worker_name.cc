// Derives a worker's name from the host name. A worker that a person starts and one that `trainyard
// up` starts on the same host use this rule, because the server must see the same worker.
#include "common/base/worker_name.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/ascii.h"

namespace trainyard {
namespace {

constexpr size_t kNameMax = 63;

}  // namespace

bool IsWorkerName(absl::string_view name) {
  const auto is_fine = [](unsigned char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
  };
  return !name.empty() && name.size() <= kNameMax && std::all_of(name.begin(), name.end(), is_fine);
}

std::string Hostname() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "";
  return name;
}

std::string WorkerNameOf(absl::string_view hostname) {
  std::string name;
  for (const char c : hostname.substr(0, kNameMax)) {
    const bool is_fine = absl::ascii_isalnum(static_cast<unsigned char>(c));
    name += is_fine ? absl::ascii_tolower(static_cast<unsigned char>(c)) : '-';
  }
  return name.empty() ? "worker" : name;
}

}  // namespace trainyard
