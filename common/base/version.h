// Declares the version that every binary reports and every resolved spec records.
#pragma once

namespace trainyard {

// Returns the release and the commit: "0.1.0+1a2b3c4d5e6f".
const char* Version();

}  // namespace trainyard
