// Draws the scaling report as a picture: speed-up over devices.
#pragma once

#include <string>

#include "client/scaling/report.h"

namespace trainyard::scaling {

// Returns a complete SVG: axes, the ideal, what was measured, predicted and published, and a
// legend.
std::string ReportSvg(const Report& report);

}  // namespace trainyard::scaling
