// Draws a batch-size study.
#pragma once

#include <string>

#include "client/commands/batch_study.h"

namespace trainyard::commands {

// Returns a complete SVG of two panels over the batch, all axes logarithmic: the steps to the
// target with the dashed lines of perfect scaling, and the time to the target. Each optimizer has a
// line. Knees have a ring, and trainings that did not reach the target a cross at the upper edge.
std::string BatchStudySvg(const BatchStudy& study);

}  // namespace trainyard::commands
