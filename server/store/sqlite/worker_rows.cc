// Maps workers to rows: the worker itself, its devices, its labels, and the jobs that failed on it.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "server/store/sqlite/rows.h"
#include "server/store/sqlite/table.h"

namespace trainyard::store {
namespace {

using core::DeviceRecord;
using core::WorkerRecord;
using core::WorkerState;

struct WorkerRow {
  WorkerRecord worker;  // without devices, labels and failed jobs
  std::string state;
  int64_t state_since_us = 0;
};

const Table<WorkerRow>& Workers() {
  using Row = WorkerRow;
  static const auto* table = new Table<Row>(
      "workers", /*keys=*/1,
      {TY_COLUMN(Row, "name", worker.name), TY_COLUMN(Row, "uid", worker.uid),
       TY_COLUMN(Row, "version", worker.version), TY_COLUMN(Row, "hostname", worker.hostname),
       TY_COLUMN(Row, "address", worker.address), TY_COLUMN(Row, "state", state),
       TY_COLUMN(Row, "state_since_us", state_since_us),
       TY_COLUMN(Row, "scheduling", worker.scheduling),
       TY_COLUMN(Row, "create_us", worker.create_us),
       TY_COLUMN(Row, "last_seen_us", worker.last_seen_us),
       TY_COLUMN(Row, "revision", worker.revision), TY_COLUMN(Row, "host_cpus", worker.host.cpus),
       TY_COLUMN(Row, "host_memory_bytes", worker.host.memory_bytes)});
  return *table;
}

struct DeviceRow {
  std::string worker;
  int64_t position = 0;
  DeviceRecord device;
  std::string cpus;  // numbers separated by commas
};

const Table<DeviceRow>& Devices() {
  using Row = DeviceRow;
  static const auto* table = new Table<Row>(
      "devices", /*keys=*/2,
      {TY_COLUMN(Row, "worker", worker), TY_COLUMN(Row, "position", position),
       TY_COLUMN(Row, "name", device.name), TY_COLUMN(Row, "type", device.type),
       TY_COLUMN(Row, "memory_bytes", device.memory_bytes), TY_COLUMN(Row, "health", device.health),
       TY_COLUMN(Row, "health_reason", device.health_reason), TY_COLUMN(Row, "cpus", cpus),
       TY_COLUMN(Row, "threads", device.threads), TY_COLUMN(Row, "product", device.product),
       TY_COLUMN(Row, "island", device.island), TY_COLUMN(Row, "quarantine", device.quarantine),
       TY_COLUMN(Row, "bf16", device.bf16)});
  return *table;
}

struct LabelRow {
  std::string worker;
  std::string name;
  std::string value;
};

const Table<LabelRow>& Labels() {
  using Row = LabelRow;
  static const auto* table =
      new Table<Row>("worker_labels", /*keys=*/2,
                     {TY_COLUMN(Row, "worker", worker), TY_COLUMN(Row, "name", name),
                      TY_COLUMN(Row, "value", value)});
  return *table;
}

struct FailedJobRow {
  std::string worker;
  int64_t position = 0;
  JobId job;
};

const Table<FailedJobRow>& FailedJobs() {
  using Row = FailedJobRow;
  static const auto* table =
      new Table<Row>("worker_failed_jobs", /*keys=*/2,
                     {TY_COLUMN(Row, "worker", worker), TY_COLUMN(Row, "position", position),
                      TY_COLUMN(Row, "job", job)});
  return *table;
}

int64_t SinceOf(const WorkerState& state) {
  if (const auto* unreachable = std::get_if<core::worker_fsm::Unreachable>(&state)) {
    return unreachable->since_us;
  }
  if (const auto* gone = std::get_if<core::worker_fsm::Gone>(&state)) return gone->since_us;
  return 0;
}

absl::StatusOr<WorkerState> Unflatten(const WorkerRow& row) {
  namespace fsm = core::worker_fsm;
  const WorkerState states[] = {fsm::Active{}, fsm::Unreachable{row.state_since_us},
                                fsm::Gone{row.state_since_us}};
  for (const WorkerState& state : states) {
    if (fsm::Name(state) == row.state) return state;
  }
  return absl::DataLossError(absl::StrCat("'", row.state, "' is no state of a worker"));
}

absl::StatusOr<std::vector<int32_t>> ParseCpus(const std::string& text) {
  std::vector<int32_t> cpus;
  for (const absl::string_view word : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    if (!absl::SimpleAtoi(word, &cpus.emplace_back())) {
      return absl::DataLossError(absl::StrCat("'", word, "' is no processor number"));
    }
  }
  return cpus;
}

absl::Status WriteDevices(Database& db, const WorkerRecord& worker) {
  TY_RETURN_IF_ERROR(Devices().Delete(db, worker.name));
  int64_t position = 0;
  for (const DeviceRecord& device : worker.devices) {
    TY_RETURN_IF_ERROR(
        Devices().Insert(db, {worker.name, position++, device, absl::StrJoin(device.cpus, ",")}));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteWorker(Database& db, const WorkerRecord& worker) {
  TY_RETURN_IF_ERROR(Workers().Put(
      db, {worker, std::string(core::worker_fsm::Name(worker.state)), SinceOf(worker.state)}));
  TY_RETURN_IF_ERROR(WriteDevices(db, worker));
  TY_RETURN_IF_ERROR(Labels().Delete(db, worker.name));
  for (const auto& [name, value] : worker.labels) {
    TY_RETURN_IF_ERROR(Labels().Insert(db, {worker.name, name, value}));
  }
  TY_RETURN_IF_ERROR(FailedJobs().Delete(db, worker.name));
  int64_t position = 0;
  for (const JobId job : worker.failed_jobs) {
    TY_RETURN_IF_ERROR(FailedJobs().Insert(db, {worker.name, position++, job}));
  }
  return absl::OkStatus();
}

absl::Status DeleteWorker(Database& db, const std::string& name) {
  TY_RETURN_IF_ERROR(Devices().Delete(db, name));
  TY_RETURN_IF_ERROR(Labels().Delete(db, name));
  TY_RETURN_IF_ERROR(FailedJobs().Delete(db, name));
  return Workers().Delete(db, name);
}

absl::Status ReadWorkers(Database& db, core::Snapshot& snapshot) {
  TY_RETURN_IF_ERROR(Workers().ReadDamaged(db, [&](WorkerRow& row, absl::Status damage) {
    auto state = Unflatten(row);
    damage.Update(state.status());
    if (damage.ok()) {
      row.worker.state = *std::move(state);
    } else {
      TellDamage(WorkerName(row.worker.name), "the worker is cordoned until it is uncordoned",
                 damage);
      row.worker.state = core::worker_fsm::Unreachable{row.state_since_us};
      row.worker.scheduling = core::Scheduling::kCordoned;
    }
    std::string name = row.worker.name;
    snapshot.workers.insert_or_assign(std::move(name), std::move(row.worker));
    return absl::OkStatus();
  }));
  TY_RETURN_IF_ERROR(
      Devices().ReadDamaged(db, [&](DeviceRow& row, absl::Status damage) -> absl::Status {
        TY_ASSIGN_OR_RETURN(WorkerRecord * worker, OwnerOf(snapshot.workers, row.worker));
        auto cpus = ParseCpus(row.cpus);
        damage.Update(cpus.status());
        if (damage.ok()) {
          row.device.cpus = *std::move(cpus);
        } else {
          TellDamage(absl::StrCat(WorkerName(row.worker), " ", row.device.name),
                     "the device is quarantined until it is released", damage);
          row.device.quarantine = "its row in the database is damaged";
        }
        worker->devices.push_back(std::move(row.device));
        return absl::OkStatus();
      }));
  TY_RETURN_IF_ERROR(Labels().Read(db, [&](LabelRow& row) -> absl::Status {
    TY_ASSIGN_OR_RETURN(WorkerRecord * worker, OwnerOf(snapshot.workers, row.worker));
    worker->labels[row.name] = row.value;
    return absl::OkStatus();
  }));
  return FailedJobs().Read(db, [&](const FailedJobRow& row) -> absl::Status {
    TY_ASSIGN_OR_RETURN(WorkerRecord * worker, OwnerOf(snapshot.workers, row.worker));
    worker->failed_jobs.push_back(row.job);
    return absl::OkStatus();
  });
}

}  // namespace trainyard::store
