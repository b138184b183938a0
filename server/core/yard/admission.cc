// Counts the devices of all known workers by what keeps them from suiting a submission.
#include "server/core/yard/admission.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/errors.h"
#include "common/base/isolation.h"
#include "common/base/strings.h"
#include "server/core/scheduling/eligibility.h"
#include "server/core/scheduling/explain_reasons.h"
#include "server/core/scheduling/worker_users.h"
#include "server/core/yard/reservations.h"

namespace trainyard::core {
namespace {

// At most this many names are listed, so that a message stays readable in a large pool.
constexpr size_t kNamed = 5;

constexpr size_t kMismatches = static_cast<size_t>(Mismatch::kNone) + 1;

std::string Devices(int32_t count) {
  return absl::StrCat(count, count == 1 ? " device" : " devices");
}

template <typename Names>
std::string Listed(const Names& names) {
  const std::vector<std::string> all(names.begin(), names.end());
  const size_t shown = std::min(all.size(), kNamed);
  std::string text =
      absl::StrJoin(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(shown), ", ");
  if (all.size() > shown) absl::StrAppend(&text, " and ", all.size() - shown, " more");
  return text;
}

// The devices that a submission may use, by type and by their first mismatch.
class Census {
 public:
  Census(const YardState& state, const Submission& submission)
      : records_(state.snapshot()),
        contacts_(state.contacts),
        possible_(state.possible),
        submission_(submission),
        demand_(submission.demand) {}

  // Counts until the gang is found, and returns true if it is. A feasible job is therefore found to
  // be so by looking at hardly more devices than it asks for.
  bool FindsGang() {
    for (const auto& [name, worker] : records_.workers) {
      const WorkerUsers& users = contacts_.of(name).users;
      if (!users.Allow(submission_.user)) {
        of_others_ += static_cast<int32_t>(worker.devices.size());
        if (why_not_for_.empty()) why_not_for_ = WhyNotFor(submission_.user, name, users);
        continue;
      }
      if (FindsGangWith(name, worker, contacts_.of(name).datasets.get())) return true;
    }
    for (const PossibleWorkers& possible : possible_) {
      if (!possible.user.empty() && possible.user != submission_.user) continue;
      for (int32_t i = 0; i < possible.count; ++i) {
        if (FindsGangWith(absl::StrCat("provider ", possible.provider), possible.worker,
                          possible.datasets.get())) {
          return true;
        }
      }
    }
    return false;
  }

  // Returns why there is no gang, and what to change. FindsGang must have returned false.
  std::string WhyNot() const {
    if (demand_.is_deviceless) return WhyNotOnHosts();
    if (Passing(kMismatches - 1) >= demand_.least()) return WhyNotOnOneHost();
    size_t first = 0;  // the gang is found among devices that have mismatches below this
    while (first + 1 < kMismatches && Passing(first) >= demand_.least()) ++first;
    const std::string needs =
        absl::StrCat("it needs ", DemandText(demand_), is_split() ? " of one type" : "");
    if (first == 0) return absl::StrCat(needs, "; ", PoolText(), "; ", FewerText(Passing(0)));
    return absl::StrCat(needs, "; ", PoolText(), ", of which ",
                        MismatchText(static_cast<Mismatch>(first - 1), Passing(first)));
  }

 private:
  // Counts the devices of one more worker, and returns true if the gang is found with them.
  bool FindsGangWith(const std::string& name, const WorkerRecord& worker,
                     const WorkerDatasets* datasets) {
    const WorkerTraits traits = TraitsOf(worker, datasets);
    if (worker.host.cpus > largest_host_.cpus) {
      largest_host_ = worker.host;
      largest_worker_ = name;
    }
    if (demand_.is_deviceless) {
      if (worker.host.empty()) return false;
      const Mismatch mismatch = FirstMismatch(demand_, traits, SeatOf(worker.host));
      if (mismatch == Mismatch::kNone) return true;
      ++counts_[""][static_cast<size_t>(mismatch)];
      return false;
    }
    HostAmount room = worker.host;
    std::map<std::string, int32_t> suits;  // devices of this worker without a mismatch, by type
    for (const DeviceRecord& device : worker.devices) {
      if (!IsInReservation(name, device.name)) continue;
      const DeviceTraits of_device = TraitsOf(worker, device);
      Mismatch mismatch = FirstMismatch(demand_, traits, of_device);
      if (mismatch == Mismatch::kNone && !demand_.resources.empty() && !room.empty()) {
        const HostAmount need = HostNeedOn(demand_.resources, of_device);
        if (need.Fits(room)) {
          room -= need;
        } else {
          mismatch = Mismatch::kHost;
        }
      }
      ++counts_[device.type][static_cast<size_t>(mismatch)];
      by_worker_[name] += 1;
      largest_ = std::max(largest_, device.memory_bytes);
      if (mismatch != Mismatch::kNone) continue;
      const int32_t here = ++suits[demand_.mixed ? "" : device.type];
      if (here > most_on_one_host_) {
        most_on_one_host_ = here;
        worker_of_most_ = name;
      }
      if ((demand_.one_host ? here : Passing(kMismatches - 1)) >= demand_.least()) return true;
    }
    return false;
  }

  // For a rank without a device: all that counts is what the hosts are.
  std::string WhyNotOnHosts() const {
    const std::string needs = absl::StrCat("it needs ", DemandText(demand_), " and no device");
    if (largest_host_.empty()) {
      return absl::StrCat(needs, "; no known worker has told how many processors its host has",
                          why_not_for_.empty() ? "" : "; ", why_not_for_);
    }
    const auto counts = counts_.find("");
    if (counts != counts_.end() && counts->second[static_cast<size_t>(Mismatch::kHost)] == 0) {
      const bool is_label = counts->second[static_cast<size_t>(Mismatch::kLabels)] > 0;
      return absl::StrCat(
          needs, "; there is no known worker ",
          is_label ? LabelsText() : absl::StrCat("with ", DatasetText(demand_), "; change data"));
    }
    return absl::StrCat(needs, "; ", LargestHostText(),
                        "; ask for less (resources.cpus, resources.memory)");
  }

  // For a gang that must not be spread over hosts, as program.ranks: one asks.
  std::string WhyNotOnOneHost() const {
    return absl::StrCat("it needs ", DemandText(demand_), "; ", PoolText(),
                        ", and no host has as many that suit it; the largest has ",
                        Devices(most_on_one_host_), " (", worker_of_most_, "); ",
                        FewerText(most_on_one_host_),
                        ", or allow several hosts (program.ranks: host)");
  }

  std::string LargestHostText() const {
    return absl::StrCat("the largest host has ", largest_host_.cpus, " cpus and ",
                        FormatBytes(largest_host_.memory_bytes), " for jobs (", largest_worker_,
                        ")");
  }

  bool IsInReservation(const std::string& worker, const std::string& device) const {
    if (submission_.reservation.empty()) return true;
    const auto& devices = records_.reservations.at(submission_.reservation).devices;
    return std::binary_search(devices.begin(), devices.end(), DeviceKey{worker, device});
  }

  // A gang of any one type may be too large for each type, though not for all of them together.
  bool is_split() const { return demand_.type.empty() && !demand_.mixed && counts_.size() > 1; }

  // Returns the largest gang of devices whose first mismatch is `from` or a later one.
  int32_t Passing(size_t from) const {
    int32_t most = 0;
    int32_t sum = 0;
    for (const auto& [type, by_mismatch] : counts_) {
      int32_t count = 0;
      for (size_t i = from; i < kMismatches; ++i) count += by_mismatch[i];
      most = std::max(most, count);
      sum += count;
    }
    return demand_.mixed ? sum : most;
  }

  std::string PoolText() const {
    std::vector<std::string> workers;
    int32_t devices = 0;
    for (const auto& [worker, count] : by_worker_) {
      workers.push_back(absl::StrCat(worker, ": ", count));
      devices += count;
    }
    const std::string where =
        submission_.reservation.empty()
            ? "all known workers together have "
            : absl::StrCat("reservation '", submission_.reservation, "' has ");
    const std::string others =
        of_others_ == 0 ? ""
                        : absl::StrCat(", besides ", of_others_,
                                       " of workers that do not run jobs of ", submission_.user);
    return absl::StrCat(where, Devices(devices),
                        workers.empty() ? "" : absl::StrCat(" (", Listed(workers), ")"), others);
  }

  std::string FewerText(int32_t most) const {
    if (most == 0 && !why_not_for_.empty()) return why_not_for_;
    if (most == 0 && submission_.reservation.empty()) return "no worker offers a device";
    if (most == 0) return "submit it without --reservation";
    if (demand_.one_host && most_on_one_host_ > 0) most = std::min(most, most_on_one_host_);
    const int32_t fitting = most / demand_.multiple_of * demand_.multiple_of;
    if (fitting == 0) return "cut it into fewer stages (stages.count)";
    return absl::StrCat("ask for at most ", fitting, " (",
                        demand_.is_elastic() ? "devices.min" : "devices.count", ")");
  }

  std::string MismatchText(Mismatch mismatch, int32_t left) const {
    const bool is_enough_for_fewer = left > 0;
    const std::string fewer =
        is_enough_for_fewer ? absl::StrCat(", or ", FewerText(left)) : std::string();
    switch (mismatch) {
      case Mismatch::kType:
        return absl::StrCat(left, left == 1 ? " is" : " are", " of that type; choose another (",
                            "devices.type), of which there are: ", Types(), fewer);
      case Mismatch::kLabels:
        return absl::StrCat(left, left == 1 ? " is" : " are", " on workers ", LabelsText(), fewer);
      case Mismatch::kMemory:
        return absl::StrCat(left, left == 1 ? " has" : " have",
                            " that much memory, and the largest", " has ", FormatBytes(largest_),
                            "; ask for less (devices.memory)", fewer);
      case Mismatch::kHost:
        return absl::StrCat(left, left == 1 ? " has" : " have", " room for ",
                            ResourcesText(demand_.resources), " for each rank, and ",
                            LargestHostText(), "; ask for less (resources.cpus, resources.memory)",
                            fewer);
      case Mismatch::kNeed:
        return absl::StrCat(left, left == 1 ? " has" : " have", " the ", NeedText(),
                            " that the job was planned to need, and the largest has ",
                            FormatBytes(largest_),
                            "; use a smaller train.global_batch, more train.replicas or "
                            "memory.recompute (`trainyard plan` tells what each would need)",
                            fewer);
      case Mismatch::kBf16:
        return absl::StrCat(left, left == 1 ? " computes" : " compute",
                            " in bf16; set train.precision to f32 or auto", fewer);
      case Mismatch::kDataset:
        return absl::StrCat(left, left == 1 ? " is on a worker with " : " are on workers with ",
                            DatasetText(demand_),
                            "; put it into the folder of data sets of a worker (`trainyard data "
                            "ls` shows what there is)",
                            fewer);
      case Mismatch::kNone:
        break;
    }
    return absl::StrCat(left, " suit it");
  }

  // The server itself asks for a label where a program is to be isolated.
  std::string LabelsText() const {
    const bool is_isolation =
        std::all_of(demand_.labels.begin(), demand_.labels.end(), [](const auto& label) {
          return label.first == kCgroupLabel || label.first == kSandboxLabel ||
                 label.first == kContainerLabel;
        });
    return is_isolation ? "that can isolate programs so; choose a weaker program.isolation or no "
                          "container, or see what `trainyard doctor` says on their hosts"
                        : "with these labels; change devices.labels";
  }

  // Returns "57 GiB", or "57 GiB (cpu), 9.1 GiB (h200)" if that depends on the type.
  std::string NeedText() const {
    std::vector<std::string> needs;
    for (const auto& [type, counts] : counts_) {
      const int64_t need = NeedOn(demand_, type);
      if (counts[static_cast<size_t>(Mismatch::kNeed)] == 0) continue;
      needs.push_back(
          absl::StrCat(FormatBytes(need), counts_.size() > 1 ? absl::StrCat(" (", type, ")") : ""));
    }
    return absl::StrJoin(needs, ", ");
  }

  std::string Types() const {
    std::vector<std::string> types;
    for (const auto& [type, counts] : counts_) types.push_back(type);
    return Listed(types);
  }

  const Snapshot& records_;
  const Contacts& contacts_;
  const std::vector<PossibleWorkers>& possible_;
  const Submission& submission_;
  const Demand& demand_;
  std::map<std::string, std::array<int32_t, kMismatches>> counts_;
  std::map<std::string, int32_t> by_worker_;
  int64_t largest_ = 0;
  HostAmount largest_host_;  // the host with the most processors, and its worker
  std::string largest_worker_;
  int32_t most_on_one_host_ = 0;  // devices that suit, of one type unless the gang may be mixed
  std::string worker_of_most_;
  int32_t of_others_ = 0;    // devices of workers that do not run jobs of this user
  std::string why_not_for_;  // why the first of these workers does not
};

absl::Status CheckReservation(const Snapshot& records, const Submission& submission) {
  const std::string& name = submission.reservation;
  const auto found = records.reservations.find(name);
  if (found == records.reservations.end()) {
    std::vector<std::string> names;
    for (const auto& [other, reservation] : records.reservations) names.push_back(other);
    const std::string nearest = NearestWord(name, names);
    return error::CannotRun(absl::StrCat(
        "reservation '", name, "' does not exist; ",
        !nearest.empty() ? absl::StrCat("did you mean '", nearest, "'?")
        : names.empty()  ? std::string("there are no reservations: submit it without --reservation")
                         : absl::StrCat("there are: ", Listed(names))));
  }
  if (ReservationsOf(records, submission).count(name) > 0) return absl::OkStatus();
  return error::CannotRun(absl::StrCat(
      "reservation '", name, "' is for ", Listed(found->second.subjects),
      ", and this is user:", submission.user,
      submission.project.empty() ? "" : absl::StrCat(" in project:", submission.project),
      "; submit it without --reservation, or ask ", found->second.actor));
}

}  // namespace

absl::Status CheckCanRun(const YardState& state, const Submission& submission) {
  const Snapshot& records = state.snapshot();
  if (!submission.reservation.empty()) {
    if (absl::Status status = CheckReservation(records, submission); !status.ok()) return status;
  }
  if (submission.demand.is_deviceless && !submission.reservation.empty()) {
    return error::CannotRun(
        "a reservation keeps devices, and this job asks for none; submit it without --reservation, "
        "or with devices: 1");
  }
  if (records.workers.empty()) return absl::OkStatus();
  Census census(state, submission);
  if (census.FindsGang()) return absl::OkStatus();
  return error::CannotRun(census.WhyNot());
}

}  // namespace trainyard::core
