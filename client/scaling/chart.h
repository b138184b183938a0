// The scaling report as a picture: speed-up over devices.
#pragma once

#include <string>

#include "client/scaling/report.h"

namespace trainyard::scaling {

// An SVG of its own: axes, the ideal, what was measured, predicted and published, a legend.
std::string ReportSvg(const Report& report);

}  // namespace trainyard::scaling
