// Reports of trainers and workers that are made for people to see. The core carries them as bytes,
// and reads only the few numbers beside them that it decides by.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "server/core/lifecycle/records.h"
#include "trainyard/v1/fleet.pb.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::codec {

// `report` must have been checked. What the server knows better than a trainer is left out of it.
core::Progress EncodeProgress(v1::Progress report);
// The whole report; empty before the first.
v1::Progress DecodeProgress(const core::Progress& progress);

// The progress whose report was kept as bytes, empty for none.
core::Progress ProgressOf(std::string report);

// An unreadable text gives an empty message: it is only shown.
v1::DeviceUsage DecodeUsage(absl::string_view usage);

}  // namespace trainyard::codec
