// Joins what was counted turn by turn with what is read for each scrape.
#include "server/metrics/exposition.h"

#include <set>
#include <utility>

#include "common/base/version.h"
#include "prometheus/text_serializer.h"
#include "server/metrics/bucket_families.h"

namespace trainyard::metrics {
namespace {

void Append(Families more, Families& families) {
  for (prometheus::MetricFamily& family : more) families.push_back(std::move(family));
}

prometheus::MetricFamily BuildInfo() {
  prometheus::MetricFamily info =
      Gauge("trainyard_build_info", "It is always 1, and its label is the version of the server.");
  AddValue(info, {{"version", std::string(Version())}}, 1);
  return info;
}

prometheus::MetricFamily StoredBytes(const runtime::Board& board) {
  runtime::Board::Tally all;
  for (const auto& [owner, tally] : board.Tallies()) all.Add(tally);
  prometheus::MetricFamily stored =
      Gauge("trainyard_stored_bytes", "The bytes that are stored for jobs, by kind.");
  AddValue(stored, {{"kind", "checkpoints"}}, static_cast<double>(all.checkpoint_bytes));
  AddValue(stored, {{"kind", "logs"}}, static_cast<double>(all.streams.logs));
  AddValue(stored, {{"kind", "metrics"}}, static_cast<double>(all.streams.metrics));
  return stored;
}

// Families without a value would be nothing but comments.
void DropEmpty(Families& families) {
  std::erase_if(families,
                [](const prometheus::MetricFamily& family) { return family.metric.empty(); });
}

}  // namespace

Exposition::Exposition(const Meters& meters, runtime::Runtime& runtime, const runtime::Board& board,
                       const access::Directory& directory, const runtime::BucketCopier* copier,
                       std::string state_dir, Clock& clock)
    : meters_(meters),
      runtime_(runtime),
      board_(board),
      directory_(directory),
      copier_(copier),
      state_dir_(std::move(state_dir)),
      clock_(clock) {}

void Exposition::Write(Done done) {
  runtime_.Read([this, done = std::move(done)](absl::StatusOr<const core::Yard*> yard) {
    if (!yard.ok()) return done(yard.status());
    PoolUsage usage;
    for (const auto& [name, worker] : (*yard)->snapshot().workers) {
      usage[name] = (*yard)->UsageOn(name);
    }
    const absl::Status posted =
        executor_.TryPost([this, done, usage = std::move(usage)] { done(Text(usage)); });
    if (!posted.ok()) done(posted);
  });
}

std::string Exposition::Text(const PoolUsage& usage) const {
  std::set<std::string> private_projects;
  for (const access::ProjectRecord& project : directory_.projects()) {
    if (project.is_private) private_projects.insert(project.name);
  }
  Families families = {BuildInfo()};
  Append(meters_.yard.Collect(clock_.Now(), private_projects), families);
  Append(DeviceFamilies(usage), families);
  families.push_back(StoredBytes(board_));
  if (copier_ != nullptr) Append(BucketFamilies(copier_->figures(), clock_.Now()), families);
  Append(DiskFamilies(state_dir_), families);
  Append(BackupFamilies(state_dir_), families);
  Append(ProcessFamilies(process_start_), families);
  Append(meters_.registry.Collect(), families);
  DropEmpty(families);
  return prometheus::TextSerializer().prometheus::Serializer::Serialize(families);
}

}  // namespace trainyard::metrics
