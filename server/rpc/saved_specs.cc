// Looks saved specs up, and makes them.
#include "server/rpc/saved_specs.h"

#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/spec/resolve.h"
#include "server/codec/submission.h"
#include "server/published/published.h"
#include "server/rpc/convert.h"
#include "server/verification/run_record.h"

namespace trainyard::rpc {

bool MaySee(const access::Caller& caller, const Services& services, const v1::SavedSpec& saved) {
  return services.directory.MaySee(caller, saved.user(), saved.project());
}

absl::StatusOr<store::SpecStore::Summary> FindSavedSpec(const std::string& name,
                                                        const access::Caller& caller,
                                                        const Services& services) {
  TY_ASSIGN_OR_RETURN(const SpecId id, ParseSpecName(name));
  if (services.specs == nullptr) return absl::UnavailableError("this server has no catalogue");
  auto found = services.specs->Find(id);
  if (found != nullptr && MaySee(caller, services, *found)) return found;
  std::vector<std::string> names;
  services.specs->ForEachNewest("", [&](const store::SpecStore::Summary& newest) {
    if (MaySee(caller, services, *newest)) names.push_back(ParseSpecName(newest->name())->name);
    return true;
  });
  return error::SpecNotFound(id, names);
}

v1::SavedSpec SavedSpecOf(const v1::JobSpec& written, const v1::JobSpec& resolved) {
  v1::SavedSpec saved;
  *saved.mutable_spec() = written;
  *saved.mutable_resolved_spec() = resolved;
  saved.mutable_spec()->clear_notify();
  saved.mutable_resolved_spec()->clear_notify();
  saved.set_title(resolved.name());
  saved.set_project(resolved.project());
  saved.set_code(resolved.program().code());
  saved.set_model(ModelKind(resolved));
  saved.set_dataset(resolved.data().dataset());
  return saved;
}

v1::SavedSpec SavedSpecOf(const runtime::JobView& job) {
  const core::JobRecord& record = job.record;
  v1::JobSpec resolved = ResolvedSpecOf(record);
  if (resolved.data().digest().empty() && !record.data_digest.empty()) {
    resolved.mutable_data()->set_digest(record.data_digest);
  }
  v1::SavedSpec saved = SavedSpecOf(SpecOf(*record.submission), resolved);
  const v1::Job shown = ToProto(job);
  if (shown.provenance().has_code()) *saved.mutable_code_origin() = shown.provenance().code();
  v1::SavedResult& result = *saved.mutable_result();
  result.set_job(shown.name());
  result.set_uid(shown.uid());
  result.set_state(shown.state());
  *result.mutable_final_metrics() = shown.final_metrics();
  result.set_step(record.progress.step);
  *result.mutable_device_time() = shown.device_time();
  return saved;
}

absl::Status SavePublished(store::SpecStore& specs, const std::string& version, absl::Time now) {
  TY_ASSIGN_OR_RETURN(const v1::ListSavedSpecsResponse published, published::PublishedSpecs());
  std::vector<std::pair<std::string, v1::SavedSpec>> changed;
  for (const v1::SavedSpec& entry : published.specs()) {
    TY_ASSIGN_OR_RETURN(const SpecId id, ParseSpecName(entry.name()));
    const auto newest = specs.Find(id);
    if (newest == nullptr && specs.WasUsed(id.name)) continue;
    if (newest != nullptr && newest->user() != published::kPublisher) continue;
    TY_ASSIGN_OR_RETURN(const v1::JobSpec resolved, spec::ResolveSpec(entry.spec()));
    if (newest != nullptr) {
      TY_ASSIGN_OR_RETURN(const v1::SavedSpec known, specs.Read(id));
      if (known.note() == entry.note() &&
          known.resolved_spec().SerializeAsString() == resolved.SerializeAsString()) {
        continue;
      }
    }
    v1::SavedSpec saved = SavedSpecOf(entry.spec(), resolved);
    saved.set_user(published::kPublisher);
    saved.set_note(entry.note());
    *saved.mutable_tags() = entry.tags();
    saved.set_server_version(version);
    *saved.mutable_create_time() = ToTimestamp(absl::ToUnixMicros(now));
    changed.emplace_back(id.name, std::move(saved));
  }
  return changed.empty() ? absl::OkStatus() : specs.PutAll(std::move(changed)).status();
}

std::string DevicesText(const core::AttemptRecord& attempt, const core::Yard& yard) {
  std::vector<std::string> types;
  for (const core::RankPlacement& rank : attempt.ranks) {
    std::string type = rank.device.empty() ? "host" : "device";
    if (const core::WorkerRecord* worker = yard.FindWorker(rank.worker); worker != nullptr) {
      for (const core::DeviceRecord& device : worker->devices) {
        if (device.name == rank.device) type = device.type;
      }
    }
    types.push_back(std::move(type));
  }
  return verification::DevicesText(types);
}

}  // namespace trainyard::rpc
