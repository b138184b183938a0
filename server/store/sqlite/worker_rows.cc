#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "server/store/sqlite/rows.h"

namespace trainyard::store {
namespace {

using core::DeviceRecord;
using core::Text;
using core::WorkerRecord;
using core::WorkerState;

int64_t SinceOf(const WorkerState& state) {
  if (const auto* unreachable = std::get_if<core::worker_fsm::Unreachable>(&state)) {
    return unreachable->since_us;
  }
  if (const auto* gone = std::get_if<core::worker_fsm::Gone>(&state)) return gone->since_us;
  return 0;
}

absl::StatusOr<WorkerState> Unflatten(const std::string& name, int64_t since_us) {
  namespace fsm = core::worker_fsm;
  const WorkerState states[] = {fsm::Active{}, fsm::Unreachable{since_us}, fsm::Gone{since_us}};
  for (const WorkerState& state : states) {
    if (fsm::Name(state) == name) return state;
  }
  return absl::DataLossError(absl::StrCat("'", name, "' is no state of a worker"));
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

constexpr char kWriteWorker[] =
    "INSERT INTO workers (name, uid, version, hostname, address, state, state_since_us, "
    "scheduling, create_us, last_seen_us, revision) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (name) DO UPDATE SET uid = excluded.uid, version = excluded.version, "
    "hostname = excluded.hostname, address = excluded.address, state = excluded.state, "
    "state_since_us = excluded.state_since_us, scheduling = excluded.scheduling, "
    "create_us = excluded.create_us, last_seen_us = excluded.last_seen_us, "
    "revision = excluded.revision";
constexpr char kReadWorkers[] =
    "SELECT name, uid, version, hostname, address, state, state_since_us, scheduling, create_us, "
    "last_seen_us, revision FROM workers ORDER BY name";

constexpr char kDeleteDevices[] = "DELETE FROM devices WHERE worker = ?";
constexpr char kWriteDevice[] =
    "INSERT INTO devices (worker, position, name, type, memory_bytes, health, health_reason, cpus, "
    "threads, product, island, quarantine) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
constexpr char kReadDevices[] =
    "SELECT worker, position, name, type, memory_bytes, health, health_reason, cpus, threads, "
    "product, island, quarantine FROM devices ORDER BY worker, position";

constexpr char kDeleteLabels[] = "DELETE FROM worker_labels WHERE worker = ?";
constexpr char kWriteLabel[] = "INSERT INTO worker_labels (worker, name, value) VALUES (?, ?, ?)";
constexpr char kReadLabels[] = "SELECT worker, name, value FROM worker_labels";
constexpr char kDeleteFailedJobs[] = "DELETE FROM worker_failed_jobs WHERE worker = ?";
constexpr char kWriteFailedJob[] =
    "INSERT INTO worker_failed_jobs (worker, position, job) VALUES (?, ?, ?)";
constexpr char kReadFailedJobs[] =
    "SELECT worker, position, job FROM worker_failed_jobs ORDER BY worker, position";

absl::Status TakeWorker(const Statement& row, WorkerRecord& worker) {
  worker.uid = row.Text(1);
  worker.version = row.Text(2);
  worker.hostname = row.Text(3);
  worker.address = row.Text(4);
  TY_ASSIGN_OR_RETURN(worker.state, Unflatten(row.Text(5), row.Int(6)));
  TY_RETURN_IF_ERROR(FromText(row.Text(7), worker.scheduling));
  worker.create_us = row.Int(8);
  worker.last_seen_us = row.Int(9);
  worker.revision = row.Int(10);
  return absl::OkStatus();
}

absl::Status TakeDevice(const Statement& row, DeviceRecord& device) {
  device.name = row.Text(2);
  device.type = row.Text(3);
  device.memory_bytes = row.Int(4);
  TY_RETURN_IF_ERROR(FromText(row.Text(5), device.health));
  device.health_reason = row.Text(6);
  TY_ASSIGN_OR_RETURN(device.cpus, ParseCpus(row.Text(7)));
  device.threads = row.Int32(8);
  device.product = row.Text(9);
  device.island = row.Int32(10);
  device.quarantine = row.Text(11);
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteWorker(Database& db, const WorkerRecord& worker) {
  Statement& row = db.Prepared(kWriteWorker);
  row.Bind(worker.name).Bind(worker.uid).Bind(worker.version).Bind(worker.hostname);
  row.Bind(worker.address).Bind(core::worker_fsm::Name(worker.state)).Bind(SinceOf(worker.state));
  row.Bind(Text(worker.scheduling)).Bind(worker.create_us).Bind(worker.last_seen_us);
  TY_RETURN_IF_ERROR(row.Bind(worker.revision).Run());
  TY_RETURN_IF_ERROR(db.Prepared(kDeleteDevices).Bind(worker.name).Run());
  int64_t position = 0;
  for (const DeviceRecord& device : worker.devices) {
    const std::string cpus = absl::StrJoin(device.cpus, ",");
    Statement& insert = db.Prepared(kWriteDevice);
    insert.Bind(worker.name).Bind(position++).Bind(device.name).Bind(device.type);
    insert.Bind(device.memory_bytes).Bind(Text(device.health)).Bind(device.health_reason);
    insert.Bind(cpus).Bind(device.threads).Bind(device.product).Bind(device.island);
    TY_RETURN_IF_ERROR(insert.Bind(device.quarantine).Run());
  }
  TY_RETURN_IF_ERROR(db.Prepared(kDeleteLabels).Bind(worker.name).Run());
  for (const auto& [name, value] : worker.labels) {
    TY_RETURN_IF_ERROR(db.Prepared(kWriteLabel).Bind(worker.name).Bind(name).Bind(value).Run());
  }
  TY_RETURN_IF_ERROR(db.Prepared(kDeleteFailedJobs).Bind(worker.name).Run());
  position = 0;
  for (const JobId job : worker.failed_jobs) {
    Statement& insert = db.Prepared(kWriteFailedJob);
    TY_RETURN_IF_ERROR(insert.Bind(worker.name).Bind(position++).Bind(job.value).Run());
  }
  return absl::OkStatus();
}

absl::Status ReadWorkers(Database& db, core::Snapshot& snapshot) {
  TY_RETURN_IF_ERROR(ForEachRow(db.Prepared(kReadWorkers), [&](const Statement& row) {
    const std::string name = row.Text(0);
    WorkerRecord& worker = snapshot.workers[name];
    worker.name = name;
    return Annotate(TakeWorker(row, worker), WorkerName(name));
  }));
  TY_RETURN_IF_ERROR(
      ForEachRow(db.Prepared(kReadDevices), [&](const Statement& row) -> absl::Status {
        const std::string name = row.Text(0);
        TY_ASSIGN_OR_RETURN(WorkerRecord * worker, OwnerOf(snapshot.workers, name));
        return Annotate(TakeDevice(row, worker->devices.emplace_back()), WorkerName(name));
      }));
  TY_RETURN_IF_ERROR(
      ForEachRow(db.Prepared(kReadLabels), [&](const Statement& row) -> absl::Status {
        TY_ASSIGN_OR_RETURN(WorkerRecord * worker, OwnerOf(snapshot.workers, row.Text(0)));
        worker->labels[row.Text(1)] = row.Text(2);
        return absl::OkStatus();
      }));
  return ForEachRow(db.Prepared(kReadFailedJobs), [&](const Statement& row) -> absl::Status {
    TY_ASSIGN_OR_RETURN(WorkerRecord * worker, OwnerOf(snapshot.workers, row.Text(0)));
    worker->failed_jobs.push_back(JobId{row.Int(2)});
    return absl::OkStatus();
  });
}

}  // namespace trainyard::store
