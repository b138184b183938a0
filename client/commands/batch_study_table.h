// Shows a batch-size study to people and to programs.
#pragma once

#include <string>

#include "client/commands/batch_study.h"

namespace trainyard::commands {

// Returns the target with how it was chosen, the table, and what it says about each optimizer.
std::string BatchStudyText(const BatchStudy& study);
// Returns one JSON object; docs/studies.md lists its fields.
std::string BatchStudyJson(const BatchStudy& study, bool indented);
// Returns the rows as a JSON list of objects.
std::string BatchStudyRowsJson(const BatchStudy& study);

}  // namespace trainyard::commands
