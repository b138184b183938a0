// Encodes reports of trainers and workers that are made for people to see. The core carries them as
// bytes, and reads only the few numbers beside them that its decisions need.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "server/core/lifecycle/records.h"
#include "trainyard/v1/fleet.pb.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::codec {

// Encodes a report, which must have been checked. Fields that the server knows better than a
// trainer are left out.
core::Progress EncodeProgress(v1::Progress report);
// Returns the whole report, which is empty before the first one.
v1::Progress DecodeProgress(const core::Progress& progress);

// Returns the progress whose report was kept as bytes. Empty bytes mean no report.
core::Progress ProgressOf(std::string report);

// Decodes the usage of a device. An unreadable text gives an empty message, because it is only
// shown.
v1::DeviceUsage DecodeUsage(absl::string_view usage);

}  // namespace trainyard::codec
