// Reads and writes the keys of Gloo's rendezvous as files.
#include "worker/parallel/gloo/run_dir_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/duration.h"
#include "common/base/env.h"
#include "gloo/common/error.h"
#include "worker/run_dir/rendezvous.h"

namespace trainyard::parallel {
namespace {

// The interval is short at first, since the ranks of one host come within milliseconds of each
// other.
constexpr absl::Duration kPollMin = absl::Microseconds(200);
constexpr absl::Duration kPollMax = absl::Milliseconds(20);

}  // namespace

RunDirStore::RunDirStore(run_dir::RunDir dir, std::string prefix, std::vector<int> members,
                         absl::Duration timeout, const std::atomic<bool>* cancelled)
    : dir_(std::move(dir)),
      prefix_(std::move(prefix)),
      members_(std::move(members)),
      timeout_(timeout),
      cancelled_(cancelled) {}

std::string RunDirStore::Global(const std::string& key) const {
  size_t rank = 0;
  // A key that is not a rank stays as it is.
  if (!absl::SimpleAtoi(key, &rank) || rank >= members_.size()) return key;
  return absl::StrCat(members_[rank]);
}

void RunDirStore::set(const std::string& key, const std::vector<char>& data) {
  const absl::Status status =
      run_dir::SetRendezvousKey(dir_, Path(key), absl::string_view(data.data(), data.size()));
  if (absl::IsAlreadyExists(status)) {
    throw gloo::IoException(absl::StrCat("'", dir_.RendezvousDir(),
                                         "' holds keys of an earlier run; remove the folder"));
  }
  if (!status.ok()) throw gloo::IoException(std::string(status.message()));
}

std::vector<char> RunDirStore::get(const std::string& key) {
  wait({key});
  const auto value = run_dir::GetRendezvousKey(dir_, Path(key));
  if (!value.ok()) throw gloo::IoException(std::string(value.status().message()));
  return {value->begin(), value->end()};
}

void RunDirStore::wait(const std::vector<std::string>& keys) {
  wait(keys, std::chrono::milliseconds(absl::ToInt64Milliseconds(timeout_)));
}

void RunDirStore::wait(const std::vector<std::string>& keys,
                       const std::chrono::milliseconds& timeout) {
  Clock* clock = Clock::Real();
  // Gloo passes its own limit for connecting. The limit that was asked for may be longer.
  const absl::Duration limit = std::max(absl::FromChrono(timeout), timeout_);
  const absl::Duration deadline = clock->Uptime() + limit;
  missing_.clear();
  for (const std::string& key : keys) missing_.push_back(Global(key));
  for (absl::Duration pause = kPollMin; true; pause = std::min(2 * pause, kPollMax)) {
    std::erase_if(missing_, [this](const std::string& rank) {
      return run_dir::GetRendezvousKey(dir_, prefix_ + rank).ok();
    });
    if (missing_.empty()) return;
    if (cancelled_ != nullptr && cancelled_->load()) throw gloo::IoException("cancelled");
    if (clock->Uptime() >= deadline) {
      throw gloo::IoException(absl::StrCat("rank ", absl::StrJoin(missing_, ", rank "),
                                           " did not appear within ", DurationText(limit)));
    }
    clock->SleepFor(pause);
  }
}

}  // namespace trainyard::parallel
