// Draws the trials of a sweep.
#pragma once

#include <string>

#include "trainyard/v1/sweep_service.pb.h"

namespace trainyard::commands {

// Returns a complete SVG in parallel coordinates: an axis for each parameter on its own scale, the
// objective as the last axis with the better values above, and a line for each trial that has
// values, coloured by its rank.
std::string SweepSvg(const v1::Sweep& sweep);

}  // namespace trainyard::commands
