// Draws the table of differences between two specs. `diff` shows it, and `clone` shows it before it
// submits.
#pragma once

#include <string>

#include "trainyard/v1/job.pb.h"

namespace trainyard::commands {

std::string DifferencesText(
    const google::protobuf::RepeatedPtrField<v1::SpecDifference>& differences,
    const std::string& left_title, const std::string& right_title);

}  // namespace trainyard::commands
