// Finds saved specs that a caller may see, and makes new ones of jobs and of specs.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/access/caller.h"
#include "server/core/yard/yard.h"
#include "server/rpc/request.h"
#include "server/rpc/services.h"
#include "server/store/sqlite/spec_store.h"
#include "trainyard/v1/catalogue.pb.h"

namespace trainyard::rpc {

// Returns true if the caller may see the saved spec, by the rules for jobs of its project.
bool MaySee(const access::Caller& caller, const Services& services, const v1::SavedSpec& saved);

// Finds the version that a full name means. Returns INVALID_ARGUMENT for a name of another form,
// and NOT_FOUND (SPEC_NOT_FOUND) if there is none that the caller may see.
absl::StatusOr<store::SpecStore::Summary> FindSavedSpec(const std::string& name,
                                                        const access::Caller& caller,
                                                        const Services& services);

// Describes a job as a saved spec: its specs with the digest of its data, so that whoever runs it
// trains on the same, and how the job ended. The addresses that the owner wanted to be told at are
// left out.
v1::SavedSpec SavedSpecOf(const runtime::JobView& job);
// Describes a spec, which was resolved, as a saved spec.
v1::SavedSpec SavedSpecOf(const v1::JobSpec& written, const v1::JobSpec& resolved);

// Saves the published experiments whose names nobody has used, and new versions of those that have
// changed since an earlier version of Trainyard. What an administrator has deleted stays away.
absl::Status SavePublished(store::SpecStore& specs, const std::string& version, absl::Time now);

// Returns where an attempt ran: "2 x h200", or "1 x h200, 1 x gtx-1080". Ranks without a device
// count as "1 x host".
std::string DevicesText(const core::AttemptRecord& attempt, const core::Yard& yard);

}  // namespace trainyard::rpc
